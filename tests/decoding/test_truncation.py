"""Prompts that are too long: what goes, and what stays."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import PAD, FakeModel, encode

from structgen import Generator, PromptError
from structgen.decoding.call_validation import tokens_of
from structgen.decoding.chat import without_oldest
from structgen.models.base import most_characters


def counting() -> tuple[FakeModel, list[int]]:
    """A model, and the lengths of all texts that it makes tokens of."""
    lengths: list[int] = []

    class Counting(FakeModel):
        def encode(self, text: str) -> Any:
            lengths.append(len(text))
            return super().encode(text)

    return Counting(), lengths


def chat(text: str) -> list[dict[str, Any]]:
    """``s``ystem, ``u``ser, ``a``ssistant and ``t``ool messages, each of 10 characters."""
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return [{"role": roles[one], "content": f"{i:010}"} for i, one in enumerate(text)]


def kept(text: str, room: int) -> str:
    given = chat(text)
    found = without_oldest(given, lambda some: sum(len(m["content"]) for m in some) - room)
    assert found[-1]["content"] == given[-1]["content"][-len(found[-1]["content"]) :]
    return "".join(message["role"][0] for message in found)


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        ("suau", 40, "suau"),
        ("suauau", 40, "suau"),  # a question goes with its answer
        ("suauau", 30, "su"),
        ("uatauatau", 60, "uatau"),  # and a tool's result with its call
        ("uatauatau", 40, "u"),
        ("susuau", 40, "ssu"),  # the system's stay
        ("sau", 20, "su"),
        ("u", 5, "u"),
        ("su", 13, "su"),
    ],
)
def test_the_oldest_turns_go_first(text: str, room: int, expected: str) -> None:
    assert kept(text, room) == expected


def test_the_last_message_loses_its_beginning() -> None:
    (message,) = without_oldest(
        [{"role": "user", "content": "0123456789"}], lambda some: len(some[0]["content"]) - 3
    )
    assert message == {"role": "user", "content": "789"}


def test_a_generator_cuts_when_it_is_asked() -> None:
    model = FakeModel()
    long = "ab" * model.context_length
    generator = Generator(model, ["yes", "no"])
    with pytest.raises(PromptError):
        generator(long)
    result = generator.result(long, truncate=True, max_new_tokens=8)
    assert result.usage.prompt_tokens == model.context_length - 8
    assert generator("a", truncate=True) in ("yes", "no")


@pytest.mark.parametrize("is_chat", [False, True])
def test_no_more_is_made_tokens_than_a_model_can_hold(is_chat: bool) -> None:
    model, lengths = counting()
    long = "ab" * (200 * model.context_length)
    prompt: Any = [{"role": "user", "content": long}] * 9 if is_chat else long
    result = Generator(model, ["yes", "no"]).result(prompt, truncate=True, max_new_tokens=8)
    assert result.usage.prompt_tokens == model.context_length - 8
    assert sum(lengths) < 20 * most_characters(model.context_length)


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("is_chat", [False, True])
def test_of_a_text_of_many_tokens_little_is_read(is_chat: bool, truncate: bool) -> None:
    """2.4 MB of Chinese are a million tokens, and take 8 s."""
    model, lengths = counting()
    long = "€" * (80 * model.context_length)  # not too many characters, but each is three tokens
    prompt: Any = [{"role": "user", "content": long}] if is_chat else long
    generator = Generator(model, ["yes", "no"])
    if truncate:
        result = generator.result(prompt, truncate=True, max_new_tokens=8)
        assert model.context_length - 12 < result.usage.prompt_tokens <= model.context_length - 8
    else:
        with pytest.raises(PromptError, match=r"about 4[0-9],[0-9]+ tokens") as caught:
            generator(prompt)
        assert caught.value.is_too_long
    assert max(lengths) < 5_000 < len(long)
    assert len(lengths) < 100


def test_a_text_keeps_the_tokens_that_every_prompt_begins_with() -> None:
    model = FakeModel("yes", context_length=40)
    model.start_ids = (PAD,)
    long = "".join(map(str, range(50)))
    Generator(model, ["yes", "no"]).result(long, truncate=True, max_new_tokens=8)
    ids = model.started[-1].token_ids[0].tolist()
    assert ids[0] == PAD
    assert ids[1:32] == encode(long)[-31:]


def test_a_prompt_without_room_is_told_how_much_shorter_it_has_to_be() -> None:
    for wanted, too_many in ((None, 45), (100, 144), (999, 45)):  # of 256 tokens
        with pytest.raises(PromptError, match=rf"Shorten it by at least {too_many} tokens"):
            Generator(FakeModel())("a" * 300, max_new_tokens=wanted)


def test_what_cannot_fit_is_refused_before_it_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    longest = 100 * model.context_length
    asked: list[int] = []
    encode = FakeModel.encode
    monkeypatch.setattr(
        FakeModel, "encode", lambda self, text: asked.append(len(text)) or encode(self, text)
    )
    for prompt in ("a" * longest, [{"role": "user", "content": "a" * longest}]):
        with pytest.raises(PromptError, match=r"at least [\d,]+ tokens") as caught:
            Generator(model, ["yes", "no"])(prompt)
        assert caught.value.is_too_long
    assert asked == []
    # What else a template writes counts, too.
    monkeypatch.setattr(FakeModel, "apply_chat_template", lambda self, messages, tools: str(tools))
    tools = [{"name": "a" * longest}]
    with pytest.raises(PromptError, match=r"at least [\d,]+ tokens"):
        tokens_of(model, [{"role": "user", "content": "a"}], tools=tools)
    assert asked == []
