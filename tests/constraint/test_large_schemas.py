"""Large schemas without anything pathological take work in step with their size, by calls."""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest
from schema_makers import LARGE, Case, inherited, pipeline, tagged

import structgen
from structgen import JsonSchema, Vocabulary

MOST_CALLS = 1_200_000
"""Of Python functions, for compiling and the first mask; about 0.5 s on an idle core."""


def calls(case: Case) -> int:
    vocabulary = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], [256])
    text, count = json.dumps(case.schema), 0

    def tick(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(tick)
    try:
        cursor = structgen.compile(JsonSchema(text), vocabulary, **case.options).start()
        cursor.fill_mask(np.zeros(9, np.uint32))
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", LARGE)
def test_the_first_mask_takes_little_work(name: str) -> None:
    assert calls(LARGE[name]()) < MOST_CALLS


@pytest.mark.parametrize("make", [pipeline, tagged, inherited])
def test_work_grows_with_the_size(make: Any) -> None:
    assert calls(make(160)) < 3 * calls(make(80))
