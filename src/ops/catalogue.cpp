#include "ops/catalogue.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

namespace {

constexpr const OpSchema* kOps[] = {
    // ---- elementwise
    &kAbs, &kAcos, &kAcosh, &kAdd, &kAnd, &kAsin, &kAsinh, &kAtan, &kAtanh, &kBitShift, &kBitwiseAnd, &kBitwiseNot,
    &kBitwiseOr, &kBitwiseXor, &kCast, &kCeil, &kCelu, &kClip, &kCos, &kCosh, &kDiv, &kElu, &kEqual, &kErf, &kExp,
    &kFloor, &kGelu, &kGreater, &kGreaterOrEqual, &kHardSigmoid, &kHardSwish, &kIsInf, &kIsNaN, &kLeakyRelu, &kLess,
    &kLessOrEqual, &kLog, &kMax, &kMean, &kMin, &kMish, &kMod, &kMul, &kNeg, &kNot, &kOr, &kPRelu, &kPow, &kQuickGelu,
    &kReciprocal, &kRelu, &kRound, &kSelu, &kShrink, &kSiLU, &kSigmoid, &kSign, &kSin, &kSinh, &kSoftplus, &kSoftsign,
    &kSqrt, &kSub, &kSum, &kSwish, &kTan, &kTanh, &kThresholdedRelu, &kWhere, &kXor,
    // ---- movement
    &kCastLike, &kConcat, &kConstantOfShape, &kCopy, &kCumSum, &kDepthToSpace, &kDropout, &kExpand, &kEyeLike,
    &kFlatten, &kGather, &kGatherElements, &kGatherND, &kIdentity, &kNonZero, &kOneHot, &kPad, &kRange, &kReshape,
    &kResize, &kReverseSequence, &kScatterElements, &kScatterND, &kShape, &kSize, &kSlice, &kSpaceToDepth, &kSplit,
    &kSqueeze, &kTile, &kTopK, &kTranspose, &kTrilu, &kUnsqueeze,

    // ---- control

    // ---- reduce
    &kReduceSum,
    &kReduceMean,
    &kReduceMax,
    &kReduceMin,
    &kReduceProd,
    &kReduceL1,
    &kReduceL2,
    &kReduceLogSum,
    &kReduceLogSumExp,
    &kReduceSumSquare,
    &kArgMax,
    &kArgMin,

    // ---- normalize
    &kSoftmax,
    &kLogSoftmax,
    &kHardmax,
    &kLayerNormalization,
    &kRmsNormalization,
    &kSimplifiedLayerNormalization,
    &kAddLayerNormalization,
    &kAddRmsNormalization,
    &kSkipLayerNormalization,
    &kSkipSimplifiedLayerNormalization,
    &kBatchNormalization,
    &kInstanceNormalization,
    &kGroupNormalization,
    &kLpNormalization,
    &kMeanVarianceNormalization,
    &kLrn,

    // ---- matmul
    &kMatMul,
    &kGemm,
    &kFusedMatMul,
    &kMatMulInteger,
    &kQLinearMatMul,

    // ---- conv
    &kConv,
    &kConvTranspose,
    &kConvInteger,
    &kQLinearConv,

    // ---- pool
    &kMaxPool,
    &kAveragePool,
    &kLpPool,
    &kGlobalAveragePool,
    &kGlobalMaxPool,
    &kGlobalLpPool,

    // ---- attention
    &kScaledDotProductAttention,
    &kAttention,

    // ---- quantize
    &kQuantizeLinear,
    &kDequantizeLinear,
    &kDynamicQuantizeLinear,

    // ---- recurrent

    // ---- loss
    &kNegativeLogLikelihoodLoss,
    &kSoftmaxCrossEntropyLoss,
};

std::string_view standard_domain(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

}  // namespace

std::span<const OpSchema* const> catalogue() {
  static const std::vector<const OpSchema*> all = [] {
    std::vector<const OpSchema*> list = {&elementwise_op()};
    list.insert(list.end(), std::begin(kOps), std::end(kOps));
    return list;
  }();
  return all;
}

const OpSchema* find_op(std::string_view name, std::string_view domain) {
  static const std::unordered_map<std::string, const OpSchema*> by_name = [] {
    std::unordered_map<std::string, const OpSchema*> map;
    for (const OpSchema* op : catalogue()) map.emplace(std::string(op->domain) + ":" + std::string(op->name), op);
    return map;
  }();
  const auto found = by_name.find(std::string(standard_domain(domain)) + ":" + std::string(name));
  return found == by_name.end() ? nullptr : found->second;
}

const OpSchema* find_op_in_any_domain(std::string_view name) {
  if (const OpSchema* op = find_op(name)) return op;
  for (const OpSchema* op : catalogue()) {
    if (op->name == name) return op;
  }
  return nullptr;
}

}  // namespace ridgeline
