"""Search options: how the options of a call combine, checked before anything runs.

`structgen.options` is the table of names, types and ranges. This module handles contradictions,
implied options, and unknown names. It knows no prompts, output types or runtime; a model converts
`SearchOptions` to its own settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from structgen.automaton.json import CompileOptions, JsonOptions
from structgen.errors import OptionError, did_you_mean
from structgen.options import OPTIONS, SETTINGS, CallOptions
from structgen.sampling import LogitsProcessor

from .thinking import Draft, Think

_UNSUPPORTED = {
    "num_beams": (
        "structgen generates one token at a time under a mask, without beam search; use "
        "temperature and seed instead."
    ),
    "num_return_sequences": "It is called 'n' here.",
    "length_penalty": "It only affects beam search, which is not supported.",
    "diversity_penalty": "It only affects beam search, which is not supported.",
    "early_stopping": "It only affects beam search, which is not supported.",
    "stream": "Call generator.stream(prompt) to get the output in pieces.",
    "model": "Load the model and call it: structgen.load(name)(prompt, output_type).",
    "past_present_share_buffer": "Set it in the model's genai_config.json.",
    "chunk_size": "Set it in the model's genai_config.json.",
}

# Other libraries' names for the same option.
_ALIASES = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "stop_strings": "stop",
    "stop_sequences": "stop",
    "repeat_penalty": "repetition_penalty",
    "random_seed": "seed",
}

_COMPILE_OPTIONS = frozenset(
    ("think", "draft", "with_schema_hint", *(field.name for field in fields(JsonOptions)))
)


class SearchOptions(SimpleNamespace):
    """The checked options of one call: an attribute for each row of `structgen.options.OPTIONS`.

    An option that was not passed has the row's default: usually None, so that the model's own value
    applies.
    """

    def __init__(self, **checked: Any) -> None:
        super().__init__(**{name: option.default for name, option in OPTIONS.items()} | checked)

    def but(self, **changes: Any) -> SearchOptions:
        """Return these options with some of them changed."""
        return SearchOptions(**self.__dict__ | changes)


class TypeOptions(CompileOptions, total=False):
    """The options that go with an output type, for every kind of generator."""

    think: int | Think | None
    draft: bool | Draft | None
    with_schema_hint: bool | None


class GeneratorOptions(TypeOptions, total=False):
    """The options of `structgen.Generator` by name, for type checkers."""

    processor: LogitsProcessor | None


class AskOptions(CallOptions, TypeOptions, total=False):
    """The options of ``model(prompt, output_type)``: those of a generator and of its call."""


def check_by_name(more: Sequence[Any]) -> None:
    """Check that a call got no positional argument besides its prompt.

    Raises:
        OptionError: it did.
    """
    if more:
        raise OptionError(
            "A call takes only its prompt by position, but got a second argument of type "
            f"{type(more[0]).__name__}. Pass options by name, such as max_new_tokens=50, and "
            "several prompts as one list."
        )


def parse(options: Mapping[str, Any]) -> SearchOptions:
    """Check keyword options and add implied ones.

    Raises:
        OptionError: an unknown name (with similar names), a wrong type, a value out of range, or
            two contradictory options.
    """
    given = {name: value for name, value in options.items() if value is not None}
    beams = options.get("num_beams")
    if beams is None or (beams == 1 and beams is not True):  # fixed for every output
        options = {name: value for name, value in options.items() if name != "num_beams"}
        given.pop("num_beams", None)
    for name in options:
        if name not in OPTIONS:
            raise OptionError(unknown(name), option=name, value=options[name])
    checked = {name: OPTIONS[name].read(name, value) for name, value in given.items()}
    if "do_sample" not in checked:
        if checked.get("temperature") == 0:
            checked["do_sample"] = False
        elif any(OPTIONS[name].samples(value) for name, value in checked.items()):
            checked["do_sample"] = True
    elif checked["do_sample"] and checked.get("temperature") == 0:
        raise OptionError(
            "do_sample=True contradicts temperature=0, which always takes the most likely token. "
            "Raise the temperature, or remove do_sample.",
            option="do_sample",
        )
    elif not checked["do_sample"] and checked.get("temperature"):
        raise OptionError(
            f"do_sample=False contradicts temperature={checked['temperature']}: without sampling, "
            "a temperature has no effect. Remove one of them.",
            option="do_sample",
        )
    if checked.get("top_logprobs"):
        if checked.get("logprobs") is False:
            raise OptionError(
                f"top_logprobs={checked['top_logprobs']} contradicts logprobs=False. Remove one "
                "of them.",
                option="top_logprobs",
            )
        checked["logprobs"] = True
    return SearchOptions(**checked)


def resolve(options: SearchOptions, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the options of a call into a model's own search settings.

    Args:
        options: the options of the call.
        defaults: the model's settings, under the runtime's names.

    Returns:
        The settings for the runtime, each with a value, without ``max_length``.
    """
    settings: dict[str, Any] = {}
    for name in SETTINGS:
        there = "random_seed" if name == "seed" else name  # the runtime's name
        value = getattr(options, name)
        if value is None and there not in defaults:
            continue
        # The runtime reports whole numbers as floats.
        kind = int if OPTIONS[name].kind is int else lambda value: value
        settings[there] = kind(defaults[there]) if value is None else value
    if settings.get("do_sample"):
        # The runtime takes the most likely token if top_k is 1, or if neither top_k nor top_p is
        # set. A caller who asked for sampling, but not for these, must not get that.
        if options.top_k is None and settings.get("top_k", 0) == 1:
            settings["top_k"] = 0
        if not settings.get("top_p"):
            settings["top_p"] = 1.0
    return settings


