"""Search options: what a call may ask for, checked before anything runs.

It owns names, types, ranges and contradictions, and what is implied by what. It knows nothing of
prompts, output types or the runtime; a model turns a `SearchOptions` into its own settings.

Names are ONNX Runtime GenAI's (``max_length``, ``do_sample``, ``temperature``, ``top_k``, …), and
beside them ``seed`` (an alias of ``random_seed``) and what that runtime does not have. An option
that is not given, or is None, keeps the model's own default from its ``genai_config.json``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypedDict

from structgen.automaton.json import CompileOptions, JsonOptions
from structgen.errors import OptionError
from structgen.sampling import LogitsProcessor

from . import option_checks as checks
from .thinking import Draft, Think

MAX_SEED = 2**31 - 1

_UNSUPPORTED = {
    "num_beams": (
        "Outputs are grown one token at a time, each under its own mask, not ranked as beams; "
        "use temperature and seed instead."
    ),
    "num_return_sequences": "It is called 'n' here.",
    "length_penalty": "It only acts on beam search, which is not supported.",
    "diversity_penalty": "It only acts on beam search, which is not supported.",
    "early_stopping": "It only acts on beam search, which is not supported.",
    "stream": "Call generator.stream(prompt) for an output piece by piece.",
    "past_present_share_buffer": "Set it in the model's genai_config.json.",
    "chunk_size": "Set it in the model's genai_config.json.",
}

# Names that other libraries use for the same thing.
_ALIASES = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "stop_strings": "stop",
    "stop_sequences": "stop",
    "repeat_penalty": "repetition_penalty",
}

_COMPILE_OPTIONS = frozenset(
    ("think", "draft", "with_schema_hint", *(field.name for field in fields(JsonOptions)))
)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The checked options of one call. None: not given, the model's default applies.

    Attributes:
        max_new_tokens: most tokens to generate, the end-of-sequence token included; at most what
            the prompt leaves of the model's context.
        max_length: most tokens in prompt and output together.
        min_length: fewest tokens in prompt and output together before the text may end. An output
            type comes first: when it leaves nothing but the end, the text ends.
        do_sample: sample, rather than take the likeliest token. Giving a ``temperature`` above 0,
            ``top_k`` above 1, ``top_p`` or a ``min_p`` above 0 implies True unless ``do_sample`` is
            given.
        temperature: divides the logits, 0.01 to 100; 0 means the likeliest token.
        top_k: sample among the ``top_k`` likeliest allowed tokens; 0 means no such limit.
        top_p: sample among the likeliest allowed tokens that together have this probability.
        min_p: sample among the allowed tokens whose probability is at least so much of the
            likeliest one's, 0 to 1; 0 means no such limit.
        repetition_penalty: above 1 discourages tokens that prompt or output already have; 0.01 to
            100.
        frequency_penalty: taken off a token's score for each time that the output has it already,
            -2 to 2; thoughts and drafts count as output, forced tokens too.
        presence_penalty: taken off the score of each token that the output has already, -2 to 2.
        no_repeat_ngram_size: no run of this many tokens twice, in prompt and output together, as
            far as the output type leaves a choice; 0 means no such limit.
        random_seed: with the same seed and options, a call gives the same output again, on the
            same machine (docs/decoding.md says where to the bit). So does a call for several
            outputs, which are made one by one where text may be forced, unless ``batch_size`` is
            given.
        stop: strings that end the text, itself cut before the first of them.
        logit_bias: token id to what is added to its score, -1,000 to 1,000; ``-inf``: never, as
            far as the output type leaves a choice.
        processor: a function that edits logits before each choice, after the generator's own; see
            `structgen.sampling.processors.LogitsProcessor`.
        logprobs: record the log probability of each token, see `structgen.sampling.logprobs`.
        top_logprobs: how many of the likeliest tokens to list beside each, at most 1,000; more than
            0 implies ``logprobs``.
        trace: record what happened at each step, see `structgen.insight.trace`.
        abstain_below: the probability that each value which is a choice among few has to have; or
            such a number for each of some JSON paths. See `structgen.insight.confidence`.
        best: write each value that is a choice among few as the likeliest whole text, summed over
            all the ways to write it in tokens, rather than token by token. See
            `structgen.insight.confidence`.
        forced: whether text that is the only way on is appended in one pass, rather than token by
            token. It is spelt in the same tokens either way, but scores are rounded differently,
            so what is chosen after it may differ.
        special_tokens: where in a chat the names of special tokens, such as ``<|im_end|>``, are
            read as such: ``template``, in what the chat template writes, and contents are text;
            or ``anywhere``, in contents, too.
        timeout: most seconds for the whole call, from when the first piece of text is asked for;
            outputs then end where they are, and those of several that have not begun do not begin.
        cancel: a `threading.Event`, or anything with ``is_set()``: once it is set, the output ends
            where it is.
        adapter: name of an adapter of `TextModel.load_adapter` to run with.
        n: how many outputs to make for each prompt.
        batch_size: most outputs made side by side; None: as many as pay. See
            `structgen.decoding.batch`.
        return_errors: of several outputs, put errors in the place of those that failed, rather than
            raise `BatchError`.
        truncate: whether a prompt that is too long for the context loses what is oldest, so that
            there is room for ``max_new_tokens``, or at least for a quarter of the context: of a
            chat whole messages, but for the system's and the last; of a text its first tokens.
        retries: how often an output may go back to where a value began that a check which only code
            can make has refused; that text is then barred there. 0: checks are made when the text
            is parsed. See `structgen.decoding.checks`.
    """

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_length: int | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    random_seed: int | None = None
    stop: tuple[str, ...] = ()
    logit_bias: Mapping[int, float] | None = None
    processor: LogitsProcessor | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    trace: bool = False
    abstain_below: float | Mapping[str, float] | None = None
    best: bool = False
    forced: bool = True
    special_tokens: str = "template"
    timeout: float | None = None
    cancel: Any = None
    adapter: str | None = None
    n: int | None = None
    batch_size: int | None = None
    return_errors: bool = False
    retries: int = 0
    truncate: bool = False


