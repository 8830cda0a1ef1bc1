"""Which files of a Hugging Face repository make an embedder: one graph, and what is said of it.

Plain reasoning about names of files; it fetches nothing. Repositories hold the same graph many
times, in several precisions, and as much again for other runtimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from structgen.errors import ModelNotFound

_USUAL = ("onnx/model.onnx", "model.onnx")


def wanted(name: str, inside: str, files: Sequence[str]) -> list[str] | None:
    """The files to fetch, or None where the repository holds no embedder.

    Args:
        name: ``org/name``, or with the path of a graph in it, for messages.
        inside: that path; ``""`` for the usual graph.
        files: all files of the repository.

    Raises:
        ModelNotFound: it holds graphs, but not the one that is named, or none that is usual.
    """
    graphs = sorted(file for file in files if file.endswith(".onnx"))
    if "tokenizer.json" not in files or not graphs:
        return None
    usual = [file for file in _USUAL if file in graphs] or (graphs if len(graphs) == 1 else [])
    chosen = [inside] if inside in graphs else [] if inside else usual[:1]
    if not chosen:
        repository = "/".join(name.split("/")[:2])
        names = "".join(f"\n  {repository}/{graph}" for graph in graphs)
        raise ModelNotFound(
            f"{name} does not say which of the ONNX files in {repository} is meant. Name one of "
            f"them:{names}"
        )
    (graph,) = chosen
    data = (f"{graph}_data", f"{graph}.data")
    return [
        file
        for file in files
        if file == graph or file.startswith(data) or _is_settings(PurePosixPath(file))
    ]


def _is_settings(file: PurePosixPath) -> bool:
    """Whether a file says something of the model: those at the top, and those of its modules."""
    if len(file.parts) == 1:
        return file.suffix == ".json" and not file.name.endswith(".index.json")
    return len(file.parts) == 2 and file.name == "config.json"
