#include "ridgeline/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace ridgeline {
namespace {

constexpr int64_t kAlignment = 64;  // a cache line, and the widest vector
constexpr int64_t kHugePage = int64_t(2) << 20;
// Above the memory of any machine, at most 2^49 bytes, and so far below 2^63 that bytes, bits, offsets and sums over a
// graph do not overflow. Every shape that a file or a user can name comes through element_count.
constexpr int64_t kMostElements = int64_t(1) << 46;

// Axes that matter (extent > 1), from the smallest stride up.
std::vector<int> axes_by_stride(const Layout& layout) {
  std::vector<int> axes;
  for (int a = 0; a < layout.rank(); ++a) {
    if (layout.shape[size_t(a)] > 1) axes.push_back(a);
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [&](int a, int b) { return layout.strides[size_t(a)] < layout.strides[size_t(b)]; });
  return axes;
}

bool matches_order(const Layout& layout, const Layout& wanted) {
  for (int a = 0; a < layout.rank(); ++a) {
    if (layout.shape[size_t(a)] > 1 && layout.strides[size_t(a)] != wanted.strides[size_t(a)]) return false;
  }
  return true;
}

}  // namespace

int64_t element_count(std::span<const int64_t> extents) {
  // The other extents of an empty tensor are bounded too: strides and part products are computed from them.
  int64_t count = 1;
  bool empty = false;
  for (int64_t extent : extents) {
    empty = empty || extent == 0;
    if (extent == 0) continue;
    if (extent < 0) fail(ErrorCode::kBadModel, "the shape {} has a negative extent", text(extents));
    if (count > kMostElements / extent)
      fail(ErrorCode::kBadModel, "the shape {} has too many elements: at most 2^46 are allowed", text(extents));
    count *= extent;
  }
  return empty ? 0 : count;
}

std::string text(std::span<const int64_t> extents) { return fmt::format("[{}]", fmt::join(extents, ",")); }

Layout::Layout(Extents shape_) : shape(std::move(shape_)), strides(shape.size()) {
  element_count(shape);
  int64_t stride = 1;
  for (size_t a = shape.size(); a-- > 0;) {
    strides[a] = stride;
    stride *= std::max<int64_t>(shape[a], 1);
  }
}

Layout Layout::channels_last(Extents shape) {
  const int rank = int(shape.size());
  if (rank < 3) return Layout(std::move(shape));
  std::vector<int> order = {0};
  for (int a = 2; a < rank; ++a) order.push_back(a);
  order.push_back(1);
  return ordered(std::move(shape), order);
}

Layout Layout::ordered(Extents shape, std::span<const int> order) {
  Layout layout(std::move(shape));
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    layout.strides[size_t(order[i])] = stride;
    stride *= std::max<int64_t>(layout.shape[size_t(order[i])], 1);
  }
  return layout;
}

bool Layout::is_row_major() const { return elements() == 0 || matches_order(*this, Layout(shape)); }
bool Layout::is_channels_last() const {
  return rank() >= 3 && (elements() == 0 || matches_order(*this, channels_last(shape)));
}

bool Layout::is_dense() const {
  if (elements() == 0) return true;
  int64_t expected = 1;
  for (int a : axes_by_stride(*this)) {
    if (strides[size_t(a)] != expected) return false;
    expected *= shape[size_t(a)];
  }
  return true;
}

int64_t Layout::span() const {
  if (elements() == 0) return 0;
  int64_t last = 0;
  for (size_t a = 0; a < shape.size(); ++a) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(shape[a] - 1, strides[a], &reach) || reach > kMostElements ||
        (last += reach) >= kMostElements) {
      fail(ErrorCode::kUsage, "the shape {} with strides {} reaches beyond 2^46 elements", text(shape), text(strides));
    }
  }
  return last + 1;
}

std::shared_ptr<void> allocate(int64_t bytes) {
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = nullptr;
  if (posix_memalign(&memory, size_t(alignment), size_t(rounded)) != 0) {
    fail(ErrorCode::kResource, "out of memory: {} bytes were asked for", bytes);
  }
  if (bytes >= kHugePage) madvise(memory, size_t(rounded), MADV_HUGEPAGE);  // advice only: failure costs speed alone
  return std::shared_ptr<void>(memory, std::free);
}

Tensor::Tensor(DType dtype, Extents shape) : dtype_(dtype), shape_(std::move(shape)), memory_(allocate(bytes())) {}

Tensor Tensor::zeros(DType dtype, Extents shape) {
  Tensor t(dtype, std::move(shape));
  std::memset(t.data(), 0, size_t(t.bytes()));
  return t;
}

Tensor Tensor::wrap(DType dtype, Extents shape, std::shared_ptr<void> memory) {
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = std::move(shape);
  t.memory_ = std::move(memory);
  return t;
}

Tensor Tensor::scalar_of(DType dtype, double value) {
  Tensor t(dtype, {});
  store_f64(dtype, t.data(), 0, value);
  return t;
}

std::vector<int64_t> Tensor::to_i64() const {
  std::vector<int64_t> values(static_cast<size_t>(elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = i64(int64_t(i));
  return values;
}

std::vector<double> Tensor::to_f64() const {
  std::vector<double> values(static_cast<size_t>(elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = f64(int64_t(i));
  return values;
}

Tensor Tensor::clone() const {
  Tensor copy(dtype_, shape_);
  if (bytes()) std::memcpy(copy.data(), data(), size_t(bytes()));
  return copy;
}

Tensor Tensor::reshaped(Extents shape) const { return wrap(dtype_, std::move(shape), memory_); }

void copy_elements(const TensorView& from, const TensorView& to) {
  const Extents& shape = from.layout.shape;
  const int64_t count = element_count(shape);
  const int64_t size = info(from.dtype).bits / 8;
  Extents index(shape.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t source = 0, target = 0;
    for (size_t a = 0; a < shape.size(); ++a) {
      source += index[a] * from.layout.strides[a];
      target += index[a] * to.layout.strides[a];
    }
    if (size == 0 && is_float(from.dtype)) {
      store_f64(to.dtype, to.data, target, load_f64(from.dtype, from.data, source));
    } else if (size == 0) {
      store_i64(to.dtype, to.data, target, load_i64(from.dtype, from.data, source));
    } else {
      std::memcpy(to.as<char>() + target * size, from.as<char>() + source * size, size_t(size));
    }
    for (size_t a = shape.size(); a-- > 0;) {
      if (++index[a] < shape[a]) break;
      index[a] = 0;
    }
  }
}

}  // namespace ridgeline
