"""The grammar IR: the target of every source language, and the only input of automata.

Two layers of small immutable values:

* **Regular expressions over code points** (`Regex` nodes): `CharSet`, `Concat`, `Alternate`,
  `Repeat`, `Intersect`, `Complement`, `Checksum`, `Quote`, the two anchors and the two lookarounds.
  They describe *text*; the automaton encodes code points as bytes (UTF-8, or escaped inside a JSON
  string).
* **Grammars** (`Grammar`): `Pattern` (a regular language of texts), `Choice` (a finite set of
  texts), `Json` (a JSON Schema, still as data), `ContextFree` (rules over terminals), `Either` (a
  union), `Sequence` (one after the other), `Times` (several in a row).

Knows no source syntax and no automaton.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)

_FEW_RANGES = 8

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted, disjoint, non-adjacent, inclusive code-point ranges, without surrogates."""


class _Compound:
    """Caches its hash, because expressions are keys, and some have thousands of parts. When two are
    equal, one takes over the other's parts, so that the next comparison is by identity."""

    __slots__ = ("_hash",)

    _hash: int

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        for name in self.__match_args__:  # type: ignore[attr-defined]
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not theirs:
                if mine != theirs:
                    return False
                object.__setattr__(other, name, mine)
        return True

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            fields = (getattr(self, name) for name in self.__match_args__)  # type: ignore[attr-defined]
            kept = hash((type(self), *fields))
            object.__setattr__(self, "_hash", kept)
            return kept


@dataclass(frozen=True, slots=True, eq=False)
class CharSet(_Compound):
    """One code point out of ``ranges``. An empty tuple matches nothing."""

    ranges: Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Concat(_Compound):
    """The parts one after the other. No parts: the empty string."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alternate(_Compound):
    """Any one of the parts. No parts: nothing at all."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat(_Compound):
    """``body`` at least ``min`` and at most ``max`` times (None: unbounded)."""

    body: Regex
    min: int
    max: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Intersect(_Compound):
    """Texts that every part matches.

    Each part sees a separate text: its anchors and lookarounds do not see anything around it.
    """

    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Complement(_Compound):
    """Texts that ``body`` does not match; it sees a separate text, as in `Intersect`."""

    body: Regex


