"""Lark grammars → IR, read with the ``lark`` package.

Owns what the rules and terminals mean that Lark makes of a text: the language that
``lark.Lark(text, parser="earley")`` accepts with its dynamic lexer. A terminal takes what
``re.match`` takes of its pattern, where the rules expect it; ignored terminals may stand before any
terminal and at the end. Priorities choose among parses of a text, never among texts, so they are
dropped, like aliases and whatever else shapes the tree.

Lark ends at the first mistake that it finds. Its message is told with the place in the user's text,
and with what mends it. A text that comes from no file may be a stranger's, so it reads no file:
relative imports are for grammars that are files themselves.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from structgen.errors import GrammarError, PatternError, UnsupportedFeature
from structgen.grammar import ir
from structgen.grammar import regex as regexes

from . import cache, embedded, foreign, lark_sizes
from .embedded import Given, Lifted
from .lark_sizes import Statement, lines, statements

_COMMON = (
    "DIGIT HEXDIGIT INT SIGNED_INT DECIMAL FLOAT SIGNED_FLOAT NUMBER SIGNED_NUMBER ESCAPED_STRING "
    "LCASE_LETTER UCASE_LETTER LETTER WORD CNAME WS WS_INLINE CR LF NEWLINE SH_COMMENT "
    "CPP_COMMENT C_COMMENT SQL_COMMENT"
)
"""What ``%import common.NAME`` finds, for hints."""

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
"""How Lark calls what may come next, and how it is written."""

_FIXES = {
    "defined more than once": "Give one of them another name, write both as alternatives of one "
    "definition, or say %override or %extend.",
    "Recursion in terminal": "Write a rule (in lower case), or repeat with * and +.",
    "inside terminals": "Make a rule of the terminal (in lower case), or a terminal of what is in "
    "it (in upper case).",
    "Rules defined twice": "Leave one alternative out.",
    "Empty terminals": "Leave the literal out: an alternative may be empty, and ? makes things "
    "optional.",
    "cannot be empty": "Give it a literal or a pattern, and make it optional where rules use it.",
    "Bad Range": "The first number is the least, the second the most.",
    "can only use newlines": r"Write \n for a line break, or put x behind the pattern: /…/x.",
    "Aliasing not allowed": "Leave -> and the name out.",
    "Nothing was imported": "Write %import common.NAME.",
    "nonexisting": "Write it without %override, or import it.",
    "wasn't defined before": "Define it above, or import it.",
    "with different parameters": "Name the same parameters in the same order.",
    "marked for expansion": "Leave the underscore or the alias out.",
    "cannot use the ?rule": "Leave the underscore or the ? out.",
    "number of template arguments": "A rule without parameters takes no {…}.",
    "limit (4300": "Repeat less often.",
}
"""What mends a mistake, by what Lark says of it."""

_BY_RULE = {
    "range": 'A range is from one character to another, without flags: "a".."z"',
    "template_usage": "What is used with arguments here is no template",
}
"""What is wrong where Lark fails at a part of a rule without saying why."""

_NAMED = re.compile(
    r"['`](\w+)['`]|<(\w+) :|\((\w+)\)|(?:[Rr]ule|[Tt]erminal|template|defined:|used for|at) (\w+)"
)
"""Where the messages of Lark name what they are about."""


class Loaded(NamedTuple):
    """A grammar as Lark loads it.

    Attributes:
        terminals: name and pattern (a Lark `Pattern`) of each terminal that is used.
        rules: names of a nonterminal and of the symbols it may consist of.
        nonterminals: their names.
        ignored: names of terminals.
    """

    terminals: list[tuple[str, Any]]
    rules: list[tuple[str, tuple[str, ...]]]
    nonterminals: dict[str, None]
    ignored: list[str]


def parse(
    text: str,
    start: str = "start",
    path: str | None = None,
    given: Mapping[str, Given] | None = None,
) -> ir.ContextFree:
    """The grammar of a Lark text.

    Args:
        text: the grammar; ``%json {…}`` may stand in its rules.
        start: the rule to begin with.
        path: the file it came from, for relative imports; None: it may have none.
        given: terminals that the text only declares, or uses.

    Raises:
        GrammarError: the grammar is malformed.
        CompileLimitExceeded: it is too long, or what it stands for is.
    """
    lark_sizes.spend(text)
    if given or (path is not None and cache.reads_files(text)):
        return _read(text, start, path, given or {})
    return cache.get_or_read(text, start, lambda: _read(text, start, path, {}))


def _read(text: str, start: str, path: str | None, given: Mapping[str, Given]) -> ir.ContextFree:
    source = embedded.lift(text, given)
    loaded = _load(source, start, path)
    terminals: list[ir.AnyTerminal] = []
    numbers: dict[str, int] = {}
    for name, pattern in loaded.terminals:
        shown = repr(pattern.value) if name.startswith("__") else name
        regex = pattern.to_regexp()
        try:
            _check_pattern(name, shown, pattern, regex, source)
        except UnsupportedFeature as error:
            placed = _error(f"Terminal {shown}: {error}", source, name, pattern.raw)
            raise UnsupportedFeature(str(placed)) from error
        numbers[name] = len(terminals)
        terminals.append(ir.Terminal(shown, regex))
    nonterminals = {name: ~number for number, name in enumerate(loaded.nonterminals)}
    numbers |= nonterminals
    lowered: dict[tuple[int, tuple[int, ...]], None] = {}

    def number_of(name: str) -> int:
        if name not in numbers:
            terminals.append(_given(name, source))
            numbers[name] = len(terminals) - 1
        return numbers[name]

    for name, way in loaded.rules:
        try:
            symbols = tuple([numbers[symbol] for symbol in way])
        except KeyError:
            symbols = tuple(map(number_of, way))
        lowered[~numbers[name], symbols] = None
    skipped = tuple(map(number_of, loaded.ignored))
    for number in skipped:
        if not isinstance(terminals[number], ir.Terminal):
            raise _ignored(terminals[number].name, source)
    return ir.ContextFree(
        tuple(terminals), tuple(nonterminals), tuple(lowered), ~numbers[start], skipped
    )


def _given(name: str, source: Lifted) -> ir.AnyTerminal:
    """A terminal that the grammar does not define."""
    terminal = source.embedded.get(name)
    if terminal is None and not name.isupper():
        use = re.search(rf"(?<!\w){name}(?![\w{{:])", source.text)
        raise source.error(
            f"{name!r} is used as a rule, and none has this name. A template is used with "
            f"arguments, {name}{{…}}; a terminal is imported in upper case.",
            None if use is None else use.start(),
        )
    if terminal is None:
        raise _error(
            f"Terminal {name} is declared (%declare) but never defined, so it cannot be written. "
            f"Define it here, or give it: Cfg(..., terminals={{{name!r}: ...}}).",
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


def _load(source: Lifted, start: str, path: str | None) -> Loaded:
    """The grammar as Lark loads it.

    Raises:
        GrammarError: Lark refuses it.
        CompileLimitExceeded: see `lark_sizes.bounded`.
    """
    import lark

    _check_literals(source)
    bounded = lark_sizes.bounded(source.text)
    files: list[tuple[str, str]] = []
    patterns: dict[str, Any] = {}

    def keep(terminal: Any) -> None:
        # Lark would compile the patterns and refuse some, without a place: that is ours to do.
        patterns[str(terminal.name)] = terminal.pattern
        terminal.pattern = _stand_in()

    def imported(base: object, name: str) -> tuple[str, str]:
        file, text = _file_for_lark(base, name, path, source)
        files.append((file, text))
        lark_sizes.spend(text)
        _check_literals(embedded.plain(text), file)
        return file, lark_sizes.bounded(text, is_imported=True).text()

    options: dict[str, Any] = {
        "start": start,
        "source_path": path or "<grammar>",
        "import_paths": [imported],
        "edit_terminals": keep,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                # Without a parser: to build one takes as long again.
                made = lark.Lark(bounded.text(), parser=None, lexer="basic", **options)
            except lark.exceptions.LexError:
                # Something that is ignored is given from outside, of which lexers know nothing.
                _check_start(source, start)
                made = lark.Lark(bounded.text(), parser="earley", **options)
    except (
        lark.exceptions.LarkError,
        RecursionError,
        AssertionError,
        AttributeError,
        OSError,
        LookupError,
        ValueError,
    ) as error:
        raise _refusal(error, source, bounded.position, files) from None

    def name_of(symbol: Any) -> str:
        # What the text has no name for begins with underscores, as Lark's own helpers do.
        name = str(symbol.name)
        return f"__{name}" if name.startswith(bounded.prefix) else name

    rules = [(name_of(r.origin), tuple([name_of(s) for s in r.expansion])) for r in made.rules]
    nonterminals = dict.fromkeys([name for name, _ in rules])
    if start not in nonterminals:
        _check_start(source, start)
    ignored = [str(name) for name in made.ignore_tokens]
    mentioned = {str(s.name) for rule in made.rules for s in rule.expansion if s.is_term}
    mentioned |= set(ignored)
    terminals = [item for item in patterns.items() if item[0] in mentioned]
    return Loaded(terminals, rules, nonterminals, ignored)


@functools.cache
def _stand_in() -> Any:
    """A pattern that is none of the grammar's."""
    from lark.lexer import PatternStr

    return PatternStr("x")


