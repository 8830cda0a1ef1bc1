"""Ready-made types: named sets of texts, each an output type, a pattern and a Pydantic type.

In reading order: `ready_type` (what they all are), `patterns`, `numbers` (with check digits),
`lists` (from packages of the extra ``types``) and `places` (by country). To type checkers each is
``str``, since that is what its values are (`static`).
"""

from __future__ import annotations

from typing import Any

from .lists import LISTS
from .numbers import NUMBERS, payment_card
from .patterns import PATTERNS, recent_date
from .places import phone_number, postal_code
from .ready_type import Ready

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
