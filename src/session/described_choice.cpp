#include "session/described_choice.h"

#include <algorithm>
#include <cmath>

#include "session/problem_words.h"

namespace ridgeline {
namespace {

// Rows of C that a stream over the weights keeps in registers; more rows read the weights again.
constexpr int64_t kStreamRows = 8;
// A simpler class is taken if it is at most this much slower: the model knows no better.
constexpr double kTie = 1.02;
constexpr int64_t kSplits[] = {2, 4, 8, 16, 32, 64};

int64_t product_of(const Extents& shape, size_t first, size_t last) {
  int64_t out = 1;
  for (size_t i = first; i < last; ++i) out *= shape[i];
  return out;
}

bool has_attribute(const Problem& p, std::string_view name) {
  const auto& all = p.op->attributes;
  return std::any_of(all.begin(), all.end(), [&](const AttributeSpec& a) { return a.name == name; });
}

struct Product {
  TileShape size;
  int64_t batch = 1;
  DType a = DType::kNone, b = DType::kNone;
};

// The products in a contraction: a convolution's are those of its windows with its filters, one a group; attention's
// those of the probabilities with the values, where cutting k is cutting the context.
std::optional<Product> product_in(const Problem& p) {
  if (p.op->kind != OpKind::kContraction || p.op_inputs < 2 || !p.has(0) || !p.has(1)) return std::nullopt;
  const Extents &x = p.input(0).shape(), &w = p.input(1).shape(), &y = p.output().shape();
  Product out{{}, 1, p.input(0).dtype, p.input(1).dtype};
  if (p.op->family == "matmul" && y.size() >= 2 && x.size() >= 2 && w.size() >= 2) {
    const bool transposed = has_attribute(p, "transA") && p.flag("transA");
    out.size = {y[y.size() - 2], y.back(), transposed ? x[x.size() - 2] : x.back()};
    out.batch = product_of(y, 0, y.size() - 2);
    // One B for the whole batch: its rows are rows of one product.
    if (product_of(w, 0, w.size() - 2) == 1) out.size.m *= out.batch, out.batch = 1;
    return out;
  }
  if (p.op->family == "conv" && x.size() >= 3 && w.size() == x.size() && w[0] > 0) {
    const int64_t group = has_attribute(p, "group") ? std::max<int64_t>(1, p.integer("group")) : 1;
    out.batch = group;
    if (p.op->name.find("Transpose") != std::string_view::npos)
      out.size = {x[0] * product_of(x, 2, x.size()), product_of(w, 1, w.size()), x[1] / group};
    else
      out.size = {y[0] * product_of(y, 2, y.size()), w[0] / group, product_of(w, 1, w.size())};
    return out;
  }
  if (p.op->family == "attention" && x.size() == 4 && w.size() == 4 && w[1] > 0) {
    out.batch = x[0] * w[1];
    out.size = {x[2] * (x[1] / w[1]), y.back(), w[2]};
    return out;
  }
  return std::nullopt;
}

// The type that a unit computes this one in: itself, else the next wider. `sums`: with an accumulator that is fit for
// sums.
const DescribedRate* rate_for(const DescribedUnit& unit, DType dtype, bool sums) {
  std::vector<DType> wider = {dtype};
  switch (dtype) {
    case DType::kI4:
    case DType::kU4:
      wider = {dtype, DType::kI8, DType::kF16, DType::kF32};
      break;
    case DType::kI8:
    case DType::kU8:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      wider = {dtype, DType::kF16, DType::kF32};
      break;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      wider = {dtype, DType::kF64};
      break;
    default:
      wider = {dtype, DType::kF32};
  }
  for (const DType d : wider) {
    const DescribedRate* rate = unit.rate(d);
    if (rate && (!sums || info(rate->accumulator).bits >= std::min(32, info(info(d).accumulator).bits))) return rate;
  }
  return nullptr;
}

double ratio_up(double value, double unit) { return std::ceil(value / unit); }

class Model {
 public:
  Model(const Problem& problem, const DescribedMachine& machine, const Product& product, const Cost& cost, bool cold)
      : machine_(machine), product_(product), cost_(cost) {
    (void)problem;
    memory_ = cold ? &machine.memory() : &machine.level_of(cost.bytes());
    // FLOPs beyond those of the product counted: attention has two products and a softmax.
    const auto& [m, n, k] = product.size;
    const double flops = 2 * double(m) * double(n) * double(k) * double(product.batch);
    scale_ = flops > 0 ? double(cost.flops) / flops : 0;
  }

