"""Statements of a Lark grammar → its terminals and rules, as Lark's loader makes them.

Owns what `cfg_lark_syntax` reads stands for: which definitions belong together, what a terminal's
pattern is, and which plain rules an expression with options and repeats comes to. Patterns and the
names of literals are made by the classes that Lark's loader makes them with. Rules are what Lark's
loader expands them to, but for how helpers are numbered: ``x+`` is a left-recursive helper, all
else is multiplied out. It is ten times faster, because Lark's works on trees that it visits a dozen
times. Whatever is not plain, most mistakes among it, is `NotPlain`, and for Lark's loader to read.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from typing import Any, NamedTuple

from .syntax import Node, NotPlain, Statement, statements

MAX_ALTERNATIVES = 2_000
"""Most alternatives of one rule, multiplied out; Lark's loader may be asked for more."""

_MAX_REPEATS = 50
"""Lark's loader makes other rules of more repeats than these."""

_PLAIN = re.compile(r"""\"[^"'\\\n\r\0\ud800-\udfff]+\"""")
"""Literals that stand for what is written: the most of them."""

_MARKS = ("[", "-")
_SYMBOLS = ("r", "t", "s", "x", "..")
_UNDER_WAY = object()
_Way = tuple[str, ...]


class Loaded(NamedTuple):
    """A grammar as Lark loads it.

    Attributes:
        terminals: name and pattern (a Lark `Pattern`) of each terminal that is used.
        rules: names of a nonterminal and of the symbols it may consist of.
        nonterminals: their names.
        ignored: names of terminals.
    """

    terminals: list[tuple[str, Any]]
    rules: list[tuple[str, _Way]]
    nonterminals: dict[str, None]
    ignored: list[str]


def load(text: str, start: str) -> Loaded:
    """The grammar of a Lark text.

    Raises:
        NotPlain: Lark's loader has to read it.
    """
    try:
        return _Loading(statements(text)).loaded(start)
    except RecursionError:
        raise NotPlain from None