def _check_start(source: Lifted, start: str) -> None:
    """Look whether there is a rule to start with.

    Raises:
        GrammarError: there is none.
    """
    templates = [s.name for s in statements(source.text) if s.parameters]
    if start in templates:
        raise _error(
            f"{start!r} is a template, and a grammar starts with a rule. Take the parameters away, "
            "or write a rule that uses it with arguments.",
            source,
            start,
        )
    names = lark_sizes.rules(source.text)
    if not names:
        raise GrammarError(
            f'The grammar has no rules. A rule is written in lower case: {start}: "text" TERMINAL'
        )
    if start not in names:
        shown = [name for name in sorted(names) if not name.startswith("_")] or sorted(names)
        raise GrammarError(
            f"The grammar has no rule {start!r} to start with. Rules: {', '.join(shown)}. "
            "Name one of them as start."
        )


def _check_literals(source: Lifted, file: str = "") -> None:
    """Look whether literals and patterns end: of one that does not Lark would try all ways to read
    each backslash in it.

    Raises:
        GrammarError: one does not.
    """
    for line in lines(source.text):
        for token in line:
            if token.kind == "other" and token.text[0] in '"/':
                error = _malformed(source, token.at, f"Unexpected {token.text[0]!r}.")
                raise _in_file(error, file) if file else error


