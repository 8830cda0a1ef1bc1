"""A folder that lacks something says what, and what to do."""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
import tracemalloc
from pathlib import Path

import inside
import numpy as np
import onnxruntime
import pytest
from models import tiny_vision
from test_hub import graph_with_data

from structgen import Vocabulary, load_embedder, models
from structgen.errors import ModelError, ModelNotFound
from structgen.models import allowed, damage, genai
from structgen.models.genai import media
from structgen.models.genai.folders import read_config, start_ids
from structgen.storage import user_folder

CONFIG = {
    "model": {
        "vocab_size": 9,
        "context_length": 9,
        "eos_token_id": 1,
        "decoder": {"filename": "model.onnx", "inputs": {"input_ids": "no graph.onnx"}},
        "pipeline": [{"first": {"filename": "part.onnx"}}],
    }
}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    graph_with_data(folder)
    (folder / "part.onnx").write_bytes((folder / "model.onnx").read_bytes())
    (folder / "genai_config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_a_whole_folder_lacks_nothing(folder):
    assert damage.find(folder) == []
    (folder / "genai_config.json").unlink()
    assert damage.find(folder) == []  # as an embedder


@pytest.mark.parametrize(
    ("name", "says", "do"),
    [
        ("model.onnx", r"model\.onnx is missing\.", "Download or convert the model again"),
        ("part.onnx", r"part\.onnx is missing\.", r"copy part\.onnx"),
        (
            "model.onnx.data",
            r"model\.onnx\.data is missing\. It contains the weights of model\.onnx",
            "copy model",
        ),
        (
            "tokenizer.json",
            r"tokenizer\.json is missing, which a language model needs",
            "transformers",
        ),
    ],
)
def test_what_is_missing_is_named_and_what_to_do(folder, name, says, do):
    (folder / name).unlink()
    with pytest.raises(ModelError, match=rf"{says}(.|\n)*{do}"):
        genai.load(folder, kind=genai.TextModel)


def test_an_embedder_without_a_tokenizer(folder):
    (folder / "genai_config.json").unlink()
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("a")
    (folder / "model.onnx").write_bytes(b"x" * 9)  # is not read, which could take seconds
    says = r"tokenizer\.json is missing, which an embedder needs\. vocab\.txt cannot replace it"
    with pytest.raises(ModelNotFound, match=rf"^\S+{says}"):
        models.path(folder)


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data"])
def test_a_note_of_git_lfs_is_told_from_a_damaged_file(folder, name):
    (folder / name).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n"
    )
    first = damage.find(folder)[0]
    assert (first.file, first.do) == (folder / name, "Run `git lfs pull` in the folder.")


@pytest.mark.parametrize("text", ["", "[]", '{"model": 3', "{}"])
def test_a_configuration_that_cannot_be_understood(folder, text):
    (folder / "genai_config.json").write_text(text)
    assert "genai_config.json cannot be parsed" in damage.find(folder)[0].problem


