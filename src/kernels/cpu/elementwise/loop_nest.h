// Loop nests (core/loops.h) run by threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/loops.h"
#include "core/thread_pool.h"
#include "ridgeline/tensor.h"

namespace ridgeline::cpu {

/// pool.run with a body by reference: a std::function of a lambda with more than two captures would allocate.
template <typename Body>
void parallel(const ThreadPool& pool, int64_t count, int64_t grain, const Body& body) {
  pool.run(count, grain, std::cref(body));
}

struct LoopNest : Loops {
  /// Of the last axis (cols) and the last but one (rows, 1 if there is none).
  int64_t cols() const { return extents.back(); }
  int64_t rows() const { return axes() > 1 ? extents[size_t(axes() - 2)] : 1; }
  int64_t col_stride(int operand) const { return strides[size_t(operand)].back(); }
  int64_t row_stride(int operand) const { return axes() > 1 ? strides[size_t(operand)][size_t(axes() - 2)] : 0; }

  /// Calls body(offsets, rows, cols): tiles of the last two axes that cover the nest, `offsets` being where each
  /// operand's first element lies (in elements). Split over threads so that none gets less than `grain` elements; a
  /// nest of one axis at multiples of `multiple`, which keeps threads off each other's cache lines.
  template <typename Body>
  void run(const ThreadPool& pool, int64_t grain, const Body& body, int64_t multiple = 256) const {
    run_tiles(pool, grain, std::cref(body), multiple);
  }

 private:
  using TileBody = std::function<void(const int64_t* offsets, int64_t rows, int64_t cols)>;
  void run_tiles(const ThreadPool& pool, int64_t grain, const TileBody& body, int64_t multiple) const;
};

/// make_loops, to be run.
LoopNest make_loop_nest(const Extents& shape, std::span<const Layout* const> operands, int lead);

}  // namespace ridgeline::cpu
