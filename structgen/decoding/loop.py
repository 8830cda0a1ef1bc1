"""The decode loop: an output and a sequence of the model, in turns.

It owns who is asked when, and nothing else: what happens to scores is `generation`'s business, how
a model computes them its module's. The loops are plain generators.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from structgen.models.base import Model, TokenSequence, n_shared
from structgen.sampling import Logits

from .call_validation import passes
from .results import Chunk
from .sections import Run


def made(model: Model, run: Run, *, has_begun: bool = False) -> Generator[list[Chunk], None, None]:
    """Make an output with a model, a step at a time, as `passes_of`: own its sequence, and its end.

    Args:
        model: the model.
        run: the output.
        has_begun: whether some of it was made already.

    Raises:
        IncompleteOutput: an output type was asked for and its text was cut.
    """
    if not has_begun and run.is_interrupted:
        run.start()
        run.advance()
        run.check_whole()
        return
    length = len(run.prompt_ids) + run.max_tokens
    sequence = model.start(length, prefix=run.part.tokens.row, adapter=run.adapter)
    try:
        if not has_begun:
            run.start(reused_tokens=sequence.length)
        yield from passes_of(run, sequence)
    finally:
        run.stop()
        sequence.close()
    run.check_whole()


def passes_of(run: Run, sequence: TokenSequence) -> Generator[list[Chunk], None, None]:
    """Go on with an output that has begun: yield before each pass of the model, and at the end.

    What is yielded is the text that has become certain since, which may be none. So whoever drives
    several outputs may let each have a pass in turn.

    Args:
        run: an output that has begun.
        sequence: may hold the first of its tokens already; left open.
    """
    run.part.tokens.n_seen = sequence.length
    while True:
        run.advance()
        yield run.take_chunks()
        part = run.part
        if part.is_weighing:
            for _ in part.weigh():
                yield []
                if part.is_interrupted:
                    break
            continue
        if part.is_waiting:
            continue
        n_wanted, goes_on = part.n_wanted, run.finish_reason is None
        if not goes_on and not n_wanted:
            return
        if sequence.length > part.tokens.n_seen:
            sequence.rewind(part.tokens.n_seen)
        pending = part.tokens.take_pending()
        guessed = part.guess(len(pending)) if goes_on else ()
        if guessed:
            sequence.append([*pending.tolist(), *guessed])
            scores = sequence.recent_logits(len(guessed) + 1)
            n_right = _verify(run, guessed, scores)
            run.part.note_guess(len(guessed), n_right)
            continue
        for i, piece in enumerate(passes(pending)):
            if i:
                yield []
            if goes_on and part.is_interrupted:
                break
            sequence.append(piece)
        if goes_on and part.is_interrupted:
            continue
        if n_wanted:
            part.score_forced(sequence.recent_logits(n_wanted + 1)[:-1])
        if not goes_on:
            return
        part.choose(sequence.logits())


def _verify(run: Run, guessed: Sequence[int], logits: Logits) -> int:
    """Choose tokens along a guess, for as long as they are those that it has.

    Args:
        run: the output, of which the model has seen all tokens, and the guessed ones after them.
        guessed: the tokens.
        logits: float32 ``[len(guessed) + 1, vocab]``, the scores before each of them and after all.

    Returns:
        How many tokens of the guess came.
    """
    first = run.part.tokens.length
    after = np.array(guessed, np.int32)
    at = 0
    while True:
        run.part.choose(logits[at : at + 1])
        if run.finish_reason is not None or at == len(guessed):
            return at
        run_ids = run.part.tokens.row
        if len(run_ids) <= first + at or run_ids[-1] != after[at]:
            return at
        run.advance()
        came = run.part.tokens.row[first:]
        at = n_shared(came, after)
        if run.finish_reason is not None or at < len(came):
            return at
