// NumPy's .npy files: format versions 1 to 3, little endian, row-major.
#pragma once

#include <string>

#include "ridgeline/tensor.h"

namespace ridgeline {

/// Throws Error{kBadInput} for a file that is not of this format, in another byte order or column-major with more than
/// one dimension, or whose size is not what its header says; Error{kUnsupported} for an element type that we do not
/// have.
Tensor read_npy(const std::string& path);
/// bf16 and f8, which NumPy does not have, are written as f32; i4 and u4 as i8 and u8.
void write_npy(const Tensor& tensor, const std::string& path);

}  // namespace ridgeline
