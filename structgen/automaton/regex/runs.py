"""Runs of regular expressions: many characters of one set, read in one step.

``.{0,500}`` is another expression after every character, and all of them are told at once: how many
characters of which set may be read, and what is left after so many. It knows derivatives, and
nothing of tokens or bytes.
"""

from __future__ import annotations

from structgen.grammar import ir

from .alphabet import Alphabet
from .derivatives import Derivatives
from .expressions import ALT, AND, CAT, EPSILON, NOT, REP, SET, START

MAX_RUN = 1 << 16
"""Longest run told of where its states have to be checked one by one; no token is longer."""


class Runs(Derivatives):
    """`Derivatives` with what is known of their runs."""

    def __init__(self, regex: ir.Regex, alphabet: Alphabet | None) -> None:
        super().__init__(regex, alphabet)
        self._runs: dict[int, tuple[int, int]] = {}
        self._found_runs: dict[int, tuple[int, int, int]] = {}
        self._settled: dict[int, int] = {}

    def run(self, state: int) -> tuple[int, int]:
        """A set of minterms of which many can be read in a row, and how many; -1 for any number.

        From ``state``, after ``j`` characters of the set (``j`` at most the number), the automaton
        is in `after_run` of ``state`` and ``j``; all these states have the same run, shortened,
        and are alive. An empty set says that nothing is known.
        """
        found = self._runs.get(state)
        if found is None:
            node = self.started(state)
            chars, most, settled = (0, 0, 0) if node < 0 else self._find_run(node)
            if chars and most >= 0 and self.expressions.flags[node] & 0b11000:
                most = self._alive_for(node, min(most, MAX_RUN))
            found = self._runs[state] = (chars, most) if chars and most else (0, 0)
            self._settled[state] = max(settled, 1) if state < 0 else settled
        return found

    def settled(self, state: int) -> int:
        """After how many characters an endless run of ``state`` stays where it is."""
        self.run(state)
        return self._settled[state]

    def after_run(self, state: int, count: int) -> int:
        """The state after ``count`` characters of the set of ``run(state)``; language-equal."""
        if not count:
            return state
        chars, most = self.run(state)
        if most < 0:
            count = min(count, self._settled[state])
        return self._advance(self.started(state), count, chars) if count else state

    def phases(self, state: int) -> tuple[int, ...] | None:
        """See `symbols.SymbolAutomaton`: told of a repeat of one set, whatever follows it."""
        expressions = self.expressions
        node = self.started(state)
        if node < 0 or self.label(node) != self.label(state):
            return None
        repeat = expressions.nodes[node]
        if repeat[0] == CAT:
            repeat = expressions.nodes[repeat[1]]
        if repeat[0] != REP or expressions.flags[node] & 0b01000:
            return None
        _, body, least, most = repeat
        chars = self.run(state)[0]
        if not chars or expressions.nodes[body] != (SET, chars):
            return None  # what follows may begin like it
        bounds = (0, least, most) if most > least else (0, least)
        return bounds if least else (0, *bounds[2:])

    def started(self, state: int) -> int:
        """The expression still to be read in ``state``; -1 where no run may be told from it."""
        if self._looks is not None:
            node = state if state >= 0 else self._body
            # Every character read can change a lookbehind further on.
            return -1 if self._looks.are_in(node) else node
        return state if state >= 0 else self._without_its_start(self._body)

    def _without_its_start(self, node: int) -> int:
        """What is left to read at the start of the text, past ``^``; -1 if that is unclear."""
        expressions = self.expressions
        if self._without_start(node) == node:
            return node
        kind, *args = expressions.nodes[node]
        if kind == CAT and expressions.nodes[args[0]] == (START,):
            return args[1] if self._without_start(args[1]) == args[1] else -1
        if kind in (ALT, AND):
            parts = [self._without_its_start(part) for part in args]
            if min(parts) >= 0:
                return expressions.alt(parts) if kind == ALT else expressions.all_of(parts)
        return -1

    def only_run(self, state: int) -> tuple[int, int, int] | None:
        """Where nothing may be read but one repeat of a set: its minterms, and its bounds (-1:
        none).

        None where there may be more.
        """
        node = self.started(state)
        if node < 0:
            return None
        repeat = self.expressions.nodes[node]
        if repeat[0] != REP or (node != state and self.label(node) != self.label(state)):
            return None
        body = self.expressions.nodes[repeat[1]]
        return (body[1], repeat[2], repeat[3]) if body[0] == SET else None

    def without_most(self, state: int) -> int:
        """For a state of `only_run`: the same repeat, any number of times."""
        _, body, least, _ = self.expressions.nodes[self.started(state)]
        return self.expressions.repeat(body, least, -1)

    def _find_run(self, node: int) -> tuple[int, int, int]:
        """The run of an expression: its set, its length, and where an endless one settles."""
        found = self._found_runs.get(node)
        if found is None:
            found = self._found_runs[node] = self._look_for_run(node)
        return found

    def _look_for_run(self, node: int) -> tuple[int, int, int]:
        expressions = self.expressions
        kind, *args = expressions.nodes[node]
        if kind == REP and expressions.nodes[args[0]][0] == SET:
            return expressions.nodes[args[0]][1], args[2], args[1]
        if kind == CAT:
            chars, most, settled = self._find_run(args[0])
            chars = self._run_before(chars, args[1])
            if chars:
                return chars, most, settled
        elif kind == ALT and (body := self._before_last(args)) is not None:
            least, last = expressions.nodes[body], expressions.nodes[args[1]]
            chars = expressions.nodes[least[1]][1] & expressions.nodes[last[2]][1]
            if chars:
                return chars, least[3], 0
        if kind in (AND, ALT):
            chars, most, settled = self.alphabet.everything, -1, 0
            for part in args:
                more, count, later = self._find_run(part)
                chars &= more
                settled = max(settled, later)
                most = count if most < 0 else min(most, count) if count >= 0 else most
                if not chars:
                    break
            if chars:
                return chars, most, settled
        elif kind == NOT:
            chars, most, settled = self._find_run(args[0])
            if chars:
                return chars, most, settled
        same = 0
        for mask, to in self.derive(node):
            if to == node:
                same |= mask
        return same, -1, 0

    def _before_last(self, parts: list[int]) -> int | None:
        """The repeat of ``(?:a{0,n}b)?`` for two sets of which the first may also be the last.

        Reading what is in both leaves ``(?:a{0,n-1}b)?``, as in the labels of host names.
        """
        expressions = self.expressions
        if len(parts) != 2 or parts[0] != EPSILON:
            return None
        kind, *args = expressions.nodes[parts[1]]
        if kind != CAT or expressions.nodes[args[1]][0] != SET:
            return None
        first = expressions.nodes[args[0]]
        if first[0] != REP or first[2] or first[3] < 0 or expressions.nodes[first[1]][0] != SET:
            return None
        return args[0]

    def _run_before(self, chars: int, rest: int) -> int:
        """Those of ``chars``, a run's, that cannot begin ``rest``, which follows it."""
        if chars:
            for mask, _ in self.derive(rest):
                chars &= ~mask
        return chars

    def _advance(self, node: int, count: int, chars: int) -> int:
        expressions = self.expressions
        kind, *args = expressions.nodes[node]
        if kind == REP and expressions.nodes[args[0]][0] == SET:
            body, least, most = args
            return expressions.repeat(
                body, max(least - count, 0), most - count if most >= 0 else most
            )
        if kind == CAT:
            # As `_look_for_run` decided: the run is the first part's, or the whole stays.
            if self._run_before(self._find_run(args[0])[0], args[1]):
                return expressions.cat(self._advance(args[0], count, chars), args[1])
        elif kind == AND:
            return expressions.all_of([self._advance(part, count, chars) for part in args])
        elif kind == ALT:
            repeat = self._before_last(args)
            if repeat is not None and not chars & ~self._find_run(node)[0]:
                _, what, _, most = expressions.nodes[repeat]
                last = expressions.nodes[args[1]][2]
                return expressions.alt(
                    (EPSILON, expressions.cat(expressions.repeat(what, 0, most - count), last))
                )
            return expressions.alt([self._advance(part, count, chars) for part in args])
        elif kind == NOT:
            return expressions.complement(self._advance(args[0], count, chars))
        return node

    def _alive_for(self, node: int, most: int) -> int:
        """The largest count up to ``most`` after which the run's states are still alive."""
        chars = self._find_run(node)[0]
        # Mostly all are, or all but as many as what follows the run needs: so from above.
        low, high, step = most, most, 1
        while low and not self._is_alive(self._advance(node, low, chars)):
            high = low - 1
            low, step = max(low - step, 0), 2 * step
        while low < high:
            middle = (low + high + 1) // 2
            if self._is_alive(self._advance(node, middle, chars)):
                low = middle
            else:
                high = middle - 1
        return low
