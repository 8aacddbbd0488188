#include "plan/memory.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace ridgeline {

namespace {

constexpr int64_t kAlignment = 64;  // a cache line, and the widest vector
// More neighbours in time than this are not looked through for a gap: a plan of 20,000 buffers that all live at once
// took three seconds. The buffer goes on top of the arena instead.
constexpr size_t kMostCompared = 4096;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// The slots placed so far, asked by time. A slot that meets [first, last] either lives at `first`, which a tree over
/// the steps answers (each interval hangs at the few nodes that make it up), or begins in (first, last].
class Placed {
 public:
  explicit Placed(int steps) {
    while (leaves_ < steps) leaves_ *= 2;
    head_.assign(2 * size_t(leaves_), -1);
  }

  void add(int slot, int first, int last) {
    begins_.emplace(first, slot);
    int a = first + leaves_, b = last + leaves_ + 1;
    for (; a < b; a /= 2, b /= 2) {
      if (a % 2 == 1) hang(a++, slot);
      if (b % 2 == 1) hang(--b, slot);
    }
  }

  /// False where there are more than kMostCompared; `found` is then not complete.
  bool find(int first, int last, std::vector<int>& found) const {
    found.clear();
    for (int at = first + leaves_; at > 0; at /= 2) {
      for (int link = head_[size_t(at)]; link >= 0; link = links_[size_t(link)].next) {
        if (found.size() >= kMostCompared) return false;
        found.push_back(links_[size_t(link)].slot);
      }
    }
    for (auto it = begins_.lower_bound({first + 1, 0}); it != begins_.end() && it->first <= last; ++it) {
      if (found.size() >= kMostCompared) return false;
      found.push_back(it->second);
    }
    return true;
  }

 private:
  struct Link {
    int slot, next;
  };
  void hang(int at, int slot) {
    links_.push_back({slot, head_[size_t(at)]});
    head_[size_t(at)] = int(links_.size()) - 1;
  }

  int leaves_ = 1;
  std::vector<int> head_;  // of each tree node's list
  std::vector<Link> links_;
  std::set<std::pair<int, int>> begins_;
};

}  // namespace

int64_t place_slots(std::vector<Slot>& slots) {
  std::vector<size_t> by_size(slots.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return slots[a].bytes > slots[b].bytes; });
  int steps = 1;
  for (const Slot& slot : slots) steps = std::max(steps, slot.last_step + 1);
  Placed placed(steps);
  int64_t arena = 0;
  std::vector<int> alive;
  std::vector<std::pair<int64_t, int64_t>> taken;  // [begin, end) of those alive at the same time
  for (size_t s : by_size) {
    Slot& slot = slots[s];
    taken.clear();
    int64_t at = 0;
    if (!placed.find(slot.first_step, slot.last_step, alive)) {
      alive.clear();
      at = aligned(arena);
    }
    for (const int o : alive) {
      const Slot& other = slots[size_t(o)];
      taken.push_back({other.offset_bytes, other.offset_bytes + other.bytes});
    }
    std::sort(taken.begin(), taken.end());
    int64_t best = -1, best_gap = INT64_MAX;
    for (const auto& [begin, end] : taken) {
      if (begin - at >= slot.bytes && begin - at < best_gap) {
        best = at;
        best_gap = begin - at;
      }
      at = std::max(at, aligned(end));
    }
    slot.offset_bytes = best >= 0 ? best : at;
    arena = std::max(arena, slot.offset_bytes + slot.bytes);
    placed.add(int(s), slot.first_step, slot.last_step);
  }
  return aligned(arena);
}

}  // namespace ridgeline
