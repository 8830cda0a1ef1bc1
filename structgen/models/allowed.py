"""What the configuration of a model's folder may set: everything else is an error.

The runtime takes options of ONNX Runtime by any name, and some load code, write files, or are taken
for places in memory. To let folders set one more, add its name here. Knows no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MOST_THREADS = 1_024  # of an operator


def _names(text: str) -> dict[str, Any]:
    return {name: {} for name in text.split()}


_ANY: dict[str, Any] = {"*": {"*": {}}}
"""Names that are the folder's own: of tensors, say."""

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
"""Names of settings that name a file of the folder."""

_PART = dict.fromkeys(FILES, _ANY) | _names(
    "type vocab_size context_length pad_token_id eos_token_id bos_token_id decoder_start_token_id "
    "sep_token_id image_token_id audio_token_id boa_token_id bor_token_id bot_token_id "
    "eor_token_id eot_token_id video_token_id vision_start_token_id num_mels fft_size hop_length "
    "win_length preemph log_eps norm_eps subsampling_factor left_context conv_context "
    "pre_encode_cache_size sample_rate chunk_samples blank_id max_symbols_per_step "
    "left_context_samples right_context_samples tdt_durations hidden_size num_attention_heads "
    "num_hidden_layers num_key_value_heads head_size conv_cache_size layer_types "
    "state_update_capacity window_size pad_value alignment slide_key_value_cache slide_inputs "
    "cache_slack layers run_on_prompt run_on_token_gen run_on_cpu is_lm_head "
    "inherit_session_options reset_session_idx spatial_merge_size tokens_per_second patch_size "
    "num_visual_tokens threshold silence_duration_ms prefix_padding_ms main_hidden_states "
    "main_aux_hidden_states block_size mask_token_id num_draft_tokens independent_sampling "
    "sampled_proposal sampling_min_p sampling_temperature sampling_top_p selector_top_k "
    "audio_start_token_id codebook_size interleaved_n_audio interleaved_n_text num_codebooks "
    "text_end_token_id name data_type shape offset length kind layer_ids state_capacity"
)
_PART |= dict.fromkeys(
    _names(
        "decoder encoder encoder_decoder_init draft vision embedding speech joiner vad mtp "
        "dflash2 dspark audio_output depthformer sliding_window shared_initializers state_groups"
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
        "chunk_size do_sample past_present_share_buffer early_stopping blank_penalty "
        "audio_interleaved audio_temperature audio_top_k"
    ),
    "speculative": _names(
        "max_draft_tokens ngram_size ngram_chained_lookup min_adaptive_k cooldown"
    ),
    "engine": dict.fromkeys(
        ("dynamic_batching", "static_batching"),
        _names("block_size num_blocks gpu_utilization_factor max_batch_size max_scheduled_tokens"),
    ),
}
"""All that a folder's configuration may set, by place: what ONNX Runtime GenAI's model builder and
published folders write, and what can neither name a library, a file elsewhere or a place in memory
nor have a file written where you work. ``*`` is any name."""


def is_allowed(place: tuple[str, ...], value: object) -> bool:
    """Whether a folder may set this at the place that these names lead to."""
    table: Mapping[str, Any] = _CONFIG
    for name in place:
        if name not in table and "*" not in table:
            return False
        table = table.get(name, table.get("*"))
    if place[-1].endswith("num_threads"):  # a million would take the memory before one starts
        return type(value) is int and value <= _MOST_THREADS
    # One of the texts that it may be; "inputs" may also be a list of names.
    return not (table and isinstance(value, str)) or value in table or "*" in table


_USUAL = (-65_536, 65_536)
_NUMBERS = {
    "width": (1, 4_096),
    "height": (1, 4_096),
    "min_pixels": (0, 1 << 24),
    "max_pixels": (1, 1 << 24),
    "patch_size": (4, 256),
    "merge_size": (1, 16),
    "temporal_patch_size": (1, 4),
    "dynamic_hd": (1, 64),
    "dyhd_base_resolution": (1, 896),
    "max_soft_tokens": (1, 4_096),
    "pooling_kernel_size": (1, 64),
    "n_fft": (16, 4_096),
    "frame_length": (16, 4_096),
    "hop_length": (40, 4_096),
    "chunk_size": (1, 60),
    "n_mel": (1, 256),
    "feature_size": (1, 1_024),
    "sampling_rate": (1_000, 96_000),
    "target_sample_rate": (1_000, 96_000),
    "target_sample_rates": (1_000, 96_000),
}
"""The least and the most of the numbers of steps that read pictures and sounds. The runtime divides
by some, and a zero ends the process; and it takes memory for as many numbers as others say."""


_NEEDED = {"LogMelSpectrum": {"chunk_size", "hop_length", "n_mel"}}
_PHI_4 = [
    *("DecodeImage", "Phi4VisionDynamicPreprocess", "Rescale", "Normalize"),
    "Phi4VisionProcessor",
]


def numbers_wrong(step: Mapping[str, Any]) -> Iterator[str]:
    """Say which numbers of a step are out of range, or missing."""
    attributes = step.get("attrs", {})
    for name in sorted(_NEEDED.get(step["type"], set()) - attributes.keys()):
        yield f"no {name}"
    for name, value in attributes.items():
        least, most = _NUMBERS.get(name.rpartition("/")[2], _USUAL)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, (int, float)) and not least <= number <= most:
                yield f"{name} = {str(number)[:20]}, which may be {least:,} to {most:,}"


_OF_BYTES = {"DecodeImage", "Resize", "CenterCrop", "Rescale"}
_OF_NUMBERS = {"Normalize", "Permute3D", "PatchImage"}


def is_wired(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Whether steps get what they take: they take what the one before gives, but for Phi-4's.

    Those before Rescale take bytes, and those after it numbers of four bytes.
    """
    steps = [step for step in steps if step["type"] != "ConvertRGB"]
    if not any("inputs" in step or step["type"].startswith("Phi4Vision") for step in steps):
        types = [step["type"] for step in steps]
        at = types.index("Rescale") if "Rescale" in types else len(types)
        return _OF_NUMBERS.isdisjoint(types[:at]) and _OF_BYTES.isdisjoint(types[at + 1 :])
    if [step["type"] for step in steps] != _PHI_4:
        return False
    wires = [[], [], [":0"], [], [":0", f"{steps[1].get('name')}:1"]]
    return [step.get("inputs", []) for step in steps] == wires
