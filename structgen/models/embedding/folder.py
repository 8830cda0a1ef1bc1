"""Read the files of an embedder: its graph, pooling, prompts and lengths.

The layout is that of sentence-transformers: ``modules.json``, ``1_Pooling/config.json``,
``config_sentence_transformers.json``, ``sentence_bert_config.json``, all optional, with an ONNX
graph beside them or in ``onnx/``. Knows no runtime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from structgen.errors import ModelError, ModelNotFound
from structgen.storage.user_folder import WRONG, document, flag, inside

from .pooling import Pooling

_GRAPH = "model.onnx"
_POOLING = "1_Pooling"
_UNLIMITED = 1_000_000
"""Tokenizers without a limit write a number far above this."""

_LONGEST_PROMPTS = 100_000
_MOST_MODULES = 1_000  # values of modules.json
_MOST_VALUES = 200_000  # of each other file, five of which are kept; Gemma's have 50,000

_HEADS = ("num_attention_heads", "n_heads", "n_head")  # its names in configurations
_HIDDEN = ("hidden_size", "dim", "n_embd")
_INNER = ("intermediate_size", "hidden_dim", "n_inner")

NUMBERS = 1 << 27
"""Most numbers of one kind in a pass, which has two to three kinds and takes about 1.2 GB."""

# Their positions begin after the padding token's id.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")

_MODES: Mapping[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_FLAG = "pooling_mode_"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a folder.

    Attributes:
        folder: the folder.
        graph: the ONNX file.
        tokenizer: ``tokenizer.json``, if there is one.
        pooling: how tokens become one vector; may be a name that structgen does not support; None:
            not set.
        pools_prompt: whether a prompt's tokens count in the mean.
        is_lower_case: whether texts are converted to lower case first.
        max_length: the folder's most tokens of a text, or None.
        positions: the graph's most tokens, or None if not known.
        prompts: texts to prepend, by kind of text: ``"query"``, ``"document"``, ….
        default_prompt: the name of the prompt for texts without a kind, or None.
        cuts: the side on which long texts are cut, ``"left"`` or ``"right"``; None: from
            ``tokenizer.json``.
        lacks: the pooling's configuration if ``modules.json`` names it but it is missing.
        others: modules after the pooling that change the vector, such as ``Dense``.
        heads: number of attention heads.
        width: total length of a token's vectors, in and between layers.
    """

    folder: Path
    graph: Path
    tokenizer: Path | None
    pooling: str | None
    pools_prompt: bool
    is_lower_case: bool
    max_length: int | None
    positions: int | None
    prompts: dict[str, str]
    default_prompt: str | None
    cuts: str | None
    lacks: Path | None
    others: tuple[str, ...]
    heads: int
    width: int

    def numbers(self, n_tokens: int) -> int:
        """Return about how many numbers of one kind a pass over a text has: attention has one per
        head and pair of tokens."""
        return (self.heads * n_tokens + self.width) * n_tokens

    @property
    def longest(self) -> int:
        """The most tokens of a text whose pass stays within `NUMBERS`."""
        root = math.isqrt(self.width**2 + 4 * self.heads * NUMBERS)
        return (root - self.width) // (2 * self.heads)


def read(place: Path) -> Settings:
    """Read an embedder's folder, or the files beside an ONNX file.

    Raises:
        ModelNotFound: there is no ONNX file, or there are several and none is ``model.onnx``.
        ModelError: a file is not valid.
    """
    graph = place if place.is_file() else _graph_in(place)
    folder = graph.parent
    tokenizer = folder / "tokenizer.json"
    is_alone = tokenizer.is_file() and not (folder.parent / "modules.json").is_file()
    if folder.name == "onnx" and not is_alone:
        folder = folder.parent
    if not tokenizer.is_file():
        tokenizer = folder / "tokenizer.json"
    modules = _modules(folder)
    pooling_folder = next((path for kind, path in modules if kind == "Pooling"), None)
    pooling = _File((pooling_folder or folder / _POOLING) / "config.json")
    own = _File(folder / "config_sentence_transformers.json")
    bert = _File(folder / "sentence_bert_config.json")
    of_tokenizer = _File(folder / "tokenizer_config.json")
    config = _File(folder / "config.json")
    positions = config.number("max_position_embeddings")
    if positions is not None and config.fields.get("model_type") in _OFFSET_POSITIONS:
        positions -= (config.number("pad_token_id") or 1) + 1
    lengths = [of_tokenizer.number("model_max_length"), positions]
    known = [length for length in lengths if length is not None]
    prompts = _prompts(own)
    default = own.fields.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise ModelError(
            f"{own.path} sets the default prompt {default!r}, which is not one of its prompts: "
            f"{', '.join(prompts) or 'there are none'}."
        )
    cuts = of_tokenizer.fields.get("truncation_side")
    if cuts not in ("left", "right", None):
        raise of_tokenizer.wrong(f"truncation_side = {cuts!r} is neither 'left' nor 'right'")
    return Settings(
        folder=folder,
        graph=graph,
        tokenizer=tokenizer if tokenizer.is_file() else None,
        pooling=_pooling(pooling),
        pools_prompt=pooling.flag("include_prompt", True),
        is_lower_case=bert.flag("do_lower_case"),
        max_length=bert.number("max_seq_length") or min(known, default=None),
        positions=positions,
        prompts=prompts,
        default_prompt=default,
        cuts=cuts,
        lacks=None if pooling_folder is None or pooling.path.is_file() else pooling.path,
        others=tuple(
            kind for kind, _ in modules if kind not in ("Transformer", "Pooling", "Normalize")
        ),
        heads=config.number(*_HEADS) or 16,
        width=(config.number(*_HIDDEN) or 1024) + (config.number(*_INNER) or 4096),
    )