@pytest.mark.parametrize("layers", ["many", None, [1]])
def test_a_number_of_layers_that_is_no_number(folder, layers):
    path = folder / "genai_config.json"
    told = json.loads(path.read_text())
    told["model"]["decoder"]["num_hidden_layers"] = layers
    path.write_text(json.dumps(told))
    with pytest.raises(ModelError, match=r"genai_config\.json cannot be parsed"):
        read_config(folder)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ('"decoder": {"filename": "../model.onnx"}', r"model\.decoder\.filename .* inside"),
        ('"decoder": {"filename": "/model.onnx"}', "not a path inside"),
        ('"decoder": {"filename": "link.onnx"}', "is a link that points outside"),
        ('"pipeline": [{"a": {"config_filename": "x/../../a.json"}}]', "not a path inside"),
        ('"decoder": null', "cannot be parsed"),
        ('"tokenizer_dir": "other"', r"model\.tokenizer_dir to 'other'.*may not set"),
        ('"x": {"y": 1}', r"model\.x\.y to '1'"),
        ('"encoder": {"filename": "none.onnx"}', r"none\.onnx is missing"),
        ('"session_options": {"session.some_new_option": "a"}', "some_new_option"),
        ('"session_options": {"session.moe.offload.cpu_threads": "1000000"}', "cpu_threads"),
        ('"session_options": {"provider_options": [{"qnn": {"backend_type": "saver"}}]}', "saver"),
        (
            '"session_options": {"provider_options": [{"OpenVINO": {"load_config":'
            ' "{\\"CPU\\": {\\"CACHE_DIR\\": \\"/x\\"}}"}}]}',
            "CACHE_DIR",
        ),
        # The runtime prints by it: this read the memory of the process, and wrote into it.
        *(
            (f'"decoder": {{"outputs": {{"present_key_names": "{name}"}}}}', "present_key_names to")
            for name in ("%d.%s", "%x", "%1$n", "%d%d", "%")
        ),
        (
            '"decoder": {"shared_initializers": [{"length": "100000000000"}]}',
            "with more bytes than",
        ),
        *(
            (f'"decoder": {{"shared_initializers": [{{"length": "{n}"}}]}}', "with more bytes than")
            for n in ("-1", "²", "9" * 5000)
        ),
        ('"session_options": {"custom_ops_library": "a.so"}', "custom_ops_library"),
        ('"session_options": {"enable_profiling": "a"}', "enable_profiling"),
        ('"session_options": {"intra_op_num_threads": 1000000}', "intra_op_num_threads"),
        ('"vision": {"spatial_merge_size": 0}', "spatial_merge_size to '0'"),
        # Of a part that is called so, no inputs.
        *(
            (f'"decoder": {{"pipeline": {{"{part}": {{"filename": "{file}"}}}}}}', says)
            for part in ("inputs", "outputs", "session_options")
            for file, says in [
                ("../outside.onnx", "not a path"),
                ("a.ort", "is missing|does not end in"),
            ]
        ),
        # The runtime pads prompts to whole windows, past the end of what it has for them.
        *(
            (f'"decoder": {{"sliding_window": {{{window}}}}}', "would write beyond the prompt")
            for window in ("", '"window_size": 300', '"slide_inputs": true', '"slide_inputs": 1')
        ),
        ('"provider_options": [{"x": {"trt_extra_plugin_lib_paths": "a.so"}}]', "plugin_lib"),
        ('"provider_options": [{"qnn": {"backend_path": "a.so"}}]', "backend_path"),
        ('"session_options": {"session.optimized_model_filepath": "a"}', "optimized_model"),
        (
            '"x": {"session_options": {"session.optimized_model_external_initializers_file_name":'
            ' "../a"}}',
            "external_initializers_file_name",
        ),
        ('"session_options": {"session.moe_expert_counter_state_file": "a"}', "state_file"),
        ('"session_options": {"session.moe.offload.source_root": "a"}', "source_root"),
        (
            '"session_options": {"session.resource_cuda_partitioning_settings": "1,../a"}',
            "resource_cuda",
        ),
        ('"run_options": {"ep.context_file_path": "a"}', "context_file_path"),
        ('"provider_options": [{"cuda": {"gpu_external_alloc": "1"}}]', "gpu_external_alloc"),
        ('"provider_options": [{"cuda": {"user_compute_stream": "1"}}]', "compute_stream"),
        ('"provider_options": [{"WebGPU": {"dawnProcTable": "1"}}]', "dawnProcTable"),
        # The runtime reads both, where a dict has the last.
        ('"x": {"custom_ops_library": "a.so"}, "x": {}', "appears twice in one object"),
        ('"x": {"custom_ops_library": "a.so"}}, "model": {"x": {}', "appears twice in one object"),
        ('"eos_token_id": [5]', "appears twice in one object"),
        ('"vision": true', r"model\.vision to 'True'"),  # which stands for no settings
    ],
)
def test_a_configuration_names_no_code_and_nothing_elsewhere(folder, model, says):
    (folder.parent / "outside.onnx").write_bytes((folder / "model.onnx").read_bytes())
    (folder / "link.onnx").symlink_to(folder.parent / "outside.onnx")
    needed = '"vocab_size": 9, "context_length": 9, "eos_token_id": 1'
    (folder / "genai_config.json").write_text(f'{{"model": {{{model}, {needed}}}}}')
    with pytest.raises(ModelError, match=says):
        genai.load(folder, kind=genai.TextModel)


def providers(**options):
    return {"session_options": {"log_id": "onnxruntime-genai", "provider_options": [options]}}


@pytest.mark.parametrize(
    "part",
    [
        providers(cuda={"enable_cuda_graph": "0", "enable_skip_layer_norm_strict_mode": "1"}),
        providers(dml={"enable_graph_capture": "1"}),
        providers(webgpu={"enableGraphCapture": "1", "validationMode": "disabled"}),
        providers(web={}),
        providers(rocm={"tunable_op_enable": "1", "tunable_op_tuning_enable": "1"}),
        providers(
            OpenVINO={
                "device_type": "NPU",
                "enable_causallm": "True",
                "load_config": '{"NPU":{"MAX_PROMPT_LEN":"4096","MIN_RESPONSE_LEN":"128"}}',
            }
        ),
        providers(NvTensorRtRtx={"enable_cuda_graph": "1", "nv_profile_min_shapes": "input_ids:1"}),
        providers(
            qnn={
                **{"htp_performance_mode": "burst", "soc_model": "60", "backend_type": "htp"},
                "htp_graph_finalization_optimization_mode": "3",
                "device_filtering_options": {"hardware_device_type": "NPU"},
            }
        ),
        {
            "session_options": {
                "graph_optimization_level": "ORT_DISABLE_ALL",
                "log_severity_level": 3,
            }
        },
        {"session_options": {"intra_op_num_threads": 2, "session.disable_cpu_ep_fallback": "0"}},
        {"session_options": {"session.use_device_allocator_for_initializers": "0"}},
        {"session_options": {"optimization.disable_specified_optimizers": "MatMulAddFusion"}},
        {"run_options": {"memory.enable_memory_arena_shrinkage": ""}},
        {"sliding_window": {"window_size": 64, "slide_inputs": False, "layers": [0]}},
        {
            "pipeline": [
                {
                    "context": {
                        **{"filename": "part.onnx", "inputs": ["past_seq_len"], "outputs": ["kv"]},
                        **{"run_on_token_gen": False, "reset_session_idx": 1, "is_lm_head": False},
                        "output_names_forwarder": {"hidden": "input_hidden"},
                        "session_options": {"log_id": "onnxruntime-genai.prompt-processor"},
                    }
                }
            ]
        },
        {"conv_cache_size": 3, "layer_types": ["conv", "full_attention"]},
        {"inputs": {"rnn_states_prev": "a", "cache_indirection": "b", "per_layer_inputs": "c"}},
    ],
)
def test_what_published_folders_set_is_accepted(folder, part):
    """As the runtime's model builder, Olive and the makers of accelerators write it."""
    config = json.loads(json.dumps(CONFIG))
    config["model"]["decoder"] |= part
    config["model"] |= {
        "type": "phi4mm",
        "vision": {
            **{"filename": "part.onnx", "config_filename": "vision_processor.json"},
            **{"adapter_filename": "vision.onnx_adapter", "spatial_merge_size": 2},
            **{"tokens_per_second": 2.0, "patch_size": 14, "inputs": {"image_sizes": "sizes"}},
        },
        "speech": {"filename": "part.onnx", "config_filename": "speech_processor.json"},
        "embedding": {"filename": "part.onnx", **providers(webgpu={})},
        **{"pad_token_id": 1, "bos_token_id": None, "decoder_start_token_id": 2, "num_mels": 80},
        **{"image_token_id": 3, "video_token_id": 4, "vision_start_token_id": 5, "sep_token_id": 6},
        **{"bot_token_id": 7, "eot_token_id": 8},
    }
    config["search"] = {"do_sample": False, "num_beams": 1, "chunk_size": 2048, "top_k": 50}
    config["engine"] = {"dynamic_batching": {"block_size": 256, "prefix_caching": False}}
    config["model"]["mtp"] = {"enabled": True, "filename": "part.onnx", "num_hidden_layers": 1}
    (folder / "genai_config.json").write_text(json.dumps(config))
    assert damage.find(folder) == []


