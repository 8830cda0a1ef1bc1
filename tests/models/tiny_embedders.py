"""ONNX graphs of a few kilobytes that embed texts, with a tokenizer, and what they must give.

A token's vector is its row of a table, plus that of its type, plus the mean of the text's rows: so
masks, types and lengths all show. Padding is divided by zero on purpose.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WIDTH, LONGEST = 8, 12
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz", "query:", "text:"]
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), WIDTH)).astype(np.float32)
TYPES = np.random.default_rng(1).normal(size=(2, WIDTH)).astype(np.float32)


def tokenizer(folder: Path) -> None:
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    # As the wheel's: both are for other programs.
    made.enable_padding(length=20)
    made.enable_truncation(5)
    made.save(str(folder / "tokenizer.json"))


def ids_of(text: str) -> list[int]:
    return [1, *(WORDS.index(word) if word in WORDS else 3 for word in text.split()), 2]


def hidden(ids: list[int], types: list[int] | None = None) -> np.ndarray:
    """The vectors of a text's tokens, float64 ``[tokens, WIDTH]``."""
    rows = TABLE[ids].astype(np.float64)
    if types is not None:
        rows = rows + TYPES[types]
    return rows + rows.mean(axis=0)


class Builder:
    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []

    def constant(self, array: np.ndarray) -> ir.Value:
        name = f"c{len(self.constants)}"
        value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
        self.constants.append(value)
        return value

    def __call__(self, op: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        domain = "ai.onnx.ml" if op == "LabelEncoder" else ""
        if op == "StringLength":
            domain = "ai.onnx.contrib"
        node = ir.node(op, inputs, attributes, domain=domain)
        self.nodes.append(node)
        node.outputs[0].name = f"n{len(self.nodes)}"
        return node.outputs[0]

    def save(self, file: Path, inputs: list[ir.Value], outputs: list[ir.Value]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        graph = ir.Graph(
            inputs,
            outputs,
            nodes=self.nodes,
            initializers=self.constants,
            opset_imports={"": 18, "ai.onnx.ml": 3, "ai.onnx.contrib": 1},
            name="tiny",
        )
        ir.save(ir.Model(graph, ir_version=9), file)


def value(name: str, kind: ir.DataType, shape: list[str | int]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(kind), shape=ir.Shape(shape))


def output(made: ir.Value, name: str, kind: ir.DataType, shape: list[str | int]) -> ir.Value:
    made.name, made.type, made.shape = name, ir.TensorType(kind), ir.Shape(shape)
    return made


def graph(
    file: Path,
    *,
    outputs: tuple[str, ...] = ("last_hidden_state",),
    kind: ir.DataType = ir.DataType.FLOAT,
    ids_kind: ir.DataType = ir.DataType.INT64,
    types: bool = True,
    positions: bool = False,
    past: bool = False,
    dynamic: bool = False,
) -> None:
    """Write a graph; see the arguments' defaults for what most exports are."""
    op = Builder()
    shape: list[str | int] = ["batch", "tokens"]
    ids, mask = value("input_ids", ids_kind, shape), value("attention_mask", ids_kind, shape)
    inputs = [ids, mask]
    rows = op("Gather", op.constant(TABLE), ids)
    if dynamic:  # as dynamic quantisation does it: one scale for all activations of a batch
        node = ir.node("DynamicQuantizeLinear", [rows], num_outputs=3)
        op.nodes.append(node)
        for i, made in enumerate(node.outputs):
            made.name = f"q{i}"
        identity = op.constant(np.eye(WIDTH, dtype=np.int8))
        whole = op("MatMulInteger", node.outputs[0], identity, node.outputs[2])
        rows = op("Mul", op("Cast", whole, to=ir.DataType.FLOAT), node.outputs[1])
    if types:
        inputs.append(value("token_type_ids", ids_kind, shape))
        rows = op("Add", rows, op("Gather", op.constant(TYPES), inputs[-1]))
    if positions:  # 0 times their sum: they have to be there, and finite
        inputs.append(value("position_ids", ids_kind, shape))
        at = op("Cast", inputs[-1], to=ir.DataType.FLOAT)
        nought = op("Mul", at, op.constant(np.zeros(1, np.float32)))
        rows = op("Add", rows, op("Unsqueeze", nought, op.constant(np.array([2]))))
    if past:
        inputs.append(value("past_key_values.0.key", kind, ["batch", 2, "past", 4]))
        size = op("ReduceSum", op("Cast", inputs[-1], to=ir.DataType.FLOAT), keepdims=0)
        rows = op("Add", rows, size)
    here = op("Unsqueeze", op("Cast", mask, to=ir.DataType.FLOAT), op.constant(np.array([2])))
    axis = op.constant(np.array([1]))
    kept = op("Mul", rows, here)
    total = op("ReduceSum", kept, axis)
    mean = op("Div", total, op("ReduceSum", here, axis))
    vectors = op("Div", op("Add", rows, mean), here)  # padding: a division by zero
    found = []
    for name in outputs:
        if name in ("last_hidden_state", "token_embeddings"):
            made, whole = vectors, ["batch", "tokens", WIDTH]
        else:
            made, whole = op("Squeeze", mean, axis), ["batch", WIDTH]
            if name == "logits":
                by = op.constant(TABLE[4][:, None])
                made, whole = op("MatMul", made, by), ["batch", 1]
        found.append(output(op("Cast", made, to=kind), name, kind, whole))
    op.save(file, inputs, found)


def text_graph(file: Path, *, column: bool = False, contrib: bool = False) -> None:
    """A graph that takes texts: each is known by its whole."""
    op = Builder()
    texts = value("text", ir.DataType.STRING, ["batch", 1] if column else ["batch"])
    if contrib:
        numbers = op("Cast", op("StringLength", texts), to=ir.DataType.FLOAT)
    else:
        numbers = op(
            "LabelEncoder",
            texts,
            keys_strings=["one", "two"],
            values_floats=[1.0, 2.0],
            default_float=-1.0,
        )
    if not column:
        numbers = op("Unsqueeze", numbers, op.constant(np.array([1])))
    made = op("MatMul", numbers, op.constant(TABLE[:1]))
    op.save(file, [texts], [output(made, "embedding", ir.DataType.FLOAT, ["batch", WIDTH])])


def folder(place: Path, *, pooling: str | None = "mean_tokens", **options: object) -> Path:
    """An embedder's folder: graph, tokenizer, pooling."""
    graph(place / "model.onnx", **options)
    tokenizer(place)
    settings = {"max_seq_length": LONGEST}
    (place / "sentence_bert_config.json").write_text(json.dumps(settings))
    if pooling is not None:
        write(place / "1_Pooling" / "config.json", {f"pooling_mode_{pooling}": True})
    return place


def write(file: Path, what: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(what))
