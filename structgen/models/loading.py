"""What loading a language model and loading an embedder share: checks, and words for errors.

It knows no runtime.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from structgen.errors import OptionError
from structgen.models import cache
from structgen.models.damage import Lack

_INTERNALS = re.compile(r".*\[ONNXRuntimeError\] : \d+ : \w+ : |\w+\.cc:\d+ \w+ ", re.DOTALL)
_LONGEST = 2000  # characters of a runtime's error, which may quote a folder's files


def check_threads(threads: int | None) -> None:
    """Raise an OptionError unless ``threads`` is a number of threads, or None."""
    if threads is not None and (
        isinstance(threads, bool) or not isinstance(threads, int) or threads < 1
    ):
        raise OptionError(
            f"threads={threads!r} is out of range. It must be 1 or more, or left out: as many as "
            "there are cores."
        )


def remedy(folder: Path) -> str:
    """What to do about a model that cannot be loaded."""
    name = cache.name_of(folder)
    if name is None:
        return "Fetch or convert the model again."
    return f"Delete it with `structgen models rm {name}`; it is fetched again when next it is used."


def remedied(folder: Path, lacking: Sequence[Lack]) -> str:
    """What is wrong with a folder, and what to do: of a folder in the cache, fetch it again."""
    says = " ".join(lack.says for lack in lacking)
    if cache.name_of(folder) is not None:
        return f"{says} {remedy(folder)}"
    return f"{says} {' '.join(dict.fromkeys(lack.do for lack in lacking))}"


def in_short(error: Exception) -> str:
    """A runtime's error without the places in its source code."""
    return _INTERNALS.sub("", str(error)[:_LONGEST]).strip().rstrip(".")
