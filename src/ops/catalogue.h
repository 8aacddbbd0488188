// The catalogue: every operator. To add one, declare its schema in its family's file, then list it here and in
// catalogue.cpp.
#pragma once

#include <span>

#include "ir/op_schema.h"

namespace ridgeline {

/// Every schema, grouped by family; the fused-program operator "Elementwise" first.
std::span<const OpSchema* const> catalogue();

/// The first schema of that name in any domain, the standard's first; nullptr if there is none. For command lines.
const OpSchema* find_op_in_any_domain(std::string_view name);

// ---- elementwise
extern constinit const OpSchema kAbs;
extern constinit const OpSchema kAcos;
extern constinit const OpSchema kAcosh;
extern constinit const OpSchema kAdd;
extern constinit const OpSchema kAnd;
extern constinit const OpSchema kAsin;
extern constinit const OpSchema kAsinh;
extern constinit const OpSchema kAtan;
extern constinit const OpSchema kAtanh;
extern constinit const OpSchema kBitShift;
extern constinit const OpSchema kBitwiseAnd;
extern constinit const OpSchema kBitwiseNot;
extern constinit const OpSchema kBitwiseOr;
extern constinit const OpSchema kBitwiseXor;
extern constinit const OpSchema kCast;
extern constinit const OpSchema kCeil;
extern constinit const OpSchema kCelu;
extern constinit const OpSchema kClip;
extern constinit const OpSchema kCos;
extern constinit const OpSchema kCosh;
extern constinit const OpSchema kDiv;
extern constinit const OpSchema kElu;
extern constinit const OpSchema kEqual;
extern constinit const OpSchema kErf;
extern constinit const OpSchema kExp;
extern constinit const OpSchema kFloor;
extern constinit const OpSchema kGelu;
extern constinit const OpSchema kGreater;
extern constinit const OpSchema kGreaterOrEqual;
extern constinit const OpSchema kHardSigmoid;
extern constinit const OpSchema kHardSwish;
extern constinit const OpSchema kIsInf;
extern constinit const OpSchema kIsNaN;
extern constinit const OpSchema kLeakyRelu;
extern constinit const OpSchema kLess;
extern constinit const OpSchema kLessOrEqual;
extern constinit const OpSchema kLog;
extern constinit const OpSchema kMax;
extern constinit const OpSchema kMean;
extern constinit const OpSchema kMin;
extern constinit const OpSchema kMish;
extern constinit const OpSchema kMod;
extern constinit const OpSchema kMul;
extern constinit const OpSchema kNeg;
extern constinit const OpSchema kNot;
extern constinit const OpSchema kOr;
extern constinit const OpSchema kPRelu;
extern constinit const OpSchema kPow;
extern constinit const OpSchema kQuickGelu;
extern constinit const OpSchema kReciprocal;
extern constinit const OpSchema kRelu;
extern constinit const OpSchema kRound;
extern constinit const OpSchema kSelu;
extern constinit const OpSchema kShrink;
extern constinit const OpSchema kSiLU;
extern constinit const OpSchema kSigmoid;
extern constinit const OpSchema kSign;
extern constinit const OpSchema kSin;
extern constinit const OpSchema kSinh;
extern constinit const OpSchema kSoftplus;
extern constinit const OpSchema kSoftsign;
extern constinit const OpSchema kSqrt;
extern constinit const OpSchema kSub;
extern constinit const OpSchema kSum;
extern constinit const OpSchema kSwish;
extern constinit const OpSchema kTan;
extern constinit const OpSchema kTanh;
extern constinit const OpSchema kThresholdedRelu;
extern constinit const OpSchema kWhere;
extern constinit const OpSchema kXor;

// ---- movement
extern constinit const OpSchema kCastLike;
extern constinit const OpSchema kConcat;
extern constinit const OpSchema kConstantOfShape;
extern constinit const OpSchema kCopy;
extern constinit const OpSchema kCumSum;
extern constinit const OpSchema kDepthToSpace;
extern constinit const OpSchema kDropout;
extern constinit const OpSchema kExpand;
extern constinit const OpSchema kEyeLike;
extern constinit const OpSchema kFlatten;
extern constinit const OpSchema kGather;
extern constinit const OpSchema kGatherElements;
extern constinit const OpSchema kGatherND;
extern constinit const OpSchema kIdentity;
extern constinit const OpSchema kNonZero;
extern constinit const OpSchema kOneHot;
extern constinit const OpSchema kPad;
extern constinit const OpSchema kRange;
extern constinit const OpSchema kReshape;
extern constinit const OpSchema kResize;
extern constinit const OpSchema kReverseSequence;
extern constinit const OpSchema kScatterElements;
extern constinit const OpSchema kScatterND;
extern constinit const OpSchema kShape;
extern constinit const OpSchema kSize;
extern constinit const OpSchema kSlice;
extern constinit const OpSchema kSpaceToDepth;
extern constinit const OpSchema kSplit;
extern constinit const OpSchema kSqueeze;
extern constinit const OpSchema kTile;
extern constinit const OpSchema kTopK;
extern constinit const OpSchema kTranspose;
extern constinit const OpSchema kTrilu;
extern constinit const OpSchema kUnsqueeze;

// ---- control

// ---- reduce
extern constinit const OpSchema kReduceSum;
extern constinit const OpSchema kReduceMean;
extern constinit const OpSchema kReduceMax;
extern constinit const OpSchema kReduceMin;
extern constinit const OpSchema kReduceProd;
extern constinit const OpSchema kReduceL1;
extern constinit const OpSchema kReduceL2;
extern constinit const OpSchema kReduceLogSum;
extern constinit const OpSchema kReduceLogSumExp;
extern constinit const OpSchema kReduceSumSquare;
extern constinit const OpSchema kArgMax;
extern constinit const OpSchema kArgMin;

// ---- normalize
extern constinit const OpSchema kSoftmax;
extern constinit const OpSchema kLogSoftmax;
extern constinit const OpSchema kHardmax;
extern constinit const OpSchema kLayerNormalization;
extern constinit const OpSchema kRmsNormalization;
extern constinit const OpSchema kSimplifiedLayerNormalization;
extern constinit const OpSchema kAddLayerNormalization;
extern constinit const OpSchema kAddRmsNormalization;
extern constinit const OpSchema kSkipLayerNormalization;
extern constinit const OpSchema kSkipSimplifiedLayerNormalization;
extern constinit const OpSchema kBatchNormalization;
extern constinit const OpSchema kInstanceNormalization;
extern constinit const OpSchema kGroupNormalization;
extern constinit const OpSchema kLpNormalization;
extern constinit const OpSchema kMeanVarianceNormalization;
extern constinit const OpSchema kLrn;

// ---- matmul
extern constinit const OpSchema kMatMul;
extern constinit const OpSchema kGemm;
extern constinit const OpSchema kFusedMatMul;
extern constinit const OpSchema kMatMulInteger;
extern constinit const OpSchema kQLinearMatMul;

// ---- conv
extern constinit const OpSchema kConv;
extern constinit const OpSchema kConvTranspose;
extern constinit const OpSchema kConvInteger;
extern constinit const OpSchema kQLinearConv;

// ---- pool
extern constinit const OpSchema kMaxPool;
extern constinit const OpSchema kAveragePool;
extern constinit const OpSchema kLpPool;
extern constinit const OpSchema kGlobalAveragePool;
extern constinit const OpSchema kGlobalMaxPool;
extern constinit const OpSchema kGlobalLpPool;

// ---- attention
extern constinit const OpSchema kScaledDotProductAttention;
extern constinit const OpSchema kAttention;

// ---- quantize
extern constinit const OpSchema kQuantizeLinear;
extern constinit const OpSchema kDequantizeLinear;
extern constinit const OpSchema kDynamicQuantizeLinear;

// ---- recurrent

// ---- loss
extern constinit const OpSchema kNegativeLogLikelihoodLoss;
extern constinit const OpSchema kSoftmaxCrossEntropyLoss;

}  // namespace ridgeline
