"""Digests of masks, to show that a change of the engine changes no mask.

    python tests/benchmarks/digests.py DATA FILE [--limit N] [--seed S] [--jobs N] [--only NAME]
        [--tokenizer smollm2|llama3_1|qwen3|gemma3|PATH]
    python tests/benchmarks/digests.py --compare FILE FILE

Writes a line for each walk: its name and a CRC of all its masks. Walked are MaskBench's schemas
(N of them, every instance up to the first token that is not allowed) in four configurations, and
all grammars of the library and of the tests, on the texts that come with them, alone and inside of
an object (``embedded``), without a budget and with one that is tight at the end. A schema that is
refused has its error's name in place of a CRC. ``--compare`` prints the walks that differ.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from cfg_cases import GRAMMARS
from jobs import Timeout, spread, time_limit
from mask_cases import Workload
from masks import tokenizer_path

import structgen
from grammars import GRAMMARS as BENCHMARKED
from structgen import Cfg, JsonSchema, Text
from structgen.constraint.cursor import Cursor
from structgen.errors import StructgenError

ROOT = Path(__file__).parents[2]
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "flexible": {"whitespace": "flexible"},
    "any": {"property_order": "any"},
    "both": {"whitespace": "flexible", "property_order": "any"},
}
SECONDS = 120  # of a case


def walk(cursor: Cursor, tokens: Sequence[int]) -> str:
    """Digest the masks along some tokens, up to the first one that is not allowed."""
    out = np.zeros((cursor.vocabulary.size + 31) // 32, np.uint32)
    crc = 0
    for n, token in enumerate(tokens):
        cursor.fill_mask(out)
        crc = zlib.crc32(out.tobytes(), crc)
        if not out[token >> 5] >> (token & 31) & 1:
            return f"{crc:08x} {n}"
        cursor.accept(token)
    return f"{crc:08x} {len(tokens)}"


def digests_of(compiled: Any, texts: Sequence[Sequence[int]], budgets: bool) -> Iterator[str]:
    """Digest each text's walk, where asked within budgets, too: an ample one and a tight one."""
    for tokens in texts:
        yield walk(compiled.start(), tokens)
        for slack in (40, 3) if budgets else ():
            try:
                yield walk(compiled.start(max_tokens=len(tokens) + slack), tokens)
            except StructgenError as error:
                yield type(error).__name__


def digest(name: str, compile: Any, texts: Sequence[Sequence[int]], budgets: bool) -> list[str]:
    """Make the lines of one case."""
    try:
        with time_limit(SECONDS):
            return [f"{name}#{n}  {x}" for n, x in enumerate(digests_of(compile(), texts, budgets))]
    except StructgenError as error:
        return [f"{name}  {type(error).__name__}"]
    except Timeout:
        return [f"{name}  timeout"]


def grammars() -> Iterator[tuple[str, str, list[str]]]:
    """Name, text and sentences of each grammar."""
    for path in sorted((ROOT / "grammars").glob("*.lark")):
        samples = json.loads((ROOT / "tests/grammars" / f"{path.stem}.json").read_text("utf-8"))
        sentences = [*samples["accepted"][:6], *samples["rejected"][:3]]
        yield f"library/{path.stem}", path.read_text("utf-8"), sentences
    for name, text in GRAMMARS.items():
        yield (
            f"cases/{name}",
            text,
            ['{"a": [1, -2.5e3, null]}', "a=(1+b)*2", "aabb", "if a then b"],
        )
    for name, (text, sentences) in BENCHMARKED.items():
        yield f"benchmark/{name}", text, list(sentences)[:4]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--limit", type=int, default=1100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="")
    parser.add_argument("--tokenizer", default="smollm2")
    arguments = parser.parse_args()
    if arguments.compare:
        before, after = (
            dict(line.rsplit("  ", 1) for line in path.read_text("utf-8").splitlines())
            for path in (arguments.data, arguments.file)
        )
        differ = [name for name in before.keys() | after if before.get(name) != after.get(name)]
        for name in sorted(differ):
            print(f"{name}: {before.get(name)} before, {after.get(name)} after")
        print(f"{len(differ)} of {len(before | after)} cases differ")
        sys.exit(bool(differ))

    workload = Workload(
        arguments.data, tokenizer_path(arguments.tokenizer), arguments.limit, arguments.seed
    )
    vocabulary = workload.vocabulary

    def tokens(text: str) -> list[int]:
        ids: list[int] = workload.backend.encode(text, add_special_tokens=False).ids
        return [*ids, vocabulary.eos_token_ids[0]]

    items: list[tuple[str, Callable[[], Any], list[list[int]], bool]] = []
    for name, text, sentences in grammars():
        alone = partial(structgen.compile, Cfg(text), vocabulary)
        items.append((name, alone, [tokens(x) for x in sentences], True))
        beside = partial(structgen.compile, Text("<") + Cfg(text) + Text(">"), vocabulary)
        items.append((f"{name}/embedded", beside, [tokens(f"<{x}>") for x in sentences], True))
    for case in workload:
        for name, options in CONFIGURATIONS.items():
            schema = partial(structgen.compile, JsonSchema(case.schema), vocabulary, **options)
            items.append((f"{case.id}/{name}", schema, case.instances, False))
    items = [item for item in items if arguments.only in item[0]]
    structgen.warm_up(vocabulary)
    with arguments.file.open("w", encoding="utf-8") as file:
        for lines in spread(lambda item: digest(*item), items, arguments.jobs):
            file.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
