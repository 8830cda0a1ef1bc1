"""Grammars for the tests of context-free grammars, and texts near their languages.

Each grammar is in Lark's dialect and small enough for Lark's Earley parser to judge thousands of
texts. Between them: left, right, hidden and mutual recursion, symbols that can be empty, ambiguity,
cycles, what is ignored, terminals that overlap, lazy and greedy patterns, lookahead.
"""

from __future__ import annotations

import itertools
import random
from functools import cache

from structgen.automaton.cfg import CfgFrame, CfgMachine
from structgen.grammar import cfg, ir

GRAMMARS = {
    "json": r"""
        start: value
        ?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
        array: "[" [value ("," value)*] "]"
        object: "{" [pair ("," pair)*] "}"
        pair: ESCAPED_STRING ":" value
        %import common (ESCAPED_STRING, SIGNED_NUMBER, WS)
        %ignore WS
    """,
    "arithmetic": r"""
        start: sum
        ?sum: product | sum "+" product -> add | sum "-" product -> sub
        ?product: atom | product "*" atom | product "/" atom
        ?atom: NUMBER | "-" atom | NAME | "(" sum ")" | NAME "=" sum
        %import common.CNAME -> NAME
        %import common (NUMBER, WS_INLINE)
        %ignore WS_INLINE
    """,
    "ambiguous sums": r"""
        start: e
        e: e "+" e | e "*" e | "-" e | "a" | "(" e ")"
    """,
    "s s s": r"""
        start: s
        s: s s s | s s | "a" | "b"
    """,
    "nullable everywhere": r"""
        start: a b c
        a: "a"*
        b: ["b" a]
        c: a b | c "c" |
    """,
    "hidden left recursion": r"""
        start: s
        s: n s "x" | "y"
        n: | "n" | n "m"
    """,
    "cycle": r"""
        start: a
        a: b | "a" | a b "-"
        b: a | c | "b"
        c: c | a | "(" c ")"
    """,
    "right recursive list": r"""
        start: list
        list: ITEM | ITEM "," list
        ITEM: /[a-z]+/
        %ignore /[ ]+/
    """,
    "two endings": r"""
        start: s
        s: "a" s "b" | "a" s "c" | "." | s s
    """,
    "palindromes": r"""
        start: p
        p: "a" p "a" | "b" p "b" | "a" | "b" |
    """,
    "dangling else": r"""
        start: statement+
        statement: "if" expr "then" statement ("else" statement)?
                 | NAME "=" expr ";" | "{" statement* "}"
        expr: NAME | INT | expr "<" expr
        NAME: /[a-z]+/
        %import common.INT
        %ignore " "
    """,
    "keywords and names": r"""
        start: (IN | NOT | NAME)+ "."
        IN: "in"
        NOT.2: "not"
        NAME: /[a-z_]\w*/
        %ignore /\s+/
    """,
    "names glued": r"""
        start: WORD+ END
        WORD: /[a-z]+/
        END: /[.!]|z/
    """,
    "keywords with borders": r"""
        start: "let" NAME (AND NAME)* | NAME
        AND: /and\b/
        NAME: /(?!and\b|let\b)[a-z]+/
        %ignore " "
    """,
    "lazy and greedy": r"""
        start: (A | B | C | "x")+
        A: /<.*?>/
        B: /"[^"]*"/
        C: /ab*?c|a/
    """,
    "alternatives that hide": r"""
        start: T "c" | U "d"
        T: /a|ab/
        U: /ab|a/
    """,
    "comments": r"""
        start: (NAME ";")*
        NAME: /[a-z]+/
        %import common (C_COMMENT, CPP_COMMENT, WS)
        %ignore C_COMMENT
        %ignore CPP_COMMENT
        %ignore WS
    """,
    "templates and counts": r"""
        start: _list{NUM, ","} | _list{word, ";"} ~ 2
        _list{item, sep}: item (sep item)*
        word: "a".."c" ~ 2..3 | "é" | "x"i
        NUM: /[0-9]/ ~ 1..3
    """,
    "case and unicode": r"""
        start: ("select"i | "größe"i | /[а-я]+/ | "😀")+
        %ignore /[ \t]/
    """,
    "indented lines": r"""
        start: line+
        line: INDENT? NAME (":" NAME)* NEWLINE
        INDENT: /[ ]{2}|\t/
        NAME: /[a-z]+/
        NEWLINE: /\r?\n/
        %ignore /#[^\n]*/
    """,
    "xml": r"""
        start: element
        element: "<" NAME attribute* ">" (element | TEXT)* "</" NAME ">" | "<" NAME attribute* "/>"
        attribute: NAME "=" /"[^"<]*"/
        NAME: /[a-z]+/
        TEXT: /[^<]+/
        %ignore /[ ]+/
    """,
    "numbers side by side": r"""
        start: NUMBER+
        %import common.NUMBER
        %ignore ","
    """,
    "ignored and meant": r"""
        start: "a" (" " "b")* "c"?
        %ignore /[ ]+/
    """,
    "lookahead past the end": r"""
        start: (WORD | CALL | "(" | ")" | " ")+
        WORD: /[a-z]+(?![a-z(])/
        CALL: /[a-z]+(?=\()/
    """,
    "demands that outlive a terminal": r"""
        start: X (A | C) "b" | X "c" "d"
        X: /x(?!ab)/
        A: "a"
        C: /a|c/
    """,
    "unbounded demands": r"""
        start: OPEN REST*
        OPEN: /\[(?=[^\]]*\])/
        REST: /[a-z]|\]/
    """,
}
"""Grammars by name."""


