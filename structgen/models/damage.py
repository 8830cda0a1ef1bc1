"""Check that a model's folder is complete and harmless, with fixes for problems.

It finds missing and damaged files, references to files elsewhere, and code that the folder would
run. It checks names, sizes, and an ONNX file's references to its data file, before a runtime
follows them. (The runtime reports a short data file only by an error with places in its own source
code.) Knows no runtime and no digests.
"""

from __future__ import annotations

import json
import math
import mmap
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from structgen.storage.user_folder import LARGEST, WRONG, document, inside, unique, varint

from . import cache
from .allowed import FILES, OTHER_TYPES, PORTS, STEPS, STEPS_IN, is_allowed, port_types, steps_wrong

_HOLDS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 11: "port", 12: "port", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {
        **{5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
        **{14: "type", 15: "type"},
    },
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "data"},
    "port": {2: "type"},
    "type": {1: "element", 4: "list", 8: "element", 9: "list"},
    "list": {1: "type"},
    "element": {2: "shape"},
    "shape": {},
}
"""Fields of ONNX's protocol buffers that lead to the place of a tensor's data, that `_of_ports`
follows, or whose dimensions take hundreds of bytes of memory each when a graph gets a mask."""

_PORTS = ((7, 11), (7, 12))  # the path to the inputs and outputs of a graph
_NAME, _TYPE = (1,), (2,)  # and in them to the name and the type
_TENSOR, _DENOTATION = 1, 6  # the fields of a tensor's type; a later one of a list would replace it
_ELEMENT = -1  # and in a tensor the type of its numbers

_MOST_FIELDS = 2_000_000  # of all graphs of a folder; large models have about 100,000 each
_LONGEST = 1_000  # bytes of a reference, or of the name of an input
_MOST_FILES = 10_000  # of a folder, and of weights, of which each counts as some fields
_MOST_PARAMETERS, _MOST_DIMENSIONS = 10_000, 8  # of an adapter and of a parameter
_MOST_SETTINGS = 20_000  # of a configuration; those of pipelines have hundreds
_MOST_LACKS = 20  # of a folder

_BY_DEFAULT = ("decoder.onnx", "encoder.onnx")
"""The runtime's default graphs if a configuration names none."""

DESCRIBING = (".json", ".jinja", ".txt", ".model", ".tiktoken")
"""Endings of files that describe a model: its settings, tokenizer and chat template."""

TEMPLATE = "chat_template.jinja"

_INPUTS = {
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
    "cross_past_key_names": "",
    "cross_past_value_names": "",
    "input_ids": "input_ids",
    "encoder_hidden_states": "encoder_hidden_states",
    "past_sequence_length": "past_sequence_length",
    "cache_indirection": "cache_indirection",
}
"""Inputs of Whisper's decoder that the runtime fills: their names in settings, and their default
names."""
_MOST_LAYERS = 1_000

_WINDOW = "sliding_window"
_DECODER = ("model", "decoder")
_NOTE = b"version https://git-lfs"
_OWN_OPTIONS = (
    "If you trust it, delete it there. You can also pass ONNX Runtime options yourself: "
    "structgen.load(FOLDER, session_options={...})."
)
_TOKENIZER = "tokenizer.json"
_NAMED = str, dict, type(None)
_SETTINGS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("bos_token", "eos_token", "unk_token"), _NAMED),
    **dict.fromkeys(("chat_template", "tokenizer_class"), (str,)),
    **{"clean_up_tokenization_spaces": (bool,), "model_max_length": (float, int)},
}
"""Settings of a tokenizer with the types that the runtime reads; its errors do not name the
setting."""


class Lack(NamedTuple):
    """A problem of a model's folder.

    Attributes:
        file: the file that is missing or damaged.
        problem: the problem in a sentence.
        do: the fix, if structgen did not download the folder.
    """

    file: Path
    problem: str
    do: str


