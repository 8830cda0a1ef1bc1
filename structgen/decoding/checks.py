"""``retries=``: values that checks refused, the place to which the output returns, and what is
barred there.

`Trial` reads each token, has closing values checked (`structgen.values.Checks`), bars refused
values, and decides to how many tokens the output goes back. It also knows which are final, so that
their text can be yielded. Knows no model, mask or cursor.

How far back. A refusal returns to the token in which the refused value began. If the mask allows
nothing else there, it goes back token by token, but never before the first value that may still be
refused, because a reader may already have the text before. If nothing is left there either, it
raises an error. Every refusal counts against ``retries``, and a place is left only when refusals
bar every continuation, which bounds the work.

`Barred` holds the texts that an output must not become: prefixes with any continuation, and whole
outputs. Barring is exact: the token that would complete such a text is masked, for any tokenization
of the text before, and in JSON with any whitespace. This alone would make a model that wants ``3``,
and may not end there, write ``30``. So the path to a barred text also loses the probability that is
barred below it. The output is then sampled from the model's own distribution over whole texts
without the barred ones, as far as the probabilities of their tokens are known (Park et al. 2024 do
so under grammars). If nothing is barred, nothing changes.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn, final

import numpy as np

from structgen.constraint import Constraint
from structgen.errors import Attempt, ParseError, ValidationFailed
from structgen.grammar import ir
from structgen.sampling import Logits
from structgen.values import Judging, Key, Reading, Refusal, Waiting
from structgen.vocabulary import Vocabulary

_BLANKS = b" \t\n\r"
_STRING_OR_BLANKS = re.compile(rb'("(?:[^"\\]|\\.)*(?:(")|\\?))|[ \t\n\r]+', re.DOTALL)
_ALMOST = 1 - 1e-9
"""At most this share of a token's probability is barred, for numerical reasons; fully barred tokens
are masked instead."""


class _Beginning(NamedTuple):
    """A beginning that outputs must not have.

    Attributes:
        text: the text, without blanks if it is JSON.
        gaps: for each byte, 1 if blanks may come before it, else 0.
        ended_by: the bytes of which one must follow; None: any.
    """

    text: bytes
    gaps: bytes
    ended_by: bytes | None


class _Spent(NamedTuple):
    """A place at which no continuation ends within the budget.

    Attributes:
        place: the cursor's place.
        left: the remaining tokens of the budget; with fewer there is no continuation, either.
    """

    place: Hashable
    left: int


class _Node:
    """The output after some tokens.

    Attributes:
        after: the nodes after one more token, as far as written before.
        probability: the probability of its last token, given those before.
        norm: the logarithm of the sum of all weights there, when it was first reached.
        barred: the barred share of the probability after it.
        is_dead: whether nothing is left after it.
    """

    __slots__ = ("after", "barred", "is_dead", "norm", "probability")

    def __init__(self) -> None:
        self.after: dict[int, _Node] = {}
        self.probability = 1.0
        self.norm: float | None = None
        self.barred = 0.0
        self.is_dead = False


class Barred:
    """The barred texts of one output."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        texts: Sequence[bytes],
        temperature: float,
        *,
        is_json: bool = False,
    ) -> None:
        """Start without barred texts.

        Args:
            vocabulary: the model's vocabulary.
            texts: by token id, the bytes in the output's text.
            is_json: whether outputs are JSON, in which blanks between JSON tokens do not matter.
            temperature: the divisor of scores.
        """
        self._trie = vocabulary.trie
        self._eos_token_ids = vocabulary.eos_token_ids
        self._texts = texts
        self._is_text = texts is vocabulary.tokens
        self._temperature = temperature
        self._is_json = is_json
        self._beginnings: set[_Beginning] = set()
        self._known: dict[_Beginning, list[int]] = {}  # the tokens that complete such a rest
        self._wholes: set[bytes] = set()
        self._spent: dict[bytes, tuple[bytes, set[_Spent]]] = {}  # by text
        self._path = [_Node()]  # the output so far, a node after each token

    def bar_beginning(self, text: bytes, ended_by: bytes | None = None) -> None:
        """Bar outputs that begin with ``text``, followed by one of ``ended_by`` if given."""
        plain, gaps = self._plain(text)
        self._beginnings.add(_Beginning(plain, gaps, ended_by))

    def bar_whole(self, text: bytes) -> None:
        """Bar the output ``text``."""
        self._wholes.add(self._plain(text)[0])

    def _plain(self, text: bytes) -> tuple[bytes, bytes]:
        """Return text without insignificant blanks, and flags for the bytes before which blanks may
        come."""
        if not self._is_json:
            return text, bytes(len(text))
        plain, gaps = bytearray(), bytearray()
        at = 0
        for found in _STRING_OR_BLANKS.finditer(text):
            between = text[at : found.start()]
            string = found[1] or b""
            plain += between + string
            gaps += b"\1" * len(between)
            gaps += (b"\1" + bytes(len(string) - 1)) if string else b""
            at = found.end()
        plain += text[at:]
        gaps += b"\1" * (len(text) - at)
        return bytes(plain), bytes(gaps)

    def bar_here(self, text: bytes, *, by_text: bool) -> None:
        """Bar this place, because every continuation is barred.

        Args:
            text: the output so far.
            by_text: whether this is so for any tokenization of the text, not only for these tokens.
        """
        self._path[-1].is_dead = True
        # Places that are dead only for certain tokens are barred only for those tokens.
        self._is_text = self._is_text and by_text
        if self._is_text and not self._is_between(text):
            self.bar_beginning(text)

    def bar_spent(self, text: bytes, place: Hashable, left: int) -> None:
        """Bar every continuation from here within ``left`` tokens, for any tokenization.

        Args:
            text: the output so far.
            place: the cursor's place.
            left: the remaining tokens.
        """
        plain, gaps = self._plain(text)
        self._spent.setdefault(plain, (gaps, set()))[1].add(_Spent(place, left))

    def spent(
        self, text: bytes, left: int, place_after: Callable[[int], Hashable | None]
    ) -> set[int]:
        """Return the tokens after which no continuation ends within the budget, as far as known.

        Args:
            text: the output so far.
            left: the remaining tokens.
            place_after: returns the cursor's place after a token; None if it refuses the token.

        Cost: a step of the cursor for each token that leads to such a text.
        """
        found: set[int] = set()
        plain, _ = self._plain(text)
        for whole, (gaps, places) in self._spent.items():
            near = {one.place for one in places if left - 1 <= one.left}
            is_far = len(whole) - len(plain) > self._trie.max_depth
            if not near or is_far or not whole.startswith(plain):
                continue
            for token in self._leading(whole[len(plain) :], gaps[len(plain) :]):
                if (
                    token not in found
                    and self._plain(text + self._texts[token])[0] == whole
                    and place_after(token) in near
                ):
                    found.add(token)
        return found

    def _leading(self, rest: bytes, gaps: bytes) -> list[int]:
        """Return the tokens that write the rest of a text, perhaps with insignificant blanks."""
        nodes = self._before_blanks(self._ends(rest, gaps))
        return [token for node in nodes if node for token in self._trie.ids_at(node)]

    def _ends(self, rest: bytes, gaps: bytes) -> list[int]:
        """Return the nodes after the rest of a text, with or without blanks in its gaps."""
        nodes = [0]
        for at, has_gap in enumerate(gaps):
            if has_gap:
                nodes = self._before_blanks(nodes) if at else self._blank_nodes
            nodes = [one for node in nodes for one in self._after(node, rest[at : at + 1])]
        return nodes

    def _after(self, node: int, some: bytes) -> list[int]:
        """Return the nodes after one of some bytes."""
        after = (self._trie.child.get(node << 8 | byte, 0) for byte in some)
        return [one for one in after if one]

    def _before_blanks(self, nodes: list[int]) -> list[int]:
        """Return nodes, plus those after blanks from them."""
        for node in nodes:  # which grow
            nodes += self._after(node, _BLANKS)
        return nodes

    def lower(self, first: int, last: int) -> None:
        """Lower the probability of the path to the newly barred text.

        Args:
            first: the number of tokens before the path.
            last: the number of tokens at its end.
        """
        last = min(last, len(self._path) - 1)
        more = 1 - self._path[last].barred
        self._path[last].barred = 1.0
        for at in range(last, first, -1):
            node = self._path[at - 1]
            more = min(more * self._path[at].probability, 1 - node.barred)
            node.barred += more

    def excluded(self, text: bytes) -> set[int]:
        """Return the tokens that may not come after ``text``, the output so far.

        Cost: a check of each barred text, plus the excluded tokens.
        """
        found = {token for token, node in self._path[-1].after.items() if node.is_dead}
        plain, _ = self._plain(text)
        for beginning in self._beginnings:
            if beginning.text.startswith(plain):
                found.update(self._completing(beginning, len(plain)))
        if plain in self._wholes:
            found.update(self._eos_token_ids)
        return found

    def idle(self, text: bytes) -> frozenset[int]:
        """Return the tokens that change nothing after ``text``: blanks between JSON tokens."""
        return self._blank_tokens if self._is_between(text + b" ") else frozenset()

    def _is_between(self, text: bytes) -> bool:
        """Return whether ``text`` ends in insignificant blanks."""
        return text[-1:] in (b" ", b"\t", b"\n", b"\r") and (self._plain(text)[0][-1:] != text[-1:])

    @cached_property
    def _blank_nodes(self) -> list[int]:
        """Return the root, and the nodes of blanks."""
        return self._before_blanks([0])

    @cached_property
    def _blank_tokens(self) -> frozenset[int]:
        nodes = self._blank_nodes[1:]
        return frozenset(token for node in nodes for token in self._trie.ids_at(node))

    def _completing(self, beginning: _Beginning, start: int) -> list[int]:
        """Return the tokens that complete a beginning from its byte ``start``."""
        text, gaps, ended_by = beginning
        n_left = len(text) - start
        if n_left > self._trie.max_depth or (ended_by is None and not n_left):
            return []  # too long for a token; or nothing is known to follow there
        rest = _Beginning(text[start:], gaps[start:], ended_by)
        if rest not in self._known:
            ends = self._ends(rest.text, rest.gaps)
            if ended_by is not None:
                ends = [one for node in ends for one in self._after(node, ended_by)]
            self._known[rest] = self._tokens_below(ends)
        return self._known[rest]

    def _tokens_below(self, waiting: list[int]) -> list[int]:
        """Return the tokens whose bytes lead to or through one of the nodes."""
        found: list[int] = []
        while waiting:
            node = waiting.pop()
            found += self._trie.ids_at(node)
            first = int(self._trie.first_child[node])
            waiting.extend(range(first, first + int(self._trie.n_children[node])))
        return found

    def weighed(self, scores: Logits) -> Logits:
        """Return scores, with those of tokens on the path to barred texts lowered in a copy.

        Args:
            scores: float32 ``[vocab]``, the scores to choose from, minus infinity where masked.
        """
        lowered = {token: one.barred for token, one in self._path[-1].after.items() if one.barred}
        if lowered:
            scores = scores.copy()
            for token, barred in lowered.items():
                scores[token] += np.float32(math.log1p(-min(barred, _ALMOST)) * self._temperature)
        return scores

    def look_at(self, scores: Logits) -> None:
        """Store the normaliser of the probabilities at a place that the output reaches for the
        first time.

        Args:
            scores: the same as for `weighed`.
        """
        node = self._path[-1]
        if node.norm is None:
            most = scores.max()
            total = np.exp((scores - most) / self._temperature).sum(dtype=np.float64)
            node.norm = float(most) / self._temperature + math.log(float(total))

    def follow(self, token: int, score: float | None = None) -> None:
        """Follow the output by a token, or to its end.

        Args:
            token: its id.
            score: its score before `weighed`; None if it was forced.
        """
        node = self._path[-1]
        if token not in node.after:
            node.after[token] = after = _Node()
            if score is not None and node.norm is not None:
                after.probability = math.exp(min(score / self._temperature - node.norm, 0.0))
        self._path.append(node.after[token])

    def go_back(self, n_tokens: int) -> None:
        """Return to the output as it was after that many tokens."""
        del self._path[n_tokens + 1 :]


