r"""What people write who have another notation in mind: recognised for messages, never read.

`in_lark` and `head` are asked where a text does not parse, and answer with what to write instead.
They guess by the look of a line, so that they must never be asked about what is right.
"""

from __future__ import annotations

import re

_HEAD = re.compile(r"[ \t]*(?P<name>[\w-]+)[ \t]*(?P<sign>::=|:=|->|→|<-|←|=>|=)")
_BNF_HEAD = re.compile(r"[ \t]*<(?P<name>[^<>\n]+)>[ \t]*(?P<sign>::=|:=|=|:|->|→)")
_SIGN = re.compile(r":=|->|→|<-|←|=>|=|:")
_ANTLR = re.compile(r"[ \t]*(?:(?:lexer|parser)[ \t]+)?grammar[ \t]+\w+[ \t]*;")
_WORD = re.compile(r"\w+")
_COUNT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")
_LONGEST_LINE = 1000
NO_ISO = "EBNF of ISO 14977 (a = b, c;) is not read: write a ::= b c, in 'ebnf'."
"""What is said of a notation that some have in mind."""

_ISO = re.compile(r"[ \t]*[A-Za-z][\w \t]*=(?![=>])[^\n]*[;.][ \t]*(?:\(\*[^\n]*)?$")
_CLASS = re.compile(r"\[\^?(?:\\.|[^\]\\\n])-[^\]\n]*\]|\[\^[^\]\n]*\]")

MACRO = re.compile(r"(?:Regex|Substring|TagDispatch|Token|ExcludeToken|Repeat)\(")
"""How a macro of XGrammar's begins."""


def in_lark(text: str, at: int) -> str:
    """What to write in Lark instead of what stands at ``at``; nothing where that is not known."""
    line, column = _line(text, at)
    for count in _COUNT.finditer(line):
        if count.start() <= column <= count.end() and (count[1] or count[3]):
            least, most = count[1] or "0", count[3] if count[2] else count[1]
            if not most:
                return f"Lark writes {count[0]} as ~ {least}, and once more with *."
            times = least if least == most else f"{least}..{most}"
            return f"Lark writes {count[0]} as ~ {times}."
    here = line[column : column + 1]
    if here == "'":
        return 'Lark writes literals in double quotes: "text".'
    if here == '"' and '"' not in line[column + 1 :]:
        return 'The literal has to end on its line: "text". A quote inside it is written \\".'
    if here == "/" and "/" not in line[column + 1 :]:
        return "The pattern has to end with a slash: /pattern/. A slash inside it is written \\/."
    if re.match(r"\s*\{\s*\"", text):
        return "This is JSON. A JSON Schema is an output type of its own: JsonSchema(...)."
    if _ANTLR.match(line):
        return (
            'This is ANTLR. Lark has no such line; it writes a rule as name: "text" OTHER, without '
            "; at its end, classes of characters as patterns, /[0-9]+/, and begins with start."
        )
    if _ISO.match(line):
        return NO_ISO
    found = _BNF_HEAD.match(line)
    if found:
        name = re.sub(r"\W+", "_", found["name"].strip())
        return (
            "This is BNF, with names in angle brackets, which stand for special tokens here. Write "
            f"names without: {name.lower()}: … in Lark, {name} ::= … in GBNF or EBNF."
        )
    found = _HEAD.match(line)
    if found and column <= found.end():
        name, sign = found["name"], found["sign"]
        other = f", {name} ::= … in GBNF or EBNF"
        if sign == "::=":
            return f"Lark writes a rule as {name}: …. This is GBNF or EBNF: say dialect='ebnf'."
        return f"A rule is written {name}: … in Lark{other}, not with {sign}."
    if line[column : column + 1] == ";":
        return "Lark ends a rule with its line: leave the ; out."
    for found in _CLASS.finditer(line):
        if found.start() <= column <= found.end():
            return f"Lark writes a class of characters as a pattern: /{found[0]}/."
    if line[max(column - 1, 0) : column + 1].strip()[:1] == "{":
        return "Lark repeats with * and +: (…)*."
    return ""


