// The movement operators that are strided copies: each says which, one kernel runs them all.
#include "kernels/cpu/movement/move_kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "ir/reference.h"
#include "kernels/cpu/elementwise/stream.h"
#include "kernels/cpu/movement/moves.h"

namespace ridgeline::cpu {

namespace {

int64_t axis_of(int64_t axis, size_t rank) { return axis < 0 ? axis + int64_t(rank) : axis; }

Support basic(const Problem& p) {
  const int bits = info(p.input(0).dtype).bits;
  if (bits < 8) return no("{} elements share bytes", name(p.input(0).dtype));
  for (const Operand& out : p.outputs)
    if (out.present() && info(out.dtype).bits != bits) return no("the output's elements are of another size");
  return yes();
}

bool inner_contiguous(const Layout& from, const Layout& to) {
  return from == to || (from.rank() > 0 && from.strides.back() == 1 && to.rank() > 0 && to.strides.back() == 1);
}

/// What is read of the inputs is at most what is written.
double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  int64_t written = 0;
  for (const Operand& out : p.outputs)
    if (out.present()) written += out.bytes();
  // A transpose in registers takes 1.3 times a copy's time, other strided copies 3 times.
  const double factor = inner_contiguous(p.input(0).layout, p.output().layout) ? 1.05
                        : info(p.output().dtype).bits == 32                    ? 1.4
                                                                               : 3;
  return c.stream_ns(std::min(written, p.read_bytes()), written, p.threads) * factor + 100;
}

/// Wraps a planner of moves as the kernel's `prepare`.
template <std::vector<Move> (*kPlan)(const Problem&)>
std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  auto moves = std::make_shared<Moves>();
  moves->list = kPlan(p);
  moves->bytes = info(p.input(0).dtype).bits / 8;
  int64_t written = 0;
  for (const Operand& out : p.outputs)
    if (out.present()) written += out.bytes();
  moves->stream = 2 * written >= stream_threshold_bytes();
  std::erase_if(moves->list, [](const Move& m) { return m.nest.elements() == 0; });
  return moves;
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  run_moves(call.state_as<Moves>(), buffers, pool);
}

// ---- the same elements in another layout or shape

std::vector<Move> plan_copy(const Problem& p) {
  return {make_move(p.output().shape(), p.input(0).layout.strides, p.output().layout.strides)};
}

std::vector<Move> plan_transpose(const Problem& p) {
  const Layout& in = p.input(0).layout;
  std::vector<int64_t> perm = p.integers("perm");
  if (perm.empty())
    for (int a = in.rank(); a-- > 0;) perm.push_back(a);
  Extents strides;
  for (int64_t a : perm) strides.push_back(in.strides[size_t(a)]);
  return {make_move(p.output().shape(), strides, p.output().layout.strides)};
}

Support supports_reshape(const Problem& p) {
  if (Support s = basic(p); !s.ok) return s;
  if (!p.input(0).layout.is_row_major() && !p.output().layout.is_row_major()) return no("neither side is row-major");
  return yes();
}

std::vector<Move> plan_reshape(const Problem& p) {
  const Layout &in = p.input(0).layout, &out = p.output().layout;
  if (out.is_row_major()) return {make_move(in.shape, in.strides, row_major_strides(in.shape))};
  return {make_move(out.shape, row_major_strides(out.shape), out.strides)};
}

/// Strides of a layout seen through a broadcast to `rank` axes.
Extents broadcast_strides(const Layout& layout, size_t rank) {
  Extents strides(rank, 0);
  const size_t missing = rank - layout.shape.size();
  for (size_t a = 0; a < layout.shape.size(); ++a)
    if (layout.shape[a] != 1) strides[a + missing] = layout.strides[a];
  return strides;
}

std::vector<Move> plan_expand(const Problem& p) {
  const Layout& out = p.output().layout;
  return {make_move(out.shape, broadcast_strides(p.input(0).layout, out.shape.size()), out.strides)};
}

