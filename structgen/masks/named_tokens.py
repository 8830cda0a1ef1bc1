"""Tokens that a grammar names, such as ``<|tool_call|>``: one symbol each, independent of their
text.

For the automaton such a token is two bytes that no text contains
(`cfg.embedded_terminals.spelling`), so plans, masks and positions need no special case.
`NamedTokens` maps these bytes to token ids. A named token is allowed only where the grammar names
it. Its text is written with other tokens.

Some names stand for several tokens: ``<[12,20-30]>``, ``<[^12]>``, ``!<name>`` or ``<[*]>``. Their
two bytes represent any of these tokens, each of which can also still write its text. Tokens that
end the sequence or are part of a character are excluded.
"""

from __future__ import annotations

import difflib
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace

from structgen.automaton.cfg import MARK, spelling
from structgen.automaton.texts import Rope, Text, flat
from structgen.errors import GrammarError
from structgen.grammar import ir
from structgen.vocabulary import Plan, Vocabulary

_SHOWN = 12
_BY_ID = re.compile(r"<\[(\d+)\]>")
_SEVERAL = re.compile(r"<\[(?:\*|(\^)?([\d,-]+))\]>")


class NamedTokens:
    """The named tokens of one constraint.

    Args:
        vocabulary: the vocabulary.
        named: their names in the grammar, in the order of their numbers.

    Raises:
        GrammarError: the vocabulary has no such token, or it ends the sequence.

    Attributes:
        ids: their token ids, in the same order.
        tokens: by token id, the bytes that the automaton reads; empty if it cannot read the token.
        texts: by token id, the bytes in the output's text.
        textual: the ``ids`` that are named alone and are also text in the vocabulary.
        several: the ids that are named together, by their bytes.
    """

    def __init__(self, vocabulary: Vocabulary, named: Sequence[ir.SpecialToken] = ()) -> None:
        self._vocabulary = vocabulary
        self.ids: tuple[array[int], ...] = ()
        self.tokens = self.texts = vocabulary.tokens
        self.textual: frozenset[int] = frozenset()
        self.several: dict[bytes, frozenset[int]] = {}
        if not named:
            return
        shown = {token_id: name for name, token_id in vocabulary.named_tokens.items()}
        tokens = [b"" if MARK in token else token for token in vocabulary.tokens]
        texts = list(vocabulary.tokens)
        alone: dict[int, int] = {}
        for number, token in enumerate(named):
            ids = _ids_of(vocabulary, token)
            self.ids += (array("i", ids),)
            if token.text in vocabulary.named_tokens:
                shown[ids[0]] = token.text
            for token_id in ids:
                texts[token_id] = texts[token_id] or shown.get(token_id, f"<[{token_id}]>").encode()
            if _names_several(token.text, vocabulary):
                self.several[spelling(number)] = frozenset(ids)
                continue
            (token_id,) = ids
            if token_id in alone:
                name = shown.get(token_id, token.text)
                raise GrammarError(
                    f"The token {name} is given twice, by its text and by its id. Choose one."
                )
            alone[token_id] = number
            tokens[token_id] = spelling(number)
        self.textual = frozenset(i for i in alone if vocabulary.tokens[i])
        self._texts = {number: texts[token_id] for token_id, number in alone.items()}
        self.tokens, self.texts = tuple(tokens), tuple(texts)

    def __bool__(self) -> bool:
        return bool(self.ids)

    def encode(self, data: bytes) -> list[int]:
        """Return nearly the fewest tokens that the automaton reads as ``data``."""
        if not self.ids:
            return self._vocabulary.encode_bytes(data)
        first, *parts = data.split(bytes([MARK]))
        out = self.respelt(self._vocabulary.encode_bytes(first)) if first else []
        for part in parts:
            out.append(self.ids[part[0] - spelling(0)[1]][0])
            out += self.respelt(self._vocabulary.encode_bytes(part[1:])) if part[1:] else []
        return out

    def count(self, text: Text) -> int:
        """Return how many tokens `plan` has."""
        if self.ids:
            return len(self.encode(flat(text)))
        return self._vocabulary.count_tokens(text)

    def plan(self, text: Text) -> Plan:
        """Return the tokens of `encode`, for texts that may be too long to write out."""
        if isinstance(text, Rope) and not self.ids:
            return Plan(self._spelt(text), self.count(text))
        tokens = self.encode(flat(text))
        return Plan(tokens, len(tokens))

    def _spelt(self, text: Rope) -> Iterator[int]:
        trie = self._vocabulary.trie
        for node in self._vocabulary.nodes_of(text):
            yield int(trie.token_ids[trie.token_start[node]])

    def respelt(self, tokens: Sequence[int]) -> list[int]:
        """Return ``tokens``, which write text, without named tokens among them."""
        if self.textual.isdisjoint(tokens):
            return list(tokens)
        out: list[int] = []
        for token in tokens:
            if token not in self.textual:
                out.append(token)
                continue
            text, encode = self._vocabulary.tokens[token], self._vocabulary.encode_bytes
            cut = 1 if len(text) > 1 else 0
            out += [*self.respelt(encode(text[:cut])), *self.respelt(encode(text[cut:]))]
        return out

    def spelt(self, data: bytes) -> bytes:
        """Return a text's bytes as the automaton reads them, with the bytes of named tokens
        replaced."""
        if self.ids:
            for number, shown in sorted(self._texts.items(), key=lambda pair: -len(pair[1])):
                data = data.replace(shown, spelling(number))
        return data

    def shown(self, data: bytes) -> bytes:
        """Return the text for ``data``, the bytes that the automaton read."""
        if self.ids and MARK in data:
            for number, shown in self._texts.items():
                data = data.replace(spelling(number), shown)
        return data


