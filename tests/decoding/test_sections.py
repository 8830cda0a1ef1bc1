"""Thoughts and drafts before an answer: budgets, what is told apart, all options beside them."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import fakes
import numpy as np
import pytest
from fakes import PAD, SIZE, TOKENS, FakeModel, chat, encode
from pydantic import BaseModel
from tool_templates import Templated

import structgen
from structgen import (
    BatchError,
    BudgetTooSmall,
    Call,
    Draft,
    Generator,
    IncompleteOutput,
    OptionError,
    Think,
    ToolCalls,
    Vocabulary,
)
from structgen.decoding import Chunk
from structgen.decoding.thinking import CHAT_REQUEST, TEXT_REQUEST, ThinkTags, think_tags
from structgen.models.genai import TextModel

Tea = Literal["tea", "coffee"]
ASK = [{"role": "user", "content": "Tea?"}]


class Cup(BaseModel):
    drink: Tea
    hot: bool


def text_of(token_ids: Any) -> str:
    return b"".join(TOKENS[token] for token in token_ids).decode()


def written(model: FakeModel) -> str:
    """All that the last sequence holds."""
    return text_of(model.started[-1].token_ids[0])


# -- thoughts ---------------------------------------------------------------------------------


def test_a_thought_comes_before_the_answer() -> None:
    model = FakeModel("Hot is good.</think>\n\ncoffee")
    generator = Generator(model, Tea, think=60)
    result = generator.result("Tea?", max_new_tokens=20)
    assert result.reasoning == "Hot is good."
    assert result.text == "coffee"
    assert result.value == "coffee"
    assert result.finish_reason == "stop"
    assert result.draft is None
    assert text_of(result.token_ids) == "coffee"
    assert result.usage.prompt_tokens == len(encode("Tea?"))
    assert result.usage.output_tokens == len(encode("coffee"))
    around = "<think>\nHot is good.</think>\n\n"
    assert result.usage.reasoning_tokens == len(encode(around))
    assert written(model).startswith(f"Tea?{around}")
    assert generator("Tea?", max_new_tokens=20) == "coffee"
    assert generator.parse("Tea?", max_new_tokens=20) == "coffee"


def test_streams_tell_sections_apart() -> None:
    model = FakeModel("Hot is good.</think>\n\ncoffee")
    stream = Generator(model, Tea, think=60).stream("Tea?", max_new_tokens=20)
    assert stream.section is None
    found: dict[str, str] = {}
    for chunk in stream:
        assert chunk.section == stream.section
        found[chunk.section] = found.get(chunk.section, "") + chunk
    assert found == {"reasoning": "Hot is good.", "answer": "coffee"}
    assert stream.result.text == "coffee"
    alone = Generator(FakeModel("coffee"), Tea).stream("Tea?", max_new_tokens=20)
    assert {chunk.section for chunk in alone} == {"answer"}
    again = pickle.loads(pickle.dumps(Chunk("a", "draft")))
    assert (again, again.section) == ("a", "draft")


def test_a_budget_that_is_over_closes_the_thought() -> None:
    model = FakeModel("on and " * 60, context_length=400)
    result = Generator(model, Cup, think=40).result("Tea?", max_new_tokens=40)
    assert result.usage.reasoning_tokens == 40
    assert result.reasoning is not None
    assert ("on and " * 60).startswith(result.reasoning)
    assert isinstance(result.value, Cup)
    assert f"{result.reasoning}\n</think>\n\n{{" in re.sub(" +\n", "\n", written(model))


def test_a_closing_tag_that_the_budget_cuts_is_completed() -> None:
    script = "Hot.</think>\n\ntea"
    tags = len(encode("<think>\n\n</think>\n\n"))
    for room in range(5, 14):
        generator = Generator(FakeModel(script), Tea, think=tags + room)
        stream = generator.stream("Tea?", max_new_tokens=9)
        said = "".join(chunk for chunk in stream if chunk.section == "reasoning")
        assert said == stream.result.reasoning
        assert said in ("Hot.", "Hot.<")
        assert stream.result.usage.reasoning_tokens <= tags + room


def test_the_end_of_the_sequence_closes_the_thought() -> None:
    model = FakeModel("Hot.")
    result = Generator(model, Tea, think=60).result("Tea?", max_new_tokens=20)
    assert result.reasoning == "Hot."
    assert result.value in ("tea", "coffee")
    assert "<think>\nHot.\n</think>\n\n" in written(model)


@pytest.mark.parametrize("seed", range(25))
def test_budgets_are_kept_and_answers_are_whole(seed: int) -> None:
    # Noise, so that thoughts end anywhere: inside of characters, too.
    model = FakeModel(context_length=400)
    think, most = 24 + 3 * seed, 24 + seed % 7
    generator = Generator(model, Cup, think=think, draft=Draft(max_tokens=9 + seed % 4))
    result = generator.result("Tea?", max_new_tokens=most, temperature=1.0, seed=seed)
    assert result.usage.reasoning_tokens <= think
    assert result.usage.draft_tokens <= 9 + seed % 4
    assert result.usage.output_tokens < most
    assert isinstance(result.value, Cup)
    assert "</think>" not in (result.reasoning or "")
    assert "\ufffd" not in (result.reasoning or "")
    assert generator.result("Tea?", max_new_tokens=most, temperature=1.0, seed=seed).text == (
        result.text
    )


@pytest.mark.parametrize("think", [24, 31, 40, 60])
def test_the_answer_is_what_the_type_gives_after_all_that_stands_before_it(think: int) -> None:
    model = FakeModel(context_length=400)
    plain = {token: -float("inf") for token, data in enumerate(TOKENS) if not data.isascii()}
    options: dict[str, Any] = {"max_new_tokens": 30, "logit_bias": {3: -float("inf"), **plain}}
    result = Generator(model, Cup, think=think, draft=Draft(max_tokens=9)).result("Tea?", **options)
    usage = result.usage
    length = usage.prompt_tokens + usage.reasoning_tokens + usage.draft_tokens
    ids = model.started[-1].token_ids[0][:length].tolist()
    alone = FakeModel(context_length=400)
    alone.encode = lambda text: np.array(ids, np.int32)  # type: ignore[method-assign]
    again = Generator(alone, Cup).result("the same tokens", forced=False, **options)
    assert again.text == result.text


def test_budgets_without_room_are_told_before_anything_runs() -> None:
    model = FakeModel(context_length=100)
    with pytest.raises(OptionError, match=r"think= allows 5 tokens, but with .* one token between"):
        Generator(model, Tea, think=5)
    for think in (-1, True, False, 2.5, "many"):
        with pytest.raises(OptionError, match=r"is not a number of tokens"):
            Generator(model, Tea, think=think)  # type: ignore[arg-type]
    least = next(n for n in range(8, 40) if _has_room(model, n))
    assert Generator(model, Tea, think=least).result("Tea?").usage.reasoning_tokens <= least
    with pytest.raises(OptionError, match=r"max_new_tokens=80 is too large for fake"):
        Generator(model, Tea, think=40)("Tea?", max_new_tokens=80)
    with pytest.raises(BudgetTooSmall, match=r"72 are reserved for thoughts"):
        Generator(model, Cup, think=80)("Tea?")
    with pytest.raises(
        structgen.PromptError, match=r"is 100.* are reserved for thoughts and drafts"
    ):
        Generator(model, Cup, think=97)("Tea?")
    with pytest.raises(structgen.PromptError, match=r"has 1,000,.* are reserved for thoughts"):
        Generator(model, Cup, think=10**15)("Tea?")  # which took four bytes each
    assert not model.started[1:], "nothing ran but the one that had room"


def _has_room(model: FakeModel, think: int) -> bool:
    try:
        Generator(model, Tea, think=think)
    except OptionError:
        return False
    return True


def test_stop_strings_bear_on_the_answer() -> None:
    model = FakeModel("STOP it.</think>\n\nA b STOP c")
    result = Generator(model, think=60).result("Tea?", max_new_tokens=30, stop="STOP")
    assert result.reasoning == "STOP it."
    assert result.text == "A b "
    assert result.finish_reason == "stop_string"


def test_an_output_that_is_cut_in_its_thought_says_so() -> None:
    model = FakeModel("on and " * 20)
    event = threading.Event()
    stream = Generator(model, Cup, think=100).stream("Tea?", max_new_tokens=30, cancel=event)
    assert next(stream) == "o"
    event.set()
    with pytest.raises(IncompleteOutput, match=r"before its Cup began, in its reasoning: it was c"):
        list(stream)
    assert stream.result.finish_reason == "cancelled"
    assert stream.result.reasoning == "o"
    assert stream.result.text == ""
    assert stream.result.usage.reasoning_tokens == len(encode("<think>\no"))
    with pytest.raises(IncompleteOutput):
        assert stream.result.value
    with pytest.raises(IncompleteOutput, match=r"it timed out \(timeout=1e-09 seconds\)"):
        Generator(model, Cup, think=100)("Tea?", max_new_tokens=30, timeout=1e-9)
    stream = Generator(model, think=100).stream("Tea?", max_new_tokens=30)
    next(stream)
    stream.cancel()
    assert list(stream) == []
    with Generator(model, Cup, think=100).stream("Tea?", max_new_tokens=30) as left:
        next(left)
    assert left.result.finish_reason == "cancelled"
    assert model.started[-1].closed


def test_an_output_that_is_cut_in_its_thought_has_no_steps() -> None:
    """Its result had no trace, which ended the process of a server's model for all."""
    model, options = FakeModel("on and on"), {"trace": True, "logprobs": True, "timeout": 1e-9}
    for generator in (Generator(model, Cup, think=40), Generator(model, Cup, draft=Draft(9))):
        stream = generator.stream("Tea?", max_new_tokens=30, **options)
        with pytest.raises(IncompleteOutput):
            list(stream)
        result = stream.result
        assert ([*result.trace], result.logprobs) == ([], ())
        assert result.trace.prompt.startswith("Tea?")


