r"""Lookarounds (``\b`` included, and Python's ``$``) → `ir.Intersect` and `ir.Complement`.

A lookahead at a place says something about the text from there to the end, a lookbehind about the
text from the start to there; the IR can only say such things of a stretch of the pattern. So:

1. The tree is spread out into **lines**: sequences of plain regexes (segments) and `Check`\ s, one
   line per combination of those alternatives that hold checks. Checks that the characters beside
   them decide vanish here (most halves of a ``\b`` do).
2. A check that sees no further than ``reach`` characters is put on the shortest stretch of segments
   that is sure to be that long, any other on all the text to that side. Stretches that overlap
   without one containing the other are widened; where that cannot help (a lookahead and, after it,
   a lookbehind that see past each other), a segment between them is split by length.
3. The stretches now form a tree, which is the answer: each is an `ir.Intersect` of its segments
   with its checks.

All of it is exact. Refused (`UnsupportedFeature`): assertions inside an unbounded repeat, except
the "tempered" ``(?:(?!stop).)*``; a lookahead and a lookbehind that overlap over a distance that
splitting cannot settle; more than `MAX_LINES` lines or `MAX_WORK`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeAlias

from ..errors import UnsupportedFeature
from . import ir, regex_facts
from .regex_tree import (
    ANY_TEXT_TREE,
    EMPTY,
    Alt,
    Look,
    Rep,
    Seq,
    Tree,
    alternate,
    complement,
    concat,
    has_look,
    intersect,
    is_nullable,
    repeat,
)
from .regex_tree import lower as lower_plain

MAX_LINES = 256
"""Most combinations of alternatives that one pattern with lookarounds is spread out into."""

MAX_WORK = 100_000
"""Most items of lines looked at on the way; about a second."""

_MAX_UNROLL = 8
_ANY_NONEMPTY = ir.Repeat(ir.ANY_CHAR, 1, None)


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
Span: TypeAlias = "tuple[int, int, Check]"


def lower(tree: Tree, pattern: str) -> ir.Regex:
    """The IR of ``tree``, which describes the whole text.

    Args:
        tree: the tree, any text around it already added where the meaning is a search.
        pattern: the source, for messages.

    Raises:
        UnsupportedFeature: see the module's docstring.
    """
    work = _Lowering(pattern)
    lines = [work.pruned(line, True, True) for line in work.expand(tree, True)]
    settled = [s for line in lines if line is not None for s in work.settle(line, False, False)]
    return alternate([_assemble(line) for line in settled])


class _Lowering:
    """One pattern on its way."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.work = 0

    def refuse(self, why: str, position: int | None, fix: str) -> UnsupportedFeature:
        place = "" if position is None else f" at position {position}"
        return UnsupportedFeature(
            f"Lookaround or boundary{place} of {self.pattern!r} is not supported: {why}.", fix=fix
        )

    def too_many(self) -> UnsupportedFeature:
        return self.refuse(
            f"it needs more than {MAX_LINES} cases to be told apart",
            None,
            "Use fewer alternatives around lookarounds and word boundaries.",
        )

    # -- 1. lines ---------------------------------------------------------------------------

    def expand(self, tree: Tree, last: bool) -> list[Line]:
        """``tree`` as lines; ``last``: nothing follows it up to the end of the text."""
        if not has_look(tree):
            plain = lower_plain(tree)
            if plain == ir.NOTHING:
                return []
            return [plain.parts if isinstance(plain, ir.Concat) else (plain,)]
        if isinstance(tree, Alt):
            plain_part = Alt(tuple(part for part in tree.parts if not has_look(part)))
            others = [part for part in tree.parts if has_look(part)]
            return [line for part in (plain_part, *others) for line in self.expand(part, last)]
        if isinstance(tree, Seq):
            return self.expand_sequence(tree.parts, last)
        if isinstance(tree, Rep):
            return self.expand_repeat(tree, last)
        assert isinstance(tree, Look)
        return self.expand_look(tree)

    def expand_sequence(self, parts: tuple[Tree, ...], last: bool) -> list[Line]:
        runs: list[Tree] = []
        for i, part in enumerate(parts):
            if isinstance(part, Rep) and has_look(part):
                if ANY_TEXT_TREE in (*parts[i + 1 : i + 2], *parts[max(i - 1, 0) : i]):
                    # Beside any text, the optional rounds add nothing.
                    part = Rep(part.body, part.min, part.min)
            elif runs and not has_look(part) and not has_look(runs[-1]):
                runs[-1] = Seq((runs[-1], part))
                continue
            runs.append(part)
        lines: list[Line] = [()]
        for i, run in enumerate(runs):
            at_end = last and all(r in (EMPTY, ir.EndAnchor()) for r in runs[i + 1 :])
            lines = self.joined(lines, self.expand(run, at_end))
        return lines

    def joined(self, heads: list[Line], tails: list[Line]) -> list[Line]:
        lines = [self.pruned(head + tail, False, False) for head in heads for tail in tails]
        found = list(dict.fromkeys(line for line in lines if line is not None))
        if len(found) > MAX_LINES:
            raise self.too_many()
        return found

    def expand_repeat(self, tree: Rep, last: bool) -> list[Line]:
        body = tree.body
        least, most = tree.min, tree.max
        if most is not None and most <= _MAX_UNROLL:
            rounds = self.expand(body, last and most == 1)
            lines: list[Line] = [()]
            for i in range(most, 0, -1):  # from the last round to the first
                lines = self.joined(rounds, lines)
                if i > least:
                    lines = list(dict.fromkeys([(), *lines]))
            return lines
        if most is None and least <= _MAX_UNROLL:
            lines = self.tempered(body, last)
            for _ in range(least):
                lines = self.joined(self.expand(body, False), lines)
            return lines
        raise self.refuse_repeat(body)

    def refuse_repeat(self, body: Tree) -> UnsupportedFeature:
        return self.refuse(
            "it stands inside a repeated group",
            _first_position(body),
            "Move it out of the repetition, or write the repeated part without it.",
        )

    def tempered(self, body: Tree, last: bool) -> list[Line]:
        """``(?:(?!stop)char)*``: no ``stop`` begins at any of the characters."""
        rounds = self.expand(body, False)
        if rounds in ([], [()]):
            return [()]
        if len(rounds) > 1:
            raise self.refuse_repeat(body)
        *checks, char = rounds[0]
        if not isinstance(char, ir.CharSet):
            raise self.refuse_repeat(body)
        inside: list[ir.Regex] = [repeat(char, 0, None)]
        crossing: list[tuple[ir.Regex, ir.Regex]] = []
        for check in checks:
            if not isinstance(check, Check) or check.behind:
                raise self.refuse_repeat(body)
            if last:
                # Some place before the end from which the rest of the text fails the check.
                failing = complement(check.constraint)
                if regex_facts.width(failing)[0] == 0:
                    failing = intersect([failing, _ANY_NONEMPTY])
                inside.append(complement(concat([ir.ANY_TEXT, failing])))
                continue
            stops = regex_facts.finite_texts(check.core, 8) if check.core is not None else None
            if not check.negate or stops is None or () in stops:
                raise self.refuse_repeat(body)
            inside.append(complement(concat([ir.ANY_TEXT, check.regex])))
            for stop in stops:
                for cut in range(1, len(stop)):
                    if not any(regex_facts.is_disjoint(chars, char) for chars in stop[:cut]):
                        crossing.append((concat(stop[:cut]), concat(stop[cut:])))
        # A stop must not begin inside and end after: for each way to cut one in two, either the
        # repeat does not end in its head or what follows does not begin with its tail.
        if len(crossing) > 6:
            raise self.refuse_repeat(body)
        position = _first_position(body)
        lines: list[Line] = []
        for inner in product((True, False), repeat=len(crossing)):
            kept = [pair for pair, here in zip(crossing, inner, strict=True) if here]
            left = [pair for pair, here in zip(crossing, inner, strict=True) if not here]
            heads = [complement(concat([ir.ANY_TEXT, head])) for head, _ in kept]
            after = [_check(tail, False, True, position) for _, tail in left]
            lines.append((intersect(inside + heads), *after))
        return lines

    def expand_look(self, look: Look) -> list[Line]:
        if not has_look(look.body):
            core = lower_plain(look.body)
            if core == ir.NOTHING:
                return [()] if look.negate else []
            return [(_check(core, look.behind, look.negate, look.position),)]
        # Assertions inside: settle each line of the body on its own. Those that look out of it,
        # over the place where this one stands, become neighbours of this one.
        found: list[Line] = []
        for line in self.expand(look.body, False):
            whole = (ir.ANY_TEXT, *line) if look.behind else (*line, ir.ANY_TEXT)
            for settled in self.settle(whole, not look.behind, look.behind):
                outside, inside = _outward(settled, look.behind)
                check = Check(
                    _assemble(inside), None, _reach(line, look.behind), look.behind, False,
                    look.position,
                )  # fmt: skip
                found.append((*outside, check))
        if not look.negate:
            return found
        lines: list[Line] = [()]
        for line in found:
            lines = self.joined(lines, [(_negated(item),) for item in line])
        return lines

    def pruned(self, line: Line, closed_left: bool, closed_right: bool) -> Line | None:
        """``line`` without the checks that hold anyway; None when one can never hold."""
        out: list[Item] = []
        self.work += len(line) + 1
        if self.work > MAX_WORK:
            raise self.too_many()
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

    # -- 2. stretches -----------------------------------------------------------------------

    def settle(self, line: Line, open_left: bool, open_right: bool) -> list[Line]:
        """Lines, equal to ``line`` together, whose stretches nest.

        On an open side the text goes on outside: a check may not see past that edge, unless it
        stands right at it.
        """
        done: list[Line] = []
        todo = [line]
        while todo:
            current = todo.pop()
            crossing = _crossing(current, open_left, open_right)
            if crossing is None:
                done.append(current)
                continue
            start, stop, check = crossing
            choices = [i for i in range(start, stop) if _is_elastic(current[i])]
            if not choices or not _can_settle(current, crossing):
                raise self.refuse(
                    "it and another one look past each other",
                    check.position,
                    "Write out one of the two, or move it.",
                )
            i = min(choices, key=lambda index: _width(current[index])[0])
            segment = current[i]
            assert not isinstance(segment, Check)
            low, high = regex_facts.width(segment)
            shortest = regex_facts.with_width(segment, low, low)
            longer = regex_facts.with_width(segment, low + 1, high)
            for piece in (shortest, longer):
                if piece != ir.NOTHING:
                    pieces = piece.parts if isinstance(piece, ir.Concat) else (piece,)
                    whole = (*current[:i], *pieces, *current[i + 1 :])
                    split = self.pruned(whole, not open_left, not open_right)
                    if split is not None:
                        todo.append(split)
            if len(todo) + len(done) > MAX_LINES:
                raise self.too_many()
        return done


