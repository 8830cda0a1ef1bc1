r"""Regular expressions as lazy automata over minterms, for leaves.

`SymbolAutomaton` is the interface that leaves use. `RegexAutomaton` implements it: a state is the
rest of the expression (`derivatives`), and no state is a dead end. It knows runs: many characters
of one set, read in one step. `encoding` writes minterms as bytes.

`StructuralHash` gives equal expressions of different automata the same digest, so that they share
results.

`TokenHorizon` drops upper bounds that no token can reach, so that states far from a bound are one,
as in ``\S+(\s+\S+){0,40}`` beside ``maxLength: 500``. Lower bounds stay, so shortest completions do
not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, reduce
from hashlib import blake2b
from operator import or_
from typing import NamedTuple, Protocol

from structgen.automaton.bits import bits
from structgen.automaton.work import WORK
from structgen.grammar import ir
from structgen.storage import cached_method

from .alphabet import NO_ATOM, Alphabet
from .derivatives import Derivatives
from .encoding import GROUND, Utf8
from .expressions import ALT, AND, CAT, EPSILON, NONE, NOT, QUOTE, REP, SET
from .lookarounds import Moves
from .quotes import Interval, Passages

MAX_SPELLING = 12
"""The most bytes of one character: two escaped surrogates."""

_PLAIN = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E))
"""Characters that every encoding writes as one byte."""

_OTHERS = ((0, 0x1F), (0x7F, ir.MAX_CODE_POINT))
"""Characters that may take more than two bytes."""

MAX_RUN = 1 << 16
"""The longest run whose states have to be checked one by one; no token is longer."""


class Names(NamedTuple):
    """Some names of a finite set, all of printable ASCII without quotes and backslashes.

    Attributes:
        edges: for each node of a trie, its ``(byte, child)`` pairs.
        ends: for each node, the name that ends there, or -1.
        below: for each node, the names that end there or below, as a mask.
        node: the start node.
        allowed: the names that may be read, as a mask; -1: all below the node.
    """

    edges: Mapping[int, tuple[tuple[int, int], ...]]
    ends: Sequence[int]
    below: Mapping[int, int]
    node: int
    allowed: int


class Span(NamedTuple):
    """Bounds on the lengths of an expression's texts.

    Attributes:
        short: some text has at most this many characters.
        rest: the number of characters that suffice to end any text that can still end.
        most: the most characters of a text; None for no bound.
        width: the most bytes of the cheapest character at any place.
        widest: the most bytes of any character.
    """

    short: int
    rest: int
    most: int | None
    width: int
    widest: int


class Quoting(NamedTuple):
    """A state inside a quote.

    Attributes:
        passages: the quotes of the document.
        masks: the minterms of each class of its characters.
        read: the text so far.
        state_of: returns the state after another text.
    """

    passages: Passages
    masks: list[int]
    read: Interval
    state_of: Callable[[Interval], int]

    def spelt(self, encoding: Utf8, node: int = GROUND) -> list[bytes | None]:
        """Map each class to the fewest bytes from an encoding node to one of its characters."""
        spelling = encoding.shortest(node)
        return [
            min(
                [spelling[minterm] for minterm in bits(mask) if minterm in spelling],
                key=lambda text: (len(text), text),
                default=None,
            )
            for mask in self.masks
        ]


class SymbolAutomaton(Protocol):
    """A lazy deterministic automaton over the minterms of an alphabet, without dead states.

    Expressions and keys (`json.keys`) implement it. The defaults are right for both.

    Attributes:
        has_expressions: whether `expression` can show that several states have the same texts.
        is_private: whether it holds a document, which must be freed after its last use.
    """

    alphabet: Alphabet
    start: int
    has_expressions: bool
    is_private: bool = False

    @property
    def weight(self) -> int:
        """Its size in bytes, roughly."""

    def moves(self, state: int) -> tuple[tuple[int, int], ...]:
        """Return disjoint ``(minterm mask, next state)`` pairs."""

    def follow(self, state: int, minterm: int) -> int | None:
        """Return the next state after one minterm, or None."""

    def read(self, state: int, text: bytes) -> int | None:
        """Return the next state after ASCII characters, or None."""

    def label(self, state: int) -> int:
        """Return the outcome when the text ends here, or -1."""

    def run(self, state: int) -> tuple[int, int]:
        """Return minterms that can be read many times in a row, and how many times (-1: any
        number).

        After ``j`` of them the automaton is in ``after_run(state, j)``, whose run is the rest of
        this one. After all of them, more may follow. ``(0, 0)`` if unknown.
        """

    def after_run(self, state: int, count: int) -> int:
        """Return the state after ``count`` characters of the run of ``state``."""

    def settled(self, state: int) -> int:
        """After how many characters an endless run of ``state`` stays where it is."""

    def phases(self, state: int) -> tuple[int, ...] | None:
        """Return the counts, ascending from 0, at which the run of ``state`` changes.

        Between two counts, the states differ only in the rest of the run: what else may be read,
        where it leads, and whether the text may end is the same. None if every state may differ.
        """
        return None

    def free(self, state: int) -> int | None:
        """Return a state that differs from ``state`` only in the labels of finitely many texts."""
        return None

    def unnamed(self, state: int) -> int | None:
        """Return the state that differs from ``state`` only in the labels of its special texts, if
        all texts continue and labels depend on more than names.

        None otherwise, or if unknown.
        """
        return None

    def beside_names(self, state: int) -> int | None:
        """Return the state of the texts that expressions decide, besides allowed or barred names;
        it may be a dead state.

        None if there is none, or if the names are not plain bytes.
        """
        return None

    def towards_names(self, state: int) -> list[tuple[int, int, bool]]:
        """Return ``(byte, next state, whether it is alive)`` for each character that continues a
        name, from a state with `beside_names` or a dead one."""
        return []

    def at_least(self, state: int) -> int:
        """Return a lower bound on the characters from ``state`` to an accepted text."""
        return 0

    def quoting(self, state: int) -> Quoting | None:
        """Return the quotes that are the texts of ``state``, if it has no other texts."""
        return None

    def is_open(self, state: int) -> bool:
        """Return whether every text can be read from ``state`` and still become accepted.

        False if this is not obvious.
        """
        return False

    def open_part(self, state: int) -> int | None:
        """Return a state all of whose texts may follow any text from ``state``, if `is_open`."""
        return None

    def expression(self, state: int) -> tuple[RegexAutomaton, int] | None:
        """Return the expression and state that completely describe the texts from ``state``, if
        any."""

    def in_expression(self, state: int) -> int:
        """Return the state that is equivalent to a state of that expression."""

    def special(self, state: int) -> list[tuple[int, int]]:
        """Return ``(code point, next state)`` towards the special texts of `free` or `names`."""
        return []

    def names(self, state: int) -> Names | None:
        """Return all texts, if they are known to be names; labels are their numbers."""
        return None

    def rests(self, state: int, most: int) -> list[tuple[int, str]] | None:
        """Return the rest of each name, with its number, if there are at most ``most``."""
        return None

    def special_texts(self, state: int) -> Mapping[str, int]:
        """Return the special texts, each with its own number."""
        return {}

    def special_label(self, state: int, number: int) -> int:
        """Return `label` after the special text of that number."""
        return -1


class RegexAutomaton(Derivatives, SymbolAutomaton):
    """The lazy automaton of one regular expression.

    Args:
        regex: the expression.
        alphabet: minterms at least as fine as the expression's character sets; None builds them.

    Raises:
        CompileLimitExceeded: more than `expressions.MAX_NODES` derivatives were needed.
    """

    def __init__(self, regex: ir.Regex, alphabet: Alphabet | None = None) -> None:
        super().__init__(regex, alphabet)
        self._runs: dict[int, tuple[int, int]] = {}
        self._found_runs: dict[int, tuple[int, int, int]] = {}
        self._settled: dict[int, int] = {}
        self._pruned: dict[int, Moves] = {}
        self._spans: dict[int, Span | None] = {NONE: None, EPSILON: Span(0, 0, 0, 1, 1)}
        # Without bounds, no state is equivalent to another.
        self.has_expressions = self._is_counting
        self.is_private = bool(self.expressions.quotes)

    # -- runs -------------------------------------------------------------------------------

    def run(self, state: int) -> tuple[int, int]:
        """See `SymbolAutomaton`."""
        found = self._runs.get(state)
        if found is None:
            chars, most, settled = (0, 0, 0) if self.looks_around(state) else self._find_run(state)
            if chars and most >= 0 and self.expressions.flags[state] & 0b11000:
                most = self._alive_for(state, min(most, MAX_RUN))
            found = self._runs[state] = (chars, most) if chars and most else (0, 0)
            self._settled[state] = settled
        return found

    def settled(self, state: int) -> int:
        """See `SymbolAutomaton`."""
        self.run(state)
        return self._settled[state]

    def after_run(self, state: int, count: int) -> int:
        """See `SymbolAutomaton`."""
        if not count:
            return state
        chars, most = self.run(state)
        if most < 0:
            count = min(count, self._settled[state])
        return self._advance(state, count, chars) if count else state

    def phases(self, state: int) -> tuple[int, ...] | None:
        """See `SymbolAutomaton`: known for a repeat of one set, with anything after it."""
        expressions = self.expressions
        repeat = expressions.nodes[state]
        if repeat[0] == CAT:
            repeat = expressions.nodes[repeat[1]]
        if repeat[0] != REP or self.looks_around(state):
            return None
        _, body, least, most = repeat
        chars = self.run(state)[0]
        if not chars or expressions.nodes[body] != (SET, chars):
            return None  # what follows may begin the same way
        bounds = (0, least, most) if most > least else (0, least)
        return bounds if least else (0, *bounds[2:])

    def looks_around(self, state: int) -> bool:
        """Return whether there are anchors or lookarounds. Then no run is known, because each
        character can change a later lookbehind."""
        return self._looks is not None and self._looks.are_in(state)

    def _find_run(self, node: int) -> tuple[int, int, int]:
        """Return an expression's run: its set, its length, and the state in which an endless run
        settles."""
        found = self._found_runs.get(node)
        if found is None:
            found = self._found_runs[node] = self._look_for_run(node)
        return found

    def _look_for_run(self, node: int) -> tuple[int, int, int]:
        expressions = self.expressions
        kind, *args = expressions.nodes[node]
        if kind == QUOTE:
            return 0, 0, 0
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
        """Return the repeat of ``(?:a{0,n}b)?`` for sets where ``a`` may be the last, too.

        A character that is in both sets leaves ``(?:a{0,n-1}b)?``, as in the labels of host names.
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
        """Return the characters of a run that cannot begin ``rest``, which follows it."""
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
        """Return the largest count up to ``most`` after which the run's states are still alive."""
        chars = self._find_run(node)[0]
        # Usually all are alive, or all except as many as the part after the run needs: so search
        # from above.
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

    @property
    def weight(self) -> int:
        """Its size in bytes, roughly: see `leaf.Leaf.weight`."""
        known = len(self._moves) + len(self._pruned) + len(self._alive) // 4
        more = sum([passages.weight for passages in self.expressions.quotes])
        return 3000 + 40 * self.expressions.size + 200 * known + more

    # -- reading ----------------------------------------------------------------------------

    def moves(self, state: int) -> Moves:
        """Return the next state for each minterm, without those that lead nowhere."""
        moves = self._pruned.get(state)
        if moves is None:
            raw = self.derive(state)
            alive = [move for move in raw if self._is_alive(move[1])]
            # Usually one tuple for both, because the garbage collector visits each.
            moves = self._pruned[state] = raw if len(alive) == len(raw) else tuple(alive)
        return moves

    def follow(self, state: int, minterm: int) -> int | None:
        """Return the state after one minterm, or None if it is not allowed."""
        for mask, to in self.moves(state):
            if mask >> minterm & 1:
                return to
        return None

    def read(self, state: int, text: bytes) -> int | None:
        """Return the state after ASCII characters, or None if they are not allowed."""
        minterms = self.alphabet.ascii_minterms()
        for i, byte in enumerate(text):
            if self._looks is None:
                # Intermediate states need no check whether they are alive: the last one decides.
                end = self._read_node(state, text[i:], minterms)
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
        """Return the derivative of an expression without anchors by ASCII characters.

        Repeats of a set are read at once, and conjunctions part by part: the many states between
        are never needed.
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
            if kind == QUOTE:
                which, *read = args
                return self._read_quote(which, Interval(*read), text[i:], minterms)
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

    def _read_quote(
        self, which: int, read: Interval, text: bytes, minterms: tuple[int, ...]
    ) -> int:
        """Like `_read_node`, in a quote: makes no states on the way."""
        passages = self.expressions.quotes[which]
        for byte in text:
            minterm = minterms[byte]
            for code, to in passages.children(read).items():
                if self.classes[which][code] >> minterm & 1:
                    read = to
                    break
            else:
                return NONE
        return self.expressions.quote(which, read)

    def quoting(self, state: int) -> Quoting | None:
        """See `SymbolAutomaton`."""
        kind, *args = self.expressions.nodes[state]
        if kind != QUOTE:
            return None
        which, *read = args
        state_of = partial(self.expressions.quote, which)
        passages = self.expressions.quotes[which]
        return Quoting(passages, self.classes[which], Interval(*read), state_of)

    def accepts(self, text: str) -> bool:
        """Return whether the whole of ``text`` matches."""
        state = self.start
        for char in text:
            minterm = self.alphabet.minterm(ord(char))
            moves = self.derive(state) if minterm >= 0 else ()
            state = next((to for mask, to in moves if mask >> minterm & 1), NONE)
        return self.label(state) >= 0

    def is_empty(self) -> bool:
        """Return whether no text at all matches."""
        return self.label(self.start) < 0 and not self.moves(self.start)

    # -- the rest of the protocol -----------------------------------------------------------

    def at_least(self, state: int) -> int:
        """See `SymbolAutomaton`."""
        return self.expressions.least[state]

    def is_open(self, state: int) -> bool:
        """See `SymbolAutomaton`: true for patterns with search semantics."""
        return self.open_part(state) is not None

    @cached_method
    def open_part(self, state: int) -> int | None:
        """See `SymbolAutomaton`."""
        return None if self.looks_around(state) else self._find_open(state)

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
                # A searched pattern may come at any later place, so also when the text is long
                # enough; and after any text less is missing than before.
                any_count, nodes = (REP, expressions.any_char), expressions.nodes
                rest = [p for p in args if nodes[p][:2] != any_count or nodes[p][3] != -1]
                if len(rest) == 1 and (found := self._find_open(rest[0])) is not None:
                    return expressions.all_of([found, *(part for part in args if part != rest[0])])
        return None

    def span(self, node: int) -> Span | None:
        """Return bounds on the lengths of texts from ``node``; None if not obvious."""
        if node not in self._spans:
            self._spans[node] = self._find_span(node)
        return self._spans[node]

    @cached_property
    def _by_width(self) -> tuple[int, int]:
        """The minterms of one-byte characters, and of those that may take more than two bytes."""
        plain, others = (
            [self.alphabet.minterms_between(*span) for span in spans] for spans in (_PLAIN, _OTHERS)
        )
        return reduce(or_, plain), reduce(or_, others)

    def _find_span(self, node: int) -> Span | None:
        expressions = self.expressions
        kind, *args = expressions.nodes[node]
        if kind == SET:
            plain, others = (args[0] & minterms for minterms in self._by_width)
            quoted = any(args[0] >> self.alphabet.minterm(ord(char)) & 1 for char in '"\\')
            width = 1 if plain else 2 if quoted else MAX_SPELLING
            return Span(1, 1, 1, width, MAX_SPELLING if others else 2 if quoted else 1)
        if kind == REP:
            body = self.span(args[0])
            if body is None:
                return None
            _, least, most = args
            longest = None if most < 0 or body.most is None else most * body.most
            # Perhaps in its first round, with all other required rounds still to come.
            rest = body.rest + body.short * max(0, least - 1)
            return body._replace(short=body.short * least, rest=rest, most=longest)
        if kind == AND:
            return self._span_of_all(args)
        if kind not in (CAT, ALT):
            return None
        spans = [self.span(part) for part in (expressions.sequence(node) if kind == CAT else args)]
        parts = [span for span in spans if span is not None]
        if len(parts) < len(spans):
            return None
        width, widest = max(part.width for part in parts), max(part.widest for part in parts)
        mosts = [part.most for part in parts if part.most is not None]
        is_bounded = len(mosts) == len(parts)
        if kind == ALT:  # some alternative with the same beginning has an end
            rest, short = max(part.rest for part in parts), min(part.short for part in parts)
            return Span(short, rest, max(mosts) if is_bounded else None, width, widest)
        rest = short = 0
        for part in reversed(parts):
            rest = max(rest, part.rest + short)
            short += part.short
        return Span(short, rest, sum(mosts) if is_bounded else None, width, widest)

    def _span_of_all(self, parts: list[int]) -> Span | None:
        """Return the `span` of a conjunction."""
        expressions = self.expressions
        nodes = [expressions.nodes[part] for part in parts]
        lengths = [node for node in nodes if node[0] == REP and node[1] == expressions.any_char]
        others = [p for p, node in zip(parts, nodes, strict=True) if node not in lengths]
        known = [span for part in parts if (span := self.span(part)) is not None]
        most = min((span.most for span in known if span.most is not None), default=None)
        only = self.span(others[0]) if len(others) == 1 else None
        if only is not None and all(
            expressions.least[others[0]] >= least and (longest < 0 or only.short <= longest)
            for _, _, least, longest in lengths
        ):
            # One expression with a maximum length: wherever any text still fits, the one with the
            # fewest characters does.
            return only._replace(most=most)
        if most is None:
            return None
        # No text is longer than the longest text.
        widest = min(span.widest for span in known)
        return Span(most, most, most, widest, widest)

    def expression(self, state: int) -> tuple[RegexAutomaton, int]:
        """See `SymbolAutomaton`."""
        return self, state

    def in_expression(self, state: int) -> int:
        """See `SymbolAutomaton`."""
        return state


_SIZE = 16
"""Bytes of a digest, enough to make collisions practically impossible."""


class StructuralHash:
    """Digests of one automaton's states."""

    def __init__(self, automaton: RegexAutomaton) -> None:
        self._automaton = automaton
        self._known: dict[int, bytes] = {}

    def of(self, state: int) -> bytes | None:
        """Return the digest of ``state``; None with lookarounds or anchors.

        Cost: a microsecond or two for each new part of an expression.
        """
        return None if self._automaton.looks_around(state) else self._of_node(state)

    def _of_node(self, node: int) -> bytes:
        known, nodes = self._known, self._automaton.expressions.nodes
        # Start at the end of a long sequence, to avoid deep recursion.
        chain = [node]
        while chain[-1] not in known and nodes[chain[-1]][0] == CAT:
            chain.append(nodes[chain[-1]][2])
        for part in reversed(chain):
            if part not in known:
                known[part] = self._digest(part)
        return known[node]

    def _digest(self, node: int) -> bytes:
        kind, *args = self._automaton.expressions.nodes[node]
        bounds = b""
        if kind == SET:
            inner = [self._set(args[0])]
        elif kind == QUOTE:
            inner = [self._automaton.expressions.quotes[args[0]].digest]
            bounds = b"%d,%d,%d" % (*args[1:],)
        elif kind == REP:
            inner = [self._of_node(args[0])]
            bounds = b"%d,%d" % (args[1], args[2])
        else:
            inner = [self._of_node(part) for part in args]
            if kind != CAT:
                inner.sort()
        return blake2b(b"%d,%b;" % (kind, bounds) + b"".join(inner), digest_size=_SIZE).digest()

    def _set(self, mask: int) -> bytes:
        """Return the code points of some minterms."""
        spans = sorted(span for minterm in bits(mask) for span in self._spans[minterm])
        WORK.spend(len(spans) >> 4)
        bounds: list[int] = []
        for start, beyond in spans:
            if bounds[-1:] == [start]:
                bounds.pop()
            else:
                bounds.append(start)
            bounds.append(beyond)
        return repr(bounds).encode()

    @cached_property
    def _spans(self) -> list[list[tuple[int, int]]]:
        """The intervals of each minterm: their first code points, and their ends (exclusive)."""
        alphabet = self._automaton.alphabet
        found: list[list[tuple[int, int]]] = [[] for _ in range(alphabet.n_minterms)]
        ends = *alphabet.starts[1:], ir.MAX_CODE_POINT + 1
        for minterm, start, beyond in zip(alphabet.minterms, alphabet.starts, ends, strict=True):
            if minterm != NO_ATOM:
                found[minterm].append((start, beyond))
        return found


