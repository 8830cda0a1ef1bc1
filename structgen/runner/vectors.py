"""Requests that make no text: embeddings, rankings and decisions.

Embedders and their decisions are called in threads, a few at once; their graphs run in processes
(see `hosts`). Decisions and vectors of a text model run in its process, between the passes of
outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from structgen.decisions import answers_to_json, questions_from_json, state_text
from structgen.decoding import check_may_fit, part_that_may_fit
from structgen.errors import ModelError, OptionError, PromptError, RequestError
from structgen.models.base import Model, Passes, after_start, most_characters
from structgen.models.embedding import Embedder, prompt_name_for, to_base64
from structgen.workers import run_errands

from .hosts import EmbeddingHost, Host, TextHost
from .requests import DecisionRequest, EmbeddingRequest, RerankRequest, are_tokens
from .responses import (
    DecisionResponse,
    DecisionUsage,
    Embedding,
    EmbeddingResponse,
    InputUsage,
    PromptTokensDetails,
    RerankResponse,
    RerankResult,
)

T = TypeVar("T")

_TURN_TOKENS = 512
"""Most tokens that run in one batch, which all other callers wait for. Four times as many would
save about a tenth of the total time."""


async def embed(
    host: Host, request: EmbeddingRequest, model: str, instead: str
) -> EmbeddingResponse:
    """Return the vectors of texts; ``instead`` ends the error for a model without vectors.

    Raises:
        RequestError: a field is wrong, a text too long, or the model has no vectors.
    """
    if request.input_type is not None and request.prompt_name is not None:
        raise RequestError("Pass prompt_name or input_type, not both.", param="input_type")
    inputs = await host.aside(partial(_inputs, host, request))
    if isinstance(host, TextHost):
        found, n_tokens = await _text_vectors(host, request, inputs, model, instead)
    else:
        found, n_tokens = await _embedded(host, request, inputs, model)

    def response() -> EmbeddingResponse:
        is_base64 = request.encoding_format == "base64"
        vectors: Sequence[Any] = to_base64(found) if is_base64 else found.tolist()
        return EmbeddingResponse(
            data=[Embedding(index=i, embedding=vector) for i, vector in enumerate(vectors)],
            model=model,
            usage=InputUsage(prompt_tokens=n_tokens, total_tokens=n_tokens),
        )

    return await host.aside(response)


async def _embedded(
    host: EmbeddingHost, request: EmbeddingRequest, texts: Sequence[Any], model: str
) -> tuple[npt.NDArray[np.float32], int]:
    """Return an embedder's vectors and the number of tokens of the texts."""
    embedder = host.embedder
    if embedder.is_cross_encoder:
        raise RequestError(f"{model} is a reranker and cannot make embeddings.", param="model")
    options: dict[str, Any] = {}
    for name in ("dimensions", "prompt_name"):
        if getattr(request, name) is not None:
            options[name] = getattr(request, name)
    if request.input_type is not None:
        options["prompt_name"] = prompt_name_for(request.input_type, embedder.prompts)
    result = await _turn(host, request, partial(embedder.aresult, texts, **options))
    return result.vectors, 0 if result.n_tokens is None else int(result.n_tokens.sum())


def in_bounds(embedder: Embedder, text: str, where: str, *, cuts: bool | None) -> str:
    """Return a text that is not much longer than the embedder can read. ``cuts``: return its
    beginning; None: it cannot be cut.

    Raises:
        RequestError: the text is too long.
    """
    length = embedder.max_length
    if len(text) <= (most := most_characters(length)):
        return text
    if cuts:
        return text[:most]
    takes = f"{most:,} characters" if length is None else f"{length:,} tokens"
    advice = "" if cuts is None else " or pass truncate_sequence=True"
    raise RequestError(
        f"{where} has {len(text):,} characters, but {embedder.name} accepts at most {takes}. "
        f"Split the text{advice}.",
        param=where.partition("[")[0],
    )


