// What the command `machine` prints, and the head of every report.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "machine/ceilings.h"

namespace ridgeline {

/// {cpu{name,cores,isa[],caches_bytes{l1d,l2,l3}}, ceilings{compute_gop_s, read_gb_s, copy_gb_s, ...}, gpus[]}
nlohmann::ordered_json machine_json(const Cpu& cpu, const Ceilings& ceilings);

/// The same as a table, for one thread and all, with the intensity at which DRAM and arithmetic take equally long.
std::string machine_text(const Cpu& cpu, const Ceilings& ceilings);

/// The GPUs of this machine: {name,sm,multiprocessors,memory_bytes,l2_bytes,ceilings{..}}; ceilings only where they are
/// known. `measured`: of the device in use; null: of none.
nlohmann::ordered_json gpus_json(const Ceilings* measured);
std::string gpus_text(const Ceilings* measured);

/// One line: "Intel(R) Xeon(R) Processor, 2 cores, avx512 amx, 227 / 449 Gop/s f32, 17 / 32 GB/s DRAM read".
std::string machine_line(const Cpu& cpu, const Ceilings& ceilings);

}  // namespace ridgeline
