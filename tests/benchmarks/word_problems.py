"""What room to think does to sums: a number alone, after a thought, after a draft, in free text.

    python tests/benchmarks/word_problems.py measure MODEL FILE [--items N] [--ways N]
    python tests/benchmarks/word_problems.py table FILE...

100 small word problems of one or two steps and 50 of three to five, made up from forms with a fixed
seed; each answer is an integer, and is right if it is the one. `table` tells of the two kinds
apart. Ways: the answer's type alone; `think=`; `draft=`; a field of reasoning before the answer,
and after it; free text, whose last number counts. The prompt is the problem and nothing else: asked
for JSON, a small model writes JSON into its thought.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from studies import Line, arguments, measured, model_of, table

from structgen import Draft, Generator, JsonSchema, Think

ROOM = 120  # tokens for a thought, a draft, a reasoning, or free text
NAMES = ["Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo"]
THINGS = ["apples", "pens", "coins", "cards", "eggs", "books", "stamps", "balls"]

Numbers = Callable[[int, int], int]


def small(form: int, name: str, other: str, thing: str, n: Numbers) -> tuple[str, int]:
    """A problem of one or two steps, and its answer."""
    a, b, c = n(3, 20), n(2, 9), n(2, 6)
    more = a + b
    return [
        (f"{name} has {a} {thing} and gets {b} more. How many {thing} now?", a + b),
        (f"{name} has {more} {thing} and gives {b} to {other}. How many are left?", a),
        (f"There are {b} boxes with {c} {thing} each. How many {thing} are there?", b * c),
        (f"{b * c} {thing} are shared equally among {c} children. How many does each get?", b),
        (f"{name} has {a} {thing}, {other} has {b} more than {name}. How many has {other}?", more),
        (f"{name} buys {c} bags of {b} {thing} and eats 2. How many are left?", b * c - 2),
        (f"{name} has {a} {thing}, finds {b}, then loses 3. How many has {name}?", a + b - 3),
        (f"One of the {thing} costs {b} euros. {name} buys {c} and has 5 euros left. "
         f"How many euros had {name} before?", b * c + 5),
        (f"{name} reads {b} pages a day. How many pages in {c} days?", b * c),
        (f"A bus with {more} people stops. {b} get off and {c} get on. How many are on it now?",
         a + c),
    ][form]  # fmt: skip


def long(form: int, name: str, other: str, thing: str, n: Numbers) -> tuple[str, int]:
    """A problem of three to five steps, and its answer."""
    a, b, c, d = n(4, 15), n(2, 6), n(2, 6), n(2, 5)
    return [
        (f"{name} has {a} {thing}. {other} has {b} more than {name}. They put them together and "
         f"{other} loses {c}. How many are left together?", 2 * a + b - c),
        (f"{name} buys {b} boxes of {c} {thing} and {d} boxes of {a} {thing}, and gives 4 away. "
         f"How many {thing} does {name} keep?", b * c + d * a - 4),
        (f"A shop sells {a} {thing} on Monday, twice as many on Tuesday and {b} fewer than on "
         f"Tuesday on Wednesday. How many in all three days?", 5 * a - b),
        (f"{name} earns {a} euros an hour and works {b} hours a day for {c} days. Then {name} "
         f"spends {d} euros. How many euros are left?", a * b * c - d),
        (f"{b * c} {thing} are put into {b} bowls, the same number in each. {name} takes one bowl, "
         f"adds {a} {thing} to it and eats {d - 1}. How many are in it now?", c + a - d + 1),
    ][form]  # fmt: skip


def problems() -> dict[str, tuple[str, int]]:
    """Problem: its kind and its answer; the same ones every time."""
    chance = random.Random(21)
    found: dict[str, tuple[str, int]] = {}
    for kind, form, count, forms in (("small", small, 100, 10), ("long", long, 50, 5)):
        made = 0
        while made < count:
            name, other = chance.sample(NAMES, 2)
            text, answer = form(made % forms, name, other, chance.choice(THINGS), chance.randint)
            if text not in found:
                found[text] = (kind, answer)
                made += 1
    # Small and long ones in turn, so that a part of the study has both.
    small_ones, long_ones = (
        [text for text, (kind, _) in found.items() if kind == one] for one in ("small", "long")
    )
    order = [text for i in range(50) for text in (*small_ones[2 * i : 2 * i + 2], long_ones[i])]
    return {text: found[text] for text in order}


def schema(*names: str) -> JsonSchema:
    fields = {
        "answer": {"type": "integer", "minimum": -999, "maximum": 9999},
        "reasoning": {"type": "string", "maxLength": 200},
    }
    return JsonSchema(
        {
            "type": "object",
            "properties": {name: fields[name] for name in names},
            "required": [*names],
            "additionalProperties": False,
        }
    )


WAYS: dict[str, tuple[JsonSchema | None, dict[str, Any]]] = {
    "the answer alone": (schema("answer"), {}),
    "think=120": (schema("answer"), {"think": Think(ROOM)}),
    "draft=120": (schema("answer"), {"draft": Draft(max_tokens=ROOM)}),
    "reasoning field first": (schema("reasoning", "answer"), {}),
    "reasoning field last": (schema("answer", "reasoning"), {}),
    "free text, last number": (None, {}),
}


def measure(name: str, target: Path, count: int | None, n_ways: int | None) -> None:
    model = model_of(name)
    found = problems()
    generators = {way: Generator(model, one, **options) for way, (one, options) in WAYS.items()}

    def ask(text: str, way: str) -> Line:
        output_type, _ = WAYS[way]
        messages = [{"role": "user", "content": text}]
        result = generators[way].result(messages, max_new_tokens=ROOM + 40)
        if output_type is None:
            numbers = re.findall(r"-?\d+", result.text.replace(",", ""))
            answer = int(numbers[-1]) if numbers else None
        else:
            answer = json.loads(result.text)["answer"]
        return {
            "kind": found[text][0],
            "right": [answer == found[text][1]],
            "output": result.text,
            "before": result.reasoning or result.draft,
            "reason": str(result.finish_reason),
            "tokens": result.usage.output_tokens
            + result.usage.reasoning_tokens
            + result.usage.draft_tokens,
        }

    measured(target, list(found)[:count], [*WAYS][:n_ways], ask)


def tables(files: list[Path]) -> None:
    found = problems()
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            lines = file.read_text(encoding="utf-8").splitlines()
            for kind in ("small", "long"):
                part = Path(folder) / f"{file.name.removesuffix('.jsonl')}, {kind}"
                mine = [line for line in lines if found[json.loads(line)["item"]][0] == kind]
                part.write_text("\n".join(mine), encoding="utf-8")
                table([part], [*WAYS], "problems")


if __name__ == "__main__":
    given = arguments(__doc__)
    if given.command == "measure":
        measure(given.model, given.file, given.items, given.ways)
    else:
        tables(given.files)
