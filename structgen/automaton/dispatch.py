"""Turn the grammar IR into a machine: the one dispatch over kinds of grammar.

`restrict` limits patterns to what a vocabulary can write. Some vocabularies have no token for
certain bytes (SmolLM2's lacks eight control characters and lead bytes). A mask could then lead to a
state where only such a byte may follow, so code points that need one are removed from patterns.
JSON strings do not need this: there every code point has an escape (`encoding.JsonString`).

In a sequence of grammars, each part except the last has a `SequenceFrame` below it. A part can be
any grammar.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from structgen.errors import (
    CompileLimitExceeded,
    GrammarError,
    OutputTypeError,
    Unsatisfiable,
    UnsupportedFeature,
)
from structgen.grammar import ir, json_schema, reading
from structgen.grammar.formats import format_of
from structgen.grammar.json_schema import child_path

from .cfg.embedded_terminals import MAX_NAMED, NamedTokenLeaf, within_limits
from .core.frames import POP, Alternative, Frame, Released, TextHistory
from .core.leaf import GROW
from .core.machine import Machine
from .core.text_leaf import TextLeaf
from .json.document import around
from .json.options import JsonOptions, json_options, part_options
from .json.scalars import literal_leaf
from .json.values import JsonLanguage, check, contradiction
from .regex.automaton import RegexAutomaton
from .regex.encoding import Utf8
from .regex.quotes import unquotable
from .regex.symbols import probe
from .texts import Text, joined, repeated
from .work import WORK, Limits, within

if TYPE_CHECKING:
    from .cfg.machine import GrammarFacts

_UNLIMITED = 1 << 30


class SequenceFrame(Frame):
    """The frame below an open part of a sequence. ``at`` is the index of the next part."""

    nests = False

    def __init__(self, parts: tuple[tuple[Alternative, ...], ...]) -> None:
        self._parts = parts
        # A token may reach from here into a part with a depth limit.
        pushed = [frame for part in parts for way in part for frame, _ in way.frames]
        self.limit = min([frame.limit for frame in pushed], default=_UNLIMITED)
        self._completions: dict[int, Text] = {}

    def open(self) -> tuple[Alternative, ...]:
        """Return how a text of all starts."""
        return self._ways(0) if self._parts else POP

    def _ways(self, at: int) -> tuple[Alternative, ...]:
        """Return the alternatives with which the parts from ``at`` may start; nothing is pushed
        below a last part."""
        own = self, at + 1
        is_last = at == len(self._parts) - 1
        return tuple(
            [
                way
                if is_last and not way.frames
                else Alternative(way.leaf, way.q, (*way.frames, own))
                for way in self._parts[at]
            ]
        )

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        return self._ways(at) if at < len(self._parts) else POP

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """See `frames.Frame`: the shortest known texts of the remaining parts."""
        found = self._completions.get(at)
        if found is None:
            shortest: list[Text] = []
            for part in self._parts[at:]:
                machine = Machine(part)
                shortest.append(machine.shortest_completion(machine.start, TextHistory()))
            found = self._completions[at] = joined(b"", shortest)
        return found


class TimesFrame(Frame):
    """The frame below an open part that is repeated. ``at`` counts the parts so far, this one
    included, as far as the bounds need it.
    """

    nests = False

    def __init__(self, part: tuple[Alternative, ...], least: int, most: int | None) -> None:
        self._part = part
        self._least = least
        self._most = most
        self.limit = min((f.limit for way in part for f, _ in way.frames), default=_UNLIMITED)

    def open(self) -> tuple[Alternative, ...]:
        """Return how a text of all starts."""
        return self.resume(0, 0)

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        out = POP if at >= self._least else ()
        if at == self._most:
            return out
        own = self, min(at + 1, self._least) if self._most is None else at + 1
        return (*out, *(Alternative(way.leaf, way.q, (*way.frames, own)) for way in self._part))

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """See `frames.Frame`."""
        return repeated(self._shortest, self._least - at) if at < self._least else b""

    @cached_property
    def _shortest(self) -> Text:
        machine = Machine(self._part)
        return machine.shortest_completion(machine.start, TextHistory())


def writable(missing_bytes: Collection[int]) -> ir.CharSet:
    """Return the code points whose UTF-8 form needs none of ``missing_bytes``.

    Exact for missing ASCII and lead bytes. A missing continuation byte removes every code point
    beyond ASCII, which is safe.
    """
    barred: list[tuple[int, int]] = []
    for byte in missing_bytes:
        if byte < 0x80:
            barred.append((byte, byte))
        elif byte < 0xC0:
            barred.append((0x80, ir.MAX_CODE_POINT))
        elif byte < 0xE0:
            barred.append(((byte & 0x1F) << 6, ((byte & 0x1F) << 6) + 0x3F))
        elif byte < 0xF0:
            barred.append(((byte & 0x0F) << 12, ((byte & 0x0F) << 12) + 0xFFF))
        elif byte < 0xF5:
            barred.append(((byte & 0x07) << 18, ((byte & 0x07) << 18) + 0x3FFFF))
    low = [(max(a, 0x80) if b >= 0x80 else a, min(b, ir.MAX_CODE_POINT)) for a, b in barred]
    return ir.negate(ir.char_set(low))


def _has_few_states(regex: ir.Regex) -> bool:
    """Return whether the automaton is known to be small: a format, or a format followed by text."""
    if format_of(regex) is not None:
        return True
    if isinstance(regex, ir.Concat) and regex.parts:
        first, *behind = regex.parts
        return all(isinstance(one, ir.CharSet) for one in behind) and _has_few_states(first)
    return (
        isinstance(regex, ir.Intersect)
        and len(regex.parts) == 1
        and _has_few_states(regex.parts[0])
    )


def restrict(regex: ir.Regex, chars: ir.CharSet) -> ir.Regex:
    """Return the texts of ``regex`` that consist of ``chars``.

    This narrows its character sets. An intersection would need a state for each repetition count of
    each set.
    """
    if chars == ir.ANY_CHAR:
        return regex
    negations = (ir.Complement, ir.Lookahead, ir.Lookbehind)
    if any(isinstance(node, negations) for node in ir.nodes(regex)) or not all(
        _holds(chars, node.document) for node in ir.nodes(regex) if isinstance(node, ir.Quote)
    ):
        return ir.Intersect((regex, ir.Repeat(chars, 0, None)))
    return _narrow(regex, ir.negate(chars))


def _holds(chars: ir.CharSet, text: str) -> bool:
    """Return whether all characters of ``text`` are in the set."""
    ends = [low for low, _ in chars.ranges], [high for _, high in chars.ranges]
    points = map(ord, set(text))
    return all(bisect_right(ends[0], point) > bisect_left(ends[1], point) for point in points)


def _narrow(regex: ir.Regex, barred: ir.CharSet) -> ir.Regex:
    """Return ``regex`` without the characters ``barred``."""
    if isinstance(regex, ir.CharSet):
        return ir.less(regex, barred)
    if isinstance(regex, (ir.Concat, ir.Alternate, ir.Intersect)):
        return type(regex)(tuple(_narrow(p, barred) for p in regex.parts))
    if isinstance(regex, ir.Repeat):
        return ir.Repeat(_narrow(regex.body, barred), regex.min, regex.max)
    if isinstance(regex, ir.Checksum):
        steps = tuple(
            tuple((number, ir.less(found, barred)) for number, found in step)
            for step in regex.steps
        )
        between = ir.less(regex.between, barred)
        return ir.Checksum(regex.modulus, steps, between, regex.gaps, regex.count)
    return regex


class Built(NamedTuple):
    """The result of `build`.

    Attributes:
        machine: the machine of the grammar.
        unenforced: for each JSON part in order, the keywords that are not enforced, as ``(path,
            keyword)``, and the reason; empty unless ``on_unsupported="warn"``.
        named_tokens: the tokens that grammars name, by number.
        limits: the limits of one call of a cursor.
        work: the number of steps that building the machine took.
        held: the bytes, roughly, that it has added.
    """

    machine: Machine
    unenforced: tuple[Mapping[tuple[str, str], str], ...]
    named_tokens: tuple[ir.SpecialToken, ...] = ()
    limits: Limits = Limits()
    work: int = 0
    held: int = 0


def build(
    grammar: ir.Grammar,
    options: Mapping[str, Any],
    missing_bytes: Collection[int] = (),
    facts: GrammarFacts | None = None,
) -> Built:
    """Return the machine of ``grammar``.

    Args:
        grammar: what to recognise.
        options: fields of `JsonOptions`, for the JSON parts.
        missing_bytes: bytes that no token of the vocabulary can write on its own.
        facts: the store of results about context-free grammars, or None.

    Raises:
        OptionError: an unknown option.
        SchemaError: a JSON Schema is malformed or cannot be enforced.
        Unsatisfiable: no text matches, or none that the vocabulary can write.
        CompileLimitExceeded: a bound was hit.
    """
    chosen = json_options(options)
    builder = _Builder(options, chosen, frozenset(missing_bytes))
    depth = sys.getrecursionlimit()
    machine: Machine | None = None
    work = held = 0
    try:
        # Constraints of other threads share these leaves.
        with GROW, within(chosen.limits), reading.reading(chosen.limits.work):
            if isinstance(grammar, ir.ContextFree) and not _embedded(grammar):
                # Imported only when needed: most users with schemas never use a grammar.
                from structgen.automaton.cfg import CfgMachine

                machine = CfgMachine.of(grammar, writable(missing_bytes), facts)
            elif isinstance(grammar, ir.Json):
                machine = Machine(builder.document(grammar))
            else:
                ways = builder.alternatives(grammar)
                if ir.has_rules(grammar):
                    from structgen.automaton.cfg import CfgMachine

                    machine = CfgMachine(ways)
                else:
                    machine = Machine(ways)
            work = chosen.limits.work - WORK.left
            held = chosen.limits.memory - WORK.room
    except RecursionError:
        schemas = [part.schema for part in ir.flat(grammar) if isinstance(part, ir.Json)]
        deepest = max(map(_deepest_in, schemas), key=len, default="")
        raise CompileLimitExceeded(
            f"the output type is nested too deeply{deepest}; move parts of it into definitions, "
            "or flatten it",
            limit=depth,
            actual=depth,
        ) from None
    finally:
        if machine is None:
            for language in builder.languages:
                language.release()
    if builder.languages:
        # Languages, frames and leaves refer to one another and are freed with the machine.
        machine.languages = builder.languages
    unenforced, named = tuple(builder.unenforced), tuple(builder.named_tokens)
    return Built(machine, unenforced, named, chosen.call_limits, work, held)


class _Builder:
    """Builds a grammar's parts and collects their results."""

    def __init__(
        self, given: Mapping[str, Any], options: JsonOptions, missing: frozenset[int]
    ) -> None:
        self._given = given
        self._options = options
        self._missing = missing
        self.unenforced: list[dict[tuple[str, str], str]] = []
        self.named_tokens: dict[ir.SpecialToken, int] = {}
        self.languages: list[Released] = []

    @cached_property
    def _chars(self) -> ir.CharSet:
        return writable(self._missing)

    def alternatives(self, grammar: ir.Grammar) -> tuple[Alternative, ...]:
        """Return the alternatives with which a text of ``grammar`` may start."""
        if isinstance(grammar, ir.Json):
            return self.document(grammar, alone=False)
        if isinstance(grammar, ir.Pattern):
            return self._pattern(grammar)
        if isinstance(grammar, ir.Choice):
            return self._choice(grammar)
        if isinstance(grammar, ir.ContextFree):
            return self._context_free(grammar)
        if isinstance(grammar, ir.Sequence):
            return SequenceFrame(tuple(map(self.alternatives, grammar.parts))).open()
        if isinstance(grammar, ir.Times):
            ways = self.alternatives(grammar.part)
            machine = Machine(ways)
            if grammar.most is None and machine.is_accepting(machine.start):
                raise OutputTypeError(
                    "A part that can be empty cannot be repeated without a limit. Set the limit "
                    "with times()."
                )
            return TimesFrame(ways, grammar.least, grammar.most).open()
        found: list[Alternative] = []
        impossible: Unsatisfiable | None = None
        for part in grammar.parts:
            try:
                found += self.alternatives(part)
            except Unsatisfiable as error:
                if not isinstance(part, ir.Pattern):
                    raise
                impossible = impossible or error  # the quote of an empty document, say
        if impossible is not None and not found:
            raise impossible
        return tuple(found)

    def _context_free(self, grammar: ir.ContextFree) -> tuple[Alternative, ...]:
        from structgen.automaton.cfg import CfgFrame

        embedded: dict[int, tuple[Alternative, ...]] = {}
        impossible: OutputTypeError | None = None
        for number, inner in _embedded(grammar).items():
            if isinstance(inner, ir.SpecialToken):
                token = self.named_tokens.setdefault(inner, len(self.named_tokens))
                if token >= MAX_NAMED:
                    raise CompileLimitExceeded(
                        "the grammar contains too many special tokens",
                        limit=MAX_NAMED,
                        actual=token + 1,
                    )
                leaf = NamedTokenLeaf(token)
                embedded[number] = (Alternative(leaf, leaf.start),)
                continue
            try:
                embedded[number] = within_limits(self.alternatives(inner.grammar), inner)
            except OutputTypeError as error:
                is_limit = isinstance(error, CompileLimitExceeded)
                kind = error if is_limit else GrammarError(str(error))
                refused = kind.inside(f"{inner.name} cannot be used")
                refused.terminal = inner.name
                if not (isinstance(error, Unsatisfiable) and isinstance(inner.grammar, ir.Pattern)):
                    raise refused from error
                # Like any terminal that matches no text: rules that need it are dropped.
                embedded[number], impossible = (), impossible or refused
        try:
            frame = CfgFrame(grammar, self._chars, embedded)
        except Unsatisfiable as error:
            raise impossible or error from None
        self.languages.append(frame)
        return frame.open()

    def _pattern(self, grammar: ir.Pattern) -> tuple[Alternative, ...]:
        symbols = RegexAutomaton(restrict(grammar.regex, self._chars))
        if symbols.is_empty():
            if self._missing and not RegexAutomaton(grammar.regex).is_empty():
                raise Unsatisfiable(
                    "this vocabulary cannot write any text that matches the pattern "
                    f"{grammar.source!r}."
                )
            why = unquotable(grammar.regex) or "its parts contradict each other"
            raise Unsatisfiable(f"no text matches the pattern {grammar.source!r}: {why}.")
        leaf = TextLeaf(symbols, Utf8(symbols.alphabet))
        if not _has_few_states(grammar.regex):
            probe(leaf.symbols, leaf.encoding)
        return (Alternative(leaf, leaf.start),)

    def _choice(self, grammar: ir.Choice) -> tuple[Alternative, ...]:
        automaton = RegexAutomaton(ir.Repeat(self._chars, 0, None))
        texts = [text for text in grammar.texts if automaton.accepts(text)]
        if not texts:
            raise Unsatisfiable("this vocabulary cannot write any of the choices.")
        literal = literal_leaf(tuple(text.encode() for text in texts))
        return (Alternative(literal, literal.start),)

    def document(self, grammar: ir.Json, alone: bool = True) -> tuple[Alternative, ...]:
        """Return the alternatives with which a JSON text of ``grammar`` may start. ``alone``: no
        other part can start there."""
        options = part_options(grammar, self._given, self._options)
        outside = self._missing
        unwritable = sorted(b for b in outside if 0x20 <= b < 0x7F) if outside else ()
        if unwritable:
            raise Unsatisfiable(
                "JSON needs all printable ASCII characters, but the vocabulary has no token for "
                f"{bytes(unwritable).decode()!r} alone."
            )
        if outside:
            outside = frozenset(b for b in outside if b >= 0x7F)
        left_out: dict[tuple[str, str], str] = {}
        self.unenforced.append(left_out)
        while True:
            try:
                return self._json_ways(grammar.schema, options, outside, left_out, alone)
            except UnsupportedFeature as error:
                key = (error.path, error.keyword or "")
                if options.on_unsupported == "error" or error.keyword is None or key in left_out:
                    raise
                left_out[key] = str(error).partition("\n")[0]

    def _json_ways(
        self,
        schema: Any,
        options: JsonOptions,
        missing: frozenset[int],
        left_out: Collection[tuple[str, str]],
        alone: bool,
    ) -> tuple[Alternative, ...]:
        language = self._language(schema, options, missing, left_out)
        check(language)
        if options.indent is not None:
            language = language.at_depth(0)
        if alone and options.whitespace != "flexible":
            opening = language.opening()
            if opening is not None:
                return (opening,)
        ways = language.alternatives(language.root)
        if not ways:
            # Try each schema on its own, so that the message can name the place.
            raise contradiction(self._language(schema, options, missing, left_out, apart=True))
        if options.whitespace == "flexible":
            ways = SequenceFrame((around(language.space), ways, around(language.space))).open()
        return ways

    def _language(
        self,
        schema: Any,
        options: JsonOptions,
        missing: frozenset[int],
        left_out: Collection[tuple[str, str]],
        apart: bool = False,
    ) -> JsonLanguage:
        graph = json_schema.lower(schema, **options.reading, skipped=left_out, apart=apart)
        language = JsonLanguage(graph, options, missing)
        self.languages.append(language)
        return language


def _embedded(grammar: ir.ContextFree) -> dict[int, ir.Embedded | ir.SpecialToken]:
    """Return the terminals of a grammar that are not patterns, by number."""
    return {t: g for t, g in enumerate(grammar.terminals) if not isinstance(g, ir.Terminal)}


def _deepest_in(schema: Any) -> str:
    """Return where the deepest part of a schema is, for a message."""
    level: list[tuple[Any, str]] = [(schema, "$")]
    depth = 0
    while True:
        inner: list[tuple[Any, str]] = []
        for value, path in level:
            if isinstance(value, Mapping):
                inner += [(item, child_path(path, name)) for name, item in value.items()]
            elif isinstance(value, list):
                inner += [(item, child_path(path, i)) for i, item in enumerate(value)]
        if not inner:
            path = level[0][1]
            shown = path if len(path) <= 100 else f"{path[:60]}…{path[-40:]}"
            return f": {depth} levels, down to {shown}"
        level, depth = inner, depth + 1