  // One block of C a core at a time. Cores without a tile add neither arithmetic nor bandwidth. With room for two sets
  // of inputs copies hide behind the arithmetic, else they wait for each other.
  KernelClass tile(const DescribedRate& rate, const TileFit& fit, int64_t split) const {
    KernelClass c;
    c.tile = fit;
    c.split = split;
    const auto& [m, n, k] = product_.size;
    const auto& t = fit.tile;
    const double per_core = rate.gop_s / double(machine_.cores) * 1e3;  // FLOPs/us
    const double steps = ratio_up(ratio_up(double(k), double(split)), double(t.k));
    const double tiles =
        double(product_.batch) * ratio_up(double(m), double(t.m)) * ratio_up(double(n), double(t.n)) * double(split);
    const double waves = ratio_up(tiles, double(machine_.cores));
    const double padded = double(t.volume()) / (1 - fit.padding_share);
    c.compute_us = waves * steps * 2 * padded * scale_ / per_core;
    const double busy = std::min(1.0, tiles / double(machine_.cores));
    const double edge = std::min(1.0, double(m) / double(t.m)), side = std::min(1.0, double(n) / double(t.n));
    const double refill = tiles * steps * (double(fit.a_bytes) * edge + double(fit.b_bytes) * side);
    // Partial results of a split are written and read once more, by a second launch.
    const double partial =
        split > 1 ? 2 * double(bytes_of(fit.accumulator, m * n)) * double(product_.batch * split) : 0;
    const double near = (refill + partial) / (machine_.levels.front().gb_s * 1e3 * busy);
    const double far = double(cost_.bytes()) / (memory_->gb_s * 1e3 * busy);
    c.memory_us = std::max(near, far);
    c.time_us = fit.fits_double ? std::max(c.compute_us, c.memory_us) : c.compute_us + c.memory_us;
    c.time_us += machine_.launch_us * (split > 1 ? 2 : 1);
    return c;
  }

  KernelClass best_tile(std::string name, const DescribedRate& rate, const std::vector<TileFit>& fits,
                        bool split) const {
    KernelClass best;
    for (const TileFit& fit : fits) {
      if (!split) {
        take(best, tile(rate, fit, 1));
        continue;
      }
      for (const int64_t s : kSplits)
        if (fit.tile.k * s <= product_.size.k) take(best, tile(rate, fit, s));
    }
    if (!best.tile) best.reason = split ? "k is too short to be cut" : "no tile fits the buffers";
    best.name = std::move(name);
    return best;
  }

  // The weights pass once, in one stream a core; nothing is padded.
  KernelClass stream(const DescribedRate& rate) const {
    KernelClass c;
    c.name = "vector.stream";
    const auto& [m, n, k] = product_.size;
    const int64_t rows = std::min(m, n);
    if (rows > kStreamRows) {
      c.reason = fmt::format("{} rows: beyond {} the larger operand would be read again", rows, kStreamRows);
      return c;
    }
    c.compute_us = double(cost_.flops) / (rate.gop_s * 1e3);
    c.memory_us = double(cost_.bytes()) / (memory_->gb_s * 1e3);
    c.time_us = std::max(c.compute_us, c.memory_us) + machine_.launch_us;
    return c;
  }

 private:
  // Equal times: the tile that asks least of the near memory, then the one with the fewest steps.
  static void take(KernelClass& best, KernelClass candidate) {
    const auto key = [](const KernelClass& c) {
      return std::tuple(c.time_us, c.compute_us, c.memory_us, -c.tile->tile.volume());
    };
    if (!best.tile || key(candidate) < key(best)) best = std::move(candidate);
  }

