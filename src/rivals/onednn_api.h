// The C interface of oneDNN 2 (2.5 to 2.7), as much of it as `bench` calls. Descriptors are opaque here, in buffers
// larger than any: every field is set and read by the library's own functions, so no layout of a struct is repeated.
// Source: oneDNN 2.6, dnnl.h and dnnl_types.h (names and numbers of the interface).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ridgeline::onednn {

struct MemoryDesc {  // 696 bytes in 2.6
  alignas(16) unsigned char opaque[2048];
};
struct OpDesc {  // at most 6 kB in 2.6
  alignas(16) unsigned char opaque[32768];
};
using Handle = struct Opaque*;
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
constexpr int kRelu = 0x1f, kTanh = 0x2f, kAbs = 0x5f, kSqrt = 0x6f, kLogistic = 0xaf, kExp = 0xbf, kGeluTanh = 0xcf,
              kSwish = 0xdf, kGeluErf = 0x30, kLog = 0xef, kHardSwish = 0x70;
constexpr int kBinaryAdd = 0x1fff0, kBinaryMul = 0x1fff1, kBinaryMax = 0x1fff2, kBinaryMin = 0x1fff3,
              kBinaryDiv = 0x1fff4, kBinarySub = 0x1fff5;
constexpr int kReduceMax = 0x2fff2, kReduceMin = 0x2fff3, kReduceSum = 0x2fff4, kReduceMean = 0x2fff6;
constexpr unsigned kUseScale = 8, kUseShift = 16;

// X(member, name behind dnnl_, parameters); all but `version` return a status, 0 if well.
#define RIDGELINE_ONEDNN_FUNCTIONS(X)                                                                                  \
  X(strided, memory_desc_init_by_strides, (MemoryDesc*, int, const int64_t*, int, const int64_t*))                     \
  X(tagged, memory_desc_init_by_tag, (MemoryDesc*, int, const int64_t*, int, int))                                     \
  X(engine_create, engine_create, (Handle*, int, size_t))                                                              \
  X(stream_create, stream_create, (Handle*, Handle engine, unsigned))                                                  \
  X(stream_wait, stream_wait, (Handle))                                                                                \
  X(memory_create, memory_create, (Handle*, const MemoryDesc*, Handle engine, void*))                                  \
  X(memory_destroy, memory_destroy, (Handle))                                                                          \
  X(matmul, matmul_desc_init,                                                                                          \
    (OpDesc*, const MemoryDesc* a, const MemoryDesc* b, const MemoryDesc* bias, const MemoryDesc* c))                  \
  X(convolution, dilated_convolution_forward_desc_init,                                                                \
    (OpDesc*, int kind, int algorithm, const MemoryDesc* x, const MemoryDesc* w, const MemoryDesc* b,                  \
     const MemoryDesc* y, const int64_t* strides, const int64_t* dilations, const int64_t* begin, const int64_t* end)) \
  X(softmax, softmax_forward_desc_init, (OpDesc*, int kind, const MemoryDesc*, int axis))                              \
  X(logsoftmax, logsoftmax_forward_desc_init, (OpDesc*, int kind, const MemoryDesc*, int axis))                        \
  X(layer_norm, layer_normalization_forward_desc_init,                                                                 \
    (OpDesc*, int kind, const MemoryDesc* x, const MemoryDesc* statistics, float epsilon, unsigned flags))             \
  X(eltwise, eltwise_forward_desc_init,                                                                                \
    (OpDesc*, int kind, int algorithm, const MemoryDesc* x, float alpha, float beta))                                  \
  X(binary, binary_desc_init, (OpDesc*, int algorithm, const MemoryDesc* a, const MemoryDesc* b, const MemoryDesc* y)) \
  X(reduction, reduction_desc_init,                                                                                    \
    (OpDesc*, int algorithm, const MemoryDesc* x, const MemoryDesc* y, float p, float epsilon))                        \
  X(primitive_desc_create, primitive_desc_create,                                                                      \
    (Handle*, const OpDesc*, Handle attributes, Handle engine, Handle hint))                                           \
  X(reorder, reorder_primitive_desc_create,                                                                            \
    (Handle*, const MemoryDesc* from, Handle engine, const MemoryDesc* to, Handle engine_to, Handle attributes))       \
  X(primitive_desc_query, primitive_desc_query, (Handle, int what, int index, void* result))                           \
  X(primitive_desc_destroy, primitive_desc_destroy, (Handle))                                                          \
  X(primitive_create, primitive_create, (Handle*, Handle primitive_desc))                                              \
  X(primitive_destroy, primitive_destroy, (Handle))                                                                    \
  X(execute, primitive_execute, (Handle primitive, Handle stream, int count, const ExecArg*))

struct Api {
#define RIDGELINE_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  RIDGELINE_ONEDNN_FUNCTIONS(RIDGELINE_MEMBER)
#undef RIDGELINE_MEMBER
  const Version* (*version)() = nullptr;
  size_t (*size)(const MemoryDesc*) = nullptr;
  void (*set_threads)(int) = nullptr;  // OpenMP's, of the runtime that the library runs on
  Handle engine = nullptr, stream = nullptr;
};

}  // namespace ridgeline::onednn
