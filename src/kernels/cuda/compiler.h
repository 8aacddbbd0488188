// Runtime compilation: a kernel's source, specialised by macros, to machine code, through NVRTC and a cache on disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::cuda {

/// A kernel's file with what is put into its holes.
struct Source {
  std::string file;                       // below src/kernels/cuda: "elementwise/program.cu"; embedded in the library
  std::string entry;                      // the kernel in it
  std::string program;                    // CUDA C++ that stands between the prelude and the file: a printed Program
  std::vector<std::string> defines;       // "TILE=128"
  int64_t shared_bytes = 0;               // dynamic shared memory of a launch
  std::vector<std::string> more_entries;  // further kernels in it, which have no dynamic shared memory
};
/// The embedded text of a file below src/kernels/cuda. Asserts that it is there.
std::string_view embedded(std::string_view file);
/// All files with kernels.
std::vector<std::string_view> embedded_files();

/// What ptxas says of one kernel.
struct KernelResources {
  std::string kernel;
  int registers = 0;
  int64_t spill_bytes = 0;   // stores and loads
  int64_t shared_bytes = 0;  // static
};

struct Compiled {
  std::string code;  // a cubin; PTX where the architecture is a virtual one ("compute_80")
  std::vector<KernelResources> kernels;
  bool from_cache = false;
};

/// Machine code of `source` for this architecture ("sm_90a", "sm_80", "compute_80"). Safe from several threads and
/// processes; the cache is RIDGELINE_CACHE_DIR's (machine_cache_directory), keyed by source, options, architecture and
/// compiler. Throws Error{kResource} where there is no NVRTC (with the remedy), Error{kUnsupported} with the compiler's
/// log where it refuses.
Compiled compile(const Source& source, const std::string& architecture);

/// Why there is no NVRTC; empty: there is one. It is searched in RIDGELINE_NVRTC (a file), the loader's path, the
/// toolkit's folders (CUDA_HOME, /usr/local/cuda) and Python's `nvidia` packages.
std::string compiler_trouble();
/// Folders that may hold NVIDIA's libraries, beside what the loader knows: the toolkit's, and those of Python's
/// `nvidia` packages.
std::vector<std::string> library_folders();
/// "13.0"; what the cache is keyed by.
std::string compiler_version();
/// Compilations of this process that the cache did not have.
int64_t compilations();

}  // namespace ridgeline::cuda
