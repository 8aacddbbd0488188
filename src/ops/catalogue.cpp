#include "ops/catalogue.h"

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

namespace {

// clang-format off
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
    &kReduceSum, &kReduceMean, &kReduceMax, &kReduceMin, &kReduceProd, &kReduceL1, &kReduceL2, &kReduceLogSum,
    &kReduceLogSumExp, &kReduceSumSquare, &kArgMax, &kArgMin,

    // ---- normalize
    &kSoftmax, &kLogSoftmax, &kHardmax, &kLayerNormalization, &kRmsNormalization, &kSimplifiedLayerNormalization,
    &kAddLayerNormalization, &kAddRmsNormalization, &kSkipLayerNormalization, &kSkipSimplifiedLayerNormalization,
    &kBatchNormalization, &kInstanceNormalization, &kGroupNormalization, &kLpNormalization, &kMeanVarianceNormalization,
    &kLrn,

    // ---- matmul
    &kMatMul, &kGemm, &kFusedMatMul, &kMatMulInteger, &kQLinearMatMul,

    // ---- conv
    &kConv, &kConvTranspose, &kConvInteger, &kQLinearConv,

    // ---- pool
    &kMaxPool, &kAveragePool, &kLpPool, &kGlobalAveragePool, &kGlobalMaxPool, &kGlobalLpPool,

    // ---- attention
    &kScaledDotProductAttention,
    &kAttention,

    // ---- quantize
    &kQuantizeLinear, &kDequantizeLinear, &kDynamicQuantizeLinear,

    // ---- recurrent

    // ---- loss
    &kNegativeLogLikelihoodLoss,
    &kSoftmaxCrossEntropyLoss,
};
// clang-format on

// Operators from outside, newest first.
struct Registered {
  std::mutex mutex;
  std::deque<const OpSchema*> ops;
};
Registered& registered() {
  static Registered instance;
  return instance;
}

template <typename Condition>
const OpSchema* find_registered(const Condition& condition) {
  Registered& r = registered();
  const std::lock_guard lock(r.mutex);
  for (const OpSchema* op : r.ops) {
    if (condition(*op)) return op;
  }
  return nullptr;
}

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
  if (found != by_name.end()) return found->second;
  return find_registered([&](const OpSchema& op) { return op.name == name && op.domain == standard_domain(domain); });
}

const OpSchema* find_op_in_any_domain(std::string_view name) {
  if (const OpSchema* op = find_op(name)) return op;
  for (const OpSchema* op : catalogue()) {
    if (op->name == name) return op;
  }
  return find_registered([&](const OpSchema& op) { return op.name == name; });
}

// Declared in ridgeline/extend.h.
void register_op(const OpSchema& op) {
  if (op.name.empty() || (!op.infer && !op.is_elementwise())) {
    fail(ErrorCode::kUsage, "an operator needs a name and `infer`");
  }
  if (!op.reference && op.expressions.empty() && op.decompose.empty()) {
    fail(ErrorCode::kUsage, "operator '{}' has no meaning: a reference, an expression or a decomposition is needed",
         op.name);
  }
  if (find_op(op.name, op.domain)) {
    fail(ErrorCode::kUsage, "there is an operator '{}' in the domain '{}' already", op.name, op.domain);
  }
  Registered& r = registered();
  const std::lock_guard lock(r.mutex);
  r.ops.push_front(&op);
}

}  // namespace ridgeline
