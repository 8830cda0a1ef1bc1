"""Runs vLLM itself on the CPU, with a tiny random model: ``python vllm_engine.py KIND FOLDER``.

KIND is ``v1`` (`LegacyLogitsProcessor`), ``v2`` (`StructgenLogitsProcessor`) or ``drafts`` (the
same with a draft model). Prints what requests gave, as a line of JSON, for test_vllm_engine.py. In
a process of its own: vLLM reads its settings when it is imported, and lets go of nothing.

The model runner V2 is made of Triton's kernels. Where Triton has no backend for the processor its
interpreter runs them, slowly: so the vocabulary is a small one.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any, Literal

TEXTS = ['{"name": "tea", "age": 12} coffee and cocoa, true false null [1, 2, 3] the cat'] * 50
PROMPTS = ["the cat", *(word * 10 for word in ("x7q", "z%k", "y#w", "q?v", "!h;"))]


def settings(kind: str) -> dict[str, Any]:
    """Set the environment, before vLLM is imported; what its engine is to be made with."""
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_USE_V2_MODEL_RUNNER": str(int(kind != "v1")),
    }
    made = {
        "enforce_eager": True,
        "dtype": "float32",
        "max_model_len": 160,
        "max_num_seqs": 4,  # fewer than there are requests
        "distributed_executor_backend": "uni",
        "disable_log_stats": False,
        # Memory for fewer tokens than four requests have: some are put off, and come back.
        "block_size": 32,
        "num_gpu_blocks_override": 6,
    }
    if kind != "v1":
        os.environ["TRITON_INTERPRET"] = "1"
        import triton.backends

        class Driver:
            """As a backend for the processor has it."""

            @staticmethod
            def is_active() -> bool:
                return True

        backends = triton.backends
        backends.backends.setdefault("cpu", backends.Backend(compiler=None, driver=Driver))
    return made


def write_model(folder: str) -> None:
    """A Llama of one layer and its tokenizer of bytes and a few words."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        # Three names of ends: vLLM ends at the tokenizer's and at the model's, not at the third.
        special_tokens=["<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(TEXTS, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<pad>"
    )
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=512, max_position_embeddings=512, num_hidden_layers=1, num_attention_heads=2,
        hidden_size=64, intermediate_size=64, eos_token_id=[0, 1], pad_token_id=3,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(kind: str, folder: str, block: str) -> None:
    """Ask an engine, and print what it gave."""
    made = settings(kind)
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("structgen").addHandler(handler)

    import vllm
    from pydantic import BaseModel, Field

    from structgen import Regex
    from structgen.integrations.vllm import arguments

    if kind == "drafts":
        made["speculative_config"] = {
            "method": "draft_model", "model": folder, "num_speculative_tokens": 3,
        }  # fmt: skip

    class Landmark(BaseModel):
        name: str = Field(max_length=8)
        height: int = Field(ge=0, le=999)

    processors = {"v1": ["structgen.integrations.vllm:LegacyLogitsProcessor"]}
    whole = vllm.LLM
    found: dict[str, Any] = {"version": vllm.__version__, "kind": kind}
    if kind == "v2":  # as docs/integrations.md has it
        vllm.LLM = functools.partial(whole, **made)
        names: dict[str, Any] = {"name": folder, "Landmark": Landmark}
        exec(block, names)
        llm = names["llm"]
        found["block"] = Landmark.model_validate_json(names["text"]).height
    else:
        default = ["structgen.integrations.vllm:StructgenLogitsProcessor"]
        llm = whole(folder, logits_processors=processors.get(kind, default), **made)

    tokenizer = llm.get_tokenizer()
    types: list[Any] = [Landmark, Literal["tea", "coffee", "cocoa"], Regex("[A-F]{3}-[0-9]{2}")]

    def params(number: int) -> Any:
        extra = None if number % 4 == 3 else arguments(types[number % 4], max_tokens=40)
        return vllm.SamplingParams(
            max_tokens=5 if extra is None else 40,
            temperature=0.0 if number < 3 else 1.0,
            seed=number,
            extra_args=extra,
        )

    given = [params(number) for number in range(10)]
    prompts = [PROMPTS[number % len(PROMPTS)] for number in range(10)]
    outputs = [one.outputs[0] for one in llm.generate(prompts, given, use_tqdm=False)]
    found["texts"] = [one.text for one in outputs]
    found["reasons"] = [one.finish_reason for one in outputs]
    found["ends"] = [one.token_ids[-1] for one in outputs]
    found["logged"] = list(logged)

    metrics = {one.name: one for one in llm.get_metrics()}
    found["put_off"] = metrics["vllm:num_preemptions"].value

    # One that goes wrong ends alone.
    bad = vllm.SamplingParams(max_tokens=9, extra_args=arguments(Landmark, max_tokens=2))
    pair = llm.generate(["a", "12"], [bad, given[1]], use_tqdm=False)
    found["beside"] = [one.outputs[0].text for one in pair]
    found["told"] = logged[len(found["logged"]) :]

    refused = []
    tea = arguments(["tea"])
    for options in (
        {"extra_args": {"structgen": "€"}},
        {"extra_args": arguments(["tea"], max_tokens=20), "max_tokens": 16},
        {"extra_args": tea, "min_tokens": 3},
        {"extra_args": tea, "allowed_token_ids": [7]},
        {
            "extra_args": tea,
            "structured_outputs": vllm.sampling_params.StructuredOutputsParams(regex="x"),
        },
    ):
        try:
            llm.generate("a", vllm.SamplingParams(**options), use_tqdm=False)
            refused.append("")
        except (ValueError, vllm.exceptions.VLLMValidationError) as error:
            refused.append(str(error))
    found["refused"] = refused

    if kind == "v1":  # the same choices as Transformers, greedily
        import torch
        import transformers

        import structgen
        from structgen.integrations import transformers as ours

        model = transformers.LlamaForCausalLM.from_pretrained(folder)
        words = ours.vocabulary(tokenizer, model)
        greedy = []
        for number in range(3):
            constraint = structgen.compile(types[number], words)
            ids = tokenizer(prompts[number], return_tensors="pt")
            processor = ours.StructgenLogitsProcessor(constraint, max_tokens=40)
            with torch.no_grad():
                made_ids = model.generate(
                    **ids, logits_processor=[processor], max_new_tokens=40, do_sample=False
                )
            new = made_ids[0, ids["input_ids"].shape[1] :]
            greedy.append(tokenizer.decode(new, skip_special_tokens=True))
        found["greedy"] = greedy
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write_model(sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_text() if sys.argv[3:] else "")