def _check(core: ir.Regex, behind: bool, negate: bool, position: int | None) -> Check:
    reach = regex_facts.width(core)[1]
    regex = concat([ir.ANY_TEXT, core] if behind else [core, ir.ANY_TEXT])
    if reach is None and isinstance(core, ir.Concat):
        # Without a bound it is put on all the text to that side, whose end needs no anchor.
        if behind and isinstance(core.parts[0], ir.StartAnchor):
            regex = concat(core.parts[1:])
        elif not behind and isinstance(core.parts[-1], ir.EndAnchor):
            regex = concat(core.parts[:-1])
    return Check(regex, core, reach, behind, negate, position)


def _ordered(line: Line) -> Line:
    """Where several items stand at one place: lookbehinds first, lookaheads last."""
    out: list[Item] = []
    group: list[Item] = []
    for item in (*line, None):
        if item is not None and _width(item) == (0, 0):
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


def _negated(item: Item) -> Check:
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


def _width(item: Item) -> tuple[int, int | None]:
    return (0, 0) if isinstance(item, Check) else regex_facts.width(item)


def _is_elastic(item: Item) -> bool:
    low, high = _width(item)
    return low != high


def _reach(line: Line, behind: bool) -> int | None:
    """How far a lookaround with this body sees."""
    total = 0
    furthest = 0
    for item in reversed(line) if behind else line:
        seen = item.reach if isinstance(item, Check) else 0
        if isinstance(item, Check) and item.behind != behind:
            seen = 0
        high = _width(item)[1]
        if seen is None or high is None:
            return None
        furthest = max(furthest, total + seen)
        total += high
    return max(furthest, total)


