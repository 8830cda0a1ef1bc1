"""The decode loop beside ONNX Runtime GenAI's own: guided documents, free text, steps, budgets.

    python tests/benchmarks/decode.py DATA [--quick] [--rounds 5] [--json FILE] [--model NAME]
                                           [--tokenizer PATH]

DATA is ``maskbench-dev.jsonl.xz`` or a folder that has it. Both engines write the same documents:
24 schemas, half of them typical Pydantic ones and half from MaskBench, one chat prompt, greedy,
JSON without blanks. The runtime's guidance is `set_guidance` with fast-forward tokens.
They alternate run by run, and so does who goes first; grammars have been compiled before, and each
call's sequence is made within the time. Ratios are ours / theirs, and medians of ratios by schema.

--quick is for seeing that it works: 4 schemas, short texts. --tokenizer is a ``tokenizer.json`` of
128k tokens, whose masked step is then measured on made-up logits.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import math
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema_rs
import numpy as np
import onnxruntime_genai as og
from pydantic import BaseModel, ConfigDict, Field

import structgen
from structgen import Generator, JsonSchema, Regex
from structgen.decoding.results import GenerationResult
from structgen.models.base import MASK_INPUT
from structgen.models.genai.sequences import all_allowed
from structgen.sampling.processors import TokenMask

N_SCHEMAS = 24
SYSTEM = (
    "You turn what people write into records. Answer with one JSON document and nothing else. Use "
    "the field names exactly as they are given, keep texts short, and leave out what is unknown. "
    "Dates are written as year-month-day, amounts without currency signs, names as they are spelt."
)
ASKED = "Write a short record about a customer called Maria Stone who lives in Lisbon."
QUESTIONS = [
    ASKED,
    "Write one about Tom Hill, 54, from Leeds.",
    "Now one about the Elephant Hotel.",
]


class Colour(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


Short = Annotated[str, Field(max_length=30)]
Words = Annotated[list[Short], Field(max_length=3)]


class Record(BaseModel):
    """What such schemas are made with where a model fills them in: nothing but what they name."""

    model_config = ConfigDict(extra="forbid")


class Address(Record):
    street: Short
    city: Short
    postal_code: Annotated[str, Field(pattern="^[0-9]{5}$")]
    country: Literal["PT", "GB", "DE", "FR", "US"]


class Customer(Record):
    first_name: Short
    last_name: Short
    age: Annotated[int, Field(ge=0, le=120)]
    address: Address
    newsletter: bool


class Sentiment(Record):
    label: Literal["positive", "negative", "neutral"]
    confidence: Annotated[float, Field(ge=0, le=1)]


class Ticket(Record):
    title: Short
    priority: Literal["low", "medium", "high", "urgent"]
    component: Literal["billing", "account", "search", "delivery"]
    tags: Words
    is_customer_visible: bool


class Line(Record):
    product: Short
    quantity: Annotated[int, Field(ge=1, le=99)]
    unit_price: Annotated[float, Field(ge=0, le=1000)]


class Order(Record):
    order_number: Annotated[str, Field(pattern="^ORD-[0-9]{6}$")]
    lines: Annotated[list[Line], Field(min_length=1, max_length=2)]
    shipping_method: Literal["standard", "express"]
    gift_wrapping: bool


class Event(Record):
    summary: Short
    start_date: Annotated[str, Field(json_schema_extra={"format": "date"})]
    all_day: bool
    reminder_minutes: Literal[0, 5, 15, 60]


class Settings(Record):
    theme_colour: Colour
    font_size: Annotated[int, Field(ge=8, le=32)]
    notifications_enabled: bool
    keyboard_shortcuts_enabled: bool
    automatic_updates_enabled: bool
    preferred_language: Literal["en", "de", "fr", "pt"]


class Weather(Record):
    tool_name: Literal["get_current_weather"]
    location: Short
    temperature_unit: Literal["celsius", "fahrenheit"]


class Extraction(Record):
    people: Words
    organisations: Words
    locations: Words


class Step(Record):
    explanation: Annotated[str, Field(max_length=60)]
    result: Short


class Reasoning(Record):
    steps: Annotated[list[Step], Field(min_length=1, max_length=2)]
    final_answer: Short


class Medical(Record):
    patient_identifier: Annotated[str, Field(pattern="^P[0-9]{4}$")]
    blood_pressure_systolic: Annotated[int, Field(ge=60, le=250)]
    blood_pressure_diastolic: Annotated[int, Field(ge=30, le=150)]
    smoker: bool
    allergies: Words


class Flags(Record):
    contains_personal_data: bool
    contains_payment_data: bool
    needs_human_review: bool
    language: Literal["en", "de", "fr", "pt", "other"]


PYDANTIC: list[type[Record]] = [
    *(Customer, Sentiment, Ticket, Order, Event, Settings),
    *(Weather, Extraction, Reasoning, Medical, Flags, Address),
]


def maskbench(path: Path, n: int) -> list[tuple[str, dict[str, Any]]]:
    """``n`` schemas of small records, always the same ones."""
    file = path / "maskbench-dev.jsonl.xz" if path.is_dir() else path
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    found = []
    random.Random(6).shuffle(cases)
    for case in cases:
        schema, text = case["schema"], json.dumps(case["schema"])
        small = isinstance(schema, dict) and len(schema.get("required", ())) >= 2
        if not (small and schema.get("type") == "object" and 200 < len(text) < 1500):
            continue
        if schema.get("additionalProperties", True) is not False or "$ref" in text:
            continue
        found.append((case["id"], schema))
        if len(found) == n:
            break
    return found


class Bench:
    """Both engines on one model."""

    def __init__(self, name: str, max_tokens: int) -> None:
        self.model = structgen.load(name)
        self.og_model = og.Model(str(self.model.folder))  # which has no mask
        self.max_tokens = max_tokens

    def prompt(self, question: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]

    def prompt_ids(self, question: str) -> Any:
        return self.model.encode(self.model.apply_chat_template(self.prompt(question)))

    def ours(self, generator: Generator, question: str, n: int) -> tuple[GenerationResult, float]:
        started = time.perf_counter()
        result = generator.result(self.prompt(question), max_new_tokens=n, do_sample=False)
        return result, time.perf_counter() - started

    def theirs(self, schema: str, question: str, n: int) -> tuple[str, bool, int, float]:
        """Text, whether it ended by itself, tokens, seconds."""
        started = time.perf_counter()
        ids = self.prompt_ids(question)
        params = og.GeneratorParams(self.og_model)
        params.set_search_options(max_length=len(ids) + n + 64, do_sample=False)
        params.set_guidance("json_schema", schema, True)
        generator = og.Generator(self.og_model, params)
        generator.append_tokens(ids)
        # Fast-forwarded tokens that would go beyond max_length crash it, hence room for more.
        while not generator.is_done() and generator.token_count() < len(ids) + n:
            generator.generate_next_token()
        ended = bool(generator.is_done())
        tokens = generator.get_sequence(0)[len(ids) : len(ids) + n]
        seconds = time.perf_counter() - started
        eos = self.model.vocabulary.eos_token_ids
        written = [int(token) for token in tokens if int(token) not in eos]
        return self.model.decode(written), ended, len(written), seconds

    def bare(self, room: int, *, same_weights: bool = False) -> Iterator[int]:
        """Free text without any of ours, token by token; ``room`` as for `Generator.stream`.

        With ``same_weights`` by the very model that ours runs. Copies lie elsewhere in memory, by
        which steps of two processes differ by a tenth.
        """
        ids = self.prompt_ids(ASKED)
        model = self.model.og_model if same_weights else self.og_model
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=len(ids) + room, do_sample=False)
        generator = og.Generator(model, params)
        if same_weights and self.model.has_mask:
            generator.set_model_input(MASK_INPUT, all_allowed(self.model.vocabulary.size))
        generator.append_tokens(ids)
        eos = self.model.vocabulary.eos_token_ids
        while not generator.is_done():
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            if token in eos:
                return
            yield token

    def one_pass(self, ids: Any) -> float:
        """Seconds to run tokens in one pass from nothing: what no decode loop can go below."""
        started = time.perf_counter()
        params = og.GeneratorParams(self.og_model)
        params.set_search_options(max_length=len(ids) + 1, do_sample=False)
        og.Generator(self.og_model, params).append_tokens(ids)
        return time.perf_counter() - started


def guidance(schema: dict[str, Any]) -> str:
    """The schema for the runtime, told to write JSON as compactly as we do by default."""
    compact = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
    return json.dumps({**schema, "x-guidance": compact})


def is_valid(schema: dict[str, Any], text: str) -> bool:
    try:
        return bool(jsonschema_rs.is_valid(schema, json.loads(text)))
    except ValueError:
        return False


def alternate(actions: Sequence[Callable[[], None]], turn: int) -> None:
    for action in actions if turn % 2 == 0 else actions[::-1]:
        action()


def documents(bench: Bench, name: str, schema: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Both engines on one schema: cold, with a shared system prompt, and within a small budget."""
    model, n = bench.model, bench.max_tokens
    generator = Generator(model, JsonSchema(schema))
    text = guidance(schema)
    bench.ours(generator, ASKED, n)  # grammars and masks are there before any time is taken
    bench.theirs(text, ASKED, n)
    prompt_ids = bench.prompt_ids(ASKED)
    cold: dict[str, list[float]] = {"ours": [], "theirs": []}
    kept: dict[str, list[float]] = {"ours": [], "theirs": []}
    first: list[float] = []
    floor: list[float] = []
    seen: dict[str, Any] = {}

    def ours_cold() -> None:
        model.close()
        result, seconds = bench.ours(generator, ASKED, n)
        cold["ours"].append(seconds)
        first.append(result.timings.first_chunk_seconds or 0.0)
        seen["ours"] = result
        floor.append(bench.one_pass([*prompt_ids, *result.token_ids]))

    def theirs_cold() -> None:
        *what, seconds = bench.theirs(text, ASKED, n)
        cold["theirs"].append(seconds)
        seen["theirs"] = what

    reused = 0
    prompts = 0

    def ours_kept() -> None:
        nonlocal reused, prompts
        for question in QUESTIONS:
            result, seconds = bench.ours(generator, question, n)
            kept["ours"].append(seconds)
            reused += result.usage.reused_tokens
            prompts += result.usage.prompt_tokens

    def theirs_kept() -> None:
        kept["theirs"] += [bench.theirs(text, question, n)[-1] for question in QUESTIONS]

    for turn in range(rounds):
        alternate([ours_cold, theirs_cold], turn)
        alternate([ours_kept, theirs_kept], turn)
    usage = seen["ours"].usage
    their_text, their_end, their_tokens = seen["theirs"]
    row = {
        "schema": name,
        "cold": statistics.median(cold["ours"]) / statistics.median(cold["theirs"]),
        "floor": statistics.median(floor) / statistics.median(cold["theirs"]),
        "shared": sum(kept["ours"]) / sum(kept["theirs"]),
        "seconds": statistics.median(cold["ours"]),
        "their_seconds": statistics.median(cold["theirs"]),
        "tokens": usage.output_tokens,
        "their_tokens": their_tokens,
        "forced": usage.forced_tokens / max(usage.output_tokens, 1),
        "reused": reused / prompts,
        "first_chunk_ms": 1e3 * statistics.median(first),
        "valid": is_valid(schema, seen["ours"].text),
        "their_valid": their_end and is_valid(schema, their_text),
    }
    return row | within_budget(bench, generator, schema)


