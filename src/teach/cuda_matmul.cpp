#include "teach/cuda_matmul.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/mma_source.h"
#include "ridgeline/error.h"
#include "teach/task.h"

namespace ridgeline::teach {
namespace {

// Tiles of the last step, which are the largest; the boxes of k, too.
constexpr int64_t kUnitM = 128, kUnitN = 256, kUnitK = 64;
constexpr int kStageBytes = (128 * (32 + 8) + 32 * (128 + 8)) * 2;       // of step 7
constexpr int kSpecialised = 4 * (128 * 64 + 256 * 64) * 2 + 2 * 4 * 8;  // of step 8: four stages, two barriers each
constexpr int64_t kPiece = 32;                                           // bytes, the least that memory moves

CudaStep step(const CudaProduct& p, int number, const std::string& file, const std::string& name,
              const std::string& idea, int rows, int columns, int threads) {
  CudaStep s;
  s.name = name;
  s.idea = idea;
  s.source.file = fmt::format("teach/matmul_{}_{}.cu", number, file);
  s.source.entry = "multiply";
  s.source.defines = {fmt::format("ELEMENT={}", p.dtype == DType::kBF16 ? "bf16" : "f16")};
  s.file = "src/kernels/cuda/" + s.source.file;
  s.tile_rows = rows, s.tile_columns = columns, s.threads = threads;
  // Tile by tile: a row of tiles walks all of B, a column of tiles all of A.
  s.bytes = 2 * (p.m * p.n * p.k / rows + p.m * p.n * p.k / columns + p.m * p.n);
  s.tensor_cores = number >= 6;
  if (s.tensor_cores) s.source.program = cuda::embedded("teach/instructions.cu");
  return s;
}

}  // namespace

std::vector<CudaStep> cuda_matmul_steps(const CudaProduct& p) {
  std::vector<CudaStep> list;
  const int64_t warp_steps = p.m * p.n / 32 * p.k;
  list.push_back(step(p, 1, "naive", "naive", "a thread an element, warps stand in columns", 32, 8, 256));
  list.back().rows_first = true;
  // A warp and a k: a piece of each of 32 rows of A, one of B. Its results lie in 32 rows, too.
  list.back().bytes = warp_steps * 33 * kPiece + p.m * p.n * kPiece;
  list.push_back(
      step(p, 2, "coalesced", "coalesced", "warps stand in rows: neighbours ask for neighbours", 8, 32, 256));
  // One piece of A for all, two of B.
  list.back().bytes = warp_steps * 3 * kPiece + 2 * p.m * p.n;
  list.push_back(
      step(p, 3, "tiles", "tiles", "32 x 32 of A and B in shared memory: fetched once for 32 uses", 32, 32, 1024));
  list.push_back(step(p, 4, "registers", "registers", "8 x 8 sums a thread: what is read there serves eight times", 128,
                      128, 256));
  list.push_back(
      step(p, 5, "vectors", "vectors", "loads of 16 bytes, from memory and from shared memory", 128, 128, 256));
  list.push_back(step(p, 6, "tensor_cores", "tensor-cores", "mma.sync: a warp multiplies 16 x 16 by 16 x 8 at once",
                      128, 128, 256));
  constexpr const char* kStages[] = {"copies that pass the registers by (cp.async), waited for at once",
                                     "the next tile is on its way while this one is multiplied",
                                     "two tiles are on their way", "three tiles are on their way"};
  for (int stages = 1; stages <= 4; ++stages) {
    list.push_back(step(p, 7, "pipelined", fmt::format("pipelined-{}", stages), kStages[stages - 1], 128, 128, 256));
    list.back().source.defines.push_back(fmt::format("STAGES={}", stages));
    list.back().source.shared_bytes = int64_t(stages) * kStageBytes;
  }
  list.push_back(step(p, 8, "specialised", "specialised",
                      "one thread fetches boxes (TMA), eight warps multiply from shared memory (wgmma)", 128, 256,
                      384));
  list.back().boxes = true;
  list.back().source.program += cuda::wgmma_function(p.dtype, 256, "wgmma", true, false);
  list.back().source.shared_bytes = kSpecialised;
  return list;
}

CudaTask cuda_matmul_task(const std::vector<std::string>& keys) {
  CudaTask task;
  CudaProduct& p = task.product;
  std::vector<std::string> numbers, wanted;
  for (const std::string& word : keys) {
    if (word.starts_with("dtype=")) {
      p.dtype = dtype_named(word.substr(6));
      if (p.dtype != DType::kBF16 && p.dtype != DType::kF16)
        fail(ErrorCode::kUsage, "explain matmul --device cuda: '{}': the steps multiply bf16 and f16", word);
    } else if (word.starts_with("steps=")) {
      for (size_t at = 6; at <= word.size();) {
        const size_t comma = std::min(word.find(',', at), word.size());
        wanted.push_back(word.substr(at, comma - at));
        at = comma + 1;
      }
    } else {
      numbers.push_back(word);
    }
  }
  const auto sizes = whole_numbers("matmul --device cuda", {{"m", p.m}, {"n", p.n}, {"k", p.k}}, numbers);
  p.m = sizes.at("m"), p.n = sizes.at("n"), p.k = sizes.at("k");
  if (p.m % kUnitM || p.n % kUnitN || p.k % kUnitK)
    fail(ErrorCode::kUsage,
         "explain matmul --device cuda: m={} n={} k={}: the steps are short because their tiles are whole: m has to be "
         "a "
         "multiple of {}, n of {}, k of {}",
         p.m, p.n, p.k, kUnitM, kUnitN, kUnitK);
  task.problem = fmt::format("matmul m={} n={} k={} dtype={}", p.m, p.n, p.k, name(p.dtype));
  const std::vector<CudaStep> all = cuda_matmul_steps(p);
  std::vector<std::string> names;
  for (const CudaStep& s : all) names.push_back(s.name);
  const auto take = [&](const CudaStep& s) {
    std::string why = s.boxes ? cuda::missing(cuda::Capability::kWgmma) : "";
    if (const int64_t over = cuda::shared_bytes_over(s.source.shared_bytes); why.empty() && over > 0)
      why = fmt::format("{} bytes of shared memory are {} more than a block has", s.source.shared_bytes, over);
    if (!why.empty())
      task.left_out.push_back(fmt::format("{}: {}", s.name, why));
    else
      task.steps.push_back(s);
  };
  if (wanted.empty()) std::for_each(all.begin(), all.end(), take);
  for (const std::string& one : wanted) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const CudaStep& s) { return s.name == one; });
    if (found == all.end())
      fail(ErrorCode::kUsage, "explain matmul --device cuda: there is no step '{}'; there are {}", one,
           fmt::join(names, ","));
    take(*found);
  }
  return task;
}

}  // namespace ridgeline::teach
