"""llguidance's own Lark tests, decided by our reading of its Lark.

    git clone https://github.com/guidance-ai/llguidance
    python tests/benchmarks/llguidance_cases.py llguidance/parser/tests/test_lark.rs

Prints the grammars that are refused, each with the reason, and the texts that are decided
otherwise. Reads the calls of ``lark_str_test_many``, ``lark_ok`` and ``lark_err_test``; grammars
that name tokens by their ids suit llguidance's vocabulary, not this one, and are told as refused.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import real_tokenizers

import structgen

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


def main(path: str) -> None:
    """Decide all cases of a file."""
    source = Path(path).read_text(encoding="utf-8")
    vocabulary = real_tokenizers.vocabulary("smollm2")
    counts: Counter[str] = Counter()

    def compiled(grammar: str) -> structgen.Constraint:
        return structgen.compile(structgen.Cfg(grammar, dialect="llguidance"), vocabulary)

    calls = (
        rf"lark_(?:str_test_many(?:_quiet)?\(\s*({_LITERAL})\s*,\s*{_LIST}\s*,\s*{_LIST}"
        rf"|ok\(\s*({_LITERAL}))"
    )
    for found in re.finditer(calls, source):
        line = source.count("\n", 0, found.start()) + 1
        counts["grammars"] += 1
        try:
            constraint = compiled(text_of(found[1] or found[4]))
        except structgen.StructgenError as error:
            counts["refused"] += 1
            print(f"{line}: refused: {str(error).splitlines()[0]}")
            continue
        for listed, wanted in ((found[2], True), (found[3], False)):
            for text in texts_of(listed or ""):
                counts["texts"] += 1
                if constraint.allows(text.removeprefix("FINAL_REJECT:")) is not wanted:
                    counts["otherwise"] += 1
                    print(f"{line}: {'refuses' if wanted else 'takes'} {text!r}")
    for found in re.finditer(rf"lark_err_test\(\s*({_LITERAL})\s*,\s*({_LITERAL})", source):
        counts["mistakes"] += 1
        try:
            compiled(text_of(found[1]))
        except structgen.StructgenError:
            continue
        counts["mistakes taken"] += 1
        print(
            f"{source.count(chr(10), 0, found.start()) + 1}: takes what has {text_of(found[2])!r}"
        )
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1])
