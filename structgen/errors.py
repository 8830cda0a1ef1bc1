"""Every exception structgen raises, in one tree.

    StructgenError
    ├── OutputTypeError          the output type cannot be turned into a grammar
    │   ├── SchemaError          a JSON Schema is malformed                (path, keyword)
    │   │   └── UnsupportedFeature   valid, but cannot be enforced yet     (path, keyword, fix)
    │   ├── PatternError         a regular expression is malformed         (pattern, position)
    │   ├── GrammarError         a context-free grammar is malformed       (line, column)
    │   ├── Unsatisfiable        no text at all can satisfy the type       (path)
    │   └── CompileLimitExceeded a documented bound was hit                (limit, actual, path)
    ├── VocabularyError          a tokenizer file cannot be understood
    ├── TokenNotAllowed          ``Cursor.accept`` got a token outside the mask
    ├── BudgetTooSmall           fewer tokens than any valid output needs  (minimum, budget)
    ├── ModelError
    │   ├── RemoteError          a server cannot be reached, or fails      (status)
    │   ├── ModelNotFound        no such folder, catalogue name or repository (is_of_runner)
    │   ├── DownloadError        fetching failed or a digest did not match
    │   ├── ConversionError      weights cannot be converted
    │   └── WorkerDied           the process that runs a model ended by itself
    ├── OptionError              an unknown, misspelt or contradictory option (option, value)
    │   └── RequestError         a field of a request to a Runner          (param)
    ├── Overloaded               more requests wait than may               (retry_after)
    ├── PromptError              empty, malformed, or longer than the context
    ├── BatchError               some outputs of a call for several failed (results, errors)
    ├── IncompleteOutput         generation ended before the output was whole (text)
    ├── SessionError             a session cannot be stored, read or continued (session_id)
    ├── ToolServerError          a server of tools cannot be reached, or has failed (server)
    ├── Refused                  a remote model declined to answer         (text)
    ├── Abstained                less sure of a value than abstain_below asks (text, values)
    └── ParseError               finished text does not parse into the type  (text)
        └── ValidationFailed     nor did other texts, with retries=          (attempts)

and three warnings: UnenforcedWarning, with ``on_unsupported="warn"``, TruncationWarning, when an
embedder cuts texts, and UninformativeWarning, when decisions carry no signal.

A message says what is wrong, where, what was found, and how to fix it. This module imports nothing
of the package; every other module may import it.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal


def did_you_mean(word: object, known: Iterable[str], most: int = 1) -> str:
    """Return a blank and a question with the names nearest to ``word``; or an empty text."""
    near = difflib.get_close_matches(str(word), known, most)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def counted(number: int, noun: str) -> str:
    """``1 error``, ``2 errors``, for messages."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def failure(error: Exception) -> str:
    """Return why a file cannot be read, without its name, which an OSError repeats."""
    return getattr(error, "strerror", None) or str(error)


_MOST_CAUSES = 100


def let_go(error: BaseException) -> None:
    """Drop the tracebacks of an error and its causes.

    Call this where an error ends, after it was logged. A traceback refers to frames, and so to the
    request; if one of the frames refers to the error, only a full garbage collection frees them.
    """
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left and len(seen) < _MOST_CAUSES:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            left += [one.__context__, one.__cause__]


_LONGEST_MESSAGE = 4_000
_END = 1_000


