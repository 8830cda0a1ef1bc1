"""Give every row of a Parquet file a typed column, in a job that survives a killed process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field

import structgen

ORDERS = [
    "Please send 12 boxes of screws to the workshop.",
    "We need 40 sheets of glass by Friday.",
    "Could I have 3 cans of paint?",
]


class Order(BaseModel):
    count: Annotated[int, Field(ge=1, le=1000)]
    unit: Literal["boxes", "cans", "sheets"]
    item: Annotated[str, Field(max_length=20)]


MESSAGES = [
    {"role": "user", "content": "I would like 7 cans of oil, please."},
    {"role": "assistant", "content": '{"count":7,"unit":"cans","item":"oil"}'},
    {"role": "user", "content": "{{ text }}"},
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        orders = Path(folder) / "orders.parquet"
        pq.write_table(pa.table({"id": [*range(len(ORDERS))], "text": ORDERS}), orders)
        results = structgen.batch(
            orders,
            Order,
            messages=MESSAGES,
            output=Path(folder) / "results",  # the same call continues what was interrupted
            format="parquet",
            result="order",
            max_new_tokens=40,
        )
        table = pq.read_table(sorted(results.glob("part-*")))
        print(table.schema.field("order").type)
        for row in table.to_pylist():
            print(row["id"], row["order"])


if __name__ == "__main__":
    main()
