"""What conversion costs a model: agreement with float32, perplexity, size and the time of a step.

    PYTHONPATH=. python tests/benchmarks/conversion.py [NAME ...] [--gguf FILE --folder FOLDER]

Without names: every converted model of the catalogue that is in the cache. The weights it was made
from are fetched again and kept for the tests (`structgen/test weights` in the user's cache). Each
is compared with the NumPy forward pass that the tests use, over the same file, at every position of
three texts: how often both name the same likeliest token, the mean cosine of the logits, and the
perplexity of the texts. Times are CPU seconds of all threads: of a step after 64 tokens, the median
of 32. `docs/models.md` has the table that this prints. ``--write`` keeps what float32 says, in
short, for `tests/models/test_large.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime_genai as og

from structgen import models
from structgen.models import cache
from structgen.models.catalogue import ENTRIES

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from reference import Reference
from weights import weights_of

N_STEPS = 32
KEPT = Path(__file__).parents[1] / "models" / "float32"
TEXTS = (
    "The quick brown fox jumps over the lazy dog. In 1969, humans first landed on the Moon, and "
    "since then twelve astronauts have walked on its surface. They brought back rocks, which are "
    "still being studied in laboratories around the world. Water boils at 100 degrees Celsius at "
    "sea level, but on a high mountain it boils at a lower temperature, because the pressure of "
    "the air is lower there. This is why it takes longer to cook potatoes in the mountains.",
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'
    "    if n < 2:\n        return n\n"
    "    return fibonacci(n - 1) + fibonacci(n - 2)\n\n\nprint([fibonacci(i) for i in range(10)])\n"
    '# {"numbers": [0, 1, 1, 2, 3, 5, 8], "recursive": true, "name": "fibonacci"}\n'
    "for i in range(3):\n    print(i, fibonacci(i))\n",
    "Berlin ist die Hauptstadt von Deutschland. La tour Eiffel se trouve à Paris, et elle mesure "
    "330 mètres. Madrid es la capital de España, y tiene más de tres millones de habitantes. "
    '{"city": "Rome", "country": "Italy", "population": 2750000, "capital": true}',
)


def all_logits(model: og.Model, ids: list[int]) -> np.ndarray:
    """The runtime's logits at every position: the tokens are appended one by one."""
    generator = _start(model, len(ids) + 1)
    rows = []
    for token in ids:
        generator.append_tokens([token])
        rows.append(generator.get_logits()[0, 0].copy())
    return np.array(rows)


def _start(model: og.Model, max_length: int) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=max_length, do_sample=False)
    return og.Generator(model, params)


def surprise(logits: np.ndarray, ids: list[int]) -> np.ndarray:
    """Minus the log probability of each token but the first."""
    rows = logits[:-1].astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    chosen = rows[np.arange(len(rows)), ids[1:]]
    return np.log(np.exp(rows).sum(axis=-1)) - chosen


def step_seconds(model: og.Model, ids: list[int]) -> float:
    """CPU seconds of one step."""
    generator = _start(model, 64 + N_STEPS + 1)
    generator.append_tokens((ids * 64)[:64])
    generator.get_logits()
    times = []
    for i in range(N_STEPS):
        started = time.process_time()
        generator.append_tokens([ids[i % len(ids)]])
        generator.get_logits()
        times.append(time.process_time() - started)
    return statistics.median(times)


def in_short(ids: list[int], logits: np.ndarray) -> dict[str, list]:
    """What a test needs of float32 logits: likeliest tokens, and the surprise of each next one."""
    return {
        "ids": ids,
        "top": logits.argmax(axis=-1).tolist(),
        "surprise": [round(float(value), 3) for value in surprise(logits, ids)],
    }


def measure(folder: Path, gguf: Path, kept: list) -> dict[str, float]:
    """The numbers of one row; what float32 says is appended to ``kept``."""
    model = og.Model(str(folder))
    tokenizer = og.Tokenizer(model)
    source = Reference(gguf)
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    start = [model_id(folder)] if config.get("add_bos_token") else []
    rows = [start + tokenizer.encode(text).tolist() for text in TEXTS]
    same, cosines, losses = [], [], {"here": [], "float32": []}
    for ids, wanted in zip(rows, source.logits(rows), strict=True):
        kept.append(in_short(ids, wanted))
        found = all_logits(model, ids)
        same.append(found.argmax(axis=-1) == wanted.argmax(axis=-1))
        lengths = np.linalg.norm(found, axis=-1) * np.linalg.norm(wanted, axis=-1)
        cosines.append((found * wanted).sum(axis=-1) / lengths)
        losses["here"].append(surprise(found, ids))
        losses["float32"].append(surprise(wanted, ids))
    n_bytes = sum(file.stat().st_size for file in folder.glob("model.onnx*"))
    n_weights = sum(int(np.prod(t.shape)) for t in source._tensors.values())
    return {
        "positions": sum(map(len, same)),
        "weights": n_weights,
        "MB": n_bytes / 1e6,
        "GGUF": gguf.stat().st_size / 1e6,
        "bits": 8 * n_bytes / n_weights,
        "step": step_seconds(model, rows[0]),
        "same": float(np.concatenate(same).mean()),
        "cosine": float(np.concatenate(cosines).mean()),
        **{name: float(np.exp(np.concatenate(parts).mean())) for name, parts in losses.items()},
    }


def model_id(folder: Path) -> int:
    """The id of the token that starts a text."""
    config = json.loads((folder / "genai_config.json").read_text("utf-8"))
    return int(config["model"]["bos_token_id"])


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.gguf:
        pairs = [(options.folder.name, options.folder, options.gguf)]
    else:
        converted = [entry for entry in ENTRIES.values() if entry.gguf is not None]
        names = options.names or [e.name for e in converted if cache.find(e.name) is not None]
        pairs = [(name, models.path(name), weights_of(name)) for name in names]
    print("| model | weights | MB (GGUF) | bits a weight | CPU ms a step "
          "| same top token | cosine | perplexity (float32) |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, folder, gguf in pairs:
        kept: list = []
        row = measure(folder, gguf, kept)
        if options.write:
            target = KEPT / f"{name}.json"
            target.parent.mkdir(exist_ok=True)
            target.write_text(json.dumps(kept) + "\n")
        print(
            f"| {name} | {row['weights'] / 1e6:.0f}M | {row['MB']:.0f} ({row['GGUF']:.0f}) "
            f"| {row['bits']:.1f} | {row['step'] * 1e3:.0f} | {row['same']:.1%} of "
            f"{row['positions']} | {row['cosine']:.4f} | {row['here']:.2f} ({row['float32']:.2f}) |"
        )


if __name__ == "__main__":
    main()