async def _turn(
    host: EmbeddingHost,
    request: EmbeddingRequest | RerankRequest,
    ask: Callable[..., Coroutine[Any, Any, T]],
) -> T:
    """Run an embedder for a request, with errors that name the request's fields."""
    on_truncation = "ignore" if request.truncate_sequence else "error"
    ask = partial(ask, on_truncation=on_truncation, batch_tokens=_TURN_TOKENS)
    try:
        return await host.turn(lambda pause: ask(pause=pause))
    except (OptionError, PromptError) as error:
        message = str(error).replace("on_truncation='warn'", "truncate_sequence=True")
        texts = "input" if isinstance(request, EmbeddingRequest) else "documents"
        param = "query" if message.startswith("The query") else texts
        raise RequestError(message, param=getattr(error, "option", None) or param) from error


def _inputs(host: Host, request: EmbeddingRequest) -> list[str | tuple[int, ...]]:
    """Return the texts of an ``input``, as strings or, for a text model, as token ids."""
    given, cuts = request.input, request.truncate_sequence
    if isinstance(given, str) or are_tokens(given):
        given = [given]
    if not isinstance(given, (list, tuple)) or not given:
        empty = " It is empty." if given == [] else ""
        raise RequestError(f"input must be a string or a list of strings.{empty}", param="input")
    found: list[str | tuple[int, ...]] = []
    for index, one in enumerate(given):
        where = f"input[{index}]"
        if are_tokens(one):
            try:
                if isinstance(host, TextHost):
                    host.check_tokens(one)
                    one = tuple(one)
                else:
                    one = host.embedder.detokenize(one)
            except OptionError as error:
                raise RequestError(f"{where}: {error}", param=where) from error
        elif not isinstance(one, str):
            raise RequestError(f"{where} is neither a string nor a list of token ids.", param=where)
        if not isinstance(host, TextHost):
            one = in_bounds(host.embedder, one, where, cuts=cuts)
        found.append(one)
    return found


async def rerank(host: EmbeddingHost, request: RerankRequest, model: str) -> RerankResponse:
    """Rank documents by how well they answer a query: with a cross-encoder, otherwise by cosine.

    Raises:
        RequestError: a field is wrong, or a text too long.
    """
    embedder, cuts, documents = host.embedder, request.truncate_sequence, []
    for index, document in enumerate(request.documents):
        text = document.get("text") if isinstance(document, Mapping) else document
        if not isinstance(text, str):
            raise RequestError(
                f"documents[{index}] is neither a string nor an object with a text field.",
                param=f"documents[{index}]",
            )
        documents.append(in_bounds(embedder, text, f"documents[{index}]", cuts=cuts))
    if not documents:
        raise RequestError("documents: the list is empty.", param="documents")
    query = in_bounds(embedder, request.query, "query", cuts=cuts)
    ranked = await _turn(host, request, partial(embedder.arerank, query, documents))
    tokens = await host.aside(partial(embedder.tokenize, [query, *documents]))
    n_tokens = sum(map(len, tokens))
    return RerankResponse(
        model=model,
        results=[
            RerankResult(
                index=one.index,
                relevance_score=one.score,
                document={"text": documents[one.index]} if request.return_documents else None,
            )
            for one in ranked[: request.top_n]
        ],
        usage=InputUsage(prompt_tokens=n_tokens, total_tokens=n_tokens),
    )


