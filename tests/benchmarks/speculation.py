"""What ``speculate=True`` gains: time and passes of extractions and of free text, with and without.

    python tests/benchmarks/speculation.py [--model NAME] [--rounds 3] [--prompts 20] [--json FILE]
        [--draft NAME] [--draft-cost 0.1] [--token 0.3] [--llama PYTHON --gguf FILE]

First what a pass over so many tokens costs here, in passes over one (the least of several). Then
each prompt is run with and without, in turns; its time is the least of the rounds. Beside times it
what no load changes: passes after the prompt, and what they cost by the costs of passes. Behind
that are two bounds for the same guesses: had each output the one length of guesses that turns out
to suit it best, and were it known of each single token whether it comes.

With ``--draft`` a small model guesses, too. ``--draft-cost`` is the price of its passes instead of
the ratio of the files' sizes, and ``--token`` that of a further token in a pass: passes are then
chosen and counted as on such a device.

``--llama`` is the Python of an environment with llama-cpp-python, which then makes the extractions
of the same weights (``--gguf``), by its own grammar, without and with its prompt lookup.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field

import structgen
from structgen import Generator, TextModel
from structgen.decoding import generation
from structgen.decoding.chat_tokens import Speller
from structgen.decoding.speculation import Speculation
from structgen.models.base import ON_CPU

PLENTY = replace(ON_CPU, token=1e-6)
"""A pace at which every guess is tried whole."""

Short = Annotated[str, Field(max_length=60)]


class Person(BaseModel):
    name: Short
    born: int
    city: Short
    occupation: Short
    employer: Short


class Invoice(BaseModel):
    number: Short
    supplier: Short
    street: Short
    items: Annotated[list[Short], Field(max_length=4)]
    total: float


FIRST = ("Ada", "Jonathan", "Wilhelmina", "Theophilus", "Maria", "Konstantin")
LAST = ("Lovelace", "Hargreaves", "Fotheringham", "Gonzalez-Fernandez", "Okonkwo", "Vasiliev")
CITIES = ("Valparaiso", "Edinburgh", "Aberystwyth", "Novosibirsk", "Lisbon", "Chattanooga")
WORKS = ("marine biologist", "structural engineer", "chief inspector", "botanist", "notary")
FIRMS = (
    "the Scripps Institution of Oceanography",
    "Arup Infrastructure Consulting Ltd",
    "Hendricks & Daughters Shipping",
    "the Royal Botanic Garden",
)
GOODS = ("stainless steel brackets", "galvanised hinges", "oak floor boards", "copper pipe clamps")


def prompts(n: int) -> list[tuple[type[BaseModel], str]]:
    found: list[tuple[type[BaseModel], str]] = []
    for i in range(n):
        name = f"{FIRST[i % 6]} {LAST[(i * 5 + 1) % 6]}"
        city, firm = CITIES[(i * 7) % 6], FIRMS[i % 4]
        if i % 2:
            text = (
                f"Invoice INV-{4711 + 37 * i}. {firm.removeprefix('the ')}, {12 + i} Harbour "
                f"Street, {city}. We delivered {GOODS[i % 4]} and {GOODS[(i + 1) % 4]} to {name}. "
                f"Please pay {90 + i * 3}.50 within 30 days."
            )
            found.append((Invoice, f"Extract the invoice as JSON.\n\n{text}"))
        else:
            text = (
                f"{name}, born {1900 + i} in {city}, is a {WORKS[i % 5]} who has worked for {firm} "
                "for many years and gives talks about it on two continents."
            )
            found.append((Person, f"Extract the person as JSON.\n\n{text}"))
    return found


def pass_costs(model: TextModel, lengths: Sequence[int]) -> dict[int, float]:
    """Seconds of a pass over so many tokens, 200 of which stand before them."""
    ids = np.asarray(model.encode("The harbour was quiet that morning. " * 60), np.int32)
    sequence = model.start(400)
    times: dict[int, float] = {}
    sequence.append(ids[:200])
    for _ in range(9):
        for n in lengths:
            sequence.rewind(200)
            sequence.append(ids[200:202])  # what a rewind has run again is not counted
            began = time.perf_counter()
            sequence.append(ids[202 : 202 + n])
            sequence.logits()
            times[n] = min(times.get(n, 1e9), time.perf_counter() - began)
    sequence.close()
    return times


LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12)


def always(length: int) -> type[Speculation]:
    """Speculation whose guesses have this many tokens, where there is text for as many."""

    class Always(Speculation):
        def _worth(self, kinds: Sequence[int]) -> int:
            return min(length, len(kinds))

    return Always


class Counted:
    """A sequence that notes how many tokens each pass runs."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._end = inner.length
        self.lengths: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, token_ids: Any) -> None:
        self._inner.append(token_ids)
        self._note(token_ids)

    def likeliest(self, token_ids: Any, allowed: Any) -> Any:
        token = self._inner.likeliest(token_ids, allowed)
        if token is not None:
            self._note(token_ids)
        return token

    def _note(self, token_ids: Any) -> None:
        # A pass after a rewind runs two tokens at least.
        again = self._inner.length - len(token_ids) < self._end
        self.lengths.append(max(len(token_ids), 2 if again else 1))
        self._end = self._inner.length


