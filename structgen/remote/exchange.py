"""One output of a remote model: builds requests, reads replies, counts attempts; has no socket.

An exchange interprets replies (text, reasoning, tool calls, refusals, why they ended), checks
whether they match the type, and decides how to ask again. The caller sends what `request` returns
and passes the reply back, whole or in pieces, so sync and async code share it.

The package ``openai`` does not validate pieces: any attribute may be missing, null or of another
type. Whole replies arrive as JSON or other text, not as its classes. Only the functions that read
replies touch these objects; they return reliable values or raise a `RemoteError`.
"""

from __future__ import annotations

import codecs
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn, final

from structgen.constraint import Constraint
from structgen.decoding import Chunk, GenerationResult, Parsed, SearchOptions, Timings, Usage
from structgen.errors import (
    Attempt,
    IncompleteOutput,
    ParseError,
    Refused,
    RemoteError,
    StructgenError,
    ValidationFailed,
    printable,
)
from structgen.sampling import TokenLogprob, TopToken

from .reading import MOST_EXPLAINED, Answer, NotOfType
from .sending import Sent

_PART_SHOWN = 200


class Characters:
    """Text in pieces, which some servers split within a character.

    JSON writes characters beyond the first 65,536 as two surrogates; if each came in a piece of its
    own, they are joined here.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-16-le")().decode

    def feed(self, text: str, is_last: bool = False) -> str:
        """Add a piece; return the text of whole characters.

        Raises:
            RemoteError: the text has a lone surrogate.
        """
        try:
            return self._decode(text.encode("utf-16-le", "surrogatepass"), is_last)
        except UnicodeDecodeError as error:
            half = error.object.decode("utf-16-le", "surrogatepass")
            raise RemoteError(
                "The server's answer has a lone surrogate, which is not text: "
                f"{half[-_PART_SHOWN:]!a}"
            ) from None


class CallPart(NamedTuple):
    """A tool call or a piece of one: its number, and pieces of its name and arguments."""

    number: int
    name: str
    arguments: str


class Piece(NamedTuple):
    """A message, or a piece of one."""

    content: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[CallPart, ...] = ()
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


class Counts(NamedTuple):
    """Numbers of tokens from the server; 0 if it does not count."""

    prompt: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


def read(
    reply: Any, part: Literal["message", "delta"], *, logprobs: bool
) -> tuple[Piece | None, Counts]:
    """Read a reply, or a piece of one.

    Returns:
        The message or piece, None if there is none; and the counts.

    Raises:
        RemoteError: it is not understood.
    """
    choices = _get(reply, "choices")
    if not isinstance(choices, (list, type(None))) or isinstance(reply, (str, list, type(None))):
        _not_understood(reply)
    counts = _counts(_get(reply, "usage"))
    if not choices:
        return None, counts
    choice = choices[0]
    message = _get(choice, part)
    if message is None and part == "message":
        _not_understood(choice)
    finish_reason = _get(choice, "finish_reason")
    content, reasoning = _content(_get(message, "content"))
    found = Piece(
        content,
        # Not in OpenAI's API; vLLM, SGLang, llama.cpp and others use one name or the other.
        reasoning or _text(_get(message, "reasoning_content")) or _text(_get(message, "reasoning")),
        _text(_get(message, "refusal")),
        tuple(_calls(_get(message, "tool_calls"))),
        finish_reason if isinstance(finish_reason, str) else None,
        tuple(_logprobs(_get(choice, "logprobs"))) if logprobs else (),
    )
    return found, counts


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _content(value: Any) -> tuple[str, str]:
    """Return the text of a message and the thoughts in it. Some servers write it in parts."""
    texts: dict[str, list[str]] = {"text": [], "thinking": []}
    _add(texts, value, "text")
    return "".join(texts["text"]), "".join(texts["thinking"])


def _add(texts: Mapping[str, list[str]], found: Any, kind: str) -> None:
    for one in found if isinstance(found, list) else ():
        inner = _get(one, "type")
        if not isinstance(inner, str) or inner not in texts:
            _not_understood(one)
        _add(texts, _get(one, inner), kind if kind == "thinking" else inner)
    if isinstance(found, str):
        texts[kind].append(found)
    elif not isinstance(found, (list, type(None))):
        _not_understood(found)


def _calls(value: Any) -> Iterator[CallPart]:
    if not isinstance(value, (list, type(None))):
        _not_understood(value)
    for place, call in enumerate(value or ()):
        number = _get(call, "index")
        function = _get(call, "function")
        arguments = _get(function, "arguments")
        if not isinstance(arguments, (str, type(None))):  # an object, which is not a call without
            _not_understood(call)
        yield CallPart(
            number if type(number) is int else place, _text(_get(function, "name")), arguments or ""
        )


def _counts(usage: Any) -> Counts:
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    cached = _count(_get(usage, "prompt_tokens_details"), "cached_tokens")
    reasoning = _count(_get(usage, "completion_tokens_details"), "reasoning_tokens")
    return Counts(prompt, max(completion - reasoning, 0), cached, reasoning)


def _count(holder: Any, name: str) -> int:
    value = _get(holder, name)
    return value if type(value) is int and value > 0 else 0


def _logprobs(found: Any) -> Iterator[TokenLogprob]:
    for one in _list(_get(found, "content")):
        token, logprob = _scored(one)
        yield TokenLogprob(
            token_id=-1,
            token=token,
            is_forced=False,
            logprob=logprob,
            unmasked_logprob=None,
            top=tuple(
                TopToken(-1, *_scored(other), True) for other in _list(_get(one, "top_logprobs"))
            ),
            unmasked_top=(),
            removed=None,
        )


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _scored(one: Any) -> tuple[bytes, float]:
    """Return a token and its log probability."""
    logprob, data, token = _get(one, "logprob"), _get(one, "bytes"), _get(one, "token")
    is_known = isinstance(logprob, (int, float)) and not isinstance(logprob, bool)
    if not is_known or not isinstance(token, str) or not isinstance(data, (list, type(None))):
        _not_understood(one)
    try:
        written = token.encode("utf-8", "surrogatepass") if data is None else bytes(data)
        return written, float(logprob)
    except (TypeError, ValueError, OverflowError):
        _not_understood(one)


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def _not_understood(found: Any) -> NoReturn:
    shown = _excerpt(found, _PART_SHOWN)
    raise RemoteError(f"The server's answer cannot be read: {shown}")


_SHOWN = 500
_SLICE = 1 << 8  # characters that are checked at once: each takes from 1 us to 15 ms
_SLOW_SECONDS = 0.02
_LEAST = 64  # characters that each piece, call and score counts as, for it may be empty; an
# alternative of a score counts as half of that
_MOST_CHARACTERS = 64 << 20  # of all replies to a call; a server may ignore max_tokens
_MORE_EACH = 1 << 20  # more for each further output
_MOST_COMMAS = 200_000  # of a whole answer, which is parsed at once: validators may refuse each
_MOST_CALLS = 10_000  # calls of one reply, each of which is written several times
CODINGS = ("identity", "gzip", "deflate")
"""Compressions that are accepted; of others some old clients unpack a whole piece at once."""
_FAILED = frozenset(
    ("abort", "aborted", "cancelled", "error", "timeout", "insufficient_system_resource")
)
"""The finish reasons of failed answers; OpenAI's API has none."""


