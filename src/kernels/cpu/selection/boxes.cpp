// cpu.non_max_suppression: a batch and class for each thread, then their lists one behind the other.
#include <algorithm>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/selection/kernels.h"
#include "ops/selection.h"

namespace ridgeline::cpu {

namespace {

enum Input { kBoxes, kScores, kMost, kOverlap, kThreshold };

/// All but the addresses and the thresholds. The most boxes that a class may have: as many as there are rows.
BoxSelection shape_of(const Problem& p) {
  BoxSelection s;
  s.batches = p.input(kBoxes).shape()[0];
  s.boxes = p.input(kBoxes).shape()[1];
  s.classes = p.input(kScores).shape()[1];
  s.center = p.flag("center_point_box");
  s.most = s.boxes;
  return s;
}

Support supports(const Problem& p) {
  for (int i = 0; i < p.op_inputs; ++i)
    if (p.has(i) && !p.input(i).layout.is_row_major()) return no("an operand is not row-major");
  if (!p.output().layout.is_row_major()) return no("the output is not row-major");
  if (p.has_epilogue()) return no("an epilogue on indices");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings&) {
  const BoxSelection s = shape_of(p);
  const double scores = double(p.input(kScores).elements()), kept = double(p.output().shape()[0]);
  return (scores * 40 + kept * double(s.boxes) * 0.3) / p.threads + 500;
}

/// A thread's scratch, and for each batch and class its list and how long that is.
int64_t lists_bytes(const BoxSelection& s) {
  return (s.batches * s.classes * (s.most + 1) * int64_t(sizeof(int32_t)) + 63) / 64 * 64;
}
int64_t workspace(const Problem& p, const Tile&) {
  const BoxSelection s = shape_of(p);
  return lists_bytes(s) + p.threads * box_scratch_bytes(s);
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const int64_t rows = p.output().shape()[0];
  BoxSelection s = shape_of(p);
  const int64_t stride = s.most + 1, scratch = box_scratch_bytes(s), pairs = s.batches * s.classes;
  int32_t* lists = static_cast<int32_t*>(buffers.workspace);
  char* scratches = static_cast<char*>(buffers.workspace) + lists_bytes(s);
  s.box = static_cast<const float*>(buffers.inputs[kBoxes]);
  s.score = static_cast<const float*>(buffers.inputs[kScores]);
  const int64_t most = p.has(kMost) ? *static_cast<const int64_t*>(buffers.inputs[kMost]) : 0;
  s.most = std::clamp<int64_t>(most, 0, s.boxes);
  if (p.has(kOverlap)) s.overlap = *static_cast<const float*>(buffers.inputs[kOverlap]);
  s.has_threshold = p.has(kThreshold);
  if (s.has_threshold) s.threshold = *static_cast<const float*>(buffers.inputs[kThreshold]);
  parallel(pool, s.most > 0 ? pairs : 0, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t k = begin; k < end; ++k)
      lists[k * stride] =
          int32_t(select_boxes(s, k / s.classes, k % s.classes, scratches + thread * scratch, lists + k * stride + 1));
  });
  int64_t* y = static_cast<int64_t*>(buffers.outputs[0]);
  int64_t row = 0;
  for (int64_t k = 0; k < pairs && s.most > 0; ++k)
    for (int64_t n = 0; n < lists[k * stride]; ++n, ++row) {
      if (row >= rows) continue;  // counted, not written
      y[row * 3] = k / s.classes;
      y[row * 3 + 1] = k % s.classes;
      y[row * 3 + 2] = lists[k * stride + 1 + n];
    }
  if (row != rows)
    fail(ErrorCode::kBadInput, "NonMaxSuppression: {} boxes are selected, the output has room for {}", row, rows);
}

}  // namespace

constinit const Kernel kBoxesKernel = {.name = "cpu.non_max_suppression",
                                       .op = "NonMaxSuppression",
                                       .supports = supports,
                                       .estimate = estimate,
                                       .workspace = workspace,
                                       .run = run};

}  // namespace ridgeline::cpu