def _names_several(name: str, vocabulary: Vocabulary) -> bool:
    """Return whether a name stands for several tokens, or for ordinary text."""
    if name in vocabulary.named_tokens:
        return False
    if by_id := _BY_ID.fullmatch(name):
        token_id, tokens = int(by_id[1]), vocabulary.tokens
        is_text = token_id < len(tokens) and bool(tokens[token_id])
        return is_text and token_id not in vocabulary.named_tokens.values()
    return name.startswith("!<") or _SEVERAL.fullmatch(name) is not None


def _ids_of(vocabulary: Vocabulary, token: ir.SpecialToken) -> list[int]:
    """Return the ids that a grammar names at a place, ids of ordinary text first."""
    if not _names_several(token.text, vocabulary):
        return [_id_of(vocabulary, token)]
    found = _SEVERAL.fullmatch(token.text.removeprefix("!"))
    listed: set[int] = set()
    if found is None:
        listed.add(_looked_up(vocabulary, replace(token, text=token.text[1:])))
    elif found[2]:
        for low, high in re.findall(r"(\d+)(?:-(\d+))?", found[2]):
            listed.update(range(int(low), min(int(high or low) + 1, vocabulary.size)))
    are_others = found is not None and not (found[2] and not found[1])
    if are_others != token.text.startswith("!"):
        known = {i for i, text in enumerate(vocabulary.tokens) if text}
        listed = {*known, *vocabulary.named_tokens.values()} - listed
    listed = {
        i for i in listed.difference(vocabulary.eos_token_ids) if _is_whole(vocabulary.tokens[i])
    }
    if not listed:
        raise GrammarError(f"The vocabulary has none of the tokens {token.text}, {token.place}.")
    return sorted(listed, key=lambda i: (not vocabulary.tokens[i], i))


def _is_whole(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _looked_up(vocabulary: Vocabulary, token: ir.SpecialToken) -> int:
    name, place = token.text, f", {token.place}" if token.place else ""
    known = vocabulary.named_tokens
    token_id = known.get(name)
    by_id = _BY_ID.fullmatch(name)
    if by_id:
        token_id = int(by_id[1])
        if token_id >= vocabulary.size:
            raise GrammarError(
                f"The vocabulary has no token {token_id:,}{place}: it has {vocabulary.size:,} ids."
            )
    if token_id is None:
        hint = _near(name, vocabulary)
        raise GrammarError(f"The vocabulary has no special token {name}{place}. {hint}")
    return token_id


def _id_of(vocabulary: Vocabulary, token: ir.SpecialToken) -> int:
    name, place = token.text, f", {token.place}" if token.place else ""
    token_id = _looked_up(vocabulary, token)
    text = vocabulary.tokens[token_id]
    if len(text) == 1:
        raise GrammarError(
            f"The token {name} is ordinary text, {text!r}, which would be missing elsewhere. "
            "Write the text."
        )
    if token_id in vocabulary.eos_token_ids:
        raise GrammarError(
            f"The token {name}{place} ends the sequence, which is not part of a grammar: outputs "
            "end where the grammar does. Remove it."
        )
    return token_id


def _near(name: str, vocabulary: Vocabulary) -> str:
    """Return which names there are, of those that a grammar may have."""
    ends = vocabulary.eos_token_ids
    names = [
        known
        for known, token_id in vocabulary.named_tokens.items()
        if token_id not in ends and len(vocabulary.tokens[token_id]) != 1
    ]
    near = difflib.get_close_matches(name, names, 5, 0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    if not names and vocabulary.named_tokens:
        return "Its tokens are all text or end the sequence, and cannot be used here."
    if not names:
        return (
            "It has no names of tokens: load it from the model's tokenizer.json, or pass "
            "named_tokens= to Vocabulary.from_tokens."
        )
    more = "" if len(names) <= _SHOWN else f" and {len(names) - _SHOWN:,} more"
    return f"Special tokens: {', '.join(names[:_SHOWN])}{more}."
