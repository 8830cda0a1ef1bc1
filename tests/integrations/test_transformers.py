"""The logits processor in Transformers' own ``generate``, on a tiny random Llama.

Skipped where transformers and torch are not installed: they take gigabytes. On a machine with CUDA
the same tests run there too.
"""

from __future__ import annotations

import pytest
import real_tokenizers
from doc_blocks import run

import structgen
from structgen import JsonSchema, OptionError, Regex
from structgen.errors import TokenNotAllowed, VocabularyError

torch = pytest.importorskip("torch", reason="transformers and torch are not installed")
transformers = pytest.importorskip("transformers")
adapter = pytest.importorskip("structgen.integrations.transformers")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SCHEMA = JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
)


@pytest.fixture(scope="module")
def tokenizer():
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(real_tokenizers.path("smollm2")),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    made.padding_side = "left"
    return made


@pytest.fixture(scope="module", params=DEVICES)
def model(request, tokenizer):
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer) + 77,  # wider than the tokenizer, as many models are
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return transformers.LlamaForCausalLM(config).eval().to(request.param)


@pytest.fixture(scope="module")
def words(tokenizer, model):
    return adapter.vocabulary(tokenizer, model)


def outputs(model, tokenizer, prompts, processor, **options):
    inputs = tokenizer(prompts, return_tensors="pt", padding=True).to(model.device)
    ids = model.generate(**inputs, logits_processor=[processor], **options)
    new = ids[:, inputs["input_ids"].shape[1] :]
    return tokenizer.batch_decode(new, skip_special_tokens=True)


def test_the_vocabulary_is_as_wide_as_the_logits(words, model, tokenizer):
    assert words.size == model.config.vocab_size
    assert words.eos_token_ids == (tokenizer.eos_token_id,)
    with pytest.raises(VocabularyError, match=r"takes a tokenizers.Tokenizer, got object"):
        adapter.vocabulary(object())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_batches_of_different_prompts_and_types(model, tokenizer, words, dtype):
    types = [SCHEMA, ["tea", "coffee"], Regex("[A-Z]{3}-[0-9]{2}")]
    constraints = [structgen.compile(one, words) for one in types]
    processor = adapter.StructgenLogitsProcessor(constraints, max_tokens=60)
    prompts = ["A person:", "What is there to drink, on a long and cold day like this one?", "Id"]
    model.to(getattr(torch, dtype))
    try:
        for sampled in (False, True):
            found = outputs(
                model, tokenizer, prompts, processor, max_new_tokens=60, do_sample=sampled
            )
            for text, constraint in zip(found, constraints, strict=True):
                assert constraint.allows(text), text
    finally:
        model.to(torch.float32)


def test_scores_are_written_over_only_where_that_is_asked_for(model, tokenizer, words):
    constraint = structgen.compile(SCHEMA, words)
    inputs = tokenizer(["a", "bc de"], return_tensors="pt", padding=True).to(model.device)
    whole = {"max_new_tokens": 40, "output_logits": True, "return_dict_in_generate": True}
    made = []
    for in_place in (False, True):
        processor = adapter.StructgenLogitsProcessor(constraint, max_tokens=40, in_place=in_place)
        made.append(model.generate(**inputs, logits_processor=[processor], **whole))
        assert (made[-1].logits[0] == -torch.inf).any() == in_place
    assert (made[0].sequences == made[1].sequences).all()


def test_several_returns(model, tokenizer, words):
    constraint = structgen.compile(SCHEMA, words)
    processor = adapter.StructgenLogitsProcessor(constraint, max_tokens=50)
    found = outputs(
        model, tokenizer, ["a", "bc de"], processor,
        max_new_tokens=50, do_sample=True, num_return_sequences=3,
    )  # fmt: skip
    assert len(found) == 6
    assert len(set(found)) > 1
    for text in found:
        assert set(constraint.output.parse(text)) >= {"name", "age"}


