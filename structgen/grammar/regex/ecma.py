r"""ECMA-262 regular expression syntax → regex tree, for JSON Schema's ``pattern``.

Reads patterns like ``new RegExp(pattern, "u")``, with the meaning over code points. `read` adds the
search.

JSON Schema recommends the ``u`` flag, but real schemas often ignore it. So constructs that only
``u`` forbids and that have only one possible meaning are accepted (with the meaning of ECMA-262's
Annex B):

* a backslash before any character that is not ASCII letter or digit is that character: ``\-``,
  ``\_``, ``\@``, ``\"``, ``\:``, ``\ ``;
* ``]``, ``{`` and ``}`` outside a class are literal if they close nothing and are not a quantifier:
  ``a]``, ``{name}``, ``x{,3}``;
* ``-`` next to a class escape inside a class is literal: ``[\w-.]``;
* a lookahead may be quantified: ``(?=a)?``.

Modifiers, ``(?i:…)`` and ``(?ms-i:…)``, are those of ECMA-262's edition of 2025; case is folded as
under the flags ``iu`` (simple case folding, `unicode_sets.folded`).

Set notation in classes, flag ``v``, is refused: ``[\w--\d]``, ``[[a-z]&&[aeiou]]``, ``\q{abc}``.
Text that has another meaning under flag ``u`` keeps it: ``[a&&b]``.

Everything else that ``u`` refuses is an error here: octal escapes, and letters without a meaning,
``\A \Z \a \h`` (Annex B reads ``\Z`` as the letter Z, which is never what its author meant).
Backreferences are not regular and are an error, too. Group names may repeat, because nothing
depends on them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from structgen.errors import PatternError, UnsupportedFeature
from structgen.grammar import ir

from . import unicode_sets
from .tree import word_boundary

_CLASS_ESCAPES = {
    "d": unicode_sets.ECMA_DIGIT,
    "D": ir.negate(unicode_sets.ECMA_DIGIT),
    "s": unicode_sets.ECMA_SPACE,
    "S": ir.negate(unicode_sets.ECMA_SPACE),
    "w": unicode_sets.ECMA_WORD,
}
_CONTROL_ESCAPES = {"f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_HEX = frozenset("0123456789abcdefABCDEF")
_DIGITS = frozenset("0123456789")
_MODIFIERS = re.compile(r"\?([ims]*)(?:-([ims]*))?:")
# In a class: single characters and four-digit escapes, up to characters with a special meaning.
_ATOM = r"(?:[^\\\]\[^-]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})"
_CLASS_ITEM = re.compile(f"({_ATOM})(?:-({_ATOM}))?(?!-)")
_SYNTAX = frozenset("^$\\.*+?()[]{}|/")
_SET_PARTS = re.compile(r"\\q\{|\\[pP]\{[^}]{0,100}\}|\\.|--|&&|.", re.DOTALL)
_SETS = ("\\d", "\\D", "\\s", "\\S", "\\w", "\\W", "\\p", "\\P")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_HINTS = {
    "A": "write ^ for the start",
    "Z": "write $ for the end",
    "z": "write $ for the end",
    "G": "remove it",
    "a": r"write \x07",
    "e": r"write \x1B",
    "h": r"write [ \t]",
    "Q": "escape each character",
    "x": "write two hexadecimal digits after it",
    "u": r"write four hexadecimal digits, or \u{...}",
    "c": "write a letter after it",
    "p": r"write a property in braces, such as \p{L}",
    "P": r"write a property in braces, such as \P{L}",
    "k": "backreferences are not regular",
}


@dataclass(slots=True)
class _Group:
    """An open group: its alternatives so far, and the terms of the current one."""

    kind: str
    position: int
    flags: frozenset[str] = frozenset()
    alternatives: list[ir.Regex] = field(default_factory=list)
    terms: list[ir.Regex] = field(default_factory=list)

    def close(self) -> ir.Regex:
        self.alternatives.append(_seq(self.terms))
        if len(self.alternatives) == 1:
            return self.alternatives[0]
        return ir.Alternate(tuple(self.alternatives))


def parse(pattern: str) -> ir.Regex:
    """Return the tree of ``pattern`` for a match at one place; the caller adds the search.

    Raises:
        PatternError: malformed, or a backreference.
        UnsupportedFeature: a flag in the syntax of other dialects: ``(?i)``.
    """
    parser = _Parser(pattern)
    try:
        tree = parser.parse()
        if parser.lenient_at is None:
            return tree
    except (PatternError, UnsupportedFeature):
        _refuse_sets(pattern)
        raise
    _refuse_sets(pattern)
    return tree


def _refuse_sets(pattern: str) -> None:
    """Check a pattern that flag ``u`` refuses for classes in the notation of flag ``v``.

    Raises:
        UnsupportedFeature: it has such classes.
    """
    depth = 0
    before = ""
    for found in _SET_PARTS.finditer(pattern):
        token = found[0]
        is_operator = token in ("--", "&&")
        beside = (
            before == "]" or before[:2] in _SETS or pattern.startswith(("[", "\\"), found.end())
        )
        if depth and (token == "\\q{" or (is_operator and beside)):
            raise UnsupportedFeature(
                f"Set notation in a class, flag v of ECMA-262, at position {found.start()} of "
                f"{pattern!r}.",
                fix="Write a lookahead: (?![aeiou])[a-z] for [[a-z]--[aeiou]], and "
                "(?=[aeiou])[a-z] for [[a-z]&&[aeiou]]; write alternatives for \\q{...}.",
            )
        depth += (token == "[") - (token == "]" and depth > 0)
        before = token


def _seq(terms: list[ir.Regex]) -> ir.Regex:
    return terms[0] if len(terms) == 1 else ir.Concat(tuple(terms))


class _Parser:
    """A cursor over the pattern, and a stack of open groups instead of recursion.

    Attributes:
        pattern: the whole pattern.
        i: the current position.
        flags: the flags at this position.
        lenient_at: the last position that flag ``u`` would refuse, None if there is none.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.i = 0
        self.lenient_at: int | None = None
        self.flags: frozenset[str] = frozenset()

    def parse(self) -> ir.Regex:
        """Return the tree of the whole pattern."""
        stack = [_Group("", 0, self.flags)]
        pattern = self.pattern
        while self.i < len(pattern):
            at = self.i
            char = pattern[at]
            group = stack[-1]
            self.i += 1
            if char == "(":
                outer = self.flags
                stack.append(_Group(self.group_kind(at), at, outer))
                continue
            if char == ")":
                if len(stack) == 1:
                    raise self.error(r"this ) closes no group; write \) for the character", at)
                stack.pop()
                self.flags = group.flags
                body = group.close()
                term, quantifiable = body, True
                if group.kind:
                    quantifiable = not group.kind.startswith("<")
                    look = ir.Lookahead if quantifiable else ir.Lookbehind
                    term = look(body, group.kind.endswith("!"))
                stack[-1].terms.append(self.quantified(term, quantifiable))
            elif char == "|":
                group.alternatives.append(_seq(group.terms))
                group.terms = []
            elif char in "*+?" or (char == "{" and self.braces(at) is not None):
                raise self.error(
                    f"nothing to repeat before this {char}; write \\{char} for the character", at
                )
            elif char in "^$":
                anchor: ir.Regex = ir.StartAnchor() if char == "^" else ir.EndAnchor()
                if "m" in self.flags:
                    end = ir.Alternate((anchor, unicode_sets.ECMA_LINE_TERMINATORS))
                    look = ir.Lookbehind if char == "^" else ir.Lookahead
                    anchor = look(end, False)
                group.terms.append(self.quantified(anchor, False))
            elif char == "\\" and pattern[self.i : self.i + 1] in ("b", "B"):
                self.i += 1
                boundary = word_boundary(self.fold(unicode_sets.ECMA_WORD), pattern[at + 1] == "B")
                group.terms.append(self.quantified(boundary, False))
            else:
                group.terms.append(self.quantified(self.character(char, at), True))
        if len(stack) > 1:
            raise self.error("this group is not closed", stack[-1].position)
        return stack[0].close()

    def error(self, what: str, position: int, is_valid: bool = False) -> PatternError:
        """Return an error about ``position``."""
        return PatternError(
            f"ECMA-262 regular expression: {what}",
            pattern=self.pattern,
            position=position,
            is_valid=is_valid,
        )

    def group_kind(self, at: int) -> str:
        """Read the kind of a group after its parenthesis: "" for a group, else ``= ! <= <!``."""
        if not self.pattern.startswith("?", self.i):
            return ""
        for kind in ("=", "!", "<=", "<!"):
            if self.pattern.startswith("?" + kind, self.i):
                self.i += 1 + len(kind)
                return kind
        if self.pattern.startswith("?:", self.i):
            self.i += 2
            return ""
        if self.pattern.startswith("?<", self.i):
            end = self.pattern.find(">", self.i)
            name = self.pattern[self.i + 2 : end]
            if end < 0 or not name.replace("$", "_").isidentifier():
                raise self.error("invalid group name", at)
            self.i = end + 1
            return ""
        following = self.pattern[self.i + 1 : self.i + 2]
        if following in tuple("ims-"):
            self.modifiers(at)
            return ""
        hint = {"P": "; write (?<name>...)", ">": "; atomic groups are not ECMA-262"}
        raise self.error(f"invalid group{hint.get(following, '')}", at)

    def modifiers(self, at: int) -> None:
        """Read ``?ims-ims:`` and change the flags until the group ends."""
        found = _MODIFIERS.match(self.pattern, self.i)
        if re.match(r"\?[ims]+\)", self.pattern[self.i : self.i + 5]):
            raise UnsupportedFeature(
                f"Flags without a group are not ECMA-262, at position {at} of {self.pattern!r}.",
                fix="Write the group that they apply to: (?i:...).",
            )
        if found is None:
            raise self.error(
                "flags are any of i, m and s; those after - are switched off; they apply inside "
                "their group: (?i:abc)",
                at,
            )
        added, removed = found[1], found[2] or ""
        letters = added + removed
        if len(set(letters)) < len(letters) or not letters:
            raise self.error("give each flag once, and at least one", at)
        self.flags = self.flags.union(added).difference(removed)
        self.i = found.end()

    def fold(self, chars: ir.CharSet) -> ir.CharSet:
        """Return ``chars`` plus, if case is ignored, characters that differ only by case."""
        return unicode_sets.folded(chars) if "i" in self.flags else chars

    def quantified(self, term: ir.Regex, quantifiable: bool) -> ir.Regex:
        """Return ``term`` with the following quantifier, if any."""
        at = self.i
        char = self.pattern[at : at + 1]
        counts: tuple[int, int | None] | None = None
        if char in ("*", "+", "?"):
            self.i += 1
            counts = (1 if char == "+" else 0, 1 if char == "?" else None)
        elif char == "{":
            braces = self.braces(at)
            if braces is not None:
                counts, self.i = braces[:2], braces[2]
        if counts is None:
            return term
        low, high = counts
        if not quantifiable:
            raise self.error("nothing to repeat: an assertion cannot be quantified", at)
        if high is not None and high < low:
            raise self.error(f"counts out of order: {low} > {high}", at)
        if self.pattern.startswith("?", self.i):  # lazy: the same language
            self.i += 1
        if isinstance(term, ir.Lookahead):
            self.lenient_at = at
            return term if low else ir.EPSILON
        return ir.Repeat(term, low, high)

    def braces(self, at: int) -> tuple[int, int | None, int] | None:
        """Return the counts of ``{m}``, ``{m,}`` or ``{m,n}`` and the offset after, or None."""
        end = self.pattern.find("}", at)
        low, comma, high = self.pattern[at + 1 : end].partition(",")
        if end < 0 or not low or not _DIGITS.issuperset(low + high):
            return None
        if len(low) > 9 or len(high) > 9:
            raise self.error("count too large", at)
        least = int(low)
        if not comma:
            return least, least, end + 1
        return least, int(high) if high else None, end + 1

    def character(self, char: str, at: int) -> ir.Regex:
        """Return the expression that begins with ``char``, which has been read."""
        if char == ".":
            return ir.ANY_CHAR if "s" in self.flags else unicode_sets.ECMA_DOT
        if char == "[":
            return self.char_class(at)
        if char == "\\":
            found = self.escape(at, in_class=False)
            return self.fold(found if isinstance(found, ir.CharSet) else single(found))
        if char in "]{}":
            self.lenient_at = at
        return self.fold(single(ord(char)))

    def char_class(self, at: int) -> ir.Regex:
        """Return the class whose bracket, at ``at``, has been read; moves past it."""
        pattern = self.pattern
        negate = pattern.startswith("^", self.i)
        self.i += negate
        ranges: list[tuple[int, int]] = []
        while True:
            if self.i >= len(pattern):
                raise self.error("this class is not closed", at)
            if pattern[self.i] == "]":
                self.i += 1
                break
            start = self.i
            plain = _CLASS_ITEM.match(pattern, start)
            if plain is not None:
                first, last = plain.groups()
                low_point = _point(first)
                high_point = low_point if last is None else _point(last)
                if low_point <= high_point:
                    ranges.append((low_point, high_point))
                    self.i = plain.end()
                    continue
            low = self.class_atom()
            dash = self.i
            if pattern.startswith("-", dash) and not pattern.startswith("-]", dash):
                self.i += 1
                if self.i >= len(pattern):
                    raise self.error("this class is not closed", at)
                high = self.class_atom()
                if isinstance(low, int) and isinstance(high, int):
                    if high < low:
                        raise self.error("range out of order", start)
                    ranges.append((low, high))
                    continue
                self.lenient_at = dash
                ranges.append((0x2D, 0x2D))
                ranges.extend(_ranges(high))
            ranges.extend(_ranges(low))
        chars = self.fold(ir.char_set(ranges))
        return ir.negate(chars) if negate else chars

    def class_atom(self) -> int | ir.CharSet:
        """Return a code point or set inside a class; moves past it."""
        at = self.i
        self.i += 1
        if self.pattern[at] == "\\":
            return self.escape(at, in_class=True)
        return ord(self.pattern[at])

    def escape(self, at: int, in_class: bool) -> int | ir.CharSet:
        """Return the code point or set of the escape at ``at``, and move past it."""
        if self.i >= len(self.pattern):
            raise self.error(r"a lone backslash at the end; write \\ for the character", at)
        char = self.pattern[self.i]
        following = self.pattern[self.i + 1 : self.i + 2]
        self.i += 1
        if char == "W":
            # Not the folded non-word characters, but the characters that fold to non-word
            # characters.
            return ir.negate(self.fold(unicode_sets.ECMA_WORD))
        if char in _CLASS_ESCAPES:
            return _CLASS_ESCAPES[char]
        if char in _CONTROL_ESCAPES:
            return _CONTROL_ESCAPES[char]
        if char == "b" and in_class:
            return 0x08
        if char == "c" and following and following in _LETTERS:
            self.i += 1
            return ord(following) % 32
        if char == "0" and following not in _DIGITS:
            return 0
        if char == "x":
            value = self.hex_digits(self.i, 2)
            if value is not None:
                self.i += 2
                return value
        if char == "u":
            code_point = self.unicode_escape()
            if code_point is not None:
                return code_point
        if char in "pP" and following == "{":
            return self.property(at, char == "P")
        if char in "123456789" or (char == "k" and following == "<"):
            if not in_class:
                raise self.error(
                    "a backreference, which no regular language can express; spell out the "
                    r"alternatives (for the character, write \xHH)",
                    at,
                    is_valid=True,
                )
            raise self.error(r"digits cannot be escaped; write \xHH", at)
        if char in _LETTERS or char in _DIGITS:
            hint = _HINTS.get(char, r"octal escapes are not allowed; write \xHH")
            if char in _LETTERS and char not in _HINTS:
                hint = f"for the letter, write {char}"
            raise self.error(f"\\{char} has no meaning; {hint}", at)
        if char not in (_SYNTAX | {"-"} if in_class else _SYNTAX):
            self.lenient_at = at
        return ord(char)

    def hex_digits(self, at: int, count: int) -> int | None:
        """Return the value of ``count`` hexadecimal digits at ``at``, or None."""
        digits = self.pattern[at : at + count]
        return int(digits, 16) if len(digits) == count and _HEX.issuperset(digits) else None

    def unicode_escape(self) -> int | None:
        r"""Read the digits after ``\u``: four (twice for a surrogate pair), or some in braces."""
        if self.pattern.startswith("{", self.i):
            end = self.pattern.find("}", self.i)
            digits = self.pattern[self.i + 1 : end]
            if end < 0 or not digits or not _HEX.issuperset(digits):
                return None
            value = int(digits.lstrip("0")[:7] or "0", 16)
            if value > ir.MAX_CODE_POINT:
                raise self.error("code point beyond 10FFFF", self.i - 2)
            self.i = end + 1
            return value
        unit = self.hex_digits(self.i, 4)
        if unit is None:
            return None
        self.i += 4
        if 0xD800 <= unit <= 0xDBFF and self.pattern.startswith("\\u", self.i):
            low = self.hex_digits(self.i + 2, 4)
            if low is not None and 0xDC00 <= low <= 0xDFFF:
                self.i += 6
                return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
        return unit

    def property(self, at: int, negate: bool) -> ir.CharSet:
        r"""Return the set of the ``\p{...}`` whose backslash is at ``at``; moves past it."""
        end = self.pattern.find("}", at)
        name, equals, value = self.pattern[at + 3 : end].partition("=")
        found = None
        if end >= 0:
            found = unicode_sets.unicode_property(name, value if equals else None)
        if found is None:
            raise self.error("unknown Unicode property", at)
        self.i = end + 1
        return ir.negate(found) if negate else found


@lru_cache(maxsize=512)
def single(code_point: int) -> ir.CharSet:
    """Return the set of one code point."""
    return ir.char_set([(code_point, code_point)])


def _point(atom: str) -> int:
    """Return the code point of a character, or of a four-digit escape."""
    return ord(atom) if len(atom) == 1 else int(atom[2:], 16)


def _ranges(atom: int | ir.CharSet) -> ir.Ranges:
    return atom.ranges if isinstance(atom, ir.CharSet) else ((atom, atom),)
