// cuda.norm_rows: normalizations whose lanes are rows; cuda.norm_any: all others. One source, norm.cu.
//
// Floor: x read and y written once; 268 MB of bf16 each way are 131 us at 4.1 TB/s on an H200. A multiprocessor has to
// have some 40 KB on their way for that: 2048 threads with 16 to 32 bytes each, or fewer with more.
#include <algorithm>
#include <array>

#include "kernels/cuda/device.h"
#include "kernels/cuda/normalize/norm_kernels.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kBlock = 128;       // threads, at least
constexpr int kMostHeld = 32;     // values a thread holds as V
constexpr int kMostPacks = 8;     // packs of 16 bytes a thread holds as stored
constexpr int kLongBlock = 1024;  // threads of a row that is read anew for each pass

bool wide(const Problem& p) { return p.input(0).dtype == DType::kF64; }

// Elements a pack: as many as divide the row, and keep all rows at multiples of a pack.
int per_of(const LaneView& view) {
  int per = 128 / info(view.operands[0].dtype).bits;
  const auto divides = [&](int64_t v) {
    while (per > 1 && v % per) per /= 2;
  };
  divides(view.member_count());
  for (size_t k = 0; k < view.operands.size(); ++k)
    for (int a = 0; view.column_stride(int(k)) == 1 && a < view.lanes.axes(); ++a)
      if (view.lanes.extents[size_t(a)] > 1) divides(view.lanes.strides[k][size_t(a)]);
  return per;
}

// Sums of two operands and exponentials are held as they are computed.
bool holds(NormKind kind, const LaneView& view) {
  return kind == NormKind::kSoftmax || view.find("Residual") >= 0 || view.find("Added") >= 0;
}

// Tile: threads a row, packs a thread (0: the row is read anew for each pass), next row ahead.
std::vector<Tile> row_tiles(NormKind kind, const LaneView& view, int per) {
  const int64_t packs = (view.member_count() + per - 1) / per, rows = std::max<int64_t>(1, view.lane_count());
  const int packs_held = per <= 2 ? 2 * kMostPacks : kMostPacks;
  const int most = holds(kind, view) ? std::min(packs_held, kMostHeld / per) : packs_held;
  std::vector<Tile> list;
  for (int threads : {8, 32, 64, 128, 256, 512, 1024}) {
    int64_t chunks = (packs + threads - 1) / threads;
    for (int64_t rounded : {1, 2, 3, 4, 6, 8, 12, 16})
      if (chunks <= rounded) {
        chunks = std::max<int64_t>(rounded, 1);
        break;
      }
    if (chunks > most) continue;
    if (threads > 32 && packs * 2 <= threads) continue;  // half of them would have nothing
    for (int ahead : {0, 1})
      if (!(ahead && (threads < 32 || chunks * per > 32))) list.push_back({{threads, int32_t(chunks), ahead}});
  }
  // Four packs a thread: 64 bytes on their way in each, and a barrier of few warps. Where there are few rows, as many
  // threads as there are packs.
  const auto cost = [&](const Tile& t) {
    const bool few = rows * t.size[0] < int64_t(target().multiprocessors) * 1024;
    return std::abs(t.size[1] - (few ? 1 : 4)) * 2 + t.size[2];
  };
  std::stable_sort(list.begin(), list.end(), [&](const Tile& a, const Tile& b) { return cost(a) < cost(b); });
  if (list.empty()) list.push_back({{kLongBlock, 0, 0}});
  return list;
}

std::vector<Tile> tiles_of(const NormForm& form, const Problem& p) {
  const LaneView view = norm_view(form, p);
  return row_tiles(norm_kind(form, p), view, per_of(view));
}

// Threads a lane where its members lie anywhere.
int lane_threads(const LaneView& view) {
  const int64_t members = view.member_count();
  return members <= 32 ? 1 : members <= 512 ? 32 : 256;
}

struct Geometry {
  int threads_a_lane = 1, block = kBlock, chunks = 0, ahead = 0, per = 1;
};

Geometry geometry(const LaneView& view, const Tile& tile, bool rows) {
  Geometry g;
  g.threads_a_lane = rows ? tile.size[0] : lane_threads(view);
  g.block =
      g.threads_a_lane > 32 ? g.threads_a_lane : kBlock;  // several warps on a lane join at the barrier of a block
  g.chunks = tile.size[1], g.ahead = tile.size[2];
  g.per = rows ? per_of(view) : 1;
  return g;
}

