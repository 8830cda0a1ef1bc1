"""Answer from documents: find the passages by their meaning, and cite one of them word for word."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel

import structgen
from structgen import Generator, Quote

PASSAGES = [
    "The mill was built in 1832. Its wheel is made of oak.",
    "The bakery opens at seven. On Sundays it is closed.",
    "The bridge is 80 metres long. A storm destroyed it in 1953.",
    "The library lends books for four weeks. A card costs ten euros.",
]
QUESTIONS = ["When was the mill built?", "How much is a library card?"]


class Answer(BaseModel):
    quote: Annotated[str, Quote(source="found", unit="sentence", max=1)]


def main() -> None:
    embedder = structgen.load_embedder("all-minilm-l6-v2")
    generator = Generator(structgen.load("smollm2-135m-instruct"), Answer)
    vectors = embedder.embed(PASSAGES)
    for question in QUESTIONS:
        closeness = vectors @ embedder.embed(question)[0]
        found = "\n".join(PASSAGES[n] for n in closeness.argsort()[::-1][:2])
        prompt = f"{found}\n\nCopy the sentence that answers the question: {question}"
        answer = generator.parse(
            [{"role": "user", "content": prompt}], quote_from={"found": found}, max_new_tokens=60
        )
        print(
            question,
            f"{answer.quote}  [characters {answer.quote.start} to {answer.quote.end}]",
            sep="\n  ",
        )


if __name__ == "__main__":
    main()