def within_budget(bench: Bench, generator: Generator, schema: dict[str, Any]) -> dict[str, Any]:
    """Whether the document is whole and valid with 1.2 times the fewest tokens."""
    try:
        generator.result(bench.prompt(ASKED), max_new_tokens=1)
        minimum = 1
    except structgen.BudgetTooSmall as error:
        minimum = error.minimum
    budget = math.ceil(1.2 * minimum)
    result, _ = bench.ours(generator, ASKED, budget)
    text, ended, _, _ = bench.theirs(guidance(schema), ASKED, budget)
    whole = result.finish_reason == "stop"
    return {
        "budget": budget,
        "budget_valid": whole and is_valid(schema, result.text),
        "budget_their_valid": ended and is_valid(schema, text),
    }


def free_text(bench: Bench, n: int, rounds: int) -> float:
    """Our tokens a second over those of a bare loop, prompts included."""
    generator = Generator(bench.model)
    ratios = []
    for turn in range(rounds):
        speeds: dict[str, float] = {}

        def ours(speeds: dict[str, float] = speeds) -> None:
            bench.model.close()
            result, seconds = bench.ours(generator, ASKED, n)
            speeds["ours"] = result.usage.output_tokens / seconds

        def bare(speeds: dict[str, float] = speeds) -> None:
            started = time.perf_counter()
            count = sum(1 for _ in itertools.islice(bench.bare(n), n))
            speeds["bare"] = count / (time.perf_counter() - started)

        alternate([ours, bare], turn)
        ratios.append(speeds["ours"] / speeds["bare"])
    return statistics.median(ratios)


