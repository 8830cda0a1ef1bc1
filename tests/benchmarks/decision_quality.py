"""How good decisions are: accuracy, Brier score and calibration error, by seven ways to decide.

    python tests/benchmarks/decision_quality.py measure MODEL FILE
    python tests/benchmarks/decision_quality.py table FILE... [--plots FOLDER]
    python tests/benchmarks/decision_quality.py kinds MODEL FILE
    python tests/benchmarks/decision_quality.py kinds-table FILE...

`measure` asks a model the 300 items of tests/data/decisions.jsonl and writes what it gave each,
line by line; run again, it goes on where it was stopped. `table` makes of such files the tables
and reliability diagrams of docs/decision-quality.md:

- free text: the model writes what it likes, greedily, and the first label in it counts.
- masked: the same, and a mask lets it write labels only.
- first letter: options are told as A, B, C, and the scores of the next token are read: what
  servers do that read one token.
- whole labels: `Decider`, with ``debias`` none, prior and orders; and each of these calibrated,
  with a temperature, and with a bias for each label too.

`kinds` asks the 900 questions of tests/data/decisions_by_kind.jsonl (three domains of 100 states,
of each a predicate, a choice and a score), and `kinds-table` compares, by kind of question, what
an answer may be divided by: nothing; the answer to `N/A` (``prior``); to three texts without
content (contextual calibration, Zhao et al., 2021); to random words of the domain's states, or of
the question (Fei et al., 2023); the mean answer to the states seen (batch calibration, Zhou et al.,
2023).

Of the first two there is no probability: the label that was written counts as 1. What is calibrated
was fitted, for each question, on the half that an item does not belong to. Intervals are of 95%, by
2,000 resamples of the items.
"""

from __future__ import annotations

import argparse
import json
import random
import runpy
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import structgen
from structgen.decisions import (
    CHAT,
    Choice,
    Decider,
    Question,
    Score,
    measured,
    questions_from_json,
)
from structgen.decisions.calibration import fitted, reliability_diagram
from structgen.decisions.distributions import Distribution, rescaled, without_prior

DATA = Path(__file__).resolve().parents[1] / "data"
QUESTIONS: dict[str, Question] = runpy.run_path(str(DATA / "make_decisions.py"))["QUESTIONS"]
ITEMS = DATA / "decisions.jsonl"
ITEMS_BY_KIND = DATA / "decisions_by_kind.jsonl"
CONTENT_FREE = [CHAT.no_state, "", "[MASK]"]
N_RANDOM_TEXTS = 10
WORDS_A_TEXT = 16
KINDS = ["predicate", "choice", "score"]
LETTERS = "ABCD"
ORDERS = 4
N_RESAMPLES = 2000


