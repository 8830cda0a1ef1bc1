"""vLLM's logits processors, against stand-ins that have the interfaces of its two model runners.

test_vllm_engine.py runs vLLM itself where it is installed. The stand-ins show batches as its
documentation says: rows that move by a ledger (V1), and slots with several rows for guessed tokens
(V2), in orders that are rare in an engine.
"""

from __future__ import annotations

import enum
import logging
import random
import sys
from abc import ABC, abstractmethod
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from engine.walks import EOS, TINY, ids_of

import structgen
from structgen import ModelError, OptionError, Regex, ToolCalls
from structgen.integrations import vllm

TYPES = [Regex("[a-c]{3,9}"), ["tea", "coffee", "cocoa"], list[int]]
CONSTRAINTS = [structgen.compile(one, TINY) for one in TYPES]
WIDTH = TINY.size + 9


class Move(enum.Enum):
    UNIDIRECTIONAL = enum.auto()
    SWAP = enum.auto()


class Base(ABC):
    """What both interfaces ask for."""

    @abstractmethod
    def apply(self, *_): ...


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    """Modules where vLLM has its interfaces, a vocabulary, and masks without torch."""
    for home in ("vllm.v1.worker.gpu.sample.logits_processor", "vllm.v1.sample.logits_processor"):
        module = ModuleType(home)
        module.LogitsProcessor = Base
        monkeypatch.setitem(sys.modules, home, module)
        for end in range(len(home)):
            if home[end] == ".":
                monkeypatch.setitem(sys.modules, home[:end], ModuleType(home[:end]))
    monkeypatch.setattr(vllm, "_vocabulary", lambda config: TINY)

    def mask(self, logits, rows, words):
        for row, bits in zip(rows, words, strict=True):
            logits[row] = set(ids_of(bits.view(np.uint32)))
        return logits

    monkeypatch.setattr(vllm._Checked, "_mask", mask)
    yield
    for name in vllm._KINDS:
        vars(vllm).pop(name, None)


def params(extra):
    return SimpleNamespace(extra_args=extra)


class Going:
    """A request under way in the stand-in of an engine."""

    def __init__(self, rng):
        self.kind = rng.randrange(len(TYPES) + 1)
        self.params = params(None if self.kind == len(TYPES) else vllm.arguments(TYPES[self.kind]))
        self.prompt = [rng.randrange(TINY.size) for _ in range(rng.randint(1, 5))]
        self.output: list[int] = []

    @property
    def text(self):
        return b"".join(TINY.tokens[token] for token in self.output).decode()

    def take(self, allowed, rng):
        """Choose a token; whether the request has ended."""
        if self.kind == len(TYPES):
            assert allowed is None
            self.output.append(rng.randrange(TINY.size))
            return len(self.output) > 6
        token = rng.choice(sorted(allowed))
        if token in TINY.eos_token_ids:
            assert CONSTRAINTS[self.kind].allows(self.text)
            return True
        self.output.append(token)
        return False


