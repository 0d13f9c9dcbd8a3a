"""The rules for options of ONNX Runtime (`rules.json`), and checks of the names of settings."""

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
# Names that ONNX Runtime 1.23 has. The library itself ignores a wrong name, so lar checks names.
# Configuration entries are from onnxruntime_session_options_config_keys.h and
# onnxruntime_run_options_config_keys.h. Graph optimisers are those that `GenerateTransformers` and
# `GenerateRewriteRules` register by default, and the conversion of float16 constants. Rewrite rules
# run within Level1_RuleBasedTransformer and Level2_RuleBasedTransformer. Two kinds of optimisers
# are not in the list: some run always (insertion of casts and copies, EnsureUniqueDQForNodeUnit),
# others run only with a configuration entry that lar never sets (GeluApproximation,
# CastChainElimination, Avx2WeightS8ToU8Transformer).
NAMES = json.loads(Path(__file__).with_name("names.json").read_text())
REWRITE_RULES = frozenset(NAMES["rules"])
OPTIMIZERS = REWRITE_RULES | frozenset(NAMES["transformers"])
OF_RUNS, OF_SESSIONS = frozenset(NAMES["runs"]), frozenset(NAMES["sessions"])
# How the names of entries of execution providers begin.
PROVIDERS_OWN = ("ep.", "ep_factory.", "qnn.", "trt_", "nv_", "cuda_")
# The library refuses longer names and values.
MOST_NAME, MOST_VALUE = 1024, 8192


def check_entry(key: str, value: str) -> None:
    """Raise an error for a configuration entry that the library would ignore or reject.

    Raises:
        UsageError: the entry is unknown or too long; the hint names the most similar entry.
    """
    if key not in OF_SESSIONS | OF_RUNS and not key.startswith(PROVIDERS_OWN):
        known, hint = sorted(OF_SESSIONS | OF_RUNS), "names are as session.disable_prepacking"
        raise unknown_property("ONNX Runtime", key, known, hint, "configuration entry")
    if len(key) > MOST_NAME or len(value) > MOST_VALUE:
        hint = f"a name has at most {MOST_NAME} characters, a value {MOST_VALUE}"
        flag = f"{table.ENGINE_OPTION.flag} {key[:40]}"
        raise UsageError("has a longer name or value than ONNX Runtime allows", hint, flag=flag)


def is_on_cuda(asked: rules.Asked) -> bool:
    """Return whether the options ask for a provider for CUDA devices."""
    return short_name(first_provider(provider_in(asked.values))) in ("cuda", "tensorrt")


def check_providers(asked: rules.Asked) -> None:
    """Raise an error for a list of providers, unless it is one provider followed by the CPU."""
    name = table.PROVIDER.of(asked.values) or ""
    first, comma, rest = name.partition(",")
    if comma and not (short_name(rest) == "cpu" != short_name(first)):
        problem = f"cannot run on {name}: only the CPU may follow another provider"
        hint = "give one provider, such as cuda, or add the CPU, as in cuda,cpu"
        raise UsageError(problem, hint, flag=table.PROVIDER.flag)


def optimizers_in(asked: rules.Asked) -> list[str]:
    """Return the optimisers to leave out; the option may be given several times, with lists."""
    texts: Sequence[str] = asked.values.get(table.DISABLE_OPTIMIZER.key) or ()
    return [name for text in texts for name in text.split(",")]


def check_optimizers(asked: rules.Asked) -> None:
    """Raise an error for an unknown optimiser, since the engine would ignore its name."""
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
