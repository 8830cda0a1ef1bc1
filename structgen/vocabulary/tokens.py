"""The meaning of each token id: bytes of text, the end of the sequence, or nothing.

Has the table from ids to bytes, the end-of-sequence and special ids, the width of the logits and
the trie over all tokens. `structgen.vocabulary.tokenizer_bytes` reads tokenizer files. Knows no
grammars, masks or models.

Every mask asks whether a token's bytes may come next. So a vocabulary stores, for each id, exactly
the bytes that the id adds in the middle of a text. Tokens may begin or end inside a UTF-8
character. Several ids may share one byte string; all are kept. An id adds nothing (``b""``) if it
is special, ends the sequence, is a hole in the numbering, or is padding between the tokenizer's
size and the width of the model's logits; such ids never match as text.

Bytes in the fewest tokens are a shortest path over the trie. The path from a byte to the end does
not depend on earlier bytes. Completions of one long document, requested in one state after another,
have common ends. So the table of the last text is cached, and only the differing part is computed
for the next.

Ropes in the fewest tokens: the same for texts that need not fit into memory. The number of tokens
of a part does not depend on earlier parts, and on later ones only as far as one token can reach. So
each part is computed once for each such *window* after it, even if it occurs many times: a thousand
items of a thousand items take a few steps. The tokens themselves are listed from the left on
demand.

A plan is the list of tokens that finish an output, also listed on demand. It can be as long as a
budget allows, and after each of its tokens there is another plan, one token shorter. They share the
listed tokens.
"""

from __future__ import annotations

import hashlib
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from structgen.automaton.texts import Rope, Text, flat, head
from structgen.automaton.work import WORK
from structgen.errors import VocabularyError
from structgen.storage import array_cache

from . import tokenizer_bytes
from .tokenizer_bytes import MAX_SIZE
from .trie import Trie

_NEVER = 1 << 1000
"""More tokens than any text has."""

Window: TypeAlias = "tuple[bytes, tuple[int, ...]]"
"""The first bytes of the following text, as many as the longest token has; and for each position
before, in and after these, its distance in tokens to the end, relative to the nearest one."""

_AT_END: Window = b"", (0,)

_MOST_KNOWN = 200_000

_FEW_PARTS = 100


class _Before(NamedTuple):
    """The result for a part of a text, given the window after it.

    Attributes:
        farther: how many tokens farther from the end the nearest position of the new window is.
        window: the window at the start of the part.
    """

    farther: int
    window: Window


_Known: TypeAlias = "dict[tuple[Text, Window], _Before]"


