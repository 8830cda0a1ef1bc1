"""The logits processor of llama-cpp-python, on a tiny random GGUF; and its errors without one.

What needs the real package is skipped where that is not installed: it is compiled when installed.
"""

from __future__ import annotations

import numpy as np
import pytest
from doc_blocks import run
from engine.walks import EOS, TINY, allowed

import structgen
from structgen import JsonSchema
from structgen.errors import CompileLimitExceeded, VocabularyError
from structgen.integrations.llama_cpp import StructgenLogitsProcessor, vocabulary

SCHEMA = JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


def test_scores_are_masked_and_prompts_are_not_read():
    constraint = structgen.compile(["abc", "b"], TINY)
    processor = StructgenLogitsProcessor(constraint)
    scores = np.zeros(TINY.size + 3, np.single)
    found = processor(np.array([8, 9, EOS], np.intc), scores)
    assert np.flatnonzero(found == 0).tolist() == allowed(constraint.start())
    assert not scores.any()
    assert not processor.stop(np.array([1], np.intc), scores)


def test_what_goes_wrong_is_raised_by_the_criterion():
    """llama.cpp drops what its callbacks raise."""
    processor = StructgenLogitsProcessor(structgen.compile(["abc"], TINY))
    scores = np.zeros(10, np.single)
    ids = np.array([8], np.intc)
    wide = np.zeros(TINY.size, np.single)
    processor(ids, wide)
    a = TINY.tokens.index(b"x")
    found = processor(np.array([8, a], np.intc), wide)
    assert set(np.flatnonzero(found > -np.inf)) == set(TINY.eos_token_ids)
    with pytest.raises(structgen.errors.TokenNotAllowed, match="without the mask"):
        processor.stop(ids, scores)
    processor(ids, wide)  # another call
    assert not processor.stop(ids, wide)


@pytest.fixture(scope="module", params=["byte_level", "sentencepiece"])
def llama(request, tmp_path_factory):
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    tiny = pytest.importorskip("models.tiny_gguf")
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tokenizer = getattr(tiny, f"{request.param}_tokenizer")()
    lengths = {"rope.dimension_count": tiny.HEAD, "attention.value_length": tiny.HEAD}
    tiny.write(path, tokenizer=tokenizer, metadata=lengths)
    return llama_cpp.Llama(str(path), verbose=False, n_ctx=128, seed=3)


def answer(llama, processor, prompt, **options):
    import llama_cpp

    made = llama(
        prompt,
        logits_processor=llama_cpp.LogitsProcessorList([processor]),
        stopping_criteria=llama_cpp.StoppingCriteriaList([processor.stop]),
        **options,
    )
    return made["choices"][0]


def test_the_vocabulary_spells_what_llama_cpp_does(llama):
    words = vocabulary(llama)
    assert words.size == llama.n_vocab()
    assert llama.token_eos() in words.eos_token_ids
    for text in ("the cat", ' {"a": 1}', "é 漢"):
        ids = llama.tokenize(text.encode(), add_bos=False)
        assert b"".join(words.tokens[i] for i in ids).strip() == text.encode().strip()
    for token in range(words.size):
        if words.tokens[token] and token not in words.special_token_ids:
            assert words.tokens[token] == llama.detokenize([token])


def test_outputs_are_whole(llama):
    constraint = structgen.compile(SCHEMA, vocabulary(llama))
    processor = StructgenLogitsProcessor(constraint, max_tokens=60)
    for temperature in (0.0, 1.0, 1.0):
        found = answer(llama, processor, "the cat", max_tokens=60, temperature=temperature)
        assert found["finish_reason"] == "stop"
        assert constraint.allows(found["text"]), found
    tea = structgen.compile(["tea", "coffee"], vocabulary(llama))
    for _ in range(3):
        found = answer(llama, StructgenLogitsProcessor(tea), "a", temperature=1.5)
        assert found["text"] in ("tea", "coffee")


def test_the_block_of_the_documents(llama, capsys):
    page = "docs/integrations.md"
    names: dict[str, object] = {}
    run(page, "class Landmark", names)
    ours = {'"model.gguf"': f"{llama.model_path!r}, verbose=False, n_ctx=256"}
    run(page, "from structgen.integrations.llama_cpp import", names, ours)
    assert "height_m=" in capsys.readouterr().out


def test_errors_reach_the_caller(llama):
    wide = structgen.compile(SCHEMA, TINY)
    if TINY.size > llama.n_vocab():
        with pytest.raises(VocabularyError, match="the model has"):
            answer(llama, StructgenLogitsProcessor(wide), "a")
    constraint = structgen.compile(SCHEMA, vocabulary(llama))
    processor = StructgenLogitsProcessor(constraint)

    def refuse(*_):
        raise CompileLimitExceeded("too much", limit=1, actual=2)

    processor.sequences.masks = refuse
    with pytest.raises(CompileLimitExceeded):
        answer(llama, processor, "a")
