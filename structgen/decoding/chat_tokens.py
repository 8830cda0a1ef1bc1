"""Encode chats so that only the template's own markers become special tokens.

A chat template writes markers such as ``<|im_end|>`` around messages, and the tokenizer turns them
into single tokens that control the model. If a user, a tool or a document contains the same
characters, they must stay text. Otherwise the author could end the turn and begin another one in a
different role.

How the markers are found. The template is rendered a second time, with the first and last
characters of each special token's name in the messages replaced by long random numbers. Every
remaining name was written by the template. If restoring the characters gives the first rendering,
as for every template that embeds, trims or quotes contents, the origin of each character is known.
A template that inspects contents (for example for ``</think>``) may render differently. Then a
third rendering replaces only whole names; it is the prompt if it has the same markers, otherwise
the first rendering is.

If no content has such characters, nothing is rendered twice; if none has a name, the tokens are
those of the whole text.

`Speller` encodes forced text as the model's own tokenizer would. This depends on the text before:
``1`` may join preceding digits, a space the following word. So the tokenizer encodes the text of
the last few tokens together with the new bytes, and the result is used if it begins with exactly
these tokens. If not, because the model chose a shorter token than possible, it encodes less of the
text before.
"""

from __future__ import annotations

import bisect
import codecs
import copy
import functools
import itertools
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from structgen.errors import PromptError, VocabularyError, did_you_mean
from structgen.models.base import Model, per_model
from structgen.sampling import TokenIds
from structgen.vocabulary import Vocabulary

# Tokens of context: tokenizers split text into words first, and no word of any language has more
# tokens than this.
_CONTEXT = 8

_SHORT = 64  # characters of texts whose tokens are cached
_MOST_KNOWN = 16_384


@final
class Speller:
    """Encodes bytes as tokens. Stateless and thread-safe."""

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], TokenIds]) -> None:
        """Encode with ``vocabulary`` like ``encode``, which maps text to token ids, special ones
        included.
        """
        self._vocabulary = vocabulary
        self._encode = encode

    def __call__(self, before: TokenIds, data: bytes) -> list[int]:
        """Return token ids whose bytes concatenate to exactly ``data``.

        Args:
            before: int32 ``[n]``, the tokens before ``data``.
            data: UTF-8, perhaps cut inside its first or last character.

        Cost: about 5 µs for a name and its punctuation.
        """
        tail = data[-3:]  # where a character may have begun
        cut = len(tail) - codecs.utf_8_decode(tail, "ignore", False)[1]
        if cut:
            end = len(data) - cut
            return [*self(before, data[:end]), *self._vocabulary.encode_bytes(data[end:])]
        tokens = self._vocabulary.tokens
        context: list[int] = before[-_CONTEXT:].tolist()
        pieces = [tokens[token] for token in context]
        # Text before and after a special token is encoded separately.
        first = max((i for i, piece in enumerate(pieces, 1) if not piece), default=0)
        for start in range(first, len(context) + 1):
            kept = context[start:]
            try:
                found: list[int] = self._encode((b"".join(pieces[start:]) + data).decode()).tolist()
            except (UnicodeDecodeError, PromptError):  # characters that prompts may not contain
                continue
            rest = found[len(kept) :]
            if found[: len(kept)] == kept and b"".join([tokens[t] for t in rest]) == data:
                return rest
        return self._vocabulary.encode_bytes(data)


_Messages = Sequence[Mapping[str, Any]]
_DIGITS = 24
_KEYS = {"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal"}
_KEYS |= {"annotations", "audio", "prefix", "reasoning", "reasoning_content", "thinking"}
"""Keys of messages in well-known APIs, which templates may or may not read."""


_MOST_OTHER_KEYS = 32
"""The most other keys, for messages of each role, that are checked against the template."""

_NO_MARKS: Mapping[str, str] = {}

_LONGEST_SHOWN = 200_000  # characters; published templates write up to some 20,000

_EDGES = 4
"""The most characters, per token of the context, that could begin or end a special token."""


class _Piece(NamedTuple):
    """Part of a rendered chat: text, or a special token that the template wrote."""

    text: str
    token_id: int | None