def find(folder: Path) -> list[Lack]:
    """Return the first problems of a folder: missing, damaged (by size) or forbidden files.

    Cost: about a millisecond per megabyte of graphs, which are small compared with their data.
    """
    of_kind = _of_language_model if (folder / cache.CONFIG).is_file() else _of_embedder
    try:
        return list(islice(of_kind(folder, iter(range(_MOST_FIELDS))), _MOST_LACKS))
    except OSError as error:  # it can be opened but not listed, or is being deleted
        return [
            Lack(
                folder,
                f"{folder} cannot be read: {error}.",
                "Check that it still exists, and its permissions.",
            )
        ]


def problems(folder: str) -> str:
    """Return the problems of a folder in one text."""
    return " ".join(lack.problem for lack in find(Path(folder)))


def _of_embedder(folder: Path, left: Iterator[int]) -> Iterator[Lack]:
    graphs = [
        graph for place in (folder, folder / "onnx") for graph in sorted(place.glob("*.onnx"))
    ]
    if not graphs:
        yield _no_graph(folder)
    elif not (folder / _TOKENIZER).is_file():
        yield _no_tokenizer(folder, "an embedder")
    else:  # these take seconds, and a folder that is no model's is looked at in a Runner's process
        for graph in graphs:
            yield from of_graph(graph, left)


def _of_language_model(folder: Path, left: Iterator[int]) -> Iterator[Lack]:
    path = folder / cache.CONFIG
    try:
        # The runtime uses both of two settings with the same name, for example of end tokens.
        settings = list(_settings(document(path, _MOST_SETTINGS, object_pairs_hook=unique)))
        if not any(place[:1] == ("model",) for place, _ in settings):
            raise KeyError("model")
    except WRONG as error:
        problem = f"{path} cannot be parsed: {error!r}."
        yield Lack(path, problem, "Copy it again from the folder's source.")
        return
    yield from _special(folder)
    yield from _of_tokens(folder)
    files: list[tuple[tuple[str, ...], Path]] = []
    for place, value in settings:
        if not is_allowed(place, value):
            problem = f"{path} sets {'.'.join(place)[:200]} to {str(value)[:200]!r}."
            yield Lack(path, f"{problem} A model folder may not set that.", _OWN_OPTIONS)
        elif place[-1] in FILES and value:
            try:
                file = inside(folder, value)
                if file.exists() and not file.is_file():  # reading a pipe would wait
                    raise ValueError(f"{value!r} is not a regular file")
                files.append((place, file))
            except ValueError as error:
                yield _elsewhere(path, f"{'.'.join(place)[:200]} is not allowed: {error}")
    shared = {file for place, file in files if place[-1] == "data_file"}
    read = [str(value) for place, value in settings if place[-1] == "length"]
    room = sum(file.stat().st_size for file in shared if file.is_file())
    known = all(one.isdecimal() and len(one) < 20 for one in read)
    if not known or sum(map(int, read)) > room:
        yield _bad(path, "declares shared_initializers with more bytes than their files have")
    windows = {place[: place.index(_WINDOW)] for place, _ in settings if _WINDOW in place}
    if windows - {at[:-2] for at, value in settings if at[-1] == "slide_inputs" and not value}:
        problem = (
            f"{path} has a {_WINDOW} with slide_inputs, with which the runtime would write beyond "
            "the prompt's memory."
        )
        yield Lack(path, problem, "Set slide_inputs to false there.")
    kinds = {str(value) for at, value in settings if at == ("model", "type")}
    if wrong := kinds.intersection(OTHER_TYPES):
        problem = (
            f"{path} describes a model of type {min(wrong)}, which structgen does not support."
        )
        yield Lack(path, problem, "Choose another model.")
    for part, (usual, *_) in STEPS_IN.items():
        place = ("model", part, "config_filename")
        named = {file for at, file in files if at == place}
        if all(at != place for at, _ in settings):
            named = {folder / usual}
        for kind in kinds & STEPS[part].keys():  # the runtime reads no steps for others
            for file in filter(Path.is_file, named):
                yield from _of_steps(file, part, kind)
    graphs = {file for place, file in files if place[-1] == "filename"}
    graphs |= {folder / name for name in _BY_DEFAULT if (folder / name).is_file()}
    graphs |= {graph for graph in map(cache.masked, graphs) if graph.is_file()}
    roles = defaultdict(set, {name: {name} for name in PORTS})
    for at, value in settings:
        if at[:2] == _DECODER and len(at) == 4 and isinstance(value, str):
            roles[value].add(at[3])
    others = {file for at, file in files if at[1] in STEPS}
    others -= {file for at, file in files if at[:2] == _DECODER}
    others -= {folder / name for name in _BY_DEFAULT}
    decoders = {file for at, file in files if at == (*_DECODER, "filename")}
    decoders = decoders or {folder / _BY_DEFAULT[0]}
    for graph in sorted(graphs):
        if lacks := of_graph(graph, left):
            yield from lacks
            continue
        yield from _of_ports(graph, roles, graph in others)
        if "whisper" in kinds and graph in decoders:
            yield from _unfilled(graph, settings)
    if not (folder / _TOKENIZER).is_file():
        yield _no_tokenizer(folder, "a language model")


