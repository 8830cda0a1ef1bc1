"""How objects end that owe required members and nothing else: one text for each set of them.

After each of a thousand names that may be written next another set of members is owed, which
differs in one. So the text of a set is made of those of its halves, which are shared: to leave out
one more member costs a few parts, not all. Knows no rules; `closing` says where this is enough.
"""

from __future__ import annotations

from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK

from .language import Language
from .members import MemberTable

_FEW = 16
"""So many names are one part."""


class PlainEnds:
    """The required members of one member table, as texts."""

    def __init__(self, language: Language, table: MemberTable) -> None:
        self._language = language
        self._table = table
        self._size = _FEW
        while self._size < len(table.names):
            self._size *= 2
        # By the first name, how many names, and which of them are owed.
        self._known: dict[tuple[int, int, int], Text | None] = {}

    def members(self, owed: int) -> Text | None:
        """The members with names in the bit mask ``owed``, in order, a comma before each; None if
        one has no value."""
        return self._part(0, self._size, owed)

    def _part(self, first: int, size: int, owed: int) -> Text | None:
        if not owed:
            return b""
        key = first, size, owed
        if key in self._known:
            return self._known[key]
        out: Text | None
        if size > _FEW:
            half = size >> 1
            before = self._part(first, half, owed & ((1 << half) - 1))
            after = self._part(first + half, half, owed >> half)
            out = None if before is None or after is None else put(before, after)
            WORK.spend(1)
            WORK.hold(250 + (size >> 3))
        else:
            out = self._few(first, owed)
            WORK.spend(owed.bit_count())
            WORK.hold(250 + (0 if out is None else len(out)))
        self._known[key] = out
        return out

    def _few(self, first: int, owed: int) -> Text | None:
        language, table = self._language, self._table
        out: Text = b""
        while owed:
            label = owed.bit_length() - 1
            owed ^= 1 << label
            value = language.values.shortest(table.conjunctions[first + label])
            if value is None:
                return None
            name = language.scalars.spell(table.names[first + label])
            out = put(put(language.least_comma + name + language.least_colon, value), out)
        return out
