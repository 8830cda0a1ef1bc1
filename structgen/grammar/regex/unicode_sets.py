r"""Sets of code points: the character classes of the two regex dialects, and ``\p{...}``.

Knows the code points of ``\d \w \s .`` in Python (Unicode and ASCII) and in ECMA-262, and of
Unicode properties. General categories and a few more come from the standard library
(``unicodedata.unidata_version``), scripts and the other properties of ECMA-262 from
``unicode_properties.txt`` (which names its version of Unicode). Every set is computed on first use,
in milliseconds, and cached. Knows no pattern syntax except the one-character classes that it
evaluates with ``re``.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from structgen.grammar import ir

ECMA_LINE_TERMINATORS = ir.char_set([(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)])
ECMA_DOT = ir.negate(ECMA_LINE_TERMINATORS)
ECMA_DIGIT = ir.char_set([(0x30, 0x39)])
ECMA_WORD = ir.char_set([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
# WhiteSpace (which includes U+FEFF and every Space_Separator) and LineTerminator of ECMA-262.
ECMA_SPACE = ir.char_set(
    [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)]
    + [(code, code) for code in (0x202F, 0x205F, 0x3000, 0xFEFF)]
)


_PLANE = 1 << 16


def planes() -> Iterator[tuple[int, str]]:
    """Yield every code point in order, surrogates included, plane by plane: its first code point,
    and its text.

    A million at once would not free its memory afterwards: 70 MB when looking up categories.
    """
    for first in range(0, ir.MAX_CODE_POINT + 1, _PLANE):
        points = np.arange(first, first + _PLANE, dtype="<u4")
        yield first, points.tobytes().decode("utf-32-le", "surrogatepass")


@lru_cache(maxsize=256)
def python_class(source: str, flags: int = 0) -> ir.CharSet:
    """Return the code points that ``re`` matches with the one-character pattern ``source``.

    Scans all code points with ``re`` itself (10–30 ms), so it is exact by construction.
    """
    ranges: list[tuple[int, int]] = []
    for first, text in planes():
        found = re.finditer(f"(?:{source})+", text, flags)
        ranges += [(first + match.start(), first + match.end() - 1) for match in found]
    return ir.char_set(ranges)


@cache
def _cased() -> str:
    """Code points with a case, and their foldings: all that IGNORECASE can treat differently."""
    found: set[str] = set()
    blocks = (text[at : at + 128] for _, text in planes() for at in range(0, _PLANE, 128))
    for block in blocks:
        # Whole blocks first: nearly all of them have no case.
        if block.lower() != block or block.upper() != block:
            for char in block:
                folds = (char.lower(), char.upper(), char.title(), char.casefold())
                if any(fold != char for fold in folds):
                    found.add(char)
                    found.update(fold for fold in folds if len(fold) == 1)
    return "".join(sorted(found))


@lru_cache(maxsize=1024)
def python_ignoring_case(source: str, plain: ir.CharSet, flags: int) -> ir.CharSet:
    """Return the code points that ``re`` matches with the one-character pattern ``source`` under
    IGNORECASE.

    Args:
        source: the pattern, of one character.
        plain: the code points that it matches without IGNORECASE.
        flags: flags for ``re``, IGNORECASE among them.

    Returns:
        ``plain`` for code points without case; for the others, the result of ``re`` itself. So it
        is exact for the running interpreter, with its quirks (``ſ`` is ``s``, ``K`` the Kelvin
        sign).
    """
    cased = _cased()
    both = [(ord(c), ord(c)) for c in re.findall(source, cased, flags)]
    uncased = ir.less(plain, _as_set(cased))
    return ir.char_set([*uncased.ranges, *both])


_as_set = cache(ir.characters)


# -- case, as ECMA-262 folds it -------------------------------------------------------------------


@cache
def _folds() -> dict[str, tuple[int, ...]]:
    """Code points with the same folding, by that folding, if there are several.

    Simple case folding: the result of ``str.casefold`` if it is one character; otherwise the lower
    case if that is one.
    """
    found: dict[str, list[int]] = {}
    for char in _cased():
        found.setdefault(_simple_fold(char), []).append(ord(char))
    return {fold: tuple(members) for fold, members in found.items() if len(members) > 1}


# Simple foldings that Unicode 15.1 added, between characters that look alike.
_LATE_FOLDS = {"\u1fd3": "\u0390", "\u1fe3": "\u03b0", "\ufb05": "\ufb06"}


def _simple_fold(char: str) -> str:
    if char in _LATE_FOLDS:
        return _LATE_FOLDS[char]
    for fold in (char.casefold(), char.lower()):
        if len(fold) == 1:
            return fold
    return char


@lru_cache(maxsize=1024)
def folded(chars: ir.CharSet) -> ir.CharSet:
    """Return ``chars`` plus all code points with the same folding as one of them."""
    starts = [low for low, _ in chars.ranges]
    more: list[tuple[int, int]] = []
    for members in _folds().values():
        for code in members:
            at = bisect_right(starts, code) - 1
            if at >= 0 and code <= chars.ranges[at][1]:
                more += [(member, member) for member in members]
                break
    return ir.char_set([*chars.ranges, *more])


# -- Unicode properties, as ECMA-262 spells them ---------------------------------------------------

_CATEGORY_NAMES = """
C=Other L=Letter LC=Cased_Letter M=Mark,Combining_Mark N=Number P=Punctuation,punct S=Symbol
Z=Separator Cc=Control,cntrl Cf=Format Cn=Unassigned Co=Private_Use Cs=Surrogate Ll=Lowercase_Letter
Lm=Modifier_Letter Lo=Other_Letter Lt=Titlecase_Letter Lu=Uppercase_Letter Mc=Spacing_Mark
Me=Enclosing_Mark Mn=Nonspacing_Mark Nd=Decimal_Number,digit Nl=Letter_Number No=Other_Number
Pc=Connector_Punctuation Pd=Dash_Punctuation Pe=Close_Punctuation Pf=Final_Punctuation
Pi=Initial_Punctuation Po=Other_Punctuation Ps=Open_Punctuation Sc=Currency_Symbol
Sk=Modifier_Symbol Sm=Math_Symbol So=Other_Symbol Zl=Line_Separator Zp=Paragraph_Separator
Zs=Space_Separator
"""
_CATEGORIES = {
    name: entry.split("=")[0]
    for entry in _CATEGORY_NAMES.split()
    for name in entry.replace("=", ",").split(",")
}

# Binary properties that the standard library knows or that are fixed lists in the standard.
_FIXED: dict[str, list[tuple[int, int]]] = {
    "ASCII": [(0, 0x7F)],
    "Any": [(0, ir.MAX_CODE_POINT)],
    "ASCII_Hex_Digit": [(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)],
    "Hex_Digit": [(b + o, e + o) for o in (0, 0xFEE0) for b, e in
                  ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))],
    "White_Space": [(9, 13), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680),
                    (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F),
                    (0x3000, 0x3000)],
    "Pattern_White_Space": [(9, 13), (0x20, 0x20), (0x85, 0x85), (0x200E, 0x200F),
                            (0x2028, 0x2029)],
    "Noncharacter_Code_Point": [(0xFDD0, 0xFDEF)]
    + [(plane * 0x10000 + 0xFFFE, plane * 0x10000 + 0xFFFF) for plane in range(17)],
    "Regional_Indicator": [(0x1F1E6, 0x1F1FF)],
    "Join_Control": [(0x200C, 0x200D)],
}  # fmt: skip
_SHORT = {
    "AHex": "ASCII_Hex_Digit",
    "Hex": "Hex_Digit",
    "space": "White_Space",
    "Pat_WS": "Pattern_White_Space",
    "NChar": "Noncharacter_Code_Point",
    "RI": "Regional_Indicator",
    "Join_C": "Join_Control",
    "Upper": "Uppercase",
    "Lower": "Lowercase",
    "XIDS": "XID_Start",
    "XIDC": "XID_Continue",
}

_TABLE = Path(__file__).with_name("unicode_properties.txt")


@cache
def _table() -> dict[tuple[str, str], str]:
    """Return the ranges, by kind and name, of properties missing in the standard library."""
    found: dict[tuple[str, str], str] = {}
    for line in _TABLE.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            head, _, ranges = line.partition(": ")
            kind, names = head.split()
            found.update({(kind, name): ranges for name in names.split("=")})
    return found


@lru_cache(maxsize=256)
def _from_table(kind: str, name: str) -> ir.CharSet | None:
    packed = _table().get((kind, name))
    if packed is None:
        return None
    ranges: list[tuple[int, int]] = []
    at = 0
    for part in packed.split():
        gap, _, more = part.partition("-")
        low = at + int(gap, 36)
        at = low + int(more or "0", 36)
        ranges.append((low, at))
    return ir.char_set(ranges)


def unicode_property(name: str, value: str | None) -> ir.CharSet | None:
    r"""Return the set of ``\p{name}`` or ``\p{name=value}``, with the names of ECMA-262.

    Returns:
        The set, or None if ECMA-262 has no such property.
    """
    if value is not None:
        if name in ("General_Category", "gc"):
            return _category(_CATEGORIES[value]) if value in _CATEGORIES else None
        if name in ("Script", "sc"):
            return _from_table("sc", value)
        if name in ("Script_Extensions", "scx"):
            return _from_table("scx", value) or _from_table("sc", value)
        return None
    if name in _CATEGORIES:
        return _category(_CATEGORIES[name])
    name = _SHORT.get(name, name)
    if name in _FIXED:
        return ir.char_set(_FIXED[name])
    if name == "Assigned":
        return ir.negate(_category("Cn"))
    if name in ("Uppercase", "Lowercase", "XID_Start", "XID_Continue"):
        return _derived(name)
    return _from_table("bin", name)


@cache
def _categories() -> dict[str, ir.CharSet]:
    """Return every two-letter general category (one scan of all code points, about 0.2 s)."""
    found: dict[str, list[tuple[int, int]]] = {}
    for first, text in planes():
        names = "".join(map(unicodedata.category, text))
        codes = np.frombuffer(names.encode("ascii"), dtype="<u2")
        starts = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], len(codes)], strict=True):
            name = names[2 * start : 2 * start + 2]
            found.setdefault(name, []).append((first + start, first + end - 1))
    return {name: ir.char_set(ranges) for name, ranges in found.items()}


@cache
def _category(name: str) -> ir.CharSet:
    if name == "LC":
        members = ["Lu", "Ll", "Lt"]
    else:
        members = [c for c in _categories() if c.startswith(name)]
    return ir.char_set([r for member in members for r in _categories()[member].ranges])


@cache
def _derived(name: str) -> ir.CharSet:
    tests: dict[str, Callable[[str], bool]] = {
        "Uppercase": str.isupper,
        "Lowercase": str.islower,
        "XID_Start": lambda char: char != "_" and char.isidentifier(),
        "XID_Continue": lambda char: ("a" + char).isidentifier(),
    }
    test = tests[name]
    ranges: list[tuple[int, int]] = []
    for _, text in planes():
        ranges += ir.characters("".join(filter(test, text))).ranges
    return ir.char_set(ranges)