  const DescribedMachine& machine_;
  const Product& product_;
  const Cost& cost_;
  const DescribedLevel* memory_;
  double scale_ = 0;
};

std::string lacks(const DescribedMachine& machine, bool matrix, DType dtype) {
  const DescribedUnit* unit = machine.unit(matrix);
  return unit ? fmt::format("the {} has no {}", unit->name, name(dtype))
              : fmt::format("the machine has no {} unit", matrix ? "matrix" : "vector");
}

// Throws if the tile that was asked for is too large.
TileFit check_tile(const DescribedMachine& machine, const DescribedUnit& unit, const DescribedRate& rate,
                   const TileShape& tile, const Product& product) {
  const TileFit fit = fit_tile(machine, rate, tile, product.a, product.b);
  for (const BufferUse& use : fit.buffers) {
    if (use.over_single() == 0) continue;
    fail(ErrorCode::kUsage,
         "tile={} does not fit {} of {}: it takes {} bytes (A {}, B {}, accumulators in {} {}) and there are {}, so it "
         "is "
         "{} bytes over ({})",
         tile.text(), use.buffer.name, machine.name, use.single_bytes, use.buffer.inputs ? fit.a_bytes : 0,
         use.buffer.inputs ? fit.b_bytes : 0, name(fit.accumulator), use.buffer.accumulators ? fit.c_bytes : 0,
         use.buffer.bytes, use.over_single(), unit.name);
  }
  return fit;
}

void choose(DescribedAnswer& answer) {
  double least = INFINITY;
  for (const KernelClass& c : answer.classes)
    if (c.possible()) least = std::min(least, c.time_us);
  for (size_t i = 0; i < answer.classes.size(); ++i) {
    if (!answer.classes[i].possible() || answer.classes[i].time_us > least * kTie) continue;
    answer.chosen = int(i);
    return;
  }
}

void answer_product(DescribedAnswer& answer, const Problem& problem, const Product& product,
                    const DescribedMachine& machine, bool cold, const std::optional<TileShape>& tile) {
  answer.product = product.size;
  answer.batch = product.batch;
  const Model model(problem, machine, product, answer.cost, cold);
  const DescribedUnit *matrix = machine.unit(true), *vector = machine.unit(false);
  // A matrix unit computes a type as it is: widening is a conversion of operands that its tiles do not have.
  const DescribedRate* fast = matrix ? matrix->rate(product.a) : nullptr;
  const DescribedRate* slow = rate_for(*vector, product.a, true);
  if (!fast && !slow)
    fail(ErrorCode::kUsage, "unsupported: {} computes no products of {}: {}", machine.name, name(product.a),
         lacks(machine, false, product.a));
  const DescribedUnit& unit = fast ? *matrix : *vector;
  const DescribedRate& best = fast ? *fast : *slow;
  answer.unit = unit.name;
  answer.peak_gop_s = best.gop_s;
  answer.computed_in = best.dtype;
  if (tile) answer.asked = check_tile(machine, unit, best, *tile, product);

  const auto fits_of = [&](const DescribedRate& rate) {
    return tile ? std::vector<TileFit>{fit_tile(machine, rate, *tile, product.a, product.b)}
                : feasible_tiles(machine, rate, product.size, product.a, product.b);
  };
  // The simplest first.
  if (slow) {
    answer.classes.push_back(model.stream(*slow));
  } else {
    answer.classes.push_back({.name = "vector.stream", .reason = lacks(machine, false, product.a)});
  }
  for (const bool on_matrix : {false, true}) {
    const std::string prefix = on_matrix ? "matrix" : "vector";
    const DescribedRate* rate = on_matrix ? fast : slow;
    if (!rate) {
      answer.classes.push_back({.name = prefix + ".tile", .reason = lacks(machine, on_matrix, product.a)});
      continue;
    }
    std::vector<TileFit> fits = fits_of(*rate);
    if (tile && !fits.front().fits) fits.clear();  // made for the other unit
    answer.classes.push_back(model.best_tile(prefix + ".tile", *rate, fits, false));
    KernelClass split;
    if (machine.cores == 1)
      split = {.name = prefix + ".split_k", .reason = "one core: nobody to share k with"};
    else
      split = model.best_tile(prefix + ".split_k", *rate, fits, true);
    answer.classes.push_back(std::move(split));
    if (rate != &best) continue;
    std::vector<std::pair<double, TileFit>> timed;
    for (TileFit& fit : fits) {
      const double time = model.tile(*rate, fit, 1).time_us;
      timed.emplace_back(time, std::move(fit));
    }
    std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.first, -a.second.tile.volume()) < std::tuple(b.first, -b.second.tile.volume());
    });
    for (auto& [time, fit] : timed) answer.tiles.push_back(std::move(fit));
  }
}

