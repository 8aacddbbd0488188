// Context: what calls share: the number of threads, the machine's measured ceilings, and a bounded cache of planned
// operators. Nothing global stands behind it but the pool of threads and the log.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace ridgeline {

struct ContextOptions {
  int threads = 0;             // 0: the cores that this process may use (affinity mask and container quota)
  size_t planned_calls = 256;  // most operators kept planned for typed calls; the longest unused goes first
};

/// One thread at a time uses a Context; two contexts run in two threads. Copies share one state.
class Context {
 public:
  explicit Context(const ContextOptions& options = {});
  int threads() const;

  /// Measures the machine's peaks and bandwidths (about 10 s, all cores) unless this machine was measured before;
  /// keeps them in the user's cache folder. `again`: measures in any case. Operators and models planned later use them.
  void measure_machine(bool again = false);
  /// False: plans use neutral figures, in plausible proportion, since nothing was measured yet.
  bool measured() const;
  /// The ceilings as JSON: Gop/s, 1e9 bytes/s, ns; one thread (`one`) and all (`all`).
  std::string ceilings_json() const;

  /// Planned calls now in the cache, and how many calls found theirs there.
  size_t planned_calls() const;
  size_t cache_hits() const;

  struct State;  // the library's own
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

/// The context of typed calls that are given none: one for each thread, with default options.
Context& thread_context();

}  // namespace ridgeline
