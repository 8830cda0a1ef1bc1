"""Other engines' own tests of their grammars, decided by our reading of their notations.

    git clone https://github.com/guidance-ai/llguidance https://github.com/mlc-ai/xgrammar
    python tests/benchmarks/peer_cases.py llguidance/parser/tests/test_lark.rs
    python tests/benchmarks/peer_cases.py llguidance/parser/tests/test_ll.rs
    python tests/benchmarks/peer_cases.py xgrammar/tests/python/test_grammar_*.py

Prints the grammars that are refused, each with the reason, and what is decided otherwise.

Of llguidance's tests, which are Rust, the calls of ``lark_str_test_many``, ``lark_ok`` and
``lark_err_test`` are read, and those of ``check_lark_grammar`` and its kin, which are token by
token: those that take text back (``1↶``) are left out, because here it is never written.
XGrammar's, which are Python's, run as they are, with a module in XGrammar's place that asks ours:
what it does not have is skipped; printed grammars are read again and not compared; of errors only
the kind counts.
"""

from __future__ import annotations

import os
import re
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import pytest
import real_tokenizers

import structgen
from structgen import Vocabulary
from structgen.errors import TokenNotAllowed
from structgen.types import ToolSyntax

COUNTS: Counter[str] = Counter()

# -- llguidance -----------------------------------------------------------------------------------

_LITERAL = r'(?:r#"(?:(?!"#)[\s\S])*"#|r"[^"]*"|"(?:\\[\s\S]|[^"\\])*")'
_LIST = rf"&\[((?:\s*(?:{_LITERAL}|//[^\n]*)\s*,?\s*)*)\]"
_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|\n\s*|([\s\S]))")
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def text_of(literal: str) -> str:
    """The text that a literal of Rust's stands for."""
    if literal.startswith("r"):
        return literal[3:-2] if literal[1] == "#" else literal[2:-1]

    def one(found: re.Match[str]) -> str:
        if code := found[1] or found[2]:
            return chr(int(code, 16))
        return _PLAIN.get(found[3], found[3]) if found[3] else ""

    return _ESCAPE.sub(one, literal[1:-1])


def texts_of(listed: str) -> list[str]:
    """Those of a list, without what is a comment."""
    kept = re.sub(r"(?m)^\s*//.*$", "", listed)
    return [text_of(literal) for literal in re.findall(_LITERAL, kept)]


def llguidances(path: str) -> None:
    """Decide llguidance's cases."""
    source = Path(path).read_text(encoding="utf-8")
    vocabulary = real_tokenizers.vocabulary("smollm2")

    def compiled(grammar: str) -> structgen.Constraint:
        return structgen.compile(structgen.Cfg(grammar, dialect="llguidance"), vocabulary)

    calls = (
        rf"lark_(?:str_test_many(?:_quiet)?\(\s*({_LITERAL})\s*,\s*{_LIST}\s*,\s*{_LIST}"
        rf"|ok\(\s*({_LITERAL}))"
    )
    for found in re.finditer(calls, source):
        line = source.count("\n", 0, found.start()) + 1
        COUNTS["grammars"] += 1
        try:
            constraint = compiled(text_of(found[1] or found[4]))
        except structgen.StructgenError as error:
            COUNTS["refused"] += 1
            print(f"{line}: refused: {str(error).splitlines()[0]}")
            continue
        for listed, wanted in ((found[2], True), (found[3], False)):
            for text in texts_of(listed or ""):
                COUNTS["texts"] += 1
                if constraint.allows(text.removeprefix("FINAL_REJECT:")) is not wanted:
                    COUNTS["otherwise"] += 1
                    print(f"{line}: {'refuses' if wanted else 'takes'} {text!r}")
    for found in re.finditer(rf"lark_err_test\(\s*({_LITERAL})\s*,\s*({_LITERAL})", source):
        COUNTS["mistakes"] += 1
        try:
            compiled(text_of(found[1]))
        except structgen.StructgenError:
            continue
        COUNTS["mistakes taken"] += 1
        print(
            f"{source.count(chr(10), 0, found.start()) + 1}: takes what has {text_of(found[2])!r}"
        )
    steps(re.sub(r"(?m)^\s*//.*$", "", source))


