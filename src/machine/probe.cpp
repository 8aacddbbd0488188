#include "machine/probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/thread_pool.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

#if defined(__x86_64__)
struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Leaf r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

bool bit(uint32_t word, int index) { return (word >> index) & 1; }

// Which registers the system saves (XCR0): without it an instruction faults although the CPU has it.
uint64_t saved_registers() {
  if (!bit(cpuid(1).ecx, 27)) return 0;  // OSXSAVE
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

std::string brand() {
  char text[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Leaf leaf = cpuid(0x80000002u + i);
    std::memcpy(text + 16 * i, &leaf, 16);
  }
  std::string name(text);
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(" \n") + 1);
  return name;
}

// Bits: Intel's instruction set reference, CPUID leaves 1, 7.0, 7.1 and 0x80000001.
std::vector<std::string> instruction_sets(IsaLevel level) {
  std::vector<std::string> isa;
  const auto add = [&](bool present, const char* name) {
    if (present) isa.emplace_back(name);
  };
  const Leaf basic = cpuid(1), extended = cpuid(7), extended1 = cpuid(7, 1);
  const uint64_t saved = saved_registers();
  add(bit(basic.edx, 26), "sse2");
  if (level == IsaLevel::kScalar) return isa;
  add(bit(basic.ecx, 20), "sse4_2");
  if ((saved & 0x6) != 0x6) return isa;  // ymm
  add(bit(basic.ecx, 28), "avx");
  add(bit(basic.ecx, 12), "fma");
  add(bit(basic.ecx, 29), "f16c");
  add(bit(extended.ebx, 5), "avx2");
  if (level == IsaLevel::kAvx2) return isa;
  add(level == IsaLevel::kNative && bit(extended1.eax, 4), "avx_vnni");
  if ((saved & 0xe6) != 0xe6 || !bit(extended.ebx, 16)) return isa;  // zmm and masks
  add(true, "avx512f");
  add(bit(extended.ebx, 17), "avx512dq");
  add(bit(extended.ebx, 30), "avx512bw");
  add(bit(extended.ebx, 31), "avx512vl");
  if (level == IsaLevel::kAvx512) return isa;
  add(bit(extended.ecx, 1), "avx512_vbmi");
  add(bit(extended.ecx, 11), "avx512_vnni");
  add(bit(extended1.eax, 5), "avx512_bf16");
  add(bit(extended.edx, 23), "avx512_fp16");
  if (level == IsaLevel::kVnni) return isa;
  if (!bit(extended.edx, 24) || (saved & 0x60000) != 0x60000 || !request_amx()) return isa;
  add(true, "amx_tile");
  add(bit(extended.edx, 22), "amx_bf16");
  add(bit(extended.edx, 25), "amx_int8");
  return isa;
}
#endif

// Linux: /sys/devices/system/cpu/cpu0/cache/index*/{level,type,size}.
CacheSizes caches_from_system() {
  CacheSizes sizes;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    int level = 0;
    std::string type, size;
    std::ifstream(folder + "level") >> level;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> size;
    if (size.empty() || type == "Instruction") continue;
    int64_t bytes = std::strtoll(size.c_str(), nullptr, 10);
    if (size.back() == 'K') bytes <<= 10;
    if (size.back() == 'M') bytes <<= 20;
    if (level == 1) sizes.l1d = bytes;
    if (level == 2) sizes.l2 = bytes;
    if (level == 3) sizes.l3 = bytes;
  }
  return sizes;
}

#if defined(__x86_64__)
// CPUID's deterministic cache parameters: leaf 4 (Intel), 0x8000001d (AMD). Containers may hide /sys.
CacheSizes caches_from_cpuid() {
  CacheSizes sizes;
  for (uint32_t leaf : {4u, 0x8000001du}) {
    for (uint32_t index = 0; index < 8 && sizes.l3 == 0; ++index) {
      const Leaf r = cpuid(leaf, index);
      const uint32_t type = r.eax & 31, level = (r.eax >> 5) & 7;
      if (type == 0) break;
      if (type == 2) continue;  // instructions
      const int64_t bytes =
          int64_t((r.ebx >> 22) + 1) * (((r.ebx >> 12) & 1023) + 1) * ((r.ebx & 4095) + 1) * (int64_t(r.ecx) + 1);
      (level == 1 ? sizes.l1d : level == 2 ? sizes.l2 : sizes.l3) = bytes;
    }
    if (sizes.l1d) break;
  }
  return sizes;
}
#endif

CacheSizes cache_sizes() {
  CacheSizes sizes = caches_from_system();
#if defined(__x86_64__)
  const CacheSizes other = caches_from_cpuid();
  if (!sizes.l1d) sizes.l1d = other.l1d;
  if (!sizes.l2) sizes.l2 = other.l2;
  if (!sizes.l3) sizes.l3 = other.l3;
#endif
  // A machine that tells nothing: the smallest sizes in use today, so that what is meant to fit fits.
  if (!sizes.l1d) sizes.l1d = 32 << 10;
  if (!sizes.l2) sizes.l2 = 256 << 10;
  if (!sizes.l3) sizes.l3 = 2 * sizes.l2;
  return sizes;
}

Cpu probe() {
  Cpu cpu;
  cpu.cores = available_cores();
  cpu.caches = cache_sizes();
#if defined(__x86_64__)
  cpu.name = brand();
  const uint32_t signature = cpuid(1).eax;
  cpu.stepping = int(signature & 15);
  cpu.family = int((signature >> 8) & 15);
  cpu.model = int((signature >> 4) & 15);
  if (cpu.family == 6 || cpu.family == 15) cpu.model |= int((signature >> 12) & 0xf0);
  if (cpu.family == 15) cpu.family += int((signature >> 20) & 255);
  cpu.isa = instruction_sets(isa_level());
#elif defined(__aarch64__)
  cpu.isa = {"neon"};
#endif
  if (cpu.name.empty()) cpu.name = "unknown CPU";
  return cpu;
}

}  // namespace

bool Cpu::has(std::string_view feature) const { return std::find(isa.begin(), isa.end(), feature) != isa.end(); }

std::string Cpu::fingerprint() const {
  return fmt::format(
      "ridgeline 0.1 ceilings 2 | {} | family {} model {} stepping {} | cores {} | l1d {} l2 {} l3 {} | {}", name,
      family, model, stepping, cores, caches.l1d, caches.l2, caches.l3, fmt::join(isa, " "));
}

IsaLevel isa_level() {
  const char* value = std::getenv("RIDGELINE_ISA");
  const std::string_view text = value ? value : "";
  if (text.empty() || text == "native" || text == "neon") return IsaLevel::kNative;
  if (text == "scalar") return IsaLevel::kScalar;
  if (text == "avx2") return IsaLevel::kAvx2;
  if (text == "avx512") return IsaLevel::kAvx512;
  if (text == "vnni") return IsaLevel::kVnni;
  fail(ErrorCode::kUsage, "RIDGELINE_ISA is '{}'; it may be scalar, avx2, avx512, vnni or native", text);
}

const Cpu& this_cpu() {
  static const Cpu the_cpu = probe();
  return the_cpu;
}

bool request_amx() {
#if defined(__x86_64__)
  // Linux, Documentation/arch/x86/xstate.rst: ARCH_REQ_XCOMP_PERM (0x1023) for feature 18, the tile data.
  static const bool granted = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return granted;
#else
  return false;
#endif
}

}  // namespace ridgeline
