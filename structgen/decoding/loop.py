"""The decode loop: an output and a sequence of the model, turn and turn about.

It owns who is asked when, and nothing else: what happens to scores is
`structgen.decoding.generation`'s business, how a model computes them its module's. It is a plain
generator of text.
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
    run.resume(sequence.length)
    while True:
        run.advance()
        yield from run.take_chunks()
        n_wanted = run.n_wanted
        if run.finish_reason is not None and not n_wanted:
            return
        for piece in passes(run.take_pending()):
            if run.finish_reason is None and run.is_interrupted:
                break
            sequence.append(piece)
        if run.finish_reason is None and run.is_interrupted:
            continue
        if n_wanted:
            run.score_forced(sequence.recent_logits(n_wanted + 1)[:-1])
        if run.finish_reason is not None:
            return
        run.choose(sequence.logits())