def side_by_side(bench: Bench, output_type: Any, n: int) -> tuple[float, float]:
    """Our steps over those of a bare loop, and a bare step in milliseconds.

    Both go on turn and turn about, a step each, with room for as many tokens, so that what else
    this machine does meets both alike; the median of the ratios of up to ``n`` pairs, fewer where
    one of them ends.
    """
    room = 1024
    generator = Generator(bench.model, output_type)
    ours, bare = [], []
    with generator.stream(bench.prompt(ASKED), do_sample=False, speculate=False) as stream:
        rest = bench.bare(room, same_weights=True)
        for _ in range(4):
            next(stream), next(rest)
        for turn in range(n):
            before = stream._run.part.tokens.length

            def step(before: int = before) -> None:
                started = time.perf_counter()
                while stream._run.part.tokens.length == before:
                    next(stream)
                seconds = time.perf_counter() - started
                ours.append(seconds / (stream._run.part.tokens.length - before))

            def bare_step() -> None:
                started = time.perf_counter()
                next(rest)
                bare.append(time.perf_counter() - started)

            try:
                alternate([step, bare_step], turn)
            except StopIteration:
                break
    ratios = [a / b for a, b in zip(ours, bare, strict=False)]
    return statistics.median(ratios), 1e3 * statistics.median(bare)