@pytest.mark.parametrize("location", [b"../outside.data", b"/etc/passwd-abc", b"model.onnx.link"])
def test_a_graph_names_no_data_elsewhere(folder, location):
    (folder.parent / "outside.data").write_bytes(bytes(1200))
    (folder / "model.onnx.link").symlink_to(folder.parent / "outside.data")
    for name in ("model.onnx", "part.onnx"):
        graph = (folder / name).read_bytes()
        (folder / name).write_bytes(graph.replace(b"model.onnx.data", location))
    with pytest.raises(ModelError, match="If you trust the folder, move the file into it"):
        genai.load(folder, kind=genai.TextModel)


def field(number, *parts):
    """A field of a protocol buffer."""
    tag, data = number << 3 | 2, b"".join(parts)
    return bytes([tag] if tag < 128 else [tag & 127 | 128, tag >> 7]) + bytes([len(data)]) + data


LOCATION = field(1, b"location"), field(2, b"../outside.data")
IN_MEMORY = field(13, field(1, b"location"), field(2, b"*/_ORT_MEM_ADDR_/*"))
OFFSET = field(13, field(1, b"offset"), field(2, b"94694165975120"))
REFERENCE = field(13, *LOCATION)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(field(7, field(1, field(5, field(5, REFERENCE)))), id="of a node"),
        pytest.param(field(7, field(1, field(5, field(10, REFERENCE)))), id="of a node's list"),
        pytest.param(field(7, field(1, field(5, field(6, field(5, REFERENCE))))), id="of a branch"),
        pytest.param(field(7, field(15, field(2, REFERENCE))), id="sparse"),
        pytest.param(field(25, field(7, field(5, field(5, REFERENCE)))), id="of a function"),
        pytest.param(field(20, field(1, field(5, REFERENCE))), id="of training"),
        pytest.param(
            field(7, field(5, field(13, field(1, b"location"), field(2, b"a"), *LOCATION))),
            id="with two values",
        ),
        pytest.param(
            field(7, field(5, b"\xea\x80\x80\x80\x20", REFERENCE[1:])), id="with a wide tag"
        ),
    ],
)
def test_no_part_of_a_graph_names_data_elsewhere(folder, graph):
    """ONNX Runtime 1.20 reads them, wherever they lead."""
    (folder.parent / "outside.data").write_bytes(bytes(9))
    (folder / "model.onnx").write_bytes(graph)
    assert ["is not a path inside" in lack.problem for lack in damage.find(folder)] == [True]


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (field(7, field(5, IN_MEMORY)), "refers to memory"),
        # Two halves of one tensor.
        (field(7, field(1, field(5, field(5, IN_MEMORY), field(5, OFFSET)))), "has no file name"),
        (field(7, field(5, field(13, field(1, b"length"), field(2, b"-9")), IN_MEMORY)), "b'0-9'"),
        # ONNX Runtime 1.22 reads beyond 16 bytes where the operator takes more.
        (
            field(7, field(5, field(13, field(1, b"prepacked_0"), field(2, b"MatMul+1|0;16;0")))),
            "has prepacked weights",
        ),
    ],
)
def test_no_graph_reads_the_memory_of_the_process(folder, graph, says):
    """ONNX Runtime 1.20 takes the number for an address, if there is a file of this name."""
    (folder / "*" / "_ORT_MEM_ADDR_").mkdir(parents=True)
    (folder / "*" / "_ORT_MEM_ADDR_" / "*").touch()
    (folder / "model.onnx").write_bytes(graph)
    assert [says in lack.problem for lack in damage.find(folder)] == [True]