def _graph_in(folder: Path) -> Path:
    if not folder.is_dir():
        raise ModelNotFound(f"There is no folder or ONNX file {folder}.")
    for place in (folder, folder / "onnx"):
        found = sorted(place.glob("*.onnx"))
        if place / _GRAPH in found:
            return place / _GRAPH
        if len(found) == 1:
            return found[0]
        if found:
            names = "".join(f"\n  {file}" for file in found)
            raise ModelNotFound(
                f"{place} has {len(found)} ONNX files, but none is named {_GRAPH}. Pass one of "
                f"them:{names}"
            )
    raise ModelNotFound(
        f"{folder} has no ONNX file, neither directly nor in its folder onnx. Export the model to "
        "ONNX (`optimum-cli export onnx --model NAME OUT`), then pass the folder OUT."
    )


class _File:
    """The JSON object in a file, with checked types; empty if there is no file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.fields = document(path, _MOST_VALUES) if path.exists() else {}
        except WRONG as error:
            raise self.wrong(str(error)) from error
        if not isinstance(self.fields, dict):
            raise self.wrong("it is not a JSON object")

    def wrong(self, why: str) -> ModelError:
        return ModelError(f"{self.path} cannot be parsed: {why}.")

    def flag(self, name: str, default: bool = False) -> bool:
        try:
            return flag(self.fields, name, default)
        except ValueError as error:
            raise self.wrong(str(error)) from None

    def number(self, *names: str) -> int | None:
        """Return the first size under these names; values that are not above 0, or far too large,
        count as none."""
        for name in names:
            value = self.fields.get(name)
            if value is not None and (type(value) not in (int, float) or value % 1 != 0):
                raise self.wrong(f"{name} = {repr(value)[:40]} is not an integer")
            if value is not None and 0 < value < _UNLIMITED:
                return int(value)
        return None


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the kind and folder of each step in ``modules.json``."""
    file = folder / "modules.json"
    if not file.exists():
        return []
    try:
        return [
            (one["type"].rpartition(".")[2], inside(folder, one.get("path") or _POOLING))
            for one in document(file, _MOST_MODULES)
        ]
    except WRONG as error:
        raise ModelError(f"{file} cannot be parsed: {error!r}.") from error


def _prompts(own: _File) -> dict[str, str]:
    prompts = own.fields.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise own.wrong("its prompts are not a JSON object")
    for name, text in prompts.items():
        if not isinstance(text, str):  # a null would become the word None before each text
            raise own.wrong(f"its prompt {name!r} is not a string")
    if (n := sum(map(len, (*prompts, *prompts.values())))) > _LONGEST_PROMPTS:
        raise own.wrong(f"its prompts have {n:,} characters; the limit is {_LONGEST_PROMPTS:,}")
    return prompts


def _pooling(file: _File) -> str | None:
    """Return the pooling in a configuration of either form; None if there is none."""
    named = file.fields.get("pooling_mode")
    flags = {name: file.flag(name) for name in file.fields if name.startswith(_FLAG)}
    if named is not None:
        modes = [named] if isinstance(named, str) else named
        if not isinstance(modes, list) or not all(isinstance(name, str) for name in modes):
            raise file.wrong("its pooling_mode is not a name")
    else:
        modes = [
            name.removeprefix(_FLAG).removesuffix("_token").removesuffix("_tokens")
            for name, is_on in flags.items()
            if is_on
        ]
    if not modes:
        # If all are off, a mean would be only our guess.
        return "nothing" if named is not None or flags else None
    return _MODES.get(modes[0], modes[0]) if len(modes) == 1 else " and ".join(modes)
