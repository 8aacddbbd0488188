// Buffers of the sweep: between canaries, poisoned.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "ir/problem.h"
#include "ir/reference.h"
#include "verify/check_cuda.h"

namespace ridgeline {

inline constexpr int64_t kGuardBytes = 256;
inline constexpr uint8_t kPoison = 0xff;  // NaN in every float type, -1 in integers

// A buffer between canaries. Everything starts as poison: the canaries, gaps between strides, and outputs.
class Guarded {
 public:
  Guarded(const Operand& operand, int64_t skew) : dtype_(operand.dtype), layout_(operand.layout) {
    bytes_ = bytes_of(dtype_, layout_.span());
    skew_ = skew * bytes_of(dtype_, 1);
    memory_ = allocate(bytes_ + skew_ + 2 * kGuardBytes);
    std::memset(memory_.get(), kPoison, size_t(bytes_ + skew_ + 2 * kGuardBytes));
  }
  TensorView view() const { return {data(), dtype_, layout_}; }
  void* data() const { return static_cast<uint8_t*>(memory_.get()) + kGuardBytes + skew_; }
  MirroredBuffer mirrored() const { return {memory_.get(), size(), kGuardBytes + skew_}; }
  void keep() { kept_.assign(begin(), begin() + size()); }
  bool changed() const { return std::memcmp(kept_.data(), begin(), size_t(size())) != 0; }
  /// Poison outside the elements: the canaries, and the gaps of the layout.
  bool spoiled() const {
    std::vector<uint8_t> element(static_cast<size_t>(size()), 0);
    const int64_t bits = info(dtype_).bits, first = kGuardBytes + skew_;
    for (Index at(layout_.shape); at.more(); ++at) {
      int64_t offset = 0;
      for (size_t a = 0; a < layout_.shape.size(); ++a) offset += at[int(a)] * layout_.strides[a];
      const int64_t begin = offset * bits / 8, end = (offset * bits + bits + 7) / 8;  // 6 bits may lie in two bytes
      std::memset(element.data() + first + begin, 1, size_t(end - begin));
    }
    for (int64_t k = 0; k < size(); ++k) {
      if (!element[size_t(k)] && begin()[k] != kPoison) return true;
    }
    return false;
  }

 private:
  const uint8_t* begin() const { return static_cast<const uint8_t*>(memory_.get()); }
  int64_t size() const { return bytes_ + skew_ + 2 * kGuardBytes; }
  DType dtype_;
  Layout layout_;
  int64_t bytes_ = 0, skew_ = 0;
  std::shared_ptr<void> memory_;
  std::vector<uint8_t> kept_;
};

}  // namespace ridgeline
