"""Partial: the settled parts of a value that is being written.

A `Partial` shows a growing document to users: fields as attributes, items, which parts are
complete, and the value itself. It is a view at one moment, made without a copy; later text does not
change it.

`GrowingValue` turns the text of an output into partial values: of JSON; of text in parts (the holes
of a template, the pieces of tagged text), which a `PartReader` of the type separates; of text that
is its own value; or of text that is settled only at its end. Its input is text, so it works for any
stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, NamedTuple, final

from structgen import notebook
from structgen.errors import IncompleteOutput, ParseError, did_you_mean
from structgen.grammar import ir
from structgen.types import OutputType, PartReader, T_co

from .document import MISSING, Document, Node
from .shapes import ANYTHING, Place, Shapes


class Seen(NamedTuple):
    """A visible part.

    Attributes:
        value: its value so far; a `ParseError` if its own checks refuse it.
        is_done: whether it is complete.
    """

    value: Any
    is_done: bool

    def read(self) -> Any:
        """Return the value.

        Raises:
            ParseError: its own checks refuse it.
        """
        if isinstance(self.value, ParseError):
            raise self.value
        return self.value


class GrowingParts:
    """The parts of one text.

    Attributes:
        names: the names of all parts; None if they are items.
        seen: the visible parts, by name or index; a new dict after each change.
    """

    def __init__(self, reader: PartReader) -> None:
        self._reader = reader
        self._open: GrowingValue[Any] | None = None
        self._pieces: list[str] = []
        self.names = reader.names
        self.seen: dict[str | int, Seen] = {}

    def feed(self, text: str) -> bool:
        """Read more text; return whether anything changed."""
        before = self.seen
        for part, more, is_closed in self._reader.feed(text):
            self._pieces.append(more)
            if is_closed:
                value: Any
                try:
                    value = part.output.parse("".join(self._pieces))
                except ParseError as error:
                    value = error
                self._open, self._pieces = None, []
            else:
                if self._open is None:
                    self._open = GrowingValue(part.output)
                found = self._open.feed(more)
                if found is None:
                    continue
                value = found.so_far if self._open.is_text else found  # a str grows as in JSON
            self.seen = {**self.seen, part.step: Seen(value, is_closed)}
        return self.seen is not before


@final
class Partial(Generic[T_co]):
    """A value of type ``T_co`` that the model is still writing.

    A field appears when it is certain: a number, a date or a choice when it is complete; text
    while it grows, and objects and lists, which are a `Partial` until they are complete. Fields are
    attributes (``partial.name``) and items (``partial["name"]``); a list has its items by index,
    and a length. A field that is not there raises `AttributeError` or `KeyError`; ``"name" in
    partial`` and `done` do not raise. Complete values do not change in later `Partial` objects.

    Access a field called ``done``, ``complete``, ``value`` or ``so_far`` as an item.
    """

    __slots__ = ("_at", "_document", "_final", "_names", "_node", "_parts", "_text")

    def __init__(
        self,
        document: Document | None,
        node: Node | None,
        at: int,
        text: Callable[[], str] | None = None,
        final: tuple[Any, ...] = (),
        parts: Mapping[str | int, Seen] | None = None,
        names: Collection[str | int] | None = None,
    ) -> None:
        """Make a view of a value.

        Args:
            document: its document; None for an output that is not JSON.
            node: the value; None if it has not begun.
            at: the offset of the view.
            text: for an output that is text: returns it.
            final: the parsed value of the whole output, if complete.
            parts: for an output of text in parts: the visible parts.
            names: the names of all parts, if they are fields.
        """
        self._document = document
        self._node = node
        self._at = at
        self._text = text
        self._final = final
        self._parts = parts
        self._names = names

    @property
    def complete(self) -> bool:
        """Whether the whole output has been written: True only for the last `Partial`.

        Complete values inside it are plain values, not `Partial`.
        """
        return bool(self._final)

    @property
    def value(self) -> T_co:
        """The complete value, like the result of `Generator.parse`; only of the last `Partial` of
        an output.

        Raises:
            IncompleteOutput: it is not `complete`.
        """
        if not self._final:
            raise IncompleteOutput(
                "This value is still being written. Use its .so_far for what is there.",
                text=str(self._text()) if self._text is not None else "",
            )
        value: T_co = self._final[0]
        return value

    @property
    def so_far(self) -> Any:
        """The value so far: unfinished objects as dicts, lists as lists, text as str; complete
        values as they are. None if there is nothing yet.

        Cost: a copy.
        """
        if self._text is not None:
            return self._text()
        if self.complete:
            return self.value
        if self._parts is not None:
            found = {name: _closed(one.read()) for name, one in self._parts.items()}
            return [*found.values()] if self._kind == "array" else found
        if self._node is None or self._document is None:
            return None
        return _plain(self._document, self._node, self._at)

    def done(self, *path: str | int) -> bool:
        """Return whether a field or item is complete; without arguments, this value.

        Args:
            path: the name of a field or the index of an item, then one inside it, and so on.

        Raises:
            AttributeError: no value of the type has a field of that name. A field that some values
                may have (of another member of a union, or an extra one) is not done if it is
                missing.
        """
        here: Any = self
        for n, step in enumerate(path):
            if not isinstance(here, Partial):
                return _has(here, path[n:])
            if here._parts is not None:
                if here.complete:
                    return _has(here.value, path[n:])
                part = here._parts.get(step)
                if part is None and (unknown := here._unknown(step)):
                    raise AttributeError(unknown)
                if part is None or n == len(path) - 1:
                    return part is not None and part.is_done
                here = part.value
                continue
            child = here._child(step)
            found = MISSING if child is None else here._seen(*child)
            if child is None and not here.complete and (unknown := here._unknown(step)):
                raise AttributeError(unknown)
            if found is MISSING or (here.complete and isinstance(found, Partial)):
                return here.complete and _has(here.value, path[n:])
            if child is not None and n == len(path) - 1:
                return child[0].settled <= here._at and not isinstance(found, Partial)
            here = found
        return self.complete

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # slots are not set while a copy is made
            raise AttributeError(name)
        found = MISSING if self._kind != "object" else self._get(name)
        if found is MISSING:
            raise AttributeError(
                self._unknown(name)
                or f"{name!r} has not been written yet, or is not a field of this value. First "
                f'check done({name!r}), or "{name}" in partial.'
            )
        return found

    def __getitem__(self, step: str | int) -> Any:
        if self._kind == "array" and isinstance(step, int):
            there = len(self)
            if not -there <= step < there:
                raise IndexError(f"There are {there} items so far, but no item {step}.")
            return self._get(step % there)
        found = MISSING if self._kind != "object" else self._get(step)
        if found is MISSING:
            raise KeyError(
                self._unknown(step)
                or f"{step!r} has not been written yet, or is not a field of this value."
            )
        return found

    def __contains__(self, item: object) -> bool:
        if self._kind == "object":
            return any(item == name for name in self)
        return any(item == one for one in self)

    def __len__(self) -> int:
        if self._kind == "array" and self._parts is not None:
            return len(self._whole or self._parts)
        if self._kind == "array" and self._document is not None and self._node is not None:
            n = _n_there(self._document, self._node, self._at)
            while self._is_settled(n):
                n += 1
            return n
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._node or self._parts or self._final) or self._text is not None

    def __iter__(self) -> Iterator[Any]:
        """Iterate over a list's items, or an object's field names in document order."""
        if self._kind == "array":
            for n in range(len(self)):
                yield self._get(n)
        elif self._parts is not None:
            yield from self._whole or self._parts
        elif self._document is not None and self._node is not None and self._kind == "object":
            for name, child, places in _fields(self._document, self._node, self._at):
                if _is_there(self._document, child, self._at, places) or self._is_settled(name):
                    yield name

    def __str__(self) -> str:
        now = self.so_far
        return now if isinstance(now, str) else repr(self)

    def __repr__(self) -> str:
        if self._kind == "object":
            inside = ", ".join(f"{name}={self._shown(name)}" for name in self)
        elif self._kind == "array":
            inside = ", ".join(self._shown(n) for n in range(len(self)))
        else:
            now = self.so_far
            inside = "" if now is None else repr(now)
        return f"Partial({inside}{'' if self.complete else ', …' if inside else '…'})"

    def _repr_html_(self) -> str:
        """Return the value so far, for a notebook."""
        return notebook.shown(self.so_far) + ("" if self.complete else "…")

    def _shown(self, step: str | int) -> str:
        try:
            return repr(self._get(step))
        except ParseError:
            return "(refused)"

    @property
    def _whole(self) -> Any:
        return self._final[0] if self._final else None

    @property
    def _kind(self) -> str:
        if self._parts is not None:
            return "array" if 0 in self._parts or isinstance(self._whole, list) else "object"
        return "" if self._node is None else self._node.kind

    def _unknown(self, name: str | int) -> str:
        """Return a message that no value of the type has such a field here; empty if some may have
        it."""
        document, node, fields = self._document, self._node, self._names
        if document is not None and node is not None and node.kind == "object":
            shapes = [one for place in node.places for one in document.shapes.objects(place)]
            known = document.shapes.names()
            if known is not None and name not in known and not any(one.others for one in shapes):
                fields = {called for one in shapes for called, _ in one.fields.values()}
        if fields is None or name in fields or not isinstance(name, str):
            return ""
        listed = sorted(map(str, fields))
        return (
            f"{name!r} is not a field.{did_you_mean(name, listed)} The fields are: "
            f"{', '.join(listed) or 'none'}."
        )

    def _is_settled(self, step: str | int) -> bool:
        """Return whether this is complete and has a field or item, even a refused one."""
        try:
            return self.complete and self._get(step) is not MISSING
        except ParseError:
            return True

    def _get(self, step: str | int) -> Any:
        if self._parts is not None:
            if self.complete:
                return _of(self.value, step)
            return self._parts[step].read() if step in self._parts else MISSING
        child = self._child(step)
        if child is None:
            return MISSING
        found = self._seen(*child)
        if self.complete and (found is MISSING or isinstance(found, Partial)):
            found = _of(self.value, step)  # known only from the whole
        return found

    def _seen(self, child: Node, places: tuple[Place, ...]) -> Any:
        assert self._document is not None
        return _seen(self._document, child, self._at, places)

    def _child(self, step: str | int) -> tuple[Node, tuple[Place, ...]] | None:
        """Return a field or item that has begun, with its possible types."""
        node, document = self._node, self._document
        if node is None or document is None:
            return None
        if node.kind == "array" and isinstance(step, int):
            n = node.n_begun(self._at)
            child = node.children[step] if -n <= step < n else None
            return None if child is None else (child, child.places)
        if node.kind == "object":
            for key in _keys_called(document, node, self._at, step):
                child = node.children[node.steps[key]]
                if child.start < self._at:
                    return child, _places(node, key, self._at)
        return None


def _seen(document: Document, node: Node, at: int, places: tuple[Place, ...]) -> Any:
    """Return a part as users see it; `MISSING` if it is not settled."""
    if any(map(document.shapes.omits, places)):
        return MISSING
    if node.settled <= at:
        found = document.value(node, places)
        if found is not MISSING or node.kind not in ("object", "array"):
            return found
    if node.kind in ("object", "array"):
        return Partial(document, node, at)
    return node.text(at) if document.grows(node) else MISSING


def _places(node: Node, key: str, at: int) -> tuple[Place, ...]:
    """Return the possible types of a field, given its object's shapes at an offset."""
    found = [
        shape.fields[key][1] if key in shape.fields else shape.others for shape in node.shape(at)
    ]
    return tuple(dict.fromkeys(place for place in found if place is not None))


