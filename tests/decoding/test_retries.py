"""``retries=``: outputs that go back to where a refused value began, and what is barred there."""

from __future__ import annotations

import itertools
import pickle
import re
import threading
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from fakes import END, SIZE, TOKENS, FakeModel, FakeSequence, encode
from guards import counted
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PastDate,
    ValidationError,
    field_validator,
    model_validator,
)

import structgen
from structgen import Cfg, Generator, OptionError, ParseError, Regex, Template
from structgen.decoding.checks import Barred
from structgen.errors import ValidationFailed
from structgen.sampling import Logits, TokenIds
from structgen.types import lower


def short_id(value: object) -> str:
    """``str`` without addresses, which differ between the processes that share the tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def even(value: int) -> int:
    if value % 2:
        raise ValueError("guests come in pairs")
    return value


def known(name: str) -> str:
    if name not in ("Ann", "Bo"):
        raise ValueError(f"nobody is called {name}")
    return name


class Booking(BaseModel):
    nights: Annotated[int, Field(ge=1, le=9)]
    guests: Annotated[int, AfterValidator(even)]


class Bounded(BaseModel):
    guests: Annotated[int, Field(ge=1, le=9), AfterValidator(even)]


class Guest(BaseModel):
    name: Annotated[str, AfterValidator(known)]
    age: int


class Span(BaseModel):
    first: Annotated[int, Field(ge=1, le=9)]
    last: Annotated[int, Field(ge=1, le=9)]

    @model_validator(mode="after")
    def ordered(self) -> Span:
        if self.last <= self.first:
            raise ValueError("the last comes after the first")
        return self


class Likes(FakeModel):
    """Likes some tokens after some texts; all others little, and all alike.

    Args:
        likes: by the end of the text so far: the probabilities of tokens. What is not there goes
            on with the script.
    """

    def __init__(self, script: str, likes: Mapping[str, Mapping[str, float]]) -> None:
        super().__init__(script)
        self.likes = {end.encode(): scores for end, scores in likes.items()}

    def start(
        self, max_length: int, *, prefix: TokenIds | None = None, **options: Any
    ) -> FakeSequence:
        sequence = Liking(self, max_length, None if prefix is None else len(prefix))
        self.started.append(sequence)
        return sequence


class Liking(FakeSequence):
    def _scores(self, end: int | None = None) -> Logits:
        assert isinstance(self.model, Likes)
        text = b"".join(TOKENS[token] for token in self._ids[:end])
        likes = self.model.likes
        best = max((one for one in likes if text.endswith(one)), key=len, default=None)
        if best is None:
            return super()._scores(end)
        scores = np.full((1, SIZE), -20, np.float32)
        for token, probability in likes[best].items():
            (token_id,) = encode(token) if token else (END,)
            scores[0, token_id] = np.log(probability)
        return scores


def refused_by(output_type: Any, text: str) -> bool:
    try:
        lower(output_type).parse(text)
    except ParseError:
        return True
    return False


# -- going back -------------------------------------------------------------------------------


GUESTS = {
    'guests":': {"3": 0.6, "4": 0.3, "5": 0.1},
    **{f'guests":{n}': {"}": 0.99, "0": 0.01} for n in "345"},
}


def test_a_refused_value_is_written_anew_and_what_is_good_before_it_stays() -> None:
    model = Likes('{"nights":2,"guests":', GUESTS)
    result = Generator(model, Booking).result("x", retries=1)
    assert result.text == '{"nights":2,"guests":4}'
    assert result.value == Booking(nights=2, guests=4)
    (attempt,) = result.attempts
    assert (attempt.path, attempt.text) == ("$.guests", "3")
    assert "pairs" in attempt.message
    assert str(attempt) == "$.guests: Value error, guests come in pairs (got '3')"
    assert result.usage.retries == 1
    assert result.usage.retried_tokens == 2  # the digit, and the bracket that ended it
    assert result.usage.output_tokens == len(result.token_ids)
    assert b"".join(TOKENS[token] for token in result.token_ids).decode() == result.text
    assert result.finish_reason == "stop"
    (sequence,) = model.started
    assert sequence.closed
    assert pickle.loads(pickle.dumps(result.attempts)) == result.attempts


def test_no_other_digits_are_added_to_a_refused_number() -> None:
    """``3`` may not end there, and ``30`` would do; but the model did not want it."""
    likes = {**GUESTS, 'guests":': {"3": 0.9, "4": 0.09, "5": 0.01}}
    assert Generator(Likes('{"', likes), Bounded)("x", retries=1) == '{"guests":4}'
    likes['guests":3'] = {"}": 0.5, "0": 0.5}  # unless it did
    likes['guests":30'] = {"}": 1.0}
    model = Likes('{"nights":2,"guests":', likes)
    assert Generator(model, Booking)("x", retries=1) == '{"nights":2,"guests":30}'


def test_where_nothing_is_left_it_goes_back_further() -> None:
    model = Likes('{"', {'guests":': {"3": 0.6, "5": 0.3, "8": 0.1}})
    result = Generator(model, Bounded).result("x", retries=2)
    assert result.text == '{"guests":8}'
    assert [attempt.text for attempt in result.attempts] == ["3", "5"]


def test_a_refused_object_is_written_anew() -> None:
    model = FakeModel('{"first":5,"last":3}')
    result = Generator(model, Span).result("x", retries=80)
    assert result.value.first < result.value.last
    assert {attempt.path for attempt in result.attempts} == {"$"}
    texts = [attempt.text for attempt in result.attempts]
    assert len(set(texts)) == len(texts) >= 1
    assert all(refused_by(Span, text) for text in texts)


class Three(BaseModel):
    a: Annotated[int, Field(ge=1, le=3)]
    b: Annotated[int, Field(ge=1, le=3)]
    c: bool

    @model_validator(mode="after")
    def the_one(self) -> Three:
        if (self.a, self.b, self.c) != (1, 2, False):
            raise ValueError("not the one")
        return self


class Chained(BaseModel):
    a: Annotated[int, Field(ge=1, le=4)]
    b: Annotated[int, Field(ge=1, le=4)]

    @field_validator("b")
    @classmethod
    def after_a(cls, value: int, info: Any) -> int:
        if value != info.data["a"] + 3:
            raise ValueError("three more")
        return value


def the_answer(value: Any) -> Any:
    if str(value) not in ("2024", "yes", "d"):
        raise ValueError("not the answer")
    return value


FEW = [
    (Three, 18),
    (Chained, 16),
    (list[Chained], None),
    (Annotated[int, Field(ge=2012, le=2024), AfterValidator(the_answer)], 13),
    (Annotated[str, Regex("[0-2]{4}|12|2024|2{1,6}"), AfterValidator(the_answer)], 89),
    (Annotated[Literal["a", "b", "c", "d"], AfterValidator(the_answer)], 4),
    (list[Annotated[Literal["a", "b", "c", "d"], AfterValidator(the_answer)]], None),
]


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 1.5, "seed": 1}, {"forced": False}],
    ids=["", "seed", "unforced"],
)
@pytest.mark.parametrize(("output_type", "n_texts"), FEW, ids=short_id)
def test_the_one_valid_text_is_found_and_only_refused_ones_are_barred(
    output_type: Any, n_texts: int | None, options: Any
) -> None:
    """With as many retries as there are other texts: none is tried twice, and none that is valid
    is barred."""
    for script in (None, '{"a":3,"b":3,"c":true}', "2012", '["a","b"]'):
        generator = Generator(FakeModel(script), output_type, whitespace="compact")
        for k in range(3):
            n_retries = 60 if n_texts is None else n_texts - 1
            more = {**options, "seed": k} if "seed" in options else options
            result = generator.result(f"{k}", retries=n_retries, max_new_tokens=30, **more)
            assert not refused_by(output_type, result.text)
            tried = [(attempt.path, attempt.text) for attempt in result.attempts]
            if n_texts is not None and output_type is not Chained:  # whose a tells them apart
                assert len(set(tried)) == len(tried)
            assert result.usage.retries == len(tried)
            again = generator.result(f"{k}", retries=n_retries, max_new_tokens=30, **more)
            assert (again.text, again.attempts) == (result.text, result.attempts)


@pytest.mark.parametrize("whitespace", ["natural", "spaced"])
@pytest.mark.parametrize(("output_type", "n_texts"), [FEW[0], FEW[1], FEW[3]], ids=short_id)
def test_a_text_with_other_blanks_is_the_same(
    output_type: Any, n_texts: int, whitespace: str
) -> None:
    for script in (None, '{"a":3, "b":3,"c": true}', "2012"):
        generator = Generator(FakeModel(script), output_type, whitespace=whitespace)
        for options in ({}, {"temperature": 1.5, "seed": 1}):
            result = generator.result("x", retries=n_texts - 1, max_new_tokens=60, **options)
            assert not refused_by(output_type, result.text)


class Named(BaseModel):
    name: Annotated[str, Regex("a {0,3}a"), AfterValidator(lambda one: the_answer("no"))]


def test_blanks_inside_strings_count() -> None:
    with pytest.raises(ValidationFailed, match="no other text is possible") as caught:
        Generator(FakeModel('{"name":"a a"}'), Named)("x", retries=9)
    assert len({attempt.text for attempt in caught.value.attempts}) == 4


def test_retries_run_out() -> None:
    generator = Generator(FakeModel('{"guests":3}'), Bounded)
    with pytest.raises(ValidationFailed, match="after 1 retry, the limit of") as caught:
        generator("x", retries=1)
    assert [attempt.path for attempt in caught.value.attempts] == ["$.guests"] * 2
    assert "pairs" in str(caught.value)
    assert caught.value.text.startswith('{"guests":')
    assert isinstance(caught.value.__cause__, ParseError)
    assert isinstance(caught.value.__cause__.__cause__, ValidationError)
    assert isinstance(caught.value, ParseError)


def test_there_may_be_no_other_text() -> None:
    class Odd(BaseModel):
        kind: Literal["a", "b"]
        guests: Annotated[Literal[1, 3], AfterValidator(even)]

    with pytest.raises(ValidationFailed, match="no other text is possible") as caught:
        Generator(FakeModel('{"kind":"a","guests":3}'), Odd)("x", retries=9)
    assert sorted(attempt.text for attempt in caught.value.attempts) == ["1", "3"]


def test_without_retries_all_is_as_before() -> None:
    generator = Generator(FakeModel('{"guests":3}'), Bounded)
    assert generator("x") == generator("x", retries=0) == '{"guests":3}'
    with pytest.raises(ParseError, match="pairs") as caught:
        generator.parse("x")
    assert not isinstance(caught.value, ValidationFailed)
    good = Generator(FakeModel('{"nights":2,"guests":4}'), Booking)
    assert good.result("x").token_ids == good.result("x", retries=3).token_ids
    assert good.result("x", retries=3).attempts == ()
    sampled = {"temperature": 1.0, "seed": 5}
    assert good("x", **sampled, max_new_tokens=40) is not None


def test_what_is_sampled_is_the_same_where_nothing_is_refused() -> None:
    generator = Generator(FakeModel(), Annotated[str, Regex("[a-z]{9}"), AfterValidator(str)])
    for seed in range(5):
        options = {"temperature": 1.0, "seed": seed}
        assert generator("x", **options) == generator("x", retries=2, **options)


# -- with all the rest ------------------------------------------------------------------------


NAMES = {
    'name":"': {"C": 0.9, "B": 0.09, "A": 0.01},
    'name":"C': {"y": 1.0},
    'name":"Cy': {'"': 1.0},
    'name":"B': {"o": 0.5, "x": 0.5},
    'name":"Bx': {'"': 1.0},
    'name":"Bo': {'"': 0.9, "x": 0.1},
    'name":"Box': {'"': 1.0},
    'name":"A': {"n": 1.0},
    'name":"An': {"n": 1.0},
    'name":"Ann': {'"': 1.0},
}


def test_a_stream_never_takes_back_what_it_has_given() -> None:
    generator = Generator(Likes('{"name":"Ann","age":12}', NAMES), Guest)
    stream = generator.stream("x", retries=20, temperature=1.0, seed=2, max_new_tokens=60)
    pieces = []
    for piece in stream:
        pieces.append(piece)
        assert "".join(pieces) == stream.result.text
    assert "".join(pieces) == stream.result.text
    assert stream.result.attempts
    assert stream.result.value.name in ("Ann", "Bo")
    # The name comes whole, all else as it is written.
    assert any(piece.startswith(('"Ann"', '"Bo"')) for piece in pieces)
    assert len(pieces) > 4


def test_values_of_a_stream_have_what_was_accepted() -> None:
    generator = Generator(Likes('{"nights":2,"guests":', GUESTS), Booking)
    seen = [
        partial.guests if partial.done("guests") else None
        for partial in generator.stream_values("x", retries=2)
    ]
    assert set(seen) <= {None, 4}
    assert seen[-1] == 4


@pytest.mark.parametrize("forced", [True, False])
def test_records_have_the_tokens_that_stayed(forced: bool) -> None:
    model = Likes('{"nights":2,"guests":', GUESTS)
    options = {"top_logprobs": 2, "trace": True, "forced": forced}
    result = Generator(model, Booking).result("x", retries=2, **options)
    assert result.usage.retries == 1
    assert tuple(step.token_id for step in result.logprobs) == result.token_ids
    assert "".join(step.token.decode() for step in result.trace) == result.text
    assert [step.path for step in result.trace if step.token in (b"4",)] == ["$.guests"]
    assert result.usage.forced_tokens == sum(step.is_forced for step in result.trace)
    assert all(np.isfinite(step.logprob) for step in result.logprobs)
    plain = Generator(FakeModel(result.text), Booking).result("x", logprobs=True, forced=forced)
    assert plain.token_ids == result.token_ids


@pytest.mark.parametrize("options", [{}, {"temperature": 1.5}], ids=["", "sampled"])
def test_budgets_hold(options: Any) -> None:
    """Retries end within the same budget, and where that leaves nothing, it is an error."""
    n_whole, failures = 0, []
    generator = Generator(FakeModel('{"a":3,"b":3,"c":true}'), Three, whitespace="compact")
    for n_tokens in range(8, 30):
        try:
            result = generator.result("x", retries=400, max_new_tokens=n_tokens, **options)
        except structgen.BudgetTooSmall:
            continue
        except ValidationFailed as error:
            failures.append(str(error))
            continue
        n_whole += 1
        assert result.usage.output_tokens < n_tokens
        assert (result.value.a, result.value.b, result.value.c) == (1, 2, False)
    assert n_whole > 8
    assert all("no other text is possible" in failure for failure in failures)


class Fickle(FakeModel):
    """Likes other tokens after each text, as its seed says."""

    def __init__(self, seed: int) -> None:
        super().__init__("")
        self.seed = seed

    def start(
        self, max_length: int, *, prefix: TokenIds | None = None, **options: Any
    ) -> FakeSequence:
        return FickleSequence(self, max_length, None if prefix is None else len(prefix))


class FickleSequence(FakeSequence):
    def _scores(self, end: int | None = None) -> Logits:
        assert isinstance(self.model, Fickle)
        random = np.random.default_rng([self.model.seed, *map(int, self._ids[:end])])
        return random.normal(0, 3, (1, SIZE)).astype(np.float32)


class Pair(BaseModel):
    a: Annotated[int, Field(ge=1, le=3)]
    b: Annotated[int, Field(ge=1, le=3)]

    @model_validator(mode="after")
    def the_one(self) -> Pair:
        if (self.a, self.b) != (2, 3):
            raise ValueError("another one")
        return self


@pytest.mark.parametrize("spare", [0, 3, 8, 14, 20])
def test_blanks_of_any_length_leave_the_one_valid_text_within_a_budget(spare: int) -> None:
    """Close to the end of a budget a text is dead in all its blanks at once."""
    for seed in range(6):
        generator = Generator(Fickle(seed), Pair, whitespace="flexible")
        assert generator.constraint is not None
        least = generator.constraint.start().min_tokens_to_finish()
        result = generator.result("x", retries=8, max_new_tokens=least + spare)
        assert result.value == Pair(a=2, b=3)
        assert len({re.sub(r"\s", "", one.text) for one in result.attempts}) == len(result.attempts)


def test_several_outputs_and_batches() -> None:
    generator = Generator(FakeModel('{"guests":3}'), Bounded)
    for values in (
        generator.parse(["x", "y"], retries=9),
        generator.batch(["x", "y", "z"], retries=9, batch_size=3),
        generator.parse("x", n=3, retries=9, temperature=1.0, seed=3),
    ):
        assert all(value.guests % 2 == 0 for value in values)
    three = Generator(FakeModel('{"a":3,"b":3,"c":true}'), Three)
    failing = three.parse(["x", "y"], retries=1, return_errors=True)
    assert all(isinstance(one, ValidationFailed) for one in failing)


def test_sections_before_the_answer() -> None:
    model = FakeModel('Hm.</think>\n\n{"guests":3}')
    generator = Generator(model, Bounded, think=30)
    result = generator.result("x", retries=9, max_new_tokens=40)
    assert result.value.guests % 2 == 0
    assert result.reasoning == "Hm."
    assert result.usage.retries >= 1
    draft = Generator(FakeModel("three"), Bounded, draft=True)
    assert draft.parse("x", retries=9, max_new_tokens=30).guests % 2 == 0


def test_cancelling_and_timeouts_end_it() -> None:
    event = threading.Event()
    generator = Generator(FakeModel('{"guests":3}'), Bounded)
    event.set()
    with pytest.raises(structgen.IncompleteOutput):
        generator("x", retries=3, cancel=event)
    seen: list[int] = []

    def stop_after_a_refusal(token_ids: TokenIds, logits: Logits) -> Logits:
        seen.append(token_ids.shape[1])
        if len(seen) > 3:
            event.set()
        return logits

    event.clear()
    with pytest.raises(structgen.IncompleteOutput) as caught:
        generator("x", retries=300, cancel=event, processor=stop_after_a_refusal)
    assert caught.value.text.startswith('{"guests":')


def test_other_grammars_are_checked_whole() -> None:
    def calm(text: str) -> str:
        if "!" in text:
            raise ValueError("calm down")
        return text

    generator = Generator(
        FakeModel("aa!"), Annotated[str, Regex("[ab]{1,3}!?"), AfterValidator(calm)]
    )
    result = generator.result("x", retries=100)
    assert "!" not in result.text
    assert result.attempts[0] == structgen.errors.Attempt("$", "aa!", "Value error, calm down")
    assert Generator(FakeModel("ab"), Cfg("start: /ab/"))("x", retries=3) == "ab"
    past = Generator(FakeModel("2999-01-01"), PastDate)
    assert past.parse("x", retries=50, temperature=1.0, seed=1).year < 2999


Pairs = Annotated[int, Field(ge=1, le=9), AfterValidator(even)]


def book(guests: Pairs) -> None:
    pass


def test_types_made_of_others_are_checked_whole() -> None:
    mine = Template("For {guests}.", guests=Pairs)
    result = Generator(FakeModel("For 3."), mine).result("x", retries=9)
    assert result.value["guests"] % 2 == 0
    assert result.attempts[0].text == "For 3."
    call = Generator(FakeModel('{"guests":3}'), book).parse("x", retries=9)
    assert call.arguments["guests"] % 2 == 0
    union = Annotated[int | None, AfterValidator(lambda value: value and even(value))]
    assert refused_by(union, "3")
    assert not refused_by(union, Generator(FakeModel("3"), union)("x", retries=9))


def test_confidence_after_a_retry() -> None:
    class Choice(BaseModel):
        kind: Annotated[Literal["a", "b", "c"], AfterValidator(lambda one: known("Ann") and one)]
        guests: Annotated[int, Field(ge=1, le=9), AfterValidator(even)]

    result = Generator(FakeModel('{"kind":"a","guests":3}'), Choice).result("x", retries=9)
    plain = Generator(FakeModel('{"kind":"a","guests":3}'), Choice).result("x")
    assert result.confidence["$.kind"] == plain.confidence["$.kind"]
    assert result.usage.retries


def test_options() -> None:
    generator = Generator(FakeModel("x"), Bounded)
    with pytest.raises(OptionError, match="stop= cannot be combined with retries="):
        generator("x", retries=1, stop="}")
    with pytest.raises(OptionError, match="retries= requires an output type"):
        Generator(FakeModel("x"))("x", retries=1)
    with pytest.raises(OptionError, match="retries=-1 is out of range"):
        generator("x", retries=-1)
    with pytest.raises(OptionError, match="belongs to the call"):
        Generator(FakeModel("x"), Bounded, retries=1)  # type: ignore[call-overload]
    # Where no code looks at anything there is nothing to go back for.
    assert Generator(FakeModel("12"), int)("x", retries=1, stop="3", max_new_tokens=9)


def test_a_validator_that_fails_by_itself_is_not_silenced() -> None:
    def broken(value: int) -> int:
        raise KeyError(value)

    generator = Generator(FakeModel("12"), list[Annotated[int, AfterValidator(broken)]])
    with pytest.raises(KeyError):
        generator("x", retries=3, max_new_tokens=20)


def test_a_check_that_changes_its_mind_is_named() -> None:
    seen: set[int] = set()

    def new(value: int) -> int:
        if value in seen:
            raise ValueError("seen before")
        seen.add(value)
        return value

    class Once(BaseModel):
        a: Annotated[int, Field(ge=1, le=9), AfterValidator(new)]

    model = FakeModel('{"a":1}')
    with pytest.raises(ValidationFailed, match="a check gives different results for the same text"):
        Generator(model, Once)("x", retries=3)
    assert all(sequence.closed for sequence in model.started)


def test_each_value_is_judged_once_where_it_is_accepted() -> None:
    calls: list[int] = []

    def count(value: int) -> int:
        calls.append(value)
        return value

    class Counted(BaseModel):
        a: Annotated[int, AfterValidator(count)]
        b: bool

    script = '{"a":12,"b":true}'
    result = Generator(FakeModel(script), Counted).result("x", retries=3)
    assert result.value is result.value
    assert calls == [12, 12]  # when it closed, and in the whole, whose value is kept


def test_barring_is_by_text_in_whatever_tokens() -> None:
    """All ways to spell the digits are one text."""
    digits = Annotated[str, Regex("[12]{4}"), AfterValidator(lambda one: the_answer("no"))]
    texts = {"".join(one) for one in itertools.product("12", repeat=4)}
    with pytest.raises(ValidationFailed, match="no other text is possible") as caught:
        Generator(FakeModel(), digits)("x", retries=1000)
    assert sorted(attempt.text for attempt in caught.value.attempts) == sorted(texts)


def test_what_is_barred_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand refusals of one value would take seconds at each token."""

    def never(value: int) -> int:
        raise ValueError("no")

    class Refused(BaseModel):
        name: str
        n: Annotated[int, Field(ge=0, le=9999), AfterValidator(never)]

    walks, texts = counted(monkeypatch, Barred, "_ends"), counted(monkeypatch, Barred, "_plain")
    with pytest.raises(ValidationFailed) as caught:
        Generator(FakeModel('{"name":"Bo","n":1'), Refused)(
            "x", retries=60, temperature=1.0, seed=1
        )
    n_refused = len(caught.value.attempts)
    assert n_refused == 61
    assert len(walks) < 5 * n_refused
    assert len(texts) < 20 * n_refused
