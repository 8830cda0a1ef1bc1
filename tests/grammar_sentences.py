"""Random sentences of a Lark grammar, in the reading where the text may be cut up in any way.

A sentence is a random derivation whose terminals are random texts of their regular expressions.
Nothing of structgen's context-free engine is in it; the terminals come from the regex automaton.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import lark
from lark.grammar import NonTerminal, Rule, Symbol

from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.grammar.regex.read import parse_python

_ORDINARY = "abcdefgxyzABCXYZ0123456789_-+*/.,:;!?()[]{}<>=|&'\"@#$%^~` \t\n\\"
_STRANGE = "é€ßπ\u00a0\u2028中\U0001f600\x7f\x85\ufeff\ud7ff\ue000\uffff"


class TerminalSampler:
    """Random texts of one regular expression."""

    def __init__(self, pattern: str, rng: random.Random) -> None:
        self.rng = rng
        self.automaton = RegexAutomaton(parse_python(pattern))
        alphabet = self.automaton.alphabet
        self.members: dict[int, list[str]] = {}
        for char in _ORDINARY * 4 + _STRANGE:
            atom = alphabet.minterm(ord(char))
            if atom >= 0:
                self.members.setdefault(atom, []).append(char)
        for atom, code in enumerate(alphabet.representatives):
            self.members.setdefault(atom, [chr(code)])
        self.far: dict[int, int] = {}

    def char(self, mask: int) -> str:
        atoms = [atom for atom in self.members if mask >> atom & 1]
        weights = [len(self.members[atom]) for atom in atoms]
        return self.rng.choice(self.members[self.rng.choices(atoms, weights)[0]])

    def distance(self, state: int) -> int:
        """Characters to the nearest end."""
        found = self.far.get(state)
        if found is None:
            seen, level, found = {state}, [state], 0
            while not any(self.automaton.label(s) >= 0 for s in level):
                level = [to for s in level for _, to in self.automaton.moves(s) if to not in seen]
                seen.update(level)
                found += 1
            self.far[state] = found
        return found

    def text(self, target: int) -> str:
        """A text of about ``target`` characters, or what is the shortest from there."""
        state, out = self.automaton.start, ""
        while True:
            moves = self.automaton.moves(state)
            if self.automaton.label(state) >= 0 and (
                not moves or len(out) >= target or self.rng.random() < 0.3
            ):
                return out
            if len(out) >= target:
                nearest = min(self.distance(to) for _, to in moves)
                moves = tuple(move for move in moves if self.distance(move[1]) == nearest)
            mask, state = self.rng.choice(moves)
            out += self.char(mask)


class SentenceGenerator:
    """Random sentences of a loaded grammar.

    Args:
        parser: the grammar, loaded with any options.
        rng: where the choices come from.
    """

    def __init__(self, parser: lark.Lark, rng: random.Random) -> None:
        self.rng = rng
        assert not parser.ignore_tokens, "the library's grammars ignore nothing"
        self.starts = parser.options.start
        self.rules: dict[Symbol, list[Rule]] = {}
        for rule in parser.rules:
            self.rules.setdefault(rule.origin, []).append(rule)
        self.terminals = {
            t.name: TerminalSampler(t.pattern.to_regexp(), rng) for t in parser.terminals
        }
        self.depth: dict[Symbol, int] = {}
        self._find_depths()

    def _find_depths(self) -> None:
        """Least height of a derivation, per rule name."""
        changed = True
        while changed:
            changed = False
            for origin, rules in self.rules.items():
                heights = [h for h in map(self._height, rules) if h is not None]
                if heights and min(heights) < self.depth.get(origin, 1 << 30):
                    self.depth[origin] = min(heights)
                    changed = True

    def _height(self, rule: Rule) -> int | None:
        parts = [self.depth.get(s) if isinstance(s, NonTerminal) else 0 for s in rule.expansion]
        return None if None in parts else 1 + max(parts, default=0)  # type: ignore[type-var]

    def sentence(self, size: int = 40, word: int = 6) -> str:
        """A sentence; after about ``size`` expansions the shortest way out is taken.

        Args:
            size: expansions to choose freely.
            word: longest texts of terminals that have a choice.
        """
        out: list[str] = []
        budget = size
        todo: list[Symbol] = [NonTerminal(self.rng.choice(self.starts))]
        while todo:
            symbol = todo.pop()
            if not isinstance(symbol, NonTerminal):
                out.append(self.terminals[symbol.name].text(self.rng.randint(0, word)))
                continue
            rules = self.rules[symbol]
            budget -= 1
            if budget < 0:
                least = min(h for r in rules if (h := self._height(r)) is not None)
                rules = [rule for rule in rules if self._height(rule) == least]
            todo.extend(reversed(self.rng.choice(rules).expansion))
        return "".join(out)


def mutations(text: str, rng: random.Random, others: str) -> Iterable[str]:
    """Texts that differ from ``text`` in one place: a character more, less, other or twice."""
    at = rng.randrange(len(text)) if text else 0
    yield text[:at] + rng.choice(others) + text[at:]
    yield text[:at] + text[at + 1 :]
    yield text[:at] + rng.choice(others) + text[at + 1 :]
    yield text[:at] + text[at : at + 1] + text[at:]
