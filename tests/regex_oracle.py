"""An independent matcher over the IR, and generators of patterns and texts.

The matcher is the plainest one there is: the set of places where a match that begins at ``i`` may
end, straight from the nodes' definitions. It shares nothing with the automaton.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest

from structgen.grammar import ir


class Matcher:
    """Matches one regex against texts by sets of end positions."""

    def __init__(self, regex: ir.Regex) -> None:
        self.regex = regex

    def matches(self, text: str) -> bool:
        self.text = text
        self.memo: dict[tuple[int, int], frozenset[int]] = {}
        return len(text) in self.ends(self.regex, 0)

    def ends(self, node: ir.Regex, i: int) -> frozenset[int]:
        key = (id(node), i)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = frozenset(self.compute(node, i))
        return found

    def compute(self, node: ir.Regex, i: int) -> set[int] | frozenset[int]:
        text = self.text
        if isinstance(node, ir.CharSet):
            if i < len(text) and any(low <= ord(text[i]) <= high for low, high in node.ranges):
                return {i + 1}
            return set()
        if isinstance(node, ir.StartAnchor):
            return {i} if i == 0 else set()
        if isinstance(node, ir.EndAnchor):
            return {i} if i == len(text) else set()
        if isinstance(node, ir.Lookahead):
            return {i} if bool(self.ends(node.body, i)) != node.negate else set()
        if isinstance(node, ir.Lookbehind):
            found = any(i in self.ends(node.body, begin) for begin in range(i + 1))
            return {i} if found != node.negate else set()
        if isinstance(node, ir.Concat):
            places = {i}
            for part in node.parts:
                places = {end for place in places for end in self.ends(part, place)}
            return places
        if isinstance(node, ir.Alternate):
            return {end for part in node.parts for end in self.ends(part, i)}
        if isinstance(node, ir.Intersect):
            return set.intersection(*(self.own_ends(part, i) for part in node.parts))
        if isinstance(node, ir.Complement):
            return set(range(i, len(text) + 1)) - self.own_ends(node.body, i)
        return self.rounds(node, i)

    def own_ends(self, node: ir.Regex, i: int) -> set[int]:
        """The ends of matches that see a text of their own, between ``i`` and the end."""
        if not looks_around(node):
            return set(self.ends(node, i))
        ends = range(i, len(self.text) + 1)
        return {end for end in ends if Matcher(node).matches(self.text[i:end])}

    def rounds(self, node: ir.Repeat, i: int) -> set[int]:
        def once(places: set[int]) -> set[int]:
            return {end for place in places for end in self.ends(node.body, place)}

        places = {i}
        for _ in range(node.min):
            following = once(places)
            if following == places:
                break
            places = following
        out = set(places)
        done = node.min
        while places and (node.max is None or done < node.max):
            places = once(places) - out
            out |= places
            done += 1
        return out


def looks_around(node: ir.Regex) -> bool:
    """Whether an anchor or lookaround is anywhere in ``node``."""
    if isinstance(node, ir.Concat | ir.Alternate | ir.Intersect):
        return any(map(looks_around, node.parts))
    if isinstance(node, ir.Repeat | ir.Complement):
        return looks_around(node.body)
    return not isinstance(node, ir.CharSet)


def sample(node: ir.Regex, rng: random.Random, alphabet: str) -> str:
    """A text that ``node`` may well match (anchors and all but one part of ``&`` ignored)."""
    if isinstance(node, ir.CharSet):
        here = [c for c in alphabet if any(low <= ord(c) <= high for low, high in node.ranges)]
        if here and rng.random() < 0.9:
            return rng.choice(here)
        low, high = rng.choice(node.ranges) if node.ranges else (97, 97)
        return chr(rng.choice([low, high]))
    if isinstance(node, ir.Concat):
        return "".join(sample(part, rng, alphabet) for part in node.parts)
    if isinstance(node, ir.Alternate):
        return sample(rng.choice(node.parts), rng, alphabet) if node.parts else ""
    if isinstance(node, ir.Repeat):
        high = node.min + 2 if node.max is None else min(node.max, node.min + 2)
        return "".join(sample(node.body, rng, alphabet) for _ in range(rng.randint(node.min, high)))
    if isinstance(node, ir.Intersect):
        return sample(node.parts[0], rng, alphabet)
    if isinstance(node, ir.Complement):
        return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 3)))
    return ""


def texts_for(regex: ir.Regex, rng: random.Random, alphabet: str, count: int) -> list[str]:
    """Texts near the language of ``regex``: samples, mutated samples, random ones."""
    out = []
    for k in range(count):
        if k % 3 == 2:
            text = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 6)))
        else:
            text = sample(regex, rng, alphabet)[:24]
            if k % 3 == 1:
                at = rng.randint(0, len(text))
                text = text[:at] + rng.choice(["", rng.choice(alphabet)]) + text[at + 1 :]
        out.append(text)
    return out


class PatternGenerator:
    """Random patterns of one dialect (``"python"`` or ``"ecma"``), as source text."""

    def __init__(self, rng: random.Random, dialect: str, lookarounds: bool) -> None:
        self.rng = rng
        self.python = dialect == "python"
        self.lookarounds = lookarounds
        self.letters = "abAk1_ -"

    def pattern(self) -> str:
        body = self.alternation(3)
        rng = self.rng
        if rng.random() < 0.3:
            body = f"^{body}"
        if rng.random() < 0.3:
            body = f"{body}$"
        if self.python and rng.random() < 0.3:
            body = f"(?{''.join(rng.sample('imsa', rng.randint(1, 2)))}){body}"
        return body

    def alternation(self, depth: int) -> str:
        count = 1 if self.rng.random() < 0.7 else self.rng.randint(2, 3)
        return "|".join(self.sequence(depth) for _ in range(count))

    def sequence(self, depth: int) -> str:
        return "".join(self.term(depth) for _ in range(self.rng.randint(0, 4)))

    def term(self, depth: int) -> str:
        rng = self.rng
        if rng.random() < 0.12:
            return rng.choice(["^", "$", *([r"\A", r"\Z"] if self.python else [])])
        if self.lookarounds and rng.random() < 0.3:
            return self.assertion(depth)
        atom = self.atom(depth)
        if rng.random() < 0.4:
            quantifier = rng.choice(["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "{0}"])
            return atom + quantifier + rng.choice(["", "", "?"])
        return atom

    def assertion(self, depth: int) -> str:
        rng = self.rng
        kind = rng.choice([r"\b", r"\B", "(?=", "(?!", "(?<=", "(?<!"])
        if kind.startswith("\\"):
            return kind
        if kind.startswith("(?<") and self.python:
            fixed = "".join(self.atom(0) for _ in range(rng.randint(0, 2)))
            other = "".join(self.single() for _ in range(rng.randint(0, 2)))
            return f"{kind}{rng.choice([fixed, other])})"
        return f"{kind}{self.alternation(depth - 1) if depth > 0 else self.atom(0)})"

    def atom(self, depth: int) -> str:
        rng = self.rng
        if depth > 0 and rng.random() < 0.25:
            opening = ["(", "(?:"]
            if self.python:
                opening += ["(?i:", "(?s:", "(?-i:", *["(?>"] * (sys.version_info >= (3, 11))]
            return rng.choice(opening) + self.alternation(depth - 1) + ")"
        if rng.random() < 0.25:
            return self.char_class()
        return self.single()

    def single(self) -> str:
        rng = self.rng
        if rng.random() < 0.75:
            return rng.choice(self.letters + "aabb")
        escapes = [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\n", r"\t", r"\x61", r"\u00e9", "."]
        escapes += [r"\.", "\U0001f600", "ß", "ſ", "İ", "Σ"]
        if not self.python:
            escapes += [r"\u{1F600}", r"\ud83d\ude00", r"\cJ", r"\0", r"\p{L}", r"\P{Lu}", r"\/"]
        return rng.choice(escapes)

    def char_class(self) -> str:
        rng = self.rng
        parts = [rng.choice(CLASS_PARTS) for _ in range(rng.randint(1, 3))]
        return f"[{rng.choice(['', '', '^'])}{''.join(parts)}]"


CLASS_PARTS = [
    *["a", "b", "k", "1", "_", " ", "ſ", "K", r"\d", r"\w", r"\s", r"\W", r"\D", r"\S"],
    *["a-c", "A-Z", "0-9", "à-ÿ", "\U0001f600-\U0001f64f", r"\]", r"\n", r"\b"],
]
ALPHABET = "aabbAk1_ -\n.éK\U0001f600ßſİσ\u2028\u00a0"


def node_verdicts(cases: Sequence[tuple[str, str, Sequence[str]]]) -> list[list[bool] | None]:
    """Node's ``new RegExp(pattern, flags).test(text)`` for ``(pattern, flags, texts)`` cases.

    Returns:
        Per case, a verdict per text, or None where Node rejects the pattern. One process.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node on the PATH")
    program = """
        const cases = JSON.parse(require('fs').readFileSync(0, 'utf8'));
        console.log(JSON.stringify(cases.map(([pattern, flags, texts]) => {
          let regex;
          try { regex = new RegExp(pattern, flags); } catch { return null; }
          // Between the halves of a surrogate pair ECMA-262 never looks, but V8 finds empty
          // matches there: such texts are tried from one code point to the next.
          const sticky = new RegExp(pattern, flags + 'y');
          const found = text => {
            for (let i = 0; i <= text.length; i += text.codePointAt(i) > 0xffff ? 2 : 1) {
              sticky.lastIndex = i;
              if (sticky.test(text)) return true;
            }
            return false;
          };
          const pairs = /[\\ud800-\\udfff]/;
          return texts.map(text =>
            flags.includes('u') && pairs.test(text) ? found(text) : regex.test(text));
        })));
    """
    done = subprocess.run(
        [node, "-e", program], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    verdicts: list[list[bool] | None] = json.loads(done.stdout)
    return verdicts
