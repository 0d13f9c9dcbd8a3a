"""Which options need or exclude which others on ONNX Runtime, with `rules.json`, and which names of
entries and optimisers it knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lar.engines.engine import unknown_property
from lar.engines.onnxruntime.providers import first_provider, flag_for, provider_in, short_name
from lar.errors import UsageError
from lar.options import rules, table

# The optimiser that gives convolutions the blocked layout.
BLOCKED_LAYOUT = "NchwcTransformer"
# Names that ONNX Runtime 1.23 knows: the library itself takes any, and ignores others, so they are
# checked here. Configuration entries: those of onnxruntime_session_options_config_keys.h and
# onnxruntime_run_options_config_keys.h. Graph optimisers: what its `GenerateTransformers` and
# `GenerateRewriteRules` register by default, and the conversion of float16 constants; rewrite rules
# run as Level1_RuleBasedTransformer and Level2_RuleBasedTransformer. Those left out of the list run
# whatever is asked (insertion of casts and copies, EnsureUniqueDQForNodeUnit) or run only where a
# configuration entry that lar never sets asks for them (GeluApproximation, CastChainElimination,
# Avx2WeightS8ToU8Transformer).
NAMES = json.loads(Path(__file__).with_name("names.json").read_text())
REWRITE_RULES = frozenset(NAMES["rules"])
OPTIMIZERS = REWRITE_RULES | frozenset(NAMES["transformers"])
OF_RUNS, OF_SESSIONS = frozenset(NAMES["runs"]), frozenset(NAMES["sessions"])
# Names of execution providers, each of which has entries of its own, begin so.
PROVIDERS_OWN = ("ep.", "ep_factory.", "qnn.", "trt_", "nv_", "cuda_")
# More than these, the library refuses.
MOST_NAME, MOST_VALUE = 1024, 8192


def check_entry(key: str, value: str) -> None:
    """Refuse an entry that the library would ignore, or not take.

    Raises:
        UsageError: naming the entry that was probably meant.
    """
    if key not in OF_SESSIONS | OF_RUNS and not key.startswith(PROVIDERS_OWN):
        known, hint = sorted(OF_SESSIONS | OF_RUNS), "names are as session.disable_prepacking"
        raise unknown_property("ONNX Runtime", key, known, hint, "configuration entry")
    if len(key) > MOST_NAME or len(value) > MOST_VALUE:
        raise UsageError(
            "is longer than ONNX Runtime takes",
            f"a value has at most {MOST_VALUE} letters",
            flag=f"{table.ENGINE_OPTION.flag} {key[:40]}",
        )


def is_on_cuda(asked: rules.Asked) -> bool:
    """Return whether a provider for CUDA devices is asked for."""
    return short_name(first_provider(provider_in(asked.values))) in ("cuda", "tensorrt")


def check_providers(asked: rules.Asked) -> None:
    """Refuse more providers than one and, behind it, the CPU's."""
    name = table.PROVIDER.of(asked.values) or ""
    first, comma, rest = name.partition(",")
    if comma and not (short_name(rest) == "cpu" != short_name(first)):
        raise UsageError(
            f"cannot run on {name}: the CPU alone runs what another provider cannot",
            "give one name, as cuda, or one with the CPU, as cuda,cpu",
            flag=table.PROVIDER.flag,
        )


def optimizers_in(asked: rules.Asked) -> list[str]:
    """Return the optimisers that are left out: the option may be given again, and be a list."""
    texts: Sequence[str] = asked.values.get(table.DISABLE_OPTIMIZER.key) or ()
    return [name for text in texts for name in text.split(",")]


def check_optimizers(asked: rules.Asked) -> None:
    """Refuse an optimiser that the engine does not have; it would say nothing."""
    for name in optimizers_in(asked):
        if name not in OPTIMIZERS:
            kind = "optimiser", table.DISABLE_OPTIMIZER.flag
            hint = "names are as NchwcTransformer, ConvBNFusion"
            raise unknown_property("ONNX Runtime", name, sorted(OPTIMIZERS), hint, *kind)


OTHER_DEVICE = rules.Condition(
    lambda asked: flag_for(asked.values),
    lambda asked: short_name(provider_in(asked.values)) != "cpu",
)
LAYOUT_LEFT_OUT = rules.fact(
    f"{table.DISABLE_OPTIMIZER.flag} {BLOCKED_LAYOUT}",
    lambda asked: BLOCKED_LAYOUT in optimizers_in(asked),
)
FAST_RUN_OFF_CUDA = rules.fact(
    table.FAST_RUN.flag, lambda asked: table.FAST_RUN.of(asked.values) and not is_on_cuda(asked)
)

OTHER_PROVIDER = rules.having(table.PROVIDER, lambda name: short_name(name) != "cpu")
ON_CUDA = rules.fact("--provider cuda", is_on_cuda)
CORES_FOR_THREADS = rules.needs_cores(
    "give one core for each thread of --multithread N, for each copy of --thread N"
)

RULES = rules.read_rules(globals())
