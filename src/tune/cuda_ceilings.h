// What the GPU in use can do at most, measured: bandwidths by our own streaming kernels, products by instructions that
// only multiply, launches by empty graph nodes.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/graph.h"
#include "machine/ceilings.h"
#include "tune/probes.h"

namespace ridgeline {

/// The ceilings of the open device, from the cache or measured (about 4 s) and cached. `threads` is always 1 for a GPU:
/// both fields of a Rate are the whole card's. l1 and l2 are of the second cache, l3 too.
Ceilings cuda_ceilings(bool measure = false, const ProbeProgress& progress = {});
/// Neutral figures of an H200, for choosing kernels where none was measured.
Ceilings unmeasured_cuda_ceilings();
/// Which card and driver the ceilings are of.
std::string cuda_fingerprint();

/// The roof that bounds a problem, measured beside it: windows of the length that a benchmark has, at its sizes.
class CudaProbe {
 public:
  enum class What : uint8_t { kRead, kCopy, kCompute };
  /// Memory: `bytes` read (or read and written) a window over at least 256 MB of it. Products: of this type.
  CudaProbe(const cuda::Queue& queue, What what, int64_t bytes, DType dtype);
  /// One window of about 2 ms; GB/s or Gop/s.
  double operator()();
  double best() const { return best_; }
  const std::string& way() const { return way_; }

 private:
  const cuda::Queue& queue_;
  What what_;
  double units_ = 0;  // bytes or operations a replay
  cuda::Memory from_, to_;
  std::unique_ptr<cuda::CapturedGraph> graph_;
  cuda::Stopwatch watch_;
  double best_ = 0;
  std::string way_;
};

}  // namespace ridgeline
