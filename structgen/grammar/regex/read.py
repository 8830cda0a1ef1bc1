"""The entry points of the regex front end, with its limits.

`parse_python` reads Python's ``re`` (meaning ``fullmatch``), `parse_ecma` ECMA-262 (meaning search,
as JSON Schema's ``pattern`` does). Both return one `ir.Regex` for the whole text. `python` and
`ecma` know the syntaxes.
"""

from __future__ import annotations

from collections.abc import Callable

from structgen.errors import PatternError, check_limit
from structgen.grammar import ir

from . import ecma
from . import python as python_regex
from . import tree as regex_tree

MAX_PATTERN_LENGTH = 100_000
"""Longest pattern, in characters."""


def parse_python(pattern: str, flags: int = 0) -> ir.Regex:
    """Return the language ``{s : re.fullmatch(pattern, s, flags)}``.

    Syntax and meaning (also of flags and case) are those of the running interpreter's ``re``.

    Returns:
        The regular expression over code points. Nothing matches surrogates.

    Raises:
        PatternError: malformed, or not regular (backreferences, conditionals).
        UnsupportedFeature: regular, but not supported (see `python`).
        CompileLimitExceeded: longer than `MAX_PATTERN_LENGTH` or nested too deeply.
    """
    if not isinstance(pattern, str):
        raise PatternError(
            f"A Python regular expression must be a str, got {type(pattern).__name__}; "
            "generated output is text, so decode it first",
            pattern=repr(pattern),
        )
    return _lower(pattern, lambda: python_regex.parse(pattern, flags), search=False)


def parse_ecma(pattern: str) -> ir.Regex:
    """Return the language ``{s : new RegExp(pattern, "u").test(s)}``, the search included.

    Args:
        pattern: the regular expression, without slashes; see `ecma` for what is accepted beyond the
            ``u`` flag's strict syntax.

    Returns:
        A regular expression for the whole text: any text around, unless the pattern is anchored.

    Raises:
        PatternError: malformed, or not regular (backreferences).
        UnsupportedFeature: regular, but not ECMA-262 (see `ecma`).
        CompileLimitExceeded: longer than `MAX_PATTERN_LENGTH` or nested too deeply.
    """
    return _lower(pattern, lambda: ecma.parse(pattern), search=True)


def _lower(pattern: str, parse: Callable[[], ir.Regex], search: bool) -> ir.Regex:
    _check_length(pattern)
    depth = 0
    try:
        parsed = parse()
        depth = _depth(parsed)
        if depth <= regex_tree.MAX_DEPTH:
            return regex_tree.simplified(regex_tree.at_edges(parsed, search))
    except RecursionError:
        pass
    raise regex_tree.too_deep(pattern, depth)


def _check_length(pattern: str) -> None:
    check_limit(
        len(pattern), MAX_PATTERN_LENGTH, "Regular expression too long; split it up or use a choice"
    )


def may_be_empty(pattern: str) -> bool:
    """Return whether a terminal of a grammar, a Python expression, matches the empty text.

    Raises:
        PatternError: malformed, or not regular (backreferences, conditionals).
        CompileLimitExceeded: longer than `MAX_PATTERN_LENGTH` or nested too deeply.
    """
    _check_length(pattern)
    parsed = python_regex.parse(pattern, lazy=True)
    try:
        return regex_tree.may_be_empty(parsed)
    except RecursionError:
        raise regex_tree.too_deep(pattern) from None


def _depth(parsed: ir.Regex) -> int:
    """Return the depth of ``parsed``, without recursion."""
    depth = 0
    level = [parsed]
    while level:
        depth += 1
        level = [part for node in level for part in ir.parts_of(node)]
    return depth
