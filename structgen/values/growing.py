"""GrowingValue: the text of an output comes in, partial values come out.

Owns what kind of document an output is: JSON, text in parts, text that is its own value, or text of
which nothing is settled before its end. It is fed text, so that it serves streams of any origin.
"""

from __future__ import annotations

from typing import Any, Generic

from structgen.grammar import ir
from structgen.types import OutputType, T_co

from .document import Document
from .partial import Partial
from .parts import GrowingParts
from .shapes import Shapes


def shapes_of(output: OutputType) -> Shapes:
    """What the parts of an output of a type are."""
    return Shapes(output.values)


class GrowingValue(Generic[T_co]):
    """One output of a type, while it is written."""

    def __init__(self, output: OutputType[T_co] | None, shapes: Shapes | None = None) -> None:
        """Begin an output.

        Args:
            output: its type; None: free text.
            shapes: of that type, `shapes_of`, to be used by its outputs one after another; None:
                they are read now.
        """
        self._pieces: list[str] = []
        self._document: Document | None = None
        self._parts: GrowingParts | None = None
        self._grows = True
        if output is not None:
            shapes = shapes_of(output) if shapes is None else shapes
            if isinstance(output.grammar, ir.Json):
                self._document = Document(shapes)
            elif output.growing is not None:
                self._parts = GrowingParts(output.growing(), GrowingValue)
            else:
                parse: Any = output.parse
                is_text = isinstance(output.grammar, ir.Pattern) and output.values is not None
                self._grows = parse is str or (is_text and shapes.grows(shapes.root))
        self._n_changes = 0

    @property
    def is_text(self) -> bool:
        """Whether the value is the text, which grows."""
        return self._document is None and self._parts is None

    def feed(self, text: str) -> Partial[T_co] | None:
        """The output goes on; returns what there is of the value, or None where nothing is new.

        Cost: that of the new text, however long the output is.
        """
        if self._document is not None:
            self._document.feed(text.encode("utf-8", "surrogatepass"))
            changes = self._document.n_changes
            if changes == self._n_changes:
                return None
            self._n_changes = changes
            return Partial(self._document, self._document.root, self._document.n_bytes)
        if self._parts is not None:
            is_new = self._parts.feed(text)
            return Partial(None, None, 0, parts=self._parts.seen) if is_new else None
        self._pieces.append(text)
        if not self._grows:
            return None
        pieces, n = self._pieces, len(self._pieces)
        return Partial(None, None, 0, lambda: "".join(pieces[:n]))

    def finish(self, value: Any) -> Partial[T_co]:
        """The output is whole.

        Args:
            value: what its text parses to.
        """
        if self._document is None:
            parts = None if self._parts is None else self._parts.seen
            return Partial(None, None, 0, None, (value,), parts)
        self._document.finish()
        document = self._document
        return Partial(document, document.root, document.n_bytes, None, (value,))
