"""Another library's embedder, as embed.py runs it: lists of texts in, vectors and seconds out.

It runs in an environment without structgen, so it imports nothing of it.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from typing import Any


def fastembed(folder: str) -> Callable[[list[str]], Any]:
    import numpy as np
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        "local/minilm",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="local/minilm"),
        dim=384,
        model_file="model.onnx",
    )
    model = TextEmbedding("local/minilm", specific_model_path=folder)
    return lambda texts: np.array(list(model.embed(texts)))


def sentence_transformers(folder: str) -> Callable[[list[str]], Any]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    return lambda texts: model.encode(texts, normalize_embeddings=True, show_progress_bar=False)


def main() -> None:
    library, folder = sys.argv[1:]
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    embed = {"fastembed": fastembed, "sentence-transformers": sentence_transformers}[library](
        folder
    )
    print(json.dumps({"version": importlib.metadata.version(library)}), file=out, flush=True)
    for line in sys.stdin:
        texts = json.loads(line)
        wall, cpu = time.perf_counter(), time.process_time()
        vectors = embed(texts)
        answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps({**answer, "vectors": vectors.tolist()}), file=out, flush=True)


if __name__ == "__main__":
    main()
