"""Read a photographed receipt into typed fields, each with the line that it is from.

No model that sees is needed: RapidOCR reads the lines (``pip install rapidocr pillow``; its models
are in the package), and a text model types them. Each field is quoted from what was read: it can be
shown on the photograph, and nothing can be made up.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from pydantic import BaseModel
from rapidocr import RapidOCR

import structgen
from structgen import Generator, Quote

RECEIPT = [
    "CORNER BAKERY",
    "12 Mill Lane",
    "2026-11-20 08:41",
    "Sourdough loaf 6.50",
    "Croissant x2 5.80",
    "Oat flat white 4.20",
    "TOTAL 16.50",
    "VISA **** 4821",
]
EXAMPLE = "GREEN GROCER\n3 High Street\n2026-02-03 17:20\nApples 3.10\nLeeks 2.00\nTOTAL 5.10\nCASH"


class Receipt(BaseModel):
    shop: Annotated[str, Quote(source="lines", unit="line", max=1)]
    date: Annotated[str, Quote(source="lines", unit="line", max=1)]
    total: Annotated[str, Quote(source="lines", unit="line", max=1)]


def photograph() -> Image.Image:
    """The receipt as a camera would see it: not quite straight."""
    picture = Image.new("RGB", (520, 60 + 44 * len(RECEIPT)), "white")
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(28)
    for row, line in enumerate(RECEIPT):
        draw.text((30, 30 + 44 * row), line, fill=(40, 40, 40), font=font)
    return picture.rotate(1.5, fillcolor=(225, 220, 210), expand=True)


def prompt(lines: str) -> list[dict[str, Any]]:
    task = (
        "Copy the line with the shop's name, the line with the date, and the line with the total."
    )
    shown = '{"shop": "GREEN GROCER", "date": "2026-02-03 17:20", "total": "TOTAL 5.10"}'
    return [
        {"role": "system", "content": task},
        {"role": "user", "content": EXAMPLE},
        {"role": "assistant", "content": shown},
        {"role": "user", "content": lines},
    ]


def main() -> None:
    read = RapidOCR(params={"Global.log_level": "error"})(np.asarray(photograph()))
    lines = "\n".join(read.txts)
    generator = Generator(structgen.load("qwen2.5-coder-0.5b-instruct"), Receipt)
    receipt = generator.parse(prompt(lines), quote_from={"lines": lines}, max_new_tokens=100)
    for name in Receipt.model_fields:
        quote = getattr(receipt, name)
        row = lines.count("\n", 0, quote.start)
        left, top = read.boxes[row].min(axis=0).astype(int)
        print(f"{name:5}  {quote!s:16}  line {row + 1}, at ({left}, {top})")
    print("to pay", Decimal(receipt.total.split()[-1]))


if __name__ == "__main__":
    main()