def mask_work(vocabulary: structgen.Vocabulary, rounds: int) -> float:
    """Milliseconds that a masked, greedy step spends outside of the model."""
    cursor = structgen.compile(Regex(r"[\s\S]*\n#END OF FILE#"), vocabulary).start(
        max_tokens=100_000
    )
    mask = TokenMask(cursor, vocabulary.size, len(vocabulary.eos_token_ids))
    scores = np.random.default_rng(0).normal(size=(1, vocabulary.size)).astype(np.float32)
    nothing = np.empty((1, 0), np.int32)
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        logits = scores.copy()  # the runtime hands out a copy
        cursor.forced()
        mask.begin()
        cursor.accept(int(mask(nothing, logits).argmax()))
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)


def batches(bench: Bench, n: int, rounds: int) -> float:
    """Structured tokens a second of eight rows over those of one, forced tokens off in both."""
    generator = Generator(bench.model, Regex(rf"[a-z ,.]{{{n},}}"))
    prompts = [f"The story of the letter {letter}: once upon a time" for letter in "ABCDEFGH"]
    options: dict[str, Any] = {"forced": False, "max_new_tokens": n, "do_sample": False}
    generator.result(prompts[:2], batch_size=2, **options)  # masks are there, and padding tried
    ratios = []
    for turn in range(rounds):
        speeds: dict[int, float] = {}

        def run(size: int, speeds: dict[int, float] = speeds) -> None:
            bench.model.close()
            started = time.perf_counter()
            results = generator.result(prompts, batch_size=size, **options)
            tokens = sum(result.usage.output_tokens for result in results)
            speeds[size] = tokens / (time.perf_counter() - started)

        alternate([lambda: run(1), lambda: run(8)], turn)
        ratios.append(speeds[8] / speeds[1])
    return statistics.median(ratios)