@pytest.mark.parametrize("end", [b"\xc3\x3e\xc4\x3e", b"\x0a", b"\x08\x01" * 2_000_000])
def test_a_graph_that_cannot_be_checked_is_not_loaded(folder, end):
    """Groups are read by the runtime, which passes over what it does not know."""
    (folder / "model.onnx").write_bytes(field(7, field(5, REFERENCE)) + end)
    assert "cannot be parsed" in damage.find(folder)[0].problem


def graph_of(folder, name="model.onnx", **ports):
    """A graph with such inputs, and ``out`` as its output; of each its type, or its own fields."""
    made = [
        field(11, field(1, port.encode()), kind if isinstance(kind, bytes) else of_type(kind))
        for port, kind in ports.items()
    ]
    (folder / name).write_bytes(field(7, *made, field(12, field(1, b"out"), of_type(1))))


def of_type(*kinds):
    return field(2, *(field(1, b"\x08" + bytes([kind])) for kind in kinds))


@pytest.mark.parametrize(
    ("decoder", "ports"),
    [
        ({}, {"logits": 3}),
        ({}, {"logits": 11}),
        ({}, {"attention_mask": 3}),
        ({}, {"position_ids": 1}),
        ({}, {"past_key_values.0.key": 9}),
        ({}, {"anything": 8}),
        ({"outputs": {"logits": "scores"}}, {"scores": 2}),
        ({"inputs": {"attention_mask": "mask"}}, {"mask": 9}),
        # Another role beside it, or two types; or none, which the runtime then takes from a node.
        ({"outputs": {"hidden_states": "logits"}}, {"logits": 3}),
        ({}, {"logits": of_type(1, 3)}),
        ({}, {"logits": of_type(1) + of_type(3)}),
        ({}, {"logits": b""}),
        ({}, {"logits": field(2, field(4))}),
        ({}, {"logits": of_type(1) + field(2, field(4))}),  # the runtime: a list, read as a tensor
        ({}, {"unused": field(2, field(1, b"\x08\x01"), field(9))}),
        ({}, {"logits\0more": 3}),
        ({}, {"other": field(1, b"logits") + of_type(3)}),
        ({"filename": "part.onnx"}, {"audio_mask": 9}),
    ],
)
def test_types_that_the_runtime_takes_for_wider_ones_are_refused(folder, decoder, ports):
    """It read and wrote past the end of tensors: a batch of 16 texts ended the process."""
    config = json.loads(json.dumps(CONFIG))
    config["model"]["decoder"] |= decoder
    config["model"]["speech"] = {"filename": "part.onnx"}
    (folder / "genai_config.json").write_text(json.dumps(config))
    usual = {"input_ids": 7, "attention_mask": 7, "past_key_values.0.key": 3}
    graph_of(folder, "model.onnx", **usual, logits=16)
    graph_of(folder, "part.onnx", audio_mask=1 if "filename" in decoder else 9, audio=4)
    assert damage.find(folder) == []
    graph_of(folder, decoder.get("filename", "model.onnx"), **ports)
    assert "of the wrong type" in damage.find(folder)[0].problem


def long_field(number, data):
    """A field of three million bytes or so."""
    sizes = (len(data) >> at & 127 | 128 for at in (0, 7, 14))
    return bytes([number << 3 | 2, *sizes, len(data) >> 21]) + data


