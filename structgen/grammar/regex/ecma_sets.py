r"""ECMA-262's set notation, flag ``v``, and which of its flags a pattern is read with.

Owns `parse`, the way in for ECMA-262's patterns, and the classes of flag ``v``: nested ones, union,
``--`` (difference), ``&&`` (intersection), ``\q{abc|d}`` (strings). Outside of classes the syntax
is that of flag ``u``, which `ecma` knows.

A pattern is read as flag ``u`` reads it. What that refuses is read as flag ``v`` does, where all of
it is v's syntax and some class has an operator or strings; else as `ecma` describes. So ``[a&&b]``
is one of three characters, as flag ``u`` has it, and ``[[a-z]&&[b]]`` is b. A class with an
operator beside a class in brackets means sets: where flag ``v`` refuses it, that is the error, for
without flags it would be another language altogether.
"""

from __future__ import annotations

from dataclasses import dataclass

from structgen.errors import PatternError, UnsupportedFeature
from structgen.grammar import ir

from . import ecma
from .tree import Alt, Seq, Tree

MAX_NESTED = 100
"""Most classes inside each other."""

_OPERATORS = ("--", "&&")
_MARKS = (*_OPERATORS, "\\q{")
_PUNCTUATORS = "&-!#%,:;<=>@`~"
_DOUBLED = frozenset(2 * char for char in "&!#$%*+,.:;<=>?@^`~")
_RESERVED = frozenset("()[]{}/-|")


@dataclass(frozen=True, slots=True)
class _Set:
    """What a class matches.

    Attributes:
        chars: single characters; closed under case folding where case is ignored.
        strings: other strings, each by the sets of its characters.
        may_hold_strings: whether the syntax lets it have strings, which forbids to negate it.
    """

    chars: ir.CharSet
    strings: frozenset[tuple[ir.CharSet, ...]] = frozenset()
    may_hold_strings: bool = False


def parse(pattern: str) -> Tree:
    """The tree of ``pattern``, meaning a match at one place; the caller adds the search.

    Raises:
        PatternError: malformed, or a backreference.
        UnsupportedFeature: a flag as elsewhere than in ECMA-262: ``(?i)``.
    """
    plain = ecma.Parser(pattern)
    error: PatternError | UnsupportedFeature | None = None
    tree: Tree | None = None
    try:
        tree = plain.parse()
    except (PatternError, UnsupportedFeature) as found:
        error = found
    is_strict = tree is not None and plain.lenient_at is None
    if not is_strict and any(map(pattern.__contains__, _MARKS)):
        sets = _SetParser(pattern)
        try:
            as_sets = sets.parse()
            if sets.has_operator and sets.lenient_at is None:
                return as_sets
            if sets.is_meant and sets.lenient_at is not None:
                raise sets.error(
                    "set notation in a class asks for flag v, which refuses this: of what is no "
                    "letter only syntax takes a backslash, and lone brackets and braces need one",
                    sets.lenient_at,
                )
        except PatternError:
            if sets.is_meant:
                raise
    if tree is None:
        assert error is not None
        raise error
    return tree


