// Tensor data in another file: inside the model's folder only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ridgeline/tensor.h"

namespace ridgeline {

class ExternalData {
 public:
  /// An empty folder refuses every file. `root`: a folder that links may lead into ("": they are not followed).
  explicit ExternalData(std::string folder, std::string root = "")
      : folder_(std::move(folder)), root_(std::move(root)) {}

  /// The tensor whose bytes start at `offset` of `location`; `length` -1: not stated. `item` is named in messages.
  /// Large ones are mapped, so that their pages come in when they are packed and go with the tensor.
  Tensor read(const std::string& item, const std::string& location, int64_t offset, int64_t length, DType dtype,
              Extents shape);

 private:
  struct File {
    int descriptor = -1;
    int64_t bytes = 0;
    ~File();
  };
  std::shared_ptr<File> open(const std::string& item, const std::string& location);
  int open_linked(const std::string& item, const std::string& location) const;

  std::string folder_, root_;
  std::map<std::string, std::shared_ptr<File>> files_;
};

}  // namespace ridgeline