// Bytes of one row that a reduction looks at twice: 0 if the operator has none.
int64_t row_bytes(const Problem& p) {
  const bool rows = p.op->family == "normalize" && has_attribute(p, "axis") && p.has(0);
  if (!rows) return 0;
  const Extents& x = p.input(0).shape();
  const int64_t rank = int64_t(x.size());
  int64_t axis = p.integer("axis");
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return 0;
  const bool one_axis = p.op->name.find("oftmax") != std::string_view::npos;
  return bytes_of(p.input(0).dtype, one_axis ? x[size_t(axis)] : product_of(x, size_t(axis), x.size()));
}

void answer_stream(DescribedAnswer& answer, const Problem& problem, const DescribedMachine& machine, bool cold) {
  const DescribedUnit& vector = *machine.unit(false);
  const DType dtype = !problem.inputs.empty() && problem.has(0) ? problem.input(0).dtype : problem.output().dtype;
  const DescribedRate* rate = rate_for(vector, dtype == DType::kBool ? DType::kI8 : dtype, false);
  if (!rate && answer.cost.flops > 0 && problem.op->kind != OpKind::kMovement)
    fail(ErrorCode::kUsage, "unsupported: {} computes no {}: {}", machine.name, name(dtype),
         lacks(machine, false, dtype));
  answer.unit = vector.name;
  answer.peak_gop_s = rate ? rate->gop_s : 0;
  answer.computed_in = rate ? rate->dtype : dtype;
  const DescribedLevel& level = cold ? machine.memory() : machine.level_of(answer.cost.bytes());
  const auto pass = [&](std::string name, int64_t bytes) {
    KernelClass c;
    c.name = std::move(name);
    c.compute_us = rate ? double(answer.cost.flops) / (rate->gop_s * 1e3) : 0;
    c.memory_us = double(bytes) / (level.gb_s * 1e3);
    c.time_us = std::max(c.compute_us, c.memory_us) + machine.launch_us;
    return c;
  };
  if (problem.op->kind == OpKind::kMovement) {
    answer.classes.push_back(pass("copy", answer.cost.bytes()));
    return;
  }
  const int64_t row = row_bytes(problem);
  if (row == 0) {
    answer.classes.push_back(pass("vector.stream", answer.cost.bytes()));
    return;
  }
  KernelClass kept = pass("vector.row", answer.cost.bytes());
  for (const DescribedBuffer& buffer : machine.buffers)
    if (buffer.inputs && row > buffer.bytes)
      kept.reason =
          fmt::format("a row of {} bytes is {} over the {} of {}", row, row - buffer.bytes, buffer.bytes, buffer.name);
  answer.classes.push_back(std::move(kept));
  // The second look is at the nearest level that holds the rows that the cores have in hand.
  KernelClass twice = pass("vector.two_pass", answer.cost.bytes());
  twice.memory_us += double(answer.cost.read_bytes) / (machine.level_of(row * machine.cores).gb_s * 1e3);
  twice.time_us = std::max(twice.compute_us, twice.memory_us) + machine.launch_us;
  answer.classes.push_back(std::move(twice));
}

}  // namespace

DescribedAnswer answer_for(const Problem& problem, const DescribedMachine& machine, bool cold,
                           const std::optional<TileShape>& tile) {
  DescribedAnswer answer;
  answer.cost = cost_of(problem);
  answer.words = problem_words(problem);
  const std::optional<Product> product = product_in(problem);
  if (product && product->size.volume() > 0 && product->batch > 0) {
    answer_product(answer, problem, *product, machine, cold, tile);
  } else {
    if (tile) fail(ErrorCode::kUsage, "tile={}: {} is no product, it has no tiles", tile->text(), problem.op->name);
    answer_stream(answer, problem, machine, cold);
  }
  const DescribedLevel& level = cold ? machine.memory() : machine.level_of(answer.cost.bytes());
  answer.level = level.name;
  answer.ridge = answer.peak_gop_s / machine.memory().gb_s;
  answer.compute_us = answer.peak_gop_s > 0 ? double(answer.cost.flops) / (answer.peak_gop_s * 1e3) : 0;
  answer.memory_us = double(answer.cost.bytes()) / (level.gb_s * 1e3);
  answer.floor_us = std::max(answer.compute_us, answer.memory_us);
  answer.bound = answer.compute_us > answer.memory_us ? Bound::kCompute : Bound::kMemory;
  if (answer.floor_us < machine.launch_us) answer.bound = Bound::kLaunch;
  // A device's launch is paid by every step; a CPU's threads need not start.
  if (machine.kind != "cpu") answer.floor_us += machine.launch_us;
  choose(answer);
  return answer;
}

}  // namespace ridgeline
