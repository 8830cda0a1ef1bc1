"""The statements of a Lark grammar, parsed with Lark's own lexer and LALR tables.

Lark's loader parses a grammar with a grammar of its own. `statements` runs that: the tables are
Lark's, as it builds them (`lark.load_grammar`), and only the loop over them is ours, with nothing
in it but what a grammar without mistakes needs: no trees, no positions. It is five times faster
than Lark's. Whatever is not plain (a mistake, a template, `%override`, a grammar imported from a
file, a version of Lark with other tables) is `NotPlain`, and then Lark's loader itself has to read
it; it also writes the messages. What statements mean is `cfg_lark_rules`' business.

Nodes of rules and terminals are tuples::

    ("r", NAME)  ("t", NAME)            a rule, a terminal
    ("s", TEXT)  ("x", TEXT)            a literal, a pattern, as written
    ("..", TEXT, TEXT)                  a range of characters
    ("|", (ITEMS, …), ALIASES)          alternatives, each a tuple of nodes; names, if any has one
    ("[", NODE)                         optional, in brackets
    (OP, NODE), OP one of ? * +         repeated
    ("~", NODE, LEAST[, MOST])          repeated so many times, as written
    ("{", NAME, NODES)                  a template with its arguments
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from structgen.grammar.cfg import cache as grammar_cache

Node: TypeAlias = "tuple[Any, ...]"
Statement: TypeAlias = "tuple[Any, ...]"
"""``("rule", NAME, PARAMETERS, NODE)``, ``("term", NAME, NODE)``, ``("ignore", NODE)``,
``("declare", NAMES)`` or ``("import", PATH, NAMES, ALIAS)``."""

_Act: TypeAlias = "Callable[[list[Any]], Any] | None"


MAX_DEPTH = 1_000
"""Most nested parentheses, about."""

_START = "start"
_END = "$END"
_OTHER = "OTHER_"
"""The kind of characters that are no token: not a name that Lark has."""

_Row: TypeAlias = "dict[Any, Any]"
"""What to do next, by the kind of a token, or the name of what has been found: ``(None, next row,
what comes after it)``, see `_settled`; or ``(name found, act, how many parts)``."""


class _Finished(Exception):
    """The whole text has been read."""


class NotPlain(Exception):
    """Lark's loader itself has to read this."""


class _Tables(NamedTuple):
    """What Lark's parser of grammars consists of."""

    find: Callable[[str], Iterable[Any]]
    ignored: frozenset[str]
    start: _Row


class Token(NamedTuple):
    """A token of a Lark text: Lark's name for its kind, and where it begins."""

    kind: str
    text: str
    at: int


def tokens(text: str) -> list[Token]:
    """The tokens of a Lark text, mistakes or not: what is none between them is passed over.

    Blanks and comments are left out. There are none where Lark's tables are not what this module
    knows.
    """
    tables = _tables()
    if tables is None:
        return []
    return [
        Token(str(found.lastgroup), found[0], found.start())
        for found in tables.find(text + "\n")
        if found.lastgroup not in tables.ignored and found.lastgroup != _OTHER
    ]


def statements(text: str) -> list[Statement]:
    """The statements of a Lark text, in order.

    Raises:
        NotPlain: see above.
    """
    tables = _tables()
    if tables is None:
        raise NotPlain
    find, ignored, row = tables
    # As Lark does, a line's end at the end. What is no token has a kind that no row knows.
    found = [token for token in find(text + "\n") if token.lastgroup not in ignored]
    kinds = [token.lastgroup for token in found]
    kinds.append(_END)
    rows: list[_Row] = [row]
    values: list[Any] = []
    at = 0
    try:
        while True:
            name, act, size = row[kinds[at]]
            if name is None:
                value = found[at][0]
                at += 1
                # ``act`` is the next row, ``size`` what is known of the rows after that.
                known = size.get(kinds[at])
                if known is None:
                    known = size[kinds[at]] = _settled(row, act, kinds[at])
                act, row = known
                values.append(value if act is None else act([value]))
                rows.append(row)
                if len(rows) > MAX_DEPTH:
                    raise NotPlain
                continue
            if act is None:  # a part is all
                rows[-1] = row = rows[-2][name][1]
                continue
            if act is _more:
                part = values.pop()
                del values[len(values) + 2 - size :]
                values[-1].append(part)
            elif size:
                values[-size:] = (act(values[-size:]),)
            else:
                values.append(act([]))
            if size:
                del rows[-size:]
            row = rows[-1][name][1]
            rows.append(row)
    except KeyError:
        raise NotPlain from None
    except _Finished:
        return [statement for statement in values[0] if statement is not None]


