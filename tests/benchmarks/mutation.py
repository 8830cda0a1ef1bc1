"""One random edit: of a text's characters or bytes, or of the value it stands for.

Edits draw on the schema (its names, strings and numbers), so that many lead to documents that are
nearly or just valid. Knows nothing of validity.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from documents import Members, Number, decimal_text, nodes

Rng = random.Random

_CHARACTERS = '",:{}[]0123456789.-+eEabtrufnls \\/\n\t\x01\x7fé漢😀_xX$*'
_FILLERS: tuple[Any, ...] = (None, True, False, "", "a", Number("0"), Number("1"), Number("-1.5"))
_DELTAS = tuple(map(Decimal, ("1", "-1", "0.5", "-0.1", "0.01", "1000000")))


class Pool:
    """The names, strings, numbers and constants that a schema mentions."""

    def __init__(self, schema: Any) -> None:
        self.strings: list[str] = ["", "a", "é", "😀"]
        self.numbers: list[Decimal] = [Decimal(0), Decimal(1)]
        self._collect(schema)

    def _collect(self, schema: Any) -> None:
        if isinstance(schema, dict):
            for name, value in schema.items():
                self.strings.append(name)
                self._collect(value)
        elif isinstance(schema, list):
            for item in schema:
                self._collect(item)
        elif isinstance(schema, str):
            self.strings.append(schema)
        elif isinstance(schema, (int, float)) and not isinstance(schema, bool):
            value = Decimal(str(schema))
            if value.adjusted() < 30:
                self.numbers.append(value)


def edit_text(rng: Rng, data: bytes) -> bytes:
    """``data`` (UTF-8) with one character or byte deleted, inserted, replaced or swapped."""
    kind = rng.randrange(4)
    if rng.random() < 0.5:
        raw = [bytes([b]) for b in data]
        new = bytes([rng.randrange(256)])
    else:
        raw = [c.encode() for c in data.decode()]
        new = rng.choice(_CHARACTERS).encode()
    at = rng.randrange(len(raw) + (kind == 1)) if raw or kind == 1 else 0
    if kind == 0:
        del raw[at : at + 1]
    elif kind == 1:
        raw.insert(at, new)
    elif kind == 2:
        raw[at : at + 1] = [new]
    else:
        raw[at : at + 2] = reversed(raw[at : at + 2])
    return b"".join(raw)


def edit_value(rng: Rng, tree: Any, pool: Pool) -> Any:
    """The tree with one value, member or item changed."""
    target = rng.randrange(sum(1 for _ in nodes(tree)))
    return _edited(tree, [target], lambda node: _edit_node(rng, node, pool))


def _edited(tree: Any, countdown: list[int], edit: Callable[[Any], Any]) -> Any:
    """The tree with ``edit`` applied to the node that the countdown reaches 0 at."""
    countdown[0] -= 1
    if countdown[0] == -1:
        return edit(tree)
    if isinstance(tree, Members):
        return Members((name, _edited(value, countdown, edit)) for name, value in tree)
    return [_edited(i, countdown, edit) for i in tree] if isinstance(tree, list) else tree


def _edit_node(rng: Rng, node: Any, pool: Pool) -> Any:
    if rng.random() < 0.15:
        return rng.choice((*_FILLERS, [], Members(), *map(_number, pool.numbers[-20:])))
    if isinstance(node, Number):
        return _edit_number(rng, node, pool)
    if isinstance(node, str):
        return _edit_string(rng, node, pool)
    if isinstance(node, Members):
        return _edit_members(rng, node, pool)
    return _edit_items(rng, node, pool) if isinstance(node, list) else _filler(rng, pool)


def _filler(rng: Rng, pool: Pool) -> Any:
    return rng.choice((*_FILLERS, rng.choice(pool.strings), _number(rng.choice(pool.numbers))))


def _number(value: Decimal) -> Number:
    """The number as serialisers write it: with an exponent where it is far from 1."""
    if value and abs(value.adjusted()) > 18:
        return Number(format(value.normalize(), "e"))
    return Number(decimal_text(value))


def _edit_number(rng: Rng, number: Number, pool: Pool) -> Number:
    value = number.value
    return _number(
        rng.choice(
            (
                value + rng.choice(_DELTAS),
                value * 10,
                value / 10,
                -value,
                Decimal(round(value)) if abs(value.adjusted()) < 25 else value,
                rng.choice(pool.numbers),
                rng.choice(pool.numbers) + rng.choice(_DELTAS),
            )
        )
    )


def _edit_string(rng: Rng, string: str, pool: Pool) -> str:
    at = rng.randrange(len(string) + 1)
    char = rng.choice(_CHARACTERS)
    return rng.choice(
        (
            rng.choice(pool.strings),
            string[:at] + char + string[at:],
            string[:at] + string[at + 1 :],
            string[:at] + char + string[at + 1 :],
            string[:at],
            string + string,
        )
    )


def _edit_members(rng: Rng, members: Members, pool: Pool) -> Members:
    out = Members(members)
    kind = rng.randrange(6) if out else 0
    at = rng.randrange(len(out) + 1)
    if kind == 0:  # one more
        out.insert(at, (rng.choice(pool.strings), _filler(rng, pool)))
        return out
    at = rng.randrange(len(out))
    name, value = out[at]
    if kind == 1:
        del out[at]
    elif kind == 2:
        out[at] = (rng.choice(pool.strings), value)
    elif kind == 3:
        out[at] = (_edit_string(rng, name, pool), value)
    elif kind == 4:  # a duplicate
        out.insert(rng.randrange(len(out) + 1), (name, rng.choice((value, _filler(rng, pool)))))
    else:
        other = rng.randrange(len(out))
        out[at], out[other] = out[other], out[at]
    return out


def _edit_items(rng: Rng, items: list[Any], pool: Pool) -> list[Any]:
    out = list(items)
    kind = rng.randrange(4) if out else 0
    if kind == 0:
        out.insert(rng.randrange(len(out) + 1), _filler(rng, pool))
        return out
    at, other = rng.randrange(len(out)), rng.randrange(len(out))
    if kind == 1:
        del out[at]
    elif kind == 2:
        out.insert(at, out[other])
    else:
        out[at], out[other] = out[other], out[at]
    return out
