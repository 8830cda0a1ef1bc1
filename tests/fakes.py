"""A tiny text model for unit tests: a vocabulary of all bytes and a few words, logits from a table.

It keeps the protocols of `structgen.models.base` and counts what is done to it. Its logits depend
on nothing but the tokens so far, so every run repeats.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import inside
import numpy as np

from structgen.media import Media
from structgen.models.base import ON_CPU, Allowed, DraftModel, MediaPrompt, Perceived
from structgen.sampling.processors import Logits, TokenIds
from structgen.vocabulary.tokens import Vocabulary


@dataclass
class Person:
    """An output type: text that is a choice, among text that is forced."""

    name: str
    age: int


PAD, END, END_TOO = 0, 1, 2
_TEXT = [
    *(bytes([byte]) for byte in range(256)),
    *(b'{"', b'":', b'"}', b" the", b"true", b"false", b"null", b"12", b"2024", b"STOP"),
    *("é".encode(), " é".encode(), b"\xe2\x82"),
]
TOKENS = [b"", b"", b"", *_TEXT]
SIZE = 288  # wider than the tokens, as real logits are


def vocabulary() -> Vocabulary:
    return Vocabulary.from_tokens(TOKENS, [END, END_TOO], size=SIZE, special_token_ids=[PAD])


def chat(text: str) -> list[dict[str, str]]:
    """A chat of one message."""
    return [{"role": "user", "content": text}]


PROMPTS = [
    "x",
    chat("x"),
    "xyxy",
    "hello hello",
    chat("hello"),
    "bb",
    "xx",
    "z" * 30,
    "q",
    chat("12"),
]
"""Prompts of a batch, chats among texts: a chat's turns have ends in them."""

TURN_END = "\x03"


def encode(text: str) -> list[int]:
    """Greedy longest match, which is all a fake tokenizer needs."""
    data = text.encode()
    by_bytes = {token: i for i, token in enumerate(TOKENS) if token} | {TURN_END.encode(): END}
    ids = []
    while data:
        length = next(n for n in range(min(8, len(data)), 0, -1) if data[:n] in by_bytes)
        ids.append(by_bytes[data[:length]])
        data = data[length:]
    return ids


