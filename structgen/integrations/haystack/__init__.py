"""Haystack: generators and embedders of a Runner, as components of pipelines.

    from structgen.integrations.haystack import StructgenChatGenerator

    generator = StructgenChatGenerator("smollm2-135m-instruct")
    generator.run("Describe the Eiffel Tower.", generation_kwargs={"response_format": Landmark})

In reading order: `messages` (a history as a chat), `answers` (answers and their pieces),
`loading` (whose model it is), `generators`, `embedders`. No logic of answers is here: a request
becomes one of the Runner's.
"""

from __future__ import annotations

from structgen.errors import ModelError

try:
    import haystack as _package
except ImportError as error:
    raise ModelError(
        "structgen.integrations.haystack needs the package haystack-ai, and Python 3.11. Install "
        "it: pip install 'structgen[haystack]'."
    ) from error

from .embedders import StructgenDocumentEmbedder, StructgenTextEmbedder
from .generators import StructgenChatGenerator, StructgenGenerator

__all__ = [
    "StructgenChatGenerator",
    "StructgenDocumentEmbedder",
    "StructgenGenerator",
    "StructgenTextEmbedder",
]

del _package
