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
from ..grammar.schema_graph import FALSE, TRUE, Exists, Keys
from . import evaluate
from .keys import CLOSE, KeyLeaf, KeySymbols
from .machine import POP, Alternative
from .presence import Presence, names_of

if TYPE_CHECKING:
    from .values import JsonLanguage

MAX_SEARCH = 50_000
"""Most states a search for the shortest way to close one object may visit."""

MAX_GUESSES = 10
"""Most existences that may hang on the value of one member."""

MAX_PATTERNS_COMBINED = 6
"""Most patterns whose combinations are tried to find a key for a member that is owed."""

State = tuple[int, int, int, tuple[str, ...], int]
"""(mask of names still allowed, members counted as far as that matters, mask of the required
existences met, unnamed keys already written where they must be told apart, mask of the names
written that presence formulas speak of)."""

Members = tuple[tuple[int, bytes], ...]
"""Members to write, as (label of the key, text of the member)."""


class ObjectPlan:
    """The frame of an object owed to the object assertions of several nodes at once.

    Machine states are ``2 * i`` while punctuation and a key are written, ``2 * i + 1`` during the
    member's value, for the i-th interned `State`.
    """

    nests = True

    def __init__(self, language: JsonLanguage, nodes: tuple[int, ...]) -> None:
        self._language = language
        self.limit = language.limit_below(nodes)
        self._nodes = [language.nodes[n] for n in nodes]
        names: dict[str, None] = {}
        required: dict[str, None] = {}
        for node in self._nodes:
            names.update(dict.fromkeys(node.properties))
            required.update(dict.fromkeys(node.required))
        names.update(required)
        formulas = [formula for node in self._nodes for formula in node.presence]
        for formula in formulas + [e.presence for n in self._nodes for e in n.exists]:
            names.update(dict.fromkeys(names_of(formula)))
        for keys, _ in (trigger for n in self._nodes for e in n.exists for trigger in e.triggers):
            names.update(dict.fromkeys(keys.but_names if keys.name is None else [keys.name]))
        self.names = list(names)
        index = {name: i for i, name in enumerate(self.names)}
        self._index = index
        self._formulas = formulas
        self._rules: dict[int, Presence | None] = {}
        self._required = 0
        for name in required:
            self._required |= 1 << index[name]
        self._min = max((n.min_properties for n in self._nodes), default=0)
        if self._min <= len(required):
            self._min = 0  # the required names are enough
        limits = [n.max_properties for n in self._nodes if n.max_properties is not None]
        self._max: int | None = min(limits) if limits else None
        self._counts = self._max is not None or self._min > len(required)
        self._exists: list[Exists] = list(
            dict.fromkeys(
                [e for n in self._nodes for e in n.exists]
                + [
                    Exists(((Keys(pattern=language.string_language(n.bad_name)), TRUE),))
                    for n in self._nodes
                    if n.bad_name != TRUE
                ]
            )
        )
        # (existence, keys, obligation) of every way that a member can meet an existence
        self._triggers = [(i, k, ob) for i, e in enumerate(self._exists) for k, ob in e.triggers]
        self._all_met = (1 << len(self._exists)) - 1
        # names that any rule may come to speak of, whatever is met by then
        self._ruled = 0
        for formula in formulas + [e.presence for e in self._exists]:
            for name in names_of(formula):
                self._ruled |= 1 << index[name]
        self._involved = self._counts or bool(self._exists)
        # every pattern that tells unnamed keys apart, and its bit
        regexes = [regex for n in self._nodes for regex, _ in n.pattern_properties]
        for _, keys, _ in self._triggers:
            regexes += keys.but_patterns if keys.pattern is None else [keys.pattern]
        self._bits = {regex: 1 << i for i, regex in enumerate(dict.fromkeys(regexes))}
        self._in_order = language.options.property_order == "schema"
        self._conjunctions: list[int] = [self._named(name) for name in self.names]
        self._meets: list[int] = [self._met_by(name) for name in self.names]
        self._classes: dict[int, int] = {}
        self._helping: dict[int, int] = {}
        self._guessed: dict[int, tuple[int, list[tuple[int, list[int]]]]] = {}
        self._possible: int | None = None
        self._states: list[State] = []
        self._state_ids: dict[State, int] = {}
        self._leaves: dict[State | None, KeyLeaf] = {}
        self._closings: dict[tuple[int, State], Members | None] = {}
        self._spare: dict[tuple[str, ...], dict[int, str | None]] = {}

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
        """Mask of the triggers whose keys include ``name``."""
        mask = 0
        for i, (_, keys, _) in enumerate(self._triggers):
            if evaluate.includes(keys, name):
                mask |= 1 << i
        return mask

    def _met_by_class(self, matched: int) -> int:
        """Mask of the triggers whose keys include the unnamed keys that match ``matched``."""
        mask = 0
        for i, (_, keys, _) in enumerate(self._triggers):
            if keys.name is not None:
                continue
            if keys.pattern is not None:
                hit = bool(matched & self._bits[keys.pattern])
            else:
                hit = not any(matched & self._bits[p] for p in keys.but_patterns)
            mask |= hit << i
        return mask

    def _rule(self, met: int) -> Presence | None:
        """What the names present must satisfy in the end, when ``met`` is met; None for nothing."""
        if met not in self._rules:
            formulas = list(self._formulas)
            formulas += [e.presence for i, e in enumerate(self._exists) if not met >> i & 1]
            self._rules[met] = Presence(formulas, self._index) if formulas else None
        return self._rules[met]

    def _label_of(self, matched: int) -> int:
        """The label of the unnamed keys that match these patterns (and existences)."""
        found = self._classes.get(matched)
        if found is None:
            owed: list[int] = []
            for node in self._nodes:
                children = [
                    child for regex, child in node.pattern_properties if matched & self._bits[regex]
                ]
                owed += children or [node.additional]
            found = self._classes[matched] = len(self._conjunctions)
            self._conjunctions.append(self._language.conjunction(owed))
            self._meets.append(self._met_by_class(matched))
        return found

    def _class_of(self, matched: int) -> int:
        """Class of an unnamed key, counted from 0; -1 when no value would do."""
        label = self._label_of(matched)
        possible = self._language.is_possible(self._conjunctions[label])
        return label - len(self.names) if possible else -1

    def _has_others(self) -> bool:
        """Whether unnamed keys may occur, as far as can be told cheaply."""
        return bool(self._bits or self._exists) or self._class_of(0) >= 0

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
            written |= bit & self._ruled
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
        if not self._exists or state[2] == self._all_met:
            yield base, self._after(state, label, 0, name)
            return
        free, guesses = self._guesses(label)
        options: list[list[tuple[int, int]]] = []
        for i, obligations in guesses:
            if not (free | state[2]) >> i & 1:
                options.append([(1 << i, ob) for ob in obligations] + [(0, TRUE)])
        if len(options) > MAX_GUESSES:
            raise CompileLimitExceeded(
                f"too many alternatives overlap in one member of the object at {self._path()}",
                limit=MAX_GUESSES,
                actual=len(options),
            )
        for combination in itertools.product(*options):
            met = free
            extra: list[int] = []
            for bit, obligation in combination:
                met |= bit
                if obligation != TRUE:
                    extra.append(obligation)
            conjunction = self._language.conjunction_with(base, extra) if extra else base
            yield conjunction, self._after(state, label, met, name)

    def _guesses(self, label: int) -> tuple[int, list[tuple[int, list[int]]]]:
        """What a member with key ``label`` can meet: a mask of the existences that it meets
        whatever its value, and the obligations that would meet each of the others."""
        known = self._guessed.get(label)
        if known is not None:
            return known
        base = self._conjunctions[label]
        language = self._language
        free = 0
        guesses: dict[int, list[int]] = {}
        for t, (i, _, obligation) in enumerate(self._triggers):
            if not self._meets[label] >> t & 1 or obligation == FALSE:
                continue
            if obligation == TRUE or language.clearly_empty(
                language.conjunction_with(base, [obligation ^ 1])
            ):
                free |= 1 << i
            elif not language.clearly_empty(language.conjunction_with(base, [obligation])):
                guesses.setdefault(i, []).append(obligation)
        found = (free, [(i, obs) for i, obs in guesses.items() if not free >> i & 1])
        self._guessed[label] = found
        return found

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
        """Whether the rules on names can still be made to hold."""
        if self._involved or not self._ruled:
            return True  # `_closing` finds out
        rule = self._rule(state[2])
        missing = state[0] & self._required
        return rule is None or rule.complete(state[4] | missing, state[0]) is not None

    def _is_right(self, state: State) -> bool:
        """Whether everything that must exist does, and the rules on names hold as it is."""
        rule = self._rule(state[2])
        return rule is None or rule.holds(state[4])

    def _path(self) -> str:
        return self._nodes[0].path if self._nodes else "$"

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
            classify: Callable[[int], int] = self._class_of
            if self._involved:
                classify = _Classifier(self, state)
            names = self.names + [k for k in state[3] if k not in self.names]
            symbols = KeySymbols(names, list(self._bits), must_match, classify, len(self.names))
            language = self._language
            leaf = self._leaves[key] = KeyLeaf(
                symbols, language.space, language.options.named, language.missing
            )
        return leaf

    def class_in(self, state: State, matched: int) -> int:
        """As `_class_of`, for an involved plan: -1 also where the object could not be closed."""
        found = self._class_of(matched)
        if found >= 0 and not self._open_ways(state, len(self.names) + found, None):
            return -1
        return found

    def _menu(self, state: State) -> tuple[int | None, bool]:
        """The keys that may come next, as a menu of the key symbols, and whether ``}`` may."""
        left, count, _, _, _ = state
        missing = left & self._required
        may_close = not missing and count >= self._min and self._is_right(state)
        allowed = left
        others = not self._in_order or (not missing and (self._involved or self._is_right(state)))
        if self._max is not None and count + missing.bit_count() >= self._max:
            allowed, others = missing, False
        if self._in_order and missing:
            # Nothing beyond the first required name may come before it.
            first = missing & -missing
            allowed &= (first << 1) - 1
        if self._involved or self._ruled:
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
        return [conjunction for _, conjunction in self.required_members()]

    def required_members(self) -> list[tuple[str, int]]:
        """The required names, and the conjunctions that their values are owed to."""
        return [
            (name, self._conjunctions[i])
            for i, name in enumerate(self.names)
            if self._required >> i & 1
        ]

    def _initial(self) -> State:
        return self._possible_names(), 0, 0, (), 0

    def is_possible(self) -> bool:
        """Whether any object satisfies the nodes."""
        if not self._required and not self._involved and not self._ruled:
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

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
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
            for way in self._language.alternatives(conjunction, limited)
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

    def preferred(self, at: int) -> int | None:
        """The outcome that `finish` counts on; see `machine.Frame`."""
        if at & 1:
            return None
        members = self._closing(self._states[at >> 1])
        return 1 + members[0][0] if members else CLOSE

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
        out = (space + b"," + space).join(text for _, text in members)
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
        rule = self._rule(state[2])
        if rule is not None:
            extra = rule.complete(state[4] | rest, self._writable(state[0]))
            if extra is None:
                return None
            rest |= extra
        out: list[tuple[int, bytes]] = []
        while rest:
            index = (rest & -rest).bit_length() - 1
            rest &= rest - 1
            value = self._language.shortest(self._conjunctions[index])
            if value is None:
                return None
            out.append((index, self._member(self.names[index], value)))
        return tuple(out)

    def _writable(self, mask: int) -> int:
        """The names in ``mask`` that presence formulas speak of and whose value is possible."""
        out, rest = 0, mask & self._ruled
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
            raise CompileLimitExceeded(
                f"too many ways to choose the members of the object at {self._path()}",
                limit=MAX_SEARCH,
                actual=len(memo),
            )
        memo[key] = None
        left, count, _, _, written = state
        missing = left & self._required
        # Required members are still to come, and may break a rule that holds without them.
        rule = self._rule(state[2])
        satisfied = count >= self._min and (rule is None or rule.holds(written | missing))
        best: Members | None = None
        if satisfied and not missing:
            best = ()
        elif (self._max is not None and count >= self._max) or not self._may_become_right(
            written | missing, left >> index << index
        ):
            best = None
        else:
            candidates = left >> index << index
            if satisfied:
                candidates &= missing
            elif count >= self._min:
                candidates &= missing | self._ruled | self._helpful(state[2])
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

    def _helpful(self, met: int) -> int:
        """Mask of the names whose members may meet an existence that is not met yet."""
        found = self._helping.get(met)
        if found is None:
            found = 0
            for label in range(len(self.names)):
                free, guesses = self._guesses(label)
                for i, _ in guesses:
                    free |= 1 << i
                if free & ~met:
                    found |= 1 << label
            self._helping[met] = found
        return found

    def _may_become_right(self, written: int, possible: int) -> bool:
        """Whether the rules hold for some choice of names, should all that must exist do so."""
        rule = self._rule(self._all_met)
        return rule is None or rule.complete(written, possible) is not None

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
                best = _cheaper(best, ((label, member), *rest))
        return best

    def _unnamed(
        self, state: State, memo: dict[tuple[int, State], Members | None]
    ) -> Members | None:
        """One more unnamed member, where only such can still be owed."""
        unmet = ~state[2] & self._all_met
        targets = [
            t
            for t, (i, keys, _) in enumerate(self._triggers)
            if unmet >> i & 1 and keys.name is None
        ]
        if not targets and state[1] >= self._min:
            return None
        for name, matched in self._spare_keys(state[3]):
            label = self._label_of(matched)
            wanted = [t for t in targets if self._meets[label] >> t & 1]
            for t in wanted if targets else [-1]:
                existence = self._triggers[t][0] if t >= 0 else -1
                found = self._take(label, name, state, memo, existence)
                if found is not None:
                    return found
        return None

    def _spare_keys(self, used: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        """Short unnamed keys that are not yet used, with the patterns they match: one for each set
        of patterns that a key can match."""
        known = self._spare.setdefault(used, {})
        taken = {*self.names, *used}
        names = [n.property_names for n in self._nodes if n.property_names != TRUE]
        if not known:
            for name in _SAMPLES:
                if name not in taken and all(
                    evaluate.holds(self._language.nodes, ob, name) for ob in names
                ):
                    matched = sum(bit for r, bit in self._bits.items() if evaluate.matches(r, name))
                    known.setdefault(matched, name)
        offered = {matched for matched, name in known.items() if name is not None}
        yield from [(known[matched] or "", matched) for matched in sorted(offered)]
        regexes = list(self._bits)[:MAX_PATTERNS_COMBINED]
        free = ir.Complement(ir.Alternate(tuple(map(ir.literal, sorted(taken)))))
        parts = [free, *(self._language.string_language(ob) for ob in names)]
        for size in range(len(regexes) + 1):
            for chosen in itertools.combinations(regexes, size):
                matched = sum(self._bits[regex] for regex in chosen)
                if matched in offered:
                    continue
                if matched not in known:
                    rest = [r if r in chosen else ir.Complement(r) for r in regexes]
                    known[matched] = evaluate.shortest_match(ir.Intersect((*parts, *rest)))
                found = known[matched]
                if found is not None:
                    yield found, matched


_SAMPLES = [*"abcdefghijklmnopqrstuvwxyz0123456789_", "$", "a-b", "x-", "@", "name", "id", "key"]


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
    return a if _cost(a) <= _cost(b) else b


def _cost(members: Members) -> int:
    return sum(len(text) + 1 for _, text in members)