def _of_tokens(folder: Path) -> Iterator[Lack]:
    """Yield problems of the tokens file that the runtime reads instead of its usual one, and of a
    chat template in a file: the target of a link out of the folder would be shown to everybody."""
    try:
        inside(folder, TEMPLATE)
    except ValueError as error:
        yield _elsewhere(folder / TEMPLATE, str(error))
    for path in (folder / "tokenizer_config.json", folder / "tokenizer_module.json"):
        try:
            settings = document(path) if path.is_file() else {}
            for key, kinds in _SETTINGS.items():
                if key in settings and type(value := settings[key]) not in kinds:
                    problem = (
                        f"{path} sets {key} to {str(value)[:200]!r}, which the runtime cannot read."
                    )
                    yield Lack(
                        path, problem, f"Delete it there, or change it to a {kinds[0].__name__}."
                    )
            name = settings.get("tiktoken_file")
            if name is not None and inside(folder, name).parent != folder:
                raise ValueError(f"{name!r} is in another folder")
            if name is not None and Path(name).suffix not in DESCRIBING:
                raise ValueError(f"{name!r} does not end in one of {', '.join(DESCRIBING)}")
        except WRONG as error:
            yield _elsewhere(path, f"tiktoken_file is not allowed: {error}")


def _of_steps(file: Path, part: str, kind: str) -> list[Lack]:
    """Return the problems of the steps that read pictures or sounds, for a type of models."""
    try:
        config = document(file, object_pairs_hook=unique)
        wrong = list(islice(steps_wrong(part, kind, config), _MOST_LACKS))
    except WRONG as error:
        return [_bad(file, f"cannot be parsed: {error!r}")]
    return [_bad(file, f"has {one}") for one in wrong]


def _special(folder: Path) -> Iterator[Lack]:
    """Yield files with names that the runtime reads, but whose end it would never reach: pipes,
    devices, and text files with hundreds of gigabytes of zeros; or too many files."""
    paths = sorted(islice(folder.iterdir(), _MOST_FILES + 1))
    if len(paths) > _MOST_FILES:  # a Runner looks at each
        problem = f"{folder} has more than {_MOST_FILES:,} files."
        yield Lack(folder, problem, "Remove those that the model does not need.")
        return
    for path in paths:
        if path.is_dir() or not path.exists():
            continue
        if not path.is_file():
            problem = f"{path} is a pipe or a device instead of a file."
            yield Lack(path, problem, f"Delete {path}.")
        elif path.suffix in DESCRIBING and path.stat().st_size > LARGEST:
            problem = f"{path} has {path.stat().st_size:,} bytes; the limit is {LARGEST:,}."
            yield Lack(path, problem, f"Delete {path}.")


