// The reference's inner loop, shared by matrix products and convolutions: naive, but not absurd.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ridgeline {

template <typename T>
struct RowOfA {
  const T* data;
  int64_t stride;
};

/// out[j] = sum over k, ascending, of a[k] * b[k * n + j]. Sixteen columns at a time stay in registers; the order of
/// the sums is that of the textbook's loop. (One column at a time reads B across its rows: ResNet-50 took a minute.)
template <typename T>
void multiply_row(RowOfA<T> a, const T* b, T* out, int64_t depth, int64_t n) {
  constexpr int kColumns = 16;
  int64_t first = 0;
  for (; first + kColumns <= n; first += kColumns) {
    T sum[kColumns] = {};
    for (int64_t k = 0; k < depth; ++k) {
      const T left = a.data[k * a.stride];
      const T* right = b + k * n + first;
      for (int j = 0; j < kColumns; ++j) sum[j] += left * right[j];
    }
    for (int j = 0; j < kColumns; ++j) out[first + j] = sum[j];
  }
  for (; first < n; ++first) {
    T sum = 0;
    for (int64_t k = 0; k < depth; ++k) sum += a.data[k * a.stride] * b[k * n + first];
    out[first] = sum;
  }
}

}  // namespace ridgeline
