r"""Internationalised host names and e-mail addresses: ``idn-hostname``, ``idn-email``.

Owns IDNA 2008 as far as it is a regular language: which code points a label may hold (RFC 5892,
derived from the running interpreter's Unicode data), its contextual rules, the Bidi rule (RFC 5893)
and Normalization Form C. Knows no schema and no automaton.

What is not regular, or would need an unwieldy automaton, is replaced by something stricter, so that
nothing invalid is accepted:

* A-labels (``xn--...``) hold Punycode, and none is accepted.
* The A-label of a U-label has at most 63 octets. How long it gets depends on the code points, their
  order and their distances; `_short_enough` accepts what is short enough whatever the order: 11 to
  24 characters in most scripts, 55 with one character beyond ASCII.
* A name with U-labels has three labels, and up to three more of ASCII, 19 characters each. In a
  name with right-to-left labels the others are ASCII and begin with a letter.
* ``--`` is refused anywhere in a U-label; so is some rare use of combining marks (`_normalized`).

Computing the sets takes about 0.4 s, once.
"""

from __future__ import annotations

import unicodedata
from functools import cache

from structgen.grammar import ir
from structgen.grammar.regex.read import parse_python
from structgen.grammar.regex.unicode_sets import unicode_property

from . import web

_SEPARATORS = ".\u3002\uff0e\uff61"
"""Full stops that separate labels (RFC 3490, 3.1)."""

# RFC 5892, 2.6: exceptions to the derivation; and the code points that need a context.
_VALID = "\u00df\u03c2\u06fd\u06fe\u0f0b\u3007"
_INVALID = "\u0640\u07fa\u302e\u302f\u3031\u3032\u3033\u3034\u3035\u303b"
_MIDDLE_DOT, _KERAIA, _GERESHES, _KATAKANA_DOT = "\u00b7", "\u0375", "\u05f3\u05f4", "\u30fb"
_NON_JOINER, _JOINERS = "\u200c", "\u200c\u200d"
_CONTEXTUAL = _MIDDLE_DOT + _KERAIA + _GERESHES + _KATAKANA_DOT + _JOINERS
# Scripts that the contextual rules ask for, where every validator looks for them.
_GREEK = [(0x370, 0x3E1), (0x3F0, 0x3FF)]
_HEBREW = [(0x591, 0x5F4)]
_JAPANESE = [(0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FFF)]
# Letters and marks that are Default_Ignorable_Code_Point or conjoining Hangul, and the blocks that
# RFC 5892 ignores. The standard library has no data for these.
_IGNORED = [
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF),
    (0x1100, 0x11FF), (0xA960, 0xA97F), (0xD7B0, 0xD7FF),
    (0x20D0, 0x20FF), (0x1D100, 0x1D1FF), (0x1D200, 0x1D24F),
]  # fmt: skip
# Ideographs and Hangul syllables: letters without case, direction or combining class.
_BULK = [
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0x20000, 0x2F7FF),
    (0x30000, 0x3FFFF),
]
_ASCII = [(0x2D, 0x2D), (0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)]


@cache
def idn_hostname() -> ir.Regex:
    """Names of U-labels and of labels of letters, digits and hyphens (RFC 5890, 2.3)."""
    return _name(_normalized())


@cache
def idn_email() -> ir.Regex:
    """``Mailbox`` of RFC 6531, 3.3, which does not ask for Normalization Form C."""
    beyond = r"\x80-\U0010FFFF"
    return web.mailbox(f"[{web.ATEXT}{beyond}]", f"[{web.QTEXT}{beyond}]", _name(ir.ANY_TEXT))


def _name(normal: ir.Regex) -> ir.Regex:
    """Host names whose U-labels are in ``normal``."""
    left = ir.Intersect((_left_to_right(), normal, _short_enough()))
    right = ir.Intersect((_right_to_left(), normal, _short_enough()))
    # A label of ASCII that begins with a letter keeps the Bidi rule.
    return ir.Alternate(
        (
            web.hostname(),
            _labels(left, "[A-Za-z0-9]"),
            _labels(right, "[A-Za-z]"),
        )
    )


