"""Turn a trained model into a folder that ONNX Runtime GenAI loads.

Owns the order of the work, ``genai_config.json``, and the promise that the folder appears whole or
not at all: everything is written into a hidden sibling, which is renamed at the very end. What is
inside the parts belongs to the `Checkpoint`, `calibrate`, `quantize` and `graph`. Knows nothing of
catalogues, caches or downloads.

How weights are stored, decided by measurement on SmolLM2-135M (docs/models.md has the figures):

- feed-forward projections that the GGUF file holds in 4 bits stay exactly as they are;
- everything else, and all of the attention, has 8 bits, the attention after smoothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from structgen.errors import ConversionError
from structgen.models.progress import Progress, reporting

from .calibrate import Calibration, smooth, texts
from .decoder import Checkpoint, LayerWeights
from .quantize import QuantizedMatrix, eight_bit, four_bit

if TYPE_CHECKING:
    from .graph import LayerMatrices, Target

FloatArray = npt.NDArray[np.float32]


def convert_gguf(
    gguf: str | os.PathLike[str],
    out: str | os.PathLike[str],
    progress: Progress | None = None,
    *,
    hidden_states: bool = False,
    context_length: int | None = None,
    target: str = "cpu",
) -> Path:
    """Convert a GGUF file into an ONNX Runtime GenAI folder.

    The folder holds ``model.onnx``, ``model.onnx.data``, ``genai_config.json``,
    ``tokenizer.json`` and ``tokenizer_config.json``. It is written under a temporary name beside
    ``out`` and renamed, so that an interrupted run leaves nothing behind. When another process
    finishes the same folder first, its folder is kept.

    Args:
        gguf: the weights; any tensor type that the ``gguf`` package can dequantise.
        out: the folder to make. It must not exist, or be empty.
        progress: told how far the work is; None shows a bar (or, in a log, lines).
        hidden_states: give the graph the output that `TextModel.embed` needs.
        context_length: positions of the converted model, at most those it was trained for; None:
            all of them (of Phi-3's models for long texts, those of the short ones).
        target: ``"cpu"`` or ``"cuda"``.

    Returns:
        The absolute path of ``out``.

    Raises:
        ConversionError: the file is damaged or of a kind that cannot be converted, or ``out``
            cannot be written (it exists, or the disk is full).

    Costs about 10 s of CPU and 0.7 GB of memory for a model of 135M parameters; memory grows with
    the largest matrix, not with their number.
    """
    from .gguf_decoder import GgufCheckpoint

    def opened() -> Checkpoint:
        return GgufCheckpoint(Path(gguf), context_length)

    return _convert(opened, out, progress, hidden_states, target)


def convert_safetensors(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    progress: Progress | None = None,
    *,
    hidden_states: bool = False,
    context_length: int | None = None,
    target: str = "cpu",
) -> Path:
    """Convert a Hugging Face folder: config.json, safetensors in F32, F16 or BF16, tokenizer.json.

    All else is as in `convert_gguf`; the weights get 8 bits.
    """
    from .hf_decoder import HuggingFaceCheckpoint

    def opened() -> Checkpoint:
        return HuggingFaceCheckpoint(Path(source), context_length)

    return _convert(opened, out, progress, hidden_states, target)


def _convert(
    opened: Callable[[], Checkpoint],
    out: str | os.PathLike[str],
    progress: Progress | None,
    hidden_states: bool,
    target: str,
) -> Path:
    final = Path(out).absolute()
    if final.exists() and not (final.is_dir() and not any(final.iterdir())):
        raise ConversionError(
            f"{final} exists already. Remove it, or choose another folder for the converted model."
        )
    layout = _layout(target)
    checkpoint = opened()
    if layout != "cpu" and checkpoint.shape.has_wide_range:
        raise ConversionError(
            f"target={target!r} has numbers of 16 bits, and those of {checkpoint.path} grow larger "
            "than these go. Convert it for the CPU, or use `python -m "
            "onnxruntime_genai.models.builder`."
        )
    with reporting(progress) as report, _staged(final) as folder:
        _write(checkpoint, folder, report, hidden_states, layout)
    return final


def _layout(target: str) -> Target:
    if target in ("cpu", "cuda"):
        return cast("Target", target)
    if target == "dml":
        raise ConversionError(
            "target='dml' is not done: DirectML wants positions outside the attention, and nothing "
            "here could check that. Use `python -m onnxruntime_genai.models.builder -e dml`."
        )
    raise ConversionError(f"target={target!r} is unknown. Pass 'cpu' or 'cuda'.")


def _write(
    checkpoint: Checkpoint, folder: Path, report: Progress, hidden_states: bool, target: Target
) -> None:
    # Imported here: `import structgen.models` must not pay for onnx_ir.
    from .graph import GraphBuilder

    shape = checkpoint.shape
    stage, n_steps = f"Converting {checkpoint.path.name}", shape.n_layers + 2
    report(stage, 0, n_steps)
    sequences = _write_tokenizer(checkpoint, folder)
    graph = GraphBuilder(shape, folder, target)
    embedding = checkpoint.embedding()
    calibration = Calibration(shape, embedding, sequences)
    graph.embed(eight_bit(embedding))
    del embedding
    report(stage, 1, n_steps)
    for layer in range(shape.n_layers):
        graph.layer(_matrices(checkpoint.layer(layer), calibration))
        report(stage, layer + 2, n_steps)
    head = None if shape.is_tied else eight_bit(checkpoint.head())
    graph.head(checkpoint.final_norm(), head, hidden_states=hidden_states)
    graph.save()
    config = json.dumps(_genai_config(checkpoint, target), ensure_ascii=False, indent=1)
    (folder / "genai_config.json").write_text(config, encoding="utf-8")
    report(stage, n_steps, n_steps)


def _write_tokenizer(checkpoint: Checkpoint, folder: Path) -> list[list[int]]:
    """Write the tokenizer's files, and return the calibration texts as token ids."""
    from tokenizers import Tokenizer

    checkpoint.write_tokenizer(folder)
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises plain Exception
        raise ConversionError(
            f"{checkpoint.path} has a tokenizer that does not work ({error})."
        ) from error

    def knows(text: str) -> bool:
        return tokenizer.token_to_id(text) is not None

    longest = checkpoint.shape.context_length
    sequences = [tokenizer.encode(text).ids[:longest] for text in texts(knows)]
    # Of a very short text nothing is left once the first token is set aside.
    return [ids for ids in sequences if len(ids) > 1]


def _matrices(weights: LayerWeights, calibration: Calibration) -> LayerMatrices:
    from .graph import LayerMatrices

    smooth(weights, calibration.shape, calibration.advance(weights))
    return LayerMatrices(
        attn_norm=weights.attn_norm,
        qkv=eight_bit(np.concatenate([weights.q, weights.k, weights.v])),
        o=eight_bit(weights.o),
        ffn_norm=weights.ffn_norm,
        gate_up=_narrowest(np.concatenate([weights.gate, weights.up])),
        down=_narrowest(weights.down),
        qkv_bias=_stacked(
            [
                (weights.q_bias, len(weights.q)),
                (weights.k_bias, len(weights.k)),
                (weights.v_bias, len(weights.v)),
            ]
        ),
        o_bias=weights.o_bias,
        q_norm=weights.q_norm,
        k_norm=weights.k_norm,
        attn_post_norm=weights.attn_post_norm,
        ffn_post_norm=weights.ffn_post_norm,
    )


def _stacked(biases: list[tuple[FloatArray | None, int]]) -> FloatArray | None:
    """Biases of projections that became one, zeros where one has none; None: none has any."""
    if all(bias is None for bias, _ in biases):
        return None
    parts = [np.zeros(size, np.float32) if bias is None else bias for bias, size in biases]
    return np.concatenate(parts)


def _narrowest(weight: FloatArray) -> QuantizedMatrix:
    matrix = four_bit(weight)
    return eight_bit(weight) if matrix is None else matrix


def _genai_config(checkpoint: Checkpoint, target: Target) -> dict[str, Any]:
    from .graph import INPUTS, OUTPUTS

    shape, special = checkpoint.shape, checkpoint.special_tokens()
    providers = [] if target == "cpu" else [{"cuda": {"enable_cuda_graph": "0"}}]
    return {
        "model": {
            "type": shape.runtime_type,
            "vocab_size": shape.vocab_size,
            "context_length": shape.context_length,
            # The runtime insists on a start token; whether texts begin with it is the
            # tokenizer's business.
            "bos_token_id": special.end[0] if special.start is None else special.start,
            "eos_token_id": special.end,
            "pad_token_id": special.padding,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": providers},
                "filename": "model.onnx",
                "head_size": shape.head_size,
                "hidden_size": shape.hidden_size,
                "num_attention_heads": shape.n_heads,
                "num_hidden_layers": shape.n_layers,
                "num_key_value_heads": shape.n_kv_heads,
                "inputs": INPUTS,
                "outputs": OUTPUTS,
            },
        },
        "search": {
            "do_sample": False,
            "early_stopping": True,
            "length_penalty": 1.0,
            "max_length": shape.context_length,
            "min_length": 0,
            "no_repeat_ngram_size": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "past_present_share_buffer": True,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 50,
            "top_p": 1.0,
        },
    }