def _settled(below: _Row, row: _Row, kind: str) -> tuple[_Act, _Row]:
    """What a token comes to by itself: most are the only part of a part of a part.

    Args:
        below: the row before the token.
        row: the row after it.
        kind: the kind of the next token, to which all this is due.

    Returns:
        What is made of it, and the row then.
    """
    make: _Act = None
    while True:
        name, act, size = row.get(kind, (None, None, 0))
        if name is None or size != 1 or (make and act) or act is _refuse or act is _finish:
            return make, row
        make = make or act
        row = below[name][1]


@functools.cache
def _tables() -> _Tables | None:
    """Lark's tables; None where they are not what this module knows."""
    try:
        return _bound(grammar_cache.of_lark("tables", _larks_tables))
    except (AttributeError, LookupError, TypeError, ValueError):
        return None


def _larks_tables() -> dict[str, Any]:
    """Lark's tables as JSON. Lark takes 0.3 s to make them, so they are kept on disk."""
    from lark import load_grammar

    frontend: Any = load_grammar._get_parser()  # type: ignore[no-untyped-call]
    table, lexer = frontend.parser._parse_table, frontend.lexer
    (pattern,) = lexer.scanner._mres
    if lexer.callback or pattern.flags != re.UNICODE:
        raise ValueError("tokens are read otherwise")
    numbers = {state: number for number, state in enumerate(table.states)}
    rows: list[dict[str, Any]] = []
    for actions in table.states.values():
        row: dict[str, Any] = {}
        for symbol, (action, to) in actions.items():
            if getattr(action, "name", None) == "Shift":
                row[symbol] = numbers[to]
            else:
                row[symbol] = [str(to.origin.name), " ".join([str(s.name) for s in to.expansion])]
        rows.append(row)
    (start,), (end,) = table.start_states.values(), table.end_states.values()
    return {
        "pattern": pattern.pattern,
        "ignored": sorted(lexer.ignore_types),
        "rows": rows,
        "start": numbers[start],
        "end": numbers[end],
    }


def _bound(data: dict[str, Any]) -> _Tables:
    """The tables with rows that refer to each other, and to our actions."""
    rows: list[_Row] = [{} for _ in data["rows"]]
    for row, actions in zip(rows, data["rows"], strict=True):
        for symbol, to in actions.items():
            if isinstance(to, int):
                row[symbol] = (None, rows[to], {})
            else:
                name, symbols = to
                row[symbol] = (name, _RULES[name][symbols], len(symbols.split()))
    start = rows[data["start"]]
    if start[_START][1] is not rows[data["end"]]:
        raise ValueError("a text ends elsewhere")
    pattern = re.compile(rf"{data['pattern']}|(?P<{_OTHER}>[\s\S])")
    return _Tables(pattern.finditer, frozenset(data["ignored"]), start)


# -- what is made of each rule --------------------------------------------------------------------


def _refuse(parts: list[Any]) -> Any:
    raise NotPlain


def _finish(parts: list[Any]) -> Any:
    raise _Finished


def _second(parts: list[Any]) -> Any:
    return parts[1]


def _nothing(parts: list[Any]) -> None:
    return None


def _one(parts: list[Any]) -> list[Any]:
    return [parts[0]]


def _more(parts: list[Any]) -> list[Any]:
    parts[0].append(parts[-1])
    return parts[0]  # type: ignore[no-any-return]


def _rule(parts: list[Any]) -> Statement:
    modifiers, name, parameters, _, _, body, _ = parts
    if "?" in modifiers and name.startswith("_"):
        raise NotPlain
    if name.startswith("_") and body[2]:
        raise NotPlain  # what has no node cannot have an alias
    return ("rule", name, parameters, body)


def _alternatives(parts: list[Any]) -> Node:
    ways: list[Any] = parts[0]
    aliases: tuple[str | None, ...] = ()
    if any(type(way) is _Aliased for way in ways):
        aliases = tuple([way.name if type(way) is _Aliased else None for way in ways])
        ways = [way.items if type(way) is _Aliased else way for way in ways]
    return ("|", tuple(ways), aliases)


