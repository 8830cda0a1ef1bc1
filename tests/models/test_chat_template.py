"""A chat template that is given to ``load``, in place of the model's own or where it has none."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import inside
import onnxruntime_genai as og
import pytest
from tiny_gguf import write

import structgen
from structgen import models
from structgen.decoding import tool_syntax, tools
from structgen.errors import ModelError, OptionError, PromptError, StructgenError
from structgen.models import trial
from structgen.models.genai import opening
from structgen.runner import ModelConfig, Runner
from structgen.types import NEUTRAL

TEMPLATE = """
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- '[C]{"name": "' + call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}[/C]' }}
        {%- endfor %}
    {%- else %}{{- '<' + message.role + '>' + message.content }}{%- endif %}
{%- endfor %}{{- '<assistant>' }}"""
CHAT = [{"role": "user", "content": "Tea?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    return models.convert(write(place / "tiny.gguf"), place / "tiny")


@pytest.mark.parametrize(
    ("name", "value"), [("repetition_penalty", 0), ("no_repeat_ngram_size", -1), ("top_k", -1)]
)
def test_search_settings_that_are_none_are_told(
    folder: Path, tmp_path: Path, name: str, value: int
) -> None:
    """The first held the process for ever; the others were bare errors of each call."""
    place = tmp_path / "model"
    shutil.copytree(folder, place)
    config = json.loads((place / "genai_config.json").read_text())
    config["search"] |= {"temperature": 1e-6, "top_p": 0.0}  # as some folders have them
    (place / "genai_config.json").write_text(json.dumps(config))
    structgen.load(place)
    config["search"][name] = value
    (place / "genai_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=f"are invalid: {name}={value} is out of range"):
        structgen.load(place)


def test_a_context_that_the_graph_does_not_keep_is_told(folder: Path, tmp_path: Path) -> None:
    """The runtime finds out in a pass: alone, of a batch, of a stream."""
    place = tmp_path / "model"
    shutil.copytree(folder, place)
    config = json.loads((place / "genai_config.json").read_text())
    config["model"]["context_length"] = config["search"]["max_length"] = 100_000
    (place / "genai_config.json").write_text(json.dumps(config))
    generator = structgen.Generator(structgen.load(place))
    for call in (
        lambda: generator("a" * 200),
        lambda: generator(["a" * 200, "b" * 300]),
        lambda: list(generator.stream("a" * 200)),
    ):
        with pytest.raises(StructgenError, match=r"cannot run model: .*cos_cache"):
            call()


@inside.needs_newer_runtime  # it pads by itself
@pytest.mark.parametrize("token", [266, 10**7, -300, -1])
def test_a_padding_token_that_is_none_does_not_end_batches(
    folder: Path, tmp_path: Path, token: int
) -> None:
    place = tmp_path / "model"
    shutil.copytree(folder, place)
    config = json.loads((place / "genai_config.json").read_text())
    config["model"]["pad_token_id"] = token
    (place / "genai_config.json").write_text(json.dumps(config))
    texts = structgen.Generator(structgen.load(place), structgen.Regex("[ab]{1,12}"))
    prompts = [f"hi {letter}" for letter in "abcdefgh"]
    found = [texts(prompts, batch_size=8, temperature=2.0, max_new_tokens=20) for _ in range(4)]
    assert {letter for batch in found for text in batch for letter in text} == {"a", "b"}


def test_a_token_without_scores_in_a_prompt_is_told(folder: Path, tmp_path: Path) -> None:
    """As Gemma 3 1B has one for pictures, which it does not see."""
    place = tmp_path / "model"
    shutil.copytree(folder, place)
    tokenizer = json.loads((place / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": 266, "content": "<i>"})
    (place / "tokenizer.json").write_text(json.dumps(tokenizer))
    generator = structgen.Generator(structgen.load(place))
    assert isinstance(generator("a picture", max_new_tokens=3), str)
    for prompt in ("a <i>", [{"role": "user", "content": "a <i>"}]):
        with pytest.raises(PromptError, match=r"token 266 of .*model has only 266 tokens"):
            generator(prompt, max_new_tokens=3)


def test_it_is_used_and_calls_are_as_it_shows(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text(TEMPLATE, encoding="utf-8")
    with pytest.raises(PromptError, match=r"the chat template of tiny .* at row 1, column"):
        structgen.load(folder, chat_template="{% for").apply_chat_template(CHAT)
    with pytest.raises(PromptError, match="the chat template of tiny"):
        structgen.load(folder, chat_template="{{ 1 }}\ud800").apply_chat_template(CHAT)
    for given in (TEMPLATE, file, str(file)):
        model = structgen.load(folder, chat_template=given)
        assert model.apply_chat_template(CHAT) == "<user>Tea?<assistant>"
        assert tool_syntax(model).marker == "[C]"
    given_to_process = model.to_async()._host.load.options.chat_template
    assert given_to_process == TEMPLATE  # the file may be gone by then

    config = ModelConfig(source=folder, chat_template=TEMPLATE, in_process=True)
    with Runner({"it": config}) as runner:
        counts: list[Any] = [
            runner.count_tokens(messages=CHAT, model="it"),
            len(runner.tokenize_text("<user>Tea?<assistant>", model="it")),
        ]
        assert counts[0] == counts[1]


def test_it_is_parsed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime parses what is given to a call: 0.2 s for Gemma 4's, five times a chat."""
    model = structgen.load(folder, chat_template=TEMPLATE + "{{ eos_token + bos_token }}")
    own, given = model.og_tokenizer, []

    class Tokenizer:
        def apply_chat_template(self, *args: Any, **more: Any) -> str:
            given.append(more.get("template_str"))
            return str(own.apply_chat_template(*args, **more))

    monkeypatch.setattr(model, "og_tokenizer", Tokenizer())
    for _ in range(2):
        written = model.apply_chat_template(CHAT)
        assert written == "<user>Tea?<assistant><|im_end|><|im_start|>"
    assert given == ["{{ bos_token }}", "{{ eos_token }}"]