@final
class RopeTokens:
    """Encodes ropes as nodes of one trie. Thread-safe."""

    __slots__ = ("_known", "_parts", "_trie")

    def __init__(self, trie: Trie) -> None:
        self._trie = trie
        # By a part and its window.
        self._known: _Known = {}
        self._parts: set[Text] = set()

    def count(self, text: Text) -> int | None:
        """Return the smallest number of tokens that concatenate to ``text``; None if none do."""
        count, (_, costs) = self._before(text, _AT_END)
        return None if costs[0] >= _NEVER else count + costs[0]

    def is_mostly_known(self, text: Text) -> bool:
        """Return whether few distinct parts of ``text`` are new."""
        parts = self._parts
        seen: set[Text] = set()
        todo = [text]
        while todo and len(seen) <= _FEW_PARTS:
            part = todo.pop()
            if isinstance(part, Rope) and part not in parts and part not in seen:
                seen.add(part)
                todo += (part.first, part.second)
        return not todo

    def nodes(self, text: Text) -> Iterator[int]:
        """Yield these tokens from the left; among equally short results, the one with the longest
        first token."""
        todo: list[tuple[Text, int, Window]] = [(text, 1, _AT_END)]
        skip = 0  # bytes that an earlier token covers already
        while todo:
            part, times, after = todo.pop()
            if times > 1:
                todo.append((part, times - 1, after))
                row = part if times == 2 else Rope(part, times - 1, b"")
                after = self._before(row, after).window
            if isinstance(part, Rope):
                if len(part) <= skip:
                    skip -= len(part)
                    continue
                todo.append((part.second, 1, after))
                after = self._before(part.second, after).window
                todo.append((part.first, part.times, after))
                continue
            at = skip
            if at < len(part):
                steps = self._steps(part, after)[1]
                while at < len(part):
                    node, length = steps[at]
                    yield node
                    at += length
            skip = at - len(part)

    def _before(self, text: Text, after: Window) -> _Before:
        if len(self._known) > _MOST_KNOWN:
            self._known = {}  # not emptied: another thread may be using it
            self._parts = set()
        known, parts = self._known, self._parts
        todo: list[tuple[Text, Window]] = [(text, after)]
        while True:
            part, window = todo[-1]
            key = part, window
            if key not in known:
                found = self._work_out(part, window, known)
                if not isinstance(found, _Before):
                    todo.append(found)
                    continue
                known[key] = found
                parts.add(part)
            todo.pop()
            if not todo:
                return known[key]

    def _work_out(
        self, part: Text, after: Window, all_known: _Known
    ) -> _Before | tuple[Text, Window]:
        """Return the result for ``part``, or the part that has to be computed first."""
        WORK.spend(1)
        if isinstance(part, bytes):
            WORK.spend(len(part) >> 4)
            return self._steps(part, after)[0]
        found = all_known.get((part.second, after))
        if found is None:
            return part.second, after
        count, window = found
        # Soon a round gives the same result as an earlier one.
        windows: list[Window] = []
        counts: list[int] = [count]
        for n in range(part.times):
            if window in windows:
                start = windows.index(window)
                size = n - start
                rounds, rest = divmod(part.times - n, size)
                more = counts[start + rest] - counts[start]
                count += rounds * (counts[n] - counts[start]) + more
                return _Before(count, windows[start + rest])
            windows.append(window)
            known = all_known.get((part.first, window))
            if known is None:
                return part.first, window
            count, window = count + known.farther, known.window
            counts.append(count)
        return _Before(count, window)

    def _steps(self, text: bytes, after: Window) -> tuple[_Before, list[tuple[int, int]]]:
        """Return the result for ``text``, and the first token and length at each place in it."""
        ahead, known = after
        data = text + ahead
        fewest, chosen = list(known[::-1]), [(0, 1)] * len(known)
        _extend(self._trie, data, fewest, chosen)
        steps = chosen[::-1][: len(text)]
        longest = self._trie.max_depth
        near = fewest[::-1][: longest + 1]
        least = min(near)
        if least >= _NEVER:
            return _Before(0, (data[:longest], (_NEVER,) * len(near))), steps
        relative = [min(cost - least, _NEVER) for cost in near]
        for i, cost in enumerate(near):
            if cost >= _NEVER:
                relative[i] = _NEVER
        return _Before(least, (data[:longest], tuple(relative))), steps


_Spelt: TypeAlias = "tuple[bytes, list[int], list[tuple[int, int]]]"

_FEW_SPELT, _MANY_SPELT, _SPELT_BYTES = 4, 16, 1 << 15
"""The number of cached texts: between these bounds, as many as have about this many bytes together.
"""
_END = 16
"""Cached texts are identified by this many of their last bytes."""
_NOTHING_SPELT: _Spelt = b"", [0], [(0, 0)]


