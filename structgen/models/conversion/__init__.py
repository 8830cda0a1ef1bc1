"""Convert GGUF or safetensors weights into a folder that ONNX Runtime GenAI loads.

In reading order: `decoder` (the converter's view of a model, and the families), `gguf`,
`hugging_face` and `ctranslate2` (readers of three file formats), `graph` (the ONNX graph and its
numbers), `whisper` (Whisper's two graphs) and `convert`, the entry. ``gguf`` and ``onnx-ir`` are
imported during a conversion only.
"""
