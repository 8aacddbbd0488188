#include "plan/memory.h"

#include <algorithm>
#include <numeric>

namespace ridgeline {

constexpr int64_t kAlignment = 64;  // a cache line, and the widest vector

int64_t place_slots(std::vector<Slot>& slots) {
  std::vector<size_t> by_size(slots.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return slots[a].bytes > slots[b].bytes; });
  std::vector<size_t> placed;
  int64_t arena = 0;
  for (size_t s : by_size) {
    Slot& slot = slots[s];
    std::vector<std::pair<int64_t, int64_t>> taken;  // [begin, end) of those alive at the same time
    for (size_t o : placed) {
      const Slot& other = slots[o];
      if (other.first_step <= slot.last_step && slot.first_step <= other.last_step)
        taken.push_back({other.offset_bytes, other.offset_bytes + other.bytes});
    }
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    int64_t best = -1, best_gap = INT64_MAX;
    for (const auto& [begin, end] : taken) {
      if (begin - at >= slot.bytes && begin - at < best_gap) {
        best = at;
        best_gap = begin - at;
      }
      at = std::max(at, (end + kAlignment - 1) / kAlignment * kAlignment);
    }
    slot.offset_bytes = best >= 0 ? best : at;
    arena = std::max(arena, slot.offset_bytes + slot.bytes);
    placed.push_back(s);
  }
  return (arena + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace ridgeline