@contextlib.contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """A new folder beside ``target``, renamed to it at the end, or removed if the body fails."""
    host = f"{zlib.crc32(socket.gethostname().encode()):08x}"
    staging = target.parent / f".{target.name}.{host}-{os.getpid()}.part"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target, host)
        staging.mkdir()
        yield staging
        _publish(staging, target)
    except OSError as error:
        reason = (
            f"no space is left on the disk ({shutil.disk_usage(target.parent).free // 10**6} MB)"
            if error.errno == errno.ENOSPC
            else str(error)
        )
        raise ConversionError(f"Cannot write the converted model to {target}: {reason}.") from error
    finally:
        # Also when interrupted; after a rename there is nothing to remove.
        shutil.rmtree(staging, ignore_errors=True)


def _publish(staging: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        target.rmdir()  # an empty folder, which not every system lets a rename replace
    try:
        staging.rename(target)
    except OSError:
        # Another process was faster. Its folder is as good as ours: it, too, was whole when it
        # got its name.
        if not (target / "genai_config.json").is_file():
            raise


def _remove_abandoned(target: Path, host: str) -> None:
    """Remove what killed processes of this machine left while they made the same folder."""
    for leftover in target.parent.glob(f".{target.name}.{host}-*.part"):
        pid = leftover.name.rsplit("-", 1)[1].removesuffix(".part")
        if pid.isdigit() and not _is_running(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)


def _is_running(pid: int) -> bool:
    if os.name == "nt":
        # There, os.kill would end the process. Its files are open, so removal would fail anyway.
        return pid == os.getpid()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
