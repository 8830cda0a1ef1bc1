"""The engine without any model: which tokens may come next, and which must?

This is what to build on to use structgen's masks in another runtime.
"""

from __future__ import annotations

import numpy as np

import structgen
from structgen import JsonSchema, Vocabulary

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "capital": {"type": "boolean"}},
    "required": ["city", "capital"],
    "additionalProperties": False,
}


def main() -> None:
    vocabulary = Vocabulary.from_tokenizer_json(structgen.models.path("smollm2-135m-instruct"))
    constraint = structgen.compile(JsonSchema(SCHEMA), vocabulary)
    cursor = constraint.start()
    mask = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    for piece in ('{"', "city", '":"', "London"):
        cursor.fill_mask(mask)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        token_id = vocabulary.tokens.index(piece.encode())
        print(f"{bits.sum():>6} tokens allowed, {piece!r} is one of them: {bool(bits[token_id])}")
        cursor.accept(token_id)
    print(f"at least {cursor.min_tokens_to_finish()} more tokens to finish")


if __name__ == "__main__":
    main()
