"""How good decisions by vectors are: without examples, and learned, beside chat models.

    python tests/benchmarks/decision_vectors.py vectors EMBEDDER [--sklearn]
    python tests/benchmarks/decision_vectors.py ask MODEL FILE [--items 100]
    python tests/benchmarks/decision_vectors.py asked FILE...
    python tests/benchmarks/decision_vectors.py beside EMBEDDER FILE

`vectors` prints a table of the five questions of tests/data/decisions.jsonl, of the three sets of
tests/data/decision_sets.py, and of the nine of decisions_by_kind.jsonl, on which sentences and
sharpness were chosen. For each: as it comes, and learned from 8 and 16 examples of each label (or
as many as leave a fifth for the test), the mean over 5 draws. With ``--sklearn`` also
scikit-learn's `LogisticRegressionCV` on the same vectors and draws. Times are processor time of
this process, all threads together.

`ask` asks a chat model the first ``--items`` of the five questions and of each of the three sets
and writes what it gave, line by line; run again, it goes on where it was stopped. `asked` makes a
table of such files. `beside` learns from a file of `ask` and the vectors of the same items, as
``Decider(model, embedder=…).fit`` does ("both"), and compares the chat model as it comes and with a
temperature and a bias for each label, and the embedder alone, on the same items.
"""

from __future__ import annotations

import argparse
import json
import runpy
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import structgen
from structgen.decisions import Decider, Predicate, Question, measured, questions_from_json
from structgen.decisions.calibration import fitted
from structgen.decisions.distributions import Distribution, softmax

DATA = Path(__file__).resolve().parents[1] / "data"
SETS = runpy.run_path(str(DATA / "decision_sets.py"))["SETS"]
N_DRAWS = 5
CRITERIA = {
    "true": {True: "a true statement, a fact", False: "a false statement, an error"},
    "hotel predicate": {True: "asks for money back", False: "asks for something else"},
    "changes predicate": {True: "has tests", False: "has no tests"},
    "city predicate": {True: "somebody was hurt", False: "nobody was hurt"},
}
"""What predicates of the older sets mean, which have none."""

Set = tuple[Question, list[str], list[int]]


def told(name: str, question: Question) -> Question:
    if not isinstance(question, Predicate):
        return question
    return Predicate(question.instructions, criteria=CRITERIA[name])


def indices(question: Question, answers: list[Any]) -> list[int]:
    """Which label each answer is: a value, or a text."""
    values = {label.value: i for i, label in enumerate(question.labels)}
    texts = {label.text: i for i, label in enumerate(question.labels)}
    return [texts[one] if isinstance(one, str) else values[one] for one in answers]


def all_sets() -> dict[str, Set]:
    found: dict[str, Set] = {}
    questions = runpy.run_path(str(DATA / "make_decisions.py"))["QUESTIONS"]
    lines = [json.loads(line) for line in (DATA / "decisions.jsonl").open(encoding="utf-8")]
    for name, question in questions.items():
        mine = [line for line in lines if line["question"] == name]
        right = indices(question, [one["answer"] for one in mine])
        found[name] = told(name, question), [one["state"] for one in mine], right
    for name, (question, items) in SETS.items():
        right = indices(question, [one.answer for one in items])
        found[name] = question, [one.text for one in items], right
    lines = [json.loads(line) for line in (DATA / "decisions_by_kind.jsonl").open(encoding="utf-8")]
    for asked in (line for line in lines if "questions" in line):
        mine = [one for one in lines if one["domain"] == asked["domain"] and "state" in one]
        for kind, question in questions_from_json(asked["questions"]).items():
            name = f"{asked['domain']} {kind}"
            right = indices(question, [one[kind] for one in mine])
            found[name] = told(name, question), [one["state"] for one in mine], right
    return found


def probabilities(decider: Decider, question: Question, states: list[str]) -> Any:
    answers = decider.decide_batch(states, {"q": question})
    return np.array([one["q"].label_probabilities for one in answers])


