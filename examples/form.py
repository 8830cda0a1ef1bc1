"""Fill a form in the terminal, field by field, while the model writes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from rich.console import Console
from rich.live import Live
from rich.table import Table

import structgen
from structgen import Generator, Partial


class Guest(BaseModel):
    name: Annotated[str, Field(max_length=30)]
    age: Annotated[int, Field(ge=0, le=120)]


class Booking(BaseModel):
    city: Annotated[str, Field(max_length=30)]
    room: Literal["single", "double", "suite"]
    nights: Annotated[int, Field(ge=1, le=30)]
    guests: Annotated[list[Guest], Field(min_length=1, max_length=3)]


def form(booking: Partial[Booking]) -> Table:
    """A row a field: what is whole in green, what is being written in yellow."""
    table = Table("field", "value", title="Booking")
    for name in Booking.model_fields:
        value: Any = getattr(booking, name, "")
        colour = "green" if booking.done(name) else "yellow"
        if name == "guests" and value:
            for n, guest in enumerate(value):
                shown = f"{getattr(guest, 'name', '')}, {getattr(guest, 'age', '…')}"
                table.add_row(
                    f"guest {n + 1}", shown, style="green" if booking.done(name, n) else "yellow"
                )
        else:
            table.add_row(name, str(value), style=colour)
    return table


def main() -> None:
    model = structgen.load("smollm2-135m-instruct")
    generator = Generator(model, Booking)
    messages = [
        {"role": "user", "content": "A suite in Rome for a week, for Ann Lee, who is 40."},
        {
            "role": "assistant",
            "content": '{"city":"Rome","room":"suite","nights":7,'
            '"guests":[{"name":"Ann Lee","age":40}]}',
        },
        {
            "role": "user",
            "content": "A double room in Paris, three nights: Bob Ray, 33, and Cleo Ray, 31.",
        },
    ]
    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        for booking in generator.stream_values(messages, max_new_tokens=100):
            live.update(form(booking), refresh=True)
    console.print(booking.value)


if __name__ == "__main__":
    main()
