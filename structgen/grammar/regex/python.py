"""Python's ``re`` syntax → regex tree, by lowering the standard library's own parse.

The parser, the flags and case-insensitivity are ``re``'s own, so syntax and meaning are those of
the running interpreter. Only this module imports ``re``'s private parser. It defines each parsed
item as a language under ``re.fullmatch``. Knows no automaton.

Lazy and greedy quantifiers describe the same language. Possessive quantifiers and atomic groups do
not, in general; they are exact here when their body has one fixed width (``[^"]*+``, ``(?>abc)``),
and refused otherwise.
"""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections import deque
from functools import cached_property, lru_cache
from typing import Any

from structgen.errors import PatternError, UnsupportedFeature
from structgen.grammar import ir, reading

from . import unicode_sets
from .tree import LINE_END, LINE_START, TEXT_END_OR_NEWLINE, LazyRepeat, too_deep, word_boundary

if sys.version_info >= (3, 11):
    from re import _parser as sre  # type: ignore[attr-defined]
else:
    import sre_parse as sre

_IGNORECASE = int(re.IGNORECASE)
_ASCII = int(re.ASCII)
_MULTILINE = int(re.MULTILINE)
_DOTALL = int(re.DOTALL)
_TYPE_FLAGS = int(re.ASCII | re.UNICODE | re.LOCALE)

_CATEGORY_ESCAPES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_PLAIN = re.compile(r"(?:[^.^$*+?{}\[\]\\|()\ud800-\udfff]|\\[^A-Za-z0-9\ud800-\udfff])*")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_POSIX = re.compile(r"(?<!\\)(?:\\\\)*\[\^?(?:[^\[\]\\]|\\.)*(\[:\^?([a-z]+):\])")
POSIX_SETS = {
    "alnum": "A-Za-z0-9",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "word": "A-Za-z0-9_",
    "xdigit": "0-9A-Fa-f",
}
"""The equivalent of ``[:name:]`` inside a set, in ASCII, in the syntax of both dialects."""
_WARNED = re.compile(r"\[|--|&&|~~|\|\|")
"""Parts of patterns about which Python may warn."""

_NEWLINE = ir.char_set([(10, 10)])
_NOT_NEWLINE = ir.negate(_NEWLINE)


def parse(pattern: str, flags: int = 0, lazy: bool = False) -> ir.Regex:
    """Return the tree of ``pattern`` as ``re.fullmatch(pattern, text, flags)`` reads it.

    Args:
        pattern: the regular expression.
        flags: flags of ``re``; `re.DEBUG` and `re.UNICODE` change nothing.
        lazy: whether lazy quantifiers become `LazyRepeat`.

    Returns:
        A tree for the whole text, without the simplification of anchors at its edges.

    Raises:
        PatternError: ``re`` rejects it, or it is not regular (backreferences, conditionals).
        UnsupportedFeature: a possessive quantifier or atomic group over a body of varying width.
        CompileLimitExceeded: too deeply nested.
    """
    text = plain_text(pattern, flags)
    if text is not None:
        parts = tuple([ir.character(ord(c)) for c in text])
        return parts[0] if len(parts) == 1 else ir.Concat(parts)
    try:
        return _parsed(pattern, int(flags) & ~int(re.DEBUG), lazy)
    except RecursionError:  # ``re``'s parser recurses twice per group
        raise too_deep(pattern) from None


def plain_text(pattern: str, flags: int = 0) -> str | None:
    """Return the only text that ``pattern`` matches, if it is a result of `re.escape`, which `re`
    parses slowly."""
    if int(flags) & ~int(re.DEBUG) or not _PLAIN.fullmatch(pattern):
        return None
    return _ESCAPED.sub(r"\1", pattern) if "\\" in pattern else pattern


def _parsed(pattern: str, flags: int, lazy: bool) -> ir.Regex:
    posix = _POSIX.search(pattern)
    if posix is not None and not flags & int(re.VERBOSE):
        raise PatternError(
            f"Python regular expressions have no class {posix[1]}: it would be a set of its "
            f"characters. Write {POSIX_SETS.get(posix[2], 'the characters')} inside the brackets, "
            "or escape the inner [",
            pattern=pattern,
            position=posix.start(1),
        )
    try:
        # Python warns about sets that may change their meaning. They have their present meaning
        # here.
        with warnings.catch_warnings() if _WARNED.search(pattern) else contextlib.nullcontext():
            if _WARNED.search(pattern):
                warnings.simplefilter("ignore", FutureWarning)
            parsed = sre.parse(pattern, flags)
    except re.error as error:
        no_class = error.msg in (r"bad escape \p", r"bad escape \P")
        hint = r". Python has no \p{…}: for letters write [^\W\d_]" if no_class else ""
        raise PatternError(
            f"Python regular expression is malformed: {error.msg}{hint}",
            pattern=pattern,
            position=error.pos,
        ) from None
    except OverflowError as error:
        raise PatternError(f"Python regular expression: {error}", pattern=pattern) from None
    except ValueError as error:  # incompatible flags
        raise PatternError(f"Python regular expression: {error}", pattern=pattern) from None
    flags = int(parsed.state.flags)
    marks = _MARKS[bool(flags & int(re.VERBOSE))]
    return _Lowering(pattern, lazy, marks).sequence(parsed, flags)


