"""Lark grammars → IR, read with the ``lark`` package.

Owns what the rules and terminals mean that Lark makes of a text: the language that
``lark.Lark(text, parser="earley")`` accepts with its dynamic lexer. A terminal takes what
``re.match`` takes of its pattern, where the rules expect it; ignored terminals may stand before any
terminal and at the end. Priorities choose among parses of a text, never among texts, so they are
dropped, like aliases and whatever else shapes the tree. Why Lark refuses a text the other modules
of this folder say; what they do not know is told with Lark's own message.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from structgen.errors import (
    CompileLimitExceeded,
    GrammarError,
    PatternError,
    UnsupportedFeature,
)
from structgen.grammar import ir
from structgen.grammar import regex as regexes
from structgen.grammar.cfg import cache as grammar_cache
from structgen.grammar.cfg import embedded
from structgen.grammar.cfg.embedded import Errors, Given, Lifted

from . import alternatives, imports, mistakes, repair, sizes, statements, syntax
from .statements import Mistake


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
    errors: Errors = None,
) -> ir.ContextFree:
    """The grammar of a Lark text.

    Args:
        text: the grammar; ``%json {…}`` may stand in its rules.
        start: the rule to begin with.
        path: the file it came from, for relative imports; None: it may have none.
        given: terminals that the text only declares, or uses.
        errors: see `cfg.parse`.

    Raises:
        GrammarError: the grammar is malformed.
        CompileLimitExceeded: it is too long, or what it stands for is.
    """
    sizes.spend(text)
    if given or errors is not None or (path is not None and grammar_cache.reads_files(text)):
        return _read(text, start, path, given or {}, errors)
    return grammar_cache.get_or_read(text, start, lambda: _read(text, start, path, {}, None))


def _read(
    text: str, start: str, path: str | None, given: Mapping[str, Given], errors: Errors
) -> ir.ContextFree:
    loaded, source = _loaded(embedded.lift(text, given, errors), start, path, errors)
    terminals: list[ir.AnyTerminal] = []
    numbers: dict[str, int] = {}
    for name, pattern in loaded.terminals:
        shown = repr(pattern.value) if name.startswith("__") else name
        regex = pattern.to_regexp()
        try:
            _check_pattern(name, shown, pattern, regex, source)
        except GrammarError as error:
            embedded.report(errors, error)
            regex = embedded.MADE_UP
        except UnsupportedFeature as error:
            placed = _error(f"Terminal {shown}: {error}", source, name, pattern.raw)
            if errors is None:
                raise UnsupportedFeature(str(placed)) from error
            errors.append(placed)
            regex = embedded.MADE_UP
        numbers[name] = len(terminals)
        terminals.append(ir.Terminal(shown, regex))
    nonterminals = {name: ~number for number, name in enumerate(loaded.nonterminals)}
    numbers |= nonterminals
    lowered: dict[tuple[int, tuple[int, ...]], None] = {}

    def number_of(name: str) -> int:
        if name not in numbers:
            numbers[name] = len(terminals)
            terminals.append(ir.SpecialToken(name))
            try:
                terminals[-1] = _given(name, source)
            except GrammarError as error:
                embedded.report(errors, error)
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
            name = terminals[number].name
            embedded.report(errors, _ignored(name, source))
    skipped = tuple([n for n in skipped if isinstance(terminals[n], ir.Terminal)])
    return ir.ContextFree(
        tuple(terminals), tuple(nonterminals), tuple(lowered), ~numbers[start], skipped
    )


def _loaded(source: Lifted, start: str, path: str | None, errors: Errors) -> tuple[Loaded, Lifted]:
    """A text as Lark loads it, and that text; first all its mistakes are told.

    When there are any, what has them has been taken out of it, to see what else is wrong.
    """
    told: set[str] = set()
    while True:
        loaded: Loaded | None = None
        refused: GrammarError | None = None
        try:
            loaded = _load(source, start, path)
        except GrammarError as error:
            refused = error
        found = _mistakes(source, start, path, loaded, errors is not None)
        if loaded is not None and not found:
            return loaded, source
        if refused is not None and not found:
            found = _culprit(source, start, path, refused)
        new = [m.error for m in found if str(m.error) not in told]
        if errors is None or not new or len(told) > embedded.MOST_ERRORS:
            # A mistake that is told again has been looked for in the wrong statement.
            raise (new or [mistake.error for mistake in found])[0]
        told.update(map(str, new))
        errors += new
        try:
            sizes.spend(source.text)
        except CompileLimitExceeded:
            raise new[0] from None  # it has been told, with all before it
        source = repair.taken_out(
            source,
            [mistake.span for mistake in found if mistake.span is not None],
            [name for mistake in found for name in mistake.defines],
        )


def _mistakes(
    source: Lifted, start: str, path: str | None, loaded: Loaded | None, everything: bool
) -> list[Mistake]:
    """What is known to be wrong with a text.

    Args:
        source: the text.
        start: the rule to begin with.
        path: the file it came from.
        loaded: what Lark makes of it; None where it refuses it.
        everything: whether all mistakes are to be told.
    """
    if loaded is not None:
        used = {symbol for _, way in loaded.rules for symbol in way}
        return [
            mistake
            for mistake in mistakes.mistakes(source, path, start, everything=everything)
            if mistake.passes and (everything or mistake.open_name in ("", *used))
        ]
    return (
        statements.malformed(source)
        or mistakes.mistakes(source, path, start, everything=everything)
        or list(alternatives.twice(source))
        or mistakes.mistakes(source, path, start, everything=True)
    )


def _culprit(source: Lifted, start: str, path: str | None, refused: GrammarError) -> list[Mistake]:
    """What Lark says of a text, at the statement that it says it of."""

    def is_refused(text: Lifted) -> bool:
        sizes.spend(text.text)
        try:
            _load(text, start, path)
        except GrammarError:
            return True
        return False

    try:
        statement = repair.culprit(source, is_refused)
    except CompileLimitExceeded:
        statement = None  # to look for it takes too much
    if statement is None:
        raise refused
    return [Mistake.at(statement.at, str(refused), source, statement)]


def _given(name: str, source: Lifted) -> ir.AnyTerminal:
    """A terminal that the grammar does not define."""
    terminal = source.embedded.get(name)
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
        GrammarError: Lark refuses it; with what Lark says, and no place.
    """
    import lark

    if any(
        t.kind == "other" and t.text[0] in '"/' for line in syntax.lines(source.text) for t in line
    ):
        # Lark would try all ways to read each backslash behind it.
        raise GrammarError("The grammar is malformed: a literal or a pattern never ends.")
    text, made_up = sizes.bounded(source.text)
    patterns: dict[str, Any] = {}

    def keep(terminal: Any) -> None:
        # Lark would compile the patterns and refuse some, without a place: that is ours to do.
        patterns[str(terminal.name)] = terminal.pattern
        terminal.pattern = _stand_in()

    def imported(base: object, name: str) -> tuple[str, str]:
        file, text = imports.text_for_lark(base, name, path)
        sizes.spend(text)
        return file, sizes.bounded(text, is_imported=True)[0]

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
                made = lark.Lark(text, parser=None, lexer="basic", **options)
            except lark.exceptions.LexError:
                # Something that is ignored is given from outside, of which lexers know nothing.
                _check_start(source, start)
                made = lark.Lark(text, parser="earley", **options)
    except (lark.exceptions.LarkError, RecursionError) as error:
        # What goes wrong while Lark walks over a tree it tells with a note of where.
        if isinstance(getattr(error, "orig_exc", error), RecursionError):
            raise GrammarError(
                "The grammar cannot be loaded: it is nested too deeply, or files import each other "
                "in a circle. Give parts of it names, as rules of their own."
            ) from None
        raise GrammarError(f"The grammar is malformed: {str(error).strip()}") from None
    except (AssertionError, AttributeError, OSError, LookupError, ValueError) as error:
        said = f": {error}." if str(error) else ", and Lark does not say why."
        raise GrammarError(f"The grammar cannot be loaded{said}") from error

    def name_of(symbol: Any) -> str:
        # What the text has no name for begins with underscores, as Lark's own helpers do.
        name = str(symbol.name)
        return f"__{name}" if name.startswith(made_up) else name

    rules = [(name_of(r.origin), tuple([name_of(s) for s in r.expansion])) for r in made.rules]
    nonterminals = dict.fromkeys([name for name, _ in rules])
    if start not in nonterminals:
        _check_start(source, start)
    ignored = [str(name) for name in made.ignore_tokens]
    mentioned = set(ignored).union(*[way for _, way in rules])
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
    names = statements.rules(source.text)
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


def _error(message: str, source: Lifted, name: str | None, raw: str | None = None) -> GrammarError:
    """An error about ``name``, placed where the grammar defines it, else where it first uses it; or
    where it is written, ``raw``."""
    found = None
    if raw is None and name and name.startswith("__"):
        raw = _range(message, source.text)
    if raw is not None and raw in source.text:
        return source.error(message, statements.literal(source.text, raw))
    if name:
        escaped = re.escape(name)
        found = re.search(rf"(?<=^){escaped}(?=[.:{{ ])", source.text, re.MULTILINE)
        found = found or re.search(rf"(?<!\w){escaped}(?!\w)", source.text)
    at = -1
    if found is not None:
        at = found.start()
    elif name and name.startswith("__IGNORE"):
        at = statements.ignored(source.text, int(name.rpartition("_")[2]))
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
