"""Generator: a model and an output type made into a function from prompts to outputs.

It owns the public calls and what is checked when a generator is made. Compiling an output type,
running a model, search options, chat messages, one output and the decode loop each have their own
module; this one connects them.

Nothing of a call outlives it: a generator holds a model and a compiled constraint, both immutable,
and each call makes its own `structgen.decoding.generation.Generation`. So one generator serves many
threads.
"""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from structgen.constraint import Constraint
from structgen.constraint import compile as compile_constraint
from structgen.decoding import (
    Generation,
    Prompt,
    SearchOptions,
    Stream,
    as_model_writes,
    check_adapter,
    check_fits,
    encode,
    make_all,
    opener,
)
from structgen.insight import (
    MAX_ALTERNATIVES,
    TOLERANCE,
    GivenUp,
    Site,
    measure,
    names_of,
    whole_texts,
)
from structgen.models.base import Model
from structgen.sampling import LogitsProcessor, checked

from .decoding import chat
from .decoding import options as search_options
from .errors import (
    BatchError,
    BudgetTooSmall,
    IncompleteOutput,
    ModelError,
    OptionError,
    PromptError,
    StructgenError,
)


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
                `structgen.sampling.processors.LogitsProcessor`. Beside an output type it gets the
                masked logits and chooses among what is allowed; it cannot bring back what is not.
            compile_options: passed to `structgen.compile`.

        Raises:
            OptionError: a processor that cannot be called, or an unknown compile option.
            OutputTypeError: the output type cannot be enforced.
            ModelError: ``model`` is not a loaded model.
        """
        if not hasattr(model, "vocabulary") or not hasattr(model, "start"):
            hint = (
                f"structgen.load({model!r})" if isinstance(model, str) else "structgen.load(name)"
            )
            raise ModelError(f"The model is {chat.kind(model)}, not a loaded model. Pass {hint}.")
        if processor is not None and not callable(processor):
            raise OptionError(f"processor={processor!r} is not callable.")
        misplaced = search_options.misplaced(compile_options)
        if misplaced is not None:
            raise OptionError(misplaced)
        if output_type is None and compile_options:
            raise OptionError(f"{', '.join(compile_options)}: only meaningful with an output type.")
        self.model = model
        self.constraint: Constraint | None = None
        self._processor = None if processor is None else checked(processor)
        if isinstance(output_type, Constraint):
            if output_type.vocabulary != model.vocabulary:
                raise OptionError(
                    "The constraint was compiled for another vocabulary than this model's. "
                    "Compile it with structgen.compile(output_type, model.vocabulary)."
                )
            if compile_options:
                raise OptionError(
                    f"{', '.join(compile_options)}: the constraint is compiled already. Pass this "
                    "to structgen.compile."
                )
            self.constraint = output_type
        elif output_type is not None:
            self.constraint = compile_constraint(
                as_model_writes(model, output_type), model.vocabulary, **compile_options
            )

    def __repr__(self) -> str:
        what = "free text" if self.constraint is None else self.constraint.output.name
        return f"Generator({self.model.name!r}, {what})"

    def __call__(self, prompt: Prompt | Sequence[Prompt], **options: Any) -> Any:
        """Return the output for ``prompt``, a str; for several prompts a list of them.

        Args:
            prompt: text, given to the model as it is; or a list of chat messages with ``role`` and
                ``content``, which go through the model's chat template. Or a list of such prompts:
                of strings, or of lists of messages; an empty list is no prompts, and gives ``[]``.
            options: search options, see `structgen.decoding.options.SearchOptions`. With an output
            type the
                output completes within ``max_new_tokens``. Without it, the context is the only
                limit: small models often do not stop by themselves, and 8,000 tokens take minutes,
                so pass it, or bound lists and strings in the type. With ``n=`` a list of so many
                outputs stands in the place of each.

        Raises:
            PromptError: empty, malformed, or longer than the context.
            OptionError: an unknown option or a bad value.
            BudgetTooSmall: fewer tokens left than any output of this type needs.
            IncompleteOutput: a stop string, ``timeout`` or ``cancel`` cut the output before it
                was whole; it carries the text.
            Abstained: the model is less sure of a value than ``abstain_below`` asks, or the call
                was over before that was known.
            BatchError: of several outputs, some failed; it has the others. An `OptionError` or
                `BudgetTooSmall` that is the same for all of them is raised as itself.
        """

        def text(run: Generation) -> str:
            return run.sure_result().text

        return self._outputs(prompt, options, text)

    def parse(self, prompt: Prompt | Sequence[Prompt], **options: Any) -> Any:
        """Return the output for ``prompt`` as a value of the output type; or a list, as above.

        Args and raises as for calling the generator, and also:
            ParseError: the text fits the type's grammar, but not a check that only its class can
                make (a Pydantic validator, say).
            OptionError: the generator has no output type.
        """
        if self.constraint is None:
            raise OptionError("parse needs an output type. Call the generator to get text.")
        output = self.constraint.output

        def value(run: Generation) -> Any:
            return output.parse(run.sure_result().text)

        return self._outputs(prompt, options, value)

    def result(self, prompt: Prompt | Sequence[Prompt], **options: Any) -> Any:
        """Return the `GenerationResult` for ``prompt``: tokens, counts, times; or a list, as above.

        Args and raises as for calling the generator, but never `Abstained`: `result.abstained`
        says it.
        """
        return self._outputs(prompt, options, lambda run: run.result)

    def probabilities(
        self,
        prompt: Prompt,
        *,
        tolerance: float = TOLERANCE,
        adapter: str | None = None,
        special_tokens: str = "template",
        timeout: float | None = None,
        cancel: Any = None,
        **options: Any,
    ) -> dict[str, float]:
        """Return the model's probability of each output there can be, the likeliest first.

        For output types of few texts: a `Literal`, an `Enum`, a list of choices, ``bool``, a small
        range of integers. Ways to write the same value (``-0`` is 0) are one output, under the
        shortest. What is computed, and how exactly: `structgen.insight.confidence`.

        Args:
            prompt: one, as for calling the generator.
            tolerance: how far off a probability may be; 0: sum over every token sequence.
            adapter: name of an adapter of `TextModel.load_adapter` to run with.
            special_tokens: where they are read in a chat, see
                `structgen.decoding.options.SearchOptions`.
            timeout: seconds this may take.
            cancel: an object with ``is_set()``, asked before each pass of the model: a
                ``threading.Event``.
            options: none; the others of a call are refused, since none of them bears on this.

        Raises:
            PromptError: empty, malformed, or longer than the context; or the context ends before
                the likely outputs do.
            OptionError: there are other options, or bad values; the output type has more than 1,000
                texts, is an object or array, or there is none; the adapter is not loaded.
            IncompleteOutput: ``timeout`` or ``cancel`` ended it, so there are no probabilities.

        Cost: one pass of the model for the prompt, and some 5 to 50 for a handful of labels.
        """
        if options:
            raise OptionError(
                f"probabilities takes no {next(iter(options))}=: what it computes is the "
                "model's own distribution, as without a mask, a temperature or a search. Its "
                "options are tolerance=, adapter=, special_tokens=, timeout= and cancel=."
            )
        texts = None if self.constraint is None else whole_texts(self.constraint)
        if self.constraint is None or texts is None:
            what = "free text" if self.constraint is None else self.constraint.output.name
            raise OptionError(
                f"probabilities needs an output type of at most {MAX_ALTERNATIVES:,} texts and no "
                f"objects or arrays, which {what} is not. For the fields of an object: "
                "generator.result(...).confidence."
            )
        began = time.perf_counter()
        search = search_options.parse(
            {
                "timeout": timeout,
                "cancel": cancel,
                "adapter": adapter,
                "special_tokens": special_tokens,
            }
        )
        if isinstance(tolerance, bool) or not isinstance(tolerance, numbers.Real):
            raise OptionError(f"tolerance={tolerance!r} is not a number.")
        if not 0 <= tolerance < 1:
            raise OptionError(f"tolerance={tolerance!r} is out of range. It must be from 0 to 1.")
        check_adapter(self.model, adapter)
        if chat.is_batch(prompt):
            raise PromptError(
                "probabilities takes one prompt. For several: "
                "[generator.probabilities(prompt) for prompt in prompts]."
            )
        site = Site("$", 0, 0, texts, names_of(self.constraint, texts))
        prompt_ids = encode(self.model, prompt, search.special_tokens)
        check_fits(self.model, len(prompt_ids))
        is_late = False

        def give_up() -> bool:
            nonlocal is_late
            is_late = search.timeout is not None and time.perf_counter() > began + search.timeout
            return is_late or (search.cancel is not None and search.cancel.is_set())

        open_sequence = opener(self.model, prompt_ids, adapter, give_up)
        try:
            found = measure(
                self.constraint, site, (), open_sequence, tolerance=tolerance, give_up=give_up
            )
        except GivenUp:
            why = f"timeout={timeout:g} seconds were over" if is_late else "it was cancelled"
            raise IncompleteOutput(
                f"The probabilities are not known: {why}. A greater tolerance= takes fewer passes.",
                text="",
            ) from None
        return {alternative.text: alternative.probability for alternative in found.alternatives}

    def stream(self, prompt: Prompt, **options: Any) -> Stream:
        """Return the output for ``prompt`` piece by piece, as it is generated.

        Arguments are checked before this returns; the model runs as the stream is read. Closing
        the stream, or dropping it, frees the sequence.

        Args and raises as for calling the generator.
        """
        search = search_options.parse(options)
        if chat.is_batch(prompt) or search.n is not None:
            raise OptionError("stream makes one output: it takes one prompt and no n=.")
        return Stream(self.model, self._run(prompt, search))

    def _run(self, prompt: Any, search: SearchOptions) -> Generation:
        prompt_ids = encode(self.model, prompt, search.special_tokens, self.constraint)
        return Generation(self.model, self.constraint, self._processor, prompt_ids, search)

    def _outputs(
        self,
        prompt: Prompt | Sequence[Prompt],
        options: Mapping[str, Any],
        convert: Callable[[Generation], Any],
    ) -> Any:
        """Make one output or several; each is converted, and what fails there fails there."""
        began = time.perf_counter()
        search = search_options.parse(options)
        is_batch = chat.is_batch(prompt) or (isinstance(prompt, (list, tuple)) and not prompt)
        if not is_batch and search.n is None:
            run = self._run(prompt, search)
            for _ in Stream(self.model, run):
                pass
            return convert(run)
        prompts: Sequence[Any] = prompt if is_batch else [prompt]
        n = search.n or 1
        settings = search_options.resolve(search, self.model.search_defaults)
        if n > 1 and not settings.get("do_sample"):
            raise OptionError(
                f"n={n} outputs of a greedy call would be the same. Pass temperature= to sample."
            )
        runs: dict[int, Generation] = {}
        errors: dict[int, Exception] = {}
        for i, one in enumerate(prompts):
            try:
                prompt_ids = encode(self.model, one, search.special_tokens, self.constraint)
                for k in range(n):
                    runs[i * n + k] = Generation(
                        self.model, self.constraint, self._processor, prompt_ids, search, index=k
                    )
            except StructgenError as error:
                errors.update((i * n + k, error) for k in range(n))
                for k in range(n):
                    runs.pop(i * n + k, None)
        places = list(runs)
        forces = self.constraint is not None and search.forced
        batch_size = search.batch_size
        if batch_size is None and settings.get("random_seed", -1) >= 0:
            # In a batch, forced text and rows that outlast others are run in other passes, which
            # round differently. Who gives a seed wants what a call for one gives.
            batch_size = 1
        failed = make_all(
            self.model,
            [runs[place] for place in places],
            batch_size,
            forces=forces,
            began=began,
        )
        errors.update((places[i], error) for i, error in failed.items())
        outputs: list[Any] = [None] * (len(prompts) * n)
        for place, run in runs.items():
            if place not in errors:
                try:
                    outputs[place] = convert(run)
                except StructgenError as error:
                    errors[place] = error
        if search.return_errors:
            for place, failure in errors.items():
                outputs[place] = failure
        results = outputs
        if search.n is not None:
            results = [outputs[i * n : (i + 1) * n] for i in range(len(prompts))]
        if errors and not search.return_errors:
            first = min(errors)
            if len(errors) == len(outputs) and _is_one_mistake(list(errors.values())):
                raise errors[first]
            raise BatchError(
                _what_failed(errors, len(outputs)),
                results=results,
                errors={
                    (divmod(place, n) if search.n is not None else place): errors[place]
                    for place in sorted(errors)
                },
            ) from errors[first]
        return results if is_batch else results[0]


def _is_one_mistake(errors: Sequence[Exception]) -> bool:
    """Whether it is the call that is wrong, and not any of its outputs."""
    return isinstance(errors[0], (OptionError, BudgetTooSmall)) and all(
        type(error) is type(errors[0]) and str(error) == str(errors[0]) for error in errors
    )


def _what_failed(errors: Mapping[int, Exception], n_outputs: int) -> str:
    first = min(errors)
    said = str(errors[first]).rstrip()
    said += "" if said.endswith((".", "?", "…")) else "."
    if n_outputs == 1:
        return f"The only output failed: {said}"
    if len(errors) == n_outputs:
        return (
            f"All {n_outputs:,} outputs failed; the first: {said} Each one's error is in .errors."
        )
    return (
        f"{len(errors):,} of {n_outputs:,} outputs failed; the first: output {first}: "
        f"{said} The others are in .results; return_errors=True returns errors in "
        "their places instead."
    )
