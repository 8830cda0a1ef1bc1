"""The outputs of one call: one, or several by prompts or ``n=``, and what becomes of errors.

It owns the order of a call: its options are checked, its prompts encoded, its outputs made and
each converted; and how several errors are told as one. How one output is made is `generation`'s,
how many are made side by side `batch`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from structgen.errors import BatchError, BudgetTooSmall, OptionError, StructgenError

from . import chat
from . import options as search_options
from .batch import make_all
from .options import SearchOptions
from .run import Output, Run
from .stream import Stream, pieces
from .tasks import Task


def make_outputs(
    task: Task, prompt: Any, options: Mapping[str, Any], convert: Callable[[Output], Any]
) -> Any:
    """Make one output or several; each is converted, and what fails there fails there.

    Args:
        task: makes outputs of prompts.
        prompt: one, or several.
        options: of the call.
        convert: makes what the caller gets of an output that has ended.

    Raises:
        StructgenError: what the one output failed with; `BatchError` where several were asked for
            and some failed.
    """
    began = time.perf_counter()
    model, constraint = task.model, task.constraint
    search = search_options.parse(options)
    is_batch = chat.are_several(prompt)
    if not is_batch and search.n is None:
        run = task.run(task.prepare(prompt, search), search)
        for _ in Stream(run, pieces(model, run)):
            pass
        return convert(run)
    prompts: Sequence[Any] = prompt if is_batch else [prompt]
    n = search.n or 1
    settings = search_options.resolve(search, model.search_defaults)
    search_options.check_samples(search, settings)
    runs: dict[int, Run] = {}
    errors: dict[int, Exception] = {}
    for i, one in enumerate(prompts):
        try:
            prepared = task.prepare(one, search)
            for k in range(n):
                runs[i * n + k] = task.run(prepared, search, index=k)
        except StructgenError as error:
            errors.update((i * n + k, error) for k in range(n))
            for k in range(n):
                runs.pop(i * n + k, None)
    places = list(runs)
    forces = constraint is not None and search.forced
    batch_size = search.batch_size
    if batch_size is None and settings.get("random_seed", -1) >= 0:
        # In a batch, forced text and rows that outlast others are run in other passes, which
        # round differently. Who gives a seed wants what a call for one gives.
        batch_size = 1
    if search.retries or search.best:
        batch_size = 1  # no row of a batch can be rewound
    failed = make_all(
        model,
        [runs[place] for place in places],
        batch_size,
        forces=forces,
        began=began,
    )
    errors.update((places[i], error) for i, error in failed.items())
    outputs: list[Any] = [None] * (len(prompts) * n)
    for place, run in runs.items():
        if place not in errors:
            try:
                outputs[place] = convert(run)
            except StructgenError as error:
                errors[place] = error
    results = gathered(outputs, errors, len(prompts), search)
    return results if is_batch else results[0]


def gathered(
    outputs: list[Any], errors: Mapping[int, Exception], n_prompts: int, search: SearchOptions
) -> list[Any]:
    """What a call for several returns: by prompt, and with ``n=`` a list for each.

    Args:
        outputs: what was made, ``n`` for each prompt.
        errors: what failed, by its place among them.
        n_prompts: how many prompts there were.
        search: the options of the call.

    Raises:
        StructgenError: some failed, and ``return_errors`` was not asked for.
    """
    n = search.n or 1
    if search.return_errors:
        for place in errors:
            outputs[place] = errors[place]
    results = outputs
    if search.n is not None:
        results = [outputs[i * n : (i + 1) * n] for i in range(n_prompts)]
    if errors and not search.return_errors:
        raise failure(errors, results, len(outputs), None if search.n is None else n)
    return results


def failure(
    errors: Mapping[int, Exception],
    results: list[Any],
    n_outputs: int,
    n_samples: int | None = None,
) -> Exception:
    """What a call for several raises when some failed.

    Args:
        errors: of each output that failed.
        results: what the call would have returned.
        n_outputs: of how many outputs.
        n_samples: how many for each prompt; None: one, and the results are no lists.
    """
    first = errors[min(errors)]
    if len(errors) == n_outputs and _is_one_mistake(list(errors.values())):
        return first
    error = BatchError(
        _what_failed(errors, n_outputs),
        results=results,
        errors={
            (place if n_samples is None else divmod(place, n_samples)): errors[place]
            for place in sorted(errors)
        },
    )
    error.__cause__ = first
    return error


def _is_one_mistake(errors: Sequence[Exception]) -> bool:
    """Whether it is the call that is wrong, and not any of its outputs."""
    return isinstance(errors[0], (OptionError, BudgetTooSmall)) and all(
        type(error) is type(errors[0]) and str(error) == str(errors[0]) for error in errors
    )


def _what_failed(errors: Mapping[int, Exception], n_outputs: int) -> str:
    first = min(errors)
    said = str(errors[first]).rstrip()
    said += "" if said.endswith((".", "?", "…")) else "."
    if n_outputs == 1:
        return f"The only output failed: {said}"
    if len(errors) == n_outputs:
        return (
            f"All {n_outputs:,} outputs failed; the first: {said} Each one's error is in .errors."
        )
    return (
        f"{len(errors):,} of {n_outputs:,} outputs failed; the first: output {first}: "
        f"{said} The others are in .results; return_errors=True returns errors in "
        "their places instead."
    )
