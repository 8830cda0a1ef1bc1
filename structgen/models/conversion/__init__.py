"""GGUF or safetensors weights turned into a folder that ONNX Runtime GenAI loads.

In reading order: `decoder` (what a model is to the converter, and the families), `gguf`,
`hugging_face` and `ctranslate2` (three kinds of files that are read), `graph` (the ONNX graph and
its numbers), `whisper` (two graphs that hear) and `convert`, the entry. ``gguf`` and ``onnx-ir``
are imported when weights are converted.
"""
