"""Which of eight tools a model calls, and with which arguments: under a mask, and in free text.

    python tests/benchmarks/function_choice.py measure MODEL FILE [--items N] [--ways N]
    python tests/benchmarks/function_choice.py table FILE...

100 requests, made up from forms with a fixed seed, each with one tool that fits and arguments that
stand in it. Right are two things of each: the tool, and the tool with every argument. Ways: calls
under a mask with a call required, the same where text is allowed as well, a call as JSON of a union
of the tools' schemas, and free text with the same tools in the prompt, in which the first JSON
object counts, whatever is written around it.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from studies import Line, arguments, measured, model_of, table

import structgen
from structgen import Generator, JsonSchema, ToolCalls

CITIES = ["Paris", "Oslo", "Turin", "Ghent", "Lyon", "Porto", "Graz", "Leeds"]
PEOPLE = ["Ann", "Ben", "Cleo", "Dan", "Eva", "Finn"]
SONGS = ["jazz", "rock", "folk", "opera"]
ROOMS = ["kitchen", "bedroom", "hall", "bathroom", "office", "cellar", "attic", "garage"]


def text() -> dict[str, Any]:
    return {"type": "string", "maxLength": 24}


def number(low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "get_weather": ("Tells the weather in a city.", {"city": text()}),
    "set_timer": ("Starts a timer of some minutes.", {"minutes": number(1, 600)}),
    "send_message": ("Sends a short text to a person.", {"to": text(), "message": text()}),
    "add": ("Adds two integers.", {"a": number(0, 9999), "b": number(0, 9999)}),
    "play_music": (
        "Plays music of a kind at a volume from 1 to 10.",
        {"kind": {"enum": SONGS}, "volume": number(1, 10)},
    ),
    "book_table": (
        "Books a table in a restaurant.",
        {"city": text(), "guests": number(1, 12), "outside": {"type": "boolean"}},
    ),
    "convert_money": (
        "Converts an amount of money between currencies.",
        {
            "amount": number(1, 9999),
            "source": {"enum": ["EUR", "USD", "GBP"]},
            "target": {"enum": ["EUR", "USD", "GBP"]},
        },
    ),
    "switch_light": (
        "Switches the light in a room on or off.",
        {"room": {"enum": ROOMS}, "on": {"type": "boolean"}},
    ),
}


def requests() -> dict[str, tuple[str, dict[str, Any]]]:
    """Request: the tool that fits and its arguments; the same ones every time."""
    chance = random.Random(22)
    pick, whole = chance.choice, chance.randint
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    while len(found) < 100:
        city, who, n, m = pick(CITIES), pick(PEOPLE), whole(2, 90), whole(2, 900)
        few, outside, on = whole(2, 9), chance.random() < 0.5, chance.random() < 0.5
        kind, said = pick(SONGS), pick(["on my way", "call me", "happy birthday"])
        room = pick(ROOMS)
        source, target = chance.sample(["EUR", "USD", "GBP"], 2)
        name = list(TOOLS)[len(found) % len(TOOLS)]
        asked, given = {
            "get_weather": (
                pick([f"Do I need an umbrella in {city}?", f"How is the weather in {city}?"]),
                {"city": city},
            ),
            "set_timer": (
                pick([f"Wake me in {n} minutes.", f"Set a timer for {n} minutes."]),
                {"minutes": n},
            ),
            "send_message": (
                pick([f'Tell {who} "{said}".', f'Write to {who}: "{said}"']),
                {"to": who, "message": said},
            ),
            "add": (pick([f"What is {m} plus {n}?", f"Add {m} and {n}."]), {"a": m, "b": n}),
            "play_music": (
                pick([f"Play some {kind} at volume {few}.", f"I want {kind}, volume {few}."]),
                {"kind": kind, "volume": few},
            ),
            "book_table": (
                f"Book a table for {few} in {city}, {'outside' if outside else 'inside'}.",
                {"city": city, "guests": few, "outside": outside},
            ),
            "convert_money": (
                pick([f"How much is {m} {source} in {target}?", f"Turn {m} {source} to {target}."]),
                {"amount": m, "source": source, "target": target},
            ),
            "switch_light": (
                f"Switch the light in the {room} {'on' if on else 'off'}, please.",
                {"room": room, "on": on},
            ),
        }[name]
        found.setdefault(asked, (name, given))
    return found


def parameters(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def functions() -> list[dict[str, Any]]:
    """The tools as OpenAI's API has them."""
    return [
        {
            "type": "function",
            "function": {"name": name, "description": about, "parameters": parameters(fields)},
        }
        for name, (about, fields) in TOOLS.items()
    ]


def union() -> JsonSchema:
    """One call, as an object of a name and its arguments."""
    return JsonSchema(
        {
            "anyOf": [
                parameters({"name": {"const": name}, "arguments": parameters(fields)})
                for name, (_, fields) in TOOLS.items()
            ]
        }
    )


WAYS = ("call required", "call or text", "union of schemas", "free text, parsed")


def first_object(written: str) -> dict[str, Any]:
    start = written.find("{")
    while start >= 0:
        try:
            value = json.JSONDecoder().raw_decode(written[start:])[0]
        except ValueError:
            start = written.find("{", start + 1)
            continue
        return value if isinstance(value, dict) else {}
    return {}


def measure(name: str, target: Path, count: int | None, n_ways: int | None) -> None:
    model = model_of(name)
    found = requests()
    required = Generator(model, ToolCalls(functions(), choice="required", parallel=False))
    free_or_call = Generator(model, ToolCalls(functions(), parallel=False))
    one_of = Generator(model, union())
    # What free text is told, the union is told too: the tools, and the form of a call.
    listed = "\n".join(json.dumps(one["function"]) for one in functions())
    system = (
        f"You call one of these tools:\n{listed}\n"
        'Answer with one JSON object: {"name": "the tool", "arguments": {...}}'
    )
    free = Generator(model)

    def ask(asked: str, way: str) -> Line:
        messages = [{"role": "user", "content": asked}]
        if way in ("union of schemas", "free text, parsed"):
            messages.insert(0, {"role": "system", "content": system})
        generator = {
            "call required": required,
            "call or text": free_or_call,
            "union of schemas": one_of,
            "free text, parsed": free,
        }[way]
        result = generator.result(messages, max_new_tokens=100)
        if way in ("call required", "call or text"):
            calls = [one for one in result.value if isinstance(one, structgen.Call)]
            called, given = (calls[0].name, calls[0].arguments) if calls else ("", {})
        else:
            value = first_object(result.text)
            called, given = value.get("name", ""), value.get("arguments", {})
        name, facts = found[asked]
        return {
            "right": [called == name],
            "whole": called == name and given == facts,
            "output": result.text,
            "reason": str(result.finish_reason),
            "tokens": result.usage.output_tokens,
        }

    measured(target, list(found)[:count], WAYS[:n_ways], ask)


def tables(files: list[Path]) -> None:
    table(files, WAYS, "requests, the tool right")
    for file in files:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        whole = file.with_suffix(".whole.jsonl")
        whole.write_text(
            "\n".join(json.dumps({**line, "right": [line.get("whole", False)]}) for line in lines),
            encoding="utf-8",
        )
        table([whole], WAYS, "requests, the tool and every argument right")
        whole.unlink()


if __name__ == "__main__":
    given = arguments(__doc__)
    if given.command == "measure":
        measure(given.model, given.file, given.items, given.ways)
    else:
        tables(given.files)
