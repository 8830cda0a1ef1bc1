"""Threads share constraints and caches: each sees the masks that one thread alone sees."""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import real_tokenizers

import structgen
from structgen import Constraint, JsonSchema, Regex, Vocabulary
from structgen.masks import walk_store

N_THREADS = 8
WALKS = 3
MAX_TOKENS = 40

NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 12},
        "kind": {"enum": ["red", "green", "blue", 7, None]},
        "code": {"type": "string", "pattern": "^[a-f0-9]{4}(-\\w+)?$"},
        "size": {"type": "number", "minimum": -3, "maximum": 1000},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3},
    },
    "required": ["name", "code"],
    "additionalProperties": {"type": ["string", "boolean"]},
}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": NODE}}
# Masks of these depend on the text so far, and are computed anew each time.
UNIQUE = {
    "type": "array",
    "items": {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]},
    "uniqueItems": True,
    "minItems": 3,
}
FREE = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 2}
TYPES: dict[str, Any] = {
    "tree": JsonSchema(TREE),
    "unique": JsonSchema(UNIQUE),
    "free": JsonSchema(FREE),
    "regex": Regex(r"(?:\S+ ){1,5}[^\d\s]{3,9}\.(?:com|org|é+)"),
}


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def vocabulary(padding: int) -> Vocabulary:
    """1,500 real tokens and all bytes; ``padding`` more ids make one with caches of its own."""
    real = real_tokenizers.vocabulary("smollm2").tokens
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [b"", *random.Random(0).sample(real, 1_500)]
    return Vocabulary.from_tokens(tokens, [256], size=len(tokens) + padding)


def walk(constraint: Constraint, name: str, seed: int) -> list[tuple[str, int]]:
    """The masks of a random walk, as digests, with the tokens chosen."""
    rng = random.Random(seed)
    out = np.zeros((constraint.vocabulary.size + 31) // 32, np.uint32)
    # Under a tight budget every token is tried: 0.1 s a mask where all text is allowed.
    tight = seed == 2 and name != "free"
    cursor = constraint.start(max_tokens=MAX_TOKENS if tight else None)
    seen = []
    for _ in range(MAX_TOKENS):
        cursor.fill_mask(out)
        allowed = np.flatnonzero(np.unpackbits(out.view(np.uint8), bitorder="little"))
        token = int(allowed[rng.randrange(len(allowed))])
        seen.append((hashlib.sha256(allowed.tobytes()).hexdigest(), token))
        cursor.accept(token)
        if cursor.is_finished:
            break
    return seen


def in_threads(task: Callable[[int], object]) -> None:
    """Run ``task(number)`` in `N_THREADS` threads that set off together; raise what they raise."""
    ready = threading.Barrier(N_THREADS)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            ready.wait(60)
            task(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def compiled(vocabulary: Vocabulary) -> dict[str, Constraint]:
    return {name: structgen.compile(kind, vocabulary) for name, kind in TYPES.items()}


@pytest.fixture(scope="module")
def alone() -> dict[tuple[str, int], list[tuple[str, int]]]:
    constraints = compiled(vocabulary(padding=64))
    return {
        (name, seed): walk(constraint, name, seed)
        for name, constraint in constraints.items()
        for seed in range(WALKS)
    }


# The second budget is soon spent: caches go while other threads use them.
@pytest.mark.parametrize("budget", [walk_store.DEFAULT_CACHE_BYTES, 300_000])
def test_threads_that_share_constraints(
    alone: dict[tuple[str, int], list[tuple[str, int]]],
    monkeypatch: pytest.MonkeyPatch,
    budget: int,
) -> None:
    monkeypatch.setattr(walk_store, "DEFAULT_CACHE_BYTES", budget)
    # Another width, so that nothing was computed before.
    constraints = compiled(vocabulary(padding=budget % 1000))

    def task(number: int) -> None:
        order = [*alone]
        if number % 2:  # half of them in step, half in disorder
            random.Random(number).shuffle(order)
        for name, seed in order:
            assert walk(constraints[name], name, seed) == alone[name, seed], (name, seed)

    in_threads(task)


def test_threads_that_compile_for_themselves(
    alone: dict[tuple[str, int], list[tuple[str, int]]],
) -> None:
    shared = vocabulary(padding=1)

    def task(number: int) -> None:
        order = list(TYPES)
        random.Random(number).shuffle(order)
        for name in order:
            constraint = structgen.compile(TYPES[name], shared)
            seed = number % WALKS
            assert walk(constraint, name, seed) == alone[name, seed], (name, seed)

    in_threads(task)
