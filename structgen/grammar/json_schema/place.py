"""Where a raw schema stands: its JSON path, its resource, and what was entered on the way to it.

Knows no keyword. Paths are written out only when a message asks for one.
"""

from __future__ import annotations

from .dialects import Dialect
from .documents import Resource
from .graph import child_path


class Place:
    """Where a raw schema stands.

    Args:
        above: JSON path, or the place of the schema that holds this one.
        resource: see below.
        scope: see below.
        steps: from ``above`` to here. Paths are written out when a message asks for them.
        depth: see below.
        base: see below.

    Attributes:
        resource: the resource the schema belongs to.
        scope: the resources with dynamic anchors that were entered on the way to it.
        depth: how many schemas hold this one, from where a reference leads.
        base: the number of that place; 0 where the document begins.
    """

    __slots__ = ("_above", "_steps", "base", "depth", "resource", "scope")

    def __init__(
        self,
        above: str | Place,
        resource: Resource,
        scope: tuple[Resource, ...],
        steps: tuple[str | int, ...] = (),
        depth: int = 0,
        base: int = 0,
    ) -> None:
        self._above = above
        self._steps = steps
        self.resource = resource
        self.scope = scope
        self.depth = depth
        self.base = base

    def below(self, *steps: str | int) -> Place:
        """The place ``steps`` below, as far as nothing is known of what stands there."""
        return Place(self, self.resource, self.scope, steps, self.depth + 1, self.base)

    @property
    def path(self) -> str:
        """JSON path, for messages."""
        if self._steps or not isinstance(self._above, str):
            ways: list[tuple[str | int, ...]] = []
            place: str | Place = self
            while isinstance(place, Place):
                ways.append(place._steps)
                place = place._above
            self._above = child_path(place, *(step for way in reversed(ways) for step in way))
            self._steps = ()
        return self._above

    def at(self, *steps: str | int) -> str:
        """The path of a keyword, or of something inside one."""
        return child_path(self.path, *steps)

    @property
    def dialect(self) -> Dialect:
        """The draft that the schema is written in."""
        return self.resource.dialect
