// The movement operators that are strided copies (ops/moves.h): one kernel runs them all.
#include "kernels/cpu/movement/move_kernels.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/elementwise/stream.h"
#include "kernels/cpu/movement/moves.h"
#include "kernels/cpu/movement/select_kernels.h"
#include "ops/moves.h"

namespace ridgeline::cpu {

namespace {

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
template <CopyPlanner kPlan>
std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  auto moves = std::make_shared<Moves>();
  for (const StridedCopy& copy : kPlan(p)) {
    Move move = make_move(copy.shape, copy.from_strides, copy.to_strides, copy.from, copy.to);
    move.input = copy.input, move.output = copy.output;
    moves->list.push_back(std::move(move));
  }
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

Support supports(const std::string& reason) { return reason.empty() ? yes() : Support{false, reason}; }
Support basic(const Problem& p) { return supports(copies_reject(p)); }
Support supports_reshape(const Problem& p) { return supports(reshape_reject(p)); }
Support supports_slice(const Problem& p) { return supports(slice_reject(p)); }
Support supports_pad(const Problem& p) { return supports(pad_reject(p)); }

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
constinit const Kernel kBitCastKernel = mover("cpu.bit_cast", "BitCast", basic, prepare<plan_copy>);
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