def _in_file(error: GrammarError, file: str) -> GrammarError:
    told = str(error).replace("\n", "\n  ")
    return GrammarError(f"In {file}, which is imported: {told}")


def _file_for_lark(base: object, name: str, path: str | None, source: Lifted) -> tuple[str, str]:
    """The path and text of a file that Lark is about to import.

    Lark would read it by itself, with a byte order mark as a part of the text; and where it finds
    nothing, it would open ``name`` in the working directory.

    Args:
        base: the folder of the file that imports it; else the grammar comes with Lark.
        name: its path from there.
        path: the file of the grammar that is read; None: it has none, and reads none.
        source: the grammar that is read.

    Raises:
        GrammarError: there is none, or it may not be read.
        FileNotFoundError: it comes with Lark, which is to read it.
    """
    shown = name.removesuffix(".lark").replace(os.sep, ".")
    first = shown.partition(".")[0]
    found = re.search(rf"^[ \t]*%import\b[\s\\.]*({first})\b", source.text, re.MULTILINE)
    at = None if found is None else found.start(1)
    if isinstance(base, str) and path is None:
        raise source.error(
            f"%import .{shown} reads a file beside the grammar's own file, and this grammar is "
            "given as a text. Pass its file instead, Cfg(Path(...)), or write here what it "
            "imports.",
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
                f"There is no {name} in {base or '.'} to import from. Names with a dot in front "
                "are files beside the grammar's."
            )
        else:
            message = (
                f"There is no grammar {shown!r} that comes with Lark.{_near(first, _LIBRARY)} "
                f"Those that do are {', '.join(_LIBRARY)}; a file beside the grammar's is "
                f"imported as .{shown}."
            )
        raise source.error(message, at) from None
    raise FileNotFoundError(name)