def _labels(label: ir.Regex, first: str) -> ir.Regex:
    """Names of at most 253 octets: one to three labels, perhaps with short ones around.

    Three times 63 octets, three times 19 and the dots make 251.

    Args:
        label: the U-labels.
        first: what labels of ASCII begin with.
    """
    separator = _chars(_SEPARATORS)
    any_label = ir.Alternate((label, parse_python(web.ascii_label(first))))
    little = parse_python(web.ascii_label(first, 19))
    return ir.Concat(
        (
            _optional(ir.Concat((little, separator))),
            any_label,
            ir.Repeat(ir.Concat((separator, any_label)), 0, 2),
            ir.Repeat(ir.Concat((separator, little)), 0, 2),
        )
    )


# -- sets ------------------------------------------------------------------------------------------


@cache
def pvalid() -> ir.CharSet:
    """Code points that are PVALID (RFC 5892, 3), those of ASCII included.

    Unassigned ones are not: which are depends on the interpreter's ``unicodedata``.
    """
    letters = _property("Ll", "Lu", "Lo", "Nd", "Lm", "Mn", "Mc")
    letters = _without(letters, ir.char_set([*_IGNORED, *_points(_INVALID)]))
    bulk = _within(letters, _BULK)
    candidates = _text(_without(letters, bulk))
    # A line feed is stable and composes with nothing, so it keeps the code points apart.
    lines = "\n".join(candidates)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", lines).casefold())
    pairs = zip(candidates, folded.split("\n"), strict=True)
    stable = "".join(before for before, after in pairs if before == after)
    return _without(_union(bulk, _chars(stable + _VALID + "-")), _chars(_CONTEXTUAL))


@cache
def _members() -> str:
    """Every code point that a name can hold, but for separators and `_BULK`."""
    small = _without(_union(pvalid(), ir.char_set(_ASCII)), ir.char_set(_BULK))
    return _text(small) + _CONTEXTUAL


def _text(chars: ir.CharSet) -> str:
    return "".join(chr(point) for low, high in chars.ranges for point in range(low, high + 1))


def _points(text: str) -> list[tuple[int, int]]:
    return [(ord(char), ord(char)) for char in text]


def _chars(text: str) -> ir.CharSet:
    return ir.char_set(_points(text))


def _union(*sets: ir.CharSet) -> ir.CharSet:
    return ir.char_set([r for chars in sets for r in chars.ranges])


def _without(chars: ir.CharSet, less: ir.CharSet) -> ir.CharSet:
    return ir.negate(_union(ir.negate(chars), less))


def _both(chars: ir.CharSet, others: ir.CharSet) -> ir.CharSet:
    return _without(chars, ir.negate(others))


def _within(chars: ir.CharSet, ranges: list[tuple[int, int]]) -> ir.CharSet:
    return _both(chars, ir.char_set(ranges))


def _property(*names: str) -> ir.CharSet:
    return _union(*(unicode_property(name, None) or ir.CharSet(()) for name in names))


@cache
def _combining() -> dict[int, ir.CharSet]:
    """Members by canonical combining class."""
    found: dict[int, list[str]] = {}
    for char in _members():
        found.setdefault(unicodedata.combining(char), []).append(char)
    return {value: _chars("".join(found[value])) for value in sorted(found)}


@cache
def _bidi_classes() -> dict[str, ir.CharSet]:
    """Members by bidirectional class."""
    found: dict[str, list[str]] = {}
    for char in _members():
        found.setdefault(unicodedata.bidirectional(char), []).append(char)
    return {name: _chars("".join(chars)) for name, chars in found.items()}


def _bidi(*names: str) -> ir.CharSet:
    return _union(*(_bidi_classes().get(name, ir.CharSet(())) for name in names))


