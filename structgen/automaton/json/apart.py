"""Objects and arrays except a few values: frames that work in parallel to those of a plan.

Unique items bar values that have been written. An `Apart` follows an open object or array as its
plan does, and tracks the barred values that still begin the same way, member by member or item by
item. Usually there soon are none, and the plan's own frame takes over, with its cached walks (as
`excluding` hands over to the shared leaf).

While some are left, something is barred only if nothing else could follow it: ``}`` if the object
would equal one of them; a member's value if every continuation leads to one of them (`spare`). This
is decided by counting, or member by member if there are few. It covers only plain plans
(`ObjectPlan.is_plain`). With rules, patterns or counts, negated constants exclude the values
instead.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Hashable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from structgen.automaton.bits import bits
from structgen.automaton.core.frames import POP, Alternative, Frame
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.schema import evaluate
from structgen.automaton.schema.array_spec import forgetting, is_forgotten
from structgen.automaton.texts import Text, flat, put, repeated
from structgen.automaton.work import WORK
from structgen.grammar.json_schema import json_key
from structgen.storage import Numbers, cached_method

from .language import MAX_LISTED, Language
from .whitespace import CLOSE, ITEM, array_leaf

if TYPE_CHECKING:
    from .arrays import ArrayPlan
    from .objects import ObjectPlan

Alive: TypeAlias = "tuple[int, ...]"
"""The numbers of the barred values that the text may still become."""

Others: TypeAlias = "frozenset[tuple[str, Any]]"
"""The members of an object that its schema does not name, by key and `json_key`."""

State: TypeAlias = "tuple[int, Alive, Others, int]"
"""The plan's state; the barred values still possible; unnamed members; the label being read, or -1.
"""

_NOTHING: Others = frozenset()


_TO_THE_END = -1
"""Replaces a label: anything that may come next."""

_Way: TypeAlias = "tuple[Place, int]"


class Without:
    """The plan of the objects or arrays of another plan except a few values."""

    def __init__(self, frame: Apart, alive: Alive) -> None:
        self._frame = frame
        self._alive = alive
        self.path = frame.plan.path
        self.children = frame.plan.children
        self.required_children = frame.plan.required_children

    def is_possible(self) -> bool:
        """Return whether such a value exists."""
        frame = self._frame
        return frame.plan.is_possible() and frame.spare((frame.plan.first, self._alive, _NOTHING))

    def open(self) -> Alternative:
        """Return the alternatives with which such a value may start."""
        return self._frame.open(self._alive)

    def shortest_text(self) -> Text | None:
        """Return the shortest text found."""
        return self._frame.ending((self._frame.plan.first, self._alive, _NOTHING), True)

    def size_at_least(self, size: int) -> bool:
        """Return True if a cheap test shows that there are ``size`` such values."""
        return self._frame.plan.size_at_least(size + len(self._alive))


Place: TypeAlias = "tuple[int, Alive, Others]"
"""A `State` between two members or items."""


class Apart(Frame):
    """The frame of an open object or array that must not equal any of a few values.

    Machine states are ``2 * i`` while punctuation and a key are written, and ``2 * i + 1`` during a
    value, for the i-th interned `State`.
    """

    nests = True
    may_record = True
    plan: ObjectPlan | ArrayPlan
    _bracket: bytes

    def __init__(self, language: Language, plan: ObjectPlan | ArrayPlan) -> None:
        self._language = language
        self.plan = plan
        self.limit = plan.limit
        self._numbered: Numbers[State] = Numbers()
        self._states = self._numbered.listed
        self._writable: dict[Hashable, bool] = {}
        self._texts: dict[tuple[int, int], Text] = {}
        self._begun: dict[tuple[int, ...], Alive] = {(): ()}
        self._found: dict[State, tuple[Text | None, dict[Any, Any]]] = {}

    # -- what objects and arrays answer ---------------------------------------------------------

    def _label(self, at: int, outcome: int) -> int:
        """Return the label for an outcome of the leaf between values."""
        raise NotImplementedError

    def _first(self, rest: Any) -> int:
        """Return the outcome with which the rest of a value begins."""
        raise NotImplementedError

    def _value(self, number: int, label: int) -> Any:
        """Return the part of a value under a label."""
        raise NotImplementedError

    def _key(self, number: int, label: int) -> Any:
        """Return the `json_key` of the part of a value under a label."""
        raise NotImplementedError

    def _continues(self, number: int, at: int, label: int) -> bool:
        """Return whether a value has a part with this label, and it may come next."""
        raise NotImplementedError

    def _ends(self, place: Place) -> bool:
        """Return whether one of the values ends here."""
        raise NotImplementedError

    def _read(self, text: bytes, place: Place) -> Place:
        """Return the place after the member or item in ``text``."""
        raise NotImplementedError

    def _rest_of(self, text: Text, is_first: bool) -> Any:
        """Return the parts at the end of an object or array, or of a whole one if ``is_first``."""
        raise NotImplementedError

    def _whole_of(self, text: Text, is_first: bool) -> Any:
        WORK.spend(len(text) >> 3)
        data = flat(text)
        return _loads(data if is_first else self._bracket + data.lstrip().removeprefix(b","))

    def _has_rest(self, number: int, place: Place, rest: Any) -> bool:
        """Return whether a value continues with ``rest``, and then ends."""
        raise NotImplementedError

    def _begin(self, label: int) -> bytes:
        """Return the fewest bytes that come before the value with this label."""
        raise NotImplementedError

    def _between(self, place: Place, is_first: bool = False) -> tuple[Leaf, int]:
        """Return the leaf of the text before and between values, and its state."""
        raise NotImplementedError

    def _fresh(self, at: int, alive: Alive, others: Others) -> Text | None:
        """Return a member that no barred value has; None if none is allowed."""
        return None

    def _before_end(self, text: Text, member: Text) -> Text:
        """Return ``text``, which ends an object, with one more member."""
        body = flat(text)[:-1].rstrip()
        language = self._language
        comma = language.space.first if body.endswith(b"{") else language.space.comma
        return put(put(body + comma, member), language.space.last + b"}")

    # -- which values are left ------------------------------------------------------------------

    def begun(self, numbers: tuple[int, ...]) -> Alive:
        """Return the barred values that the plan allows."""
        found = self._begun.get(numbers)
        if found is None:
            before = self._begun.get(numbers[:-1])
            new = numbers if before is None else numbers[-1:]
            found = (before or ()) + tuple([n for n in new if self._has(n)])
            self._begun[numbers] = found
        return found

    @cached_method
    def _has(self, number: int) -> bool:
        WORK.spend(5)
        return self.plan.holds(self._language.numbered.values[number])

    @cached_method
    def _groups(self, place: Place, label: int) -> dict[Any, Alive]:
        """Group the values that have a part with this label by that part."""
        at, alive, _ = place
        WORK.spend(1 + (len(alive) >> 2))
        lists: dict[Any, list[int]] = {}
        for number in alive:
            if self._continues(number, at, label):
                lists.setdefault(self._key(number, label), []).append(number)
        WORK.hold(200 + 100 * len(lists))
        return {part: (*group,) for part, group in lists.items()}

    def spare(self, place: Place) -> bool:
        """Return whether the object or array can be closed without equalling any of the values."""
        return not place[1] or self._may_write(place, _TO_THE_END)

    def _may_write(self, place: Place, label: int) -> bool:
        """Return whether a part with this label may come next; for `_TO_THE_END`, the same as
        `spare`."""
        known = {} if self._language.values.is_solving else self._writable
        return evaluate.answered((place, label), self._find_way, known)

    def _find_way(self, question: _Way) -> Generator[_Way, bool, bool]:
        place, label = question
        at, alive, others = place
        WORK.hold(200)
        if label == _TO_THE_END:
            labels, is_endless, may_close = self.plan.choices(at)
            if not alive or is_endless or (may_close and not self._ends(place)):
                return True
            for label in labels:
                if (yield place, label):
                    return True
            return False
        groups, owed = self._groups(place, label), self.plan.owed(label)
        values = self._language.values
        if values.size_at_least(owed, len(groups) + 1):
            return True
        after = self.plan.after(at, label)
        for group in groups.values():
            if (yield (after, group, others), _TO_THE_END):
                return True
        return values.is_possible(self._but(owed, groups.values(), label))

    def _barred(self, place: Place, label: int) -> tuple[list[Alive], Alive]:
        """Split the barred values by this label: groups of the values that have such a part, and
        all others."""
        at, alive, others = place
        groups, after = self._groups(place, label), self.plan.after(at, label)
        if not groups:
            return [], ()
        if self._has_plenty(after, len(alive)):
            return [], tuple(sorted([n for group in groups.values() for n in group]))
        barred: list[Alive] = []
        left: list[int] = []
        for group in groups.values():
            if self.spare((after, group, others)):
                left += group
            else:
                barred.append(group)
        return barred, tuple(sorted(left))

    def _has_plenty(self, at: int, size: int) -> bool:
        """Return True if a cheap test shows more than ``size`` continuations."""
        labels, is_endless, _ = self.plan.choices(at)
        values = self._language.values
        return is_endless or any(
            values.size_at_least(self.plan.owed(label), size + 1) for label in labels
        )

    def _but(self, owed: int, groups: Iterable[Alive], label: int) -> int:
        """Return ``owed`` without the parts that the values of ``groups`` have there."""
        numbered = self._language.numbered
        values = [numbered.number(self._value(group[0], label)) for group in groups]
        return self._language.without(owed, (*sorted(values),)) if values else owed

    # -- the frame ------------------------------------------------------------------------------

    def _number(self, place: Place, label: int = -1) -> int:
        state = *place, label
        if state not in self._numbered:
            WORK.hold(300 + 8 * len(place[1]))
        return self._numbered[state]

    def open(self, alive: Alive) -> Alternative:
        """Return the alternatives with which an object or array may start that must not equal any
        of the values."""
        place = self.plan.first, alive, _NOTHING
        leaf, q = self._between(place, is_first=True)
        return Alternative(leaf, q, ((self, 2 * self._number(place)),))

    def records(self, at: int, outcome: int) -> bool:
        """See `frames.Frame`."""
        return bool(at & 1)

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        state, alive, others, label = self._states[at >> 1]
        if at & 1:
            if text is None:  # forgotten
                place = state, alive, others
            else:
                place = self._read(text, (state, alive, others))
            if not place[1]:
                ways: tuple[Alternative, ...] = self.plan.resume(
                    self.plan.ended(state), outcome, None, limited
                )
                return ways
            leaf, q = self._between(place)
            return (Alternative(leaf, q, ((self, 2 * self._number(place)),)),)
        if outcome == CLOSE:
            return POP
        label = self._label(state, outcome)
        conjunction, after = self.plan.owed(label), self.plan.after(state, label)
        if is_forgotten(alive):
            left: Alive = alive
        elif self._is_unnamed(label):
            left = self._beside(alive, state, after)
        else:
            barred, left = self._barred((state, alive, others), label)
            conjunction = self._but(conjunction, barred, label)
        own = (
            (self, 2 * self._number((after, left, others), label) + 1)
            if left
            else (self.plan, self.plan.ended(after))
        )
        return tuple(
            [
                Alternative(way.leaf, way.q, (*way.frames, own))
                for way in self._language.alternatives(conjunction, limited)
            ]
        )

    def _is_unnamed(self, label: int) -> bool:
        """Return whether the label is for a key that the schema does not name."""
        return False

    def _beside(self, alive: Alive, at: int, after: int) -> Alive:
        """Return the values without parts that may no longer come ``after`` an unnamed key."""
        raise NotImplementedError

    def forget(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`: possible where the same may follow after any value."""
        state, alive, others, label = self._states[at >> 1]
        if not at & 1 or self._is_unnamed(label):
            return None
        if self._ends((state, alive, others)):
            return None
        forgotten = forgetting(len(alive))
        values = self._language.values
        for following in self.plan.choices(state)[0]:
            if not values.size_at_least(self.plan.owed(following), forgotten[1] + 1):
                return None
        return 2 * self._number((state, forgotten, others), label) + 1

    def otherwise(self, at: int, outcome: int) -> tuple[Frame, int, Collection[Any]] | None:
        """See `frames.Frame`: the plan's own frame takes over."""
        state, alive, _, label = self._states[at >> 1]
        if not at & 1 or self._is_unnamed(label) or is_forgotten(alive):
            return None
        values = [self._value(number, label) for number in alive]
        return self.plan, self.plan.ended(state), values

    def forgotten(self, at: int) -> int:
        """See `frames.Frame`."""
        alive = self._states[at >> 1][1]
        return alive[1] if is_forgotten(alive) else 0

    # -- completion -----------------------------------------------------------------------------

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """See `frames.Frame`."""
        state, alive, others, label = self._states[at >> 1]
        if is_forgotten(alive):
            return self._finish_forgotten(self._states[at >> 1], bool(at & 1), outcome)
        if at & 1:
            place = state, alive, others
            return self.ending(place if text is None else self._read(text, place))
        if outcome == CLOSE:
            return b""
        place, label = (state, alive, others), self._label(state, outcome)
        if self._is_unnamed(label):
            # A value plus the end after it, after any unnamed key.
            value = self._language.shortest(self.plan.owed(label))
            fresh = self._fresh(*place)
            rest = self.plan.finish(self.plan.ended(self.plan.after(state, label)), 0)
            if value is None or fresh is None or rest is None:
                return None
            return put(value, self._before_end(rest, fresh))
        return self.ending(place, label=label)

    def _finish_forgotten(self, state: State, is_after: bool, outcome: int) -> Text | None:
        """See `ArrayPlan._finish_forgotten`: what `ending` writes where it has to differ."""
        at, (_, most), *_ = state
        if not is_after and outcome == CLOSE:
            return b""
        plan, language = self.plan, self._language
        ways: list[Text] = []
        for label in plan.choices(at)[0] if is_after else [self._label(at, outcome)]:
            size = language.values.bytes_of_many(plan.owed(label), most)
            rest = plan.finish(plan.ended(plan.after(at, label)), 0)
            if size is not None and rest is not None:
                begin = language.space.comma + self._begin(label) if is_after else b""
                ways.append(put(put(begin, repeated(b"?", size)), rest))
        plain = self._plain(at, False) if is_after else None
        way = min(ways, key=len, default=None)
        return way if way is None or plain is None else max(plain, way, key=len)

    def ending(self, place: Place, is_first: bool = False, label: int = _TO_THE_END) -> Text | None:
        """Return the fewest bytes found that close the object or array without equalling any of the
        values; with a ``label``, after the text before the value that has it."""
        return evaluate.answered((place, label, is_first), self._find_ending, {})

    def _find_ending(
        self, question: tuple[Place, int, bool]
    ) -> Generator[tuple[Place, int, bool], Text | None, Text | None]:
        place, label, is_first = question
        at, alive, _ = place
        if label != _TO_THE_END:
            return (yield from self._find_value(place, label))
        plain = self._plain(at, is_first)
        if plain is None or not alive:
            return plain
        rest = self._rest_of(plain, is_first)
        if not any(self._has_rest(number, place, rest) for number in alive):
            return plain
        ways: list[Text] = []
        fresh = self._fresh(*place)
        if fresh is not None:
            ways.append(self._before_end(plain, fresh))
        begin = self._bracket + self._language.space.first
        begin = begin if is_first else self._language.space.comma
        for label in self.plan.choices(at)[0]:
            way = yield place, label, False
            if way is not None:
                ways.append(put(begin + self._begin(label), way))
        return min(ways, key=len, default=None)

    @cached_method
    def preferred(self, at: int) -> int | None:
        """Return the outcome that `ending` assumes; see `frames.Frame`."""
        state, alive, others, _ = self._states[at >> 1]
        if at & 1 or is_forgotten(alive):
            return None
        end = self.ending((state, alive, others))
        return None if end is None else self._first(self._whole_of(end, False))

    def _find_value(
        self, place: Place, label: int
    ) -> Generator[tuple[Place, int, bool], Text | None, Text | None]:
        """Return a value with this label, plus the end of the object or array after it."""
        at, _, others = place
        language, plan = self._language, self.plan
        owed, after = plan.owed(label), plan.after(at, label)
        groups = self._groups(place, label)
        value = language.shortest(self._but(owed, groups.values(), label))
        rest = plan.finish(plan.ended(after), 0)
        best = None if value is None or rest is None else put(value, rest)
        known: list[tuple[Text, Alive]] = []
        for group in groups.values():
            text = self._text_of(group[0], label)
            if text is not None and (best is None or len(text) < len(value or b"")):
                known.append((text, group))
        for text, group in sorted(known, key=lambda way: len(way[0])):
            WORK.spend(5)
            if best is not None and rest is not None and len(text) + len(rest) >= len(best):
                break
            if self.spare((after, group, others)):
                end = yield (after, group, others), _TO_THE_END, False
                if end is not None and (best is None or len(text) + len(end) < len(best)):
                    best = put(text, end)
        return best

    def _text_of(self, number: int, label: int) -> Text | None:
        """Return the shortest text of the part of a value under a label."""
        found = self._texts.get((number, label))
        if found is None:
            language = self._language
            constant = language.constant(self._value(number, label))
            owed = language.conjunctions.extended(self.plan.owed(label), [constant])
            found = language.shortest(owed)
            if found is not None and not language.values.is_solving:
                WORK.hold(200)
                self._texts[number, label] = found
        return found

    def _plain(self, at: int, is_first: bool) -> Text | None:
        found: Text | None = (
            self.plan.shortest_text() if is_first else self.plan.finish(self.plan.ended(at), 0)
        )
        return found

    def finish_reads(self, at: int, outcome: int) -> bool:
        """See `frames.Frame`."""
        state = self._states[at >> 1]
        return not is_forgotten(state[1]) and bool(
            self._is_unnamed(state[3]) or self._otherwise(state)[1]
        )

    def _otherwise(self, state: State) -> tuple[Text | None, dict[Any, Alive]]:
        """Return the bytes that close it after any value except certain ones; and these, each with
        the barred values that have it."""
        found = self._found.get(state)
        if found is None:
            at, alive, others, label = state
            plain = self._plain(at, False)
            groups: dict[Any, Alive] = {}
            if plain is not None:
                rest = self._rest_of(plain, False)
                parts = {
                    self._key(number, label)
                    for number in alive
                    if self._has_rest(number, (at, alive, others), rest)
                }
                for number in alive if parts else ():
                    part = self._key(number, label)
                    if part in parts:
                        groups[part] = (*groups.get(part, ()), number)
            found = plain, groups
            if not self._language.values.is_solving:
                self._found[state] = found
        return found

    def finish_otherwise(self, at: int, outcome: int) -> tuple[Text, Collection[Any]] | None:
        """See `frames.Frame`."""
        state = self._states[at >> 1]
        if self._is_unnamed(state[3]):
            return None
        rest, groups = self._otherwise(state)
        values = [self._value(group[0], state[3]) for group in groups.values()]
        return None if rest is None else (rest, values)

    def finish_most(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`."""
        state = self._states[at >> 1]
        place, others = state[0], state[2]
        if self._is_unnamed(state[3]):
            rest, fresh = self._plain(place, False), self._fresh(*state[:3])
            if rest is None or fresh is None:
                return None
            # Two, because `finish` does not know whether a barred value has the next key, too.
            return len(rest) + 2 * (len(self._language.space.comma) + len(fresh) + 1)
        rest, groups = self._otherwise(state)
        if rest is None or len(groups) > MAX_LISTED:
            return None
        most = len(rest)
        for group in groups.values():
            way, fresh = self.ending((place, group, others)), self._fresh(place, group, others)
            # As above, the member that `ending` adds may get another one.
            more = 0 if fresh is None else len(self._language.space.comma) + len(fresh) + 1
            most = max(most, 0 if way is None else len(way) + more)
        return most


class ApartObject(Apart):
    """See `Apart`."""

    plan: ObjectPlan
    _bracket = b"{"

    def __init__(self, language: Language, plan: ObjectPlan) -> None:
        super().__init__(language, plan)
        self._n_names = len(plan.names)
        self._index = {name: label for label, name in enumerate(plan.names)}

    @cached_method
    def _of(self, number: int) -> tuple[dict[str, Any], int, Others]:
        """Return a value's members by `json_key`, a bit mask of its named members, and the
        others."""
        WORK.hold(400)
        members = dict(self._language.numbered.keys[number][1])
        named = 0
        for name in members:
            if name in self._index:
                named |= 1 << self._index[name]
        others = frozenset([m for m in members.items() if m[0] not in self._index])
        return members, named, others

    def _label(self, at: int, outcome: int) -> int:
        return outcome - 1

    def _first(self, rest: Any) -> int:
        return next((1 + self._index.get(name, self._n_names) for name in rest), CLOSE)

    def _value(self, number: int, label: int) -> Any:
        return self._language.numbered.values[number][self.plan.names[label]]

    def _key(self, number: int, label: int) -> Any:
        return self._of(number)[0][self.plan.names[label]]

    def _continues(self, number: int, at: int, label: int) -> bool:
        named, bit = self._of(number)[1], 1 << label
        return bool(named & bit) and not named & at & ~bit & ~self.plan.after(at, label)

    def _is_unnamed(self, label: int) -> bool:
        return label >= self._n_names

    def _beside(self, alive: Alive, at: int, after: int) -> Alive:
        gone = at & ~after
        return tuple([n for n in alive if not self._of(n)[1] & gone])

    def _ends(self, place: Place) -> bool:
        at, alive, others = place
        return others in self._others_ending(at, alive)

    @cached_method
    def _others_ending(self, at: int, alive: Alive) -> frozenset[Others]:
        """Return the unnamed members of the values that have no name of ``at``."""
        own = [self._of(number) for number in alive]
        return frozenset([others for _, named, others in own if not named & at])

    def _read(self, text: bytes, place: Place) -> Place:
        at, alive, others = place
        ((name, value),) = _loads(b"{" + text + b"}").items()
        key = json_key(value)
        if name in self._index:
            return at, tuple([n for n in alive if self._of(n)[0].get(name, _NONE) == key]), others
        return at, self._having(alive, name), frozenset({**dict(others), name: key}.items())

    @cached_method
    def _having(self, alive: Alive, name: str) -> Alive:
        """Return the values that have an unnamed key."""
        WORK.spend(1 + (len(alive) >> 2))
        return tuple([n for n in alive if name in self._of(n)[0]])

    def _rest_of(self, text: Text, is_first: bool) -> Others:
        whole = self._whole_of(text, is_first)
        return frozenset([(name, json_key(value)) for name, value in whole.items()])

    def _has_rest(self, number: int, place: Place, rest: Others) -> bool:
        at, _, others = place
        members, named, own = self._of(number)
        left = {self.plan.names[label] for label in bits(named & at)}
        return own == others and rest == {(name, members[name]) for name in left}

    def _begin(self, label: int) -> bytes:
        language = self._language
        return language.scalars.spell(self.plan.names[label]) + language.space.colon

    def _between(self, place: Place, is_first: bool = False) -> tuple[Leaf, int]:
        at, alive, _ = place
        leaf = self.plan.key_leaf
        allowed, others, may_close = self.plan.keys_after(at)
        if not is_forgotten(alive):
            may_close = may_close and not self._ends(place)
            for label in bits(allowed):
                if not self._may_write(place, label):
                    allowed ^= 1 << label
        menu = leaf.symbols.menu(allowed, others) if allowed or others else None
        return leaf, (leaf.open if is_first else leaf.after_value)(menu, may_close)

    def _fresh(self, at: int, alive: Alive, others: Others) -> Text | None:
        language = self._language
        if not self.plan.is_open:
            return None
        used = {name for name, _ in others}.union(*[self._of(number)[0] for number in alive])
        number = 0
        while str(number) in used or str(number) in self._index:
            number += 1
        value = language.shortest(self.plan.owed(self._n_names))
        name = language.scalars.spell(str(number)) + language.space.colon
        return None if value is None else put(name, value)


class ApartArray(Apart):
    """See `Apart`. Places count all items, even those that make no difference to the plan. Labels
    are indexes of items."""

    plan: ArrayPlan
    _bracket = b"["

    def _items(self, number: int) -> tuple[Any, ...]:
        items: tuple[Any, ...] = self._language.numbered.keys[number][1]
        return items

    def _label(self, at: int, outcome: int) -> int:
        return at

    def _first(self, rest: Any) -> int:
        return ITEM if rest else CLOSE

    def _value(self, number: int, label: int) -> Any:
        return self._language.numbered.values[number][label]

    def _key(self, number: int, label: int) -> Any:
        return self._items(number)[label]

    def _continues(self, number: int, at: int, label: int) -> bool:
        return label < len(self._items(number))

    def _ends(self, place: Place) -> bool:
        return any(len(self._items(number)) == place[0] for number in place[1])

    def _read(self, text: bytes, place: Place) -> Place:
        at, alive, others = place
        key = json_key(_loads(text))
        return at, tuple([n for n in alive if self._items(n)[at - 1] == key]), others

    def _rest_of(self, text: Text, is_first: bool) -> tuple[Any, ...]:
        return tuple([json_key(item) for item in self._whole_of(text, is_first)])

    def _has_rest(self, number: int, place: Place, rest: tuple[Any, ...]) -> bool:
        return self._items(number)[place[0] :] == rest

    def _begin(self, label: int) -> bytes:
        return b""

    def _between(self, place: Place, is_first: bool = False) -> tuple[Leaf, int]:
        at, alive, _ = place
        leaf = array_leaf(self._language.space)
        items, _, close = self.plan.choices(at)
        item = any(True for _ in items)
        if not is_forgotten(alive):
            item = item and self._may_write(place, at)
            close = close and not self._ends(place)
        return leaf, (leaf.open if is_first else leaf.after_item)(item, close)


_NONE = object()
"""Replaces a `json_key`: there is no such member."""


def _loads(text: bytes) -> Any:
    """Return the value of a text, with numbers as they are written."""
    return json.loads(text, parse_float=Decimal)