@pytest.mark.parametrize("batch_size", [1, 3])
def test_batches_and_samples_are_those_of_single_calls(batch_size: int) -> None:
    model = FakeModel(context_length=400)
    generator = Generator(model, Cup, think=40, draft=Draft(max_tokens=8))
    prompts = ["Tea?", chat("Coffee?"), "Milk?"]
    asked: dict[str, Any] = {"max_new_tokens": 30, "temperature": 1.0, "seed": 3}
    asked["speculate"] = False  # for the counts of guesses
    singles = [generator.result(one, **asked) for one in prompts]
    together = generator.result(prompts, **asked, batch_size=batch_size, logprobs=True)
    assert bool(model.batches) == (batch_size > 1)
    for one, other in zip(singles, together, strict=True):
        assert (one.text, one.reasoning, one.draft) == (other.text, other.reasoning, other.draft)
        assert one.usage == other.usage
        alone = generator.result(prompts[together.index(other)], **asked, logprobs=True)
        assert alone.logprobs == other.logprobs
        assert len(other.logprobs) == other.usage.output_tokens
    samples = generator.result("Tea?", max_new_tokens=30, temperature=1.0, seed=3, n=3)
    assert samples[0].reasoning == singles[0].reasoning
    assert len({sample.reasoning for sample in samples}) == 3
    with pytest.raises(BatchError):
        generator(["Tea?", ""], max_new_tokens=30)


