// The block interpreter: loads operands as f32, runs the steps over 256 elements each, stores.
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise/block_steps.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/elementwise/block_functions-inl.h"
#include "kernels/cpu/elementwise/block_io-inl.h"
#include "kernels/cpu/elementwise/program_block.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

// ---- blocks

/// Slots live on the stack; only those that are used are touched.
struct Slots {
  HWY_ALIGN float memory[PreparedProgram::kMostSlots][kBlock];
  const float* at[PreparedProgram::kMostSlots];
};

void fill(float* to, float value, int n) {
  const F32 d;
  for (int i = 0; i < n; i += int(hn::Lanes(d))) hn::Store(splat(value), d, to + i);
}

/// Makes the operand at `from` readable as n whole vectors: in place if it is contiguous f32 and n fills its vectors.
HWY_INLINE void bind_input(DType dtype, const void* from, int64_t stride, int slot, Slots& s, int n, int padded) {
  if (dtype == DType::kF32 && stride == 1 && n == padded) {
    s.at[slot] = static_cast<const float*>(from);
    return;
  }
  s.at[slot] = s.memory[slot];
  load_block(dtype, from, stride, s.memory[slot], n);
  for (int i = n; i < padded; ++i) s.memory[slot][i] = 0;  // what lies there might be denormal, hence slow
}

HWY_INLINE void run_steps(const View& v, Slots& s, int padded, float* direct) {
  for (int k = 0; k < v.step_count; ++k) {
    const Step& step = v.steps[k];
    float* to = direct && k + 1 == v.step_count ? direct : s.memory[step.dst];
    run_step(step.op, s.at[step.a], step.b >= 0 ? s.at[step.b] : nullptr, step.c >= 0 ? s.at[step.c] : nullptr, to,
             padded);
  }
}

HWY_INLINE int pad(int n) {
  const int lanes = int(hn::Lanes(F32()));
  return (n + lanes - 1) / lanes * lanes;
}

/// Reads input k of the tile's block at (i, j).
HWY_INLINE void bind_tile_input(DType dtype, const TileInput& o, int k, Slots& s, int64_t i, int64_t j, int count,
                                int padded) {
  const char* from = static_cast<const char*>(o.data) + (i * o.row_stride + j * o.col_stride) * element_bytes(dtype);
  if (o.col_stride != 0) return bind_input(dtype, from, o.col_stride, k, s, count, padded);
  float value;
  load_block(dtype, from, 1, &value, 1);
  s.at[k] = s.memory[k];
  fill(s.memory[k], value, padded);
}

void tile(const View& v, int64_t rows, int64_t cols, const TileInput* inputs, const TileOutput* outputs);

/// A single step between contiguous rows of f32 whose output is streamed; the ends that are no whole lines go through
/// tile(). False: it is not that.
bool stream_rows(const View& v, int64_t rows, int64_t cols, const TileInput* inputs, const TileOutput& out) {
  if (!out.stream || out.col_stride != 1 || v.step_count != 1 || v.input_count > 2 || !v.last_is_output || cols < 64)
    return false;
  if (v.output_count != 1 || v.outputs[0].dtype != DType::kF32) return false;
  const Step& step = v.steps[0];
  if (step.a >= v.input_count || step.b >= v.input_count || step.c >= 0) return false;
  for (int k = 0; k < v.input_count; ++k)
    if (v.inputs[k].dtype != DType::kF32 || inputs[k].col_stride != 1) return false;
  for (int64_t i = 0; i < rows; ++i) {
    float* to = static_cast<float*>(out.data) + i * out.row_stride;
    const float* from[2] = {};
    for (int k = 0; k < v.input_count; ++k)
      from[k] = static_cast<const float*>(inputs[k].data) + i * inputs[k].row_stride;
    const int64_t head = int64_t(-(reinterpret_cast<intptr_t>(to) >> 2) & 15), lines = (cols - head) / 16 * 16;
    if (!stream_step(step.op, from[step.a] + head, step.b >= 0 ? from[step.b] + head : nullptr, to + head, lines))
      return false;
    const int64_t begins[2] = {0, head + lines};
    for (const int64_t begin : begins) {
      TileInput end[2];
      for (int k = 0; k < v.input_count; ++k) end[k] = {from[k] + begin, 0, 1};
      const TileOutput end_out = {to + begin, 0, 1, false};
      const int64_t count = begin == 0 ? head : cols - begin;
      if (count > 0) tile(v, 1, count, end, &end_out);
    }
  }
  hwy::FlushStream();  // before another thread is told
  return true;
}