def _refusal(
    error: Exception, source: Lifted, position: Callable[[int], int], files: list[tuple[str, str]]
) -> GrammarError:
    """What Lark refuses a text for, as we tell it.

    Args:
        error: Lark's.
        source: the text.
        position: where a character stands in it that Lark was given.
        files: those that have been imported, with what they say; the last one last.
    """
    from lark.exceptions import UnexpectedInput

    if isinstance(getattr(error, "orig_exc", error), RecursionError):
        return GrammarError(
            "The grammar cannot be loaded: it is nested too deeply, or files import each other in "
            "a circle. Give parts of it names, as rules of their own."
        )
    cause = error if isinstance(error, UnexpectedInput) else error.__context__
    if isinstance(cause, UnexpectedInput):
        if not files:
            return _unexpected(cause, error, source, position(cause.pos_in_stream or 0))
        inner = embedded.plain(files[-1][1])
        at = inner.offset(cause.line, cause.column)
        return _in_file(_unexpected(cause, error, inner, at), files[-1][0])
    said = re.sub(r'^Error trying to process rule "\w+":', "", str(error)).strip()
    said = _BY_RULE.get(getattr(error, "rule", ""), said)
    said = re.sub(r"(?:Non)?Terminal\(('\w+')\)", r"\1", said)
    template = re.match(r"Tree\('template_usage', \[('\w+')", said)
    if template:
        said = f"Templates aren't allowed inside terminals ({template[1]})"
    undefined = re.search(r"'(\w+)' used but not defined( \(in .*\))|not defined: (\w+)", said)
    if undefined:
        return _undefined(undefined[1] or undefined[3], undefined[2] or "", source, files)
    place = _place(said, source)
    found = statements(source.text)
    if isinstance(cause, SyntaxError):
        raw = error.args[0]
        place = next((t.at for s in found for t in s.body if raw in t.text), None)
        said = (
            f"{raw!r} has an escape that is none, or the character NUL. Write \\\\ for a "
            "backslash, and \\x00 for NUL"
        )
    elif isinstance(error, AssertionError) and not said:
        said, place = _unsaid(found)
    elif isinstance(error, AttributeError):
        said = "Only terminals can be declared, whose names are in upper case"
        rules = (t.at for s in found if s.kind == "declare" for t in s.body if t.kind == "rule")
        place = next(rules, None)
    for token in getattr(getattr(error, "obj", None), "scan_values", lambda _: ())(bool):
        begin = position(getattr(token, "start_pos", None) or 0)
        if source.text.startswith(str(token), begin):
            place = begin
            break
    said = re.sub(r"\s+", " ", said).rstrip(".")
    fix = next((fix for what, fix in _FIXES.items() if what in said), "")
    return source.error(f"The grammar is malformed: {said}. {fix}".rstrip(), place)


