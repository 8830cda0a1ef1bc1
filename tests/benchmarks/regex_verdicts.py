"""Verdicts on generated patterns and texts: our automata beside Python's ``re`` and Node's RegExp.

    python tests/benchmarks/regex_verdicts.py [--patterns N] [--seed S]

Per dialect and kind of pattern, a row of a Markdown table: patterns, how many of them were refused
(with an error; for Python these are possessive quantifiers and atomic groups of varying width),
verdicts, how many of those were "matches", and differences, each of which is printed. Exit status 1
if there are any.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import warnings
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS.parent)]

from regex_oracle import ALPHABET, PatternGenerator, node_verdicts, texts_for  # noqa: E402

from structgen.automaton.regex.automaton import RegexAutomaton  # noqa: E402
from structgen.errors import PatternError, UnsupportedFeature  # noqa: E402
from structgen.grammar.regex.read import parse_ecma, parse_python  # noqa: E402

TEXTS = 12
BATCH = 500


def verdicts(dialect: str, lookarounds: bool, patterns: int, seed: int) -> tuple[int, ...]:
    """Patterns, refused, verdicts, matches, differences."""
    rng = random.Random(f"{dialect} {lookarounds} {seed}")
    generator = PatternGenerator(rng, dialect, lookarounds)
    made = refused = judged = matches = differences = 0
    while made < patterns:
        batch: list[tuple[str, list[str], list[bool]]] = []
        while len(batch) < BATCH and made < patterns:
            pattern = generator.pattern()
            if dialect == "python" and not _compiles(pattern):
                continue
            made += 1
            try:
                regex = (parse_python if dialect == "python" else parse_ecma)(pattern)
            except UnsupportedFeature:
                refused += 1
                continue
            except PatternError:
                made -= 1  # Node refuses it as well: tests/grammar/test_regex_frontends.py
                continue
            automaton = RegexAutomaton(regex)
            texts = texts_for(regex, rng, ALPHABET, TEXTS)
            batch.append((pattern, texts, [automaton.accepts(text) for text in texts]))
        for (pattern, texts, ours), theirs in zip(batch, _theirs(dialect, batch), strict=True):
            for text, mine, right in zip(texts, ours, theirs or [], strict=False):
                judged += 1
                matches += right
                if mine != right:
                    differences += 1
                    print(f"{dialect}: {pattern!r} on {text!r}: {right}, we say {mine}")
    return made, refused, judged, matches, differences


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _theirs(
    dialect: str, batch: list[tuple[str, list[str], list[bool]]]
) -> list[list[bool] | None]:
    if dialect == "ecma":
        return node_verdicts([(pattern, "u", texts) for pattern, texts, _ in batch])
    return [[bool(re.fullmatch(p, text)) for text in texts] for p, texts, _ in batch]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--patterns", type=int, default=5000, help="per row")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| dialect | lookarounds | patterns | refused | verdicts | matches | differences | s |")
    print("|---|---|---|---|---|---|---|---|")
    wrong = 0
    for dialect in ("python", "ecma"):
        for lookarounds in (False, True):
            start = time.perf_counter()
            row = verdicts(dialect, lookarounds, arguments.patterns, arguments.seed)
            seconds = time.perf_counter() - start
            cells = [dialect, "yes" if lookarounds else "no", *(f"{n:,}" for n in row)]
            print("| " + " | ".join([*cells, f"{seconds:.0f}"]) + " |", flush=True)
            wrong += row[-1]
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