class FakeModel:
    """Prefers to write ``script`` and then end; otherwise its logits are noise.

    Args:
        script: the text it would write if left alone; None: noise only.
        context_length: most tokens a sequence holds.
        search_defaults: its own search settings.
    """

    name = "fake"
    start_ids: tuple[int, ...] = ()
    adapters = ()
    adapter_loads = 0
    most_rows = 256
    pace = ON_CPU
    draft: DraftModel | None = None

    def __init__(
        self,
        script: str | None = None,
        *,
        context_length: int = 256,
        search_defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.vocabulary = vocabulary()
        self.context_length = context_length
        self.search_defaults = {
            "do_sample": False,
            "max_length": context_length,
            "min_length": 0,
            "no_repeat_ngram_size": 0,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 50,
            "top_p": 0.0,
            "random_seed": -1,
            **(search_defaults or {}),
        }
        self.script = None if script is None else [*encode(script), END]
        self.started: list[FakeSequence] = []
        self.batches: list[FakeBatch] = []
        self.batches_work = True
        self.has_mask = False  # whether it chooses under masks by itself
        self.prompt_length: int | None = None  # where the script begins, if not after the prefix

    def encode(self, text: str) -> TokenIds:
        return np.array(encode(text), np.int32)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        json.dumps(list(messages))
        turns = "".join(f"[{m['role']}]{m['content']}{TURN_END}\n" for m in messages)
        return f"{turns}[assistant]"

    def perceive(self, media: Sequence[Media]) -> Perceived:
        """Each picture is as many tokens as its number and one, the 1st a negative number."""
        rows = [np.array([-7, *[PAD] * i], np.int32) for i in range(1, len(media) + 1)]
        return Perceived(rows, [("<", ">")] * len(rows), inputs=media, stand_in=PAD)

    def start(
        self,
        max_length: int,
        *,
        prefix: TokenIds | None = None,
        adapter: str | None = None,
        media: MediaPrompt | None = None,
    ) -> FakeSequence:
        prompt_length = None if prefix is None else self.prompt_length or len(prefix)
        sequence = FakeSequence(self, max_length, prompt_length)
        self.started.append(sequence)
        return sequence

    def start_batch(
        self,
        rows: Sequence[TokenIds],
        room: int,
        *,
        adapter: str | None = None,
        allowed: Sequence[Allowed | int | None] | None = None,
    ) -> FakeBatch | None:
        if not self.batches_work:
            return None
        batch = FakeBatch([FakeSequence(self, room, self.prompt_length) for _ in rows])
        for sequence, row in zip(batch.rows, rows, strict=True):
            sequence._prompt_length = inside.prompt_length(sequence) or len(row)
            sequence.append(row)
        self.batches.append(batch)
        return batch


class FakeBatch:
    """Sequences of a `FakeModel`, as rows."""

    is_full = False

    def __init__(self, rows: list[FakeSequence]) -> None:
        self.rows = rows
        self.closed = False

    def logits(self) -> Logits:
        return np.concatenate([row.logits() for row in self.rows])

    def extend(self, token_ids: Sequence[int | None]) -> None:
        assert not self.closed
        for row, token in zip(self.rows, token_ids, strict=True):
            if token is not None:
                assert token not in (END, END_TOO)
                row.append([token])

    def likeliest(self, allowed: Sequence[Allowed | int | None]) -> list[int] | None:
        if not self.rows[0].model.has_mask:
            return None
        tokens = []
        for row, one in zip(self.rows, allowed, strict=True):
            if isinstance(one, np.ndarray):
                one = likeliest(row.logits(), one)
            tokens.append(PAD if one is None else one)
            row._ids.append(tokens[-1])
        return tokens

    def close(self) -> None:
        self.closed = True


def likeliest(logits: Logits, allowed: Allowed) -> int:
    bits = np.unpackbits(allowed.view(np.uint8), bitorder="little")[:SIZE]
    assert bits.any()
    return int(np.where(bits == 1, logits[0], -np.inf).argmax())


class FakeSequence:
    """A sequence of a `FakeModel`."""

    def __init__(self, model: FakeModel, max_length: int, prompt_length: int | None) -> None:
        self.model = model
        self.max_length = max_length
        self.closed = False
        self.logits_read = 0
        self.passes = 0
        self._ids: list[int] = []
        self._prompt_length = prompt_length

    @property
    def length(self) -> int:
        return len(self._ids)

    @property
    def token_ids(self) -> TokenIds:
        return np.array([self._ids], np.int32)

    def append(self, token_ids: Sequence[int] | TokenIds) -> None:
        assert not self.closed
        self.passes += 1
        self._ids.extend(int(i) for i in token_ids)
        assert len(self._ids) <= self.max_length
        if self._prompt_length is None:
            self._prompt_length = len(self._ids)

    def logits(self) -> Logits:
        assert not self.closed
        self.logits_read += 1
        return self._scores()

    def likeliest(self, token_ids: Sequence[int] | TokenIds, allowed: Allowed) -> int | None:
        if not self.model.has_mask:
            return None
        self.append(token_ids)
        return likeliest(self._scores(), allowed)

    def recent_logits(self, n: int) -> Logits:
        assert 1 <= n <= len(self._ids)
        ends = range(len(self._ids) - n + 1, len(self._ids) + 1)
        return np.concatenate([self._scores(end) for end in ends])

    def rewind(self, length: int) -> None:
        del self._ids[length:]

    def make_room(self, length: int) -> int:
        return len(self._ids)

    def close(self) -> None:
        self.closed = True

    def _scores(self, end: int | None = None) -> Logits:
        assert self._prompt_length is not None
        ids = self._ids[:end]
        seed = zlib.crc32(np.array(ids, np.int32).tobytes())
        scores = np.random.default_rng(seed).normal(size=(1, SIZE)).astype(np.float32)
        if self.model.script is not None:
            position = len(ids) - self._prompt_length
            token = self.model.script[position] if 0 <= position < len(self.model.script) else END
            scores[0, token] += 20
        return scores