_ARGUMENT = rf"(?:{_LITERAL}|&?[A-Za-z_]\w*)"
_STEPS = re.compile(
    rf"check_lark_(grammar|grammar_nested|json)\(\s*({_ARGUMENT})\s*,\s*"
    rf"(?:({_ARGUMENT}|json!\([\s\S]*?\n        \))\s*,\s*)?({_LIST}|&?[a-z_]\w*)"
)
_ONE = re.compile(rf"lark_str_test\(\s*({_ARGUMENT})\s*,\s*(true|false)\s*,\s*({_LITERAL})")
_NAMED = {5426: "long", 5427: "asta", 5431: "foo", 5432: " calling", 9005: "reh", 29730: "zott"}
_SPECIAL = {32001: "assistant", 32006: "system", 32007: "end", 32010: "user", 32002: "placeholder1"}
_PIECES = 10_000
_END = 34200


def steps(source: str) -> None:
    """Decide llguidance's cases that are token by token."""
    # Where tokens are counted each piece of a step is one; elsewhere its bytes will do.
    pieces = {
        piece
        for found in _STEPS.finditer(source)
        if re.fullmatch(_LIST, found[4])
        for listed in texts_of(found[4])
        for piece in re.split("[\u2027\u2716]", listed)
    }
    whole = {piece: _PIECES + i for i, piece in enumerate(sorted(pieces - {""}))}
    known_texts = _NAMED | {n: piece for piece, n in whole.items()}
    tokens = [
        bytes([n]) if n < 256 else known_texts.get(n, f"token {n}").encode() for n in range(_END)
    ]
    names = {f"<|{text}|>": n for n, text in _SPECIAL.items()}
    vocabulary = Vocabulary.from_tokens(
        [*tokens, b""], [_END], special_token_ids=names.values(), named_tokens=names
    )
    ids = names | {text: n for n, text in _NAMED.items()} | {"\u227aEOS\u227b": _END}
    known: dict[str, structgen.Constraint | None] = {}

    def said(argument: str, at: int, form: str = _LITERAL) -> str | None:
        """What an argument is, which may be a name of what stands before it."""
        if re.fullmatch(form, argument):
            return argument
        name = re.escape(argument.lstrip("&"))
        found = list(re.finditer(rf"(?:let|const) {name}(?:: &str)? = ({form});", source[:at]))
        return found[-1][1] if found else None

    def constraint(at: int, grammar: str) -> structgen.Constraint | None:
        if grammar not in known:
            COUNTS["grammars"] += 1
            try:
                known[grammar] = structgen.compile(
                    structgen.Cfg(grammar, dialect="llguidance"), vocabulary
                )
            except structgen.StructgenError as error:
                COUNTS["refused"] += 1
                print(f"{line(at)}: refused: {str(error).splitlines()[0]}")
                known[grammar] = None
        return known[grammar]

    def line(at: int) -> int:
        return source.count("\n", 0, at) + 1

    def tokens_of(piece: str, counts: bool) -> list[int]:
        if numbered := re.fullmatch(r"<\[(\d+)\]>", piece):
            return [int(numbered[1])]
        if piece in ids:
            return [ids[piece]]
        return [whole[piece]] if counts else list(piece.encode())

    def takes(cursor: structgen.Cursor, piece: str, counts: bool) -> bool:
        for n, token in enumerate(tokens_of(piece, counts)):
            try:
                cursor.accept(token)
            except TokenNotAllowed:
                cursor.rollback(n)
                return False
        return True

    for found in _STEPS.finditer(source):
        kind, at = found[1], found.start()
        grammar, listed = said(found[2], at), said(found[4], at, _LIST)
        if grammar is None or listed is None:
            COUNTS["not read"] += 1
            continue
        text = text_of(grammar)
        if kind != "grammar":
            other = found[3].removeprefix("json!(").rstrip(")\n ")
            inner = said(other, at) if kind == "grammar_nested" else other
            if inner is None:
                COUNTS["not read"] += 1
                continue
            text = text.replace(
                "@sub", f"%json {inner}" if kind == "json" else f"%lark {{\n{text_of(inner)}\n}}"
            )
        made = constraint(at, text)
        if made is None:
            continue
        if "\u21b6" in listed:
            COUNTS["taken back"] += 1
            continue
        COUNTS["cases"] += 1
        cursor = made.start()
        pieces = re.findall(
            r"(\u2716?)((?:(?!\u2027|\u2716)[\s\S])+)", "\u2027".join(texts_of(listed))
        )
        for barred, piece in pieces:
            COUNTS["steps"] += 1
            if takes(cursor, piece, "max_tokens" in text) is bool(barred):
                COUNTS["otherwise"] += 1
                print(f"{line(at)}: {'takes' if barred else 'refuses'} {piece!r}")
                break
    for found in _ONE.finditer(source):
        grammar = said(found[1], found.start())
        made = constraint(found.start(), text_of(grammar)) if grammar else None
        COUNTS["not read"] += grammar is None
        if made is not None:
            COUNTS["texts"] += 1
            if made.allows(text_of(found[3])) is not (found[2] == "true"):
                COUNTS["otherwise"] += 1
                print(f"{line(found.start())}: {found[2]} is otherwise for {found[3]}")


