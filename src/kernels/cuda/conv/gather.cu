// Convolutions as matrix products with gathered operands: any strides, groups, one to three axes, transposed or not.
// Rows are output pixels, columns a group's output channels, K = taps x a group's channels, channels innermost. Stands
// before the kernel's file.
//
// Given: AXES (2, 3: spatial), TRANSPOSED (0, 1), OPERANDS (of a strided epilogue, at least 1).

struct Arguments {
  u64 x, w, bias, y;
  i64 x_stride[5], y_stride[5];  // images, channels, three axes
  i64 bias_stride;
  int pixels, depth;  // depth: K rounded up as the weights are
  int group_in, group_out, tiles_m, tiles_n;
  int in[3], out[3], kernel[3], stride[3], dilation[3], begin[3];
  int vectors;     // x may be read by 16 bytes along its channels
  int pairs;       // y may be written by two columns
  u64 epilogue_address[OPERANDS];
  i64 epilogue_stride[OPERANDS][5];
};

// What an output pixel reads: its image and group, and where its window begins.
struct Pixel {
  i64 base;  // negative: there is no such pixel
  int at[3];
};
__device__ __forceinline__ void coordinates(const Arguments& a, int pixel, int& n, int (&at)[3]) {
  int rest = pixel;
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) {
    at[axis] = 0;
    if (axis < 3 - AXES) continue;
    const int above = rest / a.out[axis];
    at[axis] = rest - above * a.out[axis];
    rest = above;
  }
  n = rest;
}
__device__ __forceinline__ Pixel pixel_of(const Arguments& a, int pixel, int group) {
  Pixel p;
  int n, at[3];
  coordinates(a, pixel, n, at);
#pragma unroll
  for (int axis = 0; axis < 3; ++axis)
    p.at[axis] = TRANSPOSED ? at[axis] + a.begin[axis] : at[axis] * a.stride[axis] - a.begin[axis];
  p.base = pixel < a.pixels ? n * a.x_stride[0] + i64(group) * a.group_in * a.x_stride[1] : -1;
  return p;
}

// A position along K.
struct Tap {
  int c, k[3];
};
__device__ __forceinline__ Tap tap_of(const Arguments& a, int k) {
  Tap t;
  int rest = k / a.group_in;
  t.c = k - rest * a.group_in;
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) {
    t.k[axis] = 0;
    if (axis < 3 - AXES) continue;
    const int above = rest / a.kernel[axis];
    t.k[axis] = axis == 3 - AXES ? rest : rest - above * a.kernel[axis];  // the outermost shows the end
    rest = above;
  }
  return t;
}
__device__ __forceinline__ void advance(const Arguments& a, Tap& t, int step) {
  t.c += step;
  while (t.c >= a.group_in) {
    t.c -= a.group_in;
#pragma unroll
    for (int axis = 2; axis >= 3 - AXES; --axis) {
      if (++t.k[axis] < a.kernel[axis] || axis == 3 - AXES) break;
      t.k[axis] = 0;
    }
  }
}

// Where a pixel's tap lies in x; negative: nowhere, it counts as zero.
__device__ __forceinline__ i64 place(const Arguments& a, const Pixel& p, const Tap& t) {
  bool there = p.base >= 0 && t.k[3 - AXES] < a.kernel[3 - AXES];
  i64 at = p.base + t.c * a.x_stride[1];
#pragma unroll
  for (int axis = 3 - AXES; axis < 3; ++axis) {
#if TRANSPOSED
    const int far = p.at[axis] - t.k[axis] * a.dilation[axis], i = far / a.stride[axis];
    there = there && far >= 0 && i * a.stride[axis] == far && i < a.in[axis];
#else
    const int i = p.at[axis] + t.k[axis] * a.dilation[axis];
    there = there && i >= 0 && i < a.in[axis];
#endif
    at += i * a.x_stride[2 + axis];
  }
  return there ? at : -1;
}
