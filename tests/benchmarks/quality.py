"""What the shape of an output type does to a small model's answers: right fields, tokens, time.

    python tests/benchmarks/quality.py measure MODEL FILE [--texts N]
    python tests/benchmarks/quality.py table FILE...

Made-up texts of four kinds (invoices, events, people, products), untidy as such texts are, whose
facts are known; the model is asked for them as JSON, greedily, in each of the ways of `WAYS`. A
field counts if its value is the one in the text. `measure` takes one text after the other, each in
all ways, and writes line by line; so it may be stopped, and goes on where it was. `table` tells,
for each way, the share of fields that are right, with intervals of 95% by 2,000 resamples of the
texts.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import structgen
from structgen import Generator, JsonSchema
from structgen.errors import StructgenError

MOST_TOKENS = 110
N_RESAMPLES = 2000

FIRST = ["Jan", "Ada", "Tom", "Lena", "Ivo", "Mia", "Otto", "Rosa", "Karl", "Ines"]
LAST = ["Novak", "Berg", "Reed", "Vogt", "Kral", "Sand", "Lang", "Silva", "Moser", "Dahl"]
CITIES = ["Prague", "Oslo", "Turin", "Ghent", "Lyon", "Porto", "Graz", "Leeds", "Malmo", "Basel"]
FIRMS = ["Alder Tools", "Blue Crane", "Corvo Print", "Delta Glass", "Elm and Sons", "Fjord Data"]
JOBS = ["engineer", "teacher", "nurse", "painter", "farmer", "pilot", "lawyer", "baker"]
EVENTS = ["concert", "workshop", "lecture", "market"]
COLOURS = ["red", "blue", "green", "black", "white"]
THINGS = ["lamp", "kettle", "chair", "clock", "bag", "desk"]


def text(maximum: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": maximum}


def number(low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


FIELDS: dict[str, dict[str, dict[str, Any]]] = {
    "invoice": {
        "company": text(30),
        "customer": text(30),
        "invoice_number": number(1000, 9999),
        "amount": number(10, 5000),
        "paid": {"type": "boolean"},
    },
    "event": {
        "kind": {"enum": EVENTS},
        "city": text(20),
        "day": number(1, 28),
        "guests": number(5, 400),
        "host": text(30),
    },
    "person": {
        "name": text(30),
        "job": text(20),
        "city": text(20),
        "age": number(18, 90),
        "married": {"type": "boolean"},
    },
    "product": {
        "product": text(20),
        "colour": {"enum": COLOURS},
        "price": number(5, 900),
        "in_stock": {"type": "boolean"},
        "maker": text(30),
    },
}


def tasks(count: int) -> list[tuple[str, str, dict[str, Any]]]:
    """A kind, a text and its facts: the same ones every time."""
    chance = random.Random(20)
    found: list[tuple[str, str, dict[str, Any]]] = []
    for i in range(count):
        pick = chance.choice
        name = f"{pick(FIRST)} {pick(LAST)}"
        kind = list(FIELDS)[i % 4]
        if kind == "invoice":
            facts: dict[str, Any] = {
                "company": pick(FIRMS),
                "customer": name,
                "invoice_number": chance.randint(1000, 9999),
                "amount": chance.randint(10, 5000),
                "paid": chance.random() < 0.5,
            }
            state = pick(["settled, thank you", "PAID"]) if facts["paid"] else "still open!!"
            said = (
                f"fwd: re: {facts['company']} // inv no {facts['invoice_number']} -- to {name}. "
                f"total due EUR {facts['amount']} ({state}). pls keep for your records"
            )
        elif kind == "event":
            facts = {
                "kind": pick(EVENTS),
                "city": pick(CITIES),
                "day": chance.randint(1, 28),
                "guests": chance.randint(5, 400),
                "host": name,
            }
            said = (
                f"Hi all, quick note: the {facts['kind']} is on the {facts['day']}th of May, in "
                f"{facts['city']} this time. {name} is hosting. We count on {facts['guests']} "
                "guests, so book early!"
            )
        elif kind == "person":
            facts = {
                "name": name,
                "job": pick(JOBS),
                "city": pick(CITIES),
                "age": chance.randint(18, 90),
                "married": chance.random() < 0.5,
            }
            home = "husband/wife at home" if facts["married"] else "single"
            said = (
                f"{name}, {facts['age']}, {home}. has worked as {facts['job']} for years; "
                f"lives in {facts['city']} (used to travel a lot)."
            )
        else:
            facts = {
                "product": pick(THINGS),
                "colour": pick(COLOURS),
                "price": chance.randint(5, 900),
                "in_stock": chance.random() < 0.5,
                "maker": pick(FIRMS),
            }
            stock = "available now" if facts["in_stock"] else "SOLD OUT, sorry"
            said = (
                f"*** {facts['colour']} {facts['product']} by {facts['maker']} *** only "
                f"{facts['price']}.- / {stock} / no returns"
            )
        found.append((kind, said, facts))
    return found


# -- ways to ask ------------------------------------------------------------------------------

CODES = ("f1", "f2", "f3", "f4", "f5")
REASONING = {"reasoning": text(160)}


def schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }


def words(most: int | None) -> dict[str, Any]:
    bound = {} if most is None else {"maxItems": most}
    return {"type": "array", "items": text(20), **bound}


def unbounded(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"type": "string"} if one.get("type") == "string" else one
        for name, one in fields.items()
    }


def coded(fields: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip(CODES, fields.values(), strict=True))


Way = tuple[Callable[[Mapping[str, Any]], Mapping[str, Any]], dict[str, Any], dict[str, Any]]

WAYS: dict[str, Way] = {
    "masked, schema shown": (dict, {}, {}),
    "free text, parsed": (dict, {}, {"free": True}),
    "schema not shown": (dict, {}, {"hint": ""}),
    "fields named": (dict, {}, {"hint": "names"}),
    "fields named, free text": (dict, {}, {"hint": "names", "free": True}),
    "whitespace compact": (dict, {"whitespace": "compact"}, {}),
    "whitespace spaced": (dict, {"whitespace": "spaced"}, {}),
    "whitespace flexible": (dict, {"whitespace": "flexible"}, {}),
    "forced=False": (dict, {}, {"forced": False}),
    "best=True": (dict, {}, {"best": True}),
    "strings without maxLength": (unbounded, {}, {}),
    "names f1 to f5": (coded, {}, {}),
    "and a list of at most 5": (lambda fields: {**fields, "keywords": words(5)}, {}, {}),
    "and a list of any length": (lambda fields: {**fields, "keywords": words(None)}, {}, {}),
    "reasoning field first": (lambda fields: {**REASONING, **fields}, {}, {}),
    "reasoning field last": (lambda fields: {**fields, **REASONING}, {}, {}),
}
"""Each way's fields, options of the generator, and how it is asked."""


