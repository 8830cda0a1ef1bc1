"""Eight clients at once: see `load`, which goes on for minutes, and looks at memory."""

from __future__ import annotations

import asyncio
import time

from load import run
from one_server import Served, serving

from structgen.server import Settings


def test_no_answer_is_another_clients(served: Served) -> None:
    with serving(served.runner, Settings()) as made:
        report = asyncio.run(run(made.root, 8, lambda turn: turn < 4))
    assert report.wrong == []
    assert report.counts.total() == 32
    assert report.counts["right"] >= 25
    end = time.monotonic() + 60  # the work for those that left ends a pass later
    while served.runner.get_model_info("small")["users"]:
        assert time.monotonic() < end
        time.sleep(0.01)
