"""An embedder's graph on ONNX Runtime: its inputs, and the output with the vector.

Tokens come in as lists of ids, vectors go out as NumPy arrays. Knows no tokenizer, no prompts and
no batches.

Graphs have different inputs: token ids with or without types, mask and positions, the (empty)
key-value cache of a decoder, or the text itself as a tensor of strings. They output a vector per
text (``sentence_embedding``), a vector per token (``last_hidden_state``), or a cross-encoder's
``logits``.

`Device` is used if the first provider is not the CPU. A batch's token ids are sent to the device,
the vectors of tokens stay there, a small second graph pools them, and only one vector per text
comes back. It was measured only on the CPU, where it gives the same numbers.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, final

import numpy as np
import numpy.typing as npt

# No telemetry unless the user wants it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort  # type: ignore[import-untyped]

from structgen.errors import ModelError
from structgen.models.loading import in_short, read_options, remedy, runtime_names

from .pooling import WIDEST, FloatArray, Pooling, checked, pool, weights
from .tokens import Tokens

_BOUND = ("cuda", "dml")
"""Providers whose memory can be bound; devices have the same names in the runtime."""


@final
class Device:
    """The device that a graph runs on. Safe to share by threads."""

    def __init__(self, provider: str, number: int) -> None:
        """Set the device.

        Args:
            provider: the execution provider, with the names of `structgen.models.loading`.
            number: the number of the device.
        """
        self._provider, self._number = provider, number
        self._poolers: dict[str, Any] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, provider: str, options: Mapping[str, Any]) -> Device | None:
        """Return the device of a provider; None: binding has no benefit."""
        return cls(provider, int(options.get("device_id", 0))) if provider in _BOUND else None

    def run(
        self,
        session: Any,
        feeds: Mapping[str, npt.NDArray[Any]],
        output: str,
        to_pool: tuple[Sequence[int], Pooling, int] | None,
    ) -> FloatArray:
        """Run a graph and return one of its outputs in the CPU's memory.

        Args:
            session: the graph.
            feeds: its inputs.
            output: the name of the output.
            to_pool: if that is a vector per token: lengths, pooling and tokens to skip.
        """
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, self._put(array))
        binding.bind_output(output, self._provider, self._number)
        session.run_with_iobinding(binding)
        (found,) = binding.get_outputs()
        if to_pool is None:
            return np.asarray(found.numpy(), np.float32)
        n_tokens = next(iter(feeds.values())).shape[1]
        pooler = self._pooler("float16" if "float16" in found.data_type() else "float")
        pooling = pooler.io_binding()
        pooling.bind_ortvalue_input("hidden", found)
        pooling.bind_ortvalue_input("weights", self._put(weights(*to_pool, n_tokens)))
        pooling.bind_output("pooled", "cpu")
        pooler.run_with_iobinding(pooling)
        (pooled,) = pooling.get_outputs()
        return np.asarray(pooled.numpy(), np.float32)

    def _put(self, array: npt.NDArray[Any]) -> Any:
        return ort.OrtValue.ortvalue_from_numpy(
            np.ascontiguousarray(array), self._provider, self._number
        )

    def _pooler(self, kind: str) -> Any:
        import onnx_ir as ir

        with self._lock:
            found = self._poolers.get(kind)
            if found is None:
                names = list(dict.fromkeys([self._provider, "cpu"]))
                on_it = {"device_id": str(self._number)}  # the device of the vectors to pool
                graph = ir.to_proto(ir.from_onnx_text(_POOLING.replace("KIND", kind)))
                found = self._poolers[kind] = ort.InferenceSession(
                    graph.SerializeToString(),
                    providers=runtime_names(names),
                    provider_options=[{} if name == "cpu" else on_it for name in names],
                )
            return found


_POOLING = """<ir_version: 10, opset_import: ["": 18]>
pooling (KIND[b, s, d] hidden, float[b, s, 1] weights) => (float[b, d] pooled)
<float[1] zero = {0}, int64[1] axis = {1}>
{
    wide = Cast <to = 1> (hidden)
    counts = Greater (weights, zero)
    kept = Where (counts, wide, zero)
    scaled = Mul (kept, weights)
    pooled = ReduceSum <keepdims = 0> (scaled, axis)
}"""
"""The weighted sum of vectors, in ONNX's text notation. Vectors with weight 0 are ignored, because
padding may be NaN."""

_OF_TEXT = ("sentence_embedding", "embeddings", "embedding", "text_embeds", "dense_vecs")
_OF_TOKENS = ("last_hidden_state", "token_embeddings", "hidden_states")
_TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
}
_STRING = "tensor(string)"
_PAST = "past_key_values."

Kind = Literal["text", "tokens", "score"]
"""The kind of the used output: a vector per text, a vector per token, or a score per pair."""


class AnyGraph(Protocol):
    """A `Graph`, here or in another process."""

    @property
    def kind(self) -> Kind:
        """As of `Graph`."""

    @property
    def width(self) -> int | None:
        """As of `Graph`."""

    def run(self, rows: Sequence[Tokens], pooling: Pooling, n_skipped: int = 0) -> FloatArray:
        """As of `Graph`."""

    def run_texts(self, texts: Sequence[str]) -> FloatArray:
        """As of `Graph`."""


@final
class Graph:
    """A loaded graph. Safe to share by threads.

    Attributes:
        takes_text: whether it reads strings instead of token ids.
        kind: the kind of its output.
        width: length of a vector; None: not known yet.
        device: the device, if it is not the CPU.
    """

    def __init__(
        self,
        file: Path,
        *,
        wants_tokens: bool,
        providers: Sequence[str] | None,
        session_options: Mapping[str, Any] | None,
        threads: int | None,
    ) -> None:
        """Load a graph.

        Args:
            file: the ONNX file.
            wants_tokens: whether to prefer a vector per token to one per text.
            providers: execution providers, the preferred one first; None: the CPU.
            session_options: options of ONNX Runtime.
            threads: threads of an operator.

        Raises:
            ModelError: the runtime cannot load it, or its inputs or outputs are not an embedder's.
        """
        names, options_of, others = read_options(providers, session_options, threads)
        if threads is not None:
            others.setdefault("intra_op_num_threads", threads)
        names = names or ["cpu"]
        self._file = file
        self._session = _session(file, names, options_of, others)
        self.device = Device.of(names[0], options_of.get(names[0], {}))
        self._inputs = {one.name: one for one in self._session.get_inputs()}
        strings = [name for name, one in self._inputs.items() if one.type == _STRING]
        self.takes_text = bool(strings)
        self._text_input = strings[0] if strings else ""
        known = ("input_ids", "attention_mask", "token_type_ids", "position_ids", self._text_input)
        unknown = [
            f"{name} ({one.type})"
            for name, one in self._inputs.items()
            if (name not in known and not name.startswith(_PAST))
            or one.type not in (_STRING, *_TYPES)
        ]
        if unknown:
            raise ModelError(
                f"{file} is not a supported embedder: its inputs {', '.join(unknown)} are not "
                f"among input_ids, attention_mask, token_type_ids, position_ids, {_PAST}*, of "
                f"{', '.join(_TYPES)}, and one tensor of strings."
            )
        output, self.kind = self._choose(wants_tokens)
        self._output = output.name
        last = output.shape[-1] if output.shape else None
        is_width = isinstance(last, int) and 0 < last <= WIDEST and self.kind != "score"
        self.width: int | None = last if is_width else None  # others are refused when it runs

    def run(
        self, rows: Sequence[Tokens], pooling: Pooling, n_skipped: int = 0
    ) -> npt.NDArray[np.float32]:
        """Run texts as a batch.

        Args:
            rows: their tokens.
            pooling: how vectors of tokens become one per text, if the graph does not do it.
            n_skipped: number of first tokens that a mean leaves out.

        Returns:
            float32 ``[rows, width]``; for a cross-encoder ``[rows, labels]``.

        Raises:
            ModelError: the runtime fails.
        """
        lengths = [len(row.ids) for row in rows]
        feeds = self._feeds(rows, lengths)
        if self.device is not None:
            to_pool = (lengths, pooling, n_skipped) if self.kind == "tokens" else None
            with _explained(self._file):
                found = self.device.run(self._session, feeds, self._output, to_pool)
            return checked(found, self._file)
        found = self._run(feeds, len(rows))
        if self.kind == "tokens":
            is_right = found.ndim == 3 and found.shape[1] >= max(lengths)
        else:
            is_right = self.kind == "score" or found.ndim == 2
        if not is_right:
            raise self._wrong(found, len(rows))
        if self.kind == "tokens":
            found = pool(found, lengths, pooling, n_skipped)
        return checked(np.asarray(found, np.float32), self._file)

    def run_texts(self, texts: Sequence[str]) -> FloatArray:
        """Run a graph that reads text itself: float32 ``[texts, width]``.

        Raises:
            ModelError: the runtime fails.
        """
        shape = self._inputs[self._text_input].shape
        array = np.array(texts, object)
        if len(shape) == 2:  # a column of texts
            array = array[:, None]
        found = np.asarray(self._run({self._text_input: array}, len(texts)), np.float32)
        return checked(found.reshape(len(texts), -1), self._file)

    def _run(self, feeds: Mapping[str, npt.NDArray[Any]], n_texts: int) -> npt.NDArray[Any]:
        with _explained(self._file):
            (found,) = map(np.asarray, self._session.run([self._output], feeds))
        if found.dtype.kind != "f" or found.shape[:1] != (n_texts,):
            raise self._wrong(found, n_texts)
        return found

    def _wrong(self, found: npt.NDArray[Any], n_texts: int) -> ModelError:
        return ModelError(
            f"{self._file} returned {self._output} with type {found.dtype} and shape "
            f"{found.shape} for {n_texts} texts, which does not match its declaration."
        )

    def _choose(self, wants_tokens: bool) -> tuple[Any, Kind]:
        outputs = {one.name: one for one in self._session.get_outputs()}
        of_text: list[tuple[str, Kind]] = [(name, "text") for name in _OF_TEXT]
        of_tokens: list[tuple[str, Kind]] = [(name, "tokens") for name in _OF_TOKENS]
        order = [*of_tokens, *of_text] if wants_tokens else [*of_text, *of_tokens]
        for name, kind in [*order, ("logits", "score")]:
            # Some exports name the vectors of tokens embeddings.
            if name in outputs and (kind != "text" or len(outputs[name].shape) != 3):
                return outputs[name], kind
        if len(outputs) == 1:
            (only,) = outputs.values()
            return only, "tokens" if len(only.shape) == 3 else "text"
        raise ModelError(
            f"{self._file} has no supported output for vectors: its outputs are "
            f"{', '.join(outputs)}; supported are {', '.join((*_OF_TEXT, *_OF_TOKENS))}, and "
            "logits of a cross-encoder."
        )

    def _feeds(self, rows: Sequence[Tokens], lengths: Sequence[int]) -> dict[str, npt.NDArray[Any]]:
        """Return the graph's input arrays, each ``[rows, longest]``, padded with zeros."""
        shape = (len(rows), max(max(lengths, default=0), 1))
        ids = np.zeros(shape, np.int64)
        mask = np.zeros(shape, np.int64)
        for i, row in enumerate(rows):
            ids[i, : lengths[i]] = row.ids
            mask[i, : lengths[i]] = 1
        feeds: dict[str, npt.NDArray[Any]] = {}
        for name, wanted in self._inputs.items():
            if name == "input_ids":
                array: npt.NDArray[Any] = ids
            elif name == "attention_mask":
                array = mask
            elif name == "token_type_ids":
                array = np.zeros(shape, np.int64)
                for i, row in enumerate(rows):
                    array[i, : lengths[i]] = row.type_ids
            elif name == "position_ids":
                array = np.maximum(mask.cumsum(axis=1) - 1, 0)
            else:  # an empty key-value cache of a layer: batch, heads, 0, width of a head
                known = [one for one in wanted.shape[1::2] if isinstance(one, int)]
                if len(wanted.shape) != 4 or len(known) != 2 or max(known) > 1 << 20:
                    raise ModelError(f"{self._file}: the shape of {name} is unknown or too large.")
                array = np.zeros((len(rows), known[0], 0, known[1]), np.float32)
            feeds[name] = array.astype(_TYPES[wanted.type], copy=False)
        return feeds


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Turn exceptions of the runtime into a ModelError."""
    try:
        yield
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot run {file}: {in_short(error)}.") from error


def _session(
    file: Path,
    names: Sequence[str],
    options_of: Mapping[str, Mapping[str, Any]],
    session_options: Mapping[str, Any],
) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3  # errors become exceptions, too
    for name, value in session_options.items():
        try:
            if name == "custom_ops_library":
                options.register_custom_ops_library(str(value))
            elif "." in name:
                options.add_session_config_entry(name, value)
            elif name == "graph_optimization_level":
                # The name in ``genai_config.json``, or the runtime's own.
                level = getattr(ort.GraphOptimizationLevel, str(value), value)
                options.graph_optimization_level = level
            else:
                setattr(options, name.replace("log_id", "logid"), value)
        except Exception as error:
            # For a wrong type, the binding's message is only its signature.
            why = "it has the wrong type" if isinstance(error, TypeError) else in_short(error)
            raise ModelError(
                f"ONNX Runtime rejects the session option {name!r} = {value!r}: {why}."
            ) from error
    if importlib.util.find_spec("onnxruntime_extensions") is not None:
        from onnxruntime_extensions import (  # type: ignore[import-not-found]
            get_library_path,
        )

        options.register_custom_ops_library(get_library_path())
    wanted = [*names, *([] if "cpu" in names else ["cpu"])]  # for operators that the others lack
    try:
        return ort.InferenceSession(
            str(file),
            options,
            providers=runtime_names(wanted),
            provider_options=[
                {key: str(value) for key, value in options_of.get(name, {}).items()}
                for name in wanted
            ],
        )
    except Exception as error:
        reason = str(error)
        if "ai.onnx.contrib" in reason or "com.microsoft.extensions" in reason:
            raise ModelError(
                f"{file} needs the package onnxruntime-extensions, which is not installed: pip "
                "install 'structgen[extensions]'."
            ) from error
        if "Protobuf parsing failed" in reason or "parse" in reason:
            raise ModelError(
                f"ONNX Runtime cannot load {file}: {in_short(error)}. {remedy(file.parent)}"
            ) from error
        raise ModelError(f"ONNX Runtime cannot load {file}: {in_short(error)}.") from error