def _unsaid(found: list[Statement]) -> tuple[str, int | None]:
    """Why Lark refuses a text where it does not say, and where."""
    declared = {t.text for s in found if s.kind == "declare" for t in s.body}
    for statement in found:
        depth = 0
        for token in statement.body:
            depth += (token.kind in "([") - (token.kind in ")]")
            if token.kind == "->" and depth:
                return (
                    "An alias (->) names an alternative of the whole rule. Leave it out, or make a "
                    "rule of what is in the brackets",
                    token.at,
                )
            if statement.kind == "terminal" and token.text in declared:
                return (
                    f"Terminal {token.text!r} is declared or given, not defined, so it cannot be "
                    f"part of another terminal. Make {statement.name!r} a rule (in lower case)",
                    token.at,
                )
    return "Lark does not say why", None


def _unexpected(syntax: Any, error: Exception, source: Lifted, at: int) -> GrammarError:
    """An error about something that does not belong where it stands."""
    token = getattr(syntax, "token", None)
    if token is not None and token.type in ("_NL", "_NL_OR", "$END"):
        message = "The line ends too early here."
    else:
        message = f"Unexpected {source.text[at : at + 1] if token is None else str(token)!r}."
    said = str(error).partition(", at line")[0]
    if token is not None and not said.startswith("Unexpected"):
        message += f" {said}."
    elif token is not None and said.startswith("Unexpected token"):
        names = [_EXPECTED[name] for name in sorted(syntax.expected) if name in _EXPECTED]
        message += f" Expected: {', '.join(names)}."
    return _malformed(source, at, message)


def _malformed(source: Lifted, at: int, message: str) -> GrammarError:
    """An error about something at ``at``, with what is written there in Lark."""
    mixed = foreign.mixed_case(source.text, at)
    if mixed is not None:
        return source.error(foreign.of_mixed_case(mixed[0]), mixed[1])
    advice = foreign.in_lark(source.original, source.position(at))
    return source.error(f"The grammar is malformed: {message} {advice}".rstrip(), at)


def _undefined(name: str, where: str, source: Lifted, files: list[tuple[str, str]]) -> GrammarError:
    """An error about a name that nothing defines, with what was probably meant."""
    folder, _, own = name.rpartition("__")
    for file, text in files:
        if folder and os.path.basename(file) == f"{folder.rpartition('__')[2]}.lark":
            return _in_file(_undefined(own, where, embedded.plain(text), []), file)
    found = statements(source.text)
    at = next((t.at for s in found for t in s.body if t.text == name and s.kind != "import"), None)
    mixed = None if at is None else foreign.mixed_case(source.text, at)
    if mixed is not None:
        return source.error(foreign.of_mixed_case(mixed[0]), mixed[1])
    wanted = next((t for s in found if s.kind == "import" for t in s.body if t.text == name), None)
    if wanted is not None:
        message = f"{name} is imported here, and the grammar that it comes from does not define it."
        return source.error(message + _near(name, _COMMON.split()), wanted.at)
    defined = [s.name for s in found if s.name]
    if not name.lstrip("_")[:1].isupper():
        fix = _near(name, defined) or f" Define it: {name}: ..."
        return source.error(f"Rule {name!r} used but not defined{where}.{fix}", at)
    close = difflib.get_close_matches(name, defined, 2)
    close += [
        f"%import common.{other}" for other in difflib.get_close_matches(name, _COMMON.split(), 2)
    ]
    message = f"Terminal {name!r} used but not defined{where}. "
    message += f"Did you mean {' or '.join(close)}? Else define it, " if close else "Define it, "
    message += f"{name}: /pattern/, or give it: Cfg(..., terminals={{{name!r}: ...}})."
    return source.error(message, at)


