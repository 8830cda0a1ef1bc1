"""Enforcement: who sees to it that an answer is of its type, keyword by keyword.

Owns the value that `result.enforcement` is, and how it is made of what was sent and of what
`Constraint.explain` says. Knows neither requests nor answers.
"""

from __future__ import annotations

from collections.abc import Collection

from structgen.constraint import Constraint
from structgen.decoding import Enforcement
from structgen.grammar import regex
from structgen.grammar.json_schema import DIGITS_ONLY

_VALIDATED = ("masked", "masked, by recording")
_CODE = "checked by parse"
_NEVER = "not enforced"

Place = tuple[str, str]
"""A JSON path and a keyword."""


def enforcement(
    constraint: Constraint | None, dialect: str, sent: str, not_by_server: Collection[Place] | None
) -> Enforcement:
    """Who enforces what of an output type.

    Args:
        constraint: the output type, as it is validated here; None: free text.
        dialect: the server's.
        sent: what was sent, in words.
        not_by_server: what the server does not enforce; None: it enforces nothing.
    """
    server: list[str] = []
    here: list[str] = []
    neither: list[str] = []
    for row in () if constraint is None else constraint.explain().rows:
        if row.how not in (*_VALIDATED, _CODE, _NEVER):
            continue
        if row.keyword == DIGITS_ONLY:
            continue  # how a whole number is written, and no part of what was asked for
        keyword = "pattern" if row.keyword == regex.algebra.KEYWORD else row.keyword
        named = f"{row.path} {keyword}"
        if row.how == _NEVER:
            neither.append(named)
        elif row.how == _CODE:
            here.append(f"{named} {row.note}".rstrip())
        elif not_by_server is None or (row.path, row.keyword) in not_by_server:
            here.append(named)
        else:
            server.append(named)
    return Enforcement(dialect, sent, tuple(server), tuple(here), tuple(neither))
