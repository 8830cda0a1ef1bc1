"""What is read off the patterns of terminals before there are automata: lookarounds, single texts.

Says which lookarounds cannot be enforced, and which terminals grow out of all proportion. Knows
states only by their moves.
"""

from __future__ import annotations

from collections.abc import Callable

from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.derivatives import char_sets
from structgen.automaton.regex.lookarounds import Moves
from structgen.automaton.regex.probing import MANY_BEGINNINGS, MAX_PROBED
from structgen.errors import CompileLimitExceeded, PatternError, UnsupportedFeature
from structgen.grammar import ir
from structgen.grammar.regex import context as regex_context
from structgen.grammar.regex import facts as regex_facts
from structgen.grammar.regex import tree

_LONG_PATTERN = 40
"""Characters of a pattern beyond which its states are looked at before it is used."""


_PROBED_CHARACTERS = 64


def may_be_large(pattern: str) -> bool:
    """Whether a pattern may have more states than its few characters, each once."""
    return len(pattern) > _LONG_PATTERN or "{" in pattern


class Assertions:
    """The lookarounds of a grammar's terminals.

    Attributes:
        aheads: what each lookahead, or end of the text, asks of what follows.
        behinds: what each lookbehind asks, and how many characters it looks at.
    """

    def __init__(self) -> None:
        self.aheads: dict[tree.Look | ir.EndAnchor, ir.Regex] = {}
        self.behinds: dict[tree.Look, tuple[ir.Regex, int]] = {}

    def collect(self, terminal: ir.Terminal, parsed: tree.Tree, sets: set[ir.Ranges]) -> None:
        """Take down those of a terminal; its character sets are added to ``sets``."""
        stack = [parsed]
        while stack:
            node = stack.pop()
            if isinstance(node, ir.CharSet):
                sets.add(node.ranges)
            elif isinstance(node, tree.Seq | tree.Alt):
                stack.extend(node.parts)
            elif isinstance(node, tree.Rep):
                stack.append(node.body)
            elif isinstance(node, ir.StartAnchor):
                raise PatternError(
                    f"Terminal {terminal.name} has a ^ or \\A, which would tie it to the start of "
                    "the text. Remove it: a terminal stands where the rules put it.",
                    pattern=terminal.pattern,
                )
            elif isinstance(node, ir.EndAnchor):
                self.aheads[node] = ir.EndAnchor()
            elif node.behind:
                if tree.has_look(node.body) or regex_context.has_anchor(node.body):
                    raise UnsupportedFeature(
                        f"A lookbehind or a multi-line ^ in terminal {terminal.name} looks for the "
                        "start of the text, or has another assertion inside.",
                        fix="Write the terminal without it.",
                    )
                regex = tree.lower(node.body)
                width = regex_facts.width(regex)[1]
                assert width is not None
                self.behinds.setdefault(node, (regex, width))
                sets |= char_sets(regex)
            else:
                self.aheads[node] = self._ahead(node, terminal)
                sets |= char_sets(self.aheads[node])

    def _ahead(self, look: tree.Look, terminal: ir.Terminal) -> ir.Regex:
        if regex_context.has_behind(look.body):
            raise UnsupportedFeature(
                f"Terminal {terminal.name} has a lookbehind or a \\b inside a lookahead.",
                fix="Write the lookahead with a class of characters.",
            )
        return regex_context.ahead(look)


def literal_of(parsed: tree.Tree, alphabet: Alphabet, writable: int) -> bytes:
    """The one text that a tree matches, if it is one that may be written; else nothing."""
    text = ""
    for part in parsed.parts if isinstance(parsed, tree.Seq) else (parsed,):
        if not isinstance(part, ir.CharSet) or len(part.ranges) != 1:
            return b""
        low, high = part.ranges[0]
        if low != high or not alphabet.mask(part.ranges) & writable:
            return b""
        text += chr(low)
    return text.encode()


def check_growth(name: str, start: int, moves: Callable[[int], Moves]) -> None:
    """Look at what texts of a few dozen characters lead to: what grows out of all proportion
    is refused before anybody reads it.

    Raises:
        CompileLimitExceeded: these are too many states.
    """
    seen, level = {start}, [start]
    for _ in range(_PROBED_CHARACTERS):
        following: list[int] = []
        for q in level:
            for _, to in moves(q):
                if to not in seen:
                    seen.add(to)
                    following.append(to)
        if len(seen) > MAX_PROBED:
            raise CompileLimitExceeded(
                f"terminal {name} needs too many automaton states: {MANY_BEGINNINGS}",
                limit=MAX_PROBED,
                actual=len(seen),
            )
        level = following