# -- XGrammar -------------------------------------------------------------------------------------

BYTES = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], [256])


class Refused(RuntimeError):
    """What XGrammar's tests expect of a grammar that is wrong."""


CONVERTED: dict[str, str] = {}
"""What XGrammar makes of structural tags and schemas, as its tests expect it."""


class Printed(str):
    """A grammar as text: equal to what can be read."""

    __hash__ = str.__hash__
    source = ""

    def __eq__(self, other: object) -> bool:
        if self.source:
            CONVERTED[self.source] = str(other)
        else:
            Grammar.from_ebnf(str(other))
        return True

    def __ne__(self, other: object) -> bool:
        return True

    def __contains__(self, part: object) -> bool:
        return True

    def __str__(self) -> str:
        return self

    def lower(self) -> str:
        return self


def skip(*_: Any, **__: Any) -> Any:
    """Leave out what is not ours to decide."""
    if "PYTEST_CURRENT_TEST" in os.environ:
        pytest.skip("not replayed")
    return mock.MagicMock()


class Skipping(type):
    """Has everything, and does nothing of it."""

    def __getattr__(cls, name: str) -> Any:
        return skip


class Raises:
    """An error that a test waits for; what it says does not count."""

    is_under_way = False

    def __init__(self, *_: Any, **__: Any) -> None:
        COUNTS["mistakes"] += 1

    def __enter__(self) -> mock.MagicMock:
        Raises.is_under_way = True
        return mock.Mock(value=Printed())

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        Raises.is_under_way = False
        if kind is None:
            COUNTS["mistakes taken"] += 1
        return kind is None or issubclass(kind, Exception)


class Nothing(metaclass=Skipping):
    """What is not ours."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return skip()


class Grammar(metaclass=Skipping):
    """A grammar, compiled for each vocabulary that asks for it.

    One that is refused is told when it is used: XGrammar finds some mistakes when it compiles.
    """

    def __init__(self, text: str, start: str) -> None:
        self.text = text
        self._type: Any = structgen.Cfg(text, start=start, dialect="xgrammar")
        self._known: dict[int, structgen.Constraint] = {}
        self.refusal: Refused | None = None
        self.source = ""

    @classmethod
    def from_ebnf(cls, text: str, *, root_rule_name: str = "root") -> Grammar:
        made = cls(text, root_rule_name)
        COUNTS["grammars"] += not Raises.is_under_way
        try:
            made.on(BYTES)
        except structgen.StructgenError as error:
            said = str(error).splitlines()[0]
            if "vocabulary has no" not in said and "has none of the tokens" not in said:
                made.refusal = Refused(said)
        if made.refusal is not None and Raises.is_under_way:
            raise made.refusal
        return made

    @classmethod
    def from_structural_tag(cls, tag: Any) -> Grammar:
        if not isinstance(tag, StructuralTag):
            return cls.converted(tag)
        made = cls("", "root")
        made._type = tag.calls
        return made

    @classmethod
    def converted(cls, *source: Any, **options: Any) -> Grammar:
        """The grammar that the tests expect XGrammar to make of something."""
        if Raises.is_under_way:
            COUNTS["mistakes"] -= 1
            skip()
        key = repr((source, options))
        made = cls.from_ebnf(CONVERTED[key]) if key in CONVERTED else cls("", "root")
        made.source = key
        return made

    @classmethod
    def from_regex(cls, pattern: str) -> Grammar:
        quoted = pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return cls.from_ebnf(f'root ::= Regex("{quoted}")')

    @classmethod
    def builtin_json_grammar(cls) -> Any:
        return mock.Mock()

    def on(self, vocabulary: Vocabulary) -> structgen.Constraint:
        if self.source and not self.text:
            skip()
        if self.refusal is not None:
            if not Raises.is_under_way:
                COUNTS["refused"] += 1
            raise self.refusal
        found = self._known.get(id(vocabulary))
        if found is None:
            found = self._known[id(vocabulary)] = structgen.compile(self._type, vocabulary)
        return found

    def __str__(self) -> str:
        found = Printed(self.text)
        found.source = self.source
        return found

    def __repr__(self) -> str:
        return repr(self.text[:200])

    def __getattr__(self, name: str) -> Any:
        return skip


class _Passing(type):
    def __getattr__(cls, name: str) -> Any:
        return lambda grammar: grammar


class Passing(metaclass=_Passing):
    """What XGrammar does to a grammar that means the same afterwards."""


class TokenizerInfo(metaclass=Skipping):
    """A vocabulary, and behind its tokens one for each byte: XGrammar's strings need no tokens."""

    def __init__(self, tokens: list[Any], *_: Any, **options: Any) -> None:
        encoded = [t.encode() if isinstance(t, str) else t for t in tokens]
        self.vocab_size = options.get("vocab_size") or len(encoded)
        stops = options.get("stop_token_ids")
        if stops is None:
            stops = [i for i, t in enumerate(encoded) if t in (b"</s>", b"<eos>", b"<|eos|>")]
        self.stop_token_ids = [stops] if isinstance(stops, int) else stops
        size = len(encoded)
        plain = [b"" if i in self.stop_token_ids else t for i, t in enumerate(encoded)]
        self.bytes_at = self.vocab_size + 1
        plain += [b""] * (self.bytes_at - size) + [bytes([b]) for b in range(256)]
        ends = self.stop_token_ids or [self.vocab_size]
        self.vocabulary = Vocabulary.from_tokens(plain, ends)