def test_an_output_equals_choosing_the_best_allowed_token_by_hand(model, tokenizer, words):
    constraint = structgen.compile(SCHEMA, words)
    processor = adapter.StructgenLogitsProcessor(constraint, max_tokens=40)
    (found,) = outputs(model, tokenizer, ["A person:"], processor, max_new_tokens=40)
    ids = tokenizer("A person:", return_tensors="pt")["input_ids"].to(model.device)
    cursor, text = constraint.start(40), b""
    from structgen.integrations.numpy import masked

    while not cursor.is_finished:
        with torch.no_grad():
            scores = model(ids).logits[0, -1].float().cpu().numpy()
        token = int(masked(scores, cursor).argmax())
        cursor.accept(token)
        text += words.tokens[token]
        ids = torch.cat([ids, torch.tensor([[token]], device=model.device)], dim=1)
    assert found == text.decode()


def test_the_block_of_the_documents(model, tokenizer, tmp_path, capsys):
    if model.device.type != "cpu":
        pytest.skip("it says no device")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    page = "docs/integrations.md"
    names: dict[str, object] = {}
    run(page, "class Landmark", names)
    ours = {'"HuggingFaceTB/SmolLM2-135M-Instruct"': repr(str(tmp_path))}
    run(page, "from structgen.integrations.transformers import", names, ours)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all("height_m=" in line for line in printed)


def test_assisted_generation(model, tokenizer, words):
    """A smaller model drafts; it is handed the same processor."""
    constraint = structgen.compile(SCHEMA, words)
    (alone,) = outputs(
        model, tokenizer, ["A person:"],
        adapter.StructgenLogitsProcessor(constraint, max_tokens=40), max_new_tokens=40,
    )  # fmt: skip
    torch.manual_seed(6)
    small = transformers.LlamaForCausalLM(model.config).eval().to(model.device)
    (found,) = outputs(
        model, tokenizer, ["A person:"],
        adapter.StructgenLogitsProcessor(constraint, max_tokens=40),
        max_new_tokens=40, assistant_model=small,
    )  # fmt: skip
    assert found == alone


def test_beams_are_refused_by_name(model, tokenizer, words):
    constraint = structgen.compile(SCHEMA, words)
    processor = adapter.StructgenLogitsProcessor(constraint)
    with pytest.raises((OptionError, TokenNotAllowed), match="num_beams=1"):
        outputs(model, tokenizer, ["a"], processor, max_new_tokens=60, num_beams=4)


@pytest.mark.parametrize("device", DEVICES)
def test_the_rows_of_vllm_are_masked_in_place(words, device):
    """vLLM's processors share what masks are to torch."""
    import numpy as np

    from structgen.integrations import vllm

    constraint = structgen.compile(["tea", "coffee"], words)
    out = np.zeros((2, (words.size + 31) // 32), np.int32)
    structgen.fill_masks([constraint.start(), None], out)
    first = sorted({words.tokens.index(text) for text in (b"t", b"te", b"c", b"co")})
    for rows, n in (([2, 0], 3), ([1, 0], 2), ([0, 1], 2)):
        logits = torch.zeros((n, words.size + 5), device=device)
        assert vllm._Checked()._mask(logits, rows, out) is logits
        kept = [(row == 0).nonzero().flatten().tolist() for row in logits.cpu()]
        assert kept[rows[0]] == first
        assert kept[rows[1]] == list(range(words.size // 32 * 32 + 32))[: words.size + 5]
        if n == 3:
            assert len(kept[1]) == words.size + 5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_scores_are_masked_alike_on_every_device(words, device, dtype):
    import numpy as np

    masks = np.random.default_rng(2).integers(-(2**31), 2**31, (3, 40)).astype(np.int32)
    masks[1] = masks[0]  # looked up once
    bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")
    for width in (40 * 32, 40 * 32 - 7, 40 * 32 + 9):
        scores = torch.randn((3, width), device=device).to(dtype)
        before = scores.clone()
        expected = np.zeros((3, width), bool)
        expected[:, : 40 * 32] = bits[:, :width]
        for found in (adapter.masked(scores, masks), adapter.unpacked_there(scores, masks)):
            assert found.dtype == dtype
            assert ((found > -torch.inf).cpu().numpy() == expected).all()
            kept = found > -torch.inf
            assert (found[kept] == before[kept]).all()
        assert (scores == before).all()
        rows = torch.cat([scores, scores])
        assert adapter.mask_rows(rows, [4, 0, 2], masks) is None
        for row, kept in ((4, expected[0]), (0, expected[1]), (2, expected[2])):
            assert ((rows[row] > -torch.inf).cpu().numpy() == kept).all()
        assert (rows[[1, 3, 5]] == before[[1, 0, 2]]).all()
