r"""The format ``regex``: regular expressions that ``new RegExp(text, "u")`` accepts.

All of those are no regular language: groups nest, names must differ, backreferences need their
group. `regex` is a regular part of it in which everything is valid. Left out of ECMA-262:

* groups nested deeper than `MAX_NESTING`, and groups inside of lookarounds;
* named groups, except one before all other groups; backreferences, except one ``\k<n>`` with a
  name of one small letter, and only simple characters and classes between it and its group;
* counts beyond 999 or with leading zeros, and those pairs of two or three digits whose order only
  the last digits show (``{23,25}``; ``{12,15}`` is accepted);
* in classes: ``^`` unless escaped, ``-`` except at the ends, and ranges whose order is hard to see:
  between different spellings, within a stretch of letters or punctuation unless from its first or
  to its last character (``[c-f]``; ``[a-f]`` and ``[2-5]`` are accepted);
* ``\0`` (``\x00`` is the same), properties but for general categories, non-ASCII names.

Knows no schema and no automaton; it describes patterns, it does not read them.
"""

from __future__ import annotations

from functools import cache

from structgen.grammar import ir
from structgen.grammar.regex.read import parse_python

MAX_NESTING = 3
"""Most groups inside each other."""

_HEX = "[0-9A-Fa-f]"
_SPECIAL = r"\^$\\*+?()\[\]{}|"
_SYNTAX = "." + _SPECIAL
_CATEGORY = "C[cfnos]?|L[Clmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?"
_ESCAPE = (
    rf"c[A-Za-z]|x{_HEX}{{2}}|u(?:{_HEX}{{4}}|\{{(?:{_HEX}{{1,5}}|10{_HEX}{{4}})\}})"
    rf"|[pP]\{{(?:{_CATEGORY})\}}"
)

# Stretches of characters, in order and without gaps, that ranges in classes go by. Digits stand
# alone, so that every range of digits is known to be in order.
_STRETCHES = (
    0x00, 0x20, *range(0x30, 0x3A), 0x3A, 0x41, 0x4E, 0x5B, 0x61, 0x6E, 0x7B,
    0x7F, 0xC0, 0xE0, 0x100, 0x391, 0x3B1, 0x410, 0x430, 0x450, 0x3041, 0x30A1, 0x4E00, 0xAC00,
    0xE000, 0x10000,
)  # fmt: skip


@cache
def regex() -> ir.Regex:
    """Regular expressions of ECMA-262 with the ``u`` flag, as far as described above."""
    close = ir.literal(")")
    quantifier = _quantifier()
    term = _term()
    flat: ir.Regex = ir.Repeat(term, 0, None)
    around = ir.Concat((parse_python(r"\(\?<?[=!]"), flat, close))
    body: ir.Regex = ir.Repeat(ir.Alternate((term, around)), 0, None)
    for _ in range(MAX_NESTING):
        group = ir.Concat((parse_python(r"\((?:\?:)?"), body, close, quantifier))
        body = ir.Repeat(ir.Alternate((term, around, group)), 0, None)
    any_name = ir.Concat((parse_python("[A-Za-z_$][A-Za-z0-9_$]*>"), flat, close))
    named = ir.Concat(
        (flat, ir.literal("(?<"), ir.Alternate((any_name, *_references())), quantifier)
    )
    return ir.Concat((ir.Repeat(named, 0, 1), body))


def _references() -> list[ir.Regex]:
    r"""``n>...)...\k<n>`` for every name of one letter: an automaton has to remember it."""
    simple = rf"(?:(?:[^{_SPECIAL}]|\[[^\\\]\^\-]*\])[*+?]?\??)*"
    names = "abcdefghijklmnopqrstuvwxyz"
    return [parse_python(rf"{name}>{simple}\){simple}\\k<{name}>") for name in names]


def _term() -> ir.Regex:
    """All but groups: a character, escape or class with a quantifier, an assertion, a bar."""
    atom = ir.Alternate(
        (
            parse_python(rf"[^{_SPECIAL}]|\\(?:[{_SYNTAX}/dDsSwWfnrtv]|{_ESCAPE})"),
            _class(),
        )
    )
    return ir.Alternate((ir.Concat((atom, _quantifier())), parse_python(r"[|\^$]|\\[bB]")))


def _quantifier() -> ir.Regex:
    """One quantifier, perhaps lazy, or none."""
    digits = "0123456789"
    one = "|".join(f"{d},[{d}-9]" for d in digits)
    teens = "|".join(f"1{d},1[{d}-9]" for d in digits)
    tens = "|".join(f"{d}[0-9],[{int(d) + 1}-9][0-9]" for d in digits[1:-1])
    hundreds = "|".join(f"{d}[0-9]{{2}},[{int(d) + 1}-9][0-9]{{2}}" for d in digits[1:-1])
    longer = "[0-9],[1-9][0-9]{1,2}|[1-9][0-9],[1-9][0-9]{2}"
    counts = rf"(?:0|[1-9][0-9]{{0,2}}),?|{one}|{teens}|{tens}|{hundreds}|{longer}"
    return parse_python(rf"(?:(?:[*+?]|\{{(?:{counts})\}})\??)?")


def _class() -> ir.Regex:
    """``[...]``. A dash is itself at either end, and only there."""
    atom = parse_python(rf"[^\\\]\^\-]|\\(?:[{_SYNTAX}/dDsSwWfnrtvb\-]|{_ESCAPE})")
    content = ir.Repeat(ir.Alternate((atom, *_class_ranges())), 0, None)
    return ir.Concat((parse_python(r"\[\^?-?"), content, parse_python("-?]")))


def _class_ranges() -> list[ir.Regex]:
    """A dash between two characters, or two escapes of one kind, that are surely in order."""
    special = ir.char_set([(ord(c), ord(c)) for c in "-\\]^"])

    def line(start: tuple[int, int], end: int) -> ir.Regex:
        """``start`` to ``end`` or anything later."""
        first, last = (
            ir.negate(ir.char_set([*ir.negate(ir.char_set([r])).ranges, *special.ranges]))
            for r in (start, (end, ir.MAX_CODE_POINT))
        )
        return ir.Concat((first, ir.literal("-"), last))

    lines = []
    for low, following in zip(_STRETCHES, (*_STRETCHES[1:], None), strict=True):
        lines.append(line((low, low), low))
        if following is not None and following > low + 1:
            lines.append(line((low + 1, following - 1), following - 1))
    # Hexadecimal digits: compared by quarters of the first that may differ.
    quarters = [("0-3", "4-9A-Fa-f"), ("0-7", "89A-Fa-f"), ("0-9ABab", "C-Fc-f")]
    for prefix, rest in (("x", 1), ("u", 3), ("u00", 1), ("u04", 1), ("u30", 1)):
        pairs = [(f"[{low}]{_HEX * rest}", f"[{high}]{_HEX * rest}") for low, high in quarters]
        if rest == 1:
            pairs += [("00", _HEX * 2), (_HEX * 2, "[Ff]{2}")]
        ordered = "|".join(rf"{low}-\\{prefix}{high}" for low, high in pairs)
        lines.append(parse_python(rf"\\{prefix}(?:{ordered})"))
    return lines
