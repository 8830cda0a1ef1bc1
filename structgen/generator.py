"""Generator: a model and an output type made into a function from prompts to outputs.

It owns what happens to one prompt: checks, the token budget, the cursor and its mask, the run, and
the result. Compiling an output type, running a model, search options, chat messages and the step
loop each have their own module; this one connects them.

Nothing of a call outlives it: a generator holds a model and a compiled constraint, both immutable,
and each call starts its own sequence and cursor. So one generator serves many threads.
"""

from __future__ import annotations

import time
from collections.abc import Generator as PlainGenerator
from collections.abc import Iterator
from types import TracebackType
from typing import Any, final

from structgen import chat, options
from structgen.chat import Prompt
from structgen.constraint import Constraint, Cursor
from structgen.constraint import compile as compile_constraint
from structgen.decode import FinishReason, TextAssembler, decode
from structgen.errors import (
    IncompleteOutput,
    ModelError,
    OptionError,
    ParseError,
    PromptError,
)
from structgen.models.base import Model, TokenSequence
from structgen.options import SearchOptions
from structgen.processors import (
    Logits,
    LogitsProcessor,
    MinLength,
    NoRepeatNgram,
    TokenIds,
    TokenMask,
    checked,
)
from structgen.results import GenerationResult, Timings, Usage


@final
class Generator:
    """Produces text from prompts: of an output type, through a processor, or free.

    Attributes:
        model: the model.
        constraint: the compiled output type, or None.

    Example::

        model = structgen.load("smollm2-135m-instruct")
        generator = Generator(model, Literal["positive", "negative"])
        generator("The soup was cold and the waiter rude. Sentiment: ")   # 'negative'
    """

    def __init__(
        self,
        model: Model,
        output_type: Any = None,
        *,
        processor: LogitsProcessor | None = None,
        **compile_options: Any,
    ) -> None:
        """Compile ``output_type`` for ``model``.

        Args:
            model: from `structgen.load` or `structgen.from_onnx_genai`.
            output_type: what every output will be: a Pydantic class, dataclass, Literal, Enum, list
                of choices, Regex, JsonSchema, int, date, …, or a `Constraint` compiled before for
                this model's vocabulary. None: free text.
            processor: a function that edits logits before each choice, see
                `structgen.processors.LogitsProcessor`. Not together with ``output_type``.
            compile_options: passed to `structgen.compile`.

        Raises:
            OptionError: both ``output_type`` and ``processor``, or an unknown compile option.
            OutputTypeError: the output type cannot be enforced.
            ModelError: ``model`` is not a loaded model.
        """
        if not hasattr(model, "vocabulary") or not hasattr(model, "start"):
            hint = (
                f"structgen.load({model!r})" if isinstance(model, str) else "structgen.load(name)"
            )
            raise ModelError(
                f"The model is a {type(model).__name__}, not a loaded model. Pass {hint}."
            )
        if output_type is not None and processor is not None:
            raise OptionError(
                "output_type and processor cannot be used together: a processor could undo what "
                "the output type guarantees. Pass one of them."
            )
        if processor is not None and not callable(processor):
            raise OptionError(f"processor={processor!r} is not callable.")
        if output_type is None and compile_options:
            raise OptionError(
                f"{', '.join(compile_options)}: only meaningful with an output type. "
                "Search options such as temperature belong to the call."
            )
        self.model = model
        self.constraint: Constraint | None = None
        self._processor = None if processor is None else checked(processor)
        if isinstance(output_type, Constraint):
            if output_type.vocabulary != model.vocabulary:
                raise OptionError(
                    "The constraint was compiled for another vocabulary than this model's. "
                    "Compile it with structgen.compile(output_type, model.vocabulary)."
                )
            self.constraint = output_type
        elif output_type is not None:
            self.constraint = compile_constraint(output_type, model.vocabulary, **compile_options)

    def __repr__(self) -> str:
        what = "free text" if self.constraint is None else self.constraint.output.name
        return f"Generator({self.model.name!r}, {what})"

    def __call__(self, prompt: Prompt, **options: Any) -> str:
        """Return the output for ``prompt``.

        Args:
            prompt: text, given to the model as it is; or a list of chat messages with ``role`` and
                ``content``, which go through the model's chat template.
            options: search options, see `structgen.options.SearchOptions`. With an output type the
                output completes within ``max_new_tokens``. Without it, the context is the only
                limit: small models often do not stop by themselves, and 8,000 tokens take minutes,
                so pass it, or bound lists and strings in the type.

        Raises:
            PromptError: empty, malformed, or longer than the context.
            OptionError: an unknown option or a bad value.
            BudgetTooSmall: fewer tokens left than any output of this type needs.
            IncompleteOutput: a stop string cut the output before it was whole.
        """
        return self.result(prompt, **options).text

    def parse(self, prompt: Prompt, **options: Any) -> Any:
        """Return the output for ``prompt`` as a value of the output type.

        Args and raises as for calling the generator, and also:
            ParseError: the text fits the type's grammar, but not a check that only its class can
                make (a Pydantic validator, say).
            OptionError: the generator has no output type.
        """
        if self.constraint is None:
            raise OptionError("parse needs an output type. Call the generator to get text.")
        return self.constraint.output.parse(self(prompt, **options))

    def result(self, prompt: Prompt, **options: Any) -> GenerationResult:
        """Return the output for ``prompt`` with its tokens, counts and times.

        Args and raises as for calling the generator.
        """
        stream = self.stream(prompt, **options)
        for _ in stream:
            pass
        return stream.result

    def stream(self, prompt: Prompt, **options: Any) -> Stream:
        """Return the output for ``prompt`` piece by piece, as it is generated.

        Arguments are checked before this returns; the model runs as the stream is read. Closing
        the stream, or dropping it, frees the sequence.

        Args and raises as for calling the generator.
        """
        return Stream(self, prompt, options)


