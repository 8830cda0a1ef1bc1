"""Errors cross processes: pickled, they are the same class with the same words and attributes."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_readme import INSTEAD

from structgen import errors
from structgen.decoding import options

EXAMPLES = [
    errors.SchemaError("no", path="$.a", keyword="type"),
    errors.UnsupportedFeature("no", path="$.a", keyword="x", fix="Leave it out."),
    errors.PatternError("bad", pattern="a(", position=1, is_valid=True),
    errors.GrammarError("bad", text="x: y", line=1, column=2),
    errors.Unsatisfiable("none", path="$.b"),
    errors.CompileLimitExceeded("much", limit=1, actual=2, path="$.c"),
    errors.TokenNotAllowed("no", token_id=3),
    errors.BudgetTooSmall("few", minimum=9, budget=3),
    errors.ModelNotFound("none"),
    errors.IncompleteOutput("cut", text="ab"),
    errors.BatchError("some", results=["a", None], errors={1: errors.PromptError("empty")}),
    errors.Abstained("unsure", text="a", values=()),
    errors.ParseError("bad", text="b"),
    errors.RequestError("no", param="tools[0].function"),
    errors.Overloaded("later", retry_after=2.0),
]


def test_a_message_that_repeats_much_is_shown_in_part():
    with pytest.raises(errors.OptionError) as caught:
        options.parse({"stop": ["a" * 100_000, 1]})
    assert str(caught.value).startswith("stop=['aaa")
    assert str(caught.value).endswith("neither a string nor a list of strings.")
    assert len(str(caught.value)) < 5_000
    assert len(caught.value.args[0]) > 100_000


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_are_pickled_and_copied_whole(error, again):
    other = again(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert repr(vars(other)) == repr(vars(error))


def test_what_is_let_go_of_keeps_no_frame():
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise errors.OptionError("no") from None
    except errors.OptionError as error:
        first, cause = error, error.__context__
    cause.__cause__ = first  # a circle
    errors.let_go(first)
    assert first.__context__ is cause
    assert first.__traceback__ is cause.__traceback__ is None


INSTEAD_IN_MESSAGES = {
    **INSTEAD,
    r"(?<!here )(is|are|was|were) no (?!longer|more)": "is not a",
    r"leads? nowhere": "cannot be resolved",
    r"will do": "name what to do",
    r"something else than": "something other than, not",
    r"can(not)? be had": "say what cannot be combined, or is missing",
    r"of no use": "requires",
    r"both say": "both set",
    r"of yours": "your",
    r"told apart": "distinguish",
    r"(run|ran) out of time": "timed out",
    r"hand(s|ed)? out": "return",
    r"as it is there": "name the value",
    r"under way": "running, in progress",
    r"without end": "without a limit",
    r"parse into": "match",
    r"cut short": "truncated",
    r"is not masked": "is not supported",
    r"[Ll]eave [^.]{1,40} out\b": "remove, omit",
    r"is the most\b": "the limit is",
    r"(is|are) none of": "is not one of",
    r"do(es)? not go with|goes with": "cannot be combined with",
    r"(has|have) to be": "must be",
    r"leads? out": "points outside",
    r"(is|are) (there )?twice": "is given twice, appears twice",
    r"(cannot be|(is|are) not) understood": "cannot be read",
    r"worked out": "computed",
    r"in all\b": "in total",
    r"beside\b": "next to, in",
    r"by itself": "drop it, or say how it ended",
    r"Fetch\b": "Download",
    r"anew\b": "again",
    r"stands? for": "is, represents",
    r"likeliest": "most likely",
}
RAISED = {*vars(errors), "warn", "Finding", "Lack", "_wrong", "_error", "_fail", "_refuse"}
"""What is called with a message, beside other packages' errors."""


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts in calls that make errors and warnings, with … for what is filled in."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name in RAISED or name.endswith("Error"):
            for part in ast.walk(call):
                if isinstance(part, ast.JoinedStr):
                    parts = (getattr(one, "value", None) for one in part.values)
                    texts = (one if isinstance(one, str) else "…" for one in parts)
                    yield part.lineno, "".join(texts)
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_messages_are_written_in_plain_english():
    wrong = re.compile("|".join(rf"\b(?:{pattern})" for pattern in INSTEAD_IN_MESSAGES))
    files = Path(errors.__file__).parent.rglob("*.py")
    sources = {file: file.read_text(encoding="utf-8") for file in files}
    found = [
        f"{file}:{line}: {match[0]!r} in {text!r}; see INSTEAD_IN_MESSAGES"
        for file, source in sources.items()
        if wrong.search(re.sub(r'"\s*f?"', "", source))  # Most need not be parsed.
        for line, text in messages(ast.parse(source))
        if (match := wrong.search(text))
    ]
    assert not found
