"""The model's probability of each output there can be, for output types of few texts.

It owns the checks of such a call and its limits of time; what is computed, and how exactly, is
`structgen.insight.confidence`'s.
"""

from __future__ import annotations

import numbers
import time

from structgen.errors import IncompleteOutput, OptionError, PromptError
from structgen.insight import MAX_ALTERNATIVES, GivenUp, Site, measure, names_of, whole_texts

from . import chat
from . import options as search_options
from .call_validation import check_adapter, check_fits, opener
from .chat import Prompt
from .options import CancelEvent
from .tasks import Task


def probabilities(
    task: Task,
    prompt: Prompt,
    *,
    tolerance: float,
    adapter: str | None,
    special_tokens: str,
    timeout: float | None,
    cancel: CancelEvent | None,
) -> dict[str, float]:
    """See `structgen.Generator.probabilities`; ``task`` makes the generator's outputs."""
    model, constraint = task.model, task.constraint
    texts = None if constraint is None else whole_texts(constraint)
    if constraint is None or texts is None:
        what = "free text" if constraint is None else constraint.output.name
        raise OptionError(
            f"probabilities needs an output type of at most {MAX_ALTERNATIVES:,} texts and no "
            f"objects or arrays, which {what} is not. For the fields of an object: "
            "generator.result(...).confidence."
        )
    began = time.perf_counter()
    search = search_options.parse(
        {
            "timeout": timeout,
            "cancel": cancel,
            "adapter": adapter,
            "special_tokens": special_tokens,
        }
    )
    if isinstance(tolerance, bool) or not isinstance(tolerance, numbers.Real):
        raise OptionError(f"tolerance={tolerance!r} is not a number.")
    if not 0 <= tolerance < 1:
        raise OptionError(f"tolerance={tolerance!r} is out of range. It must be from 0 to 1.")
    check_adapter(model, adapter)
    if chat.is_batch(prompt):
        raise PromptError(
            "probabilities takes one prompt. For several: "
            "[generator.probabilities(prompt) for prompt in prompts]."
        )
    site = Site("$", 0, 0, texts, names_of(constraint, texts))
    prompt_ids = task.prepare(prompt, search).token_ids
    check_fits(model, len(prompt_ids))
    is_late = False

    def give_up() -> bool:
        nonlocal is_late
        is_late = search.timeout is not None and time.perf_counter() > began + search.timeout
        return is_late or (search.cancel is not None and search.cancel.is_set())

    open_sequence = opener(model, prompt_ids, adapter, give_up)
    try:
        found = measure(constraint, site, (), open_sequence, tolerance=tolerance, give_up=give_up)
    except GivenUp:
        why = f"timeout={timeout:g} seconds were over" if is_late else "it was cancelled"
        raise IncompleteOutput(
            f"The probabilities are not known: {why}. A greater tolerance= takes fewer passes.",
            text="",
        ) from None
    return {alternative.text: alternative.probability for alternative in found.alternatives}
