// Rivals: other libraries that `bench` times beside our kernels, in the same process, on the same operands and threads.
// They are opened at run time where they are installed: nothing is linked, no header of theirs is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/problem.h"

namespace ridgeline {

/// A problem prepared in another library, its operands in the layouts which that library asked for.
class RivalStep {
 public:
  virtual ~RivalStep() = default;
  virtual int64_t input_bytes(int input) const = 0;  // 0: absent, or not read (axes)
  virtual int64_t output_bytes() const = 0;
  /// From row-major into the library's layout, and back: packing and reorders, which are not timed.
  virtual void load(int input, const Tensor& from, void* to) = 0;
  virtual void unload(const void* from, Tensor& to) = 0;
  /// One more set of buffers to rotate through; they outlive the step. Absent inputs are null.
  virtual void bind(const std::vector<void*>& inputs, void* output) = 0;
  virtual void run(size_t set) = 0;
};

struct Rival {
  std::string name;                 // "onednn 2.6.3 brgemm:avx512_core"; "onednn" if there is no step
  std::string reason;               // why there is none
  std::unique_ptr<RivalStep> step;  // for the problem's number of threads
};

/// At least one entry a library, with a reason where it is not installed or cannot run the problem. They are looked for
/// in the folders of RIDGELINE_RIVALS, separated by ':'; an empty one, and no variable, is the system's own path.
std::vector<Rival> rivals_of(const Problem& problem);

}  // namespace ridgeline