std::vector<Move> plan_tile(const Problem& p) {
  const Layout &in = p.input(0).layout, &out = p.output().layout;
  Extents shape, from, to;
  for (size_t a = 0; a < in.shape.size(); ++a) {
    const int64_t n = in.shape[a], repeats = n ? out.shape[a] / n : 0;
    shape.insert(shape.end(), {repeats, n});
    from.insert(from.end(), {0, in.strides[a]});
    to.insert(to.end(), {n * out.strides[a], out.strides[a]});
  }
  return {make_move(shape, from, to)};
}

// ---- parts

Support supports_slice(const Problem& p) {
  if (Support s = basic(p); !s.ok) return s;
  for (int k = 1; k < p.op_inputs; ++k)
    if (p.has(k) && !p.input(k).constant) return no("'{}' is not known before the run", p.op->inputs[k].name);
  return yes();
}

std::vector<Move> plan_slice(const Problem& p) {
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
  return {make_move(out.shape, strides, out.strides, from)};
}

std::vector<Move> plan_concat(const Problem& p) {
  const Layout& out = p.output().layout;
  const size_t axis = size_t(axis_of(p.integer("axis"), out.shape.size()));
  std::vector<Move> moves;
  int64_t at = 0;
  for (int k = 0; k < p.op_inputs; ++k) {
    const Layout& in = p.input(k).layout;
    moves.push_back(make_move(in.shape, in.strides, out.strides, 0, at * out.strides[axis]));
    moves.back().input = k;
    at += in.shape[axis];
  }
  return moves;
}

std::vector<Move> plan_split(const Problem& p) {
  const Layout& in = p.input(0).layout;
  const size_t axis = size_t(axis_of(p.integer("axis"), in.shape.size()));
  // Outputs that nobody wants have no extents here: their sizes follow from `split`, or from equal parts.
  const std::vector<int64_t> sizes = p.values(1);
  const int64_t count = int64_t(p.outputs.size()), part = (in.shape[axis] + count - 1) / count;
  std::vector<Move> moves;
  int64_t at = 0;
  for (size_t k = 0; k < p.outputs.size(); ++k) {
    const Operand& out = p.outputs[k];
    if (out.present()) {
      moves.push_back(make_move(out.shape(), in.strides, out.layout.strides, at * in.strides[axis]));
      moves.back().output = int(k);
    }
    at += out.present() ? out.shape()[axis] : sizes.empty() ? part : sizes[k];
  }
  return moves;
}

// ---- blocks of space and depth: six axes [n, c, h, bh, w, bw]

std::vector<Move> plan_blocks(const Problem& p, const Layout& deep, const Layout& wide, bool crd, bool to_wide) {
  const int64_t b = p.integer("blocksize"), c = wide.shape[1];
  const Extents shape = {wide.shape[0], c, deep.shape[2], b, deep.shape[3], b};
  const int64_t sc = deep.strides[1];  // deep channel: (block, c), or (c, block) in mode CRD
  const Extents of_deep = {deep.strides[0],           crd ? b * b * sc : sc, deep.strides[2],
                           crd ? b * sc : b * c * sc, deep.strides[3],       crd ? sc : c * sc};
  const Extents of_wide = {wide.strides[0], wide.strides[1],     b * wide.strides[2],
                           wide.strides[2], b * wide.strides[3], wide.strides[3]};
  return {to_wide ? make_move(shape, of_deep, of_wide) : make_move(shape, of_wide, of_deep)};
}
std::vector<Move> plan_depth_to_space(const Problem& p) {
  return plan_blocks(p, p.input(0).layout, p.output().layout, p.string("mode") == "CRD", true);
}
std::vector<Move> plan_space_to_depth(const Problem& p) {
  return plan_blocks(p, p.output().layout, p.input(0).layout, false, false);
}

// ---- padding

std::vector<int64_t> pads_before(const Problem& p) {
  std::vector<int64_t> before(p.input(0).shape().size(), 0);
  const std::vector<int64_t> pads = p.values(1), axes = p.values(3);
  for (size_t k = 0; k < pads.size() / 2; ++k)
    before[size_t(axis_of(p.has(3) ? axes[k] : int64_t(k), before.size()))] = pads[k];
  return before;
}