def encode_chat(
    model: Model,
    messages: _Messages,
    *,
    tools: _Messages | None = None,
    anywhere: bool = False,
    check: Callable[[str], object] | None = None,
    marks: Mapping[str, str] = _NO_MARKS,
) -> TokenIds:
    """Return the tokens of a chat, int32 ``[n]``.

    Args:
        model: the model, with its template and tokenizer.
        messages: the result of `structgen.decoding.chat.parse`. If the last message is the
            assistant's, the answer continues it directly.
        tools: the tools that the template describes.
        anywhere: read special tokens in contents, too.
        check: called with the rendered text before it is tokenized.
        marks: the characters in contents that represent pictures and sounds, each with its text in
            the prompt, which contains the mark. The mark of picture ``i`` is token ``-1 - i``.

    Raises:
        PromptError: the template refuses these messages, omits or repeats a mark, or does not read
            one of their keys.
        Others as ``check``.

    Cost: that of rendering and encoding once; two to three times as much for contents with
    characters of special tokens.
    """
    text = _rendered(model, messages, tools)
    if check is not None:
        check(text)
    _check_keys(model, messages, tools, text)
    text = _with_marks(text, marks)
    token_ids = _encoded(model, text, marks)
    if any(mark in message["content"] for mark in marks for message in messages):
        _check_marks(model, messages, marks, text)
    if anywhere:
        return token_ids
    names = _names(model)
    names.learn(model, text, token_ids)
    strings = _strings(messages, tools)
    n_edges = sum(string.count(edge) for string in strings for edge in names.edges)
    if not n_edges:
        return token_ids
    # also in parts that are not shown
    if check is not None and n_edges > _EDGES * model.context_length:
        raise PromptError(
            f"The messages have {n_edges:,} characters such as {min(names.edges)!r}, too many for "
            f"a prompt of {model.name} (at most {model.context_length:,} tokens). Shorten them.",
            is_too_long=True,
        )
    pieces = _origins(model, names, messages, tools, text, marks)
    whole = "".join(piece.text for piece in pieces)
    if whole != text:
        token_ids = _encoded(model, whole, marks)
    return _spelt(model, names.with_marks(marks), pieces, token_ids)


def _with_marks(text: str, marks: Mapping[str, str]) -> str:
    """Return a rendered chat with each mark replaced by its text."""
    for mark, becomes in marks.items():
        text = text.replace(mark, becomes)
    return text


def _encoded(model: Model, text: str, marks: Mapping[str, str]) -> TokenIds:
    """Return the tokens of a text, int32 ``[n]``; pieces between marks are encoded separately."""
    if not marks:
        return model.encode(text)
    numbers = {mark: -1 - i for i, mark in enumerate(marks)}
    found: list[int] = []
    for piece in re.split(f"([{''.join(marks)}])", text):
        if piece in numbers:
            found.append(numbers[piece])
        elif piece:
            found += [int(token_id) for token_id in model.encode(piece)]
    return np.array(found, np.int32)


def _check_marks(model: Model, messages: _Messages, marks: Mapping[str, str], text: str) -> None:
    """Check that a prompt has each picture and sound of its messages once."""
    for number, mark in enumerate(marks, 1):
        n_given = sum(message["content"].count(mark) for message in messages)
        if text.count(mark) != n_given:
            raise PromptError(
                f"The chat template of {model.name} writes picture or sound {number} "
                f"{text.count(mark)} times instead of once. Put it into the last message."
            )


def encode_text(model: Model, pieces: Sequence[tuple[str, bool]]) -> TokenIds:
    """Return the tokens of a text in pieces, int32 ``[n]``.

    Args:
        model: the model, with its tokenizer.
        pieces: the pieces of the text, each with whether special tokens are read in it.
    """
    text = "".join(piece for piece, _ in pieces)
    token_ids = model.encode(text)
    names = _names(model)
    names.learn(model, text, token_ids)
    if not names.ids:
        return token_ids
    cut: list[_Piece] = []
    for piece, is_own in pieces:
        for part in names.split(piece) if is_own else [piece]:
            if is_own and part in names.ids:
                cut.append(_Piece(part, names.ids[part]))
            elif cut and cut[-1].token_id is None:
                cut[-1] = _Piece(cut[-1].text + part, None)
            else:
                cut.append(_Piece(part, None))
    if not any(names.found(piece.text) for piece in cut if piece.token_id is None):
        return token_ids
    return _spelt(model, names, cut, token_ids)


def _rendered(model: Model, messages: _Messages, tools: _Messages | None) -> str:
    """Return the text of a chat up to the start, or continuation, of the answer."""
    last = messages[-1]
    if last["role"] != "assistant":
        return _applied(model, messages, tools)
    if len(messages) == 1:
        raise PromptError(
            "The only message is from the assistant, so there is nothing to answer. Put a user "
            "message before it; the answer then continues the assistant's."
        )
    return _applied(model, messages[:-1], tools) + str(last["content"])


def _check_keys(model: Model, messages: _Messages, tools: _Messages | None, text: str) -> None:
    """Check for keys that no API knows and this model's template does not read, such as typos."""
    # Once for each key and role, independent of the number of messages.
    first: dict[tuple[str, Any], int] = {}
    for index, message in enumerate(messages):
        for key in message:
            if key not in _KEYS:
                first.setdefault((key, message["role"]), index)
    for number, ((key, role), index) in enumerate(first.items()):
        changed = [
            {name: one[name] for name in one if name != key or one["role"] != role}
            for one in messages
        ]
        if number >= _MOST_OTHER_KEYS or _rendered(model, changed, tools) == text:
            raise PromptError(
                f"Message {index} has the key {key!r}, which the chat template of {model.name} "
                f"does not read.{did_you_mean(key, _KEYS) or ' Remove it.'}"
            )


