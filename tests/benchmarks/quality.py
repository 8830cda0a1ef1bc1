"""What the shape of an output type does to a small model's answers: right fields, tokens, time.

    python tests/benchmarks/quality.py measure MODEL FILE [--items N] [--ways N]
    python tests/benchmarks/quality.py table FILE...
    python tests/benchmarks/quality.py invented MODEL

Made-up texts of four kinds (invoices, events, people, products), untidy as such texts are, whose
facts are known; the model is asked for them as JSON, greedily, in each of the ways of `WAYS`. A
field counts if its value is the one in the text. `measure` takes one text after the other, each in
all ways (or the first N), and writes line by line; so it may be stopped, and goes on where it was.
`table` tells, for each way, the share of fields that are right, with intervals of 95% by 2,000
resamples of the texts. `invented` counts what no text has: phone numbers, and years of dates.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from studies import Line, arguments, measured, model_of, table
from typing_extensions import TypedDict

from structgen import Generator, JsonSchema

MOST_TOKENS = 110

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
    "with_schema_hint=True": (dict, {"with_schema_hint": True}, {"hint": ""}),
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


def measure(name: str, target: Path, count: int | None, n_ways: int | None) -> None:
    model = model_of(name)
    generators: dict[tuple[str, str], Generator[Any]] = {}
    found = {said: (kind, facts) for kind, said, facts in tasks(200 if count is None else count)}

    def ask(said: str, way: str) -> Line:
        kind, facts = found[said]
        changed, options, how = WAYS[way]
        fields = changed(FIELDS[kind])
        asked = schema(fields)
        messages = prompt(said, asked, hint=how.get("hint", "schema"))
        if (kind, way) not in generators:
            output_type = None if how.get("free") else JsonSchema(asked)
            generators[kind, way] = Generator(model, output_type, **options)
        call = {key: how[key] for key in ("forced", "best") if key in how}
        most = MOST_TOKENS + 50 * (len(fields) > 5)
        result = generators[kind, way].result(messages, max_new_tokens=most, **call)
        value = parsed(result.text)
        value = value if isinstance(value, dict) else {}
        names = CODES if way == "names f1 to f5" else tuple(facts)
        right = [
            type(value.get(key)) is type(fact) and value.get(key) == fact
            for key, fact in zip(names, facts.values(), strict=True)
        ]
        return {
            **{"kind": kind, "right": right, "output": result.text},
            **{"reason": str(result.finish_reason), "tokens": result.usage.output_tokens},
        }

    measured(target, list(found), [*WAYS][:n_ways], ask)


# -- what no text has -------------------------------------------------------------------------

PHONE = {"anyOf": [text(20), {"type": "null"}]}
SAID = {**PHONE, "description": "The phone number, only if the text has one; else null"}
ASKED = {
    "optional": (PHONE, {}, False),
    "described": (SAID, {"with_schema_hint": True}, False),
    "after an example": (PHONE, {}, True),
}
"""Each way's field for a phone number, options of its generator, whether an example is shown."""

DAYS = """Your parcel comes on the 4th of May. / We met last Tuesday. / Please pay by June 12.
The contract ends on 31 March next year. / The lamp broke on the second of July.
Our meeting is on Friday the 9th. / She was hired on 1 September. / Return it before 20 January.
The concert is on December 5th. / The invoice is from 3 August. / I ordered it on October 15th.
The warranty runs out on 7 November."""
FIRST_DAY, LAST_DAY = dt.date(2020, 1, 1), dt.date(2030, 12, 31)


def invented(name: str, count: int = 20) -> None:
    model = model_of(name)
    people = [(said, facts) for kind, said, facts in tasks(4 * count + 4) if kind == "person"]
    (shown, known), *rest = people
    for way, (phone, options, has_example) in ASKED.items():
        asked = schema({**FIELDS["person"], "phone": phone})
        asked["required"].remove("phone")
        generator = Generator(model, JsonSchema(asked), **options)
        example = [
            *prompt(shown, asked, hint="names"),
            {"role": "assistant", "content": json.dumps({**known, "phone": None})},
        ]
        found = 0
        for said, _ in rest:
            messages = [*example * has_example, *prompt(said, asked, hint="names")]
            written = json.loads(generator(messages, max_new_tokens=MOST_TOKENS))
            found += written.get("phone") is not None
        print(f"{way}: {found} of {len(rest)} have a phone number", flush=True)
    for bounds in ({}, {"ge": FIRST_DAY, "le": LAST_DAY}):
        generator = Generator(
            model, TypedDict("Event", {"day": Annotated[dt.date, Field(**bounds)]})
        )
        said = [one.strip() for one in DAYS.replace("\n", " / ").split(" / ")]
        ask = [f"Text: {one}\n\nGive the day of the text in JSON." for one in said]
        years = [generator.parse([{"role": "user", "content": one}])["day"].year for one in ask]
        odd = sum(not 1900 <= year <= 2100 for year in years)
        print(f"{bounds or 'any date'}: {odd} of {len(years)} years are odd: {years}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["invented"]:
        sys.exit(invented(sys.argv[2]))
    given = arguments(__doc__)
    if given.command == "measure":
        measure(given.model, given.file, given.items, given.ways)
    else:
        table(given.files, [*WAYS], "texts")
