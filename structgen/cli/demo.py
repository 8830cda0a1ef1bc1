"""The demo: four answers from a small model on this machine, each exactly of its type.

It uses only the public Python API, so it is also an example of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from structgen import GenerationResult, Generator, Regex, TextModel
from structgen.decoding import Prompt, chat

ShortText = Annotated[str, Field(min_length=3, max_length=30)]


class Speaker(BaseModel):
    """The speaker of a talk."""

    name: ShortText
    job: Literal["professor", "student", "engineer"]


class Talk(BaseModel):
    """The facts about a talk."""

    speaker: Speaker
    city: ShortText
    year: Annotated[int, Field(ge=1900, le=2100)]
    minutes: Annotated[int, Field(ge=5, le=240)]
    languages: Annotated[list[ShortText], Field(min_length=1, max_length=3)]
    recorded: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """One prompt and the type of its answer."""

    title: str
    type_text: str
    output_type: Any
    prompt: Prompt
    options: dict[str, Any] = field(default_factory=dict)


SCENES = (
    Scene(
        "A Pydantic object",
        "Talk: speaker (an object of name and job), city, year (1900 to 2100), minutes (5 to 240), "
        "languages (1 to 3), recorded (true or false)",
        Talk,
        [
            {
                "role": "user",
                "content": "Extract the facts as JSON: In 2021 Jan Novak, an engineer, spoke in "
                "Prague for 30 minutes, in Czech and German. The talk was recorded.",
            }
        ],
        {"max_new_tokens": 160},
    ),
    Scene(
        "A classification",
        'Literal["positive", "negative"]',
        Literal["positive", "negative"],
        [
            {
                "role": "user",
                "content": "What is the sentiment of the following sentence? "
                '"The soup was cold, the waiter was rude and we will never come back."',
            }
        ],
    ),
    Scene(
        "A regular expression",
        'Regex("[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")',
        Regex("[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
        "July 14, 1789 = 1789-07-14\nNovember 9, 1989 = 1989-11-09\nJuly 20, 1969 = ",
    ),
    Scene(
        "Free text",
        "none: any text",
        None,
        [{"role": "user", "content": "Why do we need sleep? Answer in one sentence."}],
        {"max_new_tokens": 60},
    ),
)


def run(model: TextModel, console: Console, seed: int = 1) -> list[GenerationResult]:
    """Show the four scenes on ``console`` and return their results.

    Colour and line wrapping are used only on a terminal.
    """
    results = []
    for number, scene in enumerate(SCENES, 1):
        _heading(console, f"{number} of {len(SCENES)}: {scene.title}")
        _field(console, "type", scene.type_text)
        prompt = chat.parse(scene.prompt)
        if isinstance(prompt, str):
            _field(console, "prompt", prompt)
        else:
            for message in prompt:
                _field(console, message["role"], message["content"])
        generator = Generator(model, scene.output_type)
        stream = generator.stream(scene.prompt, seed=seed, **scene.options)
        with stream, _growing(console, "output") as write:
            for chunk in stream:
                write(chunk)
        result = stream.result
        if generator.constraint is not None:
            _field(console, "parsed", repr(generator.constraint.output.parse(result.text)))
        _field(console, "", summary(result, model.vocabulary.size), style="dim")
        results.append(result)
    return results


def summary(result: GenerationResult, vocabulary_size: int) -> str:
    """Return one line of figures about a result."""
    tokens, seconds = result.usage.output_tokens, result.timings.total_seconds
    line = f"{tokens} token{'s' * (tokens != 1)} in {seconds:.2f} s"
    if tokens > 1:
        line += f" ({tokens / seconds:.0f} tokens/s)"
    if result.mean_allowed_tokens is None:
        return f"{line}; no mask: all {vocabulary_size:,} tokens were allowed"
    return (
        f"{line}; the mask allowed {result.mean_allowed_tokens:,.0f} of "
        f"{vocabulary_size:,} tokens on average"
    )


_INDENT = 11


def _heading(console: Console, text: str) -> None:
    console.print()
    if console.is_terminal:
        console.rule(Text(text, style="bold"), align="left", style="dim")
    else:
        console.print(f"== {text} ==", markup=False, highlight=False)


def _field(console: Console, label: str, text: str, style: str = "") -> None:
    """Print ``text`` beside ``label``, wrapped only on a terminal."""
    with _growing(console, label, style) as write:
        write(text)


@contextmanager
def _growing(
    console: Console, label: str, style: str = "bold green"
) -> Iterator[Callable[[str], None]]:
    """Show growing text beside ``label``; yields a function that appends to it."""
    if console.is_terminal:
        text = Text(style=style)
        row = Table.grid(Column(width=_INDENT), Column(overflow="fold"))
        row.add_row(Text(label, style="dim"), text)
        with Live(row, console=console, auto_refresh=False, vertical_overflow="visible") as live:

            def write(chunk: str) -> None:
                text.append(chunk)
                live.refresh()

            yield write
        return
    console.file.write(f"{label:<{_INDENT}}")  # separately: rich would turn tabs into spaces
    yield lambda chunk: print(
        chunk.replace("\n", "\n" + " " * _INDENT), end="", file=console.file, flush=True
    )
    console.file.write("\n")
