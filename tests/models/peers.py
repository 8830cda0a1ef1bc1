"""Compare the tests' reference with Hugging Face's own models: run by hand, needs torch.

    python -m venv peers && peers/bin/pip install torch transformers gguf
    PYTHONPATH=tests/models peers/bin/python tests/models/peers.py

Tiny models of every family are written as GGUF files and as Hugging Face folders; transformers runs
the folders, `reference.py` the files. It prints the largest difference of any logit. When it was
written, with transformers 5.23, that was 5e-6 at most.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tiny_gguf
import tiny_safetensors
import torch
import transformers
from reference import Reference

VARIANTS = {
    **{family: ({"architecture": family}, {}) for family in tiny_gguf.FAMILIES},
    "llama, untied": ({"is_tied": False}, {}),
    "gemma3, stretched": (
        {
            "architecture": "gemma3",
            "metadata": {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
        },
        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "phi3, half turned": ({"architecture": "phi3", "metadata": {"rope.dimension_count": 16}}, {}),
}


def main() -> None:
    """Print a line for each variant."""
    ids = np.random.default_rng(1).integers(0, 260, 40).tolist()
    for name, (options, config) in VARIANTS.items():
        with tempfile.TemporaryDirectory() as work:
            gguf = tiny_gguf.write(Path(work) / "tiny.gguf", **options)
            (ours,) = Reference(gguf).logits([ids])
            folder = tiny_safetensors.write(Path(work) / "folder", gguf, config=config)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            )
            with torch.no_grad():
                theirs = model(torch.tensor([ids])).logits[0].numpy()
            print(f"{name:20} {np.abs(ours - theirs).max():.1e} of {np.abs(theirs).max():.1f}")


if __name__ == "__main__":
    main()
