"""Masks of context-free grammars: structgen and llguidance on the same Lark text.

    python tests/benchmarks/grammars.py [TOKENIZER] [--rounds N] [--clock cpu] [--json FILE]

One process runs both engines on the same grammars and texts with the same tokens, alternating. For
each grammar: TTFM is the compilation with the first mask, of a grammar that was never seen (``ttfm
new``: its reading by Lark included; the three files that are kept of it are written by a thread
0.1 s later, here between two measurements) and of one that some process has compiled before
(``ttfm``);
TBM is a mask and its commit, over all texts of a grammar compiled once, in a process that has never
met any of its terminals (``new``), in one that has, as terminals recur (``once``: their automata
and walks are known, the grammar's goals, stacks and masks are not), and over the same texts walked
again (``again``). Both must accept every text. Medians over the rounds, each of which compiles
afresh. What depends on the vocabulary alone is made in the first round, or read from disk.
``--clock cpu``: processor time of the thread, for machines that have
other work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from engines import REFUSALS, LLGuidance, Refused, Structgen
from grammar_texts import JSON_TEXTS, PYTHON_TEXTS, SQL_TEXTS
from masks import tokenizer_path

import structgen
from structgen import Cfg, Vocabulary
from structgen.automaton.core.shared import AUTOMATA
from structgen.grammar.cfg import cache as grammar_cache
from structgen.storage import array_cache

JSON = r"""
start: value
value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{" (member ("," member)*)? "}"
member: STRING ":" value
array: "[" (value ("," value)*)? "]"
STRING: /"([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
%ignore /[ \t\r\n]+/
"""

SQL = r"""
start: query ";"?
query: select (("UNION" "ALL"? | "EXCEPT" | "INTERSECT") select)*
select: "SELECT" "DISTINCT"? columns ("FROM" table join* where? group? order? limit?)?
columns: column ("," column)*
column: "*" | expr ("AS" NAME)?
table: NAME ("AS"? NAME)? | "(" query ")" "AS"? NAME
join: ("INNER" | "LEFT" "OUTER"? | "CROSS")? "JOIN" table ("ON" expr)?
where: "WHERE" expr
group: "GROUP" "BY" expr ("," expr)* ("HAVING" expr)?
order: "ORDER" "BY" key ("," key)*
key: expr ("ASC" | "DESC")?
limit: "LIMIT" NUMBER ("OFFSET" NUMBER)?
expr: or
or: and ("OR" and)*
and: not ("AND" not)*
not: "NOT" not | comparison
comparison: sum (("=" | "<>" | "!=" | "<=" | ">=" | "<" | ">" | "LIKE") sum
    | "IS" "NOT"? "NULL" | "NOT"? "IN" "(" (query | expr ("," expr)*) ")"
    | "BETWEEN" sum "AND" sum)?
sum: product (("+" | "-" | "||") product)*
product: unary (("*" | "/" | "%") unary)*
unary: "-" unary | atom
atom: NUMBER | STRING | "NULL" | NAME ("." NAME)? | call | "(" expr ")" | "(" query ")" | case
call: NAME "(" ("*" | "DISTINCT"? expr ("," expr)*)? ")"
case: "CASE" ("WHEN" expr "THEN" expr)+ ("ELSE" expr)? "END"
NAME: /[A-Za-z_][A-Za-z0-9_]*/
NUMBER: /[0-9]+(\.[0-9]+)?/
STRING: /'([^']|'')*'/
%ignore /[ \t\r\n]+/
"""

PYTHON = r"""
start: (def | statement)+
def: "def" NAME "(" (parameter ("," parameter)*)? ")" ("->" expr)? ":" block1
block1: (NEWLINE1 (simple | if1 | for1))+ NEWLINE
if1: "if" expr ":" block2 (NEWLINE1 "elif" expr ":" block2)* (NEWLINE1 "else" ":" block2)?
for1: "for" NAME "in" expr ":" block2
block2: (NEWLINE2 simple)+
parameter: NAME (":" expr)? ("=" expr)?
statement: simple NEWLINE
simple: "return" expr? | "pass" | "import" NAME ("." NAME)* | target ("," target)* "=" expr
    | target ("+=" | "-=" | "*=") expr | expr | "assert" expr | "raise" expr
target: primary
expr: or ("if" or "else" expr)? | "lambda" NAME ("," NAME)* ":" expr
or: and ("or" and)*
and: not ("and" not)*
not: "not" not | comparison
comparison: sum (("==" | "!=" | "<=" | ">=" | "<" | ">" | "in" | "is" "not"?) sum)*
sum: product (("+" | "-" | "|") product)*
product: power (("*" | "/" | "//" | "%" | "@") power)*
power: ("-" | "~") power | primary ("**" power)?
primary: atom | primary "." NAME | primary "[" slice ("," slice)* "]"
    | primary "(" (argument ("," argument)*)? ")"
