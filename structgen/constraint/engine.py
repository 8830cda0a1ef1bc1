"""Engines: an automaton as it has grown so far, with its masks and memos.

All cursors of one constraint share an `Engine`: the machine, whose states are made when they are
reached, their masks, the states after tokens, and ways to finish outputs. Machines only grow. An
engine knows its size, so that `constraint` can start a new one, which `Engines` holds. Knows no
sequences.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias, TypeVar

from structgen.automaton import Built
from structgen.automaton.cfg import CfgMachine
from structgen.automaton.core import DEAD, GROW, Machine, NeedsText, TextHistory, is_plain
from structgen.automaton.texts import Text
from structgen.automaton.work import WORK, Limits
from structgen.errors import CompileLimitExceeded, check_limit
from structgen.grammar import ir
from structgen.masks import MaskEngine, NamedTokens, Reach
from structgen.types import OutputType
from structgen.vocabulary import Plan, Vocabulary

_T = TypeVar("_T")

_MAX_MEMO = 200_000
"""The most entries of each token memo. A full memo is cleared."""

Call: TypeAlias = "tuple[str, int, int]"
"""A call of an engine: its name, the state and the argument."""

_WEIGHED_EVERY = 2_000
"""An engine is weighed again after it has grown by this many states and tokens,"""

_HELD = 8 * 1024 * 1024
"""or by this many bytes."""


class Engine:
    """One machine over one vocabulary. Thread-safe.

    Attributes:
        output: the lowered output type.
        vocabulary: the vocabulary.
        named: the special tokens that the grammar names.
        machine: the automaton.
        masks: the masks of its states.
        size: how many tokens the vocabulary has.
        counting: the automaton if a rule of the grammar limits its tokens, else None.
        after_token: the known states after tokens, by state times ``size`` plus token id.
        free: known states after which no byte is forced.
        n_allowed: the number of tokens that a state's mask allows, for known states whose masks are
            kept.
        limits: the limits of one call: of all work that a mask or a token causes.
        refusals: the errors of calls that exceeded the limits. Such calls may have left half-made
            objects.
        held: the bytes, roughly, that its calls have added.
        is_spent: whether a call was refused, or the engine has outgrown the limits. New calls go to
            the engine that replaces it (`Engines.instead_of`).
    """

    def __init__(self, output: OutputType, vocabulary: Vocabulary, built: Built) -> None:
        self.output = output
        self.vocabulary = vocabulary
        self.machine: Machine = built.machine
        self.named = NamedTokens(vocabulary, built.named_tokens)
        self.masks = MaskEngine(built.machine, vocabulary, self.named)
        self.counting: CfgMachine | None = None
        if isinstance(built.machine, CfgMachine):
            from structgen.masks.cfg.masks import CfgMaskEngine

            self.masks = CfgMaskEngine(built.machine, vocabulary, self.named)
            embedded = ir.embedded(output.grammar)
            if any(one.max_tokens is not None for one in embedded):
                self.counting = built.machine
        self.size = vocabulary.size
        self.after_token: dict[int, int] = {}
        self.free: set[int] = set()
        self.n_allowed: dict[int, int] = {}
        self._plans: dict[int, Plan] = {}
        self._plan_sizes: dict[int, int] = {}
        self.limits = built.limits
        self._built_with = built.held
        self.refusals: dict[Call, CompileLimitExceeded] = {}
        self.held = 0
        self.is_spent = False
        self._weighed_at = self._held_at = 0
        self._weight = self._shared = 0

    def refuse(self, error: Exception, call: Call, state: int) -> CompileLimitExceeded:
        """Return the error of a call that exceeded a limit; it is stored for every repetition."""
        if isinstance(error, CompileLimitExceeded):
            refusal = error
        elif isinstance(error, MemoryError):
            most = self.limits.memory
            refusal = CompileLimitExceeded("out of memory", limit=most, actual=most)
        else:
            depth = sys.getrecursionlimit()
            refusal = CompileLimitExceeded(
                "the output type is nested too deeply; flatten it", limit=depth, actual=depth
            )
        self.is_spent = True
        self.refusals[call] = self.machine.placed(refusal, state).again()
        # The stored refusal must not keep half-made objects alive.
        error.__traceback__ = None
        return self.refusals[call].again()

    def count(self, limits: Limits | None = None) -> None:
        """Count the memory of the call that ends; ``limits`` if the call has limits of its own."""
        self.held += (limits or self.limits).memory - WORK.room

    def within_limits(self, call: Call, work: Callable[[], _T]) -> _T:
        """Return the result of ``work``, which may make states, within the limits of one call.

        Raises:
            CompileLimitExceeded: a limit was exceeded; the engine is spent.
        """
        with GROW:
            WORK.enter(self.limits)
            try:
                return work()
            except (CompileLimitExceeded, RecursionError, MemoryError) as error:
                raise self.refuse(error, call, call[1]) from None
            finally:
                self.count()
                WORK.leave()

    def weight(self, *, refresh: bool = False) -> int:
        """Return roughly how many bytes the machine and the memos take; measured every few thousand
        states.

        Does not count parts that constraints share or that the vocabulary's byte budget covers.

        Args:
            refresh: measure now.
        """
        grown = self.machine.n_states + len(self.after_token)
        is_due = grown > self._weighed_at + _WEIGHED_EVERY or self.held > self._held_at + _HELD
        if refresh or is_due:
            self._weighed_at, self._held_at = grown, self.held
            memos = len(self.after_token) + len(self._plans) + len(self._plan_sizes)
            memos += len(self.free) + len(self.n_allowed)
            # Even few states of a grammar may hold a lot: rules, stacks and their results.
            self._weight = max(self.machine.weight, self.held) + 150 * memos
            if self.machine.n_states:  # otherwise asking for leaves would build them, with a lock
                self._shared = sum([leaf.weight for leaf in self.machine.leaves if leaf.is_shared])
            self.is_spent |= self._weight > self.limits.memory
        return self._weight

    def whole_weight(self, *, refresh: bool = False) -> int:
        """Return `weight` with the parts that other machines may share: if none does, they are
        freed with this one. Takes no lock."""
        # What building has added includes leaves that no text has reached.
        return max(self.weight(refresh=refresh) + self._shared, self._built_with)

    def weigh(self) -> None:
        """Raise if one sequence has made the engine outgrow its limits.

        Raises:
            CompileLimitExceeded: the engine has outgrown its limits.
        """
        self.weight()
        check_limit(
            self._weight,
            self.limits.memory,
            "the automaton of the output type is too large; require shorter outputs, or raise "
            "max_memory_bytes",
        )

    @cached_property
    def reach(self) -> Reach:
        """How far from the end tokens lead. Used only for token budgets."""
        rules = self.machine.rules if isinstance(self.machine, CfgMachine) else None
        if rules is None:
            return Reach(self.masks)
        from structgen.masks.cfg.masks import CfgMaskEngine, CfgReach

        assert isinstance(self.masks, CfgMaskEngine)
        return CfgReach(self.masks, rules)

    def advance(self, state: int, token_id: int, tape: Callable[[], TextHistory]) -> int:
        """Return the state after a token's bytes, or `DEAD`."""
        to = self.after_token.get(state * self.size + token_id)
        return self.advance_uncached(state, token_id, tape) if to is None else to

    def advance_uncached(self, state: int, token_id: int, tape: Callable[[], TextHistory]) -> int:
        """Compute `advance` for a token that is not in `after_token`."""
        machine = self.machine
        data = self.named.tokens[token_id]
        if state in machine.loops and is_plain(data):
            to, done = state, len(data)  # most of the text, inside strings
        else:
            to, done = machine.read(state, data, 0) if data else (DEAD, 0)
        is_settled = to not in machine.pending
        while to in machine.pending:
            to = machine.resolve(to, tape().after(data[:done]))
            if done < len(data) and to != DEAD:
                to, done = machine.read(to, data, done)
        if self.named.several:
            to = self._or_named(state, token_id, to)
        if self.counting is not None:
            to = self.counting.token_end(to)
        if is_settled:
            if len(self.after_token) > _MAX_MEMO:
                self.after_token.clear()
            self.after_token[state * self.size + token_id] = to
        return to

    def _or_named(self, state: int, token_id: int, to: int) -> int:
        """Return the state after a token: ``to`` for text, else the state after the named token."""
        machine, several = self.machine, self.named.several
        assert isinstance(machine, CfgMachine)
        read = [machine.read(state, data)[0] for data, ids in several.items() if token_id in ids]
        return machine.union((to, *read)) if any(read) else to

    def plan(self, state: int, tape: Callable[[], TextHistory]) -> Plan:
        """Return tokens that finish from ``state``, without the end-of-sequence token."""
        plan = self._plans.get(state)
        if plan is None:
            completion, is_shared = self._completion(state, tape)
            plan = self.named.plan(completion)
            if is_shared:
                if len(self._plans) > _MAX_MEMO:
                    self._plans.clear()
                self._plans[state] = plan
        return plan

    def plan_size(self, state: int, tape: Callable[[], TextHistory]) -> int:
        """Return how many tokens `plan` has, without making it: many states are compared, only one
        is reached."""
        size = self._plan_sizes.get(state)
        if size is None:
            completion, is_shared = self._completion(state, tape)
            size = self.named.count(completion)
            if is_shared:
                if len(self._plan_sizes) > _MAX_MEMO:
                    self._plan_sizes.clear()
                self._plan_sizes[state] = size
        return size

    def _completion(self, state: int, tape: Callable[[], TextHistory]) -> tuple[Text, bool]:
        """Return bytes that finish from ``state``, and whether they do after every text."""
        try:
            return self.machine.shortest_completion(state), True
        except NeedsText:
            return self.machine.shortest_completion(state, tape()), False


class Engines:
    """The engine that new calls of one constraint go to. Thread-safe.

    Earlier engines live only while sequences use them.

    Attributes:
        kept: the engine; None: it is made when it is needed.
    """

    def __init__(self, first: Engine, make: Callable[[], Engine]) -> None:
        self.kept: Engine | None = first
        self._make = make

    @property
    def newest(self) -> Engine:
        """The engine."""
        return self.kept or self.instead_of(None)

    def instead_of(self, engine: Engine | None) -> Engine:
        """Return the engine that replaces one that is spent or outgrown, or forgotten."""
        with GROW:
            if self.kept is None or self.kept is engine or self.kept.is_spent:
                self.kept = self._make()
            return self.kept
