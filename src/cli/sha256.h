#pragma once

#include <cstddef>
#include <string>

namespace ridgeline::cli {

/// FIPS 180-4, lower-case hex.
std::string sha256(const void* data, size_t bytes);

}  // namespace ridgeline::cli
