// The sample problems of tests/cuda_kernels.txt, and the runtime compiler that tests without a toolkit use.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "ops/catalogue.h"

namespace ridgeline {

struct CudaSample {
  std::string kernel;
  std::string problem;  // "MatMul a=bf16[...] ..."
};

// "KERNEL PROBLEM", a line each; # begins a comment.
inline std::vector<CudaSample> cuda_samples() {
  std::ifstream file(RIDGELINE_SOURCE_DIR "/tests/cuda_kernels.txt");
  std::vector<CudaSample> list;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.find(' ');
    list.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  return list;
}

inline Problem cuda_problem(const std::string& text) {
  const size_t space = text.find(' ');
  const OpSchema* op = find_op_in_any_domain(text.substr(0, space));
  EXPECT_NE(op, nullptr) << text;
  Problem p = parse_problem(*op, text.substr(space + 1));
  p.device = DeviceKind::kCuda;
  return p;
}

inline const Kernel* cuda_kernel(const std::string& name) {
  for (const Kernel* kernel : all_kernels(DeviceKind::kCuda))
    if (kernel->name == name) return kernel;
  return nullptr;
}

// tools/nvrtc.sh puts one there; a toolkit's own will do as well.
inline void find_nvrtc() {
  const std::string fetched = RIDGELINE_SOURCE_DIR "/build/nvrtc/nvidia/cu13/lib/libnvrtc.so.13";
  if (!std::getenv("RIDGELINE_NVRTC") && std::filesystem::exists(fetched))
    setenv("RIDGELINE_NVRTC", fetched.c_str(), 0);
}

}  // namespace ridgeline
