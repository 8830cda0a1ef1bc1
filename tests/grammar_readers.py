"""Readers of the grammar library's small languages, for those that nothing at hand reads.

Written from the descriptions of the languages, by other means than a grammar: counting, splitting
and recursive descent. Each takes a text and answers None when it is right, otherwise why not; some
raise `ValueError` instead.
"""

from __future__ import annotations

import re
import string


def lisp(text: str) -> str | None:
    """A reader of S-expressions, as Scheme's ``read`` does it."""
    tokens = re.findall(
        r"""[\s]+|;[^\n\r]*|[()]|'|`|,@|,|"(?:[^"\\]|\\.)*"|[^\s()"';`,]+|.""", text, re.S
    )
    tokens = [t for t in tokens if not t.isspace() and not t.startswith(";")]
    at = 0

    def read() -> None:
        nonlocal at
        if at == len(tokens):
            raise ValueError("ends too early")
        token = tokens[at]
        at += 1
        if token in ("'", "`", ",", ",@"):
            read()
        elif token == "(":
            count = 0
            while at < len(tokens) and tokens[at] not in (")", "."):
                read()
                count += 1
            if at < len(tokens) and tokens[at] == "." and count:
                at += 1
                read()
            if at == len(tokens) or tokens[at] != ")":
                raise ValueError("not closed")
            at += 1
        elif token in (")", "."):
            raise ValueError(f"unexpected {token}")
        elif token[0] == '"':
            if len(token) < 2 or re.search(r"\\[^\"\\ntr]", re.sub(r"\\\\", "", token)):
                raise ValueError(f"bad string {token}")
        elif token[0] == "#":
            if token not in ("#t", "#f"):
                raise ValueError(token)
        elif re.match(r"[+-]?\.?[0-9]", token):
            float(token)
            if "_" in token or token.endswith("."):
                raise ValueError(token)
        elif not re.fullmatch(r"[\w!$%&*/:<=>?^~+.@-]+", token, re.A) or token[0] == "@":
            raise ValueError(f"bad symbol {token}")

    read()
    while at < len(tokens):
        read()
    return None


def semver(text: str) -> str | None:
    rest, plus, build = text.partition("+")
    core, dash, before = rest.partition("-")
    allowed = set(string.ascii_letters + string.digits + "-")
    numbers = core.split(".")
    if len(numbers) != 3 or not all(map(_is_number, numbers)):
        return "not three numbers"
    for part in before.split(".") if dash else []:
        if not part or set(part) - allowed or (_is_digits(part) and not _is_number(part)):
            return f"pre-release {part}"
    for part in build.split(".") if plus else []:
        if not part or set(part) - allowed:
            return f"build {part}"
    return None


def _is_digits(text: str) -> bool:
    return bool(text) and not set(text) - set(string.digits)


def _is_number(text: str) -> bool:
    return _is_digits(text) and (text == "0" or text[0] != "0")


