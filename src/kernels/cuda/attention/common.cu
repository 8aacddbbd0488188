// Attention as its kernels see it, whichever operator asks: every operand as strides of batch, head, row and column,
// and what a query sees as a range of keys. Stands before each kernel of the family; attention_shape.cpp fills it.
//
// Given: QType (of Q, K and the cache of K), VType, and MaskType where MASK is 1; OutputType and `epilogue`.

struct Rows {
  i64 batch, head, row, column;  // in elements
  __device__ __forceinline__ i64 at(i64 b, i64 h, i64 r) const { return b * batch + h * head + r * row; }
};

// What every launch reads comes first: cold lines of parameters cost a third of a microsecond each.
struct Attention {
  u64 q, k, v, y;
  Rows at_q, at_k, at_v, at_y;
  double scale, softcap;
  i64 first_place;
  int batch, heads, kv_heads, queries, keys, depth, value_depth, past, mask_keys, causal;
  int splits, plain, has_lengths, scores_mode, wide_k, wide_v, aligned, empty_is_zero, y_in_words, paired;
  i64 length_stride, left, right, attention_blocks;
  u64 mask, past_k, past_v, lengths, present_k, present_v, scores;
  Rows at_mask, at_past_k, at_past_v, at_present_k, at_present_v, at_scores;
};

struct Range {
  int begin, end;
};

__device__ __forceinline__ i64 length_of(const Attention& a, int item) {
  return a.has_lengths ? reinterpret_cast<const i64*>(a.lengths)[item * a.length_stride] : i64(a.keys);
}

// The keys that a query may see; [0, 0) if there is none. The mask may hide more of them.
__device__ __forceinline__ Range seen_by(const Attention& a, int query, i64 length) {
  if (a.plain) {  // no lengths and no window
    const i64 end = a.causal ? min(i64(a.mask_keys), a.first_place + query + 1) : i64(a.mask_keys);
    return end > 0 ? Range{0, int(end)} : Range{0, 0};
  }
  const i64 place = query + (a.has_lengths ? length - a.queries : a.first_place);
  i64 begin = 0, end = a.mask_keys;
  if (a.has_lengths) end = min(end, max(length, i64(0)));
  if (a.causal) end = min(end, place + 1);
  if (a.right >= 0) end = min(end, place + a.right + 1);
  if (a.left >= 0) begin = max(i64(0), place - a.left);
  return begin < end ? Range{int(begin), int(end)} : Range{0, 0};
}

__device__ __forceinline__ const QType* key_row(const Attention& a, int item, int head, int key) {
  return key < a.past ? reinterpret_cast<const QType*>(a.past_k) + a.at_past_k.at(item, head, key)
                      : reinterpret_cast<const QType*>(a.k) + a.at_k.at(item, head, key - a.past);
}
__device__ __forceinline__ const VType* value_row(const Attention& a, int item, int head, int key) {
  return key < a.past ? reinterpret_cast<const VType*>(a.past_v) + a.at_past_v.at(item, head, key)
                      : reinterpret_cast<const VType*>(a.v) + a.at_v.at(item, head, key - a.past);
}

#if MASK
template <typename T>
__device__ __forceinline__ auto mask_addend(T x) { return load_value(x); }
__device__ __forceinline__ float mask_addend(bool x) { return x ? 0.0f : -infinity(); }
__device__ __forceinline__ auto mask_at(const Attention& a, int item, int head, int query, int key) {
  const i64 at = a.at_mask.at(item, head, query) + key * a.at_mask.column;
  return mask_addend(reinterpret_cast<const MaskType*>(a.mask)[at]);
}
#endif

// present = past, then own: blocks beyond those that attend do it, while these read past and own where they lie.
template <typename T>
__device__ __forceinline__ void copy_present(const Attention& a, u64 past, const Rows& at_past, u64 own,
                                             const Rows& at_own, u64 present, const Rows& at_present, int depth,
                                             int wide, i64 first, i64 step) {
  if (!present) return;
  const int per = wide ? 16 / int(sizeof(T)) : 1, units = depth / per;
  const i64 count = i64(a.batch) * a.kv_heads * a.keys * units;
  for (i64 i = first; i < count; i += step) {
    const int unit = int(i % units), key = int(i / units % a.keys);
    const i64 pair = i / units / a.keys;
    const int head = int(pair % a.kv_heads), item = int(pair / a.kv_heads);
    const T* from = key < a.past
                        ? reinterpret_cast<const T*>(past) + at_past.at(item, head, key) + unit * per * at_past.column
                        : reinterpret_cast<const T*>(own) + at_own.at(item, head, key - a.past) +
                              unit * per * at_own.column;
    T* to = reinterpret_cast<T*>(present) + at_present.at(item, head, key) + unit * per * at_present.column;
    if (wide)
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    else
      *to = *from;
  }
}
__device__ __forceinline__ bool copies(const Attention& a, i64 block) {
  if (block < a.attention_blocks) return false;
  const i64 first = (block - a.attention_blocks) * blockDim.x + threadIdx.x,
            step = (i64(gridDim.x) - a.attention_blocks) * blockDim.x;
  copy_present<QType>(a, a.past_k, a.at_past_k, a.k, a.at_k, a.present_k, a.at_present_k, a.depth, a.wide_k, first,
                      step);
  copy_present<VType>(a, a.past_v, a.at_past_v, a.v, a.at_v, a.present_v, a.at_present_v, a.value_depth, a.wide_v,
                      first, step);
  return true;
}
