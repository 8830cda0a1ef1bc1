"""JSON objects: the frame of one open object.

An `ObjectPlan` merges the object assertions of several schema nodes: which names exist, which
conjunction each member's value is owed to, what is required, how many members there may be, which
members must exist. Its state says which members have been written as far as that matters; from it
follow the keys that may come next (a `KeyLeaf` menu) and whether ``}`` may.

Most objects need a bit mask of names and nothing else. Counted members and members that must exist
(`Exists`) make a plan *involved*: every way on is then checked for a way to close the object.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..errors import CompileLimitExceeded
from ..grammar import ir
from ..grammar.schema_graph import FALSE, TRUE, Exists
from . import evaluate
from .keys import CLOSE, KeyLeaf, KeySymbols
from .machine import POP, Alternative
from .presence import Presence, names_of

if TYPE_CHECKING:
    from .values import JsonLanguage

MAX_SEARCH = 50_000
"""Most states a search for the shortest way to close one object may visit."""

MAX_PATTERNS_COMBINED = 6
"""Most patterns whose combinations are tried to find a key for a member that is owed."""

State = tuple[int, int, int, tuple[str, ...], int]
"""(mask of names still allowed, members counted as far as that matters, mask of the required
existences met, unnamed keys already written where they must be told apart, mask of the names
written that presence formulas speak of)."""

Members = tuple[bytes, ...]


class ObjectPlan:
    """The frame of an object owed to the object assertions of several nodes at once.

    Machine states are ``2 * i`` while punctuation and a key are written, ``2 * i + 1`` during the
    member's value, for the i-th interned `State`.
    """

    def __init__(self, language: JsonLanguage, nodes: tuple[int, ...]) -> None:
        self._language = language
        self._nodes = [language.nodes[n] for n in nodes]
        names: dict[str, None] = {}
        required: dict[str, None] = {}
        for node in self._nodes:
            names.update(dict.fromkeys(node.properties))
            required.update(dict.fromkeys(node.required))
        names.update(required)
        formulas = [formula for node in self._nodes for formula in node.presence]
        for formula in formulas:
            names.update(dict.fromkeys(names_of(formula)))
        self.names = list(names)
        index = {name: i for i, name in enumerate(self.names)}
        self._presence = Presence(formulas, index) if formulas else None
        self._required = 0
        for name in required:
            self._required |= 1 << index[name]
        self._min = max((n.min_properties for n in self._nodes), default=0)
        limits = [n.max_properties for n in self._nodes if n.max_properties is not None]
        self._max: int | None = min(limits) if limits else None
        self._counts = self._max is not None or self._min > len(required)
        self._exists: list[Exists] = list(
            dict.fromkeys(
                [e for n in self._nodes for e in n.exists]
                + [
                    Exists(language.string_language(n.bad_name), TRUE)
                    for n in self._nodes
                    if n.bad_name != TRUE
                ]
            )
        )
        self._all_met = (1 << len(self._exists)) - 1
        self._involved = self._counts or bool(self._exists)
        self._patterns = [p for n in self._nodes for p in n.pattern_properties]
        self._in_order = language.options.property_order == "schema"
        self._conjunctions: list[int] = [self._named(name) for name in self.names]
        self._meets: list[int] = [self._met_by(name) for name in self.names]
        self._classes: dict[int, int] = {}
        self._possible: int | None = None
        self._states: list[State] = []
        self._state_ids: dict[State, int] = {}
        self._leaves: dict[State | None, KeyLeaf] = {}
        self._closings: dict[tuple[int, State], Members | None] = {}
        self._some_key: dict[tuple[int, tuple[str, ...], tuple[int, ...]], str | None] = {}

    # -- names and their values -------------------------------------------------------------

    def _named(self, name: str) -> int:
        """The conjunction that the value of ``name`` is owed to."""
        owed: list[int] = []
        for node in self._nodes:
            found = False
            if name in node.properties:
                owed.append(node.properties[name])
                found = True
            for regex, child in node.pattern_properties:
                if evaluate.matches(regex, name):
                    owed.append(child)
                    found = True
            if not found:
                owed.append(node.additional)
            if node.property_names != TRUE and not evaluate.holds(
                self._language.nodes, node.property_names, name
            ):
                return self._language.conjunction([FALSE])
        return self._language.conjunction(owed)

    def _met_by(self, name: str) -> int:
        """Mask of the existences that a member called ``name`` may meet."""
        mask = 0
        for i, some in enumerate(self._exists):
            if evaluate.matches(some.keys, name):
                mask |= 1 << i
        return mask

    def _label_of(self, matched: int) -> int:
        """The label of the unnamed keys that match these patterns (and existences)."""
        found = self._classes.get(matched)
        if found is None:
            owed: list[int] = []
            bit = 0
            for node in self._nodes:
                hit = False
                for _, child in node.pattern_properties:
                    if matched >> bit & 1:
                        owed.append(child)
                        hit = True
                    bit += 1
                if not hit:
                    owed.append(node.additional)
            found = self._classes[matched] = len(self._conjunctions)
            self._conjunctions.append(self._language.conjunction(owed))
            self._meets.append(matched >> len(self._patterns))
        return found

    def _class_of(self, matched: int) -> int:
        """Class of an unnamed key, counted from 0; -1 when no value would do."""
        label = self._label_of(matched)
        possible = self._language.is_possible(self._conjunctions[label])
        return label - len(self.names) if possible else -1

    def _has_others(self) -> bool:
        """Whether unnamed keys may occur, as far as can be told cheaply."""
        return bool(self._patterns or self._exists) or self._class_of(0) >= 0

    @property
    def _tells_keys_apart(self) -> bool:
        """Whether unnamed keys must be distinct: a repeated one would count, or meet, nothing."""
        return bool(self._exists) or self._min > self._required.bit_count()

    def _possible_names(self) -> int:
        """Mask of the names whose value can be written."""
        if self._possible is None:
            mask = 0
            for i in range(len(self.names)):
                if self._language.is_possible(self._conjunctions[i]):
                    mask |= 1 << i
            self._possible = mask
        return self._possible

    # -- states -----------------------------------------------------------------------------

    def _state(self, state: State) -> int:
        found = self._state_ids.get(state)
        if found is None:
            found = self._state_ids[state] = len(self._states)
            self._states.append(state)
        return found

    def _after(self, state: State, label: int, met: int, name: str | None) -> State:
        """The state once the member with key ``label`` is complete."""
        left, count, already, keys, written = state
        if label < len(self.names):
            bit = 1 << label
            left &= ~((bit << 1) - 1) if self._in_order else ~bit
            if self._presence is not None:
                written |= bit & self._presence.names
        else:
            if self._in_order:
                left = 0
            if name is not None and self._tells_keys_apart:
                keys = tuple(sorted({*keys, name}))
        if self._counts:
            most = max(self._min, self._max or 0)
            count = min(count + 1, most)
        return left, count, already | met, keys, written

    def _ways(self, state: State, label: int, name: str | None) -> Iterator[tuple[int, State]]:
        """For a member with key ``label``: the conjunction its value owes, and the state after."""
        base = self._conjunctions[label]
        open_now = self._meets[label] & ~state[2] if self._exists else 0
        if not open_now:
            yield base, self._after(state, label, 0, name)
            return
        free = 0
        guessed: list[int] = []
        for i, some in enumerate(self._exists):
            if open_now >> i & 1:
                if some.obligation == TRUE:
                    free |= 1 << i
                else:
                    guessed.append(i)
        for size in range(len(guessed), -1, -1):
            for chosen in itertools.combinations(guessed, size):
                extra = [self._exists[i].obligation for i in chosen]
                conjunction = self._language.conjunction_with(base, extra) if extra else base
                met = free
                for i in chosen:
                    met |= 1 << i
                yield conjunction, self._after(state, label, met, name)

    def _open_ways(self, state: State, label: int, name: str | None) -> list[tuple[int, State]]:
        """The ways for such a member that do not lead into a dead end."""
        return [
            (conjunction, after)
            for conjunction, after in self._ways(state, label, name)
            if self._can_be_right(after)
            and (
                not self._involved
                or (
                    self._language.is_possible(conjunction)
                    and self._fits(after)
                    and self._closing(after) is not None
                )
            )
        ]

    def _can_be_right(self, state: State) -> bool:
        """Whether the presence formulas can still be made to hold."""
        if self._presence is None:
            return True
        missing = state[0] & self._required
        return self._presence.complete(state[4] | missing, state[0]) is not None

    def _is_right(self, state: State) -> bool:
        """Whether the presence formulas hold as it is."""
        return self._presence is None or self._presence.holds(state[4])

    def _fits(self, state: State) -> bool:
        missing = (state[0] & self._required).bit_count()
        return self._max is None or state[1] + missing <= self._max

    # -- keys -------------------------------------------------------------------------------

    def _leaf(self, state: State) -> KeyLeaf:
        """The keys leaf: one for a simple plan, one a state for an involved one."""
        key = state if self._involved else None
        leaf = self._leaves.get(key)
        if leaf is None:
            must_match = [
                self._language.string_language(node.property_names)
                for node in self._nodes
                if node.property_names != TRUE
            ]
            patterns = [regex for regex, _ in self._patterns] + [e.keys for e in self._exists]
            classify: Callable[[int], int] = self._class_of
            if self._involved:
                classify = _Classifier(self, state)
            names = self.names + [k for k in state[3] if k not in self.names]
            symbols = KeySymbols(names, patterns, must_match, classify, len(self.names))
            language = self._language
            leaf = self._leaves[key] = KeyLeaf(symbols, language.space, language.options.named)
        return leaf

    def class_in(self, state: State, matched: int) -> int:
        """As `_class_of`, for an involved plan: -1 also where the object could not be closed."""
        found = self._class_of(matched)
        if found >= 0 and not self._open_ways(state, len(self.names) + found, None):
            return -1
        return found

    def _menu(self, state: State) -> tuple[int | None, bool]:
        """The keys that may come next, as a menu of the key symbols, and whether ``}`` may."""
        left, count, met, _, _ = state
        missing = left & self._required
        may_close = (
            not missing and count >= self._min and met == self._all_met and self._is_right(state)
        )
        allowed = left
        others = not self._in_order or (not missing and self._is_right(state))
        if self._max is not None and count + missing.bit_count() >= self._max:
            allowed, others = missing, False
        if self._in_order and missing:
            # Nothing beyond the first required name may come before it.
            first = missing & -missing
            allowed &= (first << 1) - 1
        if self._involved or self._presence is not None:
            rest = allowed
            while rest:
                bit = rest & -rest
                rest ^= bit
                if not self._open_ways(state, bit.bit_length() - 1, None):
                    allowed ^= bit
        others = others and self._has_others()
        if not allowed and not others:
            return None, may_close
        return self._leaf(state).menu(allowed, others), may_close

    # -- the frame --------------------------------------------------------------------------

    def children(self) -> list[int]:
        """The conjunctions that named members, and members no pattern matches, are owed to."""
        self._class_of(0)
        out = list(self._conjunctions)
        start = self._initial()
        for label in range(len(out)):
            out += [conjunction for conjunction, _ in self._ways(start, label, None)]
        return out

    def required_children(self) -> list[int]:
        """The conjunctions that every such object has a member for."""
        return [c for i, c in enumerate(self._conjunctions) if self._required >> i & 1]

    def _initial(self) -> State:
        return self._possible_names(), 0, 0, (), 0

    def is_possible(self) -> bool:
        """Whether any object satisfies the nodes."""
        if not self._required and not self._involved and self._presence is None:
            return True
        return self.shortest_text() is not None

    def open(self) -> Alternative:
        """How such an object starts."""
        state = self._initial()
        leaf = self._leaf(state)
        return Alternative(leaf, leaf.open(*self._menu(state)), ((self, 2 * self._state(state)),))

    def records(self, at: int, outcome: int) -> bool:
        """Whether `resume` needs the text of the key that has just been written."""
        return not at & 1 and outcome > len(self.names) and self._tells_keys_apart

    def resume(self, at: int, outcome: int, text: bytes | None = None) -> tuple[Alternative, ...]:
        """What may follow; see `machine.Frame`."""
        state = self._states[at >> 1]
        if at & 1:
            menu, may_close = self._menu(state)
            leaf = self._leaf(state)
            return (Alternative(leaf, leaf.after_value(menu, may_close), ((self, at - 1),)),)
        if outcome == CLOSE:
            return POP
        name = None if text is None else json.loads(text)
        return tuple(
            Alternative(way.leaf, way.q, (*way.frames, (self, 2 * self._state(after) + 1)))
            for conjunction, after in self._open_ways(state, outcome - 1, name)
            for way in self._language.alternatives(conjunction)
        )

    # -- completion -------------------------------------------------------------------------

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> bytes | None:
        """The fewest bytes that close the object; see `machine.Frame`."""
        state = self._states[at >> 1]
        if at & 1:
            return self._close(self._closing(state), False)
        if outcome == CLOSE:
            return b""
        name = None if text is None else json.loads(text)
        best: bytes | None = None
        for conjunction, after in self._ways(state, outcome - 1, name):
            value = self._language.shortest(conjunction)
            if value is None or not self._fits(after):
                continue
            rest = self._close(self._closing(after), False)
            if rest is not None and (best is None or len(value + rest) < len(best)):
                best = value + rest
        return best

    def shortest_text(self) -> bytes | None:
        """The shortest whole object, or None when there is none (or none known yet)."""
        everything = (1 << len(self.names)) - 1
        start: State = (everything, 0, 0, (), 0)
        if not self._fits(start):
            return None
        rest = self._close(self._closing(start), True)
        return None if rest is None else b"{" + self._language.least_space + rest

    def _close(self, members: Members | None, first: bool) -> bytes | None:
        if members is None:
            return None
        space = self._language.least_space
        out = (space + b"," + space).join(members)
        if members and not first:
            out = space + b"," + space + out
        if members or not first:
            out += space
        return out + b"}"

    def _closing(self, state: State) -> Members | None:
        """The cheapest members that are still owed after ``state``, or None if that is hopeless."""
        key = (0, state)
        found = self._closings.get(key, False)
        if found is False:
            if not self._involved:
                found = self._required_members(state)
            else:
                memo: dict[tuple[int, State], Members | None] = {}
                found = self._search(0, state, memo)
            if not self._language.is_solving:
                self._closings[key] = found
        return found  # type: ignore[return-value]

    def _required_members(self, state: State) -> Members | None:
        rest = state[0] & self._required
        if self._presence is not None:
            extra = self._presence.complete(state[4] | rest, self._writable(state[0]))
            if extra is None:
                return None
            rest |= extra
        out: list[bytes] = []
        while rest:
            index = (rest & -rest).bit_length() - 1
            rest &= rest - 1
            value = self._language.shortest(self._conjunctions[index])
            if value is None:
                return None
            out.append(self._member(self.names[index], value))
        return tuple(out)

    def _writable(self, mask: int) -> int:
        """The names in ``mask`` that presence formulas speak of and whose value is possible."""
        assert self._presence is not None
        out, rest = 0, mask & self._presence.names
        while rest:
            bit = rest & -rest
            rest ^= bit
            if self._language.shortest(self._conjunctions[bit.bit_length() - 1]) is not None:
                out |= bit
        return out

    def _member(self, name: str, value: bytes) -> bytes:
        space = self._language.least_space
        return self._language.spell(name) + space + b":" + space + value

    def _search(
        self, index: int, state: State, memo: dict[tuple[int, State], Members | None]
    ) -> Members | None:
        """Cheapest members from name ``index`` on, then unnamed ones; names in schema order."""
        key = (index, state)
        if key in memo:
            return memo[key]
        if len(memo) > MAX_SEARCH:
            path = self._nodes[0].path if self._nodes else "$"
            raise CompileLimitExceeded(
                f"too many ways to choose the members of the object at {path}",
                limit=MAX_SEARCH,
                actual=len(memo),
            )
        memo[key] = None
        left, count, met, _, written = state
        satisfied = count >= self._min and met == self._all_met and self._is_right(state)
        missing = left & self._required
        best: Members | None = None
        if satisfied and not missing:
            best = ()
        elif self._max is not None and count >= self._max:
            best = None
        elif self._presence is not None and (
            self._presence.complete(written | missing, left >> index << index) is None
        ):
            best = None
        else:
            candidates = left >> index << index
            if satisfied:
                candidates = candidates & missing
            if not candidates:
                best = self._unnamed(state, memo) if not missing else None
            else:
                label = (candidates & -candidates).bit_length() - 1
                best = self._take(label, None, state, memo)
                if not missing >> label & 1:
                    skipped = self._search(label + 1, state, memo)
                    best = _cheaper(best, skipped)
        memo[key] = best
        return best

    def _take(
        self,
        label: int,
        name: str | None,
        state: State,
        memo: dict[tuple[int, State], Members | None],
        target: int = -1,
    ) -> Members | None:
        """The member with key ``label`` (which has to meet existence ``target``) and the rest."""
        best: Members | None = None
        for conjunction, after in self._ways(state, label, name):
            if target >= 0 and not after[2] >> target & 1:
                continue
            value = self._language.shortest(conjunction)
            if value is None:
                continue
            # Skipped names stay in the mask under any order; do not come back to them.
            rest = self._search(label + 1 if name is None else len(self.names), after, memo)
            if rest is not None:
                member = self._member(name if name is not None else self.names[label], value)
                best = _cheaper(best, (member, *rest))
        return best

    def _unnamed(
        self, state: State, memo: dict[tuple[int, State], Members | None]
    ) -> Members | None:
        """One more unnamed member, where only such can still be owed."""
        unmet = ~state[2] & self._all_met
        # Existences can be met in any order: the first one that is not met comes first.
        target = (unmet & -unmet).bit_length() - 1
        for name in self._spare_keys(target, state[3]):
            matched = 0
            for i, (regex, _) in enumerate(self._patterns):
                matched |= evaluate.matches(regex, name) << i
            matched |= self._met_by(name) << len(self._patterns)
            found = self._take(self._label_of(matched), name, state, memo, target)
            if found is not None:
                return found
        return None

    def _spare_keys(self, target: int, used: tuple[str, ...]) -> Iterator[str]:
        """Short unnamed keys, not yet used, that existence ``target`` (or none) speaks of: one for
        each set of patterns a key can match, fewest patterns first."""
        taken = ir.Alternate(tuple(ir.literal(n) for n in (*self.names, *used)))
        parts: list[ir.Regex] = [ir.Complement(taken)]
        if target >= 0:
            parts.append(self._exists[target].keys)
        parts += [
            self._language.string_language(n.property_names)
            for n in self._nodes
            if n.property_names != TRUE
        ]
        regexes = list(
            dict.fromkeys(
                [regex for regex, _ in self._patterns]
                + [e.keys for i, e in enumerate(self._exists) if i != target]
            )
        )[:MAX_PATTERNS_COMBINED]
        for size in range(len(regexes) + 1):
            for chosen in itertools.combinations(range(len(regexes)), size):
                key = (target, used, chosen)
                if key not in self._some_key:
                    rest = [
                        regex if i in chosen else ir.Complement(regex)
                        for i, regex in enumerate(regexes)
                    ]
                    self._some_key[key] = evaluate.shortest_match(
                        ir.Intersect((*parts, *rest))
                    )
                name = self._some_key[key]
                if name is not None:
                    yield name


class _Classifier:
    """Classes of unnamed keys in one state of an involved plan."""

    def __init__(self, plan: ObjectPlan, state: State) -> None:
        self._plan = plan
        self._state = state

    def __call__(self, matched: int) -> int:
        return self._plan.class_in(self._state, matched)


def _cheaper(a: Members | None, b: Members | None) -> Members | None:
    if a is None or b is None:
        return b if a is None else a
    return a if sum(map(len, a)) + len(a) <= sum(map(len, b)) + len(b) else b