def test_a_file_of_a_template_comes_before_the_settings(folder: Path, tmp_path: Path) -> None:
    """As with transformers; the runtime wrote prompts by the other one."""
    place = Path(shutil.copytree(folder, tmp_path / "tiny"))
    (place / "chat_template.jinja").write_text(TEMPLATE)
    file = place / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    for other in (settings["chat_template"], ""):
        file.write_text(json.dumps({**settings, "chat_template": other}))
        assert structgen.load(place).apply_chat_template(CHAT) == "<user>Tea?<assistant>"


ZEPHYR = """{# as Zephyr's #}
{% for message in messages %}
  {% if message.role == 'user' %}
{{ '<|user|>\n' + message.content + " %}\n {% '" }}
    {% set x = '%}\n' %} {%- set y = 1 -%}
  {% endif %}
{% endfor %}

\r
  {{ '<|assistant|>' }}
"""
EXPECTED = "<|user|>\nTea? %}\n {% '\n\n\n  <|assistant|>"


@pytest.mark.parametrize("place", ["call", "settings", "json", "file", "both"])
def test_lines_of_tags_alone_write_nothing(folder: Path, tmp_path: Path, place: str) -> None:
    """As in transformers 5.24, which wrote what is expected; the runtime trims nothing."""
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    if place in ("settings", "both"):
        settings["chat_template"] = ZEPHYR if place == "settings" else "{{ 'other' }}"
    if place == "json":
        (copy / "chat_template.json").write_text(json.dumps({"chat_template": ZEPHYR}))
    if place in ("file", "both"):
        (copy / "chat_template.jinja").write_text(ZEPHYR)
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    model = structgen.load(copy, **({"chat_template": ZEPHYR} if place == "call" else {}))
    assert model.apply_chat_template(CHAT) == EXPECTED
    process = model.to_async()._host.load  # which trims what it gets: once is enough
    again = structgen.load(copy, chat_template=process.options.chat_template)
    assert again.apply_chat_template(CHAT) == EXPECTED
    if place != "call":
        plain = og.Model(str(copy))
        objects = structgen.from_onnx_genai(plain, og.Tokenizer(plain), folder=copy)
        assert objects.apply_chat_template(CHAT) == EXPECTED


def test_tools_and_documents_that_a_chat_lacks_are_none(folder: Path) -> None:
    """As in transformers; they were undefined, so an empty section of tools was written."""
    parts = "".join(
        f"{{% if {name} is not none %}}{name}: {{{{ {name} | length }}}} {{% endif %}}"
        for name in ("tools", "documents")
    )
    model = structgen.load(folder, chat_template=parts + TEMPLATE)
    assert model.apply_chat_template(CHAT) == "<user>Tea?<assistant>"
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert model.apply_chat_template(CHAT, tools=[tool]).startswith("tools: 1 ")


