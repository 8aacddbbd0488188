// 1. Naive: a thread for each element of the result, its row times its column.
//
// The 32 threads of a warp run together, and here they stand in 32 rows. Each asks for one number of 2 bytes from a row
// of its own: 32 pieces of memory for one instruction, and the hardware moves 32 bytes for each. That is 1,024 bytes
// asked for to use 64. The first-level cache catches a part of it, if what it holds is not thrown out before its turn
// comes.
extern "C" __global__ void __launch_bounds__(256)
multiply(const ELEMENT* a, const ELEMENT* b, ELEMENT* c, int n, int k) {
  const int row = blockIdx.x * 32 + threadIdx.x % 32, column = blockIdx.y * 8 + threadIdx.x / 32;
  float sum = 0;
  for (int p = 0; p < k; ++p) sum += load_value(a[row * k + p]) * load_value(b[p * n + column]);
  c[row * n + column] = store_value<ELEMENT>(sum);
}