def _name(document: Document, node: Node, key: str, at: int) -> Any:
    """Return a field's name in the value; `MISSING` while candidates have different names."""
    names = {
        shape.fields[key][0] if key in shape.fields else _key(document, shape.keys, key)
        for shape in node.shape(at)
    }
    return names.pop() if len(names) == 1 else MISSING


def _key(document: Document, place: Place | None, key: str) -> Any:
    """Return a key of a dict, of its type."""
    parse = None if place is None or place is ANYTHING else document.shapes.parser(place)
    if parse is None:
        return key
    try:
        found = parse(json.dumps(key))
        hash(found)
    except (ParseError, TypeError):
        return key
    return found


def _keys_called(document: Document, node: Node, at: int, name: Any) -> Iterator[str]:
    """Yield the keys of the fields with a name in the value."""
    if name in node.steps and _name(document, node, name, at) == name:
        yield name
        return
    for key in node.steps:
        if _name(document, node, key, at) == name:
            yield key


def _fields(
    document: Document, node: Node, at: int
) -> Iterator[tuple[Any, Node, tuple[Place, ...]]]:
    """Yield the fields of an object that have begun: name, value and possible types."""
    for key, index in node.steps.items():
        child = node.children[index]
        if child.start >= at:
            return
        name = _name(document, node, key, at)
        if name is not MISSING:
            yield name, child, _places(node, key, at)


