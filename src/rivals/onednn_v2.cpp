// oneDNN 2: descriptions are structs of the caller's, here in buffers larger than any.
#include <deque>

#include "rivals/onednn_api.h"

namespace ridgeline::onednn {
namespace {

struct DescBuffer {  // 696 bytes in 2.6
  alignas(16) unsigned char opaque[2048] = {};
};
struct OpBuffer {  // at most 6 kB in 2.6
  alignas(16) unsigned char opaque[32768] = {};
};

constexpr unsigned kUseScale = 8, kUseShift = 16;

int number(Eltwise algorithm) {
  constexpr int kNumbers[] = {0x1f, 0x2f, 0x5f, 0x6f, 0xaf, 0xbf, 0xcf, 0x30, 0xdf, 0xef, 0x70};
  return kNumbers[size_t(algorithm)];
}

#define RIDGELINE_ONEDNN_V2(X)                                                                                      \
  X(init_strided, memory_desc_init_by_strides, (DescBuffer*, int, const int64_t*, int, const int64_t*))             \
  X(init_tagged, memory_desc_init_by_tag, (DescBuffer*, int, const int64_t*, int, int))                             \
  X(init_matmul, matmul_desc_init, (OpBuffer*, Desc a, Desc b, Desc bias, Desc c))                                  \
  X(init_convolution, dilated_convolution_forward_desc_init,                                                        \
    (OpBuffer*, int kind, int algorithm, Desc x, Desc w, Desc b, Desc y, const int64_t*, const int64_t*,            \
     const int64_t*, const int64_t*))                                                                               \
  X(init_softmax, softmax_forward_desc_init, (OpBuffer*, int kind, Desc, int axis))                                 \
  X(init_logsoftmax, logsoftmax_forward_desc_init, (OpBuffer*, int kind, Desc, int axis))                           \
  X(init_layer_norm, layer_normalization_forward_desc_init,                                                         \
    (OpBuffer*, int kind, Desc x, Desc statistics, float epsilon, unsigned flags))                                  \
  X(init_eltwise, eltwise_forward_desc_init, (OpBuffer*, int kind, int algorithm, Desc x, float alpha, float beta)) \
  X(init_binary, binary_desc_init, (OpBuffer*, int algorithm, Desc a, Desc b, Desc y))                              \
  X(init_reduction, reduction_desc_init, (OpBuffer*, int algorithm, Desc x, Desc y, float p, float epsilon))        \
  X(create, primitive_desc_create, (Handle*, const OpBuffer*, Handle attributes, Handle engine, Handle hint))

class V2 : public Api {
 public:
  bool find_all(Library& library) {
#define RIDGELINE_FIND(member, name, parameters) &&library.find("dnnl_" #name, member)
    return true RIDGELINE_ONEDNN_COMMON(RIDGELINE_FIND) RIDGELINE_ONEDNN_V2(RIDGELINE_FIND);
#undef RIDGELINE_FIND
  }
  int strided(Desc* out, int axes, const int64_t* extents, int type, const int64_t* strides) override {
    return init_strided(next(out), axes, extents, type, strides);
  }
  int any(Desc* out, int axes, const int64_t* extents, int type) override {
    return init_tagged(next(out), axes, extents, type, kTagAny);
  }
  int matmul(Handle* out, Desc a, Desc b, Desc c) override {
    return made(out, [&](OpBuffer* op) { return init_matmul(op, a, b, nullptr, c); });
  }
  int convolution(Handle* out, int algorithm, Desc x, Desc w, Desc b, Desc y, const Sliding& window) override {
    return made(out, [&](OpBuffer* op) {
      return init_convolution(op, kForwardInference, algorithm, x, w, b, y, window.strides, window.gaps, window.begin,
                              window.end);
    });
  }
  int softmax(Handle* out, int algorithm, Desc x, Desc, int axis) override {
    return made(out, [&](OpBuffer* op) {
      return (algorithm == kSoftmaxLog ? init_logsoftmax : init_softmax)(op, kForwardInference, x, axis);
    });
  }
  int layer_norm(Handle* out, Desc x, Desc, float epsilon, bool shift) override {
    return made(out, [&](OpBuffer* op) {
      return init_layer_norm(op, kForwardInference, x, nullptr, epsilon, kUseScale | (shift ? kUseShift : 0));
    });
  }
  int eltwise(Handle* out, Eltwise algorithm, Desc x, Desc, float alpha, float beta) override {
    return made(out,
                [&](OpBuffer* op) { return init_eltwise(op, kForwardInference, number(algorithm), x, alpha, beta); });
  }
  int binary(Handle* out, int algorithm, Desc a, Desc b, Desc y) override {
    return made(out, [&](OpBuffer* op) { return init_binary(op, algorithm, a, b, y); });
  }
  int reduction(Handle* out, int algorithm, Desc x, Desc y) override {
    return made(out, [&](OpBuffer* op) { return init_reduction(op, algorithm, x, y, 0, 0); });
  }

 private:
  RIDGELINE_ONEDNN_V2(RIDGELINE_ONEDNN_MEMBER)
  DescBuffer* next(Desc* out) {
    DescBuffer& buffer = descs_.emplace_back();
    *out = reinterpret_cast<Desc>(&buffer);
    return &buffer;
  }
  template <typename Init>
  int made(Handle* out, const Init& init) {
    const auto op = std::make_unique<OpBuffer>();
    const int status = init(op.get());
    return status ? status : create(out, op.get(), nullptr, engine, nullptr);
  }
  std::deque<DescBuffer> descs_;
};

}  // namespace

std::unique_ptr<Api> open_v2(Library& library) {
  auto api = std::make_unique<V2>();
  return api->find_all(library) ? std::move(api) : nullptr;
}

}  // namespace ridgeline::onednn
