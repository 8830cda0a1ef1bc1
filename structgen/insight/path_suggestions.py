"""Find JSON paths whose value could be a choice among few, before there is an output.

Reads only the schema, and suggests other paths if the answer is no. Only a no is certain: keywords
that are not read could only exclude more. Knows no automata and no models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from structgen.constraint import Constraint
from structgen.errors import did_you_mean
from structgen.grammar import ir
from structgen.grammar.json_schema import child_path
from structgen.storage import IdentityMap

_MAX_DEPTH = 100
"""Most steps of a path and references followed; beyond them everything counts as possible."""

_MAX_LOOKS = 5_000
"""Most subschemas that are read for the paths of a call; beyond them everything counts as possible.
"""

_MAX_LISTED = 200
"""Most paths of a schema that are read for a suggestion."""

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[([0-9]{1,9})\]")

_FEW = frozenset(["enum", "const", "maximum", "exclusiveMaximum"])
"""Keywords of values that are suggested."""


def suggestion(constraint: Constraint, paths: Iterable[str]) -> tuple[str, str] | None:
    """Suggest other paths for the first path at which no output can have a choice among few.

    Args:
        constraint: the output type.
        paths: JSON paths as `Confidence` writes them.

    Returns:
        The path, and a text for the message; None: all paths may have such a choice in some output.
    """
    grammar = constraint.output.grammar
    if not isinstance(grammar, ir.Json):
        wrong = next((path for path in paths if path != "$"), None)
        return None if wrong is None else (wrong, "Its only value is the whole output, '$'.")
    looks = iter(range(_MAX_LOOKS))
    for path in islice(paths, 0 if any(constraint._unenforced) else _MAX_LOOKS):
        steps = _steps(path)
        if steps is None or _Judge(grammar.schema, looks).may_be(grammar.schema, steps):
            continue
        known = sorted(set(_paths(grammar.schema)))
        near = did_you_mean(path, known, 2).lstrip()
        return path, near or f"Its paths are: {', '.join(known[:8]) or 'none'}."
    return None


def _steps(path: str) -> list[str | int] | None:
    """Return the keys and indices of a path; None if its notation is not supported here."""
    if not re.fullmatch(f"(?:{_STEP.pattern})*", path[1:]):
        return None
    return [int(index) if index else key for key, index in _STEP.findall(path, 1)]


class _Judge:
    """Decides whether values of a schema document may have a scalar at a path; only a no is
    certain.

    Each subschema is judged once per number of steps left, until ``looks`` is used up.
    """

    def __init__(self, root: Any, looks: Iterator[int]) -> None:
        self._root = root
        self._looks = looks
        # by schema, then by number of steps left
        self._judged: IdentityMap[Mapping[str, Any], dict[int, bool]] = IdentityMap()

    def may_be(self, schema: Any, steps: Sequence[str | int], depth: int = 0) -> bool:
        """Return whether a value of ``schema`` may have a scalar at ``steps``."""
        if not isinstance(schema, Mapping):
            return schema is not False
        if depth > _MAX_DEPTH or next(self._looks, None) is None:
            return True
        judged = self._judged.setdefault(schema, {})
        left = len(steps)
        if left not in judged:
            judged[left] = True  # while it is being judged, since it may occur inside itself
            judged[left] = self._may_be(schema, steps, depth + 1)
        return judged[left]

    def _may_be(self, schema: Mapping[str, Any], steps: Sequence[str | int], depth: int) -> bool:
        if schema is not self._root and _has_id(schema):
            return True
        if "$ref" in schema:  # in old drafts everything beside it is ignored
            found = _referred(schema["$ref"], self._root)
            return found is None or self.may_be(found, steps, depth)
        for name, enough in (("anyOf", any), ("oneOf", any), ("allOf", all)):
            branches = schema.get(name) or [True]
            if not enough(self.may_be(branch, steps, depth) for branch in branches):
                return False
        types = schema.get("type")
        types = {types} if isinstance(types, str) else set(types) if types else None
        if not steps:
            return types is None or not types <= {"object", "array"}
        step, rest = steps[0], steps[1:]
        if types is not None and ("object" if isinstance(step, str) else "array") not in types:
            return False
        if isinstance(step, str):
            named = schema.get("properties", {})
            if step not in named and schema.get("patternProperties"):
                return True
            other = schema.get("additionalProperties", True)
            return self.may_be(named.get(step, other), rest, depth)
        if step >= schema.get("maxItems", step + 1):
            return False
        items, first = schema.get("items", True), schema.get("prefixItems", ())
        # Old drafts do not have ``prefixItems``, so ``items`` counts as possible beside it.
        possible = [items, *first[step : step + 1]]
        return isinstance(items, Sequence) or any(self.may_be(one, rest, depth) for one in possible)


def _referred(reference: Any, root: Any) -> Any:
    """Return the target of a reference within the document; None: it is not such a reference."""
    if not isinstance(reference, str) or not re.fullmatch(r"#(/[A-Za-z0-9_$.\-]+)*", reference):
        return None
    found = root
    for name in reference.split("/")[1:]:
        if not isinstance(found, Mapping) or (found is not root and _has_id(found)):
            return None
        found = found.get(name)
    return found


def _has_id(schema: Mapping[str, Any]) -> bool:
    """Return whether references below it may mean something else than at the document's root."""
    return isinstance(schema.get("$id", schema.get("id")), str)


def _paths(root: Any) -> Iterator[str]:
    """Yield the paths of values that may well have few texts, within a few steps."""
    begun: list[tuple[str, Any, int]] = [("$", root, 0)]
    n_seen = 0
    while begun and n_seen < _MAX_LISTED:
        path, schema, depth = begun.pop(0)
        n_seen += 1
        if not isinstance(schema, Mapping) or depth > 8:
            continue
        if "$ref" in schema:
            begun.append((path, _referred(schema["$ref"], root), depth + 1))
            continue
        below: list[tuple[str, Any]] = []
        for name in ("anyOf", "oneOf", "allOf"):
            branches = schema.get(name)
            if isinstance(branches, Sequence):
                below += [(path, branch) for branch in branches]
        named = schema.get("properties")
        if isinstance(named, Mapping):
            below += [(child_path(path, key), value) for key, value in named.items()]
        if "array" in (schema.get("type") or ()):
            below.append((child_path(path, 0), schema.get("items")))
        begun += [(to, value, depth + 1) for to, value in below]
        has_few = schema.keys() & _FEW or "boolean" in (schema.get("type") or ())
        if not below and has_few and _Judge(root, iter((0,))).may_be(schema, []):
            yield path
