"""Write sample.jsonl: schemas of ours with instances, judged by `jsonschema`, not by structgen.

    python tests/data/make_sample.py

Hand-written groups come from tests/constraint/test_conformance.py and
tests/grammar/test_formats.py, generated ones from tests/engine/strategies.py with fixed seeds. Run
it again when these change.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import jsonschema

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(folder) for folder in (TESTS, TESTS.parent, *TESTS.iterdir())]

from engine import strategies  # noqa: E402
from test_conformance import SAMPLES  # noqa: E402
from test_formats import SAMPLES as FORMATS  # noqa: E402

VALIDATORS = {
    "draft4": jsonschema.Draft4Validator,
    "draft6": jsonschema.Draft6Validator,
    "draft7": jsonschema.Draft7Validator,
    "draft2019-09": jsonschema.Draft201909Validator,
    "draft2020-12": jsonschema.Draft202012Validator,
}
N_GENERATED = 120


def group(file: str, draft: str, description: str, schema: Any, tests: list[Any]) -> dict[str, Any]:
    return {
        "draft": draft,
        "file": f"{draft}/{file}.json",
        "optional": file.startswith("optional/"),
        "description": description,
        "schema": schema,
        "tests": tests,
    }


def judged(draft: str, schema: Any, values: list[Any]) -> list[dict[str, Any]]:
    validator = VALIDATORS[draft](schema)
    return [{"description": "", "data": v, "valid": validator.is_valid(v)} for v in values]


def hand_written() -> list[dict[str, Any]]:
    found = []
    for number, (schema, valid, invalid) in enumerate(SAMPLES):
        if "dependencies" in schema:
            continue  # which the newest draft has no more, and structgen reads all the same
        tests = judged("draft2020-12", schema, [*valid, *invalid])
        assert [t["valid"] for t in tests] == [True] * len(valid) + [False] * len(invalid)
        found.append(group("own", "draft2020-12", f"sample {number}", schema, tests))
    return found


def formats() -> list[dict[str, Any]]:
    found = []
    for name, (valid, invalid) in FORMATS.items():
        tests = [{"description": "", "data": text, "valid": True} for text in valid[:6]]
        tests += [{"description": "", "data": text, "valid": False} for text in invalid[:6]]
        schema = {"format": name}
        found.append(
            group(f"optional/format/{name}", "draft2020-12", f"format {name}", schema, tests)
        )
    return found


def generated() -> list[dict[str, Any]]:
    found = []
    seed = 0
    while len(found) < N_GENERATED:
        r = random.Random(seed)
        seed += 1
        schema = strategies.document(r)
        values = [strategies.instance(r, schema, schema) for _ in range(4)]
        values += [strategies.value(r) for _ in range(2)]
        tests = judged("draft2020-12", schema, values)
        if len(json.dumps(schema)) < 900 and {t["valid"] for t in tests} == {True, False}:
            found.append(group("generated", "draft2020-12", f"seed {seed - 1}", schema, tests))
    return found


def main() -> None:
    groups = [*hand_written(), *formats(), *generated()]
    text = "".join(json.dumps(one, ensure_ascii=True) + "\n" for one in groups)
    path = Path(__file__).with_name("sample.jsonl")
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    print(f"{path}: {len(groups)} groups, {len(text):,} bytes")


if __name__ == "__main__":
    main()
