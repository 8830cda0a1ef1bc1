"""Who judges the texts of the grammar library: for each grammar, something that really reads them.

A judge takes a text and answers None when it is accepted, otherwise why not. Parsers of the
standard library, SQLite, Node, git, bash and a few packages where there are any; otherwise a small
reader written here, by other means than a grammar.
"""

from __future__ import annotations

import ast
import csv
import datetime
import email.headerregistry
import html.parser
import io
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import urllib.parse
import warnings
import xml.etree.ElementTree
from collections.abc import Callable
from typing import Any

import graphql
import markdown_it
import pydantic
import yaml
from grammar_readers import chess_move, cron, dot, lisp, mermaid, semver

Judge = Callable[[str], "str | None"]


def _raises(read: Callable[[str], Any], *errors: type[Exception]) -> Judge:
    def judge(text: str) -> str | None:
        try:
            read(text)
        except errors as error:
            return f"{type(error).__name__}: {error}"
        return None

    return judge


# -- data ------------------------------------------------------------------------------------


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _json(text: str) -> Any:
    return json.loads(text, parse_constant=_constant)


def json_lines(text: str) -> str | None:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    for line in lines:
        _json(line)
    return None if lines else "no line"


def jsonc(text: str) -> str | None:
    """As JavaScript: all of JSON is an expression there, comments are the same."""
    return _node("new Function('return (' + text + '\\n)')")(text)


def csv_records(text: str) -> str | None:
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    if not all(rows):
        return "a blank line"
    # What the reader found says the same as the text.
    again = io.StringIO()
    csv.writer(again, quoting=csv.QUOTE_ALL).writerows(rows)
    same = list(csv.reader(io.StringIO(again.getvalue(), newline=""), strict=True)) == rows
    return None if rows and same else "read differently"


def yaml_flow(text: str) -> str | None:
    value = yaml.safe_load(text)
    return None if isinstance(value, dict | list) else "no collection"


_DEFINED_TWICE = re.compile(
    "Cannot (overwrite a value|declare|mutate immutable namespace)|Duplicate inline table key"
)


def toml(text: str) -> str | None:
    import tomllib  # from Python 3.11 on

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # What the grammar says it does not cover.
        return None if _DEFINED_TWICE.match(str(error)) else str(error)
    return None


def xml_document(text: str) -> str | None:
    # A declaration of an encoding belongs to bytes.
    xml.etree.ElementTree.fromstring(text.encode("utf-8"))
    return None


# -- markup ----------------------------------------------------------------------------------

_TAGS = """h1 h2 h3 h4 h5 h6 p ul ol li blockquote pre code table caption thead tbody tr th td a b
    strong i em u s small sub sup mark q span img br hr"""
_ATTRIBUTES = {"a": {"href"}, "img": {"src", "alt", "width", "height"}, "span": set()}
_GLOBAL = {"title", "lang", "dir"}
_BLOCKS = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "blockquote", "pre", "table", "hr"}