class _Aliased(NamedTuple):
    items: tuple[Node, ...]
    name: str


def _operated(parts: list[Any]) -> Node:
    return (parts[1], parts[0])


_same = None  # the part itself
_RULES: dict[str, dict[str, _Act]] = {
    "start": {"_list": _finish},
    "_list": {"_item": _one, "_list _item": _more},
    "_item": {
        "rule": _same,
        "term": _same,
        "ignore": _same,
        "import": _same,
        "declare": _same,
        "override": _refuse,
        "extend": _refuse,
        "_NL": _nothing,
    },
    "rule": {"rule_modifiers RULE template_params priority _COLON expansions _NL": _rule},
    "rule_modifiers": {"RULE_MODIFIERS": _same, "": lambda _: ""},
    "priority": {"_DOT NUMBER": _nothing, "": _nothing},
    "template_params": {"_LBRACE _template_params _RBRACE": _second, "": _nothing},
    "_template_params": {"RULE": _one, "_template_params _COMMA RULE": _more},
    "expansions": {"_expansions": _alternatives},
    "_expansions": {
        "alias": _one,
        "_expansions _OR alias": _more,
        "_expansions _NL_OR alias": _more,
    },
    "alias": {"expansion _TO nonterminal": lambda p: _Aliased(p[0], p[2][1]), "expansion": _same},
    "expansion": {"_expansion": lambda p: tuple(p[0])},
    "_expansion": {"": lambda _: [], "_expansion expr": _more},
    "expr": {
        "atom": _same,
        "atom OP": _operated,
        "atom TILDE NUMBER": lambda p: ("~", p[0], p[2]),
        "atom TILDE NUMBER _DOTDOT NUMBER": lambda p: ("~", p[0], p[2], p[4]),
    },
    "atom": {"_LPAR expansions _RPAR": _second, "maybe": _same, "value": _same},
    "value": {
        "terminal": _same,
        "nonterminal": _same,
        "literal": _same,
        "range": _same,
        "template_usage": _same,
    },
    "terminal": {"TERMINAL": lambda p: ("t", p[0])},
    "nonterminal": {"RULE": lambda p: ("r", p[0])},
    "name": {"RULE": _same, "TERMINAL": _same},
    "symbol": {"terminal": lambda p: p[0][1], "nonterminal": _refuse},
    "maybe": {"_LBRA expansions _RBRA": lambda p: ("[", p[1])},
    "range": {"STRING _DOTDOT STRING": lambda p: ("..", p[0], p[2])},
    "template_usage": {
        "nonterminal _LBRACE _template_args _RBRACE": lambda p: ("{", p[0][1], tuple(p[2]))
    },
    "_template_args": {"value": _one, "_template_args _COMMA value": _more},
    "term": {
        "TERMINAL _COLON expansions _NL": lambda p: ("term", p[0], p[2]),
        "TERMINAL _DOT NUMBER _COLON expansions _NL": lambda p: ("term", p[0], p[4]),
    },
    "override": {"_OVERRIDE rule": _refuse, "_OVERRIDE term": _refuse},
    "extend": {"_EXTEND rule": _refuse, "_EXTEND term": _refuse},
    "ignore": {"_IGNORE expansions _NL": lambda p: ("ignore", p[1])},
    "declare": {"_DECLARE _declare_args _NL": lambda p: ("declare", p[1])},
    "import": {
        "_IMPORT _import_path _NL": lambda p: ("import", tuple(p[1]), None, None),
        "_IMPORT _import_path _LPAR name_list _RPAR _NL": lambda p: (
            "import",
            tuple(p[1]),
            p[3],
            None,
        ),
        "_IMPORT _import_path _TO name _NL": lambda p: ("import", tuple(p[1]), None, p[3]),
    },
    "_import_path": {"import_lib": _same, "import_rel": _refuse},
    "import_lib": {"_import_args": _same},
    "import_rel": {"_DOT _import_args": _refuse},
    "_import_args": {"name": _one, "_import_args _DOT name": _more},
    "name_list": {"_name_list": _same},
    "_name_list": {"name": _one, "_name_list _COMMA name": _more},
    "_declare_args": {"symbol": _one, "_declare_args symbol": _more},
    "literal": {"REGEXP": lambda p: ("x", p[0]), "STRING": lambda p: ("s", p[0])},
}
