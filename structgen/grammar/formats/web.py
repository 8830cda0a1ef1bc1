"""The formats of names and addresses on the net, and of identifiers, as regular languages.

Owns ``ipv4``, ``ipv6``, ``hostname``, ``email``, the URI and IRI family, ``uri-template``,
``uuid`` and both JSON pointers: each the grammar of its RFC, which is regular, with the limits on
lengths that the RFCs set beside it. Names with non-ASCII characters are `idn`. Knows no
schema and no automaton.
"""

from __future__ import annotations

from functools import cache

from structgen.grammar import ir
from structgen.grammar.regex.read import parse_python

MAX_HOSTNAME = 253
"""Most characters of a host name (RFC 1035: 255 octets on the wire)."""

MAX_LOCAL_PART = 64
"""Most characters before the ``@`` of an e-mail address (RFC 5321, 4.5.3.1.1)."""

ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"
QTEXT = r" !#-\[\]-~"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HEX = "[0-9A-Fa-f]"
_PERCENT = f"%{_HEX}{{2}}"
_SUB_DELIMS = "!$&'()*+,;="
_UNRESERVED = r"A-Za-z0-9._~\-"
# RFC 3987: what an IRI allows beyond a URI, everywhere and in the query only.
_UCSCHAR = r"\xA0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF" + "".join(
    rf"\U000{plane:X}{'1' if plane == 14 else '0'}000-\U000{plane:X}FFFD" for plane in range(1, 15)
)
_IPRIVATE = r"\uE000-\uF8FF\U000F0000-\U000FFFFD\U00100000-\U0010FFFD"


@cache
def ipv4() -> ir.Regex:
    """Dotted decimal, no leading zeros."""
    return parse_python(rf"{_OCTET}(?:\.{_OCTET}){{3}}")


@cache
def ipv6(least_gap: int = 1) -> ir.Regex:
    """RFC 4291, 2.2, all three forms.

    Args:
        least_gap: how many groups ``::`` stands for at least; RFC 5321 wants 2.
    """
    group = parse_python(f"{_HEX}{{1,4}}")
    colon, gap = ir.literal(":"), ir.literal("::")
    next_group = ir.Concat((colon, group))

    def after_gap(room: int) -> ir.Regex:
        """At most ``room`` groups, the last two perhaps an IPv4 address."""
        options = [ir.EPSILON]
        if room >= 1:
            options.append(ir.Concat((group, ir.Repeat(next_group, 0, room - 1))))
        if room >= 2:
            many = ir.Repeat(ir.Concat((group, colon)), 0, room - 2)
            options.append(ir.Concat((many, ipv4())))
        return ir.Alternate(tuple(options))

    # The rest after 8 groups, then after 7, and so on.
    rest: ir.Regex = ir.EPSILON
    for groups in range(7, 0, -1):
        options = [ir.Concat((next_group, rest))]
        if groups == 6:
            options.append(ir.Concat((colon, ipv4())))
        if groups + least_gap <= 8:
            options.append(ir.Concat((gap, after_gap(8 - least_gap - groups))))
        rest = ir.Alternate(tuple(options))
    return ir.Alternate((ir.Concat((group, rest)), ir.Concat((gap, after_gap(8 - least_gap)))))


@cache
def hostname() -> ir.Regex:
    """RFC 1123 names whose labels do not have ``--`` in third and fourth place.

    Such labels are reserved (RFC 5891, 4.2.3.1). Of them only A-labels (``xn--...``) are valid, and
    which ones is no regular language: they hold Punycode. So none is.
    """
    one = ascii_label()
    return limited(parse_python(rf"{one}(?:\.{one})*"), MAX_HOSTNAME)


@cache
def hostname_rfc1034() -> ir.Regex:
    """The ``hostname`` of drafts 4 and 6: they know no A-labels, only letters and hyphens."""
    one = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    return limited(parse_python(rf"{one}(?:\.{one})*"), MAX_HOSTNAME)


@cache
def email() -> ir.Regex:
    """``Mailbox`` of RFC 5321, 4.1.2, with its limits on lengths."""
    return mailbox(f"[{ATEXT}]", f"[{QTEXT}]", hostname())


def mailbox(atext: str, qtext: str, domain: ir.Regex) -> ir.Regex:
    """``Mailbox`` of RFC 5321 for given characters and domain names.

    Pairs of backslash and space are left out, since validators disagree on them, and so are address
    literals with other tags than ``IPv6``: none has been registered.

    Args:
        atext: character class of an unquoted local part.
        qtext: character class of a quoted local part, without pairs.
        domain: the domain names.
    """
    local = parse_python(rf'{atext}+(?:\.{atext}+)*|"(?:{qtext}|\\[!-~])*"')
    tagged = ir.Concat((parse_python("[Ii][Pp][Vv]6:"), ipv6(least_gap=2)))
    literal = ir.Concat(
        (ir.literal("["), ir.Alternate((ipv4(), tagged)), ir.literal("]")),
    )
    return ir.Concat(
        (limited(local, MAX_LOCAL_PART), ir.literal("@"), ir.Alternate((domain, literal)))
    )


