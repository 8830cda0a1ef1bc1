"""What calls of an embedder are given: texts and options, checked.

Knows no models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from structgen.errors import OptionError

OnTruncation = Literal["warn", "error", "ignore"]
Encoding = Literal["float", "base64"]


def check_encoding(encoding: str) -> None:
    """Raise OptionError unless vectors can be written so."""
    if encoding not in ("float", "base64"):
        raise OptionError(f"encoding={encoding!r} is unknown. It is 'float' or 'base64'.")


def check_options(on_truncation: str, batch_tokens: int) -> None:
    """Raise OptionError where one of these is out of range."""
    if on_truncation not in ("warn", "error", "ignore"):
        raise OptionError(
            f"on_truncation={on_truncation!r} is unknown. It is 'warn', 'error' or 'ignore'."
        )
    if isinstance(batch_tokens, bool) or not isinstance(batch_tokens, int) or batch_tokens < 1:
        raise OptionError(f"batch_tokens={batch_tokens!r} is out of range. It must be 1 or more.")


def checked_texts(texts: Any) -> Iterator[str]:
    """The texts, each of which is a str; one text by itself is the only one.

    Raises:
        OptionError: as soon as one is not.
    """
    if isinstance(texts, str):
        yield texts
        return
    if not isinstance(texts, Iterable) or isinstance(texts, (bytes, Mapping)):
        raise OptionError(f"{type(texts).__name__} is no text, nor a list of texts.")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise OptionError(f"Text {i} is no str but {type(text).__name__}.")
        yield text


_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""What models call their prompts for each type of input, those that are asked for first."""


def prompt_name_for(type_of_input: str, prompts: Mapping[str, str]) -> str | None:
    """The name of a model's prompt for ``"query"`` or ``"document"``; None: it has none."""
    return next((name for name in _NAMES[type_of_input] if name in prompts), None)


def prompt_text(
    prompt: str | None,
    name: str | None,
    default: str | None,
    prompts: Mapping[str, str],
    model: str,
) -> str:
    """The text that stands before each text.

    Args:
        prompt: it, or None.
        name: which of the model's, or None.
        default: which of these it is where nothing is said; None: none.
        prompts: the model's.
        model: its name.

    Raises:
        OptionError: there is no such prompt, or both are given.
    """
    if prompt is not None and name is not None:
        raise OptionError("Pass prompt= or prompt_name=, not both.")
    if prompt is not None:
        (text,) = checked_texts([prompt])
        return text
    name = default if name is None else name
    if name is None:
        return ""
    if name not in prompts:
        there = ", ".join(map(repr, prompts)) or "none"
        raise OptionError(
            f"prompt_name={name!r} is no prompt of {model}, which has {there}. Pass the text "
            "itself as prompt=."
        )
    return prompts[name]
