// A convolution of channels-last images as a matrix product, in numbers; stands behind bulk.cu. Rows are output pixels,
// K runs over the taps and in blocks of 64 over the channels of each.

struct Arguments {
  u64 x, y, staged, bias;
  int pixels, channels, out_channels;
  int tiles, tiles_n;
  int blocks_c;  // of 64 channels
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int in_h, in_w, out_h, out_w;
  int bulk_x, bulk_y, bulk_staged;  // aligned, so that bulk copies may move them
};

__device__ __forceinline__ u32 read_shared(u32 address) {
  u32 v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void write_shared(u32 address, u32 v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

// Rows of A by a warp's own loads: what bulk copies refuse, an image that is not aligned.
template <int ROWS>
__device__ __noinline__ void gather_rows(const Arguments& a, u32 to, int first, int c0, int kh, int kw) {
  const int lane = threadIdx.x % 32, c = c0 + 2 * lane;
  for (int r = 0; r < ROWS; ++r) {
    const int pixel = first + r, n = pixel / (a.out_h * a.out_w), rest = pixel % (a.out_h * a.out_w);
    const int h = rest / a.out_w * a.stride_h - a.pad_h + kh * a.dilation_h;
    const int w = rest % a.out_w * a.stride_w - a.pad_w + kw * a.dilation_w;
    u32 pair = 0;
    if (pixel < a.pixels && h >= 0 && h < a.in_h && w >= 0 && w < a.in_w && c < a.channels) {
      const u16* from = (const u16*)a.x + ((i64(n) * a.in_h + h) * a.in_w + w) * a.channels + c;
      pair = from[0] | u32(from[1]) << 16;  // channels are a multiple of 8
    }
    write_shared(to + r * 128 + (((lane >> 2) ^ (r & 7)) << 4) + (lane & 3) * 4, pair);
  }
  publish_shared();
}
