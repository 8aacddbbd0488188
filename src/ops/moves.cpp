#include "ops/moves.h"

#include <algorithm>

#include "ir/reference.h"

namespace ridgeline {
namespace {

int64_t axis_of(int64_t axis, size_t rank) { return axis < 0 ? axis + int64_t(rank) : axis; }

StridedCopy strided(const Extents& shape, const Extents& from_strides, const Extents& to_strides, int64_t from = 0,
                    int64_t to = 0) {
  StridedCopy copy;
  copy.shape = shape, copy.from_strides = from_strides, copy.to_strides = to_strides;
  copy.from = from, copy.to = to;
  return copy;
}

/// Strides of a layout seen through a broadcast to `rank` axes.
Extents broadcast_strides(const Layout& layout, size_t rank) {
  Extents strides(rank, 0);
  const size_t missing = rank - layout.shape.size();
  for (size_t a = 0; a < layout.shape.size(); ++a)
    if (layout.shape[a] != 1) strides[a + missing] = layout.strides[a];
  return strides;
}

std::vector<StridedCopy> plan_blocks(const Problem& p, const Layout& deep, const Layout& wide, bool crd, bool to_wide) {
  const int64_t b = p.integer("blocksize"), c = wide.shape[1];
  const Extents shape = {wide.shape[0], c, deep.shape[2], b, deep.shape[3], b};
  const int64_t sc = deep.strides[1];  // deep channel: (block, c), or (c, block) in mode CRD
  const Extents of_deep = {deep.strides[0],           crd ? b * b * sc : sc, deep.strides[2],
                           crd ? b * sc : b * c * sc, deep.strides[3],       crd ? sc : c * sc};
  const Extents of_wide = {wide.strides[0], wide.strides[1],     b * wide.strides[2],
                           wide.strides[2], b * wide.strides[3], wide.strides[3]};
  return {to_wide ? strided(shape, of_deep, of_wide) : strided(shape, of_wide, of_deep)};
}

}  // namespace

std::string copies_reject(const Problem& p) {
  const int bits = info(p.input(0).dtype).bits;
  if (bits < 8) return fmt::format("{} elements share bytes", name(p.input(0).dtype));
  for (const Operand& out : p.outputs)
    if (out.present() && info(out.dtype).bits != bits) return "the output's elements are of another size";
  return "";
}

std::string reshape_reject(const Problem& p) {
  if (std::string reason = copies_reject(p); !reason.empty()) return reason;
  if (!p.input(0).layout.is_row_major() && !p.output().layout.is_row_major()) return "neither side is row-major";
  return "";
}

std::string slice_reject(const Problem& p) {
  if (std::string reason = copies_reject(p); !reason.empty()) return reason;
  for (int k = 1; k < p.op_inputs; ++k)
    if (p.has(k) && !p.input(k).constant) return fmt::format("'{}' is not known before the run", p.op->inputs[k].name);
  return "";
}

std::string pad_reject(const Problem& p) {
  if (std::string reason = copies_reject(p); !reason.empty()) return reason;
  if (!p.input(1).constant || (p.has(3) && !p.input(3).constant)) return "pads are not known before the run";
  if (p.string("mode") != "constant") {
    const std::vector<int64_t> before = pads_before(p);
    for (size_t a = 0; a < before.size(); ++a)
      if (before[a] < 0 || p.output().shape()[a] < before[a] + p.input(0).shape()[a])
        return fmt::format("negative pads in mode {}", p.string("mode"));
  }
  return "";
}

// ---- the same elements in another layout or shape

std::vector<StridedCopy> plan_copy(const Problem& p) {
  return {strided(p.output().shape(), p.input(0).layout.strides, p.output().layout.strides)};
}

std::vector<StridedCopy> plan_transpose(const Problem& p) {
  const Layout& in = p.input(0).layout;
  std::vector<int64_t> perm = p.integers("perm");
  if (perm.empty())
    for (int a = in.rank(); a-- > 0;) perm.push_back(a);
  Extents strides;
  for (int64_t a : perm) strides.push_back(in.strides[size_t(a)]);
  return {strided(p.output().shape(), strides, p.output().layout.strides)};
}

std::vector<StridedCopy> plan_reshape(const Problem& p) {
  const Layout &in = p.input(0).layout, &out = p.output().layout;
  if (out.is_row_major()) return {strided(in.shape, in.strides, row_major_strides(in.shape))};
  return {strided(out.shape, row_major_strides(out.shape), out.strides)};
}

std::vector<StridedCopy> plan_expand(const Problem& p) {
  const Layout& out = p.output().layout;
  return {strided(out.shape, broadcast_strides(p.input(0).layout, out.shape.size()), out.strides)};
}

std::vector<StridedCopy> plan_tile(const Problem& p) {
  const Layout &in = p.input(0).layout, &out = p.output().layout;
  Extents shape, from, to;
  for (size_t a = 0; a < in.shape.size(); ++a) {
    const int64_t n = in.shape[a], repeats = n ? out.shape[a] / n : 0;
    shape.insert(shape.end(), {repeats, n});
    from.insert(from.end(), {0, in.strides[a]});
    to.insert(to.end(), {n * out.strides[a], out.strides[a]});
  }
  return {strided(shape, from, to)};
}

// ---- parts

std::vector<StridedCopy> plan_slice(const Problem& p) {
  const Layout &in = p.input(0).layout, &out = p.output().layout;
  Extents strides = in.strides;
  int64_t from = 0;
  const std::vector<int64_t> starts = p.values(1), axes = p.values(3), steps = p.values(4);
  for (size_t k = 0; k < starts.size(); ++k) {
    const size_t a = size_t(axis_of(axes.empty() ? int64_t(k) : axes[k], in.shape.size()));
    const int64_t n = in.shape[a], step = steps.empty() ? 1 : steps[k];
    const int64_t begin = starts[k] < 0 ? starts[k] + n : starts[k];
    from += std::clamp<int64_t>(begin, 0, std::max<int64_t>(0, step > 0 ? n : n - 1)) * in.strides[a];
    strides[a] = in.strides[a] * step;
  }
  return {strided(out.shape, strides, out.strides, from)};
}

std::vector<StridedCopy> plan_concat(const Problem& p) {
  const Layout& out = p.output().layout;
  const size_t axis = size_t(axis_of(p.integer("axis"), out.shape.size()));
  std::vector<StridedCopy> moves;
  int64_t at = 0;
  for (int k = 0; k < p.op_inputs; ++k) {
    const Layout& in = p.input(k).layout;
    moves.push_back(strided(in.shape, in.strides, out.strides, 0, at * out.strides[axis]));
    moves.back().input = k;
    at += in.shape[axis];
  }
  return moves;
}

std::vector<StridedCopy> plan_split(const Problem& p) {
  const Layout& in = p.input(0).layout;
  const size_t axis = size_t(axis_of(p.integer("axis"), in.shape.size()));
  // Outputs that nobody wants have no extents here: their sizes follow from `split`, or from equal parts.
  const std::vector<int64_t> sizes = p.values(1);
  const int64_t count = int64_t(p.outputs.size()), part = (in.shape[axis] + count - 1) / count;
  std::vector<StridedCopy> moves;
  int64_t at = 0;
  for (size_t k = 0; k < p.outputs.size(); ++k) {
    const Operand& out = p.outputs[k];
    if (out.present()) {
      moves.push_back(strided(out.shape(), in.strides, out.layout.strides, at * in.strides[axis]));
      moves.back().output = int(k);
    }
    at += out.present() ? out.shape()[axis] : sizes.empty() ? part : sizes[k];
  }
  return moves;
}

// ---- blocks of space and depth: six axes [n, c, h, bh, w, bw]

std::vector<StridedCopy> plan_depth_to_space(const Problem& p) {
  return plan_blocks(p, p.input(0).layout, p.output().layout, p.string("mode") == "CRD", true);
}
std::vector<StridedCopy> plan_space_to_depth(const Problem& p) {
  return plan_blocks(p, p.output().layout, p.input(0).layout, p.string("mode") == "CRD", false);
}

// ---- padding

std::vector<int64_t> pads_before(const Problem& p) {
  std::vector<int64_t> before(p.input(0).shape().size(), 0);
  const std::vector<int64_t> pads = p.values(1), axes = p.values(3);
  for (size_t k = 0; k < pads.size() / 2; ++k)
    before[size_t(axis_of(p.has(3) ? axes[k] : int64_t(k), before.size()))] = pads[k];
  return before;
}

int64_t pad_source(std::string_view mode, int64_t at, int64_t n) {
  if (mode == "edge") return std::clamp<int64_t>(at, 0, n - 1);
  if (mode == "wrap") return (at % n + n) % n;
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1), q = (at % period + period) % period;  // reflect
  return q < n ? q : period - q;
}