def mixed_case(text: str, at: int) -> tuple[str, int] | None:
    """A name in upper and lower case around ``at``, and where it begins."""
    line, column = _line(text, at)
    if _ANTLR.match(line):
        return None
    for found in _WORD.finditer(line):
        if found.start() <= column < found.end():
            word = found[0]
            if word != word.lower() and word != word.upper() and not word[0].isdigit():
                return word, at - column + found.start()
    return None


def of_mixed_case(word: str) -> str:
    """What is said of a name that Lark cannot have."""
    rule = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
    return (
        "In Lark names are all in lower case, of rules, or all in upper case, of terminals, and "
        f"{word!r} is neither. Write {rule} or {rule.upper()}."
    )


def head(text: str, at: int, name: str) -> tuple[str, int]:
    """What to write where ``::=`` is missing at ``at``, and where what stands for it ends."""
    found = _SIGN.match(text, at)
    if found is None:
        if text[at : at + 1] == "[" and (options := re.compile(r"\[[^\]\n]*\]").match(text, at)):
            end = re.compile(r"[ \t]*(?:::=)?").match(text, options.end())
            assert end is not None
            return (
                f"Options of a rule, {options[0]}, are XGrammar's, and are not supported. Leave "
                f"them out: {name} ::= …",
                end.end(),
            )
        here = repr(text[at]) if text[at : at + 1].strip() else "the end"
        return f"After the name of rule {name!r} must come ::=, found {here}.", at
    return (
        f"After the name of rule {name!r} must come ::=, found {found[0]}. Write {name} ::= …",
        found.end(),
    )


def bnf_name(text: str, at: int) -> tuple[str, int] | None:
    """The name of a rule that is written in angle brackets at ``at``, and where they end."""
    found = _BNF_HEAD.match(text, at)
    return None if found is None else (found["name"], found.start("sign"))


def item(text: str, at: int, dialect: str) -> str:
    """What to write in GBNF or EBNF instead of what stands at ``at``, as a sentence to add."""
    most = re.compile(r"\{\s*,\s*(\d+)\s*\}").match(text, at)
    if most is not None:
        return f" At most {most[1]} times is written {{0,{most[1]}}}."
    here = text[at : at + 1]
    if text.startswith(("//", "/*"), at):
        return " A comment begins with #."
    if here == "\\":
        return " Escapes stand in literals and classes only."
    if here == "'":
        return ' GBNF writes literals in double quotes: "text".'
    if here == "-" and dialect == "gbnf":
        return " GBNF takes nothing away with -; EBNF does."
    if here == "!":
        return " Anything but a token (!<…>) is not supported."
    if here == "/":
        return " Patterns between slashes are Lark's. Write classes, [a-z]+."
    if here == "{":
        return " What may be repeated is written (…)*."
    if here == ",":
        return " What follows each other stands side by side, without commas."
    if here == "." and re.match(r"\w\.\w", text[max(at - 1, 0) : at + 2]):
        return " Names have no dots here: write - or _."
    if here == "." and dialect == "ebnf":
        return " Any character is [^]."
    return ""


def past_brackets(text: str, at: int) -> int:
    """Where what begins with the bracket at ``at`` ends."""
    depth = 0
    for found in re.finditer(r'"(?:\\.|[^"\\\n])*"?|[()]', text[at:]):
        depth += (found[0] == "(") - (found[0] == ")")
        if not depth and found[0] == ")":
            return at + found.end()
    return len(text)


def _line(text: str, at: int) -> tuple[str, int]:
    """The line around a character, as far as it is searched, and where that stands in it."""
    begin = max(text.rfind("\n", 0, at) + 1, at - _LONGEST_LINE)
    end = text.find("\n", at, at + _LONGEST_LINE)
    return text[begin : at + _LONGEST_LINE if end < 0 else end], at - begin
