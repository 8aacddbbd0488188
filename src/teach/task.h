// What both ladders share: keys, buffers, and the library's own kernel on them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "teach/ladder.h"

namespace ridgeline::teach {

/// "m=512" ... into whole numbers; throws Error{kUsage} naming the keys there are, for another key or a number below 1.
std::map<std::string, int64_t> whole_numbers(const std::string& what, std::map<std::string, int64_t> defaults,
                                             const std::vector<std::string>& keys);

/// Memory of 64-byte alignment, with seeded numbers in [-1, 1), or as it comes.
struct Floats {
  std::shared_ptr<void> memory;
  int64_t count = 0;
  float* data() const { return static_cast<float*>(memory.get()); }
};
Floats noise(int64_t count, uint64_t seed);
Floats room(int64_t count);

/// A way with `result` as its output, compared with `right`, the first way's.
Way way(std::string name, std::string idea, std::string file, int64_t bytes, std::function<void()> run,
        const Floats& result, const Floats& right);
/// The kernel that the dispatcher chooses, on the same memory and layouts; constants are packed ahead.
Way own_kernel(const Problem& problem, const std::vector<Floats>& inputs, int64_t bytes, const Floats& result,
               const Floats& right);

}  // namespace ridgeline::teach
