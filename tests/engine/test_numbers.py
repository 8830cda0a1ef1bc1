"""`NumberLeaf` against Decimal arithmetic: bounds, multiples, integrality, every spelling."""

from __future__ import annotations

import math
import random
import re
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import structgen
from engine.walks import TINY, accepts, examples, minimum, walk
from structgen import JsonSchema
from structgen.automaton.json.numbers import LARGEST, SMALLEST, NumberLeaf, NumberSpec

RANDOM = st.randoms(use_true_random=False)
GRAMMAR = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
STEPS = ["1", "2", "3", "7", "10", "0.5", "0.1", "0.01", "0.25", "1.5", "2.5", "100", "0.003"]


def leaf_accepts(leaf: NumberLeaf, text: str) -> bool:
    q = leaf.start
    for byte in text.encode():
        to = leaf.row(q).get(byte)
        if to is None:
            return False
        q = to
    return leaf.label(q) >= 0


def satisfies(spec: NumberSpec, number: Decimal) -> bool:
    """The definition."""
    with localcontext() as context:
        context.prec = 2000
        return (
            (spec.lower is None or number > spec.lower
             or (number == spec.lower and not spec.exclusive_lower))
            and (spec.upper is None or number < spec.upper
                 or (number == spec.upper and not spec.exclusive_upper))
            and all(number % m == 0 for m in spec.multiples)
            and not any(number % m == 0 for m in spec.non_multiples)
            and number not in spec.excluded
            and (spec.form != "digits" or number % 1 == 0)
        )  # fmt: skip


