"""How many schemas are inside one another, references followed.

Owns the count; the reader says where it is, and which references it has followed from there.
"""

from __future__ import annotations

from .place import Place


class Heights:
    """The heights of the root and of what references lead to, each with a number: its base.

    Attributes:
        of: for each base the most schemas that are inside one another there, itself included.
        bases: the base of a node that a reference leads to, by the number of the node.
        links: the references followed: the base that each stands in, at which depth, and the
            number of the node that it leads to.
    """

    __slots__ = ("bases", "links", "of")

    def __init__(self) -> None:
        self.of = [0]
        self.bases: dict[int, int] = {}
        self.links: list[tuple[int, int, int]] = []

    def reach_below(self, place: Place) -> None:
        """There are schemas inside the one at ``place``."""
        if place.depth + 1 >= self.of[place.base]:
            self.of[place.base] = place.depth + 2

    def whole(self) -> int | None:
        """Most schemas on a way down, through references; None where these lead in circles."""
        if not self.links:
            return self.of[0]
        steps: dict[int, list[tuple[int, int]]] = {}
        for base, depth, number in self.links:
            to = self.bases.get(number)
            if to is None:
                return None  # into the midst of what was read elsewhere
            steps.setdefault(base, []).append((depth + 1, to))
        heights = self.of
        levels: dict[int, int] = {}
        opened = {0: heights[0]}
        # (base, depth of the link that has led there, links still to be looked at)
        stack = [(0, 0, iter(steps.get(0, ())))]
        while stack:
            base, above, links = stack[-1]
            for depth, to in links:
                level = levels.get(to)
                if level is None:
                    if to in opened:
                        return None
                    opened[to] = heights[to]
                    stack.append((to, depth, iter(steps.get(to, ()))))
                    break
                if depth + level > opened[base]:
                    opened[base] = depth + level
            else:
                stack.pop()
                level = levels[base] = opened.pop(base)
                if stack and above + level > opened[stack[-1][0]]:
                    opened[stack[-1][0]] = above + level
        return levels[0]
