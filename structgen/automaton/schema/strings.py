"""Schema nodes read as regular expressions over the strings that satisfy them.

For a string every requirement comes to one language, whatever applicators and negations it is made
of: and, or and not are parts of an expression, and nothing is multiplied out. Only requirements
that apply themselves in place, without end, have none. What nodes say of other types does not
matter here, and neither does ``unevaluated…``: strings have no parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from structgen.grammar import ir
from structgen.grammar.json_schema import FALSE, STRING, TRUE, Node, bounds
from structgen.grammar.regex import alternate, complement, intersect


def string_regex(nodes: Sequence[Node], with_barred: bool = False) -> ir.Regex | None:
    """The strings that satisfy the string assertions of all ``nodes``, or None for none.

    ``with_barred``: also those strings that ``nodes`` bar one by one; see `excluding`.
    """
    least, most = bounds(nodes, "length")
    if most is not None and least > most:
        return None
    parts = list(dict.fromkeys([pattern for node in nodes for pattern in node.patterns]))
    if not with_barred:
        barred = [ir.literal(v) for n in nodes for v in n.excluded if isinstance(v, str)]
        if barred:
            parts.append(ir.Complement(ir.Alternate(tuple(barred))))
    if least or most is not None:
        parts.append(ir.Repeat(ir.ANY_CHAR, least, most))
    if not parts:
        return ir.ANY_TEXT
    return parts[0] if len(parts) == 1 else ir.Intersect(tuple(parts))


class StringReader:
    """Reads requirements over one growing list of nodes.

    Args:
        nodes: the schema's nodes.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._known: dict[int, ir.Regex | None] = {}

    def read(self, requirement: int) -> ir.Regex | None:
        """The strings that meet ``requirement``, or None if it applies itself in place."""
        if requirement <= FALSE:
            return ir.ANY_TEXT if requirement == TRUE else ir.NOTHING
        number = requirement >> 1
        if number not in self._known:
            self._known[number] = None
            self._known[number] = self._node(self._nodes[number])
        regex = self._known[number]
        return complement(regex) if regex is not None and requirement & 1 else regex

    def read_choice(self, ways: Iterable[Iterable[int]]) -> ir.Regex | None:
        """The strings that meet all requirements of one of ``ways`` at least."""
        found: list[ir.Regex] = []
        for way in ways:
            parts = self._read_each(way)
            if parts is None:
                return None
            found.append(intersect(parts))
        return alternate(found)

    def _read_each(self, requirements: Iterable[int]) -> list[ir.Regex] | None:
        found = [self.read(requirement) for requirement in requirements]
        known = [regex for regex in found if regex is not None]
        return known if len(known) == len(found) else None

    def _node(self, node: Node) -> ir.Regex | None:
        own = string_regex([node])
        if not node.types & STRING or own is None:
            return ir.NOTHING
        parts = self._read_each((*node.refs, *node.all_of))
        choices: list[ir.Regex | None] = []
        if node.any_of is not None:
            choices.append(self.read_choice((child,) for child in node.any_of))
        if node.one_of is not None:
            ways = self._read_each(node.one_of)
            choices.append(None if ways is None else _exactly_one(ways))
        if node.condition is not None:
            test, then, otherwise = node.condition
            choices.append(self.read_choice([(test, then), (test ^ 1, otherwise)]))
        if parts is None or None in choices:
            return None
        parts.append(own)
        if node.enum is not None:
            parts.append(alternate(ir.literal(v) for v in node.enum if isinstance(v, str)))
        return intersect([*parts, *(regex for regex in choices if regex is not None)])


def counts_only(regex: ir.Regex) -> bool:
    """Whether ``regex`` speaks of nothing but how many characters there are."""
    if isinstance(regex, (ir.Alternate, ir.Concat, ir.Intersect)):
        return all(map(counts_only, regex.parts))
    if isinstance(regex, (ir.Complement, ir.Repeat)):
        return counts_only(regex.body)
    return regex == ir.ANY_CHAR


def _exactly_one(parts: Iterable[ir.Regex]) -> ir.Regex:
    """Texts that one part alone matches, in as many steps as there are parts, not pairs of them."""
    none: ir.Regex = ir.ANY_TEXT
    one: ir.Regex = ir.NOTHING
    for part in parts:
        other = complement(part)
        one = alternate([intersect([none, part]), intersect([one, other])])
        none = intersect([none, other])
    return one