def test_log_probabilities_and_traces_are_the_answers() -> None:
    model = FakeModel("Hot is good.</think>\n\ncoffee")
    generator = Generator(model, Tea, think=60)
    result = generator.result("Tea?", max_new_tokens=20, top_logprobs=2, trace=True)
    assert [one.token_id for one in result.logprobs] == list(result.token_ids)
    assert len(result.trace) == len(result.token_ids)


def test_confidence_has_the_thought_in_view() -> None:
    model = FakeModel("Hot is good.</think>\n\ncoffee")
    model.prompt_length = len(encode("Tea?<think>\n"))
    generator = Generator(model, Tea, think=60)
    result = generator.result("Tea?", max_new_tokens=20)
    value = result.confidence["$"]
    assert value.probability > 0.9
    assert written(model).startswith("Tea?<think>\nHot is good.</think>\n\n")
    result = generator.result("Tea?", max_new_tokens=20, abstain_below=0.5)
    assert result.abstained == ()
    noise = Generator(FakeModel(context_length=300), Tea, think=40)
    with pytest.raises(structgen.Abstained):
        noise("Tea?", max_new_tokens=20, abstain_below=0.999999)


def test_forced_false_gives_the_same_text() -> None:
    model = FakeModel('Hot.</think>\n\n{"drink":"tea","hot":true}', context_length=300)
    generator = Generator(model, Cup, think=60)
    one = generator.result("Tea?", max_new_tokens=40)
    other = generator.result("Tea?", max_new_tokens=40, forced=False)
    assert one.text == other.text == '{"drink":"tea","hot":true}'
    assert one.reasoning == other.reasoning
    assert one.usage.forced_tokens


