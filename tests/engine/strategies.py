"""Random schemas and instances that are nearly right for them, over the supported keywords.

Everything takes a `random.Random`; with Hypothesis' own (``st.randoms``) failures shrink.
"""

from __future__ import annotations

import json
import random
from typing import Any

Rng = random.Random

NAMES = ["a", "b", "ab", "name", "é", "", 'q"', "a b", "_x1", "😀"]
STRINGS = [
    *("", "a", "b", "ab", "abc", "é", "😀", 'q"\\', "a/b", "\n\t\x00", "漢字", "12", "null", "aaaa")
]
PATTERNS = [
    "^a", "b$", "^[a-c]*$", "a|b", "^.{2,3}$", "[0-9]+", "^(ab|ba)+$", "^$", "é", "^[^a]", "x?",
    "^\\w+$", "^_", "\\d", "^(a|ab)(c|bcd)?$", "^.$", "😀",
]  # fmt: skip
NUMBERS: list[Any] = [
    0, 1, -1, 2, 3, 5, 7, 10, 12, 99, 100, -7, -10, 123, 0.5, 1.5, -0.5, 0.1, 2.25, -2.5, 1.0, 10.0,
    0.01, 3.14, -0.25, 1000, 12345, 1e3,
]  # fmt: skip
STEPS: list[Any] = [1, 2, 3, 5, 0.5, 0.1, 0.25, 1.5, 0.01, 10, 7]
TYPES = ["null", "boolean", "object", "array", "string", "integer", "number"]


def value(r: Rng, depth: int = 2) -> Any:
    """Any JSON value."""
    kind = r.randint(0, 6 if depth else 4)
    if kind == 0:
        return None
    if kind == 1:
        return r.choice([True, False])
    if kind == 2:
        return r.choice(STRINGS)
    if kind in (3, 4):
        return r.choice(NUMBERS)
    if kind == 5:
        return [value(r, depth - 1) for _ in range(r.randint(0, 3))]
    return {r.choice(NAMES): value(r, depth - 1) for _ in range(r.randint(0, 3))}


def document(r: Rng) -> Any:
    """A whole schema, perhaps with recursive definitions."""
    definitions = ["#/$defs/one", "#/$defs/two", "#"] if r.random() < 0.4 else []
    root = schema(r, 3, definitions)
    if definitions:
        if not isinstance(root, dict):
            root = {}
        # A reference to itself in place has no meaning: definitions refer to others below only.
        one = schema(r, 2, ["#/$defs/two"])
        two = container(r, 1, definitions)
        root["$defs"] = {"one": one, "two": two}
        if root.get("$ref") == "#":
            root["$ref"] = "#/$defs/two"
        for part in _in_place(root):
            _cut_loops(part)
    return root


def _cut_loops(part: Any) -> None:
    if isinstance(part, dict):
        if part.get("$ref") == "#":
            part["$ref"] = "#/$defs/two"
        for inner in _in_place(part):
            _cut_loops(inner)


def _in_place(part: dict[str, Any]) -> list[Any]:
    """The subschemas that apply to the same value."""
    found = [x for keyword in ("allOf", "anyOf", "oneOf") for x in part.get(keyword, [])]
    found += [part[keyword] for keyword in ("not", "if", "then", "else") if keyword in part]
    return found + list(part.get("dependentSchemas", {}).values())