def bare_batches(bench: Bench, n: int) -> float:
    """The same for the runtime alone, which `batches` cannot go beyond."""
    row = bench.model.encode("The story of the letter A: once upon a time")
    steps = {}
    for size in (1, 8):
        params = og.GeneratorParams(bench.og_model)
        params.set_search_options(max_length=512, do_sample=False, batch_size=size)
        generator = og.Generator(bench.og_model, params)
        generator.append_tokens(np.stack([row] * size))
        steps[size] = generator
    ratios = []
    for _ in range(n):
        times = {}
        for size, generator in steps.items():
            started = time.perf_counter()
            generator.generate_next_token()
            times[size] = time.perf_counter() - started
        ratios.append(8 * times[1] / times[8])
    return statistics.median(ratios[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--tokenizer", type=Path)
    arguments = parser.parse_args()
    quick = arguments.quick
    bench = Bench(arguments.model, 60 if quick else 200)
    rounds = 1 if quick else arguments.rounds
    length = 24 if quick else 128
    schemas = [(cls.__name__, cls.model_json_schema()) for cls in PYDANTIC]
    schemas += maskbench(arguments.data, N_SCHEMAS - len(schemas))
    if quick:
        schemas = [*schemas[:2], *schemas[-2:]]
    rows = []
    print(f"{'schema':34}   cold  floor shared forced      tokens  valid  in budget")
    for name, schema in schemas:
        try:
            row = documents(bench, name, schema, rounds)
        except (structgen.StructgenError, RuntimeError) as error:
            print(f"{name:34} left out: {str(error).splitlines()[0][:90]}")
            continue
        rows.append(row)
        print(
            f"{name[:34]:34} {row['cold']:6.2f} {row['floor']:6.2f} {row['shared']:6.2f} "
            f"{row['forced']:6.0%} "
            f"{row['tokens']:5}/{row['their_tokens']:<5}  {row['valid']:d}/{row['their_valid']:d}"
            f"    {row['budget_valid']:d}/{row['budget_their_valid']:d}",
            flush=True,
        )

    def median(key: str) -> float:
        return statistics.median(row[key] for row in rows)

    # All text is allowed, but no end before these words, which nobody writes.
    step_ratio, step = side_by_side(bench, Regex(r"[\s\S]*\n#END OF FILE#"), length)
    found: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "structgen": structgen.__version__,
        "onnxruntime_genai": og.__version__,
        "model": bench.model.name,
        "schemas": len(rows),
        "time per document, cold": median("cold"),
        "the same, if all were one pass": median("floor"),
        "time per document, shared system prompt": median("shared"),
        "free text, tokens a second": free_text(bench, length, rounds),
        "the same, without the prompt": 1 / side_by_side(bench, None, length)[0],
        "masked step over bare step": step_ratio,
        "bare step, ms": step,
        "outside of the model in a masked step, ms": mask_work(bench.model.vocabulary, 60),
        "valid in budget": statistics.mean(row["budget_valid"] for row in rows),
        "valid in budget, theirs": statistics.mean(row["budget_their_valid"] for row in rows),
        "valid": statistics.mean(row["valid"] for row in rows),
        "valid, theirs": statistics.mean(row["their_valid"] for row in rows),
        "forced share": sum(r["forced"] * r["tokens"] for r in rows)
        / sum(r["tokens"] for r in rows),
        "reused prompt tokens": median("reused"),
        "time to first chunk, cold, ms": median("first_chunk_ms"),
        "batch of 8 over one by one": batches(bench, length, rounds),
        "the same, the runtime alone": bare_batches(bench, length),
        "rows": rows,
    }
    if arguments.tokenizer:
        wide = structgen.Vocabulary.from_tokenizer_json(arguments.tokenizer)
        found[f"the same, {wide.size:,} tokens, ms"] = mask_work(wide, 60)
    print()
    for key, value in found.items():
        if key != "rows":
            print(f"{key:45} {value:.3f}" if isinstance(value, float) else f"{key:45} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
