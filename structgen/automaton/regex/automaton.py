"""Regular expressions as lazy automata over minterms, for leaves.

A state is what is left of the expression to be read, as `derivatives` make it. `RegexAutomaton`
implements the symbol-automaton protocol of `symbols`: ``start``, ``moves``, ``label`` and what else
is asked of states. It never returns one from which no accepting state can be reached. It knows
nothing of bytes: `encoding` spells minterms.
"""

from __future__ import annotations

from structgen.grammar import ir

from .alphabet import Alphabet
from .expressions import ALT, AND, CAT, NONE, NOT, REP, SET
from .lookarounds import Moves
from .runs import Runs


class RegexAutomaton(Runs):
    """The lazy automaton of one regular expression.

    Args:
        regex: the expression.
        alphabet: minterms at least as fine as the expression's character sets; None builds them.

    Raises:
        CompileLimitExceeded: more than `expressions.MAX_NODES` different derivatives were needed.
    """

    def __init__(self, regex: ir.Regex, alphabet: Alphabet | None = None) -> None:
        super().__init__(regex, alphabet)
        self._pruned: dict[int, Moves] = {}
        self._open_parts: dict[int, int | None] = {}
        # Without bounds to be told from none, no state is like another one.
        self.has_expressions = self._is_counting

    @property
    def weight(self) -> int:
        """About how many bytes it takes by now: see `leaf.Leaf.weight`."""
        known = len(self._moves) + len(self._pruned) + len(self._alive) // 4
        return 3000 + 40 * self.expressions.size + 200 * known

    # -- reading ----------------------------------------------------------------------------

    def moves(self, state: int) -> Moves:
        """Where each minterm leads; minterms that lead nowhere are left out."""
        moves = self._pruned.get(state)
        if moves is None:
            raw = self._raw(state)
            alive = [move for move in raw if self._is_alive(move[1])]
            # One tuple for both, as nearly always: the collector looks at each.
            moves = self._pruned[state] = raw if len(alive) == len(raw) else tuple(alive)
        return moves

    def follow(self, state: int, minterm: int) -> int | None:
        """The state after one minterm, or None where it leads nowhere."""
        for mask, to in self.moves(state):
            if mask >> minterm & 1:
                return to
        return None

    def read(self, state: int, text: bytes) -> int | None:
        """The state after some characters of ASCII, or None where they lead nowhere."""
        minterms = self.alphabet.ascii_minterms()
        for i, byte in enumerate(text):
            node = state if state >= 0 else self._body
            if self._looks is None and not self.expressions.flags[node] & 0b01000:
                # No state on the way need be known to be alive: the last one tells.
                end = self._read_node(node, text[i:], minterms)
                return end if self._is_alive(end) else None
            minterm = minterms[byte]
            for mask, to in self.moves(state):
                if mask >> minterm & 1:
                    state = to
                    break
            else:
                return None
        return state

    def _read_node(self, node: int, text: bytes, minterms: tuple[int, ...]) -> int:
        """The derivative of an expression without anchors by some characters of ASCII.

        What repeats a set is read at once, and conjunctions part by part: their states on the way
        are many and nobody asks for them.
        """
        expressions = self.expressions
        nodes, known = expressions.nodes, self._moves
        i, end = 0, len(text)
        while i < end:
            kind, *args = nodes[node]
            if kind == REP and nodes[args[0]][0] == SET:
                body, least, most = args
                chars, first = nodes[body][1], i
                last = end if most < 0 else min(end, i + most)
                while i < last and chars >> minterms[text[i]] & 1:
                    i += 1
                if i == first:
                    return NONE
                count = i - first
                fewer = most - count if most >= 0 else most
                node = expressions.repeat(body, max(least - count, 0), fewer)
                continue
            if kind == AND:
                rest = text[i:]
                return expressions.all_of([self._read_node(part, rest, minterms) for part in args])
            if kind == NOT:
                return expressions.complement(self._read_node(args[0], text[i:], minterms))
            minterm = minterms[text[i]]
            moves = known.get(node)
            for mask, to in self.derive(node) if moves is None else moves:
                if mask >> minterm & 1:
                    node = to
                    break
            else:
                return NONE
            i += 1
        return node

    def accepts(self, text: str) -> bool:
        """Whether the whole of ``text`` matches."""
        state = self.start
        for char in text:
            minterm = self.alphabet.minterm(ord(char))
            for mask, to in self.moves(state):
                if minterm >= 0 and mask >> minterm & 1:
                    state = to
                    break
            else:
                return False
        return self.label(state) >= 0

    def is_empty(self) -> bool:
        """Whether no text at all matches."""
        return self.label(self.start) < 0 and not self.moves(self.start)

    # -- the rest of the protocol -----------------------------------------------------------

    def free(self, state: int) -> None:
        """See `symbols.SymbolAutomaton`: no state of an expression has a list of special texts."""

    def unnamed(self, state: int) -> None:
        """See `symbols.SymbolAutomaton`."""

    def beside_names(self, state: int) -> None:
        """See `symbols.SymbolAutomaton`."""

    def towards_names(self, state: int) -> list[tuple[int, int, bool]]:
        """See `symbols.SymbolAutomaton`: there are no names."""
        return []

    def at_least(self, state: int) -> int:
        """See `symbols.SymbolAutomaton`."""
        return self.expressions.least[state if state >= 0 else self._body]

    def is_open(self, state: int) -> bool:
        """See `symbols.SymbolAutomaton`: so it is for patterns that are searched for."""
        return self.open_part(state) is not None

    def open_part(self, state: int) -> int | None:
        """See `symbols.SymbolAutomaton`."""
        found = self._open_parts.get(state, -1)
        if found == -1:
            node = self.started(state)
            found = self._open_parts[state] = self._find_open(node) if node >= 0 else None
        return found

    def _find_open(self, node: int) -> int | None:
        expressions = self.expressions
        todo = [node]
        while todo:
            node = todo.pop()
            kind, *args = expressions.nodes[node]
            if node == expressions.everything or (
                kind == CAT and args[0] == expressions.everything
            ):
                return node if self._is_alive(node) else None
            if kind == ALT:
                todo += args
            elif kind == AND:
                # What is searched for may come as late as one likes, so also once the text is
                # long enough; and less is missing of that after any text than before.
                rest = [part for part in args if not self._is_least_length(part)]
                if len(rest) == 1 and (found := self._find_open(rest[0])) is not None:
                    return expressions.all_of([found, *(part for part in args if part != rest[0])])
        return None

    def _is_least_length(self, node: int) -> bool:
        """Whether ``node`` is any text of at least some length."""
        kind, *args = self.expressions.nodes[node]
        return kind == REP and args[0] == self.expressions.any_char and args[2] == -1

    def expression(self, state: int) -> tuple[RegexAutomaton, int]:
        """See `symbols.SymbolAutomaton`."""
        return self, state

    def in_expression(self, state: int) -> int:
        """See `symbols.SymbolAutomaton`."""
        return state

    def special(self, state: int) -> list[tuple[int, int]]:
        """See `symbols.SymbolAutomaton`."""
        return []

    def names(self, state: int) -> None:
        """See `symbols.SymbolAutomaton`."""

    def rests(self, state: int, most: int) -> list[tuple[int, str]] | None:
        """See `symbols.SymbolAutomaton`."""
        return None

    def special_texts(self, state: int) -> dict[str, int]:
        """See `symbols.SymbolAutomaton`."""
        return {}

    def special_label(self, state: int, number: int) -> int:
        """See `symbols.SymbolAutomaton`."""
        return -1
