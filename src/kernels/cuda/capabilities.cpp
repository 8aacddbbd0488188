#include "kernels/cuda/capabilities.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/device.h"

namespace ridgeline::cuda {
namespace {

constexpr int64_t kKiB = 1024;

// A block gets a KiB less than a multiprocessor has: the driver's own.
constexpr Capabilities row(int sm, int64_t shared_kib, int threads, int blocks) {
  Capabilities c;
  c.sm = sm;
  c.shared_bytes_per_sm = shared_kib * kKiB, c.shared_bytes_per_block = (shared_kib - 1) * kKiB;
  c.registers_per_sm = 65536, c.threads_per_sm = threads, c.blocks_per_sm = blocks;
  c.f8 = sm >= 89;
  c.wgmma = sm == 90;
  c.bulk_copies = c.clusters = c.dependent = sm >= 90;
  return c;
}

// A100; A10, RTX 30; L4, L40, RTX 40; H100, H200; B100, B200.
constexpr Capabilities kTable[] = {row(80, 164, 2048, 32), row(86, 100, 1536, 16), row(89, 100, 1536, 24),
                                   row(90, 228, 2048, 32), row(100, 228, 2048, 32)};

const char* words_of(Capability what) {
  switch (what) {
    case Capability::kWgmma:
      return "products of warpgroups (wgmma)";
    case Capability::kBulkCopies:
      return "bulk copies (TMA)";
    case Capability::kClusters:
      return "clusters of blocks";
    case Capability::kF8:
      return "8-bit floats in matrix instructions";
    case Capability::kDependent:
      return "dependent launch";
  }
  return "";
}

}  // namespace

std::span<const Capabilities> capability_table() { return kTable; }

Capabilities capabilities_of(int sm) {
  Capabilities found = kTable[0];
  for (const Capabilities& c : kTable)
    if (c.sm <= sm) found = c;
  if (found.sm != sm) found.wgmma = false;
  return found;
}

Capabilities capabilities() { return capabilities_of(target().sm); }

bool has(const Capabilities& row, Capability what) {
  switch (what) {
    case Capability::kWgmma:
      return row.wgmma;
    case Capability::kBulkCopies:
      return row.bulk_copies;
    case Capability::kClusters:
      return row.clusters;
    case Capability::kF8:
      return row.f8;
    case Capability::kDependent:
      return row.dependent;
  }
  return false;
}

std::string missing(Capability what) {
  if (has(capabilities(), what)) return "";
  std::string levels;
  for (const Capabilities& c : kTable)
    if (has(c, what)) levels += fmt::format("{}sm_{}", levels.empty() ? "" : ", ", c.sm);
  return fmt::format("needs {} (in {}); this is sm_{}", words_of(what), levels, target().sm);
}

int64_t shared_bytes_over(int64_t bytes) { return std::max<int64_t>(0, bytes - target().shared_bytes_per_block); }

}  // namespace ridgeline::cuda
