"""Turn a GGUF file into a folder that ONNX Runtime GenAI loads.

Owns the order of the work, ``genai_config.json``, and the promise that the folder appears whole or
not at all: everything is written into a hidden sibling, which is renamed at the very end. What is
inside the parts belongs to `gguf_file`, `gguf_tokenizer`, `calibrate`, `quantize` and `graph`.
Knows nothing of catalogues, caches or downloads.

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
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from structgen.errors import ConversionError
from structgen.models.progress import Progress, reporting

from .calibrate import Calibration, LayerWeights, smooth, texts
from .gguf_file import GgufFile, LlamaShape, layer_tensor, projection, read_shape, rope_tables
from .quantize import QuantizedMatrix, eight_bit, four_bit

if TYPE_CHECKING:
    from .graph import LayerMatrices

FloatArray = npt.NDArray[np.float32]


def convert_gguf(
    gguf: str | os.PathLike[str],
    out: str | os.PathLike[str],
    progress: Progress | None = None,
    *,
    hidden_states: bool = False,
) -> Path:
    """Convert a GGUF file of the Llama family into an ONNX Runtime GenAI folder.

    The folder holds ``model.onnx``, ``model.onnx.data``, ``genai_config.json``,
    ``tokenizer.json`` and ``tokenizer_config.json``. It is written under a temporary name beside
    ``out`` and renamed, so that an interrupted run leaves nothing behind. When another process
    finishes the same folder first, its folder is kept.

    Args:
        gguf: the weights; any tensor type that the ``gguf`` package can dequantise.
        out: the folder to make. It must not exist, or be empty.
        progress: told how far the work is; None shows a bar (or, in a log, lines).
        hidden_states: give the graph the output that `TextModel.embed` needs.

    Returns:
        The absolute path of ``out``.

    Raises:
        ConversionError: the file is damaged or of a kind that cannot be converted, or ``out``
            cannot be written (it exists, or the disk is full).

    Costs about 10 s of CPU and 0.7 GB of memory for a model of 135M parameters.
    """
    source, target = Path(gguf), Path(out).absolute()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConversionError(
            f"{target} exists already. Remove it, or choose another folder for the converted model."
        )
    file = GgufFile(source)
    with reporting(progress) as report, _staged(target) as folder:
        _write(file, folder, report, hidden_states)
    return target


def _write(file: GgufFile, folder: Path, report: Progress, hidden_states: bool) -> None:
    # Imported here: `import structgen.models` must not pay for onnx_ir.
    from .graph import GraphBuilder

    shape = read_shape(file)
    stage, n_steps = f"Converting {file.path.name}", shape.n_layers + 2
    report(stage, 0, n_steps)
    sequences = _write_tokenizer(file, shape, folder)
    cos, sin = rope_tables(file, shape)
    graph = GraphBuilder(shape, cos, sin)
    embedding = file.tensor("token_embd.weight")
    calibration = Calibration(shape, embedding, sequences, cos, sin)
    graph.embed(eight_bit(embedding))
    del embedding
    report(stage, 1, n_steps)
    for layer in range(shape.n_layers):
        graph.layer(_matrices(file, shape, layer, calibration))
        report(stage, layer + 2, n_steps)
    head = None if shape.is_tied else eight_bit(file.tensor("output.weight"))
    graph.head(file.tensor("output_norm.weight"), head, hidden_states=hidden_states)
    graph.save(folder)
    _write_json(folder / "genai_config.json", _genai_config(file, shape))
    report(stage, n_steps, n_steps)


def _write_tokenizer(file: GgufFile, shape: LlamaShape, folder: Path) -> list[list[int]]:
    """Write the tokenizer's two files, and return the calibration texts as token ids."""
    from tokenizers import Tokenizer

    from . import gguf_tokenizer

    _write_json(folder / "tokenizer.json", gguf_tokenizer.tokenizer_json(file))
    config = gguf_tokenizer.tokenizer_config(file, shape.context_length)
    _write_json(folder / "tokenizer_config.json", config)
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises plain Exception
        raise ConversionError(
            f"{file.path} has tokenizer metadata that make no working tokenizer ({error})."
        ) from error
    # Of a very short text nothing is left once the first token is set aside.
    is_chatml = tokenizer.token_to_id("<|im_start|>") is not None
    sequences = [tokenizer.encode(text).ids[: shape.context_length] for text in texts(is_chatml)]
    return [ids for ids in sequences if len(ids) > 1]


def _matrices(
    file: GgufFile, shape: LlamaShape, layer: int, calibration: Calibration
) -> LayerMatrices:
    from .graph import LayerMatrices

    weights = LayerWeights(
        attn_norm=file.tensor(layer_tensor(layer, "attn_norm")),
        q=projection(file, shape, layer, "attn_q"),
        k=projection(file, shape, layer, "attn_k"),
        v=projection(file, shape, layer, "attn_v"),
        o=projection(file, shape, layer, "attn_output"),
        ffn_norm=file.tensor(layer_tensor(layer, "ffn_norm")),
        gate=projection(file, shape, layer, "ffn_gate"),
        up=projection(file, shape, layer, "ffn_up"),
        down=projection(file, shape, layer, "ffn_down"),
    )
    smooth(weights, shape, calibration.advance(weights))
    return LayerMatrices(
        attn_norm=weights.attn_norm,
        qkv=eight_bit(np.concatenate([weights.q, weights.k, weights.v])),
        o=eight_bit(weights.o),
        ffn_norm=weights.ffn_norm,
        gate_up=_narrowest(np.concatenate([weights.gate, weights.up])),
        down=_narrowest(weights.down),
    )


def _narrowest(weight: FloatArray) -> QuantizedMatrix:
    matrix = four_bit(weight)
    return eight_bit(weight) if matrix is None else matrix


def _genai_config(file: GgufFile, shape: LlamaShape) -> dict[str, Any]:
    from . import gguf_tokenizer
    from .graph import INPUTS, OUTPUTS

    end_ids = gguf_tokenizer.end_token_ids(file)
    start_id = gguf_tokenizer.start_token_id(file)
    return {
        "model": {
            "type": "llama",
            "vocab_size": shape.vocab_size,
            "context_length": shape.context_length,
            # The runtime insists on a start token; whether texts begin with it is the
            # tokenizer's business.
            "bos_token_id": end_ids[0] if start_id is None else start_id,
            "eos_token_id": end_ids,
            "pad_token_id": gguf_tokenizer.padding_token_id(file),
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
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


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


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
