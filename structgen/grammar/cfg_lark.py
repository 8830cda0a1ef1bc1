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
import difflib
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .. import grammar_cache
from ..errors import GrammarError, PatternError
from . import cfg_embedded, cfg_lark_repair, cfg_lark_rules, ir, python_regex, regex_tree
from .cfg_embedded import Errors, Given, Lifted
from .cfg_lark_rules import Loaded
from .cfg_lark_syntax import NotPlain

_COMMON = (
    "DIGIT HEXDIGIT INT SIGNED_INT DECIMAL FLOAT SIGNED_FLOAT NUMBER SIGNED_NUMBER ESCAPED_STRING "
    "LCASE_LETTER UCASE_LETTER LETTER WORD CNAME WS WS_INLINE CR LF NEWLINE SH_COMMENT "
    "CPP_COMMENT C_COMMENT SQL_COMMENT"
)
"""What ``%import common.NAME`` finds, for hints."""


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
    source = cfg_embedded.lift(text, given, errors)
    loaded = None
    if errors is None:
        with contextlib.suppress(NotPlain):
            loaded = cfg_lark_rules.load(source.text, start)
    if loaded is None:
        for unknown in cfg_lark_repair.unknown_imports(source):
            cfg_embedded.report(errors, unknown)
    told: set[str] = set()
    while loaded is None:
        try:
            loaded = _load(source, start, path)
        except GrammarError as error:
            repaired = None if errors is None else _repaired(source, error)
            # A mistake that is told again has been looked for in the wrong statement.
            if repaired is None or str(error) in told or len(told) == _MOST_MISTAKES:
                raise
            told.add(str(error))
            cfg_embedded.report(errors, error)
            source = repaired
    terminals: list[ir.AnyTerminal] = []
    numbers: dict[str, int] = {}
    for name, pattern in loaded.terminals:
        shown = repr(pattern.value) if name.startswith("__ANON") else name
        regex = pattern.to_regexp()
        try:
            _check_pattern(name, shown, pattern, regex, source)
        except GrammarError as error:
            cfg_embedded.report(errors, error)
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
                cfg_embedded.report(errors, error)
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
            raise _error(f"Only patterns can be ignored, not {name}.", source, name.split()[-1])
    return ir.ContextFree(
        tuple(terminals), tuple(nonterminals), tuple(lowered), ~numbers[start], skipped
    )


def _repaired(source: Lifted, error: GrammarError) -> Lifted | None:
    """A text without a mistake, to see what else is wrong; None where that is all there is."""
    missing = re.search(r"(Rule|Terminal) '(\w+)' used but not defined", str(error))
    if missing is None:
        return cfg_lark_repair.without(source, error)
    # What is only missing can be made up.
    made_up = f'{missing[2]}: "x"'
    return replace(source, text=f"{source.text}\n{made_up}\n")


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
            grammar, _ = loader(source.text, path or "<grammar>", [], False)
            # A template is no rule.
            names = {str(getattr(d[0], "value", d[0])) for d in grammar.rule_defs if not d[1]}
            if not names:
                raise GrammarError(
                    "The grammar has no rules. A rule is written in lower case: "
                    f'{start}: "text" TERMINAL'
                )
            if start not in names:
                raise GrammarError(
                    f"The grammar has no rule {start!r} to start with. Rules: "
                    f"{', '.join(sorted(n for n in names if not n.startswith('_')))}. "
                    "Name one of them as start."
                )
            terminals, rules, ignored = grammar.compile([start], set())
            return Loaded(
                [(str(t.name), t.pattern) for t in terminals],
                [(str(r.origin.name), tuple([str(s.name) for s in r.expansion])) for r in rules],
                dict.fromkeys([str(r.origin.name) for r in rules]),
                [str(name) for name in ignored],
            )
    except lark.exceptions.UnexpectedInput as error:
        raise source.error(
            f"The grammar is not Lark syntax: {str(error).splitlines()[0]}",
            source.offset(error.line, error.column) if error.line > 0 else None,
        ) from None
    except lark.exceptions.LarkError as error:
        raise _from_lark(str(error), source) from None
    except AttributeError:
        raise GrammarError(
            "The grammar cannot be loaded: a rule is declared (%declare), which only terminals, in "
            "upper case, can be. Define it, or name a terminal."
        ) from None
    except AssertionError:
        raise GrammarError(
            "A terminal that is declared or given (terminals=) cannot be part of another terminal. "
            "Put it into a rule."
        ) from None
    except (OSError, KeyError, ValueError) as error:
        raise GrammarError(f"The grammar cannot be loaded: {error}.") from error


