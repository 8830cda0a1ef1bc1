"""What structgen and jsonschema-rs say of one text, and why they differ where they may.

A `Judge` holds a schema compiled both ways. `Judge.verdict` puts a text into one of the `Verdict`s.
Every excuse is checked by code, on that very text: a refused spelling must be accepted in the
normal one; a refused number or whitespace run, once the option that bars it is lifted; a difference
laid to floats must vanish when the number is replaced by its float, one laid to a format when
formats are off on both sides. What no check explains is `WRONGLY_ACCEPTED` or `WRONGLY_REFUSED`.

Duplicate names: RFC 8259 leaves their meaning open, so refusing them is always right. Accepting
them is right only if the document is valid read as ``json.loads`` reads it, the last one counting.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jsonschema_rs
from documents import (
    Members,
    NotJson,
    Number,
    as_doubles,
    has_duplicates,
    numbers,
    plain,
    read,
    spelled,
    spellings,
)

import structgen
from structgen.constraint.constraint import Constraint
from structgen.constraint.cursor import Cursor
from structgen.errors import TokenNotAllowed
from structgen.types import JsonSchema
from structgen.vocabulary.tokens import Vocabulary

FLEXIBLE = {"whitespace": "flexible", "property_order": "any", "spelling": "any"}
"""The options under which everything valid is accepted, but for the documented limits."""

_MOST_DIGITS = 20  # the default of max_digits
_LIFTED = {"max_digits": 400}
_MOST_PIECES = 4000
"""Most pieces of text that `accepts_in_some_order` tries."""

_VALIDATORS: dict[str, Any] = {
    "draft4": jsonschema_rs.Draft4Validator,
    "draft6": jsonschema_rs.Draft6Validator,
    "draft7": jsonschema_rs.Draft7Validator,
    "draft2019-09": jsonschema_rs.Draft201909Validator,
    "draft2020-12": jsonschema_rs.Draft202012Validator,
}


class Verdict(enum.Enum):
    """What came out for one text."""

    VALID = "both accept"
    INVALID = "both refuse"
    NOT_JSON = "not JSON, refused"
    DUPLICATE = "duplicate name, refused"
    SPELLING = "refused spelling or order; accepted in the normal one"
    ORDER = "refused order; accepted in any order"
    LIMIT = "a number beyond max_digits, or beyond floats"
    DECIMAL = "over 15 digits: read as a float it is another number"
    FORMAT_REFUSED = "a format that only jsonschema-rs accepts"
    FORMAT_ACCEPTED = "a format that only structgen accepts"
    WRONGLY_ACCEPTED = "WRONGLY ACCEPTED"
    WRONGLY_REFUSED = "WRONGLY REFUSED"

    @property
    def is_wrong(self) -> bool:
        return self in (Verdict.WRONGLY_ACCEPTED, Verdict.WRONGLY_REFUSED)


def validator(
    schema: Any, dialect: str | None, documents: Mapping[str, Any] | None, formats: bool
) -> Any:
    """jsonschema-rs for ``schema``, which never fetches anything."""
    known = documents or {}
    options: dict[str, Any] = {"validate_formats": formats, "retriever": lambda uri: known[uri]}
    if dialect is None or (isinstance(schema, dict) and "$schema" in schema):
        return jsonschema_rs.validator_for(schema, **options)
    return _VALIDATORS[dialect](schema, **options)


class Judge:
    """One schema under one set of options.

    Args:
        schema: the schema.
        vocabulary: a vocabulary with a token for every byte.
        options: compile options; `FLEXIBLE` or {} (compact, in schema order).
        dialect: the draft of a schema without ``$schema``.
        documents: documents that it refers to.
        formats: whether ``format`` is enforced, on both sides.

    Raises:
        StructgenError: structgen refuses the schema.
        ValueError: jsonschema-rs does.
    """

    def __init__(
        self,
        schema: Any,
        vocabulary: Vocabulary,
        options: Mapping[str, Any],
        dialect: str | None = None,
        documents: Mapping[str, Any] | None = None,
        formats: bool = True,
    ) -> None:
        self._given = (schema, dialect, documents)
        self._vocabulary = vocabulary
        self._options = {**options, "format_assertion": formats}
        self.formats = formats
        self._is_flexible = options.get("property_order") == "any"
        self._validator = validator(schema, dialect, documents, formats)
        self.constraint = self._compiled()

    def _compiled(self, **more: Any) -> Constraint:
        schema, dialect, documents = self._given
        return structgen.compile(
            JsonSchema(schema, dialect=dialect, documents=documents),
            self._vocabulary,
            **{**self._options, **more},
        )

    @cached_property
    def _lifted(self) -> Constraint:
        return self._compiled(**_LIFTED)

    @cached_property
    def without_formats(self) -> Judge:
        """The same with formats off."""
        schema, dialect, documents = self._given
        return Judge(schema, self._vocabulary, self._options, dialect, documents, formats=False)

    def is_valid(self, tree: Any) -> bool:
        """What jsonschema-rs says of a tree."""
        return bool(self._validator.is_valid(plain(tree)))

    def complaint(self, tree: Any) -> str:
        """What jsonschema-rs has against a tree."""
        for error in self._validator.iter_errors(plain(tree)):
            return f"{error.message} at {error.schema_path}"
        return ""

    def verdict(self, data: bytes) -> Verdict:
        """Judge one text."""
        ours = accepts(self.constraint, data)
        try:
            tree = read(data)
        except NotJson:
            return Verdict.WRONGLY_ACCEPTED if ours else Verdict.NOT_JSON
        if any(n.is_out_of_range for n in numbers(tree)):
            return Verdict.WRONGLY_ACCEPTED if ours else Verdict.LIMIT
        theirs = self.is_valid(tree)
        if ours == theirs:
            return Verdict.VALID if ours else Verdict.INVALID
        if theirs and has_duplicates(tree):
            return Verdict.DUPLICATE
        if theirs and not self._is_flexible:
            in_order = accepts_in_some_order(self.constraint, tree)
            if in_order or (in_order is None and self._accepts_unordered(tree)):
                return Verdict.SPELLING if in_order else Verdict.ORDER
        elif theirs and accepts(self.constraint, spelled(tree).encode()):
            # Under flexible options a spelling may only be refused for a documented reason.
            return Verdict.SPELLING if _is_unusual(data, tree) else Verdict.WRONGLY_REFUSED
        if self._is_decimal(tree, theirs):
            return Verdict.DECIMAL
        if theirs and self._is_limit(tree):
            return Verdict.LIMIT
        if self.formats and self._is_format(data):
            return Verdict.FORMAT_ACCEPTED if ours else Verdict.FORMAT_REFUSED
        return Verdict.WRONGLY_ACCEPTED if ours else Verdict.WRONGLY_REFUSED

    def _accepts_unordered(self, tree: Any) -> bool:
        """Whether the compact text is accepted under ``property_order="any", spelling="any"``."""
        constraint = self._compiled(property_order="any", spelling="any")
        return accepts(constraint, spelled(tree).encode())

    def _is_decimal(self, tree: Any, theirs: bool) -> bool:
        """Whether the verdicts agree once every number is the float that parsers make of it."""
        if all(n.is_double for n in numbers(tree)):
            return False
        doubles = as_doubles(tree)
        return self._accepts_lifted(doubles) == theirs

    def _is_limit(self, tree: Any) -> bool:
        """Whether a number is too long, and the text is accepted once the limit is lifted."""
        longest = max((n.digits for n in numbers(tree)), default=0)
        return longest > _MOST_DIGITS and self._accepts_lifted(tree)

    def _accepts_lifted(self, tree: Any) -> bool:
        if accepts(self._lifted, spelled(tree).encode()):
            return True
        return not self._is_flexible and bool(accepts_in_some_order(self._lifted, tree))

    def _is_format(self, data: bytes) -> bool:
        """Whether both agree once formats are off."""
        return not self.without_formats.verdict(data).is_wrong


def accepts(constraint: Constraint, data: bytes) -> bool:
    """Whether ``data`` is a complete output."""
    cursor = constraint.start()
    return _feed(cursor, constraint.vocabulary.encode_bytes(data)) and cursor.is_accepting


def accepts_in_some_order(constraint: Constraint, tree: Any) -> bool | None:
    """Whether the tree, members in some order and numbers as some serialiser writes them, is a
    complete output; None if too many orders would have to be tried."""
    cursor = constraint.start()
    feeder = _Feeder(cursor, constraint.vocabulary)
    try:
        if feeder.feed(tree, "") and cursor.is_accepting:
            return True
    except (TooManyOrders, RecursionError):
        return None
    return False


class TooManyOrders(Exception):
    """The search for an order was given up."""


def _feed(cursor: Cursor, tokens: Sequence[int]) -> bool:
    """Accept ``tokens``, or nothing of them."""
    fed = 0
    try:
        for token in tokens:
            cursor.accept(token)
            fed += 1
    except TokenNotAllowed:
        cursor.rollback(fed)
        return False
    return True


class _Feeder:
    """Feeds a tree, trying orders of each object's members and spellings of each number."""

    def __init__(self, cursor: Cursor, vocabulary: Vocabulary) -> None:
        self._cursor = cursor
        self._vocabulary = vocabulary
        self._left = _MOST_PIECES
        self._trail: list[int] = []  # tokens of each piece fed

    def feed(self, tree: Any, after: str) -> bool:
        """Accept ``tree`` in some spelling that ``after`` may follow, or nothing of it."""
        start = len(self._trail)
        if isinstance(tree, Members):
            done = self._put("{") and self._members(tree, "")
        elif isinstance(tree, list):
            done = self._put("[") and all(
                self._put("," if i else "") and self.feed(item, "]" if i + 1 == len(tree) else ",")
                for i, item in enumerate(tree)
            )
            done = done and self._put("]")
        elif isinstance(tree, Number):
            done = any(self._number(text, after) for text in spellings(tree))
        else:
            done = self._put(spelled(tree))
        if not done:
            self._back(start)
        return done

    def _members(self, rest: Members, comma: str) -> bool:
        if not rest:
            return self._put("}")
        start = len(self._trail)
        after = "}" if len(rest) == 1 else ","
        for i, (name, value) in enumerate(rest):
            if (
                self._put(f"{comma}{spelled(name)}:")
                and self.feed(value, after)
                and self._members(Members((*rest[:i], *rest[i + 1 :])), ",")
            ):
                return True
            self._back(start)
        return False

    def _number(self, text: str, after: str) -> bool:
        start = len(self._trail)
        if self._put(text):
            ends = self._cursor.is_accepting if not after else self._put(after)
            self._back(start + ends if after else start + 1)
            if ends:
                return True
        self._back(start)
        return False

    def _put(self, text: str) -> bool:
        self._left -= 1
        if self._left < 0:
            raise TooManyOrders
        tokens = self._vocabulary.encode_bytes(text.encode())
        accepted = _feed(self._cursor, tokens)
        if accepted:
            self._trail.append(len(tokens))
        return accepted

    def _back(self, to: int) -> None:
        self._cursor.rollback(sum(self._trail[to:]))
        del self._trail[to:]


def _is_unusual(data: bytes, tree: Any) -> bool:
    """Whether the text has a spelling that the documentation says is refused: an exponent, more
    digits than ``max_digits``, or a long run of whitespace."""
    if re.search(rb"[ \t\n\r]{21}", data):
        return True
    for number in numbers(tree):
        mantissa = number.text.lower().partition("e")[0].lstrip("-")
        whole, _, fraction = mantissa.partition(".")
        if "e" in number.text.lower() or max(len(whole), len(fraction)) > _MOST_DIGITS:
            return True
    return False