/// The input's part that stays, then around it, axis by axis: constants, or copies of what is there already.
std::vector<StridedCopy> plan_pad(const Problem& p) {
  const Layout &in = p.input(0).layout, &out = p.output().layout;
  const std::string mode = p.string("mode");
  const std::vector<int64_t> before = pads_before(p);
  const size_t rank = in.shape.size();
  Extents begin(rank), count(rank);  // of what stays, in the output
  int64_t from = 0, to = 0;
  for (size_t a = 0; a < rank; ++a) {
    begin[a] = std::clamp<int64_t>(before[a], 0, out.shape[a]);
    count[a] = std::max<int64_t>(0, std::min(out.shape[a], before[a] + in.shape[a]) - begin[a]);
    from += (begin[a] - before[a]) * in.strides[a];
    to += begin[a] * out.strides[a];
  }
  std::vector<StridedCopy> moves = {strided(count, in.strides, out.strides, from, to)};
  // Constants: axes before `a` are restricted to what stays, later ones whole. Copies: earlier axes whole, later
  // restricted.
  const bool constant = mode == "constant";
  auto slab = [&](size_t a, int64_t at, int64_t extent, int64_t source) {
    Extents shape(rank);
    int64_t place = at * out.strides[a];
    for (size_t o = 0; o < rank; ++o) {
      const bool whole = constant ? o > a : o < a;
      shape[o] = o == a ? extent : whole ? out.shape[o] : count[o];
      if (o != a && !whole) place += begin[o] * out.strides[o];
    }
    const int64_t shift = (source - at) * out.strides[a];
    moves.push_back(
        strided(shape, constant ? Extents(rank, 0) : out.strides, out.strides, constant ? 0 : place + shift, place));
    moves.back().input = constant ? StridedCopy::kFromConstant : StridedCopy::kFromOutput;
  };
  for (size_t a = 0; a < rank; ++a) {
    const int64_t end = begin[a] + count[a];
    if (constant) {
      slab(a, 0, begin[a], 0);
      slab(a, end, out.shape[a] - end, 0);
      continue;
    }
    for (int64_t at = 0; at < out.shape[a]; ++at)
      if (at < begin[a] || at >= end) slab(a, at, 1, begin[a] + pad_source(mode, at - before[a], in.shape[a]));
  }
  return moves;
}

}  // namespace ridgeline
