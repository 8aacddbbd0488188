// The CUDA driver, loaded at run time: the same binary serves machines without a GPU. Types and entry points are
// declared here as the driver API documents them (CUDA Driver API reference, versions 12 and 13); no toolkit header is
// needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ridgeline::cuda {

using Result = int;              // CUresult: 0 is success
using DevicePointer = uint64_t;  // CUdeviceptr
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;

/// CUlaunchConfig and CUlaunchAttribute.
struct LaunchAttribute {
  int id = 0;
  int pad = 0;
  std::array<int, 16> value{};
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

/// Entry points, each named as in the driver without its prefix.
struct Driver {
  Result (*init)(unsigned flags);
  Result (*driver_version)(int* version);
  Result (*error_name)(Result, const char** text);
  Result (*error_string)(Result, const char** text);
  Result (*device_count)(int* count);
  Result (*device_get)(int* device, int ordinal);
  Result (*device_name)(char* name, int bytes, int device);
  Result (*device_attribute)(int* value, int attribute, int device);
  Result (*device_total_memory)(size_t* bytes, int device);
  Result (*primary_context_retain)(Context*, int device);
  Result (*primary_context_release)(int device);
  Result (*context_set_current)(Context);
  Result (*memory_info)(size_t* free, size_t* total);
  Result (*memory_allocate)(DevicePointer*, size_t bytes);
  Result (*memory_free)(DevicePointer);
  Result (*host_allocate)(void**, size_t bytes, unsigned flags);
  Result (*host_free)(void*);
  Result (*copy_to_device)(DevicePointer to, const void* from, size_t bytes, Stream);
  Result (*copy_to_host)(void* to, DevicePointer from, size_t bytes, Stream);
  Result (*copy_on_device)(DevicePointer to, DevicePointer from, size_t bytes, Stream);
  Result (*fill_bytes)(DevicePointer to, unsigned char value, size_t bytes, Stream);
  Result (*module_load)(Module*, const void* image);
  Result (*module_unload)(Module);
  Result (*module_function)(Function*, Module, const char* name);
  Result (*function_attribute)(int* value, int attribute, Function);
  Result (*function_set_attribute)(Function, int attribute, int value);
  Result (*occupancy)(int* blocks, Function, int threads, size_t dynamic_shared_bytes);
  Result (*launch)(const LaunchConfig*, Function, void** parameters, void** extra);
  Result (*tensor_map_encode)(void* map, int type, unsigned rank, DevicePointer, const uint64_t* extents,
                              const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                              int interleave, int swizzle, int promotion, int fill);
  Result (*tensor_map_encode_im2col)(void* map, int type, unsigned rank, DevicePointer, const uint64_t* extents,
                                     const uint64_t* strides, const int* lower, const int* upper, unsigned channels,
                                     unsigned pixels, const uint32_t* element_strides, int interleave, int swizzle,
                                     int promotion, int fill);
  Result (*stream_create)(Stream*, unsigned flags);
  Result (*stream_destroy)(Stream);
  Result (*stream_synchronize)(Stream);
  Result (*capture_begin)(Stream, int mode);
  Result (*capture_end)(Stream, Graph*);
  Result (*graph_nodes)(Graph, void** nodes, size_t* count);
  Result (*graph_instantiate)(GraphExec*, Graph, unsigned long long flags);
  Result (*graph_launch)(GraphExec, Stream);
  Result (*graph_exec_destroy)(GraphExec);
  Result (*graph_destroy)(Graph);
  Result (*event_create)(Event*, unsigned flags);
  Result (*event_destroy)(Event);
  Result (*event_record)(Event, Stream);
  Result (*event_record_with_flags)(Event, Stream, unsigned flags);
  Result (*event_synchronize)(Event);
  Result (*event_elapsed_ms)(float* ms, Event from, Event to);
};

/// The driver, initialised. Throws Error{kResource} that says what is missing and the remedy.
const Driver& driver();
/// Why there is none; empty: there is one.
std::string driver_trouble();

/// Throws Error{kResource}: what was tried, the driver's own name and words of the error, and a remedy where there is
/// one.
void check(Result result, const std::string& what);

/// Attributes of a device, as numbered by the driver API (CUdevice_attribute).
struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int sm = 0;  // compute capability: 90 for 9.0
  int multiprocessors = 0;
  int64_t memory_bytes = 0, l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // with opt-in
  int64_t shared_bytes_per_sm = 0;
  int registers_per_sm = 0, threads_per_sm = 0;
};

/// All devices; empty where there is no driver or no card.
std::vector<DeviceInfo> devices();
/// One of them. Throws Error{kResource} if it is not there, or older than sm_80.
DeviceInfo device(int ordinal);

}  // namespace ridgeline::cuda
