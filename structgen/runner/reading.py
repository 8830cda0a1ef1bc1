"""An output's text, read into what an answer has: content, and calls with names and arguments.

Owns the order in which they are told, which is that of OpenAI's streams: of a call its id and name
come first, then pieces of its arguments. A text that is not streamed is read the same way, at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from structgen.types import OutputType, PartReader

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def new_call_id() -> str:
    """An id for a call: nine letters and digits, as Mistral's chat templates want them."""
    return "".join(secrets.choice(_LETTERS) for _ in range(9))


@dataclass(slots=True)
class ReadCall:
    """A call as far as it is written.

    Attributes:
        id: its id.
        name: the tool's.
        arguments: JSON text.
    """

    id: str
    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class More:
    """What came next.

    Attributes:
        content: more text; "" beside a call.
        index: of the call that has begun or goes on; None: none.
        call: that call, where it has begun just now.
        arguments: more of its arguments.
    """

    content: str = ""
    index: int | None = None
    call: ReadCall | None = None
    arguments: str = ""


@dataclass(slots=True)
class Reader:
    """Reads one output.

    Attributes:
        growing: begins to read its parts; None: all of it is content.
        content: the text beside calls, so far.
        calls: the calls so far.
    """

    growing: Callable[[], PartReader] | None = None
    content: str = ""
    calls: list[ReadCall] = field(default_factory=list)
    _parts: PartReader | None = None
    _step: Any = None

    @classmethod
    def of(cls, output: OutputType[Any] | None) -> Reader:
        """A reader of outputs of a type."""
        offers = output is not None and output.offered is not None
        return cls(output.growing if output is not None and offers else None)

    def feed(self, text: str) -> Iterator[More]:
        """The text goes on."""
        if self.growing is None:
            if text:
                self.content += text
                yield More(content=text)
            return
        if self._parts is None:
            self._parts = self.growing()
        for part, more, _ in self._parts.feed(text):
            if part.tool is None:
                if more:
                    self.content += more
                    yield More(content=more)
                continue
            if part.step != self._step:
                self._step = part.step
                self.calls.append(ReadCall(new_call_id(), part.tool))
                yield More(index=len(self.calls) - 1, call=self.calls[-1])
            call = self.calls[-1]
            if not call.arguments:
                more = more.lstrip(" \t\n\r")
            if more:
                call.arguments += more
                yield More(index=len(self.calls) - 1, arguments=more)

    def finish(self, text: str) -> Iterator[More]:
        """The text has ended: what of it was held back, since it might have been a call's start."""
        rest = "" if self.calls else text[len(self.content) :]
        if rest:
            self.content += rest
            yield More(content=rest)