Support supports_pad(const Problem& p) {
  if (Support s = basic(p); !s.ok) return s;
  if (!p.input(1).constant || (p.has(3) && !p.input(3).constant)) return no("pads are not known before the run");
  if (p.string("mode") != "constant") {
    const std::vector<int64_t> before = pads_before(p);
    for (size_t a = 0; a < before.size(); ++a)
      if (before[a] < 0 || p.output().shape()[a] < before[a] + p.input(0).shape()[a])
        return no("negative pads in mode {}", p.string("mode"));
  }
  return yes();
}

int64_t pad_source(std::string_view mode, int64_t at, int64_t n) {
  if (mode == "edge") return std::clamp<int64_t>(at, 0, n - 1);
  if (mode == "wrap") return (at % n + n) % n;
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1), q = (at % period + period) % period;  // reflect
  return q < n ? q : period - q;
}

/// The input's part that stays, then around it, axis by axis: constants, or copies of what is there already.
std::vector<Move> plan_pad(const Problem& p) {
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
  std::vector<Move> moves = {make_move(count, in.strides, out.strides, from, to)};
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
        make_move(shape, constant ? Extents(rank, 0) : out.strides, out.strides, constant ? 0 : place + shift, place));
    moves.back().input = constant ? Move::kFromConstant : Move::kFromOutput;
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

void run_pad(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Moves& moves = call.state_as<Moves>();
  uint64_t value = 0;
  if (call.problem.has(2)) std::memcpy(&value, buffers.inputs[2], size_t(moves.bytes));
  run_moves(moves, buffers, pool, value);
}

constexpr Kernel mover(std::string_view name, std::string_view op, Support (*supports)(const Problem&),
                       std::shared_ptr<const void> (*prepare)(const Problem&, const Tile&)) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports;
  k.estimate = estimate;
  k.prepare = prepare;
  k.run = run;
  return k;
}

}  // namespace

constinit const Kernel kCopyKernel = mover("cpu.copy", "Copy", basic, prepare<plan_copy>);
constinit const Kernel kIdentityKernel = mover("cpu.identity", "Identity", basic, prepare<plan_copy>);
constinit const Kernel kTransposeKernel = mover("cpu.transpose", "Transpose", basic, prepare<plan_transpose>);
constinit const Kernel kReshapeKernel = mover("cpu.reshape", "Reshape", supports_reshape, prepare<plan_reshape>);
constinit const Kernel kFlattenKernel = mover("cpu.flatten", "Flatten", supports_reshape, prepare<plan_reshape>);
constinit const Kernel kSqueezeKernel = mover("cpu.squeeze", "Squeeze", supports_reshape, prepare<plan_reshape>);
constinit const Kernel kUnsqueezeKernel = mover("cpu.unsqueeze", "Unsqueeze", supports_reshape, prepare<plan_reshape>);
constinit const Kernel kExpandKernel = mover("cpu.expand", "Expand", basic, prepare<plan_expand>);
constinit const Kernel kTileKernel = mover("cpu.tile", "Tile", basic, prepare<plan_tile>);
constinit const Kernel kSliceKernel = mover("cpu.slice", "Slice", supports_slice, prepare<plan_slice>);
constinit const Kernel kConcatKernel = mover("cpu.concat", "Concat", basic, prepare<plan_concat>);
constinit const Kernel kSplitKernel = mover("cpu.split", "Split", basic, prepare<plan_split>);
constinit const Kernel kDepthToSpaceKernel =
    mover("cpu.depth_to_space", "DepthToSpace", basic, prepare<plan_depth_to_space>);
constinit const Kernel kSpaceToDepthKernel =
    mover("cpu.space_to_depth", "SpaceToDepth", basic, prepare<plan_space_to_depth>);
constinit const Kernel kPadKernel = [] {
  Kernel k = mover("cpu.pad", "Pad", supports_pad, prepare<plan_pad>);
  k.run = run_pad;
  return k;
}();

}  // namespace ridgeline::cpu