def check_samples(
    options: SearchOptions, settings: Mapping[str, Any], *, has_temperatures: bool
) -> None:
    """Raise OptionError if several outputs for a prompt would all be the same.

    ``has_temperatures``: rules of a grammar set temperatures.
    """
    if (options.n or 1) > 1 and not settings.get("do_sample") and not has_temperatures:
        raise OptionError(
            f"n={options.n} outputs of a greedy call would be the same. Pass temperature= to "
            "sample.",
            option="n",
        )


def misplaced(options: Mapping[str, Any]) -> str | None:
    """Return the error for options of a generator that belong to its calls, or do not exist; None
    if all are valid."""
    given = [f"{name}={value!r}" for name, value in options.items() if name in OPTIONS]
    if given:
        names = ", ".join(f"{name}=" for name in options if name in OPTIONS)
        verb = "belongs" if len(given) == 1 else "belong"
        return f"{names} {verb} to the call, not to Generator(...): generator(prompt, {given[0]})."
    own = GeneratorOptions.__optional_keys__
    for name in options:
        if name not in own:
            near = difflib.get_close_matches(name, (*own, *OPTIONS), n=1)
            meant = _ALIASES.get(name) or (near[0] if near else None)
            if meant is None:
                return (
                    f"Unknown option {name!r} of Generator(...). Options: {', '.join(sorted(own))}."
                )
            where = "" if meant in own else ", which belongs to the call"
            return f"Unknown option {name!r} of Generator(...). Did you mean {meant!r}{where}?"
    return None


def unknown(name: str) -> str:
    """Return the error for an unknown option of a call, with similar names."""
    if name in _COMPILE_OPTIONS:
        return (
            f"Option {name!r} affects how outputs are written, which is fixed before a call. Pass "
            f"it to Generator(model, output_type, {name}=...)"
            f"{'.' if name in ('think', 'draft', 'with_schema_hint') else ' or structgen.compile.'}"
        )
    if name in _UNSUPPORTED:
        return f"Option {name!r} is not supported. {_UNSUPPORTED[name]}"
    if name in _ALIASES:
        return f"Unknown option {name!r}. It is called {_ALIASES[name]!r} here."
    hint = did_you_mean(name, OPTIONS, 3) or f" Options are: {', '.join(OPTIONS)}."
    return f"Unknown option {name!r}.{hint}"
