"""The graph optimisers that ONNX Runtime 1.23 can leave out, by its own names.

ONNX Runtime takes any name and ignores those it does not know, so they are checked here. Those in
`optimizers.json` are what its `GenerateTransformers` and `GenerateRewriteRules` register by
default, and the conversion of float16 constants; rewrite rules run as Level1_RuleBasedTransformer
and Level2_RuleBasedTransformer. Those left out of the list run whatever is asked (insertion of
casts and copies, EnsureUniqueDQForNodeUnit) or run only where a configuration entry that lar never
sets asks for them (GeluApproximation, CastChainElimination, Avx2WeightS8ToU8Transformer).
"""

from __future__ import annotations

import json
from pathlib import Path

NAMES = json.loads(Path(__file__).with_suffix(".json").read_text())
RULES = frozenset(NAMES["rules"])
OPTIMIZERS = RULES | frozenset(NAMES["transformers"])