def counted(generator: Any, prompt: Any, **options: Any) -> tuple[Any, list[int], list[int]]:
    """A result, the lengths of the passes after the prompt, and of all passes of a draft model."""
    made: list[Counted] = []
    drafts: list[Counted] = []
    start = TextModel.start

    def watched(model: TextModel, *args: Any, **named: Any) -> Counted:
        into = made if model is generator.model else drafts
        into.append(Counted(start(model, *args, **named)))
        return into[-1]

    TextModel.start = watched  # type: ignore[assignment, method-assign]
    try:
        result = generator.result(prompt, **options)
    finally:
        TextModel.start = start  # type: ignore[method-assign]
    return result, made[-1].lengths[1:], [n for one in drafts for n in one.lengths]


def best_cost(generator: Any, prompt: Any, cost: Callable[[int], float], **options: Any) -> float:
    """Cost of the passes if it were known which tokens of each guess come, and how many to try."""
    model = generator.model
    steps = generator.result(prompt, trace=True, speculate=False, **options).trace
    ids = [step.token_id for step in steps]
    prompt_ids = model.encode(model.apply_chat_template(prompt))
    cursor = generator.constraint and generator.constraint.start(max_tokens=len(ids) + 1)
    speller = Speller(model.vocabulary, model.encode)
    right = [0] * len(ids)  # tokens of the guess before token i that come
    for i, token in enumerate(ids):
        if i and not steps[i].is_forced:
            row = np.array([*prompt_ids, *ids[:i]], np.int32)
            guesses = Speculation(model.vocabulary.tokens, cursor, speller, PLENTY, len(prompt_ids))
            pairs = zip(guesses.guess(row, len(ids) - 1 - i), ids[i:], strict=False)
            right[i] = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        if cursor is not None:
            cursor.accept(token)
    # From where the model is to see token i, which has been chosen, and what is forced behind it.
    least = [0.0] * (len(ids) + 1)
    for i in reversed(range(len(ids))):
        end = next((j for j in range(i + 1, len(ids)) if not steps[j].is_forced), len(ids))
        if end < len(ids):
            least[i] = min(cost(end - i + k) + least[end + k] for k in range(right[end] + 1))
    start = next((j for j in range(len(ids)) if not steps[j].is_forced), len(ids))
    return least[start]


LLAMA = """
import json, sys, time
from llama_cpp import Llama, LlamaGrammar
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

rounds, tasks = json.load(sys.stdin)
lookup = LlamaPromptLookupDecoding(num_pred_tokens=4)
for name, draft in (("grammar", None), ("grammar and lookup", lookup)):
    model = Llama(sys.argv[1], n_ctx=1024, n_threads=2, draft_model=draft, verbose=False)
    least = [1e9] * len(tasks)
    tokens = 0
    for turn in range(rounds):
        for i, (schema, text) in enumerate(tasks):
            grammar = LlamaGrammar.from_json_schema(schema, verbose=False)
            prompt = [{"role": "user", "content": text}]
            began = time.perf_counter()
            answer = model.create_chat_completion(
                prompt, max_tokens=120, temperature=0.0, grammar=grammar
            )
            least[i] = min(least[i], time.perf_counter() - began)
            tokens += answer["usage"]["completion_tokens"] if not turn else 0
    print(json.dumps([name, sum(least), tokens]))
"""


