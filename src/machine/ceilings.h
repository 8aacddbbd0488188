// What the machine can do at most, as measured (src/tune/probes.h), never as typed in from a data sheet.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "machine/probe.h"
#include "ridgeline/dtype.h"

namespace ridgeline {

/// A ceiling for one thread and for all cores together.
struct Rate {
  double one = 0, all = 0;
  /// For `threads` of `cores`: grows with the threads until the shared part is full.
  double at(int threads, int cores) const;
  bool operator==(const Rate&) const = default;
};

enum class MemoryLevel : uint8_t { kL1, kL2, kL3, kDram };
inline constexpr int kMemoryLevels = 4;
std::string_view name(MemoryLevel level);  // l1 l2 l3 dram

/// Functions that cost more than a few FMAs: each has a throughput of its own.
enum class SpecialFunction : uint8_t { kExp, kErf, kTanh, kDivide, kSqrt };
inline constexpr int kSpecialFunctions = 5;
std::string_view name(SpecialFunction function);  // exp erf tanh divide sqrt

struct Ceilings {
  std::string fingerprint;  // of the machine that was measured
  int cores = 1;
  CacheSizes caches;  // l3: the part that was seen to be faster than DRAM (at most what the CPU shows)

  /// False if other processes kept the cores busy while it was measured: the bandwidths of L3 and DRAM may be too low.
  bool quiet = true;

  Rate f32, bf16, u8s8;                                // Gop/s, a multiply-add is two
  Rate f16, f8;                                        // GPUs alone, where these have products of their own; else 0
  std::array<Rate, kMemoryLevels> read_gb_s;           // 1e9 bytes/s
  std::array<Rate, kMemoryLevels> copy_gb_s;           // read plus written bytes
  std::array<Rate, kMemoryLevels> write_gb_s;          // nothing read
  std::array<Rate, kSpecialFunctions> special_per_ns;  // f32 elements/ns, operands in L1
  Rate launch_ns;                                      // to start and join an empty parallel region

  const Rate& compute_gop_s(DType dtype) const;
  double compute_ns(DType dtype, int64_t flops, int threads) const;
  double special_ns(SpecialFunction function, int64_t elements, int threads) const;

  /// The smallest level that holds the working set; private caches add up over the threads.
  MemoryLevel level_of(int64_t working_set_bytes, int threads) const;
  /// At `level`: copy bandwidth if writes exceed a tenth of the bytes, else read; where three quarters and more of the
  /// bytes are written, the faster of copy and write.
  double stream_ns(int64_t read_bytes, int64_t write_bytes, int threads, MemoryLevel level) const;
  /// At the level that holds read_bytes + write_bytes. A cold run (rotated buffers) is at kDram whatever its size.
  double stream_ns(int64_t read_bytes, int64_t write_bytes, int threads) const;

  std::string to_json() const;
  /// Nothing if the text is not JSON, lacks a field, or holds a rate that is not a positive number.
  static std::optional<Ceilings> from_json(std::string_view text);
};

/// One thread's while every core does the same work: its part of what all together get from L3 and DRAM.
Ceilings ceilings_when_shared(Ceilings ceilings);

/// Round numbers in plausible proportion, for choosing among kernels where nothing was measured yet, and for tests.
/// Their fingerprint is empty: no report may show them as roofs.
Ceilings unmeasured_ceilings(int cores = this_cpu().cores);

/// RIDGELINE_CACHE_DIR, else XDG_CACHE_HOME/ridgeline, else HOME/.cache/ridgeline; nothing if none is set.
std::optional<std::filesystem::path> cache_directory();

/// The file of this fingerprint in the cache directory.
std::optional<std::filesystem::path> ceilings_file(const std::string& fingerprint);
/// Nothing if there is no file, or it is broken or of another machine: measure again.
std::optional<Ceilings> load_ceilings(const std::string& fingerprint);
/// Replaces the file in one step, so that a reader sees the old or the new one. False if it could not be written.
bool save_ceilings(const Ceilings& ceilings);

}  // namespace ridgeline
