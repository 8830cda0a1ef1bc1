"""What an NVIDIA card runs; skipped where ONNX Runtime has no CUDA.

    STRUCTGEN_CUDA_MODEL=FOLDER [STRUCTGEN_CUDA_EMBEDDER=FOLDER] \\
        PYTHONPATH=.:tests pytest --noconftest tests/models/test_cuda.py

Without the variables, the catalogue's default models are fetched, and converted for the card.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime
import pytest
from adaptable import adaptable
from pydantic import BaseModel

import structgen
from structgen import Generator, Runner

pytestmark = pytest.mark.skipif(
    "CUDAExecutionProvider" not in onnxruntime.get_available_providers(), reason="no CUDA"
)
MODEL = os.environ.get("STRUCTGEN_CUDA_MODEL", "smollm2-135m-instruct")
EMBEDDER = os.environ.get("STRUCTGEN_CUDA_EMBEDDER", "all-minilm-l6-v2")
ON_CARD = {"providers": ["cuda"]}


class Person(BaseModel):
    name: str
    age: int
    city: Literal["Lisbon", "Porto", "Faro"]


NAMES = ("Ana", "Rui", "Inês", "João", "Marta", "Nuno", "Sofia", "Tiago")
PROMPTS = [
    f"{NAMES[i % 8]} is {20 + i} years old and lives in {('Lisbon', 'Porto', 'Faro')[i % 3]}.\n"
    'As JSON with "name", "age" and "city": '
    for i in range(32)
]


@pytest.fixture(scope="module")
def model():
    return structgen.load(MODEL, **ON_CARD)


def card_memory() -> int:
    """MB of the card that are in use."""
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(asked, capture_output=True, check=True, text=True).stdout.split()[0])


def test_it_runs_on_the_card_with_the_mask_inside(model):
    assert (model.device, model.has_mask) == ("CUDA", True)


def test_calls_of_every_kind(model):
    generator = Generator(model, Person)
    result = generator.result(PROMPTS[0], max_new_tokens=60)
    assert Person.model_validate_json(result.text)
    assert "".join(generator.stream(PROMPTS[0], max_new_tokens=60)) == result.text
    several = generator(PROMPTS[0], n=4, seed=1, temperature=1.0, max_new_tokens=60)
    assert [Person.model_validate_json(one) for one in several]
    assert several == generator(PROMPTS[0], n=4, seed=1, temperature=1.0, max_new_tokens=60)
    told = generator.result(PROMPTS[0], logprobs=True, trace=True, max_new_tokens=60)
    assert Person.model_validate_json(told.text)
    assert len(told.logprobs) == len(told.token_ids)
    best = generator.result(PROMPTS[0], best=True, max_new_tokens=60)
    assert Person.model_validate_json(best.text)
    assert Generator(model, bool).probabilities("Is water wet? ").keys() == {"true", "false"}
    short = generator(PROMPTS[0], max_new_tokens=20)  # the last tokens are chosen for their length
    assert Person.model_validate_json(short)
    assert len(Generator(model)("Once", max_new_tokens=24, repetition_penalty=1.2)) > 8


def test_a_batch_writes_what_single_calls_write(model):
    generator = Generator(model, Person)
    alone = [generator(prompt, max_new_tokens=60) for prompt in PROMPTS]
    batch = generator(PROMPTS, max_new_tokens=60, batch_size=32)
    copied = generator.result(PROMPTS, max_new_tokens=60, batch_size=32, logprobs=True)
    assert all(Person.model_validate_json(one) for one in batch)
    for other in (alone, [one.text for one in copied]):
        same = sum(one == two for one, two in zip(batch, other, strict=True))
        assert same >= 24, (batch, other)  # near ties may fall otherwise in another kind of pass


def test_forty_requests_to_a_runner_and_a_process_that_dies():
    before = card_memory()
    config = {"source": MODEL, **ON_CARD}
    with Runner({"one": config, "two": config | {"in_process": True}}) as runner:

        def ask(i: int, model: str = "one") -> str:
            asked = {"messages": PROMPTS[i % 32], "max_tokens": 60, "response_format": Person}
            return runner.chat(asked, model=model).text

        with ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(ask, range(40)))
        assert all(Person.model_validate_json(one) for one in answers)
        assert Person.model_validate_json(ask(0, "two"))
        held = card_memory()
        stream = runner.stream_chat(messages="Tell a story.", max_tokens=4000, model="one")
        next(chunk for chunk in stream if chunk.choices[0].delta.content)
        os.kill(runner._registry.entry("one").host.models[0].pid, signal.SIGKILL)
        with pytest.raises(structgen.errors.WorkerDied):
            list(stream)
        assert Person.model_validate_json(ask(1))
        runner.unload("one")
        assert card_memory() < held
        assert Person.model_validate_json(ask(2))
    print("MB of the card:", before, held, card_memory())


def test_a_server_on_the_card(tmp_path):
    from openai import OpenAI

    config = tmp_path / "server.toml"
    config.write_text(
        f'[models]\nsmall = {{ source = "{MODEL}", providers = ["cuda"] }}\n'
        f'[embedders]\nvectors = {{ source = "{EMBEDDER}", providers = ["cuda"] }}\n'
    )
    command = [sys.executable, "-m", "structgen", "serve", "--port", "0", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = []
            for line in server.stderr:
                lines.append(line)
                if found := re.search(r"running on (http://[\d.]+:\d+)", line):
                    break
            else:
                pytest.fail("".join(lines))
            threading.Thread(target=server.stderr.read, daemon=True).start()
            client = OpenAI(base_url=f"{found[1]}/v1", api_key="none")

            def ask(i: int) -> str:
                asked = {
                    "model": "small",
                    "messages": [{"role": "user", "content": PROMPTS[i % 32]}],
                    "max_tokens": 60,
                    "response_format": {
                        "type": "json_schema",
                        "json_schema": {"name": "person", "schema": Person.model_json_schema()},
                    },
                }
                if i % 2:
                    return client.chat.completions.create(**asked).choices[0].message.content
                chunks = client.chat.completions.create(**asked, stream=True)
                return "".join(one.choices[0].delta.content or "" for one in chunks)

            with ThreadPoolExecutor(40) as pool:
                vectors = pool.submit(client.embeddings.create, model="vectors", input=list(NAMES))
                assert all(Person.model_validate_json(one) for one in pool.map(ask, range(80)))
            assert len(vectors.result().data) == len(NAMES)
        finally:
            server.terminate()
            assert server.wait(60) in (0, -signal.SIGTERM)


@pytest.mark.filterwarnings("ignore")
def test_vectors_are_those_of_the_cpu():
    texts = [*NAMES, *PROMPTS, "word " * 200]
    card, here = (
        structgen.load_embedder(EMBEDDER, providers=[name]).embed(texts) for name in ("cuda", "cpu")
    )
    cosines = np.sum(card * here, axis=1)
    print("cosines of the card's vectors with the CPU's:", cosines.min(), cosines.mean())
    assert cosines.min() > 0.99


def test_an_adapter_acts_on_the_card(tmp_path):
    folder = adaptable(tmp_path / "adaptable", Path(MODEL) if Path(MODEL).is_dir() else None)
    model = structgen.load(folder, **ON_CARD)
    generator = Generator(model)
    plain = generator("The capital of France is", max_new_tokens=8)
    for name in ("same", "turned"):
        model.load_adapter(folder / f"{name}.onnx_adapter", name)
    assert generator("The capital of France is", max_new_tokens=8, adapter="same") == plain
    turned = generator("The capital of France is", max_new_tokens=8, adapter="turned")
    assert turned != plain
    shutil.rmtree(folder)
