// Every kernel source for GPUs compiles for sm_80 and sm_90a, without a card: NVRTC alone is needed (PyPI's
// nvidia-cuda-nvrtc, which tools/packages.sh installs). Registers and spills are held against cuda_resources.txt.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "cuda_samples.h"
#include "kernels/cuda/compiler.h"
#include "kernels/cuda/device.h"
#include "tune/cuda_ceilings.h"

namespace ridgeline {
namespace {

// Compiled registers and spills of a row: "KERNEL ARCHITECTURE ENTRY registers spills" recorded in cuda_resources.txt.
std::map<std::string, std::pair<int, int64_t>> recorded() {
  std::ifstream file(RIDGELINE_SOURCE_DIR "/tests/cuda_resources.txt");
  std::map<std::string, std::pair<int, int64_t>> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string number, architecture;
    int registers = 0;
    int64_t spills = 0;
    words >> number >> architecture >> registers >> spills;
    rows[number + " " + architecture] = {registers, spills};
  }
  return rows;
}

TEST(nvrtc, CompilesEveryKernelAndHoldsItsResources) {
  find_nvrtc();
  ASSERT_EQ(cuda::compiler_trouble(), "");
  const auto known = recorded();
  std::string table = "# sample architecture registers spilled-bytes; written by RIDGELINE_RECORD=FILE\n";
  std::map<std::string, int> reached;
  std::map<std::string, int> numbers;
  for (const CudaSample& sample : cuda_samples()) {
    const Kernel* kernel = cuda_kernel(sample.kernel);
    ASSERT_NE(kernel, nullptr) << sample.kernel;
    const Problem p = cuda_problem(sample.problem);
    const Support support = kernel->supports(p);
    ASSERT_TRUE(support.ok) << sample.kernel << " " << sample.problem << ": " << support.reason;
    ++reached[sample.kernel];
    const std::vector<Tile> tiles = kernel->tiles ? kernel->tiles(p) : std::vector<Tile>{Tile{}};
    Tile best = tiles.at(0);
    double least = kernel->estimate(p, best, unmeasured_cuda_ceilings());
    for (const Tile& tile : tiles) {
      const double estimate = kernel->estimate(p, tile, unmeasured_cuda_ceilings());
      if (estimate < least) best = tile, least = estimate;
    }
    const cuda::Source source = kernel->source(p, best);
    const bool hopper = source.program.find("wgmma") != std::string::npos ||
                        source.program.find("cp.async.bulk") != std::string::npos ||
                        cuda::embedded(source.file).find("wgmma") != std::string::npos ||
                        cuda::embedded(source.file).find("cp.async.bulk") != std::string::npos;
    for (const char* architecture : {"sm_80", "sm_90a"}) {
      if (hopper && std::string(architecture) == "sm_80") continue;
      const cuda::Compiled compiled = cuda::compile(source, architecture);
      bool found = false;
      for (const cuda::KernelResources& r : compiled.kernels) {
        if (r.kernel != source.entry) continue;
        found = true;
        const std::string name = fmt::format("{}#{}", sample.kernel, numbers[sample.kernel + architecture]++);
        const std::string row = fmt::format("{} {}", name, architecture);
        table += fmt::format("{} {} {}\n", row, r.registers, r.spill_bytes);
        EXPECT_LE(r.registers, 255) << row;
        if (const auto it = known.find(row); it != known.end()) {
          EXPECT_LE(r.spill_bytes, it->second.second) << row << " " << sample.problem;
          // Compilers differ by a few registers from version to version; more loses occupancy.
          EXPECT_LE(r.registers, it->second.first + 16) << row << " " << sample.problem;
        } else {
          ADD_FAILURE() << "not recorded: " << row << " " << r.registers << " registers, " << r.spill_bytes
                        << " bytes spilled: " << sample.problem;
        }
      }
      EXPECT_TRUE(found) << "the compiler reports no entry " << source.entry << " of " << sample.kernel;
    }
  }
  for (const Kernel* kernel : all_kernels(DeviceKind::kCuda))
    EXPECT_GT(reached[std::string(kernel->name)], 0) << kernel->name << " has no line in tests/cuda_kernels.txt";
  if (const char* file = std::getenv("RIDGELINE_RECORD")) std::ofstream(file) << table;
}

}  // namespace
}  // namespace ridgeline