def _applied(model: Model, messages: _Messages, tools: _Messages | None) -> str:
    if tools is None:
        return model.apply_chat_template(messages)
    return model.apply_chat_template(messages, tools=tools)


def shown(model: Model, messages: _Messages, tools: _Messages | None = None) -> str | None:
    """Return the rendering of a short chat; None if the template refuses it, or writes far more
    than any published template."""
    try:
        text = _applied(model, messages, tools)
    except PromptError:
        return None
    return text if len(text) <= _LONGEST_SHOWN else None


# -- names ------------------------------------------------------------------------------------


@final
class _Names:
    """The special tokens of one model, by name.

    Attributes:
        ids: token id by name, as far as known.
    """

    def __init__(self, model: Model) -> None:
        vocabulary = model.vocabulary
        self._special = vocabulary.special_token_ids
        self._unnamed = self._special - {*vocabulary.named_tokens.values()}
        self.ids: dict[str, int] = {}
        self._add(
            {
                name: token_id
                for name, token_id in vocabulary.named_tokens.items()
                # A token for unknown characters controls nothing.
                if name and token_id in self._special and "unk" not in name.lower()
            }
        )

    def _add(self, ids: Mapping[str, int]) -> None:
        self.ids = {**self.ids, **ids}
        longest_first = sorted(self.ids, key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})" if ids else "()")
        self.edges = {char for name in self.ids for char in (name[0], name[-1])}

    def learn(self, model: Model, text: str, token_ids: TokenIds) -> None:
        """Learn the names of special tokens in ``text`` that the vocabulary does not list."""
        for token_id in self._unnamed.intersection(token_ids.tolist()) - {*self.ids.values()}:

            def has(part: str, token_id: int = token_id) -> bool:
                return token_id in model.encode(part).tolist()

            # The shortest beginning of the text that contains it, and the shortest end of that.
            end = bisect.bisect_left(range(len(text)), True, key=lambda n: has(text[:n]))
            start = bisect.bisect_left(range(end), True, key=lambda n: not has(text[n:end])) - 1
            if end - start > 1:  # not a character unknown to the tokenizer
                self._add({text[start:end]: token_id})

    def with_marks(self, marks: Mapping[str, str]) -> _Names:
        """Return the same, and marks under negative numbers; nothing but marks are marks."""
        if not marks:
            return self
        names = copy.copy(self)
        names._add({mark: -1 - i for i, mark in enumerate(marks)})
        names.edges = self.edges
        return names

    def split(self, text: str) -> list[str]:
        """Split a text at its names: text, name, text, …, text."""
        return self._pattern.split(text)

    def found(self, text: str) -> list[int]:
        """Return the special tokens of a text, if they are read as such."""
        return [self.ids[name] for name in self.split(text)[1::2]]


@per_model
def _known(model: Model) -> dict[tuple[int | str, ...], list[int]]:
    """Return the cache of short texts' tokens: a chat that is cut is encoded about 20 times."""
    return {}


@per_model
def _names(model: Model) -> _Names:
    return _Names(model)


# -- where characters come from ---------------------------------------------------------------


def _origins(
    model: Model,
    names: _Names,
    messages: _Messages,
    tools: _Messages | None,
    text: str,
    marks: Mapping[str, str],
) -> list[_Piece]:
    """Split the rendered chat into the template's special tokens and everything else."""
    shadowed = functools.partial(_shadowed, model, names, messages, tools, marks=marks)
    sure = shadowed(sorted(names.edges))
    if sure is not None and "".join(piece.text for piece in sure) == text:
        return sure
    present = {name for string in _strings(messages, tools) for name in names.split(string)[1::2]}
    closer = shadowed(sorted(present, key=len, reverse=True))
    # A template that removes parts of contents could form a name from the rest.
    pieces = closer if sure is None or _markers(sure) == _markers(closer) else sure
    if pieces is None:
        raise PromptError(
            f"The chat template of {model.name} cannot be applied to messages that contain its "
            "special tokens as text. Remove them, or pass special_tokens='anywhere' to read them "
            "as special tokens."
        )
    return pieces


def _markers(pieces: Sequence[_Piece] | None) -> list[int | None]:
    return [piece.token_id for piece in pieces or () if piece.token_id is not None]


