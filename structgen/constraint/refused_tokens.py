"""What messages say of tokens and budgets: why a token may not come, how many tokens are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from structgen.automaton.cfg import MARK

if TYPE_CHECKING:
    from .engine import Engine

_MOST_SAID = 10**15


def why_not(engine: Engine, state: int, token_id: int) -> str:
    """Why ``state`` does not go on with a token, in a sentence or two."""
    vocabulary = engine.vocabulary
    if not 0 <= token_id < vocabulary.size:
        return f"token {token_id} does not exist: the vocabulary has {vocabulary.size:,} ids."
    named = engine.named
    text = named.texts[token_id]
    if not text:
        return f"token {token_id} stands for no text (a special or unused id)."
    following = engine.machine.next_bytes(state)
    allowed = bytes(sorted(following - {MARK}))
    if not allowed and following:
        may = "a special token has to follow"
    elif not allowed:
        may = "nothing may follow: the text is whole"
    elif len(allowed) == 1:
        may = f"the next byte may be {repr(allowed)[1:]}"
    elif len(allowed) <= 24:
        may = f"the next byte may be one of {repr(allowed)[1:]}"
    else:
        may = f"the next byte may be one of {len(allowed)} different ones"
    return f"token {token_id} ({text!r}) is not allowed here; {may}."


def tokens_in_words(n: int) -> str:
    """So many tokens."""
    return f"{n:,} token" if n == 1 else f"{n:,} tokens"


def about_tokens(n: int) -> str:
    """So many tokens, or perhaps a few fewer."""
    if n > _MOST_SAID:
        return f"more than {tokens_in_words(_MOST_SAID)}"
    return f"about {tokens_in_words(n)}"


def whole_number(token_id: object) -> int:
    """A token id as an int.

    Raises:
        TypeError: it is no whole number.
    """
    if isinstance(token_id, bool) or not isinstance(token_id, (int, np.integer)):
        raise TypeError(
            f"accept takes the id of a token, a whole number; got {token_id!r}. For text, "
            "accept each id of vocabulary.encode_bytes(text.encode())."
        )
    return int(token_id)
