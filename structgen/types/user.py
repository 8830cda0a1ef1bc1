"""What a user writes as an output type beyond plain Python types, and what lowering makes of it.

Owns `Choice` and `Cfg`, immutable and hashable, and `OutputType`, the pair
of a grammar and a parser. Knows nothing of how a grammar is built.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from structgen import grammars
from structgen.errors import GrammarError, OutputTypeError
from structgen.grammar import ir
from structgen.types.schemas import shown


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
        return f"Cfg({shown(what)})"


_GRAMMAR_FILES = (".lark", ".gbnf", ".ebnf")