class _SetParser(ecma.Parser):
    r"""As flag ``v`` reads.

    Attributes:
        has_operator: whether a class with ``--``, ``&&`` or ``\q`` has been read.
        is_meant: whether an operator stands beside a class in brackets, or there are strings.
    """

    class_escapes = ecma.Parser.class_escapes | frozenset(_PUNCTUATORS)

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.has_operator = False
        self.is_meant = False
        self.depth = 0

    def char_class(self, at: int) -> Tree:
        found = self.nested(at)
        strings = [Seq(string) for string in sorted(found.strings, key=len, reverse=True)]
        return Alt((*strings, found.chars)) if strings else found.chars

    def without(self, chars: ir.CharSet) -> ir.CharSet:
        # Flag u folds what is without the property; flag v what has it.
        return ir.negate(self.fold(chars))

    def nested(self, at: int) -> _Set:
        """A class whose bracket is at ``at``; moves past its end."""
        self.depth += 1
        if self.depth > MAX_NESTED:
            self.is_meant = True
            raise self.error(f"more than {MAX_NESTED} classes inside each other", at)
        negate = self.starts("^")
        self.i += negate
        found = self.contents(at)
        self.depth -= 1
        if not negate:
            return found
        if found.may_hold_strings:
            raise self.error("a class that may hold strings cannot be negated", at)
        return _Set(ir.negate(found.chars))

    def contents(self, at: int) -> _Set:
        found = _Set(ir.char_set([]))
        part: _Set | int | tuple[int, int] = found
        count = 0
        while True:
            self.check_open(at)
            if self.starts("]"):
                break
            begin = self.i
            operator = self.pattern[begin : begin + 2]
            if operator in _OPERATORS:
                closed = self.starts("]", begin - 1) and not self.starts("\\", begin - 2)
                beside = closed or self.starts(("[", "\\q"), begin + 2)
                self.is_meant |= beside
                if count != 1 or isinstance(part, tuple):
                    raise self.error(
                        f"of several operands, or a range, {operator} takes none; put each side in "
                        f"brackets: [[a-z]{operator}[aeiou]]",
                        begin,
                    )
                found = self.operated(operator, found, at)
                break
            part = self.operand()
            count += 1
            if isinstance(part, int) and self.starts("-") and not self.starts("--"):
                self.i += 1
                self.check_open(at)
                high = self.operand()
                if not isinstance(high, int):
                    raise self.error("a range ends with a character", begin)
                if high < part:
                    raise self.error("range out of order", begin)
                part = (part, high)
            more = self.as_set(part)
            found = _Set(
                ir.char_set([*found.chars.ranges, *more.chars.ranges]),
                found.strings | more.strings,
                found.may_hold_strings or more.may_hold_strings,
            )
        self.check_open(at)
        self.i += 1
        return found

    def operated(self, operator: str, found: _Set, at: int) -> _Set:
        """``found`` without, or in common with, all operands that follow."""
        self.has_operator = True
        while self.starts(operator):
            self.i += 2
            self.check_open(at)
            if operator == "&&" and self.starts("&"):
                raise self.error("&&& is no operator", self.i - 2)
            self.is_meant |= self.starts(("[", "\\q"))
            other = self.as_set(self.operand())
            if operator == "--":
                chars = _common(found.chars, ir.negate(other.chars))
                found = _Set(chars, found.strings - other.strings, found.may_hold_strings)
            else:
                found = _Set(
                    _common(found.chars, other.chars),
                    found.strings & other.strings,
                    found.may_hold_strings and other.may_hold_strings,
                )
            self.check_open(at)
        if not self.starts("]"):
            raise self.error(
                f"between operands of {operator} there is nothing else; put what belongs together "
                "in brackets",
                self.i,
            )
        return found

    def operand(self) -> _Set | int:
        """A class, an escape for one, strings, or a character; moves past it."""
        at = self.i
        char = self.pattern[at]
        self.i += 1
        if char == "[":
            return self.nested(at)
        if char == "\\":
            if self.starts("q{"):
                return self.strings(at)
            found = self.escape(at, in_class=True)
            return found if isinstance(found, int) else _Set(self.fold(found))
        if char in _RESERVED or self.pattern[at : at + 2] in _DOUBLED:
            raise self.error(f"set notation reserves this {char}; write \\{char}", at)
        return ord(char)

    def strings(self, at: int) -> _Set:
        r"""What follows the backslash of ``\q{...}``, at ``at``."""
        self.i += 2
        self.has_operator = self.is_meant = True
        texts: list[list[ir.CharSet]] = [[]]
        while True:
            if self.i >= len(self.pattern):
                raise self.error(r"this \q{ is never closed", at)
            begin = self.i
            if self.starts("}"):
                self.i += 1
                break
            if self.starts("|"):
                self.i += 1
                texts.append([])
                continue
            char = self.operand() if not self.starts(("[", "\\q")) else None
            if not isinstance(char, int):
                raise self.error(r"\q{...} takes characters only", begin)
            texts[-1].append(self.fold(ecma.single(char)))
        ranges = [pair for text in texts if len(text) == 1 for pair in text[0].ranges]
        strings = frozenset(tuple(text) for text in texts if len(text) != 1)
        return _Set(ir.char_set(ranges), strings, bool(strings))

    def as_set(self, part: _Set | int | tuple[int, int]) -> _Set:
        if isinstance(part, _Set):
            return part
        return _Set(self.fold(ir.char_set([part if isinstance(part, tuple) else (part, part)])))

    def starts(self, what: str | tuple[str, ...], at: int | None = None) -> bool:
        return self.pattern.startswith(what, self.i if at is None else at)

    def check_open(self, at: int) -> None:
        if self.i >= len(self.pattern):
            raise self.error("this class is never closed", at)


def _common(a: ir.CharSet, b: ir.CharSet) -> ir.CharSet:
    return ir.negate(ir.char_set([*ir.negate(a).ranges, *ir.negate(b).ranges]))