@pytest.mark.parametrize(
    "part", ["{%", "{{", "{#", "{% '", "'", '{{"', "%", "}", "\\", " {%%", "\n"]
)
def test_trimming_reads_no_tag_twice(part: str) -> None:
    """A square of 300,000 characters would take an hour."""
    for start in ("", "{%", "{{", "{% '", "{#"):
        text = start + part * (300_000 // len(part))
        assert len(opening._like_transformers(text)) <= len(text)


def test_a_folder_without_a_known_class_of_tokenizers(folder: Path, tmp_path: Path) -> None:
    """Chats said that their template was empty."""
    place = Path(shutil.copytree(folder, tmp_path / "tiny"))
    file = place / "tokenizer_config.json"
    settings = json.loads(file.read_text()) | {"chat_template": TEMPLATE}
    file.write_text(json.dumps(settings | {"tokenizer_class": "Unknown"}))
    with pytest.raises(ModelError, match=r"class: Unknown\. Set tokenizer_class in its tokenizer_"):
        structgen.load(place)
    del settings["tokenizer_class"]
    file.write_text(json.dumps(settings))
    assert structgen.load(place).apply_chat_template(CHAT) == "<user>Tea?<assistant>"
    file.write_text(json.dumps(settings | {"chat_template": str(tmp_path)}))
    with pytest.raises(PromptError, match="Empty chat template"):
        structgen.load(place).apply_chat_template(CHAT)
    (place / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert structgen.load(place).apply_chat_template(CHAT) == "Tea?"


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), ("no braces", "does not contain"), ("{" * 1_000_001, "1,000,000")],
)
def test_what_is_no_template_is_refused(
    folder: Path, tmp_path: Path, content: str | None, why: str
) -> None:
    file = tmp_path / "chat.jinja"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(OptionError, match=why):
        structgen.load(folder, chat_template=file)


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
ITSELF = "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{% if tools %}" + ITSELF + "{% endif %}", "crashes the process"),
        (LOOP, "takes more than 1 s"),
    ],
)
def test_one_that_ends_the_process_or_never_ends_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, template: str, says: str
) -> None:
    monkeypatch.setattr(trial, "CPU_SECONDS", 1)
    with pytest.raises(ModelError, match=rf"chat template of .*tiny {says}.*chat_template="):
        trial.check(folder, template)


def test_it_is_tried_as_a_model_is_loaded_and_not_again_where_all_went_well(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="crashes the process"):
        structgen.load(folder, chat_template=ITSELF)
    structgen.load(folder, chat_template=TEMPLATE)
    # From here on no process can be started, as where there is no interpreter.
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    tried: list[str] = []
    run = trial.chats

    def counting(place: str, template: str) -> str:
        tried.append(template)
        return run(place, template)

    monkeypatch.setattr(trial, "chats", counting)
    trial.check(folder, TEMPLATE)
    assert not tried
    for _ in range(2):
        trial.check(folder, TEMPLATE + "!")
    assert tried == [TEMPLATE + "!"]


def test_what_could_not_be_tested_has_not_passed(folder: Path, tmp_path: Path) -> None:
    """A configuration that the runtime cannot read made a template pass for other folders."""
    place = Path(shutil.copytree(folder, tmp_path / "tiny"))
    file = place / "genai_config.json"
    whole = file.read_text()
    file.write_text(json.dumps({**json.loads(whole), "search": {"top_k": "text"}}))
    trial.check(place, ITSELF + "!")
    file.write_text(whole)
    with pytest.raises(ModelError, match="crashes the process"):
        trial.check(place, ITSELF + "!")


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Lowercase"},
        {"type": "NFKC"},
        {"type": "Replace", "pattern": {"String": "e"}, "content": "a"},
    ],
)
def test_a_tokenizer_that_the_runtime_does_not_follow_is_told(
    folder: Path, tmp_path: Path, normalizer: dict[str, Any]
) -> None:
    """Its prompts had other tokens than in training, and nobody knew why the answers were poor."""
    place = Path(shutil.copytree(folder, tmp_path / "tiny"))
    document = json.loads((place / "tokenizer.json").read_text())
    document["truncation"] = {
        **{"max_length": 2, "strategy": "LongestFirst"},
        **{"stride": 0, "direction": "Right"},
    }
    (place / "tokenizer.json").write_text(json.dumps(document))
    trial.check(place, None)  # transformers has its own idea of how long a prompt may be
    document["normalizer"] = normalizer
    (place / "tokenizer.json").write_text(json.dumps(document))
    for _ in range(2):  # the second time, the process is not needed
        with pytest.warns(UserWarning, match="tokenizes prompts differently from .*tokenizer.json"):
            trial.check(place, None)