def draws(right: np.ndarray, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Examples to learn from, ``n`` of each label at most, and the others."""
    counts = np.bincount(right)
    chance = np.random.default_rng(0)
    found = []
    for _ in range(N_DRAWS):
        learned = np.concatenate([
            chance.permutation(np.flatnonzero(right == label))[: min(n, count * 4 // 5)]
            for label, count in enumerate(counts)
        ])  # fmt: skip
        found.append((learned, np.setdiff1d(np.arange(len(right)), learned)))
    return found


def cell(found: list[Any]) -> str:
    numbers = np.mean([(one.accuracy, one.brier, one.ece) for one in found], axis=0)
    return " / ".join(f"{number:.2f}" for number in numbers)


class Remembers:
    """An embedder that makes each vector once."""

    def __init__(self, embedder: Any) -> None:
        self.embedder, self.known, self.own = embedder, {}, embedder.result

    def __call__(self, text: Any, **options: Any) -> Any:
        if not isinstance(text, str):
            return self.own(text, **options)
        if text not in self.known:
            self.known[text] = self.own(text, **options)
        return self.known[text]


def vectors(name: str, *, has_sklearn: bool) -> None:
    embedder = structgen.load_embedder(name)
    embedder.result = Remembers(embedder)  # type: ignore[method-assign]
    decider = Decider(embedder, warn=False)
    head = ["none", "8", "16", *(["16, scikit-learn"] if has_sklearn else [])]
    print(f"| question | labels | {' | '.join(head)} | s a fit |\n{'|---' * (len(head) + 3)}|")
    for set_name, (question, states, answers) in all_sets().items():
        right = np.array(answers)
        cells = [cell([measured(probabilities(decider, question, states), answers)])]
        spent = 0.0
        others = []
        for n in (8, 16):
            if min(np.bincount(right)) * 4 // 5 < 8:
                cells.append("–")
                continue
            made = []
            for learned, rest in draws(right, n):
                examples = [(states[i], question.labels[right[i]].value) for i in learned]
                began = time.process_time()
                fitted = decider.fit(question, examples)
                spent = time.process_time() - began
                given = probabilities(fitted, question, [states[i] for i in rest])
                made.append(measured(given, right[rest].tolist()))
                if has_sklearn and n == 16:
                    others.append(by_sklearn(embedder, states, right, learned, rest))
            cells.append(cell(made))
        if has_sklearn:
            cells.append(cell(others) if others else "–")
        row = f"| {set_name} | {len(question.labels)} | {' | '.join(cells)} | {spent:.1f} |"
        print(row, flush=True)


def by_sklearn(embedder: Any, states: list[str], right: Any, learned: Any, rest: Any) -> Any:
    from sklearn.linear_model import LogisticRegressionCV  # type: ignore[import-not-found]

    known = np.array([embedder.result(state).vectors[0] for state in states])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegressionCV(
            Cs=[1 / one for one in (30, 10, 3, 1, 0.3, 0.1, 0.03)],
            cv=5,
            scoring="neg_log_loss",
            max_iter=500,
        ).fit(known[learned], right[learned])
    return measured(model.predict_proba(known[rest]), right[rest].tolist())


def ask(name: str, file: Path, n_items: int) -> None:
    decider = Decider(name, warn=False)
    sets = {name: one for name, one in all_sets().items() if " " not in name}
    known = set()
    if file.exists():
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        known = {(line["set"], line["text"]) for line in lines}
    with file.open("a", encoding="utf-8") as out:
        for at in range(n_items):
            for set_name, (question, states, right) in sets.items():
                if at >= len(states) or (set_name, states[at]) in known:
                    continue
                began = time.process_time()
                answer = decider.decide(states[at], {"q": question})["q"]
                line = {
                    "set": set_name,
                    "text": states[at],
                    "right": right[at],
                    "given": answer.label_probabilities,
                    "seconds": round(time.process_time() - began, 3),
                }
                print(json.dumps(line), file=out, flush=True)


def asked(files: list[Path]) -> None:
    for file in files:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for name in dict.fromkeys(line["set"] for line in lines):
            mine = [line for line in lines if line["set"] == name]
            made = measured(
                [np.array(one["given"]) for one in mine], [one["right"] for one in mine]
            )
            seconds = np.median([one["seconds"] for one in mine])
            print(f"{file.stem} {name}: {cell([made])} of {len(mine)}, {seconds:.2f} s a question")


def beside(name: str, file: Path) -> None:
    embedder = structgen.load_embedder(name)
    embedder.result = Remembers(embedder)  # type: ignore[method-assign]
    decider = Decider(embedder, warn=False)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    head = "model | model, 16 | embedder | embedder, 16 | both, 8 | both, 16"
    print(f"| question | items | {head} | s a question |\n{'|---' * 9}|")
    for set_name, (question, states, answers) in all_sets().items():
        known = {line["text"]: line for line in lines if line["set"] == set_name}
        at = [i for i, state in enumerate(states) if state in known]
        if not at:
            continue
        texts, right = [states[i] for i in at], np.array(answers)[at]
        vectors = np.array([embedder.result(text).vectors[0] for text in texts], float)
        by_model = np.array([known[text]["given"] for text in texts])
        by_embedder = probabilities(decider, question, texts)
        cells = [
            cell([measured(by_model, right.tolist())]),
            learned_from(by_model, vectors[:, :0], right, 16),
            cell([measured(by_embedder, right.tolist())]),
            learned_from(by_embedder, vectors, right, 16),
            learned_from(by_model, vectors, right, 8),
            learned_from(by_model, vectors, right, 16),
        ]
        seconds = np.median([known[text]["seconds"] for text in texts])
        print(f"| {set_name} | {len(at)} | {' | '.join(cells)} | {seconds:.2f} |", flush=True)


def learned_from(given: Any, vectors: Any, right: Any, n: int) -> str:
    """What is learned of ``n`` examples of each label, of the vectors too if they have numbers."""
    found = []
    for learned, rest in draws(right, n):
        told = [Distribution(one, one, one, 1.0) for one in given]
        fit, _, _ = fitted(
            [told[i] for i in learned],
            right[learned].tolist(),
            has_bias=True,
            vectors=vectors[learned] if vectors.shape[1] else None,
        )
        scores = fit.scores(np.array([told[i].logs for i in rest]), vectors[rest])
        found.append(measured(softmax(scores), right[rest].tolist()))
    return cell(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("vectors")
    measuring.add_argument("embedder")
    measuring.add_argument("--sklearn", action="store_true")
    asking = commands.add_parser("ask")
    asking.add_argument("model")
    asking.add_argument("file", type=Path)
    asking.add_argument("--items", type=int, default=100)
    showing = commands.add_parser("asked")
    showing.add_argument("files", type=Path, nargs="+")
    learning = commands.add_parser("beside")
    learning.add_argument("embedder")
    learning.add_argument("file", type=Path)
    given = parser.parse_args()
    if given.command == "vectors":
        vectors(given.embedder, has_sklearn=given.sklearn)
    elif given.command == "beside":
        beside(given.embedder, given.file)
    elif given.command == "ask":
        ask(given.model, given.file, given.items)
    else:
        asked(given.files)


if __name__ == "__main__":
    main()
