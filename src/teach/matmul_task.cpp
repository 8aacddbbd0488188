#include <fmt/format.h>

#include "session/problem_words.h"
#include "teach/matmul_steps.h"
#include "teach/task.h"

namespace ridgeline::teach {
namespace {

int64_t blocks(int64_t n, int64_t of) { return (n + of - 1) / of; }

// What passes between the second-level cache and what is behind it, by the order of the loops: an operand that does not
// fit is fetched anew each time it is walked, what is summed in place is read and written.
struct Traffic {
  int64_t a, b, c, l2;  // bytes
  int64_t m, n, k;
  bool all_fits() const { return a + b + c <= l2; }
  int64_t once() const { return a + b + c; }
  int64_t rows_over_b(int64_t c_passes) const {
    return all_fits() ? once() : a + (b <= l2 / 2 ? 1 : m) * b + c_passes * c;
  }
  int64_t tiled(bool a_row_by_row) const {
    if (all_fits()) return once();
    const int64_t block = 4 * kBlockK * kBlockN, a_block = 4 * m * kBlockK;
    // Row by row A passes once for a block of B; tile by tile (32 columns) once for each, unless it stays.
    const int64_t a_passes = a_row_by_row || a_block + block <= l2 ? blocks(n, kBlockN) : blocks(n, 32);
    return a_passes * a + b + 2 * blocks(k, kBlockK) * c;
  }
};

}  // namespace

Task matmul_task(const std::vector<std::string>& keys, int threads, int64_t l2, uint64_t seed) {
  // 768: B, 2.25 MiB, is larger than most second-level caches, and the first step takes half a second. At 1024 all rows
  // of a column fall into the same few sets of the caches and it takes 9.
  const auto sizes = whole_numbers("matmul", {{"m", 768}, {"n", 768}, {"k", 768}}, keys);
  const int64_t m = sizes.at("m"), n = sizes.at("n"), k = sizes.at("k");
  const Floats a = noise(m * k, seed), b = noise(k * n, seed + 1), c = room(m * n), right = room(m * n),
               scratch = room(kScratchFloats * threads);
  const Traffic traffic{4 * m * k, 4 * k * n, 4 * m * n, l2, m, n, k};
  Task task;
  task.problem = fmt::format("matmul m={} n={} k={} packed=0", m, n, k);
  task.flops = 2 * m * n * k;
  const auto add = [&](const char* name, const char* idea, void (*step)(const Matmul&), int64_t bytes, int used = 1) {
    const Floats& result = task.ways.empty() ? right : c;
    const Matmul t{a.data(), b.data(), result.data(), m, n, k, n, scratch.data(), used};
    const auto run = [step, t, a, b, scratch] { step(t); };  // holds the memory
    const std::string file = fmt::format("src/teach/matmul_{}_{}.cpp", task.ways.size() + 1, name);
    task.ways.push_back(way(name, idea, file, bytes, run, result, right));
    task.ways.back().threads = used;
  };
  add("naive", "three loops, each element a row times a column", matmul_1_naive, traffic.rows_over_b(1));
  add("reordered", "the inner loop walks along rows: whole lines, independent sums", matmul_2_reordered,
      traffic.rows_over_b(2));
  add("tiled", "a block of B stays in the second-level cache while all rows of A pass", matmul_3_tiled,
      traffic.tiled(true));
  add("vectorised", "the machine's widest vectors, multiply and add in one", matmul_4_vectorised, traffic.tiled(true));
  add("registers", "a tile of C stays in registers while k runs", matmul_5_registers, traffic.tiled(false));
  add("packed", "B copied so that the inner loop reads it from end to end", matmul_6_packed, traffic.tiled(false));
  add("prefetching", "the next rows of A and C are asked for ahead", matmul_7_prefetching, traffic.tiled(false));
  add("threaded", "each thread computes columns of its own", matmul_8_threaded, traffic.tiled(false), threads);
  task.steps = int(task.ways.size());
  std::vector<std::string> words;
  for (const auto& [key, value] : sizes) words.push_back(fmt::format("{}={}", key, value));
  words.emplace_back("packed=0");
  for (int used = 1; used <= threads; used = used == 1 && threads > 1 ? threads : threads + 1)
    task.ways.push_back(own_kernel(parse_bench_problem("matmul", words, used).problem, {a, b},
                                   traffic.all_fits() ? traffic.once() : traffic.tiled(false), c, right));
  return task;
}

}  // namespace ridgeline::teach