class StructgenError(Exception):
    """Base class of all structgen errors. Pickling and copying keep the attributes.

    A message may quote what was passed; ``str`` shows the beginning and end of a long one.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) <= _LONGEST_MESSAGE:
            return text
        return f"{text[: _LONGEST_MESSAGE - _END]} … {text[-_END:]}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with only the message.
        return _again, (type(self), self.args, dict(self.__dict__))


def _again(kind: type[StructgenError], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class OutputTypeError(StructgenError):
    """The output type cannot be turned into a grammar.

    Attributes:
        terminal: the name of the grammar's terminal that it concerns; or None.
    """

    terminal: str | None = None

    def inside(self, where: str) -> OutputTypeError:
        """Return the same error of a part; its message begins with where that is."""
        found = _again(type(self), (f"{where}: {self}",), self.__dict__)
        assert isinstance(found, OutputTypeError)
        return found

    def put(self, text: str, line: int, column: int) -> None:
        """Add the place in ``text`` to the message."""
        self.args = (f"{self}{_place(text, line, column)}",)


class SchemaError(OutputTypeError):
    """A JSON Schema is malformed.

    Attributes:
        path: JSON path of the wrong place, e.g. ``$.properties.tags``.
        keyword: the wrong keyword; None: the schema itself has the wrong type.
    """

    def __init__(self, message: str, *, path: str = "$", keyword: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.keyword = keyword


class UnsupportedFeature(SchemaError):
    """A valid construct that cannot be enforced exactly, and is therefore refused.

    Attributes:
        fix: what the caller can do instead.
    """

    def __init__(
        self, message: str, *, path: str = "$", keyword: str | None = None, fix: str = ""
    ) -> None:
        between = "\n  " if "\n" in message else " "
        super().__init__(f"{message}{between}{fix}".rstrip(), path=path, keyword=keyword)
        self.fix = fix


class UnenforcedWarning(UserWarning):
    """A keyword that cannot be enforced was left out: outputs may violate it."""


class TruncationWarning(UserWarning):
    """Texts were longer than an embedder reads: vectors are of their beginnings only."""


class UninformativeWarning(UserWarning):
    """Answers of a decider carry no signal: the model would give the same ones for any state."""


class PatternError(OutputTypeError):
    """A regular expression is malformed, or uses a construct that is not regular.

    Attributes:
        pattern: the whole pattern.
        position: 0-based code-point offset of the problem, or None.
        is_valid: whether the pattern is well formed but not regular.
    """

    def __init__(
        self, message: str, *, pattern: str, position: int | None = None, is_valid: bool = False
    ) -> None:
        if position is not None:
            line = pattern.count("\n", 0, position)
            column = position - pattern.rfind("\n", 0, position) - 1
            shown = pattern.split("\n")[line].expandtabs(1)
            message += f", at position {position}"
            if "\n" in pattern:
                message += f" (line {line + 1}, column {column + 1})"
            message += f"\n  {shown}\n  {' ' * column}^"
        else:
            message = f"{message}\n  {pattern}"
        super().__init__(message)
        self.pattern = pattern
        self.position = position
        self.is_valid = is_valid


class GrammarError(OutputTypeError):
    """A context-free grammar is malformed.

    Attributes:
        line: 1-based line of the problem, or None.
        column: 1-based column, in code points, or None.
    """

    def __init__(
        self, message: str, *, text: str = "", line: int | None = None, column: int | None = None
    ) -> None:
        if line is not None and column is not None:
            message += _place(text, line, column)
        super().__init__(message)
        self.line = line
        self.column = column

    def noted(self, note: str) -> GrammarError:
        """Return the error with one more sentence before the pattern and the text."""
        what, shown, rest = str(self).partition("\n")
        stop = "" if what.endswith((".", "?", "…", ";")) else "."
        error = GrammarError(f"{what.rstrip()}{stop} {note}{shown}{rest}")
        error.line, error.column = self.line, self.column
        return error


def _place(text: str, line: int, column: int) -> str:
    """Return lines for a message that show a place in a text, with a caret."""
    out = f"\n  at line {line}, column {column}"
    # Not at other line ends of Python: `line` counts \n only.
    lines = text.split("\n")
    if 0 < line <= len(lines) and (lines[line - 1] or line < len(lines)):
        shown = lines[line - 1].rstrip("\r").expandtabs(1)
        out += f"\n  {shown}\n  {' ' * (column - 1)}^"
    return out


class Unsatisfiable(OutputTypeError):
    """No text at all satisfies the output type.

    Attributes:
        path: JSON path of the contradiction, ``$`` for the whole type.
    """

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class CompileLimitExceeded(OutputTypeError):
    """A documented limit on compile work was reached.

    Attributes:
        limit: the limit.
        actual: what was needed, as far as it was counted.
        path: JSON path of the schema, or rules of the grammar, that need so much; None: not known.
    """

    def __init__(self, message: str, *, limit: int, actual: int, path: str | None = None) -> None:
        where = "" if path is None or " at $" in message else f", at {path}"
        super().__init__(f"{message}{where} (limit {limit:,}, reached {actual:,})")
        self.limit = limit
        self.actual = actual
        self.path = path
        self._message = message

    def _with(self, message: str, path: str | None) -> CompileLimitExceeded:
        return CompileLimitExceeded(message, limit=self.limit, actual=self.actual, path=path)

    def inside(self, where: str) -> CompileLimitExceeded:
        """See `OutputTypeError`."""
        return self._with(f"{where}: {self._message}", self.path)

    def again(self) -> CompileLimitExceeded:
        """Return a new error with the same message and attributes."""
        return self._with(self._message, self.path)

    def at(self, path: str) -> CompileLimitExceeded:
        """Return the same error with a path; the error itself if it has one."""
        return self if self.path is not None else self._with(self._message, path)


def check_limit(actual: int, limit: int, message: str) -> None:
    """Raise `CompileLimitExceeded` if ``actual`` is more than ``limit``."""
    if actual > limit:
        raise CompileLimitExceeded(message, limit=limit, actual=actual)


class VocabularyError(StructgenError):
    """A tokenizer file is missing, malformed or of an unknown kind."""


class TokenNotAllowed(StructgenError):
    """``Cursor.accept`` was given a token that the mask forbids.

    Attributes:
        token_id: the rejected token id.
    """

    def __init__(self, message: str, *, token_id: int) -> None:
        super().__init__(message)
        self.token_id = token_id


class BudgetTooSmall(StructgenError):
    """The token budget is smaller than any valid output.

    Attributes:
        minimum: a number of tokens that is enough; slightly fewer may be enough for another output.
        budget: the given number of tokens.
    """

    def __init__(self, message: str, *, minimum: int, budget: int) -> None:
        super().__init__(message)
        self.minimum = minimum
        self.budget = budget


class ModelError(StructgenError):
    """A model cannot be found, fetched, converted or loaded.

    Attributes:
        lacks: the feature that the model lacks, such as an output of its graph; or None.
    """

    lacks: str | None = None


class RemoteError(ModelError):
    """The server of a remote model cannot be reached, or does not answer the request.

    Attributes:
        status: the HTTP status; None: there was no answer.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelNotFound(ModelError):
    """No folder, catalogue entry or repository has this name.

    Attributes:
        is_of_runner: whether the name is missing in a Runner.
    """

    is_of_runner = False


