"""Generator: combine a model and an output type into a function from prompts to outputs.

It checks the arguments of a generator and connects the parts. Compiling an output type, running a
model, the signatures of calls, search options, chat messages, one output and the decode loop have
modules of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, overload

from structgen.constraint import Constraint
from structgen.constraint import compile as compile_constraint
from structgen.decoding import (
    AsyncMaker,
    AsyncTypedGenerator,
    Calls,
    GeneratorOptions,
    Output,
    Prompt,
    Several,
    Stream,
    Task,
    ValueStream,
    as_model_writes,
    make_outputs,
    pieces,
    probabilities,
)
from structgen.insight import TOLERANCE
from structgen.models.base import Model
from structgen.options import OPTIONS, CallOptions, CancelEvent, Flag
from structgen.sampling import checked
from structgen.types import (
    Call,
    Choices,
    DocumentMissing,
    Functions,
    ItemT,
    Own,
    T_co,
    TextT,
    filled,
    schema_hint,
)
from structgen.vocabulary import Vocabulary

from .decoding import chat
from .decoding import options as search_options
from .errors import ModelError, OptionError

if TYPE_CHECKING:
    from typing_extensions import Never, TypeForm, Unpack


class Maker(Protocol):
    """A model that makes its own kind of `Generator`."""

    @property
    def make_generator(self) -> Callable[..., Generator[Any]]:
        """Called with an output type and the options of `Generator`."""


def compiled(
    vocabulary: Vocabulary,
    output_type: Any,
    options: Mapping[str, Any],
    as_written: Callable[[Any], Any],
    quote_from: Mapping[str, str] | None = None,
) -> Constraint[Any] | None:
    """Return the constraint of a generator; None: free text.

    Args:
        vocabulary: the model's vocabulary.
        output_type: as for `Generator`.
        options: options of `structgen.compile`, and any others that were passed.
        as_written: converts `structgen.ToolCalls` to the model's syntax.
        quote_from: the documents to quote, if the type leaves them open.

    Raises:
        OptionError: an option is unknown or not possible here.
        OutputTypeError: the output type cannot be enforced.
    """
    misplaced = search_options.misplaced(options)
    if misplaced is not None:
        raise OptionError(misplaced)
    if output_type is None:
        if options:
            raise OptionError(f"{', '.join(options)} requires an output type.")
        return None
    if not isinstance(output_type, Constraint):
        written = as_written(output_type)
        if quote_from is not None:
            written = filled(written, quote_from)
        return compile_constraint(written, vocabulary, **options)
    if output_type.vocabulary != vocabulary:
        raise OptionError(
            "The constraint was compiled for a different vocabulary than this model's. Compile it "
            "with structgen.compile(output_type, model.vocabulary)."
        )
    if options:
        raise OptionError(
            f"{', '.join(options)}: the constraint is already compiled. Pass this to "
            "structgen.compile."
        )
    return output_type


def hinted(is_wanted: Any, output_type: Any, constraint: Constraint[Any] | None) -> str:
    """Return the JSON Schema to put into prompts; empty: none.

    Args:
        is_wanted: the option ``with_schema_hint``.
        output_type: as for `Generator`.
        constraint: the compiled output type.

    Raises:
        OptionError: the option is not a bool, or the outputs are not JSON.
    """
    if is_wanted is None or not Flag()("with_schema_hint", is_wanted):
        return ""
    if constraint is None:
        raise OptionError(
            "with_schema_hint=True requires an output type: free text has no schema.",
            option="with_schema_hint",
        )
    return schema_hint(output_type, constraint.output)


def _task(
    model: Any,
    output_type: Any,
    options: Mapping[str, Any],
    processor: Any,
    think: Any,
    draft: Any,
    with_schema_hint: Any,
    quote_from: Mapping[str, str] | None = None,
) -> Task:
    """Return the task that makes outputs of a generator, or of one call with documents."""
    written = functools.partial(as_model_writes, model)
    constraint = compiled(model.vocabulary, output_type, options, written, quote_from)
    hint = hinted(with_schema_hint, output_type, constraint)
    return Task(model, constraint, processor, think, draft, schema_hint=hint)


class Generator(Calls[T_co]):
    """Produces outputs from prompts: of an output type, through a processor, or free.

    It is a ``Generator[T]`` if texts of the output type parse to ``T``; type checkers infer this
    for Python types, choices and structgen's own output types (`structgen.types.sums`).

    Attributes:
        model: the model.
        constraint: the compiled output type; None: free text, or each call passes the documents to
            quote.

    Example::

        model = structgen.load("smollm2-135m-instruct")
        generator = Generator(model, Literal["positive", "negative"])
        generator("The soup was cold and the waiter rude. Sentiment: ")   # 'negative'
    """

    model: Model | Maker
    constraint: Constraint[T_co] | None
    _task: Task | DocumentMissing
    _task_of: Callable[[Mapping[str, str]], Task]

    # mypy wants __new__ to return the class itself, yet uses the declared return type; and it takes
    # functions for type forms, which they are not.
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        model: AsyncMaker,
        output_type: Own[TextT] | None = None,
        **options: Unpack[GeneratorOptions],
    ) -> AsyncTypedGenerator[TextT]: ...

    @overload
    def __new__(  # type: ignore[misc, overload-overlap]
        cls, model: AsyncMaker, output_type: TypeForm[T_co], **options: Unpack[GeneratorOptions]
    ) -> AsyncTypedGenerator[T_co]: ...

    @overload
    def __new__(  # type: ignore[misc]
        cls, model: AsyncMaker, output_type: Choices[ItemT], **options: Unpack[GeneratorOptions]
    ) -> AsyncTypedGenerator[ItemT]: ...

    @overload
    def __new__(  # type: ignore[misc]
        cls, model: AsyncMaker, output_type: Functions, **options: Unpack[GeneratorOptions]
    ) -> AsyncTypedGenerator[Call]: ...

    @overload
    def __new__(
        cls,
        model: Model | Maker,
        output_type: Own[TextT] | None = None,
        **options: Unpack[GeneratorOptions],
    ) -> Generator[TextT]: ...

    @overload
    def __new__(  # type: ignore[overload-overlap]
        cls, model: Model | Maker, output_type: TypeForm[T_co], **options: Unpack[GeneratorOptions]
    ) -> Generator[T_co]: ...

    @overload
    def __new__(
        cls, model: Model | Maker, output_type: Choices[ItemT], **options: Unpack[GeneratorOptions]
    ) -> Generator[ItemT]: ...

    @overload
    def __new__(
        cls, model: Model | Maker, output_type: Functions, **options: Unpack[GeneratorOptions]
    ) -> Generator[Call]: ...

    def __new__(cls, model: Any, output_type: Any = None, **options: Any) -> Any:
        """Compile ``output_type`` for ``model``.

        Args:
            model: from `structgen.load` or `structgen.from_onnx_genai`; or a model with its own
                kind of generator, which is returned: for an async model an `AsyncTypedGenerator`.
            output_type: the type of every output: a Pydantic class, dataclass, Literal, Enum, list
                of choices, Regex, JsonSchema, int, date, …, or a `Constraint` compiled for this
                model's vocabulary. None: free text.
            options: those of `structgen.compile`; ``think``, most tokens that the model may think
                before it answers, or a `Think`, or 0: a thought that the chat template opens by
                itself is closed at once; ``draft``, whether it first answers freely, or a
                `Draft`; ``with_schema_hint``, whether chats contain the type's JSON Schema, which
                makes the answers of the smallest models worse (docs/quality.md); and ``processor``,
                a function that edits logits before each choice, see
                `structgen.sampling.processors.LogitsProcessor`. Beside an output type it gets the
                masked logits and chooses among what is allowed; it cannot allow others.

        Raises:
            OptionError: a processor is not callable, an option is unknown, or there is no room to
                think.
            OutputTypeError: the output type cannot be enforced.
            ModelError: ``model`` is not a loaded model.
        """
        make = getattr(model, "make_generator", None)
        if make is not None:
            return make(output_type, **options)
        if not hasattr(model, "vocabulary") or not hasattr(model, "start"):
            hint = (
                f"structgen.load({model!r})" if isinstance(model, str) else "structgen.load(name)"
            )
            found = f"the class {model.__name__}" if isinstance(model, type) else chat.kind(model)
            raise ModelError(f"The model is {found}, not a loaded model. Pass {hint}.")
        processor = options.pop("processor", None)
        think, draft = options.pop("think", None), options.pop("draft", None)
        with_schema_hint = options.pop("with_schema_hint", None)
        if processor is not None and not callable(processor):
            raise OptionError(f"processor={processor!r} is not callable.", option="processor")
        processor = None if processor is None else checked(processor)
        made_of = model, output_type, options, processor, think, draft, with_schema_hint
        self = super().__new__(cls)
        self.model = model
        self.constraint = None
        self._task_of = lambda given: _task(*made_of, quote_from=given)
        try:
            self._task = _task(*made_of)
            self.constraint = self._task.constraint
        except DocumentMissing as error:
            self._task = error
        return self

    def _task_for(self, options: dict[str, Any]) -> Task:
        """Return the task for a call; documents are removed from its options."""
        given = options.pop("quote_from", None)
        if given is not None:
            return self._task_of(OPTIONS["quote_from"].read("quote_from", given))
        if isinstance(self._task, DocumentMissing):
            raise DocumentMissing(str(self._task))
        return self._task

    def __copy__(self) -> Generator[T_co]:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Generator[T_co]:
        return self

    def __repr__(self) -> str:
        what = "free text" if self.constraint is None else self.constraint.output.name
        if isinstance(self._task, DocumentMissing):
            what = "quotes of tool results"
        return f"Generator({getattr(self.model, 'name', '')!r}, {what})"

    def probabilities(
        self,
        prompt: Prompt,
        *,
        tolerance: float = TOLERANCE,
        adapter: str | None = None,
        special_tokens: str = "template",
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        **options: object,
    ) -> dict[str, float]:
        """Return the model's probability of each possible output, the likeliest first.

        For output types with few texts: a `Literal`, an `Enum`, a list of choices, ``bool``, a
        small range of integers. Spellings of the same value (``-0`` is 0) are one output, listed as
        the shortest. `structgen.insight.confidence` describes the computation.

        Args:
            prompt: one prompt, as for calling the generator.
            tolerance: the largest error of a probability; 0: sum over all token sequences.
            adapter: name of an adapter from `TextModel.load_adapter`.
            special_tokens: where they are read in a chat, see
                `structgen.decoding.options.SearchOptions`.
            timeout: most seconds that this may take.
            cancel: an object with ``is_set()``, asked before each pass of the model: a
                ``threading.Event``.
            options: other options of a call raise an error, because they have no effect here.

        Raises:
            PromptError: empty, malformed, or longer than the context; or the context ends before
                the likely outputs do.
            OptionError: an option is wrong or has no effect here; there is no output type, or it
                has more than 1,000 texts or is an object or array; or the adapter is not loaded.
            IncompleteOutput: ``timeout`` or ``cancel`` ended it, so there are no probabilities.

        Cost: one pass of the model for the prompt, and about 5 to 50 for a handful of labels.
        """
        if options:
            raise OptionError(
                f"probabilities does not support {next(iter(options))}=: it computes the model's "
                "own distribution, without mask, temperature or search. Its options are "
                "tolerance=, adapter=, special_tokens=, timeout= and cancel=."
            )
        task = self._task_for({})
        if task.has_sections:
            raise OptionError(
                "probabilities are those of the answer alone, but think= or draft= put text "
                "before it. Create a generator without them, or use result.confidence, which "
                "includes the thought."
            )
        return probabilities(
            task,
            prompt,
            tolerance=tolerance,
            adapter=adapter,
            special_tokens=special_tokens,
            timeout=timeout,
            cancel=cancel,
        )

    def stream(self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]) -> Stream[T_co]:
        """Stream the output for ``prompt`` piece by piece, as it is generated.

        Arguments are checked before this returns; the model runs while the stream is read. Closing
        or dropping the stream frees the sequence.

        Args and raises as for calling the generator.
        """
        search_options.check_by_name(more)
        given = dict(options)
        return self._stream(self._task_for(given), prompt, given)

    def _stream(self, task: Task, prompt: Prompt, options: Mapping[str, Any]) -> Stream[T_co]:
        search = search_options.parse(options)
        if Several.are_asked(prompt, search) and prompt:  # an empty list raises an error of its own
            raise OptionError("stream returns one output: pass one prompt and no n=.")
        run = task.run(task.prepare(prompt, search), search)
        return Stream(run, pieces(task.model, run))

    def stream_values(
        self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]
    ) -> ValueStream[T_co]:
        """Yield the value for ``prompt`` while the model writes it, as far as it is complete.

        Each `structgen.Partial` has the fields so far: numbers, dates and choices when they are
        complete, text as it grows, lists item by item. The last one has the whole value.

        Args and raises as for `stream`; reading it also raises:
            ParseError: the text fits the type's grammar, but fails a check that only its class can
                make, such as a Pydantic validator.

        Cost: that of the output, and reading its bytes once.
        """
        search_options.check_by_name(more)
        given = dict(options)
        task = self._task_for(given)
        output = None if task.constraint is None else task.constraint.output
        return ValueStream(self._stream(task, prompt, given), output)

    def _outputs(
        self, prompt: Any, options: Mapping[str, Any], convert: Callable[[Output], Any]
    ) -> Any:
        given = dict(options)
        return make_outputs(self._task_for(given), prompt, given, convert)
