#include "kernels/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include <array>
#include <utility>

#include "ridgeline/error.h"

namespace ridgeline::cuda {
namespace {

constexpr int kLeastVersion = 12000;  // graphs of captured launches with the flags that are used here
constexpr int kLeastSm = 80;          // cp.async, bf16 and tf32 products

// CUdevice_attribute and CUresult, by the numbers of the driver API reference.
enum Attribute {
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kThreadsPerSm = 39,
  kMajor = 75,
  kMinor = 76,
  kSharedBytesPerSm = 81,
  kRegistersPerSm = 82,
  kSharedBytesPerBlockOptin = 97,
};
constexpr Result kOutOfMemory = 2;

struct Loaded {
  Driver driver{};
  std::string trouble;
};

// With `_v2` and the like where the documented meaning changed: the headers of a toolkit would rename them.
Loaded load() {
  Loaded loaded;
  const char* const given = std::getenv("RIDGELINE_CUDA_DRIVER");
  void* const library = dlopen(given && *given ? given : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library && given && *given) {
    loaded.trouble = fmt::format("RIDGELINE_CUDA_DRIVER={}: cannot be loaded: {}", given, dlerror());
    return loaded;
  }
  if (!library) {
    loaded.trouble =
        "no CUDA driver: libcuda.so.1 was not found by the loader. It comes with NVIDIA's kernel driver (Debian: "
        "nvidia-driver; in a container: start it with the NVIDIA runtime)";
    return loaded;
  }
  Driver& d = loaded.driver;
  const std::pair<const char*, void*> entries[] = {
      {"cuInit", &d.init},
      {"cuDriverGetVersion", &d.driver_version},
      {"cuGetErrorName", &d.error_name},
      {"cuGetErrorString", &d.error_string},
      {"cuDeviceGetCount", &d.device_count},
      {"cuDeviceGet", &d.device_get},
      {"cuDeviceGetName", &d.device_name},
      {"cuDeviceGetAttribute", &d.device_attribute},
      {"cuDeviceTotalMem_v2", &d.device_total_memory},
      {"cuDevicePrimaryCtxRetain", &d.primary_context_retain},
      {"cuDevicePrimaryCtxRelease_v2", &d.primary_context_release},
      {"cuCtxSetCurrent", &d.context_set_current},
      {"cuMemGetInfo_v2", &d.memory_info},
      {"cuMemAlloc_v2", &d.memory_allocate},
      {"cuMemFree_v2", &d.memory_free},
      {"cuMemHostAlloc", &d.host_allocate},
      {"cuMemFreeHost", &d.host_free},
      {"cuMemcpyHtoDAsync_v2", &d.copy_to_device},
      {"cuMemcpyDtoHAsync_v2", &d.copy_to_host},
      {"cuMemcpyDtoDAsync_v2", &d.copy_on_device},
      {"cuMemsetD8Async", &d.fill_bytes},
      {"cuModuleLoadData", &d.module_load},
      {"cuModuleUnload", &d.module_unload},
      {"cuModuleGetFunction", &d.module_function},
      {"cuFuncGetAttribute", &d.function_attribute},
      {"cuFuncSetAttribute", &d.function_set_attribute},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", &d.occupancy},
      {"cuLaunchKernelEx", &d.launch},
      {"cuTensorMapEncodeTiled", &d.tensor_map_encode},
      {"cuTensorMapEncodeIm2col", &d.tensor_map_encode_im2col},
      {"cuStreamCreate", &d.stream_create},
      {"cuStreamDestroy_v2", &d.stream_destroy},
      {"cuStreamSynchronize", &d.stream_synchronize},
      {"cuStreamBeginCapture_v2", &d.capture_begin},
      {"cuStreamEndCapture", &d.capture_end},
      {"cuGraphGetNodes", &d.graph_nodes},
      {"cuGraphInstantiateWithFlags", &d.graph_instantiate},
      {"cuGraphLaunch", &d.graph_launch},
      {"cuGraphExecDestroy", &d.graph_exec_destroy},
      {"cuGraphDestroy", &d.graph_destroy},
      {"cuEventCreate", &d.event_create},
      {"cuEventDestroy_v2", &d.event_destroy},
      {"cuEventRecord", &d.event_record},
      {"cuEventRecordWithFlags", &d.event_record_with_flags},
      {"cuEventSynchronize", &d.event_synchronize},
      {"cuEventElapsedTime", &d.event_elapsed_ms},
  };
  for (const auto& [name, place] : entries) {
    void* const symbol = dlsym(library, name);
    if (!symbol) {
      loaded.trouble = fmt::format("the CUDA driver is too old: {} has no {}; CUDA 12 or newer is wanted",
                                   given && *given ? given : "libcuda.so.1", name);
      return loaded;
    }
    *static_cast<void**>(place) = symbol;
  }
  if (const Result result = d.init(0); result != 0) {
    const char* words = nullptr;
    d.error_string(result, &words);
    loaded.trouble =
        fmt::format("the CUDA driver does not start: {} (error {}). `nvidia-smi` shows whether a card is there",
                    words ? words : "no reason given", result);
    return loaded;
  }
  int version = 0;
  d.driver_version(&version);
  if (version < kLeastVersion)
    loaded.trouble = fmt::format("the CUDA driver is of version {}.{}: 12.0 or newer is wanted", version / 1000,
                                 version % 1000 / 10);
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

int attribute(int device, Attribute which) {
  int value = 0;
  check(driver().device_attribute(&value, which, device), "reading an attribute of a device");
  return value;
}

}  // namespace

const Driver& driver() {
  if (!loaded().trouble.empty()) fail(ErrorCode::kResource, "{}", loaded().trouble);
  return loaded().driver;
}

std::string driver_trouble() { return loaded().trouble; }

void check(Result result, const std::string& what) {
  if (result == 0) return;
  const char *name = nullptr, *words = nullptr;
  loaded().driver.error_name(result, &name);
  loaded().driver.error_string(result, &words);
  std::string message = fmt::format("{} failed: {} ({})", what, words ? words : "unknown error", name ? name : "?");
  if (result == kOutOfMemory) {
    size_t free = 0, total = 0;
    if (loaded().driver.memory_info(&free, &total) == 0)
      message += fmt::format("; the card has {} MB free of {}: --mem-budget plans for less", free >> 20, total >> 20);
  }
  fail(ErrorCode::kResource, "{}", message);
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> list;
  if (!driver_trouble().empty()) return list;
  const Driver& d = driver();
  int count = 0;
  if (d.device_count(&count) != 0) return list;
  for (int i = 0; i < count; ++i) {
    DeviceInfo info;
    int device = 0;
    std::array<char, 256> name{};
    size_t memory = 0;
    check(d.device_get(&device, i), fmt::format("opening cuda:{}", i));
    check(d.device_name(name.data(), int(name.size()), device), "reading a device's name");
    check(d.device_total_memory(&memory, device), "reading a device's memory");
    info.ordinal = i;
    info.name = name.data();
    info.sm = 10 * attribute(device, kMajor) + attribute(device, kMinor);
    info.multiprocessors = attribute(device, kMultiprocessors);
    info.memory_bytes = int64_t(memory);
    info.l2_bytes = attribute(device, kL2Bytes);
    info.shared_bytes_per_block = attribute(device, kSharedBytesPerBlockOptin);
    info.shared_bytes_per_sm = attribute(device, kSharedBytesPerSm);
    info.registers_per_sm = attribute(device, kRegistersPerSm);
    info.threads_per_sm = attribute(device, kThreadsPerSm);
    list.push_back(std::move(info));
  }
  return list;
}

DeviceInfo device(int ordinal) {
  driver();  // says why there is none
  const std::vector<DeviceInfo> all = devices();
  if (all.empty()) fail(ErrorCode::kResource, "no CUDA device is visible (CUDA_VISIBLE_DEVICES may hide them)");
  if (ordinal < 0 || size_t(ordinal) >= all.size())
    fail(ErrorCode::kResource, "cuda:{} is not there: there are {} devices, cuda:0 to cuda:{}", ordinal, all.size(),
         all.size() - 1);
  const DeviceInfo& info = all[size_t(ordinal)];
  if (info.sm < kLeastSm)
    fail(ErrorCode::kResource, "cuda:{} ({}) is sm_{}: sm_{} (Ampere) or newer is wanted", ordinal, info.name, info.sm,
         kLeastSm);
  return info;
}

}  // namespace ridgeline::cuda
