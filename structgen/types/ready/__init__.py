"""Ready-made types: named sets of texts, each an output type, a pattern and a Pydantic type.

`ready_type` has what they all are, and the types. To type checkers each is ``str``, since that is
what its values are (`static`).
"""

from __future__ import annotations

from typing import Any

from .ready_type import (
    LISTS,
    NUMBERS,
    PATTERNS,
    Ready,
    payment_card,
    phone_number,
    postal_code,
    recent_date,
)

READY: dict[str, Ready] = {one.name: one for one in (*PATTERNS, *NUMBERS, *LISTS)}
"""All that need no argument, by name."""

OFFERED: dict[str, Any] = {
    **READY,
    "phone_number": phone_number,
    "postal_code": postal_code,
    "recent_date": recent_date,
}
"""What `structgen.types` has beside its own."""

__all__ = ["OFFERED", "READY", "Ready", "payment_card", "phone_number", "postal_code"]