class _HtmlReader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.open: list[str] = []
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        allowed = _ATTRIBUTES.get(tag, set()) | (_GLOBAL if tag in ("a", "span") else set())
        names = [name for name, _ in attrs]
        if tag not in _TAGS.split() or not set(names) <= allowed or len(set(names)) < len(names):
            self.problems.append(f"{tag} {names}")
        for name, value in attrs:
            if name in ("href", "src"):
                address = urllib.parse.urlsplit(value or "")
                local = not address.scheme and not address.netloc
                if not (local or address.scheme in ("http", "https", "mailto")):
                    self.problems.append(f"leads to {value}")
        if tag == "a" and "a" in self.open:
            self.problems.append("a link in a link")
        if tag in _BLOCKS and self.open and self.open[-1] not in ("blockquote", "li"):
            self.problems.append(f"{tag} in {self.open[-1]}")
        if tag not in ("br", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if "<" in data or "&" in data:
            self.problems.append(f"bare {data!r}")

    def handle_entityref(self, name: str) -> None:
        if name not in html.entities.html5 and f"{name};" not in html.entities.html5:
            self.problems.append(f"&{name};")

    def handle_other(self, data: str) -> None:
        self.problems.append(data)

    handle_comment = handle_decl = handle_pi = unknown_decl = handle_other


def html_fragment(text: str) -> str | None:
    reader = _HtmlReader()
    reader.feed(text)
    reader.close()
    problems = reader.problems + [f"<{tag}> is never closed" for tag in reader.open]
    return problems[0] if problems else None


def markdown_table(text: str) -> str | None:
    tokens = markdown_it.MarkdownIt("commonmark").enable("table").parse(text)
    if [t.type for t in tokens if t.level == 0] != ["table_open", "table_close"]:
        return "not one table"
    widths = []
    for token in tokens:
        if token.type == "tr_open":
            widths.append(0)
        widths[-1:] = [w + (token.type in ("th_open", "td_open")) for w in widths[-1:]]
    lines = text.removesuffix("\n").split("\n")
    if len(widths) != len(lines) - 1:
        return f"{len(widths)} rows out of {len(lines)} lines"
    # The reader drops and fills up cells, so the text itself is counted: bars not escaped.
    bars = {len(re.findall(r"(?<!\\)\|", line)) - 1 for line in lines}
    return None if bars == set(widths) and len(bars) == 1 else f"rows of {bars} cells"


# -- languages -------------------------------------------------------------------------------

_MEANING = re.compile(
    r"no such |misuse of |wrong number of arguments|SELECTs to the left and right|ambiguous column"
    r"|\d+\w\w (ORDER|GROUP) BY term |ORDER BY term |sub-select returns|circular reference"
    r"|duplicate WITH table name|table .* has \d+ values for \d+ columns|row value misused"
    r"|a GROUP BY clause is required before HAVING|aggregate functions are not allowed"
    r"|.* may not be used as a window function|FILTER |DISTINCT aggregates must|frame "
    r"|ESCAPE expression must be|recursive |multiple recursive|RANGE with offset|cannot join using"
    r"|unknown database|not a function|.* is not a function|DISTINCT is not supported"
    r"|Incorrect number of bindings|all VALUES must"
)


_SQL_SPACE = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*", re.S)


def sqlite(text: str) -> str | None:
    """Errors about tables, columns and functions that do not exist come after parsing."""
    if not re.match(r"(?i:select|values|with)\b", _SQL_SPACE.sub("", text, count=1)):
        return "no query"
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"EXPLAIN {text}")
    except (sqlite3.Error, sqlite3.Warning) as error:  # the latter in 3.10
        return None if _MEANING.match(str(error)) else str(error)
    finally:
        connection.close()
    return None


def python_function(text: str) -> str | None:
    module = ast.parse(text)
    return (
        None if len(module.body) == 1 and isinstance(module.body[0], ast.FunctionDef) else "not one"
    )


def regex(text: str) -> str | None:
    re.compile(text)
    return _node("new RegExp(text, 'u')")(text)


def graphql_document(text: str) -> str | None:
    definitions = graphql.parse(text).definitions
    kinds = graphql.OperationDefinitionNode | graphql.FragmentDefinitionNode
    return None if all(isinstance(d, kinds) for d in definitions) else "not executable"


def unified_diff(text: str) -> str | None:
    git = shutil.which("git")
    assert git, "needs git on the PATH"
    # --numstat reads the whole patch and applies nothing.
    done = subprocess.run(
        [git, "apply", "--numstat", "--unidiff-zero", "-"],
        input=text.encode(), capture_output=True, check=False, cwd="/",
    )  # fmt: skip
    return done.stderr.decode() or None if done.returncode else None


_COMMANDS = {
    *("pwd", "ls", "cat", "head", "tail", "wc", "grep", "find", "sort", "uniq", "diff", "stat"),
    *("file", "echo", "git"),
}


def shell(text: str) -> str | None:
    """Split as a shell would, and bash agrees that it is one command that expands nothing."""
    words = shlex.split(text)
    if not words or words[0] not in _COMMANDS:
        return "not a command of the list"
    if re.search(r"[$`\\\"*?\[\]{}~;&|<>()#!\n]", re.sub(r"'[^']*'", "", text)):
        return "special characters"
    if any(".." in word.split("/") for word in words[1:]) and words[0] not in (
        "echo",
        "grep",
        "find",
    ):
        return "leaves the directory"
    bash = shutil.which("bash")
    assert bash, "needs bash on the PATH"
    # The command's name is made a function that prints its arguments: nothing else is run.
    script = f"{words[0]}() {{ printf '%s\\0' \"$@\"; }}\n{text}\n"
    done = subprocess.run([bash, "-r", "-c", script], capture_output=True, check=False)
    got = done.stdout.decode().split("\0")[:-1]
    expected = words[1:] or [""]  # printf without arguments
    return None if not done.returncode and got == expected else f"bash reads {got}"


# -- small notations -------------------------------------------------------------------------


def iso8601(text: str) -> str | None:
    parts = text.split("/")
    if len(parts) > 2 or (all(part.startswith("P") for part in parts) and len(parts) == 2):
        return "not an interval"
    for part in parts:
        if part.startswith("P"):
            if re.search(r"P$|T$", part):
                return "an empty duration"
            pydantic.TypeAdapter(datetime.timedelta).validate_python(part.replace(",", "."))
        else:
            # Python reads more than the extended format: basic forms, and any separator.
            if not re.fullmatch(
                r"\d{4}-(\d\d-\d\d|W\d\d-\d)(T\d\d:\d\d(:\d\d.*)?(Z|[+-].*)?)?", part
            ):
                return "not the extended format"
            datetime.datetime.fromisoformat(part)
    return None