@cache
def _joining() -> tuple[ir.CharSet, ir.CharSet]:
    """Letters that join on both sides, and letters that join only to the one before.

    Those that Unicode has presentation forms of, which is the Arabic script.
    """
    forms: dict[str, set[str]] = {"<initial>": set(), "<final>": set()}
    for point in (*range(0xFB50, 0xFE00), *range(0xFE70, 0xFF00)):
        form, _, target = unicodedata.decomposition(chr(point)).partition(" ")
        if form in forms and len(target) == 4:
            forms[form].add(chr(int(target, 16)))
    dual, final = forms["<initial>"], forms["<final>"]
    known = set(_members())
    return _chars("".join(dual & known)), _chars("".join((final - dual) & known))


# -- labels ----------------------------------------------------------------------------------------


def _some(regex: ir.Regex) -> ir.Regex:
    return ir.Repeat(regex, 0, None)


def _many(regex: ir.Regex) -> ir.Regex:
    return ir.Repeat(regex, 1, None)


def _optional(regex: ir.Regex) -> ir.Regex:
    return ir.Repeat(regex, 0, 1)


def _content(valid: ir.CharSet, *contexts: ir.Regex) -> ir.Regex:
    """Labels of ``valid`` and ``contexts``: no mark first, no hyphen at the ends.

    Two hyphens side by side are refused wherever they are; the standard only refuses them in third
    and fourth place.
    """
    valid = _without(valid, _chars("-"))
    letter = _without(valid, _property("Mn", "Mc"))
    hyphens = _optional(ir.literal("-"))
    rest = _some(ir.Concat((hyphens, ir.Alternate((valid, *contexts)))))
    return ir.Concat((ir.Alternate((letter, *contexts)), rest))


@cache
def _left_to_right() -> ir.Regex:
    """U-labels without right-to-left characters; the contextual rules of RFC 5892, A.1 to A.7."""
    valid = _without(pvalid(), _bidi("R", "AL", "AN"))
    virama = _combining()[9]
    dot, small_l, katakana_dot = ir.literal(_MIDDLE_DOT), ir.literal("l"), ir.literal(_KATAKANA_DOT)
    # Each context is one piece with its code points, so that they cannot occur without it.
    letter = _without(valid, _union(virama, _property("Mn", "Mc"), _chars("-")))
    usual = _content(
        valid,
        ir.Concat((letter, virama, _chars(_JOINERS))),
        ir.Concat((small_l, _many(ir.Concat((dot, small_l))))),
        ir.Concat((_many(ir.literal(_KERAIA)), _within(valid, _GREEK))),
    )
    japanese = ir.char_set([*_JAPANESE, (0x3005, 0x3005), (0x30FC, 0x30FC), (0x30, 0x39)])
    mixed = ir.Alternate((japanese, katakana_dot))
    with_dot = ir.Concat((_some(mixed), ir.char_set(_JAPANESE), _some(mixed)))
    return ir.Alternate((usual, with_dot))


@cache
def _right_to_left() -> ir.Regex:
    """U-labels that keep the Bidi rule (RFC 5893, 2) and begin with a right-to-left letter."""
    strong, neutral = ("R", "AL"), ("ES", "CS", "ET", "ON", "BN", "NSM")
    marks = _some(_bidi("NSM"))
    dual, right = _joining()
    non_joiner = ir.literal(_NON_JOINER)
    joined = ir.Concat(
        (
            dual,
            _some(ir.Concat((non_joiner, dual))),
            ir.Concat((non_joiner, _union(dual, right))),
        )
    )
    hebrew = _within(_bidi("R"), _HEBREW)
    geresh = ir.Concat((_without(hebrew, _chars(_GERESHES)), _many(_chars(_GERESHES))))

    def labels(numbers: str) -> ir.Regex:
        """European and Arabic-Indic numbers are not mixed."""
        valid = _within(pvalid(), list(_bidi(*strong, numbers, *neutral).ranges))
        end = _bidi(*strong, numbers)
        shape = ir.Concat(
            (
                _bidi(*strong),
                ir.Alternate(
                    (marks, ir.Concat((_some(ir.negate(_chars(_SEPARATORS))), end, marks)))
                ),
            )
        )
        return ir.Intersect((_content(valid, geresh, joined), shape))

    return ir.Alternate((labels("EN"), labels("AN")))


