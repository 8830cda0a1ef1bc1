"""How far from its end a text of an expression can be, wherever it stands: read off the expression.

A budget wants to know of every place a token can lead to that the end is near enough. TokenHorizon
from its own end that need not be worked out place by place: what has begun inside `a{3}(b|cd)` can
be ended within a number of bytes that depends on the expression alone. It knows expressions only.
"""

from __future__ import annotations

from typing import NamedTuple

from structgen.grammar import ir

_DEEPEST = 60

_LONGEST = 12
"""Bytes that a character takes at most: two escapes."""

_QUOTED = '"\\'
"""Printable characters of ASCII that take two bytes."""


class _Size(NamedTuple):
    """How long something may be, in characters and, perhaps of other texts, in bytes."""

    chars: int
    n_bytes: int

    def __add__(self, other: object) -> _Size:
        assert isinstance(other, _Size)
        return _Size(self.chars + other.chars, self.n_bytes + other.n_bytes)

    def times(self, count: int) -> _Size:
        return _Size(count * self.chars, count * self.n_bytes)

    def or_more(self, other: _Size) -> _Size:
        return _Size(max(self.chars, other.chars), max(self.n_bytes, other.n_bytes))


_NOTHING = _Size(0, 0)


class _Span(NamedTuple):
    """What is plain to see of an expression.

    Attributes:
        low: characters that every text has at least.
        short: some text is no longer.
        rest: from any place in a text that can be ended at all, so much is enough.
        most: characters that every text has at most; None for no bound.
        width: bytes of the cheapest character wherever one may be read, at most,
        widest: and of any character.
    """

    low: int
    short: _Size
    rest: _Size
    most: int | None
    width: int
    widest: int


def longest_rest(regex: ir.Regex, is_canonical: bool = False) -> int | None:
    """Bytes that suffice, in a JSON string without its quotes, to end any text that has begun.

    From any place from which there is an end at all. None where that is not plain to see.

    Args:
        regex: the strings.
        is_canonical: whether characters of ASCII have one spelling only.
    """
    found = _span(regex, _DEEPEST, {})
    if found is None:
        return None
    cut = found.widest - 1 if is_canonical else _LONGEST - 1
    return found.rest.n_bytes + cut


def _span(regex: ir.Regex, depth: int, known: dict[ir.Regex, _Span | None]) -> _Span | None:
    if regex not in known:
        known[regex] = _work_out(regex, depth, known) if depth else None
    return known[regex]


def _work_out(regex: ir.Regex, depth: int, known: dict[ir.Regex, _Span | None]) -> _Span | None:
    if isinstance(regex, ir.CharSet):
        return _of_chars(regex) if regex.ranges else None
    if isinstance(regex, ir.Repeat):
        body = _span(regex.body, depth - 1, known)
        return None if body is None else _repeated(body, regex.min, regex.max)
    if not isinstance(regex, (ir.Concat, ir.Alternate, ir.Intersect)):
        return None
    spans = [_span(part, depth - 1, known) for part in regex.parts]
    if isinstance(regex, ir.Intersect):
        return _both(regex, spans)
    parts = [span for span in spans if span is not None]
    if len(parts) < len(spans) or (isinstance(regex, ir.Alternate) and not parts):
        return None
    width = max([part.width for part in parts], default=1)
    widest = max([part.widest for part in parts], default=1)
    mosts = [part.most for part in parts if part.most is not None]
    is_bounded = len(mosts) == len(parts)
    rest = short = _NOTHING
    if isinstance(regex, ir.Alternate):
        for part in parts:  # some alternative that has begun like the text has an end
            rest = rest.or_more(part.rest)
        short = _Size(min(p.short.chars for p in parts), min(p.short.n_bytes for p in parts))
        low, most = min(p.low for p in parts), max(mosts) if is_bounded else None
    else:
        for part in reversed(parts):
            rest = rest.or_more(part.rest + short)
            short = short + part.short
        low, most = sum(p.low for p in parts), sum(mosts) if is_bounded else None
    return _Span(low, short, rest, most, width, widest)


def _repeated(body: _Span, least: int, most: int | None) -> _Span:
    if most == 0:
        return _Span(0, _NOTHING, _NOTHING, 0, 1, 1)
    longest = None if most is None or body.most is None else most * body.most
    # In its first round, perhaps, with all others that are owed still to come.
    rest = body.rest + body.short.times(max(0, least - 1))
    short = body.short.times(least)
    return _Span(least * body.low, short, rest, longest, body.width, body.widest)


def _both(regex: ir.Intersect, spans: list[_Span | None]) -> _Span | None:
    """What holds for the texts that all of some expressions have in common."""
    known = [span for span in spans if span is not None]
    lengths = [p for p in regex.parts if isinstance(p, ir.Repeat) and _is_length(p)]
    others = [s for part, s in zip(regex.parts, spans, strict=True) if not _is_length(part)]
    most = min((span.most for span in known if span.most is not None), default=None)
    only = others[0] if len(others) == 1 else None
    if only is not None and all(
        only.low >= length.min and (length.max is None or only.short.chars <= length.max)
        for length in lengths
    ):
        # One expression within a number of characters: wherever some text of it still fits, what
        # has the fewest characters from there on does.
        short, rest = (_Size(n, n * only.width) for n in (only.short.chars, only.rest.chars))
        return only._replace(short=short, rest=rest, most=most)
    if most is None:
        return None
    # No text is longer than the longest.
    widest = min(span.widest for span in known)
    size = _Size(most, most * widest)
    return _Span(max(span.low for span in known), size, size, most, widest, widest)


def _is_length(regex: ir.Regex) -> bool:
    return isinstance(regex, ir.Repeat) and regex.body == ir.ANY_CHAR


def _of_chars(chars: ir.CharSet) -> _Span:
    quoted = plain = 0
    others = False
    for low, high in chars.ranges:
        n_quoted = sum(low <= ord(char) <= high for char in _QUOTED)
        quoted += n_quoted
        plain += max(0, min(high, 0x7E) - max(low, 0x20) + 1) - n_quoted
        others |= low < 0x20 or high > 0x7E
    width = 1 if plain else 2 if quoted else _LONGEST
    one = _Size(1, width)
    return _Span(1, one, one, 1, width, _LONGEST if others else 2 if quoted else 1)