def _shadowed(
    model: Model,
    names: _Names,
    messages: _Messages,
    tools: _Messages | None,
    hidden: Sequence[str],
    marks: Mapping[str, str],
) -> list[_Piece] | None:
    """Render messages with some strings replaced by numbers; then restore them as text."""
    numbers = {part: str(secrets.randbelow(10**_DIGITS)).zfill(_DIGITS) for part in hidden}
    parts = {number: part for part, number in numbers.items()}
    hide = re.compile("|".join(map(re.escape, hidden)) or "(?!)")
    show = re.compile("|".join(parts) or "(?!)")
    shadow = [
        {
            key: value if key == "role" else _mapped(value, lambda s: hide.sub(_lookup(numbers), s))
            for key, value in message.items()
        }
        for message in messages
    ]
    if tools is not None:
        tools = _mapped(tools, lambda s: hide.sub(_lookup(numbers), s))
    try:
        rendered = _with_marks(_rendered(model, shadow, tools), marks)
    except PromptError:
        return None
    pieces = []
    names = names.with_marks(marks)
    for index, part in enumerate(names.split(rendered)):
        if index % 2:
            pieces.append(_Piece(part, names.ids[part]))
        else:
            pieces.append(_Piece(show.sub(_lookup(parts), part), None))
    return pieces


def _lookup(table: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    return lambda match: table[match[0]]


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of a message with a function applied to all its strings."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_mapped(key, change): _mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(inner, change) for inner in value]
    return value


def _strings(messages: _Messages, tools: _Messages | None) -> list[str]:
    """Return all strings of the messages, except roles, and of the tools."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    for message in messages:
        _mapped({key: value for key, value in message.items() if key != "role"}, note)
    _mapped(tools, note)
    return found


# -- tokens -----------------------------------------------------------------------------------


def too_long(model: Model, tokens: str) -> PromptError:
    """Return the error for a prompt with that many tokens, given in words."""
    return PromptError(
        f"The prompt has {tokens}, but the limit of {model.name} is {model.context_length:,} for "
        "prompt and output. Shorten it.",
        is_too_long=True,
    )


def _spelt(model: Model, names: _Names, pieces: Sequence[_Piece], token_ids: TokenIds) -> TokenIds:
    """Return the tokens of pieces, int32 ``[n]``.

    Args:
        model: the model.
        names: its special tokens.
        pieces: the result of `_origins`.
        token_ids: the tokens of the whole text, with special tokens read everywhere. Pieces without
            special tokens keep these.

    Raises:
        PromptError: there are more than fit, by the number of names alone.
    """
    vocabulary, out = model.vocabulary, list[int]()
    speller, known = Speller(vocabulary, model.encode), _known(model)

    @functools.cache
    def cut_of(name: str) -> int:
        """Return the position at which splitting the name gives the fewest tokens."""

        def count(cut: int) -> int:
            return len(model.encode(name[:cut])) + len(model.encode(name[cut:]))

        return min(range(1, len(name)), key=count, default=1)

    def spell(text: str) -> None:
        """Add text as plain text: split inside each name, so that the tokenizer does not see it."""
        parts = names.split(text)
        run = parts[0]
        for name, after in zip(parts[1::2], parts[2::2], strict=True):
            add(run + name[: cut_of(name)])
            run = name[cut_of(name) :] + after
        add(run)

    def add(text: str) -> None:
        if not text:
            return
        before = [*itertools.takewhile(lambda token: token >= 0, reversed(out[-_CONTEXT:]))][::-1]
        place: tuple[int | str, ...] = (*before, text)
        tokens = known.get(place)
        if tokens is None:
            try:
                found = speller(np.array(before, np.int32), text.encode())
            except VocabularyError:  # characters unknown to the tokenizer
                found = [int(token_id) for token_id in model.encode(text)]
            tokens = [token for token in found if token not in vocabulary.special_token_ids]
            if len(text) <= _SHORT:
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                known[place] = tokens
        out.extend(tokens)

    special = {*names.ids.values()}
    expected = [
        names.found(piece.text) if piece.token_id is None else [piece.token_id] for piece in pieces
    ]
    least = sum(map(len, expected))  # each takes at least a token, and 60 µs
    if least >= model.context_length:
        raise too_long(model, f"at least {least:,} tokens")
    given: list[int] = token_ids.tolist()
    ends = [at for at, token_id in enumerate(given) if token_id in special]
    is_read_alike = [given[at] for at in ends] == list(itertools.chain(*expected))
    start = done = 0
    for piece, found in zip(pieces, expected, strict=True):
        done += len(found)
        end = ends[done] if done < len(ends) else len(given)
        if piece.token_id is not None:
            out.append(piece.token_id)
            start = ends[done - 1] + 1 if is_read_alike else start
        elif is_read_alike and not found:
            out += given[start:end]
        else:
            spell(piece.text)
    return np.array(out, np.int32)
