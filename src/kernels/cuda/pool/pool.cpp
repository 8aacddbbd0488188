// cuda.max_pool, cuda.average_pool, cuda.lp_pool: a thread for each output, or for a pack of channels where these
// follow each other. Whole planes are reductions (reduce/reduce.cpp).
//
// Floor: x and y once; windows overlap in the first cache and the second.
#include <algorithm>
#include <array>

#include "kernels/cuda/device.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/program_source.h"
#include "ops/windows.h"

namespace ridgeline::cuda {
namespace {

enum class PoolKind { kMax, kAverage, kLp };

constexpr int kThreads = 128;
constexpr std::string_view kRoles[] = {"X", "Y", "Indices"};

struct View {
  LaneView lanes;
  bool channels_last = false;
  int pack = 1;
  std::array<int64_t, 3> step{};  // of x
};

// Lanes in the order of y's memory, not merged: the kernel needs the coordinates. Five axes, then what is missing
// before.
View view_of(const Problem& p) {
  const Layout &x = p.input(0).layout, &y = p.output().layout;
  const Window w = pool_window(p, x.shape);
  const int spatial = w.axes(), axes = 2 + spatial;
  View view;
  view.channels_last = y.strides[1] == 1 && y.shape[1] > 1 && x.strides[1] == 1;
  if (view.channels_last) {
    view.pack = std::min(8, 128 / info(p.input(0).dtype).bits);
    const auto divides = [&](int64_t v) {
      while (view.pack > 1 && v % view.pack) view.pack /= 2;
    };
    divides(x.shape[1]);
    for (int a = 0; a < axes; ++a)
      if (a != 1) divides(x.strides[size_t(a)]), divides(y.strides[size_t(a)]);
  }
  std::vector<int> order;  // of axes [N, C, spatial]; -1: one that is not there
  order.push_back(0);
  if (!view.channels_last) order.push_back(1);
  for (int s = 0; s < 3; ++s) order.push_back(s < 3 - spatial ? -1 : 2 + s - (3 - spatial));
  if (view.channels_last) order.push_back(1);
  LaneView& l = view.lanes;
  l.lanes.extents.clear();
  for (int axis : order) {
    const int64_t extent = axis < 0 ? 1 : y.shape[size_t(axis)];
    l.lanes.extents.push_back(axis == 1 && view.channels_last ? extent / view.pack : extent);
  }
  l.members.extents = {view.pack};
  const auto add = [&](const std::string& role, DType dtype, int input, int output, std::vector<int64_t> strides) {
    l.operands.push_back({role, dtype, input, output, strides});
    std::vector<int64_t> ordered;
    for (int axis : order)
      ordered.push_back((axis < 0 ? 0 : strides[size_t(axis)]) * (axis == 1 && view.channels_last ? view.pack : 1));
    l.lanes.strides.push_back(ordered);
    l.members.strides.push_back({strides[1]});
  };
  std::vector<int64_t> of_x(size_t(axes), 0);
  of_x[0] = x.strides[0], of_x[1] = x.strides[1];
  for (int s = 0; s < spatial; ++s) view.step[size_t(3 - spatial + s)] = x.strides[size_t(2 + s)];
  add("X", p.input(0).dtype, 0, -1, of_x);
  add("Y", p.output().dtype, -1, 0, y.strides);
  if (p.outputs.size() > 1 && p.output(1).present())
    add("Indices", p.output(1).dtype, -1, 1, p.output(1).layout.strides);
  std::vector<int> same;
  for (int a = 0; a < axes; ++a) same.push_back(a);
  for (int k = 0; p.has_epilogue() && k < p.epilogue_operands(); ++k) {
    const Operand& operand = p.inputs[size_t(p.op_inputs + k)];
    add(fmt::format("E{}", k), operand.dtype, p.op_inputs + k, -1, spread_strides(operand.layout, same, size_t(axes)));
  }
  return view;
}

Support supports(const Problem& p) {
  const Window w = pool_window(p, p.input(0).shape());
  if (w.axes() > 3) return no("{} spatial axes", w.axes());
  for (int a = 0; a < w.axes(); ++a)
    if (w.in[size_t(a)] > INT32_MAX / 4) return no("a plane of more than 2^29");
  if (element_count(w.in) > INT32_MAX) return no("a plane of more than 2^31 elements");
  if (const std::string reason = lanes_reject(view_of(p).lanes, p); !reason.empty()) return no("{}", reason);
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const double stream = c.stream_ns(p.read_bytes(), p.write_bytes(), 1);
  const int64_t taps = element_count(p.integers("kernel_shape"));
  const double seen = double(p.output().elements()) * double(taps) * double(info(p.input(0).dtype).bits) / 8;
  return std::max(stream * 1.1, seen / (2 * c.read_gb_s[1].at(1, 1))) + c.launch_ns.at(1, 1);
}

Source source(PoolKind kind, const Problem& p) {
  const View view = view_of(p);
  const DType x = p.input(0).dtype;
  Source source;
  source.file = "pool/pool.cu";
  source.entry = "pool";
  source.program = fmt::format(
      "#define V {}\n#define KIND {}\n#define NONE {}\n#define PACK {}\n#define CHANNELS_LAST {}\n#define THREADS {}\n",
      x == DType::kF64 ? "double"
      : is_float(x)    ? "float"
                       : "int",
      int(kind),
      is_float(x)       ? "-infinity()"
      : x == DType::kI8 ? "-128"
                        : "0",
      view.pack, view.channels_last ? 1 : 0, kThreads);
  source.program += lanes_text(view.lanes, p, kRoles, true);
  return source;
}

struct DeviceWindow {
  int32_t kernel[3], stride[3], dilation[3], begin[3], in[3], end[3];
  int64_t step[3], plane;
  int32_t with_padding, by_columns, p, channels;
  uint64_t indices;
};

void launch_pool(PoolKind kind, const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const View view = view_of(p);
  const int64_t lanes = view.lanes.lane_count();
  if (lanes == 0) return;
  std::vector<uint64_t> words = lanes_words(view.lanes, buffers, view.pack, {});
  // Taps move x by its spatial strides, which view_of keeps at multiples of a pack.
  const Window w = pool_window(p, p.input(0).shape());
  DeviceWindow d{};
  for (int s = 0; s < 3; ++s) {
    const int a = s - (3 - w.axes());
    const size_t at = size_t(std::max(0, a));
    d.kernel[s] = a < 0 ? 1 : int32_t(w.kernel[at]);
    d.stride[s] = a < 0 ? 1 : int32_t(w.stride[at]);
    d.dilation[s] = a < 0 ? 1 : int32_t(w.dilation[at]);
    d.begin[s] = a < 0 ? 0 : int32_t(w.begin[at]);
    d.in[s] = a < 0 ? 1 : int32_t(w.in[at]);
    d.end[s] = a < 0 ? 0 : int32_t(w.end[at]);
    d.step[s] = view.step[size_t(s)];
  }
  d.plane = element_count(w.in);
  d.channels = int32_t(p.input(0).shape()[1]);
  if (kind == PoolKind::kAverage) d.with_padding = p.flag("count_include_pad") ? 1 : 0;
  if (kind == PoolKind::kMax) d.by_columns = p.flag("storage_order") ? 1 : 0;
  if (kind == PoolKind::kLp) d.p = int32_t(p.integer("p"));
  void* parameters[] = {words.data(), &d};
  launch(call.state_as<LoadedKernel>(), {(lanes + kThreads - 1) / kThreads}, kThreads, stream, parameters,
         {.dependent = true});
}

template <PoolKind kKind>
constexpr Kernel pool(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.device = DeviceKind::kCuda;
  k.supports = supports;
  k.estimate = estimate;
  k.source = [](const Problem& p, const Tile&) { return source(kKind, p); };
  k.launch = [](const KernelCall& call, const Buffers& buffers, StreamHandle* stream) {
    launch_pool(kKind, call, buffers, stream);
  };
  return k;
}

constinit const Kernel kMaxPool = pool<PoolKind::kMax>("cuda.max_pool", "MaxPool");
constinit const Kernel kAveragePool = pool<PoolKind::kAverage>("cuda.average_pool", "AveragePool");
constinit const Kernel kLpPool = pool<PoolKind::kLp>("cuda.lp_pool", "LpPool");

}  // namespace

std::span<const Kernel* const> pool_kernels() {
  static constexpr const Kernel* kList[] = {&kMaxPool, &kAveragePool, &kLpPool};
  return kList;
}

}  // namespace ridgeline::cuda
