"""Read invoices into typed rows, and write them as CSV.

A small model does much better with examples of what is wanted, and with fields in the order of the
text. Types make sure that a number is a number, not that it is the right one: check before you pay.
"""

from __future__ import annotations

import csv
import sys
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

import structgen
from structgen import Generator


class Invoice(BaseModel):
    vendor: Annotated[str, Field(max_length=30)]
    number: Annotated[str, Field(pattern=r"^[A-Z]{1,3}-?[0-9]{2,6}$")]
    issued: date
    currency: Literal["EUR", "USD", "GBP"]
    total: Annotated[Decimal, Field(ge=0, max_digits=9, decimal_places=2)]


EXAMPLES = {
    "Lumen Ltd\nInvoice LU-204 of 2026-02-11\n4 lamps at 20.00\nTotal: GBP 80.00": (
        '{"vendor":"Lumen Ltd","number":"LU-204","issued":"2026-02-11",'
        '"currency":"GBP","total":80.00}'
    ),
    "Bois SARL\nInvoice B-31 of 2026-01-05\n2 desks at 99.50\nTotal: EUR 199.00": (
        '{"vendor":"Bois SARL","number":"B-31","issued":"2026-01-05",'
        '"currency":"EUR","total":199.00}'
    ),
}
INVOICES = [
    "Kaiser Papier GmbH\nInvoice KP-1187 of 2026-03-02\n40 reams at 4.10\nTotal: EUR 164.00",
    "Harbor Coffee Inc.\nInvoice H-9031 of 2026-03-14\n12 bags at 15.50\nTotal: USD 186.00",
    "Otto Reinigung\nInvoice OR-77 of 2026-04-01\n8 hours at 31.25\nTotal: EUR 250.00",
]


def prompt(invoice: str) -> list[dict[str, Any]]:
    said = [
        {"role": role, "content": text}
        for example in EXAMPLES.items()
        for role, text in zip(("user", "assistant"), example, strict=True)
    ]
    return [*said, {"role": "user", "content": invoice}]


def main() -> None:
    model = structgen.load("smollm2-135m-instruct")
    generator = Generator(model, Invoice)
    invoices = generator.batch([prompt(text) for text in INVOICES], max_new_tokens=100)
    rows = csv.DictWriter(sys.stdout, Invoice.model_fields)
    rows.writeheader()
    for invoice in invoices:
        rows.writerow(invoice.model_dump() | {"total": f"{invoice.total:.2f}"})


if __name__ == "__main__":
    main()