async def decide(host: Host, request: DecisionRequest, model: str) -> DecisionResponse:
    """Answer typed questions, with the probability of each answer.

    Raises:
        RequestError: a question or option is wrong.
    """
    given = request.questions
    if isinstance(host, EmbeddingHost) and host.embedder.is_cross_encoder:
        raise RequestError(f"{model} is a reranker and cannot make decisions.", param="model")
    try:
        each = given.values() if isinstance(given, Mapping) else given
        if isinstance(given, (Mapping, list)) and any(isinstance(one, Mapping) for one in each):
            given = questions_from_json(given)
    except OptionError as error:
        raise RequestError(f"questions: {error}", param="questions") from error

    def given_of(*names: str) -> dict[str, Any]:
        values = {name: getattr(request, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    settings = given_of("debias", "tolerance", "adapter")
    if host.decider is not None and settings:
        field = next(iter(settings))
        raise RequestError(f"{field}: the decider of {model} sets it. Remove it.", param=field)
    try:
        decider = host.make_decider(**settings)
        state = request.state
        if not isinstance(state, str):
            state = await host.aside(partial(state_text, state))
        ask = partial(decider.decide, state, given, **given_of("abstain_below", "timeout"))
        if isinstance(host, TextHost):
            answers = await ask()
        else:
            answers = await host.turn(lambda pause: ask(pause=pause))
    except OptionError as error:
        raise RequestError(str(error), param=error.option or "questions") from error
    except PromptError as error:
        raise RequestError(f"state: {error}", param="state") from error
    n_tokens = answers.usage.prompt_tokens
    response = DecisionResponse(
        model=model,
        answers=answers_to_json(answers),
        usage=DecisionUsage(
            prompt_tokens=n_tokens,
            total_tokens=n_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=answers.usage.cached_tokens),
        ),
    )
    response._answers = answers
    return response


# -- vectors of a text model, made in the process that has it ---------------------------------


def _vectors(
    model: Model,
    texts: Sequence[str | tuple[int, ...]],
    pooling: str,
    dimensions: int | None,
    cuts: bool,
) -> Passes[tuple[npt.NDArray[np.float32], int]]:
    """Yield an errand: the vectors of texts, and how many tokens these have.

    Args:
        model: the model.
        texts: each a text, or its tokens, which are used unchanged.
        pooling: as for `structgen.TextModel.embed`.
        dimensions: as for `structgen.TextModel.embed`.
        cuts: whether to cut texts that are too long.
    """
    rows = []
    for text in texts:
        if isinstance(text, str):
            if cuts:
                text = part_that_may_fit(model, text)
            else:
                check_may_fit(model, text)
            row = model.encode(text) if text else np.empty(0, np.int32)
            row = after_start(model.start_ids, row) if len(row) else row
        else:
            row = np.array(text, np.int32)
        rows.append(row[: model.context_length - 1] if cuts else row)
        yield  # thousands of texts take seconds
    work = cast(Any, model).embedding(rows, pooling=pooling, dimensions=dimensions)
    return (yield from work), sum(map(len, rows))


async def _text_vectors(
    host: TextHost,
    request: EmbeddingRequest,
    texts: Sequence[str | tuple[int, ...]],
    model: str,
    instead: str,
) -> tuple[npt.NDArray[np.float32], int]:
    """Return the vectors of texts, and the number of their tokens; ``instead`` as in
    `vectors.embed`.

    Raises:
        RequestError: a field is wrong, a text too long, or the model has no vectors.
    """
    if request.prompt_name is not None:
        raise RequestError(f"prompt_name: {model} has no prompts.", param="prompt_name")
    errand = partial(
        _vectors,
        texts=texts,
        pooling=host.pooling or "last",
        dimensions=request.dimensions,
        cuts=request.truncate_sequence,
    )
    try:
        (found,) = await run_errands(host.model, [errand])
    except ModelError as error:
        if error.lacks is None:
            raise
        raise RequestError(
            f"{model} is a text model and cannot make embeddings. {instead} Or convert the model "
            "to an embedder: `structgen models convert FILE.gguf OUT --hidden-states`.",
            param="model",
        ) from error
    except PromptError as error:
        raise RequestError(f"{error} Or pass truncate_sequence=True.", param="input") from error
    except OptionError as error:
        raise RequestError(str(error), param=error.option or "input") from error
    vectors: Any
    vectors, n_tokens = found
    return vectors, n_tokens