class CancelEvent(Protocol):
    """A `threading.Event`, or another object that can be asked whether it is set."""

    def is_set(self) -> bool:
        """Whether the call is to end."""


class CallOptions(TypedDict, total=False):
    """The options of a call by name, for type checkers: `SearchOptions` says what each is.

    Those that say how many outputs there will be, ``n`` and ``return_errors``, are `ManyOptions`,
    because what a call returns depends on them.
    """

    max_new_tokens: int | None
    max_length: int | None
    min_length: int | None
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    no_repeat_ngram_size: int | None
    random_seed: int | None
    seed: int | None
    stop: str | Sequence[str] | None
    logit_bias: Mapping[int, float] | None
    processor: LogitsProcessor | None
    logprobs: bool | None
    top_logprobs: int | None
    trace: bool | None
    abstain_below: float | Mapping[str, float] | None
    best: bool | None
    forced: bool | None
    special_tokens: Literal["template", "anywhere"] | None
    timeout: float | None
    cancel: CancelEvent | None
    adapter: str | None
    batch_size: int | None
    retries: int | None
    truncate: bool | None


class ManyOptions(CallOptions, total=False):
    """The options of a call that makes several outputs, or gives errors in their place."""

    n: int | None
    return_errors: bool | None


class TypeOptions(CompileOptions, total=False):
    """The options that go with an output type, whoever makes the outputs."""

    think: int | Think | None
    draft: bool | Draft | None
    with_schema_hint: bool | None


class GeneratorOptions(TypeOptions, total=False):
    """The options of `structgen.Generator` by name, for type checkers."""

    processor: LogitsProcessor | None


class AskOptions(CallOptions, TypeOptions, total=False):
    """The options of ``model(prompt, output_type)``: those of a generator and of its call."""


def check_by_name(more: Sequence[Any]) -> None:
    """Check that a call got nothing by position beside its prompt.

    Raises:
        OptionError: it did.
    """
    if more:
        raise OptionError(
            f"A call takes its prompt alone by position, and got a second, of type "
            f"{type(more[0]).__name__}. Pass options by name, such as max_new_tokens=50, and "
            "several prompts as one list."
        )


def parse(options: Mapping[str, Any]) -> SearchOptions:
    """Check keyword options and fill in what they imply.

    Raises:
        OptionError: an unknown name (with the closest known ones), a wrong type, a value out of
            range, or two options that contradict each other.
    """
    given = {name: value for name, value in options.items() if value is not None}
    beams = options.get("num_beams")
    if beams is None or (beams == 1 and beams is not True):  # what every output is made with
        options = {name: value for name, value in options.items() if name != "num_beams"}
        given.pop("num_beams", None)
    for name in options:
        if name not in NAMES:
            raise OptionError(unknown(name))
    if "seed" in given and "random_seed" in given and given["random_seed"] != given["seed"]:
        raise OptionError(
            f"seed={given['seed']!r} and random_seed={given['random_seed']!r} are two names "
            "for one option. Pass one of them."
        )
    checked: dict[str, Any] = {}
    if "seed" in given:
        checked["random_seed"] = _CHECKS["random_seed"]("seed", given.pop("seed"))
        given.pop("random_seed", None)
    for name, value in given.items():
        checked[name] = _CHECKS[name](name, value)
    if "do_sample" not in checked:
        if checked.get("temperature") == 0:
            checked["do_sample"] = False
        elif (
            "temperature" in checked
            or "top_p" in checked
            or checked.get("top_k", 0) > 1
            or checked.get("min_p", 0) > 0
        ):
            checked["do_sample"] = True
    elif checked["do_sample"] and checked.get("temperature") == 0:
        raise OptionError(
            "do_sample=True with temperature=0 is a contradiction: temperature 0 takes the "
            "likeliest token. Raise the temperature, or leave do_sample out."
        )
    elif not checked["do_sample"] and checked.get("temperature"):
        raise OptionError(
            f"do_sample=False with temperature={checked['temperature']} is a contradiction: a "
            "temperature has no effect where the likeliest token is taken. Leave one of them out."
        )
    if checked.get("top_logprobs"):
        if checked.get("logprobs") is False:
            raise OptionError(
                f"top_logprobs={checked['top_logprobs']} with logprobs=False is a contradiction. "
                "Leave one of them out."
            )
        checked["logprobs"] = True
    return SearchOptions(**checked)


