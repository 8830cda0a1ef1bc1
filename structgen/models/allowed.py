"""The settings that a model folder's configuration may have; any other is an error.

The runtime accepts any options of ONNX Runtime, and some of them load code, write files, or are
used as memory addresses. To allow one more, add its name here. Knows no files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MOST_THREADS = 1_024  # of an operator


def _names(text: str) -> dict[str, Any]:
    return {name: {} for name in text.split()}


_ANY: dict[str, Any] = {"*": {"*": {}}}
"""Names that the folder chooses itself, for example of tensors."""

_OPENVINO = _names(
    "MAX_PROMPT_LEN MIN_RESPONSE_LEN PREFILL_HINT GENERATE_HINT NPUW_FUNCALL_FOR_ALL NPUW_FOLD "
    "NPUW_WHISPER NPUW_WEIGHTS_BANK NPUW_LLM_PREFILL_HINT NPUW_LLM_GENERATE_HINT NPU_USE_NPUW "
    "NPUW_ONLINE_PIPELINE PERFORMANCE_HINT INFERENCE_PRECISION_HINT KV_CACHE_PRECISION "
    "NUM_STREAMS DYNAMIC_QUANTIZATION_GROUP_SIZE ACTIVATIONS_SCALE_FACTOR"
)
_PROVIDER = _names(
    "device_id arena_extend_strategy cudnn_conv1d_pad_to_nc1d cudnn_conv_algo_search "
    "cudnn_conv_use_max_workspace do_copy_in_default_stream enable_cuda_graph fuse_conv_bias "
    "enable_skip_layer_norm_strict_mode gpu_mem_limit prefer_nhwc sdpa_kernel tunable_op_enable "
    "tunable_op_max_tuning_duration_ms tunable_op_tuning_enable use_tf32 "
    "use_ep_level_unified_stream device_filter performance_preference disable_metacommands "
    "enable_graph_capture enableGraphCapture validationMode multiRotaryCacheConcatOffset "
    "preferredLayout enableInt64 powerPreference storageBufferCacheMode uniformBufferCacheMode "
    "queryResolveBufferCacheMode defaultBufferCacheMode maxStorageBufferBindingSize "
    "forceCpuNodeNames dawnBackendType multi_rotary_cache_concat_offset nv_profile_min_shapes "
    "nv_profile_opt_shapes nv_profile_max_shapes nv_multi_profile_enable nv_cuda_graph_enable "
    "nv_max_workspace_size nv_max_shared_mem_size htp_performance_mode "
    "htp_graph_finalization_optimization_mode htp_arch soc_model vtcm_mb rpc_control_latency "
    "qnn_context_priority enable_htp_fp16_precision enable_htp_weight_sharing "
    "enable_htp_shared_memory_allocator offload_graph_io_quantization device_type precision "
    "num_streams model_priority enable_opencl_throttling reshape_input layout "
    "enable_qdq_optimizer enable_causallm disable_dynamic_shapes target hybrid_opt_chunk_context "
    "hybrid_opt_free_after_prefill hybrid_opt_max_seq_length hybrid_opt_token_backend"
)
_PROVIDER |= {
    "backend_type": _names("cpu gpu htp"),
    "load_config": {"*": _OPENVINO},
    "device_filtering_options": _names(
        "hardware_device_type hardware_device_id hardware_vendor_id"
    ),
}
_SESSION = _names(
    "log_id log_severity_level log_verbosity_level intra_op_num_threads inter_op_num_threads "
    "enable_cpu_mem_arena enable_mem_pattern graph_optimization_level use_env_allocators "
    "disable_cpu_ep_fallback disable_quant_qdq enable_quant_qdq_cleanup "
    "session.disable_prepacking session.use_env_allocators session.set_denormal_as_zero "
    "session.disable_quant_qdq session.enable_quant_qdq session.disable_double_qdq_remover "
    "session.enable_quant_qdq_cleanup session.disable_aot_function_inlining "
    "session.disable_cpu_ep_fallback session.disable_qdq_constant_folding "
    "session.enable_dq_matmulnbits_fusion session.graph_optimizations_loop_level "
    "session.inter_op.allow_spinning session.intra_op.allow_spinning session.dynamic_block_base "
    "session.force_spinning_stop session.qdq_matmulnbits_accuracy_level "
    "session.qdq_matmulnbits_block_size session.use_deterministic_compute "
    "session.use_device_allocator_for_initializers optimization.disable_specified_optimizers "
    "optimization.enable_gelu_approximation optimization.enable_cast_chain_elimination "
    "optimization.minimal_build_optimizations mlas.use_lut_gemm mlas.disable_kleidiai "
    "mlas.enable_gemm_fastmath_arm64_bfloat16 ep.cuda.fpa_intb_gemm"
) | {"provider_options": {"*": _PROVIDER}}
_RUN = _names(
    "memory.enable_memory_arena_shrinkage disable_synchronize_execution_providers gpu_graph_id "
    "qnn.htp_perf_mode qnn.htp_perf_mode_post_run qnn.rpc_control_latency"
)

FILES = ("filename", "config_filename", "adapter_filename", "data_file")
"""Settings that name a file of the folder."""

_PART = dict.fromkeys(FILES, _ANY) | _names(
    "type vocab_size context_length pad_token_id eos_token_id bos_token_id decoder_start_token_id "
    "sep_token_id image_token_id audio_token_id boa_token_id bor_token_id bot_token_id "
    "eor_token_id eot_token_id video_token_id vision_start_token_id num_mels fft_size hop_length "
    "win_length preemph sample_rate chunk_samples hidden_size num_attention_heads "
    "num_hidden_layers num_key_value_heads head_size conv_cache_size layer_types "
    "state_update_capacity window_size pad_value alignment slide_key_value_cache slide_inputs "
    "cache_slack layers run_on_prompt run_on_token_gen run_on_cpu is_lm_head "
    "inherit_session_options reset_session_idx spatial_merge_size tokens_per_second patch_size "
    "num_visual_tokens main_hidden_states main_aux_hidden_states block_size mask_token_id "
    "num_draft_tokens independent_sampling sampled_proposal sampling_min_p sampling_temperature "
    "sampling_top_p selector_top_k audio_start_token_id codebook_size interleaved_n_audio "
    "interleaved_n_text num_codebooks text_end_token_id name data_type shape offset length kind "
    "layer_ids state_capacity enabled"
)
_PART |= dict.fromkeys(
    _names(
        "decoder encoder encoder_decoder_init draft vision embedding speech mtp dflash2 dspark "
        "audio_output depthformer sliding_window shared_initializers state_groups"
    ),
    _PART,
)
_PART |= dict.fromkeys(
    _names("inputs outputs output_names_forwarder bindings state_update prompt_templates"), _ANY
)
_PART |= {"pipeline": {"*": _PART}, "session_options": _SESSION, "run_options": _RUN}
_CONFIG = {
    "model": _PART,
    "search": _names(
        "min_length max_length batch_size num_beams num_return_sequences top_k top_p temperature "
        "repetition_penalty length_penalty no_repeat_ngram_size diversity_penalty random_seed "
        "chunk_size do_sample past_present_share_buffer early_stopping audio_interleaved "
        "audio_temperature audio_top_k"
    ),
    "speculative": _names(
        "max_draft_tokens ngram_size ngram_chained_lookup min_adaptive_k cooldown"
    ),
    "engine": dict.fromkeys(
        ("dynamic_batching", "static_batching"),
        _names(
            "block_size num_blocks gpu_utilization_factor max_batch_size max_scheduled_tokens "
            "prefix_caching"
        ),
    ),
}
"""All allowed settings, by place: those of ONNX Runtime GenAI's model builder and published folders
that cannot name a library, a file elsewhere or a memory address, and cannot write files to the
working folder. ``*`` is any name."""


def is_allowed(place: tuple[str, ...], value: object) -> bool:
    """Return whether a setting is allowed at the place of these names."""
    if isinstance(value, str) and "%" in value.replace("%d", "", 1):
        return False  # the runtime formats layer numbers with it: a %s would read memory
    table: Mapping[str, Any] = _CONFIG
    for name in place:
        if name not in table and "*" not in table:
            return False
        table = table.get(name, table.get("*"))
    if place[-1] in ("patch_size", "spatial_merge_size"):  # the runtime divides by it
        return type(value) is int and value > 0
    if place[-1].endswith("num_threads"):  # a million would use up memory before any starts
        return type(value) is int and value <= _MOST_THREADS
    # Instead of an object, one of its allowed texts; "inputs" may be a list of any names.
    return not table or "*" in table or value in (None, {}) or value in table


OTHER_TYPES = ("marian-ssru", "moonshine", "nemotron_speech", "parakeet_tdt")
"""Types of models that masks cannot constrain, because they do not score one next token."""

PORTS = {"logits": {1, 10, 16}, "attention_mask": {6, 7}, "position_ids": {6, 7}}
"""The allowed types of inputs and outputs of a graph, as ONNX numbers them."""

_NUMBERS, _TRUTH = {*range(1, 8), *range(10, 14), 16, 17}, {9}


def port_types(roles: Iterable[str], has_masks: bool) -> set[int]:
    """Return the types that the runtime handles correctly for an input or output in these roles.

    It treats others as wider ones, and reads and writes past their end.
    """
    types = _NUMBERS | (_TRUTH if has_masks else set())
    return types.intersection(*(PORTS[role] for role in roles if role in PORTS))


_DECODE = "DecodeImage color_space?=RGB|BGR > ConvertRGB? > "
_RESIZE = "Resize interpolation?=NEAREST|LINEAR|CUBIC|LANCZOS keep_aspect_ratio?=0 "
_SCALE = "> Rescale rescale_factor?=0.0..1 "
_NORMALIZE = "> Normalize mean?=-999.0..999*3 std?=-999.0..999*3 qwen2_5_vl?=0|1 qwen3_vl?=0|1 > "
_QWEN = (
    f"{_DECODE}{_RESIZE} smart_resize=1 width?=1..16777216 height?=1..16777216 "
    "min_pixels?=0..16777216 max_pixels?=1..16777216 patch_size?=8..64 merge_size?=1..4 "
    f"{_SCALE}{_NORMALIZE} PatchImage? patch_size?=8..64 merge_size?=1..4 temporal_patch_size?=1|2"
)
STEPS = {
    "vision": {
        "phi3v": f"{_DECODE} Phi3ImageTransform num_crops?=1..64 num_img_tokens?=1..4096",
        "phi4mm": (
            "DecodeImage color_space?=RGB > Phi4VisionDynamicPreprocess dynamic_hd?=1..64 "
            f'dyhd_base_resolution?=448 {_SCALE} :inputs=[":0"] {_NORMALIZE} '
            "Phi4VisionProcessor dyhd_base_resolution?=448 interpolation?=CUBIC "
            ':inputs=[":0","phi4_vision_dynamic_preprocess:1"] > phi4-vision-aligner'
        ),
        **dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "fara"), _QWEN),
        "gemma3": (
            f"{_DECODE}{_RESIZE} width=1..2048 height=1..2048 smart_resize?=0 "
            f"{_SCALE}{_NORMALIZE} Permute3D dims=[2,0,1]"
        ),
    },
    "speech": {
        "whisper": (
            "AudioDecoder > STFTNorm n_fft=400 frame_length=400 hop_length=160 "
            "hann_win?=0.0..1*400 _comment?=0.0..1* "
            "> LogMelSpectrum chunk_size=30 hop_length=160 n_fft=400 n_mel=80|128"
        ),
        "phi4mm": (
            "AudioDecoderEx target_sample_rates=[8000,16000] > Phi4AudioEmbed "
            "audio_compression_rate?=8 stft_normal/n_fft=512 stft_normal/frame_length=400 "
            "stft_normal/hop_length=160 stft_normal/win_fn?=hamming stft_normal_8k/n_fft=256 "
            "stft_normal_8k/frame_length=200 stft_normal_8k/hop_length=80 "
            "stft_normal_8k/win_fn?=hamming logmel/chunk_size=30 logmel/hop_length=160 "
            "logmel/n_fft=512 logmel/n_mel=80 logmel/feature_first?=0 logmel/no_padding?=1 "
            "logmel_8k/chunk_size=30 logmel_8k/hop_length=80 logmel_8k/n_fft=512 "
            "logmel_8k/n_mel=80 logmel_8k/feature_first?=0 logmel_8k/no_padding?=1 "
            "> phi4-audio-aligner"
        ),
    },
}
"""The steps by which published folders read pictures and sounds, in order, by the model's type;
other steps have crashed the process, read memory beyond a picture, or taken gigabytes. An attribute
is one of the listed values, a number of a range, or a list of these; ``?`` marks optional ones.
``0..1`` means integers, ``0.0..1`` floats.
"""

STEPS_IN = {
    "vision": ("processor_config.json", "processor", "transforms"),
    "speech": ("audio_processor_config.json", "feature_extraction", "sequence"),
}
"""The default file of the runtime, and the names in it."""


def steps_wrong(part: str, kind: str, config: Mapping[str, Any]) -> Iterator[str]:
    """Say what the steps of a file have that models of this type do not have."""
    _, section, name = STEPS_IN[part]
    steps = [one["operation"] for one in config[section][name]]
    given = [step["type"] for step in steps]
    given += [config[section][key] for key in config[section] if key == "output_aligner"]
    known = [step.split() for step in STEPS[part][kind].split(" > ")]
    may = " > ".join(first for first, *_ in known)
    known = [step for step in known if step[0][-1] != "?" or step[0][:-1] in given]
    if given != [first.rstrip("?") for first, *_ in known]:
        yield f"the steps {' > '.join(map(str, given))[:200]}, but {kind} allows {may}"
        return
    for step, (_, *rest) in zip(steps, known, strict=False):
        rules = dict(one.split("=", 1) for one in (":inputs=null", ":name=str", *rest))
        needed = dict.fromkeys(one for one in rules if one[-1] != "?")
        values = {**needed, **step.get("attrs", {}), ":inputs": step.get("inputs")}
        values[":name"] = type(step.get("name")).__name__
        for attribute, value in values.items():
            rule = rules.get(attribute, rules.get(f"{attribute}?", ""))
            text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            if text not in rule.split("|") and not _in_range(value, rule):
                what = f"{attribute.lstrip(':')} = {text[:40]} in {step['type']}"
                yield f"{what}, but must be {rule}" if rule else f"{what}, which is not allowed"


def _in_range(value: Any, rule: str) -> bool:
    least, dots, most = rule.partition("..")
    most, star, many = most.partition("*")
    numbers = value if star and isinstance(value, list) else [value]
    kind = float if "." in least else int  # the runtime takes it from the first
    if not dots or {*map(type, numbers[:1])} - {kind} or {*map(type, numbers)} - {int, float}:
        return False
    fit = all(float(least) <= one <= float(most) for one in numbers)
    return fit and many in ("", str(len(numbers)))