class _Loading:
    def __init__(self, found: list[Statement]) -> None:
        from lark import load_grammar
        from lark.lexer import TerminalDef

        self._rules: dict[str, Node] = {}
        self._templates: dict[str, tuple[list[str], Node]] = {}
        self._used_templates: set[str] = set()
        self._instances: set[str] = set()
        self._terms: dict[str, Any] = {}  # a node, a pattern, or None when only declared
        self._imported: set[tuple[tuple[str, ...], str]] = set()
        self._ignored: list[str] = []
        self._expanded: list[tuple[str, _Way]] = []
        self._helpers: dict[Node, str] = {}
        self._brackets: dict[Node, int] = {}
        self._has_marks = False
        self._symbols: dict[Node, _Way] = {}
        self._collect(found)
        self._patterns: dict[str, Any] = {}
        self._to_pattern = load_grammar.TerminalTreeToPattern()
        for name in self._terms:
            self._pattern_of(name)
        self._definitions = [
            TerminalDef(name, pattern)
            for name, pattern in self._patterns.items()
            if pattern is not None
        ]
        anonymous: Any = load_grammar.PrepareAnonTerminals(self._definitions)  # type: ignore[no-untyped-call]
        self._named = anonymous.pattern

    def _collect(self, found: list[Statement]) -> None:
        """Sort the statements, as `GrammarBuilder.load_grammar` does: imports first."""
        for statement in found:
            if statement[0] == "import":
                self._import(*statement[1:])
        for statement in found:
            kind = statement[0]
            if kind == "rule" and statement[2]:
                self._define(self._templates, statement[1], statement[2:])
            elif kind == "rule":
                self._define(self._rules, statement[1], statement[3])
            elif kind == "term":
                self._define(self._terms, statement[1], statement[2])
            elif kind == "declare":
                for name in statement[1]:
                    self._define(self._terms, name, None)
            elif kind == "ignore":
                self._ignore(statement[1])

    def _define(self, where: dict[str, Any], name: str, what: Any) -> None:
        if name in self._rules or name in self._templates or name in self._terms:
            raise NotPlain
        if name.startswith("__"):
            raise NotPlain
        where[name] = what

    def _import(self, path: tuple[str, ...], names: list[str] | None, alias: str | None) -> None:
        if names is None:
            path, names = path[:-1], [path[-1]]
        if not path:
            raise NotPlain
        known = _library(path)
        for name in names:
            # Of two names for one terminal Lark keeps the last.
            if name not in known or (path, name) in self._imported:
                raise NotPlain
            self._imported.add((path, name))
            self._define(self._terms, alias or name, known[name])

    def _ignore(self, node: Node) -> None:
        if node[2]:
            raise NotPlain  # an alias
        if len(node[1]) == 1 and len(node[1][0]) == 1 and node[1][0][0][0] == "t":
            self._ignored.append(node[1][0][0][1])
            return
        name = f"__IGNORE_{len(self._ignored)}"
        self._ignored.append(name)
        self._terms[name] = node

    def loaded(self, start: str) -> Loaded:
        """The rules that are used, and the terminals."""
        if start not in self._rules or not self._terms.keys() >= set(self._ignored):
            raise NotPlain
        for name, node in self._rules.items():
            self._add(name, self._alternatives(node))
        if len(self._used_templates) < len(self._templates):
            raise NotPlain  # nobody has looked at them
        rules = _used(self._expanded, start)
        mentioned = set(self._ignored).union(*[way for _, way in rules])
        terminals = [
            (str(definition.name), definition.pattern)
            for definition in self._definitions
            if definition.name in mentioned
        ]
        return Loaded(terminals, rules, dict.fromkeys([lhs for lhs, _ in rules]), self._ignored)

    # -- terminals --------------------------------------------------------------------------------

    def _pattern_of(self, name: str) -> Any:
        """The pattern of a named terminal; None for one that is only declared."""
        if name in self._patterns:
            pattern = self._patterns[name]
            if pattern is _UNDER_WAY:
                raise NotPlain  # it contains itself
            return pattern
        if name not in self._terms:
            raise NotPlain
        node = self._terms[name]
        if type(node) is tuple:
            self._patterns[name] = _UNDER_WAY
            if node[0] == "|" and node[1] == ((),):
                raise NotPlain  # it is empty
            node = self._pattern(node)
            del self._patterns[name]
        self._patterns[name] = node
        return node

    def _pattern(self, node: Node) -> Any:
        """What Lark's loader makes of a node in a terminal."""
        kind = node[0]
        if kind in ("s", "x", ".."):
            return literal(*node)
        if kind == "t":
            pattern = self._pattern_of(node[1])
            if pattern is None:
                raise NotPlain  # declared only
            return pattern
        make = self._to_pattern
        if kind == "|":
            if node[2]:
                raise NotPlain  # an alias
            ways = [make.expansion([self._pattern(item) for item in way]) for way in node[1]]
            return make.expansions(ways)
        if kind == "[":
            return make.maybe([self._pattern(node[1])])  # type: ignore[no-untyped-call]
        if kind not in ("?", "*", "+", "~"):
            raise NotPlain
        if len(node) == 4 and int(node[3]) < int(node[2]):
            raise NotPlain
        return make.expr([self._pattern(node[1]), kind, *node[2:]])

    # -- rules ------------------------------------------------------------------------------------

    def _add(self, name: str, ways: list[_Way]) -> None:
        """Add the ways of a nonterminal, each once.

        Raises:
            NotPlain: two are the same but for marks: Lark refuses them.
        """
        distinct = list(dict.fromkeys(ways))
        if self._has_marks:
            distinct = [tuple([s for s in way if s[0] not in _MARKS]) for way in distinct]
            texts = [way for way in distinct if way]
            if len(texts) > len(set(texts)):
                raise NotPlain
            distinct = list(dict.fromkeys(distinct))
        self._expanded += [(name, way) for way in distinct]

    def _ways(self, node: Node) -> list[_Way]:
        """The sequences of symbols that a node stands for, with marks for what makes sequences of
        the same symbols differ to Lark: brackets left out, aliases."""
        kind = node[0]
        if kind in _SYMBOLS:
            if kind not in ("r", "t"):
                name = self._name(node)
            elif node[1] in (self._rules if kind == "r" else self._terms):
                name = node[1]
            else:
                raise NotPlain
            self._symbols[node] = (name,)
            return [(name,)]
        if kind == "{":
            return [(self._instance(node),)]
        if kind == "|":
            if node[2]:
                raise NotPlain  # an alias in the middle of a rule
            return self._alternatives(node)
        ways = self._ways(node[1])
        if kind == "?":
            return [*ways, ()]
        if kind == "[":
            self._has_marks = True
            return [*ways, (f"[{self._brackets.setdefault(node[1], len(self._brackets))}",)]
        if kind == "~":
            return self._repeats(ways, node)
        helper = self._helpers.get(node[1])
        if helper is None:
            helper = self._helpers[node[1]] = f"__{len(self._helpers)}"
            self._add(helper, [*ways, *((helper, *way) for way in ways)])
        return [(helper,)] if kind == "+" else [(helper,), ()]

    def _alternatives(self, node: Node) -> list[_Way]:
        out: list[_Way] = []
        for number, items in enumerate(node[1]):
            ways: list[_Way] = [()]
            for item in items:
                # Most items are a symbol, and that one has been met.
                only = self._symbols.get(item)
                several = [only] if only else self._ways(item)
                ways = [way + more for way in ways for more in several]
                if len(ways) > MAX_ALTERNATIVES:
                    raise NotPlain
            if node[2] and node[2][number]:
                self._has_marks = True
                ways = [(*way, f"-{node[2][number]}") for way in ways]
            out += ways
        return out

    def _instance(self, node: Node) -> str:
        """The name of the rule that a template is with some arguments."""
        _, name, arguments = node
        shown = f"{name}{{{','.join(map(self._shown, arguments))}}}"
        if shown not in self._instances:
            if name not in self._templates:
                raise NotPlain
            parameters, body = self._templates[name]
            taken = self._rules.keys() | self._templates.keys()
            if len(set(parameters) - taken) != len(arguments) or len(parameters) != len(arguments):
                raise NotPlain
            self._instances.add(shown)
            self._used_templates.add(name)
            body = _substituted(body, dict(zip(parameters, arguments, strict=True)))
            self._add(shown, self._alternatives(body))
        return shown

    def _shown(self, node: Node) -> str:
        ((symbol,),) = self._ways(node)
        return symbol

    def _repeats(self, ways: list[_Way], node: Node) -> list[_Way]:
        least, most = int(node[2]), int(node[-1])
        if not 0 <= least <= most < _MAX_REPEATS:
            raise NotPlain
        out: list[_Way] = []
        for count in range(least, most + 1):
            if len(ways) ** count > MAX_ALTERNATIVES:
                raise NotPlain
            out += [sum(parts, ()) for parts in itertools.product(ways, repeat=count)]
        return out

    def _name(self, node: Node) -> str:
        """The name of the terminal that a literal is."""
        return str(self._named(literal(*node)).name)


