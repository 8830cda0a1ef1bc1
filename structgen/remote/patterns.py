"""Regular expressions and grammars of the IR, written so that servers read them.

Owns two notations: a regular expression in the plain syntax that all engines share (characters,
classes, groups, ``|``, repeats), and GBNF, which llama.cpp, vLLM and SGLang read. What neither can
say (complements, lookarounds, checksums) is refused with `CannotSay`; nothing is approximated
without being told. Knows no server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from structgen.grammar import ir
from structgen.grammar import regex as regexes

_PLAIN_SPECIAL = frozenset(".^$*+?()[]{}|\\/")
_CLASS_SPECIAL = frozenset("[]^-\\")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}

_SCALARS = {
    "integer": r"-?(?:0|[1-9][0-9]{0,19})",
    "number": r"-?(?:0|[1-9][0-9]{0,19})(?:\.[0-9]{1,20})?",
    "boolean": "true|false",
    "null": "null",
}
"""Bare scalars as they are written in JSON: narrower than JSON has them, so all of it is valid."""


class CannotSay(Exception):
    """The notation has no words for this."""


def as_pattern(grammar: ir.Grammar) -> str:
    """The texts of a grammar as one regular expression, which is to match from end to end.

    Raises:
        CannotSay: it has rules, or a part that plain regular expressions cannot say.
    """
    return _plain(regex_of(grammar))


def pattern_of(regex: ir.Regex) -> str:
    """A regular expression in plain syntax.

    Raises:
        CannotSay: it has a part that has no such syntax.
    """
    return _plain(regex)


def regex_of(grammar: ir.Grammar) -> ir.Regex:
    """The texts of a grammar that is regular.

    Raises:
        CannotSay: it is not, or it is JSON other than a bare scalar.
    """
    if isinstance(grammar, ir.Pattern):
        return grammar.regex
    if isinstance(grammar, ir.Choice):
        texts = tuple(map(ir.literal, grammar.texts))
        return texts[0] if len(texts) == 1 else ir.Alternate(texts)
    if isinstance(grammar, ir.Either):
        return ir.Alternate(tuple(map(regex_of, grammar.parts)))
    if isinstance(grammar, ir.Sequence):
        return ir.Concat(tuple(map(regex_of, grammar.parts)))
    if isinstance(grammar, ir.Json):
        return _scalar(grammar.schema)
    raise CannotSay("a grammar")


def _scalar(schema: Any) -> ir.Regex:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, str) and kind in _SCALARS and not set(schema) - _SAYS_NOTHING:
        return regexes.parse_python(_SCALARS[kind])
    raise CannotSay("JSON beside text")


_SAYS_NOTHING = {"type", "title", "description", "default", "examples", "$structgen-digits"}


def _plain(regex: ir.Regex) -> str:
    return _Writer(_plain_literal, _plain_class, group="(?:{})", between="").whole(regex)


@dataclass(frozen=True)
class _Writer:
    """Writes expressions in one notation.

    Attributes:
        literal: a run of characters.
        one_of: a set of characters, not of one.
        group: puts an expression into parentheses.
        between: what stands between two that follow one another.
    """

    literal: Callable[[str], str]
    one_of: Callable[[ir.CharSet], str]
    group: str
    between: str

    def whole(self, regex: ir.Regex) -> str:
        """An expression that may be an alternation."""
        if isinstance(regex, ir.Alternate):
            if not regex.parts:
                raise CannotSay("a part that no text matches")
            return (self.between + "|" + self.between).join(map(self._in_a_row, regex.parts))
        return self._in_a_row(regex)

    def _in_a_row(self, regex: ir.Regex) -> str:
        if isinstance(regex, ir.Alternate):
            return self.group.format(self.whole(regex))
        if not isinstance(regex, ir.Concat):
            return self._item(regex)
        out: list[str] = []
        run = ""
        for part in _flat(regex):
            single = _single(part)
            if single is not None:
                run += single
                continue
            if run:
                out.append(self.literal(run))
                run = ""
            out.append(self._item(part))
        if run or not out:
            out.append(self.literal(run))
        return self.between.join(out)

    def _item(self, regex: ir.Regex) -> str:
        """Something that a repeat may stand behind."""
        single = _single(regex)
        if single is not None:
            return self.literal(single)
        if isinstance(regex, ir.CharSet):
            if not regex.ranges:
                raise CannotSay("a part that no text matches")
            return self.one_of(regex)
        if isinstance(regex, ir.Repeat):
            body = regex.body
            if isinstance(body, ir.CharSet) or _single(body) is not None:
                inner = self._item(body)
            else:
                inner = self.group.format(self.whole(body))
            return inner + _times(regex.min, regex.max)
        if isinstance(regex, (ir.Concat, ir.Alternate)):
            return self.group.format(self.whole(regex))
        raise CannotSay(_CALLED[type(regex)])


_CALLED: dict[type, str] = {
    ir.Intersect: "an intersection",
    ir.Complement: "a complement",
    ir.Checksum: "a checksum",
    ir.StartAnchor: "an anchor inside",
    ir.EndAnchor: "an anchor inside",
    ir.Lookahead: "a lookahead",
    ir.Lookbehind: "a lookbehind",
}


def _flat(regex: ir.Concat) -> Sequence[ir.Regex]:
    out: list[ir.Regex] = []
    for part in regex.parts:
        if isinstance(part, ir.Concat):
            out += _flat(part)
        else:
            out.append(part)
    return out


def _single(regex: ir.Regex) -> str | None:
    """The character that a set of one holds."""
    if isinstance(regex, ir.CharSet) and len(regex.ranges) == 1:
        low, high = regex.ranges[0]
        if low == high:
            return chr(low)
    return None


def _times(least: int, most: int | None) -> str:
    if (least, most) == (0, None):
        return "*"
    if (least, most) == (1, None):
        return "+"
    if (least, most) == (0, 1):
        return "?"
    if most is None:
        return f"{{{least},}}"
    return f"{{{least}}}" if least == most else f"{{{least},{most}}}"


def _plain_literal(text: str) -> str:
    return "".join(_character(c, _PLAIN_SPECIAL) for c in text)


def _character(char: str, special: frozenset[str]) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if ord(char) < 32 or ord(char) == 127:
        return f"\\x{ord(char):02x}"
    return f"\\{char}" if char in special else char


def _plain_class(chars: ir.CharSet) -> str:
    others = ir.negate(chars)
    if not others.ranges:
        return r"[\s\S]"
    if _is_open(chars):
        return f"[^{_ranges(others, _in_class)}]"
    return f"[{_ranges(chars, _in_class)}]"


def _is_open(chars: ir.CharSet) -> bool:
    """Whether the set is said by what it leaves out."""
    return chars.ranges[-1][1] == ir.MAX_CODE_POINT


def _in_class(char: str) -> str:
    return _character(char, _CLASS_SPECIAL)


def _ranges(chars: ir.CharSet, write: Callable[[str], str]) -> str:
    out = []
    for low, high in chars.ranges:
        out.append(write(chr(low)))
        if high > low:
            out.append(("-" if high > low + 1 else "") + write(chr(high)))
    return "".join(out)


# -- GBNF -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gbnf:
    """A grammar in GBNF.

    Attributes:
        text: it.
        is_exact: whether it derives the same texts; otherwise it derives these and more.
    """

    text: str
    is_exact: bool


def as_gbnf(grammar: ir.Grammar) -> Gbnf:
    """The texts of a grammar in GBNF.

    Raises:
        CannotSay: some part of it has no words there.
    """
    if isinstance(grammar, ir.ContextFree):
        return _rules(grammar)
    return Gbnf(f"root ::= {_gbnf(regex_of(grammar))}\n", is_exact=True)


def _gbnf(regex: ir.Regex) -> str:
    return _Writer(_quoted, _gbnf_class, group="({})", between=" ").whole(regex)


def _quoted(text: str) -> str:
    return '"' + "".join(_character(c, frozenset('"\\')) for c in text) + '"'


def _gbnf_class(chars: ir.CharSet) -> str:
    others = ir.negate(chars)
    if not others.ranges:
        return r"[^\x00]"  # there is no way to say all of them, and no text has this one
    if _is_open(chars):
        return f"[^{_ranges(others, _in_gbnf_class)}]"
    return f"[{_ranges(chars, _in_gbnf_class)}]"


def _in_gbnf_class(char: str) -> str:
    return f"\\x{ord(char):02x}" if char in "^-[]\\" else _character(char, frozenset())


def _rules(grammar: ir.ContextFree) -> Gbnf:
    is_exact = not grammar.ignore
    written: list[str] = []
    for terminal in grammar.terminals:
        if not isinstance(terminal, ir.Terminal):
            raise CannotSay(f"{terminal.name}, a text of another type or a special token, inside")
        regex = regexes.parse_python(terminal.pattern, terminal.flags)
        is_text = isinstance(regex, ir.Concat) and all(map(_single, _flat(regex)))
        is_exact = is_exact and (terminal.splits or is_text or _single(regex) is not None)
        written.append(f"({_gbnf(regex)})")
    gap = "gap" if grammar.ignore else ""
    names = [
        ("start" if gap else "root") if n == grammar.start else f"r{n}-{_ascii(name)}".rstrip("-")
        for n, name in enumerate(grammar.nonterminals)
    ]
    ways: dict[int, list[str]] = {}
    for number, symbols in grammar.rules:
        row = [f"{written[s]} {gap}".strip() if s >= 0 else names[~s] for s in symbols]
        ways.setdefault(number, []).append(" ".join(row) or '""')
    order = sorted(ways, key=lambda n: n != grammar.start)
    lines = [f"{names[n]} ::= {' | '.join(ways[n])}" for n in order]
    if gap:
        ignored = " | ".join(written[i] for i in grammar.ignore)
        lines = ["root ::= gap start", *lines, f"gap ::= ({ignored})*"]
    return Gbnf("\n".join(lines) + "\n", is_exact)


def _ascii(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-")


def is_left_recursive(grammar: ir.Grammar) -> bool:
    """Whether a rule begins with itself, which llama.cpp cannot read."""
    if not isinstance(grammar, ir.ContextFree):
        return False
    empty: set[int] = set()
    while True:
        found = {n for n, symbols in grammar.rules if all(s < 0 and ~s in empty for s in symbols)}
        if found <= empty:
            break
        empty |= found
    first: dict[int, set[int]] = {}
    for number, symbols in grammar.rules:
        for symbol in symbols:
            if symbol >= 0:
                break
            first.setdefault(number, set()).add(~symbol)
            if ~symbol not in empty:
                break
    for number in first:
        seen: set[int] = set()
        stack = list(first[number])
        while stack:
            at = stack.pop()
            if at not in seen:
                seen.add(at)
                stack.extend(first.get(at, ()))
        if number in seen:
            return True
    return False
