"""The ``format`` keyword: which formats assert something, and the regular language of each.

`names` is the table; `times` (RFC 3339), `web` (names and addresses on the net), `idn`
(internationalised ones) and `patterns` (the format ``regex``) hold the languages.
"""

from __future__ import annotations

from .names import ANNOTATION_FORMATS, FEWEST, FORMATS, MOST_LEAST, format_of, format_regex
from .patterns import MAX_NESTING
from .web import ATEXT, ascii_label

__all__ = [
    "ANNOTATION_FORMATS",
    "ATEXT",
    "FEWEST",
    "FORMATS",
    "MAX_NESTING",
    "MOST_LEAST",
    "ascii_label",
    "format_of",
    "format_regex",
]