SYNTAXES = {
    "llama": "llama-3",
    "kimi": "kimi-k2",
    "deepseek_v3_1": "deepseek-v3.1",
    "deepseek_v3_2": "deepseek-v3.2",
    "deepseek_v4": "deepseek-v4",
    "qwen_3_coder": "qwen3-coder",
    "qwen_3_5": "qwen3-coder",
    "qwen_3": "hermes",
    "harmony": "gpt-oss",
    "minimax": "minimax-m2",
    "glm_4_7": "glm-4.7",
}
"""Our names of the syntaxes that XGrammar has structural tags for."""


def structural_tag(
    model: str, tools: Any = None, tool_choice: Any = "auto", reasoning: bool = True, **options: Any
) -> Any:
    """The calls of tools of a model without thoughts; `Grammar.from_structural_tag` takes it."""
    choice = tool_choice if isinstance(tool_choice, str) else tool_choice.get("function")
    is_ours = model in SYNTAXES and tools and all("function" in tool for tool in tools) and choice
    if reasoning or options or not is_ours:
        skip()
    calls = structgen.ToolCalls(
        [{"type": "function", **tool} for tool in tools],
        choice=choice if isinstance(choice, str) else choice["name"],
        syntax=ToolSyntax.named(SYNTAXES[model]),
        plain=False,
    )
    return StructuralTag(calls)


class StructuralTag:
    """Calls of tools."""

    def __init__(self, calls: structgen.ToolCalls) -> None:
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        return skip()