def _settings(section: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all settings of a configuration, each with its path of names."""
    if isinstance(section, dict) and section:
        for key, value in section.items():
            if key == "load_config" and isinstance(value, str):  # of OpenVINO: JSON in a string
                value = json.loads(value, object_pairs_hook=unique)
            yield from _settings(value, (*place, key))
    elif isinstance(section, list):
        for item in section:
            yield from _settings(item, place)
    elif place:
        yield place, section


def _elsewhere(path: Path, problem: str) -> Lack:
    do = "If you trust the folder, move the file into it and use its path relative to the folder."
    return Lack(path, f"{path}: {problem}.", do)


def of_graph(graph: Path, left: Iterator[int] | None = None) -> list[Lack]:
    """Return the problems of a graph or of the data that it refers to.

    ``left``: an iterator with an item per field that may be read; all graphs of a folder share it.
    """
    if not graph.is_file():
        return [_bad(graph, "is missing")]
    if graph.suffix != ".onnx":  # one that ends in .ort has another format
        return [_bad(graph, "is not an ONNX file: its name does not end in .onnx")]
    if note := _note(graph):
        return [note]
    needed: dict[str, int] = {}
    left = left or iter(range(_MOST_FIELDS))
    a_file = _MOST_FIELDS // _MOST_FILES  # fields that a file counts for
    try:
        for location, end in _references(graph, left):
            if location not in needed and next(islice(left, a_file, None), None) is None:
                raise ValueError("the folder has too many parts of graphs and files of weights")
            needed[location] = max(needed.get(location, 0), end)
    except WRONG as error:
        return [_bad(graph, f"cannot be parsed: {error}")]
    found = []
    for location, size in needed.items():
        try:
            if location.startswith("*"):  # up to about version 1.22, the runtime follows it
                raise ValueError(f"{location!r} refers to memory instead of a file")
            file = inside(graph.parent, location)
        except ValueError as error:
            found.append(_elsewhere(graph, str(error)))
            continue
        if not file.is_file():
            found.append(_bad(file, f"is missing. It contains the weights of {graph.name}"))
        elif note := _note(file):
            found.append(note)
        elif file.stat().st_size < size:
            has = f"{file.stat().st_size:,} bytes, but {graph.name} refers to {size:,}"
            found.append(_bad(file, f"is damaged: it has {has}"))
    return found


def _of_ports(graph: Path, roles: Mapping[str, Iterable[str]], has_masks: bool) -> Iterator[Lack]:
    """Yield the inputs and outputs of a graph whose types the runtime would treat as wider ones.

    Args:
        graph: the file.
        roles: the roles of some, by name.
        has_masks: whether bools are allowed.
    """
    with graph.open("rb") as file, _mapped(file) as data:
        for port in (port for way in _PORTS for port in _inside(data, (0, len(data)), way)):
            types: set[int] = set()
            for way in _inside(data, port, _TYPE):
                for number, *place in _fields(data, *way):
                    if number == _TENSOR:
                        types.update(
                            n for field, n, _ in _fields(data, *place) if field == _ELEMENT
                        )
                    elif number != _DENOTATION:
                        types.add(0)
            for start, end in _inside(data, port, _NAME):
                # The runtime reads it up to a NUL.
                begin, _, _ = data[start : min(end, start + _LONGEST)].partition(b"\0")
                name = begin.decode(errors="replace")
                if end - start > _LONGEST:
                    what = f"whose name has more than {_LONGEST:,} bytes"
                elif types and types <= port_types(roles.get(name, ()), has_masks):
                    continue
                else:
                    what = f"{name[:200]!r} of the wrong type"
                yield _bad(graph, f"has an input or output {what}")


def _unfilled(graph: Path, settings: Iterable[tuple[tuple[str, ...], Any]]) -> Iterator[Lack]:
    """Yield the inputs of Whisper's decoder that nothing fills although attention reads them."""
    known = {at[2:]: value for at, value in settings if at[:2] == _DECODER}
    n_layers = known.get(("num_hidden_layers",))
    if not isinstance(n_layers, (int, float)) or not 0 < n_layers <= _MOST_LAYERS:
        n_layers = 0
    names = {str(known.get(("inputs", name), usual)) for name, usual in _INPUTS.items()}
    filled = {
        name.replace("%d", str(layer))
        for name in names
        if len(name) <= _LONGEST
        for layer in ("%d", *range(int(n_layers)))
    }
    with graph.open("rb") as file, _mapped(file) as data:
        for start, end in _inside(data, (0, len(data)), (*_PORTS[0], *_NAME)):
            begin, _, _ = data[start : min(end, start + _LONGEST)].partition(b"\0")
            if (name := begin.decode(errors="replace")) not in filled:
                yield _bad(
                    graph, f"has the input {name[:200]!r}, which {cache.CONFIG} does not have"
                )


def _mapped(file: BinaryIO) -> mmap.mmap:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _inside(
    data: mmap.mmap, place: tuple[int, int], way: tuple[int, ...]
) -> Iterator[tuple[int, int]]:
    """Yield the fields at a path of field numbers."""
    for number, start, end in _fields(data, *place):
        if number == way[0]:
            yield from _inside(data, (start, end), way[1:]) if way[1:] else [(start, end)]


def _bad(file: Path, problem: str) -> Lack:
    do = f"Download or convert the model again, or copy {file.name} from the folder's source."
    return Lack(file, f"{file} {problem}.", do)


def _no_graph(folder: Path) -> Lack:
    problem = f"{folder} is not a model folder: it has neither {cache.CONFIG} nor an ONNX file."
    do = (
        f"A language model has {cache.CONFIG}: look for a repository with -onnx in its name, or "
        "convert a GGUF file with `structgen models convert FILE.gguf OUT`. An embedder has an "
        f"ONNX file and {_TOKENIZER}."
    )
    return Lack(folder / cache.CONFIG, problem, do)


def _no_tokenizer(folder: Path, what: str) -> Lack:
    others = [name for name in ("tokenizer.model", "vocab.txt") if (folder / name).is_file()]
    beside = f" {others[0]} cannot replace it." if others else ""
    problem = f"{folder / _TOKENIZER} is missing, which {what} needs.{beside}"
    do = (
        f"Copy {_TOKENIZER} from the repository of the original model, or write it with "
        "transformers: AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)."
    )
    return Lack(folder / _TOKENIZER, problem, do)


def _note(file: Path) -> Lack | None:
    with file.open("rb") as source:
        if source.read(len(_NOTE)) != _NOTE:
            return None
    problem = f"{file} is a Git LFS pointer, not the file itself."
    return Lack(file, problem, "Run `git lfs pull` in the folder.")


def _references(path: Path, left: Iterator[int]) -> Iterator[tuple[str, int]]:
    """Yield the data files that a graph's tensors refer to, with the end of each part."""
    with path.open("rb") as file, _mapped(file) as data:
        waiting = [("model", 0, len(data))]
        while waiting:
            kind, *place = waiting.pop()
            entries = {}
            for number, start, end in _fields(data, *place):
                if next(left, None) is None:
                    raise ValueError(f"the folder's graphs have more than {_MOST_FIELDS:,} fields")
                inner = _HOLDS[kind].get(number)
                if inner == "data" and end - start <= _LONGEST:
                    pair = {}
                    for one, first, last in _fields(data, start, end):
                        next(left, None)
                        pair[one] = data[first:last]
                    if pair.get(1, b"").startswith(b"prepacked"):
                        # The runtime, at least up to 1.22, reads beyond one that is too short.
                        raise ValueError("it has prepacked weights. Save it without them")
                    is_known = pair.get(1) in (b"location", b"offset", b"length")
                    entries[pair.get(1) if is_known else None] = pair.get(2, b"")
                elif inner == "data":
                    raise ValueError(f"a reference has more than {_LONGEST:,} bytes")
                elif kind == "tensor" and number == 1 and end - start > _LONGEST:
                    raise ValueError("a tensor has too many dimensions")
                elif inner is not None:
                    waiting.append((inner, start, end))
            if b"location" in entries:
                begin, length = (entries.get(name, b"0") for name in (b"offset", b"length"))
                if not (begin + length).isdigit():
                    raise ValueError(f"a reference has the invalid numbers {begin + length!r}")
                yield entries[b"location"].decode(), int(begin) + int(length)
            elif entries:  # the rest may be elsewhere: the runtime joins both
                raise ValueError("a reference has no file name")


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of a protocol buffer message: number, begin and end.

    For an integer, the number is negative, and begin and end are its value; for a float, the number
    is 0.
    """
    while at < end:
        tag, at = varint(data, at)
        kind, length = tag & 7, 0
        number = (tag & 0xFFFFFFFF) >> 3  # as read by the runtime
        if kind == 0:
            value, at = varint(data, at)
            yield -number, value, value
            continue
        if kind == 2:
            length, at = varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"it has a field of kind {kind}")
        if at + length > end:
            raise ValueError("it has a truncated field")
        yield number if kind == 2 else 0, at, at + length
        at += length


_WIDTHS = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}
_WIDTHS |= dict.fromkeys(range(17, 21), 1)
"""Bytes per number, by ONNX's number of the type."""


_LAYER = re.compile(r"(?:%d|\d)+")
"""Matches the number of a layer in a name."""


def of_adapter(file: Path, folder: Path | None = None, *filled: str) -> Lack | None:
    """Return the problem of a LoRA adapter's parameters for the model in a folder.

    Before version 1.24, the runtime reads beyond parameters that are shorter than their shape, and
    hangs or crashes if one is an input that a call fills; it checks the rest of the file.

    Args:
        file: the adapter's file.
        folder: the model's folder.
        filled: inputs that calls fill, beside those that the folder names.
    """
    names = {*filled, *_INPUTS.values(), "inputs_embeds", "attention_mask", "position_ids"}
    try:
        if folder is not None:
            settings = _settings(document(folder / cache.CONFIG, _MOST_SETTINGS))
            names |= {str(value) for at, value in settings if at[-2:-1] == ("inputs",)}
        ours = {_LAYER.sub("#", one) for one in names}
        with file.open("rb") as source, _mapped(source) as data:
            for name, kind, shape, size in _parameters(data):
                if _LAYER.sub("#", name) in ours:
                    raise ValueError(f"it changes the input {name!r}, which each call sets")
                if min(shape, default=0) < 0 or size != math.prod(shape) * _WIDTHS.get(kind, -1):
                    raise ValueError(f"{size:,} bytes do not fit the type {kind} and {shape}")
    except WRONG as error:
        return _bad(file, f"is not an adapter, or is damaged: {error}")
    return None


def _parameters(data: mmap.mmap) -> Iterator[tuple[str, int, list[int], int]]:
    """Yield the name, type, shape and size of each parameter in an adapter (FlatBuffers)."""

    def number(at: int, size: int = 4, signed: bool = False) -> int:
        if not 0 <= at <= len(data) - size:
            raise ValueError("it is truncated")
        return int.from_bytes(data[at : at + size], "little", signed=signed)

    def field(table: int, index: int) -> int:
        places = table - number(table, signed=True)
        at = 4 + 2 * index
        return table + (number(places + at, 2) if at < number(places, 2) else 0)

    def items(table: int, index: int, most: int) -> tuple[int, int]:
        """Return the beginning and number of a field's items."""
        at = field(table, index)
        if at == table:
            raise ValueError("a parameter has no name, shape or data")
        at += number(at)
        if number(at) > most:
            raise ValueError(f"a list has {number(at):,} items; the limit is {most:,}")
        return at + 4, number(at)

    start, n = items(number(0), 3, _MOST_PARAMETERS)
    for at in range(start, start + 4 * n, 4):
        table = at + number(at)
        kind, (first, rank) = field(table, 2), items(table, 1, _MOST_DIMENSIONS)
        shape = [number(first + 8 * i, 8, signed=True) for i in range(rank)]
        begin, length = items(table, 0, _LONGEST)  # The runtime reads it up to a NUL.
        name = data[begin : begin + length].partition(b"\0")[0].decode(errors="replace")
        yield name, 0 if kind == table else number(kind), shape, items(table, 3, len(data))[1]
