#pragma once

#include <string>
#include <vector>

#include "cli/common.h"

namespace ridgeline::cli {

/// explain matmul --device cuda: the steps of a product on a GPU.
void teach_on_cuda(const Common& common, const std::vector<std::string>& keys, double seconds);

}  // namespace ridgeline::cli