def test_processors_see_all_sections() -> None:
    seen: list[int] = []

    def look(token_ids: Any, logits: Any) -> Any:
        seen.append(token_ids.shape[1])
        return logits

    model = FakeModel("Hot.</think>\n\ntea")
    Generator(model, Tea, think=60, processor=look)("Tea?", max_new_tokens=20)
    assert seen[0] == len(encode("Tea?<think>\n"))
    assert seen == sorted(seen)


# -- tags -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "known"), [("thinking", True), ("may think", True), ("qwen", False)]
)
def test_the_template_shows_the_tags(model: TextModel, template: str, known: bool) -> None:
    assert think_tags(Templated(model, template)) == ThinkTags("<think>", "</think>", known)


class Opening(FakeModel):
    """Has a template that opens thoughts by itself, and perhaps closes them."""

    opening = "<think>\n"

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        return super().apply_chat_template(messages) + self.opening


def test_a_thought_that_the_template_opens_is_gone_on_with() -> None:
    model = Opening("Hot.</think>\n\ntea", context_length=300)
    result = Generator(model, Tea, think=60).result(ASK, max_new_tokens=10)
    assert (result.reasoning, result.text) == ("Hot.", "tea")
    start = "[user]Tea?\n[assistant]<think>\n"
    assert written(model).startswith(f"{start}Hot.</think>\n\n")
    assert result.usage.prompt_tokens == len(encode(start)) + 1  # the end of the turn
    assert result.usage.reasoning_tokens == len(encode("Hot.</think>\n\n"))


def test_a_thought_that_the_template_closes_at_once_is_opened() -> None:
    model = Opening("Hot.</think>\n\ntea", context_length=300)
    model.opening = "<think>\n\n</think>\n\n"
    result = Generator(model, Tea, think=60).result(ASK, max_new_tokens=10)
    assert (result.reasoning, result.text) == ("Hot.", "tea")
    assert written(model).startswith("[user]Tea?\n[assistant]<think>\nHot.</think>\n\n")


