"""Tests of packages that need a newer Python than this one are left out."""

from __future__ import annotations

import importlib.util

collect_ignore = []
if importlib.util.find_spec("pydantic_ai") is None:  # it needs Python 3.11
    collect_ignore.append("test_pydantic_ai.py")
