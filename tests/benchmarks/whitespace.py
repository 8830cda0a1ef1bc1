"""How many facts a small model gets right in JSON with and without spaces.

    python tests/benchmarks/whitespace.py [--model NAME] [--texts N] [--example compact|spaced]
        [--style STYLE …] [--show]

Made-up sentences of five facts each; the model is asked for them as JSON, greedily, under one
schema in each style of ``whitespace``. A field counts if its value is the one in the sentence.
``--example`` puts one answered sentence before the question, written in that style. Printed for
each style: fields right, tokens of the outputs, how many of them were forced, and outputs that have
spaces.
"""

from __future__ import annotations

import argparse
import json
import random
from typing import Any, NamedTuple

import structgen
from structgen import Generator, JsonSchema

STYLES = ("natural", "compact", "spaced", "flexible", " ?")

_NAMES = ["Jan Novak", "Ada Berg", "Tom Reed", "Lena Vogt", "Ivo Kral", "Mia Sand", "Otto Lang"]
_JOBS = ["engineer", "teacher", "nurse", "painter", "farmer", "pilot", "lawyer", "baker"]
_CITIES = ["Prague", "Oslo", "Turin", "Ghent", "Lyon", "Porto", "Graz", "Leeds", "Malmo"]
_KINDS = ["spoke", "sang", "danced", "cooked"]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "job": {"type": "string", "maxLength": 30},
        "city": {"type": "string", "maxLength": 30},
        "year": {"type": "integer", "minimum": 1900, "maximum": 2100},
        "minutes": {"type": "integer", "minimum": 1, "maximum": 500},
    },
    "required": ["name", "job", "city", "year", "minutes"],
    "additionalProperties": False,
}


class Fact(NamedTuple):
    """A sentence, and what it says."""

    sentence: str
    values: dict[str, Any]


def facts(count: int) -> list[Fact]:
    """The same ``count`` sentences every time."""
    rng = random.Random(7)
    found = []
    for _ in range(count):
        values = {
            "name": rng.choice(_NAMES),
            "job": rng.choice(_JOBS),
            "city": rng.choice(_CITIES),
            "year": rng.randint(1950, 2024),
            "minutes": rng.randrange(10, 120, 5),
        }
        sentence = (
            f"In {values['year']} {values['name']}, who works as a {values['job']}, "
            f"{rng.choice(_KINDS)} in {values['city']} for {values['minutes']} minutes."
        )
        found.append(Fact(sentence, values))
    return found


def question(fact: Fact) -> dict[str, str]:
    """What the model is asked."""
    content = f"Extract name, job, city, year and minutes as JSON: {fact.sentence}"
    return {"role": "user", "content": content}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--example", choices=("compact", "spaced"))
    parser.add_argument("--style", nargs="+", default=STYLES)
    parser.add_argument("--show", action="store_true", help="print every output")
    arguments = parser.parse_args()
    model = structgen.load(arguments.model)
    first, *asked = facts(arguments.texts + 1)
    before: list[dict[str, str]] = []
    if arguments.example:
        separators = (",", ":") if arguments.example == "compact" else None
        answer = json.dumps(first.values, separators=separators)
        before = [question(first), {"role": "assistant", "content": answer}]
    print("| whitespace | fields right | of | tokens | forced | outputs with spaces |")
    print("|---|---:|---:|---:|---:|---:|")
    for style in arguments.style:
        generator = Generator(model, JsonSchema(SCHEMA), whitespace=style)
        right = tokens = forced = spaced = 0
        for fact in asked:
            result = generator.result([*before, question(fact)], max_new_tokens=120)
            found = json.loads(result.text)
            right += sum(found[name] == value for name, value in fact.values.items())
            tokens += result.usage.output_tokens
            forced += result.usage.forced_tokens
            spaced += '": ' in result.text
            if arguments.show:
                print(result.text)
        of = len(asked) * len(SCHEMA["required"])
        print(f"| `{style!r}` | {right} | {of} | {tokens} | {forced} | {spaced} |", flush=True)


if __name__ == "__main__":
    main()