@final
class Stream(Iterator[str]):
    """An output being generated: an iterator over pieces of text, none of them empty.

    Use it as a context manager, or call `close`, to stop early.
    """

    def __init__(self, generator: Generator, prompt: Prompt, keywords: dict[str, Any]) -> None:
        model = generator.model
        self._search = options.parse(keywords)
        self._settings = options.resolve(self._search, model.search_defaults)
        self._prompt_ids = _encode(model, prompt)
        self._max_tokens = _budget(model, len(self._prompt_ids), self._search)
        self._generator = generator
        self._cursor: Cursor | None = None
        self._mask: TokenMask | None = None
        if generator.constraint is not None:
            self._cursor = generator.constraint.start(max_tokens=self._max_tokens)
            vocabulary = model.vocabulary
            self._mask = TokenMask(self._cursor, vocabulary.size, len(vocabulary.eos_token_ids))
        self._text = TextAssembler(model.vocabulary.tokens, self._search.stop)
        self._token_ids: list[int] = []
        self._started = time.perf_counter()
        self._first_chunk: float | None = None
        self._ended: float | None = None
        self._finish_reason: FinishReason = "cancelled"
        self._chunks = self._run()

    def __next__(self) -> str:
        """Return the next piece of text."""
        return next(self._chunks)

    def close(self) -> None:
        """Stop generating and free the sequence. A second call does nothing."""
        self._chunks.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def result(self) -> GenerationResult:
        """What has been generated; ``cancelled`` until the stream has been read to its end."""
        mask = self._mask
        first = None if self._first_chunk is None else self._first_chunk - self._started
        ended = time.perf_counter() if self._ended is None else self._ended
        return GenerationResult(
            text=self._text.text,
            token_ids=tuple(self._token_ids),
            finish_reason=self._finish_reason,
            usage=Usage(len(self._prompt_ids), len(self._token_ids)),
            timings=Timings(first, ended - self._started),
            mean_allowed_tokens=mask.allowed_total / mask.steps if mask and mask.steps else None,
        )

    def _run(self) -> PlainGenerator[str, None, None]:
        """Own the sequence from the first piece of text to the last."""
        self._started = time.perf_counter()
        processors = self._processors()
        settings = {**self._settings, **_SWITCHED_OFF}
        sequence = self._generator.model.start(len(self._prompt_ids) + self._max_tokens, settings)
        try:
            sequence.append(self._prompt_ids)
            yield from self._pieces(self._steps(sequence, processors))
        finally:
            self._ended = time.perf_counter()
            sequence.close()
        self._check_whole()

    def _processors(self) -> list[LogitsProcessor]:
        """What edits the logits, in order; empty when they need not leave the runtime."""
        settings = self._settings
        processors: list[LogitsProcessor] = []
        if settings.get("min_length"):
            eos_token_ids = self._generator.model.vocabulary.eos_token_ids
            processors.append(MinLength(settings["min_length"], eos_token_ids))
        if settings.get("no_repeat_ngram_size"):
            processors.append(NoRepeatNgram(settings["no_repeat_ngram_size"]))
        if self._generator._processor is not None:
            processors.append(self._generator._processor)
        if self._mask is not None:
            processors.append(self._mask)
        return processors

    def _steps(
        self, sequence: TokenSequence, processors: list[LogitsProcessor]
    ) -> PlainGenerator[int, None, FinishReason]:
        mask, cursor = self._mask, self._cursor

        def process(logits: Logits) -> Logits:
            for processor in processors:
                logits = processor(sequence.token_ids, logits)
            return logits

        return decode(
            sequence.choose,
            eos_token_ids=self._generator.model.vocabulary.eos_token_ids,
            max_tokens=self._max_tokens,
            logits=sequence.logits,
            process=process if processors else None,
            begin=None if mask is None else mask.begin,
            accept=None if cursor is None else cursor.accept,
        )

    def _pieces(
        self, steps: PlainGenerator[int, None, FinishReason]
    ) -> PlainGenerator[str, None, None]:
        finish: FinishReason | None = None
        while finish is None:
            try:
                token_id = next(steps)
            except StopIteration as end:
                finish = end.value
                chunk = self._text.finish()
            else:
                self._token_ids.append(token_id)
                chunk = self._text.feed(token_id)
                if self._text.stopped_by is not None:
                    finish = "stop_string"
            if finish is not None:
                self._finish_reason = finish
            if chunk:
                if self._first_chunk is None:
                    self._first_chunk = time.perf_counter()
                yield chunk

    def _check_whole(self) -> None:
        """Raise when an output type was asked for and its text was cut."""
        constraint = self._generator.constraint
        if constraint is None or self._finish_reason == "stop":
            return
        text = self._text.text
        try:
            constraint.output.parse(text)
        except ParseError:
            raise IncompleteOutput(
                f"The output was cut before it was a whole {constraint.output.name}: "
                + (
                    f"stop string {self._text.stopped_by!r} came up. Leave it out, or put the "
                    "limit into the output type."
                    if self._text.stopped_by is not None
                    else f"it reached {self._max_tokens:,} tokens."
                ),
                text=text,
            ) from None


