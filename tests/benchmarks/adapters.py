"""What a row of a batch costs: masks of 1, 8 and 64 sequences, and whole logits processors.

    pip install llguidance xgrammar transformers torch
    PYTHONPATH=.:tests python tests/benchmarks/adapters.py [TOKENIZER.json]

Every engine is driven through the functions that its documentation gives for batches, with one
thread: a step takes one token of each sequence and writes the masks of all. Sequences write the
same documents in the same tokens, each some tokens ahead of the one before. Processor time, which
includes that of other threads; each number is the least of several passes. Engines that are not
installed are left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import structgen
from structgen import JsonSchema, Vocabulary

BATCHES = (1, 8, 64)
PASSES = 5
_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


CASES: list[tuple[dict[str, Any], Any]] = [
    (
        _object(name=_STRING, age=_INTEGER, tags={"type": "array", "items": _STRING}),
        {"name": "Ada Lovelace", "age": 36, "tags": ["mathematics", "first programs", "poetry"]},
    ),
    (
        _object(
            id={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
            state={"enum": ["open", "closed", "waiting for parts"]},
            price={"type": "number"},
            items={"type": "array", "items": _object(title=_STRING, count=_INTEGER)},
        ),
        {
            "id": "KX-1042",
            "state": "waiting for parts",
            "price": 129.95,
            "items": [{"title": "Bearing, steel", "count": 4}, {"title": "Seal", "count": 12}],
        },
    ),
    (
        _object(
            text={"type": "string", "maxLength": 200},
            sentiment={"enum": ["good", "bad", "mixed"]},
            stars={"type": "integer", "minimum": 1, "maximum": 5},
        ),
        {
            "text": "The room was quiet and clean, breakfast came late, and nobody minded.",
            "sentiment": "mixed",
            "stars": 4,
        },
    ),
    (
        {"anyOf": [_object(kind={"const": "point"}, x={"type": "number"}, y={"type": "number"}),
                   _object(kind={"const": "label"}, text=_STRING)]},
        {"kind": "point", "x": 12.5, "y": -0.25},
    ),
]  # fmt: skip
TEXTS = [json.dumps(document, separators=(",", ":")) for _, document in CASES]


class Engine(ABC):
    """An engine with a tokenizer: how it starts sequences and takes a step of a batch."""

    name: str
    note: str = ""

    @abstractmethod
    def __init__(self, tokenizer: Path, vocabulary: Vocabulary) -> None: ...

    @property
    def version(self) -> str:
        return version(self.name)

    @abstractmethod
    def start(self, case: int) -> Any:
        """A new sequence."""

    @abstractmethod
    def accept(self, sequence: Any, token: int) -> None:
        """Take a token, on the way to the place where a sequence begins."""

    @abstractmethod
    def step(self, sequences: Sequence[Any], tokens: Sequence[int], out: Any) -> None:
        """Take a token of each, and write the masks of all."""

    def processor(self, n: int) -> Callable[[Any, Any], Any] | None:
        """A logits processor of Transformers for a batch whose row i is of case i % len(CASES)."""
        return None


class Structgen(Engine):
    name = "structgen"

    def __init__(self, tokenizer: Path, vocabulary: Vocabulary) -> None:
        structgen.warm_up(vocabulary)
        self._compiled = [structgen.compile(JsonSchema(s), vocabulary) for s, _ in CASES]

    @property
    def version(self) -> str:
        return structgen.__version__

    def start(self, case: int) -> Any:
        return self._compiled[case].start()

    def accept(self, sequence: Any, token: int) -> None:
        sequence.accept(token)

    def step(self, sequences: Sequence[Any], tokens: Sequence[int], out: Any) -> None:
        for cursor, token in zip(sequences, tokens, strict=True):
            cursor.accept(token)
        structgen.fill_masks(sequences, out)

    def processor(self, n: int) -> Callable[[Any, Any], Any] | None:
        from structgen.integrations.transformers import StructgenLogitsProcessor

        return StructgenLogitsProcessor([self._compiled[i % len(CASES)] for i in range(n)])


class StructgenInPlace(Structgen):
    """Writes into the scores that it is given, as the other engines do."""

    note = ", in place"

    def processor(self, n: int) -> Callable[[Any, Any], Any] | None:
        from structgen.integrations.transformers import StructgenLogitsProcessor

        constraints = [self._compiled[i % len(CASES)] for i in range(n)]
        return StructgenLogitsProcessor(constraints, in_place=True)


class LLGuidance(Engine):
    name = "llguidance"

    def __init__(self, tokenizer: Path, vocabulary: Vocabulary) -> None:
        self._module = import_module("llguidance")
        self._numpy = import_module("llguidance.numpy")
        self._tokenizer = self._module.LLTokenizer(
            tokenizer.read_text(encoding="utf-8"),
            n_vocab=vocabulary.size,
            eos_token=list(vocabulary.eos_token_ids),
        )
        self._executor = self._module.LLExecutor(1)
        make = self._module.LLMatcher
        compact = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        self._compiled = [
            make(
                self._tokenizer,
                make.grammar_from_json_schema(json.dumps(schema), overrides=compact),
            )
            for schema, _ in CASES
        ]

    def start(self, case: int) -> Any:
        return self._compiled[case].deep_copy()

    def accept(self, sequence: Any, token: int) -> None:
        assert sequence.consume_token(token)

    def step(self, sequences: Sequence[Any], tokens: Sequence[int], out: Any) -> None:
        pairs = list(zip(sequences, tokens, strict=True))
        assert all(self._numpy.consume_token_par(self._executor, pairs))
        numbered = [(matcher, i) for i, matcher in enumerate(sequences)]
        self._numpy.fill_next_token_bitmask_par(self._executor, numbered, out)

    def processor(self, n: int) -> Callable[[Any, Any], Any] | None:
        torch = import_module("llguidance.torch")
        matchers = [self.start(i % len(CASES)) for i in range(n)]
        numbered = [(matcher, i) for i, matcher in enumerate(matchers)]
        mask, begun = torch.allocate_token_bitmask(n, self._tokenizer.vocab_size), []

        def process(ids: Any, scores: Any) -> Any:  # it has none of its own: this is its parts
            if begun:
                pairs = list(zip(matchers, ids[:, -1].tolist(), strict=True))
                torch.consume_token_par(self._executor, pairs)
            begun.append(True)
            torch.fill_next_token_bitmask_par(self._executor, numbered, mask)
            torch.apply_token_bitmask_inplace(scores, mask)
            return scores

        return process


class XGrammar(Engine):
    name = "xgrammar"

    def __init__(self, tokenizer: Path, vocabulary: Vocabulary) -> None:
        self._module = import_module("xgrammar")
        info = self._module.TokenizerInfo(
            list(vocabulary.tokens),
            vocab_size=vocabulary.size,
            stop_token_ids=list(vocabulary.eos_token_ids),
        )
        compiler = self._module.GrammarCompiler(info, max_threads=1)
        self._compiled = [
            compiler.compile_json_schema(
                json.dumps(schema), any_whitespace=False, separators=(",", ":")
            )
            for schema, _ in CASES
        ]
        self._batch = self._module.BatchGrammarMatcher(1)

    def start(self, case: int) -> Any:
        return self._module.GrammarMatcher(self._compiled[case])

    def accept(self, sequence: Any, token: int) -> None:
        assert sequence.accept_token(token)

    def step(self, sequences: Sequence[Any], tokens: Sequence[int], out: Any) -> None:
        assert all(self._batch.batch_accept_token(sequences, tokens))
        self._batch.batch_fill_next_token_bitmask(sequences, out)

    def processor(self, n: int) -> Callable[[Any, Any], Any] | None:
        hf = import_module("xgrammar.contrib.hf")
        made: Callable[[Any, Any], Any] = hf.LogitsProcessor(
            [self._compiled[i % len(CASES)] for i in range(n)]
        )
        return made


class Batch:
    """Sequences that write the documents, each some tokens ahead of the one before."""

    def __init__(self, engine: Engine, spelt: Sequence[Sequence[int]], n: int) -> None:
        self._engine, self._spelt = engine, spelt
        self._cases = [i % len(CASES) for i in range(n)]
        ahead = [i // len(CASES) * 3 for i in range(n)]
        pairs = zip(self._cases, ahead, strict=True)
        self._places = [most % (len(spelt[case]) - 1) for case, most in pairs]
        pairs = zip(self._cases, self._places, strict=True)
        self._running = [self._begin(case, at) for case, at in pairs]

    def _begin(self, case: int, at: int) -> Any:
        sequence = self._engine.start(case)
        for token in self._spelt[case][:at]:
            self._engine.accept(sequence, token)
        return sequence

    def seconds(self, out: Any, steps: int) -> float:
        """Processor time of some steps; that of starting anew does not count."""
        spent = 0.0
        for _ in range(steps):
            for i, case in enumerate(self._cases):
                if self._places[i] == len(self._spelt[case]):
                    self._running[i], self._places[i] = self._begin(case, 0), 0
            pairs = zip(self._cases, self._places, strict=True)
            tokens = [self._spelt[case][at] for case, at in pairs]
            started = time.process_time()
            self._engine.step(self._running, tokens, out)
            spent += time.process_time() - started
            self._places = [at + 1 for at in self._places]
        return spent


def of_masks(engine: Engine, spelt: Sequence[Sequence[int]], size: int, n: int) -> float:
    """Microseconds a row."""
    out = np.zeros((n, (size + 31) // 32), np.int32)
    steps = max(map(len, spelt)) * 2
    if engine.name == "xgrammar":
        out = import_module("torch").from_numpy(out)
    batch = Batch(engine, spelt, n)
    batch.seconds(out, steps)
    return min(batch.seconds(out, steps) for _ in range(PASSES)) / steps / n * 1e6


def of_processors(engine: Engine, spelt: Sequence[Sequence[int]], size: int, n: int) -> float:
    """Microseconds a row of a logits processor, its pass over the scores included."""
    torch = import_module("torch")
    torch.set_num_threads(1)
    steps = min(map(len, spelt))
    rows = [spelt[i % len(CASES)] for i in range(n)]
    ids = torch.tensor([row[:steps] for row in rows])
    prompt = torch.full((n, 8), 5)
    best = float("inf")
    for _ in range(PASSES + 1):
        process = engine.processor(n)
        assert process is not None
        spent = 0.0
        for step in range(steps):
            scores = torch.zeros((n, size))
            so_far = torch.cat([prompt, ids[:, :step]], dim=1)
            started = time.process_time()
            process(so_far, scores)
            spent += time.process_time() - started
        best = min(best, spent)
    return best / steps / n * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tokenizer", nargs="?", type=Path, help="default: Llama 3.1's")
    path = parser.parse_args().tokenizer
    if path is None:
        import real_tokenizers

        path = real_tokenizers.path("llama3")
    vocabulary = Vocabulary.from_tokenizer_json(path)
    spelt = [vocabulary.encode_bytes(text.encode()) for text in TEXTS]
    print(f"{vocabulary.size:,} tokens, Python {platform.python_version()}, {time.strftime('%F')}")
    print("| engine | " + " | ".join(f"{n} rows" for n in BATCHES), end=" | ")
    print(" | ".join(f"processor, {n}" for n in BATCHES) + " |")
    print("|---" * (1 + 2 * len(BATCHES)) + "|")
    for kind in (Structgen, StructgenInPlace, LLGuidance, XGrammar):
        try:
            engine = kind(path, vocabulary)
        except ImportError as error:
            print(f"{kind.name} is left out: {error}", file=sys.stderr)
            continue
        found = [f"{of_masks(engine, spelt, vocabulary.size, n):.1f}" for n in BATCHES]
        try:
            found += [f"{of_processors(engine, spelt, vocabulary.size, n):.0f}" for n in BATCHES]
        except ImportError as error:
            print(f"processors are left out: {error}", file=sys.stderr)
        print(f"| {engine.name} {engine.version}{engine.note} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
