"""Steps on a GPU: the runtime's bare loop, scores that are copied, and the mask inside the graph.

    python tests/benchmarks/gpu.py [--provider cuda|cpu] [--only 135m|1b] [--tokens 160]
        [--rounds 5] [--rows 1 8 32] [--tokenizers FOLDER | --model FOLDER ...] [--json FILE]

Weights are random, in the shapes of SmolLM2 135M and of a Llama with 1B parameters, since passes
take the same time whatever the weights; only the tokenizers have to be there: ``FOLDER`` has
``135m.json`` and ``1b.json``, of 49,152 and 128,256 tokens. What the masks of objects cost depends
on what a model writes, so ``--model`` takes folders with real weights instead. Each line is tokens
a second of all rows together and milliseconds a step, prompts included, medians of calls that
alternate after one of each to get warm, and the ratio to the bare loop, which lets the runtime
choose, masks nothing and makes as many steps. Last comes in how many rows the two ways of masking
wrote the same tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import onnxruntime_genai as og
from pydantic import BaseModel, Field

import structgen
from structgen.models.conversion import decoder, graph, language

SHAPES = {
    "135m": {
        "hidden_size": 576,
        "ffn_size": 1536,
        "n_heads": 9,
        "n_kv_heads": 3,
        "vocab_size": 49_152,
        "layers": 30,
    },
    "1b": {
        "hidden_size": 2048,
        "ffn_size": 8192,
        "n_heads": 32,
        "n_kv_heads": 8,
        "vocab_size": 128_256,
        "layers": 16,
    },
}
HEAD = 64
PROMPT = "Write a record about a customer of the Elephant Hotel in Lisbon, number"


Short = Annotated[str, Field(max_length=24)]


class Record(BaseModel):
    """Text that is chosen, among text that is forced; it ends within 160 tokens."""

    name: Short
    remarks: Annotated[list[Short], Field(min_length=4, max_length=4)]


def make(name: str, folder: Path, tokenizer: Path, target: graph.Target) -> None:
    """Write a model folder with random weights."""
    folder.mkdir(parents=True)
    n_layers = SHAPES[name]["layers"]
    sizes = {key: value for key, value in SHAPES[name].items() if key != "layers"}
    attention = decoder.Attention(decoder.Rope(10_000.0, HEAD))
    shape = decoder.DecoderShape(
        decoder.FAMILIES["llama"],
        **sizes,
        head_size=HEAD,
        context_length=2048,
        rms_epsilon=1e-5,
        is_tied=True,
        layers=(attention,) * n_layers,
        attention_scale=HEAD**-0.5,
    )
    random = np.random.default_rng(1)
    builder = graph.GraphBuilder(shape, folder, target)

    def matrix(outputs: int, inputs: int, bits: int = 4) -> graph.QuantizedMatrix:
        block = 32
        blocks = inputs // block
        values = random.integers(0, 256, (outputs, blocks, block * bits // 8), np.uint8)
        scales = np.full((outputs, blocks), 2.0 ** (1 - bits) / inputs**0.5, np.float32)
        return graph.QuantizedMatrix(bits, outputs, inputs, 0, block, values, scales, None)

    width, wide = shape.hidden_size, shape.ffn_size
    ones = np.ones(width, np.float32)
    names = decoder.LayerWeights.__dataclass_fields__
    weights: Any = SimpleNamespace(**dict.fromkeys(names) | {"attn_norm": ones, "ffn_norm": ones})
    qkv = HEAD * (shape.n_heads + 2 * shape.n_kv_heads)
    builder.embed(matrix(shape.vocab_size, width, 8))
    for _ in range(n_layers):
        builder.layer(
            weights,
            qkv=matrix(qkv, width),
            o=matrix(width, width),
            gate_up=matrix(2 * wide, width),
            down=matrix(width, wide),
        )
    builder.head(ones, None)
    builder.save()
    end = json.loads(tokenizer.read_bytes())["added_tokens"][0]["id"]
    special = SimpleNamespace(start=None, end=[end], padding=end)
    checkpoint: Any = SimpleNamespace(shape=shape, special_tokens=lambda: special)
    config = json.dumps(language._genai_config(checkpoint, target))
    (folder / "genai_config.json").write_text(config)
    shutil.copy(tokenizer, folder / "tokenizer.json")
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2048}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


def without_mask(folder: Path) -> Path:
    """The same folder without the graph that has a mask."""
    plain = folder.with_name(f"{folder.name} plain")
    plain.mkdir()
    for file in folder.iterdir():
        if ".masked." not in file.name:
            os.link(file, plain / file.name)
    return plain


def alternating(
    calls: Mapping[str, Callable[[], int]], rounds: int
) -> dict[str, tuple[float, int]]:
    """Of each call: the median of its seconds, and what it returns; the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    found: dict[str, int] = {}
    for i in range(rounds + 1):
        for name, call in calls.items():
            began = time.perf_counter()
            found[name] = call()
            if i:
                seconds[name].append(time.perf_counter() - began)
    return {name: (statistics.median(seconds[name]), found[name]) for name in calls}


