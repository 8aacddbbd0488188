#pragma once

#include <cstddef>
#include <string>

namespace ridgeline {

/// FIPS 180-4, lower-case hex.
std::string sha256(const void* data, size_t bytes);

/// Of a file's bytes, read in pieces; empty if it cannot be opened.
std::string sha256_file(const std::string& path);

}  // namespace ridgeline
