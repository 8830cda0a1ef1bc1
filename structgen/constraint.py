"""Constraints: the engine as the rest of the world sees it.

`compile` turns an output type and a vocabulary into an immutable `Constraint` that any number of
threads and sequences share; `Constraint.start` gives each sequence its own `cursor.Cursor`, which
is two lists of integers. Works without any model: logits, sampling and prompts are unknown here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .automaton.build import Built, build
from .automaton.machine import DEAD, Machine, NeedsText
from .automaton.tape import Tape
from .cursor import Cursor
from .errors import (
    OptionError,
    OutputTypeError,
    TokenNotAllowed,
    UnenforcedWarning,
    VocabularyError,
)
from .masks import MaskEngine
from .named_tokens import NamedTokens
from .reach import Reach
from .types import OutputType, lower
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from .cfg_masks import CfgMaskEngine
    from .cfg_reach import CfgReach
    from .explain import Explanation

_MAX_MEMO = 200_000
"""Most entries of each of a constraint's token memos; a full one starts anew."""


def compile(output_type: Any, vocabulary: Vocabulary, **options: Any) -> Constraint:
    """Compile an output type for a vocabulary.

    Args:
        output_type: a Pydantic class, dataclass, `Literal`, `Enum`, list of choices, `Regex`,
            `JsonSchema`, `Cfg`, `int`, `date`, … (see `structgen.types`), or an already lowered
            `OutputType`.
        vocabulary: the model's vocabulary, as wide as its logits.
        **options: how JSON is written, such as ``whitespace="flexible"``: docs/json-schema.md has
            them all, under "How JSON is written".

    Returns:
        The constraint. Building it is cheap (milliseconds); automaton states and masks appear when
        they are first needed and are shared by all cursors.

    Raises:
        OutputTypeError: the type cannot be turned into a grammar; its subclasses say why.
        OptionError: an unknown option.
        VocabularyError: ``vocabulary`` is something else.
    """
    if not isinstance(vocabulary, Vocabulary):
        fix = "Make one with Vocabulary.from_tokenizer_json(...)."
        if hasattr(vocabulary, "vocabulary"):
            fix = "Pass its vocabulary: structgen.compile(output_type, model.vocabulary)."
        raise VocabularyError(
            f"compile takes a Vocabulary, got {type(vocabulary).__name__} at its place. {fix}"
        )
    output = output_type if isinstance(output_type, OutputType) else lower(output_type)
    try:
        built = build(output.grammar, options, vocabulary.missing_bytes)
    except OutputTypeError as error:
        if output.locate is not None:
            output.locate(error)
        raise
    for part in built.unenforced:
        for reason in part.values():
            warnings.warn(f"not enforced: {reason}", UnenforcedWarning, stacklevel=2)
    return Constraint(output, vocabulary, built, options)


