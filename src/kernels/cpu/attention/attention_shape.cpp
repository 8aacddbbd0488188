#include "kernels/cpu/attention/attention_shape.h"

#include <cstring>

#include "kernels/cpu/elementwise/epilogue_pass.h"

namespace ridgeline::cpu {

namespace {

using Rows = AttentionShape::Rows;

constexpr int kQ = 0, kK = 1, kV = 2, kMask = 3, kPastKey = 4, kPastValue = 5, kLengths = 6;
constexpr int kPresentKey = 1, kPresentValue = 2, kScores = 3;

bool is_standard(const Problem& p) { return p.op->name == "Attention"; }
bool has_output(const Problem& p, int o) { return size_t(o) < p.outputs.size() && p.output(o).dtype != DType::kNone; }

bool is_real(DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; }
bool last_contiguous(const Layout& l) { return l.shape.back() == 1 || l.strides.back() == 1; }

// [batch, heads, length, depth], or [batch, length, heads * depth] (the standard), or [batch, length, depth].
Rows rows_of(const Layout& l, int64_t depth) {
  if (l.rank() == 4) return {l.strides[0], l.strides[1], l.strides[2]};
  return {l.strides[0], depth, l.strides[1]};
}

void set_mask(AttentionShape& s, const Operand& mask, size_t rank) {
  const Layout& m = mask.layout;
  const size_t missing = rank - m.shape.size();
  auto stride = [&](size_t axis) {
    return axis < missing || m.shape[axis - missing] == 1 ? 0 : m.strides[axis - missing];
  };
  s.mask_type = mask.dtype;
  s.mask = {stride(0), rank == 4 ? stride(1) : 0, stride(rank - 2)};
  s.mask_col = stride(rank - 1);
  s.mask_keys = m.shape.empty() || m.shape.back() == 1 ? s.keys : m.shape.back();
}

// Rows of a key or value cache, from several places into one.
void copy_rows(const AttentionShape& s, const void* from, const Rows& in, void* to, const Rows& out, int64_t first,
               int64_t count, int64_t depth, DType type, const ThreadPool& pool) {
  if (count <= 0 || depth <= 0) return;
  const int64_t bytes = bytes_of(type, 1);
  parallel(pool, s.batch * s.kv_heads, std::max<int64_t>(1, (64 << 10) / (count * depth)),
           [&](int64_t begin, int64_t end, int) {
             for (int64_t task = begin; task < end; ++task) {
               const int64_t item = task / s.kv_heads, head = task % s.kv_heads;
               const char* source = static_cast<const char*>(from) + in.at(item, head, 0) * bytes;
               char* target = static_cast<char*>(to) + out.at(item, head, first) * bytes;
               for (int64_t t = 0; t < count; ++t)
                 std::memcpy(target + t * out.row * bytes, source + t * in.row * bytes, size_t(depth * bytes));
             }
           });
}

}  // namespace

Support attention_support(const Problem& p) {
  for (int i : {kQ, kK, kV, kMask, kPastKey, kPastValue}) {
    if (!p.has(i)) continue;
    const bool mask = i == kMask;
    if (!is_real(p.input(i).dtype) && !(mask && p.input(i).dtype == DType::kBool))
      return no("'{}' in {}: this kernel takes f32, f16 and bf16", p.op->inputs[i].name, name(p.input(i).dtype));
    if (!mask && !last_contiguous(p.input(i).layout))
      return no("the last axis of '{}' is strided", p.op->inputs[i].name);
  }
  for (int o : {0, kPresentKey, kPresentValue})
    if (has_output(p, o) && !last_contiguous(p.output(o).layout))
      return no("the last axis of output '{}' is strided", p.op->outputs[o].name);
  if (has_output(p, kScores)) return no("the scores are wanted as a whole (qk_matmul_output)");
  if (p.has(kPastKey) && !(has_output(p, kPresentKey) && has_output(p, kPresentValue)))
    return no("reads a cache and does not hand it on (present_key, present_value)");
  if (is_standard(p) && p.input(kQ).shape().back() == 0) return no("no depth: scores are 0 / 0");
  return EpiloguePass::check(p);
}

AttentionShape attention_shape(const Problem& p) {
  AttentionShape s;
  s.standard = is_standard(p);
  const Layout &q = p.input(kQ).layout, &k = p.input(kK).layout, &v = p.input(kV).layout, &y = p.output().layout;
  s.batch = q.shape[0];
  if (q.rank() == 4) {
    s.heads = q.shape[1], s.kv_heads = k.shape[1];
  } else if (s.standard) {
    s.heads = p.integer("q_num_heads"), s.kv_heads = p.integer("kv_num_heads");
  }
  const size_t length = size_t(q.rank() - 2), last = size_t(q.rank() - 1);
  const bool packed = q.rank() == 3;
  s.queries = q.shape[length];
  s.depth = packed ? q.shape[last] / s.heads : q.shape[last];
  s.value_depth = packed ? v.shape[last] / s.kv_heads : v.shape[last];
  s.past = s.standard && p.has(kPastKey) ? p.input(kPastKey).shape()[2] : 0;
  s.keys = k.shape[length] + s.past;
  s.q = rows_of(q, s.depth), s.k = rows_of(k, s.depth), s.v = rows_of(v, s.value_depth),
  s.y = rows_of(y, s.value_depth);
  s.own_k = s.k, s.own_v = s.v;
  s.q_type = p.input(kQ).dtype, s.k_type = p.input(kK).dtype, s.v_type = p.input(kV).dtype, s.y_type = p.output().dtype;
  s.first_place = s.keys - s.queries;
  if (!s.standard) {
    s.scale = float(p.number("scale"));
    s.causal = p.flag("causal");
  } else {
    s.scale = float(p.attributes.has("scale") ? p.number("scale") : 1 / std::sqrt(double(s.depth)));
    s.causal = p.flag("is_causal");
    s.softcap = float(p.number("softcap"));
    s.left = p.integer("left_window_size"), s.right = p.integer("right_window_size");
    s.first_place = s.past;
    if ((s.has_lengths = p.has(kLengths))) s.length_stride = p.input(kLengths).layout.strides[0];
    if ((s.present_k = has_output(p, kPresentKey))) s.k = rows_of(p.output(kPresentKey).layout, s.depth);
    if ((s.present_v = has_output(p, kPresentValue))) s.v = rows_of(p.output(kPresentValue).layout, s.value_depth);
    if (p.has(kPastKey)) {
      s.past_k = rows_of(p.input(kPastKey).layout, s.depth);
      s.past_v = rows_of(p.input(kPastValue).layout, s.value_depth);
    }
  }
  if (p.has(kMask)) set_mask(s, p.input(kMask), s.standard ? 4 : size_t(q.rank()));
  return s;
}

KeysAndValues attention_operands(const AttentionShape& s, const Buffers& b, const ThreadPool& pool) {
  KeysAndValues all = {b.inputs[kK], b.inputs[kV]};
  if (s.present_k) {
    void* present = b.outputs[kPresentKey];
    if (s.past) copy_rows(s, b.inputs[kPastKey], s.past_k, present, s.k, 0, s.past, s.depth, s.k_type, pool);
    copy_rows(s, all.k, s.own_k, present, s.k, s.past, s.keys - s.past, s.depth, s.k_type, pool);
    all.k = present;
  }
  if (s.present_v) {
    void* present = b.outputs[kPresentValue];
    if (s.past) copy_rows(s, b.inputs[kPastValue], s.past_v, present, s.v, 0, s.past, s.value_depth, s.v_type, pool);
    copy_rows(s, all.v, s.own_v, present, s.v, s.past, s.keys - s.past, s.value_depth, s.v_type, pool);
    all.v = present;
  }
  return all;
}

}  // namespace ridgeline::cpu
