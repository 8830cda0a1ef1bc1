"""Running a graph where its tensors stay on a device: IOBinding, and pooling beside the model.

Used where the first provider is not the CPU. A batch's token ids go to the device, the vectors of
its tokens stay there, a second, small graph pools them, and only one vector a text comes back.
Measured nowhere yet but on the CPU, where it gives the same numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt
import onnxruntime as ort  # type: ignore[import-untyped]

from structgen.models.providers import runtime_names

from .pooling import FloatArray, Pooling

_MEMORY = {"cuda": "cuda", "dml": "dml"}
"""Providers whose memory the runtime lets others bind, and its name."""

_FLOAT, _FLOAT16 = 1, 10


@final
class Device:
    """Where a graph runs. Safe to share by threads."""

    def __init__(self, provider: str, memory: str, number: int = 0) -> None:
        """Name a device.

        Args:
            provider: the execution provider, as `structgen.models.providers` calls it.
            memory: what the runtime calls its memory.
            number: which of several.
        """
        self._provider, self._memory, self._number = provider, memory, number
        self._poolers: dict[int, Any] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, provider: str, options: Mapping[str, Any]) -> Device | None:
        """The device of a provider, or None where nothing is gained by binding."""
        memory = _MEMORY.get(provider)
        return None if memory is None else cls(provider, memory, int(options.get("device_id", 0)))

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
            to_pool: when that is a vector a token: lengths, pooling and tokens to skip.
        """
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, self._put(array))
        binding.bind_output(output, self._memory, self._number)
        session.run_with_iobinding(binding)
        (found,) = binding.get_outputs()
        if to_pool is None:
            return np.asarray(found.numpy(), np.float32)
        n_tokens = next(iter(feeds.values())).shape[1]
        pooler = self._pooler(_FLOAT16 if "float16" in found.data_type() else _FLOAT)
        pooling = pooler.io_binding()
        pooling.bind_ortvalue_input("hidden", found)
        pooling.bind_ortvalue_input("weights", self._put(weights(*to_pool, n_tokens)))
        pooling.bind_output("pooled", "cpu")
        pooler.run_with_iobinding(pooling)
        (pooled,) = pooling.get_outputs()
        return np.asarray(pooled.numpy(), np.float32)

    def _put(self, array: npt.NDArray[Any]) -> Any:
        return ort.OrtValue.ortvalue_from_numpy(
            np.ascontiguousarray(array), self._memory, self._number
        )

    def _pooler(self, kind: int) -> Any:
        with self._lock:
            found = self._poolers.get(kind)
            if found is None:
                names = list(dict.fromkeys([self._provider, "cpu"]))
                on_it = {"device_id": str(self._number)}  # where the vectors to pool are
                found = self._poolers[kind] = ort.InferenceSession(
                    pooling_graph(kind),
                    providers=runtime_names(names),
                    provider_options=[{} if name == "cpu" else on_it for name in names],
                )
            return found


def weights(lengths: Sequence[int], pooling: Pooling, n_skipped: int, n_tokens: int) -> FloatArray:
    """How much each token counts in its text's vector: float32 ``[texts, tokens, 1]``."""
    out = np.zeros((len(lengths), n_tokens, 1), np.float32)
    for row, length in enumerate(lengths):
        if not length:
            continue
        if pooling == "mean":
            first = min(n_skipped, length - 1)
            out[row, first:length] = 1 / (length - first)
        else:
            out[row, 0 if pooling == "cls" else length - 1] = 1
    return out


def pooling_graph(kind: int) -> bytes:
    """A graph that adds up ``hidden`` [b, s, d] by ``weights`` [b, s, 1] to ``pooled`` [b, d].

    What has no weight counts for nothing, whatever stands there: padding may be no number at all.
    """
    import onnx_ir as ir

    def value(name: str, data_type: int, shape: list[str | int]) -> ir.Value:
        return ir.Value(
            name=name, type=ir.TensorType(ir.DataType(data_type)), shape=ir.Shape(shape)
        )

    hidden = value("hidden", kind, ["b", "s", "d"])
    by = value("weights", _FLOAT, ["b", "s", 1])
    zero = ir.Value(name="zero", const_value=ir.tensor(np.zeros(1, np.float32), name="zero"))
    axis = ir.Value(name="axis", const_value=ir.tensor(np.array([1], np.int64), name="axis"))
    cast = ir.node("Cast", [hidden], {"to": _FLOAT})
    counts = ir.node("Greater", [by, zero])
    kept = ir.node("Where", [counts.outputs[0], cast.outputs[0], zero])
    scaled = ir.node("Mul", [kept.outputs[0], by])
    total = ir.node("ReduceSum", [scaled.outputs[0], axis], {"keepdims": 0})
    pooled = total.outputs[0]
    pooled.name = "pooled"
    pooled.type, pooled.shape = ir.TensorType(ir.DataType(_FLOAT)), ir.Shape(["b", "d"])
    graph = ir.Graph(
        [hidden, by],
        [pooled],
        nodes=[cast, counts, kept, scaled, total],
        initializers=[zero, axis],
        opset_imports={"": 18},
        name="pooling",
    )
    proto: bytes = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
    return proto
