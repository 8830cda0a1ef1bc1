"""Patterns restricted to what a vocabulary can write.

Some vocabularies have no token for certain bytes (SmolLM2's lacks eight control characters and
lead bytes). A text that needs one can never be written, so such code points are taken out of a
pattern before it becomes an automaton; otherwise a mask could lead to a place from which only an
unwritable byte goes on. JSON strings need none of this: there every code point has an escape
(`encoding.JsonString`).
"""

from __future__ import annotations

from collections.abc import Collection

from structgen.grammar import ir


def writable(missing_bytes: Collection[int]) -> ir.CharSet:
    """The code points whose UTF-8 form needs none of ``missing_bytes``.

    Exact for missing ASCII and lead bytes; a missing continuation byte takes away every code point
    beyond ASCII, which is safe.
    """
    barred: list[tuple[int, int]] = []
    for byte in missing_bytes:
        if byte < 0x80:
            barred.append((byte, byte))
        elif byte < 0xC0:
            barred.append((0x80, ir.MAX_CODE_POINT))
        elif byte < 0xE0:
            barred.append(((byte & 0x1F) << 6, ((byte & 0x1F) << 6) + 0x3F))
        elif byte < 0xF0:
            barred.append(((byte & 0x0F) << 12, ((byte & 0x0F) << 12) + 0xFFF))
        elif byte < 0xF5:
            barred.append(((byte & 0x07) << 18, ((byte & 0x07) << 18) + 0x3FFFF))
    low = [(max(a, 0x80) if b >= 0x80 else a, min(b, ir.MAX_CODE_POINT)) for a, b in barred]
    return ir.negate(ir.char_set(low))


def restrict(regex: ir.Regex, chars: ir.CharSet) -> ir.Regex:
    """The texts of ``regex`` that consist of ``chars``."""
    if chars == ir.ANY_CHAR:
        return regex
    if not _says_what_is_not(regex):
        return _narrow(regex, chars)
    return ir.Intersect((regex, ir.Repeat(chars, 0, None)))


def _says_what_is_not(regex: ir.Regex) -> bool:
    stack: list[ir.Regex] = [regex]
    while stack:
        node = stack.pop()
        if isinstance(node, (ir.Complement, ir.Lookahead, ir.Lookbehind)):
            return True
        if isinstance(node, (ir.Concat, ir.Alternate, ir.Intersect)):
            stack.extend(node.parts)
        elif isinstance(node, ir.Repeat):
            stack.append(node.body)
    return False


def _narrow(regex: ir.Regex, chars: ir.CharSet) -> ir.Regex:
    if isinstance(regex, ir.CharSet):
        return _both(regex, chars)
    if isinstance(regex, ir.Concat):
        return ir.Concat(tuple(_narrow(p, chars) for p in regex.parts))
    if isinstance(regex, ir.Alternate):
        return ir.Alternate(tuple(_narrow(p, chars) for p in regex.parts))
    if isinstance(regex, ir.Intersect):
        return ir.Intersect(tuple(_narrow(p, chars) for p in regex.parts))
    if isinstance(regex, ir.Repeat):
        return ir.Repeat(_narrow(regex.body, chars), regex.min, regex.max)
    if isinstance(regex, ir.Checksum):
        steps = tuple(
            tuple((number, _both(found, chars)) for number, found in step) for step in regex.steps
        )
        between = _both(regex.between, chars)
        return ir.Checksum(regex.modulus, steps, between, regex.gaps, regex.count)
    return regex


def _both(one: ir.CharSet, other: ir.CharSet) -> ir.CharSet:
    """The characters of both."""
    return ir.negate(ir.char_set([*ir.negate(one).ranges, *ir.negate(other).ranges]))