_FIELDS = (
    (0, 59, ""),
    (0, 23, ""),
    (1, 31, ""),
    (1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    (0, 7, "sun mon tue wed thu fri sat"),
)


def cron(text: str) -> str | None:
    if text.startswith("@"):
        known = "hourly daily midnight weekly monthly yearly annually reboot"
        return None if text[1:] in known.split() else "unknown nickname"
    fields = text.split(" ")
    if len(fields) != 5:
        return f"{len(fields)} fields"
    for field, (low, high, words) in zip(fields, _FIELDS, strict=True):
        for item in field.split(","):
            what, slash, step = item.partition("/")
            if slash and not (_is_number(step) and 1 <= int(step) <= 99):
                return f"step {step}"
            if what == "*":
                continue
            if not slash and what.lower() in words.split() and what in (
                what.lower(), what.upper(), what.capitalize()
            ):  # fmt: skip
                continue
            first, dash, last = what.partition("-")
            ends = [first, last] if dash else [first]
            if (slash and not dash) or not all(map(_is_number, ends)):
                return f"item {item!r}"
            if not low <= int(ends[0]) <= int(ends[-1]) <= high:
                return f"item {item!r}"
    return None


def _chess_moves() -> set[str]:
    """Every move that the rules of the notation allow, without check signs and suffixes."""
    squares = [(f, r) for f in range(8) for r in range(8)]
    files, ranks = "abcdefgh", "12345678"
    moves = {"O-O", "O-O-O"}
    for f, r in squares:
        at = files[f] + ranks[r]
        for takes in ("", "x"):
            moves.add(f"K{takes}{at}")
            for piece in "QRBN":
                origins = ["", *files, *ranks, *(files[a] + ranks[b] for a, b in squares)]
                moves.update(f"{piece}{origin}{takes}{at}" for origin in origins)
        pawns = [at, *(f"{files[g]}x{at}" for g in (f - 1, f + 1) if 0 <= g < 8)]
        ends = [f"={p}" for p in "QRBN"] if r in (0, 7) else [""]
        moves.update(pawn + end for pawn in pawns for end in ends)
    return moves


CHESS_MOVES = _chess_moves()


def chess_move(text: str) -> str | None:
    bare = re.sub(r"[+#]?[!?]{0,2}$", "", text)
    return None if bare in CHESS_MOVES else "no move"


def dot(text: str) -> str | None:
    """A reader of the DOT language, from Graphviz' description of it."""
    skipped = r"\s+|//[^\n\r]*[\n\r]|/\*.*?\*/"
    words = r"-?(?:\.\d+|\d+(?:\.\d*)?)|[A-Za-z_]\w*"
    pattern = rf"""{skipped}|--|->|[{{}}\[\];,=:]|"(?:[^"\\]|\\.)*"|{words}|."""
    tokens = [
        t for t in re.findall(pattern, text, re.S | re.A)
        if not t.isspace() and not t.startswith(("//", "/*"))
    ]  # fmt: skip
    tokens.append("")
    at = 0
    keywords = {"strict", "graph", "digraph", "node", "edge", "subgraph"}

    def take(*wanted: str) -> bool:
        nonlocal at
        if tokens[at] in wanted:
            at += 1
            return True
        return False

    def need(*wanted: str) -> None:
        if not take(*wanted):
            raise ValueError(f"{tokens[at]!r} where {wanted} was due")

    def is_id() -> bool:
        token = tokens[at]
        name = re.fullmatch(r"[A-Za-z_]\w*", token, re.A) and token.lower() not in keywords
        return bool(
            name or re.fullmatch(r"-?[.\d]+", token, re.A) or (token[:1] == '"' and len(token) > 1)
        )

    def need_id() -> None:
        nonlocal at
        if not is_id():
            raise ValueError(f"{tokens[at]!r} where a name was due")
        at += 1

    def attributes() -> None:
        while take("["):
            while not take("]"):
                need_id()
                need("=")
                need_id()
                take(",", ";")

    def body(edge: str) -> None:
        need("{")
        while not take("}"):
            if take("graph", "node", "edge"):
                if tokens[at] != "[":
                    raise ValueError("attributes due")
                attributes()
            else:
                end(edge)
                if not take("="):
                    while take(edge):
                        end(edge)
                    attributes()
                else:
                    need_id()
            take(";")

    def end(edge: str) -> None:
        nonlocal at
        if take("subgraph"):
            if is_id():
                at += 1
            body(edge)
        elif tokens[at] == "{":
            body(edge)
        else:
            need_id()
            for _ in range(2):
                if take(":"):
                    need_id()

    take("strict")
    directed = tokens[at] == "digraph"
    need("graph", "digraph")
    if is_id():
        at += 1
    body("->" if directed else "--")
    return None if tokens[at] == "" else f"{tokens[at]!r} after the end"


_MERMAID_ID = (
    r"(?!(?:end|graph|flowchart|subgraph|style|class|classdef|click|linkstyle|default|direction|href"
    r"|call|interpolate)\b)[a-z]\w*"
)
_MERMAID_TEXT = r'"(?!`)[^"<>]*"'
_MERMAID_SHAPES = (
    r"\[T\]|\(T\)|\(\[T\]\)|\[\[T\]\]|\[\(T\)\]|\(\(T\)\)|\(\(\(T\)\)\)"
    r"|>T\]|\{T\}|\{\{T\}\}|\[/T/\]"
)
_MERMAID_NODE = rf"{_MERMAID_ID}(?:{_MERMAID_SHAPES})?(?::::{_MERMAID_ID})?"
_MERMAID_PROPERTIES = r"(?:[a-z-]+:[#\w]+)(?:,[a-z-]+:[#\w]+)*"


def mermaid(text: str) -> str | None:
    """A reader line by line, from Mermaid's description of its flowcharts."""
    node = _MERMAID_NODE.replace("T", _MERMAID_TEXT)
    nodes = rf"{node}(?: & {node})*"
    arrow = r"(?:-->|---|-\.->|-\.-|==>|===|<-->|--o|--x)"
    shapes = {
        "chain": rf"{nodes}(?: {arrow}(?:\|{_MERMAID_TEXT}\|)? {nodes})*",
        "open": rf"subgraph {_MERMAID_ID}(?: \[{_MERMAID_TEXT}\])?",
        "end": "end",
        "classdef": rf"classDef {_MERMAID_ID} {_MERMAID_PROPERTIES}",
        "class": rf"class {_MERMAID_ID}(?:,{_MERMAID_ID})* {_MERMAID_ID}",
        "style": rf"style {_MERMAID_ID} {_MERMAID_PROPERTIES}",
        "comment": r"%%(?!\{)[^{}]*",
    }
    first, *lines = text.split("\n")
    if not re.fullmatch("(?:flowchart|graph) (?:TB|TD|BT|RL|LR)", first):
        return "header"
    depth = 0
    for line in lines:
        line = line.lstrip(" ")
        if not line:
            continue
        kinds = [k for k, shape in shapes.items() if re.fullmatch(shape, line, re.I | re.A)]
        if not kinds:
            return f"line {line!r}"
        depth += (kinds[0] == "open") - (kinds[0] == "end")
        if depth < 0:
            return "end of nothing"
    return f"{depth} subgraphs are open" if depth else None
