// Results whose extents hang on the content: what they are, for inference, the references and the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "ridgeline/tensor.h"

namespace ridgeline {

/// NonMaxSuppression's operands, f32 and row-major.
struct BoxSelection {
  int64_t batches = 0, boxes = 0, classes = 0;
  const float* box = nullptr;    // [batches, boxes, 4]
  const float* score = nullptr;  // [batches, classes, boxes]
  int64_t most = 0;              // boxes of a class, at most `boxes`
  float overlap = 0;             // intersection over union from which, exclusively, a box goes
  bool has_threshold = false;
  float threshold = 0;  // scores above it count
  bool center = false;  // boxes are [x, y, width, height] and not two corners
};
/// Where one batch and class is worked on, of box_scratch_bytes at 64 bytes.
int64_t box_scratch_bytes(const BoxSelection& s);
/// The selected boxes of one batch and class, best first, into `chosen` ([most]); how many they are. Of equal scores
/// the lower index comes first, NaN comes last.
int64_t select_boxes(const BoxSelection& s, int64_t batch, int64_t cls, void* scratch, int32_t* chosen);
/// [selected, 3]: batch, class, box.
std::vector<int64_t> select_boxes(const BoxSelection& s);

/// Unique's four results as positions: of each unique value the first occurrence, of each element its unique value.
struct UniqueItems {
  std::vector<int64_t> first, inverse, count;
};
/// Of the elements of a tensor, or of its slices along an axis. NaNs are equal, and above all numbers.
UniqueItems unique_items(const Tensor& x, int axis, bool flat, bool sorted);

}  // namespace ridgeline
