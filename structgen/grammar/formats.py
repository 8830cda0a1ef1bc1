r"""The ``format`` keyword: the formats that assert something, and the regular language of each.

Has the table of names, and the languages: dates (RFC 3339), network names, addresses and
identifiers (each the grammar of its RFC, which is regular, with the limits on lengths),
international names and regular expressions. Each is built on first use. Knows no schema, no
automaton, and not whether formats are asserted at all.

Formats never accept text that their standard refuses, with one exception: ``idn-email`` counts
characters before the ``@``, not octets. `Format.narrower` describes what a format excludes from its
standard; see also `idn_hostname` and `regex_syntax`. A-labels (``xn--...``) are excluded because
Punycode is not regular.

Dates exist in the calendar: days per month, leap years by the Gregorian rule (year 0000 is one, as
in RFC 3339). A leap second is 23:59:60 in UTC, with any offset, on any day: which days have one
cannot be known in advance.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from structgen.grammar import ir
from structgen.grammar.regex.read import parse_python
from structgen.grammar.regex.unicode_sets import unicode_property


def _then(*parts: ir.Regex) -> ir.Regex:
    return ir.Concat(parts)


def _either(*parts: ir.Regex) -> ir.Regex:
    return ir.Alternate(parts)


_HOUR = "(?:[01][0-9]|2[0-3])"
_OFFSET = f"[+-]{_HOUR}:[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"


@cache
def date() -> ir.Regex:
    """``full-date``: 2024-02-29."""
    days_31 = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    days_30 = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    days_28 = "02-(?:0[1-9]|1[0-9]|2[0-8])"
    four = "(?:[02468][048]|[13579][26])"
    four_but_00 = "(?:0[48]|[2468][048]|[13579][26])"
    leap_year = f"(?:[0-9]{{2}}{four_but_00}|{four}00)"
    return parse_python(f"[0-9]{{4}}-(?:{days_31}|{days_30}|{days_28})|{leap_year}-02-29")


@cache
def time() -> ir.Regex:
    """``full-time``: 08:30:06.283Z, 15:59:60-08:00."""
    usual = parse_python(f"{_HOUR}:[0-5][0-9]:[0-5][0-9]{_FRACTION}(?:[Zz]|{_OFFSET})")
    return _either(usual, *_leap_seconds())


@cache
def date_time() -> ir.Regex:
    """``date-time``: 2024-02-29T08:30:06Z."""
    return _then(date(), parse_python("[Tt]"), time())


@cache
def duration() -> ir.Regex:
    """``duration`` of RFC 3339, appendix A: units in order, none left out in between."""
    second = "[0-9]+S"
    minute = f"[0-9]+M(?:{second})?"
    hour = f"[0-9]+H(?:{minute})?"
    clock = f"T(?:{hour}|{minute}|{second})"
    day = "[0-9]+D"
    month = f"[0-9]+M(?:{day})?"
    year = f"[0-9]+Y(?:{month})?"
    return parse_python(f"P(?:(?:{year}|{month}|{day})(?:{clock})?|{clock}|[0-9]+W)")


def _leap_seconds() -> list[ir.Regex]:
    """23:59:60 UTC in local time, for every offset.

    ``HH:MM:60-oh:om`` is one when oh:om = 23:59 - HH:MM; ``HH:MM:60+oh:om`` when oh:om is one
    minute past HH:MM. Spelling out the 2,880 pairs would be slow: each of the four digits of the
    offset depends on few others, so there is a small relation per digit, and they are intersected.
    """
    clock = f"{_HOUR}:[0-5][0-9]:60{_FRACTION}"
    zulu = parse_python(f"23:59:60{_FRACTION}[Zz]")
    # Pairs of local time and one digit of the offset. Characters of the local time are separated
    # by spaces; two are the ends of a range.
    ten, six = range(10), range(6)
    west = [
        parse_python(f"{clock}-{_HOUR}:[0-5][0-9]"),
        _relation(0, 4, [(f"{t} 03", 2 - t) for t in range(3)]
                  + [(f"{t} 49", 1 - t) for t in range(2)]),
        _relation(1, 3, [(f"{u}", (3 - u) % 10) for u in ten]),
        _relation(3, 1, [(f"{t}", 5 - t) for t in six]),
        _relation(4, 0, [(f"{u}", 9 - u) for u in ten]),
    ]  # fmt: skip
    tens = [(f"{t} 09 : {minute}", t) for t in range(3) for minute in ("04 09", "5 08")]
    tens += [("0 08 : 5 9", 0), ("0 9 : 5 9", 1), ("1 08 : 5 9", 1), ("1 9 : 5 9", 2)]
    tens += [("2 02 : 5 9", 2), ("2 3 : 5 9", 0)]
    units = [(f"02 {u} : {minute}", u) for u in ten for minute in ("04 09", "5 08")]
    units += [(f"{'01' if u == 3 else '02'} {u} : 5 9", (u + 1) % 10) for u in ten]
    units += [("2 3 : 5 9", 0)]
    east = [
        parse_python(f"{clock}[+]{_HOUR}:[0-5][0-9]"),
        _relation(0, 4, tens),
        _relation(0, 3, units),
        _relation(3, 1, [(f"{t} 08", t) for t in six] + [(f"{t} 9", (t + 1) % 6) for t in six]),
        _relation(4, 0, [(f"{u}", (u + 1) % 10) for u in ten]),
    ]  # fmt: skip
    return [zulu, ir.Intersect(tuple(west)), ir.Intersect(tuple(east))]


def _relation(before: int, after: int, pairs: list[tuple[str, int]]) -> ir.Regex:
    """Return texts that match one pair: the left side comes after ``before`` characters, and the
    right side is the digit of the offset with ``after`` characters after it."""
    to_digit = parse_python("[^+-]*[+-]" + "." * (4 - after))
    digits = [ir.literal(str(digit)) for digit in range(10)]
    lines = []
    for left, digit in pairs:
        chars = (ir.char_set([(ord(ends[0]), ord(ends[-1]))]) for ends in left.split())
        lines.append(_then(*chars, to_digit, digits[digit]))
    return _then(
        ir.Repeat(ir.ANY_CHAR, before, before),
        ir.Alternate(tuple(lines)),
        ir.Repeat(ir.ANY_CHAR, after, after),
    )


MAX_HOSTNAME = 253
"""Most characters of a host name (RFC 1035: 255 octets on the wire)."""

MAX_LOCAL_PART = 64
"""Most characters before the ``@`` of an e-mail address (RFC 5321, 4.5.3.1.1)."""

ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"
QTEXT = r" !#-\[\]-~"

OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
IPV4 = rf"{OCTET}(?:\.{OCTET}){{3}}"
HEX = "[0-9A-Fa-f]"
PERCENT = f"%{HEX}{{2}}"
_SUB_DELIMS = "!$&'()*+,;="
UNRESERVED = r"A-Za-z0-9._~\-"
# RFC 3987: what an IRI allows beyond a URI, everywhere and in the query only.
_UCSCHAR = r"\xA0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF" + "".join(
    rf"\U000{plane:X}{'1' if plane == 14 else '0'}000-\U000{plane:X}FFFD" for plane in range(1, 15)
)
_IPRIVATE = r"\uE000-\uF8FF\U000F0000-\U000FFFFD\U00100000-\U0010FFFD"


@cache
def ipv4() -> ir.Regex:
    """Dotted decimal, no leading zeros."""
    return parse_python(IPV4)


@cache
def ipv6(least_gap: int = 1) -> ir.Regex:
    """RFC 4291, 2.2, all three forms.

    Args:
        least_gap: the fewest groups that ``::`` replaces; 2 in RFC 5321.
    """
    group = parse_python(f"{HEX}{{1,4}}")
    colon, gap = ir.literal(":"), ir.literal("::")
    next_group = _then(colon, group)

    def after_gap(room: int) -> ir.Regex:
        """At most ``room`` groups, the last two perhaps an IPv4 address."""
        options: list[ir.Regex] = [ir.EPSILON]
        if room >= 1:
            options.append(_then(group, ir.Repeat(next_group, 0, room - 1)))
        if room >= 2:
            many = ir.Repeat(_then(group, colon), 0, room - 2)
            options.append(_then(many, ipv4()))
        return ir.Alternate(tuple(options))

    # The rest after 8 groups, then after 7, and so on.
    rest: ir.Regex = ir.EPSILON
    for groups in range(7, 0, -1):
        options: list[ir.Regex] = [_then(next_group, rest)]
        if groups == 6:
            options.append(_then(colon, ipv4()))
        if groups + least_gap <= 8:
            options.append(_then(gap, after_gap(8 - least_gap - groups)))
        rest = ir.Alternate(tuple(options))
    return _either(_then(group, rest), _then(gap, after_gap(8 - least_gap)))


@cache
def hostname() -> ir.Regex:
    """RFC 1123 names whose labels do not have ``--`` in third and fourth place.

    Such labels are reserved (RFC 5891, 4.2.3.1). Only A-labels (``xn--...``) are valid among them,
    and these are not a regular language, because they contain Punycode. So none is accepted.
    """
    one = ascii_label()
    return limited(parse_python(rf"{one}(?:\.{one})*"), MAX_HOSTNAME)


@cache
def hostname_rfc1034() -> ir.Regex:
    """Return ``hostname`` of drafts 4 and 6: letters and hyphens, without A-labels."""
    one = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    return limited(parse_python(rf"{one}(?:\.{one})*"), MAX_HOSTNAME)


@cache
def email() -> ir.Regex:
    """``Mailbox`` of RFC 5321, 4.1.2, with its limits on lengths."""
    return mailbox(f"[{ATEXT}]", f"[{QTEXT}]", hostname())


def mailbox(atext: str, qtext: str, domain: ir.Regex) -> ir.Regex:
    """``Mailbox`` of RFC 5321 for given characters and domain names.

    Excludes pairs of backslash and space, because validators disagree on them, and address literals
    with tags other than ``IPv6``, because none is registered.

    Args:
        atext: character class of an unquoted local part.
        qtext: character class of a quoted local part, without pairs.
        domain: the domain names.
    """
    local = parse_python(rf'{atext}+(?:\.{atext}+)*|"(?:{qtext}|\\[!-~])*"')
    tagged = _then(parse_python("[Ii][Pp][Vv]6:"), ipv6(least_gap=2))
    literal = _then(ir.literal("["), _either(ipv4(), tagged), ir.literal("]"))
    return _then(limited(local, MAX_LOCAL_PART), ir.literal("@"), _either(domain, literal))


@cache
def uri() -> ir.Regex:
    """RFC 3986, ``URI``: with a scheme."""
    return _with_scheme("", "")


@cache
def uri_reference() -> ir.Regex:
    """RFC 3986, ``URI-reference``."""
    return _either(uri(), _relative("", ""))


@cache
def iri() -> ir.Regex:
    """RFC 3987, ``IRI``."""
    return _with_scheme(_UCSCHAR, _IPRIVATE)


@cache
def iri_reference() -> ir.Regex:
    """RFC 3987, ``IRI-reference``."""
    return _either(iri(), _relative(_UCSCHAR, _IPRIVATE))


@cache
def uri_template() -> ir.Regex:
    """RFC 6570 with erratum 6937 (the apostrophe is a literal), any level."""
    variable = f"(?:[A-Za-z0-9_]|{PERCENT})"
    name = rf"{variable}(?:\.?{variable})*"
    spec = rf"{name}(?:\*|:[1-9][0-9]{{0,3}})?"
    expression = rf"\{{[+#./;?&=,!@|]?{spec}(?:,{spec})*\}}"
    plain = rf"[!#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~{_UCSCHAR}{_IPRIVATE}]"
    return parse_python(f"(?:{plain}|{PERCENT}|{expression})*")


@cache
def uuid() -> ir.Regex:
    """RFC 4122: 8-4-4-4-12 hexadecimal digits, any version."""
    return parse_python(f"{HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}}")


@cache
def json_pointer() -> ir.Regex:
    """RFC 6901, as a JSON string, not as a URI fragment."""
    return parse_python("(?:/(?:[^/~]|~[01])*)*")


@cache
def relative_json_pointer() -> ir.Regex:
    """draft-handrews-relative-json-pointer-01: without index manipulation (``0+1``)."""
    return _then(parse_python("0|[1-9][0-9]*"), _either(ir.literal("#"), json_pointer()))


def limited(regex: ir.Regex, most: int) -> ir.Regex:
    """``regex`` with at most ``most`` characters."""
    return ir.Intersect((regex, ir.Repeat(ir.ANY_CHAR, 0, most)))


def ascii_label(first: str = "[A-Za-z0-9]", most: int = 63) -> str:
    """Pattern of labels of ASCII without ``--`` in third and fourth place.

    Args:
        first: class of the first character.
        most: length, at least 5.
    """
    edge, inner = "[A-Za-z0-9]", "[A-Za-z0-9-]"
    short = f"{inner}{{0,2}}{edge}"
    long = f"{inner}(?:{edge}{inner}|-{edge}){inner}{{0,{most - 5}}}{edge}"
    return f"{first}(?:{short}|{long})?"


def _authority(ucschar: str) -> ir.Regex:
    plain = f"[{UNRESERVED}{ucschar}{_SUB_DELIMS}]"
    user = f"(?:{plain}|:|{PERCENT})*@"
    future = rf"[vV]{HEX}+\.[{UNRESERVED}{_SUB_DELIMS}:]+"
    address = _either(ipv6(), parse_python(future))
    host = _either(
        _then(ir.literal("["), address, ir.literal("]")), parse_python(f"(?:{plain}|{PERCENT})*")
    )
    return _then(parse_python(f"(?://{user}|//)"), host, parse_python("(?::[0-9]*)?"))


def _path_parts(ucschar: str) -> tuple[ir.Regex, ir.Regex, ir.Regex]:
    """Paths after an authority; absolute paths without one; rootless paths."""
    plain = f"[{UNRESERVED}{ucschar}{_SUB_DELIMS}:@]"
    pchar, more = f"(?:{plain}|{PERCENT})", f"(?:{plain}|/|{PERCENT})*"
    return (
        parse_python(f"(?:/{more})?"),
        parse_python(f"/(?:{pchar}{more})?"),
        parse_python(f"{pchar}{more}"),
    )


def _ending(ucschar: str, iprivate: str) -> ir.Regex:
    """Query and fragment."""
    plain = f"{UNRESERVED}{ucschar}{_SUB_DELIMS}:@/?"
    query = rf"(?:\?(?:[{plain}{iprivate}]|{PERCENT})*)?"
    return parse_python(f"{query}(?:#(?:[{plain}]|{PERCENT})*)?")


def _with_scheme(ucschar: str, iprivate: str) -> ir.Regex:
    after_authority, absolute, rootless = _path_parts(ucschar)
    paths = (_then(_authority(ucschar), after_authority), absolute, rootless, ir.EPSILON)
    scheme = parse_python(r"[A-Za-z][A-Za-z0-9+.\-]*:")
    return _then(scheme, ir.Alternate(paths), _ending(ucschar, iprivate))


def _relative(ucschar: str, iprivate: str) -> ir.Regex:
    after_authority, absolute, _ = _path_parts(ucschar)
    no_colon = f"(?:[{UNRESERVED}{ucschar}{_SUB_DELIMS}@]|{PERCENT})"
    paths = (
        _then(_authority(ucschar), after_authority),
        absolute,
        _then(parse_python(f"{no_colon}+"), after_authority),
        ir.EPSILON,
    )
    return _then(ir.Alternate(paths), _ending(ucschar, iprivate))


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
    """``idn-hostname``: IDNA 2008 as far as it is a regular language.

    It enforces the code points of a label (RFC 5892, from the running interpreter's Unicode data),
    its contextual rules, the Bidi rule (RFC 5893) and Normalization Form C. Stricter rules replace
    those that are not regular or need too large an automaton:

    * A-labels (``xn--...``) hold Punycode, and none is accepted.
    * The A-label of a U-label has at most 63 octets. How long it gets depends on the code points,
      their order and their distances; `_short_enough` accepts what is short enough whatever the
      order: 11 to 24 characters in most scripts, 55 with one character beyond ASCII.
    * A name with U-labels has three labels, and up to three more of ASCII, 19 characters each. In a
      name with right-to-left labels the others are ASCII and begin with a letter.
    * ``--`` is refused anywhere in a U-label; so is some rare use of combining marks
      (`_normalized`).

    Computing the sets takes about 0.4 s, once.
    """
    return _name(_normalized())


@cache
def idn_email() -> ir.Regex:
    """``Mailbox`` of RFC 6531, 3.3, which does not require Normalization Form C."""
    beyond = r"\x80-\U0010FFFF"
    return mailbox(f"[{ATEXT}{beyond}]", f"[{QTEXT}{beyond}]", _name(ir.ANY_TEXT))


def _name(normal: ir.Regex) -> ir.Regex:
    """Host names whose U-labels are in ``normal``."""
    left = ir.Intersect((_left_to_right(), normal, _short_enough()))
    right = ir.Intersect((_right_to_left(), normal, _short_enough()))
    # A label of ASCII that begins with a letter keeps the Bidi rule.
    return _either(hostname(), _labels(left, "[A-Za-z0-9]"), _labels(right, "[A-Za-z]"))


def _labels(label: ir.Regex, first: str) -> ir.Regex:
    """Return names of at most 253 octets: one to three labels, perhaps with short ones around.

    Three times 63 octets, three times 19 and the dots make 251.

    Args:
        label: the U-labels.
        first: what labels of ASCII begin with.
    """
    separator = _chars(_SEPARATORS)
    any_label = _either(label, parse_python(ascii_label(first)))
    little = parse_python(ascii_label(first, 19))
    return _then(
        _optional(_then(little, separator)),
        any_label,
        ir.Repeat(_then(separator, any_label), 0, 2),
        ir.Repeat(_then(separator, little), 0, 2),
    )


# -- sets ------------------------------------------------------------------------------------------


@cache
def pvalid() -> ir.CharSet:
    """Code points that are PVALID (RFC 5892, 3), those of ASCII included.

    Unassigned ones are not: which are depends on the interpreter's ``unicodedata``.
    """
    letters = _property("Ll", "Lu", "Lo", "Nd", "Lm", "Mn", "Mc")
    letters = ir.less(letters, ir.char_set([*_IGNORED, *_chars(_INVALID).ranges]))
    bulk = _within(letters, _BULK)
    candidates = _text(ir.less(letters, bulk))
    # A line feed is stable and composes with nothing, so it keeps the code points apart.
    lines = "\n".join(candidates)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", lines).casefold())
    pairs = zip(candidates, folded.split("\n"), strict=True)
    stable = "".join(before for before, after in pairs if before == after)
    return ir.less(_union(bulk, _chars(stable + _VALID + "-")), _chars(_CONTEXTUAL))


@cache
def _members() -> str:
    """Return every code point that a name can hold, but for separators and `_BULK`."""
    small = ir.less(_union(pvalid(), ir.char_set(_ASCII)), ir.char_set(_BULK))
    return _text(small) + _CONTEXTUAL


def _text(chars: ir.CharSet) -> str:
    return "".join(chr(point) for low, high in chars.ranges for point in range(low, high + 1))


_chars = ir.characters


def _union(*sets: ir.CharSet) -> ir.CharSet:
    return ir.char_set([r for chars in sets for r in chars.ranges])


def _both(chars: ir.CharSet, others: ir.CharSet) -> ir.CharSet:
    return ir.less(chars, ir.negate(others))


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

    Those with presentation forms in Unicode, which is the Arabic script.
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
    valid = ir.less(valid, _chars("-"))
    letter = ir.less(valid, _property("Mn", "Mc"))
    hyphens = _optional(ir.literal("-"))
    rest = _some(_then(hyphens, _either(valid, *contexts)))
    return _then(_either(letter, *contexts), rest)


@cache
def _left_to_right() -> ir.Regex:
    """U-labels without right-to-left characters; the contextual rules of RFC 5892, A.1 to A.7."""
    valid = ir.less(pvalid(), _bidi("R", "AL", "AN"))
    virama = _combining()[9]
    dot, small_l, katakana_dot = ir.literal(_MIDDLE_DOT), ir.literal("l"), ir.literal(_KATAKANA_DOT)
    # Each context is one piece with its code points, so that they cannot occur without it.
    letter = ir.less(valid, _union(virama, _property("Mn", "Mc"), _chars("-")))
    usual = _content(
        valid,
        _then(letter, virama, _chars(_JOINERS)),
        _then(small_l, _many(_then(dot, small_l))),
        _then(_many(ir.literal(_KERAIA)), _within(valid, _GREEK)),
    )
    japanese = ir.char_set([*_JAPANESE, (0x3005, 0x3005), (0x30FC, 0x30FC), (0x30, 0x39)])
    mixed = _either(japanese, katakana_dot)
    with_dot = _then(_some(mixed), ir.char_set(_JAPANESE), _some(mixed))
    return _either(usual, with_dot)


@cache
def _right_to_left() -> ir.Regex:
    """U-labels that keep the Bidi rule (RFC 5893, 2) and begin with a right-to-left letter."""
    strong, neutral = ("R", "AL"), ("ES", "CS", "ET", "ON", "BN", "NSM")
    marks = _some(_bidi("NSM"))
    dual, right = _joining()
    non_joiner = ir.literal(_NON_JOINER)
    joined = _then(dual, _some(_then(non_joiner, dual)), _then(non_joiner, _union(dual, right)))
    hebrew = _within(_bidi("R"), _HEBREW)
    geresh = _then(ir.less(hebrew, _chars(_GERESHES)), _many(_chars(_GERESHES)))

    def labels(numbers: str) -> ir.Regex:
        """European and Arabic-Indic numbers are not mixed."""
        valid = _within(pvalid(), list(_bidi(*strong, numbers, *neutral).ranges))
        end = _bidi(*strong, numbers)
        shape = _then(
            _bidi(*strong), _either(marks, _then(_some(ir.negate(_chars(_SEPARATORS))), end, marks))
        )
        return ir.Intersect((_content(valid, geresh, joined), shape))

    return _either(labels("EN"), labels("AN"))


@cache
def _normalized() -> ir.Regex:
    """Normalization Form C of one label, a bit stricter.

    Excludes marks that compose with anything, except nuktas: rare letters with such a mark are not
    possible. Two adjacent marks are allowed, one of them of a class above 103 (Thai and Lao tones,
    and marks above or below letters in most scripts).
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
        return _optional(ir.less(chars, _chars(without)))

    def clusters(starters: ir.CharSet) -> ir.Regex:
        """Return a starter and its marks; no nukta after some letters."""
        composing = "".join(after["mark"])
        letters = _both(starters, _chars("".join(before["nukta"])))
        nuktas = "".join(after["nukta"])
        return _either(
            _then(ir.less(starters, letters), marks(1, 103, composing), marks(104, 255, composing)),
            _then(letters, marks(1, 103, composing + nuktas), marks(104, 255, composing)),
        )

    starters = ir.negate(_union(*(c for value, c in _combining().items() if value)))
    leading, led = _chars("".join(before["starter"])), _chars("".join(after["starter"]))
    leaders = clusters(_both(starters, leading))
    followers = clusters(ir.less(starters, _union(leading, led)))
    others = clusters(ir.less(starters, leading))
    chain = _either(others, _then(_many(leaders), followers))
    return _then(_some(chain), _some(leaders))


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
        one = _then(_within(beyond, [(0, highest)]), _some(ascii_only))
        text = _then(_some(ascii_only), ir.Repeat(one, 0, most))
        return limited(text, length)

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
    return _either(
        *scripts,
        few(1, 0x24F, 55),
        few(2, 0x24F, 52),
        few(6, 0x24F, 44),
        few(4, 0x1EFF, 40),
        ir.Repeat(_union(ascii_only, _within(beyond, [(0, 0xFFFF)])), 1, 11),
        ir.Repeat(ir.ANY_CHAR, 1, 9),
    )


MAX_NESTING = 3
"""The most nested groups."""

_SPECIAL = r"\^$\\*+?()\[\]{}|"
_SYNTAX = "." + _SPECIAL
_CATEGORY = "C[cfnos]?|L[Clmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?"
_ESCAPE = (
    rf"c[A-Za-z]|x{HEX}{{2}}|u(?:{HEX}{{4}}|\{{(?:{HEX}{{1,5}}|10{HEX}{{4}})\}})"
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
def regex_syntax() -> ir.Regex:
    r"""Regular expressions that ``new RegExp(text, "u")`` accepts, as far as they are regular.

    Left out, as groups nest, names must differ and backreferences need their group:

    * groups nested deeper than `MAX_NESTING`, and groups inside of lookarounds;
    * named groups, except one before all other groups; backreferences, except one ``\k<n>`` with a
      name of one small letter, and only simple characters and classes between it and its group;
    * counts beyond 999 or with leading zeros, and those pairs of two or three digits whose order
      only the last digits show (``{23,25}``; ``{12,15}`` is accepted);
    * in classes: ``^`` unless escaped, ``-`` except at the ends, and ranges whose order is hard to
      see: between different spellings, within a stretch of letters or punctuation unless from its
      first or to its last character (``[c-f]``; ``[a-f]`` and ``[2-5]`` are accepted);
    * ``\0`` (``\x00`` is the same), properties but for general categories, non-ASCII names.
    """
    close = ir.literal(")")
    quantifier = _quantifier()
    term = _term()
    flat: ir.Regex = ir.Repeat(term, 0, None)
    around = _then(parse_python(r"\(\?<?[=!]"), flat, close)
    body: ir.Regex = ir.Repeat(_either(term, around), 0, None)
    for _ in range(MAX_NESTING):
        group = _then(parse_python(r"\((?:\?:)?"), body, close, quantifier)
        body = ir.Repeat(_either(term, around, group), 0, None)
    any_name = _then(parse_python("[A-Za-z_$][A-Za-z0-9_$]*>"), flat, close)
    named = _then(flat, ir.literal("(?<"), _either(any_name, *_references()), quantifier)
    return _then(ir.Repeat(named, 0, 1), body)


def _references() -> list[ir.Regex]:
    r"""``n>...)...\k<n>`` for every name of one letter: an automaton has to remember it."""
    simple = rf"(?:(?:[^{_SPECIAL}]|\[[^\\\]\^\-]*\])[*+?]?\??)*"
    names = "abcdefghijklmnopqrstuvwxyz"
    return [parse_python(rf"{name}>{simple}\){simple}\\k<{name}>") for name in names]


def _term() -> ir.Regex:
    """Match a character, escape or class with a quantifier, an assertion, or a bar."""
    atom = _either(
        parse_python(rf"[^{_SPECIAL}]|\\(?:[{_SYNTAX}/dDsSwWfnrtv]|{_ESCAPE})"), _class()
    )
    return _either(_then(atom, _quantifier()), parse_python(r"[|\^$]|\\[bB]"))


def _quantifier() -> ir.Regex:
    """Return one quantifier, perhaps lazy, or none."""
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
    content = ir.Repeat(_either(atom, *_class_ranges()), 0, None)
    return _then(parse_python(r"\[\^?-?"), content, parse_python("-?]"))


def _class_ranges() -> list[ir.Regex]:
    """Match a dash between two characters, or escapes of one kind, surely in order."""
    special = _chars("-\\]^")

    def line(start: tuple[int, int], end: int) -> ir.Regex:
        """``start`` to ``end`` or anything later."""
        first, last = (
            ir.less(ir.char_set([r]), special) for r in (start, (end, ir.MAX_CODE_POINT))
        )
        return _then(first, ir.literal("-"), last)

    lines = []
    for low, following in zip(_STRETCHES, (*_STRETCHES[1:], None), strict=True):
        lines.append(line((low, low), low))
        if following is not None and following > low + 1:
            lines.append(line((low + 1, following - 1), following - 1))
    # Hexadecimal digits: compared by quarters of the first that may differ.
    quarters = [("0-3", "4-9A-Fa-f"), ("0-7", "89A-Fa-f"), ("0-9ABab", "C-Fc-f")]
    for prefix, rest in (("x", 1), ("u", 3), ("u00", 1), ("u04", 1), ("u30", 1)):
        pairs = [(f"[{low}]{HEX * rest}", f"[{high}]{HEX * rest}") for low, high in quarters]
        if rest == 1:
            pairs += [("00", HEX * 2), (HEX * 2, "[Ff]{2}")]
        ordered = "|".join(rf"{low}-\\{prefix}{high}" for low, high in pairs)
        lines.append(parse_python(rf"\\{prefix}(?:{ordered})"))
    return lines


class Format(NamedTuple):
    """A format that asserts something.

    Attributes:
        build: makes its language.
        fewest: the number of characters of a shortest string, which is printable ASCII.
        most_least: the largest ``minLength`` beside it, if it needs many states itself. None: any.
        narrower: what it excludes from its standard, for ``explain()``.
    """

    build: Callable[[], ir.Regex]
    fewest: int
    most_least: int | None = None
    narrower: str = ""


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "date": Format(date, 10),
        "date-time": Format(date_time, 20),
        "duration": Format(duration, 3),
        "email": Format(
            email,
            3,
            narrower="host names without A-labels (xn--…), quoted parts without escaped blanks, "
            "address literals of IPv4 and IPv6 only",
        ),
        "hostname": Format(hostname, 1, narrower="without A-labels (xn--…) from draft 7 on"),
        "idn-email": Format(
            idn_email,
            3,
            32,
            "host names without A-labels (xn--…); characters, not octets, count before @",
        ),
        "idn-hostname": Format(
            idn_hostname,
            1,
            20,
            "without A-labels (xn--…); labels with non-ASCII characters are bounded",
        ),
        "ipv4": Format(ipv4, 7),
        "ipv6": Format(ipv6, 2),
        "iri": Format(iri, 2),
        "iri-reference": Format(iri_reference, 0),
        "json-pointer": Format(json_pointer, 0),
        "regex": Format(regex_syntax, 0, narrower=f"at most {MAX_NESTING} nested groups"),
        "relative-json-pointer": Format(
            relative_json_pointer, 1, narrower="without index manipulation (0+1)"
        ),
        "time": Format(time, 9),
        "uri": Format(uri, 2),
        "uri-reference": Format(uri_reference, 0),
        "uri-template": Format(uri_template, 0),
        "uuid": Format(uuid, 36),
    }
)
"""The formats that assert something, in every draft."""