def test_no_tokens_to_think_close_a_thought_that_the_template_opens() -> None:
    model = Opening("tea", context_length=500)
    start = "[user]Tea?\n[assistant]<think>\n"
    generator = Generator(model, Tea, think=0)
    assert generator.result(ASK, max_new_tokens=10).reasoning is None
    assert written(model).startswith(f"{start}</think>\n\n")
    generator.probabilities(ASK)
    assert written(model).startswith(f"{start}</think>\n\n")
    Generator(model, Tea)(ASK, max_new_tokens=10)
    assert not written(model).startswith(f"{start}</think>"), "as the template has it"
    Generator(model, Tea, think=0, draft=Draft(max_tokens=5))(ASK, max_new_tokens=10)
    assert written(model).count("<think>\n</think>\n\n") == 2
    for opening in ("", "<think>\n\n</think>\n\n"):
        model.opening = opening
        Generator(model, Tea, think=0)(ASK, max_new_tokens=10)
        assert written(model).startswith(f"[user]Tea?\n[assistant]{opening}")
        assert written(model).count("<think>") == bool(opening)


def test_other_models_are_told_to_think() -> None:
    model = FakeModel("Hot.</think>\n\ntea", context_length=500)
    Generator(model, Tea, think=30)(ASK, max_new_tokens=10)
    assert written(model).startswith(
        "[system]Before you answer, think step by step between <think>"
    )
    own = Think(30, tags=("[[", "]]"), instructions="Use {begin} and {end}.")
    model = FakeModel("Hot.]]\n\ntea", context_length=500)
    result = Generator(model, Tea, think=own).result(ASK, max_new_tokens=10)
    assert (result.reasoning, result.text) == ("Hot.", "tea")
    assert written(model).startswith(
        "[system]Use [[ and ]].\n[user]Tea?\n[assistant][[\nHot.]]\n\n"
    )
    Generator(model, Tea, think=Think(30, instructions=""))(ASK, max_new_tokens=10)
    assert written(model).startswith("[user]Tea?\n[assistant]<think>\n")
    for bad in ({"tags": ("a",)}, {"tags": ("", "b")}, {"instructions": 3}):
        with pytest.raises(OptionError):
            Think(30, **bad)  # type: ignore[arg-type]


def test_tags_may_be_control_tokens() -> None:
    begin, end = SIZE, SIZE + 1

    class Special(FakeModel):
        def __init__(self, script: str) -> None:
            super().__init__(script, context_length=300)
            self.vocabulary = Vocabulary.from_tokens(
                [*TOKENS, *[b""] * (SIZE + 2 - len(TOKENS))],
                [1, 2],
                special_token_ids=[PAD, begin, end],
                named_tokens={"<think>": begin, "</think>": end},
            )

        def encode(self, text: str) -> Any:
            ids: list[int] = []
            for part in re.split("(</?think>)", text):
                ids += {"<think>": [begin], "</think>": [end]}.get(part) or encode(part)
            return np.array(ids, np.int32)

    model = Special("Hot.")
    assert think_tags(model).known
    wide = fakes.SIZE
    fakes.SIZE = SIZE + 2
    try:
        # It thinks until it ends, or, with its own tag, closes the thought by itself.
        for script in ([*encode("Hot."), 1], [*encode("Hot."), end, *encode("\n\ntea"), 1]):
            model.script = script
            result = Generator(model, Tea, think=30).result("Tea?", max_new_tokens=10)
            assert result.reasoning == "Hot."
            ids = model.started[-1].token_ids[0].tolist()
            assert ids.count(begin) == ids.count(end) == 1
            assert ids[ids.index(end) + 1 :][: len(encode("\n\n"))] == encode("\n\n")
    finally:
        fakes.SIZE = wide


# -- drafts -----------------------------------------------------------------------------------


def test_a_draft_comes_before_the_answer() -> None:
    model = FakeModel("I take tea.", context_length=500)
    generator = Generator(model, Tea, draft=True)
    result = generator.result("Tea?", max_new_tokens=20)
    assert result.draft == "I take tea."
    assert result.reasoning is None
    assert result.value in ("tea", "coffee")
    assert written(model).startswith(f"Tea?I take tea.{TEXT_REQUEST}")
    assert result.usage.draft_tokens == len(encode("I take tea."))
    assert result.usage.prompt_tokens == len(encode(f"Tea?{TEXT_REQUEST}"))
    sections = [chunk.section for chunk in generator.stream("Tea?", max_new_tokens=20)]
    assert sections == sorted(sections, reverse=True)
    assert {*sections} == {"draft", "answer"}