@dataclass(frozen=True, slots=True, eq=False)
class Checksum(_Compound):
    """As many characters as there are ``steps``, whose numbers add up to a multiple of ``modulus``.

    Attributes:
        modulus: 2 or more.
        steps: for each place the allowed characters, by their numbers.
        between: the text before ``count`` of the places in ``gaps``; it adds 0.
        gaps: some of the places, in order.
        count: how many of them have ``between`` before them.
    """

    modulus: int
    steps: tuple[tuple[tuple[int, CharSet], ...], ...]
    between: CharSet = CharSet(())
    gaps: tuple[int, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Quote(_Compound):
    """A piece of a document, from border to border of its units.

    Attributes:
        document: the text.
        unit: ``"word"``, ``"character"``, ``"sentence"`` or ``"line"``.
        least: the fewest units, at least 1.
        most: the most units; None for no bound.
        ignore_case: whether letters may have another case.
        any_whitespace: whether one blank of any kind may replace each run of blanks.
    """

    document: str
    unit: str
    least: int
    most: int | None
    ignore_case: bool
    any_whitespace: bool

    def __repr__(self) -> str:
        return f"Quote({self.document[:20]!r}…, {self.unit!r}, {self.least}, {self.most})"


@dataclass(frozen=True, slots=True)
class StartAnchor:
    """The empty string, only at the very start of the text."""


@dataclass(frozen=True, slots=True)
class EndAnchor:
    """The empty string, only at the very end of the text."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookahead(_Compound):
    """The empty string if some text from here on matches ``body`` (or none does: ``negate``)."""

    body: Regex
    negate: bool


@dataclass(frozen=True, slots=True, eq=False)
class Lookbehind(_Compound):
    """The empty string if some text that ends here matches ``body`` (or none: ``negate``)."""

    body: Regex
    negate: bool


Regex: TypeAlias = (
    "CharSet | Concat | Alternate | Repeat | Intersect | Complement | Checksum | Quote"
    " | StartAnchor | EndAnchor | Lookahead | Lookbehind"
)


def parts_of(regex: Regex) -> tuple[Regex, ...]:
    """Return the direct parts of ``regex``."""
    if isinstance(regex, (Concat, Alternate, Intersect)):
        return regex.parts
    if isinstance(regex, (Repeat, Complement, Lookahead, Lookbehind)):
        return (regex.body,)
    return ()


def nodes(regex: Regex) -> Iterator[Regex]:
    """Yield ``regex`` and all expressions inside it."""
    stack = [regex]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(parts_of(node))


EPSILON = Concat(())
NOTHING = Alternate(())
ANY_CHAR = CharSet(((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, MAX_CODE_POINT)))
ANY_TEXT = Repeat(ANY_CHAR, 0, None)


def literal(text: str) -> Regex:
    """Return the regex that matches exactly ``text``."""
    return Concat(tuple([character(ord(c)) for c in text]))


@lru_cache(maxsize=1024)
def character(code_point: int) -> CharSet:
    """Return the set of one character, which is not a surrogate."""
    return _interned(((code_point, code_point),))


def characters(text: str) -> CharSet:
    """Return the set of the characters of a text."""
    return char_set([(ord(c), ord(c)) for c in text])


def char_set(ranges: list[tuple[int, int]]) -> CharSet:
    """Return a `CharSet` from ranges in any order, overlapping or not; surrogates are dropped."""
    made = normalize_ranges(ranges)
    return _interned(made) if len(made) <= _FEW_RANGES else CharSet(made)


@lru_cache(maxsize=4096)
def _interned(ranges: Ranges) -> CharSet:
    """Return one object for equal small sets: patterns use a few of them very often."""
    return CharSet(ranges)


def negate(chars: CharSet) -> CharSet:
    """Return the code points not in ``chars`` (surrogates are in neither)."""
    out: list[tuple[int, int]] = []
    start = 0
    for low, high in chars.ranges:
        if start < low:
            out.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE_POINT:
        out.append((start, MAX_CODE_POINT))
    return char_set(out)


def less(chars: CharSet, taken: CharSet) -> CharSet:
    """Return the code points of one set that are not in another."""
    return negate(char_set([*negate(chars).ranges, *taken.ranges]))


def normalize_ranges(ranges: list[tuple[int, int]]) -> Ranges:
    """Sort and merge ``ranges``, dropping surrogates and empty ranges."""
    out: list[tuple[int, int]] = []
    split: list[tuple[int, int]] = []
    for low, high in ranges:
        if low < SURROGATES[0]:
            split.append((low, min(high, SURROGATES[0] - 1)))
        if high > SURROGATES[1]:
            split.append((max(low, SURROGATES[1] + 1), high))
    for low, high in sorted(split):
        if low > high:
            continue
        if out and low <= out[-1][1] + 1:
            if high > out[-1][1]:
                out[-1] = (out[-1][0], high)
        else:
            out.append((low, high))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Texts that ``regex`` matches from end to end."""

    regex: Regex
    source: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of ``texts``."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Json:
    """JSON texts that are valid under ``schema`` (a bool or a mapping, not yet checked)."""

    schema: Any
    options: Mapping[str, Any] = field(default_factory=lambda: {})


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal of a context-free grammar.

    Attributes:
        name: its name in messages.
        pattern: in Python's ``re`` syntax: matches like ``re.match``. Or a regular expression
            without assertions: may end wherever it matches, but never empty.
    """

    name: str
    pattern: str | Regex


@dataclass(frozen=True, slots=True)
class Embedded:
    """A terminal that is a text of another grammar. It may end wherever such a text is complete.

    Attributes:
        name: its name in messages.
        grammar: the other grammar, which is not context-free.
        max_tokens: the most tokens of its text, counted from the one in which it begins; None: any
            number. Only for patterns.
        temperature: the temperature of its tokens; None: the call's.
    """

    name: str
    grammar: Grammar
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A terminal that is one token of the vocabulary, independent of its text.

    Attributes:
        text: its name in the tokenizer.
        place: its place in the grammar, for messages.
    """

    text: str
    place: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.text


@dataclass(frozen=True, slots=True)
class Capture:
    """A nonterminal whose texts have a name.

    Attributes:
        nonterminal: its number.
        name: the name.
        tails: expressions whose longest texts are removed from the end of the capture, one after
            the other.
        is_tail: whether the name belongs to the last of these.
    """

    nonterminal: int
    name: str
    tails: tuple[Regex, ...]
    is_tail: bool = False


@dataclass(frozen=True, slots=True)
class ContextFree:
    """Texts of a context-free grammar.

    A symbol is an int: terminal ``t`` is ``t``, nonterminal ``n`` is ``~n``.

    Attributes:
        terminals: the terminals, by number.
        nonterminals: names of the nonterminals, by number.
        rules: ``(nonterminal number, symbols)``.
        start: number of the start nonterminal.
        ignore: numbers of the terminals that may come anywhere between the others.
        captures: the nonterminals whose texts have names.
        key: its key in the store of grammars; None: not stored by its text.
    """

    terminals: tuple[AnyTerminal, ...]
    nonterminals: tuple[str, ...]
    rules: tuple[tuple[int, tuple[int, ...]], ...]
    start: int
    ignore: tuple[int, ...] = ()
    captures: tuple[Capture, ...] = ()
    key: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Either:
    """A text of any one of ``parts``."""

    parts: tuple[Grammar, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A text of each of ``parts``, one after the other, with nothing between them."""

    parts: tuple[Grammar, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """From ``least`` to ``most`` texts of ``part`` in a row; None: any number."""

    part: Grammar
    least: int
    most: int | None


def flat(grammar: Grammar) -> Iterator[Grammar]:
    """Yield ``grammar``, or the innermost parts of a union, sequence or repeat."""
    if isinstance(grammar, (Either, Sequence, Times)):
        for part in (grammar.part,) if isinstance(grammar, Times) else grammar.parts:
            yield from flat(part)
    else:
        yield grammar


def has_rules(grammar: Grammar) -> bool:
    """Return whether a part of ``grammar`` is context-free."""
    return any(isinstance(part, ContextFree) for part in flat(grammar))


def embedded(grammar: Grammar) -> Iterator[Embedded]:
    """Yield the terminals of ``grammar`` that are texts of other grammars."""
    for part in flat(grammar):
        if isinstance(part, ContextFree):
            yield from (one for one in part.terminals if isinstance(one, Embedded))


def special_tokens(grammar: Grammar) -> Iterator[SpecialToken]:
    """Yield the terminals of ``grammar`` that are tokens of the vocabulary."""
    for part in flat(grammar):
        if isinstance(part, ContextFree):
            yield from (one for one in part.terminals if isinstance(one, SpecialToken))


def has_temperatures(grammar: Grammar) -> bool:
    """Return whether rules of ``grammar`` set temperatures."""
    return any(one.temperature is not None for one in embedded(grammar))


AnyTerminal: TypeAlias = "Terminal | Embedded | SpecialToken"

Grammar: TypeAlias = "Pattern | Choice | Json | ContextFree | Either | Sequence | Times"