def resolve(options: SearchOptions, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the options of a call into a model's own search settings.

    Args:
        options: what the call asked for.
        defaults: the model's settings, under the runtime's names.

    Returns:
        The settings to give to the runtime, each with a value, ``max_length`` left out.
    """
    names = [name for name in _CHECKS if name not in _NOT_THE_RUNTIMES]
    # The runtime reports whole numbers as floats.
    settings = {
        name: int(defaults[name]) if name in _WHOLE else defaults[name]
        for name in names
        if name in defaults
    }
    settings.update(
        (name, value) for name in names if (value := getattr(options, name)) is not None
    )
    if settings.get("do_sample"):
        # The runtime takes the likeliest token when top_k is 1, or when neither top_k nor top_p
        # is set: not what someone who asked for sampling, and not for these, should get.
        if options.top_k is None and settings.get("top_k", 0) == 1:
            settings["top_k"] = 0
        if not settings.get("top_p"):
            settings["top_p"] = 1.0
    return settings


def check_samples(options: SearchOptions, settings: Mapping[str, Any]) -> None:
    """Raise OptionError where several outputs for a prompt would all be the same."""
    if (options.n or 1) > 1 and not settings.get("do_sample"):
        raise OptionError(
            f"n={options.n} outputs of a greedy call would be the same. Pass temperature= to "
            "sample."
        )


def misplaced(compile_options: Mapping[str, Any]) -> str | None:
    """Say that options given to a generator belong to its calls; None when none of them does."""
    given = [f"{name}={value!r}" for name, value in compile_options.items() if name in NAMES]
    if not given:
        return None
    names = ", ".join(f"{name}=" for name in compile_options if name in NAMES)
    verb = "belongs" if len(given) == 1 else "belong"
    return f"{names} {verb} to the call, not to Generator(...): generator(prompt, {given[0]})."


def unknown(name: str) -> str:
    """Say that a call knows no option of this name, and what it may have been meant to be."""
    if name in _COMPILE_OPTIONS:
        return (
            f"Option {name!r} says how outputs are written, which is settled before a call. It "
            f"belongs to Generator(model, output_type, {name}=...)"
            f"{'.' if name in ('think', 'draft', 'with_schema_hint') else ' or structgen.compile.'}"
        )
    if name in _UNSUPPORTED:
        return f"Option {name!r} is not supported. {_UNSUPPORTED[name]}"
    if name in _ALIASES:
        return f"Unknown option {name!r}. It is called {_ALIASES[name]!r} here."
    close = difflib.get_close_matches(name, NAMES, n=3, cutoff=0.6)
    if close:
        return f"Unknown option {name!r}. Did you mean {' or '.join(map(repr, close))}?"
    return f"Unknown option {name!r}. Options are: {', '.join(NAMES)}."


_CHECKS: dict[str, Any] = {
    "max_new_tokens": checks.whole(1),
    "max_length": checks.whole(1),
    "min_length": checks.whole(0),
    "do_sample": checks.flag,
    "temperature": checks.temperature,
    "top_k": checks.whole(0),
    "top_p": checks.real(0, 1, above=True),
    "min_p": checks.real(0, 1),
    "repetition_penalty": checks.real(0.01, 100),
    "frequency_penalty": checks.real(-2, 2),
    "presence_penalty": checks.real(-2, 2),
    "no_repeat_ngram_size": checks.whole(0),
    "random_seed": checks.whole(0, MAX_SEED),
    "stop": checks.stop,
    "logit_bias": checks.logit_bias,
    "processor": checks.processor,
    "logprobs": checks.flag,
    "top_logprobs": checks.whole(0, 1000),
    "trace": checks.flag,
    "abstain_below": checks.abstain_below,
    "best": checks.flag,
    "forced": checks.flag,
    "special_tokens": checks.special_tokens,
    "timeout": checks.real(0, 1e9, above=True),
    "cancel": checks.cancel,
    "adapter": checks.text,
    "n": checks.whole(1, 10_000),
    "batch_size": checks.whole(1, 256),
    "return_errors": checks.flag,
    "retries": checks.whole(0, 10_000),
    "truncate": checks.flag,
}

_NOT_THE_RUNTIMES = {
    *("max_new_tokens", "max_length", "stop", "logit_bias", "abstain_below", "best"),
    *("processor", "logprobs", "top_logprobs", "trace", "forced", "timeout", "cancel"),
    *("adapter", "n", "batch_size", "return_errors", "special_tokens", "retries", "truncate"),
}

_WHOLE = {"min_length", "top_k", "no_repeat_ngram_size", "random_seed"}

NAMES = (*(field.name for field in fields(SearchOptions)), "seed")
"""Every option a call accepts."""