/// A tile of few columns: as many rows together as a block holds, each in whole vectors. Row by row, the dispatch of a
/// dozen steps over 32 numbers took 133 ns where the numbers take 20.
void narrow_tile(const View& v, int64_t rows, int64_t cols, const TileInput* inputs, const TileOutput* outputs) {
  Slots s;
  for (int i = 0; i < v.slot_count; ++i) s.at[i] = s.memory[i];
  const int count = int(cols), width = pad(count);
  const int64_t group = rows < kBlock / width ? rows : kBlock / width;
  const bool whole = count == width;
  for (int i = 0; i < v.constant_count; ++i) fill(s.memory[v.input_count + i], v.constants[i], int(group) * width);
  const auto load_row = [&](int k, int64_t i, float* to) HWY_ATTR {
    const TileInput& o = inputs[k];
    const DType dtype = v.inputs[k].dtype;
    const char* from = static_cast<const char*>(o.data) + i * o.row_stride * element_bytes(dtype);
    if (o.col_stride == 0) {
      float value;
      load_block(dtype, from, 1, &value, 1);
      return fill(to, value, width);
    }
    load_block(dtype, from, o.col_stride, to, count);
    for (int c = count; c < width; ++c) to[c] = 0;
  };
  for (int k = 0; k < v.input_count; ++k)
    if (inputs[k].row_stride == 0)
      for (int64_t r = 0; r < group; ++r) load_row(k, 0, s.memory[k] + r * width);
  const TileOutput& first = outputs[0];
  const bool direct = v.last_is_output && v.outputs[0].dtype == DType::kF32 && first.col_stride == 1 && !first.stream &&
                      whole && first.row_stride == width;
  for (int64_t i = 0; i < rows; i += group) {
    const int64_t taken = rows - i < group ? rows - i : group;
    const int n = int(taken) * width;
    for (int k = 0; k < v.input_count; ++k) {
      const TileInput& o = inputs[k];
      if (o.row_stride == 0) continue;
      if (whole && o.col_stride == 1 && o.row_stride == width) {  // one run
        const DType dtype = v.inputs[k].dtype;
        bind_input(dtype, static_cast<const char*>(o.data) + i * o.row_stride * element_bytes(dtype), 1, k, s, n, n);
        continue;
      }
      for (int64_t r = 0; r < taken; ++r) load_row(k, i + r, s.memory[k] + r * width);
    }
    run_steps(v, s, n, direct ? static_cast<float*>(first.data) + i * first.row_stride : nullptr);
    if (direct) continue;
    for (int k = 0; k < v.output_count; ++k) {
      const TileOutput& o = outputs[k];
      const DType dtype = v.outputs[k].dtype;
      const float* from = s.at[v.outputs[k].slot];
      char* to = static_cast<char*>(o.data) + i * o.row_stride * element_bytes(dtype);
      const bool run = whole && o.col_stride == 1 && o.row_stride == width;
      const int64_t stores = run ? 1 : taken;
      for (int64_t r = 0; r < stores; ++r)
        store_block(dtype, from + r * width, to + r * o.row_stride * element_bytes(dtype), o.col_stride,
                    run ? n : count, o.stream);
    }
  }
  if (first.stream) hwy::FlushStream();  // before another thread is told
}

