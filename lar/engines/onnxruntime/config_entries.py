"""The configuration entries of ONNX Runtime, which `--engine-option` sets.

The names are those of onnxruntime_session_options_config_keys.h and
onnxruntime_run_options_config_keys.h as of version 1.23: the library itself takes any name, and
ignores those that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lar.errors import UsageError, nearest
from lar.options.table import ENGINE_OPTION

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

# Names of execution providers, each of which has entries of its own, begin so.
PROVIDERS_OWN = ("ep.", "ep_factory.", "qnn.", "trt_", "nv_", "cuda_")
# More than these, the library refuses.
MOST_NAME, MOST_VALUE = 1024, 8192

OF_RUNS_TEXT = """
disable_synchronize_execution_providers gpu_graph_id memory.enable_memory_arena_shrinkage
qnn.htp_perf_mode qnn.htp_perf_mode_post_run qnn.lora_config qnn.rpc_control_latency
"""
OF_SESSIONS_TEXT = """
mlas.enable_gemm_fastmath_arm64_bfloat16 optimization.disable_specified_optimizers
optimization.enable_cast_chain_elimination optimization.enable_gelu_approximation
optimization.minimal_build_optimizations session.allow_released_opsets_only
session.collect_node_memory_stats_to_file session.debug_layout_transformation
session.disable_aot_function_inlining session.disable_cpu_ep_fallback
session.disable_double_qdq_remover session.disable_model_compile session.disable_prepacking
session.disable_quant_qdq session.dynamic_block_base session.enable_quant_qdq_cleanup
session.fail_on_suboptimal_compiled_model session.force_spinning_stop
session.graph_optimizations_loop_level session.inter_op.allow_spinning
session.intra_op.allow_spinning session.intra_op_thread_affinities session.load_model_format
session.model_external_initializers_file_folder_path session.node_partition_config_file
session.optimized_model_external_initializers_file_name
session.optimized_model_external_initializers_min_size_in_bytes
session.qdq_matmulnbits_accuracy_level session.qdqisint8allowed
session.record_ep_graph_assignment_info session.resource_cuda_partitioning_settings
session.save_external_prepacked_constant_initializers session.save_model_format
session.set_denormal_as_zero session.strict_shape_type_inference
session.use_device_allocator_for_initializers session.use_env_allocators
session.use_memory_mapped_ort_model session.use_ort_model_bytes_directly
session.use_ort_model_bytes_for_initializers session.x64quantprecision
"""
OF_RUNS, OF_SESSIONS = frozenset(OF_RUNS_TEXT.split()), frozenset(OF_SESSIONS_TEXT.split())


def check_entry(key: str, value: str) -> None:
    """Refuse an entry that the library would ignore, or not take.

    Raises:
        UsageError: naming the entry that was probably meant.
    """
    if key not in OF_SESSIONS | OF_RUNS and not key.startswith(PROVIDERS_OWN):
        near = nearest(key, sorted(OF_SESSIONS | OF_RUNS))
        raise UsageError(
            f"ONNX Runtime has no configuration entry {key!r}",
            f"did you mean {near}?" if near else "names are as session.disable_prepacking",
            flag=ENGINE_OPTION.flag,
        )
    if len(key) > MOST_NAME or len(value) > MOST_VALUE:
        raise UsageError(
            "is longer than ONNX Runtime takes",
            f"a value has at most {MOST_VALUE} letters",
            flag=f"{ENGINE_OPTION.flag} {key[:40]}",
        )


def set_entries(driver: SessionDriver, _: str) -> None:
    """Set the entries of the session, and keep those of its runs."""
    for key, value in driver.properties.items():
        if key in OF_RUNS:
            driver.run_entries[key] = value
        else:
            driver.options.add_session_config_entry(key, value)