def _stretch(line: Line, at: int, check: Check) -> tuple[int, int, bool]:
    """The shortest stretch of items that ``check`` at ``at`` is sure not to see beyond.

    Returns:
        First and last item boundary, and whether it is known to be long enough.
    """
    seen = 0
    edge = at
    step = -1 if check.behind else 1
    stop = 0 if check.behind else len(line)
    while check.reach is None or seen < check.reach:
        if edge == stop:
            return (edge, at, False) if check.behind else (at, edge, False)
        seen += _width(line[edge - 1 if check.behind else edge])[0]
        edge += step
    return (edge, at, True) if check.behind else (at, edge, True)


def _spans(line: Line) -> list[Span]:
    return [
        (*_stretch(line, i, item)[:2], item)
        for i, item in enumerate(line)
        if isinstance(item, Check)
    ]


def _crossing(line: Line, open_left: bool, open_right: bool) -> Span | None:
    """A stretch of items that must be longer for the checks' stretches to nest, and a check."""
    for i, item in enumerate(line):
        if isinstance(item, Check) and (open_left if item.behind else open_right):
            start, stop, enough = _stretch(line, i, item)
            if not enough and any(not isinstance(x, Check) for x in line[start:stop]):
                return start, stop, item
    nested = _nested(_spans(line))
    return nested if isinstance(nested, tuple) else None


