"""Explain outputs: why each token, how sure the model is of each value.

In reading order: `json_places` (paths and spans of a document's bytes), `trace` (what happened at
each step, and why a token was not allowed), `alternatives` (values that were a choice among few),
`confidence` (the model's probability of each of them, and how to write the likeliest instead),
`path_suggestions`, `regex_picture` (the picture of a small automaton). Runs no model: scores are
passed in.
"""

from __future__ import annotations

from .alternatives import (
    MAX_ALTERNATIVES,
    Site,
    WrittenTexts,
    is_json,
    may_have_sites,
    names_of,
    whole_texts,
)
from .confidence import (
    TOLERANCE,
    Alternative,
    BestValues,
    Confidence,
    OpenPasses,
    TokenTree,
    ValueConfidence,
    below,
    measuring,
)
from .json_places import Closed, Event, Grown, JsonReader, Kind, Opened, Path, check_values
from .path_suggestions import suggestion
from .regex_picture import picture, svg
from .trace import TOP, StepRecorder, Trace, TraceStep, headline, readable_prompt, why_barred

__all__ = ["Alternative", "Confidence", "Trace", "TraceStep", "ValueConfidence", "picture", "svg"]
