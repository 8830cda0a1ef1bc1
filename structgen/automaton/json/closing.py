"""Find the cheapest members that an open object still needs.

`Closing.members` searches for further members that satisfy the required names, the counts and the
rule, or shows that there are none. The rest of the rule directs the search (`FirstStep`): it tries
only members that can settle something, absence first (Davis, Logemann and Loveland 1962), and
caches results. `PlainEnds` serves objects that need only required members: the text for a set of
names joins those of its halves, which other sets share. `SpareKeys` finds short unnamed keys, by
the patterns that they match.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple, TypeAlias

from structgen.automaton.bits import bits
from structgen.automaton.schema import evaluate
from structgen.automaton.schema.member_ways import MemberWays, State
from structgen.automaton.schema.members import MemberTable
from structgen.automaton.schema.rules import Rule
from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded
from structgen.grammar import ir
from structgen.storage import cached_method

from .keys import KeySymbols
from .language import Language

_FEW = 16
"""Up to this many names are one part."""


class PlainEnds:
    """The required members of one member table, as texts."""

    def __init__(self, language: Language, table: MemberTable) -> None:
        self._language = language
        self._table = table
        self._size = _FEW
        while self._size < len(table.names):
            self._size *= 2
        # By the first name, the number of names, and which of them are needed.
        self._known: dict[tuple[int, int, int], Text | None] = {}

    def members(self, owed: int) -> Text | None:
        """Return the members with names in the bit mask ``owed``, in order, each after a comma;
        None if one has no value."""
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
            value = language.shortest(table.conjunctions[first + label])
            if value is None:
                return None
            name = language.scalars.spell(table.names[first + label])
            out = put(put(language.space.comma + name + language.space.colon, value), out)
        return out


_MANY_PARTS = 8
"""From this many parts of a rule on, the relevant parts are selected."""


class FirstStep(NamedTuple):
    """The next goal when a rule has to be made to hold: a fact about a name, or else a part of a
    disjunction.

    Attributes:
        wanted: the fact, or None.
        clause: the disjunction, or None.
        others: the other parts of the rule.
    """

    wanted: Rule | None
    clause: Rule | None = None
    others: tuple[Rule, ...] = ()


MAX_KEY_STATES = 20_000
"""The most states of the automaton that finds keys for required members."""

_SAMPLES = [*"abcdefghijklmnopqrstuvwxyz0123456789_", "$", "a-b", "x-", "@", "name", "id", "key"]


class SpareKeys:
    """The unnamed keys of one member table."""

    def __init__(self, table: MemberTable) -> None:
        self._table = table
        self._keys: list[tuple[str, int]] = []
        self._more: Iterator[tuple[str, int]] = iter(())
        self._most = 0

    def one(self, used: tuple[str, ...], label: int) -> str | None:
        """Return an unnamed key with this label that is not in ``used``; None if there is none."""
        wanted = self._table.matched[label]
        return next((name for name, matched in self.many(used, 1) if matched == wanted), None)

    def many(self, used: tuple[str, ...], number: int) -> Iterator[tuple[str, int]]:
        """Yield unnamed keys not in ``used``, with the patterns they match: that many for each set
        of patterns, or all that exist."""
        most = len(used) + number
        if most > self._most:
            # At most this many texts for each state of their automaton: more would never be used.
            self._most = 2 * most
            self._keys, self._more = [], _spare_keys(self._table, self._most)
        keys, more, at = self._keys, self._more, 0
        taken = frozenset(used)
        while True:
            if at == len(keys):
                following = next(more, None)
                if following is None:
                    return
                keys.append(following)
            if keys[at][0] not in taken:
                yield keys[at]
            at += 1


def _spare_keys(table: MemberTable, most: int) -> Iterator[tuple[str, int]]:
    """Yield unnamed keys: ordinary ones first, then by length, up to ``most`` through each state of
    their automaton."""
    # Rarely written in one token: after a key that closes an object this is computed again.
    given = dict.fromkeys((*_SAMPLES, *(f"k{i}" for i in range(most))))
    for name in given:
        if name not in table.index and table.is_name_allowed(name):
            hits = (bit for regex, bit in table.bits.items() if evaluate.matches(regex, name))
            yield name, sum(hits)
    barred = ir.Complement(ir.Alternate(tuple(map(ir.literal, sorted(table.names)))))
    parts = [barred, *table.must_match]
    symbols = KeySymbols((), list(table.bits), parts, lambda matched: matched, 0)
    start = symbols.menu(0, True)
    seen: dict[int, int] = {}
    queue = deque([] if start is None else [(start, "")])
    while queue:
        state, text = queue.popleft()
        label = symbols.label(state)
        if label >= 0 and text not in given:
            yield text, label
        moves = symbols.moves(state)
        WORK.spend(2 + len(moves) + len(table.bits))
        for mask, to in moves:
            room = most - seen.get(to, 0)
            if room > 0:
                characters = symbols.alphabet.samples(mask, room)
                seen[to] = most - room + len(characters)
                queue += [(to, text + character) for character in characters]
        if len(seen) > MAX_KEY_STATES:
            raise CompileLimitExceeded(
                f"too many patterns distinguish the keys of the object at {table.path}",
                limit=MAX_KEY_STATES,
                actual=len(seen),
            )


Member: TypeAlias = "tuple[int, str, Text]"
Members: TypeAlias = "tuple[Member, ...]"
"""Members to write, as (label of the key, the key, text of the member), by label."""

MAX_SEARCH = 50_000
"""The most steps of one search."""

ENOUGH_SEARCH = 100
"""After this many steps, the search takes the first members found instead of cheaper ones."""

MAX_MEMBERS_OWED = 10_000
"""The most members that settle nothing but are needed for their number."""

_WORK_PER_MEMBER = 100
"""Steps of a mask with a token budget for each such member."""


def check_owed(number: int, path: str) -> None:
    """Check that an object may need that many members that settle nothing.

    Raises:
        CompileLimitExceeded: they are too many.
    """
    most = min(MAX_MEMBERS_OWED, WORK.limits.work // _WORK_PER_MEMBER)
    if number > most:
        more = "" if most == MAX_MEMBERS_OWED else " for max_work"
        raise CompileLimitExceeded(
            f"'minProperties' requires too many members{more} of the object at {path}",
            limit=most,
            actual=number,
        )


class Closing:
    """Completes the objects of one member table.

    Attributes:
        spare: the table's unnamed keys.
    """

    def __init__(self, language: Language, table: MemberTable, ways: MemberWays) -> None:
        self._language = language
        self._book = language.book
        self._ways = ways
        self._table = table
        self._counts = table.counts
        self.spare = SpareKeys(table)
        self._part_names: dict[Rule, int] = {}
        self._needs: dict[Rule, Rule] = {}
        self._plain_ends = PlainEnds(language, table)
        self._known: dict[State, Members | None] = {}
        self._witnesses: dict[State, Members | None] = {}
        self._known_in = (-1, -1)
        self._provisional: tuple[dict[State, Members | None], dict[State, Members | None]]
        self._provisional = ({}, {})
        self._memo = self._known  # of the current search
        self._touched: dict[int, int] = {}
        self._enough = ENOUGH_SEARCH
        self._steps = 0

    def members(self, state: State) -> Members | None:
        """Return the cheapest known members that complete an object, or None."""
        if self._language.values.any_will_do:
            return self.some_members(state)
        return self._search(state, self._known)

    def some_members(self, state: State) -> Members | None:
        """Return any members that complete an object; see `members`.

        Much faster than finding the cheapest members, because the first result is enough.
        """
        before, self._enough = self._enough, 0
        try:
            return self._search(state, self._witnesses)
        finally:
            self._enough = before

    def _value(self, conjunction: int) -> Text | None:
        """Return the shortest value of a member, or any value if the first members are enough."""
        language = self._language
        return (language.shortest if self._enough else language.values.some)(conjunction)

    def plain_end(self, state: State) -> Text | bool | None:
        """Return the members that complete an object, each after a comma, if only required ones are
        needed and nothing else depends on them; None if they do not exist, False in other cases."""
        left, count, rule, _ = state
        table = self._table
        owed = left & table.required
        if (
            self._counts
            or count < table.least
            or rule.support & self._book.counting
            or not self.fits(left, count)
            or not rule.holds_without_facts
        ):
            return False
        touched = self._touched.get(rule.support)
        if touched is None:
            touched = 0
            for label in range(len(table.names)):
                if table.touching(label) & rule.support:
                    touched |= 1 << label
            self._touched[rule.support] = touched
        return False if owed & touched else self._plain_ends.members(owed)

    def _search(self, state: State, found: dict[State, Members | None]) -> Members | None:
        self._steps = 0
        left, count, rule, keys = state
        if not self.fits(left, count):
            return None
        table = self._table
        plain: list[Member] = []
        for label in bits(left & table.required):
            if table.touching(label) & rule.support:
                continue
            value = self._value(table.conjunctions[label])
            if value is None:
                return None
            plain.append(self._member(label, table.names[label], value))
            left ^= 1 << label
        if self._counts and plain:
            count = min(count + len(plain), table.count_to)
            rule = table.counted(rule, count)
        is_settled = rule.holds_without_facts and not left & table.required
        if is_settled and count >= table.least and not rule.support & self._book.counting:
            return _merged(plain)
        before, self._memo = self._memo, found
        if self._language.values.is_solving:
            # Results hold until more is known about some value.
            if self._known_in != self._language.values.provisional:
                self._known_in, self._provisional = self._language.values.provisional, ({}, {})
            self._memo = self._provisional[found is self._witnesses]
        try:
            rest = self._solve((left, count, rule, keys))
        finally:
            self._memo = before
        return None if rest is None else _merged((*plain, *rest))

    def fits(self, left: int, count: int) -> bool:
        """Return whether the required names among ``left`` fit under ``maxProperties``."""
        most = self._table.most
        return most is None or count + (left & self._table.required).bit_count() <= most

    def _solve(self, state: State) -> Members | None:
        left, count, rule, keys = state
        known = self._memo
        # Members that each become necessary after the previous ones: a chain needs no recursion.
        chain: list[tuple[State, Member]] = []
        while True:
            if rule is self._book.no:
                found: Members | None = None
                break
            if not left & self._table.required:
                rule = self._needed(rule)
            key = self._key((left, count, rule, keys))
            if key in known:
                found = known[key]
                break
            step = self._only_step(left, count, rule)
            if step is None:
                found = known[key] = self._solve_uncached((left, count, rule, keys))
                break
            member, count, rule = step
            left &= ~(1 << member[0])
            chain.append((key, member))
        for key, member in reversed(chain):
            found = known[key] = None if found is None else _merged((member, *found))
        return found

    def _needed(self, rule: Rule) -> Rule:
        """Return ``rule`` without parts that already hold and share no names, even indirectly, with
        the rest.

        The search needs no members for these parts, and no member that it adds can break them.
        """
        table = self._table
        if rule.kind != "all" or rule.size < _MANY_PARTS or table.counts or table.speaks_of_unnamed:
            return rule
        found = self._needs.get(rule)
        if found is None:
            names = self._part_names
            mask = 0
            rest: list[tuple[int, Rule]] = []
            for part in rule.parts:
                labels = names.get(part)
                if labels is None:
                    labels = names[part] = table.labels_of(part)
                if part.holds_without_facts:
                    rest.append((labels, part))
                else:
                    mask |= labels
            while True:
                spare: list[tuple[int, Rule]] = []
                for labels, part in rest:
                    if labels & mask:
                        mask |= labels
                    else:
                        spare.append((labels, part))
                if len(spare) == len(rest):
                    break
                rest = spare[::-1]  # backwards: chains are mostly in order
            kept = set(rule.parts).difference([part for _, part in spare])
            found = self._needs[rule] = self._book.part_of(rule, kept)
        return found

    @cached_method
    def _first_step(self, rule: Rule) -> FirstStep:
        """Return where to begin with ``rule``."""
        parts = rule.parts if rule.kind == "all" else (rule,)
        named = (p for p in parts if p.kind == "some" and p.detail[0].name is not None)
        wanted = next(named, None)
        choices = [p for p in parts if p.is_choice]
        clause = None if wanted else min(choices, key=lambda part: part.size, default=None)
        others = tuple([part for part in parts if part is not clause])
        return FirstStep(wanted, clause, others)

    def _key(self, state: State) -> State:
        """Return the key of a cached result."""
        left, count, rule, keys = state
        table = self._table
        if count < table.least or rule.support & self._book.counting:
            return state
        return left & (table.labels_of(rule) | table.required), count, rule, keys

    def _only_step(self, left: int, count: int, rule: Rule) -> tuple[Member, int, Rule] | None:
        """Return the member that is needed in any case, with the count and the rule after it.

        None if there is no such member, or more than one way of it.
        """
        table = self._table
        if left & table.required or count < table.least or self._counts:
            return None
        wanted = self._first_step(rule).wanted
        if wanted is None or rule.holds_without_facts:
            return None
        label = table.index[wanted.detail[0].name]
        if not left >> label & 1:
            return None
        ways = self._ways.ways(rule, label)
        if len(ways) != 1:
            return None
        ((conjunction, after),) = ways
        value = self._value(conjunction)
        if value is None:
            return None
        self._count_step()
        return self._member(label, table.names[label], value), count, after

    def _count_step(self) -> None:
        self._steps += 1
        WORK.spend(5)
        if self._steps > MAX_SEARCH:
            raise CompileLimitExceeded(
                "there are too many ways to choose the members of the object at "
                f"{self._table.path}",
                limit=MAX_SEARCH,
                actual=self._steps,
            )

    def _solve_uncached(self, state: State) -> Members | None:
        left, count, rule, keys = state
        table = self._table
        self._count_step()
        short = count < table.least or bool(rule.support & self._book.counting)
        missing = left & table.required
        relevant = left & table.labels_of(rule) | missing
        best: Members | None = None
        if missing:
            if self.fits(left, count):
                label = (missing & -missing).bit_length() - 1
                best = self._take(label, None, state)
        else:
            best = self._fill((left & ~relevant, count, rule, keys)) if short else None
            if not short and rule.holds_without_facts:
                best = ()
            if best is None and (table.most is None or count < table.most):
                best = self._settle(relevant, state)
        return best

    def _settle(self, relevant: int, state: State) -> Members | None:
        """Return members that make ``rule`` hold, if some are needed."""
        left, count, rule, keys = state
        table = self._table
        step = self._first_step(rule)
        if step.wanted is not None:
            label = table.index[step.wanted.detail[0].name]
            if not relevant >> label & 1:
                return None
            return self._take(label, None, state)
        best: Members | None = None
        if step.clause is not None:
            for part in step.clause.parts:
                way = self._book.chosen(step.clause, part, step.others)
                best = _cheaper(best, self._solve((left, count, way, keys)))
                if best is not None and (not best or self._steps > self._enough):
                    break
            return best
        if relevant:
            label = self._next(relevant, rule)
            bit = 1 << label
            best = self._solve((left & ~bit, count, table.without(rule, bit), keys))
            if best is None or (best and self._steps < self._enough):
                taken = self._take(label, None, state)
                best = _cheaper(best, taken)
            return best
        return self._unnamed(state)

    def _next(self, relevant: int, rule: Rule) -> int:
        """Return the name to decide on: the first that the rule mentions, if any."""
        for fact in self._book.facts_of(rule):
            if fact.kind == "some" and fact.detail[0].name is not None:
                label = self._table.index[fact.detail[0].name]
                if relevant >> label & 1:
                    return label
        return (relevant & -relevant).bit_length() - 1

    def _take(self, label: int, name: str | None, state: State) -> Members | None:
        """Return a member with key ``label`` plus the rest."""
        left, count, rule, keys = state
        table = self._table
        if name is None:
            left &= ~(1 << label)
        else:
            keys = tuple(sorted({*keys, name}))
        if self._counts:
            count = min(count + 1, table.count_to)
        best: Members | None = None
        for conjunction, after in self._ways.ways(rule, label):
            if name is not None and after is rule:
                continue  # such a member would settle nothing
            value = self._value(conjunction)
            if value is None:
                continue
            rest = self._solve((left, count, table.counted(after, count), keys))
            if rest is not None:
                key = name if name is not None else table.names[label]
                best = _cheaper(best, _merged((self._member(label, key, value), *rest)))
                if self._steps > self._enough:
                    break
        return best

    def _member(self, label: int, name: str, value: Text) -> Member:
        begin = self._language.scalars.spell(name) + self._language.space.colon
        return label, name, put(begin, value)

    def _fill(self, state: State) -> Members | None:
        """Return members that settle only their number, if nothing else is needed."""
        left, count, rule, keys = state
        table, book = self._table, self._book
        steps = {max(count, table.least)}
        steps.update(f.detail for f in book.facts_of(rule) if f.kind == "least")
        for target in sorted(steps):
            if target < max(count, table.least) or (table.most is not None and target > table.most):
                continue
            if not table.counted(rule, target).holds_without_facts:
                continue
            found = self._any_members(target - count, left, rule, keys)
            if found is not None:
                return found
        return None

    def _any_members(
        self, number: int, left: int, rule: Rule, keys: tuple[str, ...]
    ) -> Members | None:
        """Return the cheapest ``number`` members that settle nothing."""
        if not number:
            return ()
        table = self._table
        check_owed(number, table.path)
        WORK.spend(number + left.bit_count())
        out: list[Member] = []
        for label in bits(left):
            value = self._value(table.conjunctions[label])
            if value is not None:
                out.append(self._member(label, table.names[label], value))

        @cache
        def value_after(matched: int) -> Text | None:
            label = table.label_of(matched)
            settles = table.touching(label) & rule.support
            return None if settles else self._value(table.conjunctions[label])

        unnamed = 0
        for name, matched in self.spare.many(keys, number):
            value = value_after(matched)
            if value is not None:
                label = table.label_of(matched)
                out.append(self._member(label, name, value))
                unnamed += 1
                if unnamed == number:
                    break
        out.sort(key=lambda member: len(member[2]))
        return _merged(out[:number]) if len(out) >= number else None

    def _unnamed(self, state: State) -> Members | None:
        """Return another unnamed member that settles something."""
        _, _, rule, keys = state
        table = self._table
        if not any(f.kind == "some" for f in self._book.facts_of(rule)):
            return None
        looked_at: set[int] = set()
        for name, matched in self.spare.many(keys, 1):
            if matched in looked_at:
                continue
            looked_at.add(matched)
            label = table.label_of(matched)
            if table.touching(label) & rule.support:
                found = self._take(label, name, state)
                if found is not None:
                    return found
            if len(looked_at) == 1 << len(table.bits):
                break  # a key cannot match any other set of patterns
        return None


def _merged(members: Iterable[Member]) -> Members:
    return tuple(sorted(members, key=lambda member: member[0]))


def _cheaper(a: Members | None, b: Members | None) -> Members | None:
    if a is None or b is None:
        return b if a is None else a
    return a if _cost(a) <= _cost(b) else b


def _cost(members: Members) -> int:
    """Return the number of bytes that ``members`` take, separators included."""
    return sum(len(text) + 1 for _, _, text in members)