slice: expr | expr? ":" expr?
argument: (NAME "=")? expr | "*" expr | "**" expr
atom: NAME | NUMBER | STRING | "None" | "True" | "False" | "(" (expr ("," expr)* ","?)? ")"
    | "[" (expr ("for" NAME "in" or ("if" or)* | ("," expr)*))? "]"
    | "{" (expr ":" expr ("," expr ":" expr)*)? "}"
NAME: /[A-Za-z_][A-Za-z0-9_]*/
NUMBER: /[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?/
STRING: /[frb]?("([^"\\\n]|\\.)*"|'([^'\\\n]|\\.)*')/
NEWLINE: /\n+/
NEWLINE1: /\n+ {4}/
NEWLINE2: /\n+ {8}/
%ignore / +/
"""

GRAMMARS = {"json": (JSON, JSON_TEXTS), "sql": (SQL, SQL_TEXTS), "python": (PYTHON, PYTHON_TEXTS)}


class OurGrammars(Structgen):
    """This project, with grammars."""

    def compile(self, schema: str) -> Any:
        # What this process remembers of a grammar it has read.
        return structgen.compile(Cfg(schema), self._vocabulary)


class TheirGrammars(LLGuidance):
    """llguidance, with its Lark dialect."""

    def compile(self, schema: str) -> Any:
        matcher = self._matcher(self._tokenizer, self._matcher.grammar_from_lark(schema))
        if matcher.is_error():
            raise Refused(matcher.get_error())
        return matcher


def walk(engine: Any, compiled: Any, tokens: list[int], clock: Any) -> list[int]:
    """Nanoseconds of each mask with its commit."""
    session = engine.start(compiled)
    steps: list[int] = []
    for token in tokens:
        started = clock()
        session.mask()
        took = clock() - started
        if not engine.out[token >> 5] >> (token & 31) & 1:
            raise Refused(f"{engine.name} does not allow token {token}, number {len(steps)}")
        started = clock()
        committed = session.commit(token)
        took += clock() - started
        if committed is False:
            raise Refused(f"{engine.name} does not take token {token}, number {len(steps)}")
        steps.append(took)
    return steps


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", nargs="?", default="llama3_1", help="a known name, or a path")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--only", choices=list(GRAMMARS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    from tokenizers import Tokenizer

    tokenizer = tokenizer_path(arguments.tokenizer)
    vocabulary = Vocabulary.from_tokenizer_json(tokenizer)
    encode = Tokenizer.from_file(str(tokenizer)).encode
    engines = [kind(tokenizer, vocabulary) for kind in (OurGrammars, TheirGrammars)]
    clock = time.thread_time_ns if arguments.clock == "cpu" else time.perf_counter_ns
    code = grammar_cache._code()
    results: dict[str, Any] = {}
    for name, (grammar, texts) in GRAMMARS.items():
        if arguments.only not in (None, name):
            continue
        tokens = [encode(text, add_special_tokens=False).ids for text in texts]
        rows: dict[str, dict[str, list[float]]] = {e.name: {} for e in engines}
        for number in range(arguments.rounds):
            order = engines[:: 1 if number % 2 else -1]
            compiled: dict[tuple[str, str], Any] = {}
            # Nor of any terminal: only what depends on the vocabulary alone stays.
            AUTOMATA.clear()
            for measure in ("ttfm new", "ttfm"):
                # To other code, nothing on disk is known.
                other = f"{code} {os.getpid()} {number}" if measure == "ttfm new" else code
                grammar_cache._code = lambda other=other: other
                for engine in order:
                    if not number and measure == "ttfm":
                        engine.start(engine.compile(grammar)).mask()
                        array_cache.flush()
                    started = clock()
                    made = compiled[engine.name, measure] = engine.compile(grammar)
                    engine.start(made).mask()
                    took = (clock() - started) / 1000
                    rows[engine.name].setdefault(measure, []).append(took)
                    array_cache.flush()
            for engine in order:
                row = rows[engine.name]
                for phase in ("new", "once", "again"):
                    which = "ttfm new" if phase == "new" else "ttfm"
                    steps: list[int] = []
                    try:
                        for ids in tokens:
                            steps += walk(engine, compiled[engine.name, which], ids, clock)
                    except REFUSALS as error:
                        sys.exit(f"{name}: {error}")
                    micros = np.array(steps) / 1000
                    for label, value in (
                        ("mean", micros.mean()),
                        ("p50", np.percentile(micros, 50)),
                        ("p99", np.percentile(micros, 99)),
                        ("max", micros.max()),
                    ):
                        row.setdefault(f"{phase} {label}", []).append(float(value))
        results[name] = {e: {k: float(np.median(v)) for k, v in r.items()} for e, r in rows.items()}
    ours, theirs = engines[0].name, engines[1].name
    print(
        f"vocabulary {vocabulary.size:,}; microseconds ({arguments.clock} clock), medians of "
        f"{arguments.rounds} rounds"
    )
    print(f"{'grammar':8} {'measure':12} {ours:>12} {theirs:>12} {'ratio':>7}")
    for name, row in results.items():
        for measure in row[ours]:
            a, b = row[ours][measure], row[theirs][measure]
            print(f"{name:8} {measure:12} {a:12,.1f} {b:12,.1f} {a / b:7.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