@pytest.mark.parametrize("letter", [b"\0", b"x"])
@pytest.mark.parametrize("kind", ["llama", "whisper"])
def test_long_names_in_a_graph_take_no_memory(folder, letter, kind):
    config = {"model": CONFIG["model"] | {"type": kind}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    graph, name = folder / "model.onnx", long_field(1, 3_000_000 * letter)
    graph.write_bytes(graph.read_bytes() + long_field(7, long_field(11, name + of_type(1))))
    tracemalloc.start()
    try:
        assert "more than 1,000 bytes" in damage.find(folder)[0].problem
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_long_name_is_not_written_for_each_layer(folder):
    """A configuration of 600 kB took 2.3 GB of the program that fetched it."""
    inputs = {"past_key_names": "%d" + "a" * 10_000}
    config = {"model": CONFIG["model"] | {"type": "whisper"}}
    config["model"]["decoder"] |= {"num_hidden_layers": 1000, "inputs": inputs}
    (folder / "genai_config.json").write_text(json.dumps(config))
    tracemalloc.start()
    try:
        damage.find(folder)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_a_file_lies_in_few_folders(folder):
    """Each of the 480 was read with all above it: 9 ms a name, of which a graph has thousands."""
    reference = field(1, b"location") + field(2, b"a/" * 32 + b"w")
    (folder / "model.onnx").write_bytes(field(7, field(5, field(13, reference))))
    assert "too long for a file path" in damage.find(folder)[0].problem


@pytest.mark.parametrize("kind", ["marian-ssru", "nemotron_speech", {}])
def test_models_that_structgen_does_not_run_are_told(folder, kind):
    config = json.loads(json.dumps(CONFIG))
    config["model"]["type"] = kind
    (folder / "genai_config.json").write_text(json.dumps(config))
    assert [str(kind) in lack.problem for lack in damage.find(folder)] == [True] * bool(kind)


@pytest.mark.parametrize("name", ["part.bin", "part.ort", "part.onnx.ORT"])
def test_a_graph_is_named_as_one(folder, name):
    """The runtime reads what ends in .ort by other rules, and a file may follow both."""
    (folder / "part.onnx").rename(folder / name)
    config = (folder / "genai_config.json").read_text()
    (folder / "genai_config.json").write_text(config.replace("part.onnx", name))
    assert [lack.problem.endswith("does not end in .onnx.") for lack in damage.find(folder)] == [
        True
    ]
    with pytest.raises(ModelError, match=r"does not end in \.onnx"):
        load_embedder(folder / name)


@pytest.mark.parametrize("name", ["model.masked.onnx", "decoder.onnx"])
def test_graphs_of_any_name_are_checked(folder, name):
    """The runtime takes some by default, and structgen the one with a mask."""
    (folder / "old.onnx").write_bytes(b"neither named nor loaded")
    (folder / name).write_bytes(field(7, field(5, REFERENCE)))
    (lack,) = damage.find(folder)
    assert "is not a path inside" in lack.problem


def test_files_of_the_hubs_own_cache_are_links_into_its_blobs(folder):
    """Of the repository that the folder is of, not of others."""
    snapshot = folder.parent / "models--a--b" / "snapshots" / "123"
    blobs = snapshot.parent.parent / "blobs"
    blobs.mkdir(parents=True)
    snapshot.parent.mkdir()
    folder.rename(snapshot)
    for file in snapshot.iterdir():
        file.rename(blobs / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert damage.find(snapshot) == []
    blobs.rename(blobs.parent / "others")
    assert damage.find(snapshot) != []


def test_a_data_file_that_is_too_short(folder):
    (folder / "model.onnx.data").write_bytes(bytes(1000))
    said = {lack.problem for lack in damage.find(folder)}
    place = folder / "model.onnx.data"
    assert f"{place} is damaged: it has 1,000 bytes, but model.onnx refers to 1,200." in said


@pytest.mark.parametrize("name", ["tokenizer_config.json", "genai_config.json", "tokenizer.json"])
def test_files_with_gigabytes_of_holes_are_not_read(folder, name):
    with (folder / name).open("ab") as file:
        file.truncate(200 << 30)
    with pytest.raises(
        ModelError, match=r"214,748,364,800 bytes(; the limit is|, and may have) (32,|67,1)"
    ):
        genai.load(folder, kind=genai.TextModel)
    (folder / "genai_config.json").unlink()
    if name == "tokenizer_config.json":
        with pytest.raises(ModelError, match=r"214,748,364,800 bytes"):
            load_embedder(folder)


@pytest.mark.parametrize("name", ["audio_processor_config.json", "own.json"])
def test_steps_that_are_too_deep_are_not_read(folder, name):
    """They ended the process that loaded the model."""
    (folder / "genai_config.json").write_text(
        '{"model": {"type": "phi4mm", "vision": {"config_filename": "own.json"}}}'
    )
    (folder / name).write_text('{"feature_extraction": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert any(f"{name} cannot be parsed" in lack.problem for lack in damage.find(folder))


def found_in_steps(folder, *changes):
    """What is found in a folder after each change to its steps, in which there is nothing now."""
    file = folder / "processor_config.json"
    told = file.read_text()
    assert damage.find(folder) == []
    for old, new in changes:
        assert old in told
        file.write_text(told.replace(old, new))
        yield ([lack.problem.partition(f"{file} has ")[2] for lack in damage.find(folder)], new)


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (
            tiny_vision.phi4mm,
            [
                ('"inputs": [":0"]', '"inputs": []'),
                ('"phi4_vision_dynamic_preprocess:1"', '":0"'),
                ('"Rescale"', '"Normalize"'),
                ('"Phi4VisionDynamicPreprocess"', '"Rescale"'),
                ('"DecodeImage"', '"LogMelSpectrum"'),
                ('"dynamic_hd": 36', '"dynamic_hd": 1e999'),
                (', "output_aligner": "phi4-vision-aligner"', ""),
            ],
        ),
        (
            tiny_vision.gemma3,
            [
                ('"type": "Rescale"', '"type": "ConvertRGB"'),
                ('"type": "Resize"', '"type": "Rescale"'),
                ('"type": "Resize"', '"type": "Normalize"'),
                ('"type": "Permute3D"', '"type": "CenterCrop"'),
                ('"width": 896', '"width": 100000'),
                ('"width": 896, ', ""),
                ('"width": 896', '"width": 896, "an_unknown_number": 1'),
                ('"mean": [0.5, 0.5, 0.5]', '"mean": [0.5]'),
                ('"mean": [0.5, 0.5, 0.5]', '"mean": [1, 0.5, 0.5]'),
                ('"width": 896', '"width": 896.0'),
                ('"name": "1"', '"name": 5'),
                ('"name": "1", ', ""),
                ("[2, 0, 1]", "[2, 2, 2]"),
                ('"name": "pictures"', '"output_aligner": "phi4-vision-aligner"'),
            ],
        ),
        (
            tiny_vision.qwen2_5_vl,
            [
                ('"patch_size": 14', '"patch_size": 0'),
                ('"temporal_patch_size": 2', '"temporal_patch_size": 0'),
                ('"max_pixels": 12544', '"max_pixels": 1' + "0" * 400),
                ('"smart_resize": 1', '"smart_resize": 0'),
                ('"PatchImage"', '"Phi3ImageTransform"'),
            ],
        ),
        (tiny_vision.phi3v, [('"name": "pictures"', '"output_aligner": "phi4-vision-aligner"')]),
    ],
)
def test_steps_are_those_of_published_folders(tmp_path, make, changes):
    """The process ended otherwise, read other memory than a picture's, or took gigabytes."""
    for found, change in found_in_steps(make(tmp_path / "seeing"), *changes):
        assert found != [], change
        assert all(re.search("allows|must be|not allowed", one) for one in found), found


def test_a_name_of_a_step_occurs_once(tmp_path):
    (found,) = found_in_steps(
        tiny_vision.gemma3(tmp_path / "seeing"), ('"width": 896', '"width": 896, "width": 9')
    )
    assert found != []


WHISPER = """{"feature_extraction": {"sequence": [
    {"operation": {"name": "audio_decoder", "type": "AudioDecoder"}},
    {"operation": {"name": "STFT", "type": "STFTNorm",
        "attrs": {"n_fft": 400, "frame_length": 400, "hop_length": 160, "_comment": [0.0, 0.5]}}},
    {"operation": {"name": "log_mel_spectrogram", "type": "LogMelSpectrum",
        "attrs": {"chunk_size": 30, "hop_length": 160, "n_fft": 400, "n_mel": 80}}}]}}"""
PHI_4_SOUNDS = json.dumps(
    {
        "feature_extraction": {
            "output_aligner": "phi4-audio-aligner",
            "sequence": [
                {
                    "operation": {
                        "name": "audio_decoder",
                        "type": "AudioDecoderEx",
                        "attrs": {"target_sample_rates": [8000, 16000]},
                    }
                },
                {
                    "operation": {
                        "name": "phi_4_audio_embed",
                        "type": "Phi4AudioEmbed",
                        "attrs": {"audio_compression_rate": 8}
                        | {
                            f"{step}{rate}/{name}": value
                            for rate, n_fft, frame, hop in (
                                ("", 512, 400, 160),
                                ("_8k", 256, 200, 80),
                            )
                            for step, values in (
                                ("stft_normal", {"n_fft": n_fft, "frame_length": frame}),
                                ("logmel", {"chunk_size": 30, "n_fft": 512, "n_mel": 80}),
                            )
                            for name, value in {**values, "hop_length": hop}.items()
                        },
                    }
                },
            ],
        }
    }
)


@pytest.mark.parametrize(
    ("kind", "steps", "changes"),
    [
        (
            "whisper",
            WHISPER,
            [
                ('"hop_length": 160', '"hop_length": 0'),
                ('"chunk_size": 30', '"chunk_size": 100000'),
                ('"n_mel": 80', '"n_mel": 0'),
                (', "n_mel": 80', ""),
                ("STFTNorm", "Gemma4LogMel"),
                ("[0.0, 0.5]", "[[[]]]"),
                ('"sequence"', '"output_aligner": "phi4-audio-aligner", "sequence"'),
            ],
        ),
        (
            "phi4mm",
            PHI_4_SOUNDS,
            [
                ('"logmel_8k/hop_length": 80', '"logmel_8k/hop_length": 0'),
                ("[8000, 16000]", "[8000, 1]"),
            ],
        ),
    ],
)
def test_steps_of_sounds_are_those_of_published_folders(folder, kind, steps, changes):
    (folder / "genai_config.json").write_text(
        f'{{"model": {{"type": "{kind}", "speech": {{"config_filename": "own.json"}}}}}}'
    )
    file = folder / "own.json"
    file.write_text(steps)
    assert damage.find(folder) == []
    for old, new in changes:
        assert old in steps
        file.write_text(steps.replace(old, new))
        assert "own.json has" in damage.find(folder)[0].problem, new


def test_what_the_runtime_reads_steps_of_has_known_steps():
    assert allowed.STEPS["vision"].keys() == media.PICTURES.keys()


def test_files_of_a_million_values_are_not_read(folder):
    (folder / "tokenizer_config.json").write_text(f"[{'{},' * 500_001}0]")
    (folder / "genai_config.json").write_text(f"[{'[[[[]]]],' * 250_001}0]")
    with pytest.raises(ModelError, match="more than 1,000,000 values"):
        genai.load(folder, kind=genai.TextModel)
    with pytest.raises(ModelError, match="more than 1,000,000 values"):
        start_ids(folder, Vocabulary.from_tokens([b"a", b""], [1]))
    assert models.info(str(folder)).commit == ""


@pytest.mark.parametrize("name", ["tokenizer_config.json", "genai_config.json", ".structgen.json"])
def test_pipes_are_not_waited_for(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(ModelError, match=r"is a pipe or a device|embedder"):
        genai.load(folder, kind=genai.TextModel)
    assert models.info(str(folder)).commit == ""


@pytest.mark.skipif(not os.path.isfile("/proc/version"), reason="Linux has such files")
def test_files_of_the_system_are_not_read(folder):
    """Reading /proc/kmsg, which calls itself a regular file of 0 bytes, never ends."""
    file = folder / "notes.txt"
    file.symlink_to("/proc/version")
    assert file.read_bytes()
    assert user_folder.contents(file) == b""


def test_a_folder_has_few_files(folder, monkeypatch):
    """The loop of a Runner looked at each of 400,000, for 4.5 s."""
    monkeypatch.setattr(damage, "_MOST_FILES", len([*folder.iterdir()]))
    assert damage.find(folder) == []
    (folder / "one more").touch()
    (lack,) = damage.find(folder)
    assert re.search(r"has more than \d files\.$", lack.problem)


def test_what_a_folder_says_of_itself_can_be_printed(folder):
    (folder / ".structgen.json").write_text(
        '{"source": "\\ud800", "commit": "\\u001b", "files": {}}'
    )
    (folder / "genai_config.json").write_text(f'{{"model": {{"context_length": {10**400}}}}}')
    said = models.info(str(folder))
    assert (said.source, said.commit, said.context) == (r"\ud800", r"\x1b", None)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *(("../a.tiktoken", "not a path inside"), ("link.tiktoken", "points outside the folder")),
        *(("/dev/zero", "not a path inside"), ("sub/a.tiktoken", "in another folder")),
        *((5, "'5' is not a file path"), ("a.bin", "does not end in one of"), ("a.tiktoken", None)),
    ],
)
@pytest.mark.parametrize("config", ["tokenizer_config.json", "tokenizer_module.json"])
def test_a_file_of_tokens_is_in_the_folder(folder, config, name, says):
    """The runtime reads it in place of the tokens in tokenizer.json, wherever it is."""
    (folder / "link.tiktoken").symlink_to("/etc/passwd")
    (folder / "sub").mkdir()
    (folder / config).write_text(json.dumps({"tiktoken_file": name}))
    said = [lack.problem for lack in damage.find(folder)]
    assert [says in one for one in said] == ([] if says is None else [True])


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("chat_template", [{"name": "default", "template": "{{ messages }}"}], "str"),
        *(("chat_template", None, "str"), ("clean_up_tokenization_spaces", None, "bool")),
        *(("model_max_length", "1", "float"), ("eos_token", [1], "str")),
        *(("eos_token", {"content": "</s>"}, None), ("model_max_length", 10**30, None)),
    ],
)
def test_settings_of_a_tokenizer_that_the_runtime_cannot_read_are_named(
    folder, name, value, wanted
):
    """It said "type must be string, but is array", and neither the file nor the setting."""
    (folder / "tokenizer_config.json").write_text(json.dumps({name: value}))
    found = damage.find(folder)
    assert [lack.do for lack in found] == (
        [f"Delete it there, or change it to a {wanted}."] if wanted else []
    )
    assert all(f"tokenizer_config.json sets {name} to " in lack.problem for lack in found)


