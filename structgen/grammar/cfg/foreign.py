"""Recognise other notations in a text that does not parse, to suggest a fix.

The tables guess by the look of a line. They are used only for messages, and never decide what is
valid.
"""

from __future__ import annotations

import re

NO_ISO = "EBNF of ISO 14977 (a = b, c;) is not supported: write a ::= b c, in 'ebnf'."
"""The hint about another notation that the author may have meant."""

MACRO = re.compile(r"(?:Regex|Substring|(?:Token)?TagDispatch|(?:Exclude)?Token)\(")
"""The start of a macro of XGrammar."""

_LINES = {
    re.compile(r"\s*(?:(?:lexer|parser)\s+)?grammar\s+\w+\s*;"): "This is ANTLR. Lark does not "
    'have this line; it writes a rule as name: "text" OTHER, without ; at its end, '
    "character classes as patterns, /[0-9]+/, and begins with start.",
    re.compile(r"\s*[A-Za-z][\w \t]*=(?![=>]).*[;.]\s*(?:\(\*.*)?$"): NO_ISO,
    re.compile(r"\s*<[^<>]+>\s*(?:::=|:=|=|:|->|→)"): "This is BNF, with names in angle "
    "brackets, which mean special tokens here. Write names without: name: … in Lark, name ::= "
    "… in GBNF or EBNF.",
    re.compile(r"\s*[\w-]+\s*::="): "Lark writes a rule as name: …. This is GBNF or EBNF: pass "
    "dialect='gbnf' or dialect='ebnf'.",
    re.compile(r"\s*\w+\[\w[^\]]*\]\s*:"): "Options of rules, as in name[capture]: …, are "
    "llguidance syntax. Begin the grammar with %llguidance {}, or pass dialect='llguidance'.",
    re.compile(r"\s*[\w-]+\s*(?::=|->|→|<-|←|=>|=)"): "Write a rule as name: … in Lark, name "
    "::= … in GBNF or EBNF.",
}
"""Lines of other notations, and their form in Lark."""

_PLACES = {
    re.compile(r"'"): 'Lark writes literals in double quotes: "text".',
    re.compile(r'"[^"]*$'): 'A literal must end on its line: "text". Write a quote inside it as '
    '\\".',
    re.compile(r"/[^/]*$"): "A pattern must end with a slash: /pattern/. Write a slash inside it "
    "as \\/.",
    re.compile(r"\{|(?<=\{)"): "Lark repeats with * and +: (…)*, or with numbers after ~: a ~ 2, "
    "b ~ 2..3.",
    re.compile(r";"): "Lark ends a rule with its line: remove the ;.",
}
"""Syntax of other notations by its text, and its form in Lark."""

_ITEMS = {
    re.compile(r"\{\s*,"): " Write at most three times as {0,3}.",
    re.compile(r"//|/\*"): " A comment begins with #.",
    re.compile(r"\\"): " Escapes are allowed in literals and classes only.",
    re.compile(r"'"): ' GBNF writes literals in double quotes: "text".',
    re.compile(r"-"): " Only EBNF excludes with -, as in [a-z] - [aeiou].",
    re.compile(r"!"): " Write any token but one as !<name>.",
    re.compile(r"/"): " Patterns between slashes are Lark's. Write classes, [a-z]+.",
    re.compile(r"\{"): " Write a repetition as (…)*.",
    re.compile(r","): " Write a sequence without commas.",
    re.compile(r"\."): " Any character is [^], and names have no dots: write - or _.",
}
"""Text found in GBNF or EBNF in place of a literal, class, name or bracket, and the fix, as a
sentence."""

_CLASS = re.compile(r"\[\^?(?:\\.|[^\]\\\n])-[^\]\n]*\]|\[\^[^\]\n]*\]")
_WORD = re.compile(r"\w+")
_LONGEST_LINE = 1000


def in_lark(text: str, at: int) -> str:
    """Return the form in Lark for the text at ``at``; empty if unknown."""
    if re.match(r"\s*\{\s*\"", text):
        return "This is JSON. For a JSON Schema, use the output type JsonSchema(...)."
    line, column = _line(text, at)
    for found in _CLASS.finditer(line):
        if found.start() <= column <= found.end():
            return f"Lark writes a character class as a pattern: /{found[0]}/."
    known = [advice for look, advice in _PLACES.items() if look.match(line, column)]
    known += [advice for look, advice in _LINES.items() if look.match(line)]
    return known[0] if known else ""


def mixed_case(text: str, at: int) -> tuple[str, int] | None:
    """Return the message about a name in mixed case around ``at``, and where the name begins."""
    line, column = _line(text, at)
    for found in _WORD.finditer(line):
        word = found[0]
        is_mixed = word not in (word.lower(), word.upper()) and not word[0].isdigit()
        if is_mixed and found.start() <= column < found.end():
            rule = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
            message = (
                "In Lark, names of rules are all in lower case and names of terminals all in "
                f"upper case, but {word!r} is neither. Write {rule} or {rule.upper()}."
            )
            return message, at - column + found.start()
    return None


def item(text: str, at: int) -> str:
    """Return a sentence with the form in GBNF or EBNF for the text at ``at``."""
    return next((advice for look, advice in _ITEMS.items() if look.match(text, at)), "")


def _line(text: str, at: int) -> tuple[str, int]:
    """Return the line around a character, as far as it is searched, and the character's position in
    it."""
    begin = max(text.rfind("\n", 0, at) + 1, at - _LONGEST_LINE)
    end = text.find("\n", at, at + _LONGEST_LINE)
    return text[begin : at + _LONGEST_LINE if end < 0 else end], at - begin
