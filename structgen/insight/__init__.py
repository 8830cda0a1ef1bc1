"""What can be said of an output beside its text: why each token, how sure of each value.

In reading order: `byte_reader` (a text read byte by byte) and `json_places` (paths of its bytes);
`recording`, `trace`, `trace_page` and `rejections` (what happened at each step, and why);
`alternatives`, `path_suggestions`, `written_values`, `token_tree` and `confidence` (the model's
probability of each value), `best_values` (the likeliest written instead); `regex_picture` (what a
small automaton looks like). Runs no model: scores come in through functions.
"""

from __future__ import annotations

from .alternatives import MAX_ALTERNATIVES, Site, is_json, may_have_sites, names_of, whole_texts
from .best_values import BestValues, Opened
from .confidence import TOLERANCE, Alternative, Confidence, ValueConfidence, below, measure
from .json_places import JsonPlaces
from .path_suggestions import suggestion
from .recording import Recorder, Step
from .regex_picture import Picture, picture
from .rejections import why_barred
from .token_tree import GivenUp, OpenSequence, Passes, Scores, TokenTree, run_passes
from .trace import TOP, StepRecorder, Trace, headline, readable_prompt
from .trace_step import TraceStep
from .written_values import WrittenTexts

__all__ = [
    "MAX_ALTERNATIVES",
    "TOLERANCE",
    "TOP",
    "Alternative",
    "BestValues",
    "Confidence",
    "GivenUp",
    "JsonPlaces",
    "OpenSequence",
    "Opened",
    "Passes",
    "Picture",
    "Recorder",
    "Scores",
    "Site",
    "Step",
    "StepRecorder",
    "TokenTree",
    "Trace",
    "TraceStep",
    "ValueConfidence",
    "WrittenTexts",
    "below",
    "headline",
    "is_json",
    "may_have_sites",
    "measure",
    "names_of",
    "picture",
    "readable_prompt",
    "run_passes",
    "suggestion",
    "whole_texts",
    "why_barred",
]
