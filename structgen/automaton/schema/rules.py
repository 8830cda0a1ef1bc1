"""Boolean rules over facts about an object's members.

The facts are "some member whose key is in this set has a value that meets this requirement" and
"there are at least k members". ``required``, ``dependentRequired``, ``oneOf`` over objects, ``not``
and ``if`` all become rules over them. As branches they would multiply, and every branch would be
followed through the whole object. As one rule, of which each member settles some facts, they are
one small state. A `RuleBook` interns rules: equal rules are the same object, and the rest of a rule
is itself a state. Knows no schemas or texts: `rule_reader` turns requirements into rules, `objects`
follows them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from structgen.automaton.bits import bits
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded
from structgen.grammar.json_schema import FALSE, TRUE, Keys

MAX_RULES = 500_000
"""The most rules of one schema."""

MAX_PROPAGATION = 4_000
"""The most parts that are searched for facts already settled, when rules are joined."""


_MANY_SETTINGS = 32
"""From this many settings and parts of a rule on, an index finds the parts that differ."""


class Rule:
    """An interned rule; compare by identity. Only a `RuleBook` makes rules.

    Half of a book's rules are unused opposites, so the parts of an ``"any"`` are made on first use.

    Attributes:
        kind: ``"some"`` and ``"least"`` for facts, ``"none"`` and ``"fewer"`` for their
            opposites, ``"all"`` and ``"any"``, ``"count"``.
        parts: its parts.
        detail: ``(keys, requirement)`` of a ``"some"``, the number of a ``"least"``; of a
            ``"count"``, the bit mask of the numbers of parts that may hold.
        negated: the opposite rule.
        support: bit mask of the numbers of the facts that it depends on.
        asked: bit masks of the facts that an ``"all"`` itself requires to hold, and not to hold.
    """

    __slots__ = (
        "_without_facts",
        "asked",
        "detail",
        "kind",
        "negated",
        "parts",
        "serial",
        "support",
    )

    parts: tuple[Rule, ...]

    def __init__(
        self, kind: str, parts: tuple[Rule, ...] | None, detail: Any, support: int, serial: int
    ) -> None:
        self.kind = kind
        if parts is not None:
            self.parts = parts
        self.detail = detail
        self.support = support
        self.serial = serial
        self.negated = self
        self._without_facts: bool | None = None
        self.asked = (0, 0)

    def __getattr__(self, name: str) -> Any:
        if name != "parts":
            raise AttributeError(name)
        opposite = [part.negated for part in self.negated.parts]
        self.parts = tuple(sorted(opposite, key=lambda part: part.serial))
        return self.parts

    @property
    def is_fact(self) -> bool:
        """Whether it is a fact or its opposite."""
        return self.kind in _FACTS

    @property
    def is_choice(self) -> bool:
        """Whether it is a choice: it holds if one of its parts does, for an "exactly one" without
        the others."""
        return self.kind == "any" or (self.kind == "count" and self.detail == 2)

    @property
    def size(self) -> int:
        """The number of its parts."""
        return len(self.negated.parts if self.kind == "any" else self.parts)

    @property
    def holds_without_facts(self) -> bool:
        """Whether it holds when none of its facts does."""
        found = self._without_facts
        if found is None:
            if self.kind in ("some", "least"):
                found = False
            elif self.kind in ("none", "fewer"):
                found = True
            elif self.kind == "all":
                found = all(part.holds_without_facts for part in self.parts)
            elif self.kind == "any":
                found = not self.negated.holds_without_facts
            else:
                holding = sum(part.holds_without_facts for part in self.parts)
                found = bool(self.detail >> holding & 1)
            self._without_facts = found
        return found

    @property
    def single(self) -> tuple[int, int]:
        """Bit masks of the facts that must hold, and must not hold, in any case."""
        if self.kind == "all":
            return self.asked
        if self.kind in ("some", "least"):
            return self.support, 0
        return (0, self.support) if self.kind in ("none", "fewer") else (0, 0)

    @property
    def is_never(self) -> bool:
        """Whether this is the rule that never holds."""
        return self is _NO


_FACTS = frozenset(("some", "least", "none", "fewer"))

_RELEASED = Rule("", (), None, 0, -1)
"""The opposite of rules whose book was released."""

_YES, _NO = Rule("all", (), None, 0, 0), Rule("any", (), None, 0, 1)
_YES.negated, _NO.negated = _NO, _YES
_OPPOSITE = {"some": "none", "least": "fewer", "all": "any", "count": "count"}


class RuleBook:
    """All rules of one schema.

    Attributes:
        yes, no: the rules that always and never hold; all books share them.
        facts: the facts by number; bit i of a rule's ``support`` stands for ``facts[i]``.
        counting: bit mask of the facts about the number of members.
        presence: bit mask of the facts that only require a key, with any value.
        by_name: for each name, the bit mask of the facts about that one key.
    """

    yes, no = _YES, _NO

    def __init__(self) -> None:
        self._rules: dict[tuple[Any, ...], Rule] = {}
        self._joint: dict[tuple[Rule, ...], Rule] = {}  # the rules of kind "all", by their parts
        self._serial = 2
        self.facts: list[Rule] = []
        self.counting = 0
        self.presence = 0
        self.by_name: dict[str, int] = {}

    def release(self) -> None:
        """Drop all rules, because each and its opposite refer to each other."""
        for rules in (self._rules, self._joint):
            for rule in rules.values():
                rule.negated = _RELEASED
            rules.clear()

    # -- making rules -----------------------------------------------------------------------

    def some(self, keys: Keys, requirement: int) -> Rule:
        """Return the rule that some member with one of ``keys`` meets ``requirement``."""
        if requirement == FALSE:
            return self.no
        found = self._rules.get(("some", keys, requirement))
        if found is None:
            bit = 1 << len(self.facts)
            found = self._pair("some", (), (keys, requirement), bit)
            self._rules["some", keys, requirement] = found
            self.facts.append(found)
            if requirement == TRUE:
                self.presence |= bit
            if keys.name is not None:
                self.by_name[keys.name] = self.by_name.get(keys.name, 0) | bit
        return found

    def has(self, name: str) -> Rule:
        """Return the rule that there is a member called ``name``."""
        return self.some(Keys(name=name), TRUE)

    def least(self, count: int) -> Rule:
        """Return the rule that there are at least ``count`` members."""
        if count <= 0:
            return self.yes
        found = self._rules.get(("least", count))
        if found is None:
            bit = 1 << len(self.facts)
            found = self._rules["least", count] = self._pair("least", (), count, bit)
            self.facts.append(found)
            self.counting |= bit
        return found

    def all(self, parts: Iterable[Rule]) -> Rule:
        """Return the rule that all ``parts`` hold."""
        flat: dict[Rule, None] = {}
        todo = list(parts)
        work = 0
        while True:
            for part in todo:
                if part is self.no:
                    return self.no
                if part.kind == "all":
                    flat.update(dict.fromkeys(part.parts))
                else:
                    flat[part] = None
            # Facts settled by a single fact are settled in the other parts, too.
            true, false = _asked(flat)
            if true & false:
                return self.no
            work += len(flat)
            WORK.spend(1 + (len(flat) >> 4))
            if work > MAX_PROPAGATION:
                break
            todo = []
            for part in [p for p in flat if p.support & (true | false) and not p.is_fact]:
                del flat[part]
                todo.append(self.settle(part, true, false))
            if not todo:
                break
        if any(part.negated in flat for part in flat if not part.is_fact):
            return self.no
        if len(flat) < 2:
            return next(iter(flat), self.yes)
        return self._all_of(tuple(sorted(flat, key=_serial)))

    def _all_of(self, ordered: tuple[Rule, ...]) -> Rule:
        """Return the interned rule of two or more ordered parts, none of which settles another."""
        found = self._joint.get(ordered)
        if found is None:
            found = self._joint[ordered] = self._pair("all", ordered, None, _support(ordered))
        return found

    def any(self, parts: Iterable[Rule]) -> Rule:
        """Return the rule that some of ``parts`` holds."""
        return self.all([part.negated for part in parts]).negated

    def count(self, parts: Iterable[Rule], allowed: int) -> Rule:
        """Return the rule that n of ``parts`` hold, for an n whose bit is set in ``allowed``."""
        open_parts: list[Rule] = []
        for part in parts:
            if part is self.yes:
                allowed >>= 1
            elif part is not self.no:
                open_parts.append(part)
        size = len(open_parts)
        allowed &= (2 << size) - 1
        if not allowed:
            return self.no
        if allowed == (2 << size) - 1:
            return self.yes
        if allowed == 1:
            return self.all([part.negated for part in open_parts])
        if allowed == 1 << size:
            return self.all(open_parts)
        if allowed == (2 << size) - 2:
            return self.any(open_parts)
        if allowed == (1 << size) - 1:
            return self.any([part.negated for part in open_parts])
        ordered = tuple(sorted(open_parts, key=_serial))
        found = self._rules.get(("count", ordered, allowed))
        if found is None:
            found = self._pair("count", ordered, allowed, _support(ordered))
            self._rules["count", ordered, allowed] = found
            self._rules["count", ordered, found.negated.detail] = found.negated
        return found

    def part_of(self, rule: Rule, kept: Container[Rule]) -> Rule:
        """Return the parts of an ``"all"`` that are in ``kept``."""
        parts = tuple([part for part in rule.parts if part in kept])
        if len(parts) == len(rule.parts):
            return rule
        if len(parts) < 2:
            return parts[0] if parts else self.yes
        return self._all_of(parts)

    def chosen(self, choice: Rule, part: Rule, others: Iterable[Rule]) -> Rule:
        """Return the rule that ``part`` of a choice and ``others`` hold."""
        if choice.kind == "any":
            return self.all((part, *others))
        return self.all((part, *others, *(q.negated for q in choice.parts if q is not part)))

    def one(self, parts: Iterable[Rule]) -> Rule:
        """Return the rule that exactly one of ``parts`` holds."""
        return self.count(parts, 2)

    # -- facts ------------------------------------------------------------------------------

    def settle(self, rule: Rule, true: int, false: int) -> Rule:
        """Return the rest of ``rule`` if these facts (bit masks) hold and do not hold."""
        return self._settle(rule, true, false, {})

    def settle_each(
        self, rule: Rule, base: tuple[int, int], settings: Sequence[tuple[int, int]]
    ) -> list[Rule]:
        """Return the rest of ``rule`` for each of several ways to settle facts.

        Args:
            rule: the rule.
            base: facts that hold and do not hold, similar to all ``settings``.
            settings: the same kind of pairs; each differs little from ``base``.

        Cost: for each setting, structgen visits only alternatives about a fact that differs from
        ``base``.
        """
        if rule.kind == "any":
            return [found.negated for found in self.settle_each(rule.negated, base, settings)]
        if rule.kind != "all" or len(settings) < _MANY_SETTINGS:
            return [self.settle(rule, *facts) for facts in settings]
        if rule.size >= _MANY_SETTINGS:
            return self._settle_parts(rule, base, settings)
        if all(part.is_fact or part.size < _MANY_SETTINGS for part in rule.parts):
            return [self.settle(rule, *facts) for facts in settings]
        columns = [self.settle_each(part, base, settings) for part in rule.parts]
        return [self.all(row) for row in zip(*columns, strict=True)]

    def _settle_parts(
        self, rule: Rule, base: tuple[int, int], settings: Sequence[tuple[int, int]]
    ) -> list[Rule]:
        """Like `settle_each`, for an ``"all"`` of many parts."""
        parts = rule.parts
        places: dict[int, list[int]] = {}  # by fact
        usual: list[Rule] = []
        known: dict[Rule, Rule] = {}
        for place, part in enumerate(parts):
            usual.append(self._settle(part, *base, known))
            facts = bits(part.support)
            WORK.spend(1 + (len(facts) >> 2))
            for fact in facts:
                places.setdefault(fact, []).append(place)
        never = {place for place, found in enumerate(usual) if found is self.no}
        open_places = [place for place, found in enumerate(usual) if found is not self.yes]
        out: list[Rule] = []
        for true, false in settings:
            differing = rule.support & ((true ^ base[0]) | (false ^ base[1]))
            touched = {place for fact in bits(differing) for place in places.get(fact, ())}
            WORK.spend(1 + len(touched) + (len(open_places) >> 5))
            if not never <= touched:
                out.append(self.no)
                continue
            left = [usual[place] for place in open_places if place not in touched]
            changed: dict[Rule, Rule] = {}
            left += [self._settle(parts[place], true, false, changed) for place in sorted(touched)]
            out.append(self.all(left))
        return out

    def _settle(self, rule: Rule, true: int, false: int, known: dict[Rule, Rule]) -> Rule:
        if not rule.support & (true | false):
            return rule
        found = known.get(rule)
        if found is not None:
            return found
        WORK.spend(1)
        kind = rule.kind
        if kind in _FACTS:
            positive = kind in ("some", "least")
            found = self.yes if bool(rule.support & true) == positive else self.no
        elif kind == "any":
            return self._settle(rule.negated, true, false, known).negated
        elif kind == "all":
            found = self._settle_all(rule, true, false, known)
        else:
            parts = [self._settle(part, true, false, known) for part in rule.parts]
            found = self.count(parts, rule.detail)
        known[rule] = found
        known[rule.negated] = found.negated
        return found

    def _settle_all(self, rule: Rule, true: int, false: int, known: dict[Rule, Rule]) -> Rule:
        holding, failing = rule.asked
        if true & failing or false & holding:
            return self.no
        WORK.spend(len(rule.parts) >> 5)
        settled = true | false
        kept: list[Rule] = []
        more: list[Rule] = []
        for part in rule.parts:
            if not part.support & settled:
                kept.append(part)
            elif part.kind == "any":
                # The only step for most of many alternatives: they are ruled out.
                holding, failing = part.negated.asked
                if true & failing or false & holding:
                    continue
                found = self._settle(part, true, false, known)
                if found is self.no:
                    return found
                if found is not self.yes:
                    more.append(found)
            elif not part.is_fact:
                found = self._settle(part, true, false, known)
                if found is self.no:
                    return found
                if found is not self.yes:
                    more.append(found)
        if more:
            return self.all([*kept, *more])
        # The remaining parts were joined before, so none settles another.
        if len(kept) < 2:
            return kept[0] if kept else self.yes
        return self._all_of(tuple(kept))

    def facts_of(self, rule: Rule) -> list[Rule]:
        """Return the facts that ``rule`` depends on, in order of appearance."""
        return self.facts_in(rule.support)

    def facts_in(self, support: int) -> list[Rule]:
        """Return the facts whose bits are set in ``support``, in order of appearance."""
        WORK.spend(1 + (support.bit_count() >> 3))
        facts = self.facts
        return [facts[number] for number in bits(support)]

    # -- interning --------------------------------------------------------------------------

    def _pair(self, kind: str, parts: tuple[Rule, ...], detail: Any, support: int) -> Rule:
        """Return a rule and its opposite."""
        WORK.spend(2 + (len(parts) >> 3))
        WORK.hold(500 + 16 * len(parts))
        serial = self._serial
        self._serial += 2
        if serial > 2 * MAX_RULES:
            raise CompileLimitExceeded(
                "the rules for combining members are too complex",
                limit=MAX_RULES,
                actual=serial // 2,
            )
        rule = Rule(kind, parts, detail, support, serial)
        if kind == "all":
            rule.asked = _asked(parts)
        if kind == "count":
            against = ((2 << len(parts)) - 1) & ~detail
            other = Rule(kind, parts, against, support, serial + 1)
        else:
            opposite = None if kind == "all" else ()
            other = Rule(_OPPOSITE[kind], opposite, detail, support, serial + 1)
        rule.negated, other.negated = other, rule
        return rule


def _serial(rule: Rule) -> int:
    return rule.serial


def _asked(parts: Iterable[Rule]) -> tuple[int, int]:
    true = false = 0
    for part in parts:
        if part.kind in ("some", "least"):
            true |= part.support
        elif part.kind in ("none", "fewer"):
            false |= part.support
    return true, false


def _support(parts: Iterable[Rule]) -> int:
    support = 0
    for part in parts:
        support |= part.support
    return support
