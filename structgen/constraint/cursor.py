"""A cursor: where one output stands, token by token.

`Cursor` gives masks and takes tokens, knows how far the end is, and what a token budget still
allows. What all outputs of one type share, the automaton, its masks and memos, is the business of
`constraint`, which makes cursors; logits, sampling and prompts are unknown here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from structgen.automaton.core import DEAD, GROW, TextHistory
from structgen.automaton.work import FREE, WORK
from structgen.errors import BudgetTooSmall, CompileLimitExceeded, TokenNotAllowed
from structgen.vocabulary import Plan

from .budget import is_tight, n_affordable, restrict, text_after
from .forced import first_open, forced_from, needless_tokens
from .refused_tokens import about_tokens, tokens_in_words, whole_number, why_not
from .rows import bytes_of, fill_for_draft

if TYPE_CHECKING:
    from structgen.masks import Mask
    from structgen.vocabulary import Vocabulary

    from .engine import Call, Engine, Engines
    from .rows import Rows

_T = TypeVar("_T")


class Cursor:
    """The place of one sequence in a constraint. Cheap; not shared between threads.

    Not made directly: see `Constraint.start`.
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
        self._engines = engines  # where to go on from one that is spent
        self._ready = engine.masks.ready
        self._out: npt.NDArray[np.uint32] | None = None
        self._bytes: memoryview | None = None
        self._free: npt.NDArray[np.uint32] | None = None
        # The state at the start and after each accepted token; and, by its index, the rest of the
        # plan held there, if any. Tuples of both would be looked at by the collector.
        self._trail: list[int] = []
        self._plans: dict[int, Plan] = {}
        self._tokens: list[int] = []
        self._finished = False
        self._left = max_tokens
        self._tape: TextHistory | None = None
        self._tape_at = 0
        self._trail.append(engine.machine.start)
        if max_tokens is not None:
            plan = self._call("start", 0, self._first_plan)
            minimum = plan.size + 1
            if max_tokens < minimum:
                raise BudgetTooSmall(
                    f"a budget of {tokens_in_words(max_tokens)} is too small: {engine.output.name} "
                    f"needs {about_tokens(minimum)}, the end-of-sequence token included.",
                    minimum=minimum,
                    budget=max_tokens,
                )
            self._plans[0] = plan

    def _call(self, what: str, about: int, work: Callable[[int], _T]) -> _T:
        """``work(about)``, which may make states, within what one call may do.

        Raises:
            CompileLimitExceeded: that was not enough. The cursor is where it was, and so are all
                others; the same call ends in the same way.
        """
        if self._engine.is_spent:
            self._renew((what, self._trail[-1], about))
        engine, state = self._engine, self._trail[-1]
        with GROW:
            WORK.enter(engine.limits)
            try:
                return work(about)
            except (CompileLimitExceeded, RecursionError, MemoryError) as error:
                raise engine.refuse(error, (what, state, about), state) from None
            finally:
                engine.count()
                WORK.leave()

    def _renew(self, call: Call) -> None:
        """Go on with an engine in which nothing has been cut short, and which is not outgrown."""
        engine = self._engine
        if call in engine.refusals:
            raise engine.refusals[call].again()
        engine = self._engines.instead_of(engine)
        trail, tape, texts = [engine.machine.start], TextHistory(), engine.named.tokens
        with GROW:
            # Each was read by a call of its own; but where masks have a bound of their own, others
            # wait for the lock, and all of it is one call.
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
                # The new engine is half made now, too, and is left as the old one was.
                raise engine.refuse(error, ("replay", trail[-1], len(trail)), trail[-1]) from None
            finally:
                engine.count(limits)
                WORK.leave()
        self._engine, self._trail, self._ready = engine, trail, engine.masks.ready

    def _first_plan(self, _: int) -> Plan:
        return self._engine.plan(self._trail[-1], self._text)

    @property
    def _state(self) -> int:
        return self._trail[-1]

    def _text(self) -> TextHistory:
        """The text so far. Only few constraints ask, so it is read when they do."""
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
        """Where it stands: equal places have the same ways on, as far as texts so far are equal."""
        return self._engine, self._state

    @property
    def engines(self) -> Engines:
        """What the cursors of its constraint share, and no others."""
        return self._engines

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of its constraint."""
        return self._engine.vocabulary

    @property
    def is_accepting(self) -> bool:
        """Whether the output may end now: every EOS id is allowed. False once it has ended."""
        return not self._finished and self._engine.machine.is_accepting(self._state)

    @property
    def is_finished(self) -> bool:
        """Whether an EOS id has been accepted."""
        return self._finished

    def fill_mask(self, out: npt.NDArray[np.uint32]) -> None:
        """Write the mask of allowed tokens.

        Args:
            out: uint32 ``[ceil(vocabulary.size / 32)]``; bit ``t % 32`` of word ``t // 32`` is set
                when token ``t`` is allowed. The bits of all EOS ids are set exactly when
                `is_accepting`; bits beyond the vocabulary are 0.

        Cost: microseconds for a state met before; up to some milliseconds for a new one.

        Raises:
            ValueError: ``out`` has another length, or is no array.
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
        # `masks.fill`, in half the time: this is what every token of a sequence costs.
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
        """Write the masks along a draft: what may come now, and after each token of it.

        For speculative decoding: a model that scores all tokens of a draft in one pass needs a mask
        for each. The cursor is afterwards where it was, also after an error.

        Args:
            tokens: the ids of the draft's tokens.
            out: int32 or uint32 ``[len(tokens) + 1, ceil(vocabulary.size / 32)]``. Row 0 is the
                mask of now, row ``i + 1`` that after ``tokens[i]``: all 0 where that token, or one
                before it, is not allowed, and after the end of the sequence.
            parents: for a tree, the index of the token that each follows, which stands before it;
                -1: it follows the text so far. None: a chain, each follows the one before.

        Returns:
            For each token whether it may stand there, those before it being allowed too. For a
            chain ``allowed.sum()`` is how many tokens hold.

        Raises:
            ValueError: ``out`` or ``parents`` has another length or shape.
            TypeError: ``tokens`` or ``parents`` holds something else than whole numbers.
            CompileLimitExceeded: a mask could not be made within the limits.

        Cost: `fill_mask`, `accept` and `rollback` for each token.
        """
        kept = self._out, self._bytes, self._free
        try:
            return fill_for_draft(self, tokens, out, parents)
        finally:
            self._out, self._bytes, self._free = kept

    def fill_row(self, row: npt.NDArray[np.uint32], row_bytes: memoryview | None) -> None:
        """`fill_mask` into a row that is known to be right; its bytes, or None where they are
        scattered."""
        self._out, self._bytes = row, row_bytes
        self.fill_mask(row)

    def _new_mask(self, _: int) -> Mask:
        engine = self._engine
        mask = engine.masks.mask(self._trail[-1], self._text)
        engine.weight()
        return mask

    def _cut(self, _: int) -> None:
        """Clear the bits, in the array that was filled last, of what the budget does not allow."""
        engine, state, left, text = self._engine, self._trail[-1], self._left, self._text
        assert left is not None
        if is_tight(engine, state, left, text):
            out = self._out
            assert out is not None
            free = out.copy()
            restrict(engine, state, left, self._held(), text, out)
            self._free = None if np.array_equal(free, out) else free

    @property
    def without_budget(self) -> npt.NDArray[np.uint32] | None:
        """The mask that the last `fill_mask` would have written without the budget.

        None where it is the same: always without a budget, and as long as that is ample. What is
        allowed here and was not there, the budget alone has barred.
        """
        return self._free

    def accept(self, token_id: int) -> None:
        """Advance by one token.

        Raises:
            TokenNotAllowed: the mask does not allow it; the cursor has not moved.
            TypeError: ``token_id`` is no whole number.
        """
        if type(token_id) is not int:
            token_id = whole_number(token_id)
        engine = self._engine
        size = engine.size
        if self._left is None and not self._finished and 0 <= token_id < size:
            # What every token costs once it has been met; the ids of EOS are never among them.
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
            raise TokenNotAllowed(why_not(self._engine, self._state, token_id), token_id=token_id)
        if self._left is not None:
            self._left -= 1
        if plan is not None:
            self._plans[len(self._trail)] = plan
        self._trail.append(to)
        self._tokens.append(token_id)

    def _new_state(self, token_id: int) -> int:
        """The state after a token that has not been met there."""
        if self._engine.is_spent:
            self._renew(("token", self._trail[-1], token_id))
        engine, state = self._engine, self._trail[-1]
        with GROW:
            # `_call`, at hand: every other token costs this.
            WORK.limits = engine.limits
            WORK.left, WORK.room, _ = engine.limits
            try:
                return engine.advance_anew(state, token_id, self._text)
            except (CompileLimitExceeded, RecursionError, MemoryError) as error:
                raise engine.refuse(error, ("token", state, token_id), state) from None
            finally:
                engine.count()
                WORK.left = WORK.room = FREE

    def _next(self, token_id: int) -> tuple[int, Plan | None]:
        """The state after a token, and the plan held there; a budget has to allow it."""
        to, plan = self._engine.advance(self._trail[-1], token_id, self._text), None
        # Where every token is affordable no plan is needed: it may be thousands of tokens long.
        left, state = self._left, self._trail[-1]
        if to != DEAD and left is not None and is_tight(self._engine, state, left, self._text):
            plan = self._plan_after(token_id, to)
            if plan is None:
                raise TokenNotAllowed(
                    f"token {token_id} is not allowed: the output could no longer be finished "
                    f"within the budget ({self._left} tokens left).",
                    token_id=token_id,
                )
        return to, plan

    def rollback(self, n: int) -> None:
        """Take back the last ``n`` accepted tokens (an accepted EOS counts as one).

        Raises:
            ValueError: fewer than ``n`` tokens have been accepted.
            TypeError: ``n`` is no whole number.
        """
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
            raise TypeError(
                f"rollback takes the number of tokens to take back, a whole number; got {n!r}."
            )
        n = int(n)
        accepted = len(self._trail) - 1 + self._finished
        if not 0 <= n <= accepted:
            raise ValueError(f"cannot roll back {n} tokens: {accepted} have been accepted.")
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
        """The bytes that must come next, as far as the grammar leaves only one continuation."""
        return self._call("forced", 0, self._forced)[0]

    def forced_tokens(self, spell: Callable[[bytes], Sequence[int]] | None = None) -> list[int]:
        """The tokens that must come next, where the grammar leaves only one continuation.

        Accepting them all in order is always allowed. Stops short of a place where a longer token
        could reach beyond what is forced, so that the model keeps that choice.

        Args:
            spell: how to write forced bytes in tokens; by default in the fewest. Its tokens must
                concatenate to the bytes.

        Cost: 3 µs a forced byte.
        """
        return self.forced(spell)[0]

    def forced(
        self, spell: Callable[[bytes], Sequence[int]] | None = None
    ) -> tuple[list[int], frozenset[int]]:
        """The tokens of `forced_tokens`, and those that would spell what follows needlessly.

        Where forced tokens stop short, some allowed tokens only begin what is forced and leave off
        where no token could reach beyond it either, or within punctuation, where ``spell`` begins
        with another token whatever follows. A tokenizer would never write these; the text is the
        same without them.

        Args:
            spell: as in `forced_tokens`.

        Returns:
            The forced tokens; and the ids that may be left out of the mask after them.
        """
        forced, state = self._call("forced", 0, self._forced)
        if not forced:
            return [], frozenset()
        vocabulary = self._engine.vocabulary
        tokens = self._engine.named.respelt((spell or vocabulary.encode_bytes)(forced))
        n_closed = len(tokens)
        machine = self._engine.machine
        following = machine.next_bytes(state)
        if following or not machine.is_accepting(state):
            n_closed = first_open(vocabulary, tokens, forced, following)
        n_paid = len(tokens)
        if self._left is not None:
            count = partial(n_affordable, self._engine, self._state, tokens, state, self._text)
            n_paid = self._call("forced", self._left, count)
        if n_paid < n_closed:
            return tokens[:n_paid], frozenset()
        if n_closed == len(tokens):
            return tokens, frozenset()
        spelling = spell or vocabulary.encode_bytes
        needless = needless_tokens(vocabulary, spelling, tokens, n_closed, forced, following)
        return tokens[:n_closed], needless

    def min_tokens_to_finish(self) -> int:
        """Tokens, end-of-sequence included, with which the output can certainly be finished.

        A proven upper bound on the fewest: the tokens of one shortest completion. 0 once finished.
        """
        if self._finished:
            return 0
        own = self._call("finish", 0, self._plan_size) + 1
        plan = self._plans.get(len(self._trail) - 1)
        return own if plan is None else min(own, plan.size + 1)

    def _plan_size(self, _: int) -> int:
        return self._engine.plan_size(self._trail[-1], self._text)

    # -- budget -----------------------------------------------------------------------------

    def _held(self) -> Plan:
        """The plan held here; made now if every token before was affordable without one."""
        here = len(self._trail) - 1
        state, plan = self._trail[-1], self._plans.get(here)
        if plan is None:
            plan = self._engine.plan(state, self._text)
            self._plans[here] = plan
        return plan

    def _plan_after(self, token_id: int, to: int) -> Plan | None:
        """Affordable tokens that finish after ``token_id``, or None."""
        assert self._left is not None
        engine, held = self._engine, self._held()
        text = text_after(engine, self._text, [token_id])
        if held.size and held.first == token_id:
            size = engine.plan_size(to, text)
            best = held.rest() if held.size - 1 <= size else engine.plan(to, text)
        else:
            best = engine.plan(to, text)
        return best if best.size + 2 <= self._left else None

    # -- forced text ------------------------------------------------------------------------

    def _forced(self, _: int) -> tuple[bytes, int]:
        if self._finished:
            return b"", self._state
        return forced_from(self._engine.machine, self._state)

    def __repr__(self) -> str:
        return (
            f"Cursor(accepted={len(self._trail) - 1}, is_accepting={self.is_accepting}, "
            f"is_finished={self._finished})"
        )
