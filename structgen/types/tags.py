"""Free text with typed values in it: the user's classes (`Tagged`, `TaggedText`), and the grammar.

Checks the user's arguments before types are lowered, and defines what is text and where a tag
begins and ends. Counts of tags are a nonterminal for each tuple of counts. Knows no values: see
`tagged`.

A tag opens as soon as its ``begin`` is complete, read from the left. So text does not contain a
``begin``, and ends before one. If one ``begin`` may end in the middle of another (``aa`` in
``aaa``), the text before a tag and its ``begin`` are one pattern: all texts that end in it and
contain no other that starts earlier. This would work for all, but needs a wide pattern for each
kind of tag: with 40 kinds, the first mask took 630 ms instead of 30. If one ``begin`` starts
another (``<a`` and ``<ab``), either the shorter one's type or the rest of the longer one follows. A
``begin`` elsewhere within another is refused, because the other could never occur. A ``trigger``
represents the begins that start with it: text does not contain it, and the rest of one of these
begins follows. A regular type and its ``end`` are one pattern, too, which ends at the first ``end``
where the type is complete.

The text of a thought is any text with its closing tag at the end, or without one. It may end
anywhere, so that a token budget can end it anywhere; the caller then adds the closing tag.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from structgen.errors import OutputTypeError
from structgen.grammar import ir, reading
from structgen.grammar.regex import tree

from .sums import Combining, Typed
from .user import OutputType, SpecialToken


@dataclass(frozen=True, slots=True)
class Tagged(Combining, Typed["list[str | TaggedValue]"]):
    """Free text with tags: between ``begin`` and ``end``, a text of ``type``.

    An output type by itself, and a part of `TaggedText`. After ``begin``, the mask allows only the
    type. Outside a tag, the text contains neither special tokens nor a ``begin`` marker. Parses to
    a list: a str for each nonempty piece of text, a `TaggedValue` for each tag.

    Attributes:
        begin: text, or a `SpecialToken`. Text that begins with the name of a control token
            means that token.
        type: any output type except a grammar or tags.
        end: like ``begin``, but tokens may be named anywhere in it. The tag ends at the first
            ``end`` where ``type`` is complete.
        at_least: the fewest tags.
        at_most: the most tags; None: any number.
    """

    begin: str | SpecialToken
    type: Any
    end: str | SpecialToken
    at_least: int = field(default=0, kw_only=True)
    at_most: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("begin", "end"):
            mark = getattr(self, name)
            if not isinstance(mark, (str, SpecialToken)) or mark == "":
                raise OutputTypeError(
                    f"Tagged: {name}={mark!r} is neither a str nor a SpecialToken. Pass the text "
                    "that the model writes there, such as "
                    f"{'<sum>' if name == 'begin' else '</sum>'}."
                )
        _check_counts("Tagged", self.at_least, self.at_most)

    def __repr__(self) -> str:
        shown = getattr(self.type, "__name__", None) or repr(self.type)
        return f"Tagged({self.begin!r}, {shown}, {self.end!r}{_counts(self)})"


@dataclass(frozen=True, slots=True, init=False)
class TaggedText(Combining, Typed["list[str | TaggedValue]"]):
    """Free text with several kinds of tags, each with its own type.

    Args:
        tags: the kinds of tags, with different ``begin``.
        at_least: the fewest tags of all kinds together.
        at_most: the most tags; None: any number.
        trigger: a prefix of each ``begin``, or several such prefixes. After a trigger, one of the
            begins must follow.
        separator: the only text between two tags. None: free text.
        stop_after_first: the text ends with its first tag.
    """

    tags: tuple[Tagged, ...]
    at_least: int
    at_most: int | None
    trigger: tuple[str, ...]
    separator: str | None
    stop_after_first: bool

    def __init__(
        self,
        *tags: Tagged,
        at_least: int = 0,
        at_most: int | None = None,
        trigger: str | Sequence[str] = (),
        separator: str | None = None,
        stop_after_first: bool = False,
    ) -> None:
        for tag in tags:
            if not isinstance(tag, Tagged):
                raise OutputTypeError(
                    f"TaggedText takes Tagged(begin, type, end), got {tag!r}. Pass several of "
                    "them as separate arguments: TaggedText(first, second)."
                )
        if not tags:
            raise OutputTypeError("TaggedText needs at least one Tagged(begin, type, end).")
        _check_counts("TaggedText", at_least, at_most)
        is_one = isinstance(trigger, str) or not isinstance(trigger, Sequence)
        triggers: tuple[Any, ...] = (trigger,) if is_one else tuple(trigger)
        if not all(isinstance(one, str) for one in (*triggers, separator or "")):
            raise OutputTypeError(
                "TaggedText: trigger= must be a str or a list of them, and separator= a str; got "
                f"trigger={trigger!r}, separator={separator!r}."
            )
        if triggers and separator is not None:
            raise OutputTypeError(
                "TaggedText: with separator=, there is no free text, so trigger= has no effect. "
                "Remove one of them."
            )
        if not all(triggers) or not all(
            _text(tag.begin).startswith(triggers or "") for tag in tags
        ):
            raise OutputTypeError(
                f"TaggedText: each begin must start with a trigger, got trigger={trigger!r} and "
                f"begins {', '.join(repr(tag.begin) for tag in tags)}."
            )
        fields = tags, at_least, at_most, triggers, separator, stop_after_first
        for name, value in zip(self.__slots__, fields, strict=True):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        options = f", trigger={self.trigger!r}" if self.trigger else ""
        options += f", separator={self.separator!r}" if self.separator is not None else ""
        options += ", stop_after_first=True" if self.stop_after_first else ""
        return f"TaggedText({', '.join(map(repr, self.tags))}{_counts(self)}{options})"


def _text(mark: str | SpecialToken) -> str:
    return mark if isinstance(mark, str) else mark.text


@dataclass(frozen=True, slots=True)
class TaggedValue:
    """One tag of a text.

    Attributes:
        tag: the kind of tag.
        value: the value inside it.
    """

    tag: Tagged
    value: Any


Mark = tuple["str | SpecialToken", ...]
"""A begin or an end, as pieces of text and tokens."""


def mark_of(written: str | SpecialToken, tokens: Collection[str]) -> Mark:
    """Return a begin or an end as pieces.

    Args:
        written: the user's value.
        tokens: names of the tokens that are not text.
    """
    if isinstance(written, SpecialToken):
        return (written,)
    parts: list[str | SpecialToken] = []
    rest = written
    while rest:
        found = [(at, -len(name), name) for name in tokens if name and (at := rest.find(name)) >= 0]
        if not found:
            return (*parts, rest)
        at, _, name = min(found)
        parts += [rest[:at]] * bool(at) + [SpecialToken(name)]
        rest = rest[at + len(name) :]
    return tuple(parts)


def text_of(mark: Mark) -> str:
    """Return the text of a begin or an end in the output."""
    return "".join(part if isinstance(part, str) else part.text for part in mark)


def _check_counts(name: str, least: Any, most: Any) -> None:
    for value in [least] if most is None else [least, most]:
        if type(value) is not int or value < 0:
            raise OutputTypeError(f"{name}: a count must be an int of at least 0, got {value!r}.")
    if most is not None and most < least:
        raise OutputTypeError(f"{name}: at_least={least} is greater than at_most={most}.")


def _counts(value: Tagged | TaggedText) -> str:
    shown = f", at_least={value.at_least}" if value.at_least else ""
    return shown if value.at_most is None else f"{shown}, at_most={value.at_most}"


_MOST_COUNTS = 1000
"""The most tuples of counts."""


Bounds: TypeAlias = "tuple[int, int | None]"
"""The fewest and the most (None: no bound)."""


class TagPart(NamedTuple):
    """One kind of tag, lowered: its begin, content, end and counts."""

    begin: Mark
    grammar: ir.Grammar
    end: Mark
    bounds: Bounds


class Flow(NamedTuple):
    """The text around tags.

    Attributes:
        triggers: prefixes that text contains only at the start of a ``begin``; if empty, the
            begins.
        separator: the text between tags; None: free text between, before and after them.
        stops: whether the text ends with its first tag.
    """

    triggers: tuple[str, ...] = ()
    separator: Mark | None = None
    stops: bool = False


FREE = Flow()


def tag_grammar(parts: Sequence[TagPart], bounds: Bounds, flow: Flow = FREE) -> ir.ContextFree:
    """Return the texts in which each begin opens its tag, with as many tags as ``bounds`` allow.

    Raises:
        OutputTypeError: an ambiguous begin, or too many counts.
    """
    begins = [text_of(part.begin) for part in parts]
    _spend(sum(len(begin) ** 2 for begin in begins))
    if len(set(begins)) < len(begins) or not (flow.triggers or flow.separator is not None):
        _check_begins(begins)
    if flow.triggers:
        _check_begins(flow.triggers)
    begins = [*flow.triggers] or begins
    overlaps = overlap(begins) and flow.separator is None
    made = Terminals()
    free = made.number(ir.Embedded("text", ir.Pattern(_free(begins), source="text")))
    bodies = []
    for part in parts:
        first, *rest = part.begin
        if any(isinstance(piece, SpecialToken) for piece in rest):
            raise OutputTypeError(
                f"{text_of(part.begin)!r} has a special token in the middle. A tag may begin with "
                "a special token, but the rest must be text."
            )
        inside = made.inside(part)
        if isinstance(first, str) and not overlaps:
            opened = [made.text(first), *inside]
            bodies.append([opened, [free, *opened]])
        elif isinstance(first, str):
            _spend(len(begins))
            trigger = max((one for one in begins if first.startswith(one)), key=len)
            rest = [first[len(trigger) :]] if first != trigger else []
            opening = ir.Pattern(up_to(trigger, begins), source=f"text up to {trigger!r}")
            up = made.number(ir.Embedded(f"text up to {trigger!r}", opening))
            bodies.append([[up, *map(made.text, rest), *inside]])
        else:
            opened = [made.number(ir.SpecialToken(first.text)), *map(made.text, rest), *inside]
            bodies.append([opened, [free, *opened]])
    if flow.separator is not None:
        bodies = [ways[:1] for ways in bodies]
    return _counted([*(part.bounds for part in parts), bounds], bodies, free, made, flow)


def overlap(begins: Sequence[str]) -> bool:
    """Return whether one begin may end in the middle of another."""
    prefixes = {begin[:n] for begin in begins for n in range(1, len(begin))}
    return any(begin[n:] in prefixes for begin in begins for n in range(1, len(begin)))


def up_to(begin: str, begins: Sequence[str]) -> ir.Regex:
    """Return texts that end in ``begin`` without any of ``begins`` that starts earlier."""
    earlier = tree.alternate(
        tree.concat(
            (
                ir.ANY_TEXT,
                tree.alternate(ir.literal(other) for other in begins if len(other) == size),
                tree.repeat(ir.ANY_CHAR, max(0, len(begin) - size + 1), None),
            )
        )
        for size in sorted(set(map(len, begins)))
    )
    return tree.intersect((tree.concat((ir.ANY_TEXT, ir.literal(begin))), tree.complement(earlier)))


def without(begins: Sequence[str]) -> ir.Regex:
    """Return texts without any of ``begins``."""
    return tree.complement(
        tree.concat((ir.ANY_TEXT, tree.alternate(map(ir.literal, begins)), ir.ANY_TEXT))
    )


def _free(begins: Sequence[str]) -> ir.Regex:
    return tree.intersect((tree.repeat(ir.ANY_CHAR, 1, None), without(begins)))


def regular(grammar: ir.Grammar) -> ir.Regex | None:
    """Return the regular expression of a regular grammar, as a separate text."""
    if isinstance(grammar, ir.Pattern):
        return ir.Intersect((grammar.regex,))
    if isinstance(grammar, ir.Choice):
        return tree.alternate(map(ir.literal, grammar.texts))
    if isinstance(grammar, ir.Either):
        parts = [regular(part) for part in grammar.parts]
        if None not in parts:
            return tree.alternate(part for part in parts if part is not None)
    return None


def until(inside: ir.Regex, end: str) -> ir.Regex:
    """Match ``inside`` and ``end``: the first ``end`` at which ``inside`` is complete."""
    whole = tree.concat((inside, ir.literal(end)))
    later = tree.concat((whole, tree.repeat(ir.ANY_CHAR, 1, None)))
    return tree.intersect((whole, tree.complement(later)))


class Terminals:
    """The terminals of a grammar, each once."""

    def __init__(self) -> None:
        self.all: list[ir.AnyTerminal] = []

    def number(self, terminal: ir.AnyTerminal) -> int:
        """Add a terminal; return its number."""
        self.all.append(terminal)
        return len(self.all) - 1

    def text(self, piece: str | SpecialToken) -> int:
        """Return the number of a fixed text, or of a token."""
        if isinstance(piece, SpecialToken):
            for number, known in enumerate(self.all):
                if known == ir.SpecialToken(piece.text):
                    return number
            return self.number(ir.SpecialToken(piece.text))
        return self.number(ir.Embedded(repr(piece), ir.Choice((piece,))))

    def inside(self, part: TagPart) -> list[int]:
        """Return the symbols after the begin."""
        name = f"the text after {text_of(part.begin)!r}"
        pattern = regular(part.grammar)
        if pattern is not None and len(part.end) == 1 and isinstance(part.end[0], str):
            whole = ir.Pattern(until(pattern, part.end[0]), source=name)
            return [self.number(ir.Embedded(name, whole))]
        end, *more = part.end
        if isinstance(part.grammar, (ir.Sequence, ir.Times)) and isinstance(end, str):
            # It may be empty, which terminals must not be: so its end is included.
            closed = ir.Sequence((part.grammar, ir.Choice((end,))))
            return [self.number(ir.Embedded(name, closed)), *map(self.text, more)]
        return [self.number(ir.Embedded(name, part.grammar)), *map(self.text, part.end)]


def _counted(
    bounds: Sequence[Bounds],
    bodies: Sequence[Sequence[Sequence[int]]],
    free: int,
    made: Terminals,
    flow: Flow,
) -> ir.ContextFree:
    """Make rules that count the tags of each kind."""

    def after(counts: tuple[int, ...], kind: int) -> tuple[int, ...] | None:
        new = [*counts[:-1], 1]  # the last of them: whether there is a tag before
        if flow.stops and counts[-1]:
            return None
        for i in (kind, len(bodies)):
            least, most = bounds[i]
            if most is not None and new[i] >= most:
                return None
            new[i] = min(new[i] + 1, least if most is None else most)
        return tuple(new)

    between = [*map(made.text, flow.separator or ())]
    start = (0,) * (len(bounds) + 1)
    numbers = {start: 0}
    waiting = [start]
    rules: list[tuple[int, tuple[int, ...]]] = []
    while waiting:
        counts = waiting.pop()
        here = numbers[counts]
        if all(n >= least for n, (least, _) in zip(counts, bounds, strict=False)):
            rules.append((here, ()))
            if flow.separator is None and not (flow.stops and counts[-1]):
                rules.append((here, (free,)))
        for kind, ways in enumerate(bodies):
            to = after(counts, kind)
            if to is None:
                continue
            if to not in numbers:
                numbers[to] = len(numbers)
                waiting.append(to)
                if len(numbers) > _MOST_COUNTS:
                    raise OutputTypeError(
                        f"These tags have more than {_MOST_COUNTS:,} combinations of counts. "
                        "Lower at_least and at_most, or set them for all tags together."
                    )
            before = between if counts[-1] else ()
            rules += [(here, (*before, *way, ~numbers[to])) for way in ways]
    names = tuple(f"after {','.join(map(str, counts))}" for counts in numbers)
    return ir.ContextFree(tuple(made.all), names, tuple(rules), 0)


def _check_begins(begins: Sequence[str]) -> None:
    known: set[str] = set()
    for begin in begins:
        if begin in known:
            raise OutputTypeError(
                f"Two tags begin with {begin!r}, so they cannot be distinguished. Use one tag "
                "with a union of their types."
            )
        known.add(begin)
    sizes = sorted({len(begin) for begin in begins})
    for begin in begins:
        for at in range(1, len(begin)):
            for size in sizes:
                if at + size > len(begin):
                    break
                if begin[at : at + size] in known:
                    raise OutputTypeError(
                        f"The tag {begin!r} contains {begin[at : at + size]!r}, which would open "
                        "another tag first. Change one of them."
                    )


def _spend(steps: int) -> None:
    reading.spend(steps, "the tags begin with too many long texts; use fewer or shorter ones")


def thought_type(end: str) -> OutputType:
    """Return the type of text up to ``end``, a control token if the vocabulary has it as one."""
    after = tree.concat((ir.ANY_TEXT, ir.literal(end), tree.repeat(ir.ANY_CHAR, 1, None)))
    anywhere = ir.Pattern(tree.complement(after), source=f"text up to {end!r}")

    def fitted(tokens: Collection[str]) -> OutputType:
        mark = mark_of(end, tokens)
        if not any(isinstance(piece, SpecialToken) for piece in mark):
            return OutputType(anywhere, str, "thought", fitted=fitted)
        made = Terminals()
        some = tree.intersect((tree.repeat(ir.ANY_CHAR, 1, None), without([end])))
        free = made.number(ir.Embedded("text", ir.Pattern(some, source="text")))
        closing = tuple(map(made.text, mark))
        rules = ((0, ()), (0, (free,)), (0, closing), (0, (free, *closing)))
        return OutputType(
            ir.ContextFree(tuple(made.all), ("thought",), rules, 0), str, "thought", fitted=fitted
        )

    return fitted(())


FREE_TEXT = OutputType(ir.Pattern(ir.ANY_TEXT, source="any text"), str, "draft")
"""Any text, without control tokens."""
