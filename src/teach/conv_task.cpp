#include <fmt/format.h>

#include "ridgeline/error.h"
#include "session/problem_words.h"
#include "teach/conv_steps.h"
#include "teach/task.h"

namespace ridgeline::teach {

Task conv_task(const std::vector<std::string>& keys, int threads, int64_t l2, uint64_t seed) {
  // A 3x3 layer in the middle of a network, its image (2.25 MiB) larger than most second-level caches.
  const auto sizes = whole_numbers("conv", {{"c", 64}, {"h", 96}, {"w", 96}, {"oc", 64}, {"kernel", 3}}, keys);
  Conv t{};
  t.channels = sizes.at("c"), t.height = sizes.at("h"), t.width = sizes.at("w"), t.outs = sizes.at("oc"),
  t.kernel = sizes.at("kernel");
  if (t.kernel % 2 == 0)
    fail(ErrorCode::kUsage, "explain conv: kernel={} is even; the result is as large as the image with odd ones",
         t.kernel);
  const int64_t taps = t.kernel * t.kernel, pixels = t.height * t.width;
  const Floats x = noise(t.channels * pixels, seed), w = noise(t.outs * t.channels * taps, seed + 1),
               y = room(t.outs * pixels), right = room(t.outs * pixels), scratch = room(packed_floats(t, threads));
  Task task;
  const std::vector<std::string> words = {"n=1",
                                          fmt::format("c={}", t.channels),
                                          fmt::format("h={}", t.height),
                                          fmt::format("w={}", t.width),
                                          fmt::format("oc={}", t.outs),
                                          fmt::format("kh={}", t.kernel),
                                          fmt::format("kw={}", t.kernel),
                                          "stride=1",
                                          fmt::format("pad={}", t.pad())};
  task.problem = fmt::format("conv {}", fmt::join(words, " "));
  task.flops = 2 * t.outs * t.channels * taps * pixels;
  // As in matmul_task.cpp: an image that does not fit is fetched for each channel of the result.
  const int64_t xb = 4 * x.count, wb = 4 * w.count, yb = 4 * y.count;
  const bool fits = xb + wb + yb <= l2;
  const auto whole = [&](int64_t y_passes) {
    return fits ? xb + wb + yb : (xb <= l2 / 2 ? 1 : t.outs) * xb + wb + y_passes * yb;
  };
  const int64_t strips = round_up(t.height, kStripRows) / kStripRows, strip = 4 * packed_strip(t);
  const int64_t strip_rows = std::min(t.height, kStripRows + 2 * t.pad());
  const auto tiled = [&](int64_t y_passes) {
    if (fits) return xb + wb + yb;
    const int64_t x_read = 4 * t.channels * t.width * strip_rows * strips;
    return x_read * (strip <= l2 ? 1 : round_up(t.outs, kTileOuts) / kTileOuts) + wb * (strip + wb <= l2 ? 1 : strips) +
           y_passes * yb;
  };
  const auto add = [&](const char* name, const char* idea, void (*step)(const Conv&), int64_t bytes, int used = 1) {
    const Floats& result = task.ways.empty() ? right : y;
    Conv own = t;
    own.x = x.data(), own.w = w.data(), own.y = result.data(), own.scratch = scratch.data(), own.threads = used;
    const auto run = [step, own, x, w, scratch] { step(own); };  // holds the memory
    const std::string file = fmt::format("src/teach/conv_{}_{}.cpp", task.ways.size() + 1, name);
    task.ways.push_back(way(name, idea, file, bytes, run, result, right));
    task.ways.back().threads = used;
  };
  add("naive", "each pixel a sum over channels and taps, the border asked about at each", conv_1_naive, whole(1));
  add("reordered", "the inner loop walks along rows of pixels, one weight for all", conv_2_reordered, whole(2));
  add("tiled", "strips of rows stay in the second-level cache for all channels of the result", conv_3_tiled, tiled(2));
  add("vectorised", "the machine's widest vectors, multiply and add in one", conv_4_vectorised, tiled(2));
  add("packed", "strips copied with their border of zeros, weights in the order of use", conv_5_packed, tiled(1));
  add("registers", "a tile of the result stays in registers while channels and taps pass", conv_6_registers, tiled(1));
  add("prefetching", "the rows of the next channel are asked for ahead", conv_7_prefetching, tiled(1));
  add("threaded", "each thread computes strips of its own", conv_8_threaded, tiled(1), threads);
  task.steps = int(task.ways.size());
  for (int used = 1; used <= threads; used = used == 1 && threads > 1 ? threads : threads + 1)
    task.ways.push_back(own_kernel(parse_bench_problem("conv", words, used).problem, {x, w}, tiled(1), y, right));
  return task;
}

}  // namespace ridgeline::teach