def _near(name: str, known: Iterable[str]) -> str:
    """What was probably meant, as a sentence; or nothing."""
    near = difflib.get_close_matches(name, list(known), 3)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _place(said: str, source: Lifted) -> int | None:
    """Where the text has what a message of Lark's is about, if it names that."""
    found = statements(source.text)
    for match in _NAMED.finditer(said):
        name = match[match.lastindex or 0]
        defined = [s.at for s in found if s.name == name]
        defined += [t.at for s in found if s.kind == "declare" for t in s.body if t.text == name]
        used = [t.at for s in found for t in s.body if t.text == name]
        for places in (used, defined) if "used" in said or "inside" in said else (defined, used):
            if places:
                return places[min("more than once" in said, len(places) - 1)]
    for statement in found:
        for token in statement.body:
            if token.text == ("~" if "Bad Range" in said else "->" if "Aliasing" in said else ""):
                return token.at
            if token.kind == "pattern" and (token.text in said or not _is_regex(token.text)):
                return token.at
            if token.kind == "literal" and token.text in said:
                return token.at
    return None


def _is_regex(pattern: str) -> bool:
    """Whether Lark takes a pattern, as it is written."""
    end = pattern.rindex("/")
    try:
        re.compile(pattern[1:end])
    except (re.error, RecursionError, OverflowError):
        return False
    return "\n" not in pattern or "x" in pattern[end:]


def _raw(text: str, raw: str) -> int:
    """Where a literal or pattern that is written so stands first."""
    tokens = (token for line in lines(text) for token in line)
    return next((token.at for token in tokens if token.text == raw), text.index(raw))


def place_of(terminal: str, text: str) -> int | None:
    """Where a Lark text has the pattern of a terminal, by what messages call that."""
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


def _error(message: str, source: Lifted, name: str | None, raw: str | None = None) -> GrammarError:
    """An error about ``name``, placed where the grammar defines it, else where it first uses it; or
    where it is written, ``raw``."""
    found = None
    if raw is None and name and name.startswith("__"):
        raw = _range(message, source.text)
    if raw is not None and raw in source.text:
        return source.error(message, _raw(source.text, raw))
    if name:
        escaped = re.escape(name)
        found = re.search(rf"(?<=^){escaped}(?=[.:{{ ])", source.text, re.MULTILINE)
        found = found or re.search(rf"(?<!\w){escaped}(?!\w)", source.text)
    at = -1
    if found is not None:
        at = found.start()
    elif name and name.startswith("__IGNORE"):
        ignored = [s.tokens[0].at for s in statements(source.text) if s.kind == "ignore"]
        at = ([*ignored, -1] * 2)[int(name.rpartition("_")[2])]
    return source.error(message, None if at < 0 else at)


def _range(message: str, text: str) -> str | None:
    """The range of characters, as it is written, that a message is about."""
    for found in re.finditer(r'"(\\?.)"[ \t]*\.\.[ \t]*"(\\?.)"', text):
        if f"[{found[1]}-{found[2]}]" in message:
            return found[0]
    return None


def _ignored(name: str, source: Lifted) -> GrammarError:
    """An error about a terminal that is no pattern, at the statement that ignores it."""
    message = (
        f"Only patterns can be ignored, not {name}. Write a pattern, or put it into the rules."
    )
    found = re.search(rf"^[ \t]*%ignore[^\n]*?\b({name.split()[-1]})\b", source.text, re.MULTILINE)
    return source.error(message, None if found is None else found.start(1))


def _check_pattern(name: str, shown: str, pattern: Any, regex: str, source: Lifted) -> None:
    if pattern.type == "str" and not pattern.flags and pattern.value:
        return  # a literal
    try:
        may_be_empty = regexes.may_be_empty(regex)
    except PatternError as error:
        raise _error(f"Terminal {shown}: {error}", source, name, pattern.raw) from error
    _check_width(shown, may_be_empty, source, name, pattern.raw)


def _check_width(
    shown: str, may_be_empty: bool, source: Lifted, name: str, raw: str | None = None
) -> None:
    if may_be_empty:
        raise _error(
            f"Terminal {shown} can match the empty text, which a terminal must "
            "not. Make it match something (+ instead of *), and make it optional in the rules.",
            source,
            name,
            raw,
        )
