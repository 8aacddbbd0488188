// What a normalization's operands are, seen as lanes and members.
#include <numeric>

#include "kernels/cuda/normalize/norm_kernels.h"

namespace ridgeline::cuda {
namespace {

std::vector<char> members_of(const NormForm& form, const Problem& p) {
  const int rank = p.input(0).layout.rank();
  std::vector<char> member(size_t(rank), 0);
  const auto positive = [&](int64_t axis) { return size_t(axis < 0 ? axis + rank : axis); };
  switch (form.axes) {
    case NormForm::kFromAxis:
      for (size_t a = positive(p.integer("axis")); a < member.size(); ++a) member[a] = 1;
      break;
    case NormForm::kOneAxis:
      member[positive(p.integer("axis"))] = 1;
      break;
    case NormForm::kLastAxis:
      member.back() = 1;
      break;
    case NormForm::kSpatial:
    case NormForm::kGroups:
      for (size_t a = 2; a < member.size(); ++a) member[a] = 1;
      break;
    case NormForm::kListed:
      for (int64_t axis : p.integers("axes", {0, 2, 3})) member[positive(axis)] = 1;
      break;
    case NormForm::kAllButChannels:
      for (size_t a = 0; a < member.size(); ++a) member[a] = a != 1;
      break;
  }
  return member;
}

// The channels in two axes: groups, and a group's members.
void split_groups(LaneView& view, int64_t groups) {
  const int64_t each = groups ? view.extents[1] / groups : 0;
  view.extents[1] = groups;
  view.extents.insert(view.extents.begin() + 2, each);
  view.member.insert(view.member.begin() + 2, 1);
  for (LaneOperand& operand : view.operands) {
    const int64_t stride = operand.strides[1];
    operand.strides[1] = stride * each;
    operand.strides.insert(operand.strides.begin() + 2, stride);
  }
}

}  // namespace

NormKind norm_kind(const NormForm& form, const Problem& p) {
  return form.kind == NormKind::kL1 && p.integer("p") == 2 ? NormKind::kL2 : form.kind;
}

LaneView norm_view(const NormForm& form, const Problem& p) {
  LaneView view;
  view.extents = p.input(0).shape();
  view.member = members_of(form, p);
  const size_t axes = view.extents.size();
  std::vector<int> same(axes);
  std::iota(same.begin(), same.end(), 0);
  const bool channels =
      form.axes == NormForm::kSpatial || form.axes == NormForm::kGroups || form.axes == NormForm::kAllButChannels;
  const std::vector<int> parameter = channels ? std::vector<int>{1} : same;
  const auto input = [&](const char* role, int k, const std::vector<int>& to) {
    if (k >= 0 && p.has(k))
      view.operands.push_back({role, p.input(k).dtype, k, -1, spread_strides(p.input(k).layout, to, axes)});
  };
  const auto output = [&](const char* role, int k, const std::vector<int>& to) {
    if (k >= 0 && k < int(p.outputs.size()) && p.output(k).present())
      view.operands.push_back({role, p.output(k).dtype, -1, k, spread_strides(p.output(k).layout, to, axes)});
  };
  input("X", 0, same);
  output("Y", 0, same);
  input("Residual", form.residual, same);
  input("Added", form.added, same);
  input("Scale", form.scale, parameter);
  input("Bias", form.bias, parameter);
  output("Sum", form.sum, same);
  output("Mean", form.mean, same);
  output("Inverse", form.inverse, same);
  if (form.kind == NormKind::kTrain) {
    input("GivenMean", 3, parameter);
    input("GivenVariance", 4, parameter);
    output("RunningMean", 1, parameter);
    output("RunningVariance", 2, parameter);
  }
  add_epilogue(view, p, same);
  if (form.axes == NormForm::kGroups) split_groups(view, p.integer("num_groups"));
  merge_lanes(view);
  return view;
}

}  // namespace ridgeline::cuda
