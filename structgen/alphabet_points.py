"""The atoms of an alphabet as the characters that occur in a vocabulary.

Everything here depends on the alphabet and the vocabulary alone, not on an automaton's states: one
for all texts over one alphabet (`Characters.points_of`). It knows nothing of walks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .automaton.alphabet import Alphabet
from .grammar.ir import MAX_CODE_POINT
from .trie import view

if TYPE_CHECKING:
    from .characters import Characters, Slice

Int32: TypeAlias = npt.NDArray[np.int32]

_MOST_SETS = 8
"""Most sets of characters that are looked for in order; more hardly ever tell more."""


class LongTokens(NamedTuple):
    """Tokens and quotes beyond `Characters.near` characters, in a trie over atoms.

    Attributes:
        children: per node, its ``(atom, child)`` pairs.
        ends: the nodes that the following speak of.
        tokens: of a node, those that end there.
        partials: of a node, those that end inside the next character, each with its tail.
        quotes: of a node, the closing quotes right below.
    """

    children: list[tuple[tuple[int, int], ...]]
    ends: frozenset[int]
    tokens: dict[int, tuple[int, ...]]
    partials: dict[int, tuple[tuple[int, int], ...]]
    quotes: dict[int, tuple[int, ...]]


class AlphabetPoints:
    """The characters of a vocabulary by the atoms of an alphabet.

    Args:
        characters: the vocabulary.
        alphabet: the alphabet.

    Attributes:
        weights: per atom, how many of the vocabulary's characters are in it.
        cut: the atoms that a character cut by a token's end may become, and more.
    """

    def __init__(self, characters: Characters, alphabet: Alphabet) -> None:
        self._characters = characters
        # Not the alphabet itself: this is kept for as long as it lives.
        self._starts, self._atoms, self._n_atoms = alphabet.starts, alphabet.atoms, alphabet.n_atoms
        # The vocabulary's characters in each interval of the alphabet.
        cuts = np.searchsorted(characters.points, alphabet.starts).tolist()
        self._intervals = list(pairwise([*cuts, len(characters.points)]))
        self.weights = [0] * alphabet.n_atoms
        for atom, (first, beyond) in zip(alphabet.atoms, self._intervals, strict=True):
            if atom >= 0:
                self.weights[atom] += beyond - first
        self._listed: list[tuple[tuple[int, bytes], ...] | None] = [None] * alphabet.n_atoms
        self.cut = alphabet.atoms_between(0x7F, MAX_CODE_POINT)
        if characters.spelling in ("any", "any-ascii"):
            self.cut = alphabet.everything
        elif characters.spelling != "utf8":
            for low, high in ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)):
                self.cut |= alphabet.atoms_between(low, high)
        self._alive_tails: dict[int, npt.NDArray[np.bool_]] = {}

    @functools.cached_property
    def atoms(self) -> Int32:
        """By `Characters.code`; the number of atoms for what is no text."""
        n_points = len(self._characters.points)
        atoms = np.full(n_points + 2, self._n_atoms, np.int32)
        for atom, (first, beyond) in zip(self._atoms, self._intervals, strict=True):
            if atom >= 0:
                atoms[first:beyond] = atom
        return atoms

    @functools.cached_property
    def atom_of(self) -> Sequence[int]:
        """`atoms` for single look-ups."""
        return view(self.atoms)

    def listed(self, atom: int) -> tuple[tuple[int, bytes], ...]:
        """The vocabulary's characters in ``atom``, with their plain spellings."""
        found = self._listed[atom]
        if found is None:
            characters = self._characters
            points = [
                int(point)
                for other, (first, beyond) in zip(self._atoms, self._intervals, strict=True)
                if other == atom
                for point in characters.points[first:beyond]
            ]
            found = tuple((point, characters.plain(point)) for point in points)
            self._listed[atom] = found
        return found

    @functools.cached_property
    def reach_of_tails(self) -> tuple[list[int], npt.NDArray[np.int64]]:
        """The atoms each tail may become: the different sets, and which of them is whose."""
        tail, first, last = self._characters.tail_spans.T
        starts = np.asarray(self._starts)
        low = np.searchsorted(starts, first, "right") - 1
        high = np.searchsorted(starts, last, "right") - 1
        kinds, which = np.unique(low * len(starts) + high, return_inverse=True)
        of_kind: list[int] = []
        for kind in kinds.tolist():
            mask = 0
            for atom in self._atoms[kind // len(starts) : kind % len(starts) + 1]:
                mask |= 1 << atom if atom >= 0 else 0
            of_kind.append(mask)
        by_tail = [0] * len(self._characters.tails)
        for at, of in zip(tail.tolist(), which.reshape(-1).tolist(), strict=True):
            by_tail[at] |= of_kind[of]
        masks: dict[int, int] = {}
        kinds_of_tails = [masks.setdefault(mask, len(masks)) for mask in by_tail]
        return list(masks), np.array(kinds_of_tails, np.int64)

    def slice(self, chars: int) -> Slice:
        """`Characters.slice` of the atoms ``chars``."""
        return self._characters.slice(self.inside(chars))

    def inside(self, chars: int) -> npt.NDArray[np.bool_]:
        """By `Characters.code`: whether a character is of the atoms ``chars``."""
        lut = np.zeros(self._n_atoms + 1, bool)
        while chars:
            bit = chars & -chars
            chars ^= bit
            lut[bit.bit_length() - 1] = True
        inside: npt.NDArray[np.bool_] = lut[self.atoms]
        return inside

    def most_in_order(self, masks: Sequence[int]) -> int:
        """`Characters.most_in_order` of some sets of atoms."""
        return self._characters.most_in_order([self.inside(mask) for mask in masks[:_MOST_SETS]])

    def tails_of(self, live: int) -> npt.NDArray[np.bool_] | None:
        """For each of `Characters.tails`, whether some character that begins so is in ``live``.

        None for none.
        """
        if not live & self.cut:
            return None
        found = self._alive_tails.get(live)
        if found is None:
            masks, which = self.reach_of_tails
            found = np.array([bool(mask & live) for mask in masks], bool)[which]
            self._alive_tails[live] = found
            self._characters.charge(found.nbytes + 100)
        return found

    @functools.cached_property
    def long(self) -> LongTokens:
        """`Characters.long` by atoms: nodes with the same atoms above them are one."""
        characters, views = self._characters, self._characters.views
        places, above, codes = characters.long
        atom_of, near = self.atom_of, characters.near
        depths = characters.depth[places].tolist()
        one_of: list[int] = []
        children: list[dict[int, int]] = [{}]
        tokens: dict[int, list[int]] = {}
        partials: dict[int, list[tuple[int, int]]] = {}
        quotes: dict[int, list[int]] = {}
        for place, up, code, depth in zip(places, above, codes, depths, strict=True):
            siblings = children[one_of[up] if up >= 0 else 0]
            atom = atom_of[code]
            here = siblings.get(atom)
            if here is None:
                here = siblings[atom] = len(children)
                children.append({})
            one_of.append(here)
            if depth > near:
                ids = views.token_ids[views.own_start[place] : views.own_stop[place]]
                if len(ids):
                    tokens.setdefault(here, []).extend(ids)
                if place in characters.partials:
                    partials.setdefault(here, []).extend(characters.partials[place])
                quote = characters.quote_below(place)
                if quote >= 0:
                    quotes.setdefault(here, []).append(quote)
        characters.charge(150 * len(children) + 100 * len(tokens))
        pairs = [(*below.items(),) for below in children]
        ends = frozenset((*tokens, *partials, *quotes))
        # Tuples of numbers: unlike lists, the garbage collector soon leaves them alone.
        return LongTokens(
            pairs,
            ends,
            {node: (*ids,) for node, ids in tokens.items()},
            {node: (*ids,) for node, ids in partials.items()},
            {node: (*which,) for node, which in quotes.items()},
        )
