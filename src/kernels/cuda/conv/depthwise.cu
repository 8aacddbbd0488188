// Depthwise convolution: each output channel sees one input channel.
//
// LAST 1: channels lie innermost; a thread does VECTOR channels of STRIP neighbouring pixels of a row, and each column
// of the input is loaded once a row of the window. LAST 0: any strides; a thread does one column of STRIP rows.
//
// Given: ELEMENT (f32: float, f16, bf16), LAST, STRIP, VECTOR, and of the window along the strip WINDOW, STEP (0:
// known at run time, then STRIP is 1), OPERANDS; in the text before the epilogue: matrix_epilogue.h for LAST, else
// strided_epilogue.h.
//
// Floor on an H200: bytes at 4.3 TB/s. A 3 x 3 window in f16 costs 14 instructions an output against 27 that the cores
// do meanwhile.

struct Arguments {
  u64 x, w, bias, y;
  i64 x_stride[5], y_stride[5];  // images, channels, three axes
  i64 bias_stride;
  u32 count;               // threads
  int channels, group_out;  // of the output
  int strips;              // of a row, or of a column
  int in[2], out[2], kernel[2], stride[2], dilation[2], begin[2];
  int vectors_x, vectors_y;
  u64 epilogue_address[OPERANDS];
  i64 epilogue_stride[OPERANDS][5];
};

#if LAST
extern "C" __global__ void __launch_bounds__(256)
    depthwise(const __grid_constant__ Arguments a, const __grid_constant__ Epilogue e) {
  wait_for_predecessor();
  release_dependents();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= a.count) return;
  const u32 vectors = a.channels / VECTOR;
  const int c = rest % vectors * VECTOR;
  rest /= vectors;
  const int first = rest % a.strips * STRIP;
  rest /= a.strips;
  const int oh = rest % a.out[0], n = rest / a.out[0];
  const ELEMENT* image = (const ELEMENT*)a.x + n * a.x_stride[0] + c;
  const ELEMENT* weights = (const ELEMENT*)a.w + c;  // [taps][channels]
  float sum[STRIP][VECTOR];
#pragma unroll
  for (int i = 0; i < STRIP; ++i)
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) sum[i][v] = 0;
  const int h0 = oh * a.stride[0] - a.begin[0], w0 = first * a.stride[1] - a.begin[1];
  for (int kh = 0; kh < a.kernel[0]; ++kh, weights += a.kernel[1] * a.channels) {
    const int h = h0 + kh * a.dilation[0];
    if (h < 0 || h >= a.in[0]) continue;
    const ELEMENT* row = image + h * a.x_stride[3];
#if WINDOW
    Pack<ELEMENT, VECTOR> weight[WINDOW];
#pragma unroll
    for (int k = 0; k < WINDOW; ++k) load_pack(weights + k * a.channels, true, weight[k]);
#pragma unroll
    for (int q = 0; q < (STRIP - 1) * STEP + WINDOW; ++q) {
      const int w = w0 + q;
      if (w < 0 || w >= a.in[1]) continue;
      Pack<ELEMENT, VECTOR> x;
      load_pack(row + w * a.x_stride[4], a.vectors_x, x);
#pragma unroll
      for (int i = 0; i < STRIP; ++i) {
        const int k = q - i * STEP;
        if (k < 0 || k >= WINDOW) continue;
#pragma unroll
        for (int v = 0; v < VECTOR; ++v)
          sum[i][v] = fmaf(load_value(x.at[v]), load_value(weight[k].at[v]), sum[i][v]);
      }
    }
#else
    for (int k = 0; k < a.kernel[1]; ++k) {
      const int w = w0 + k * a.dilation[1];
      if (w < 0 || w >= a.in[1]) continue;
      Pack<ELEMENT, VECTOR> x, weight;
      load_pack(row + w * a.x_stride[4], a.vectors_x, x);
      load_pack(weights + k * a.channels, true, weight);
#pragma unroll
      for (int v = 0; v < VECTOR; ++v)
        sum[0][v] = fmaf(load_value(x.at[v]), load_value(weight.at[v]), sum[0][v]);
    }
#endif
  }
  float bias[VECTOR];
