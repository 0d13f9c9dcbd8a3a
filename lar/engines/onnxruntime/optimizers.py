"""The graph optimisers that ONNX Runtime 1.23 can leave out, by its own names.

ONNX Runtime takes any name and ignores those it does not know, so they are checked here. These
are what its `GenerateTransformers` and `GenerateRewriteRules` register by default, and the
conversion of float16 constants. Those left out of the list run whatever is asked (insertion of
casts and copies, EnsureUniqueDQForNodeUnit) or run only where a configuration entry that lar never
sets asks for them (GeluApproximation, CastChainElimination, Avx2WeightS8ToU8Transformer).
"""

from __future__ import annotations

# Rewrite rules; they run as Level1_RuleBasedTransformer and Level2_RuleBasedTransformer.
RULE_NAMES = """
CastElimination ClipQuantRewrite ConvAddFusion ConvBNFusion ConvMulFusion DivMulFusion
EliminateDropout EliminateIdentity EliminateSlice ExpandElimination FuseReluClip GemmSumFusion
GemmTransposeFusion LabelEncoderFusion MatMul_BatchNormalization_Fusion NoopElimination
NotWhereFusion Pad_Fusion PreShapeNodeElimination ReluQuantRewrite UnsqueezeElimination
"""

TRANSFORMERS = """
AttentionFusion BiasDropoutFusion BiasGeluFusion BiasSoftmaxFusion
CommonSubexpressionElimination ConstantFolding ConstantSharing ConvActivationFusion
ConvAddActivationFusion DoubleQDQPairsRemover DynamicQuantizeMatMulFusion EmbedLayerNormFusion
FastGeluFusion FreeDimensionOverrideTransformer FuseFp16InitializerToFp32NodeTransformer
GatherSliceToSplitFusion GatherToSliceFusion GeluFusionL1 GeluFusionL2 GemmActivationFusion
GroupQueryAttentionFusion LayerNormFusionL1 LayerNormFusionL2 Level1_RuleBasedTransformer
Level2_RuleBasedTransformer MatMulActivationFusion MatMulAddFusion MatMulIntegerToFloatFusion
MatMulNBitsFusion MatMulScaleFusion MatmulTransposeFusion NchwcTransformer NhwcTransformer
QDQFinalCleanupTransformer QDQPropagationTransformer QDQS8ToU8Transformer
QDQSelectorActionTransformer QuickGeluFusion ReshapeFusion RocmBlasAltImpl
SimplifiedLayerNormFusion SkipLayerNormFusion TransposeOptimizer
TransposeOptimizer_CPUExecutionProvider WeightBiasQuantization
"""

RULES = frozenset(RULE_NAMES.split())
OPTIMIZERS = RULES | frozenset(TRANSFORMERS.split())