def _can_settle(line: Line, stretch: Span) -> bool:
    """Whether a longer ``stretch`` would bring a check's sight to an end within it."""
    start, stop, check = stretch
    sure = sum(_width(item)[0] for item in line[start:stop])
    opposite = (line[stop],) if not check.behind and stop < len(line) else ()
    reaches = [item.reach for item in (check, *opposite) if isinstance(item, Check)]
    return any(reach is not None and sure < reach for reach in reaches)


def _nested(spans: list[Span]) -> list[Span] | Span:
    """Widen ``spans`` until any two nest or are apart, or say between which places that fails.

    The left end of a lookahead's stretch and the right end of a lookbehind's are fixed.
    """
    spans = list(spans)
    changed = True
    while changed:
        changed = False
        for i, (a, b, left) in enumerate(spans):
            for j, (c, d, right) in enumerate(spans):
                if not a < c < b < d:
                    continue
                if not left.behind:
                    spans[i] = (a, d, left)
                elif right.behind:
                    spans[j] = (a, d, right)
                else:
                    return (c, b, right)
                changed = True
                break
            if changed:
                break
    return spans


def _outward(line: Line, behind: bool) -> tuple[Line, Line]:
    """Checks of a body's line that look out of it at its near edge, and the rest of the line."""
    items = list(reversed(line)) if behind else list(line)
    outside: list[Item] = []
    inside: list[Item] = []
    at_edge = True
    for item in items:
        at_edge = at_edge and isinstance(item, Check)
        if at_edge and isinstance(item, Check) and item.behind != behind:
            outside.append(item)
        else:
            inside.append(item)
    return tuple(outside), tuple(reversed(inside) if behind else inside)


# -- 3. assembly -----------------------------------------------------------------------------


def _assemble(line: Line) -> ir.Regex:
    spans = _nested(_spans(line))
    assert isinstance(spans, list)
    return _build(line, 0, len(line), spans)


def _build(line: Line, start: int, stop: int, spans: list[Span]) -> ir.Regex:
    """The regex of items ``start`` to ``stop`` under ``spans``, all of them within."""
    here = [check.constraint for a, b, check in spans if (a, b) == (start, stop)]
    inner = [span for span in spans if span[:2] != (start, stop)]
    parts: list[ir.Regex] = []
    at = start
    # Outermost first; what lies within another is left to the recursion.
    taken: tuple[int, int] | None = None
    for a, b in sorted({span[:2] for span in inner}, key=lambda span: (span[0], -span[1])):
        if taken is not None and taken[0] <= a and b <= taken[1]:
            continue
        taken = (a, b)
        parts.extend(_segments(line[at:a]))
        parts.append(_build(line, a, b, [s for s in inner if a <= s[0] and s[1] <= b]))
        at = b
    parts.extend(_segments(line[at:stop]))
    return intersect([concat(parts), *here])


def _segments(items: Line) -> list[ir.Regex]:
    return [item for item in items if not isinstance(item, Check)]


def _first_position(tree: Tree) -> int | None:
    if isinstance(tree, Look):
        return tree.position
    parts = tree.parts if isinstance(tree, Seq | Alt) else ()
    if isinstance(tree, Rep):
        parts = (tree.body,)
    positions = [p for p in map(_first_position, parts) if p is not None]
    return min(positions, default=None)
