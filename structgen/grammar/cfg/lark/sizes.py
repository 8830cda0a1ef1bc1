"""Texts that Lark would be without end at, told or mended before it reads them.

Lark multiplies out what is optional, alternatives inside sequences and counted repeats, and makes a
rule of a template for each list of arguments: both can be more than any machine holds. `bounded`
makes rules of the parts of a rule that would have too many alternatives, which changes the tree and
not the language, and refuses templates that lead to ever more of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from structgen.errors import CompileLimitExceeded
from structgen.grammar import reading

from . import syntax
from .statements import Statement, statements
from .syntax import Item, Way

MAX_WAYS = 2_000
"""Most alternatives of one rule that Lark is to multiply out."""

MAX_INSTANCES = 1_000
"""Most rules that templates may come to."""

_MAX_LENGTH = 5_000
"""Most characters that a template with its arguments is written with, these written out."""

_STEPS = 8
"""Steps for each character that Lark reads: up to 30 µs."""

_BLANKS = re.compile(r"\s{64,}")
"""What Lark looks at in the square of its length, 400 characters to a step."""

_MOST_NODES = 1 << 40
"""More parts of terminals than any machine holds."""

_FEW = 16
"""Most alternatives that are left to a sequence that had more than `MAX_WAYS`."""


def spend(text: str) -> None:
    """Count the work of one time that Lark reads ``text``; see `reading.spend`."""
    reading.spend_text(text, _STEPS)
    squares = sum(len(blanks) ** 2 for blanks in _BLANKS.findall(text))
    reading.spend(squares // 400, "the grammar has too many blank lines in a row; leave them out")


def bounded(text: str, is_imported: bool = False) -> tuple[str, str]:
    """A Lark text for the same language, of which Lark makes a bounded number of rules.

    Args:
        text: the text.
        is_imported: whether templates may be used that are not used in it.

    Returns:
        The text, and how the names of the rules begin that have been made of parts of others, with
        which no other name begins.

    Raises:
        CompileLimitExceeded: templates are used with ever more arguments, or Lark would make more
            of the text than may be.
    """
    found: list[tuple[Statement, tuple[Way, ...]]] = []
    every = statements(text)
    _check_terminals([statement for statement in every if statement.kind == "terminal"])
    for statement in every:
        if statement.kind == "rule":
            try:
                found.append((statement, syntax.ways(statement.body)))
            except (syntax.UnexpectedToken, RecursionError):
                continue  # which Lark refuses
    _check_templates(found, is_imported)
    parts = _Parts(text)
    for statement, ways in found:
        parts.look_at(statement, ways)
    return parts.text(), parts.prefix


class _Parts:
    """The parts of a text's rules of which rules are made.

    Args:
        text: the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.prefix = "part_of_rule_"
        while self.prefix in text:
            self.prefix += "_"
        self._made: dict[tuple[int, int], str] = {}
        """By where parts stand: what stands for them."""

    def look_at(self, statement: Statement, ways: tuple[Way, ...]) -> None:
        """Make rules of the parts of a rule where it has too many alternatives."""
        given = f"{{{', '.join(statement.parameters)}}}" if statement.parameters else ""
        try:
            for way in ways:
                count = self._size_of_way(way, given)
                if count > 1:
                    reading.spend(
                        count * len(way.items),
                        "what is optional or has alternatives, each beside each other, comes to "
                        "too many rules; make rules of parts of it",
                        f"rule {statement.name}",
                    )
        except (RecursionError, ValueError):
            pass  # which Lark refuses, too: a count may have more digits than any number

    def text(self) -> str:
        """The text with all these rules."""
        if not self._made:
            return self._text
        rules = [f"{name}: {self._written(*span, True)}" for span, name in self._made.items()]
        return "\n".join([self._written(0, len(self._text)), "", *rules, ""])

    def _written(self, begin: int, end: int, is_inside: bool = False) -> str:
        """What stands somewhere, with the names of rules for the parts of which these are made."""
        out: list[str] = []
        for first, last in sorted(self._made, key=lambda span: (span[0], -span[1])):
            if begin <= first and last <= end and not (is_inside and (first, last) == (begin, end)):
                out += [self._text[begin:first], f" {self._made[first, last]} "]
                begin = last
        return "".join([*out, self._text[begin:end]])

    def _size_of_way(self, way: Way, given: str) -> int:
        sizes = [self._size(item, given) for item in way.items]
        if math.prod(sizes) <= MAX_WAYS:
            return math.prod(sizes)
        size = 1
        for item, several in sorted(zip(way.items, sizes, strict=True), key=lambda pair: pair[1]):
            size *= several if size * several <= _FEW else self._apart(item, given)
        return size

    def _apart(self, item: Item, given: str) -> int:
        """Make a rule of a part, which then is one symbol."""
        self._made.setdefault(item.span, f"{self.prefix}{len(self._made)}{given}")
        return 1

    def _size(self, item: Item, given: str) -> int:
        """How many sequences of symbols a part comes to."""
        if item.kind in ("value", "use"):
            return 1
        size = sum(self._size_of_way(way, given) for way in item.inside)
        if item.kind in ("?", "["):
            return size + 1
        if item.kind == "(":
            return size
        if item.kind in ("*", "+"):
            return 2 if item.kind == "*" else 1
        least, most = int(item.tokens[1].text), int(item.tokens[-1].text)
        if size > 1 and (most > MAX_WAYS or size ** max(most, 0) > MAX_WAYS):
            size = self._apart(item.inside[0].items[0], given)
        if size == 1:
            return max(most - least, 0) + 1
        return math.floor(sum(size**count for count in range(max(least, 0), most + 1))) or 1