#pragma unroll
  for (int v = 0; v < VECTOR; ++v)
    bias[v] = a.bias ? load_value(((const ELEMENT*)a.bias)[(c + v) * a.bias_stride]) : 0.0f;
#pragma unroll
  for (int i = 0; i < STRIP; ++i) {
    const int ow = first + i;
    if (ow >= a.out[1]) break;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) sum[i][v] += bias[v];
    const i64 pixel = (i64(n) * a.out[0] + oh) * a.out[1] + ow;
    epilogue_columns(sum[i], e, pixel, i64(c), nullptr);
    Pack<OutputType, VECTOR> result;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) result.at[v] = store_value<OutputType>(sum[i][v]);
    store_pack((OutputType*)a.y + pixel * a.channels + c, a.vectors_y, result);
  }
}
#else
extern "C" __global__ void __launch_bounds__(256)
    depthwise(const __grid_constant__ Arguments a, const __grid_constant__ Epilogue) {
  wait_for_predecessor();
  release_dependents();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= a.count) return;
  const int ow = rest % a.out[1];
  rest /= a.out[1];
  const int first = rest % a.strips * STRIP;
  rest /= a.strips;
  const int channel = rest % a.channels, n = rest / a.channels;
  const ELEMENT* image = (const ELEMENT*)a.x + n * a.x_stride[0] + channel / a.group_out * a.x_stride[1];
  const ELEMENT* weights = (const ELEMENT*)a.w + i64(channel) * a.kernel[0] * a.kernel[1];
  float sum[STRIP];
#pragma unroll
  for (int i = 0; i < STRIP; ++i) sum[i] = 0;
  const int h0 = first * a.stride[0] - a.begin[0], w0 = ow * a.stride[1] - a.begin[1];
  for (int k = 0; k < a.kernel[1]; ++k) {
    const int w = w0 + k * a.dilation[1];
    if (w < 0 || w >= a.in[1]) continue;
    const ELEMENT* column = image + w * a.x_stride[4];
#if WINDOW
    float weight[WINDOW];
#pragma unroll
    for (int q = 0; q < WINDOW; ++q) weight[q] = load_value(weights[q * a.kernel[1] + k]);
#pragma unroll
    for (int q = 0; q < (STRIP - 1) * STEP + WINDOW; ++q) {
      const int h = h0 + q;
      if (h < 0 || h >= a.in[0]) continue;
      const float x = load_value(column[h * a.x_stride[3]]);
#pragma unroll
      for (int i = 0; i < STRIP; ++i)
        if (q - i * STEP >= 0 && q - i * STEP < WINDOW) sum[i] = fmaf(x, weight[q - i * STEP], sum[i]);
    }
#else
    for (int q = 0; q < a.kernel[0]; ++q) {
      const int h = h0 + q * a.dilation[0];
      if (h < 0 || h >= a.in[0]) continue;
      sum[0] = fmaf(load_value(column[h * a.x_stride[3]]), load_value(weights[q * a.kernel[1] + k]), sum[0]);
    }
#endif
  }
  const float bias = a.bias ? load_value(((const ELEMENT*)a.bias)[channel * a.bias_stride]) : 0.0f;
#pragma unroll
  for (int i = 0; i < STRIP; ++i) {
    const int oh = first + i;
    if (oh >= a.out[0]) break;
    const i64 at[5] = {n, channel, 0, oh, ow};
    ((OutputType*)a.y)[n * a.y_stride[0] + channel * a.y_stride[1] + oh * a.y_stride[3] + ow * a.y_stride[4]] =
        store_value<OutputType>(finish(sum[i] + bias, a, at));
  }
}
#endif
