"""What a user writes as an output type beyond plain Python types, and what lowering makes of it.

Owns `Choice`, `JsonSchema` and `Cfg`, immutable and hashable, and `OutputType`, the pair
of a grammar and a parser. Knows nothing of how a grammar is built.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from structgen import grammars
from structgen.errors import GrammarError, OutputTypeError, SchemaError
from structgen.grammar import ir
from structgen.grammar.schema_graph import child_path


@dataclass(frozen=True, slots=True)
class OutputType:
    """An output type ready for compiling.

    Attributes:
        grammar: the texts a model may write.
        parse: turns one such text into the value it stands for; raises `ParseError`.
        name: what to call the type in messages.
    """

    grammar: ir.Grammar
    parse: Callable[[str], Any]
    name: str


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Choice:
    """Exactly one of ``items``, written as bare text; parses to the very item that was passed in.

    Items may be strings, numbers, booleans, None, dates, times, UUIDs, decimals and enum members.
    Booleans and None are written ``true``, ``false`` and ``null``.

    Args:
        items: at least one. Repeated items count once; two different items that would be written
            alike are refused when the type is compiled.
    """

    items: tuple[Any, ...]

    def __init__(self, items: Iterable[Any]) -> None:
        if isinstance(items, (str, bytes)):
            raise OutputTypeError(
                f"Choice takes several items, got the single string {items!r}. "
                f"Write Choice([{items!r}])."
            )
        if isinstance(items, Mapping) or not isinstance(items, Iterable):
            raise OutputTypeError(
                f"Choice takes a list of items, got {type(items).__name__}. "
                'Write Choice(["yes", "no"]).'
            )
        values = list(items)
        if isinstance(items, (set, frozenset)):
            # Strings hash differently in every process; outputs under a seed must not.
            values.sort(key=lambda item: (type(item).__name__, str(item)))
        object.__setattr__(self, "items", tuple(values))

    # 1, True and 1.0 are equal, but are different choices.
    def _key(self) -> tuple[tuple[type, Any], ...]:
        return tuple((type(item), item) for item in self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.items[:5]))
        return f"Choice([{shown}{', …' if len(self.items) > 5 else ''}])"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class JsonSchema:
    """JSON text that is valid under a JSON Schema; parses to what ``json.loads`` gives.

    The schema is copied: later changes to the argument have no effect.

    Args:
        schema: a dict, True or False, or the schema as JSON text.
        dialect: the draft, where ``$schema`` does not say: ``"draft4"``, ``"draft6"``,
            ``"draft7"``, ``"draft2019-09"`` or ``"draft2020-12"`` (the default).
        documents: documents that ``$ref`` may lead to, by absolute URL. The metaschemas are known;
            nothing is ever fetched.

    Raises:
        SchemaError: the argument is not JSON, or not an object or boolean.
    """

    text: str
    dialect: str | None
    documents_text: str | None

    def __init__(
        self,
        schema: Mapping[str, Any] | bool | str,
        dialect: str | None = None,
        documents: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(schema, str):
            try:
                value = json.loads(schema)
            except ValueError as error:
                fix = "Pass a dict, or the schema as JSON text."
                if _PATH.fullmatch(schema):
                    fix = (
                        "A string is read as JSON text, not as the name of a file: pass "
                        f"Path({schema!r}).read_text()."
                    )
                raise SchemaError(
                    f"JsonSchema was given a string that is not JSON: {error}. {fix}"
                ) from error
        else:
            value = schema
        if not isinstance(value, (Mapping, bool)):
            raise SchemaError(
                "A JSON Schema is an object or a boolean, "
                f"got {type(value).__name__} ({_short(value)}) at $.{_instead(value)}"
            )
        object.__setattr__(self, "text", _dump(value))
        object.__setattr__(self, "dialect", dialect)
        object.__setattr__(self, "documents_text", _dump(documents) if documents else None)

    @property
    def schema(self) -> Any:
        """A fresh copy of the schema: a dict or a bool."""
        return json.loads(self.text)

    @property
    def options(self) -> dict[str, Any]:
        """The compile options that belong to the schema itself."""
        out: dict[str, Any] = {}
        if self.dialect is not None:
            out["dialect"] = self.dialect
        if self.documents_text is not None:
            out["documents"] = json.loads(self.documents_text)
        return out

    def __repr__(self) -> str:
        return f"JsonSchema({_short(self.schema)})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cfg:
    """Text that a context-free grammar derives; parses to the text itself.

    Any grammar will do: left- or right-recursive, ambiguous, cyclic. See ``docs/grammars.md`` for
    what each dialect's terminals match.

    Args:
        text_or_path: the grammar, or the file that holds it: a path object, or a string that ends
            in ``.lark``, ``.gbnf`` or ``.ebnf`` and has no line break.
        start: the rule to begin with; None for the dialect's own (``start`` in Lark, ``root`` in
            GBNF, the first rule in EBNF).
        dialect: ``"lark"``, ``"gbnf"`` or ``"ebnf"``. When left out: by the file's name, or by
            how rules are written (``name:`` is Lark; ``name ::=`` GBNF if there is a ``root``,
            otherwise EBNF).

    Raises:
        GrammarError: the file cannot be read, or there is no such dialect.
    """

    text: str
    start: str | None
    dialect: str | None
    path: str | None

    def __init__(
        self,
        text_or_path: str | os.PathLike[str],
        start: str | None = None,
        dialect: str | None = None,
    ) -> None:
        path: str | None = None
        if isinstance(text_or_path, os.PathLike):
            path = os.fspath(text_or_path)
        elif not isinstance(text_or_path, str):
            raise GrammarError(
                f"Cfg takes a grammar as str, or a path, got {type(text_or_path).__name__}."
            )
        elif text_or_path.endswith(_GRAMMAR_FILES) and not set("\n:") & set(text_or_path[3:]):
            path = text_or_path
        text = text_or_path if path is None else ""
        if path is not None:
            try:
                with open(path, encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError) as error:
                raise GrammarError(f"The grammar file {path} cannot be read: {error}.") from error
        if dialect not in (None, "lark", "gbnf", "ebnf"):
            raise GrammarError(
                f"There is no grammar dialect {dialect!r}; choose 'lark', 'gbnf' or 'ebnf'."
            )
        object.__setattr__(self, "text", str(text))
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "dialect", dialect)
        object.__setattr__(self, "path", path)

    @classmethod
    def named(cls, name: str) -> Cfg:
        """The grammar of that name from the library; ``structgen grammars list`` shows them.

        Raises:
            OptionError: there is none; the message names near ones.
        """
        return cls(grammars.text(name), dialect="lark")

    def __repr__(self) -> str:
        what = self.path if self.path is not None else self.text
        return f"Cfg({_short(what)})"


_GRAMMAR_FILES = (".lark", ".gbnf", ".ebnf")


_PATH = re.compile(r"[^\s{}\[\]\"]+\.[A-Za-z0-9]+|[^\s{}\[\]\"]*[/\\][^\s{}\[\]\"]+")


def _instead(value: Any) -> str:
    """What to pass instead of what is no schema, where that is plain."""
    if isinstance(value, os.PathLike):
        return " For the schema in a file, pass the text: path.read_text()."
    if isinstance(value, type) or hasattr(value, "__args__"):
        return " To use a Python type, pass the type itself, without JsonSchema."
    return ""


def _dump(value: Any) -> str:
    """``value`` as JSON text, keeping the order of keys (it is the order of properties)."""
    if not _is_json(value, 0):
        _check_json(value, "$", ())
    try:
        return json.dumps(value, allow_nan=False, default=dict)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"The schema cannot be written as JSON: {error}.") from error


def _is_json(value: Any, depth: int) -> bool:
    """Whether ``value`` is plainly JSON. Where it is not, `_check_json` says what is wrong."""
    kind = type(value)
    if kind is dict:
        return depth < 100 and all(
            type(key) is str and _is_json(item, depth + 1) for key, item in value.items()
        )
    if kind is list:
        return depth < 100 and all(_is_json(item, depth + 1) for item in value)
    if kind is float:
        return bool(value - value == 0)  # finite
    return kind is str or kind is int or kind is bool or value is None


def _check_json(value: Any, path: str, parents: tuple[int, ...]) -> None:
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        raise SchemaError(f"JSON has no number {value!r}, at {path}.", path=path)
    if value is None or isinstance(value, (str, int, float)):
        return
    if id(value) in parents:
        raise SchemaError(f"The schema contains itself, at {path}. Use $ref.", path=path)
    if len(parents) > 500:
        raise SchemaError(
            f"The schema is nested more than 500 deep, at {path[:60]}…{path[-40:]}. "
            "Flatten it, or move parts into $defs.",
            path=path,
        )
    parents = (*parents, id(value))
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SchemaError(
                    f"Keys in a JSON Schema are strings, got {key!r} at {path}.", path=path
                )
            _check_json(item, child_path(path, key), parents)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check_json(item, f"{path}[{index}]", parents)
    else:
        fix = " Write a list." if isinstance(value, (set, frozenset)) else _instead(value)
        raise SchemaError(
            f"{type(value).__name__} ({_short(value)}) is not JSON, at {path}. "
            f"A JSON Schema holds dicts, lists, strings, numbers, booleans and None.{fix}",
            path=path,
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
