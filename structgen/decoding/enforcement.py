"""Enforcement: who saw to it that the answer of a remote model is of its type.

Plain frozen data; `structgen.remote` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Who saw to it that an answer of a remote model is of its output type.

    Each entry is a JSON path and a keyword: ``$.properties.age minimum``; of other types ``$`` and
    ``pattern``, ``choice`` or ``grammar``.

    Attributes:
        dialect: how the server was asked.
        sent: what was sent, in words.
        server: what the server was asked to enforce, and is known to enforce in that dialect. It
            was validated here, too.
        here: what only the validation of the answer saw to: keywords that were not sent, or that
            such servers do not enforce, and validators of the type's own.
        neither: what nobody saw to: keywords that ``on_unsupported="warn"`` left out.
    """

    dialect: str
    sent: str
    server: tuple[str, ...]
    here: tuple[str, ...]
    neither: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.dialect}: {self.sent}"]
        for who, places in (
            ("by the server, validated here", self.server),
            ("validated here alone", self.here),
            ("by nobody", self.neither),
        ):
            if places:
                lines += [who, *(f"  {place}" for place in places)]
        return "\n".join(lines)
