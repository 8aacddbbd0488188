// Attention as its kernels see it, whichever operator asks (ridgeline's ScaledDotProductAttention, the standard's
// Attention): axes as strides, and what a query sees as a range of keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/kernel.h"

namespace ridgeline::cpu {

struct AttentionShape {
  /// Elements between neighbours of batch, head and row; the last axis is contiguous.
  struct Rows {
    int64_t batch = 0, head = 0, row = 0;
    int64_t at(int64_t item, int64_t h, int64_t r) const { return item * batch + h * head + r * row; }
  };
  struct Range {
    int64_t begin, end;
  };

  int64_t batch = 0, heads = 1, kv_heads = 1, queries = 0, keys = 0, depth = 0, value_depth = 0;
  int64_t past = 0;  // keys that come from the cache; the others follow them
  Rows q, k, v, y;   // k and v: of all keys where there is a cache (then they are the outputs present_key, _value)
  Rows own_k, own_v, past_k, past_v;
  DType q_type = DType::kF32, k_type = DType::kF32, v_type = DType::kF32, y_type = DType::kF32;
  DType mask_type = DType::kNone;
  Rows mask;
  int64_t mask_col = 0, mask_keys = 0;  // columns that the mask has: keys beyond them are hidden
  bool standard = false, causal = false, has_lengths = false, present_k = false, present_v = false;
  int64_t left = -1, right = -1;  // of the window, if not negative
  int64_t first_place = 0;        // of query 0 among the keys
  int64_t length_stride = 0;
  float scale = 1, softcap = 0;

  bool has_mask() const { return mask_type != DType::kNone; }
  /// The mask can be added as it is read.
  bool plain_mask() const {
    return mask_type == DType::kF32 && softcap == 0 && (mask_col == 1 || keys <= 1) && mask_keys >= keys;
  }
  int64_t rows() const { return batch * heads * queries; }
  int64_t scores() const { return rows() * keys; }
  double flops() const { return 2 * double(scores()) * double(depth + value_depth); }
  int64_t source(int64_t head) const { return head * kv_heads / heads; }  // the head of k and v that serves this one
  /// The result where every key is hidden: 0 in the standard, 0 / 0 here; where there are no keys, the sum of nothing.
  float no_key() const { return keys && !standard ? NAN : 0; }
  /// How many keys of this batch item exist. `length`: what nonpad_kv_seqlen says.
  int64_t existing(int64_t length) const { return has_lengths ? std::clamp<int64_t>(length, 0, keys) : keys; }
  /// The keys that a query may see; [0, 0) if there is none.
  Range seen(int64_t query, int64_t length) const {
    const int64_t place = query + (has_lengths ? length - queries : first_place);
    Range r = {0, std::min(existing(length), has_mask() ? mask_keys : keys)};
    if (causal) r.end = std::min(r.end, place + 1);
    if (right >= 0) r.end = std::min(r.end, place + right + 1);
    if (left >= 0) r.begin = std::max<int64_t>(0, place - left);
    return r.begin < r.end ? r : Range{0, 0};
  }
  int64_t length(const Buffers& buffers, int64_t item) const {
    return has_lengths ? static_cast<const int64_t*>(buffers.inputs[6])[item * length_stride] : keys;
  }
};

/// What no kernel of this family does.
Support attention_support(const Problem& problem);
/// Of a problem that is supported.
AttentionShape attention_shape(const Problem& problem);

/// All keys and values as `shape.k` and `shape.v` describe them; where outputs present_key or present_value are wanted
/// they are written first.
struct KeysAndValues {
  const void *k, *v;
};
KeysAndValues attention_operands(const AttentionShape& shape, const Buffers& buffers, const ThreadPool& pool);

}  // namespace ridgeline::cpu
