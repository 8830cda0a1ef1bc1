"""The table of options of a call: `CallOptions` and `ManyOptions`, a row for each.

A row is a name, a static type and an `Option`: how a value is checked, what the option does, its
name in requests, and which remote servers have it. Everything that takes options reads the table:
generators, the fields of the Runner's requests (and so the server and the adapters), remote models,
and the flags of the command line. `structgen.decoding.options` knows which options go together.
Knows no prompts, output types or runtime, and imports neither NumPy nor Pydantic.

An option that is missing or None keeps the model's own default.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypedDict

from structgen.errors import OptionError

if TYPE_CHECKING:
    from structgen.sampling import LogitsProcessor


class CancelEvent(Protocol):
    """A `threading.Event`, or another object with ``is_set``."""

    def is_set(self) -> bool:
        """Return whether the call must end."""


# -- what values may be ------------------------------------------------------------------------


def wrong(name: str, value: Any, what: str) -> OptionError:
    """Return the error for a value; ``what``: what is wrong with it and what to pass."""
    return OptionError(f"{name}={value!r} {what}", option=name, value=value)


@dataclass(frozen=True)
class Whole:
    """A whole number from ``low`` to ``high``."""

    low: int
    high: int | None = None
    kind = int

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        most = {} if self.high is None else {"maximum": self.high}
        return {"type": "integer", "minimum": self.low, **most}

    def __call__(self, name: str, value: Any) -> int:
        """Check a value."""
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)  # NumPy integers too
        except TypeError:
            raise wrong(name, value, "is not a whole number.") from None
        if number < self.low or (self.high is not None and number > self.high):
            many = f"{self.low:,} or more"
            bounds = many if self.high is None else f"between {self.low:,} and {self.high:,}"
            raise wrong(name, number, f"is out of range. It must be {bounds}.")
        return number


@dataclass(frozen=True)
class Real:
    """A number from ``low``, or above it, to ``high``; with ``or_zero`` also 0."""

    low: float
    high: float
    above: bool = False
    or_zero: bool = False
    kind = float

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        least = "exclusiveMinimum" if self.above else "minimum"
        found = {"type": "number", least: self.low, "maximum": self.high}
        return {"anyOf": [{"const": 0}, found]} if self.or_zero else found

    def __call__(self, name: str, value: Any) -> float:
        """Check a value."""
        try:
            if isinstance(value, (bool, str)):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise wrong(name, value, "is not a number.") from None
        if self.or_zero and number == 0:
            return number
        if not (self.low < number or (self.low == number and not self.above)) or not (
            number <= self.high
        ):
            bounds = (
                f"above {self.low:g} and at most" if self.above else f"between {self.low:g} and"
            )
            zero = "0, or " if self.or_zero else ""
            raise OptionError(
                f"{name}={number:g} is out of range. It must be {zero}{bounds} {self.high:g}.",
                option=name,
                value=value,
            )
        return number


@dataclass(frozen=True)
class Word:
    """A str; if there are ``words``, one of these."""

    words: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"enum": list(self.words)} if self.words else {"type": "string"}

    def __call__(self, name: str, value: Any) -> str:
        """Check a value."""
        if isinstance(value, str) and (not self.words or value in self.words):
            return value
        words = " or ".join(map(repr, self.words))
        raise wrong(name, value, f"is unknown. Pass {words}." if words else "is not a str.")


class Flag:
    """True or False."""

    schema: Mapping[str, Any] = {"type": "boolean"}

    def __call__(self, name: str, value: Any) -> bool:
        """Check a value."""
        if isinstance(value, bool):
            return value
        raise wrong(name, value, "is not a bool. Pass True or False.")


def _stop(name: str, value: Any) -> tuple[str, ...]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, Sequence) or not all(isinstance(s, str) for s in strings):
        raise wrong(name, value, "is neither a string nor a list of strings.")
    if "" in strings:
        raise wrong(name, value, "has an empty string, which would stop immediately.")
    return tuple(strings)


def _logit_bias(name: str, value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise wrong(name, value, "is not a mapping from token ids to numbers.")
    bias: dict[int, float] = {}
    for token_id, added in value.items():
        if isinstance(token_id, str):
            raise OptionError(
                f"{name} has the key {token_id!r}. Keys are token ids: use model.encode(text).",
                option=name,
                value=value,
            )
        key = Whole(0)(f"{name} key", token_id)
        try:
            low = added == -math.inf
            bias[key] = -math.inf if low else Real(-1000, 1000)(f"{name}[{key}]", added)
        except OptionError as error:
            raise OptionError(
                f"{error} Or -inf: never, if the output type allows another token.",
                option=name,
                value=value,
            ) from None
    return bias


def _abstain_below(name: str, value: Any) -> float | dict[str, float]:
    check = Real(0, 1, above=True)
    if not isinstance(value, Mapping):
        return check(name, value)
    if not value or not all(isinstance(path, str) and path[:1] == "$" for path in value):
        raise wrong(
            name,
            value,
            "is neither a number nor a mapping from JSON paths such as '$.label' to numbers.",
        )
    return {path: check(f"{name}[{path!r}]", number) for path, number in value.items()}


def _documents(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        what = "is not a mapping from names to texts, such as {'source': text}."
        raise wrong(name, type(value), what)
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise wrong(f"{name}[{key!r}]", type(text), "must be a str, with a str as its name.")
    return dict(value)


check_tolerance = Real(0, 0.99)
"""The check of ``tolerance=`` of `probabilities` and deciders."""


def _processor(name: str, value: Any) -> Any:
    if not callable(value):
        raise wrong(name, value, "is not callable.")
    return value


def _cancel(name: str, value: Any) -> Any:
    if not callable(getattr(value, "is_set", None)):
        raise wrong(name, value, "has no is_set(). Pass a threading.Event.")
    return value


# -- rows --------------------------------------------------------------------------------------

_SERVERS = ("openai", "compatible", "ollama", "vllm", "sglang", "llama.cpp")
"""Kinds of remote servers, by the options that they have."""


def _at(name: str, *servers: str, **others: str) -> dict[str, str]:
    """Return the name of an option for some servers; for all, if none is named."""
    return dict.fromkeys(servers or _SERVERS, name) | others


@dataclass(frozen=True)
class Option:
    """All about an option except its name and static type.

    Attributes:
        read: checks a value and returns it in the form that is used; raises `OptionError`.
        about: what the option does.
        field: its name in requests; None: it is only for Python, or requests have another form of
            it.
        remote: its names on kinds of remote servers, or why none has it; None: it is not sent.
        default: its default value.
        is_setting: whether the model's folder may set a default, because it is about choosing
            tokens.
        samples: returns whether a value means that tokens are sampled.
        off: the value that other programs send for "no limit" instead of 0.
    """

    read: Callable[[str, Any], Any]
    about: str
    field: str | None = None
    remote: Mapping[str, str] | str | None = None
    default: Any = None
    is_setting: bool = False
    samples: Callable[[Any], bool] = lambda value: False
    off: int | None = None

    @property
    def kind(self) -> Any:
        """The type of one number: int or float."""
        return getattr(self.read, "kind", None)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of a value in a request."""
        found: dict[str, Any] = {**getattr(self.read, "schema", {})}
        return found if self.off is None else {**found, "minimum": self.off}


