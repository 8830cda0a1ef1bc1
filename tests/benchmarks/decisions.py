"""What decisions cost: passes, tokens and processor time, against two other ways to ask.

    python tests/benchmarks/decisions.py [--states 100,500,2000] [--questions 1,5,20] [--repeat 2]

For states of so many tokens and so many questions (a third each of predicates, choices and scores):

- decisions: `Decider.decide`, whole labels to the bound.
- first token: the same prompts with the same shared reading, and of each the scores of the next
  token alone: the least that any way of asking costs, and what reads single-token labels only.
- generations: one masked generation a question, as for a user who asks question after question; the
  model keeps the beginning of the last prompt, so the state is read once there too.

- nothing kept: the same generations where each reads its whole prompt, as with a runtime that keeps
  no prefixes; timed once.

"tokens" are those that the model was run over, and "read whole" those of all prompts: what a
generation for each question reads where nothing is kept.

Times are processor time of this process, all threads together, the best of ``--repeat``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import structgen
from structgen.decisions import Choice, Decider, Predicate, Question, Score
from structgen.models.base import n_shared

MODEL = "smollm2-135m-instruct"
SENTENCE = "The customer writes that the parcel came late and that the lamp in it was broken. "
ASPECTS = (
    *("price", "delivery", "support", "quality", "packaging", "website", "refund", "manual"),
    *("colour", "size", "warranty", "courier", "invoice", "shop", "tone", "outcome", "delay"),
    *("damage", "reply", "brand"),
)


def questions(n: int) -> dict[str, Question]:
    found: dict[str, Question] = {}
    for i, aspect in enumerate(ASPECTS[:n]):
        if i % 3 == 0:
            found[aspect] = Predicate(f"Does the text mention the {aspect}?")
        elif i % 3 == 1:
            options = ["positive", "negative", "neutral"]
            found[aspect] = Choice(f"How is the {aspect} judged?", options)
        else:
            found[aspect] = Score(f"How much does the {aspect} matter?", ["little", "much"])
    return found


def spent(run: Callable[[], object], model: structgen.TextModel, repeat: int) -> float:
    """Processor time of a call that starts from nothing."""
    times = []
    for _ in range(repeat):
        model.sequences.clear()
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def first_tokens(decider: Decider, state: str, asked: dict[str, Question]) -> None:
    prompts = sorted(decider.prompt_ids(state, one).tolist() for one in asked.values())
    model = decider.model
    sequence = model.start(max(map(len, prompts)) + 2)
    for prompt in prompts:
        kept = 0
        if sequence.length:
            kept = min(n_shared(sequence.token_ids[0], prompt), len(prompt) - 2)
        sequence.rewind(kept)
        sequence.append(prompt[kept:])
        sequence.logits()
    sequence.close()


def generations(
    decider: Decider, state: str, asked: dict[str, Question], *, keeps: bool = True
) -> None:
    for question in asked.values():
        if not keeps:
            decider.model.sequences.clear()
        prompt = decider.template.prompt(state, question)
        before = decider.template.before_label
        decider.model(prompt, structgen.Choice([before + one.text for one in question.labels]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", default="100,500,2000")
    parser.add_argument("--questions", default="1,5,20")
    parser.add_argument("--repeat", type=int, default=2)
    given = parser.parse_args()
    model = structgen.load(MODEL)
    decider = Decider(model)
    columns = [
        *("state", "questions", "passes (for labels)", "tokens", "read whole", "decisions"),
        *("first token", "generations", "nothing kept", "to first token", "to generations"),
        "to nothing kept",
    ]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for n_tokens in map(int, given.states.split(",")):
        per_sentence = len(model.encode(SENTENCE))
        state = SENTENCE * max(round(n_tokens / per_sentence), 1)
        for n in map(int, given.questions.split(",")):
            asked = questions(n)
            decider.decide("warm up", asked)  # compiles the labels
            generations(decider, "warm up", asked)
            model.sequences.clear()
            usage = decider.decide(state, asked).usage
            whole_tokens = sum(len(decider.prompt_ids(state, one)) for one in asked.values())
            repeat = given.repeat
            ours = spent(lambda s=state, a=asked: decider.decide(s, a), model, repeat)
            first = spent(lambda s=state, a=asked: first_tokens(decider, s, a), model, repeat)
            whole = spent(lambda s=state, a=asked: generations(decider, s, a), model, repeat)
            bare = spent(lambda s=state, a=asked: generations(decider, s, a, keeps=False), model, 1)
            cells = [
                *(n_tokens, n, f"{usage.passes} ({usage.label_passes})"),
                *(f"{usage.run_tokens:,}", f"{whole_tokens:,}"),
                *(f"{one:.2f} s" for one in (ours, first, whole, bare)),
                *(f"{ours / one:.2f}" for one in (first, whole, bare)),
            ]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