def orders(question: Question) -> list[list[int]]:
    """The orders in which labels are told, for the mean over them."""
    n = len(question.labels)
    if isinstance(question, Score):
        return [list(range(n)), list(range(n))[::-1]]
    count = min(ORDERS, n)
    return [[(start + i) % n for i in range(n)] for start in (i * n // count for i in range(count))]


def told(question: Question, order: Iterable[int]) -> Question:
    """The question with its labels in this order."""
    labels = [question.labels[i] for i in order]
    options = {label.text: label.description for label in labels}
    kind = Score if isinstance(question, Score) else Choice
    return kind(question.instructions, options)


def lettered(question: Question) -> Question:
    """The question with letters for its labels."""
    return Choice(
        question.instructions,
        {
            letter: label.text
            if label.description is None
            else f"{label.text}: {label.description}"
            for letter, label in zip(LETTERS, question.labels, strict=False)
        },
    )


def written_label(text: str, labels: list[str]) -> int | None:
    """Which label a free text means: the one that comes first in it, the longest of several."""
    found = [(text.lower().find(label.lower()), -len(label), i) for i, label in enumerate(labels)]
    found = [one for one in found if one[0] >= 0]
    return min(found)[2] if found else None


def read(distribution: Any, order: Iterable[int]) -> list[float]:
    """Probabilities in the question's own order."""
    values = [0.0] * len(distribution)
    for place, i in enumerate(order):
        values[i] = distribution[place]
    return values


def measure(model_name: str, target: Path) -> None:
    where: Any = Path(model_name) if "/" in model_name else model_name
    model = structgen.load(where)
    decider = Decider(model, debias="none")  # the prior is divided by in the tables
    letters = Decider(model, debias="none", template=replace(CHAT, option="{label}. {description}"))
    items = [json.loads(line) for line in ITEMS.read_text(encoding="utf-8").splitlines()]
    random.Random(0).shuffle(items)  # so that what is there of a run that was stopped is balanced
    known = {}
    if target.exists():
        lines = map(json.loads, target.read_text(encoding="utf-8").splitlines())
        known = {(line["question"], line["state"]) for line in lines}
    free = structgen.Generator(model)
    masked = {
        name: structgen.Generator(
            model, structgen.Choice([CHAT.before_label + one.text for one in question.labels])
        )
        for name, question in QUESTIONS.items()
    }
    with target.open("a", encoding="utf-8") as file:
        for item in items:
            if (item["question"], item["state"]) in known:
                continue
            began = time.process_time()
            question, state = QUESTIONS[item["question"]], item["state"]
            labels = [label.text for label in question.labels]
            ways = orders(question)
            asked = {str(i): told(question, order) for i, order in enumerate(ways)}
            answers = decider.decide(state, asked)
            passes = answers.usage.passes
            prior = decider.decide(CHAT.no_state, {"0": asked["0"]})["0"]
            letter = letters.decide(state, {"0": lettered(question)})["0"]
            prompt = CHAT.prompt(state, question)
            text = free(prompt, max_new_tokens=8)
            word = masked[item["question"]](prompt, max_new_tokens=16)
            right = [i for i, one in enumerate(question.labels) if _is(one, item["answer"])]
            line = {
                **item,
                "right": right[0],
                "orders": [
                    read(answers[str(i)].label_probabilities, order) for i, order in enumerate(ways)
                ],
                "mass": answers["0"].mass,
                "passes": passes,
                "prior": prior.label_probabilities,
                "letter": letter.label_probabilities,
                "free": written_label(text, labels),
                "masked": labels.index(word.strip()),
                "seconds": round(time.process_time() - began, 2),
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()


def _is(label: Any, answer: Any) -> bool:
    return label.text == answer or label.value is answer


# -- by kind of question ----------------------------------------------------------------------


def random_texts(words: list[str]) -> list[str]:
    chance = random.Random(0)
    return [" ".join(chance.choices(words, k=WORDS_A_TEXT)) for _ in range(N_RANDOM_TEXTS)]


def kinds(model_name: str, target: Path) -> None:
    model = structgen.load(Path(model_name) if "/" in model_name else model_name)
    decider = Decider(model, debias="none")
    items = [json.loads(line) for line in ITEMS_BY_KIND.read_text(encoding="utf-8").splitlines()]
    questions = {
        one["domain"]: questions_from_json(one["questions"]) for one in items if "questions" in one
    }
    states = {
        domain: [one for one in items if one["domain"] == domain and "state" in one]
        for domain in questions
    }
    for some in states.values():
        random.Random(0).shuffle(some)

    def ask(state: str, asked: Mapping[str, Question]) -> dict[str, list[float]]:
        answers = decider.decide(state, asked)
        return {
            kind: [round(one, 5) for one in answers[kind].label_probabilities] for kind in asked
        }

    def without_state(domain: str) -> dict[str, Any]:
        asked = questions[domain]
        words = " ".join(one.get("state", "") for one in items if one["domain"] == domain).split()
        texts = {f"content-free {i}": text for i, text in enumerate(CONTENT_FREE)}
        texts |= {f"states {i}": text for i, text in enumerate(random_texts(words))}
        found = {name: ask(text, asked) for name, text in texts.items()}
        for kind, question in asked.items():  # each question has words of its own
            labels = [f"{one.text} {one.description or ''}" for one in question.labels]
            words = " ".join([question.instructions, *labels]).split()
            for i, text in enumerate(random_texts(words)):
                found.setdefault(f"question {i}", {}).update(ask(text, {kind: question}))
        return found

    known = set()
    if target.exists():
        lines = map(json.loads, target.read_text(encoding="utf-8").splitlines())
        known = {(line["domain"], line["item"]) for line in lines}
    with target.open("a", encoding="utf-8") as file:
        for item in (None, *range(100)):  # so that what is there of a stopped run is balanced
            for domain, asked in questions.items():
                if (domain, item) in known:
                    continue
                line: dict[str, Any] = {"domain": domain, "item": item}
                if item is None:
                    line["without"] = without_state(domain)
                else:
                    one = states[domain][item]
                    line["right"] = {
                        kind: [label.value for label in question.labels].index(one[kind])
                        for kind, question in asked.items()
                    }
                    line["given"] = ask(one["state"], asked)
                print(json.dumps(line), file=file, flush=True)


PRIORS = {
    "none": None,
    "`prior`": "content-free 0",
    "`contextual`": "content-free",
    "words of the question": "question",
    "words of the states": "states",
    "batch of 100": "",
    "batches of 10": "",
}
"""Each way's prior, by what the names of its texts begin with; of batches it is the mean answer."""


def kinds_table(files: list[Path]) -> None:
    for file in files:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        without = {line["domain"]: line["without"] for line in lines if "without" in line}
        print(f"\n{file.stem}: {len(lines) - len(without)} states")
        print("| divided by |" + "".join(f" {k} | Brier | one answer |" for k in KINDS))
        print("|---" * (1 + 3 * len(KINDS)) + "|")
        for way, begins in PRIORS.items():
            cells = []
            for kind in KINDS:
                hits: list[float] = []
                briers: list[float] = []
                shares: list[float] = []
                for domain, of_none in without.items():
                    mine = [one for one in lines if one["domain"] == domain and "given" in one]
                    given = np.array([one["given"][kind] for one in mine])
                    right = [one["right"][kind] for one in mine]
                    texts = [
                        one[kind] for name, one in of_none.items() if name.startswith(begins or "-")
                    ]
                    size = 10 if way == "batches of 10" else len(mine)
                    found = []
                    for at in range(0, len(mine), size):
                        some = given[at : at + size]
                        prior = (
                            some.mean(axis=0) if begins == "" else np.mean(texts or [1.0], axis=0)
                        )
                        divide = None if begins is None else exact(prior)
                        found += [
                            exact(one) if divide is None else without_prior(exact(one), divide)
                            for one in some
                        ]
                    best = [int(one.values.argmax()) for one in found]
                    hits += [float(a == b) for a, b in zip(best, right, strict=True)]
                    briers += [
                        float((one.values**2).sum() - 2 * one.values[r] + 1)
                        for one, r in zip(found, right, strict=True)
                    ]
                    shares.append(max(np.bincount(best)) / len(best))
                samples = np.random.default_rng(0).integers(0, len(hits), (N_RESAMPLES, len(hits)))
                cells += [
                    f"{np.mean(hits):.2f} ({interval(np.array(hits), samples)})",
                    f"{np.mean(briers):.2f}",
                    f"{np.mean(shares):.2f}",
                ]
            print(f"| {way} | {' | '.join(cells)} |")
        for domain in without:
            mine = [one for one in lines if one["domain"] == domain and "given" in one]
            yes = [one["given"]["predicate"][0] for one in mine if one["right"]["predicate"] == 0]
            no = [one["given"]["predicate"][0] for one in mine if one["right"]["predicate"] == 1]
            pairs = [(a > b) + (a == b) / 2 for a in yes for b in no]
            print(f"{domain}: AUC of the predicate {np.mean(pairs):.2f}")


# -- tables -----------------------------------------------------------------------------------


def exact(values: Any) -> Distribution:
    array = np.array(values)
    return Distribution(array, array, array, 1.0)


def sure_of(index: int | None, n: int) -> Distribution:
    values = np.zeros(n)
    if index is not None:
        values[index] = 1.0
    else:
        values[:] = 1 / n  # nothing was said
    return exact(values)


def by_method(lines: list[dict[str, Any]]) -> dict[str, list[Distribution]]:
    """What each method gives each item."""
    none = [exact(line["orders"][0]) for line in lines]
    prior = [exact(line["prior"]) for line in lines]
    found = {
        "free text": [sure_of(line["free"], len(line["prior"])) for line in lines],
        "masked": [sure_of(line["masked"], len(line["prior"])) for line in lines],
        "first letter": [exact(line["letter"]) for line in lines],
        "whole labels": none,
        "… `prior`": [without_prior(a, b) for a, b in zip(none, prior, strict=True)],
        "… `orders`": [exact(np.mean(line["orders"], axis=0)) for line in lines],
    }
    for name in ("first letter", "whole labels", "… `prior`", "… `orders`"):
        found[f"{name}, calibrated"] = calibrated(lines, found[name], has_bias=False)
        found[f"{name}, with bias"] = calibrated(lines, found[name], has_bias=True)
    return found


def calibrated(
    lines: list[dict[str, Any]], given: list[Distribution], *, has_bias: bool
) -> list[Distribution]:
    found = list(given)
    for question in QUESTIONS:
        for half in ("fit", "held out"):
            mine = [i for i, one in enumerate(lines) if one["question"] == question]
            known = [i for i in mine if lines[i]["half"] != half]
            new = [i for i in mine if lines[i]["half"] == half]
            right = [lines[i]["right"] for i in known]
            slope, bias, _, _ = fitted([given[i] for i in known], right, has_bias=has_bias)
            for i in new:
                found[i] = rescaled(given[i], slope, bias)
    return found


def table(files: list[Path], plots: Path | None) -> None:
    for file in files:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        right = [line["right"] for line in lines]
        print(f"\n{file.stem}: {len(lines)} items, {sum(one['seconds'] for one in lines):,.0f} s")
        kinds = ["all", "plain", "hard", *QUESTIONS]
        print(f"| method | accuracy | Brier | ECE | {' | '.join(kinds[1:])} |")
        print("|---" * (len(kinds) + 3) + "|")
        methods = by_method(lines)
        chance = np.random.default_rng(0)
        samples = chance.integers(0, len(lines), (N_RESAMPLES, len(lines)))
        for name, given in methods.items():
            metrics = measured([one.values for one in given], right)
            pairs = list(zip(given, right, strict=True))
            hits = np.array([float(one.values.argmax() == r) for one, r in pairs])
            hits *= [float(np.ptp(one.values) > 0) for one in given]  # nothing said is wrong
            briers = np.array(
                [float((one.values**2).sum() - 2 * one.values[r] + 1) for one, r in pairs]
            )
            shares = [
                hits[[i for i, one in enumerate(lines) if kind in (one["kind"], one["question"])]]
                for kind in kinds[1:]
            ]
            cells = [
                f"{hits.mean():.2f} ({interval(hits, samples)})",
                f"{metrics.brier:.2f} ({interval(briers, samples)})",
                f"{metrics.ece:.2f}",
                *(f"{share.mean():.2f}" for share in shares),
            ]
            print(f"| {name} | {' | '.join(cells)} |")
        if plots is not None:
            names = ["first letter", "whole labels", "… `prior`", "… `prior`, calibrated"]
            drawn = {
                name.replace("…", "whole labels,").replace("`", ""): measured(
                    [one.values for one in methods[name]], right
                )
                for name in names
            }
            reliability_diagram(drawn, plots / f"reliability-{file.stem}.png")


def interval(values: Any, samples: Any) -> str:
    low, high = np.percentile(values[samples].mean(axis=1), [2.5, 97.5])
    return f"{low:.2f}–{high:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("model")
    measuring.add_argument("file", type=Path)
    showing = commands.add_parser("table")
    showing.add_argument("files", type=Path, nargs="+")
    showing.add_argument("--plots", type=Path)
    asking = commands.add_parser("kinds")
    asking.add_argument("model")
    asking.add_argument("file", type=Path)
    comparing = commands.add_parser("kinds-table")
    comparing.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "measure":
        measure(given.model, given.file)
    elif given.command == "kinds":
        kinds(given.model, given.file)
    elif given.command == "kinds-table":
        kinds_table(given.files)
    else:
        table(given.files, given.plots)


if __name__ == "__main__":
    main()
