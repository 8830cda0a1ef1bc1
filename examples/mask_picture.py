"""Draw what masks do: for each token, what the model wanted, and what the type allowed.

    python examples/mask_picture.py [mask.svg]

Each column is one step. Bars are the probabilities of the model's own favourites; those that the
type rules out are struck out, and the token that was chosen is marked.
"""

from __future__ import annotations

import math
import sys
from html import escape
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

import structgen
from structgen import Generator

PROMPT = "Rate this review: The soup was cold and the waiter was rude."
WIDTH, ROW, TOP = 104, 26, 70  # pixels
SHOWN = 4
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


class Review(BaseModel):
    mood: Literal["good", "bad"]
    stars: int = Field(ge=1, le=5)


def column(x: int, step: structgen.insight.TraceStep) -> list[str]:
    """The drawing of one step."""
    chosen = step.logprob.token_id
    wanted = [token for token in step.logprob.unmasked_top if token.token_id != chosen]
    taken = next(token for token in step.logprob.top if token.token_id == chosen)
    allowed = "1 token fits" if step.n_allowed == 1 else f"{step.n_allowed:,} tokens fit"
    drawn = [f'<text x="{x}" y="{TOP - 24}" fill="#6b7280" font-size="11">{allowed}</text>']
    for row, token in enumerate([*wanted[: SHOWN - 1], taken]):
        y = TOP + row * ROW
        is_chosen = token.token_id == chosen
        logprob = step.logprob.unmasked_logprob if is_chosen else token.logprob
        bar = max(2, round((WIDTH - 14) * math.exp(logprob)))
        fill = "#bbf7d0" if is_chosen else "#bfdbfe" if token.is_allowed else "#f3f4f6"
        color = "#166534" if is_chosen else "#1e3a8a" if token.is_allowed else "#9ca3af"
        line = "none" if token.is_allowed else "line-through"
        text = escape(token.token.decode(errors="replace").replace(" ", "␣"))
        drawn += [
            f'<rect x="{x}" y="{y - 14}" width="{bar}" height="19" rx="3" fill="{fill}"/>',
            f'<text x="{x + 3}" y="{y}" fill="{color}" text-decoration="{line}" '
            f'font-weight="{"bold" if is_chosen else "normal"}">{text}</text>',
        ]
    return drawn


def main() -> None:
    model = structgen.load("smollm2-135m-instruct")
    messages = [{"role": "user", "content": PROMPT}]
    result = Generator(model, Review, whitespace="compact").result(
        messages, trace=True, max_new_tokens=40
    )
    steps = [step for step in result.trace if not step.is_end]
    width, height = 16 + len(steps) * WIDTH, TOP + SHOWN * ROW + 34
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="{FONT}" font-size="13">',
        f'<rect width="{width}" height="{height}" rx="8" fill="white"/>',
        f'<text x="12" y="24" fill="#374151">{escape(PROMPT)}</text>',
    ]
    for index, step in enumerate(steps):
        drawn += column(12 + index * WIDTH, step)
    drawn += [
        f'<text x="12" y="{height - 14}" font-weight="bold" fill="#166534">'
        f"{escape(result.text)}</text>",
        "</svg>",
    ]
    Path(sys.argv[1] if sys.argv[1:] else "mask.svg").write_text("\n".join(drawn), encoding="utf-8")


if __name__ == "__main__":
    main()