def test_a_folder_that_may_not_be_listed_is_told(folder, monkeypatch):
    """As of mode 711, or while another process deletes it: a PermissionError without a hint."""
    monkeypatch.setattr(Path, "iterdir", lambda self: os.scandir(self / "gone"))
    (lack,) = damage.find(folder)
    assert lack.problem.startswith(f"{folder} cannot be read: [Errno 2] No such file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
@pytest.mark.parametrize("part", ["vision", "speech", "decoder"])
def test_a_pipe_that_a_configuration_names_is_not_waited_for(folder, part):
    (folder / "sub").mkdir()
    os.mkfifo(folder / "sub" / "steps.json")
    named = {"type": "phi4mm", part: {"config_filename": "sub/steps.json"}}
    (folder / "genai_config.json").write_text(json.dumps({"model": CONFIG["model"] | named}))
    assert any(
        "'sub/steps.json' is not a regular file" in lack.problem for lack in damage.find(folder)
    )


MANY_FILES = json.dumps({"commit": "1", "source": "", "files": {"a": [1, ""], "b": [0] * 100_000}})


@pytest.mark.parametrize("text", ["[" * 100_000, '{"files": {"a": [1e999, ""]}}', MANY_FILES])
def test_a_record_that_cannot_be_understood_is_none(folder, text):
    (folder / ".structgen.json").write_text(text)
    (folder / "genai_config.json").write_text(text)
    assert models.info(str(folder)).commit == ""


def test_a_configuration_whose_layers_are_all_one_is_not_counted():
    class Generator:
        def get_output(self, name):
            return np.zeros((1, 1, 1, 1), np.int8)

    outputs = {"present_key_names": "present.0.key", "present_value_names": "present.0.value"}
    decoder = {"num_hidden_layers": 10**9, "outputs": outputs}
    assert inside.bytes_of_a_token(None, {"model": {"decoder": decoder}}, Generator()) == 0


def test_what_is_wrong_with_a_folder_is_told_in_few_words(folder):
    """2 MB of a configuration, whose names are long, took 8 GB of the program that fetched it."""
    config = folder / "genai_config.json"
    wrong = {"A" * 100_000: dict.fromkeys(map(str, range(1000)), 1)}
    config.write_text(json.dumps({**CONFIG, **wrong}))
    assert sum(len(lack.problem) + len(lack.do) for lack in damage.find(folder)) < 50_000
    config.write_text(json.dumps({**CONFIG, "search": {"top_k": [1] * 20_000}}))
    assert "more than 20,000 values" in damage.find(folder)[0].problem
    config.write_text(json.dumps({"model": {"vision": {}, "type": ["phi3v"] * 1000}}))
    (folder / "processor_config.json").write_text('{"processor": {"transforms": []}}')
    assert ["the steps" in lack.problem for lack in damage.find(folder)] == [True]  # read once
    config.write_text(json.dumps(CONFIG))
    (folder / "model.onnx").write_bytes(
        b"".join(field(7, field(11, field(1, b"%d" % i))) for i in range(1000))
    )
    assert len(damage.find(folder)) < 50


@pytest.mark.parametrize(("n", "says"), [(9_000, ""), (9_900, "files of weights")])
@pytest.mark.parametrize("n_graphs", [1, 3])
def test_graphs_keep_their_weights_in_few_files(folder, n, says, n_graphs):
    """40 graphs of 1 MB that name one file in 10,000 ways each took minutes."""
    (folder / "w").touch()
    ways = ("".join(one) for one in itertools.product(("/.", "//"), repeat=14))
    for name in ["model.onnx", "part.onnx", "decoder.onnx"][:n_graphs]:
        some = itertools.islice(ways, n // n_graphs)
        places = (field(1, b"location") + field(2, f".{one}/w".encode()) for one in some)
        data = b"".join(field(7, field(5, field(13, one))) for one in places)
        (folder / name).write_bytes(data)
    found = damage.find(folder)
    assert says in found[0].problem if says else not found


def test_what_is_in_references_counts(folder):
    """Each has up to 1,000 bytes, and a field takes two."""
    reference = field(1, b"location") + field(2, b"a") + field(3) * 490
    size = len(reference)
    for number in (13, 5, 7):
        reference = bytes([number << 3 | 2, size & 127 | 128, size >> 7]) + reference
        size = len(reference)
    (folder / "model.onnx").write_bytes(reference * 5_000)
    assert "more than 2,000,000 fields" in damage.find(folder)[0].problem


@pytest.mark.parametrize("name", ["genai_config.json", "tokenizer.json"])
def test_fields_of_all_graphs_and_of_their_inputs_count(folder, name, monkeypatch):
    """A megabyte of them took the program that had fetched the folder 0.7 s."""
    if name == "tokenizer.json":
        (folder / "genai_config.json").unlink()
    (folder / name).touch()
    port = field(1, b"a") + field(2, field(1, b"\x08\x01" + field(9) * 15) + field(6) * 15)
    graph = field(7, field(11, port + field(9) * 15))
    for file in ("model.onnx", "decoder.onnx"):
        (folder / file).write_bytes(graph)
    monkeypatch.setattr(damage, "_MOST_FIELDS", 300)
    assert not damage.find(folder)
    for most in (90, 40):  # of two graphs that have 51 each
        monkeypatch.setattr(damage, "_MOST_FIELDS", most)
        (one, *_) = damage.find(folder)
        assert f"more than {most} fields" in one.problem


_SHAPE = struct.pack("<I2q", 2, 2, 3)  # with its length


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"", b"", ""),
        (_SHAPE, struct.pack("<I2q", 2, 2, 4), "24 bytes do not fit the type 1"),
        (_SHAPE, struct.pack("<I2q", 2, -2, -3), "24 bytes do not fit the type 1"),
        (_SHAPE[:4], struct.pack("<I", 9), "9 items; the limit is 8"),
        (b"\x0c\x00\x14\x00\x04\x00\x08", b"\x0c\x00\x14\x00\x04\x00\x00", "has no name, shape"),
    ],
)
def test_an_adapter_has_the_numbers_that_it_says(tmp_path, old, new, says):
    """Runtimes before 1.24 read what lies behind them, and ended the process without a shape."""
    adapter, file = onnxruntime.AdapterFormat(), tmp_path / "a.onnx_adapter"
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    adapter.set_parameters({"a": onnxruntime.OrtValue.ortvalue_from_numpy(values)})
    adapter.export_adapter(str(file))
    written = file.read_bytes()
    assert old in written
    file.write_bytes(written.replace(old, new, 1))
    lack = damage.of_adapter(file)
    assert says in lack.problem if says else lack is None


@pytest.mark.parametrize(
    ("name", "is_filled"),
    [
        ("input_ids", True),
        ("words\0.of.theirs", True),
        ("past_key_values.17.key", True),
        ("past_key_values.17.keys", False),
        ("past.1.17", True),
        ("past.1.x", False),
        ("mask", True),
        ("weight", False),
    ],
)
def test_an_adapter_takes_no_input_that_a_call_fills(folder, name, is_filled):
    """The runtime ended the process, or never came back, and a mask would be of no use."""
    config = json.loads((folder / "genai_config.json").read_bytes())
    config["model"].setdefault("decoder", {})["inputs"] = {
        "input_ids": "words",
        "past_key_names": "past.1.%d",
    }
    (folder / "genai_config.json").write_text(json.dumps(config))
    adapter, file = onnxruntime.AdapterFormat(), folder / "a.onnx_adapter"
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32))
    adapter.set_parameters({name: value})
    adapter.export_adapter(str(file))
    lack = damage.of_adapter(file, folder, "mask")
    assert ("which each call sets" in lack.problem) if is_filled else lack is None