/// All of a tile, block of columns by block of columns. What does not change with the row is prepared once a block.
void tile(const View& v, int64_t rows, int64_t cols, const TileInput* inputs, const TileOutput* outputs) {
  if (stream_rows(v, rows, cols, inputs, outputs[0])) return;
  if (rows > 1 && 2 * pad(int(cols < kBlock ? cols : kBlock)) <= kBlock)
    return narrow_tile(v, rows, cols, inputs, outputs);
  Slots s;
  for (int i = 0; i < v.slot_count; ++i) s.at[i] = s.memory[i];
  const int widest = pad(cols < kBlock ? int(cols) : kBlock);
  for (int i = 0; i < v.constant_count; ++i) fill(s.memory[v.input_count + i], v.constants[i], widest);
  // A single row is walked as one; several rows by columns of blocks, unless none of the operands would gain by it.
  bool shared_row = false;
  for (int k = 0; k < v.input_count; ++k) {
    if (inputs[k].row_stride == 0 && inputs[k].col_stride == 0)
      bind_tile_input(v.inputs[k].dtype, inputs[k], k, s, 0, 0, widest, widest);
    else if (inputs[k].row_stride == 0 && rows > 1)
      shared_row |= v.inputs[k].dtype != DType::kF32 || inputs[k].col_stride != 1;
  }
  const bool direct =
      v.last_is_output && v.outputs[0].dtype == DType::kF32 && outputs[0].col_stride == 1 && !outputs[0].stream;
  auto block = [&](int64_t i, int64_t j, bool first) HWY_ATTR {
    const int count = cols - j < kBlock ? int(cols - j) : kBlock;
    const int padded = pad(count);
    for (int k = 0; k < v.input_count; ++k) {
      const TileInput& o = inputs[k];
      if (o.row_stride == 0 && (o.col_stride == 0 || !first)) continue;
      bind_tile_input(v.inputs[k].dtype, o, k, s, i, j, count, padded);
    }
    const TileOutput& out = outputs[0];
    const bool in_memory = direct && count == padded;
    run_steps(v, s, padded, in_memory ? static_cast<float*>(out.data) + i * out.row_stride + j : nullptr);
    if (in_memory) return;
    for (int k = 0; k < v.output_count; ++k) {
      const TileOutput& o = outputs[k];
      char* to = static_cast<char*>(o.data) + (i * o.row_stride + j * o.col_stride) * element_bytes(v.outputs[k].dtype);
      store_block(v.outputs[k].dtype, s.at[v.outputs[k].slot], to, o.col_stride, count, o.stream);
    }
  };
  if (cols <= kBlock || shared_row) {
    for (int64_t j = 0; j < cols; j += kBlock)
      for (int64_t i = 0; i < rows; ++i) block(i, j, i == 0);
  } else {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; j += kBlock) block(i, j, true);
  }
  if (outputs[0].stream) hwy::FlushStream();  // before another thread is told
}

/// The accumulator's form: input 0 and output 0 are c, f32 whatever the program calls them.
void epilogue(const View& v, float* c, int64_t ldc, int64_t rows, int64_t cols, const TileInput* operands) {
  TileInput inputs[PreparedProgram::kMostSlots];
  PreparedProgram::Value values[PreparedProgram::kMostSlots], result = {v.outputs[0].slot, DType::kF32};
  for (int k = 0; k < v.input_count; ++k) {
    inputs[k] = k == 0 ? TileInput{c, ldc, 1} : operands[k - 1];
    values[k] = v.inputs[k];
  }
  values[0].dtype = DType::kF32;
  View as_f32 = v;
  as_f32.inputs = values;
  as_f32.outputs = &result;
  const TileOutput out = {c, ldc, 1, false};
  tile(as_f32, rows, cols, inputs, &out);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {

HWY_EXPORT(tile);
HWY_EXPORT(epilogue);

void run_tile(const PreparedProgram& program, int64_t rows, int64_t cols, const TileInput* inputs,
              const TileOutput* outputs) {
  if (rows > 0 && cols > 0) HWY_DYNAMIC_DISPATCH(tile)(program.view(), rows, cols, inputs, outputs);
}

void run_block(const PreparedProgram& program, int64_t n, const BlockInput* inputs, const BlockOutput* outputs) {
  TileInput in[PreparedProgram::kMostSlots];
  TileOutput out[PreparedProgram::kMostSlots];
  for (int k = 0; k < program.inputs(); ++k) in[k] = {inputs[k].data, 0, inputs[k].stride};
  for (int k = 0; k < program.outputs(); ++k) out[k] = {outputs[k].data, 0, outputs[k].stride, outputs[k].stream};
  run_tile(program, 1, n, in, out);
}

void apply_epilogue(const PreparedProgram& program, float* c, int64_t ldc, int64_t rows, int64_t cols,
                    const TileInput* operands) {
  if (rows > 0 && cols > 0) HWY_DYNAMIC_DISPATCH(epilogue)(program.view(), c, ldc, rows, cols, operands);
}

void apply_epilogue(const PreparedProgram& program, float* row, int64_t n, const BlockInput* operands) {
  TileInput tile[PreparedProgram::kMostSlots];
  for (int k = 0; k + 1 < program.inputs(); ++k) tile[k] = {operands[k].data, 0, operands[k].stride};
  apply_epilogue(program, row, n, 1, n, tile);
}

}  // namespace ridgeline::cpu
#endif
