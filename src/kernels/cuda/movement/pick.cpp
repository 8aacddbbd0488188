// cuda.gather, cuda.gather_elements, cuda.pad, cuda.trilu: each output element fetches its own (pick.cu).
//
// Floor: the output written once, and as much read.
#include <algorithm>
#include <array>

#include "core/loops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/movement/movement_kernels.h"
#include "ops/moves.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;

enum class Pick { kGather, kPad, kTrilu };

// The output's axes, with what each operand does along them.
struct View {
  Extents extents;
  std::vector<int64_t> to, from, index, before, inside;
  int64_t axis_extent = 1, axis_stride = 0;
  int pack = 1;
};

size_t positive(int64_t axis, size_t rank) { return size_t(axis < 0 ? axis + int64_t(rank) : axis); }

View merged(const Extents& shape, const std::array<Extents, 3>& strides) {
  const Layout to(shape, strides[0]), from(shape, strides[1]), index(shape, strides[2]);
  const Layout* const layouts[] = {&to, &from, &index};
  const Loops loops = make_loops(shape, layouts, 0);
  View v;
  v.extents = loops.extents;
  v.to = loops.strides[0], v.from = loops.strides[1], v.index = loops.strides[2];
  return v;
}

View gather(const Problem& p) {
  const Layout &x = p.input(0).layout, &indices = p.input(1).layout, &y = p.output().layout;
  const size_t rank = x.shape.size(), axis = positive(p.integer("axis"), rank);
  Extents from(y.shape.size(), 0), index(y.shape.size(), 0);
  if (p.op->name == "GatherElements") {
    from = x.strides, index = indices.strides;
    from[axis] = 0;
  } else {
    const size_t more = indices.shape.size();
    for (size_t a = 0; a < axis; ++a) from[a] = x.strides[a];
    for (size_t a = 0; a < more; ++a) index[axis + a] = indices.strides[a];
    for (size_t a = axis + 1; a < rank; ++a) from[a - 1 + more] = x.strides[a];
  }
  View v = merged(y.shape, {y.strides, from, index});
  v.axis_extent = x.shape[axis], v.axis_stride = x.strides[axis];
  // Packs along the innermost axis, where it is not the index's.
  const int bytes = info(p.input(0).dtype).bits / 8;
  if (v.to.back() == 1 && v.from.back() == 1 && v.index.back() == 0) {
    v.pack = 16 / bytes;
    const auto divides = [&](int64_t n) {
      while (v.pack > 1 && n % v.pack) v.pack /= 2;
    };
    divides(v.extents.back()), divides(v.axis_stride);
    for (size_t a = 0; a + 1 < v.extents.size(); ++a) divides(v.to[a]), divides(v.from[a]);
  }
  return v;
}

View pad(const Problem& p) {
  View v;
  v.extents = p.output().shape();
  v.to = p.output().layout.strides, v.from = p.input(0).layout.strides;
  v.before = pads_before(p), v.inside = p.input(0).shape();
  v.index.assign(v.extents.size(), 0);
  return v;
}

View trilu(const Problem& p) {
  View v;
  v.extents = p.output().shape();
  v.to = p.output().layout.strides, v.from = p.input(0).layout.strides;
  v.index.assign(v.extents.size(), 0);
  return v;
}

View view_of(Pick kind, const Problem& p) {
  return kind == Pick::kGather ? gather(p) : kind == Pick::kPad ? pad(p) : trilu(p);
}

int rank_class(const View& v) { return v.extents.size() <= 4 ? 4 : 8; }

Support supports(Pick kind, const Problem& p) {
  if (const std::string reason = copies_reject(p); !reason.empty()) return no("{}", reason);
  if (kind == Pick::kPad) {
    if (const std::string reason = pad_reject(p); !reason.empty()) return no("{}", reason);
    for (int64_t n : p.input(0).shape())
      if (n == 0 && p.string("mode") != "constant") return no("nothing that mode {} could repeat", p.string("mode"));
  }
  if (kind == Pick::kTrilu && p.has(1) && !p.input(1).constant) return no("the diagonal is not known before the run");
  if (kind == Pick::kGather && p.input(0).elements() == 0 && p.output().elements() > 0) return no("nothing to gather");
  if (view_of(kind, p).extents.size() > 8) return no("more than 8 axes");
  return yes();
}

double estimate(Pick kind, const Problem& p, const Tile&, const Ceilings& c) {
  const int64_t written = p.output().bytes();
  const int bytes = view_of(kind, p).pack * info(p.output().dtype).bits / 8;
  return c.stream_ns(std::min(written, p.read_bytes()), written, 1) * (bytes >= 8 ? 1.05 : 2) + c.launch_ns.at(1, 1);
}