def prompt(said: str, asked: Mapping[str, Any], *, hint: str) -> list[dict[str, str]]:
    shown = {
        "": " in JSON.",
        "names": f" in JSON, with the fields {', '.join(asked['properties'])}.",
        "schema": f" with this JSON schema:\n{json.dumps(asked)}",
    }[hint]
    return [{"role": "user", "content": f"Text: {said}\n\nGive the facts of the text{shown}"}]


def parsed(written: str) -> Any:
    """The first JSON object in a text, or None."""
    start = written.find("{")
    if start < 0:
        return None
    try:
        return json.JSONDecoder().raw_decode(written[start:])[0]
    except ValueError:
        return None


def measure(name: str, target: Path, count: int) -> None:
    where: Any = Path(name) if "/" in name else name
    model = structgen.load(where)
    known = set()
    if target.exists():
        lines = map(json.loads, target.read_text(encoding="utf-8").splitlines())
        known = {(line["text"], line["way"]) for line in lines}
    generators: dict[tuple[str, str], Generator[Any]] = {}
    with target.open("a", encoding="utf-8") as file:
        for kind, said, facts in tasks(count):
            for way, (changed, options, how) in WAYS.items():
                if (said, way) in known:
                    continue
                fields = changed(FIELDS[kind])
                asked = schema(fields)
                messages = prompt(said, asked, hint=how.get("hint", "schema"))
                if (kind, way) not in generators:
                    output_type = None if how.get("free") else JsonSchema(asked)
                    generators[kind, way] = Generator(model, output_type, **options)
                call = {key: how[key] for key in ("forced", "best") if key in how}
                began = time.process_time()
                try:
                    result = generators[kind, way].result(
                        messages, max_new_tokens=MOST_TOKENS + 50 * (len(fields) > 5), **call
                    )
                    written, reason = result.text, str(result.finish_reason)
                    n_tokens = result.usage.output_tokens
                except StructgenError as error:
                    written, reason, n_tokens = "", type(error).__name__, 0
                seconds = time.process_time() - began
                value = parsed(written)
                value = value if isinstance(value, dict) else {}
                names = CODES if way == "names f1 to f5" else tuple(facts)
                right = [
                    type(value.get(key)) is type(fact) and value.get(key) == fact
                    for key, fact in zip(names, facts.values(), strict=True)
                ]
                line = {
                    **{"text": said, "kind": kind, "way": way, "right": right, "output": written},
                    **{"reason": reason, "tokens": n_tokens, "seconds": round(seconds, 2)},
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()


def table(files: list[Path]) -> None:
    for file in files:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        texts = list(dict.fromkeys(line["text"] for line in lines))
        by_way = {way: {line["text"]: line for line in lines if line["way"] == way} for way in WAYS}
        texts = [text for text in texts if all(text in found for found in by_way.values())]
        samples = np.random.default_rng(0).integers(0, len(texts), (N_RESAMPLES, len(texts)))
        shares = {
            way: np.array([np.mean(found[text]["right"]) for text in texts])
            for way, found in by_way.items()
        }
        base = shares["masked, schema shown"]
        print(f"\n{file.stem}: {len(texts)} texts")
        print("| way | fields right | against the first | cut short | tokens | s |")
        print("|---|---|---|---|---|---|")
        for way, found in by_way.items():
            mine = [found[text] for text in texts]
            cut = sum(line["reason"] in ("budget", "length") for line in mine)
            more = shares[way] - base
            cells = [
                f"{shares[way].mean():.2f} ({interval(shares[way], samples)})",
                f"{more.mean():+.2f} ({interval(more, samples)})",
                f"{cut}",
                f"{np.mean([line['tokens'] for line in mine]):.0f}",
                f"{np.mean([line['seconds'] for line in mine]):.2f}",
            ]
            print(f"| {way} | {' | '.join(cells)} |")


def interval(values: Any, samples: Any) -> str:
    low, high = np.percentile(values[samples].mean(axis=1), [2.5, 97.5])
    return f"{low:.2f} to {high:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("model")
    measuring.add_argument("file", type=Path)
    measuring.add_argument("--texts", type=int, default=200)
    showing = commands.add_parser("table")
    showing.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "measure":
        measure(given.model, given.file, given.texts)
    else:
        table(given.files)


if __name__ == "__main__":
    main()
