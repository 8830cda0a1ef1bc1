"""The decode loop: an output and a sequence of the model, turn and turn about.

It owns who is asked when, and nothing else: what happens to scores is
`structgen.decoding.generation`'s business, how a model computes them its module's. They are
plain generators.
"""

from __future__ import annotations

from collections.abc import Generator

from structgen.models.base import TokenSequence

from .call_validation import passes
from .run import Chunk, Run


def decode(run: Run, sequence: TokenSequence) -> Generator[Chunk, None, None]:
    """Make one output; yield its text as it becomes certain, in pieces none of which is empty.

    Args:
        run: the output, not begun.
        sequence: may hold the first tokens of the prompt already; left open.
    """
    run.start(reused_tokens=sequence.length)
    yield from resume(run, sequence)


def resume(run: Run, sequence: TokenSequence) -> Generator[Chunk, None, None]:
    """Go on with an output that has begun, as `loop`.

    Args:
        run: the output.
        sequence: may hold the first of its tokens already; left open.
    """
    for chunks in passes_of(run, sequence):
        yield from chunks


def passes_of(run: Run, sequence: TokenSequence) -> Generator[list[Chunk], None, None]:
    """The same, a step at a time: yield before each pass of the model, and at the end.

    What is yielded is the text that has become certain since, which may be none. So whoever drives
    several outputs may let each have a pass in turn.

    Args:
        run: an output that has begun.
        sequence: may hold the first of its tokens already; left open.
    """
    run.resume(sequence.length)
    while True:
        run.advance()
        yield run.take_chunks()
        if run.is_weighing:
            for _ in run.weigh():
                yield []
                if run.is_interrupted:
                    break
            continue
        if run.is_waiting:
            continue
        n_wanted, goes_on = run.n_wanted, run.finish_reason is None
        if not goes_on and not n_wanted:
            return
        if sequence.length > run.n_seen:
            sequence.rewind(run.n_seen)
        for i, piece in enumerate(passes(run.take_pending())):
            if i:
                yield []
            if goes_on and run.is_interrupted:
                break
            sequence.append(piece)
        if goes_on and run.is_interrupted:
            continue
        if n_wanted:
            run.score_forced(sequence.recent_logits(n_wanted + 1)[:-1])
        if not goes_on:
            return
        run.choose(sequence.logits())
