// cuda.reduce_*: rows, columns, or members that lie anywhere; one source, reduce.cu.
//
// Floor: x read once; 268 MB are 65 us at 4.1 TB/s on an H200. Few lanes with many members are split over blocks, which
// costs a second node of the graph (0.7 us) and nothing to speak of in bytes.
#include <algorithm>

#include "kernels/cuda/device.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/program_source.h"
#include "kernels/cuda/reduce/reduce_kernels.h"

namespace ridgeline::cuda {
namespace {

constexpr int kBlock = 256;
constexpr int kMostSplits = 1024;
constexpr std::string_view kRoles[] = {"X", "Y"};

bool is_global(const Problem& p) { return p.op->family == "pool"; }
bool is_arg(Fold fold) { return fold == Fold::kArgMax || fold == Fold::kArgMin; }

LaneView view_of(Fold fold, const Problem& p) {
  const Operand &x = p.input(0), &y = p.output();
  const int rank = x.layout.rank();
  LaneView view;
  view.extents = x.shape();
  view.member.assign(size_t(rank), 0);
  if (is_global(p)) {
    for (size_t a = 2; a < view.member.size(); ++a) view.member[a] = 1;
  } else if (is_arg(fold)) {
    const int64_t axis = p.integer("axis");
    view.member[size_t(axis < 0 ? axis + rank : axis)] = 1;
  } else {
    const std::vector<int64_t> given = p.has(1) ? p.values(1) : std::vector<int64_t>{};
    for (int64_t axis : given) view.member[size_t(axis < 0 ? axis + rank : axis)] = 1;
    if (given.empty() && !p.flag("noop_with_empty_axes")) view.member.assign(size_t(rank), 1);
  }
  std::vector<int> same, of_output;
  for (int a = 0; a < rank; ++a) {
    same.push_back(a);
    if (!view.member[size_t(a)])
      of_output.push_back(a);
    else if (is_global(p) || p.flag("keepdims"))
      of_output.push_back(-1);
  }
  view.operands.push_back({"X", x.dtype, 0, -1, spread_strides(x.layout, same, size_t(rank))});
  view.operands.push_back({"Y", y.dtype, -1, 0, spread_strides(y.layout, of_output, size_t(rank))});
  add_epilogue(view, p, of_output);
  merge_lanes(view);
  return view;
}

enum class Mode { kRows, kColumns, kAny };

Mode mode_of(const LaneView& view) {
  if (view.members.axes() != 1) return Mode::kAny;
  if (view.members.extents[0] > 1 && view.members.strides[0][0] == 1) return Mode::kRows;
  const bool columns = view.lanes.strides[0].back() == 1 && view.lanes.extents.back() >= 8;
  return columns ? Mode::kColumns : Mode::kAny;
}

bool small(const Problem& p) { return p.input(0).elements() < (1 << 16); }

struct Geometry {
  Mode mode = Mode::kAny;
  int threads_a_lane = 1, block = kBlock, per = 1, unroll = 1;
  int64_t blocks = 1, splits = 1;
};

// Bytes of reduce.cu's State.
int64_t state_bytes(Fold fold, const Problem& p) {
  const DType x = p.input(0).dtype;
  const bool single = is_float(x) && x != DType::kF64;
  if (is_arg(fold)) return 16;
  return (single ? 4 : 8) * (fold == Fold::kLogSumExp ? 2 : 1);
}

/// Tile: threads a lane (rows, anywhere) or side by side (columns), packs or members on their way in a thread, most
/// splits (0: as many as fill the card).
Geometry geometry(const Problem& p, const LaneView& view, const Tile& tile) {
  Geometry g;
  g.mode = mode_of(view);
  const int64_t lanes = view.lane_count(), members = view.member_count();
  g.per = g.mode == Mode::kAny ? 1 : 128 / info(p.input(0).dtype).bits;
  // As many elements a pack as keep all packs at multiples of it.
  const auto divides = [&](int64_t v) {
    while (g.per > 1 && v % g.per) g.per /= 2;
  };
  if (g.mode == Mode::kColumns) {
    divides(view.lanes.extents.back());
    if (members > 1) divides(view.members.strides[0][0]);
  }
  for (int a = 0; a < view.lanes.axes(); ++a)
    if (const int64_t stride = view.lanes.strides[0][size_t(a)]; view.lanes.extents[size_t(a)] > 1)
      if (g.mode == Mode::kRows || a + 1 < view.lanes.axes()) divides(stride);
  g.threads_a_lane = tile.size[0], g.unroll = tile.size[1];
  // Several warps on a lane are a block of their own: they join at its barrier.
  if (g.mode != Mode::kColumns && g.threads_a_lane > 32) g.block = g.threads_a_lane;
  int64_t units = members;
  if (g.mode == Mode::kColumns) {
    const int64_t inner = view.lanes.extents.back(), packs = (inner + g.per - 1) / g.per;
    g.blocks = (lanes / std::max<int64_t>(1, inner) * packs + g.threads_a_lane - 1) / g.threads_a_lane;
    units = members / (kBlock / g.threads_a_lane * g.unroll);
  } else {
    const int64_t each = g.block / g.threads_a_lane;
    g.blocks = (lanes + each - 1) / each;
    units = members / (int64_t(g.threads_a_lane) * g.per * g.unroll);
  }
  // Splits only where they fill the card: four blocks a multiprocessor, each with two rounds of work.
  const int64_t want = int64_t(target().multiprocessors) * 4;
  if (g.blocks * 2 <= want && units >= 4)
    g.splits = std::clamp<int64_t>(std::min(want / std::max<int64_t>(1, g.blocks), units / 2), 1, kMostSplits);
  if (tile.size[2] > 0) g.splits = std::min<int64_t>(g.splits, tile.size[2]);
  return g;
}

std::vector<Tile> tiles_of(Fold fold, const Problem& p) {
  const LaneView view = view_of(fold, p);
  const int64_t lanes = std::max<int64_t>(1, view.lane_count()), members = view.member_count();
  const int per = 128 / info(p.input(0).dtype).bits;
  const int deep = is_arg(fold) || fold == Fold::kLogSumExp ? 2 : 4;  // packs on their way: states are larger
  switch (mode_of(view)) {
    case Mode::kRows: {
      const int64_t packs = (members + per - 1) / per;
      const bool few = lanes * 32 < int64_t(target().multiprocessors) * 1024;
      std::vector<Tile> list;
      if (packs <= 8)
        list.push_back({{4, 2, 0}});
      else if (packs <= 512 && !few)
        list.push_back({{32, packs >= 32 * 8 ? 8 : packs >= 32 * 4 ? 4 : 1, 0}});
      else
        list.push_back({{packs >= 256 ? 256 : packs >= 64 ? 64 : 32, packs >= 256 * 4 ? deep : 1, 0}});
      if (packs >= 32 * 4 && !small(p))
        for (Tile tile : {Tile{{32, 8, 0}}, Tile{{32, 4, 0}}, Tile{{64, 4, 0}}, Tile{{128, 4, 0}}, Tile{{256, 2, 0}},
                          Tile{{256, 4, 0}}})
          if (!(tile == list[0])) list.push_back(tile);
      return list;
    }
    case Mode::kColumns: {
      // Side by side: a kilobyte of a row. 32 (512 bytes) reached 3417 GB/s on 32768 x 4096 bf16, rows 4288.
      const int64_t packs = view.lanes.extents.back() / per;
      const int wide = packs >= 64 ? 64 : packs > 16 ? 32 : 8;
      std::vector<Tile> list = {{{wide, members >= 64 ? deep : 1, 0}}};
      if (members >= 64 && !small(p))
        for (Tile tile : {Tile{{32, deep, 0}}, Tile{{64, deep, 0}}, Tile{{128, deep, 0}}, Tile{{64, 8, 0}}})
          if (!(tile == list[0])) list.push_back(tile);
      return list;
    }
    case Mode::kAny:
      break;
  }
  return {{{members <= 32 ? 1 : members <= 1024 ? 32 : 256, 1, 0}}};
}

Support supports(Fold fold, const Problem& p) {
  if (p.op->name == "GlobalLpPool" && p.integer("p") != (fold == Fold::kL1 ? 1 : 2))
    return no("p = {}: this one is for {}", p.integer("p"), fold == Fold::kL1 ? 1 : 2);
  if (!is_arg(fold) && p.has(1) && !p.input(1).constant) return no("the axes are not known before the run");
  const LaneView view = view_of(fold, p);
  if (const std::string reason = lanes_reject(view, p); !reason.empty()) return no("{}", reason);
  return yes();
}

double estimate(Fold fold, const Problem& p, const Tile& tile, const Ceilings& c) {
  const LaneView view = view_of(fold, p);
  const Geometry g = geometry(p, view, tile);
  const double stream = c.stream_ns(p.read_bytes(), p.write_bytes(), 1);
  return (g.mode == Mode::kAny ? 4 : 1) * stream + (g.splits > 1 ? 2 : 1) * c.launch_ns.at(1, 1);
}

int64_t workspace(Fold fold, const Problem& p, const Tile& tile) {
  const LaneView view = view_of(fold, p);
  const Geometry g = geometry(p, view, tile);
  return g.splits > 1 ? view.lane_count() * g.splits * state_bytes(fold, p) : 0;
}

std::string limit(DType dtype, bool largest) {
  if (is_float(dtype)) return largest ? "infinity()" : "-infinity()";
  if (dtype == DType::kBool) return largest ? "1" : "0";
  const int bits = info(dtype).bits;
  if (!info(dtype).is_signed) return largest ? fmt::format("{}ull", UINT64_MAX >> (64 - bits)) : "0";
  const int64_t most = INT64_MAX >> (64 - bits);
  return largest ? fmt::format("{}ll", most) : fmt::format("(-{}ll - 1)", most);
}

Source source(Fold fold, const Problem& p, const Tile& tile) {
  const LaneView view = view_of(fold, p);
  const Geometry g = geometry(p, view, tile);
  const DType x = p.input(0).dtype;
  const bool through_double = fold == Fold::kL2 || fold == Fold::kLogSum || fold == Fold::kLogSumExp;
  std::string v = x == DType::kF64 ? "double" : is_float(x) ? "float" : x == DType::kU64 ? "u64" : "i64";
  const bool whole = !is_float(x) && through_double;
  if (whole) v = "double";
  // Small problems share one variant of the plain folds: the sum's, told at the launch which it is.
  const bool plain = !is_arg(fold) && fold != Fold::kLogSumExp && !whole;
  const int number = plain && small(p) ? -1 : int(fold);
  std::string none = "0";
  if (fold == Fold::kMax || fold == Fold::kLogSumExp) none = whole ? "-infinity()" : limit(x, false);
  if (fold == Fold::kMin) none = limit(x, true);
  if (fold == Fold::kProd) none = "1";
  Source source;
  source.file = "reduce/reduce.cu";
  source.entry = "reduce_lanes";
  source.program = fmt::format(
      "#define V {}\n#define FOLD {}\n#define NONE {}\n#define LEAST {}\n#define MOST {}\n#define MODE {}\n#define TPR "
      "{}\n#define THREADS {}\n#define PER {}\n#define UNROLL {}\n{}",
      v, number, none, limit(x, false), limit(x, true), int(g.mode), g.threads_a_lane, g.block, g.per, g.unroll,
      whole ? fmt::format("#define WHOLE_RESULT 1\n#define LOWEST {}\n#define HIGHEST {}\n", limit(x, false),
                          limit(x, true))
            : "");
  source.program += lanes_text(view, p, kRoles, false);
  return source;
}

struct Split {
  uint64_t partial = 0;
  uint32_t splits = 1, stage = 0, fold = 0, last = 0;
};

void launch_reduce(Fold fold, const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const LaneView view = view_of(fold, p);
  const Geometry g = geometry(p, view, call.tile);
  if (view.lane_count() == 0) return;
  std::vector<uint64_t> words = lanes_words(view, buffers, g.per, {});
  if (g.mode == Mode::kColumns) {
    // Packs lie along the lanes: their strides, but for the innermost, and the members' have to keep to whole words.
    const int64_t bytes = info(p.input(0).dtype).bits / 8, word = std::min<int64_t>(16, g.per * bytes);
    bool whole =
        words[0] % uint64_t(word) == 0 && (view.member_count() == 1 || view.members.strides[0][0] * bytes % word == 0);
    for (int a = 0; a + 1 < view.lanes.axes(); ++a)
      whole = whole && (view.lanes.extents[size_t(a)] == 1 || view.lanes.strides[0][size_t(a)] * bytes % word == 0);
    lanes_set_aligned(words, 0, whole);
  }
  Split split{reinterpret_cast<uint64_t>(buffers.workspace), uint32_t(g.splits), 0, uint32_t(fold),
              is_arg(fold) && p.flag("select_last_index") ? 1u : 0u};
  void* parameters[] = {words.data(), &split};
  const LoadedKernel& kernel = call.state_as<LoadedKernel>();
  launch(kernel, {g.blocks, g.splits}, g.block, stream, parameters, {.dependent = true});
  if (g.splits == 1) return;
  split.stage = 1;
  launch(kernel, {(view.lane_count() + g.block / 32 - 1) / (g.block / 32)}, g.block, stream, parameters,
         {.dependent = true});
}

template <Fold kFold>
constexpr Kernel reduction(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.device = DeviceKind::kCuda;
  k.supports = [](const Problem& p) { return supports(kFold, p); };
  k.tiles = [](const Problem& p) { return tiles_of(kFold, p); };
  k.estimate = [](const Problem& p, const Tile& tile, const Ceilings& c) { return estimate(kFold, p, tile, c); };
  k.workspace = [](const Problem& p, const Tile& tile) { return workspace(kFold, p, tile); };
  k.source = [](const Problem& p, const Tile& tile) { return source(kFold, p, tile); };
  k.launch = [](const KernelCall& call, const Buffers& buffers, StreamHandle* stream) {
    launch_reduce(kFold, call, buffers, stream);
  };
  return k;
}

constexpr Kernel kReductions[] = {
    reduction<Fold::kSum>("cuda.reduce_sum", "ReduceSum"),
    reduction<Fold::kMean>("cuda.reduce_mean", "ReduceMean"),
    reduction<Fold::kMax>("cuda.reduce_max", "ReduceMax"),
    reduction<Fold::kMin>("cuda.reduce_min", "ReduceMin"),
    reduction<Fold::kProd>("cuda.reduce_prod", "ReduceProd"),
    reduction<Fold::kL1>("cuda.reduce_l1", "ReduceL1"),
    reduction<Fold::kL2>("cuda.reduce_l2", "ReduceL2"),
    reduction<Fold::kLogSum>("cuda.reduce_log_sum", "ReduceLogSum"),
    reduction<Fold::kLogSumExp>("cuda.reduce_log_sum_exp", "ReduceLogSumExp"),
    reduction<Fold::kSumSquare>("cuda.reduce_sum_square", "ReduceSumSquare"),
    reduction<Fold::kArgMax>("cuda.arg_max", "ArgMax"),
    reduction<Fold::kArgMin>("cuda.arg_min", "ArgMin"),
    reduction<Fold::kMean>("cuda.global_average_pool", "GlobalAveragePool"),
    reduction<Fold::kMax>("cuda.global_max_pool", "GlobalMaxPool"),
    reduction<Fold::kL1>("cuda.global_l1_pool", "GlobalLpPool"),
    reduction<Fold::kL2>("cuda.global_l2_pool", "GlobalLpPool"),
};

}  // namespace

std::span<const Kernel* const> reduce_kernels() {
  static const std::vector<const Kernel*> list = [] {
    std::vector<const Kernel*> all;
    for (const Kernel& kernel : kReductions) all.push_back(&kernel);
    return all;
  }();
  return list;
}

}  // namespace ridgeline::cuda