def test_a_pattern_that_the_runtime_follows_with_the_stack_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    """A text of 40,000 characters ended the process."""
    place = Path(shutil.copytree(folder, tmp_path / "tiny"))
    document = json.loads((place / "tokenizer.json").read_text())
    step = {"type": "Split", "pattern": {"Regex": "(a|b)*c"}, "behavior": "Isolated"}
    document["pre_tokenizer"] = {"type": "ByteLevel", "pretokenizers": [{**step, "invert": False}]}
    (place / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ModelError, match=r"tiny has the unknown pattern .*\(a\|b\)\*c"):
        trial.check(place, None)


def test_a_link_to_another_file_is_no_template(folder: Path, tmp_path: Path) -> None:
    """Any file of the user's was the prompt of each chat, for everybody to ask about."""
    place = Path(shutil.copytree(folder, tmp_path / "tiny"))
    (place / "blob").write_text(TEMPLATE)
    (place / "chat_template.jinja").symlink_to("blob")
    structgen.load(place)
    (place / "chat_template.jinja").unlink()
    (tmp_path / "secret").write_text("password")
    (place / "chat_template.jinja").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match=r"'chat_template\.jinja' is a link that points outside"):
        structgen.load(place)


def test_settings_of_another_kind_are_an_error_of_the_model(folder: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(folder, tmp_path / "tiny"))
    config = json.loads((place / "genai_config.json").read_text())
    config["model"]["decoder"]["session_options"]["provider_options"] = "cuda"
    (place / "genai_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="cannot load"):
        structgen.load(place)


def test_what_would_cut_a_prompt_is_refused(folder: Path) -> None:
    """The runtime takes C strings: behind a tool's NUL, no message was in the prompt."""
    written = "{% for tool in tools %}{{ tool.description }}{% endfor %}" + TEMPLATE
    model = structgen.load(folder, chat_template=written)

    def tool(text: str) -> dict[str, Any]:
        described = {"name": "f", "description": text, "parameters": {"type": "object"}}
        return {"type": "function", "function": described}

    shown = "\\u0000 \\\\u0000 \\"
    assert shown in model.apply_chat_template(CHAT, tools=[tool(shown)])
    assert "Tea?" in model.apply_chat_template(CHAT, tools=[tool(shown)])
    for text in ("a\0b", "\0", "\\\0"):
        with pytest.raises(PromptError, match="A tool contains a NUL"):
            model.apply_chat_template(CHAT, tools=[tool(text)])
        with pytest.raises(PromptError, match="A message contains a NUL"):
            model.apply_chat_template([{"role": "user", "content": text}])
        with pytest.raises(PromptError, match="The text contains a NUL"):
            model.encode(text)


def test_a_character_without_a_token_is_told() -> None:
    model = structgen.load("smollm2-135m-instruct")
    with pytest.raises(PromptError, match="a character for which the tokenizer of smollm2"):
        model.encode("a\x04b")
    assert structgen.Generator(model, structgen.Regex("ab\0c"))("?") == "ab\0c"


def test_calls_with_long_texts_around_them_are_not_the_models_own(folder: Path) -> None:
    """A marker of 4 million characters took 20 GB of a server, in which calls are compiled."""
    for part in ("[C]", '"arguments', "[/C]"):
        for n, is_own in ((100, True), (300, False)):
            written = TEMPLATE.replace(part, part + "ab" * n, 1)
            syntax = tool_syntax(structgen.load(folder, chat_template=written))
            assert (syntax != NEUTRAL) == is_own


@pytest.mark.parametrize("what", ["{{ c.function.name }}", "{{ 'x' * 20 }}"])
def test_a_template_that_writes_very_much_shows_no_calls(folder: Path, what: str) -> None:
    """Each of 20,000 names of the probe was looked at with all that follows: for ten minutes."""
    written = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{% for i in range(20000)"
        f" %}}{what}{{% endfor %}}{{% endfor %}}{{% endfor %}}"
    )
    model = structgen.load(folder, chat_template=written)
    assert tool_syntax(model) == replace(NEUTRAL, known=False)
    names = "probe_tool_one" * 20_000
    assert tools.read_syntax("Zprobe answerZ", names, None) is None
