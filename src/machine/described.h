// Machines that are not here: JSON files that describe units, on-chip buffers, bandwidths and the cost of a launch
// (docs/machines.md has the schema). What is at hand is measured instead (ceilings.h).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/dtype.h"

namespace ridgeline {

/// What a unit does with one type, all cores together.
struct DescribedRate {
  DType dtype = DType::kNone, accumulator = DType::kNone;
  double gop_s = 0;                   // a multiply-add is two
  std::array<int64_t, 3> shape = {};  // m, n, k of its smallest product; a vector unit: 1, lanes, 1
};

struct DescribedUnit {
  std::string name;
  bool matrix = false;  // else vector
  std::vector<DescribedRate> rates;
  /// nullptr: not in this type. u8 counts as i8, u4 as i4.
  const DescribedRate* rate(DType dtype) const;
};

struct DescribedBuffer {
  std::string name;
  int64_t bytes = 0;  // of one core
  bool inputs = false, accumulators = false;
};

struct DescribedLevel {
  std::string name;
  int64_t bytes = 0;  // 0: the last one, which holds everything
  double gb_s = 0;    // all cores together
};

struct DescribedMachine {
  std::string path, name, kind;  // kind: gpu, cpu, npu
  int64_t cores = 1;
  std::vector<DescribedUnit> units;
  std::vector<DescribedBuffer> buffers;
  std::vector<DescribedLevel> levels;  // from near to far
  double launch_us = 0;

  const DescribedUnit* unit(bool matrix) const;  // nullptr: none
  const DescribedLevel& memory() const { return levels.back(); }
  /// The nearest level that holds so many bytes.
  const DescribedLevel& level_of(int64_t bytes) const;
};

/// Throws Error{kUsage} that names `path`, the place in the document and what was expected there.
DescribedMachine parse_machine(std::string_view text, const std::string& path);
/// A file, or the name of one in the folder of machines. Throws Error{kUsage} that lists the names.
DescribedMachine find_machine(const std::string& name_or_file);
/// share/machines beside a build, share/ridgeline/machines of an installed copy; nothing if neither is there.
std::filesystem::path machines_folder();

}  // namespace ridgeline
