r"""Lines: a pattern spread out into plain regexes and the lookarounds between them.

A line is a sequence of segments (`ir.Regex`) and `Check`\ s (lowered lookarounds, of no width).
This module owns what can be said of one line on the spot: which checks the characters beside them
decide or swallow. It does not know how lines come about (`lookaround`) nor what becomes of the
checks that stay (`regex_stretches`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from . import ir, regex_facts
from .regex_tree import complement, concat, is_nullable


@dataclass(frozen=True, slots=True)
class Check:
    """A lookaround, lowered.

    Attributes:
        regex: what the text must (not) match: all of it from here on, or all of it up to here.
        core: the regex without the any-text on its far side, or None if it is not that simple.
        reach: how many characters it sees at most (None: no bound).
    """

    regex: ir.Regex
    core: ir.Regex | None
    reach: int | None
    behind: bool
    negate: bool
    position: int | None = field(compare=False)

    @property
    def constraint(self) -> ir.Regex:
        """What the text to that side must be."""
        return complement(self.regex) if self.negate else self.regex


Item: TypeAlias = "ir.Regex | Check"
Line: TypeAlias = "tuple[Item, ...]"


def make_check(core: ir.Regex, behind: bool, negate: bool, position: int | None) -> Check:
    """The check whose body is ``core``."""
    reach = regex_facts.width(core)[1]
    regex = concat([ir.ANY_TEXT, core] if behind else [core, ir.ANY_TEXT])
    if reach is None and isinstance(core, ir.Concat):
        # Without a bound it is put on all the text to that side, whose end needs no anchor.
        if behind and isinstance(core.parts[0], ir.StartAnchor):
            regex = concat(core.parts[1:])
        elif not behind and isinstance(core.parts[-1], ir.EndAnchor):
            regex = concat(core.parts[:-1])
    return Check(regex, core, reach, behind, negate, position)


def pruned(line: Line, closed_left: bool, closed_right: bool) -> Line | None:
    """``line`` without the checks that hold anyway; None when one can never hold.

    Args:
        line: the line.
        closed_left: the text begins where the line does.
        closed_right: the text ends where the line does.
    """
    out: list[Item] = []
    items = _ordered(_absorbed(line))
    for i, item in enumerate(items):
        if isinstance(item, Check):
            verdict = _verdict(items, i, item, closed_left if item.behind else closed_right)
            if verdict is not None and verdict == item.negate:
                return None
            if verdict is not None or item in out[len(out) - _trailing_checks(out) :]:
                continue
        elif item == ir.NOTHING or item == ir.CharSet(()):
            return None
        out.append(item)
    return tuple(out)


def _ordered(line: Line) -> Line:
    """Where several items stand at one place: lookbehinds first, lookaheads last."""
    out: list[Item] = []
    group: list[Item] = []
    for item in (*line, None):
        if item is not None and width(item) == (0, 0):
            if item != ir.EPSILON:
                group.append(item)
            continue
        # All of them only ask about the place, so their order means nothing.
        group.sort(key=lambda one: (not one.behind) * 2 if isinstance(one, Check) else 1)
        out += group
        group = []
        if item is not None:
            out.append(item)
    return tuple(out)


def _absorbed(line: Line) -> Line:
    """Checks for one character beside one character become part of it: ``(?!a)[a-z]``."""
    out: list[Item] = []
    pending: list[Check] = []
    for item in line:
        if isinstance(item, Check) and isinstance(item.core, ir.CharSet):
            if not item.behind:
                pending.append(item)
                continue
            if not pending and out and isinstance(out[-1], ir.CharSet):
                out[-1] = _narrowed(out[-1], item)
                continue
        if isinstance(item, ir.CharSet):
            for check in pending:
                item = _narrowed(item, check)
            pending = []
        out += pending
        pending = []
        out.append(item)
    return (*out, *pending)


def _narrowed(chars: ir.CharSet, check: Check) -> ir.CharSet:
    assert isinstance(check.core, ir.CharSet)
    return regex_facts.common(chars, ir.negate(check.core) if check.negate else check.core)


def negated(item: Item) -> Check:
    """The contrary of the check ``item``."""
    assert isinstance(item, Check)
    return replace(item, negate=not item.negate)


def _trailing_checks(items: list[Item]) -> int:
    count = 0
    while count < len(items) and isinstance(items[-1 - count], Check):
        count += 1
    return count


def _verdict(line: Line, at: int, check: Check, closed: bool) -> bool | None:
    """Whether the check's regex matches at ``at``, if the segments beside it decide that."""
    if check.core is None:
        return None
    if is_nullable(check.core):
        return True
    wanted, empty = regex_facts.edge_chars(check.core, check.behind)
    if empty:
        return None
    all_in = isinstance(check.core, ir.CharSet)
    none_in = True
    for i in range(at - 1, -1, -1) if check.behind else range(at + 1, len(line)):
        item = line[i]
        if isinstance(item, Check):
            continue
        chars, may_be_empty = regex_facts.edge_chars(item, check.behind)
        all_in = all_in and regex_facts.is_subset(chars, wanted)
        none_in = none_in and regex_facts.is_disjoint(chars, wanted)
        if not all_in and not none_in:
            return None
        if not may_be_empty:
            return all_in
    # Perhaps nothing stands between the check and the end of the line.
    return False if none_in and closed else None


def width(item: Item) -> tuple[int, int | None]:
    """Bounds on the length of what ``item`` matches."""
    return (0, 0) if isinstance(item, Check) else regex_facts.width(item)


def is_elastic(item: Item) -> bool:
    """Whether ``item`` matches texts of several lengths."""
    low, high = width(item)
    return low != high