def _is_there(document: Document, node: Node, at: int, places: tuple[Place, ...]) -> bool:
    """Return whether a part is settled, which includes refused ones."""
    try:
        return _seen(document, node, at, places) is not MISSING
    except ParseError:
        return True


def _n_there(document: Document, node: Node, at: int) -> int:
    """Return the number of visible items of an array: up to the first unsettled one."""
    n = node.n_begun(at)
    if not n:
        return 0
    if len({child.places for child in node.children[:2]}) == 1 and node.children[0].places:
        # Items have one type: if one is settled when it is complete, all are.
        if not _is_there(document, node.children[n - 1], at, node.children[n - 1].places):
            n -= 1
        first = node.children[0]
        return n if n and _is_there(document, first, at, first.places) else 0
    for i, child in enumerate(node.children[:n]):
        if not _is_there(document, child, at, child.places):
            return i
    return n


def _of(value: Any, step: Any) -> Any:
    """Return a field or item of a complete value."""
    if isinstance(step, str) and hasattr(value, step):
        return getattr(value, step)
    try:
        return value[step]
    except (TypeError, LookupError):
        return MISSING


def _plain(document: Document, node: Node, at: int) -> Any:
    if node.kind == "object":
        fields = _fields(document, node, at)
        seen = [(name, _seen(document, child, at, places)) for name, child, places in fields]
        return {name: _closed(found) for name, found in seen if found is not MISSING}
    if node.kind == "array":
        items = node.children[: _n_there(document, node, at)]
        return [_closed(_seen(document, child, at, child.places)) for child in items]
    return node.text(at) if document.grows(node) else None