Source source(Pick kind, const Problem& p) {
  const View v = view_of(kind, p);
  Source source;
  source.file = "movement/pick.cu";
  source.entry = "pick";
  source.program =
      fmt::format("#define ELEMENT {}\n#define PACK {}\n#define RANK {}\n#define THREADS {}\n#define KIND {}\n",
                  info(p.input(0).dtype).bits / 8, v.pack, rank_class(v), kThreads, int(kind));
  return source;
}

void launch_pick(Pick kind, const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const View v = view_of(kind, p);
  const int64_t elements = element_count(v.extents);
  if (elements == 0) return;
  const size_t rank = size_t(rank_class(v)), missing = rank - v.extents.size();
  const uint64_t x = reinterpret_cast<uint64_t>(buffers.inputs[0]), y = reinterpret_cast<uint64_t>(buffers.outputs[0]);
  const bool has_value = kind == Pick::kPad && p.has(2), has_index = kind == Pick::kGather;
  std::vector<uint64_t> words = {x, has_index ? reinterpret_cast<uint64_t>(buffers.inputs[1]) : 0,
                                 has_value ? reinterpret_cast<uint64_t>(buffers.inputs[2]) : 0, y};
  const auto append = [&](const std::vector<int64_t>& values, int64_t neutral, int64_t factor, int64_t divisor) {
    for (size_t a = 0; a < rank; ++a) {
      int64_t value = a < missing || values.empty() ? neutral : values[a - missing];
      if (a + 1 == rank) value = value * factor / divisor;
      words.push_back(uint64_t(value));
    }
  };
  append(v.extents, 1, 1, v.pack);
  append(v.to, 0, v.pack, 1);
  append(v.from, 0, v.pack, 1);
  append(v.index, 0, 1, 1);
  append(v.before, 0, 1, 1);
  append(v.inside, 1, 1, 1);
  words.push_back(uint64_t(v.axis_extent));
  words.push_back(uint64_t(v.axis_stride));
  words.push_back(kind == Pick::kTrilu && p.has(1) ? uint64_t(p.values(1).at(0)) : 0);
  words.push_back(uint64_t(elements / v.pack));
  const uint64_t word = uint64_t(v.pack) * uint64_t(info(p.input(0).dtype).bits) / 8;
  const uint64_t aligned = x % word == 0 && y % word == 0 ? 1 : 0;
  const uint64_t wide = has_index && p.input(1).dtype == DType::kI64 ? 1 : 0;
  uint64_t mode = 0, upper = 0;
  if (kind == Pick::kPad) {
    const std::string name = p.string("mode");
    mode = name == "edge" ? 1 : name == "reflect" ? 2 : name == "wrap" ? 3 : 0;
  }
  if (kind == Pick::kTrilu) upper = p.flag("upper") ? 1 : 0;
  words.push_back(wide | aligned << 32);
  words.push_back(mode | upper << 32);
  void* parameters[] = {words.data()};
  launch(call.state_as<LoadedKernel>(), {(elements / v.pack + kThreads - 1) / kThreads}, kThreads, stream, parameters,
         {.dependent = true});
}

template <Pick kKind>
constexpr Kernel picker(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.device = DeviceKind::kCuda;
  k.supports = [](const Problem& p) { return supports(kKind, p); };
  k.estimate = [](const Problem& p, const Tile& tile, const Ceilings& c) { return estimate(kKind, p, tile, c); };
  k.source = [](const Problem& p, const Tile&) { return source(kKind, p); };
  k.launch = [](const KernelCall& call, const Buffers& buffers, StreamHandle* stream) {
    launch_pick(kKind, call, buffers, stream);
  };
  return k;
}

constexpr Kernel kPickers[] = {
    picker<Pick::kGather>("cuda.gather", "Gather"),
    picker<Pick::kGather>("cuda.gather_elements", "GatherElements"),
    picker<Pick::kPad>("cuda.pad", "Pad"),
    picker<Pick::kTrilu>("cuda.trilu", "Trilu"),
};

}  // namespace

std::span<const Kernel* const> pick_kernels() {
  static const std::vector<const Kernel*> list = [] {
    std::vector<const Kernel*> all;
    for (const Kernel& kernel : kPickers) all.push_back(&kernel);
    return all;
  }();
  return list;
}

}  // namespace ridgeline::cuda