# What our own processors do in the runtime's place: see structgen.processors.
_SWITCHED_OFF = {"min_length": 0, "no_repeat_ngram_size": 0}


def _encode(model: Model, prompt: Prompt) -> TokenIds:
    parsed = chat.parse(prompt)
    text = parsed if isinstance(parsed, str) else model.apply_chat_template(parsed)
    token_ids = model.encode(text)
    if not len(token_ids):
        raise PromptError("The prompt is empty: it has no tokens.")
    return token_ids


def _budget(model: Model, prompt_tokens: int, search: SearchOptions) -> int:
    """How many tokens a call may generate, the end of the sequence included; at least 1."""
    context = model.context_length
    if prompt_tokens >= context:
        raise PromptError(
            f"The prompt has {prompt_tokens:,} tokens, but {model.name} holds {context:,}, prompt "
            f"and output together. Shorten it by at least {prompt_tokens - context + 1:,} tokens."
        )
    if search.max_length is not None and search.max_length > context:
        raise OptionError(
            f"max_length={search.max_length:,} is more than {model.name} holds: {context:,} "
            "tokens, prompt and output together."
        )
    limit = search.max_length or min(int(model.search_defaults.get("max_length", context)), context)
    if prompt_tokens >= limit:
        raise OptionError(
            f"max_length is {limit:,} tokens and counts the prompt, which has {prompt_tokens:,}. "
            "Raise it, or use max_new_tokens, which counts the output only."
        )
    left = limit - prompt_tokens
    return left if search.max_new_tokens is None else min(left, search.max_new_tokens)