def _closed(found: Any) -> Any:
    return found.so_far if isinstance(found, Partial) else found


def _has(value: Any, path: tuple[str | int, ...]) -> bool:
    """Return whether a complete value has such a field or item."""
    for step in path:
        value = _of(value, step)
        if value is MISSING:
            return False
    return True


class GrowingValue(Generic[T_co]):
    """The value of one output while it is written."""

    def __init__(self, output: OutputType[T_co] | None) -> None:
        """Begin an output of a type; None: free text."""
        self._pieces: list[str] = []
        self._document: Document | None = None
        self._parts: GrowingParts | None = None
        self._grows = True
        if output is not None:
            shapes = Shapes(output.values)
            if isinstance(output.grammar, ir.Json):
                self._document = Document(shapes)
            elif output.growing is not None:
                self._parts = GrowingParts(output.growing())
            else:
                parse: Any = output.parse
                is_text = isinstance(output.grammar, ir.Pattern) and output.values is not None
                rules = output.grammar
                is_captured = isinstance(rules, ir.ContextFree) and bool(rules.captures)
                self._grows = parse is str or is_captured or (is_text and shapes.grows(shapes.root))
        self._n_changes = 0

    @property
    def is_text(self) -> bool:
        """Whether the value is the text, which grows."""
        return self._document is None and self._parts is None

    def feed(self, text: str) -> Partial[T_co] | None:
        """Read more output; return the new partial value, or None if nothing changed.

        Cost: depends only on the new text.
        """
        if self._document is not None:
            self._document.feed(text.encode("utf-8", "surrogatepass"))
            changes = self._document.n_changes
            if changes == self._n_changes:
                return None
            self._n_changes = changes
            return Partial(self._document, self._document.root, self._document.n_bytes)
        if self._parts is not None:
            parts = self._parts
            is_new = parts.feed(text)
            return Partial(None, None, 0, parts=parts.seen, names=parts.names) if is_new else None
        self._pieces.append(text)
        if not self._grows:
            return None
        pieces, n = self._pieces, len(self._pieces)
        return Partial(None, None, 0, lambda: "".join(pieces[:n]))

    def finish(self, value: Any) -> Partial[T_co]:
        """End the output."""
        if self._document is None:
            parts = self._parts
            seen, names = (None, None) if parts is None else (parts.seen, parts.names)
            return Partial(None, None, 0, None, (value,), seen, names)
        self._document.finish()
        document = self._document
        return Partial(document, document.root, document.n_bytes, None, (value,))