@dataclass(frozen=True)
class Question:
    """What is asked, and how answers are read.

    Attributes:
        constraint: the output type, over bytes; None: free text.
        sent: what is sent of the type.
        arguments: arguments of the request: model, messages, options.
        extra: the extra body of the request.
        search: the checked options of the call.
    """

    constraint: Constraint | None
    sent: Sent
    arguments: Mapping[str, Any]
    extra: Mapping[str, Any]
    search: SearchOptions


@dataclass
class _Reply:
    """The reply of one attempt so far."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: dict[int, tuple[list[str], list[str]]] = field(default_factory=dict)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    counts: Counts = field(default_factory=Counts)
    n_checked: int = 0  # of a whole answer
    wrong: str | None = None
    spelt: defaultdict[object, Characters] = field(  # of each text that comes in pieces
        default_factory=lambda: defaultdict(Characters)
    )


class Replies:
    """Counts all replies to a call, because all its outputs and attempts are in memory together."""

    def __init__(self, n_outputs: int = 1) -> None:
        self._most = _MOST_CHARACTERS + (n_outputs - 1) * _MORE_EACH
        self._n_characters = 0

    def add(self, piece: Piece) -> None:
        """Count a message or piece. Raise RemoteError if it is too much."""
        size = _LEAST * (1 + len(piece.calls))
        size += len(piece.content) + len(piece.reasoning) + len(piece.refusal)
        size += sum(len(call.name) + len(call.arguments) for call in piece.calls)
        for score in piece.logprobs:
            size += _LEAST + len(score.token)
            size += sum(_LEAST // 2 + len(one.token) for one in score.top)
        self._n_characters += size
        if self._n_characters > self._most:
            raise RemoteError(f"The server sent more than {self._most:,} characters.")


@final
class Exchange:
    """One output in progress. One caller drives it; `cancel` may be called from any thread.

    Attributes:
        is_in_pieces: whether its latest request asks for a stream.
        is_timed: whether it may have to end early, so that it must come in pieces.
        has_scores: whether log probabilities are requested.
    """

    def __init__(
        self, question: Question, *, is_stream: bool = False, replies: Replies | None = None
    ) -> None:
        """Begin.

        Args:
            question: what is asked.
            is_stream: whether text is returned as it arrives, so that it cannot be taken back.
            replies: the call's counter, if it is for several outputs.
        """
        self._question = question
        self._replies = replies or Replies()
        self._is_stream = is_stream
        self.is_in_pieces, self.has_scores = False, bool(question.search.logprobs)
        self.is_timed = (question.search.timeout, question.search.cancel) != (None, None)
        self._messages: list[dict[str, Any]] = list(question.arguments["messages"])
        self._start()
        self._step = 64  # characters that are checked next
        self._attempts: list[Attempt] = []
        self._counts = [0, 0, 0, 0]  # tokens of prompt, output, cache and reasoning
        self._retried_tokens = 0
        self._began = time.perf_counter()
        self._first: float | None = None
        self._total = 0.0
        self._cancelled = False
        self._result: GenerationResult[Any] | None = None

    # -- what the driver asks ---------------------------------------------------------------

    @property
    def is_interrupted(self) -> bool:
        """Whether it must end now."""
        cancel, left = self._question.search.cancel, self.seconds_left
        if self._cancelled or (left is not None and left <= 0):
            return True
        return cancel is not None and bool(cancel.is_set())

    @property
    def seconds_left(self) -> float | None:
        """The seconds left of ``timeout``; None: no timeout."""
        timeout = self._question.search.timeout
        return None if timeout is None else self._began + timeout - time.perf_counter()

    def request(self, *, in_pieces: bool) -> dict[str, Any]:
        """Return the arguments of the next request for ``client.chat.completions.create``."""
        question, self.is_in_pieces = self._question, in_pieces
        self._start()
        arguments = {**question.arguments, **question.sent.arguments, "messages": self._messages}
        body = arguments.get("extra_body") or {}  # the client lets it override options
        body = {name: one for name, one in body.items() if name not in arguments}
        arguments["extra_body"] = {**body, **question.extra, **question.sent.extra}
        if in_pieces:
            arguments |= {"stream": True, "stream_options": {"include_usage": True}}
        arguments["extra_headers"] = {
            "Accept-Encoding": ", ".join(CODINGS),
            **(arguments.get("extra_headers") or {}),
        }
        left = self.seconds_left
        if left is not None:
            arguments["timeout"] = max(left, 0.001)
        return arguments

    def take(self, completion: Any) -> None:
        """Take a whole reply.

        Raises:
            RemoteError: the reply has no answer.
        """
        answer, counts = read(completion, "message", logprobs=self._question.search.logprobs)
        self._count(counts)
        if answer is None:
            raise RemoteError(
                f"The server's reply has no choices, so it has no answer: {_excerpt(completion)}"
            )
        self._put(answer)

    def take_piece(self, piece: Any) -> Iterator[Chunk]:
        """Read a piece of a reply; yield the text that can be returned now, if any.

        Raises:
            ParseError: no text of the type continues like this; in streams only.
            RemoteError: it is not understood.
        """
        delta, counts = read(piece, "delta", logprobs=self._question.search.logprobs)
        self._count(counts)
        if delta is None:
            return
        reasoning, content = self._put(delta)
        if reasoning:
            yield Chunk(reasoning, "reasoning")
        if self._gives_text:
            try:
                yield from map(Chunk, self._fed(content))
            except NotOfType as error:
                raise self._failed(error) from None

    def check(self) -> Iterator[None]:
        """Check a whole answer in steps, between which an event loop can do other work.

        Raises:
            RemoteError: it has too many values.
        """
        reply = self._reply
        text = "" if self._gives_text or reply.finish_reason is None else self._raw
        if text.count(",") > _MOST_COMMAS:
            raise RemoteError(f"The server's answer has more than {_MOST_COMMAS:,} values.")
        ahead, reply.n_checked = text[reply.n_checked :], len(text)
        try:
            for _ in self._fed(ahead):
                yield
        except NotOfType as error:
            reply.wrong = str(error)

    def _fed(self, text: str) -> Iterator[str]:
        """Check a text in steps, which get shorter when they are slow; yield the text that is
        certain."""
        begin = 0
        while begin < len(text):
            began, end = time.perf_counter(), begin + self._step
            certain, begin = self._answer.feed(text[begin:end]), end
            is_slow = time.perf_counter() - began > _SLOW_SECONDS
            self._step = max(self._step // 8, 1) if is_slow else min(2 * self._step, _SLICE)
            yield certain

    def conclude(self) -> list[Chunk] | None:
        """Handle the end or interruption of a reply; return None if it must be requested again.

        Otherwise the returned text is the last piece, and `result` is ready.

        Raises:
            IncompleteOutput: the output has a type and was cut off.
            Refused: the model declined.
            ParseError: it does not match the type; `ValidationFailed` after several attempts.
            RemoteError: the reply ended without a finish reason.
        """
        reply, question = self._reply, self._question
        refusal = "".join(reply.refusal)
        if refusal:
            shown = printable(refusal[:_SHOWN])
            raise Refused(f"The model declined to answer: {shown}", text=refusal)
        if self.is_interrupted and reply.finish_reason is None:
            self._end("cancelled", whole=False)
            self._check_cut("timeout= or cancel= ended the call before the answer was complete")
            return []
        if reply.finish_reason is None:
            raise RemoteError(
                "The server ended its answer without a reason (no finish_reason), so it was "
                f"probably truncated. Received: {_excerpt(self._raw)}"
            )
        if reply.finish_reason in _FAILED:
            raise RemoteError(
                f"The server aborted its answer (finish_reason={reply.finish_reason!r}). "
                f"Received: {_excerpt(self._raw)}"
            )
        for one in reply.spelt.values():
            one.feed("", is_last=True)
        if reply.finish_reason == "content_filter":
            raise Refused(
                f"The server's content filter ended the answer. Received: {_excerpt(self._raw)}",
                text=self._raw,
            )
        if reply.finish_reason in ("length", "model_length", "max_tokens"):
            self._end("length", whole=False)
            self._check_cut(
                "the answer reached its token limit before it was complete. Raise "
                "max_new_tokens=, or bound the type"
            )
            return []
        try:
            rest = self._validate()
        except (NotOfType, ParseError) as error:
            failures = [self._failed(error)]
        else:
            self._end("stop", whole=True)
            return rest
        if len(self._attempts) > question.search.retries:
            raise failures.pop()  # it refers to this frame, and so to all that was received
        self._ask_again()
        return None

    # -- what callers ask -------------------------------------------------------------------

    @property
    def result(self) -> GenerationResult[Any]:
        """The result."""
        if self._result is None:
            return self._made(None, whole=False)
        return self._result

    def cancel(self) -> None:
        """Stop the output at the next piece. May be called from any thread."""
        self._cancelled = True

    def stop(self) -> None:
        """Stop the output now."""
        if self._result is None:
            self._end("cancelled", whole=False)

    # -- inside -----------------------------------------------------------------------------

    def _start(self) -> None:
        sent, self._reply = self._question.sent, _Reply()
        self._answer = Answer(self._question.constraint, sent.form, sent.has_nulls)

    @property
    def _gives_text(self) -> bool:
        """Whether text is returned as it arrives."""
        return self._is_stream and self._question.sent.tools is None

    @property
    def _raw(self) -> str:
        """The server's text."""
        syntax = None if self._question.sent.tools is None else self._question.sent.tools.syntax
        text = "".join(self._reply.content)
        if syntax is None:
            return text
        calls = (map("".join, parts) for _, parts in sorted(self._reply.calls.items()))
        return text + syntax.written(
            (json.dumps(name, ensure_ascii=False)[1:-1], arguments or "{}")
            for name, arguments in calls
        )

    def _put(self, piece: Piece) -> tuple[str, str]:
        """Record a message or a piece of one; return its reasoning and content."""
        self._replies.add(piece)
        reply = self._reply
        reply.finish_reason = piece.finish_reason or reply.finish_reason
        reply.logprobs += piece.logprobs
        content = reply.spelt["content"].feed(piece.content)
        reasoning = reply.spelt["reasoning"].feed(piece.reasoning)
        reply.content.append(content)
        reply.reasoning.append(reasoning)
        reply.refusal.append(reply.spelt["refusal"].feed(piece.refusal))
        for call in piece.calls:
            name, arguments = reply.calls.setdefault(call.number, ([], []))
            name.append(reply.spelt["name", call.number].feed(call.name))
            arguments.append(reply.spelt["arguments", call.number].feed(call.arguments))
            if len(reply.calls) > _MOST_CALLS:
                raise RemoteError(f"The server made more than {_MOST_CALLS:,} calls.")
        if self._first is None and (content or reasoning or reply.calls):
            self._first = time.perf_counter() - self._began
        return reasoning, content

    def _count(self, counts: Counts) -> None:
        before = self._reply.counts
        now = Counts(*map(max, before, counts))  # some servers send a running count with each piece
        self._counts = [a - b + c for a, b, c in zip(self._counts, before, now, strict=True)]
        self._reply.counts = now

    def _validate(self) -> list[Chunk]:
        """Check the whole answer; return the part that has not been returned yet.

        Raises:
            NotOfType: the automaton refuses it.
            ParseError: the type's own code refuses it.
        """
        constraint = self._question.constraint
        try:
            list(self.check())
            if self._reply.wrong is not None:
                raise NotOfType(self._reply.wrong)
            self._answer.finish()
        except NotOfType:
            if (
                constraint is not None
                and self._question.sent.form == "bare"
                and not self._gives_text
                and len(self._raw) <= MOST_EXPLAINED
            ):
                constraint.output.parse(self._raw)  # says more about it if it refuses it
            raise
        if constraint is not None and not self._is_stream:
            self._parsed(self._answer.text).get()
        return [] if self._gives_text or not self._answer.text else [Chunk(self._answer.text)]

    def _parsed(self, text: str) -> Parsed[Any]:
        constraint = self._question.constraint
        return Parsed(str if constraint is None else constraint.output.parse, text)

    def _failed(self, error: NotOfType | ParseError) -> StructgenError:
        """Return the error of an attempt, which is recorded."""
        name, text = self._name, self._raw
        self._attempts.append(Attempt("$", text, str(error)))
        if len(self._attempts) == 1:
            if isinstance(error, ParseError):
                return error
            return ParseError(
                f"The answer is not {name}: {error} The server did not enforce the type, or "
                f"structgen did not ask it to: see result.enforcement. Answer: {_excerpt(text)}",
                text=text,
            )
        listed = "\n".join(f"  {i}. {one.message}" for i, one in enumerate(self._attempts, 1))
        refused = ValidationFailed(
            f"None of {len(self._attempts)} answers is {name}:\n{listed}",
            text=text,
            attempts=tuple(self._attempts),
        )
        refused.__cause__ = error if isinstance(error, ParseError) else None
        return refused

    @property
    def _name(self) -> str:
        constraint = self._question.constraint
        return "free text" if constraint is None else constraint.output.name

    def _ask_again(self) -> None:
        """Add the answer and its error to the messages for the next attempt."""
        last = self._attempts[-1]
        self._retried_tokens += self._counts[1]
        self._counts[1] = 0
        self._messages = [
            *self._messages,
            # Each request repeats all answers before it, and a character takes up to 6 bytes there.
            {"role": "assistant", "content": last.text[:MOST_EXPLAINED] or "(no text)"},
            {
                "role": "user",
                "content": f"That answer was refused. {last.message}\nAnswer again, with all of it "
                "corrected and nothing else.",
            },
        ]

    def _check_cut(self, why: str) -> None:
        if self._question.constraint is not None:
            raise IncompleteOutput(
                f"The output is not a complete {self._name}: {why}.", text=self.result.text
            )

    def _end(self, reason: Any, *, whole: bool) -> None:
        self._total = time.perf_counter() - self._began
        self._result = self._made(reason, whole=whole)

    def _made(self, reason: Any, *, whole: bool) -> GenerationResult[Any]:
        question, reply = self._question, self._reply
        prompt, output, cached, reasoned = self._counts
        # An answer is read when it is whole; before that it is the server's text.
        text = self._answer.text if whole or self._is_stream else self._raw
        is_value = whole or (question.constraint is None and reason in ("stop", "length"))
        reasoning = "".join(reply.reasoning)
        return GenerationResult(
            text=text,
            token_ids=(),
            finish_reason=reason,
            usage=Usage(
                prompt,
                output,
                cached,
                reasoning_tokens=reasoned,
                retries=len(self._attempts) if whole else max(len(self._attempts) - 1, 0),
                retried_tokens=self._retried_tokens,
            ),
            timings=Timings(self._first, self._total or time.perf_counter() - self._began),
            mean_allowed_tokens=None,
            reasoning=reasoning or None,
            attempts=tuple(self._attempts),
            enforcement=question.sent.enforcement,
            _parsed=self._parsed(text) if is_value else None,
            _logprobs=tuple(reply.logprobs) if question.search.logprobs else None,
        )


def _excerpt(found: object, most: int = _SHOWN) -> str:
    shown = repr(found)
    return shown if len(shown) <= most else shown[:most] + "…"