def bare(model: Any, prompts: Sequence[Any], n_tokens: int) -> int:
    """Have the runtime write with nothing asked of it; return how many tokens it wrote."""
    params = og.GeneratorParams(model.og_model)
    length = len(prompts[0]) + n_tokens
    params.set_search_options(
        max_length=length, min_length=length, batch_size=len(prompts), do_sample=False
    )
    generator = og.Generator(model.og_model, params)
    generator.append_tokens(np.stack(prompts))
    for _ in range(n_tokens):
        generator.generate_next_token()
    return n_tokens * len(prompts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--provider", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", choices=[*SHAPES])
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    weights = parser.add_mutually_exclusive_group(required=True)
    weights.add_argument("--tokenizers", type=Path)
    weights.add_argument("--model", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: list[dict[str, Any]] = []
    print(f"onnxruntime-genai {og.__version__}, {platform.processor() or platform.machine()}")

    def tell(**row: Any) -> None:
        found.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1))

    with tempfile.TemporaryDirectory() as temporary:
        for given in asked.model or ([asked.only] if asked.only else SHAPES):
            name = Path(given).name
            folder = Path(temporary) / name
            if asked.model:
                shutil.copytree(given, folder)
            else:
                make(name, folder, asked.tokenizers / f"{name}.json", asked.provider)
            plain = without_mask(folder)
            graphs: list[dict[str, Any]] = [{}]
            if asked.provider == "cuda":
                graphs.append({"provider_options": [{"cuda": {"enable_cuda_graph": "1"}}]})
            for options in graphs:
                loaded = {"providers": [asked.provider], "session_options": options or None}
                try:
                    measure(name, folder, plain, loaded, asked, tell)
                except Exception as error:
                    tell(
                        model=name, options=options, error=f"{type(error).__name__}: {error}"[:300]
                    )


def measure(
    model: str,
    folder: Path,
    plain: Path,
    loaded: dict[str, Any],
    asked: argparse.Namespace,
    tell: Callable[..., None],
) -> None:
    """Measure one model, loaded in one way."""
    kinds: dict[str, Any] = {"text": None, "object": Record}
    ways = {"copied": structgen.load(plain, **loaded), "in graph": structgen.load(folder, **loaded)}
    assert [one.has_mask for one in ways.values()] == [False, True]
    generators = {
        f"{kind}, {way}": structgen.Generator(one, kinds[kind])
        for kind in kinds
        for way, one in ways.items()
    }
    n_tokens = asked.tokens
    for rows in [1] if loaded["session_options"] else asked.rows:
        prompts = [f"{PROMPT} {i:02}." for i in range(rows)]
        ids = [ways["copied"].encode(prompt) for prompt in prompts]
        found: dict[str, list[Any]] = {}

        def write(name: str, prompts: list[str] = prompts, found: Any = found) -> int:
            options = {"max_new_tokens": n_tokens, "batch_size": len(prompts), "speculate": False}
            found[name] = generators[name].result(prompts, **options)
            return sum(one.usage.output_tokens for one in found[name])

        for kind in kinds:
            names = [name for name in generators if name.startswith(kind)]
            write(names[0])
            steps = max(one.usage.output_tokens for one in found[names[0]])
            calls = {name: partial(write, name) for name in names}
            calls = {"bare": partial(bare, ways["copied"], ids, steps), **calls}
            timed = alternating(calls, asked.rounds)
            for name, (seconds, n) in timed.items():
                tell(
                    model=model,
                    rows=rows,
                    cuda_graph=bool(loaded["session_options"]),
                    way=name,
                    steps=steps,
                    per_second=round(n / seconds),
                    ms=round(1e3 * seconds / steps, 2),
                    ratio=round(seconds / timed["bare"][0], 2),
                )
            both = zip(*(found[name] for name in names), strict=True)
            same = sum(one.token_ids == other.token_ids for one, other in both)
            print(f"  {kind}: the same tokens in {same} of {rows} rows")


if __name__ == "__main__":
    main()
