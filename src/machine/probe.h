// The CPU at hand, as the container shows it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline {

/// RIDGELINE_ISA: the highest instruction set that may be used; a lower level than the machine's stands for a smaller
/// machine.
enum class IsaLevel { kScalar, kAvx2, kAvx512, kVnni, kNative };  // kVnni: AVX-512's dot products, no AMX (Zen 4)

struct CacheSizes {
  int64_t l1d = 0, l2 = 0;  // bytes a core has to itself
  int64_t l3 = 0;           // bytes shared by the cores; what a container shows may be more than it gets
};

struct Cpu {
  std::string name;
  int family = 0, model = 0, stepping = 0;
  int cores = 1;                 // that this process may use (affinity, container quota)
  std::vector<std::string> isa;  // usable: the CPU has it, the system saves its registers, RIDGELINE_ISA allows it
  CacheSizes caches;

  bool has(std::string_view feature) const;
  /// Everything that a measured ceiling depends on, in one line.
  std::string fingerprint() const;
};

/// Throws Error{kUsage} if RIDGELINE_ISA is none of scalar, avx2, avx512, vnni, native (neon on ARM).
IsaLevel isa_level();

/// Probed at the first call.
const Cpu& this_cpu();

/// Asks Linux for the AMX tile registers (arch_prctl), once per process. False: no AMX, or not granted.
/// this_cpu().has("amx_tile") is true only after it was granted, so whoever asks `has` need not call this.
bool request_amx();

}  // namespace ridgeline