Support supports(const NormForm& form, const Problem& p, bool rows) {
  if (form.kind == NormKind::kTrain && !p.flag("training_mode")) return no("statistics are given: cuda.batch_norm");
  const LaneView view = norm_view(form, p);
  if (const std::string reason = lanes_reject(view, p); !reason.empty()) return no("{}", reason);
  const bool are_rows = is_rows(view, {"Residual", "Sum"});
  if (rows && !are_rows) return no("lanes are no rows: members do not follow each other");
  if (!rows && are_rows) return no("lanes are rows: cuda.norm_rows");
  return yes();
}

double estimate(const NormForm& form, const Problem& p, const Tile& tile, const Ceilings& c, bool rows) {
  const double stream = c.stream_ns(p.read_bytes(), p.write_bytes(), 1), launch = c.launch_ns.at(1, 1);
  if (!rows) return 3 * stream + launch;
  const bool again = tile.size[1] == 0;
  return (again ? (form.kind == NormKind::kLayer ? 1.8 : 1.4) : 1.0) * stream + launch;
}

Source source(const NormForm& form, const Problem& p, const Tile& tile, bool rows) {
  const LaneView view = norm_view(form, p);
  const NormKind kind = norm_kind(form, p);
  const Geometry g = geometry(view, tile, rows);
  const int mode = !rows ? 2 : g.chunks == 0 ? 1 : 0;
  Source source;
  source.file = "normalize/norm.cu";
  source.entry = "norm_lanes";
  source.program = fmt::format(
      "#define V {}\n#define KIND {}\n#define MODE {}\n#define TPR {}\n#define THREADS {}\n#define PER {}\n#define "
      "CHUNKS {}\n#define HOLD {}\n#define EXACT {}\n#define PREFETCH {}\n#define RESIDUAL {}\n",
      wide(p) ? "double" : "float", int(kind), mode, g.threads_a_lane, g.block, g.per, std::max(1, g.chunks),
      mode == 0 && holds(kind, view) ? 1 : 0,
      mode == 0 && view.member_count() == int64_t(g.threads_a_lane) * g.chunks * g.per ? 1 : 0, g.ahead,
      view.find("Residual") >= 0 ? 1 : 0);
  source.program += lanes_text(view, p, kNormRoles, rows);
  return source;
}

void launch_norm(const NormForm& form, const KernelCall& call, const Buffers& buffers, Stream stream, bool rows) {
  const Problem& p = call.problem;
  const LaneView view = norm_view(form, p);
  const Geometry g = geometry(view, call.tile, rows);
  if (view.lane_count() == 0) return;
  std::vector<double> numbers(2, 0.0);
  for (const AttributeSpec& spec : p.op->attributes) {
    if (spec.name == "epsilon") numbers[0] = p.number("epsilon");
    if (spec.name == "momentum") numbers[1] = p.number("momentum");
  }
  std::vector<uint64_t> words = lanes_words(view, buffers, g.per, numbers);
  void* parameters[] = {words.data()};
  const LoadedKernel& kernel = call.state_as<LoadedKernel>();
  const int64_t rows_a_block = g.block / g.threads_a_lane;
  int64_t blocks = (view.lane_count() + rows_a_block - 1) / rows_a_block;
  if (g.ahead) {
    const int registers = std::max(16, (kernel.resources.registers + 7) / 8 * 8);
    const int resident = std::max(1, std::min(2048, 65536 / registers) / g.block);
    blocks = std::min<int64_t>(blocks, int64_t(target().multiprocessors) * resident);
  }
  launch(kernel, {blocks}, g.block, stream, parameters, {.dependent = true});
}

template <const NormForm& kForm, bool kRows>
constexpr Kernel norm(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.device = DeviceKind::kCuda;
  k.supports = [](const Problem& p) { return supports(kForm, p, kRows); };
  if (kRows) k.tiles = [](const Problem& p) { return tiles_of(kForm, p); };
  k.estimate = [](const Problem& p, const Tile& tile, const Ceilings& c) { return estimate(kForm, p, tile, c, kRows); };
  k.source = [](const Problem& p, const Tile& tile) { return source(kForm, p, tile, kRows); };
  k.launch = [](const KernelCall& call, const Buffers& buffers, StreamHandle* stream) {
    launch_norm(kForm, call, buffers, stream, kRows);
  };
  // Each lane is read to its end before it is written, element by element where it is read anew.
  k.in_place = [](const Problem& p, int input) {
    return (input == 0 || input == kForm.residual) && p.input(input).layout == p.output().layout;
  };
  return k;
}

