"""What may precede an answer: a thought (`Think`) or a draft (`Draft`), and their tokens.

A thought's tags are those that the model's chat template opens itself, removes from earlier turns,
or writes around a message's ``reasoning_content``; otherwise those in its vocabulary; otherwise
``<think>`` and ``</think>``, which the system message then explains. A `Generation` makes the
tokens in between.

In a draft, the model answers freely first and is then asked for the same in the form of the output
type. In a chat, the draft is the assistant's turn and the request a further user turn. A probe in
the draft's place shows what the template writes in between, so the draft keeps its tokens. After a
plain text prompt, the request follows as text. Knows no masks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, final

from structgen.constraint import Constraint
from structgen.constraint import compile as compile_constraint
from structgen.errors import OptionError, PromptError
from structgen.models.base import Model, joined, per_model
from structgen.sampling import TokenIds
from structgen.types import thought_type

from .chat_tokens import Speller, encode_chat, shown

INSTRUCTIONS = (
    "Before you answer, think step by step between {begin} and {end}. Then write the answer."
)
"""The instructions for a model with unknown tags."""

_PAIRS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
)
_THOUGHT = "probe thought"
_QUESTION = {"role": "user", "content": "probe question"}
_LONGEST_TAIL = 64
"""The number of tokens at the end of a prompt that are checked for tags."""


@dataclass(frozen=True, slots=True)
class Think:
    """How a model thinks before it answers; ``think=300`` is ``think=Think(300)``.

    Attributes:
        max_tokens: the most tokens of the thought, its tags included.
        tags: the opening and closing tag of a thought; None: the model's own.
        instructions: added to the system message of a chat, with the tags for ``{begin}`` and
            ``{end}``. None: no text for models with known tags, otherwise
            `structgen.decoding.thinking.INSTRUCTIONS`; ``""``: no text.
    """

    max_tokens: int
    tags: tuple[str, str] | None = None
    instructions: str | None = None

    def __post_init__(self) -> None:
        most = self.max_tokens
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise OptionError(
                f"think={most!r} is not a number of tokens. Pass the token limit for thinking.",
                option="think",
                value=most,
            )
        tags: Any = self.tags
        if tags is not None and not (
            isinstance(tags, tuple)
            and len(tags) == 2
            and all(isinstance(tag, str) and tag for tag in tags)
        ):
            raise OptionError(
                f"Think: tags={tags!r} are not two texts: ('<think>', '</think>').", option="think"
            )
        if self.instructions is not None and not isinstance(self.instructions, str):
            raise OptionError(
                f"Think: instructions={self.instructions!r} is not a str.", option="think"
            )


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """The opening and closing tags of a model's thoughts, and whether the model knows them."""

    begin: str
    end: str
    known: bool


@per_model
def think_tags(model: Model) -> ThinkTags:
    """Return the tags of ``model``.

    Cost: some renderings of the chat template, once per model.
    """
    opening = shown(model, [_QUESTION]) or ""
    for begin, end in _PAIRS:
        if begin in opening[opening.find(str(_QUESTION["content"])) :]:
            return ThinkTags(begin, end, True)
    for begin, end in _PAIRS:
        answer = f"{begin}\n{_THOUGHT}\n{end}\n\nprobe answer"
        chat = [_QUESTION, {"role": "assistant", "content": answer}, _QUESTION]
        text = shown(model, chat)
        if text is not None and _THOUGHT not in text:
            return ThinkTags(begin, end, True)
    reasoned = {"role": "assistant", "content": "probe answer", "reasoning_content": _THOUGHT}
    reasoning = shown(model, [_QUESTION, reasoned]) or ""
    names = model.vocabulary.named_tokens
    for begin, end in _PAIRS:
        before, thought, after = reasoning.partition(_THOUGHT)
        if thought and before.rstrip().endswith(begin) and after.lstrip().startswith(end):
            return ThinkTags(begin, end, True)
        if begin in names and end in names:
            return ThinkTags(begin, end, True)
    return ThinkTags(*_PAIRS[0], False)


