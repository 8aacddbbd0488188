#include "kernels/cuda/instructions.h"

#include <fmt/format.h>

#include "kernels/cuda/capabilities.h"

namespace ridgeline::cuda {
namespace {

int count(std::string_view text, std::string_view word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++found;
  return found;
}

}  // namespace

MatrixInstructions matrix_instructions_in(std::string_view ptx) {
  return {count(ptx, "mma.sync."), count(ptx, "wgmma.mma_async.")};
}

MatrixInstructions matrix_instructions(const Source& source) {
  return matrix_instructions_in(compile(source, capabilities().wgmma ? "compute_90a" : "compute_80").code);
}

std::string words(const MatrixInstructions& found) {
  if (found.all() == 0) return "none";
  const std::string mma = found.mma ? fmt::format("{} mma.sync", found.mma) : "";
  const std::string wgmma = found.wgmma ? fmt::format("{} wgmma", found.wgmma) : "";
  return mma.empty() || wgmma.empty() ? mma + wgmma : mma + ", " + wgmma;
}

}  // namespace ridgeline::cuda
