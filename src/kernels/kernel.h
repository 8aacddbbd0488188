// Kernel: one way to run an operator. Kernels compete: each says whether it can run a problem or why not, what it would
// cost, and runs it. `supports` is pure; after yes, `run` cannot fail, allocate, log or synchronise.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/thread_pool.h"
#include "ir/problem.h"
#include "machine/ceilings.h"

namespace ridgeline {

namespace cuda {
struct Source;        // kernels/cuda/compiler.h
struct LoadedKernel;  // kernels/cuda/device.h
struct StreamHandle;  // kernels/cuda/driver.h
}  // namespace cuda

struct Support {
  bool ok = true;
  std::string reason;
};
inline Support yes() { return {}; }
template <typename... Args>
Support no(fmt::format_string<Args...> format, Args&&... args) {
  return {false, fmt::format(format, std::forward<Args>(args)...)};
}

/// Blocking parameters; what each number means is the kernel's affair ("mc=112 kc=512").
struct Tile {
  std::array<int32_t, 6> size{};
  bool operator==(const Tile&) const = default;
};

/// What a kernel says to a tile that was asked for: does it fit, and which share of its work is padding?
struct TileCheck {
  std::string reason;            // why it cannot be used at all; empty: its numbers have a meaning
  int64_t bytes = 0, limit = 0;  // what it keeps near, and the room that there is; 0: nothing is kept
  std::string unit;              // what it is to be a multiple of: "14x32x1"
  double padding_share = 0;      // of the work that falls on padding
  int64_t over() const { return bytes > limit ? bytes - limit : 0; }
  bool fits() const { return reason.empty() && over() == 0; }
};

/// A kernel bound to a problem: everything its `run` reads.
struct KernelCall {
  const struct Kernel* kernel = nullptr;
  Problem problem;
  Tile tile;
  std::shared_ptr<const void> state;  // from `prepare`
  int64_t workspace_bytes = 0;
  template <typename T>
  const T& state_as() const {
    return *static_cast<const T*>(state.get());
  }
};

/// Addresses in the order of the problem's inputs and outputs. A constant for which the kernel has a packing arrives
/// packed.
struct Buffers {
  void* const* inputs = nullptr;  // nullptr for an absent one
  void* const* outputs = nullptr;
  void* workspace = nullptr;  // 64-byte aligned
};

/// How a kernel wants a constant input stored. Equal `key`s are one copy in the ConstantStore.
struct Packing {
  std::string key;    // "": as it is, row-major; else names the format with its parameters, "panels k=768 n=768 nr=32"
  int64_t bytes = 0;  // of the packed form
};

struct Kernel {
  std::string_view name;  // "cpu.rms_rows"; contains "reference" if it is one
  std::string_view op;    // the schema's name; "Elementwise" serves every elementwise operator and fused Program
  DeviceKind device = DeviceKind::kCpu;

