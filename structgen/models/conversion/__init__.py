"""Convert GGUF or safetensors weights into a folder that ONNX Runtime GenAI loads.

In reading order: `decoder` (the converter's view of a model, and the families), `gguf`,
`hugging_face` and `ctranslate2` (readers of three file formats), `graph` (the ONNX graph and its
numbers), `whisper` (Whisper's two graphs), `language` (the order of the work for others) and
`convert`, the entry, which calls these in a process of their own. Only there are ``gguf`` and
``onnx-ir`` imported.
"""