@final
class Thoughts:
    """The thoughts of one generator: tags, language and budget, and the tokens around them.

    Attributes:
        constraint: the output type of a thought.
        end: the closing tag.
        max_free: the most tokens of a thought without its tags, plus one for the end of the
            sequence.
        most_tokens: the most tokens of a whole thought.
        most_closing: the most tokens that close one.
        instructions: the text for the system message.
    """

    def __init__(self, model: Model, think: Think) -> None:
        """Compile the thoughts' type.

        Raises:
            OptionError: the budget has no room for a thought.
        """
        known = think_tags(model) if think.tags is None else ThinkTags(*think.tags, False)
        self._begin, self.end = known.begin, known.end
        self._model = model
        text = "" if known.known else INSTRUCTIONS
        text = text if think.instructions is None else think.instructions
        self.instructions = text.replace("{begin}", known.begin).replace("{end}", known.end)
        self._speller = Speller(model.vocabulary, model.encode)
        self._opening = self._ids(f"{self._begin}\n")
        # The text that closes an unclosed thought, in the most tokens that it may take.
        self._closing = [self._ids("\n"), self._ids(self.end), self._ids("\n\n")]
        self.most_closing = sum(map(len, self._closing))
        least = len(self._opening) + self.most_closing + 1
        if think.max_tokens < least:
            raise OptionError(
                f"There is no room to think: think= allows {think.max_tokens:,} tokens, but with "
                f"{model.name}, the tags {self._begin} and {self.end} and one token between them "
                f"need {least}.",
                option="think",
                value=think.max_tokens,
            )
        self.most_tokens = think.max_tokens
        self.max_free = think.max_tokens - least + 2
        self.constraint: Constraint = compile_constraint(thought_type(self.end), model.vocabulary)

    def _ids(self, text: str) -> list[int]:
        return [int(token) for token in self._model.encode(text)]

    def opened(self, prompt_ids: TokenIds) -> tuple[TokenIds, int]:
        """Return a prompt with the thought open, and the number of tokens added for that.

        A thought that the template closes at once, for example because thinking is off by default,
        is opened again.
        """
        vocabulary = self._model.vocabulary
        names = {token_id: name for name, token_id in vocabulary.named_tokens.items()}
        tail = ""
        for n, token_id in enumerate(prompt_ids[::-1].tolist()[:_LONGEST_TAIL], 1):
            text = vocabulary.tokens[token_id].decode(errors="replace") or names.get(token_id, "")
            tail = text + tail
            bare = "".join(tail.split())
            if bare == self._begin:
                return prompt_ids, 0
            if bare == self._begin + self.end:
                prompt_ids = prompt_ids[:-n]
                break
            if bare and not (self._begin + self.end).endswith(bare):
                break
        return joined(prompt_ids, self._opening), len(self._opening)

    def closed(self, token_ids: TokenIds) -> TokenIds:
        """Return tokens with a thought that is open at their end closed."""
        if not len(token_ids) or self.opened(token_ids)[1]:
            return token_ids
        return joined(token_ids, self.closing(token_ids, "", is_closed=False))

    def begun(self, thought: str) -> str:
        """Return the part of the closing tag with which a thought ends that a budget has cut."""
        lengths = range(len(self.end) - 1, 1, -1)
        return next((self.end[:n] for n in lengths if thought.endswith(self.end[:n])), "")

    def closing(self, token_ids: TokenIds, thought: str, *, is_closed: bool) -> list[int]:
        """Return the tokens that close a thought.

        Args:
            token_ids: all tokens so far, int32 ``[n]``.
            thought: its text.
            is_closed: whether the closing tag is there already.
        """
        tokens = self._model.vocabulary.tokens
        blank, tag, after = self._closing
        pieces = [] if is_closed else [blank if thought and thought[-1] != "\n" else [], tag]
        apart = [token for piece in (*pieces, after) for token in piece]
        if any(not tokens[token] for token in apart):
            return apart
        data = b"".join(tokens[token] for token in apart)
        begun = "" if is_closed else self.begun(thought)
        if begun:
            rest = self.end[len(begun) :].encode() + b"".join(tokens[token] for token in after)
            data = rest if len(self._speller(token_ids, rest)) <= len(apart) else data
        together = self._speller(token_ids, data)
        return together if len(together) <= len(apart) else apart


CHAT_REQUEST = (
    "Now write this answer again, with the same content, in exactly the form that was asked for. "
    "Write nothing else."
)
"""The user's request after a draft in a chat."""

TEXT_REQUEST = "\n\nThe same again, in the form that was asked for:\n"
"""The text after a draft if the prompt is a text."""

_PROBE = "Zprobe draftZ"


@dataclass(frozen=True, slots=True)
class Draft:
    """How a model drafts its answer; ``draft=True`` is ``draft=Draft()``.

    Attributes:
        max_tokens: the most tokens of the draft; None: as many as ``max_new_tokens``.
        request: the user's message after the draft, in a chat.
        text_request: the text after the draft if the prompt is a text.
    """

    max_tokens: int | None = None
    request: str = field(default=CHAT_REQUEST)
    text_request: str = field(default=TEXT_REQUEST)

    def __post_init__(self) -> None:
        most = self.max_tokens
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise OptionError(
                f"Draft: max_tokens={most!r} is not a number of tokens.", option="draft"
            )
        for name in ("request", "text_request"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text:
                raise OptionError(f"Draft: {name}={text!r} is not a str.", option="draft")


def after_draft(
    model: Model,
    prompt: str | Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    draft: Draft,
    special_tokens: str,
) -> list[int]:
    """Return the tokens between a draft and the answer.

    Args:
        model: the model.
        prompt: the result of `structgen.decoding.chat.parse`.
        tools: the tools that the template describes.
        draft: the draft options.
        special_tokens: where special tokens are read, see
            `structgen.decoding.options.SearchOptions`.

    Raises:
        PromptError: the template does not show the tokens between, or refuses another turn.
    """
    if isinstance(prompt, str):
        return [int(token) for token in model.encode(draft.text_request)]
    anywhere = special_tokens == "anywhere"
    turns = [
        *prompt,
        {"role": "assistant", "content": _PROBE},
        {"role": "user", "content": draft.request},
    ]
    whole = encode_chat(model, turns, tools=tools, anywhere=anywhere).tolist()
    pieces = [model.vocabulary.tokens[token] for token in whole]
    text, starts = b"".join(pieces), [*accumulate(map(len, pieces), initial=0)]
    at = text.rfind(_PROBE.encode())
    if at < 0:
        raise PromptError(
            f"The chat template of {model.name} does not show an answer before the last message, "
            "so draft= cannot continue after one. Remove draft=."
        )
    end = at + len(_PROBE)
    first = bisect_left(starts, end)
    inside = text[end : starts[first]]  # a token may contain the probe's last letter and more
    spelt = Speller(model.vocabulary, model.encode)
    return [*(spelt(whole[:0], inside) if inside else []), *whole[first:]]
