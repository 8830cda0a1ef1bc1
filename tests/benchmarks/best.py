"""What `best=True` changes: labels in objects, token by token against the likeliest whole label.

    python tests/benchmarks/best.py [HOW MANY ITEMS OF EACH QUESTION]

The items of tests/data/decisions.jsonl are asked for as a JSON object whose one field is the label;
and once more with labels that begin alike, which is where the first token misleads. Told are how
often the label differs, how often each is right, and the processor time of both.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path

import structgen
from structgen import Generator, JsonSchema
from structgen.decisions import CHAT, Choice, Question

DATA = Path(__file__).resolve().parents[1] / "data"
QUESTIONS: dict[str, Question] = runpy.run_path(str(DATA / "make_decisions.py"))["QUESTIONS"]
ALIKE = {
    "team": {
        "billing": "customer billing",
        "technical support": "customer technical support",
        "shipping": "shipping",
    },
    "topic": {
        "sports": "sports",
        "science": "news about science",
        "politics": "news about politics",
        "food": "news about food",
    },
    "severity": {
        "harmless": "not severe, harmless",
        "annoying": "not severe, annoying",
        "serious": "severe",
        "catastrophic": "severe, catastrophic",
    },
}


def main(most: int = 60) -> None:
    model = structgen.load("smollm2-135m-instruct")
    lines = (DATA / "decisions.jsonl").read_text(encoding="utf-8").splitlines()
    print("| question | items | differ | right greedily | right with best= | s | s with best= |")
    print("|---|---|---|---|---|---|---|")
    for is_alike in (True, False):
        for name, question in QUESTIONS.items():
            names = ALIKE.get(name) if is_alike else {one.text: one.text for one in question.labels}
            if names is None:
                continue
            mine = [one for one in map(json.loads, lines) if one["question"] == name]
            mine = mine[:: max(len(mine) // most, 1)]
            asked = Choice(question.instructions, [*names.values()])
            field = {"enum": [*names.values()]}
            schema = {
                "type": "object",
                "properties": {"answer": field},
                "required": ["answer"],
                "additionalProperties": False,
            }
            generator = Generator(model, JsonSchema(schema))
            right, seconds, texts = [0, 0], [0.0, 0.0], []
            for item in mine:
                messages = CHAT.prompt(item["state"], asked)
                messages[0]["content"] += ' As JSON: {"answer": ...}'
                told = {True: "Yes", False: "No"}.get(item["answer"], item["answer"])
                found = []
                for best in (False, True):
                    began = time.process_time()
                    found.append(generator.parse(messages[:1], best=best)["answer"])
                    seconds[best] += time.process_time() - began
                    right[best] += found[-1] == names[told]
                texts.append(found)
            n, differ = len(mine), sum(a != b for a, b in texts)
            what = f"{name}, labels that begin alike" if is_alike else name
            shares = " | ".join(f"{one / n:.2f}" for one in right)
            times = " | ".join(f"{one:.1f}" for one in seconds)
            print(f"| {what} | {n} | {differ} | {shares} | {times} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
