"""Probabilities of labels by another way: whole token sequences, each run through the model.

As a script it compares random sets of labels, of words and of hard cases:

    python tests/decisions/teacher_forced.py [HOW MANY SETS [THE FIRST]]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np

WORDS = (
    *("yes", "no", "maybe", "billing", "bill", "tech", "technical", "other", "none", "refund"),
    *("red", "reddish", "blue", "green", "calm", "angry", "furious", "1", "2", "10", "12", "100"),
    *("Zürich", "zu spät", "naïve", "日本", "да", "C", "C++", "C#", "not sure", "not", "a b"),
)
LEAST = 1e-9
"""What begins with less is counted as lost, and how much that was is told."""


def spellings(text: bytes, by_bytes: dict[bytes, list[int]], longest: int):
    """All token sequences that spell ``text``."""
    if not text:
        yield ()
        return
    for n in range(1, min(longest, len(text)) + 1):
        for token_id in by_bytes.get(text[:n], ()):
            for rest in spellings(text[n:], by_bytes, longest):
                yield (token_id, *rest)


def masses(model, prompt_ids, texts, ends, *, only_likely=False):
    """The mass of each text, summed over all that spells it, and what was left out.

    A text that is the beginning of another counts where the end of the output or one of ``ends``
    follows. ``only_likely``: sequences of which the beginning has less than `LEAST` are left out.
    """
    tokens = model.vocabulary.tokens
    by_bytes: dict[bytes, list[int]] = {}
    for token_id, token in enumerate(tokens):
        if token:
            by_bytes.setdefault(token, []).append(token_id)
    longest = max(map(len, by_bytes))
    sequence = model.start(model.context_length)
    sequence.append(prompt_ids)
    start = sequence.length

    def probability(spelt):
        """Of a sequence after the prompt, from one pass over it all."""
        sequence.rewind(start - 1)
        sequence.append([int(prompt_ids[-1]), *spelt])
        scores = sequence.recent_logits(len(spelt) + 1).astype(np.float64)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return float(np.prod(weights[range(len(spelt)), list(spelt)])), weights[-1]

    found, lost = [], 0.0
    begun: dict[tuple[int, ...], float] = {}
    for text in texts:
        total = 0.0
        is_extended = any(other != text and other.startswith(text) for other in texts)
        for spelt in spellings(text.encode(), by_bytes, longest):
            if only_likely:
                unlikely = False
                for n in range(1, len(spelt)):
                    if spelt[:n] not in begun:
                        begun[spelt[:n]] = probability(spelt[:n])[0]
                    if begun[spelt[:n]] < LEAST:
                        unlikely = True
                        break
                if unlikely:
                    lost += LEAST
                    continue
            p, after = probability(spelt)
            if is_extended:
                over = sum(float(after[i]) for i in model.vocabulary.eos_token_ids)
                for end in ends:  # of one byte each: one token
                    over += sum(float(after[i]) for i in by_bytes.get(end.encode(), ()))
                p *= over
            total += p
        found.append(total)
    sequence.close()
    return np.array(found), lost


def random_labels(seed: int) -> list[str]:
    chance = random.Random(seed)
    labels = set(chance.sample(WORDS, chance.randint(2, 5)))
    if chance.random() < 0.3:
        word = chance.choice(sorted(labels))
        labels.add(word + chance.choice(["s", " too", "2"]))
    return sorted(labels)


def main(n_sets: int = 100, first: int = 0) -> None:
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]
    import structgen
    from structgen.decisions import Choice, Decider

    model = structgen.load("smollm2-135m-instruct")
    decider = Decider(model, debias="none")
    worst = 0.0
    for seed in range(first, n_sets + 1):
        labels = random_labels(seed)
        if seed == n_sets:
            labels = [str(i) for i in range(1, 256)]
        question = Choice("Which word fits best?", labels)
        state = random.Random(seed).choice(
            ["I was charged twice.", "The sky over Zürich.", "3 + 9"]
        )
        answer = decider.decide(state, {"q": question})["q"]
        prompt_ids = decider.prompt_ids(state, question)
        texts = [decider.template.before_label + label for label in labels]
        exact, lost = masses(model, prompt_ids, texts, decider.template.ends, only_likely=True)
        off = np.abs(exact / exact.sum() - np.array(answer.label_probabilities)).max()
        slack = lost / exact.sum() + 1e-5
        assert off <= answer.error_bound + slack, (labels, off, answer.error_bound, slack)
        worst = max(worst, off)
        bound = answer.error_bound
        print(f"{seed:3} {len(labels)} labels, off {off:.5f}, bound {bound:.5f}", flush=True)
    print(
        f"{n_sets - first} sets of labels, and 255 numbers: at most {worst:.5f} off, each within "
        "its bound"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