@cache
def uri() -> ir.Regex:
    """RFC 3986, ``URI``: with a scheme."""
    return _with_scheme("", "")


@cache
def uri_reference() -> ir.Regex:
    """RFC 3986, ``URI-reference``."""
    return ir.Alternate((uri(), _relative("", "")))


@cache
def iri() -> ir.Regex:
    """RFC 3987, ``IRI``."""
    return _with_scheme(_UCSCHAR, _IPRIVATE)


@cache
def iri_reference() -> ir.Regex:
    """RFC 3987, ``IRI-reference``."""
    return ir.Alternate((iri(), _relative(_UCSCHAR, _IPRIVATE)))


@cache
def uri_template() -> ir.Regex:
    """RFC 6570 with erratum 6937 (the apostrophe is a literal), any level."""
    variable = f"(?:[A-Za-z0-9_]|{_PERCENT})"
    name = rf"{variable}(?:\.?{variable})*"
    spec = rf"{name}(?:\*|:[1-9][0-9]{{0,3}})?"
    expression = rf"\{{[+#./;?&=,!@|]?{spec}(?:,{spec})*\}}"
    plain = rf"[!#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~{_UCSCHAR}{_IPRIVATE}]"
    return parse_python(f"(?:{plain}|{_PERCENT}|{expression})*")


@cache
def uuid() -> ir.Regex:
    """RFC 4122: 8-4-4-4-12 hexadecimal digits, any version."""
    return parse_python(f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}")


@cache
def json_pointer() -> ir.Regex:
    """RFC 6901, as a JSON string, not as a URI fragment."""
    return parse_python("(?:/(?:[^/~]|~[01])*)*")


@cache
def relative_json_pointer() -> ir.Regex:
    """draft-handrews-relative-json-pointer-01: without index manipulation (``0+1``)."""
    return ir.Concat(
        (
            parse_python("0|[1-9][0-9]*"),
            ir.Alternate((ir.literal("#"), json_pointer())),
        )
    )


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
    plain = f"[{_UNRESERVED}{ucschar}{_SUB_DELIMS}]"
    user = f"(?:{plain}|:|{_PERCENT})*@"
    future = rf"[vV]{_HEX}+\.[{_UNRESERVED}{_SUB_DELIMS}:]+"
    address = ir.Alternate((ipv6(), parse_python(future)))
    host = ir.Alternate(
        (
            ir.Concat((ir.literal("["), address, ir.literal("]"))),
            parse_python(f"(?:{plain}|{_PERCENT})*"),
        )
    )
    return ir.Concat((parse_python(f"(?://{user}|//)"), host, parse_python("(?::[0-9]*)?")))


def _path_parts(ucschar: str) -> tuple[ir.Regex, ir.Regex, ir.Regex]:
    """Paths after an authority; absolute paths without one; rootless paths."""
    plain = f"[{_UNRESERVED}{ucschar}{_SUB_DELIMS}:@]"
    pchar, more = f"(?:{plain}|{_PERCENT})", f"(?:{plain}|/|{_PERCENT})*"
    return (
        parse_python(f"(?:/{more})?"),
        parse_python(f"/(?:{pchar}{more})?"),
        parse_python(f"{pchar}{more}"),
    )


def _ending(ucschar: str, iprivate: str) -> ir.Regex:
    """Query and fragment."""
    plain = f"{_UNRESERVED}{ucschar}{_SUB_DELIMS}:@/?"
    query = rf"(?:\?(?:[{plain}{iprivate}]|{_PERCENT})*)?"
    return parse_python(f"{query}(?:#(?:[{plain}]|{_PERCENT})*)?")


def _with_scheme(ucschar: str, iprivate: str) -> ir.Regex:
    after_authority, absolute, rootless = _path_parts(ucschar)
    paths = (
        ir.Concat((_authority(ucschar), after_authority)),
        absolute,
        rootless,
        ir.EPSILON,
    )
    scheme = parse_python(r"[A-Za-z][A-Za-z0-9+.\-]*:")
    return ir.Concat((scheme, ir.Alternate(paths), _ending(ucschar, iprivate)))


def _relative(ucschar: str, iprivate: str) -> ir.Regex:
    after_authority, absolute, _ = _path_parts(ucschar)
    no_colon = f"(?:[{_UNRESERVED}{ucschar}{_SUB_DELIMS}@]|{_PERCENT})"
    paths = (
        ir.Concat((_authority(ucschar), after_authority)),
        absolute,
        ir.Concat((parse_python(f"{no_colon}+"), after_authority)),
        ir.EPSILON,
    )
    return ir.Concat((ir.Alternate(paths), _ending(ucschar, iprivate)))
