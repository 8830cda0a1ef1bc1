"""What a server said, taken out of the client's objects and checked.

The package ``openai`` does not validate what comes: any attribute may be missing, null or of
another type, and what is no JSON may come as text. Owns the one place where such objects are looked
at; what it returns can be relied on, and what is not understood is a `RemoteError`. Knows no types
and no attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

from structgen.errors import RemoteError
from structgen.sampling import TokenLogprob, TopToken

_SHOWN = 200


class Characters:
    """Text that comes in pieces, which some servers divide within a character.

    JSON spells characters beyond the first 65,536 in two halves. Where each half came in a piece of
    its own they are put together.
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """The text goes on; returns what of it is whole.

        Raises:
            RemoteError: it has half a character.
        """
        text = self._half + text
        if text.isascii():
            return text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        text = text[: len(text) - len(self._half)]
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            _half_a_character(text)

    def finish(self) -> None:
        """The text has ended. Raises what `feed` does."""
        if self._half:
            _half_a_character(self._half)


class CallPart(NamedTuple):
    """A call of a tool, or a piece of one: which of them, and what comes of name and arguments."""

    number: int
    name: str
    arguments: str


class Said(NamedTuple):
    """A message, or a piece of one."""

    content: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[CallPart, ...] = ()
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


class Counts(NamedTuple):
    """Tokens, as the server counts them; 0 where it does not."""

    prompt: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


def read(
    reply: Any, part: Literal["message", "delta"], *, logprobs: bool
) -> tuple[Said | None, Counts]:
    """Read a reply, or a piece of one.

    Args:
        reply: the client's object.
        part: where it says something.
        logprobs: whether log probabilities are wanted.

    Returns:
        What it says, None where it says nothing; and its counts.

    Raises:
        RemoteError: it is not understood.
    """
    choices = getattr(reply, "choices", None)
    if not isinstance(choices, (list, type(None))) or isinstance(reply, (str, list, type(None))):
        _not_understood(reply)
    counts = _counts(getattr(reply, "usage", None))
    if not choices:
        return None, counts
    choice = choices[0]
    said = getattr(choice, part, None)
    if said is None and part == "message":
        _not_understood(choice)
    finish_reason = getattr(choice, "finish_reason", None)
    content, reasoning = _content(getattr(said, "content", None))
    found = Said(
        content,
        # Not in OpenAI's API: vLLM, SGLang, llama.cpp and others call it either.
        reasoning
        or _text(getattr(said, "reasoning_content", None))
        or _text(getattr(said, "reasoning", None)),
        _text(getattr(said, "refusal", None)),
        tuple(_calls(getattr(said, "tool_calls", None))),
        finish_reason if isinstance(finish_reason, str) else None,
        tuple(_logprobs(getattr(choice, "logprobs", None))) if logprobs else (),
    )
    return found, counts


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _content(value: Any) -> tuple[str, str]:
    """The text of a message, and thoughts among it. Some servers write it in parts."""
    if value is None or isinstance(value, str):
        return value or "", ""
    if not isinstance(value, list):
        _not_understood(value)
    texts: dict[str, str] = {"text": "", "thinking": ""}
    for one in value:
        kind = _get(one, "type")
        if kind not in texts:
            _not_understood(one)
        inner = _get(one, kind)
        texts[kind] += _content(inner)[0]
    return texts["text"], texts["thinking"]


def _calls(value: Any) -> Iterator[CallPart]:
    if not isinstance(value, (list, type(None))):
        _not_understood(value)
    for place, call in enumerate(value or ()):
        number = _get(call, "index")
        function = _get(call, "function")
        yield CallPart(
            number if type(number) is int else place,
            _text(_get(function, "name")),
            _text(_get(function, "arguments")),
        )


def _counts(usage: Any) -> Counts:
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    cached = _count(_get(usage, "prompt_tokens_details"), "cached_tokens")
    reasoning = _count(_get(usage, "completion_tokens_details"), "reasoning_tokens")
    return Counts(prompt, max(completion - reasoning, 0), cached, reasoning)


def _count(holder: Any, name: str) -> int:
    value = _get(holder, name)
    return value if type(value) is int and value > 0 else 0


def _logprobs(found: Any) -> Iterator[TokenLogprob]:
    for one in _list(_get(found, "content")):
        token, logprob = _scored(one)
        yield TokenLogprob(
            token_id=-1,
            token=token,
            is_forced=False,
            logprob=logprob,
            unmasked_logprob=None,
            top=tuple(
                TopToken(-1, *_scored(other), True) for other in _list(_get(one, "top_logprobs"))
            ),
            unmasked_top=(),
            removed=None,
        )


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _scored(one: Any) -> tuple[bytes, float]:
    """A token and its log probability."""
    logprob, data, token = _get(one, "logprob"), _get(one, "bytes"), _get(one, "token")
    is_known = isinstance(logprob, (int, float)) and not isinstance(logprob, bool)
    if not is_known or not isinstance(token, str):
        _not_understood(one)
    try:
        written = token.encode("utf-8", "surrogatepass") if data is None else bytes(data)
    except (TypeError, ValueError):
        _not_understood(one)
    return written, float(logprob)


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def _half_a_character(text: str) -> NoReturn:
    raise RemoteError(
        "The server's answer has half a character (a lone surrogate), which is no text: "
        f"{text[-_SHOWN:]!a}"
    )


def _not_understood(found: Any) -> NoReturn:
    shown = repr(found)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    raise RemoteError(f"The server gave an answer that is not understood: {shown}")