def schema(r: Rng, depth: int, refs: list[str]) -> Any:
    """One schema; ``refs`` may be referred to."""
    roll = r.random()
    if roll < 0.04:
        return r.choice([True, {}, True, {}, False])
    if refs and roll < 0.25:
        target: dict[str, Any] = {"$ref": r.choice(refs)}
        if r.random() < 0.2:
            target.update(_assertions(r, 0, r.choice(TYPES), []))
        return target
    if depth and roll < 0.3:
        return _conditional(r, depth, refs)
    if depth and roll < 0.42:
        keyword = r.choice(["anyOf", "allOf", "oneOf"])
        out: dict[str, Any] = {
            keyword: [schema(r, depth - 1, refs) for _ in range(r.randint(1, 3))]
        }
        if r.random() < 0.5:
            out.update(_assertions(r, depth - 1, r.choice(TYPES), refs))
        return out
    if roll < 0.52:
        if r.random() < 0.5:
            return {"const": value(r)}
        out = {"enum": [value(r) for _ in range(r.randint(1, 4))]}
        if r.random() < 0.3:
            out.update(_assertions(r, 0, r.choice(TYPES), []))
        return out
    kind = r.choice(TYPES if depth else [t for t in TYPES if t not in ("object", "array")])
    out = _assertions(r, depth, kind, refs)
    if r.random() < 0.85:
        out["type"] = kind if r.random() < 0.8 else sorted({kind, r.choice(TYPES)})
    if r.random() < 0.1:
        out.update(_assertions(r, 0, r.choice(TYPES), []))
    return out


def _conditional(r: Rng, depth: int, refs: list[str]) -> dict[str, Any]:
    """``not`` and ``if``, beside some assertions."""
    below = depth - 1
    out: dict[str, Any] = {}
    if r.random() < 0.7:
        out.update(_assertions(r, below, r.choice(TYPES), refs))
    if r.random() < 0.5:
        out["not"] = schema(r, below, refs)
        return out
    out["if"] = schema(r, below, refs)
    for keyword in ("then", "else"):
        if r.random() < 0.7:
            out[keyword] = schema(r, below, refs)
    return out


def container(r: Rng, depth: int, refs: list[str]) -> dict[str, Any]:
    """An object or array schema, through which recursion is meaningful."""
    kind = r.choice(["object", "array"])
    return {"type": [kind, "null"], **_assertions(r, depth, kind, refs)}


def _assertions(r: Rng, depth: int, kind: str, refs: list[str]) -> dict[str, Any]:
    if kind == "string":
        return _string(r)
    if kind in ("integer", "number"):
        return _number(r)
    if kind == "object":
        return _object(r, depth, refs)
    if kind == "array":
        return _array(r, depth, refs)
    return {}


def _string(r: Rng) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if r.random() < 0.4:
        out["minLength"] = r.randint(0, 3)
    if r.random() < 0.4:
        out["maxLength"] = r.randint(0, 5)
    if r.random() < 0.4:
        out["pattern"] = r.choice(PATTERNS)
    return out


def _number(r: Rng) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if r.random() < 0.25:
            out[keyword] = r.choice(NUMBERS)
    if r.random() < 0.3:
        out["multipleOf"] = r.choice(STEPS)
    return out