def is_covered(spec: NumberSpec, text: str) -> bool:
    """Whether the documented spellings include ``text``."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    if max(len(whole), len(fraction)) > spec.max_digits or len(exponent.lstrip("+-")) > 6:
        return False
    return not exponent or Decimal(text) == 0 or SMALLEST <= abs(Decimal(text)) <= LARGEST


def has_form(spec: NumberSpec, text: str) -> bool:
    """Whether ``text`` is written as draft 4 may ask for."""
    pointed = bool(re.search(r"[.eE]", text))
    return spec.form == "any" or (spec.form == "pointed") == pointed


def number(r: random.Random) -> Decimal:
    digits = r.choice([1, 1, 2, 3, 5, 8])
    value = Decimal(r.randint(-(10**digits), 10**digits))
    return value.scaleb(-r.choice([0, 0, 0, 1, 2, 3, 6]))


def spec_of(r: random.Random, canonical: bool = False) -> NumberSpec:
    lower = number(r) if r.random() < 0.5 else None
    upper = number(r) if r.random() < 0.5 else None
    if lower is not None and r.random() < 0.3:
        upper = lower + abs(number(r))
    multiples = {Decimal(r.choice(STEPS)) for _ in range(r.choice([0, 0, 1, 1, 2]))}
    non = {Decimal(r.choice(STEPS)) for _ in range(r.choice([0, 0, 0, 0, 1, 2]))}
    excluded = {number(r) for _ in range(r.choice([0, 0, 0, 1, 3]))}
    return NumberSpec(
        lower,
        upper,
        r.random() < 0.5 and lower is not None,
        r.random() < 0.5 and upper is not None,
        tuple(sorted(multiples)),
        tuple(sorted(non)),
        tuple(sorted(excluded)),
        max_digits=6,
        canonical=canonical,
        form=r.choice(["any", "any", "any", "digits", "pointed"]),
    )


def spelling(r: random.Random, value: Decimal) -> str:
    """Some legal spelling of ``value``."""
    text = f"{value:f}"
    roll = r.random()
    if roll < 0.35:
        if "." in text:
            text += "0" * r.randint(0, 3)
        elif r.random() < 0.4:
            text += "." + "0" * r.randint(1, 3)
    elif roll < 0.8:
        text = f"{value:e}" if roll < 0.6 else f"{value.normalize():e}"
        mantissa, _, exponent = text.lower().partition("e")
        if r.random() < 0.3:
            mantissa += "0" if "." in mantissa else ".0"
        sign = exponent[0] if exponent[0] in "+-" else ""
        zeros = "0" * r.choice([0, 0, 1])
        sign = r.choice(["", "+"]) if sign == "+" else sign
        text = mantissa + r.choice("eE") + sign + zeros + exponent.lstrip("+-")
    elif roll < 0.9 and value:
        shift = r.randint(-3, 3)
        text = f"{value.scaleb(-shift):f}e{shift}"
    if value == 0 and r.random() < 0.3:
        text = "-" + text.lstrip("-")
    return text


def near(r: random.Random, spec: NumberSpec) -> Decimal:
    """A number close to where verdicts change."""
    marks = [Decimal(0), number(r)]
    marks += [b for b in (spec.lower, spec.upper) if b is not None] * 2
    value = r.choice(marks)
    roll = r.random()
    if roll < 0.5:
        value += r.choice([-1, 1]) * Decimal(r.choice(["1", "0.1", "0.001", "10", "0.5"]))
    if spec.multiples and r.random() < 0.6:
        step = r.choice(spec.multiples)
        value = (value / step).to_integral_value() * step
    return value


@given(RANDOM)
@examples(120)
def test_spellings_are_judged_by_value(r: random.Random) -> None:
    spec = spec_of(r)
    leaf = NumberLeaf(spec)
    for _ in range(8):
        text = spelling(r, near(r, spec))
        assert GRAMMAR.fullmatch(text)
        want = satisfies(spec, Decimal(text)) and has_form(spec, text)
        got = leaf_accepts(leaf, text)
        if got:
            assert want, f"{text} wrongly accepted under {spec}"
        elif want:
            assert not is_covered(spec, text), f"{text} wrongly rejected under {spec}"


@given(RANDOM)
@examples(50)
def test_what_a_leaf_writes_is_a_number_that_satisfies(r: random.Random) -> None:
    spec = spec_of(r, canonical=r.random() < 0.4)
    leaf = NumberLeaf(spec)
    if leaf.is_empty():
        return
    for _ in range(6):
        q, out = leaf.start, bytearray()
        while True:
            row = leaf.row(q)
            if leaf.label(q) >= 0 and (not row or r.random() < 0.25):
                break
            assert row, f"dead end after {out!r} under {spec}"
            if len(out) > 14:
                rest = leaf.shortest(q)
                assert rest is not None
                out += rest[0]
                break
            byte = r.choice(sorted(row))
            out.append(byte)
            q = row[byte]
        text = out.decode()
        assert GRAMMAR.fullmatch(text), text
        assert satisfies(spec, Decimal(text)), f"{text} under {spec}"
        assert has_form(spec, text), f"{text} under {spec}"


@given(RANDOM)
@examples(60)
def test_a_leaf_is_empty_only_when_no_number_satisfies(r: random.Random) -> None:
    spec = spec_of(r)
    leaf = NumberLeaf(spec)
    if not leaf.is_empty():
        assert leaf.shortest(leaf.start) is not None, f"a number that satisfies {spec}"
        return
    for _ in range(20):
        value = near(r, spec)
        if not has_form(spec, f"{value:f}"):
            continue
        fits = all(len(p) <= spec.max_digits for p in f"{abs(value):f}".split("."))
        assert not (fits and satisfies(spec, value)), f"{value} satisfies {spec}"


@given(RANDOM)
@examples(50)
def test_the_shortest_number_is_shortest(r: random.Random) -> None:
    spec = spec_of(r)
    shortest = NumberLeaf(spec).shortest(NumberLeaf(spec).start)
    if shortest is None:
        return
    leaf = NumberLeaf(spec)
    assert leaf_accepts(leaf, shortest[0].decode())
    for text in [
        "0",
        "1",
        "5",
        "9",
        "-1",
        "-0",
        "10",
        "25",
        "99",
        "0.5",
        "1.5",
        "-2",
        "1e1",
        "3e2",
    ]:
        if len(text) < len(shortest[0]):
            assert not leaf_accepts(leaf, text), f"{text} is shorter than {shortest[0]!r}"


def is_canonical(spec: NumberSpec, text: str) -> bool:
    """Whether ``text`` is how a number may be spelt under ``canonical``, but for the mantissas that
    begin no plain number."""
    found = re.fullmatch(r"-?[0-9]+(?:\.([0-9]+))?(e.*)?", text)
    if not found or not has_form(spec, text):
        return False
    if found[2] and not re.fullmatch(r"-?[1-9](\.[0-9]+)?e[+-]?[0-9]{1,3}", text):
        return False
    if not spec.multiples:
        return True
    # No more places than the least number has that is a multiple of all.
    scale = 10 ** max(-int(m.as_tuple().exponent) for m in spec.multiples)
    scale = max(scale, 1)
    least = Decimal(math.lcm(*(int(m * scale) for m in spec.multiples))) / scale
    places = max(-int(least.normalize().as_tuple().exponent), spec.form == "pointed", 0)
    if found[2] and least % 1 == 0:
        return False
    return len(found[1] or "") <= places


@given(RANDOM)
@examples(60)
def test_canonical_numbers_are_the_same_numbers(r: random.Random) -> None:
    spec = spec_of(r, canonical=True)
    leaf = NumberLeaf(spec)
    for _ in range(8):
        text = spelling(r, near(r, spec))
        got = leaf_accepts(leaf, text)
        if got:
            assert satisfies(spec, Decimal(text)), f"{text} wrongly accepted under {spec}"
            assert is_canonical(spec, text), f"{text} is not canonical under {spec}"
        elif satisfies(spec, Decimal(text)) and is_canonical(spec, text):
            mantissa, _, exponent = text.partition("e")
            short = all(len(part) <= 6 for part in mantissa.lstrip("-").split("."))
            if exponent:
                bound = spec.lower is not None or spec.upper is not None
                short = short and not (bound or spec.multiples or spec.non_multiples)
            zero = Decimal(text) == 0  # -0 and 0.0 need not be written
            assert zero or not short, f"{text} wrongly rejected under {spec}"


def small_spec(r: random.Random) -> NumberSpec:
    """One of which every plain number can be listed."""
    bounds = [Decimal(r.randint(-99, 99)).scaleb(-1) for _ in range(2)]
    bounds += [Decimal(r.choice(["0", "9", "9.9"]))] * 2
    lower, upper = sorted(r.sample(bounds, 2))
    multiples = [Decimal(r.choice(["0.1", "0.3", "0.5", "0.01", "0.02", "0.25"]))]
    non = [Decimal(r.choice(["1", "0.1", "0.2"]))]
    return NumberSpec(
        r.choice([None, lower]),
        r.choice([None, upper]),
        r.random() < 0.3,
        r.random() < 0.3,
        tuple(multiples) * (r.random() < 0.5),
        tuple(non) * (r.random() < 0.25),
        (Decimal(r.choice(["5", "1.5", "20"])),) * (r.random() < 0.3),
        max_digits=2,
        canonical=True,
        form=r.choice(["any", "any", "pointed"]),
    )


@pytest.mark.parametrize("seed", range(8))
def test_exponents_by_brute_force(seed: int) -> None:
    r = random.Random(seed)
    spec = small_spec(r)
    leaf = NumberLeaf(spec)
    assert leaf.most_digits == leaf.most_exponent - 1 == 2
    assert leaf.is_short
    fraction = [""] + [f".{n:0{places}}" for places in (1, 2) for n in range(10**places)]
    fraction = [text for text in fraction if len(text) <= leaf.most_fraction + 1]
    begun: set[str] = set()
    for text in (f"{sign}{n}{rest}" for sign in ("", "-") for n in range(100) for rest in fraction):
        fits = satisfies(spec, Decimal(text)) and has_form(spec, text)
        assert leaf_accepts(leaf, text) == fits, text
        if fits:
            begun.update(text[:end] for end in range(1, len(text) + 1))
    for mantissa in (
        f"{sign}{n}{rest}" for sign in ("", "-") for n in range(13) for rest in fraction
    ):
        for exponent in (
            "e0",
            "e-1",
            "e+1",
            "e1",
            "e-02",
            "e2",
            "e-7",
            "e22",
            "e308",
            "E1",
            "e-324",
        ):
            text = mantissa + exponent
            fits = mantissa in begun and satisfies(spec, Decimal(text)) and is_canonical(spec, text)
            if not SMALLEST <= abs(Decimal(text)) <= LARGEST:
                fits = False
            assert leaf_accepts(leaf, text) == fits, f"{text} under {spec}"


@given(RANDOM)
@examples(40)
def test_no_way_on_is_shorter_than_the_shortest(r: random.Random) -> None:
    spec = spec_of(r, canonical=True) if r.random() < 0.7 else small_spec(r)
    leaf = NumberLeaf(spec)
    q = leaf.start
    for _ in range(r.randint(0, 5)):
        q = leaf.row(q).get(r.choice(b"0123456789.-e..15"), q)
    shortest = leaf.shortest(q)
    if shortest is None:
        assert leaf.is_empty()
        return
    level = {q}
    for n in range(min(len(shortest[0]), 7)):
        assert not any(leaf.label(at) >= 0 for at in level), f"{n} under {spec}"
        level = {to for at in level for to in leaf.row(at).values()}
    for byte in bytes(shortest[0]):
        q = leaf.row(q)[byte]
    assert leaf.label(q) >= 0


@pytest.mark.parametrize("sign", [1, -1])
def test_the_shortest_way_begins_with_a_digit_that_is_allowed(sign: int) -> None:
    # 5e-7 would be shorter, but beside multiples no mantissa is free, and no plain number up to
    # this bound begins with 5.
    bound = sign * Decimal("5e-7")
    lower, upper = sorted((bound, Decimal(0)))
    leaf = NumberLeaf(NumberSpec(lower, upper, non_multiples=(Decimal(1),), canonical=True))
    shortest = leaf.shortest(leaf.start)
    assert shortest is not None
    assert leaf_accepts(leaf, bytes(shortest[0]).decode())


def test_zeros_may_stand_at_the_end_of_a_fraction() -> None:
    # What has been written as 2.50 could else go on with another digit only, and would.
    constraint = structgen.compile(JsonSchema({"type": "number", "maximum": 20}), TINY)
    cursor = constraint.start()
    for byte in b"2.50":
        assert not cursor.is_finished
        cursor.accept(next(i for i, t in enumerate(TINY.tokens) if t == bytes([byte])))
        assert cursor.is_accepting == (byte != ord("."))
    assert constraint.allows("12.00")
    assert constraint.allows("2e0")
    assert not constraint.allows("20.01")
    cents = structgen.compile(JsonSchema({"type": "number", "multipleOf": 0.01}), TINY)
    assert [cents.allows(t) for t in ("2.5", "2.50", "2.500", "2", "2.55")] == [1, 1, 0, 1, 1]
    assert not structgen.compile(JsonSchema({"type": "integer"}), TINY).allows("2.0")


def check(schema: dict[str, Any], good: list[str], bad: list[str], max_digits: int = 24) -> None:
    constraint = structgen.compile(JsonSchema(schema), TINY, spelling="any", max_digits=max_digits)
    rng = random.Random(1)
    for text in good:
        assert accepts(constraint, text, rng), text
    for text in bad:
        assert not accepts(constraint, text, rng), text


def test_the_grammar_of_json_numbers() -> None:
    check(
        {"type": "number"},
        ["0", "-0", "1", "-1", "10", "0.0", "-0.5", "1.50", "1e5", "1E5", "1e+5", "1e-05", "0e0"],
        [
            *(
                "",
                "-",
                "+1",
                "01",
                "00",
                "-01",
                ".5",
                "1.",
                "1.e5",
                "1e",
                "1e+",
                "e5",
                "0x1",
                "1_0",
            ),
            *("NaN", "Infinity", "-Infinity", "1,0", "1 ", "--1", "1.2.3"),
        ],
    )


def test_integers() -> None:
    # 1.0 and 1e2 are integers: the standard goes by value.
    check(
        {"type": "integer"},
        ["0", "-0", "12", "-12", "1.0", "1.00", "1e2", "1.5e1", "-2.50e2", "100e0"[:3] + "0"],
        ["0.5", "1.5", "1e-1", "1.25e1", "1.", "01"],
    )


def test_bounds_at_the_edge() -> None:
    check(
        {"minimum": 10, "maximum": 12.5},
        ["10", "10.0", "12.5", "12.50", "11", "1e1", "1.25e1", "1.1E+1"],
        ["9", "9.999", "12.51", "13", "100", "1", "-11", "1e0", "1.26e1", "0"],
    )
    check(
        {"exclusiveMinimum": -1, "exclusiveMaximum": 0},
        ["-0.5", "-0.999", "-0.0001", "-1e-3"],
        ["0", "-0", "-0.0", "-1", "-1.0", "0.5", "-1e0", "-2"],
    )
    check({"exclusiveMinimum": 0}, ["0.001", "1", "1e-300"], ["0", "-0", "0.0", "-0.000", "-1"])
    check({"maximum": 0, "minimum": 0}, ["0", "-0", "0.0"], ["1", "0.1", "-0.1"])
    check({"minimum": 0.1, "maximum": 0.1}, ["0.1", "0.10", "1e-1"], ["0", "0.11", "0.09", "0.2"])


def test_multiples() -> None:
    check({"multipleOf": 0.01}, ["0.01", "1.15", "-3.3", "0", "7"], ["0.001", "0.005", "1.155"], 6)
    check({"multipleOf": 2.5}, ["0", "2.5", "5", "-7.5", "10.0"], ["1", "2", "2.25", "6"], 6)
    check(
        {"allOf": [{"multipleOf": 6}, {"multipleOf": 4}], "minimum": 1},
        ["12", "24", "36.0"],
        ["6", "4", "8", "0", "18", "30"],
        6,
    )
    check({"type": "integer", "multipleOf": 1.5}, ["3", "6", "-3.0"], ["1.5", "4.5", "1", "2"], 6)


def test_bounds_beyond_what_floats_tell_apart() -> None:
    big = 12345678901234567890
    check({"minimum": big, "type": "integer"}, [str(big), str(big + 1)], [str(big - 1)])
    check({"maximum": big, "minimum": big - 1}, [str(big), f"{big}.0"], [f"{big}.1", str(big + 1)])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 17, "maximum": 23},
        {"type": "number", "minimum": 0.995, "exclusiveMaximum": 1.005},
        {"type": "integer", "multipleOf": 7, "minimum": 100, "maximum": 200},
        {"type": "number", "multipleOf": 0.25, "exclusiveMinimum": -1, "exclusiveMaximum": 0},
        {"minimum": 99999, "type": "number"},
        {"maximum": -1000, "type": "integer"},
    ],
)
def test_walks_stay_within(schema: dict[str, Any]) -> None:
    constraint = structgen.compile(JsonSchema(schema), TINY)
    rng = random.Random(str(schema))
    least = minimum(constraint)
    for extra in range(8):
        text = walk(constraint, rng, max_tokens=least + extra, end=0.05).text
        value = Decimal(text)
        assert value >= Decimal(str(schema.get("minimum", "-1e999")))
        assert value <= Decimal(str(schema.get("maximum", "1e999")))
        assert value > Decimal(str(schema.get("exclusiveMinimum", "-1e999")))
        assert value < Decimal(str(schema.get("exclusiveMaximum", "1e999")))
        assert value % Decimal(str(schema.get("multipleOf", value or 1))) == 0
        assert schema.get("type") != "integer" or value == int(value)


def test_digits_are_bounded() -> None:
    constraint = structgen.compile(JsonSchema({"type": "number"}), TINY, max_digits=3)
    rng = random.Random(4)
    for text, want in [("999", True), ("1000", False), ("1.234", True), ("1.2345", False)]:
        assert accepts(constraint, text, rng) == want, text


@pytest.mark.parametrize("schema", [{"type": "number"}, {"minimum": 1}, {"type": "integer"}])
def test_every_number_written_is_a_finite_float(schema: dict[str, Any]) -> None:
    constraint = structgen.compile(JsonSchema(schema), TINY, spelling="any")
    rng = random.Random(6)
    for text in ("1e300", "1.7e+300", "1e307"):
        assert accepts(constraint, text, rng), text
    for text in ("1e309", "9e400", "1e999", "9.9e308", "1" + "0" * 400):
        assert not accepts(constraint, text, rng), text


def test_multiples_go_by_value_whatever_the_exponent() -> None:
    check({"multipleOf": 1e-05}, ["1e-05", "0.00002", "3E-4", "1"], ["1e-06", "1.5e-05"])
    check({"multipleOf": 10}, ["1e+22", "20", "0.5e2", "1000e-2", "0e7"], ["1e0", "25e-1", "15"])
    check({"multipleOf": 0.5, "maximum": 99}, ["1e1", "25e-1", "9.9e1"], ["1e2", "1e-1", "251e-2"])
    check({"type": "integer", "multipleOf": 86400}, ["86400", "8.64e4", "0"], ["8.64e3", "86401"])


def test_many_fine_multiples_are_no_search() -> None:
    steps = ["0.0001", "0.0007", "0.013", "97", "86400", "1.5"]
    schema = {
        "allOf": [{"multipleOf": float(step)} for step in steps],
        "not": {"anyOf": [{"multipleOf": step} for step in (11, 0.0017, 19)]},
        "minimum": 1000000,
        "exclusiveMaximum": 10000000000,
    }
    constraint = structgen.compile(JsonSchema(schema), TINY)
    rng = random.Random(2)
    for extra in range(4):
        value = Decimal(walk(constraint, rng, max_tokens=minimum(constraint) + extra).text)
        assert all(value % Decimal(step) == 0 for step in steps)
        assert all(value % step for step in (11, Decimal("0.0017"), 19))


def test_the_numbers_of_a_constant_in_every_spelling() -> None:
    check({"enum": [1, 0.5]}, ["1", "1.00", "10e-1", "0.5", "5E-1"], ["5", "1.01", "0", "-1"])
    check({"const": 1e308}, ["1e308", "1e+308", "10e307"], ["1e307", "2e308"])


def test_numbers_as_python_and_javascript_write_them() -> None:
    def verdicts(schema: dict[str, Any], *texts: str) -> list[bool]:
        constraint = structgen.compile(JsonSchema(schema), TINY)
        return [accepts(constraint, text, random.Random(1)) for text in texts]

    number = {"type": "number"}
    r = random.Random(3)
    floats = [r.uniform(1, 10) * 10.0 ** r.randint(-300, 300) for _ in range(200)]
    written = [repr(value) for value in floats if abs(math.log10(value)) < 15 or "e" in repr(value)]
    assert all(verdicts(number, *written, "6.022e23", "1e-7", "1e+16", "-1.6e-19", "5e-324"))
    assert not any(verdicts(number, "12e3", "0.5e3", "0e0", "1E5", "1e309", "1e1234", "1.e5", "1e"))
    assert verdicts({"exclusiveMinimum": 0, "maximum": 100}, "2e1", "2e2", "2e-7") == [1, 0, 1]
    # Where 8.5 is too much, so that nothing plain begins so, 8e-1 is no way out.
    assert verdicts({"minimum": 0, "maximum": 1}, "1e-7", "8e-1", "0.8") == [1, 0, 1]
    assert verdicts({"minimum": 1e20}, "6.022e23", "6e19", "1e20") == [1, 0, 1]
    assert verdicts({"maximum": 1e-5, "minimum": 0}, "6.02e-6", "2e-5", "0.000006", "0") == [
        1,
        0,
        1,
        1,
    ]
    assert verdicts({"multipleOf": 0.5}, "1.5e3", "1e-1", "2.5e1", "1.25e1") == [1, 0, 1, 0]
    assert verdicts({"type": "integer"}, "1e3", "1000") == [0, 1]
    items = {"type": "array", "items": number, "uniqueItems": True}
    same = "[10,1e1]", "[10,1e+01]", "[1.50e2,150.0]", "[12,1.2e1]"
    assert not any(verdicts(items, *same))
    assert verdicts(items, "[1e1,1e2]", "[10,1.0e-1]") == [1, 1]
