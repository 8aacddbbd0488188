// Any convolution: one thread an output, every extent and stride a parameter. For what no other kernel takes: some 5 %
// of the peak of FMAs where weights are read along a warp's threads, 2 % else.
//
// Given: X, W (types of the operands), SUM (of the sums), KIND (0 Conv, 1 ConvTranspose, 2 ConvInteger, 3 QLinearConv),
// OPERANDS (of the epilogue, at least 1); in the text before this file OutputType and
// `finish` (strided_epilogue.h), which loads the epilogue's operands and gives the output.

#define CONV 0
#define TRANSPOSED 1
#define INTEGER 2
#define QUANTIZED 3

struct Arguments {
  u64 x, w, bias, y;
  i64 count;
  i64 channels_last;
  i64 extent[5];  // of the output
  i64 x_stride[5], w_stride[5], y_stride[5];
  i64 bias_stride;
  i64 in[3], kernel[3], stride[3], dilation[3], begin[3];
  i64 group_in, group_out;
#if KIND >= INTEGER
  u64 x_zero, w_zero;
  i64 w_zero_stride, x_signed, w_signed;
#endif
#if KIND == QUANTIZED
  u64 x_scale, w_scale, y_scale, y_zero;
  i64 w_scale_stride, x_scale_code, w_scale_code, y_scale_code, y_signed;
#endif
  u64 epilogue_address[OPERANDS];
  i64 epilogue_stride[OPERANDS][5];
};

// A scale of any float type, by code: 0 f32, 1 f16, 2 bf16, 3 f64.
__device__ __forceinline__ double load_coded(u64 address, i64 at, i64 code) {
  if (code == 1) return load_value(((const f16*)address)[at]);
  if (code == 2) return load_value(((const bf16*)address)[at]);
  if (code == 3) return ((const double*)address)[at];
  return ((const float*)address)[at];
}

// A byte with a sign or without.
__device__ __forceinline__ int load_byte(u64 address, i64 at, i64 has_sign) {
  const unsigned char byte = ((const unsigned char*)address)[at];
  return has_sign ? int((signed char)byte) : int(byte);
}

__device__ __forceinline__ SUM load_x(const Arguments& a, i64 at) {
#if KIND >= INTEGER
  return load_byte(a.x, at, a.x_signed);
#else
  return load_value(((const X*)a.x)[at]);
#endif
}
__device__ __forceinline__ SUM load_w(const Arguments& a, i64 at) {
#if KIND >= INTEGER
  return load_byte(a.w, at, a.w_signed);
#else
  return load_value(((const W*)a.w)[at]);
#endif
}

// The position of the input that a tap of an output position reads; negative: none.
__device__ __forceinline__ i64 input_of(const Arguments& a, int axis, i64 out, i64 tap) {
#if KIND == TRANSPOSED
  const i64 at = out + a.begin[axis] - tap * a.dilation[axis];
  if (at < 0 || at % a.stride[axis]) return -1;
  const i64 in = at / a.stride[axis];
#else
  const i64 in = out * a.stride[axis] - a.begin[axis] + tap * a.dilation[axis];
#endif
  return in < a.in[axis] ? in : -1;
}

extern "C" __global__ void __launch_bounds__(256) conv_direct(const __grid_constant__ Arguments a) {
  i64 rest = i64(blockIdx.x) * 256 + threadIdx.x;
  if (rest >= a.count) return;
  // Neighbouring threads: neighbouring channels where these lie next to each other, else neighbouring pixels.
  i64 at[5];
  if (a.channels_last) {
    at[1] = rest % a.extent[1], rest /= a.extent[1];
  }
#pragma unroll
  for (int axis = 4; axis >= 2; --axis) at[axis] = rest % a.extent[axis], rest /= a.extent[axis];
  if (!a.channels_last) {
    at[1] = rest % a.extent[1], rest /= a.extent[1];
  }
  at[0] = rest;

  const i64 group = at[1] / a.group_out;
  const i64 x0 = at[0] * a.x_stride[0] + group * a.group_in * a.x_stride[1];
#if KIND == TRANSPOSED
  const i64 w0 = group * a.group_in * a.w_stride[0] + (at[1] - group * a.group_out) * a.w_stride[1];
  const i64 w_step = a.w_stride[0];
#else
  const i64 w0 = at[1] * a.w_stride[0], w_step = a.w_stride[1];
#endif
  SUM sum = 0;
#if KIND >= INTEGER
  const SUM x_zero = a.x_zero ? load_byte(a.x_zero, 0, a.x_signed) : 0;
  const SUM w_zero = a.w_zero ? load_byte(a.w_zero, at[1] * a.w_zero_stride, a.w_signed) : 0;
#endif
  for (i64 kd = 0; kd < a.kernel[0]; ++kd) {
    const i64 d = input_of(a, 0, at[2], kd);
    if (d < 0) continue;
    for (i64 kh = 0; kh < a.kernel[1]; ++kh) {
      const i64 h = input_of(a, 1, at[3], kh);
      if (h < 0) continue;
      for (i64 kw = 0; kw < a.kernel[2]; ++kw) {
        const i64 w = input_of(a, 2, at[4], kw);
        if (w < 0) continue;
        i64 from = x0 + d * a.x_stride[2] + h * a.x_stride[3] + w * a.x_stride[4];
        i64 weight = w0 + kd * a.w_stride[2] + kh * a.w_stride[3] + kw * a.w_stride[4];
#pragma unroll 4
        for (i64 c = 0; c < a.group_in; ++c, from += a.x_stride[1], weight += w_step) {
#if KIND >= INTEGER
          // 32 bits wrap as the standard's do; unsigned, since a signed overflow has no meaning in C++.
          sum = SUM(unsigned(sum) + unsigned((load_x(a, from) - x_zero) * (load_w(a, weight) - w_zero)));
#else
          sum += load_x(a, from) * load_w(a, weight);
#endif
        }
      }
    }
  }
#if KIND < INTEGER
  if (a.bias) sum += load_value(((const X*)a.bias)[at[1] * a.bias_stride]);
  const auto value = finish(sum, a, at);
#elif KIND == INTEGER
  const auto value = finish(sum, a, at);
#else
  const double whole = double(sum) + (a.bias ? double(((const int*)a.bias)[at[1] * a.bias_stride]) : 0.0);
  const double factor = load_coded(a.x_scale, 0, a.x_scale_code) *
                        load_coded(a.w_scale, at[1] * a.w_scale_stride, a.w_scale_code) /
                        load_coded(a.y_scale, 0, a.y_scale_code);
  const double low = a.y_signed ? -128.0 : 0.0, high = a.y_signed ? 127.0 : 255.0;
  const double rounded = rint(whole * factor) + load_byte(a.y_zero, 0, a.y_signed);
  // A NaN of the scales becomes the least value, as fmax and fmin have it.
  const auto value = finish(int(fmin(fmax(rounded, low), high)), a, at);
#endif
  i64 to = 0;
#pragma unroll
  for (int axis = 0; axis < 5; ++axis) to += at[axis] * a.y_stride[axis];
  ((OutputType*)a.y)[to] = store_value<OutputType>(value);
}