@cache
def _normalized() -> ir.Regex:
    """Normalization Form C of one label, a bit stricter.

    Marks that compose with anything are left out, but for nuktas: an unusual letter with such a
    mark has to do without. Of marks side by side, two are allowed, one of them of a class above 103
    (Thai and Lao tones, and what stands above or below letters in most scripts).
    """
    known = set(_members())
    before: dict[str, list[str]] = {"starter": [], "nukta": []}
    after: dict[str, list[str]] = {"starter": [], "nukta": [], "mark": []}
    for char in _members():
        first, _, second = unicodedata.decomposition(char).partition(" ")
        if len(second) < 4 or first.startswith("<"):
            continue
        pair = chr(int(first, 16)) + chr(int(second, 16))
        if known.issuperset(pair) and unicodedata.normalize("NFC", pair) == char:
            kind = {0: "starter", 7: "nukta"}.get(unicodedata.combining(pair[1]), "mark")
            before.get(kind, []).append(pair[0])
            after[kind].append(pair[1])

    def marks(low: int, high: int, without: str) -> ir.Regex:
        chars = _union(*(c for value, c in _combining().items() if low <= value <= high))
        return _optional(_without(chars, _chars(without)))

    def clusters(starters: ir.CharSet) -> ir.Regex:
        """A starter and its marks; after some letters no nukta."""
        composing = "".join(after["mark"])
        letters = _both(starters, _chars("".join(before["nukta"])))
        nuktas = "".join(after["nukta"])
        return ir.Alternate(
            (
                ir.Concat(
                    (
                        _without(starters, letters),
                        marks(1, 103, composing),
                        marks(104, 255, composing),
                    )
                ),
                ir.Concat((letters, marks(1, 103, composing + nuktas), marks(104, 255, composing))),
            )
        )

    starters = ir.negate(_union(*(c for value, c in _combining().items() if value)))
    leading, led = _chars("".join(before["starter"])), _chars("".join(after["starter"]))
    leaders = clusters(_both(starters, leading))
    followers = clusters(_without(starters, _union(leading, led)))
    others = clusters(_without(starters, leading))
    chain = ir.Alternate((others, ir.Concat((_many(leaders), followers))))
    return ir.Concat((_some(chain), _some(leaders)))


@cache
def _short_enough() -> ir.Regex:
    """Labels whose A-label has at most 63 octets, whatever their code points and order.

    The bounds are worst cases, found by dynamic programming over the states of a Punycode encoder
    (code points of one row of 256, or of Latin) or from the most digits a delta can need (others).
    """
    ascii_only = ir.char_set(_ASCII)
    beyond = ir.negate(ir.char_set([(0, 0x7F)]))

    def few(most: int, highest: int, length: int) -> ir.Regex:
        """At most ``most`` characters up to ``highest`` beyond ASCII, ``length`` in all."""
        one = ir.Concat((_within(beyond, [(0, highest)]), _some(ascii_only)))
        text = ir.Concat((_some(ascii_only), ir.Repeat(one, 0, most)))
        return web.limited(text, length)

    # Greek to Hebrew, Arabic, India, Thai to Georgian and Ethiopic, kana.
    scripts = [
        ir.Repeat(_union(ascii_only, ir.char_set([(low, high)])), 1, length)
        for low, high, length in (
            (0x300, 0x5FF, 21),
            (0x600, 0x8FF, 20),
            (0x900, 0xDFF, 19),
            (0xE00, 0x13FF, 19),
            (0x3000, 0x30FF, 24),
        )
    ]
    return ir.Alternate(
        (
            *scripts,
            few(1, 0x24F, 55),
            few(2, 0x24F, 52),
            few(6, 0x24F, 44),
            few(4, 0x1EFF, 40),
            ir.Repeat(_union(ascii_only, _within(beyond, [(0, 0xFFFF)])), 1, 11),
            ir.Repeat(ir.ANY_CHAR, 1, 9),
        )
    )