def _check_terminals(terminals: list[Statement]) -> None:
    """Look how long terminals are with those in them written out, which Lark does.

    Raises:
        CompileLimitExceeded: too long.
    """
    inner = {
        s.name: [token.text for token in s.body if token.kind == "terminal"] for s in terminals
    }
    own = {s.name: len(s.body) for s in terminals}
    # With each terminal how many parts it has, and how many there are in all its parts together:
    # Lark goes through a terminal once for each part of it.
    known: dict[str, tuple[int, int]] = {}
    under_way: set[str] = set()
    for name in inner:
        todo = [(name, iter(inner[name]))]
        while todo:
            name, names = todo[-1]
            following = next(names, None)
            if following in under_way:
                return  # a terminal in itself, which Lark refuses
            if following is not None:
                if following in inner and following not in known:
                    under_way.add(following)
                    todo.append((following, iter(inner[following])))
                continue
            todo.pop()
            under_way.discard(name)
            if name in known:
                continue
            parts = [known[part] for part in inner[name] if part in known]
            size = min(own[name] + sum(part[0] for part in parts), _MOST_NODES)
            work = min(size + sum(part[1] for part in parts), _MOST_NODES)
            known[name] = size, work
            if parts:
                reading.spend(
                    work,
                    "terminals with terminals in them are too long, written out; make rules of "
                    "them (in lower case), or write patterns",
                    f"terminal {name}",
                )


def _check_templates(found: list[tuple[Statement, tuple[Way, ...]]], is_imported: bool) -> None:
    """Look whether templates come to an end.

    Args:
        found: rules and templates.
        is_imported: see `bounded`; then templates are looked at with their parameters, too.

    Raises:
        CompileLimitExceeded: they do not, or late.
    """
    templates = {
        s.name: (s.parameters, ways, s.span[1] - s.span[0]) for s, ways in found if s.parameters
    }
    if not templates:
        return
    seen: set[str] = set()
    todo = [(ways, dict[str, str]()) for s, ways in found if is_imported or not s.parameters]
    while todo:
        ways, given = todo.pop()
        for item in _uses(ways):
            name, *arguments = _shown(item, given)
            shown = f"{name}{{{','.join(arguments)}}}"
            if shown in seen or name not in templates:
                continue
            seen.add(shown)
            if len(seen) > MAX_INSTANCES or len(shown) > _MAX_LENGTH:
                raise CompileLimitExceeded(
                    f"template {name} is used with ever more arguments: inside itself, say, with "
                    "what it is given inside something else; write out the rules that are needed",
                    limit=MAX_INSTANCES,
                    actual=MAX_INSTANCES + 1,
                    path=f"rule {name}",
                )
            parameters, body, length = templates[name]
            reading.spend(
                _STEPS * length,
                "templates come to rules that are too long together; use them less often",
                f"rule {name}",
            )
            todo.append((body, dict(zip(parameters, arguments, strict=False))))


def _uses(ways: tuple[Way, ...]) -> Iterator[Item]:
    """The uses of templates in alternatives."""
    for way in ways:
        for item in way.items:
            if item.kind == "use":
                yield item
            yield from _uses(item.inside)


def _shown(item: Item, given: dict[str, str]) -> list[str]:
    """A value, or a template and its arguments, in which parameters are what is given for them."""
    texts = [given.get(token.text, token.text) for token in item.tokens]
    out = ["..".join(texts)]
    for way in item.inside:
        for argument in way.items:
            name, *arguments = _shown(argument, given)
            out.append(f"{name}{{{','.join(arguments)}}}" if arguments else name)
    return out
