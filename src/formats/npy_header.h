// The header of a .npy file alone.
#pragma once

#include <string>

#include "ridgeline/tensor.h"

namespace ridgeline {

struct NpyHeader {
  int version = 0;
  DType dtype = DType::kNone;
  Extents shape;
  int64_t data_offset_bytes = 0;
};

/// With the same checks as read_npy, the file's length among them.
NpyHeader read_npy_header(const std::string& path);

}  // namespace ridgeline
