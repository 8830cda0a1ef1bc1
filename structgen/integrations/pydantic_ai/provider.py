"""The Runner behind pydantic-ai's models, what they can do, and errors in pydantic-ai's words.

Owns which Runner a model is asked of, and when models that nobody else holds are unloaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from types import TracebackType

from pydantic_ai import exceptions
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers import Provider

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
from structgen.runner import Runner

from ..frameworks import own_runner

SYSTEM = "structgen"
"""What pydantic-ai calls the provider."""


PROFILE = ModelProfile(
    supports_tools=True,
    supports_json_schema_output=True,
    supports_json_object_output=True,
    default_structured_output_mode="native",
    native_output_requires_schema_in_instructions=True,  # the mask is the model's, not its prompt
    supports_thinking=True,
    thinking_tags=("<think>", "</think>"),
)
"""What every model of a Runner can do. Forms and calls are enforced by mask."""


class StructgenProvider(Provider[Runner]):
    """A Runner, as pydantic-ai's models take one.

    Args:
        runner: with the models. None: one of its own, to which models are added by their names,
            and unloaded when the last agent or model is left that was entered with ``async with``.
    """

    def __init__(self, runner: Runner | None = None) -> None:
        self._client = Runner() if runner is None else runner
        self._is_own = runner is None
        self._known: set[str] = set()  # models that were named here, of a Runner of its own

    @property
    def name(self) -> str:
        """``structgen``."""
        return SYSTEM

    @property
    def base_url(self) -> str:
        """Empty: models run on this machine."""
        return ""

    @property
    def client(self) -> Runner:
        """The Runner."""
        return self._client

    @staticmethod
    def model_profile(model_name: str) -> ModelProfile | None:
        """What a model can do."""
        return PROFILE

    def know(self, model_name: str) -> None:
        """Have a Runner of its own know a model; another Runner knows its models."""
        if not self._is_own:
            return
        self._known.add(model_name)
        if model_name not in self._client.list_models():
            with contextlib.suppress(OptionError):  # another thread has just added it
                self._client.add_model(model_name, model_name)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        """Leave it; see the class."""
        was_entered = self._entered_count > 0
        await super().__aexit__(exc_type, exc_val, exc_tb)
        if self._is_own and was_entered and self._entered_count == 0:
            for model in sorted(self._known):
                await self._client.aunload(model)
        return None


@cache
def own_provider() -> StructgenProvider:
    """The provider of models for which no other was named.

    Its Runner is the one that all adapters share: a model is loaded once for all of them.
    """
    made = StructgenProvider(own_runner())
    made._is_own = True
    return made


def provider_of(given: StructgenProvider | Runner | None, model_name: str) -> StructgenProvider:
    """The provider that is meant, which knows a model."""
    if given is None:
        given = own_provider()
    elif isinstance(given, Runner):
        given = StructgenProvider(given)
    given.know(model_name)
    return given


@contextlib.contextmanager
def errors_of(model_name: str) -> Iterator[None]:
    """Errors of structgen's as pydantic-ai's, so that its `FallbackModel` and retries know them."""
    try:
        yield
    except Overloaded as error:
        raise exceptions.ModelOverloadedError(
            model_name, str(error), retry_after=error.retry_after
        ) from error
    except ModelNotFound as error:
        raise exceptions.ModelNotFoundError(model_name, str(error)) from error
    except WorkerDied as error:
        raise exceptions.ModelConnectionError(model_name, str(error)) from error
    except IncompleteOutput as error:
        raise exceptions.ModelTimeoutError(model_name, str(error)) from error
    except (BudgetTooSmall, OptionError, OutputTypeError, PromptError) as error:
        raise exceptions.ModelRequestRejectedError(
            model_name, str(error), provider_error_code=getattr(error, "param", None)
        ) from error
    except StructgenError as error:
        raise exceptions.ModelServerError(model_name, str(error)) from error
