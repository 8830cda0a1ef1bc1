r"""Lookarounds (``\b`` included, and Python's ``$``) → `ir.Intersect` and `ir.Complement`.

A lookahead at a place says something about the text from there to the end, a lookbehind about the
text from the start to there; the IR can only say such things of a stretch of the pattern. So:

1. The tree is spread out into **lines**: sequences of plain regexes (segments) and checks, one line
   per combination of those alternatives that hold checks. Checks that the characters beside
   them decide vanish here (most halves of a ``\b`` do).
2. A check that sees no further than ``reach`` characters is put on the shortest stretch of segments
   that is sure to be that long, any other on all the text to that side. Stretches that overlap
   without one containing the other are widened; where that cannot help (a lookahead and, after it,
   a lookbehind that see past each other), a segment between them is split by length.
3. The stretches now form a tree, which is the answer: each is an `ir.Intersect` of its segments
   with its checks.

All of it is exact. Refused (`UnsupportedFeature`): assertions inside an unbounded repeat, except
the "tempered" ``(?:(?!stop).)*``; a lookahead and a lookbehind that overlap over a distance that
splitting cannot settle; more than `MAX_LINES` lines or `MAX_WORK`. `regex_lines` knows what can be
said of one line, `regex_stretches` of its stretches.
"""

from __future__ import annotations

from itertools import product

from ..errors import UnsupportedFeature
from . import ir, regex_facts, regex_stretches
from .regex_lines import Check, Line, is_elastic, make_check, negated, pruned, width
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
    repeat,
)
from .regex_tree import lower as lower_plain

MAX_LINES = 256
"""Most combinations of alternatives that one pattern with lookarounds is spread out into."""

MAX_WORK = 100_000
"""Most items of lines looked at on the way; about a second."""

_MAX_UNROLL = 8
_ANY_NONEMPTY = ir.Repeat(ir.ANY_CHAR, 1, None)


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
    return alternate([regex_stretches.assemble(line) for line in settled])


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
            after = [make_check(tail, False, True, position) for _, tail in left]
            lines.append((intersect(inside + heads), *after))
        return lines

    def expand_look(self, look: Look) -> list[Line]:
        if not has_look(look.body):
            core = lower_plain(look.body)
            if core == ir.NOTHING:
                return [()] if look.negate else []
            return [(make_check(core, look.behind, look.negate, look.position),)]
        # Assertions inside: settle each line of the body on its own. Those that look out of it,
        # over the place where this one stands, become neighbours of this one.
        found: list[Line] = []
        for line in self.expand(look.body, False):
            whole = (ir.ANY_TEXT, *line) if look.behind else (*line, ir.ANY_TEXT)
            for settled in self.settle(whole, not look.behind, look.behind):
                outside, inside = regex_stretches.outward(settled, look.behind)
                reach = regex_stretches.reach(line, look.behind)
                regex = regex_stretches.assemble(inside)
                check = Check(regex, None, reach, look.behind, False, look.position)
                found.append((*outside, check))
        if not look.negate:
            return found
        lines: list[Line] = [()]
        for line in found:
            lines = self.joined(lines, [(negated(item),) for item in line])
        return lines

    def pruned(self, line: Line, closed_left: bool, closed_right: bool) -> Line | None:
        self.work += len(line) + 1
        if self.work > MAX_WORK:
            raise self.too_many()
        return pruned(line, closed_left, closed_right)

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
            crossing = regex_stretches.crossing(current, open_left, open_right)
            if crossing is None:
                done.append(current)
                continue
            start, stop, check = crossing
            choices = [i for i in range(start, stop) if is_elastic(current[i])]
            if not choices or not regex_stretches.can_settle(current, crossing):
                raise self.refuse(
                    "it and another one look past each other",
                    check.position,
                    "Write out one of the two, or move it.",
                )
            i = min(choices, key=lambda index: width(current[index])[0])
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


def _first_position(tree: Tree) -> int | None:
    if isinstance(tree, Look):
        return tree.position
    parts = tree.parts if isinstance(tree, Seq | Alt) else ()
    if isinstance(tree, Rep):
        parts = (tree.body,)
    positions = [p for p in map(_first_position, parts) if p is not None]
    return min(positions, default=None)
