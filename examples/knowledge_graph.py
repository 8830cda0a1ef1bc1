"""Read facts out of sentences, and draw them as a graph.

    python examples/knowledge_graph.py [graph.svg]

What relates to what is in the type: a person is born in a place and writes a work, so the model
cannot answer that somebody married a book.
"""

from __future__ import annotations

import math
import sys
from html import escape
from pathlib import Path
from typing import Literal

import structgen
from structgen import Choice, Generator, Template

PERSON = Choice(["Mary Shelley", "Percy Shelley", "Lord Byron"])
PLACE = Choice(["London", "Horsham"])
WORK = Choice(["Frankenstein", "Don Juan"])
FACT = (
    Template("{a} {does} {b}.", a=PERSON, does=Literal["was born in"], b=PLACE)
    | Template("{a} {does} {b}.", a=PERSON, does=Literal["wrote"], b=WORK)
    | Template("{a} {does} {b}.", a=PERSON, does=Literal["married"], b=PERSON)
)
EXAMPLES = """Text: Ada Lovelace came into the world in Rome.
Fact: Ada Lovelace was born in Rome.

Text: Homer is the author of the Odyssey.
Fact: Homer wrote the Odyssey.

Text: Marie Sklodowska became the wife of Pierre Curie.
Fact: Marie Sklodowska married Pierre Curie.

"""
SENTENCES = [
    "Mary Shelley came into the world in London.",
    "Mary Shelley is the author of Frankenstein.",
    "Lord Byron came into the world in London.",
    "Lord Byron is the author of Don Juan.",
]


def draw(facts: list[dict[str, str]]) -> str:
    """The names on a circle, and a line for each fact, as an SVG."""
    names = list(dict.fromkeys(fact[end] for fact in facts for end in "ab"))
    angles = {name: 2 * math.pi * n / len(names) for n, name in enumerate(names)}
    place = {name: (300 + 210 * math.cos(a), 200 + 150 * math.sin(a)) for name, a in angles.items()}
    drawn = []
    for fact in facts:
        (x, y), (to_x, to_y) = place[fact["a"]], place[fact["b"]]
        ends = f'x1="{x:.0f}" y1="{y:.0f}" x2="{to_x:.0f}" y2="{to_y:.0f}"'
        middle = f'x="{(x + to_x) / 2:.0f}" y="{(y + to_y) / 2:.0f}"'
        drawn.append(f'<line {ends} stroke="#94a3b8"/><text {middle}>{fact["does"]}</text>')
    for name, (x, y) in place.items():
        drawn.append(f'<ellipse cx="{x:.0f}" cy="{y:.0f}" rx="80" ry="18" fill="#e0e7ff"/>')
        drawn.append(f'<text x="{x:.0f}" y="{y + 4:.0f}">{escape(name)}</text>')
    size = 'viewBox="0 0 600 400" font-family="sans-serif" font-size="13" text-anchor="middle"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{"".join(drawn)}\n</svg>\n'


def main() -> None:
    generator = Generator(structgen.load("smollm2-135m-instruct"), FACT)
    facts = []
    for sentence in SENTENCES:
        facts.append(generator.parse(f"{EXAMPLES}Text: {sentence}\nFact: ", max_new_tokens=30))
        print(*facts[-1].values(), sep=" | ")
    picture = draw(facts)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