def _object(r: Rng, depth: int, refs: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    below = max(depth - 1, 0)
    if r.random() < 0.75:
        names = r.sample(NAMES, r.randint(0, 4))
        out["properties"] = {name: schema(r, below, refs) for name in names}
    if r.random() < 0.5:
        known = [*out.get("properties", {}), r.choice(NAMES)]
        out["required"] = sorted(set(r.sample(known, r.randint(0, min(3, len(known))))))
    if r.random() < 0.5:
        out["additionalProperties"] = r.choice([False, schema(r, below, refs)])
    if r.random() < 0.25:
        out["patternProperties"] = {
            r.choice(PATTERNS): schema(r, below, refs) for _ in range(r.randint(1, 2))
        }
    if r.random() < 0.15:
        out["propertyNames"] = r.choice([_string(r), {"enum": r.sample(NAMES, 3)}])
    if r.random() < 0.2:
        out["minProperties"] = r.randint(0, 3)
    if r.random() < 0.2:
        out["maxProperties"] = r.randint(0, 4)
    if r.random() < 0.12:
        out["dependentRequired"] = {r.choice(NAMES): r.sample(NAMES, r.randint(0, 2))}
    if r.random() < 0.12:
        out["dependentSchemas"] = {r.choice(NAMES): schema(r, below, refs)}
    if r.random() < 0.12:
        out["unevaluatedProperties"] = r.choice([False, schema(r, 0, [])])
    return out


def _array(r: Rng, depth: int, refs: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    below = max(depth - 1, 0)
    if r.random() < 0.3:
        out["prefixItems"] = [schema(r, below, refs) for _ in range(r.randint(1, 3))]
    if r.random() < 0.6:
        out["items"] = schema(r, below, refs)
    if r.random() < 0.3:
        out["minItems"] = r.randint(0, 3)
    if r.random() < 0.3:
        out["maxItems"] = r.randint(0, 4)
    if r.random() < 0.15:
        out["contains"] = schema(r, below, refs)
        if r.random() < 0.4:
            out["minContains"] = r.randint(0, 2)
        if r.random() < 0.4:
            out["maxContains"] = r.randint(0, 3)
    if r.random() < 0.15:
        out["uniqueItems"] = True
    if r.random() < 0.12:
        out["unevaluatedItems"] = r.choice([False, schema(r, 0, [])])
    return out


# -- instances ----------------------------------------------------------------------------------


def instance(r: Rng, root: Any, at: Any, depth: int = 6) -> Any:
    """A value with a fair chance to satisfy the schema ``at`` inside ``root``."""
    if depth <= 0 or not isinstance(at, dict) or r.random() < 0.04:
        return value(r, 1 if depth > 0 else 0)
    if "const" in at:
        return at["const"]
    if "enum" in at:
        return r.choice(at["enum"])
    merged = dict(at)
    for _ in range(8):
        more: list[Any] = []
        if "$ref" in merged:
            more.append(_resolve(root, merged.pop("$ref")))
        more += merged.pop("allOf", [])
        for keyword in ("anyOf", "oneOf"):
            if keyword in merged:
                more.append(r.choice(merged.pop(keyword)))
        if "if" in merged:
            branch = r.choice([("if", "then"), ("else",)])
            more += [merged[keyword] for keyword in branch if keyword in merged]
            merged = {k: v for k, v in merged.items() if k not in ("if", "then", "else")}
        if not more:
            break
        for part in more:
            if isinstance(part, dict):
                _merge(r, merged, part)
    if "const" in merged or "enum" in merged:
        return r.choice([merged["const"]] if "const" in merged else merged["enum"])
    kinds = merged.get("type", _implied(merged) if r.random() < 0.85 else TYPES)
    kind = r.choice(kinds if isinstance(kinds, list) else [kinds])
    return _instance_of(r, root, kind, merged, depth)


def _implied(at: dict[str, Any]) -> list[str]:
    """The types that an untyped schema's keywords are about."""
    if at.keys() & {"properties", "required", "additionalProperties", "patternProperties"}:
        return ["object"]
    if at.keys() & {"items", "prefixItems", "minItems"}:
        return ["array"]
    if at.keys() & {"pattern", "minLength", "maxLength"}:
        return ["string"]
    if at.keys() & {"multipleOf", "minimum", "maximum"}:
        return ["number"]
    return TYPES


def _merge(r: Rng, into: dict[str, Any], part: dict[str, Any]) -> None:
    for keyword, said in part.items():
        if keyword not in into:
            into[keyword] = said
        elif keyword == "properties":
            into[keyword] = {**into[keyword], **said}
        elif keyword == "required":
            into[keyword] = sorted({*into[keyword], *said})
        elif keyword == "allOf":
            into[keyword] = [*into[keyword], *said]
        elif r.random() < 0.5:
            into[keyword] = said


def _resolve(root: Any, reference: str) -> Any:
    for step in reference.split("/")[1:]:
        root = root[step]
    return root


def _instance_of(r: Rng, root: Any, kind: str, at: dict[str, Any], depth: int) -> Any:
    if kind == "null":
        return None
    if kind == "boolean":
        return r.choice([True, False])
    if kind == "string":
        return r.choice(STRINGS)
    if kind in ("integer", "number"):
        return _some_number(r, kind, at)
    if kind == "array":
        prefix = at.get("prefixItems", [])
        least, most = at.get("minItems", 0), at.get("maxItems", 4)
        count = r.randint(least, max(least, most, len(prefix)))
        count = max(min(count, most), least) if r.random() < 0.9 else count
        items = [
            instance(r, root, prefix[i] if i < len(prefix) else at.get("items", True), depth - 1)
            for i in range(count)
        ]
        if "contains" in at and items and r.random() < 0.8:
            items[r.randint(0, len(items) - 1)] = instance(r, root, at["contains"], depth - 1)
        if items and r.random() < 0.1:
            items.append(r.choice(items))  # perhaps once too often
        return items
    names = list(at.get("required", []))
    for trigger, more in at.get("dependentRequired", {}).items():
        if r.random() < 0.5:
            names += [trigger, *more]
    names += [n for n in at.get("properties", {}) if r.random() < 0.6]
    if r.random() < 0.4:
        names.append(r.choice(NAMES))
    r.shuffle(names)
    return {
        name: instance(
            r,
            root,
            at.get("properties", {}).get(name, at.get("additionalProperties", True)),
            depth - 1,
        )
        for name in names
    }


def _some_number(r: Rng, kind: str, at: dict[str, Any]) -> Any:
    bounds = [at[k] for k in at if k.lower().endswith(("minimum", "maximum"))]
    out = r.choice([*NUMBERS, *bounds, *bounds])
    if bounds and r.random() < 0.3:
        out = round(r.choice(bounds) + r.choice([-1, 1, 0.1, -0.1, 0.01]), 6)
    if "multipleOf" in at and r.random() < 0.6:
        out = round(at["multipleOf"] * round(out / at["multipleOf"]), 6)
    if kind == "integer" and r.random() < 0.8:
        out = int(out)
    return out


# -- spellings and edits --------------------------------------------------------------------------


def spell(r: Rng, data: Any, whitespace: bool = True, escapes: bool = True) -> str:
    """``data`` as JSON text in some legal spelling; members keep their order."""

    def gap() -> str:
        if not whitespace or r.random() < 0.7:
            return ""
        return r.choice([" ", "  ", "\n", "\t", "\r\n", " \n  "])

    def text(string: str) -> str:
        out = []
        for char in string:
            plain = json.dumps(char, ensure_ascii=False)[1:-1]
            if escapes and r.random() < 0.25:
                plain = json.dumps(char)[1:-1]
                if r.random() < 0.5 and len(char.encode("utf-16-le")) == 2:
                    code = f"{ord(char):04x}"
                    plain = "\\u" + r.choice([code, code.upper()])
                elif char == "/":
                    plain = "\\/"
            out.append(plain)
        return '"' + "".join(out) + '"'

    def write(item: Any) -> str:
        if isinstance(item, str):
            return text(item)
        if isinstance(item, list):
            return (
                "["
                + ",".join(gap() + write(v) + gap() for v in item)
                + ("]" if item else gap() + "]")
            )
        if isinstance(item, dict):
            inner = ",".join(
                gap() + text(k) + gap() + ":" + gap() + write(v) + gap() for k, v in item.items()
            )
            return "{" + (inner or gap()) + "}"
        return json.dumps(item)

    return write(data)


def edit(r: Rng, text: str) -> str:
    """``text`` with one random edit."""
    at = r.randint(0, max(len(text) - 1, 0))
    kind = r.randint(0, 4)
    char = r.choice('",:{}[]0123456789.-+eEabtrufnls \\/\n\x01é😀_x')
    if kind == 0:
        return text[:at] + char + text[at:]
    if kind == 1:
        return text[:at] + text[at + 1 :]
    if kind == 2:
        return text[:at] + char + text[at + 1 :]
    if kind == 3:
        return text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
    upto = min(len(text), at + r.randint(1, 6))
    return text[:at] + text[at:upto] * 2 + text[upto:]
