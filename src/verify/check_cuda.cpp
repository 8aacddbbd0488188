#include "verify/check_cuda.h"

#include <algorithm>
#include <functional>
#include <string>

#include "kernels/cuda/device.h"

namespace ridgeline {

namespace {

constexpr size_t kElementwise = 2, kOther = 5;  // specialisations of an operator and kernel

size_t hash_of(const cuda::Source& source) {
  std::string text = source.file + source.entry + source.program;
  for (const std::string& define : source.defines) text += '\n' + define;
  return std::hash<std::string>{}(text);
}

}  // namespace

bool CompilationBudget::allows(const Problem& problem, const Kernel& kernel, const Tile& tile) const {
  if (!kernel.source) return true;
  const auto known = compiled_.find({problem.op, &kernel});
  if (known == compiled_.end()) return true;
  const size_t most = problem.op->is_elementwise() ? kElementwise : kOther;
  return known->second.size() < most || known->second.count(hash_of(kernel.source(problem, tile))) > 0;
}

void CompilationBudget::spend(const Problem& problem, const Kernel& kernel, const Tile& tile) {
  if (kernel.source) compiled_[{problem.op, &kernel}].insert(hash_of(kernel.source(problem, tile)));
}

void run_mirrored(const KernelCall& call, const std::vector<MirroredBuffer>& buffers, const std::vector<int>& inputs,
                  const std::vector<int>& outputs, int workspace) {
  thread_local cuda::Queue queue;
  thread_local cuda::Memory memory;
  constexpr int64_t kAlignment = 1024;
  std::vector<int64_t> places;
  int64_t bytes = 0;
  for (const MirroredBuffer& b : buffers) {
    places.push_back(bytes);
    bytes += (b.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (memory.bytes() < bytes) memory = cuda::Memory(std::max<int64_t>(bytes, 64 << 20));
  char* const base = static_cast<char*>(memory.data());
  for (size_t b = 0; b < buffers.size(); ++b) queue.upload(base + places[b], buffers[b].host, buffers[b].bytes);
  const auto address = [&](int b) -> void* {
    return b < 0 ? nullptr : base + places[size_t(b)] + buffers[size_t(b)].offset;
  };
  std::vector<void*> in, out;
  for (int b : inputs) in.push_back(address(b));
  for (int b : outputs) out.push_back(address(b));
  call.kernel->launch(call, {in.data(), out.data(), address(workspace)}, queue.stream());
  for (size_t b = 0; b < buffers.size(); ++b) queue.download(buffers[b].host, base + places[b], buffers[b].bytes);
  queue.wait(std::string(call.kernel->name) + " on " + call.problem.text());
}

}  // namespace ridgeline
