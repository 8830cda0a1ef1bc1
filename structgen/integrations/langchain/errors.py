"""Errors of structgen's as LangChain's, so that its fallbacks, retries and middleware know them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from langchain_core import exceptions

from structgen.errors import (
    BudgetTooSmall,
    IncompleteOutput,
    ModelNotFound,
    OptionError,
    OutputTypeError,
    Overloaded,
    PromptError,
    StructgenError,
    WorkerDied,
)


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Raise LangChain's error for each of structgen's, which is its cause."""
    try:
        yield
    except Overloaded as error:
        raise exceptions.ModelRateLimitError(str(error)) from error
    except ModelNotFound as error:
        raise exceptions.ModelNotFoundError(str(error)) from error
    except WorkerDied as error:
        raise exceptions.ModelConnectionError(str(error)) from error
    except IncompleteOutput as error:
        raise exceptions.ModelTimeoutError(str(error)) from error
    except PromptError as error:
        if error.is_too_long:
            raise exceptions.ContextOverflowError(str(error)) from error
        raise exceptions.ModelInvalidRequestError(str(error)) from error
    except (BudgetTooSmall, OptionError, OutputTypeError) as error:
        raise exceptions.ModelInvalidRequestError(str(error)) from error
    except StructgenError as error:
        raise exceptions.ModelError(str(error)) from error
