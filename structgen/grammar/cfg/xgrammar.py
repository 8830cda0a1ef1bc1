"""EBNF as XGrammar reads it → IR.

    name[lazy] ::= …                       a rule that ends as soon as it can
    name[capture="x"] ::= …                one whose texts come back by a name
    name[max_chars=80] ::= …               one that ends as soon as it can after 80 characters
    name ::= … (= …)                       what follows, which the rules say anyway: left out
    TagDispatch(("<t>", rule), …)          any text; after each tag a text of its rule
    Token(12, 13)  ExcludeToken(12)        one token of these, or any other
    TokenTagDispatch((12, rule), …)        any tokens; after each of these a text of its rule
    Regex("[a-z]+")  Substring("a", "b")   a pattern; pieces in a row

Reads XGrammar's additions to GBNF; `notation` reads the rest. XGrammar uses a lookahead only to
compute masks earlier, and does not check it in a given text. So it has no effect here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from structgen.errors import PatternError
from structgen.grammar import ir, reading
from structgen.grammar.regex import tree

from . import embedded, notation
from .notation import Alternatives, Expression, Made, Placed, Reference, Regular, Repeated

_NAME = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")
_OPTIONS = re.compile(r"\[([^\]\n]*)\]")
_UNBOUNDED = re.compile(r"\{\s*(\d+)\s*,\s*-1\s*\}")
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)\s*=")
_NOT_IN_JSON = ir.char_set([(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)])
_ANY = ir.Repeat(ir.ANY_CHAR, 1, None)

_MACROS = {
    "TagDispatch": 'TagDispatch(("<tag>", rule), loop_after_dispatch=true, excludes=("<end>",))',
    "TokenTagDispatch": "TokenTagDispatch((12, rule), loop_after_dispatch=true, excludes=(13,))",
    "Token": "Token(12, 13)",
    "ExcludeToken": "ExcludeToken(12, 13)",
    "Regex": 'Regex("[a-z]+", flags="is", json_string=true)',
    "Substring": f'Substring("one", "two"), with at most {notation.MAX_CHUNKS} texts',
}
"""The form of each macro."""

_MACRO = re.compile(rf"({'|'.join(_MACROS)})\s*\(")
_NOT_HERE = {
    "max_tokens": "Limit the characters: max_chars=80.",
    "temperature": "Pass temperature= to the generator, for the whole text.",
    "capture": "Remove it; capture is supported.",
}
"""Options of rules that concern more than texts, and the fix."""


class Reader(notation.Reader):
    """Reads XGrammar's EBNF; see `notation.Reader`."""

    def __init__(self, text: str, dialect: str) -> None:
        super().__init__(text, dialect)
        self.name = _NAME
        self._options: list[Callable[[ir.Regex], ir.Regex]] = []

    def options(self, name: str) -> None:
        """Read the options of a rule."""
        begin = self.at
        self._options = []
        found = _OPTIONS.match(self.text, begin)
        if found is None:
            return
        for part in found[1].split(","):
            key, _, value = map(str.strip, part.partition("="))
            if key == "lazy" and not value:
                self._options.insert(0, notation.shortest)
            elif key == "max_chars" and re.fullmatch(r"\d{1,9}", value):
                self._options.append(functools.partial(_bounded, int(value)))
            elif key == "capture" and (not value or re.fullmatch('"[^"]+"', value)):
                self.captures[name] = value.strip('"') or name
            else:
                advice = next((_NOT_HERE[one] for one in _NOT_HERE if one in key), "")
                self.wrong(f"The option {part.strip()} of a rule is not supported. {advice}", begin)
        self.at = found.end()

    def body(self, begin: int) -> Expression:
        """Return the body of the rule whose name is at ``begin``."""
        options = self._options
        if self.text[self.text.rfind("\n", 0, begin) + 1 : begin].strip():
            self.wrong("The name of a rule must be the first on its line.", begin)
        found = self.alternatives()
        self.skip()
        if self.peek("(="):
            opening = self.at
            self.at += 2
            self.skip()
            self.alternatives()
            self.skip()
            if not self.peek(")"):
                self.wrong("This lookahead is not closed. Add ).", opening)
            self.at += 1
        for make in options:
            found = Made((found,), make, "a rule with lazy or max_chars", begin)
        return found

    def is_end(self) -> bool:
        """Return whether a sequence ends here."""
        return self.peek("(=") or super().is_end()

    def repeated(self) -> Expression:
        """Return a repeatable item, once, also after blanks."""
        found = self.primary()
        back = self.at
        self.skip()
        times = self.times()
        if times is None:
            self.at = back
            return found
        return Repeated(found, *times)

    def times(self) -> tuple[int, int | None] | None:
        """Return the counts of the preceding item; XGrammar writes ``{2,-1}`` for ``{2,}``."""
        found = _UNBOUNDED.match(self.text, self.at)
        if found is None:
            return super().times()
        self.at = found.end()
        return int(found[1]), None

    def primary(self) -> Expression:
        """Read a literal, a class, a rule, a macro, or a group in brackets."""
        found = _MACRO.match(self.text, self.at)
        if found is None:
            return super().primary()
        begin, self.at = self.at, found.end()
        given, named = self._arguments()
        made = self._macro(found[1], given, named, begin)
        if made is None:
            self.wrong(f"Write {found[1]} as {_MACROS[found[1]]}.", begin)
        return made

    # -- macros -----------------------------------------------------------------------------------

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        given: list[Any] = []
        named: dict[str, Any] = {}
        self.skip()
        while not self.peek(")"):
            if given or named:
                if not self.peek(","):
                    self.wrong("Expected , or ) in the arguments of a macro.")
                self.at += 1
                self.skip()
            found = _ARGUMENT.match(self.text, self.at)
            if found is None:
                given.append(self._value())
            else:
                self.at = found.end()
                self.skip()
                named[found[1]] = self._value()
            self.skip()
        self.at += 1
        return given, named

    def _value(self) -> Any:
        """Return a text, number, boolean, rule or tuple."""
        if self.peek('"'):
            return self.quoted('"')
        if number := re.compile(r"\d{1,9}").match(self.text, self.at):
            self.at = number.end()
            return int(number[0])
        if name := self.name.match(self.text, self.at):
            if name[0] not in ("true", "false"):
                self.references.append((name[0], self.at))
            self.at = name.end()
            return Reference(name[0]) if name[0] not in ("true", "false") else name[0] == "true"
        if not self.peek("("):
            self.wrong("Expected a text, a number, true, false, a rule or (…).")
        self.deepen()
        found: list[Any] = []
        self.at += 1
        self.skip()
        while not self.peek(")"):
            found.append(self._value())
            self.skip()
            if self.peek(","):
                self.at += 1
                self.skip()
            elif not self.peek(")"):
                self.wrong("Expected , or ) in a tuple.")
        self.at += 1
        self.depth -= 1
        return tuple(found)

    def _macro(
        self, kind: str, given: list[Any], named: dict[str, Any], at: int
    ) -> Expression | None:
        """Return the expression of a macro; None if its arguments are wrong."""
        if kind.endswith("Dispatch"):
            return self._dispatch(kind == "TagDispatch", given, named, at)
        if kind == "Regex":
            return self._pattern(given, named, at)
        if kind == "Substring":
            is_sound = _are(str, given) and len(given) <= notation.MAX_CHUNKS
            return Regular(notation.pieces(given)) if is_sound and not named else None
        if named or not given or not _are(int, given):
            return None
        return self._token(given, kind == "ExcludeToken", at)

    def _token(self, ids: Sequence[int], negate: bool, at: int) -> Expression:
        # so that a single one is not named only by its id
        listed = ",".join(f"{i}-{i}" for i in ids)
        name = f"<[{'^' * negate}{listed}]>" if ids else "<[*]>"
        return Placed(embedded.special_token(name, self.text, at))

    def _pattern(self, given: list[Any], named: dict[str, Any], at: int) -> Expression | None:
        flags, in_json = named.pop("flags", None), named.pop("json_string", False)
        if named or len(given) != 1 or not _are(str, given) or type(in_json) is not bool:
            return None
        if flags is not None and (type(flags) is not str or set(flags) - set("isu")):
            return None
        dots = re.DOTALL if flags is None or "s" in flags else re.ASCII
        ignore_case = re.IGNORECASE if "i" in (flags or "") else re.ASCII
        try:
            found = notation.pattern(given[0], re.ASCII | dots | ignore_case)
        except PatternError as error:
            self.wrong(str(error), at)
        if in_json:
            found = tree.intersect([found, ir.Repeat(ir.negate(_NOT_IN_JSON), 0, None)])
        return self._regular(found, "the pattern", at)

    def _regular(self, found: ir.Regex, what: str, at: int) -> Expression:
        if notation.is_plain(found):
            return Regular(found)
        line, column = embedded.place(self.text, at)
        return notation.by_itself(found, f"{what} at line {line}, column {column}")

    def _dispatch(
        self, is_text: bool, given: list[Any], named: dict[str, Any], at: int
    ) -> Expression | None:
        """Return any text or tokens, with a rule after each tag."""
        loops, excludes = named.pop("loop_after_dispatch", True), named.pop("excludes", ())
        kind = str if is_text else int
        if named or type(loops) is not bool or type(excludes) is not tuple:
            return None
        if not all(type(one) is tuple and len(one) == 2 for one in given):
            return None
        tags, rules = [one[0] for one in given], [one[1] for one in given]
        marks = [*tags, *excludes]
        if not _are(kind, marks) or not _are(Reference, rules) or "" in marks:
            return None
        ways: list[Expression] = []
        if is_text:
            reading.spend(
                sum(map(len, marks)) * len(marks), "a TagDispatch has too many tags; use fewer"
            )
            if any(tag.startswith(exclude) for tag in tags for exclude in excludes):
                return None
            barred = tree.concat([ir.ANY_TEXT, _one_of(excludes)])
            seen = tree.concat([ir.ANY_TEXT, _one_of(marks)])
            more = tree.complement(tree.alternate([tree.concat([seen, _ANY]), barred]))
            free = self._regular(
                tree.complement(tree.concat([seen, ir.ANY_TEXT])), "the text around tags", at
            )
            for tag, rule in zip(tags, rules, strict=True):
                begin: Expression = notation.Sequence((free, Regular(ir.literal(tag))))
                if _meets(tag, marks):
                    whole = tree.intersect([tree.concat([ir.ANY_TEXT, ir.literal(tag)]), more])
                    begin = self._regular(whole, f"the text up to {tag!r}", at)
                ways.append(notation.Sequence((begin, rule)))
        else:
            if {*tags} & {*excludes}:
                return None
            free = Repeated(self._token(marks, True, at), 0, None)
            for tag, rule in zip(tags, rules, strict=True):
                ways.append(notation.Sequence((free, self._token([tag], False, at), rule)))
        if loops:
            return notation.Sequence((Repeated(Alternatives(tuple(ways)), 0, None), free))
        return Alternatives((*ways, free))


def _are(kind: type, values: Sequence[Any]) -> bool:
    return all(type(value) is kind for value in values)


def _one_of(texts: Sequence[str]) -> ir.Regex:
    return tree.alternate(map(ir.literal, texts))


def _meets(tag: str, marks: Sequence[str]) -> bool:
    """Return whether a text without marks, plus the tag, contains a mark or a second tag."""
    return any(mark in tag and mark != tag for mark in marks) or any(
        mark.endswith(tag[:n]) for n in range(1, len(tag)) for mark in marks
    )


def _bounded(most: int, found: ir.Regex) -> ir.Regex:
    """Return the texts without a beginning that is a text of at least that many characters."""
    enough = tree.intersect([found, ir.Repeat(ir.ANY_CHAR, most, None)])
    return tree.intersect([found, tree.complement(tree.concat([enough, _ANY]))])