def _from_lark(message: str, source: Lifted) -> GrammarError:
    """An error of Lark's, with the place it talks about."""
    placed = re.search(r"at line (\d+) column (\d+)", message)
    if placed:
        at = source.offset(int(placed[1]), int(placed[2]))
        line, column = cfg_embedded.place(source.original, source.position(at))
        first = message.splitlines()[0].replace(placed[0], f"at line {line} column {column}")
        first = first.replace(" in <grammar>: ", "")
        return source.error(f"The grammar is malformed: {first}{_repetition(source.text, at)}", at)
    undefined = re.search(
        r"(?:Rule|Terminal) (?:'(\w+)' )?used but not defined(?:: (\w+))?(.*)", message, re.DOTALL
    )
    if undefined:
        return _undefined(undefined[1] or undefined[2], undefined[3].strip(), source)
    quoted = _quoted(message, source.text)
    if quoted is not None:
        return source.error(f"The grammar is malformed: {message}", quoted)
    named = re.search(r"['‘]([\w!?]+)['’]|\((\w+)\)|: (\w+)$", message.strip())
    name = next((group for group in named.groups() if group), None) if named else None
    return _error(f"The grammar is malformed: {message}", source, name)


def _quoted(message: str, text: str) -> int | None:
    """Where something stands that a message quotes as it is written."""
    if "defined more than once" in message:
        name = message.split("'")[1]
        found = [*re.finditer(rf"^[ \t]*[?!]*(?={name}[.:{{ \t])", text, re.MULTILINE)]
        return found[1].end() if len(found) > 1 else None
    literal = re.search(r"not allowed \((\".*\"i?)\)$", message)
    if literal:
        return text.find(literal[1]) if literal[1] in text else None
    numbers = re.search(r"\((-?\d+)\.\.(-?\d+) isn't allowed\)", message)
    where = numbers and re.search(rf"~[ \t]*{numbers[1]}[ \t]*\.\.[ \t]*{numbers[2]}\b", text)
    return where.start() if where else None


def _repetition(text: str, at: int) -> str:
    """How Lark writes what other notations write ``{2,3}``, if that is what stands there."""
    for found in re.finditer(r"\{(\d*)(,?)(\d*)\}", text):
        if found.start() <= at <= found.end() and (found[1] or found[3]):
            least, most = found[1] or "0", found[3] if found[2] else found[1]
            if not most:
                return f". Lark writes {found[0]} as ~ {least}, and once more with *."
            count = least if least == most else f"{least}..{most}"
            return f". Lark writes {found[0]} as ~ {count}."
    return ""


def _undefined(name: str, where: str, source: Lifted) -> GrammarError:
    """An error about a name that nothing defines, with what was probably meant."""
    is_terminal = name.lstrip("_")[:1].isupper()
    defined = re.findall(r"^[ \t]*[?!]*(\w+)[^:\n]*:", source.text, re.MULTILINE)
    near = difflib.get_close_matches(name, defined, 2)
    where = f" {where}" if where else ""
    if not is_terminal:
        message = f"Rule {name!r} used but not defined{where}. "
        fix = f"Did you mean {' or '.join(near)}?" if near else f"Define it: {name}: ..."
        return _error(message + fix, source, name)
    near += [
        f"%import common.{other}" for other in difflib.get_close_matches(name, _COMMON.split(), 2)
    ]
    message = f"Terminal {name!r} used but not defined{where}. "
    if near:
        message += f"Did you mean {' or '.join(near)}? Else define it, "
    else:
        message += "Define it, "
    message += f"{name}: /pattern/, or give it: Cfg(..., terminals={{{name!r}: ...}})."
    return _error(message, source, name)


def _error(message: str, source: Lifted, name: str | None) -> GrammarError:
    """An error about ``name``, placed where the grammar defines it, else where it first uses it."""
    found = None
    if name:
        escaped = re.escape(name)
        found = re.search(rf"(?<=^){escaped}(?=[.:{{ ])", source.text, re.MULTILINE)
        found = found or re.search(rf"(?<!\w){escaped}(?!\w)", source.text)
    return source.error(message, None if found is None else found.start())


def _check_pattern(name: str, shown: str, pattern: Any, regex: str, source: Lifted) -> None:
    if pattern.type == "str" and not pattern.flags and pattern.value:
        return  # a literal
    try:
        may_be_empty = regex_tree.may_be_empty(python_regex.parse(regex, lazy=True))
    except PatternError as error:
        raise _error(f"Terminal {shown}: {error}", source, name) from error
    _check_width(shown, may_be_empty, source, name)


def _check_width(shown: str, may_be_empty: bool, source: Lifted, name: str) -> None:
    if may_be_empty:
        raise _error(
            f"Terminal {shown} can match the empty text, which a terminal must "
            "not. Make it match something (+ instead of *), and make it optional in the rules.",
            source,
            name,
        )
