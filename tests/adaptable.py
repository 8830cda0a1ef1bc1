"""The default model with LoRA adapters to load, for tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime

from structgen import models

WEIGHT = "model.final_norm.weight"


def adaptable(folder: Path, source: Path | None = None) -> Path:
    """A model with one weight as an input that adapters may replace, and two adapters.

    The model is the default one, or that of the folder ``source``.
    ``same.onnx_adapter`` has the weight as it is, ``turned.onnx_adapter`` the opposite of it.
    """
    # Of the copy: onnx_ir reads no file that has several names, as those of a linked cache have.
    source = source or models.path("smollm2-135m-instruct")
    shutil.copytree(source, folder, dirs_exist_ok=True)
    graph = ir.load(folder / "model.onnx")
    weight = graph.graph.initializers[WEIGHT]
    assert weight.const_value is not None
    values = np.array(weight.const_value.numpy())
    graph.graph.inputs.append(weight)
    ir.save(graph, folder / "model.onnx")
    for name, changed in (("same", values), ("turned", -values)):
        adapter = onnxruntime.AdapterFormat()
        adapter.set_adapter_version(1)
        adapter.set_model_version(1)
        adapter.set_parameters({WEIGHT: onnxruntime.OrtValue.ortvalue_from_numpy(changed)})
        adapter.export_adapter(str(folder / f"{name}.onnx_adapter"))
    return folder
