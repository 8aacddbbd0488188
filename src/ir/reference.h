// What a schema's `reference` sees: plain contiguous arrays in double (floats) or int64 (integers, bool). Naive by
// rule.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ir/attributes.h"
#include "ir/op_schema.h"
#include "ridgeline/tensor.h"

namespace ridgeline {

/// One operand, row-major. Floats are in `f` (exact in double), integers and bool in `i` (u64 keeps its bits).
struct RefArray {
  DType dtype = DType::kNone;
  Extents shape;
  std::vector<double> f;
  std::vector<int64_t> i;

  bool is_float() const { return ridgeline::is_float(dtype); }
  int64_t elements() const { return element_count(shape); }
  int rank() const { return int(shape.size()); }
  int64_t dim(int axis) const { return shape[size_t(axis < 0 ? axis + rank() : axis)]; }
  double number(int64_t k) const { return is_float() ? f[size_t(k)] : double(i[size_t(k)]); }
  int64_t integer(int64_t k) const { return is_float() ? int64_t(f[size_t(k)]) : i[size_t(k)]; }
  void set(int64_t k, double value) { is_float() ? void(f[size_t(k)] = value) : void(i[size_t(k)] = int64_t(value)); }
  /// dst[k] = src[j] whatever the type: for movement operators.
  void copy(int64_t k, const RefArray& source, int64_t j) {
    if (is_float())
      f[size_t(k)] = source.f[size_t(j)];
    else
      i[size_t(k)] = source.i[size_t(j)];
  }
};

class Reference {
 public:
  const OpSchema* op = nullptr;
  const Attributes* attributes = nullptr;
  std::vector<RefArray> in;   // absent optional inputs have dtype kNone
  std::vector<RefArray> out;  // shaped and typed by infer, zero-filled; absent outputs have dtype kNone
  int threads = 1;            // a reference may split whole outputs over threads (parallel_for below), nothing else

  bool has(int input) const { return input < int(in.size()) && in[size_t(input)].dtype != DType::kNone; }
  bool wants(int output) const { return output < int(out.size()) && out[size_t(output)].dtype != DType::kNone; }
  int64_t integer(std::string_view name) const;  // with the schema's default
  double number(std::string_view name) const;
  std::string string(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> fallback = {}) const;
  bool flag(std::string_view name) const { return integer(name) != 0; }
  void parallel_for(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body) const;
};

/// Row-major strides of a shape, and a counter over all its indices: `for (Index at(shape); at.more(); ++at) use(at[0],
/// at.flat())`.
std::vector<int64_t> row_major_strides(const Extents& shape);
class Index {
 public:
  explicit Index(Extents shape) : shape_(std::move(shape)), at_(shape_.size(), 0), total_(element_count(shape_)) {}
  bool more() const { return flat_ < total_; }
  Index& operator++() {
    ++flat_;
    for (size_t a = shape_.size(); a-- > 0;) {
      if (++at_[a] < shape_[a]) break;
      at_[a] = 0;
    }
    return *this;
  }
  int64_t operator[](int axis) const { return at_[size_t(axis)]; }
  const Extents& at() const { return at_; }
  int64_t flat() const { return flat_; }

 private:
  Extents shape_, at_;
  int64_t total_, flat_ = 0;
};
/// Flat index into a row-major tensor of `shape` at the trailing-aligned, broadcast position of `at`.
int64_t broadcast_index(const Extents& shape, const Extents& at);

/// Runs an operator's reference, expression (exact evaluator) or first decomposition on tensors. Outputs are typed by
/// infer.
std::vector<Tensor> run_reference(const OpSchema& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                                  int outputs, int threads = 1);
/// The same before the results are rounded to their types: what an epilogue reads. (A decomposition rounds at each of
/// its nodes.)
std::vector<RefArray> run_reference_exact(const OpSchema& op, const Attributes& attributes,
                                          const std::vector<Tensor>& inputs, int outputs, int threads = 1);

}  // namespace ridgeline
