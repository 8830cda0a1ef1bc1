"""GGUF weights turned into a folder that ONNX Runtime GenAI loads.

`convert` is the entry; `gguf_file` and `gguf_tokenizer` read, `graph` writes, `quantize` and
`calibrate` choose the numbers. ``gguf`` and ``onnx-ir`` are imported when weights are converted.
"""