def beside_llama(python: str, gguf: str, n: int, rounds: int, seconds: float) -> None:
    """Print the seconds of llama-cpp-python for the extractions, and ours over them."""
    tasks = [(json.dumps(kind.model_json_schema()), text) for kind, text in prompts(n)]
    run = subprocess.run(
        [python, "-c", LLAMA, gguf],
        input=json.dumps([rounds, tasks]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for name, theirs, tokens in map(json.loads, run.stdout.splitlines()):
        ratio = seconds / theirs
        print(f"llama.cpp, {name}: {theirs:.1f} s, {tokens} tokens; ours ÷ theirs {ratio:.2f}")


def processor() -> str:
    """The processor's name, and what int8 products it has."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        pairs = (line.partition(":") for line in file)
        lines = {name.strip(): text.strip() for name, _, text in pairs}
    flags = lines.get("flags", "").split()
    has = [flag for flag in ("avx2", "avx512_vnni", "avx_vnni", "amx_int8") if flag in flags]
    return f"{lines.get('model name', platform.machine()).strip()} ({', '.join(has)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--json")
    parser.add_argument("--draft")
    parser.add_argument("--draft-cost", type=float)
    parser.add_argument("--token", type=float)
    parser.add_argument("--llama")
    parser.add_argument("--gguf")
    given = parser.parse_args()
    model = structgen.load(given.model, draft_model=given.draft)
    if model.draft is not None and given.draft_cost is not None:
        model.draft = replace(model.draft, cost=given.draft_cost)
    if given.token is not None:
        TextModel.pace = replace(model.pace, token=given.token)  # type: ignore[assignment, method-assign]
    print(
        f"{given.model}, structgen {structgen.__version__}, onnxruntime-genai "
        f"{version('onnxruntime-genai')}, {processor()}, {datetime.date.today()}"
    )
    costs = pass_costs(model, (1, 2, 3, 4, 8))
    print("pass over", {n: round(seconds / costs[1], 2) for n, seconds in costs.items()})
    print("as it is taken to be", {n: round(1 + model.pace.token * (n - 1), 2) for n in costs})

    def cost(n: int) -> float:
        if given.token is not None:
            return 1 + given.token * (n - 1)
        beyond = max(n - 8, 0) * (costs[8] - costs[4]) / 4
        return float(np.interp(n, [*costs], [*costs.values()]) + beyond) / costs[1]

    price = 0.0 if model.draft is None else model.draft.cost
    generators = {kind: Generator(model, kind) for kind in (Person, Invoice)}
    free = Generator(model)
    stories = [(None, f"Write a short story about a {work}.") for work in WORKS]
    rows: dict[str, list[dict[str, Any]]] = {"extraction": [], "free text": []}
    for kind, text in [*prompts(given.prompts), *stories]:
        generator: Any = free if kind is None else generators[kind]
        prompt = [{"role": "user", "content": text}]
        best, made, passes = [1e9, 1e9], [None, None], [[], []]  # type: ignore[var-annotated]
        drafted: list[int] = []
        for turn in range(given.rounds):
            for guesses in (turn % 2 == 0, turn % 2 == 1):
                began = time.perf_counter()
                result, lengths, small = counted(
                    generator, prompt, max_new_tokens=120, speculate=guesses
                )
                drafted = small or drafted
                best[guesses] = min(best[guesses], time.perf_counter() - began)
                made[guesses], passes[guesses] = result, lengths
        usage = made[True].usage
        by_length = []
        for length in LENGTHS:
            generation.Speculation = always(length)  # type: ignore[misc]
            lengths = counted(generator, prompt, max_new_tokens=120, speculate=True)[1]
            by_length.append(sum(map(cost, lengths)))
        generation.Speculation = Speculation  # type: ignore[misc]
        rows["free text" if kind is None else "extraction"].append(
            {
                "seconds": best,
                "ratio": best[True] / best[False],
                "same": made[True].token_ids == made[False].token_ids,
                "tokens": usage.output_tokens,
                "guessed": usage.guessed_tokens,
                "accepted": usage.accepted_tokens,
                "passes": [len(found) for found in passes],
                "cost": [
                    sum(map(cost, passes[0])),
                    sum(map(cost, passes[1])) + price * sum(map(cost, drafted)),
                ],
                "best": best_cost(generator, prompt, cost, max_new_tokens=120),
                "drafted": len(drafted),
                "by length": by_length,
            }
        )
    keys = ("tokens", "guessed", "accepted", "drafted")
    for name, found in rows.items():
        ratios = sorted(row["ratio"] for row in found)
        total = {key: sum(row[key] for row in found) for key in keys}
        without, with_ = (
            [sum(row[key][guesses] for row in found) for key in ("seconds", "passes", "cost")]
            for guesses in (False, True)
        )
        columns = zip(*(row["by length"] for row in found), strict=True)
        lengths = {n: sum(costs) / without[2] for n, costs in zip(LENGTHS, columns, strict=True)}
        each = sum(min(row["by length"]) for row in found) / without[2]
        known = sum(row["best"] for row in found) / without[2]
        print(
            f"{name}: {len(found)} documents, {sum(row['same'] for row in found)} with the same "
            f"tokens; time with ÷ without: all {with_[0] / without[0]:.3f}, median "
            f"{statistics.median(ratios):.2f}, a tenth above {ratios[-1 - len(ratios) // 10]:.2f}, "
            f"worst {ratios[-1]:.2f}; passes {without[1]} → {with_[1]}; "
            f"their cost {without[2]:.0f} → {with_[2]:.0f}: {with_[2] / without[2]:.3f}; {total}\n"
            f"  with the best length for each {each:.3f}, with known tokens {known:.3f}; by length "
            f"{', '.join(f'{n}: {share:.3f}' for n, share in lengths.items())}"
        )
    if given.llama:
        seconds = sum(row["seconds"][True] for row in rows["extraction"])
        beside_llama(given.llama, given.gguf, given.prompts, given.rounds, seconds)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"costs": costs, "rows": rows}, file)


if __name__ == "__main__":
    main()
