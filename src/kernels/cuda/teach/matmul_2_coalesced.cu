// 2. Coalesced: the threads of a warp stand beside each other in a row.
//
// One word changes: what counted rows counts columns. The 32 numbers of B that a warp asks for lie side by side, 64
// bytes in two pieces of 32, and all of them are used. The number of A is the same for the whole warp: it is read once
// and handed to all. Of 1,056 bytes a step, 96 are left.
extern "C" __global__ void __launch_bounds__(256)
multiply(const ELEMENT* a, const ELEMENT* b, ELEMENT* c, int n, int k) {
  const int row = blockIdx.y * 8 + threadIdx.x / 32, column = blockIdx.x * 32 + threadIdx.x % 32;
  float sum = 0;
  for (int p = 0; p < k; ++p) sum += load_value(a[row * k + p]) * load_value(b[p * n + column]);
  c[row * n + column] = store_value<ELEMENT>(sum);
}
