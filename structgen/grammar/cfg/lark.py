"""Lark grammars → IR, read with the ``lark`` package.

The language is the one that ``lark.Lark(text, parser="earley")`` accepts with its dynamic lexer. A
terminal matches what ``re.match`` of its pattern matches, where the rules expect it; ignored
terminals may come before any terminal and at the end. Priorities choose among parses of a text,
never among texts, so they are dropped, like aliases and everything else that shapes the tree.

Lark stops at the first mistake. Its message is extended with the place in the user's text and the
fix. A text that is not from a file may be untrusted, so it cannot import files: relative imports
are only for grammars in files.

Lark's own loader makes trees of a text, follows imports and inserts terminals into terminals.
`notation` makes rules of these trees, as for the other notations: Lark would expand optional and
repeated parts without limit. Templates are expanded here, a rule for each list of arguments, up to
a limit. Nested terminals are measured before Lark reads the text. For that, and for messages, the
text is tokenized here.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from structgen.errors import CompileLimitExceeded, GrammarError, PatternError, UnsupportedFeature
from structgen.grammar import ir, reading
from structgen.grammar import regex as regexes

from . import cache, embedded, foreign, notation
from .embedded import Given, Lifted

MAX_INSTANCES = 1_000
"""The most rules that templates may expand to."""

_MAX_LENGTH = 5_000
"""The most characters of a template with its expanded arguments."""

_STEPS = 6
"""Steps for each character that Lark reads: up to 30 µs."""

_BLANKS = re.compile(r"\s{64,}")
"""Text that costs Lark quadratic time; 400 characters take a step."""

_MOST_NODES = 1 << 40
"""More parts of terminals than any machine can store."""

_PATTERN = r"(?P<pattern>/(?!/)(?:\\[/\\]|[^/\\]|\\(?![/\\]))*/[imslux]*)|"
_OTHERS = r"""
    (?P<literal>"(?:\\["\\]|[^"\\\n]|\\(?!["\\]))*"i?)
    |(?P<open>"[^\n]*|/(?!/))
    |(?P<comment>\s*(?://|\#)[^\n]*)
    |(?P<rule>_?[a-z][_a-z0-9]*)
    |(?P<terminal>_?[A-Z][_A-Z0-9]*)
    |(?P<or>(?:\r?\n\s*)?\|)
    |(?P<end>\r?\n\s*)
    |(?P<blank>[ \t]+|\\[ ]*\n)
    |(?P<number>[+-]?\d+)
    |(?P<command>%(?:override|declare|extend|ignore|import))
    |(?P<modifiers>(?:!\??|\?!?)(?=[_a-z]))
    |(?P<operator>[+*?])
    |(?P<sign>\.\.|->|[.\[\]{}():,~])
    |(?P<other>[^\S \t\n]+|[\s\S])
    """
_KINDS = re.compile(_PATTERN + _OTHERS, re.VERBOSE)
"""If several kinds match, the first counts. A pattern may span lines, as in Lark. Each kind matches
in only one way, so that no text is read more than once for it."""

_NO_PATTERNS = re.compile(_OTHERS, re.VERBOSE)
"""`_KINDS` after a slash that does not begin a pattern: then no other slash does."""

_NAMES = ("rule", "terminal")
_TIMES: Mapping[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_COMMANDS = ("%import", "%ignore", "%declare")


class Token(NamedTuple):
    """A token of a Lark text.

    Attributes:
        kind: a group of `_KINDS`; ``|``, signs and commands are their own kinds.
        text: its text.
        at: its start.
    """

    kind: str
    text: str
    at: int

    @property
    def end(self) -> int:
        """Its end."""
        return self.at + len(self.text)


class Statement(NamedTuple):
    """One statement: ``kind`` is rule, terminal, import, ignore, declare, or nothing."""

    kind: str
    tokens: list[Token]
    name: str
    parameters: list[str]
    body: list[Token]

    @property
    def at(self) -> int:
        """The place of the name that it defines."""
        return next((t.at for t in self.tokens if t.text == self.name), self.tokens[0].at)


def lines(text: str) -> list[list[Token]]:
    """Return the tokens of each nonempty line; a line that begins with ``|`` is part of the
    previous one. Characters outside tokens have the kind ``other``, like the slash of an unfinished
    pattern, and a literal that does not end on its line."""
    out: list[list[Token]] = []
    line: list[Token] = []
    kinds, at = _KINDS, 0
    while (found := kinds.match(text, at)) is not None:
        kind, at = str(found.lastgroup), found.end()
        if kind == "open":
            kinds = kinds if found[0][0] == '"' else _NO_PATTERNS
            line.append(Token("other", found[0], found.start()))
        elif kind == "end":
            if line:
                out.append(line)
                line = []
        elif kind == "or":
            line.append(Token("|", "|", found.end() - 1))
        elif kind not in ("comment", "blank"):
            kind = found[0] if kind in ("command", "sign") else kind
            line.append(Token(kind, found[0], found.start()))
    return [*out, line] if line else out


def statements(text: str) -> list[Statement]:
    """Return the statements of a text; anything else has no kind.

    Skips text between them that is not a token.
    """
    found = [[t for t in line if t.kind != "other"] for line in lines(text)]
    return [_statement(line) for line in found if line]


def _statement(line: list[Token]) -> Statement:
    kinds = [token.kind for token in line]
    if kinds[0] in _COMMANDS:
        return Statement(kinds[0][1:], line, "", [], line[1:])
    first = int(kinds[0] in ("%override", "%extend"))
    named = first + (kinds[first : first + 1] == ["modifiers"])
    if ":" not in kinds or kinds[named] not in _NAMES:
        return Statement("", line, "", [], [])
    colon = kinds.index(":")
    head = line[named + 1 : colon] if "{" in kinds[named : named + 2] else []
    parameters = [token.text for token in head if token.kind == "rule"]
    return Statement(kinds[named], line, line[named].text, parameters, line[colon + 1 :])


def definitions(text: str) -> dict[str, tuple[int, set[str]]]:
    """Map each rule and terminal to the position of its definition, and the names in it; "" to the
    names outside definitions or in a changed one."""
    found: dict[str, tuple[int, set[str]]] = {"": (0, set())}
    for one in statements(text):
        is_own = one.name and one.tokens[0].kind not in ("%override", "%extend")
        names = {token.text for token in (one.body if one.kind else one.tokens)}
        found.setdefault(one.name if is_own else "", (one.at, set()))[1].update(names)
    return found


def declared(text: str) -> dict[str, int]:
    """Return the terminals that a text declares without defining them, with their positions."""
    defined = definitions(text)
    found = [t for one in statements(text) if one.kind == "declare" for t in one.body]
    return {t.text: t.at for t in found if t.kind == "terminal" and t.text not in defined}


def spend(text: str) -> None:
    """Count the work of one time that Lark reads ``text``; see `reading.spend`."""
    reading.spend_text(text, _STEPS)
    squares = sum(len(blanks) ** 2 for blanks in _BLANKS.findall(text))
    reading.spend(squares // 400, "the grammar has too many blank lines in a row; remove them")


def _check_terminals(terminals: list[Statement]) -> None:
    """Check the length of terminals with nested ones expanded, as Lark does.

    Raises:
        CompileLimitExceeded: a terminal is too long.
    """
    inner = {
        s.name: [token.text for token in s.body if token.kind == "terminal"] for s in terminals
    }
    own = {s.name: len(s.body) for s in terminals}
    # For each terminal, the number of its parts, and the total in all its parts: Lark visits a
    # terminal once for each of its parts.
    known: dict[str, tuple[int, int]] = {}
    try:
        in_order = [*TopologicalSorter(inner).static_order()]
    except CycleError:
        return  # a recursive terminal, which Lark refuses
    for name in in_order:
        if name in inner:
            parts = [known[part] for part in inner[name] if part in known]
            size = min(own[name] + sum(part[0] for part in parts), _MOST_NODES)
            work = min(size + sum(part[1] for part in parts), _MOST_NODES)
            known[name] = size, work
            if parts:
                reading.spend(
                    work,
                    "terminals inside terminals are too long when expanded; make them rules (in "
                    "lower case), or write patterns",
                    f"terminal {name}",
                )


_COMMON = (
    "DIGIT HEXDIGIT INT SIGNED_INT DECIMAL FLOAT SIGNED_FLOAT NUMBER SIGNED_NUMBER ESCAPED_STRING "
    "LCASE_LETTER UCASE_LETTER LETTER WORD CNAME WS WS_INLINE CR LF NEWLINE SH_COMMENT "
    "CPP_COMMENT C_COMMENT SQL_COMMENT"
)
"""The names of ``%import common.NAME``, for hints."""

_LIBRARY = ("common", "lark", "python", "unicode")
"""The grammars that come with Lark."""

_EXPECTED = {
    "OP": "* + or ?",
    "RULE": "the name of a rule",
    "TERMINAL": "the name of a terminal",
    "STRING": 'a literal, "…"',
    "REGEXP": "a pattern, /…/",
    "NUMBER": "a number",
    "_NL": "the end of the line",
    "_TO": "->",
    "_DOT": ".",
    "_DOTDOT": "..",
    "_COLON": ":",
    "_COMMA": ",",
    "_LPAR": "(",
    "_RPAR": ")",
    "_LBRA": "[",
    "_RBRA": "]",
    "_LBRACE": "{",
    "_RBRACE": "}",
    "_OR": "|",
    "TILDE": "~",
}
"""Lark's names of expected tokens, and their text."""

_FIXES = {
    "defined more than once": "Rename one of them, write both as alternatives of one definition, "
    "or write %override or %extend.",
    "Recursion in terminal": "Write a rule (in lower case), or repeat with * and +.",
    "inside terminals": "Make the terminal a rule (in lower case), or what is in it a terminal "
    "(in upper case).",
    "Empty terminals": "Remove the literal: an alternative may be empty, and ? makes things "
    "optional.",
    "Bad Range": "The first number is the minimum, the second the maximum.",
    "can only use newlines": "Write \\n for a line break, or add x to the pattern: /…/x.",
    "Aliasing not allowed": "Remove -> and the name.",
    "Nothing was imported": "Write %import common.NAME.",
    "marked to ignore": "Define them above, or import them: %import common.WS.",
    "nonexisting": "Write it without %override, or import it.",
    "wasn't defined before": "Define it above, or import it.",
    "with different parameters": "Use the same parameters in the same order.",
    "cannot use the ?rule": "Remove the underscore or the ?.",
    "number of template arguments": "Remove the {…} of a rule without parameters.",
    "limit (4300": "Repeat less often.",
}
"""The fix of a mistake, by Lark's message."""

_BY_RULE = {
    "range": 'A range goes from one character to another, without flags: "a".."z"',
    "template_usage": "A name with arguments here is not a template",
}
"""The problem, for parts of a rule at which Lark fails without a reason."""

_NAMED = re.compile(
    r"['`](\w+)['`]|<(\w+) :|\((\w+)\)|(?:[Rr]ule|[Tt]erminal|template|defined:|used for|at) (\w+)"
)
"""The part of Lark's messages that names their subject."""


def parse(
    text: str,
    start: str = "start",
    path: str | None = None,
    given: Mapping[str, Given] | None = None,
) -> ir.ContextFree:
    """Return the grammar of a Lark text.

    Args:
        text: the grammar; its rules may contain ``%json {…}``.
        start: the start rule.
        path: the file of the text, for relative imports; None: such imports are not allowed.
        given: terminals that the text only declares, or uses.

    Raises:
        GrammarError: the grammar is malformed.
        CompileLimitExceeded: it is too long, before or after expansion.
    """
    spend(text)
    if given or (path is not None and cache.reads_files(text)):
        return _read(text, start, path, given or {})
    return cache.get_or_read(text, start, lambda: _read(text, start, path, {}))


def _read(text: str, start: str, path: str | None, given: Mapping[str, Given]) -> ir.ContextFree:
    from lark.exceptions import LarkError

    source = embedded.lift(text, given)
    _check_text(source)
    files: list[tuple[str, str]] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trees = _Trees(source, _load(source, path, files))
            rules = trees.rules(start)
    except (
        LarkError,
        RecursionError,
        AssertionError,
        AttributeError,
        OSError,
        LookupError,
        ValueError,
    ) as error:
        raise _refusal(error, source, files) from None
    ignored = trees.ignored()
    return notation.build(rules, start, terminals=trees.terminals(), ignore=ignored)


class _Trees:
    """Converts Lark's trees of rules to expressions; terminals are not merged.

    Args:
        source: the text.
        grammar: the result of Lark's loader.
    """

    def __init__(self, source: Lifted, grammar: Any) -> None:
        from lark.lexer import TerminalDef
        from lark.load_grammar import PrepareLiterals, TerminalTreeToPattern

        self._source = source
        literals: Any = PrepareLiterals()
        patterns = literals * TerminalTreeToPattern()
        self._defined = {
            name: TerminalDef(name, patterns.transform(tree)).pattern
            for name, (tree, _) in grammar.term_defs
            if tree
        }
        self._names = {pattern: name for name, pattern in self._defined.items()}
        self._trees = {
            name: (parameters, literals.transform(tree))
            for name, parameters, tree, _ in grammar.rule_defs
        }
        self._ignored = grammar.ignore
        self._terminals: dict[Any, notation.Placed] = {}
        # Instances of templates, by template and arguments; and those still to be made.
        self._instances: dict[Any, str] = {}
        self._todo: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def rules(self, start: str) -> dict[str, notation.Expression]:
        """Return the rules that can be reached from ``start``."""
        if self._trees.get(start, [start])[0]:
            raise self._no_start(start)
        found: dict[str, notation.Expression] = {}
        self._todo[start] = start, {}
        while len(found) < len(self._todo):
            for name, (rule, given) in list(self._todo.items())[len(found) :]:
                tree = self._trees[rule][1]
                if given:
                    reading.spend(
                        _STEPS * len(list(tree.iter_subtrees())),
                        "templates expand to rules that are too long; use them less often",
                        f"rule {rule}",
                    )
                ways = [way.children[0] if way.data == "alias" else way for way in tree.children]
                found[name] = notation.Alternatives(tuple(self._made(way, given) for way in ways))
        return found

    def ignored(self) -> list[notation.Placed]:
        """Return the terminals that may come before any other."""
        skipped = [self._terminal(name) for name in self._ignored]
        for one in skipped:
            if not isinstance(one.terminal, ir.Terminal):
                raise _ignored(one.terminal.name, self._source)
        return skipped

    def terminals(self) -> list[notation.Placed]:
        """Return all terminals, sorted by name, so that grammars with the same terminals share
        their lexer."""
        return sorted(self._terminals.values(), key=lambda one: repr(one.terminal)[:_MAX_LENGTH])

    def _made(self, node: Any, given: Mapping[str, Any]) -> notation.Expression:
        """Return the expression of a tree node, with expressions ``given`` for parameters."""
        if node.data == "value":
            return self._value(node.children[0], given)
        if node.data in ("expansion", "expansions"):
            parts = tuple([self._made(part, given) for part in node.children])
            if len(parts) == 1:
                return parts[0]
            is_one = node.data == "expansion"
            return notation.Sequence(parts) if is_one else notation.Alternatives(parts)
        assert node.data in ("expr", "maybe")  # an alias in brackets, which Lark refuses
        body = self._made(node.children[0], given)
        if node.data == "maybe":
            return notation.Repeated(body, 0, 1)
        _, sign, *counts = node.children
        if sign.value != "~":
            least, most = _TIMES[sign.value]
            return notation.Repeated(body, least, most)
        try:
            least, most = int(counts[0]), int(counts[-1])
            if not 0 <= least <= most:
                raise ValueError(f"Bad Range: {least}..{most} isn't allowed")
        except ValueError as error:
            raise _refused(counts, error) from error
        return notation.Repeated(body, least, most)

    def _value(self, value: Any, given: Mapping[str, Any]) -> notation.Expression:
        if value.__class__.__name__ == "Terminal":
            return self._terminal(value.name)
        if value.__class__.__name__ == "NonTerminal":
            return self._rule(value.name, given)
        if value.data == "pattern":
            pattern = value.children[0]
            return self._terminal(self._names.get(pattern, pattern))
        return self._instance(value.children, given)

    def _rule(self, name: str, given: Mapping[str, Any]) -> notation.Expression:
        if name in given:
            found: notation.Expression = given[name]
            return found
        if name not in self._trees or self._trees[name][0]:
            raise self._source.error(
                f"{name!r} is used as a rule, but no rule has this name. Use a template with "
                f"arguments, {name}{{…}}; import a terminal in upper case.",
                _find(self._source.text, name, is_use=True),
            )
        self._todo.setdefault(name, (name, {}))
        return notation.Reference(name)

    def _instance(self, parts: Any, given: Mapping[str, Any]) -> notation.Expression:
        """Return a template with arguments, which may be templates."""
        template = given.get(parts[0].name, parts[0].name)
        arguments: list[Any] = []
        for part in parts[1:]:
            name = getattr(part.children[0], "name", None)
            is_template = name not in given and self._trees.get(name, ((),))[0]
            arguments.append(name if is_template else self._made(part, given))
        parameters = self._trees[template][0] if template in self._trees else ()
        if len(parameters) != len(arguments):
            raise self._source.error(
                "The grammar is malformed: A name with arguments here is not a template."
            )
        key = (template, *arguments)
        if key not in self._instances:
            shown = f"{template}{{{','.join(map(self._shown, arguments))}}}"
            if len(self._instances) >= MAX_INSTANCES or len(shown) > _MAX_LENGTH:
                raise CompileLimitExceeded(
                    f"template {template} is used with ever longer arguments, for example inside "
                    "itself with its arguments inside something else; write out the rules you need",
                    limit=MAX_INSTANCES,
                    actual=MAX_INSTANCES + 1,
                    path=f"rule {template}",
                )
            while shown in self._todo:
                shown += "'"
            self._instances[key] = shown
            self._todo[shown] = template, dict(zip(parameters, arguments, strict=True))
        return notation.Reference(self._instances[key])

    def _shown(self, argument: str | notation.Expression) -> str:
        if isinstance(argument, notation.Placed):
            return argument.terminal.name
        return argument.name if isinstance(argument, notation.Reference) else str(argument)

    def _terminal(self, key: Any) -> notation.Placed:
        """Return a terminal by its name, or by its pattern if it has none."""
        if key not in self._terminals:
            pattern = self._defined.get(key) if isinstance(key, str) else key
            made = _given(key, self._source) if pattern is None else self._of_pattern(key, pattern)
            self._terminals[key] = notation.Placed(made)
        return self._terminals[key]

    def _of_pattern(self, key: Any, pattern: Any) -> ir.Terminal:
        name = key if isinstance(key, str) else "__"
        shown = repr(pattern.value) if name.startswith("__") else name
        regex = pattern.to_regexp()
        is_literal = pattern.type == "str" and not pattern.flags and pattern.value
        try:
            may_be_empty = not is_literal and regexes.may_be_empty(regex)
        except (PatternError, UnsupportedFeature) as error:
            message = f"Terminal {shown}: {error}"
            where = pattern.raw or _range(message, self._source.text)
            placed = _error(message, self._source, where, name)
            is_error = isinstance(error, PatternError)
            raise (placed if is_error else UnsupportedFeature(str(placed))) from error
        _check_width(shown, may_be_empty, self._source, pattern.raw, name)
        return ir.Terminal(shown, regex)

    def _no_start(self, start: str) -> GrammarError:
        if start in self._trees:
            return _error(
                f"{start!r} is a template, but a grammar starts with a rule. Remove the "
                "parameters, or write a rule that uses it with arguments.",
                self._source,
                start,
            )
        names = sorted(name for name, (parameters, _) in self._trees.items() if not parameters)
        if not names:
            return GrammarError(
                f'The grammar has no rules. Write a rule in lower case: {start}: "text" TERMINAL'
            )
        shown = [name for name in names if not name.startswith("_")] or names
        return GrammarError(
            f"The grammar has no rule {start!r} to start with. Rules: {', '.join(shown)}. Choose "
            f"one of them: start={shown[0]!r}."
        )


def _refused(tokens: list[Any], error: Exception) -> Exception:
    """Return the error that Lark raises for these tokens."""
    import lark

    visit: Any = lark.exceptions.VisitError
    made: Exception = visit("expr", lark.Tree("tokens", tokens), error)
    return made


def _given(name: str, source: Lifted) -> ir.AnyTerminal:
    """Return a terminal that the grammar does not define."""
    terminal = source.embedded.get(name)
    if terminal is None:
        raise _error(
            f"Terminal {name} is declared (%declare) but never defined. Define it here, or pass "
            f"it: Cfg(..., terminals={{{name!r}: ...}}).",
            source,
            name,
        )
    if not isinstance(terminal, str):
        return terminal
    try:
        may_be_empty = regexes.may_be_empty(terminal)
    except PatternError as error:
        raise _error(f"Terminal {name}: {error}", source, name) from error
    _check_width(name, may_be_empty, source, name)
    return ir.Terminal(name, terminal)


def _load(source: Lifted, path: str | None, files: list[tuple[str, str]]) -> Any:
    """Load the grammar with Lark's loader; add the files that it imports to ``files``."""
    from lark.load_grammar import GrammarBuilder

    def imported(base: object, name: str) -> tuple[str, str]:
        file, text = _file_for_lark(base, name, path, source)
        files.append((file, text))
        spend(text)
        _check_text(embedded.plain(text), file)
        return file, text

    builder: Any = GrammarBuilder(import_paths=[imported])
    builder.load_grammar(source.text, path or "<grammar>")
    return builder.build()


def _check_text(source: Lifted, file: str = "") -> None:
    """Check that literals and patterns end, and the length of expanded terminals.

    For an unfinished literal, Lark would try all ways to read each backslash.

    Raises:
        GrammarError: one does not end.
        CompileLimitExceeded: terminals are too long.
    """
    for line in lines(source.text):
        for token in line:
            if token.kind == "other" and token.text[0] in '"/':
                error = _malformed(source, token.at, f"Unexpected {token.text[0]!r}.")
                raise _in_file(error, file) if file else error
    _check_terminals([one for one in statements(source.text) if one.kind == "terminal"])


def _in_file(error: GrammarError, file: str) -> GrammarError:
    message = str(error).replace("\n", "\n  ")
    return GrammarError(f"In {file}, which is imported: {message}")


def _file_for_lark(base: object, name: str, path: str | None, source: Lifted) -> tuple[str, str]:
    """Return the path and text of a file that Lark is about to import.

    Lark itself would read a byte order mark as part of the text and, if the file does not exist,
    open ``name`` in the working directory.

    Args:
        base: the folder of the importing file; otherwise the grammar comes with Lark.
        name: the path from there.
        path: the file of the grammar being read; None: not from a file, so it may not import files.
        source: the grammar being read.

    Raises:
        GrammarError: the file does not exist, or may not be read.
        FileNotFoundError: the grammar comes with Lark, which must read it.
    """
    shown = name.removesuffix(".lark").replace(os.sep, ".")
    first = shown.partition(".")[0]
    found = re.search(rf"^[ \t]*%import\b[\s\\.]*({first})\b", source.text, re.MULTILINE)
    at = None if found is None else found.start(1)
    if isinstance(base, str) and path is None:
        raise source.error(
            f"%import .{shown} reads a file in the folder of the grammar's file, but this grammar "
            "is a string. Pass its file instead, Cfg(Path(...)), or write here what it imports.",
            at,
        )
    try:
        if isinstance(base, str):
            file = os.path.join(base, name)
            with open(file, encoding="utf-8-sig") as stream:
                return file, stream.read()
        from importlib import resources

        (resources.files("lark") / "grammars").joinpath(name).read_text("utf-8")
    except (OSError, ValueError):
        if isinstance(base, str):
            message = (
                f"There is no {name} in {base or '.'} to import from. Names that start with a dot "
                "are files in the grammar's folder."
            )
        else:
            message = (
                f"Lark has no grammar {shown!r}.{_near(first, _LIBRARY)} It has "
                f"{', '.join(_LIBRARY)}; import a file in the grammar's folder as .{shown}."
            )
        raise source.error(message, at) from None
    raise FileNotFoundError(name)


def _refusal(error: Exception, source: Lifted, files: list[tuple[str, str]]) -> GrammarError:
    """Return structgen's error for an error of Lark.

    Args:
        error: Lark's error.
        source: the text.
        files: the imported files with their contents, in order.
    """
    from lark.exceptions import UnexpectedInput

    if isinstance(getattr(error, "orig_exc", error), RecursionError):
        return GrammarError(
            "The grammar cannot be loaded: it is nested too deeply, or files import each other in "
            "a circle. Move parts of it into their own rules."
        )
    cause = error if isinstance(error, UnexpectedInput) else error.__context__
    if isinstance(cause, UnexpectedInput):
        if not files:
            return _unexpected(cause, error, source, cause.pos_in_stream or 0)
        inner = embedded.plain(files[-1][1])
        at = inner.offset(cause.line, cause.column)
        return _in_file(_unexpected(cause, error, inner, at), files[-1][0])
    reason = re.sub(r'^Error trying to process rule "\w+":', "", str(error)).strip()
    reason = _BY_RULE.get(getattr(error, "rule", ""), reason)
    reason = re.sub(r"(?:Non)?Terminal\(('\w+')\)", r"\1", reason)
    template = re.match(r"Tree\('template_usage', \[('\w+')", reason)
    if template:
        reason = f"Templates aren't allowed inside terminals ({template[1]})"
    undefined = re.search(r"'(\w+)' used but not defined( \(in .*\))|not defined: (\w+)", reason)
    if undefined:
        return _undefined(undefined[1] or undefined[3], undefined[2] or "", source, files)
    place = _place(reason, source)
    found = statements(source.text)
    # Some Pythons raise another error for null bytes.
    if isinstance(cause, SyntaxError) or "null bytes" in reason:
        raw = error.args[0] if isinstance(cause, SyntaxError) else "\0"
        place = next((t.at for s in found for t in s.body if raw in t.text), None)
        reason = (
            f"{raw!r} has an invalid escape or the character NUL. Write \\\\ for a backslash, and "
            "\\x00 for NUL"
        )
    elif isinstance(error, AssertionError) and not reason:
        reason, place = _unexplained(found)
    elif isinstance(error, AttributeError):
        reason = "Only terminals can be declared; their names are in upper case"
        rules = (t.at for s in found if s.kind == "declare" for t in s.body if t.kind == "rule")
        place = next(rules, None)
    for token in getattr(getattr(error, "obj", None), "scan_values", lambda _: ())(bool):
        begin = getattr(token, "start_pos", None) or 0
        if source.text.startswith(str(token), begin):
            place = begin
            break
    reason = re.sub(r"\s+", " ", reason).rstrip(".!")
    fix = next((fix for what, fix in _FIXES.items() if what in reason), "")
    return source.error(f"The grammar is malformed: {reason}. {fix}".rstrip(), place)


def _unexplained(found: list[Statement]) -> tuple[str, int | None]:
    """Return the reason and position for an error of Lark without a reason."""
    declared = {t.text for s in found if s.kind == "declare" for t in s.body}
    for statement in found:
        depth = 0
        for token in statement.body:
            depth += (token.kind in "([") - (token.kind in ")]")
            if token.kind == "->" and depth:
                return (
                    "An alias (->) must name an alternative of the whole rule. Remove it, or make "
                    "a rule of what is in the brackets",
                    token.at,
                )
            if statement.kind == "terminal" and token.text in declared:
                return (
                    f"Terminal {token.text!r} is declared or passed, not defined, so it cannot be "
                    f"part of another terminal. Make {statement.name!r} a rule (in lower case)",
                    token.at,
                )
    return "Lark does not give a reason", None


def _unexpected(syntax: Any, error: Exception, source: Lifted, at: int) -> GrammarError:
    """Return an error about an unexpected token."""
    token = getattr(syntax, "token", None)
    if token is not None and token.type in ("_NL", "_NL_OR", "$END"):
        message = "The line ends too early here."
    else:
        message = f"Unexpected {source.text[at : at + 1] if token is None else str(token)!r}."
    reason = str(error).partition(", at line")[0]
    if token is not None and not reason.startswith("Unexpected"):
        message += f" {reason}."
    elif token is not None and reason.startswith("Unexpected token"):
        names = [_EXPECTED[name] for name in sorted(syntax.expected) if name in _EXPECTED]
        message += f" Expected: {', '.join(names)}."
    return _malformed(source, at, message)


def _malformed(source: Lifted, at: int, message: str) -> GrammarError:
    """Return an error about the text at ``at``, with its form in Lark."""
    advice = foreign.in_lark(source.original, source.position(at))
    mixed = foreign.mixed_case(source.text, at)
    if mixed is not None and not advice:
        return source.error(*mixed)
    return source.error(f"The grammar is malformed: {message} {advice}".rstrip(), at)


def _undefined(name: str, where: str, source: Lifted, files: list[tuple[str, str]]) -> GrammarError:
    """Return an error about an undefined name, with suggestions."""
    folder, _, own = name.rpartition("__")
    for file, text in files:
        if folder and os.path.basename(file) == f"{folder.rpartition('__')[2]}.lark":
            return _in_file(_undefined(own, where, embedded.plain(text), []), file)
    found = statements(source.text)
    wanted = next((t for s in found if s.kind == "import" for t in s.body if t.text == name), None)
    if wanted is not None:
        message = f"{name} is imported here, but the grammar that it comes from does not define it."
        return source.error(message + _near(name, _COMMON.split()), wanted.at)
    at = _find(source.text, name, is_use=True)
    mixed = None if at is None else foreign.mixed_case(source.text, at)
    if mixed is not None:
        return source.error(*mixed)
    known = {s.name: s.name for s in found if s.name}
    kind, fix = "Rule", f"{name}: ..."
    if name.lstrip("_")[:1].isupper():
        known = {one: f"%import common.{one}" for one in _COMMON.split()} | known
        kind, fix = "Terminal", f"{name}: /…/, or pass it: Cfg(..., terminals={{{name!r}: ...}})."
    near = _near(name, known)
    message = f"{kind} {name!r} used but not defined{where}.{near}"
    return source.error(f"{message}{' Else define' if near else ' Define'} it: {fix}", at)


def _near(name: str, known: Mapping[str, str] | Iterable[str]) -> str:
    """Return a suggestion as a sentence, or ""; ``known`` may map to texts."""
    shown = known if isinstance(known, Mapping) else {one: one for one in known}
    near = [shown[one] for one in difflib.get_close_matches(name, shown, 3)]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _place(reason: str, source: Lifted) -> int | None:
    """Return the position of the subject of a message of Lark, if it names one."""
    for match in _NAMED.finditer(reason):
        name = match[match.lastindex or 0]
        place = _find(source.text, name, is_use="used" in reason or "inside" in reason)
        if place is not None:
            return place
    sign = "~" if "Bad Range" in reason else "->" if "Aliasing" in reason else ""
    for token in (token for statement in statements(source.text) for token in statement.body):
        is_bad = token.kind == "pattern" and not _is_regex(token.text)
        is_named = token.kind in ("pattern", "literal") and token.text in reason
        if token.text == sign or is_bad or is_named:
            return token.at
    return None


def _is_regex(pattern: str) -> bool:
    """Return whether Lark accepts the text of a pattern."""
    end = pattern.rindex("/")
    try:
        re.compile(pattern[1:end])
    except (re.error, RecursionError, OverflowError):
        return False
    return "\n" not in pattern or "x" in pattern[end:]


def place_of(terminal: str, text: str) -> int | None:
    """Return the place of a terminal's pattern in a Lark text, by its name in messages."""
    from lark import load_grammar

    reader: Any = load_grammar
    for statement in statements(text):
        patterns = [token for token in statement.body if token.kind == "pattern"]
        if statement.kind == "terminal" and statement.name == terminal:
            return patterns[0].at if len(patterns) == 1 else statement.at
        for token in patterns:
            if repr(reader.eval_escaping(token.text[1 : token.text.rindex("/")])) == terminal:
                return token.at
    return None


def _find(text: str, name: str, *, is_use: bool = False) -> int | None:
    """Return the position at which a Lark text defines a name, or else first uses it; with
    ``is_use`` the other way round. A literal or pattern, given by its text, is only used."""
    found = statements(text)
    defined = [s.at for s in found if s.name == name]
    used = [t.at for s in found for t in s.body if t.text == name]
    return next(iter(used + defined if is_use else defined + used), None)


def _error(message: str, source: Lifted, *written: str | None) -> GrammarError:
    """Return an error about the first of these names, literals or patterns in the text."""
    places = [_find(source.text, one) for one in written if one]
    return source.error(message, next((at for at in places if at is not None), None))


def _range(message: str, text: str) -> str | None:
    """Return the first end, as written, of the character range in a message, if any."""
    for found in re.finditer(r'("(\\?.)")[ \t]*\.\.[ \t]*"(\\?.)"', text):
        if f"[{found[2]}-{found[3]}]" in message:
            return found[1]
    return None


def _ignored(name: str, source: Lifted) -> GrammarError:
    """Return an error about a terminal that is not a pattern, at the statement that ignores it."""
    message = (
        f"Only patterns can be ignored, not {name}. Write a pattern, or put it into the rules."
    )
    return source.error(message, _find(source.text, name, is_use=True))


def _check_width(shown: str, may_be_empty: bool, source: Lifted, *written: str | None) -> None:
    if may_be_empty:
        raise _error(
            f"Terminal {shown} can match the empty text, which is not supported for a terminal. "
            "Make it match something (+ instead of *), and make it optional in the rules.",
            source,
            *written,
        )