constexpr NormForm kLayer = {.scale = 1, .bias = 2, .mean = 1, .inverse = 2};
constexpr NormForm kRms = {.kind = NormKind::kRms, .scale = 1};
constexpr NormForm kSimplified = {.kind = NormKind::kRms, .scale = 1, .inverse = 1};
constexpr NormForm kAddLayer = {.residual = 1, .scale = 2, .bias = 3, .sum = 1};
constexpr NormForm kAddRms = {.kind = NormKind::kRms, .residual = 1, .scale = 2, .sum = 1};
constexpr NormForm kSkipLayer = {
    .axes = NormForm::kLastAxis, .residual = 1, .added = 4, .scale = 2, .bias = 3, .sum = 3, .mean = 1, .inverse = 2};
constexpr NormForm kSkipRms = {
    .kind = NormKind::kRms, .axes = NormForm::kLastAxis, .residual = 1, .added = 3, .scale = 2, .sum = 3, .inverse = 2};
constexpr NormForm kSoftmax = {.kind = NormKind::kSoftmax, .axes = NormForm::kOneAxis};
constexpr NormForm kLogSoftmax = {.kind = NormKind::kLogSoftmax, .axes = NormForm::kOneAxis};
constexpr NormForm kHardmax = {.kind = NormKind::kHardmax, .axes = NormForm::kOneAxis};
constexpr NormForm kLp = {.kind = NormKind::kL1, .axes = NormForm::kOneAxis};
constexpr NormForm kMoments = {.kind = NormKind::kMoments, .axes = NormForm::kListed};
constexpr NormForm kInstance = {.axes = NormForm::kSpatial, .scale = 1, .bias = 2};
constexpr NormForm kGroup = {.axes = NormForm::kGroups, .scale = 1, .bias = 2};
constexpr NormForm kTrain = {.kind = NormKind::kTrain, .axes = NormForm::kAllButChannels, .scale = 1, .bias = 2};

template <const NormForm& kForm>
constexpr std::array<Kernel, 2> both(std::string_view rows, std::string_view any, std::string_view op) {
  return {norm<kForm, true>(rows, op), norm<kForm, false>(any, op)};
}

constexpr std::array<Kernel, 2> kNorms[] = {
    both<kLayer>("cuda.layer_norm_rows", "cuda.layer_norm_any", "LayerNormalization"),
    both<kRms>("cuda.rms_norm_rows", "cuda.rms_norm_any", "RMSNormalization"),
    both<kSimplified>("cuda.simplified_norm_rows", "cuda.simplified_norm_any", "SimplifiedLayerNormalization"),
    both<kAddLayer>("cuda.add_layer_norm_rows", "cuda.add_layer_norm_any", "AddLayerNormalization"),
    both<kAddRms>("cuda.add_rms_norm_rows", "cuda.add_rms_norm_any", "AddRMSNormalization"),
    both<kSkipLayer>("cuda.skip_layer_norm_rows", "cuda.skip_layer_norm_any", "SkipLayerNormalization"),
    both<kSkipRms>("cuda.skip_rms_norm_rows", "cuda.skip_rms_norm_any", "SkipSimplifiedLayerNormalization"),
    both<kSoftmax>("cuda.softmax_rows", "cuda.softmax_any", "Softmax"),
    both<kLogSoftmax>("cuda.log_softmax_rows", "cuda.log_softmax_any", "LogSoftmax"),
    both<kHardmax>("cuda.hardmax_rows", "cuda.hardmax_any", "Hardmax"),
    both<kLp>("cuda.lp_norm_rows", "cuda.lp_norm_any", "LpNormalization"),
    both<kMoments>("cuda.mean_variance_norm_rows", "cuda.mean_variance_norm_any", "MeanVarianceNormalization"),
    both<kInstance>("cuda.instance_norm_rows", "cuda.instance_norm_any", "InstanceNormalization"),
    both<kGroup>("cuda.group_norm_rows", "cuda.group_norm_any", "GroupNormalization"),
    both<kTrain>("cuda.batch_norm_train_rows", "cuda.batch_norm_train_any", "BatchNormalization"),
};

}  // namespace

std::span<const Kernel* const> norm_kernels() {
  static const std::vector<const Kernel*> list = [] {
    std::vector<const Kernel*> all;
    for (const auto& pair : kNorms)
      for (const Kernel& kernel : pair) all.push_back(&kernel);
    return all;
  }();
  return list;
}

}  // namespace ridgeline::cuda