_PYDANTIC = (
    "base64url binary color directory-path file-path fraction ipv4interface ipv4network "
    "ipv6interface ipv6network ipvanyaddress ipvanyinterface ipvanynetwork json-string "
    "multi-host-uri name-email password path time-delta zoneinfo"
)
_OPENAPI = (
    "base64url binary byte char commonmark date-time-local decimal decimal128 double double-int "
    "float html http-date int16 int32 int64 int8 media-range password sf-binary sf-boolean "
    "sf-decimal sf-integer sf-string sf-token time-local uint16 uint32 uint64 uint8 unixtime"
)
ANNOTATION_FORMATS = frozenset(f"{_PYDANTIC} {_OPENAPI}".split())
"""Formats that Pydantic writes or OpenAPI registers, and that assert nothing here. Unknown formats
assert nothing, either."""


def format_regex(name: str, dialect: str | None = None) -> ir.Regex | None:
    """Return the language of strings that ``format: name`` allows.

    Args:
        name: the keyword's value. Names are case-sensitive.
        dialect: ``draft4``, ``draft6``, ``draft7``, ``draft2019-09`` or ``draft2020-12``, the
            default. Only ``hostname`` depends on it: before draft 7 it has no A-labels, and
            ``xn--...`` is a label like any other. A format that a draft does not define yet, such
            as ``uuid`` in draft 7, is still asserted.

    Returns:
        The language, the same object each time; None for an annotation: a format in
        `ANNOTATION_FORMATS` or an unknown one. The first call for a name costs about 2 ms; 0.5 s
        for ``idn-hostname`` and ``idn-email``, which read the Unicode database.
    """
    if name == "hostname" and dialect in ("draft4", "draft6"):
        return hostname_rfc1034()
    known = FORMATS.get(name)
    if known is None:
        return None
    regex = known.build()
    _BUILT[regex] = name
    return regex


_BUILT: dict[ir.Regex, str] = {}


def format_of(regex: ir.Regex) -> str | None:
    """Return the format of an expression from `format_regex`, if it is from there."""
    return _BUILT.get(regex)
