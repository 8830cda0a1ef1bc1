"""Why a token was not allowed at a place: which byte was refused, where, and what could follow.

It owns the wording and the search for the reason, which it finds by asking the automaton again.
Which tokens stood before, and what was chosen instead, it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from structgen.automaton.cfg import MARK
from structgen.automaton.core import DEAD
from structgen.automaton.texts import head
from structgen.constraint import Constraint
from structgen.errors import OptionError, TokenNotAllowed
from structgen.insight.alternatives import is_json
from structgen.insight.byte_reader import ByteReader
from structgen.insight.json_places import JsonPlaces

_CONTEXT = 24
"""Bytes of the text before a place that are shown."""

_SHOWN = 10_000
"""Bytes of what is missing to the end that are shown."""


def shown(data: bytes) -> str:
    """Bytes for a reader: characters where they are some, escapes elsewhere."""
    try:
        return repr(data.decode())
    except UnicodeDecodeError:
        return repr(data)[1:]


def why_barred(
    constraint: Constraint,
    before: Sequence[int],
    token: int | str | bytes,
    *,
    chosen: int,
    max_tokens: int | None = None,
) -> str:
    """Say why a token was barred at a place, or that it was not.

    Args:
        constraint: the output type.
        before: the tokens of the output that stand before the place.
        token: a token id, the name of a special token, or text, which need not be one token.
        chosen: the token that stands there.
        max_tokens: the budget of the output.

    Raises:
        OptionError: there is no such token.

    Cost: that of reading the output up to the place again.
    """
    vocabulary = constraint.vocabulary
    tokens = constraint.named.tokens
    output = b"".join(tokens[token_id] for token_id in before)
    where = _where(constraint, output)
    named = token if isinstance(token, str) else None
    if named is not None:
        # What the tokenizer calls a special token is that one token, however it could be spelt.
        token = vocabulary.named_tokens.get(named, named)
    if isinstance(token, int):
        if not 0 <= token < vocabulary.size:
            raise OptionError(f"token {token} does not exist: there are {vocabulary.size:,} ids.")
        if token in vocabulary.eos_token_ids:
            return _why_no_end(constraint, output, where)
        data = tokens[token]
        if not data:
            what = f"Token {token}" if named is None else f"The special token {named}"
            return f"{what} stands for no text, so no output has it."
    else:
        data = token.encode() if isinstance(token, str) else token
        if not data:
            raise OptionError("the token is empty. Pass its text or its id.")
    refusal = _refusal(constraint, output, data)
    if refusal is not None:
        return refusal
    name = shown(constraint.named.shown(data))
    token_id = token if isinstance(token, int) else _token_of(constraint, data)
    if token_id == chosen:
        return f"{name} was chosen {where}."
    if token_id is None:
        return f"{name} fits {where}, but is not one token: it would take several."
    cursor = constraint.start(max_tokens)
    for accepted in before:
        cursor.accept(accepted)
    try:
        cursor.accept(token_id)
    except TokenNotAllowed:
        assert max_tokens is not None
        left = max_tokens - len(before)
        return (
            f"{name} fits {where}, but with {left:,} of {max_tokens:,} tokens left the output "
            "could not have been finished after it."
        )
    forced = _forced(constraint, output)
    if len(forced) > len(data):
        return (
            f"{name} fits {where}, but it only begins what is forced there, {shown(forced)}. Such "
            "text is written in the tokens that the tokenizer itself would use, so other ways to "
            "cut it are left out."
        )
    return (
        f"{name} was allowed {where}: {shown(constraint.named.texts[chosen])} was chosen instead."
    )


def _where(constraint: Constraint, output: bytes) -> str:
    """The place after ``output``, in words."""
    if not is_json(constraint):
        return f"after {_tail(constraint, output)}" if output else "at the start"
    reader = JsonPlaces()
    reader.feed(output)
    return f"at {reader.path}"


def _tail(constraint: Constraint, output: bytes) -> str:
    """The last few characters of a text."""
    return repr(constraint.named.shown(output)[-_CONTEXT:].decode(errors="ignore"))


def _why_no_end(constraint: Constraint, output: bytes, where: str) -> str:
    walk = ByteReader(constraint)
    walk.go_on(output)
    if walk.machine.is_accepting(walk.state):
        return f"The end was allowed {where}."
    shortest = walk.shortest_completion()
    rest = head(shortest, _SHOWN)
    more = "" if len(rest) == len(shortest) else f"…, {len(shortest):,} bytes in all"
    return (
        f"The end was not allowed {where}: the output was not whole. The least that was missing "
        f"is {shown(constraint.named.shown(rest))}{more}."
    )


def _refusal(constraint: Constraint, output: bytes, data: bytes) -> str | None:
    """Which byte of ``data`` the automaton refuses after ``output``; None: none."""
    walk = ByteReader(constraint)
    walk.go_on(output)
    for i, byte in enumerate(data):
        if walk.step(walk.state, byte, bytes([byte])) != DEAD:
            walk.go_on(bytes([byte]))
            continue
        before = output + data[:i]
        after = f" after {_tail(constraint, before)}" if before else " at the start"
        where = f" {_where(constraint, before)}" if is_json(constraint) else ""
        named = data[:1] == bytes([MARK])
        which = (
            "" if len(data) == 1 or named else f": {_character(byte)}, its byte {i + 1}, is refused"
        )
        # A value that must not come twice is refused by the byte that ends it.
        following = walk.next_bytes(walk.state) - {byte}
        ends = walk.machine.is_accepting(walk.state)
        listed = [_listed(following - {MARK})] if following - {MARK} else []
        listed += ["a special token"] if MARK in following else []
        could = f"there may come {' or '.join(listed)}" if listed else ""
        could += (", or the output may end" if could else "the output has to end") if ends else ""
        name = shown(constraint.named.shown(data))
        return f"{name} was not allowed{which}{where}{after}; {could}."
    return None


def _forced(constraint: Constraint, output: bytes) -> bytes:
    """The text that has to come after ``output``, as far as there is one way on."""
    walk = ByteReader(constraint)
    walk.go_on(output)
    forced = bytearray()
    while (byte := walk.forced_byte()) >= 0 and len(forced) < 200:
        forced.append(byte)
        walk.go_on(bytes([byte]))
    return bytes(forced)


def _token_of(constraint: Constraint, data: bytes) -> int | None:
    """The token with exactly these bytes."""
    trie = constraint.vocabulary.trie
    node = trie.node_of(data)
    return None if node is None else next(iter(trie.ids_at(node)), None)


def _listed(values: Iterable[int]) -> str:
    """Bytes in words: runs of ASCII characters, and anything beyond as a whole."""
    ascii_only = sorted(value for value in values if value < 0x80)
    words = []
    for first, last in _runs(ascii_only):
        if last - first < 2:
            words += [_character(value) for value in range(first, last + 1)]
        else:
            words.append(f"{_character(first)} to {_character(last)}")
    if any(value >= 0x80 for value in values):
        words.append("characters beyond ASCII")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] != values[i - 1] + 1:
            yield values[start], values[i - 1]
            start = i


def _character(byte: int) -> str:
    return repr(chr(byte)) if byte < 0x80 else f"0x{byte:02X}"