def email_address(text: str) -> str | None:
    try:
        address = email.headerregistry.Address(addr_spec=text)
    except AttributeError as error:  # a slip in the standard library, over what it was to report
        return str(error)
    if address.addr_spec != text or not address.domain:
        return f"read as {address.addr_spec}"
    fits = len(address.username) <= 64 and len(address.domain) <= 253
    labels = address.domain.split(".")
    good = all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", label) for label in labels)
    return None if fits and good and len(labels) > 1 else "host name"


def url(text: str) -> str | None:
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or (parts.port or 0) > 65535:
        return "not absolute"
    return _node("new URL(text)")(text)


def arithmetic(text: str) -> str | None:
    tree = ast.parse(text, mode="eval")
    kinds = ast.Expression | ast.BinOp | ast.UnaryOp | ast.Constant | ast.operator | ast.unaryop
    odd = [node for node in ast.walk(tree) if not isinstance(node, kinds)]
    return None if not odd and not re.search(r"\*\*|//|[%@_a-df-z]", text) else "not arithmetic"


# -- Node ------------------------------------------------------------------------------------


class _NodeProcess:
    """One Node process that tries an expression on one text after the other."""

    def __init__(self) -> None:
        node = shutil.which("node")
        self.process = None
        if node is not None:
            program = """
                require('readline').createInterface({input: process.stdin}).on('line', line => {
                  const [code, text] = JSON.parse(line);
                  let answer = null;
                  try { new Function('text', 'return ' + code)(text); }
                  catch (error) { answer = String(error); }
                  console.log(JSON.stringify(answer));
                });
            """
            self.process = subprocess.Popen(
                [node, "-e", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    def ask(self, code: str, text: str) -> str | None:
        if self.process is None:
            return None
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps([code, text]) + "\n")
        self.process.stdin.flush()
        answer: str | None = json.loads(self.process.stdout.readline())
        return answer


_node_process: _NodeProcess | None = None


def _node(code: str) -> Judge:
    """A judge that evaluates ``code`` with ``text`` in Node. Without a Node it accepts all."""

    def judge(text: str) -> str | None:
        global _node_process
        if _node_process is None:
            _node_process = _NodeProcess()
        return _node_process.ask(code, text)

    return judge


def _quiet(judge: Judge) -> Judge:
    """``judge`` with every exception it is known to raise turned into its reason."""
    errors = (
        *(ValueError, SyntaxError, RecursionError, IndexError, re.error, csv.Error, yaml.YAMLError),
        *(xml.etree.ElementTree.ParseError, graphql.GraphQLError, email.errors.MessageError),
    )

    def quiet(text: str) -> str | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return judge(text)
        except (*errors, Warning) as error:
            return f"{type(error).__name__}: {error}"

    return quiet


JUDGES: dict[str, Judge] = {
    name: _quiet(judge)
    for name, judge in {
        "arithmetic": arithmetic,
        "chess-pgn-move": chess_move,
        "cron": cron,
        "csv": csv_records,
        "dot": dot,
        "email-rfc5322-simple": email_address,
        "graphql-query": graphql_document,
        "html-fragment-safe": html_fragment,
        "iso8601": iso8601,
        "json": _raises(_json, ValueError),
        "json-lines": json_lines,
        "jsonc": jsonc,
        "lisp": lisp,
        "markdown-table": markdown_table,
        "mermaid-flowchart": mermaid,
        "python-expression": _raises(lambda text: ast.parse(text, mode="eval"), SyntaxError),
        "python-function": python_function,
        "regex": regex,
        "semver": semver,
        "shell-safe": shell,
        "sql-select": sqlite,
        "sql-select-strict": sqlite,
        "toml-simple": toml,
        "unified-diff": unified_diff,
        "url": url,
        "xml-simple": xml_document,
        "yaml-flow": yaml_flow,
    }.items()
}

FROM_3_11 = {"toml-simple", "iso8601"} if sys.version_info < (3, 11) else set()
"""Grammars whose judge needs a newer Python than this one."""


def close() -> None:
    """End the Node process, if there is one."""
    global _node_process
    if _node_process is not None and _node_process.process is not None:
        assert _node_process.process.stdin
        assert _node_process.process.stdout
        _node_process.process.stdin.close()
        _node_process.process.wait()
        _node_process.process.stdout.close()
    _node_process = None
