"""The decode loop: an output and a sequence of the model, turn and turn about.

It owns who is asked when, and nothing else: what happens to scores is `structgen.run`'s business,
how a model computes them its module's. It is a plain generator of text.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from structgen.models.base import TokenSequence
from structgen.processors import TokenIds
from structgen.run import Run

# Most tokens in one pass: a long prompt can be given up in between (0.2 s with SmolLM2), and the
# scores of all its tokens, which the runtime computes, are never in memory together. Passes of 64
# tokens are no slower than longer ones, and give the same scores to the bit.
_LONGEST_PASS = 64


def decode(run: Run, sequence: TokenSequence) -> Generator[str, None, None]:
    """Make one output; yield its text as it becomes certain, in pieces none of which is empty.

    Args:
        run: the output, not begun.
        sequence: may hold the first tokens of the prompt already; left open.
    """
    run.start(reused_tokens=sequence.length)
    yield from resume(run, sequence)


def resume(run: Run, sequence: TokenSequence) -> Generator[str, None, None]:
    """Go on with an output that has begun, as `decode`.

    Args:
        run: the output.
        sequence: may hold the first of its tokens already; left open.
    """
    run.resume(sequence.length)
    while True:
        run.advance()
        chunk = run.take_chunk()
        if chunk:
            yield chunk
        n_wanted = run.n_wanted
        if run.finish_reason is not None and not n_wanted:
            return
        for piece in _pieces(run.take_pending()):
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


def _pieces(token_ids: TokenIds) -> Iterator[TokenIds]:
    """Cut tokens into passes, none over one token: that would round differently."""
    start = 0
    while start < len(token_ids):
        end = start + _LONGEST_PASS
        if len(token_ids) - end < 2:
            end = len(token_ids)
        yield token_ids[start:end]
        start = end