@final
class FewestTokens:
    """Encodes bytes as nodes of one trie. Thread-safe.

    Attributes:
        ropes: encodes texts that may be too long for this class.
    """

    __slots__ = ("_last", "_trie", "ropes")

    def __init__(self, trie: Trie) -> None:
        self._trie = trie
        self.ropes = RopeTokens(trie)
        # The last few texts by their ends, most recent last; for each number of their last bytes,
        # the fewest number of tokens, with node and length of the first one. Replaced as a whole,
        # never changed.
        self._last: dict[bytes, _Spelt] = {}

    def count(self, data: bytes) -> int | None:
        """Return the number of tokens of `__call__`, at a lower cost."""
        needed = self._table(data)[0][len(data)]
        return needed if needed < _NEVER else None

    def __call__(self, data: bytes, most: int | None = None) -> list[int] | None:
        """Return the nodes of the fewest tokens that concatenate to ``data``; None if there are
        none.

        Only the first ``most`` of them, if given. Of equally short results, the one whose tokens
        are longest from the left.
        """
        fewest, chosen = self._table(data)
        left = len(data)
        if fewest[left] >= _NEVER:
            return None
        out: list[int] = []
        while left and (most is None or len(out) < most):
            node, length = chosen[left]
            out.append(node)
            left -= length
        return out

    def _table(self, data: bytes) -> tuple[list[int], list[tuple[int, int]]]:
        """Return, for each number of last bytes, the fewest number of tokens and the first token,
        perhaps from a longer text with the same end."""
        # Ends alternate: each continues from an earlier text with the same end.
        last, end = self._last, data[-_END:]
        alike = (spelt for spelt in last.values() if spelt[0].endswith(end))
        known, fewest, chosen = last.get(end) or next(alike, _NOTHING_SPELT)
        if known.endswith(data):
            return fewest, chosen
        common = _common_end(known, data)
        fewest, chosen = fewest[: common + 1], chosen[: common + 1]
        _extend(self._trie, data, fewest, chosen)
        # A few different bytes at the start do not justify a longer text.
        if len(data) >= len(known) or len(data) - common > _END:
            most = max(_FEW_SPELT, min(_MANY_SPELT, _SPELT_BYTES // (len(data) + 1)))
            others = [pair for pair in last.items() if pair[0] != end]
            self._last = {**dict(others[1 - most :]), end: (data, fewest, chosen)}
        return fewest, chosen


def _extend(trie: Trie, data: bytes, fewest: list[int], chosen: list[tuple[int, int]]) -> None:
    """Extend the table for the last bytes of ``data`` to all of them.

    Args:
        trie: the tokens.
        data: the bytes.
        fewest: for each number of last bytes, the fewest number of tokens.
        chosen: node and length of the first of these tokens.
    """
    child, token_start = trie.child, trie.token_start
    end = len(data)
    for left in range(len(fewest), end + 1):
        node, at, best, first = 0, end - left, _NEVER, (0, 1)
        while at < end:
            step = child.get(node << 8 | data[at])
            if step is None:
                break
            node, at = step, at + 1
            # `<=` lets the longest token win among equals.
            if fewest[end - at] < best and token_start[node] < token_start[node + 1]:
                best = fewest[end - at] + 1
                first = (node, at - end + left)
        fewest.append(best)
        chosen.append(first)


def _common_end(a: bytes, b: bytes) -> int:
    """Return how many of the last bytes of ``a`` and ``b`` are equal."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[-middle:] == b[-middle:]:
            low = middle
        else:
            high = middle - 1
    return low


# Bytes that occur in UTF-8 text: all except the two overlong leads and those beyond U+10FFFF.
_UTF8_BYTES = (*range(0x00, 0xC0), *range(0xC2, 0xF5))


_FORMAT = 3
"""Increase this whenever tokenizer files are read differently."""

_SHOWN_UNSPELLABLE = 1 << 20

_SHORT, _LONG = 1 << 14, 1 << 20
"""Texts up to the first length are always written out for encoding; texts beyond the second never
are."""

_AT_ONCE = 100

_WORTH_KEEPING = 4096
"""Smaller vocabularies are read as fast from their own file as from the cache."""


@final
class Vocabulary:
    """Token ids, their bytes and their trie. Immutable, hashable and thread-safe.

    Build one with `from_tokenizer_json`, `from_tokenizer` or `from_tokens`. Vocabularies are equal
    when their `uid` is.

    Attributes:
        size: width of the logits; every mask has this many bits.
        tokens: the bytes of each id, ``size`` of them; ``b""`` for ids that are not text.
        eos_token_ids: the ids that end a sequence, ascending, at least one.
        special_token_ids: ids that control the model and are never text, with the EOS ids.
        named_tokens: ids by name, for grammars: the added tokens of a tokenizer file, special ones
            and others.
        trie: the trie over all ids that are text.
        uid: SHA-256, in hex, of tokens, EOS ids and size.
    """

    size: int
    tokens: tuple[bytes, ...]
    eos_token_ids: tuple[int, ...]
    special_token_ids: frozenset[int]
    named_tokens: Mapping[str, int]
    trie: Trie
    uid: str
    _fewest: FewestTokens

    def __init__(
        self,
        tokens: Sequence[bytes],
        eos_token_ids: Iterable[int],
        size: int | None = None,
        special_token_ids: Iterable[int] = (),
        named_tokens: Mapping[str, int] | None = None,
    ) -> None:
        """Same as `from_tokens`."""
        if not set(map(type, tokens)) <= {bytes}:
            at, token = next((i, t) for i, t in enumerate(tokens) if type(t) is not bytes)
            raise VocabularyError(
                f"Token {at} is {token!r}; tokens must be bytes. Encode text as UTF-8."
            )
        width = len(tokens) if size is None else operator.index(size)
        if width > MAX_SIZE:
            raise VocabularyError(
                f"A vocabulary of {width:,} ids is larger than any model's: at most {MAX_SIZE:,} "
                "are allowed. Correct the size, or vocab_size in the model's configuration."
            )
        eos = _ids(eos_token_ids)
        if not eos:
            raise VocabularyError(
                "No end-of-sequence id was given, so no output could ever end. "
                "Pass eos_token_ids=[id, ...]."
            )
        special = {operator.index(token_id) for token_id in special_token_ids}.union(eos)
        table = [*tokens, *([b""] * max(width - len(tokens), 0))]
        for token_id in special:
            if not 0 <= token_id < (width if token_id in eos else len(table)):
                kind = "End-of-sequence" if token_id in eos else "Special"
                raise VocabularyError(
                    f"{kind} id {token_id} is outside the vocabulary of {width:,} ids. "
                    "Correct the id, or pass the width of the logits as size."
                )
            table[token_id] = b""
        # Some tokenizers have special ids beyond the model's logits (Gemma 3's image token), which
        # is harmless. Text beyond the logits means a wrong size.
        if any(table[width:]):
            last = max(token_id for token_id, token in enumerate(table) if token)
            raise VocabularyError(
                f"The vocabulary has text up to id {last:,} but size={width:,}. Pass the width of "
                "the model's logits, or omit size."
            )
        del table[width:]
        names = {name: operator.index(i) for name, i in (named_tokens or {}).items()}
        names = {name: i for name, i in names.items() if i < width and "\0" not in name}
        # Lengths delimit the tokens; counts delimit the sections.
        digest = hashlib.sha256(b"structgen vocabulary 1\0")
        digest.update(np.array([len(table), len(eos), *eos], "<i8").tobytes())
        digest.update(np.fromiter(map(len, table), "<i4", len(table)).tobytes())
        digest.update(b"".join(table))
        vars(self).update(
            size=width,
            tokens=tuple(table),
            eos_token_ids=eos,
            special_token_ids=frozenset(i for i in special if i < width),
            named_tokens=MappingProxyType(names),
            trie=(trie := Trie(table)),
            uid=digest.hexdigest(),
            _fewest=FewestTokens(trie),
        )

    @classmethod
    def from_tokens(
        cls,
        tokens: Sequence[bytes],
        eos_token_ids: Iterable[int],
        size: int | None = None,
        special_token_ids: Iterable[int] = (),
        named_tokens: Mapping[str, int] | None = None,
    ) -> Vocabulary:
        """Build a vocabulary from the bytes of each token.

        Args:
            tokens: bytes by id; ``b""`` for ids that are not text.
            eos_token_ids: the ids that end a sequence; any text they have is dropped.
            size: width of the logits; ids past the tokens are padding. When smaller than
                ``len(tokens)``, the ids past it must be special.
            special_token_ids: more ids that are never text; any text they have is dropped.
            named_tokens: ids of tokens that grammars may name, by name, such as ``<|tool_call|>``.

        Raises:
            VocabularyError: no EOS id, an id outside the vocabulary, or text past ``size``.

        Cost: 0.15 s and 80 MB for 128k tokens.
        """
        return cls(tokens, eos_token_ids, size, special_token_ids, named_tokens)

    @classmethod
    def from_tokenizer_json(
        cls,
        path: str | os.PathLike[str],
        eos_token_ids: Iterable[int] | None = None,
        size: int | None = None,
    ) -> Vocabulary:
        """Read a Hugging Face ``tokenizer.json``, or the one in a folder.

        Args:
            path: the file, or its folder.
            eos_token_ids: the ids that end a sequence. None: see
                `tokenizer_bytes.find_eos_token_ids`.
            size: width of the model's logits. None: ``model.vocab_size`` of ``genai_config.json``
                beside the file, otherwise the size of the tokenizer.

        Raises:
            VocabularyError: the file is missing or malformed, its tokens have no fixed bytes, or no
                EOS id is known.

        The result is cached on disk (see `structgen.storage.array_cache`); the key is the contents
        of all files it depends on.

        Cost: 0.3 s for 128k tokens, 1 s for 262k, half of it parsing JSON; from the cache
        0.06 s and 0.14 s.
        """
        if eos_token_ids is not None:
            eos_token_ids = _ids(eos_token_ids)
        if size is not None:
            size = operator.index(size)
        contents = tokenizer_bytes.fingerprint(path)
        if contents is None:
            return cls._read(path, eos_token_ids, size)
        key = f"vocabulary {_FORMAT} of {contents}, {eos_token_ids!r}, {size!r}"
        place = f"tokenizer-{contents}", hashlib.sha256(key.encode()).hexdigest()
        arrays = array_cache.load(*place, key)
        if arrays is not None:
            return cls._from_arrays(arrays)
        vocabulary = cls._read(path, eos_token_ids, size)
        # A file that changed meanwhile must not be cached under its old key.
        if vocabulary.size >= _WORTH_KEEPING and contents == tokenizer_bytes.fingerprint(path):
            array_cache.store(*place, key, vocabulary._arrays())
        return vocabulary

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, eos_token_ids: Iterable[int] | None = None, size: int | None = None
    ) -> Vocabulary:
        """Build a vocabulary from a loaded ``tokenizers.Tokenizer``.

        Fast tokenizers of ``transformers`` work, too.

        Args:
            tokenizer: the tokenizer.
            eos_token_ids: the ids that end a sequence. None: ``tokenizer.eos_token_id``, if it
                exists, and all special tokens with well-known names that end one.
            size: width of the model's logits. None: the size of the tokenizer.

        Raises:
            VocabularyError: not a tokenizer, its tokens have no fixed bytes, or no EOS id is known.

        Cost: as for `from_tokenizer_json` without its cache.
        """
        written = getattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "to_str", None)
        if written is None:
            raise VocabularyError(
                f"from_tokenizer takes a tokenizers.Tokenizer, got {type(tokenizer).__name__}. "
                "For a tokenizer.json: Vocabulary.from_tokenizer_json(path); for the bytes of "
                "tokens: Vocabulary.from_tokens(tokens, eos_token_ids)."
            )
        table = tokenizer_bytes.read_text(written())
        if eos_token_ids is None:
            eos = getattr(tokenizer, "eos_token_id", None)
            named = table.named_ends
            known = named if eos is None else {*named, int(eos)}
            eos_token_ids = known or tokenizer_bytes.find_eos_token_ids(table)
        size = len(table.tokens) if size is None else operator.index(size)
        return cls(table.tokens, _ids(eos_token_ids), size, table.special_token_ids, table.added)

    @classmethod
    def _read(
        cls, path: str | os.PathLike[str], eos_token_ids: Iterable[int] | None, size: int | None
    ) -> Vocabulary:
        table = tokenizer_bytes.read(path)
        if size is None:
            declared = tokenizer_bytes.find_size(table)
            size = len(table.tokens) if declared is None else declared
        eos = tokenizer_bytes.find_eos_token_ids(table) if eos_token_ids is None else eos_token_ids
        return cls(table.tokens, eos, size, table.special_token_ids, table.added)

    def cached_arrays(
        self, name: str, version: int, build: Callable[[], array_cache.Arrays]
    ) -> array_cache.Arrays:
        """Return arrays that depend on this vocabulary alone, from the user's cache if possible.

        Args:
            name: their name, in letters, digits and dashes.
            version: increase it whenever ``build`` would return other arrays than before.
            build: computes them; integers and floats of fixed width only.

        Returns:
            The arrays, read-only. The vocabulary does not keep them: call this once.

        Cost: 1 ms per megabyte if on disk, otherwise that of ``build`` and of writing them. Arrays
        of small vocabularies are not cached, but built each time.
        """
        if self.size < _WORTH_KEEPING:
            return array_cache.frozen(build())
        key = f"{name} {version} of {self.uid}"
        return array_cache.get_or_build(f"vocabulary-{self.uid}", name, key, build)

    @cached_property
    def missing_bytes(self) -> frozenset[int]:
        """The bytes of UTF-8 text that are not tokens themselves.

        Byte-level vocabularies can lack some: SmolLM2's has neither six of the control characters
        nor the lead bytes of planes 4 to 11. Costs 243 look-ups, once.
        """
        child, start = self.trie.child, self.trie.token_start
        nodes = ((byte, child.get(byte, 0)) for byte in _UTF8_BYTES)
        return frozenset(byte for byte, node in nodes if start[node] == start[node + 1])

    def encode_bytes(self, data: bytes) -> list[int]:
        """Return the fewest tokens whose bytes concatenate to exactly ``data``.

        A tokenizer may split it differently, but not into fewer tokens. Of equally short results,
        the one whose tokens are longest from the left; of ids with equal bytes, the lowest.

        Args:
            data: any bytes, also parts of UTF-8 characters.

        Raises:
            VocabularyError: no tokens give ``data``.

        Cost: ``len(data)`` times the longest match at each position; 1 µs per byte of JSON, and
        nothing for an end that it shares with the previous call.
        """
        nodes = self._fewest(data)
        if nodes is None:
            raise VocabularyError(self._why_unspellable(data))
        trie = self.trie
        return [int(trie.token_ids[trie.token_start[node]]) for node in nodes]

    def count_tokens(self, data: Text) -> int:
        """Return how many tokens `encode_bytes` needs for ``data``; raises the same errors."""
        if isinstance(data, Rope) and self._is_rope(data):
            needed = self._fewest.ropes.count(data)
        else:
            needed = self._fewest.count(flat(data))
        if needed is None:
            raise VocabularyError(self._why_unspellable(head(data, _SHOWN_UNSPELLABLE)))
        return needed

    def nodes_of(self, text: Rope) -> Iterator[int]:
        """Yield the trie nodes of the fewest tokens that concatenate to ``text``, as needed.

        Such tokens must exist: see `count_tokens`.
        """
        if self._is_rope(text):
            yield from self._fewest.ropes.nodes(text)
            return
        at = 0
        while at < len(text):  # a few at a time, because later ones may never be needed
            nodes = self._fewest(flat(text)[at:], _AT_ONCE) or []
            for node in nodes:
                at += int(self.trie.depth[node])
                yield node

    def _is_rope(self, text: Rope) -> bool:
        """Return whether to encode ``text`` part by part: most of it is known, or repeats."""
        if not _SHORT < text.size <= _LONG:
            return text.size > _LONG
        return self._fewest.ropes.is_mostly_known(text)

    def _why_unspellable(self, data: bytes) -> str:
        known = {byte for token in self.tokens for byte in token}
        for position, byte in enumerate(data):
            if byte not in known:
                where = f"byte 0x{byte:02X} at offset {position} of {data[:80]!r}: no token has it"
                break
        else:
            where = f"{data[:80]!r}: no sequence of tokens spells it"
        return (
            f"This vocabulary cannot spell {where}. Use a model whose tokenizer covers all "
            "bytes, or an output type without this text."
        )

    def __repr__(self) -> str:
        return (
            f"Vocabulary(size={self.size:,}, text_tokens={len(self.trie.token_ids):,}, "
            f"special={len(self.special_token_ids):,}, eos_token_ids={self.eos_token_ids}, "
            f"uid={self.uid[:12]}…)"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.uid == other.uid

    def __hash__(self) -> int:
        return hash(self.uid)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Vocabulary is immutable; cannot set {name!r}.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Vocabulary is immutable; cannot delete {name!r}.")

    def _arrays(self) -> array_cache.Arrays:
        """Return everything as arrays: the inverse of `_from_arrays`."""
        names = "\0".join(self.named_tokens).encode(errors="surrogatepass")  # as JSON has them
        return {
            "text": np.frombuffer(b"".join(self.tokens), np.uint8),
            "lengths": np.fromiter(map(len, self.tokens), np.int32, self.size),
            "eos_token_ids": np.array(self.eos_token_ids, np.int64),
            "special_token_ids": np.array(sorted(self.special_token_ids), np.int64),
            "named_token_ids": np.array(list(self.named_tokens.values()), np.int64),
            "names": np.frombuffer(names, np.uint8),
            "uid": np.frombuffer(bytes.fromhex(self.uid), np.uint8),
            **{f"trie.{name}": array for name, array in self.trie.arrays().items()},
        }

    @classmethod
    def _from_arrays(cls, arrays: array_cache.Arrays) -> Vocabulary:
        text = arrays["text"].tobytes()
        bounds = [0, *np.cumsum(arrays["lengths"], dtype=np.int64).tolist()]
        trie = Trie.from_arrays(
            {name[5:]: array for name, array in arrays.items() if name.startswith("trie.")}
        )
        names = arrays["names"].tobytes().decode(errors="surrogatepass").split("\0")
        ids = arrays["named_token_ids"].tolist()
        vocabulary = cls.__new__(cls)
        vars(vocabulary).update(
            size=len(bounds) - 1,
            tokens=tuple([text[start:end] for start, end in pairwise(bounds)]),
            eos_token_ids=tuple(arrays["eos_token_ids"].tolist()),
            special_token_ids=frozenset(arrays["special_token_ids"].tolist()),
            named_tokens=MappingProxyType(dict(zip(names, ids, strict=True)) if ids else {}),
            trie=trie,
            uid=arrays["uid"].tobytes().hex(),
            _fewest=FewestTokens(trie),
        )
        return vocabulary

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary._from_arrays, (self._arrays(),)


def _ids(given: Iterable[int]) -> tuple[int, ...]:
    """Return the ids that end a sequence, ascending."""
    try:
        return tuple(sorted({operator.index(token_id) for token_id in given}))
    except TypeError as error:
        raise VocabularyError(
            f"eos_token_ids must be ids, such as [2]; got {given!r}. The ids of tokens by name "
            "are in tokenizer.json, under added_tokens."
        ) from error


@final
class Plan:
    """The tokens that finish an output from a place. Immutable.

    Args:
        tokens: the tokens, read one by one.
        size: their number.
    """

    __slots__ = ("_at", "_known", "_more", "size")

    def __init__(self, tokens: Iterable[int], size: int) -> None:
        self._known: list[int] = []
        self._more: Iterator[int] = iter(tokens)
        self._at = 0
        self.size = size

    @property
    def first(self) -> int:
        """The first token. There must be one."""
        known = self._known
        while len(known) <= self._at:
            known.append(next(self._more))
        return known[self._at]

    def rest(self) -> Plan:
        """Return the plan after the first token."""
        plan = Plan.__new__(Plan)
        plan._known, plan._more = self._known, self._more
        plan._at, plan.size = self._at + 1, self.size - 1
        return plan