class _Lowering:
    """Lowers one parse; finds the source positions of constructs."""

    def __init__(self, pattern: str, lazy: bool, marks: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.lazy = lazy
        self._marks = marks

    @cached_property
    def _places(self) -> dict[str | None, deque[int]]:
        """The positions of the remaining constructs of each kind."""
        found: dict[str | None, deque[int]] = {}
        for mark in self._marks.finditer(self.pattern):
            found.setdefault(mark.lastgroup, deque()).append(mark.start())
        return found

    def position(self, kind: str) -> int | None:
        """Return the position of the next construct of ``kind``, in source order."""
        left = self._places.get(kind)
        return left.popleft() if left else None

    def sequence(self, items: Any, flags: int) -> ir.Regex:
        parts = [self.item(op.name, argument, flags) for op, argument in items]
        parts = [part for part in parts if part != ir.EPSILON]
        return parts[0] if len(parts) == 1 else ir.Concat(tuple(parts))

    def item(self, op: str, argument: Any, flags: int) -> ir.Regex:
        if op == "LITERAL":
            return _chars((("LITERAL", argument),), False, flags)
        if op == "NOT_LITERAL":
            return _chars((("LITERAL", argument),), True, flags)
        if op == "ANY":
            return ir.ANY_CHAR if flags & _DOTALL else _NOT_NEWLINE
        if op == "IN":
            items = [(kind.name, value) for kind, value in argument]
            negate = items[0][0] == "NEGATE"
            return _chars(tuple(items[negate:]), negate, flags)
        if op == "BRANCH":
            return ir.Alternate(tuple(self.sequence(branch, flags) for branch in argument[1]))
        if op == "SUBPATTERN":
            _, add, remove, body = argument
            flags &= ~_TYPE_FLAGS if add & _TYPE_FLAGS else -1
            return self.sequence(body, (flags | add) & ~remove)
        if op in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, body = argument
            kind = LazyRepeat if self.lazy and op == "MIN_REPEAT" else ir.Repeat
            return kind(self.sequence(body, flags), low, None if high == sre.MAXREPEAT else high)
        if op == "AT":
            return self.anchor(str(argument), flags)
        if op in ("ASSERT", "ASSERT_NOT"):
            position = self.position("look")
            direction, body = argument
            self.check_look(direction, body, position)
            look = ir.Lookbehind if direction < 0 else ir.Lookahead
            return look(self.sequence(body, flags), op == "ASSERT_NOT")
        if op == "FAILURE":  # the parser's form of (?!)
            return ir.Alternate(())
        if op in ("POSSESSIVE_REPEAT", "ATOMIC_GROUP"):
            return self.without_backtracking(op, argument, flags)
        if op in ("GROUPREF", "GROUPREF_EXISTS"):
            what = (
                "uses a backreference, which no regular language can express"
                if op == "GROUPREF"
                else "is conditional on a group, which is not supported"
            )
            raise PatternError(
                f"Python regular expression {what}; spell out the alternatives",
                pattern=self.pattern,
                position=self.position(op),
            )
        raise UnsupportedFeature(
            f"Regular expression item {op} is not supported, in {self.pattern!r}.",
            fix="Rewrite it with classes, groups, alternation and quantifiers.",
        )

    def anchor(self, where: str, flags: int) -> ir.Regex:
        if where == "AT_BEGINNING_STRING":
            return ir.StartAnchor()
        if where == "AT_END_STRING":
            return ir.EndAnchor()
        if where == "AT_BEGINNING":
            return LINE_START if flags & _MULTILINE else ir.StartAnchor()
        if where == "AT_END":
            return LINE_END if flags & _MULTILINE else TEXT_END_OR_NEWLINE
        word = unicode_sets.python_class(r"\w", flags & _ASCII)
        boundary = word_boundary(word, where == "AT_NON_BOUNDARY")
        if where == "AT_NON_BOUNDARY" and not re.fullmatch(r"\B", ""):
            # Before Python 3.14, \B does not match in an empty text.
            nonempty = ir.Lookahead(ir.Concat((ir.StartAnchor(), ir.EndAnchor())), True)
            return ir.Concat((nonempty, boundary))
        return boundary

    def check_look(self, direction: int, body: Any, position: int | None) -> None:
        low, high = body.getwidth()
        if direction < 0 and low != high:
            raise PatternError(
                "Python regular expression is malformed: look-behind requires fixed-width pattern",
                pattern=self.pattern,
                position=position,
            )

    def without_backtracking(self, op: str, argument: Any, flags: int) -> ir.Regex:
        position = self.position("possessive")
        low, high, items = argument if op == "POSSESSIVE_REPEAT" else (1, 1, argument)
        least, most = items.getwidth()
        body = self.sequence(items, flags)
        if op == "ATOMIC_GROUP" and len(items) == 1:
            inner_op, inner = items[0]
            if str(inner_op) == "MAX_REPEAT":  # (?>x*) is x*+
                low, high, items = inner
                least, most = items.getwidth()
                assert isinstance(body, ir.Repeat)
                body = body.body
        if least != most or most == 0 or most >= sre.MAXREPEAT:
            raise UnsupportedFeature(
                "Possessive quantifiers and atomic groups are only supported around a body of "
                f"fixed width{_at(self.pattern, position)}",
                fix="Use an ordinary quantifier or group, or a lookahead.",
            )
        # A body of fixed width can be repeated in only one way, so "as often as possible" means:
        # the full count, or fewer and then not once more.
        if high == sre.MAXREPEAT:
            return ir.Concat((ir.Repeat(body, low, None), ir.Lookahead(body, True)))
        if low == high:
            return ir.Repeat(body, low, high)
        fewer = ir.Concat((ir.Repeat(body, low, high - 1), ir.Lookahead(body, True)))
        return ir.Alternate((ir.Repeat(body, high, high), fewer))


@lru_cache(maxsize=512)
def _chars(items: tuple[tuple[str, Any], ...], negate: bool, flags: int) -> ir.CharSet:
    """Return the set of a character class, exactly as ``re`` matches it under ``flags``."""
    ascii_flag = flags & _ASCII
    ranges: list[tuple[int, int]] = []
    for kind, value in items:
        if kind == "CATEGORY":
            escape = _CATEGORY_ESCAPES[value.name]
            ranges.extend(unicode_sets.python_class(escape, ascii_flag).ranges)
        else:
            ranges.append(value if kind == "RANGE" else (value, value))
    if len(ranges) > 32:  # the 770 of \w take 0.3 ms, ignoring case 4 ms
        steps = len(ranges) >> (1 if flags & _IGNORECASE else 5)
        reading.spend(steps, "the pattern has too many character classes; use fewer")
    chars = ir.char_set(ranges)
    if negate:
        chars = ir.negate(chars)
    if not flags & _IGNORECASE:
        return chars
    source = _source(items, negate)
    return unicode_sets.python_ignoring_case(source, chars, _IGNORECASE | ascii_flag)


def _source(items: tuple[tuple[str, Any], ...], negate: bool) -> str:
    """Return the source text of a character class."""
    source = ["[^" if negate else "["]
    for kind, value in items:
        if kind == "CATEGORY":
            source.append(_CATEGORY_ESCAPES[value.name])
        elif kind == "RANGE":
            # In its original form: ``re`` treats [x-x] and [x] differently beyond the BMP.
            source.append(rf"\U{value[0]:08x}-\U{value[1]:08x}")
        else:
            source.append(rf"\U{value:08x}")
    return "".join(source) + "]"


def _at(pattern: str, position: int | None) -> str:
    """Return the place of an error, with the pattern and a caret."""
    if position is None:
        return f"\n  {pattern}"
    return f", at position {position}\n  {pattern}\n  {' ' * position}^"


_MARKS = tuple(
    re.compile(
        rf"""{comment}\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z)      # what stands for characters
        |(?P<GROUPREF>\\[1-9]|\(\?P=)|(?P<GROUPREF_EXISTS>\(\?\()
        |(?P<look>\(\?<?=|\(\?<!|\(\?!(?!\)))|(?P<possessive>\(\?>|(?<=[*+?}}])\+)
        """,
        re.VERBOSE | re.DOTALL,
    )
    for comment in ("", r"\#[^\n]*|")
)
"""The constructs that an error may have to point at, without flag ``x`` and with it. ``re``'s parse
has no positions; in patterns with ``(?#…)`` or ``(?x:…)``, or rearranged by its parser, an error
may point elsewhere. A bracket that is never closed, in such a comment, ends the search."""
