// Layout: where the elements of a tensor lie. Tensor: owns a buffer. TensorView: points into one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/dtype.h"
#include "ridgeline/error.h"

namespace ridgeline {

using Extents = std::vector<int64_t>;

/// Product of the extents; throws Error{kBadModel} if it exceeds 2^62.
int64_t element_count(std::span<const int64_t> extents);
std::string text(std::span<const int64_t> extents);  // "[1,3,224,224]"

/// Shape and strides, both in elements. Extents are >= 0; strides may be 0 (broadcast) or any order (a transpose,
/// channels last). A channels-last tensor keeps its logical shape [N,C,H,W]; only its strides differ.
struct Layout {
  Extents shape;
  Extents strides;

  Layout() = default;
  /// Row-major, dense.
  explicit Layout(Extents shape_);
  Layout(Extents shape_, Extents strides_) : shape(std::move(shape_)), strides(std::move(strides_)) {}
  /// Dense, axis 1 innermost: [N,C,spatial...] stored as N, spatial..., C. Rank < 3 gives row-major.
  static Layout channels_last(Extents shape);
  /// Dense, stored in the order of `order` (outermost first).
  static Layout ordered(Extents shape, std::span<const int> order);

  int rank() const { return int(shape.size()); }
  int64_t elements() const { return element_count(shape); }
  /// Extents of 1 have no say: row-major and dense.
  bool is_row_major() const;
  bool is_channels_last() const;
  /// Some order of axes makes it dense (every element of the span used once).
  bool is_dense() const;
  /// Elements from the first to one past the last (0 for an empty tensor). Strides must be >= 0.
  int64_t span() const;
  bool operator==(const Layout&) const = default;
};

/// Pointer + dtype + layout; owns nothing. Kernels see views alone.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kNone;
  Layout layout;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  const Extents& shape() const { return layout.shape; }
};

/// Owns (shares) a 64-byte aligned, row-major buffer. Copying a Tensor shares the buffer; `clone` copies it.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Extents shape);  // uninitialised
  static Tensor zeros(DType dtype, Extents shape);
  /// Shares memory that somebody else keeps alive (a mapped file, a caller's buffer).
  static Tensor wrap(DType dtype, Extents shape, std::shared_ptr<void> memory);
  template <typename T>
  static Tensor of(Extents shape, std::initializer_list<T> values) {
    return from(std::move(shape), std::vector<T>(values));
  }
  template <typename T>
  static Tensor from(Extents shape, const std::vector<T>& values) {
    Tensor t(dtype_of<T>(), std::move(shape));
    for (int64_t i = 0; i < t.elements() && i < int64_t(values.size()); ++i) t.template as<T>()[i] = values[size_t(i)];
    return t;
  }
  template <typename T>
  static Tensor scalar(T value) {
    return from<T>({}, std::vector<T>{value});
  }
  static Tensor scalar_of(DType dtype, double value);

  explicit operator bool() const { return dtype_ != DType::kNone; }
  DType dtype() const { return dtype_; }
  const Extents& shape() const { return shape_; }
  int rank() const { return int(shape_.size()); }
  int64_t elements() const { return element_count(shape_); }
  int64_t bytes() const { return bytes_of(dtype_, elements()); }
  void* data() const { return memory_.get(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }
  double f64(int64_t i) const { return load_f64(dtype_, data(), i); }
  int64_t i64(int64_t i) const { return load_i64(dtype_, data(), i); }
  std::vector<int64_t> to_i64() const;
  std::vector<double> to_f64() const;
  TensorView view() const { return {data(), dtype_, Layout(shape_)}; }
  Tensor clone() const;
  Tensor reshaped(Extents shape) const;  // shares the buffer
  const std::shared_ptr<void>& memory() const { return memory_; }

 private:
  DType dtype_ = DType::kNone;
  Extents shape_;
  std::shared_ptr<void> memory_;
};

/// 64-byte aligned (2 MiB for large buffers, so that huge pages can back them); throws Error{kResource} on failure.
std::shared_ptr<void> allocate(int64_t bytes);

/// Copies element by element between any two layouts of equal shape and dtype. Slow: not for kernels.
void copy_elements(const TensorView& from, const TensorView& to);

}  // namespace ridgeline
