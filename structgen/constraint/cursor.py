"""A cursor: the position of one output in its type, token by token.

`Cursor` writes masks, accepts tokens, and knows the distance to the end. It knows what a token
budget still allows, which bytes and tokens are forced, and why a token is not allowed. It also
writes several masks at once: along a draft of tokens, and for several cursors (`fill_masks`).

`engine` has what all outputs of one type share: the automaton, its masks and memos. `constraint`
makes cursors. `masks.Reach` knows how far each token is from the end. A *plan* is a list of tokens
that certainly ends the output. Knows no logits, sampling or prompts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import MARK, CfgMachine
from structgen.automaton.core import DEAD, GROW, NeedsText, TextHistory
from structgen.automaton.work import FREE, WORK
from structgen.errors import (
    BatchError,
    BudgetTooSmall,
    CompileLimitExceeded,
    OptionError,
    StructgenError,
    TokenNotAllowed,
    VocabularyError,
    counted,
)
from structgen.vocabulary import Plan, Vocabulary

if TYPE_CHECKING:
    from structgen.masks import Mask
    from structgen.vocabulary import Trie

    from .engine import Call, Engine, Engines

GetHistory: TypeAlias = Callable[[], TextHistory]
"""Returns the text so far; few automata need it."""


def _no_text() -> TextHistory:
    raise NeedsText


_FORCED_LIMIT = 4096
"""The most forced bytes that are computed at once."""

_HAS_WORDS = re.compile(rb"[^\x00-\x7f]|\w")
"""Bytes that may be part of a word. Tokenizers may split words in many ways."""


def first_open(
    vocabulary: Vocabulary, tokens: list[int], forced: bytes, following: Collection[int]
) -> int:
    """Return the index of the first token from whose start some token could reach beyond
    ``forced``."""
    start = len(forced)
    first = len(tokens)
    for i in range(len(tokens) - 1, -1, -1):
        start -= len(vocabulary.tokens[tokens[i]])
        if len(forced) - start > vocabulary.trie.max_depth:
            break
        if _reaches(vocabulary.trie, forced[start:], following):
            first = i
    return first


def _reaches(trie: Trie, text: bytes, following: Collection[int]) -> bool:
    """Return whether a token begins with ``text`` and continues with one of ``following``."""
    node = trie.node_of(text)
    return (
        node is not None
        and bool(trie.n_children[node])
        and any((node << 8 | byte) in trie.child for byte in following)
    )


def needless_tokens(
    vocabulary: Vocabulary,
    spell: Callable[[bytes], Sequence[int]],
    tokens: list[int],
    n_closed: int,
    forced: bytes,
    following: Collection[int],
) -> frozenset[int]:
    """Return the tokens that would write the forced text after the first ``n_closed`` in needlessly
    small pieces; see `Cursor.forced`.

    Args:
        spell: returns the tokens of bytes.
        tokens: the tokens of ``forced``.
        following: the bytes that may follow ``forced``.
    """
    trie = vocabulary.trie
    rest = forced[sum(len(vocabulary.tokens[token]) for token in tokens[:n_closed]) :]
    # Split the tokens that only begin it: those after which no token reaches an open place, and the
    # others.
    needless: set[int] = set()
    reaching: set[int] = set()
    node = 0
    for length in range(1, len(rest)):
        node = trie.child.get(node << 8 | rest[length - 1], 0)
        if not node:
            break
        ids = trie.ids_at(node)
        if ids:
            reaches = _reaches(trie, rest[length:], following)
            (reaching if reaches else needless).update(ids)
    is_unsettled = bool(reaching - {tokens[n_closed]}) and not _HAS_WORDS.search(rest)
    if is_unsettled and max(following) < 0x80:  # half a character has no tokens
        # For punctuation, the next byte almost always decides which token it begins with.
        for byte in sorted(following):
            spelt = spell(forced + bytes([byte]))
            if list(spelt[:n_closed]) != tokens[:n_closed]:
                break
            reaching.discard(spelt[n_closed])
        else:
            needless |= reaching
    return frozenset(needless - {tokens[n_closed]})


_MOST_SAID = 10**15
"""The largest number of tokens that a message writes as a number."""


def why_not(engine: Engine, state: int, token_id: int) -> str:
    """Return one or two sentences about why ``state`` does not allow a token."""
    vocabulary = engine.vocabulary
    if not 0 <= token_id < vocabulary.size:
        return f"token {token_id} does not exist: the vocabulary has {vocabulary.size:,} ids."
    named = engine.named
    text = named.texts[token_id]
    if not text:
        return f"token {token_id} has no text (a special or unused id)."
    following = engine.machine.next_bytes(state)
    allowed = bytes(sorted(following - {MARK}))
    if not allowed and following:
        may = "a special token must come next"
    elif not allowed:
        may = "the text is complete, so nothing may follow"
    elif len(allowed) == 1:
        may = f"the next byte may be {repr(allowed)[1:]}"
    elif len(allowed) <= 24:
        may = f"the next byte may be one of {repr(allowed)[1:]}"
    else:
        may = f"the next byte may be one of {len(allowed)} values"
    return f"token {token_id} ({text!r}) is not allowed here; {may}."


Rows: TypeAlias = "npt.NDArray[np.int32] | npt.NDArray[np.uint32]"
"""Masks, one per row: ``[n, ceil(vocabulary.size / 32)]``."""

_WORD = np.dtype(np.uint32)


def rows_of(
    out: Any, n: int, size: int | None
) -> tuple[npt.NDArray[np.uint32], list[memoryview] | None]:
    """Return ``out`` as uint32, and the bytes of its rows if ``out`` is contiguous."""
    if not isinstance(out, np.ndarray):
        hint = "; pass tensor.numpy()" if hasattr(out, "numpy") else ""
        raise ValueError(
            f"masks must be a NumPy array of int32 or uint32 [{n}, words], got "
            f"{type(out).__name__}{hint}."
        )
    n_words = (size + 31) // 32 if size is not None else out.shape[-1] if out.ndim else 0
    if out.dtype not in (np.int32, np.uint32) or out.shape != (n, n_words):
        raise ValueError(
            f"masks for {n} rows must be int32 or uint32 [{n}, {n_words}], got {out.dtype} "
            f"{list(out.shape)}."
        )
    if not out.flags.writeable:
        raise ValueError("masks cannot be written into a read-only array.")
    words = out.view(np.uint32)
    if not n or not n_words or not words.flags.c_contiguous:
        return words, None
    view = memoryview(words.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    step = 4 * n_words
    return words, [view[at : at + step] for at in range(0, n * step, step)]


def _checked_parents(parents: Sequence[int] | None, n: int) -> Sequence[int]:
    if parents is None:
        return range(-1, n - 1)
    above = [_whole(parent, _NO_DRAFT) for parent in parents]
    if len(above) != n:
        raise ValueError(
            f"parents must have one index for each of the {n} tokens, got {len(above)}."
        )
    for i, parent in enumerate(above):
        if not -1 <= parent < i:
            where = f"from 0 to {i - 1}, or -1" if i else "-1"
            raise ValueError(
                f"parents[{i}] is {parent}. A token's parent must come before it, so it must be "
                f"{where}; -1 means that the token follows the current text."
            )
    return above


_NO_DRAFT = "a draft must be integer token ids; got {!r}."
_NO_TOKEN = (
    "accept takes a token id (an integer); got {!r}. For text, accept each id of "
    "vocabulary.encode_bytes(text.encode())."
)
_NO_COUNT = "rollback takes the number of tokens to remove (an integer); got {!r}."


def _whole(value: object, problem: str) -> int:
    """Return a whole number as an int; raise a TypeError with ``problem`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(problem.format(value))
    return int(value)


def bytes_of(out: npt.NDArray[np.uint32], size: int) -> memoryview | None:
    """Return the bytes of a contiguous uint32 mask; None for other masks.

    Raises:
        ValueError: it is not an array of 32-bit words, or has the wrong length for that many
            tokens.
    """
    n_words = (size + 31) // 32
    if type(out) is np.ndarray and out.dtype is _WORD:
        view = memoryview(out)  # type: ignore[arg-type]
        if view.shape == (n_words,) and view.c_contiguous:
            return view.cast("B")
    elif not isinstance(out, np.ndarray):
        kind = type(out).__name__
        raise ValueError(f"a mask must be a NumPy array of uint32 [{n_words}], got {kind}.")
    if out.shape != (n_words,):
        raise ValueError(
            f"a mask for {size:,} tokens must be uint32 [{n_words}] (one bit per token); got "
            f"{list(out.shape)}. If the model's logits are wider than its tokenizer, create the "
            "vocabulary with that width: Vocabulary.from_tokenizer_json(path, size=...)."
        )
    if out.dtype not in (np.int32, np.uint32):
        raise ValueError(
            f"a mask must be an array of uint32, one bit per token; got {out.dtype}. Create it "
            f"with np.zeros({n_words}, np.uint32)."
        )
    return None


_T = TypeVar("_T")


class Cursor:
    """The position of one sequence in a constraint. Cheap. Do not share one between threads.

    `Constraint.start` makes cursors.
    """

    __slots__ = (
        "_bytes",
        "_engine",
        "_engines",
        "_finished",
        "_free",
        "_left",
        "_out",
        "_plans",
        "_ready",
        "_tape",
        "_tape_at",
        "_tokens",
        "_trail",
    )

    def __init__(self, engine: Engine, max_tokens: int | None, engines: Engines) -> None:
        self._engine = engine
        self._engines = engines  # gives a new engine when one is spent
        self._ready = engine.masks.ready
        self._out: npt.NDArray[np.uint32] | None = None
        self._bytes: memoryview | None = None
        self._free: npt.NDArray[np.uint32] | None = None
        # The state at the start and after each accepted token; and, by index, the rest of the plan
        # held there, if any. The garbage collector would have to visit tuples of both.
        self._trail: list[int] = []
        self._plans: dict[int, Plan] = {}
        self._tokens: list[int] = []
        self._finished = False
        self._left = max_tokens
        self._tape: TextHistory | None = None
        self._tape_at = 0
        self._trail.append(engine.machine.start)
        if max_tokens is not None:
            plan = self._call("start", 0, lambda _: self._engine.plan(self._trail[-1], self._text))
            minimum = plan.size + 1
            if max_tokens < minimum:
                few = f"about {counted(minimum, 'token')}"
                many = f"more than {counted(_MOST_SAID, 'token')}"
                raise BudgetTooSmall(
                    f"A budget of {counted(max_tokens, 'token')} is too small: "
                    f"{engine.output.name} needs {few if minimum <= _MOST_SAID else many}, "
                    "including the end-of-sequence token. Raise max_tokens (max_new_tokens= of a "
                    "generator).",
                    minimum=minimum,
                    budget=max_tokens,
                )
            self._plans[0] = plan

    def _call(self, what: str, about: int, work: Callable[[int], _T]) -> _T:
        """Return ``work(about)``, which may make states, within the limits of one call.

        Raises:
            CompileLimitExceeded: a limit was exceeded. This cursor and all others keep their
                positions. The same call fails again in the same way.
        """
        with GROW:  # a call of another thread may spend the engine
            if self._engine.is_spent:
                self._renew((what, self._trail[-1], about))
            call = what, self._trail[-1], about
            return self._engine.within_limits(call, lambda: work(about))

    def _renew(self, call: Call) -> None:
        """Switch to an engine that no refused call has left half made and that is not outgrown."""
        engine = self._engine
        if call in engine.refusals:
            raise engine.refusals[call].again()
        engine = self._engines.instead_of(engine)
        trail, tape, texts = [engine.machine.start], TextHistory(), engine.named.tokens
        with GROW:
            # Each token was read by a call of its own. If masks have their own limit, others wait
            # for the lock, and all of it counts as one call.
            limits = engine.limits
            if limits.option == "max_work":
                limits = limits._replace(work=limits.work * len(self._tokens))
            WORK.enter(limits)
            try:
                for token in self._tokens:
                    trail.append(engine.advance(trail[-1], token, lambda: tape))
                    tape.feed(texts[token])
                engine.weigh()
            except (CompileLimitExceeded, RecursionError, MemoryError) as error:
                # The new engine is half made now, too, so drop it like the old one.
                raise engine.refuse(error, ("replay", trail[-1], len(trail)), trail[-1]) from None
            finally:
                engine.count(limits)
                WORK.leave()
        self._engine, self._trail, self._ready = engine, trail, engine.masks.ready

    @property
    def state(self) -> int:
        """The state of the engine's automaton."""
        return self._trail[-1]

    def _text(self) -> TextHistory:
        """Return the text so far. Read on demand, because few constraints need it."""
        tape = self._tape
        if tape is None or self._tape_at > len(self._tokens):
            tape, self._tape_at = TextHistory(), 0
            self._tape = tape
        tokens = self._engine.named.tokens
        for token in self._tokens[self._tape_at :]:
            tape.feed(tokens[token])
        self._tape_at = len(self._tokens)
        return tape

    @property
    def place(self) -> Hashable:
        """The position. Equal positions after equal texts allow the same continuations."""
        return self._engine, self.state

    @property
    def engine(self) -> Engine:
        """The engine that it uses."""
        return self._engine

    @property
    def engines(self) -> Engines:
        """The engines that the cursors of this constraint share."""
        return self._engines

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of its constraint."""
        return self._engine.vocabulary

    @property
    def is_accepting(self) -> bool:
        """Whether the output may end now, so that every EOS id is allowed. False after the end."""
        return not self._finished and self._engine.machine.is_accepting(self.state)

    @property
    def is_finished(self) -> bool:
        """Whether an EOS id has been accepted."""
        return self._finished

    @property
    def temperature(self) -> float | None:
        """The temperature for the next token, from the grammar's rules; None: the rules have none.

        It is the highest ``temperature=`` of the rules that are open or may begin; 0 means the most
        likely token. A mask cannot express it, so read it before you sample each token.
        """
        machine = self._engine.machine
        return machine.temperature(self._trail[-1]) if isinstance(machine, CfgMachine) else None

    def fill_mask(self, out: npt.NDArray[np.uint32]) -> None:
        """Write the mask of allowed tokens.

        Args:
            out: uint32 ``[ceil(vocabulary.size / 32)]``; bit ``t % 32`` of word ``t // 32`` is set
                when token ``t`` is allowed. The bits of all EOS ids are set exactly when
                `is_accepting`; bits beyond the vocabulary are 0.

        Cost: microseconds for a known state; up to some milliseconds for a new one.

        Raises:
            ValueError: ``out`` is not an array of uint32 or int32, or has another length.
        """
        if out is not self._out:
            self._bytes = bytes_of(out, self._engine.size)
            self._out = out
        if self._finished:
            out[:] = 0
            self._free = None
            return
        state = self._trail[-1]
        mask = self._ready[state]
        if mask is None:
            mask = self._call("mask", 0, self._new_mask)
        # Like `masks.fill`, in half the time: every token of a sequence runs this.
        row, words, bits = mask
        if self._bytes is None:
            out[:] = np.frombuffer(row, np.uint32)
        else:
            self._bytes[:] = row
        if words is not None:
            out[words] = bits
        if self._left is not None:
            self._free = None
            if not self._engine.reach.is_known_ample(self._trail[-1], self._left - 2):
                self._call("budget", self._left, self._cut)

    def fill_masks_for_draft(
        self, tokens: Sequence[int], out: Rows, parents: Sequence[int] | None = None
    ) -> npt.NDArray[np.bool_]:
        """Write the mask before a draft, and the mask after each of its tokens.

        For speculative decoding: a model that scores all tokens of a draft in one pass needs a mask
        for each. The cursor does not move, even after an error.

        Args:
            tokens: the ids of the draft's tokens.
            out: int32 or uint32 ``[len(tokens) + 1, ceil(vocabulary.size / 32)]``. Row 0 is the
                current mask. Row ``i + 1`` is the mask after ``tokens[i]``: all 0 if that token or
                an earlier one is not allowed, and after the end of the sequence.
            parents: for a tree, the index of each token's parent, which comes before it; -1: the
                token follows the text so far. None: a chain, in which each token follows the one
                before.

        Returns:
            For each token, whether it and the tokens before it are allowed. For a chain,
            ``allowed.sum()`` is the number of accepted tokens.

        Raises:
            ValueError: ``out`` or ``parents`` has another length or shape.
            TypeError: ``tokens`` or ``parents`` contains a value that is not a whole number.
            CompileLimitExceeded: a mask could not be made within the limits.

        Cost: `fill_mask`, `accept` and `rollback` for each token.
        """
        draft = [_whole(token, _NO_DRAFT) for token in tokens]
        above = _checked_parents(parents, len(draft))
        size = self._engine.size
        words, rows = rows_of(out, len(draft) + 1, size)
        allowed = np.zeros(len(draft), np.bool_)
        children: dict[int, list[int]] = {}
        for token in range(len(draft) - 1, -1, -1):
            children.setdefault(above[token], []).append(token)
        kept = self._out, self._bytes, self._free
        # Depth first, so that each token is accepted and undone once.
        path: list[int] = []
        waiting = children.get(-1, [])
        words[1:] = 0
        try:
            self.fill_row(words[0], None if rows is None else rows[0])
            while waiting:
                node = waiting.pop()
                parent, token_id = above[node], draft[node]
                while path and path[-1] != parent:
                    path.pop()
                    self.rollback(1)
                row = words[parent + 1]
                if not 0 <= token_id < size:
                    continue
                if not row[token_id >> 5] >> (token_id & 31) & 1:
                    continue
                self.accept(token_id)
                path.append(node)
                allowed[node] = True
                self.fill_row(words[node + 1], None if rows is None else rows[node + 1])
                waiting += children.get(node, ())
        finally:
            self.rollback(len(path))
            self._out, self._bytes, self._free = kept
        return allowed

    def fill_row(self, row: npt.NDArray[np.uint32], row_bytes: memoryview | None) -> None:
        """Do `fill_mask` for a row that has been checked, with its bytes, or None if it is not
        contiguous."""
        self._out, self._bytes = row, row_bytes
        self.fill_mask(row)

    def _new_mask(self, _: int) -> Mask:
        engine = self._engine
        mask = engine.masks.mask(self._trail[-1], self._text)
        engine.weight()
        return mask

    def _cut(self, _: int) -> None:
        """Clear the bits of tokens that the budget does not allow, in the array that was filled
        last."""
        if self._is_tight():
            out = self._out
            assert out is not None
            free = out.copy()
            self._restrict(out)
            self._free = None if np.array_equal(free, out) else free

    @property
    def without_budget(self) -> npt.NDArray[np.uint32] | None:
        """The mask that the last `fill_mask` would have written without the budget.

        None if it is the same: without a budget, and while the budget is ample. The tokens that
        this mask allows and the other does not were ruled out by the budget alone.
        """
        return self._free

    def n_allowed(self, words: npt.NDArray[np.uint32], *, is_changed: bool) -> int:
        """Return how many tokens a mask allows.

        Args:
            words: the mask that the last `fill_mask` wrote.
            is_changed: whether you have changed it since.
        """
        state, known = self._trail[-1], self._engine.n_allowed
        if is_changed or self._free is not None or self._finished or self._ready[state] is None:
            return _n_bits(words)  # these are not the tokens that the state allows, or not always
        found = known.get(state)
        if found is None:
            found = known[state] = _n_bits(words)
        return found

    def accept(self, token_id: int) -> None:
        """Advance by one token.

        Raises:
            TokenNotAllowed: the mask does not allow it; the cursor has not moved.
            TypeError: ``token_id`` is not a whole number.
        """
        if type(token_id) is not int:
            token_id = _whole(token_id, _NO_TOKEN)
        engine = self._engine
        size = engine.size
        if self._left is None and not self._finished and 0 <= token_id < size:
            # The fast path for every known token; EOS ids never take it.
            to = engine.after_token.get(self._trail[-1] * size + token_id)
            if to is None and token_id not in engine.vocabulary.eos_token_ids:
                to = self._new_state(token_id)
            if to:
                self._trail.append(to)
                self._tokens.append(token_id)
                return
        vocabulary = engine.vocabulary
        if self._finished:
            raise TokenNotAllowed("the output has already ended.", token_id=token_id)
        if token_id in vocabulary.eos_token_ids:
            if not self.is_accepting:
                raise TokenNotAllowed(
                    f"end of sequence (token {token_id}) is not allowed yet: "
                    f"the output is not complete.",
                    token_id=token_id,
                )
            self._finished = True
            return
        to, plan = DEAD, None
        if 0 <= token_id < vocabulary.size:
            known = engine.after_token.get(self._trail[-1] * size + token_id)
            if known is not None and (
                self._left is None or engine.reach.is_known_ample(self._trail[-1], self._left - 2)
            ):
                to = known
            else:
                to, plan = self._call("token", token_id, self._next)
        if to == DEAD:
            raise TokenNotAllowed(why_not(self._engine, self.state, token_id), token_id=token_id)
        if self._left is not None:
            self._left -= 1
        if plan is not None:
            self._plans[len(self._trail)] = plan
        self._trail.append(to)
        self._tokens.append(token_id)

    def _new_state(self, token_id: int) -> int:
        """Return the state after a token that is new at this state."""
        with GROW:
            if WORK.depth:
                return self._next(token_id)[0]  # within the limits of the outer call
            if self._engine.is_spent:
                self._renew(("token", self._trail[-1], token_id))
            engine, state = self._engine, self._trail[-1]
            # `_call`, inlined: every other token runs this.
            WORK.limits = engine.limits
            WORK.left, WORK.room, _ = engine.limits
            try:
                return engine.advance_uncached(state, token_id, self._text)
            except (CompileLimitExceeded, RecursionError, MemoryError) as error:
                raise engine.refuse(error, ("token", state, token_id), state) from None
            finally:
                engine.count()
                WORK.left = WORK.room = FREE

    def _next(self, token_id: int) -> tuple[int, Plan | None]:
        """Return the state after a token that the budget allows, and the plan held there."""
        to, plan = self._engine.advance(self._trail[-1], token_id, self._text), None
        # If every token is affordable, no plan is needed. A plan may be thousands of tokens long.
        if to != DEAD and self._left is not None and self._is_tight():
            plan = self._plan_after(token_id, to)
            if plan is None:
                raise TokenNotAllowed(
                    f"token {token_id} is not allowed: after it, the output could not be "
                    f"completed within the budget ({self._left} tokens left).",
                    token_id=token_id,
                )
        return to, plan

    def allows_after(self, n_tokens: int, data: bytes) -> bool:
        """Return whether the first ``n_tokens`` accepted tokens plus ``data`` are a complete
        output, ignoring the budget. The cursor does not move."""
        cursor = Cursor(self._engine, None, self._engines)
        cursor._trail, cursor._tokens = self._trail[: n_tokens + 1], self._tokens[:n_tokens]
        named = self._engine.named
        try:
            for token in named.encode(named.spelt(data)):
                cursor.accept(token)
        except (TokenNotAllowed, VocabularyError):
            return False
        return cursor.is_accepting

    def rollback(self, n: int) -> None:
        """Undo the last ``n`` accepted tokens (an accepted EOS counts as one).

        Raises:
            ValueError: fewer than ``n`` tokens have been accepted.
            TypeError: ``n`` is not a whole number.
        """
        n = _whole(n, _NO_COUNT)
        accepted = len(self._trail) - 1 + self._finished
        if not 0 <= n <= accepted:
            raise ValueError(f"cannot roll back {n} tokens: only {accepted} have been accepted.")
        if n and self._finished:
            self._finished = False
            n -= 1
        if n:
            del self._trail[-n:], self._tokens[-n:]
            for beyond in range(len(self._trail), len(self._trail) + n):
                self._plans.pop(beyond, None)
            if self._tape_at > len(self._tokens):
                self._tape, self._tape_at = None, 0
            if self._left is not None:
                self._left += n

    def forced_bytes(self) -> bytes:
        """Return the bytes that must come next, as long as only one continuation is allowed."""
        return self._call("forced", 0, lambda _: self._forced(self._trail[-1]))[0]

    def forced_tokens(self, spell: Callable[[bytes], Sequence[int]] | None = None) -> list[int]:
        """Return the tokens that must come next, as long as the type allows only one continuation.

        You may accept all of them in order. They end before a place at which a longer token could
        reach beyond the forced text, so the model keeps that choice.

        Args:
            spell: returns the tokens of forced bytes, which must concatenate to these bytes; by
                default, the fewest tokens.

        Cost: 3 µs a forced byte.
        """
        return self.forced(spell)[0]

    def forced(
        self, spell: Callable[[bytes], Sequence[int]] | None = None
    ) -> tuple[list[int], frozenset[int]]:
        """Return `forced_tokens`, and tokens that would write the text after them in needless
        pieces.

        If forced tokens end before the forced text does, some allowed tokens write only a part of
        it, although no token could reach beyond it, or although ``spell`` begins with another token
        whatever follows. A tokenizer would never write these, and the text is the same without
        them.

        Args:
            spell: as in `forced_tokens`.

        Returns:
            The forced tokens; and the ids that may be left out of the mask after them.
        """
        if self._trail[-1] in self._engine.free:
            return [], frozenset()
        forced, state = self._call("forced", 0, lambda _: self._forced(self._trail[-1]))
        if not forced:
            if not self._finished:
                self._engine.free.add(state)
            return [], frozenset()
        vocabulary = self._engine.vocabulary
        spell = spell or vocabulary.encode_bytes
        tokens = self._engine.named.respelt(spell(forced))
        n_closed = len(tokens)
        machine = self._engine.machine
        following = machine.next_bytes(state)
        if following or not machine.is_accepting(state):
            n_closed = first_open(vocabulary, tokens, forced, following)
        n_paid = len(tokens)
        if self._left is not None:
            n_paid = self._call("forced", self._left, lambda _: self._n_affordable(tokens))
        if n_paid < n_closed:
            return tokens[:n_paid], frozenset()
        if n_closed == len(tokens):
            return tokens, frozenset()
        needless = needless_tokens(vocabulary, spell, tokens, n_closed, forced, following)
        return tokens[:n_closed], needless

    def along(
        self, ways: Callable[[bytes], Sequence[tuple[bytes, _T]]], most: int
    ) -> list[tuple[bytes, _T | None]]:
        """Return bytes that may come next: the forced ones, and at each choice what ``ways``
        prefers.

        Args:
            ways: takes the bytes so far and returns texts, each with a label. The first text with
                which the type can continue is used, as far as the type allows it; if there is none,
                the result ends here.
            most: the number of bytes after which the result ends.

        Returns:
            The pieces, each with the label of its text; None for forced pieces.

        Cost: 3 µs a byte.
        """
        return self._call("along", 0, lambda _: self._along(ways, most))

    def min_tokens_to_finish(self) -> int:
        """Return how many tokens certainly finish the output, the end-of-sequence token included.

        It is a proven upper bound: the number of tokens of a shortest completion. 0 once finished.
        """
        if self._finished:
            return 0
        own = 1 + self._call(
            "finish", 0, lambda _: self._engine.plan_size(self._trail[-1], self._text)
        )
        plan = self._plans.get(len(self._trail) - 1)
        return own if plan is None else min(own, plan.size + 1)

    # -- budget -----------------------------------------------------------------------------

    def _text_after(self, tokens: list[int]) -> GetHistory:
        """Return a function that returns the text after ``tokens``."""
        known = self._engine.named.tokens
        return lambda: self._text().after(b"".join(known[t] for t in tokens))

    def _is_tight(self) -> bool:
        """Return whether any token that the grammar allows may exceed the budget."""
        assert self._left is not None
        # The token itself, the completion after it, and end of sequence.
        return not self._engine.reach.is_ample(self._trail[-1], self._left - 2, self._text)

    def _restrict(self, out: npt.NDArray[np.uint32]) -> None:
        """Clear the bits of tokens after which the output could not end within the budget."""
        engine, state, left, held = self._engine, self._trail[-1], self._left, self._held()
        assert left is not None
        # The token itself and the end of the sequence count, too.
        reach, spare = engine.reach, left - 2
        if reach.restrict(state, spare, out):
            if held.size:
                out[held.first >> 5] |= np.uint32(1 << (held.first & 31))
            return
        doubtful, hopeless = reach.sort_out(state, spare, self._text)
        flags = np.zeros(len(out) * 32, np.uint8)
        flags[doubtful] = 1
        row = np.ascontiguousarray(out).view(np.uint8)  # rows of a batch may not be contiguous
        is_left = (flags & np.unpackbits(row, bitorder="little")).view(bool)
        flags[doubtful] = 0
        flags[hopeless] = 1
        for known, ids in reach.together(state, is_left):
            to = known or engine.advance(state, int(ids[0]), self._text)
            try:
                settled: tuple[int, Any] | None = engine.plan_size(to, _no_text), ids
            except NeedsText:
                settled = reach.otherwise(state, to, ids, self._text)
            if settled is not None:
                needed, ids = settled
                flags[ids] = needed + 2 > left
                is_left[ids] = False
        tokens = np.flatnonzero(is_left).tolist()
        WORK.spend(len(tokens) >> 2)
        for token in tokens:
            to = engine.advance(state, token, self._text)
            flags[token] = engine.plan_size(to, self._text_after([token])) + 2 > left
        if held.size:
            flags[held.first] = 0  # the plan held is affordable, whatever else follows that token
        out &= ~np.packbits(flags, bitorder="little").view(np.uint32)

    def _n_affordable(self, tokens: list[int]) -> int:
        """Return how many of ``tokens``, which are forced here, the budget allows."""
        engine, at, left = self._engine, self._trail[-1], self._left
        assert left is not None
        states = [at := engine.advance(at, token, self._text) for token in tokens]
        try:
            rest = engine.machine.shortest_completion(at)
        except NeedsText:
            pass
        else:
            if len(tokens) + len(rest) + 1 <= left:
                return len(tokens)
        for i, at in enumerate(states):
            needed = engine.plan_size(at, self._text_after(tokens[: i + 1]))
            if needed + 1 > left - i - 1:
                return i
        return len(tokens)

    def _held(self) -> Plan:
        """Return the plan held here; make it now if no earlier token needed one."""
        here = len(self._trail) - 1
        state, plan = self._trail[-1], self._plans.get(here)
        if plan is None:
            plan = self._engine.plan(state, self._text)
            self._plans[here] = plan
        return plan

    def _plan_after(self, token_id: int, to: int) -> Plan | None:
        """Return affordable tokens that finish the output after ``token_id``, or None."""
        assert self._left is not None
        engine, held = self._engine, self._held()
        text = self._text_after([token_id])
        if held.size and held.first == token_id:
            size = engine.plan_size(to, text)
            best = held.rest() if held.size - 1 <= size else engine.plan(to, text)
        else:
            best = engine.plan(to, text)
        return best if best.size + 2 <= self._left else None

    # -- forced text ------------------------------------------------------------------------

    def _along(
        self, ways: Callable[[bytes], Sequence[tuple[bytes, _T]]], most: int
    ) -> list[tuple[bytes, _T | None]]:
        machine, state = self._engine.machine, self._trail[-1]
        text, pieces = b"", list[tuple[bytes, _T | None]]()
        while len(text) < most and not self._finished:
            forced, state = self._forced(state)
            if forced:
                pieces.append((forced, None))
                text += forced
            for way, label in ways(text):
                n_read = 0
                for byte in way[: most - len(text)]:
                    to = machine.step(state, byte)
                    if to == DEAD or machine.is_pending(to):
                        break
                    state, n_read = to, n_read + 1
                if n_read:
                    pieces.append((way[:n_read], label))
                    text += way[:n_read]
                    break
            else:
                break
        return pieces

    def _forced(self, state: int) -> tuple[bytes, int]:
        """Return the bytes that have to follow ``state``, and the state after them."""
        machine, forced = self._engine.machine, bytearray()
        counting = self._engine.counting
        while not self._finished and len(forced) < _FORCED_LIMIT:
            if counting is not None and counting.is_limited(state):
                break  # the choice of tokens is not free there
            byte = machine.forced_byte(state)
            if byte < 0 or byte == MARK:
                break  # named tokens have no text
            to = machine.step(state, byte)
            if machine.is_pending(to):
                break
            forced.append(byte)
            state = to
        return bytes(forced), state

    def __repr__(self) -> str:
        return (
            f"Cursor(accepted={len(self._trail) - 1}, is_accepting={self.is_accepting}, "
            f"is_finished={self._finished})"
        )


def _n_bits(words: npt.NDArray[np.uint32]) -> int:
    if hasattr(np, "bitwise_count"):  # since NumPy 2; six times as fast
        return int(np.bitwise_count(words).sum(dtype=np.uint32))
    return int.from_bytes(words.tobytes(), "little").bit_count()


def fill_masks(cursors: Sequence[Cursor | None], out: Rows, *, threads: int = 1) -> None:
    """Write the mask of each cursor into its row.

    The cursors may belong to different constraints of one vocabulary: the rows of a batch may mix
    types.

    Args:
        cursors: one for each row. The row of a finished cursor is all 0. None means no constraint:
            all bits of the row are set.
        out: int32 or uint32 ``[len(cursors), ceil(vocabulary.size / 32)]``; bit ``t % 32`` of word
            ``t // 32`` is set when token ``t`` is allowed, as in `Cursor.fill_mask`. Pass a torch
            tensor on the CPU as ``tensor.numpy()``, which shares its memory.
        threads: accepted for compatibility; has no effect. structgen uses one thread because of
            Python's interpreter lock: two threads took 1.3 times as long as one for 64 rows with
            known states, and as long as one for new states.

    Raises:
        ValueError: ``out`` has another shape or dtype.
        TypeError: a cursor is of another type.
        VocabularyError: the cursors belong to several vocabularies.
        OptionError: ``threads`` is not a whole number of at least 1.
        BatchError: some masks exceeded the limits. Its ``errors`` has the errors by row. These rows
            are all 0; all others are filled.

    Cost: that of `Cursor.fill_mask` for each row.
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise OptionError(f"threads must be an integer of at least 1; got {threads!r}.")
    size = _common_size(cursors)
    words, rows = rows_of(out, len(cursors), size)
    errors: dict[object, Exception] = {}
    for i, cursor in enumerate(cursors):
        if cursor is None:
            words[i] = 0xFFFFFFFF
            continue
        try:
            cursor.fill_row(words[i], None if rows is None else rows[i])
        except StructgenError as refused:
            words[i] = 0
            errors[i] = refused
    if errors:
        first, error = next(iter(errors.items()))
        raise BatchError(
            f"{len(errors)} of {len(cursors)} masks could not be computed; row {first}: {error}",
            results=[],
            errors=errors,
        ) from error


def _common_size(cursors: Sequence[Cursor | None]) -> int | None:
    """Return the size of the cursors' vocabulary; None if there are no cursors."""
    common, first = None, 0
    for i, cursor in enumerate(cursors):
        if cursor is None:
            continue
        if not isinstance(cursor, Cursor):
            raise TypeError(
                f"fill_masks takes cursors, from constraint.start(), or None; got "
                f"{type(cursor).__name__} for row {i}."
            )
        vocabulary = cursor.vocabulary
        if common is None:
            common, first = vocabulary, i
        elif vocabulary is not common and vocabulary != common:
            raise VocabularyError(
                f"all cursors of one call must have the same vocabulary: row {first} has "
                f"{common!r}, row {i} has {vocabulary!r}. Call fill_masks once for each "
                "vocabulary."
            )
    return None if common is None else common.size
