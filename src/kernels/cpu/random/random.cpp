// cpu.random_uniform, cpu.random_normal, cpu.multinomial: threads share the range, since each number hangs on its place
// alone.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/random/kernels.h"
#include "kernels/cpu/random/steps.h"
#include "ops/random.h"

namespace ridgeline::cpu {

namespace {

struct State {
  PhiloxKey key;
  double first = 0, second = 1;  // low and range, or mean and scale
};

bool is_normal(const Problem& p) { return p.op->name.starts_with("RandomNormal"); }

Support supports(const Problem& p) {
  if (!p.output().layout.is_row_major()) return no("the output is not row-major");
  if (p.has_epilogue()) return no("an epilogue on random numbers");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const bool fast = p.output().dtype == DType::kF32;
  const double each = is_normal(p) ? (fast ? 1 : 30) : fast ? 0.5 : 5;
  return std::max(c.stream_ns(0, p.write_bytes(), p.threads), double(p.output().elements()) * each / p.threads) + 200;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  if (is_normal(p))
    return std::make_shared<State>(
        State{random_key(p.attributes, RandomStream::kNormal), p.number("mean"), p.number("scale")});
  const double low = p.number("low");
  return std::make_shared<State>(State{random_key(p.attributes, RandomStream::kUniform), low, p.number("high") - low});
}

/// The numbers of one block, one at a time.
void make_block(const State& s, bool normal, DType dtype, uint64_t block, double (&out)[4]) {
  const std::array<uint32_t, 4> words = philox(s.key, block);
  const int count = randoms_per_block(dtype);
  for (int lane = 0; lane < count && !normal; ++lane) out[lane] = s.first + s.second * uniform_of(words, lane, dtype);
  for (int lane = 0; lane < count && normal; lane += 2) {
    const double u = 1 - normal_uniform_of(words, lane, dtype), v = normal_uniform_of(words, lane + 1, dtype);
    const double radius = s.second * std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
    out[lane] = s.first + radius * std::cos(angle);
    out[lane + 1] = s.first + radius * std::sin(angle);
  }
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const Problem& p = call.problem;
  const DType dtype = p.output().dtype;
  const bool normal = is_normal(p);
  const int64_t elements = p.output().elements(), each = randoms_per_block(dtype), whole = elements / each;
  void* y = buffers.outputs[0];
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      double numbers[4] = {};
      make_block(s, normal, dtype, uint64_t(block), numbers);
      for (int64_t k = 0; k < each && block * each + k < elements; ++k)
        store_f64(dtype, y, block * each + k, numbers[k]);
    }
  };
  parallel(pool, whole, 1024, [&](int64_t begin, int64_t end, int) {
    if (dtype == DType::kF32) {
      const auto fill = normal ? fill_normal : fill_uniform;
      if (fill(s.key, uint64_t(begin), uint64_t(end), float(s.first), float(s.second),
               static_cast<float*>(y) + begin * each))
        return;
    }
    some(begin, end);
  });
  if (whole * each < elements) some(whole, whole + 1);
}

// ---- Multinomial

struct Classes {
  PhiloxKey key;
  int64_t rows = 0, classes = 0, samples = 0;
};

Support supports_multinomial(const Problem& p) {
  if (!p.input(0).layout.is_row_major() || !p.output().layout.is_row_major()) return no("an operand is not row-major");
  if (p.has_epilogue()) return no("an epilogue on indices");
  return yes();
}

double estimate_multinomial(const Problem& p, const Tile&, const Ceilings&) {
  return (double(p.input(0).elements()) * 12 + double(p.output().elements()) * 40) / p.threads + 300;
}

int64_t workspace_multinomial(const Problem& p, const Tile&) { return p.threads * p.input(0).shape()[1] * 8; }

std::shared_ptr<const void> prepare_multinomial(const Problem& p, const Tile&) {
  return std::make_shared<Classes>(Classes{random_key(p.attributes, RandomStream::kMultinomial), p.input(0).shape()[0],
                                           p.input(0).shape()[1], p.output().shape()[1]});
}

// The reference's arithmetic in its order, so that a number never falls on another side of a sum.
void run_multinomial(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Classes& s = call.state_as<Classes>();
  const DType from = call.problem.input(0).dtype, to = call.problem.output().dtype;
  parallel(pool, s.rows, 1, [&](int64_t begin, int64_t end, int thread) {
    double* below = static_cast<double*>(buffers.workspace) + thread * s.classes;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t k = 0; k < s.classes; ++k) below[k] = load_f64(from, buffers.inputs[0], row * s.classes + k);
      const double top = *std::max_element(below, below + s.classes);
      double total = 0;
      for (int64_t k = 0; k < s.classes; ++k) below[k] = total += std::exp(below[k] - top);
      for (int64_t n = 0; n < s.samples; ++n) {
        const int64_t place = row * s.samples + n;
        const double u = uniform_of(philox(s.key, uint64_t(place / 2)), int(place % 2), DType::kF64) * total;
        const int64_t at = std::upper_bound(below, below + s.classes, u) - below;
        store_i64(to, buffers.outputs[0], place, std::min(at, s.classes - 1));
      }
    }
  });
}

constexpr Kernel random_kernel(std::string_view name, std::string_view op) {
  return {.name = name, .op = op, .supports = supports, .estimate = estimate, .prepare = prepare, .run = run};
}

}  // namespace

constinit const Kernel kRandomUniformKernel = random_kernel("cpu.random_uniform", "RandomUniform");
constinit const Kernel kRandomUniformLikeKernel = random_kernel("cpu.random_uniform_like", "RandomUniformLike");
constinit const Kernel kRandomNormalKernel = random_kernel("cpu.random_normal", "RandomNormal");
constinit const Kernel kRandomNormalLikeKernel = random_kernel("cpu.random_normal_like", "RandomNormalLike");
constinit const Kernel kMultinomialKernel = {.name = "cpu.multinomial",
                                             .op = "Multinomial",
                                             .supports = supports_multinomial,
                                             .estimate = estimate_multinomial,
                                             .workspace = workspace_multinomial,
                                             .prepare = prepare_multinomial,
                                             .run = run_multinomial};

}  // namespace ridgeline::cpu