_MANY = 4
"""Only bounds of at least this size justify searching the tokens for the most repetitions, which
takes as long as a walk."""


class TokenHorizon:
    """States of one automaton that texts of limited length cannot distinguish.

    Args:
        automaton: the automaton.
        longest: the most characters of a text, a cut one included.
        most_of: for some sets of minterms, returns how often a text can contain a character of the
            first, later one of the second, and so on: how often it can repeat an expression that
            needs all of these. None if unknown and the second argument forbids searching.
    """

    def __init__(
        self,
        automaton: RegexAutomaton,
        longest: int,
        most_of: Callable[[Sequence[int], bool], int | None],
    ) -> None:
        self._automaton = automaton
        self._longest = longest
        self._most_of = most_of
        self._limitless: dict[int, int] = {}
        self._orders: dict[int, int] = {}

    @cached_method
    def alike(self, state: int) -> int:
        """Return a state equivalent to ``state``; often ``state`` itself."""
        return state if self._automaton.looks_around(state) else self._unbounded(state)

    def _without_length(self, node: int, parts: list[int]) -> int:
        """Return an expression in conjunction with ``.{0,n}``, without the latter if ``n`` is far
        away."""
        expressions = self._automaton.expressions
        rest: list[int] = []
        most = -1
        for part in parts:
            if expressions.nodes[part][:3] == (REP, expressions.any_char, 0):
                most = expressions.nodes[part][3]
            else:
                rest.append(part)
        if len(rest) != 1 or len(parts) != 2:
            return node
        # After any text, an end is at most this many bytes away, so a shortest text has no more
        # characters.
        span = self._automaton.span(rest[0])
        if span is None or most < self._longest + span.rest * span.width:
            return node
        return self._unbounded(rest[0])

    def _unbounded(self, node: int) -> int:
        """Return an expression without the upper bounds that no text can reach."""
        found = self._limitless.get(node)
        if found is None:
            found = self._limitless[node] = self._make_unbounded(node)
        return found

    def _make_unbounded(self, node: int) -> int:
        automaton = self._automaton
        *first, last = automaton.expressions.sequence(node)
        if first:
            out = self._unbounded(last)
            for part in reversed(first):
                out = automaton.expressions.cat(self._unbounded(part), out)
            return out
        kind, *args = automaton.expressions.nodes[node]
        if kind == ALT:
            return automaton.expressions.alt([self._unbounded(part) for part in args])
        if kind == AND:
            return self._without_length(node, args)
        if kind == REP:
            body, least, most = args
            if most > least and most > self._times(body, most):
                most = -1
            return automaton.expressions.repeat(self._unbounded(body), least, most)
        return node

    def _times(self, body: int, most: int) -> int:
        """Return how often a text can contain all of ``body`` at most; ``most`` or more if this is
        not worth computing."""
        least = self._automaton.expressions.least[body]
        times = self._longest // max(least, 1)
        if times < most:
            return times
        found = self._orders.get(body)
        if found is None:
            needed = self._needed(body)
            known = self._most_of(needed, most >= _MANY) if len(needed) > 1 else times
            if known is None:
                return times
            found = self._orders[body] = known
        return min(times, found)

    def _needed(self, node: int) -> list[int]:
        """Return sets of minterms: every text of ``node`` contains a character of each, in this
        order."""
        kind, *args = self._automaton.expressions.nodes[node]
        if kind == SET:
            return [args[0]]
        if kind == CAT:
            return [
                mask
                for part in self._automaton.expressions.sequence(node)
                for mask in self._needed(part)
            ]
        if kind == REP and args[1]:
            return self._needed(args[0])
        return []