_UNKNOWN_SCORES = "it uses the model's scores of whole values, which servers do not return."


class CallOptions(TypedDict, total=False):
    """The options of a call by name.

    ``n`` and ``return_errors``, on which the type of a call's result depends, are in `ManyOptions`.
    """

    max_new_tokens: Annotated[
        int | None,
        Option(
            Whole(1),
            "Maximum number of tokens to generate, including the end-of-sequence token; an output "
            "type completes within it",
            field="max_tokens",
            remote={**_at("max_tokens"), "openai": "max_completion_tokens"},
        ),
    ]
    max_length: Annotated[
        int | None,
        Option(
            Whole(1),
            "Maximum number of tokens in prompt and output together",
            remote="a remote server counts the prompt's tokens itself. Pass max_new_tokens=.",
        ),
    ]
    min_length: Annotated[
        int | None,
        Option(
            Whole(0),
            "Minimum number of tokens in prompt and output together before the text may end, if "
            "the output type allows more text",
            remote="servers have no such option. Put the length into the type: Regex, or "
            "minLength.",
            is_setting=True,
        ),
    ]
    do_sample: Annotated[
        bool | None,
        Option(
            Flag(),
            "Sample instead of taking the most likely token. Options that only affect sampling "
            "imply it",
            is_setting=True,
        ),
    ]
    temperature: Annotated[
        float | None,
        Option(
            # Beyond these limits the runtime's float32 arithmetic overflows.
            Real(0.01, 100, or_zero=True),
            "Above 1 more varied, below 1 less; 0 takes the most likely token",
            field="temperature",
            remote=_at("temperature"),
            is_setting=True,
            samples=lambda value: value > 0,
        ),
    ]
    top_k: Annotated[
        int | None,
        Option(
            Whole(0),
            "Sample among this many of the most likely allowed tokens; 0: no limit",
            field="top_k",
            remote=_at("top_k", "vllm", "sglang", "llama.cpp"),
            is_setting=True,
            samples=lambda value: value > 1,
            off=-1,
        ),
    ]
    top_p: Annotated[
        float | None,
        Option(
            Real(0, 1, above=True),
            "Sample among the most likely allowed tokens that together have this probability",
            field="top_p",
            remote=_at("top_p"),
            is_setting=True,
            samples=lambda value: True,
        ),
    ]
    min_p: Annotated[
        float | None,
        Option(
            Real(0, 1),
            "Sample among allowed tokens with at least this fraction of the highest probability; "
            "0: no limit",
            field="min_p",
            remote=_at("min_p", "vllm", "sglang", "llama.cpp"),
            is_setting=True,
            samples=lambda value: value > 0,
        ),
    ]
    top_n_sigma: Annotated[
        float | None,
        Option(
            Real(0, 100, above=True),
            "Sample among allowed tokens whose score is at most this many standard deviations "
            "below the highest",
            field="top_n_sigma",
            remote=_at("top_n_sigma", "llama.cpp"),
            is_setting=True,
            samples=lambda value: True,
        ),
    ]
    repetition_penalty: Annotated[
        float | None,
        Option(
            Real(0.01, 100),
            "Above 1: avoid tokens that are already in the prompt or the output",
            field="repetition_penalty",
            remote={**_at("repetition_penalty", "vllm", "sglang"), "llama.cpp": "repeat_penalty"},
            is_setting=True,
        ),
    ]
    frequency_penalty: Annotated[
        float | None,
        Option(
            Real(-2, 2),
            "Subtract this from a token's score for each occurrence in the output",
            field="frequency_penalty",
            remote=_at("frequency_penalty"),
            is_setting=True,
        ),
    ]
    presence_penalty: Annotated[
        float | None,
        Option(
            Real(-2, 2),
            "Subtract this once from the score of each token in the output",
            field="presence_penalty",
            remote=_at("presence_penalty"),
            is_setting=True,
        ),
    ]
    no_repeat_ngram_size: Annotated[
        int | None,
        Option(
            Whole(0),
            "Never repeat a sequence of this many tokens, if the output type allows another; 0: "
            "no limit",
            field="no_repeat_ngram_size",
            remote="servers have no such option.",
            is_setting=True,
        ),
    ]
    seed: Annotated[
        int | None,
        Option(
            Whole(0, 2**31 - 1),
            "The same seed and options give the same output",
            field="seed",
            remote=_at("seed"),
            is_setting=True,
        ),
    ]
    stop: Annotated[
        str | Sequence[str] | None,
        Option(
            _stop, "Strings that end the output; they are not part of it", field="stop", default=()
        ),
    ]
    logit_bias: Annotated[
        Mapping[int, float] | None,
        Option(
            _logit_bias,
            "Numbers to add to the scores of token ids; -inf: never choose the token, if the "
            "output type allows another",
            field="logit_bias",
            remote=_at("logit_bias", *(name for name in _SERVERS if name != "ollama")),
        ),
    ]
    processor: Annotated[
        "LogitsProcessor | None",
        Option(
            _processor,
            "A function that edits the scores before each choice, after the generator's own",
            remote="the server chooses from the scores, and cannot run your function.",
        ),
    ]
    logprobs: Annotated[
        bool | None, Option(Flag(), "Record the log probability of each token", default=False)
    ]
    top_logprobs: Annotated[
        int | None,
        Option(Whole(0, 1000), "How many of the most likely tokens to list for each", default=0),
    ]
    trace: Annotated[
        bool | None,
        Option(
            Flag(),
            "Record what happened at each step",
            remote="the server does not report its steps.",
            default=False,
        ),
    ]
    abstain_below: Annotated[
        float | Mapping[str, float] | None,
        Option(
            _abstain_below,
            "Minimum probability of each value with few alternatives, or one for each of some "
            "JSON paths",
            field="abstain_below",
            remote=f"{_UNKNOWN_SCORES} Look at result.logprobs.",
        ),
    ]
    best: Annotated[
        bool | None,
        Option(
            Flag(),
            "Write values with few alternatives as the most likely whole text",
            field="best",
            remote=_UNKNOWN_SCORES,
            default=False,
        ),
    ]
    forced: Annotated[
        bool | None,
        Option(
            Flag(),
            "Append text that is the only possibility in one pass instead of token by token",
            remote="the server decides how text is generated.",
            default=True,
        ),
    ]
    speculate: Annotated[
        bool | None,
        Option(
            Flag(),
            "Guess predictable tokens from the prompt and the output so far, and score them in one "
            "pass",
            field="speculate",
            remote="the server decides how text is generated.",
            default=True,
        ),
    ]
    special_tokens: Annotated[
        Literal["template", "anywhere"] | None,
        Option(
            Word(("template", "anywhere")),
            "Where in a chat to read the names of special tokens as special tokens",
            field="special_tokens",
            remote="the server applies the chat template.",
            default="template",
        ),
    ]
    timeout: Annotated[
        float | None,
        Option(Real(0, 1e9, above=True), "Maximum seconds for the whole call", field="timeout"),
    ]
    cancel: Annotated[
        CancelEvent | None, Option(_cancel, "Event that ends the output when it is set")
    ]
    adapter: Annotated[
        str | None,
        Option(
            Word(),
            "Name of the loaded adapter to use",
            field="adapter",
            remote="adapters belong to the server: pass their name as the model's to from_openai.",
        ),
    ]
    quote_from: Annotated[
        Mapping[str, str] | None,
        Option(
            _documents,
            "Documents for each `Quote(source=...)` in the output type, by name",
            remote="servers do not support quotes. Ask for a str, and look it up in the document.",
        ),
    ]
    batch_size: Annotated[int | None, Option(Whole(1, 256), "Maximum outputs generated at once")]
    retries: Annotated[
        int | None,
        Option(
            Whole(0, 10_000),
            "How often to rewrite a value that a validator rejects",
            field="retries",
            default=0,
        ),
    ]
    truncate: Annotated[
        bool | None,
        Option(
            Flag(),
            "Remove the oldest part of a prompt that is too long for the context",
            field="truncate_sequence",
            remote="servers have no such option.",
            default=False,
        ),
    ]


class ManyOptions(CallOptions, total=False):
    """The options of a call that makes several outputs, or returns errors in their place."""

    n: Annotated[int | None, Option(Whole(1, 10_000), "How many outputs for each prompt")]
    return_errors: Annotated[
        bool | None,
        Option(Flag(), "Return errors in place of the outputs that failed", default=False),
    ]


OPTIONS: dict[str, Option] = {
    name: row.__metadata__[0] for name, row in ManyOptions.__annotations__.items()
}
"""All options of a call."""

SETTINGS = tuple(name for name, option in OPTIONS.items() if option.is_setting)
"""Options for which a model's folder may set a default."""

FIELDS: dict[str, str] = {
    option.field: name for name, option in OPTIONS.items() if option.field is not None
}
"""Fields of requests, with their options."""


def field_of(option: str | None) -> str | None:
    """Return the name of an option in requests; its own name if it has none there."""
    known = OPTIONS.get(option or "")
    return option if known is None else known.field or option