def test_requests_come_move_and_go_by_the_ledger():
    rng = random.Random(3)
    processor = vllm.LegacyLogitsProcessor(None, "cpu", False)
    assert isinstance(processor, Base)
    assert not processor.is_argmax_invariant()
    rows: list[Going] = []
    ended = 0
    removed: list[int] = []
    for _ in range(400):
        added, moved = [], []
        # Where requests ended, the last ones move, as vLLM condenses its batch.
        gone = sorted(removed)
        while gone and rows:
            row = gone.pop(0)
            last = len(rows) - 1
            while last in gone:
                gone.remove(last)
                rows.pop()
                last -= 1
            if row < last:
                moved.append((last, row, Move.UNIDIRECTIONAL))
                rows[row] = rows[last]
            if row <= last:
                rows.pop()
        if len(rows) < 6 and rng.random() < 0.5:
            one = Going(rng)
            if rng.random() < 0.3 and one.kind < len(TYPES):  # was put off after some output
                cursor = CONSTRAINTS[one.kind].start()
                mask = np.zeros((TINY.size + 31) // 32, np.uint32)
                cursor.fill_mask(mask)
                ids = [i for i in ids_of(mask) if i not in TINY.eos_token_ids]
                one.output.append(rng.choice(ids))
            rows.append(one)
            # Nothing that was condensed is written over: new requests come behind.
            added.append((len(rows) - 1, one.params, one.prompt, one.output))
        swap = None
        if len(rows) > 1 and not added and rng.random() < 0.2:
            a, b = rng.sample(range(len(rows)), 2)
            rows[a], rows[b] = rows[b], rows[a]
            swap = (a, b, Move.SWAP)
        update = SimpleNamespace(removed=removed, added=[], moved=moved + ([swap] if swap else []))
        processor.update_state(update if removed or moved or swap else None)
        if added:
            processor.update_state(SimpleNamespace(removed=[], added=added, moved=[]))
        logits = processor.apply([None] * len(rows))
        removed = [row for row, one in enumerate(rows) if one.take(logits[row], rng)]
        ended += len(removed)
    assert ended > 40


def test_slots_with_rows_for_guessed_tokens():
    rng = random.Random(5)
    n_slots, room = 5, 2000
    tokens = np.zeros((n_slots, room), np.int64)
    prompt_len = SimpleNamespace(np=np.zeros(n_slots, np.int32))
    states = SimpleNamespace(prompt_len=prompt_len, all_token_ids=SimpleNamespace(gpu=tokens))
    processor = vllm.StructgenLogitsProcessor(None, states)
    slots: dict[int, Going] = {}
    ended = held = 0
    for _ in range(400):
        for slot in range(n_slots):
            if slot not in slots and rng.random() < 0.3:
                one = slots[slot] = Going(rng)
                prompt_len.np[slot] = len(one.prompt)
                assert processor.add_request(slot, one.params) == (one.kind < len(TYPES))
            elif slot in slots and rng.random() < 0.05:  # put off, and back
                assert processor.add_request(slot, slots[slot].params) is not None
        batch = rng.sample(sorted(slots), len(slots))
        mapping, ids, pos, drafts = [], [], [], {}
        for slot in batch:
            one = slots[slot]
            known = one.prompt + one.output
            tokens[slot, : len(known)] = known
            drafts[slot] = guess(one, rng) if one.output else []
            line = [known[-1], *drafts[slot]]
            mapping += [slot] * len(line)
            ids += line
            pos += range(len(known) - 1, len(known) - 1 + len(line))
        context = SimpleNamespace(
            expanded_idx_mapping=np.array(mapping, np.int64),
            idx_mapping_np=np.array(batch, np.int64),
            input_ids=np.array(ids, np.int64),
            pos=np.array(pos, np.int64),
        )
        logits = processor.apply([None] * len(mapping), context)
        at = 0
        for slot in batch:
            one, draft = slots[slot], drafts[slot]
            for row in range(len(draft) + 1):  # as rejection sampling does
                allowed = logits[at + row]
                held_here = row < len(draft) and draft[row] in (allowed or ())
                if held_here and draft[row] not in TINY.eos_token_ids:
                    one.output.append(draft[row])
                    held += 1
                    continue
                if one.take(allowed, rng):
                    del slots[slot]
                    ended += 1
                break
            at += len(draft) + 1
    assert ended > 100
    assert held > 50


def guess(one, rng):
    """A draft, mostly of what may follow."""
    if one.kind == len(TYPES):
        return []
    cursor = CONSTRAINTS[one.kind].start()
    for token in one.output:
        cursor.accept(token)
    mask, out = np.zeros((TINY.size + 31) // 32, np.uint32), []
    for _ in range(rng.randint(0, 3)):
        cursor.fill_mask(mask)
        ids = ids_of(mask)
        if rng.random() < 0.2 or not ids:
            out.append(rng.randrange(TINY.size))
            if not ids or out[-1] not in ids:
                break
        else:
            out.append(rng.choice(ids))
        cursor.accept(out[-1])
    return out


def test_a_request_that_goes_wrong_ends_alone_and_is_told(caplog):
    processor = vllm.LegacyLogitsProcessor(None, "cpu", False)
    good, bad = vllm.arguments(TYPES[0]), vllm.arguments(TYPES[0], max_tokens=1)
    outputs: list[list[int]] = [[], []]
    added = [(0, params(good), None, outputs[0]), (1, params(bad), None, outputs[1])]
    with caplog.at_level(logging.ERROR, "structgen"):
        processor.update_state(SimpleNamespace(removed=[], added=added, moved=[]))
    assert "the request in slot 1 is cut off: A budget of 1 token is too small" in caplog.text
    first, second = processor.apply([None, None])
    assert second == set(TINY.eos_token_ids)
    assert first != second
    caplog.clear()
    outputs[0].append(-1)  # a place where asynchronous scheduling has no token yet
    with caplog.at_level(logging.ERROR, "structgen"):
        first, _ = processor.apply([None, None])
    assert first == set(TINY.eos_token_ids)
    assert "token -1 does not exist" in caplog.text


def test_a_type_that_takes_long_does_not_hold_up_others(caplog):
    """The engine compiles it, for which all requests wait: one took 13 s."""
    processor = vllm.LegacyLogitsProcessor(None, "cpu", False)
    parts = [{"properties": {f"p{i}": {"multipleOf": 2 * i + 3}}} for i in range(400)]
    large = vllm.arguments(structgen.JsonSchema({"oneOf": parts}))
    added = [(0, params(large), None, [])]
    with caplog.at_level(logging.ERROR, "structgen"):
        processor.update_state(SimpleNamespace(removed=[], added=added, moved=[]))
        processor.apply([None])
    assert "(limit 75,000, reached" in caplog.text
    long = vllm.arguments([f"{number:x}" for number in range(100_000)])
    with pytest.raises(ValueError, match="structgen has too many characters"):
        vllm.StructgenLogitsProcessor.validate_params(params(long))


def test_after_the_end_only_the_end_is_allowed():
    processor = vllm.LegacyLogitsProcessor(None, "cpu", False)
    output: list[int] = []
    added = [(0, params(vllm.arguments(["a"])), None, output)]
    processor.update_state(SimpleNamespace(removed=[], added=added, moved=[]))
    for token in (TINY.tokens.index(b"a"), EOS, EOS):
        output.append(token)
        assert processor.apply([None]) == [set(TINY.eos_token_ids)]


def test_arguments_are_checked_when_a_request_arrives():
    check = vllm.StructgenLogitsProcessor.validate_params
    check(params(None))
    check(params({"other": 1}))
    check(params(vllm.arguments(TYPES[2], max_tokens=9, whitespace="compact")))
    check(params(vllm.arguments(CONSTRAINTS[0])))
    tea = vllm.arguments(["tea"], max_tokens=9)
    check(SimpleNamespace(extra_args=tea, max_tokens=9, min_tokens=0, bad_words=[]))
    for name, value in [
        *(("min_tokens", 2), ("allowed_token_ids", [3]), ("structured_outputs", "x")),
        *(("bad_words", ["tea"]), ("thinking_token_budget", 0)),
    ]:
        check(SimpleNamespace(extra_args=None, **{name: value}))
        with pytest.raises(ValueError, match=f"^{name} cannot be combined with the output type"):
            check(SimpleNamespace(extra_args=tea, **{name: value}))
    with pytest.raises(ValueError, match=r"at most the request's own max_tokens, 8, .* got 9"):
        check(SimpleNamespace(extra_args=tea, max_tokens=8))
    for extra, message in [
        ({"structgen": "€"}, "must be the text that structgen.integrations.vllm.arguments returns"),
        ({"structgen": 3}, "must be the text that"),
        ({"structgen": "AAAA"}, "are not a constraint"),
        ({"structgen_max_tokens": 3}, "structgen_max_tokens requires structgen"),
        ({**vllm.arguments(["a"]), "structgen_max_tokens": "3"}, "an integer, got '3'"),
    ]:
        with pytest.raises(ValueError, match=message):
            check(params(extra))

    def greet(name: str) -> None:
        """Greet."""

    with pytest.raises(OptionError, match=r"control tokens. Pass vocabulary="):
        vllm.arguments(ToolCalls([greet]))
    check(params(vllm.arguments(ToolCalls([greet]), vocabulary=TINY)))


def test_without_vllm_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.logits_processor", None)
    with pytest.raises(ModelError, match=r"needs a vLLM version with .*Install vllm"):
        vllm.LegacyLogitsProcessor  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        vllm.Other  # noqa: B018
