"""The generators that a model keeps for its short forms."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeModel, Person

from structgen import Generator, OptionError
from structgen.asking import KeptGenerators


def test_what_is_no_option_is_refused_whatever_was_asked_before() -> None:
    model, kept = FakeModel(context_length=700), KeptGenerators()

    def made(output_type: Any, **options: Any) -> Any:
        return Generator(model, output_type, **options)

    first = kept.get(made, Person, {"draft": True})
    assert kept.get(made, Person, {"draft": True}) is first
    with pytest.raises(OptionError, match="draft=1 must be a bool or a Draft"):
        kept.get(made, Person, {"draft": 1})


@pytest.mark.parametrize("option", ["think", "draft"])
def test_an_option_of_a_generator_is_told_from_one_of_a_call(option: str) -> None:
    with pytest.raises(OptionError, match=rf"Pass it to Generator\(model, .*, {option}="):
        Generator(FakeModel(), Person)("x", **{option: 40})
