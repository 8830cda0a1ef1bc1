"""`Loading`: what all components have of their model. Knows no requests."""

from __future__ import annotations

from structgen.runner import Runner

from ..frameworks import runner_of


class Loading:
    """A component whose model a Runner has.

    Attributes:
        model: an id, alias or source.
        runner: the Runner, or None: the one that all adapters share.
    """

    model: str
    runner: Runner | None

    def warm_up(self) -> None:
        """Load the model."""
        self._of().load(self.model)

    async def warm_up_async(self) -> None:
        """Load the model."""
        await self._of().aload(self.model)

    def _of(self) -> Runner:
        return runner_of(self.runner, self.model)
