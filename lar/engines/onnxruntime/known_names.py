"""The names that ONNX Runtime 1.23 knows: of configuration entries, and of graph optimisers.

The library takes any name, and ignores those that it does not know, so lar checks them. They stand
in `known_names.json`. The entries are those of onnxruntime_session_options_config_keys.h and
onnxruntime_run_options_config_keys.h. The optimisers are those that can be left out: what its
`GenerateTransformers` and `GenerateRewriteRules` register by default, and the conversion of float16
constants; the rewrite rules run as Level1_RuleBasedTransformer and Level2_RuleBasedTransformer.
Those left out of the list run whatever is asked (insertion of casts and copies,
EnsureUniqueDQForNodeUnit) or run only where a configuration entry that lar never sets asks for them
(GeluApproximation, CastChainElimination, Avx2WeightS8ToU8Transformer).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path


@cache
def names_of(kind: str) -> frozenset[str]:
    """Return the names of a kind: entries of runs, entries of sessions, rewrite rules,
    transformers."""
    table = json.loads(Path(__file__).with_name("known_names.json").read_text())
    return frozenset(table[kind])


def optimizers() -> frozenset[str]:
    """Return the names of all optimisers that can be left out."""
    return names_of("rewrite rules") | names_of("transformers")
