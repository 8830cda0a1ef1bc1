"""JSON objects: the frame of one open object.

An `ObjectPlan` follows one object to which the object assertions of several schema nodes apply. Its
state has what matters about the members so far: the names still allowed, the number of members, and
the rest of the rule about all of them (`rules`). The state determines which keys may come next (a
`KeyLeaf` menu) and whether ``}`` may.

Most objects need only a bit mask of names. For the others, `OpenMembers` computes the state after a
member, and which members avoid dead ends. If members are counted or there is a rule, it checks for
each continuation that the object can still be closed (`closing`). A known completion answers most
of these checks: it may begin with any of its members. `MemberWays` computes the rule after one more
member.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Any

from structgen.automaton.bits import bits
from structgen.automaton.core.frames import POP, Alternative, Frame
from structgen.automaton.schema import evaluate
from structgen.automaton.schema.member_ways import MemberWays, State
from structgen.automaton.schema.members import MemberTable
from structgen.automaton.schema.rules import Rule
from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK
from structgen.storage import Numbers

from .closing import Closing, Members
from .keys import KeyLeaf, KeySymbols
from .language import MAX_LISTED, Language, ending, whole
from .scalars import key_leaf
from .whitespace import CLOSE

_MANY_ALTERNATIVES = 8
"""From this many alternatives on, try a few that mention a key before all are considered."""

_FEW_TRIED = 3
"""The number of alternatives tried first."""


class OpenMembers(Closing):
    """The members with which an object may continue such that it can still be closed."""

    def __init__(self, language: Language, table: MemberTable, ways: MemberWays) -> None:
        super().__init__(language, table, ways)
        self._n_names = len(table.names)
        self._in_order = ways.in_order
        self._owed: dict[State, Members | None] = {}
        self._closable: dict[State, bool] = {}
        self._open: dict[tuple[State, int], bool] = {}
        # Bit masks of names: those in a known completion of the object, and those with which it may
        # begin.
        self._completing: dict[State, int] = {}
        self._first_names: dict[State, int] = {}
        # The label from which on no key may come, because names before it would stay absent.
        self._barred_from: dict[State, int] = {}
        # By choice, for each fact the indexes of the first few alternatives that mention it.
        self._speaking: dict[Rule, dict[int, list[int]]] = {}
        # The choice with the most alternatives in a rule, if these are many.
        self._widest: dict[Rule, Rule | None] = {}
        # A rule with one part of its widest disjunction instead of the disjunction.
        self._alone: dict[tuple[Rule, Rule], Rule] = {}

    def open_ways(self, state: State, label: int, name: str | None) -> list[tuple[int, State]]:
        """Return the ways of a member that do not lead into a dead end, if some ways may."""
        return [
            (conjunction, after)
            for conjunction, after in self._ways.steps(state, label, name)
            if self.may_close(after) and self._language.values.is_possible(conjunction)
        ]

    def may_write(self, state: State, label: int) -> bool:
        """Return whether a member with key ``label`` may come next."""
        key = (state, label)
        found = self._open.get(key)
        if found is None:
            found = label < self._barred_from.get(state, label + 1) and (
                # A known completion has such a member, and may be written in another order. So a
                # chain of members that need one another is followed only once.
                (label < self._n_names and self._first_names.get(state, 0) >> label & 1 != 0)
                or self._may_write_surely(state, label)
                or self._leads_on(state, label)
            )
            if not self._language.values.is_solving:
                self._open[key] = found
        return found

    def _may_write_surely(self, state: State, label: int) -> bool:
        """Return True if one of many open alternatives surely allows it; a quick `_may_write`.

        Looks first at alternatives that mention the key. It does not split the value's cases for
        all alternatives, nor compute what remains of them without the names before the key; that is
        done when the key is written.
        """
        left, count, rule, keys = state
        if label >= self._n_names or rule.is_fact:
            return False
        book = self._language.book
        if rule in self._widest:
            clause = self._widest[rule]
        else:
            parts = rule.parts if rule.kind == "all" else (rule,)
            clauses = [p for p in parts if p.is_choice and p.size >= _MANY_ALTERNATIVES]
            clause = max(clauses, key=lambda part: part.size, default=None)
            self._widest[rule] = clause
        if clause is None:
            return False
        others = [part for part in rule.parts if part is not clause] if rule.kind == "all" else []
        named = book.by_name.get(self._table.names[label], 0)
        speaking = self._speaking_of(clause, named & clause.support)
        for part in dict.fromkeys((*speaking, *clause.parts[:_FEW_TRIED])):
            alone = self._alone.get((part, rule))
            if alone is None:
                alone = self._alone[part, rule] = book.chosen(clause, part, others)
            if alone is not book.no and self.may_write((left, count, alone, keys), label):
                return True
        return False

    def _speaking_of(self, clause: Rule, facts: int) -> list[Rule]:
        """Return the first few alternatives of ``clause`` that mention any of ``facts``."""
        places = self._speaking.get(clause)
        if places is None:
            places = self._speaking[clause] = {}
            for place, part in enumerate(clause.parts):
                WORK.spend(1 + (part.support.bit_count() >> 2))
                for fact in bits(part.support):
                    first = places.setdefault(fact, [])
                    if len(first) < _FEW_TRIED:
                        first.append(place)
        found = {place for fact in bits(facts) for place in places.get(fact, ())}
        return [clause.parts[place] for place in sorted(found)[:_FEW_TRIED]]

    def _leads_on(self, state: State, label: int) -> bool:
        """Return whether a member with key ``label`` may come next, by the states after it."""
        if self._in_order and self._ways.rule_before(state, label) is self._language.book.no:
            # Names that must come first stay absent before all later keys, too.
            self._barred_from[state] = min(label, self._barred_from.get(state, label))
            return False
        name = self._example(state, label) if label >= self._n_names else None
        for conjunction, after in self._ways.steps(state, label, name):
            if self.may_close(after) and self._language.values.is_possible(conjunction):
                if name is None and label < self._n_names:
                    self._note_completion(state, self._completing.get(after, 0) | 1 << label)
                return True
        return False

    def _example(self, state: State, label: int) -> str | None:
        """Return an unnamed key for this label, if its use matters because too few keys may be
        left.

        Any key of its class will do: each leaves the same number of keys of each class.
        """
        table = self._table
        if table.takes_any_key:
            return None
        after = [state for _, state in self._ways.steps(state, label, None)]
        must_be_distinct = self._ways.must_be_distinct
        if not any(must_be_distinct(count, rule, ("",)) for _, count, rule, _ in after):
            return None
        return self.spare.one(state[3], label)

    def may_close(self, state: State) -> bool:
        """Return whether members exist that complete the object after ``state``."""
        found = self._closable.get(state)
        if found is None:
            owed = self.some_members(state)
            found = owed is not None
            if not self._language.values.is_solving:
                self._closable[state] = found
                if owed:
                    names = 0
                    for label, *_ in owed:
                        names |= 1 << label
                    names &= (1 << self._n_names) - 1
                    self._completing[state] = names
                    self._note_completion(state, names)
        return found

    def owed(self, state: State) -> Members | None:
        """Return the cheapest members needed after ``state``; None if it cannot be closed."""
        found = self._owed.get(state, False)
        if found is False:
            found = self.members(state)
            if not self._language.values.is_solving:
                self._owed[state] = found
        return found  # type: ignore[return-value]

    def _note_completion(self, state: State, names: int) -> None:
        """Note that members with ``names`` (bit mask), and perhaps unnamed ones, complete an object
        after ``state``."""
        if self._language.values.is_solving:
            return
        first = names & self._table.ordered if self._in_order else 0
        first = first & -first if first else names
        self._first_names[state] = self._first_names.get(state, 0) | first


class ObjectPlan(Frame):
    """The frame of an object to which the object assertions of several nodes apply.

    Machine states are ``2 * i`` while punctuation and a key are written, ``2 * i + 1`` during the
    member's value, for the i-th interned `State`; or, if states differ in nothing else, for the
    mask of names still allowed.
    """

    nests = True

    def __init__(self, language: Language, nodes: tuple[int, ...]) -> None:
        self._language = language
        self._numbers = nodes
        self.limit = language.limit_below(nodes)
        self._in_order = language.options.property_order == "schema"
        self._table = table = MemberTable(language, nodes)
        if table.rule.support:
            table.spread(self._values.spread)
        self.names = table.names
        self._n_names = len(table.names)
        # Whether an unnamed key may be allowed in one state and not in another.
        self._by_state = table.speaks_of_unnamed
        # Whether states differ in more than the names still allowed.
        self._is_involved = self.may_record = table.is_involved
        self._numbered: Numbers[State] = Numbers()
        self._states = self._numbered.listed
        self._leaves: dict[object, KeyLeaf] = {}
        self._rests: dict[State, tuple[Text, tuple[str, ...]]] = {}

    # Rarely needed by plain objects, and never by the first mask.

    _unnamed: bool | None = None

    @cached_property
    def _values(self) -> MemberWays:
        return MemberWays(self._language, self._table, self._in_order)

    @cached_property
    def _open(self) -> OpenMembers:
        return OpenMembers(self._language, self._table, self._values)

    # -- states -----------------------------------------------------------------------------

    def _state_at(self, at: int) -> State:
        if self._is_involved:
            return self._states[at >> 1]
        return at >> 1, 0, self._table.rule, ()

    def _number(self, state: State) -> int:
        return self._numbered[state] if self._is_involved else state[0]

    # -- keys -------------------------------------------------------------------------------

    def _class_of(self, matched: int) -> int:
        """Return the class of an unnamed key, from 0; -1 if no value is possible."""
        label = self._table.label_of(matched)
        possible = self._language.values.is_possible(self._table.conjunctions[label])
        return label - self._n_names if possible else -1

    def _may_be_unnamed(self) -> bool:
        """Return whether an unnamed key that matches no pattern can have a value."""
        found = self._unnamed
        if found is None:
            conjunction = self._table.conjunctions[self._table.label_of(0)]
            language = self._language
            found = conjunction in language.values.typed or language.values.is_possible(conjunction)
            if not language.values.is_solving:
                self._unnamed = found
        return found

    def class_in(self, state: State, matched: int) -> int:
        """Like `_class_of`, but -1 also if the object could not be closed after ``state``."""
        found = self._class_of(matched)
        if found >= 0 and not self._open.may_write(state, len(self.names) + found):
            return -1
        return found

    def _leaf(self, state: State) -> KeyLeaf:
        """Return the leaf for keys: the same for all states that allow the same unnamed keys."""
        key: object = None
        if self._by_state:
            key = state if self._table.bits else (self.class_in(state, 0), state[3])
        leaf = self._leaves.get(key)
        if leaf is None:
            leaf = self._leaves[key] = self._new_leaf(state)
        return leaf

    def _new_leaf(self, state: State) -> KeyLeaf:
        table, language = self._table, self._language
        how = language.space, language.options.named, language.missing
        if not (self._by_state or table.bits or table.must_match):
            return key_leaf(tuple(self.names), *how)
        plan = weakref.ref(self)  # it holds its leaves; a reference back would make a cycle

        def classify(matched: int) -> int:
            self = plan()
            assert self is not None, "frames outlive the leaves above them"
            if self._by_state:
                return self.class_in(state, matched)
            return self._class_of(matched)

        names = self.names + [k for k in state[3] if k not in self.names]
        symbols = KeySymbols(names, list(table.bits), table.must_match, classify, self._n_names)
        return KeyLeaf(symbols, *how)

    def _menu(self, state: State, leaf: KeyLeaf) -> tuple[int | None, bool]:
        """Return the keys that may come next, as a menu of the key symbols of ``leaf``, and whether
        ``}`` may. ``leaf`` is the leaf for keys."""
        allowed, others, may_close = self._choices(state)
        if not allowed and not others:
            return None, may_close
        return leaf.symbols.menu(allowed, others), may_close

    def _choices(self, state: State) -> tuple[int, bool, bool]:
        """Return the names that may come next, as a bit mask; whether other keys may; whether ``}``
        may."""
        left, count, rule, _ = state
        table = self._table
        missing = left & table.required
        may_close = not missing
        if self._is_involved:
            may_close &= count >= table.least and rule.holds_without_facts
        allowed = left
        first = missing & table.ordered if self._in_order else 0
        others = not first
        if table.most is not None and count + missing.bit_count() >= table.most:
            allowed, others = missing, False
        if first:
            # No name after the first required one may come before it.
            allowed &= ((first & -first) << 1) - 1
        if self._is_involved:
            for label in bits(allowed):
                if not self._open.may_write(state, label):
                    allowed ^= 1 << label
            if others and not self._by_state:
                after = self._values.after(state, self._n_names, rule, None)
                others = self._open.may_close(after)
        if others and not table.bits:
            others = self._may_be_unnamed()
        return allowed, others, may_close

    # -- what tells a plain object from others (`apart`) ------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether a bit mask of names is enough to describe a state."""
        table = self._table
        return table.takes_any_key and not self._is_involved and table.rule.kind == "all"

    @property
    def is_open(self) -> bool:
        """Whether a plain object may have any keys besides its named ones."""
        return self._may_be_unnamed()

    @property
    def first(self) -> int:
        """The names with possible values; the places of a plain object are such bit masks."""
        return self._table.possible_names()

    @property
    def key_leaf(self) -> KeyLeaf:
        """The leaf for the keys of a plain object."""
        return self._leaf((0, 0, self._table.rule, ()))

    def choices(self, left: int) -> tuple[Iterable[int], bool, bool]:
        """Return the names that may follow in a plain object, whether others may, and whether ``}``
        may."""
        allowed, _, may_close = self.keys_after(left)
        return bits(allowed), self.is_open, may_close

    def keys_after(self, left: int) -> tuple[int, bool, bool]:
        """Return `_choices` of a plain object for the names still allowed."""
        return self._choices((left, 0, self._table.rule, ()))

    def after(self, left: int, label: int) -> int:
        """Return the names still allowed after a member."""
        return self._values.left_after(left, label)

    def owed(self, label: int) -> int:
        """Return the conjunction for the value of a plain object's member."""
        return self._table.conjunctions[label]

    def ended(self, left: int) -> int:
        """Return the frame's state after a plain object's member."""
        return 2 * left + 1

    def holds(self, value: Any) -> bool:
        """Return whether ``value`` is such an object."""
        return isinstance(value, dict) and all(
            evaluate.holds(self._language.nodes, 2 * n, value) for n in self._numbers
        )

    def size_at_least(self, size: int) -> bool:
        """Return True if a cheap test shows that there are ``size`` such objects."""
        if not self.is_plain or not self.is_possible():
            return False
        values = self._language.values
        return self.is_open or any(
            values.size_at_least(self.owed(label), size) for label in bits(self.first)
        )

    def bytes_of_many(self, count: int, depth: int) -> int | None:
        """Return such a length, if one of the first members has so many values; see `Apart`."""
        if not self.is_plain or not self.is_possible():
            return None
        language = self._language
        sizes: list[int] = []
        for label in self.choices(self.first)[0]:
            size = language.values.bytes_of_many(self.owed(label), count, depth)
            rest = self.finish(self.ended(self.after(self.first, label)), 0)
            if size is not None and rest is not None:
                begin = language.scalars.spell(self.names[label]) + language.space.colon
                sizes.append(len(b"{" + language.space.first + begin) + size + len(rest))
        return min(sizes, default=None)

    # -- the frame --------------------------------------------------------------------------

    def children(self) -> list[int]:
        """Return the conjunctions that may apply to members, as far as they can be foreseen."""
        table = self._table
        for matched in (0, *table.bits.values()):
            table.label_of(matched)
        out = list(table.conjunctions)
        for label in range(len(out)):
            if table.asks_of_values(label) and not self._values.are_few(table.rule, label):
                out += [conjunction for conjunction, _ in self._values.ways(table.rule, label)]
        return out

    def required_children(self) -> list[int]:
        """Return conjunctions such that every object has a member for each."""
        return [conjunction for _, conjunction in self.required_members()]

    def required_members(self) -> list[tuple[str, int]]:
        """Return the required names, and the conjunctions for their values."""
        return self._table.required_members()

    @property
    def path(self) -> str:
        """The object's place in the schema, for messages."""
        return self._table.path

    def is_possible(self) -> bool:
        """Return whether any object satisfies the nodes."""
        table = self._table
        if not self._is_involved:
            return table.rule.kind == "all" and not table.required & ~table.possible_names()
        return self._open.may_close(((1 << self._n_names) - 1, 0, table.rule, ()))

    def open(self) -> Alternative:
        """Return the alternatives with which such an object may start."""
        table = self._table
        possible, rule = table.possible_names(), table.rule
        if self._is_involved:
            rule = table.without(rule, ((1 << self._n_names) - 1) & ~possible)
        state = possible, 0, rule, ()
        leaf = self._leaf(state)
        return Alternative(
            leaf, leaf.open(*self._menu(state, leaf)), ((self, 2 * self._number(state)),)
        )

    def records(self, at: int, outcome: int) -> bool:
        """Return whether `resume` needs the text of the key that has just been written."""
        if at & 1 or not self._is_involved or outcome <= self._n_names:
            return False
        _, count, rule, keys = self._state_at(at)
        return self._values.must_be_distinct(count, rule, keys)

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """Return what may follow; see `frames.Frame`."""
        state = self._state_at(at)
        if at & 1:
            leaf = self._leaf(state)
            menu, may_close = self._menu(state, leaf)
            return (Alternative(leaf, leaf.after_value(menu, may_close), ((self, at - 1),)),)
        if outcome == CLOSE:
            return POP
        ways: Iterable[tuple[int, int]]
        if not self._is_involved:
            ways = ((self._table.conjunctions[outcome - 1], self.after(at >> 1, outcome - 1)),)
        else:
            name = None if text is None else json.loads(text)
            ways = [(c, self._number(s)) for c, s in self._open.open_ways(state, outcome - 1, name)]
        out: list[Alternative] = []
        for conjunction, after in ways:
            own = self, 2 * after + 1
            for way in self._language.alternatives(conjunction, limited):
                out += (Alternative(way.leaf, way.q, (*way.frames, own)),)
        return tuple(out)

    # -- completion -------------------------------------------------------------------------

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """Return the fewest bytes that close the object; see `frames.Frame`."""
        state = self._state_at(at)
        if at & 1:
            return self._close(self._open.owed(state), False)
        if outcome == CLOSE:
            return b""
        otherwise, special = self._finish_named(state, outcome, None)
        if text is None:
            return otherwise
        name = json.loads(text)
        if otherwise is not None and name not in special:
            return otherwise
        return self._finish_named(state, outcome, name)[0]

    def _finish_named(
        self, state: State, outcome: int, name: str | None
    ) -> tuple[Text | None, Collection[str]]:
        """Return the fewest bytes after the key ``name`` (None: a key that no other member has),
        and the unnamed keys in these bytes."""
        best: Text | None = None
        keys: Collection[str] = ()
        for conjunction, after in self._values.steps(state, outcome - 1, name):
            WORK.spend(3)
            rest = self._rest(after)
            value = None if rest is None else self._language.shortest(conjunction)
            if rest is None or value is None:
                continue
            text, unnamed = rest
            if best is None or len(value) + len(text) < len(best):
                best, keys = put(value, text), unnamed
        return best, keys

    def _rest(self, state: State) -> tuple[Text, tuple[str, ...]] | None:
        """Return the cheapest end of the object after ``state``, and the unnamed keys in it; None
        if there is no end."""
        found = self._rests.get(state)
        if found is None:
            if not self._language.values.is_solving:
                plain = self._open.plain_end(state)
                if plain is None:
                    return None
                if not isinstance(plain, bool):
                    end = self._language.space.last + b"}"
                    WORK.hold(300)
                    found = self._rests[state] = put(plain, end), ()
                    return found
            members = self._open.owed(state)
            text = self._close(members, False)
            if members is None or text is None:
                return None
            unnamed = tuple([name for label, name, _ in members if label >= self._n_names])
            found = text, unnamed
            if not self._language.values.is_solving:
                WORK.hold(300 + 8 * len(unnamed))
                self._rests[state] = found
        return found

    def finish_reads(self, at: int, outcome: int) -> bool:
        """See `frames.Frame`."""
        return True

    def finish_otherwise(self, at: int, outcome: int) -> tuple[Text, Collection[str]] | None:
        """See `frames.Frame`."""
        rest, special = self._finish_named(self._state_at(at), outcome, None)
        return None if rest is None else (rest, special)

    def finish_most(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`."""
        state = self._state_at(at)
        rest, special = self._finish_named(state, outcome, None)
        if rest is None or len(special) > MAX_LISTED:
            return None
        after = [self._finish_named(state, outcome, name)[0] for name in special]
        return max([len(rest), *[len(way) for way in after if way is not None]])

    def preferred(self, at: int) -> int | None:
        """Return the outcome that `finish` assumes; see `frames.Frame`."""
        if at & 1:
            return None
        members = self._open.owed(self._state_at(at))
        return 1 + members[0][0] if members else CLOSE

    def shortest_text(self) -> Text | None:
        """Return the shortest whole object, or None if there is none (or none known yet)."""
        everything = (1 << self._n_names) - 1
        rest = self._close(self._open.owed((everything, 0, self._table.rule, ())), True)
        return whole(self._language, b"{", rest)

    def _close(self, members: Members | None, first: bool) -> Text | None:
        texts = None if members is None else [text for *_, text in members]
        return ending(self._language, texts, first, b"}")