_MOST_DEAD = 256
"""After this many places without a continuation for one refusal, it gives up: near the end of a
budget, and with whitespace of any length, there may be many ways to write the same text."""


@final
class Trial:
    """The checks of one output while it is written.

    Attributes:
        attempts: the refused values so far.
        n_retried: the number of tokens taken back.
        barred: the barred texts.
    """

    def __init__(
        self, checks: Judging, constraint: Constraint, settings: Mapping[str, Any], retries: int
    ) -> None:
        """Begin an output."""
        texts, samples = constraint.named.texts, settings.get("do_sample")
        temperature = float(settings.get("temperature", 1.0)) if samples else 1.0
        is_json = isinstance(constraint.output.grammar, ir.Json)
        self.barred = Barred(constraint.vocabulary, texts, temperature, is_json=is_json)
        self._checks = checks
        self._retries = retries
        self._reading: Reading = checks.reading()
        self._data = bytearray()
        self._ends: list[int] = []  # offset after each token
        self._n_settled = 0
        self._n_dead = 0
        self._waits_for: Literal["read", "end"] | None = None
        self._is_spent = False  # whether the budget excluded some of the last excluded tokens
        self._error: ParseError | None = None  # the latest refusal
        self._refused: dict[Key, list[tuple[bytes, bytes | None]]] = {}
        self._n_barred: dict[tuple[Key, int], int] = {}  # by the start of the value
        self.attempts: tuple[Attempt, ...] = ()
        self.n_retried = 0

    @property
    def values(self) -> tuple[object, ...]:
        """The value of the whole output, after it was accepted."""
        return self._reading.values

    @property
    def n_settled(self) -> int:
        """The number of first tokens that are final."""
        return self._n_before(self._reading.settled)

    def _n_before(self, settled: int) -> int:
        ends = self._ends
        while self._n_settled < len(ends) and ends[self._n_settled] <= settled:
            self._n_settled += 1
        return self._n_settled

    def excluded(
        self, left: int = 0, place_after: Callable[[int], Hashable | None] | None = None
    ) -> set[int]:
        """Return the tokens that may not come next.

        Args:
            left: the remaining tokens of the budget.
            place_after: as for `Barred.spent`; None: ignore the budget.
        """
        self._is_spent = False
        if not self.attempts:
            return set()
        text = bytes(self._data)
        found = self.barred.excluded(text)
        if place_after is not None:
            spent = self.barred.spent(text, left, place_after) - found
            self._is_spent = bool(spent)
            found |= spent
        return found

    def read(self, data: bytes) -> int | None:
        """Read a token that was written.

        Args:
            data: its bytes.

        Returns:
            The number of tokens to which the output goes back; None if it continues, or
            `is_waiting`.

        Raises:
            ValidationFailed: a closing value is refused, once too often.
        """
        floor = self.n_settled
        self._data += data
        self._ends.append(len(self._data))
        return self._place_after(self._reading.read(data), floor)

    def end(self) -> int | None:
        """End the output; return and raise as `read` does."""
        floor = self.n_settled
        return self._place_after(self._reading.end(), floor, is_end=True)

    def _place_after(
        self, refusal: Refusal | Waiting | None, floor: int, *, is_end: bool = False
    ) -> int | None:
        """Return the result of `read` for the checks' answers about the latest token, or the
        end."""
        if isinstance(refusal, Waiting):
            self._waits_for = "end" if is_end else "read"
            return None
        back = self._judge(refusal, floor)
        if back is None and not is_end and self._refused:
            # A value refused there is refused after any other text, too.
            for place in self._reading.open_values:
                refused = self._refused.get(place[0], [])
                for text, ended_by in refused[self._n_barred.get(place, 0) :]:
                    self._bar(place[1], text, ended_by)
                self._n_barred[place] = len(refused)
        return back

    @property
    def is_waiting(self) -> bool:
        """Whether the checks have not answered yet: call `resume` next."""
        return self._waits_for is not None

    @property
    def may_resume(self) -> bool:
        """Whether it is waiting and the answers have come."""
        return self.is_waiting and not isinstance(self._reading.verdict(), Waiting)

    def resume(self) -> tuple[bool, int | None]:
        """Continue after `may_resume`.

        Returns:
            Whether it waited for the end; and the return value of `end` or `read`.

        Raises:
            ValidationFailed: as `read`.
        """
        is_end, self._waits_for = self._waits_for == "end", None
        floor = self._n_before(self._reading.settled_before)
        return is_end, self._place_after(self._reading.verdict(), floor, is_end=is_end)

    def _judge(self, refusal: Refusal | None, floor: int) -> int | None:
        if refusal is None:
            return None
        self.attempts += (Attempt(refusal.path, refusal.text, refusal.message),)
        self._error = refusal.error
        n_retries = len(self.attempts) - 1
        if n_retries >= self._retries:
            times = "1 retry" if n_retries == 1 else f"{n_retries:,} retries"
            self._fail(f"after {times}, the limit of retries=")
        first = self._token_at(refusal.start)
        if first < floor:
            self._fail(
                "in a part that they accepted before: a check gives different results for the "
                "same text"
            )
        is_seen = refusal.ended_by is None  # by its last byte, otherwise by the next
        last = self._token_at(refusal.end - is_seen)
        barred = bytes(self._data[refusal.judged : refusal.end]), refusal.ended_by
        self._refused.setdefault(refusal.judged_key, []).append(barred)
        self._bar(refusal.judged, *barred)
        self.barred.lower(first, last + 1)
        return self._back(first)

    def _bar(self, start: int, text: bytes, ended_by: bytes | None) -> None:
        """Bar a text that begins at an offset."""
        whole = bytes(self._data[:start]) + text
        if ended_by is not None:
            self.barred.bar_whole(whole)
        if ended_by != b"":
            self.barred.bar_beginning(whole, ended_by)

    def _token_at(self, offset: int) -> int:
        """Return the index of the token with the byte at an offset."""
        return bisect_right(self._ends, offset)

    def idle(self) -> frozenset[int]:
        """Return the tokens that would change nothing, if any text is barred here."""
        return self.barred.idle(bytes(self._data))

    def dead_end(self, *, by_text: bool, left: int = 0, place: Hashable = None) -> int:
        """Bar everything that the mask allows here, and go back.

        Args:
            by_text: as for `Barred.bar_here`; False: only for this budget.
            left: the remaining tokens of the budget.
            place: the cursor's place; None if it is not precise enough.

        Returns:
            The number of tokens to which the output goes back.

        Raises:
            ValidationFailed: it cannot go back.
        """
        if len(self._ends) <= self.n_settled:
            self._fail("and no other text is possible there")
        self._n_dead += 1
        if self._n_dead > _MOST_DEAD * len(self.attempts):
            self._fail(f"and {self._n_dead:,} other attempts failed")
        text = bytes(self._data)
        by_text = by_text and not self._is_spent
        if not by_text and place is not None:
            self.barred.bar_spent(text, place, left)
        self.barred.bar_here(text, by_text=by_text)
        self.barred.lower(self.n_settled, len(self._ends))
        return self._back(len(self._ends) - 1)

    def _back(self, n_tokens: int) -> int:
        self.n_retried += len(self._ends) - n_tokens
        del self._ends[n_tokens:]
        del self._data[self._ends[-1] if self._ends else 0 :]
        self._reading = self._checks.reading(bytes(self._data))
        length = len(self._data)
        self._n_barred = {one: n for one, n in self._n_barred.items() if one[1] <= length}
        self.barred.go_back(n_tokens)
        return n_tokens

    def _fail(self, when: str) -> NoReturn:
        shown = "\n".join(f"  {one}" for one in self.attempts)
        raise ValidationFailed(
            f"The validators of {self._checks.name} reject the output, {when}:\n{shown}",
            text=self._data.decode("utf-8", "replace"),
            attempts=self.attempts,
        ) from self._error
