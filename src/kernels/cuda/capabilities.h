// What cards can do by their level (compute capability), where it is not the same for all: what gates kernels, fusions
// and tiles. CUDA C++ Programming Guide, "Compute Capabilities", and the PTX ISA's target notes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ridgeline::cuda {

struct Capabilities {
  int sm = 0;
  bool wgmma = false;        // products of warpgroups: of sm_90a alone, no later level has them
  bool bulk_copies = false;  // cp.async.bulk and its tensor form (TMA), mbarriers that count bytes
  bool clusters = false;     // blocks that see each other's shared memory
  bool f8 = false;           // matrix instructions for e4m3 and e5m2
  bool dependent = false;    // programmatic dependent launch, griddepcontrol
  int64_t shared_bytes_per_block = 0, shared_bytes_per_sm = 0;
  int registers_per_sm = 0, threads_per_sm = 0, blocks_per_sm = 0;
};

enum class Capability : uint8_t { kWgmma, kBulkCopies, kClusters, kF8, kDependent };

/// Every level in the table, oldest first.
std::span<const Capabilities> capability_table();
/// The level's row. A level that has none gets the nearest below it, without what is one level's alone (wgmma).
Capabilities capabilities_of(int sm);
/// Of the target (kernels/cuda/device.h), with RIDGELINE_SM.
Capabilities capabilities();

bool has(const Capabilities& row, Capability what);
/// Why a kernel that needs `what` cannot run on the target, for `supports`; empty: it can.
std::string missing(Capability what);

/// Does a block with this much shared memory fit on the target, and by how many bytes does it not (0: it fits)?
int64_t shared_bytes_over(int64_t bytes);

}  // namespace ridgeline::cuda