def _substituted(node: Node, arguments: dict[str, Node]) -> Node:
    """A node of a template with its parameters replaced."""
    kind = node[0]
    if kind == "r":
        return arguments.get(node[1], node)
    if kind == "|":
        ways = [tuple([_substituted(item, arguments) for item in way]) for way in node[1]]
        return ("|", tuple(ways), node[2])
    if kind == "{":
        if node[1] in arguments:
            raise NotPlain
        return ("{", node[1], tuple([_substituted(item, arguments) for item in node[2]]))
    if kind in ("t", "s", "x", ".."):
        return node
    return (kind, _substituted(node[1], arguments), *node[2:])


def _used(rules: list[tuple[str, _Way]], start: str) -> list[tuple[str, _Way]]:
    """Rules without those that no other rule mentions, as Lark's loader leaves them out."""
    while True:
        mentions: dict[str, set[str]] = {}
        for lhs, way in rules:
            mentions.setdefault(lhs, set()).update(way)
        used = {start}
        for lhs, symbols in mentions.items():
            used |= symbols - {lhs}
        kept = [rule for rule in rules if rule[0] in used]
        if len(kept) == len(rules):
            return rules
        rules = kept


@functools.lru_cache(maxsize=1000)
def literal(kind: str, text: str, to: str = "") -> Any:
    """The pattern that Lark's loader makes of a literal, a pattern or a range."""
    from lark.lexer import PatternStr, Token

    if kind == "s" and _PLAIN.fullmatch(text):
        return PatternStr(text[1:-1], "", raw=text)
    from lark import load_grammar
    from lark.exceptions import LarkError

    make: Any = load_grammar
    try:
        if kind == "..":
            return (
                make.PrepareLiterals().range(Token("STRING", text), Token("STRING", to)).children[0]
            )
        return make._literal_to_pattern(Token("STRING" if kind == "s" else "REGEXP", text))
    except (LarkError, AssertionError, ValueError):
        raise NotPlain from None


def library_names(path: tuple[str, ...]) -> set[str] | None:
    """What a grammar that comes with Lark defines; None if it cannot be told."""
    try:
        found = statements(_library_text(path))
    except NotPlain:
        return None
    names: set[str] = set()
    for kind, *parts in found:
        if kind in ("rule", "term"):
            names.add(parts[0])
        elif kind == "import":
            names.update([parts[2]] if parts[2] else parts[1] or parts[0][-1:])
    return names


@functools.cache
def _library(path: tuple[str, ...]) -> dict[str, Any]:
    """The terminals of a grammar that comes with Lark, and their patterns."""
    return _Loading(statements(_library_text(path)))._patterns


def _library_text(path: tuple[str, ...]) -> str:
    from lark import load_grammar

    try:
        _, text = load_grammar.stdlib_loader(None, os.path.join(*path) + load_grammar.EXT)
    except OSError:
        raise NotPlain from None
    return text
