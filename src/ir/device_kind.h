#pragma once

#include <cstdint>

namespace ridgeline {

/// Where work runs: what operands' addresses point to, and which kernels compete.
enum class DeviceKind : uint8_t { kCpu, kCuda, kNpu };

}  // namespace ridgeline