  Support (*supports)(const Problem&) = nullptr;
  /// Candidate tiles, best guess first; null: one tile of zeros.
  std::vector<Tile> (*tiles)(const Problem&) = nullptr;
  /// Further tiles, which only a measurement can choose: the tuner runs them, no estimate prices them. Null: none.
  std::vector<Tile> (*sweep)(const Problem&) = nullptr;
  /// Of a tile that a user or a table asks for; null: it has to be one of `tiles`. Pure.
  TileCheck (*check_tile)(const Problem&, const Tile&) = nullptr;
  /// Predicted time_ns. Honest: losing by estimate is how a kernel leaves the field.
  double (*estimate)(const Problem&, const Tile&, const Ceilings&) = nullptr;
  int64_t (*workspace)(const Problem&, const Tile&) = nullptr;           // bytes; null: none
  Packing (*packing)(const Problem&, const Tile&, int input) = nullptr;  // null: all constants as they are
  void (*pack)(const Problem&, const Tile&, int input, const Tensor& source, void* packed) = nullptr;
  std::shared_ptr<const void> (*prepare)(const Problem&, const Tile&) = nullptr;  // run state, computed once
  void (*run)(const KernelCall&, const Buffers&, const ThreadPool&) = nullptr;
  /// CUDA kernels have these two in the place of `prepare` and `run`. `source`: what the compiler is to make for the
  /// problem, a pure function that needs no card; the loaded machine code is the call's state. `launch`: queues the
  /// work on the stream, with addresses of the device; it may be called while a graph is captured, so it neither
  /// allocates nor synchronises.
  cuda::Source (*source)(const Problem&, const Tile&) = nullptr;
  void (*launch)(const KernelCall&, const Buffers&, cuda::StreamHandle*) = nullptr;
  /// May output 0 share the buffer of this input (same bytes, each element read before it is written)? Null: never.
  bool (*in_place)(const Problem&, int input) = nullptr;
  /// FLOPs that the kernel's algorithm executes, where they are fewer than the direct algorithm's (Winograd); null: the
  /// same. Floors use the fewest among the kernels that can run the problem.
  int64_t (*executed_flops)(const Problem&, const Tile&) = nullptr;
  /// By how much the algorithm enlarges the rounding errors of a direct sum, at one element (flat index) of output 0,
  /// in the square-root model of docs/numerics.md; null: 1. `check` multiplies its tolerance by it.
  double (*amplification)(const Problem&, const Tile&, int64_t element) = nullptr;
  int version = 1;  // raised when its tiles or its speed change: what was tuned for another version is forgotten
};

/// Explicit lists, best first (src/kernels/registry.cpp); the reference of every schema stands last.
std::span<const Kernel* const> kernels_of(std::string_view op, DeviceKind device = DeviceKind::kCpu);
std::vector<const Kernel*> all_kernels(DeviceKind device = DeviceKind::kCpu);
/// From outside the library (extend.h): asked before the built-in ones. The kernel must outlive its use.
void register_kernel(const Kernel& kernel);

/// The kernel's own word on a tile, or that it has no such one.
TileCheck check_tile(const Kernel& kernel, const Problem& problem, const Tile& tile);

/// What a measurement found to be the fastest for a problem.
struct MeasuredChoice {
  std::string kernel;
  int version = 1;  // of the kernel when it was measured
  Tile tile;
  double time_ns = 0;
};

/// Measured choices, wherever they are kept (src/tune/known.h): the dispatcher asks one after the other before it
/// estimates.
class MeasuredChoices {
 public:
  virtual ~MeasuredChoices() = default;
  virtual std::string_view name() const = 0;  // Choice::chosen_by: "tuned" or "table"
  virtual std::optional<MeasuredChoice> find(const Problem& problem) const = 0;
};

struct Candidate {
  const Kernel* kernel = nullptr;
  Tile tile;
  double estimate_ns = 0;
  Support support;
};
struct Choice {
  std::vector<Candidate> candidates;  // all, in list order
  int chosen =
      -1;  // what was measured to be fastest, else the fastest by estimate; the reference only for want of others
  std::string chosen_by;  // "tuned", "table", "model" or "only"
  const Candidate& winner() const { return candidates[size_t(chosen)]; }
};
/// The dispatcher. On a GPU the kernels of the CPU stand behind its own for what none of these runs: the operands are
/// then copied to the host and back, which their estimates count (`on_host`). `forced`: a kernel's name that must be
/// taken (bench, tests); empty: best. `measured`: asked in this order; an answer counts if the kernel is there in that
/// version, supports the problem, and its tile fits.
Choice choose_kernel(const Problem& problem, const Ceilings& ceilings, std::string_view forced = {},
                     std::span<const MeasuredChoices* const> measured = {});

/// Does the kernel run on the host for a problem of a GPU?
inline bool on_host(const Problem& problem, const Kernel& kernel) {
  return problem.device != DeviceKind::kCpu && kernel.device == DeviceKind::kCpu;
}

/// cost_of, with executed_flops from the candidates.
Cost cost_with(const Problem& problem, const Choice& choice);

/// Packs constants, computes state: a call ready to run on buffers (used by bench, check and typed calls; plans do it
/// piecewise).
KernelCall bind_kernel(const Problem& problem, const Candidate& candidate);

/// A constant input as the call's kernel wants it: packed, or the source itself.
Tensor packed_constant(const KernelCall& call, int input, const Tensor& source);

/// The families' lists for CPUs (for GPUs: kernels/cuda/families.h); each is defined in
/// src/kernels/cpu/<family>/list.cpp.
namespace cpu {
std::span<const Kernel* const> elementwise_kernels();
std::span<const Kernel* const> reduce_kernels();
std::span<const Kernel* const> normalize_kernels();
std::span<const Kernel* const> matmul_kernels();
std::span<const Kernel* const> conv_kernels();
std::span<const Kernel* const> pool_kernels();
std::span<const Kernel* const> attention_kernels();
std::span<const Kernel* const> movement_kernels();
std::span<const Kernel* const> quantize_kernels();
}  // namespace cpu

}  // namespace ridgeline
