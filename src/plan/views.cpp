#include "plan/views.h"

#include <algorithm>

namespace ridgeline {
namespace {

std::optional<View> transpose_view(const Problem& p) {
  const Layout& in = p.input(0).layout;
  std::vector<int64_t> perm = p.integers("perm");
  if (perm.empty())
    for (int a = in.rank(); a-- > 0;) perm.push_back(a);
  View view;
  for (int64_t a : perm) {
    view.layout.shape.push_back(in.shape[size_t(a)]);
    view.layout.strides.push_back(in.strides[size_t(a)]);
  }
  return view;
}

std::optional<View> slice_view(const Problem& p) {
  const Layout& in = p.input(0).layout;
  const std::vector<int64_t> starts = p.values(1);
  std::vector<int64_t> axes = p.values(3), steps = p.values(4);
  if (axes.empty())
    for (size_t a = 0; a < starts.size(); ++a) axes.push_back(int64_t(a));
  if (steps.empty()) steps.assign(starts.size(), 1);
  View view{in, 0};
  for (size_t i = 0; i < starts.size(); ++i) {
    if (steps[i] < 1) return std::nullopt;  // strides are never negative
    const size_t axis = size_t(axes[i] < 0 ? axes[i] + in.rank() : axes[i]);
    const int64_t extent = in.shape[axis];
    const int64_t start = std::clamp<int64_t>(starts[i] < 0 ? starts[i] + extent : starts[i], 0, extent);
    view.offset += start * in.strides[axis];
    view.layout.strides[axis] *= steps[i];
  }
  view.layout.shape = p.output().shape();
  if (view.layout.elements() == 0) view.offset = 0;
  return view;
}

std::optional<View> split_view(const Problem& p, int output) {
  const Layout& in = p.input(0).layout;
  const int64_t given = p.integer("axis");
  const size_t axis = size_t(given < 0 ? given + in.rank() : given);
  View view{Layout(p.output(output).shape(), in.strides), 0};
  for (int o = 0; o < output; ++o) view.offset += p.output(o).shape()[axis] * in.strides[axis];
  return view;
}

std::optional<View> expand_view(const Problem& p) {
  const Layout& in = p.input(0).layout;
  const Extents& to = p.output().shape();
  View view{Layout(to, Extents(to.size(), 0)), 0};
  for (size_t a = 0; a < to.size(); ++a) {
    const size_t lead = to.size() - in.shape.size();
    if (a >= lead && in.shape[a - lead] == to[a]) view.layout.strides[a] = in.strides[a - lead];
  }
  return view;
}

}  // namespace

std::optional<Layout> reshape_layout(const Layout& from, const Extents& to) {
  const int64_t count = from.elements();
  if (count == 0 || from.is_row_major()) return Layout(to);
  // Old axes are grouped into runs that are contiguous among themselves; each group of new axes must fit one run.
  Extents shape, strides;
  for (size_t a = 0; a < from.shape.size(); ++a) {
    if (from.shape[a] == 1) continue;
    shape.push_back(from.shape[a]);
    strides.push_back(from.strides[a]);
  }
  Layout layout(to, Extents(to.size(), 0));
  size_t old_at = 0, new_at = 0;
  while (old_at < shape.size()) {
    int64_t old_product = shape[old_at], new_product = 1;
    size_t old_end = old_at + 1;
    size_t new_end = new_at;
    while (true) {
      while (new_product < old_product && new_end < to.size()) new_product *= to[new_end++];
      if (new_product == old_product) break;
      if (old_end >= shape.size()) return std::nullopt;
      old_product *= shape[old_end++];
    }
    for (size_t a = old_at; a + 1 < old_end; ++a) {
      if (strides[a] != strides[a + 1] * shape[a + 1]) return std::nullopt;
    }
    int64_t stride = strides[old_end - 1];
    for (size_t a = new_end; a-- > new_at;) {
      layout.strides[a] = stride;
      stride *= to[a];
    }
    old_at = old_end;
    new_at = new_end;
  }
  return layout;  // what is left of `to` are extents of 1, whose stride has no say
}

bool is_reshape(const OpSchema& op) {
  return op.name == "Reshape" || op.name == "Flatten" || op.name == "Squeeze" || op.name == "Unsqueeze" ||
         op.name == "Identity" || op.name == "Dropout";
}

bool may_be_view(const OpSchema& op) {
  return is_reshape(op) || op.name == "Transpose" || op.name == "Slice" || op.name == "Split" || op.name == "Expand";
}

std::optional<View> view_of(const Problem& p, int output) {
  const std::string_view name = p.op->name;
  if (name == "Transpose") return transpose_view(p);
  if (name == "Slice") return slice_view(p);
  if (name == "Split") return split_view(p, output);
  if (name == "Expand") return expand_view(p);
  if (!is_reshape(*p.op)) return std::nullopt;
  if (name == "Dropout" && (output > 0 || p.has(2))) return std::nullopt;  // a mask; training, it may be
  if (auto layout = reshape_layout(p.input(0).layout, p.output(output).shape())) return View{*layout, 0};
  return std::nullopt;
}

}  // namespace ridgeline
