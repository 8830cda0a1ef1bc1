"""The last runtime for Python 3.10 ends the process when asked for an output that there is not."""

from __future__ import annotations

from typing import Any

import inside
import numpy as np
import pytest

from structgen import models
from structgen.errors import ModelError
from structgen.models.genai import TextModel, runtime
from structgen.models.genai import model as genai_model
from structgen.models.genai.folders import read_config


class Sequence:
    """As the runtime's, with three layers; it notes what it is asked for."""

    asked: list[str]

    def __init__(self, *_: Any) -> None:
        Sequence.asked = []

    def append_tokens(self, _: Any) -> None:
        pass

    def set_search_options(self, **_: Any) -> None:
        pass

    def get_output(self, name: str) -> Any:
        self.asked.append(name)
        assert name.split(".")[1] in "012", "the process would have ended"
        return np.zeros((1, 2, 2, 8), np.float32)


def test_only_outputs_that_there_are_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.og, "GeneratorParams", Sequence)
    monkeypatch.setattr(runtime.og, "Generator", Sequence)
    names = {"present_key_names": "present.%d.k", "present_value_names": "present.%d.v"}
    config = {"model": {"decoder": {"num_hidden_layers": 3, "outputs": names}}}
    assert inside.bytes_of_a_token(None, config) == 3 * 2 * 2 * 8 * 4
    assert Sequence.asked == [f"present.{i}.{kind}" for i in range(3) for kind in "kv"]
    monkeypatch.setattr(runtime, "OLD", "It is old.")
    Sequence.asked = []
    assert inside.bytes_of_a_token(None, None) == 0
    assert not Sequence.asked


def test_what_a_graph_lacks_is_read_from_its_file(
    model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = models.path(models.DEFAULT)
    assert read_config(folder)["model"]["decoder"]["num_hidden_layers"] == 30
    assert not genai_model.has_output(folder)
    assert not genai_model.has_output(None)
    monkeypatch.setattr(runtime, "OLD", "It is old.")
    with pytest.raises(ModelError, match="has no output 'hidden_states'"):
        model.embed("tea")
