"""Texts that Lark would be without end at, told or mended before it reads them.

Lark multiplies out what is optional, alternatives inside sequences and counted repeats, and makes a
rule of a template for each list of arguments: both can be more than any machine holds. `bounded`
makes rules of the parts of a rule that would have too many alternatives, which changes the tree and
not the language, and refuses templates that lead to ever more of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from structgen.errors import CompileLimitExceeded

from . import syntax
from .statements import Statement, statements
from .syntax import Item, Way

MAX_WAYS = 2_000
"""Most alternatives of one rule that Lark is to multiply out."""

MAX_INSTANCES = 1_000
"""Most rules that templates may come to."""

_MAX_LENGTH = 5_000
"""Most characters that a template with its arguments is written with, these written out."""

_FEW = 16
"""Most alternatives that are left to a sequence that had more than `MAX_WAYS`."""


def bounded(text: str, is_imported: bool = False) -> tuple[str, str]:
    """A Lark text for the same language, of which Lark makes a bounded number of rules.

    Args:
        text: the text.
        is_imported: whether templates may be used that are not used in it.

    Returns:
        The text, and how the names of the rules begin that have been made of parts of others, with
        which no other name begins.

    Raises:
        CompileLimitExceeded: templates are used with ever more arguments.
    """
    found: list[tuple[Statement, tuple[Way, ...]]] = []
    for statement in statements(text):
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
                self._size_of_way(way, given)
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


def _check_templates(found: list[tuple[Statement, tuple[Way, ...]]], is_imported: bool) -> None:
    """Look whether templates come to an end.

    Args:
        found: rules and templates.
        is_imported: see `bounded`; then templates are looked at with their parameters, too.

    Raises:
        CompileLimitExceeded: they do not, or late.
    """
    templates = {s.name: (s.parameters, ways) for s, ways in found if s.parameters}
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
            parameters, body = templates[name]
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
