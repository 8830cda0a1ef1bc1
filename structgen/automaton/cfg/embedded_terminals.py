"""Terminals of a grammar that are not patterns: texts of another grammar, and named tokens.

An `EmbeddedTerminal` tells the rules how its texts start, with which characters, and the shortest
text of each kind. While such a text is written, its own leaves and frames are on the stack
(`frame`). It may end wherever it is complete, and puts no condition on what follows. Its first
character must settle the condition of the terminal before it; if not every character does, a
`GuardedLeaf` reads it. For the automaton, a named token is two bytes that no text contains. For
conditions on the rest, it is the end of the text.

Two wrappers add settings: a `LimitedLeaf` counts the tokens of its text, and a `SamplingFrame`
below a text sets how its tokens are sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structgen.automaton.core.frames import POP, Alternative, Frame, NeedsText, TextHistory
from structgen.automaton.core.leaf import Leaf, LiteralLeaf
from structgen.automaton.core.machine import Machine
from structgen.automaton.core.text_leaf import TextLeaf
from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.encoding import GROUND, Utf8
from structgen.automaton.schema.nesting import UNLIMITED
from structgen.automaton.texts import Text, put
from structgen.errors import GrammarError
from structgen.grammar import ir
from structgen.storage import cached_method

MARK = 0xFF
"""The byte with which a named token begins; UTF-8 never contains it."""

MAX_NAMED = 64
"""The most named tokens of one output type."""


def spelling(number: int) -> bytes:
    """Return the bytes that represent a named token in the automaton."""
    return bytes([MARK, 0x80 + number])


class NamedTokenLeaf(LiteralLeaf):
    """One named token."""

    is_shared = False
    of_grammar = True

    def __init__(self, number: int) -> None:
        super().__init__([spelling(number)])
        self.named = number


class LimitedLeaf(Leaf):
    """A leaf with a token limit for its text, counted from the token in which it begins.

    A state is a state of the leaf, the number of further tokens, and whether a token has begun.
    Where a token ends (`token_end`), the shortest way to the end of the text must have no more
    bytes than tokens left, so that it fits, whichever tokens write it.
    """

    is_shared = False

    def __init__(self, leaf: TextLeaf, q: int, most: int) -> None:
        super().__init__()
        self.inner = leaf
        self.start = self.state((q, most, False))

    def inside(self, q: int) -> tuple[int, int]:
        """Return the inner leaf's state, and how many tokens may follow the current one, or the
        next; -1: not even the next one is allowed."""
        at, left, is_under_way = self._keys[q]
        return at, left if is_under_way else left - 1

    def token_end(self, q: int) -> int:
        """Return the state after a token ends in ``q``; -1 if impossible."""
        at, left, is_under_way = self._keys[q]
        if not is_under_way:
            return q
        shortest = self.inner.shortest(at)
        is_near = shortest is not None and len(shortest[0]) <= left > 0
        return self.state((at, left, False)) if is_near else -1

    def _edges(self, key: Any) -> Mapping[int, Any]:
        at, left, is_under_way = key
        left -= not is_under_way
        row = self.inner.row(at) if left >= 0 else {}
        return {byte: (to, left, True) for byte, to in row.items()}

    def step(self, q: int, byte: int) -> int:
        """See `Leaf.step`: follows one byte without computing the others."""
        at, left = self.inside(q)
        to = self.inner.step(at, byte) if left >= 0 else -1
        return self.state((to, left, True)) if to >= 0 else -1

    def continues(self, q: int) -> bool:
        """See `Leaf.continues`."""
        at, left = self.inside(q)
        return left >= 0 and self.inner.continues(at)

    def _label(self, key: Any) -> int:
        return self.inner.label(key[0])

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        return self.inner.shortest(self._keys[q][0], wanted)


class SamplingFrame(Frame):
    """The frame below a text whose tokens have their own sampling settings."""

    nests = False
    limit = UNLIMITED

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        return POP

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text:
        """See `frames.Frame`."""
        return b""


def within_limits(ways: tuple[Alternative, ...], given: ir.Embedded) -> tuple[Alternative, ...]:
    """Return the alternatives with which a text with the limits of an embedded terminal may start.

    Raises:
        GrammarError: no text has that few tokens, with any vocabulary.
    """
    if given.max_tokens is not None:
        (way,) = ways
        assert isinstance(way.leaf, TextLeaf), "only patterns have such a limit"
        shortest = way.leaf.shortest(way.q)
        size = 0 if shortest is None else len(shortest[0])
        if size > given.max_tokens:
            raise GrammarError(
                f"max_tokens={given.max_tokens} is too small: the shortest nonempty text has "
                f"{size} bytes, and a token may be one byte. Write at least max_tokens={size}."
            )
        leaf = LimitedLeaf(way.leaf, way.q, given.max_tokens)
        ways = (Alternative(leaf, leaf.start, way.frames),)
    if given.temperature is not None:
        frame = SamplingFrame(given.temperature)
        ways = tuple([Alternative(w.leaf, w.q, (*w.frames, (frame, 0))) for w in ways])
    return ways


class EmbeddedTerminal:
    """A terminal that is not a pattern.

    Args:
        name: its name in messages.
        ways: the alternatives with which its text may start; never empty.
        alphabet: the minterms of the host's terminals.

    Attributes:
        first: the minterms that its texts may begin with, as a mask.
    """

    def __init__(self, name: str, ways: tuple[Alternative, ...], alphabet: Alphabet) -> None:
        self.name = name
        self.ways = _with_leaves(ways)
        self._alphabet = alphabet
        self._machine = Machine(ways)
        self._encoding = Utf8(alphabet)
        self.can_be_empty = self._machine.is_accepting(self._machine.start)
        self._known: dict[tuple[int, int], dict[int, Text]] = {}
        self._texts: dict[int, Text] = {}
        if any(isinstance(way.leaf, NamedTokenLeaf) for way in ways):
            self._texts = {
                alphabet.n_minterms: self._machine.shortest_completion(self._machine.start)
            }
        elif not self.can_be_empty:
            self._texts = self._beginnings(self._machine.start, GROUND, b"")
        self.first = 0
        for minterm in self._texts:
            self.first |= 1 << minterm

    @cached_method
    def firsts(self) -> list[int]:
        """Return, for each of `ways`, the minterms that its texts may begin with."""
        if len(self.ways) == 1:
            return [self.first]
        return [EmbeddedTerminal(self.name, (w,), self._alphabet).first for w in self.ways]

    def shortest(self, minterms: int) -> Text:
        """Return the shortest known text that begins with one of ``minterms``; one exists."""
        texts = [text for minterm, text in self._texts.items() if minterms >> minterm & 1]
        return min(texts, key=lambda text: (len(text), text))

    def _beginnings(self, state: int, node: int, so_far: bytes) -> dict[int, Text]:
        """Map each minterm of a first character to the shortest rest of the text after it."""
        found = self._known.get((state, node))
        if found is None:
            found = self._known[state, node] = {}
            spelt = self._encoding.row(node)
            for byte in sorted(self._machine.next_bytes(state)):
                deeper = spelt.get(byte)
                if deeper is None:
                    continue
                to = self._machine.step(state, byte)
                if deeper < 0:
                    ways = {~deeper: self._completion(to, so_far + bytes([byte]))}
                else:
                    ways = self._beginnings(to, deeper, so_far + bytes([byte]))
                for minterm, rest in ways.items():
                    whole = put(bytes([byte]), rest)
                    if minterm not in found or len(whole) < len(found[minterm]):
                        found[minterm] = whole
        return found

    def _completion(self, state: int, so_far: bytes) -> Text:
        tape = TextHistory().after(so_far)
        if self._machine.is_pending(state):
            state = self._machine.resolve(state, tape)
        try:
            return self._machine.shortest_completion(state)
        except NeedsText:
            return self._machine.shortest_completion(state, tape)


class GuardedLeaf(Leaf):
    """A leaf whose first character must settle the condition of the terminal before it.

    Args:
        leaf: the leaf.
        q: its state at the start.
        settling: the minterms that settle the condition, as a mask.
        encoding: the bytes of their characters.
    """

    is_shared = False

    def __init__(self, leaf: Leaf, q: int, settling: int, encoding: Utf8) -> None:
        super().__init__()
        self._leaf = leaf
        self._encoding = encoding
        self._settling = settling
        self.start = self.state((q, GROUND))

    def _edges(self, key: Any) -> Mapping[int, Any]:
        if isinstance(key, int):
            return self._leaf.row(key)
        q, node = key
        edges: dict[int, Any] = {}
        spelt = self._encoding.row(node)
        for byte, to in self._leaf.row(q).items():
            deeper = spelt.get(byte)
            if deeper is None:
                continue
            if deeper < 0:
                if self._settling >> ~deeper & 1:
                    edges[byte] = to
            elif self._is_alive(to, deeper):
                edges[byte] = (to, deeper)
        return edges

    @cached_method
    def _is_alive(self, q: int, node: int) -> bool:
        """Return whether a partly written character can still settle the condition."""
        spelt = self._encoding.row(node)
        return any(
            self._settling >> ~deeper & 1 if deeper < 0 else self._is_alive(to, deeper)
            for byte, to in self._leaf.row(q).items()
            if (deeper := spelt.get(byte)) is not None
        )

    def _label(self, key: Any) -> int:
        return self._leaf.label(key) if isinstance(key, int) else -1

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        key = self._keys[q]
        if isinstance(key, int):
            return self._leaf.shortest(key, wanted)
        best: tuple[Text, int] | None = None
        for byte, to in sorted(self.row(q).items()):
            rest = self.shortest(to, wanted)
            if rest is not None and (best is None or len(rest[0]) + 1 < len(best[0])):
                best = put(bytes([byte]), rest[0]), rest[1]
        return best


def _with_leaves(ways: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    """Return equivalent ways, all with a leaf: ways without one are followed to the next leaf."""
    out: list[Alternative] = []
    for way in ways:
        if way.leaf is not None or not way.frames:
            out.append(way)
            continue
        (frame, at), *rest = way.frames
        below = tuple(rest)
        further = tuple(Alternative(w.leaf, w.q, w.frames + below) for w in frame.resume(at, 0))
        out += _with_leaves(further)
    return tuple(out)
