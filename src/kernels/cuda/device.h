// The GPU in use: context, memory, loaded kernels, launches. One device a process; what it is decides which kernels
// compete and what they are compiled for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/compiler.h"
#include "kernels/cuda/driver.h"

namespace ridgeline::cuda {

/// Opens a device for this process ("--device cuda:1"). Throws Error{kResource} that says what is missing.
void use_device(int ordinal);
/// Makes the open device's context current in this thread; opens cuda:0 if none is open.
void enter_device();

/// What kernels are chosen and compiled for: the open device; before one is open, an H200 by its data sheet, so that
/// choosing, geometry and compiling work on machines without a card. RIDGELINE_SM=80 (or 90) lowers `sm`: kernels of
/// that level then come as PTX, which every later card runs.
const DeviceInfo& target();
/// "sm_90a", "sm_80", or "compute_80" where the level is forced below the card's own.
std::string architecture();

/// Machine code of one kernel in the context.
struct LoadedKernel {
  Function function = nullptr;
  std::string entry;
  KernelResources resources;
  int64_t shared_bytes = 0;        // dynamic, of a launch
  std::vector<LoadedKernel> more;  // of Source::more_entries
};

/// Compiles (or finds) and loads; once a process for equal sources. Throws as `compile` and `driver` do.
std::shared_ptr<const LoadedKernel> load(const Source& source);

/// Memory of the device, freed with the object. Throws Error{kResource} with what was wanted and what there is.
class Memory {
 public:
  Memory() = default;
  explicit Memory(int64_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept : address_(std::exchange(other.address_, 0)), bytes_(other.bytes_) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  void* data() const { return reinterpret_cast<void*>(address_); }
  DevicePointer address() const { return address_; }
  int64_t bytes() const { return bytes_; }

 private:
  DevicePointer address_ = 0;
  int64_t bytes_ = 0;
};

/// A stream of this process's own device, and copies in it.
class Queue {
 public:
  Queue();
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  Stream stream() const { return stream_; }
  void upload(void* to, const void* from, int64_t bytes) const;
  void download(void* to, const void* from, int64_t bytes) const;
  void copy(void* to, const void* from, int64_t bytes) const;  // on the device
  void fill(void* to, uint8_t value, int64_t bytes) const;
  /// Waits. Throws Error{kResource} naming `what` if something in the stream failed.
  void wait(const std::string& what) const;

 private:
  Stream stream_ = nullptr;
};

struct Grid {
  int64_t x = 1, y = 1, z = 1;
};
struct LaunchOptions {
  bool dependent = false;  // starts while its predecessor ends: the kernel waits by griddepcontrol.wait itself
};

/// Parameters by address, in the kernel's order.
void launch(const LoadedKernel& kernel, const Grid& grid, int threads, Stream stream, void** parameters,
            const LaunchOptions& options = {});
template <typename... Parameters>
void launch(const LoadedKernel& kernel, const Grid& grid, int threads, Stream stream, const LaunchOptions& options,
            const Parameters&... parameters) {
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&parameters))...};
  launch(kernel, grid, threads, stream, addresses, options);
}

/// For bulk tensor copies: a matrix or a stack of them, innermost extent first. `strides` in bytes, of all but the
/// innermost. `swizzle`: bytes of the pattern, 0, 32, 64 or 128. What lies outside reads as zero.
struct alignas(64) TensorMap {
  std::array<uint64_t, 16> words{};
};
enum class MapType : int { kU8 = 0, kU16 = 1, kU32 = 2, kF16 = 6, kF32 = 7, kBF16 = 9 };
TensorMap tensor_map(MapType type, int rank, const void* address, const int64_t* extents, const int64_t* strides,
                     const int* box, int swizzle);

/// The same for the pixels that one tap of a convolution sees: copies take `pixels` of them one after the other, across
/// rows and images, and `channels` of each. Channels lie innermost and follow each other; what the padding asks for
/// reads as zero.
struct ImageWindow {
  int64_t channels = 0, width = 0, height = 0, images = 0;  // of the image
  int64_t stride_w = 1, stride_h = 1;                       // of the window
  int lower_w = 0, lower_h = 0;                             // where the first window begins: minus the padding before
  int upper_w = 0, upper_h = 0;                             // where the last one begins, less the image's last pixel
};
TensorMap image_map(MapType type, const void* address, const ImageWindow& window, int channels, int pixels,
                    int swizzle);

}  // namespace ridgeline::cuda
