"""10,000 random documents: what a `Quote` allows beside Python's ``in``, and where beside ``find``.

    python tests/benchmarks/quotes.py [DOCUMENTS] [SEED]

Each document is drawn over two or three letters and blanks, so that pieces come again and again;
texts are its pieces, a third of them with a letter changed. Half a minute for 10,000.
"""

from __future__ import annotations

import random
import sys

from structgen.automaton.regex import RegexAutomaton
from structgen.grammar import ir
from structgen.types import Quote

TEXTS = 12


def fits(document: str, text: str, unit: str, least: int, most: int | None) -> list[int]:
    """Where ``text`` is in ``document`` as a quote."""
    n_units = len(text) if unit == "character" else len(text.split(" "))
    if not text or n_units < least or (most is not None and n_units > most):
        return []
    found = [i for i in range(len(document)) if document.startswith(text, i)]
    if unit == "word":
        if text != text.strip() or "  " in text:
            return []
        found = [
            i for i in found if f" {document} "[i] == f" {document} "[i + len(text) + 1] == " "
        ]
    return found


def main(count: int, seed: int) -> None:
    """Raise AssertionError at the first document on which they differ."""
    r = random.Random(seed)
    n_texts = n_quotes = 0
    for number in range(count):
        unit = r.choice(["word", "character"])
        letters = r.choice(["ab", "abc"])
        document = "".join(r.choices(letters + " ", k=r.randint(1, 40)))
        document = " ".join(document.split()) or "a"  # one blank between words, to count them by
        least = r.randint(1, 3)
        most = r.choice([None, least, least + 2])
        quote = Quote(document, unit, min=least, max=most)  # type: ignore[arg-type]
        automaton = RegexAutomaton(ir.Quote(document, unit, least, most, False, False))
        for _ in range(TEXTS):
            at = r.randrange(len(document))
            text = document[at : at + r.randint(1, 9)]
            if r.random() < 0.3:
                text = text.replace(r.choice(letters), r.choice(letters), 1)
            wanted = fits(document, text, unit, least, most)
            assert automaton.accepts(text) == bool(wanted), (document, unit, least, most, text)
            if wanted:
                assert [a for a, _ in quote.find(text).places] == wanted, (document, text)
            n_texts += 1
            n_quotes += bool(wanted)
        if number % 1000 == 999:
            print(f"{number + 1:,} documents, {n_texts:,} texts, {n_quotes:,} of them quotes")


if __name__ == "__main__":
    main(*(int(given) for given in (*sys.argv[1:3], *("10000", "1")[len(sys.argv) - 1 :])))
