"""Constraints: compiled output types.

`compile` turns an output type and a vocabulary into an immutable `Constraint`, which threads and
sequences share. `Constraint.start` gives each sequence its own `cursor.Cursor`. `warm_up` prepares
what the first constraints of a process need. Knows no model, logits, sampling or prompts.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np

from structgen.automaton import Built, build
from structgen.automaton.json import CompileOptions, ReadLimits
from structgen.errors import OptionError, OutputTypeError, UnenforcedWarning, VocabularyError
from structgen.grammar import ir, reading
from structgen.grammar.cfg import cache as grammar_facts
from structgen.grammar.formats import FORMATS, format_regex
from structgen.types import (
    Call,
    Cfg,
    Choices,
    Functions,
    ItemT,
    JsonSchema,
    OutputType,
    Own,
    T,
    T_co,
    TextT,
    Typed,
    lower,
)
from structgen.vocabulary import Vocabulary

from .cursor import Cursor, fill_masks
from .engine import Engine, Engines

if TYPE_CHECKING:
    from typing_extensions import TypeForm, Unpack

    from .cursor import Rows
    from .explain import Advice, Explanation


MAX_ENGINE_BYTES = 64 * 1024 * 1024
"""When an automaton has grown to about this many bytes, new sequences begin with a new one."""

_BYTES_A_STEP = 60
"""Rough number of bytes that `compile` keeps for each of its steps."""


WARNS: ContextVar[bool] = ContextVar("warns", default=True)
"""Whether `compile` warns about keywords that it does not enforce. Off for untrusted output types:
Python would keep and print the text of each warning, and a program that turns warnings into errors
would refuse the type."""


@overload
def compile(
    output_type: Own[TextT], vocabulary: Vocabulary, **options: Unpack[CompileOptions]
) -> Constraint[TextT]: ...


@overload
def compile(  # type: ignore[overload-overlap]  # a function is no type form
    output_type: TypeForm[T], vocabulary: Vocabulary, **options: Unpack[CompileOptions]
) -> Constraint[T]: ...


@overload
def compile(
    output_type: Choices[ItemT], vocabulary: Vocabulary, **options: Unpack[CompileOptions]
) -> Constraint[ItemT]: ...


@overload
def compile(
    output_type: Functions, vocabulary: Vocabulary, **options: Unpack[CompileOptions]
) -> Constraint[Call]: ...


def compile(output_type: Any, vocabulary: Vocabulary, **options: Any) -> Constraint[Any]:
    """Compile an output type for a vocabulary.

    Args:
        output_type: a Pydantic class, dataclass, `Literal`, `Enum`, list of choices, `Regex`,
            `JsonSchema`, `Cfg`, `int`, `date`, … (see `structgen.types`), or an already lowered
            `OutputType`.
        vocabulary: the model's vocabulary, as wide as its logits.
        **options: how JSON is written, such as ``whitespace="flexible"``: docs/json-schema.md has
            them all, under "Options".

    Returns:
        The constraint. Building it takes milliseconds. Automaton states and masks are made when
        they are first needed, and all cursors share them.

    Raises:
        OutputTypeError: the type cannot be turned into a grammar; its subclasses say why.
        OptionError: an unknown option.
        VocabularyError: ``vocabulary`` is something else.
    """
    if not isinstance(vocabulary, Vocabulary):
        fix = "Create one with Vocabulary.from_tokenizer_json(...)."
        if hasattr(vocabulary, "vocabulary"):
            fix = "Pass its vocabulary: structgen.compile(output_type, model.vocabulary)."
        raise VocabularyError(
            f"compile takes a Vocabulary as its second argument, got {type(vocabulary).__name__}. "
            f"{fix}"
        )
    with reading.reading(options.get("max_work")):
        output = output_type if isinstance(output_type, OutputType) else lower(output_type)
        if output.fitted is not None:
            names = vocabulary.named_tokens.items()
            output = output.fitted({name for name, i in names if not vocabulary.tokens[i]})
    try:
        built = build(output.grammar, options, vocabulary.missing_bytes, grammar_facts)
    except OutputTypeError as error:
        if output.locate is not None:
            output.locate(error)
        raise
    for part in built.unenforced if WARNS.get() else ():
        for reason in part.values():
            warnings.warn(f"not enforced: {reason}", UnenforcedWarning, stacklevel=2)
    return Constraint(output, vocabulary, built, options)


class Constraint(Typed[T_co]):
    """A compiled output type. Immutable, thread-safe.

    Attributes:
        output: the lowered output type; ``output.parse(text)`` gives the value.
        vocabulary: the vocabulary it was compiled for.
        named: the special tokens that its grammar names.
    """

    def __init__(
        self,
        output: OutputType[T_co],
        vocabulary: Vocabulary,
        built: Built,
        options: Mapping[str, Any],
    ) -> None:
        self.output = output
        self.vocabulary = vocabulary
        self._options = options
        self._unenforced = built.unenforced
        self._made_of = _BYTES_A_STEP * built.work
        first = Engine(output, vocabulary, built)

        def make() -> Engine:
            built = build(output.grammar, options, vocabulary.missing_bytes, grammar_facts)
            return Engine(output, vocabulary, built)

        self._engines = Engines(first, make)
        self.named = first.named

    def start(self, max_tokens: int | None = None) -> Cursor:
        """Return a cursor at the start of a new sequence.

        Args:
            max_tokens: the token budget, the end-of-sequence token included. The output is always
                complete within it: a token is allowed exactly if `Cursor.min_tokens_to_finish`
                after it still fits.

        Raises:
            BudgetTooSmall: the budget is too small to guarantee a complete output; the error has a
                number of tokens that is enough.
            OptionError: ``max_tokens`` is not a whole number.
        """
        if max_tokens is None:
            return Cursor(self._ready(), None, self._engines)
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, (int, np.integer)):
            raise OptionError(
                f"max_tokens must be an integer, or None for no limit; got {max_tokens!r}."
            )
        return Cursor(self._ready(), int(max_tokens), self._engines)

    def fill_masks(self, cursors: Sequence[Cursor | None], out: Rows, *, threads: int = 1) -> None:
        """Write the mask of each cursor into its row: `structgen.fill_masks` for one type.

        Raises:
            ValueError: a cursor belongs to another constraint; or as `structgen.fill_masks`.
            TypeError, OptionError, BatchError: as `structgen.fill_masks`.
        """
        for i, cursor in enumerate(cursors):
            if isinstance(cursor, Cursor) and cursor.engines is not self._engines:
                raise ValueError(
                    f"the cursor of row {i} belongs to another constraint than "
                    f"{self.output.name}. For batches with several constraints, use "
                    "structgen.fill_masks(cursors, out)."
                )
        fill_masks(cursors, out, threads=threads)

    @property
    def options(self) -> Mapping[str, Any]:
        """The options it was compiled with."""
        return MappingProxyType(dict(self._options))

    @property
    def weight(self) -> int:
        """Its size in bytes, roughly, without the source of its output type."""
        engine = self._engines.kept
        return self._made_of + (0 if engine is None else engine.whole_weight(refresh=True))

    def forget(self) -> None:
        """Free its automaton, which is made again when it is needed."""
        self._engines.kept = None

    @property
    def has_temperatures(self) -> bool:
        """Whether rules of its grammar set a temperature. If so, read `Cursor.temperature` before
        each token."""
        return ir.has_temperatures(self.output.grammar)

    def _ready(self) -> Engine:
        """Return the engine for a new sequence: a new engine if the current one has grown too
        large."""
        engine = self._engines.newest
        if engine.weight() > MAX_ENGINE_BYTES or engine.is_spent:
            # Running sequences keep their engine.
            engine = self._engines.instead_of(engine)
        return engine

    @property
    def _engine(self) -> Engine:
        return self._engines.newest

    def allows(self, text: str) -> bool:
        """Return whether ``text`` is a complete output.

        Cost: that of accepting the tokens of ``text``.

        Raises:
            TypeError: ``text`` is not a str.
        """
        if not isinstance(text, str):
            raise TypeError(f"allows() takes the text as a str, got {type(text).__name__}.")
        return self.start().allows_after(0, text.encode())

    def to_bytes(self) -> bytes:
        """Return the constraint as bytes, for another process; see `from_bytes`.

        The bytes contain the grammar, the options of `compile` and the name. They do not contain
        the vocabulary, automata, masks, or code (classes and their validators); nor ``max_work``,
        ``max_mask_work`` and ``max_memory_bytes``, which the reader sets.

        Raises:
            OutputTypeError: a part of the type cannot be written as JSON.

        Cost: that of writing a JSON text as long as the schema or grammar.
        """
        from structgen.types import written

        return written.write(self.output, self._options, self.vocabulary.uid)

    @classmethod
    def from_bytes(
        cls, data: bytes, vocabulary: Vocabulary, **limits: Unpack[ReadLimits]
    ) -> Constraint[Any]:
        """Compile a constraint from the bytes of `to_bytes`. Its masks equal those of the original.

        Safe for untrusted bytes: they are data, not code, and are checked and compiled like a
        schema.

        Args:
            data: the bytes.
            vocabulary: the vocabulary; for types whose grammar depends on the control tokens, such
                as `ToolCalls`, the one of the original.
            **limits: ``max_work``, ``max_mask_work`` and ``max_memory_bytes``, as in `compile`;
                the bytes cannot change them.

        Returns:
            The constraint. Its ``output.parse`` returns what ``json.loads`` returns for JSON,
            and the text for other types, because the bytes do not contain the original's classes
            and validators.

        Raises:
            OutputTypeError: the bytes are not a constraint, are of another version of the format,
                truncated or changed; or as `compile`.
            CompileLimitExceeded: there are too many bytes, or compiling exceeded a limit.
            VocabularyError: the type depends on another vocabulary.
            OptionError: unknown limit.
        """
        from structgen.types import written

        for name in limits.keys() - ReadLimits.__annotations__.keys():
            raise OptionError(
                f"from_bytes takes {', '.join(ReadLimits.__annotations__)}; {name} is already "
                "stored in the bytes."
            )
        found = written.read(data)
        if found.vocabulary_uid not in (None, getattr(vocabulary, "uid", None)):
            raise VocabularyError(
                f"{found.output.name} depends on the control tokens of its vocabulary, but this "
                "vocabulary has different ones. Compile the type for this vocabulary."
            )
        return compile(found.output, vocabulary, **{**found.options, **limits})

    def advice(self) -> tuple[Advice, ...]:
        """Return advice about parts of the type that make small models answer worse.

        Each finding names its place in the schema, what was measured (docs/quality.md) and what to
        write instead. The costliest come first. The type itself is not changed.
        """
        from .explain import advice

        return advice(self.output.grammar, self._options)

    def explain(self) -> Explanation:
        """Return how each keyword of the schema is enforced; print it for a table."""
        from .explain import explain

        output = self.output
        return explain(output.grammar, self._options, self._unenforced, output.checked)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def __copy__(self) -> Constraint[T_co]:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Constraint[T_co]:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a constraint cannot be pickled. Send constraint.to_bytes(), or the output type, and "
            "compile it again in the other process. The slow parts are cached on disk for all "
            "processes."
        )

    def __repr__(self) -> str:
        return f"Constraint({self.output.name}, {self.vocabulary!r})"


# A schema and a text that together use every kind of walk whose tables depend only on the
# vocabulary. `warm_up` walks them.
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "short": {"type": "string", "maxLength": 40},
        "words": {"type": "string", "pattern": r"^(\S+\s+){0,40}\S+$", "maxLength": 300},
        "name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "date": {"type": "string", "format": "date"},
        "time": {"type": "string", "format": "date-time"},
        "link": {"type": "string", "format": "uri"},
        "mail": {"type": "string", "format": "email"},
        "kind": {"enum": ["one", "two"]},
        "number": {"type": "number"},
        "count": {"type": "integer", "minimum": 0},
        "list": {"type": "array", "items": {"type": "boolean"}},
    },
}
_TEXT: dict[str, Any] = {
    "text": 'a "word" é',
    "short": "abc",
    "words": "so many words",
    "name": "x_1",
    "date": "2026-11-21",
    "time": "2026-11-21T12:30:00Z",
    "link": "https://a.example/b?c#d",
    "mail": "someone@mail.example",
    "kind": "two",
    "number": -12.5,
    "count": 10,
    "list": [True, False],
    "more": {"any": [None, {}]},
}

_SPELT = {key: _TEXT[key] for key in ("time", "link", "mail")}
"""Formats that `warm_up` also writes character by character: their walks are slow and differ from
place to place, but are the same in all schemas."""


def warm_up(vocabulary: Vocabulary, *, grammars: bool = False) -> None:
    """Load or make the tables that all masks over ``vocabulary`` need.

    Without this call, the first constraint of a process waits until they are made, or read from the
    user's cache folder. A server calls it when it starts.

    Args:
        vocabulary: the model's vocabulary.
        grammars: prepare for `Cfg` as well.

    Cost: 0.1 to 0.2 s for a vocabulary of 128k tokens, and as much again for grammars; almost
    nothing on later calls.

    Raises:
        VocabularyError: ``vocabulary`` is something else.
    """
    if not isinstance(vocabulary, Vocabulary):
        raise VocabularyError(
            f"warm_up takes a Vocabulary, got {type(vocabulary).__name__}. Pass model.vocabulary "
            "or constraint.vocabulary."
        )
    if not vocabulary.missing_bytes.isdisjoint({*range(0x20, 0x7F), *range(0x80, 0xC0), 0xC3}):
        return  # a small vocabulary that cannot write JSON, or the texts below
    if grammars:
        # A grammar that any process compiled before does not need Lark.
        import lark

        lark.Lark('start: "a"', parser=None, lexer="basic")
        constraint = compile(Cfg('start: "a" start?', dialect="lark"), vocabulary)
        _walk(constraint, vocabulary.encode_bytes(b"aa"))
    for name, known in FORMATS.items():
        if known.most_least is None:  # the others read the Unicode database
            format_regex(name)
    constraint = compile(JsonSchema(_SCHEMA), vocabulary)
    compact = (",", ":")
    spelt = json.dumps(_SPELT, separators=compact).encode()
    for separators in (compact, None):  # models write both
        text = json.dumps(_TEXT, separators=separators, ensure_ascii=False)
        _walk(constraint, vocabulary.encode_bytes(text.encode()))
    _walk(constraint, [token for byte in spelt for token in vocabulary.encode_bytes(bytes([byte]))])


def _walk(constraint: Constraint, tokens: list[int]) -> None:
    """Make all masks along ``tokens``."""
    cursor = constraint.start()
    out = np.zeros((constraint.vocabulary.size + 31) // 32, np.uint32)
    for token in tokens:
        cursor.fill_mask(out)
        cursor.accept(token)
    cursor.fill_mask(out)
