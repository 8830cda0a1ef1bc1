"""Lark grammars → IR, read with the ``lark`` package's own loader.

Grammars without mistakes are read by `cfg_lark_rules`, with that loader's tables and classes, but
without its trees; all others, and what is not plain, by the loader itself.

Owns what the loaded rules and terminals mean: the language that ``lark.Lark(text,
parser="earley")`` accepts with its dynamic lexer. A terminal takes what ``re.match`` takes of its
pattern, where the rules expect it; ignored terminals may stand before any terminal and at the end.
Priorities choose among parses of a text, never among texts, so they are dropped, like aliases and
whatever else shapes the tree.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

from structgen.errors import GrammarError, PatternError, UnsupportedFeature
from structgen.grammar import ir
from structgen.grammar.cfg import cache as grammar_cache
from structgen.grammar.cfg import embedded
from structgen.grammar.cfg.embedded import Errors, Given, Lifted
from structgen.grammar.regex import python as python_regex
from structgen.grammar.regex import tree as regex_tree

from . import imports, mistakes, repair, statements
from . import rules as cfg_lark_rules
from .rules import Loaded
from .statements import Mistake
from .syntax import NotPlain


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
        path: the file it came from, for relative imports.
        given: terminals that the text only declares, or uses.
        errors: see `cfg.parse`.

    Raises:
        GrammarError: the grammar is malformed.
    """
    if given or errors is not None:
        return _read(text, start, path, given or {}, errors)
    return grammar_cache.get_or_read(text, start, lambda: _read(text, start, path, {}, None))


_MOST_MISTAKES = 100
"""Most mistakes that are looked for in one text."""


def _read(
    text: str, start: str, path: str | None, given: Mapping[str, Given], errors: Errors
) -> ir.ContextFree:
    source = embedded.lift(text, given, errors)
    loaded = None
    if errors is None:
        with contextlib.suppress(NotPlain):
            loaded = cfg_lark_rules.load(source.text, start)
    if loaded is None:
        loaded, source = _loaded(source, start, path, errors)
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
    """A text as Lark's loader reads it, and that text; first all its mistakes are told.

    When there are any, what has them has been taken out of it, to see what else is wrong.
    """
    told: set[str] = set()
    while True:
        loaded: Loaded | None = None
        found: list[Mistake] = []
        unparsed: GrammarError | None = None
        try:
            loaded = _load(source, start, path)
        except GrammarError as error:
            refused = error
            unparsed = statements.syntax_error(source)
        if unparsed is None:
            everything = errors is not None
            found = mistakes.mistakes(source, path, start, everything=everything)
        if loaded is not None:
            used = {symbol for _, way in loaded.rules for symbol in way}
            found = [
                mistake
                for mistake in found
                if mistake.passes and (everything or mistake.open_name in ("", *used))
            ]
            if not found:
                return loaded, source
        if found:
            new = [mistake.error for mistake in found]
            repaired: Lifted | None = repair.taken_out(
                source,
                [mistake.span for mistake in found if mistake.span is not None],
                [name for mistake in found for name in mistake.defines],
            )
        else:
            new = [unparsed or refused]
            repaired = repair.without(source, new[0])
        first, new = new[0], [error for error in new if str(error) not in told]
        if errors is None or not new or repaired is None or len(told) > _MOST_MISTAKES:
            # A mistake that is told again has been looked for in the wrong statement.
            raise new[0] if new else first
        told.update(map(str, new))
        errors += new
        source = repaired


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
        may_be_empty = regex_tree.may_be_empty(python_regex.parse(terminal, lazy=True))
    except PatternError as error:
        raise _error(f"Terminal {name}: {error}", source, name) from error
    _check_width(name, may_be_empty, source, name)
    return ir.Terminal(name, terminal)


def _load(source: Lifted, start: str, path: str | None) -> Loaded:
    """The grammar as Lark's own loader reads it, mistakes and all."""
    import lark
    from lark.load_grammar import load_grammar

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader: Any = load_grammar
            text = source.original
            places = [imports.beside]
            grammar, _ = loader(source.text, path or "<grammar>", places, False)
            # A template is no rule.
            names = {str(getattr(d[0], "value", d[0])) for d in grammar.rule_defs if not d[1]}
            if not names:
                raise GrammarError(
                    "The grammar has no rules. A rule is written in lower case: "
                    f'{start}: "text" TERMINAL'
                )
            if start not in names:
                own = [n for n in sorted(names) if re.search(rf"^[ \t]*[?!]*{n}\b", text, re.M)]
                shown = [n for n in own if not n.startswith("_")] or own
                raise GrammarError(
                    f"The grammar has no rule {start!r} to start with. Rules: {', '.join(shown)}. "
                    "Name one of them as start."
                    if shown
                    else f"The grammar has no rule {start!r} to start with. Write one: {start}: …"
                )
            terminals, rules, ignored = grammar.compile([start], set())
            return Loaded(
                [(str(t.name), t.pattern) for t in terminals],
                [(str(r.origin.name), tuple([str(s.name) for s in r.expansion])) for r in rules],
                dict.fromkeys([str(r.origin.name) for r in rules]),
                [str(name) for name in ignored],
            )
    except lark.exceptions.LarkError as error:
        raise _from_lark(str(error), source) from None
    except AttributeError:
        raise GrammarError(
            "The grammar cannot be loaded: a rule is declared (%declare), which only terminals, in "
            "upper case, can be. Define it, or name a terminal."
        ) from None
    except AssertionError:
        raise GrammarError(
            "The grammar cannot be loaded, and Lark does not say why. Terminals that are declared "
            "or given (terminals=) cannot be part of others."
        ) from None
    except RecursionError:
        raise GrammarError(
            "The grammar cannot be loaded: it is nested too deeply, or files import each other in "
            "a circle. Give parts of it names, as rules of their own."
        ) from None
    except (OSError, KeyError, ValueError) as error:
        raise GrammarError(f"The grammar cannot be loaded: {error}.") from error


def _from_lark(message: str, source: Lifted) -> GrammarError:
    """An error of Lark's, at the name that it quotes."""
    twice = re.search(r"^Rules defined twice: \s*\* <(\w+) : ([^>]*)>", message)
    if twice:
        way = " ".join(twice[2].split())
        return _error(
            f"Rule {twice[1]!r} has one alternative twice, {way or 'the empty one'}. Leave one "
            "out; options ([…] or ?) make alternatives, too, with and without what is optional.",
            source,
            twice[1],
        )
    named = re.search(
        r"['‘]([\w!?]+)['’]|\((\w+)\)|: (\w+)$|\b(?:rule|terminal) (\w+)\b", message.strip()
    )
    name = next((group for group in named.groups() if group), None) if named else None
    return _error(f"The grammar is malformed: {message}", source, name)


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
        may_be_empty = regex_tree.may_be_empty(python_regex.parse(regex, lazy=True))
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
