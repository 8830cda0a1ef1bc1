"""Errors cross processes: pickled, they are the same class with the same words and attributes."""

from __future__ import annotations

import copy
import pickle

import pytest

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
