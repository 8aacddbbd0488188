#pragma once

#include "kernels/cuda/lanes.h"
#include "kernels/kernel.h"

namespace ridgeline::cuda {

/// As norm.cu numbers them.
enum class NormKind { kLayer, kRms, kSoftmax, kLogSoftmax, kHardmax, kL1, kL2, kMoments, kTrain };

/// Which of an operator's inputs and outputs is what; -1: it has none.
struct NormForm {
  NormKind kind = NormKind::kLayer;
  enum Axes { kFromAxis, kOneAxis, kLastAxis, kSpatial, kGroups, kListed, kAllButChannels } axes = kFromAxis;
  int residual = -1, added = -1, scale = -1, bias = -1;
  int sum = -1, mean = -1, inverse = -1;
};

/// The operator over lanes and members.
LaneView norm_view(const NormForm& form, const Problem& p);
NormKind norm_kind(const NormForm& form, const Problem& p);
inline constexpr std::string_view kNormRoles[] = {
    "X",    "Y",       "Residual",  "Added",         "Scale",       "Bias",           "Sum",
    "Mean", "Inverse", "GivenMean", "GivenVariance", "RunningMean", "RunningVariance"};

std::span<const Kernel* const> norm_kernels();

extern const Kernel kBatchNorm;

}  // namespace ridgeline::cuda