@cache
def grammar(name: str) -> ir.ContextFree:
    return cfg.parse(GRAMMARS[name])


@cache
def machine(name: str) -> CfgMachine:
    return CfgMachine(CfgFrame(grammar(name), ir.ANY_CHAR))


def texts(alphabet: str, most: int) -> list[str]:
    """Return all texts of at most so many characters."""
    return ["".join(p) for n in range(most + 1) for p in itertools.product(alphabet, repeat=n)]


def accepts(of: CfgMachine, text: str) -> bool:
    """Whether the machine accepts ``text``, byte by byte."""
    state = of.start
    for byte in text.encode():
        state = of.step(state, byte)
        if not state:
            return False
    return of.is_accepting(state)


# -- texts ------------------------------------------------------------------------------------


def sentence(of: ir.ContextFree, name: str, rng: random.Random, size: int = 12) -> str:
    """A text derived by the rules; neighbours may spoil each other's terminals."""
    by_rule: dict[int, list[tuple[int, ...]]] = {}
    for lhs, rhs in of.rules:
        by_rule.setdefault(lhs, []).append(rhs)
    cheapest = _heights(of)
    out: list[str] = []
    todo = [~of.start]
    while todo:
        symbol = todo.pop()
        if symbol >= 0:
            if of.ignore and rng.random() < 0.3:
                out.append(_sample(name, rng.choice(of.ignore), rng))
            out.append(_sample(name, symbol, rng))
            continue
        choices = by_rule[~symbol]
        if len(out) + len(todo) > size:
            least = min(_height(rhs, cheapest) for rhs in choices)
            choices = [rhs for rhs in choices if _height(rhs, cheapest) == least]
        todo += reversed(rng.choice(choices))
    return "".join(out)


def mutated(text: str, rng: random.Random, alphabet: str) -> str:
    """``text`` after a few small changes."""
    chars = list(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(chars) + 1)
        kind = rng.randrange(4)
        if kind == 0 and chars:
            del chars[min(at, len(chars) - 1)]
        elif kind == 1:
            chars.insert(at, rng.choice(alphabet))
        elif kind == 2 and chars:
            chars[min(at, len(chars) - 1)] = rng.choice(alphabet)
        elif chars:
            other = rng.randrange(len(chars))
            at = min(at, len(chars) - 1)
            chars[at], chars[other] = chars[other], chars[at]
    return "".join(chars)


def _heights(of: ir.ContextFree) -> list[int]:
    heights = [1 << 30] * len(of.nonterminals)
    for _ in heights:
        for lhs, rhs in of.rules:
            heights[lhs] = min(heights[lhs], 1 + _height(rhs, heights))
    return heights


def _height(rhs: tuple[int, ...], heights: list[int]) -> int:
    return max((0 if s >= 0 else heights[~s] for s in rhs), default=0)


def _sample(name: str, terminal: int, rng: random.Random) -> str:
    """A text that a terminal matches, by a random walk through its automaton."""
    terminals = machine(name).rules.lexer.terminals
    state = terminals.starts[terminal]
    out: list[str] = []
    while len(out) < 60:
        if out and terminals.end(state) and rng.random() < 0.5:
            break
        moves = terminals.moves(state)
        if not moves:
            break
        mask, state = rng.choice(moves)
        atoms = [1 << i for i in range(mask.bit_length()) if mask >> i & 1]
        out.append(terminals.alphabet.samples(rng.choice(atoms), 1)[0])
    return "".join(out)