class DownloadError(ModelError):
    """A download failed, or the file does not have the expected digest."""


class ConversionError(ModelError):
    """Weights cannot be converted into an ONNX Runtime GenAI folder."""


class WorkerDied(ModelError):
    """The process of a model ended by itself, or hung and was killed; its calls failed.

    The next call starts another process.
    """


class OptionError(StructgenError):
    """An unknown, misspelt or contradictory option.

    Attributes:
        option: the name of the option; None: the error names none.
        value: the passed value, or None.
    """

    def __init__(self, message: str, *, option: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.option = option
        self.value = value

    def naming(self, name: str) -> str:
        """Return the message with ``name`` as the option's name."""
        text = str(self)
        return text if self.option is None else text.replace(f"{self.option}=", f"{name}=")


class RequestError(OptionError):
    """A field of a request to a `structgen.Runner` is unknown, unsupported or wrong.

    Attributes:
        param: the path of the field, such as ``response_format.json_schema.schema.properties.x``;
            None: the request as a whole.
        kind: what is wrong with the field.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        kind: Literal["invalid", "missing", "unsupported"] = "invalid",
    ) -> None:
        super().__init__(message)
        self.param = param
        self.kind = kind


class Overloaded(StructgenError):
    """Too many requests wait for the model. Send this one again later.

    Attributes:
        retry_after: seconds to wait.
    """

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PromptError(StructgenError):
    """The prompt is empty, malformed, or longer than the model's context.

    Attributes:
        is_too_long: whether the prompt is too long.
    """

    def __init__(self, message: str, *, is_too_long: bool = False) -> None:
        super().__init__(message)
        self.is_too_long = is_too_long


class IncompleteOutput(StructgenError):
    """Generation ended before the output was complete.

    Attributes:
        text: the text so far.
    """

    def __init__(self, message: str, *, text: str) -> None:
        super().__init__(message)
        self.text = text


class SessionError(StructgenError):
    """A session of a `structgen.Runner` cannot be stored, read or continued.

    Attributes:
        session_id: the id of the session; None: the error is about all sessions.
        response: the answer that could not be stored, or None.
    """

    def __init__(self, message: str, *, session_id: str | None = None) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.response: object = None


class ToolServerError(StructgenError):
    """A server of tools cannot be reached or has failed, or one of its tools cannot be offered.

    Attributes:
        server: the name of the server.
    """

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(message)
        self.server = server


class Refused(StructgenError):
    """A remote model or its content filter declined to answer.

    Attributes:
        text: its text.
    """

    def __init__(self, message: str, *, text: str) -> None:
        super().__init__(message)
        self.text = text


class BatchError(StructgenError):
    """Some of several outputs failed; the error contains the others.

    Attributes:
        results: the results of the call, with None for failed outputs.
        errors: the errors by index of the prompt, or by ``(prompt, sample)`` with ``n=``.
    """

    def __init__(
        self, message: str, *, results: list[object], errors: dict[object, Exception]
    ) -> None:
        super().__init__(message)
        self.results = results
        self.errors = errors


class Abstained(StructgenError):
    """The output is complete, but a value's probability is lower than ``abstain_below``.

    Attributes:
        text: the output.
        values: the `structgen.insight.ValueConfidence` of each such value.
    """

    def __init__(self, message: str, *, text: str, values: tuple[Any, ...]) -> None:
        super().__init__(message)
        self.text = text
        self.values = values


class ParseError(StructgenError):
    """Finished text does not parse into the output type.

    Attributes:
        text: the text.
    """

    def __init__(self, message: str, *, text: str) -> None:
        super().__init__(message)
        self.text = text


@dataclass(frozen=True, slots=True)
class Attempt:
    """A value that was generated and refused, with ``retries=``.

    Attributes:
        path: JSON path of the value, ``$`` for the whole output.
        text: its text.
        message: what is wrong with it, in the words of the check, for example Pydantic's.
    """

    path: str
    text: str
    message: str

    def __str__(self) -> str:
        text = self.text if len(self.text) <= _LONGEST_SHOWN else self.text[:_LONGEST_SHOWN] + "…"
        return f"{self.path}: {self.message} (got {text!r})"


class ValidationFailed(ParseError):
    """Checks that only code can make refused a value and all others tried for it: see ``retries=``.

    Its ``__cause__`` is the last refusal, a `ParseError`, whose cause is the exception of the
    check.

    Attributes:
        attempts: the refused values in order.
    """

    def __init__(self, message: str, *, text: str, attempts: tuple[Attempt, ...]) -> None:
        super().__init__(message, text=text)
        self.attempts = attempts


@contextlib.contextmanager
def requires(kind: type[Exception], what: str, extra: str) -> Iterator[None]:
    """Raise an error of a ``kind`` if an import in the block fails: what requires the package, and
    how to install the ``extra``."""
    try:
        yield
    except ImportError as error:
        raise kind(f"{what}: pip install 'structgen[{extra}]'.") from error


_LONGEST_SHOWN = 200


def printable(text: str) -> str:
    """Return a foreign text for a message or log, with escapes for line ends and control
    characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