def test_in_a_chat_a_further_turn_asks_for_the_answer() -> None:
    model = FakeModel("I take tea.", context_length=500)
    generator = Generator(model, Tea, draft=True)
    generator(ASK, max_new_tokens=20)
    assert written(model).startswith(
        f"[user]Tea?\n[assistant]I take tea.\n[user]{CHAT_REQUEST}\n[assistant]"
    )
    own = Draft(max_tokens=3, request="Again!", text_request=" -> ")
    result = Generator(model, Tea, draft=own).result(ASK, max_new_tokens=20)
    assert written(model).startswith("[user]Tea?\n[assistant]I \n[user]Again!\n[assistant]")
    assert result.usage.draft_tokens == 2
    Generator(model, Tea, draft=own)("Tea?", max_new_tokens=20)
    assert written(model).startswith("Tea?I  -> ")


def test_what_a_draft_needs() -> None:
    model = FakeModel("I take tea.")
    with pytest.raises(OptionError, match=r"draft= without max_new_tokens= has no limit"):
        Generator(model, Tea, draft=True)("Tea?")
    with pytest.raises(OptionError, match=r"must be a bool or a Draft"):
        Generator(model, Tea, draft=3)  # type: ignore[arg-type]
    for bad in ({"max_tokens": 0}, {"request": ""}, {"text_request": None}):
        with pytest.raises(OptionError):
            Draft(**bad)  # type: ignore[arg-type]
    assert Generator(model, Tea, draft=False).result("Tea?", max_new_tokens=9).draft is None


# -- together ---------------------------------------------------------------------------------


def add(a: int, b: int = 2) -> int:
    return a + b


def test_thoughts_text_and_calls() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 12}}\n</tool_call>'
    model = FakeModel(f"Sums.</think>\n\nLet me see. {call}", context_length=2000)
    generator = Generator(model, ToolCalls([add]), think=60)
    result = generator.result(ASK, max_new_tokens=150)
    assert result.reasoning == "Sums."
    assert result.value == ["Let me see. ", Call(add, {"a": 12})]
    found: dict[str, str] = {}
    for chunk in generator.stream(ASK, max_new_tokens=150):
        found[chunk.section] = found.get(chunk.section, "") + chunk
    assert found == {"reasoning": "Sums.", "answer": f"Let me see. {call}"}


def test_an_answer_that_is_begun_is_refused() -> None:
    begun = [*ASK, {"role": "assistant", "content": "I take"}]
    for options in ({"think": 60}, {"draft": True}):
        generator = Generator(FakeModel(), Tea, **options)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=r"The last message is the assistant's"):
            generator(begun, max_new_tokens=20)
        with pytest.raises(OptionError, match=r"probabilities are those of the answer alone"):
            generator.probabilities("Tea?")


# -- the real model ---------------------------------------------------------------------------


class Landmark(BaseModel):
    name: str
    city: str


@pytest.mark.parametrize("template", [None, "thinking"])
def test_the_default_model_thinks_and_drafts(model: TextModel, template: str | None) -> None:
    one: Any = model if template is None else Templated(model, template)
    ask = [{"role": "user", "content": "Where is the Eiffel Tower?"}]
    generator = Generator(one, Landmark, think=40, draft=Draft(max_tokens=20))
    stream = generator.stream(ask, max_new_tokens=40)
    sections = list(dict.fromkeys(chunk.section for chunk in stream))
    assert sections == ["reasoning", "draft", "answer"]
    result = stream.result
    assert isinstance(result.value, Landmark)
    assert result.usage.reasoning_tokens <= 40
    assert result.usage.draft_tokens <= 20
    assert result.usage.output_tokens <= 40
    assert generator.result(ask, max_new_tokens=40).text == result.text
