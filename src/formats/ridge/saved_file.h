// The file of a saved plan (.ridge): a header, one record (CBOR), and the bytes of its tensors at multiples of 64,
// which are mapped and not read: their pages come in when kernels touch them. Native byte order; another machine's is
// refused by the header. docs/saved-plans.md has the layout.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ridgeline/tensor.h"

namespace ridgeline {

struct SavedFile {
  nlohmann::json record;
  std::vector<Tensor> tensors;  // mapped where they come from a file
};

/// Does the file begin as a saved plan does?
bool is_saved_file(const std::string& path);

/// Throws Error{kResource} if it cannot be written. The file takes its name when it is whole.
void write_saved_file(const std::string& path, const SavedFile& file);

/// Throws Error{kBadModel} for a file that is broken, Error{kUnsupported} for one of another format. Bounds of every
/// tensor are checked, the record by a checksum; bytes of tensors are taken as they are.
SavedFile read_saved_file(const std::string& path);

}  // namespace ridgeline