class Matcher(metaclass=Skipping):
    """A cursor."""

    def __init__(self, compiled: Compiled, **options: Any) -> None:
        if set(options) - {"terminate_without_stop_token", "max_rollback_tokens"}:
            skip()
        self._grammar, self._info = compiled
        self._alone = options.get("terminate_without_stop_token", False)
        self.reset()

    def reset(self) -> None:
        self._cursor = self._grammar.on(self._info.vocabulary).start()
        self._steps: list[int] = []

    def accept_token(self, token: int, **_: Any) -> bool:
        return self._accept([token])

    def accept_string(self, text: str | bytes, **_: Any) -> bool:
        data = text.encode() if isinstance(text, str) else text
        return self._accept([self._info.bytes_at + byte for byte in data])

    def _accept(self, tokens: list[int]) -> bool:
        for n, token in enumerate(tokens):
            try:
                self._cursor.accept(token)
            except TokenNotAllowed:
                self._cursor.rollback(n)
                return False
        self._steps.append(len(tokens))
        return True

    def is_terminated(self) -> bool:
        cursor = self._cursor
        if not self._alone:
            return cursor.is_finished
        return cursor.is_accepting

    def is_completed(self) -> bool:
        return self._cursor.is_accepting or self._cursor.is_finished

    def rollback(self, n: int = 1) -> None:
        for _ in range(n):
            self._cursor.rollback(self._steps.pop())

    def fill_next_token_bitmask(self, mask: Any, index: int = 0, **_: Any) -> bool:
        row = np.zeros(-(-self._info.vocabulary.size // 32), np.uint32)
        self._cursor.fill_mask(row)
        mask[index] = row[: mask.shape[1]].view(np.int32)
        return True

    def __getattr__(self, name: str) -> Any:
        return skip


class Compiled(NamedTuple):
    """A grammar and the vocabulary it is for."""

    grammar: Grammar
    tokenizer_info: TokenizerInfo


class Compiler(metaclass=Skipping):
    """Pairs a grammar with a vocabulary."""

    def __init__(self, info: TokenizerInfo, **_: Any) -> None:
        self._info = info

    def compile_grammar(self, grammar: Grammar | str, **_: Any) -> Compiled:
        made = Grammar.from_ebnf(grammar) if isinstance(grammar, str) else grammar
        made.on(self._info.vocabulary)
        return Compiled(made, self._info)

    def __getattr__(self, name: str) -> Any:
        return skip


def accepts(
    grammar: Grammar | str, text: str | bytes, *, require_termination: bool = True, **_: Any
) -> bool:
    """Whether a grammar has a text, or one that begins with it."""
    if not isinstance(grammar, (Grammar, str)):
        skip()
    COUNTS["texts"] += 1
    made = Grammar.from_ebnf(grammar) if isinstance(grammar, str) else grammar
    cursor = made.on(BYTES).start()
    try:
        for byte in text.encode() if isinstance(text, str) else text:
            cursor.accept(byte)
    except TokenNotAllowed:
        return False
    return cursor.is_accepting or not require_termination


def rejected(mask: Any, size: int, index: int = 0) -> list[int]:
    """The ids whose bits are not set."""
    bits = np.unpackbits(mask[index].view(np.uint8), bitorder="little")[:size]
    return np.flatnonzero(bits == 0).tolist()


class Plugin:
    """Counts verdicts."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for module in {item.module for item in items}:
            if hasattr(module, "check_grammar_with_expected_grammar"):
                module.check_grammar_with_expected_grammar = lambda one, text: str(one) == text

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome == "skipped":
            COUNTS[f"tests {report.outcome}"] += 1
        if report.failed:
            print(f"\n{report.nodeid[:150]}\n  {str(report.longrepr).splitlines()[-1][:200]}")


def xgrammars(paths: list[str]) -> None:
    """Run some of XGrammar's tests."""
    module: Any = types.ModuleType("xgrammar")
    testing: Any = types.ModuleType("xgrammar.testing")
    module.__getattr__, module.testing = lambda name: skip, testing
    module.Grammar, module.TokenizerInfo = Grammar, TokenizerInfo
    module.GrammarMatcher, module.GrammarCompiler = Matcher, Compiler
    module.allocate_token_bitmask = lambda n, size: np.zeros((n, -(-size // 32)), np.int32)
    testing._ebnf_to_grammar_no_normalization = Grammar.from_ebnf
    testing._is_grammar_accept_string = accepts
    testing._json_schema_to_ebnf = Grammar.converted
    testing._get_masked_tokens_from_bitmask = rejected
    testing._get_matcher_from_grammar_and_tokenizer_info = lambda grammar, info, **options: Matcher(
        Compiler(info).compile_grammar(grammar), **options
    )
    testing.GrammarFunctor = Passing
    testing.__getattr__ = lambda name: skip
    parts = ("builtin_structural_tag", "exception", "openai_tool_call_schema", "structural_tag")
    others: dict[str, Any] = {
        name: mock.MagicMock() for name in ("torch", "transformers", "conftest")
    }
    others |= {f"xgrammar.{name}": types.ModuleType(name) for name in parts}
    for part in parts:
        others[f"xgrammar.{part}"].__getattr__ = lambda name: Nothing
        setattr(module, part, others[f"xgrammar.{part}"])
    others["xgrammar.builtin_structural_tag"].get_model_structural_tag = structural_tag
    others["conftest"]._hf_token_available = lambda: False
    others["transformers"].AutoTokenizer.from_pretrained = skip
    sys.modules |= {"xgrammar": module, "xgrammar.testing": testing, **others}
    with mock.patch.object(pytest, "raises", Raises):
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir=/", "--no-header",
             "-Wignore", "-s",
             "--tb=line", "-c", "/dev/null", *paths],
            plugins=[Plugin()],
        )  # fmt: skip


def main(paths: list[str]) -> None:
    """Decide all cases of some files."""
    if paths[0].endswith(".rs"):
        llguidances(paths[0])
    else:
        xgrammars(paths)
    print(dict(COUNTS))


if __name__ == "__main__":
    main(sys.argv[1:])
