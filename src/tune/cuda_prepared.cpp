#include "tune/cuda_prepared.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "tune/bench_rivals.h"

namespace ridgeline {
namespace {

constexpr int64_t kAlignment = 1024;
// Random content is made for so many bytes and repeated on the device: a gigabyte of normal numbers takes the host 20
// s.
constexpr int64_t kMade = int64_t(8) << 20;

}  // namespace

CudaBuffers::CudaBuffers(Problem problem, int sets, uint64_t seed, const cuda::Queue& queue)
    : problem_(std::move(problem)), sets_(sets), seed_(seed), queue_(queue) {
  for (const Operand& o : problem_.outputs) {
    outputs_.push_back(make(bytes_of(o.dtype, o.layout.span())));
    queue_.fill(outputs_.back().memory.data(), 0, outputs_.back().memory.bytes());
  }
}

CudaBuffers::Block CudaBuffers::make(int64_t bytes) const {
  Block block;
  block.step = (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  block.memory = cuda::Memory(block.step * sets_);
  return block;
}

void* CudaBuffers::output(int o, int set) const {
  return static_cast<char*>(outputs_[size_t(o)].memory.data()) + outputs_[size_t(o)].step * set;
}

void* CudaBuffers::input(const KernelCall& call, int i, int set) {
  const Operand& operand = problem_.inputs[size_t(i)];
  if (!operand.present()) return nullptr;
  const Packing packing =
      operand.is_constant && call.kernel->packing ? call.kernel->packing(problem_, call.tile, i) : Packing{};
  Block& block = inputs_[{i, packing.key}];
  if (block.step == 0) {
    const bool packed = !packing.key.empty();
    const int64_t bytes = packed ? packing.bytes : bytes_of(operand.dtype, operand.layout.span());
    block = make(bytes);
    char* const first = static_cast<char*>(block.memory.data());
    int64_t made = bytes;
    std::vector<char> host;
    if (packed) {
      host.resize(size_t(bytes));
      call.kernel->pack(problem_, call.tile, i, operand.constant, host.data());
    } else if (operand.is_constant) {
      host.resize(size_t(bytes));
      std::memcpy(host.data(), operand.constant.data(), size_t(bytes));
    } else {
      Operand part = operand;
      if (bytes > kMade) {
        made = kMade;
        part.layout = Layout({made * 8 / info(operand.dtype).bits});
      }
      host.resize(size_t(made));
      std::mt19937_64 random(seed_ + uint64_t(i));
      fill_operand(part, host.data(), random);
    }
    queue_.upload(first, host.data(), made);
    for (int64_t at = made; at < bytes; at += made) queue_.copy(first + at, first, std::min(made, bytes - at));
    for (int s = 1; s < sets_; ++s) queue_.copy(first + s * block.step, first, bytes);
    queue_.wait("filling buffers");
  }
  return static_cast<char*>(block.memory.data()) + block.step * set;
}

CudaPrepared::CudaPrepared(const Candidate& candidate, CudaBuffers& buffers)
    : call_(bind_kernel(buffers.problem(), candidate)) {
  const Problem& p = buffers.problem();
  for (int s = 0; s < buffers.sets(); ++s) {
    Addresses a;
    for (size_t i = 0; i < p.inputs.size(); ++i) a.inputs.push_back(buffers.input(call_, int(i), s));
    for (size_t o = 0; o < p.outputs.size(); ++o) a.outputs.push_back(buffers.output(int(o), s));
    sets_.push_back(std::move(a));
  }
  if (call_.workspace_bytes > 0) {
    workspace_ = cuda::Memory(call_.workspace_bytes);
    const cuda::Queue queue;
    queue.fill(workspace_.data(), 0, call_.workspace_bytes);
    queue.wait("filling the workspace");
  }
}

void CudaPrepared::launch(cuda::Stream stream, int call) {
  const Addresses& set = sets_[size_t(call) % sets_.size()];
  call_.kernel->launch(call_, {set.inputs.data(), set.outputs.data(), workspace_.data()}, stream);
}

}  // namespace ridgeline
