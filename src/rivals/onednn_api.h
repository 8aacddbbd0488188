// The C interface of oneDNN, as much of it as `bench` calls, and what versions 2 and 3 write differently. Descriptors
// are opaque: every field is set and read by the library's own functions, so no layout of a struct is repeated here.
// Source: dnnl.h and dnnl_types.h of oneDNN 2.6 and 3.2 (names and numbers of the interface).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "rivals/libraries.h"

namespace ridgeline::onednn {

using Handle = struct OpaqueObject*;
using Desc = const struct OpaqueDesc*;  // of a tensor in memory
struct ExecArg {
  int arg;
  Handle memory;
};
struct Version {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};

constexpr int kMostAxes = 12;
constexpr int kF16 = 1, kBF16 = 2, kF32 = 3, kS32 = 4, kS8 = 5, kU8 = 6;
constexpr int kTagAny = 1, kForwardInference = 96, kCpu = 1, kInOrder = 1;
constexpr int kQueryImplementation = 8, kQueryArgument = 255;
constexpr unsigned kRuntimeSequential = 1, kRuntimeOpenMp = 2;
constexpr int kArgSrc = 1, kArgSrc1 = 2, kArgDst = 17, kArgWeights = 33, kArgBias = 41, kArgScale = 51, kArgShift = 52;
constexpr int kDirect = 1, kWinograd = 2;
constexpr int kBinaryAdd = 0x1fff0, kBinaryMul = 0x1fff1, kBinaryMax = 0x1fff2, kBinaryMin = 0x1fff3,
              kBinaryDiv = 0x1fff4, kBinarySub = 0x1fff5;
constexpr int kReduceMax = 0x2fff2, kReduceMin = 0x2fff3, kReduceSum = 0x2fff4, kReduceMean = 0x2fff6;
constexpr int kSoftmaxAccurate = 0x30000, kSoftmaxLog = 0x30001;
enum class Eltwise { kRelu, kTanh, kAbs, kSqrt, kLogistic, kExp, kGeluTanh, kGeluErf, kSwish, kLog, kHardSwish };

// X(member, name behind dnnl_, parameters): the same in both versions. They return a status, 0 if well.
#define RIDGELINE_ONEDNN_COMMON(X)                                                     \
  X(engine_create, engine_create, (Handle*, int, size_t))                              \
  X(stream_create, stream_create, (Handle*, Handle engine, unsigned))                  \
  X(stream_wait, stream_wait, (Handle))                                                \
  X(memory_create, memory_create, (Handle*, Desc, Handle engine, void*))               \
  X(memory_destroy, memory_destroy, (Handle))                                          \
  X(reorder, reorder_primitive_desc_create,                                            \
    (Handle*, Desc from, Handle engine, Desc to, Handle engine_to, Handle attributes)) \
  X(query, primitive_desc_query, (Handle, int what, int index, void* result))          \
  X(primitive_desc_destroy, primitive_desc_destroy, (Handle))                          \
  X(primitive_create, primitive_create, (Handle*, Handle primitive_desc))              \
  X(primitive_destroy, primitive_destroy, (Handle))                                    \
  X(execute, primitive_execute, (Handle primitive, Handle stream, int count, const ExecArg*))

#define RIDGELINE_ONEDNN_MEMBER(member, name, parameters) int(*member) parameters = nullptr;

struct Sliding {
  const int64_t *strides, *gaps, *begin, *end;  // gaps: dilations less one
};

/// An open library. The functions below it that are virtual return a status, too; tensors' descriptions live as long as
/// the library (a benchmark makes a handful).
class Api {
 public:
  virtual ~Api() = default;
  virtual int strided(Desc*, int axes, const int64_t* extents, int type, const int64_t* strides) = 0;
  virtual int any(Desc*, int axes, const int64_t* extents, int type) = 0;
  virtual int matmul(Handle* out, Desc a, Desc b, Desc c) = 0;
  virtual int convolution(Handle* out, int algorithm, Desc x, Desc w, Desc b, Desc y, const Sliding&) = 0;
  virtual int softmax(Handle* out, int algorithm, Desc x, Desc y, int axis) = 0;
  virtual int layer_norm(Handle* out, Desc x, Desc y, float epsilon, bool shift) = 0;
  virtual int eltwise(Handle* out, Eltwise, Desc x, Desc y, float alpha, float beta) = 0;
  virtual int binary(Handle* out, int algorithm, Desc a, Desc b, Desc y) = 0;
  virtual int reduction(Handle* out, int algorithm, Desc x, Desc y) = 0;

  RIDGELINE_ONEDNN_COMMON(RIDGELINE_ONEDNN_MEMBER)
  size_t (*size)(Desc) = nullptr;
  void (*set_threads)(int) = nullptr;  // OpenMP's, of the runtime that the library runs on
  Handle engine = nullptr, stream = nullptr;
};

/// Null if the library lacks a name: library.reason() says which.
std::unique_ptr<Api> open_v2(Library& library);
std::unique_ptr<Api> open_v3(Library& library);

}  // namespace ridgeline::onednn
