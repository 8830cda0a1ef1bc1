"""Lookarounds (and word boundaries, which are lookarounds) → `ir.Intersect` and `ir.Complement`."""

from __future__ import annotations

from ..errors import UnsupportedFeature
from . import ir
from .regex_tree import Tree


def lower(tree: Tree, pattern: str) -> ir.Regex:
    """The IR of a whole pattern with lookarounds."""
    raise UnsupportedFeature(f"Lookarounds are not supported, in {pattern!r}.")