class Constraint:
    """A compiled output type. Immutable, thread-safe.

    Attributes:
        output: the lowered output type; ``output.parse(text)`` gives the value.
        vocabulary: the vocabulary it was compiled for.
        named: the special tokens that its grammar names.
    """

    def __init__(
        self,
        output: OutputType,
        vocabulary: Vocabulary,
        built: Built,
        options: Mapping[str, Any],
    ) -> None:
        self.output = output
        self.vocabulary = vocabulary
        self._options = options
        self._unenforced = built.unenforced
        self._machine = built.machine
        self.named = NamedTokens(vocabulary, built.named_tokens)
        self._masks: MaskEngine | CfgMaskEngine
        if isinstance(built.machine, Machine):
            self._masks = MaskEngine(built.machine, vocabulary, self.named)
        else:
            from .cfg_masks import CfgMaskEngine

            self._masks = CfgMaskEngine(built.machine, vocabulary)
        self._size = vocabulary.size
        self._tokens: dict[int, int] = {}
        self._plans: dict[int, tuple[int, ...]] = {}
        self._plan_sizes: dict[int, int] = {}

    def start(self, max_tokens: int | None = None) -> Cursor:
        """A cursor at the start of a new sequence.

        Args:
            max_tokens: token budget, the end-of-sequence token included. The masks then allow
                only what can still be finished within it, so that the output is always complete.

        Raises:
            BudgetTooSmall: no output is certain to fit; the error names the minimum.
            OptionError: ``max_tokens`` is no whole number.
        """
        if max_tokens is None:
            return Cursor(self, None)
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, (int, np.integer)):
            raise OptionError(
                f"max_tokens must be a whole number, or None for no budget; got {max_tokens!r}."
            )
        return Cursor(self, int(max_tokens))

    def allows(self, text: str) -> bool:
        """Whether ``text`` is a whole output. Costs what accepting its tokens does.

        Raises:
            TypeError: ``text`` is no str.
        """
        if not isinstance(text, str):
            raise TypeError(f"allows() takes the text as str, got {type(text).__name__}.")
        cursor = self.start()
        try:
            for token in self.named.encode(self.named.spelt(text)):
                cursor.accept(token)
        except (TokenNotAllowed, VocabularyError):
            return False
        return cursor.is_accepting

    def explain(self) -> Explanation:
        """How each keyword of the schema is kept; print it for a table."""
        from .explain import explain

        return explain(self.output.grammar, self._options, self._unenforced)

    def __copy__(self) -> Constraint:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Constraint:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a constraint is not pickled: send the output type, and compile it again there. What "
            "takes long is kept on disk and read by every process."
        )

    def __repr__(self) -> str:
        return f"Constraint({self.output.name}, {self.vocabulary!r})"

    # -- for cursors ------------------------------------------------------------------------

    @cached_property
    def _reach(self) -> Reach | CfgReach:
        if isinstance(self._masks, MaskEngine):
            return Reach(self._masks)
        from .cfg_reach import CfgReach

        return CfgReach(self._masks)

    def _advance(self, state: int, token_id: int, tape: Callable[[], Tape]) -> int:
        """The state after a token's bytes, or `DEAD`."""
        key = state * self._size + token_id
        to = self._tokens.get(key)
        if to is not None:
            return to
        machine = self._machine
        data = self.named.tokens[token_id]
        to, done = machine.read(state, data, 0) if data else (DEAD, 0)
        shared = True
        while to != DEAD and machine.is_pending(to):
            to = machine.resolve(to, tape().after(data[:done]))
            shared = False
            if done < len(data):
                to, done = machine.read(to, data, done)
        if shared:
            if len(self._tokens) > _MAX_MEMO:
                self._tokens.clear()
            self._tokens[key] = to
        return to

    def _plan(self, state: int, tape: Callable[[], Tape]) -> tuple[int, ...]:
        """Tokens that finish from ``state``, without the end-of-sequence token."""
        plan = self._plans.get(state)
        if plan is None:
            completion, is_shared = self._completion(state, tape)
            plan = tuple(self.named.encode(completion))
            if is_shared:
                if len(self._plans) > _MAX_MEMO:
                    self._plans.clear()
                self._plans[state] = plan
        return plan

    def _plan_size(self, state: int, tape: Callable[[], Tape]) -> int:
        """How many tokens `_plan` has: it is asked of many states of which one will be reached."""
        size = self._plan_sizes.get(state)
        if size is None:
            completion, is_shared = self._completion(state, tape)
            size = self.named.count(completion)
            if is_shared:
                if len(self._plan_sizes) > _MAX_MEMO:
                    self._plan_sizes.clear()
                self._plan_sizes[state] = size
        return size

    def _completion(self, state: int, tape: Callable[[], Tape]) -> tuple[bytes, bool]:
        """Bytes that finish from ``state``, and whether they do so after every text."""
        try:
            return self._machine.shortest_completion(state), True
        except NeedsText:
            return self._machine.shortest_completion(state, tape()), False
