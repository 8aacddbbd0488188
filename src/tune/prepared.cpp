#include "tune/prepared.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "tune/bench_rivals.h"

namespace ridgeline {

namespace {
constexpr int64_t kLine = 64, kHugePage = int64_t(2) << 20;
}  // namespace

Problem with_weights(Problem problem, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (Operand& operand : problem.inputs) {
    if (!operand.present() || !operand.is_constant || operand.constant) continue;
    operand.constant = Tensor(operand.dtype, operand.shape());
    fill_operand(operand, operand.constant.data(), random);
  }
  return problem;
}

std::vector<std::shared_ptr<void>> allocate_sets(int64_t bytes, int sets) {
  std::vector<std::shared_ptr<void>> out;
  // A line between neighbours, so that those of a power of two do not share sets of the caches.
  const int64_t step = (bytes + kLine - 1) / kLine * kLine + kLine;
  if (bytes < kHugePage && step * sets >= kHugePage) {
    const std::shared_ptr<void> block = allocate(step * sets);
    for (int s = 0; s < sets; ++s) out.emplace_back(block, static_cast<char*>(block.get()) + s * step);
  } else {
    for (int s = 0; s < sets; ++s) out.push_back(allocate(bytes));
  }
  return out;
}

SharedBuffers::SharedBuffers(Problem problem, int sets, uint64_t seed)
    : problem_(std::move(problem)), sets_(sets), seed_(seed) {
  for (const Operand& operand : problem_.outputs) {
    const int64_t bytes = bytes_of(operand.dtype, operand.layout.span());
    outputs_.push_back(allocate_sets(bytes, sets_));
    for (const std::shared_ptr<void>& memory : outputs_.back()) std::memset(memory.get(), 0, size_t(bytes));
  }
}

const std::vector<std::shared_ptr<void>>& SharedBuffers::input(const KernelCall& call, int i) {
  const Operand& operand = problem_.inputs[size_t(i)];
  const Packing packing =
      operand.is_constant && call.kernel->packing ? call.kernel->packing(problem_, call.tile, i) : Packing{};
  auto& memory = inputs_[{i, packing.key}];
  if (!memory.empty() || !operand.present()) return memory;
  const bool packed = !packing.key.empty();
  const int64_t bytes = packed ? packing.bytes : bytes_of(operand.dtype, operand.layout.span());
  memory = allocate_sets(bytes, sets_);
  void* const first = memory[0].get();
  std::mt19937_64 random(seed_ + uint64_t(i));
  if (packed)
    call.kernel->pack(problem_, call.tile, i, operand.constant, first);
  else if (operand.is_constant)
    std::memcpy(first, operand.constant.data(), size_t(bytes));
  else
    fill_operand(operand, first, random);
  for (size_t s = 1; s < memory.size(); ++s) std::memcpy(memory[s].get(), first, size_t(bytes));
  return memory;
}

PreparedKernel::PreparedKernel(const Candidate& candidate, SharedBuffers& buffers)
    : call_(bind_kernel(buffers.problem(), candidate)), pool_(buffers.problem().threads) {
  const Problem& problem = buffers.problem();
  sets_.resize(size_t(buffers.sets()));
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const std::vector<std::shared_ptr<void>>& memory = buffers.input(call_, int(i));
    for (size_t s = 0; s < sets_.size(); ++s) sets_[s].inputs.push_back(memory.empty() ? nullptr : memory[s].get());
    memory_.insert(memory_.end(), memory.begin(), memory.end());
  }
  for (size_t o = 0; o < problem.outputs.size(); ++o) {
    const std::vector<std::shared_ptr<void>>& memory = buffers.output(int(o));
    for (size_t s = 0; s < sets_.size(); ++s) sets_[s].outputs.push_back(memory[s].get());
    memory_.insert(memory_.end(), memory.begin(), memory.end());
  }
  workspace_ = allocate(call_.workspace_bytes < kHugePage / 32 ? call_.workspace_bytes
                                                               : std::max(call_.workspace_bytes, kHugePage));
}

void PreparedKernel::run() {
  const Addresses& set = sets_[next_++ % sets_.size()];
  call_.kernel->run(call_, {set.inputs.data(), set.outputs.data(), workspace_.get()}, pool_);
}

}  // namespace ridgeline
