// oneDNN 3: descriptions are the library's objects, primitives are described in one step.
#include <vector>

#include "rivals/onednn_api.h"

namespace ridgeline::onednn {
namespace {

constexpr unsigned kUseScale = 2, kUseShift = 4;

int number(Eltwise algorithm) {
  constexpr int kNumbers[] = {0x20, 0x21, 0x24, 0x25, 0x29, 0x2a, 0x2b, 0x31, 0x2c, 0x2d, 0x34};
  return kNumbers[size_t(algorithm)];
}

#define RIDGELINE_ONEDNN_V3(X)                                                                                        \
  X(create_strided, memory_desc_create_with_strides, (Desc*, int, const int64_t*, int, const int64_t*))               \
  X(create_tagged, memory_desc_create_with_tag, (Desc*, int, const int64_t*, int, int))                               \
  X(create_matmul, matmul_primitive_desc_create,                                                                      \
    (Handle*, Handle engine, Desc a, Desc b, Desc bias, Desc c, Handle attributes))                                   \
  X(create_convolution, convolution_forward_primitive_desc_create,                                                    \
    (Handle*, Handle engine, int kind, int algorithm, Desc x, Desc w, Desc b, Desc y, const int64_t*, const int64_t*, \
     const int64_t*, const int64_t*, Handle attributes))                                                              \
  X(create_softmax, softmax_forward_primitive_desc_create,                                                            \
    (Handle*, Handle engine, int kind, int algorithm, Desc x, Desc y, int axis, Handle attributes))                   \
  X(create_layer_norm, layer_normalization_forward_primitive_desc_create,                                             \
    (Handle*, Handle engine, int kind, Desc x, Desc y, Desc statistics, float epsilon, unsigned flags,                \
     Handle attributes))                                                                                              \
  X(create_eltwise, eltwise_forward_primitive_desc_create,                                                            \
    (Handle*, Handle engine, int kind, int algorithm, Desc x, Desc y, float alpha, float beta, Handle attributes))    \
  X(create_binary, binary_primitive_desc_create,                                                                      \
    (Handle*, Handle engine, int algorithm, Desc a, Desc b, Desc y, Handle attributes))                               \
  X(create_reduction, reduction_primitive_desc_create,                                                                \
    (Handle*, Handle engine, int algorithm, Desc x, Desc y, float p, float epsilon, Handle attributes))

class V3 : public Api {
 public:
  bool find_all(Library& library) {
#define RIDGELINE_FIND(member, name, parameters) &&library.find("dnnl_" #name, member)
    return true RIDGELINE_ONEDNN_COMMON(RIDGELINE_FIND) RIDGELINE_ONEDNN_V3(RIDGELINE_FIND);
#undef RIDGELINE_FIND
  }
  int strided(Desc* out, int axes, const int64_t* extents, int type, const int64_t* strides) override {
    return kept(out, create_strided(out, axes, extents, type, strides));
  }
  int any(Desc* out, int axes, const int64_t* extents, int type) override {
    return kept(out, create_tagged(out, axes, extents, type, kTagAny));
  }
  int matmul(Handle* out, Desc a, Desc b, Desc c) override {
    return create_matmul(out, engine, a, b, nullptr, c, nullptr);
  }
  int convolution(Handle* out, int algorithm, Desc x, Desc w, Desc b, Desc y, const Sliding& window) override {
    return create_convolution(out, engine, kForwardInference, algorithm, x, w, b, y, window.strides, window.gaps,
                              window.begin, window.end, nullptr);
  }
  int softmax(Handle* out, int algorithm, Desc x, Desc y, int axis) override {
    return create_softmax(out, engine, kForwardInference, algorithm, x, y, axis, nullptr);
  }
  int layer_norm(Handle* out, Desc x, Desc y, float epsilon, bool shift) override {
    return create_layer_norm(out, engine, kForwardInference, x, y, nullptr, epsilon,
                             kUseScale | (shift ? kUseShift : 0), nullptr);
  }
  int eltwise(Handle* out, Eltwise algorithm, Desc x, Desc y, float alpha, float beta) override {
    return create_eltwise(out, engine, kForwardInference, number(algorithm), x, y, alpha, beta, nullptr);
  }
  int binary(Handle* out, int algorithm, Desc a, Desc b, Desc y) override {
    return create_binary(out, engine, algorithm, a, b, y, nullptr);
  }
  int reduction(Handle* out, int algorithm, Desc x, Desc y) override {
    return create_reduction(out, engine, algorithm, x, y, 0, 0, nullptr);
  }

 private:
  RIDGELINE_ONEDNN_V3(RIDGELINE_ONEDNN_MEMBER)
  int kept(const Desc* out, int status) {
    if (status == 0) descs_.push_back(*out);
    return status;
  }
  std::vector<Desc> descs_;
};

}  // namespace

std::unique_ptr<Api> open_v3(Library& library) {
  auto api = std::make_unique<V3>();
  return api->find_all(library) ? std::move(api) : nullptr;
}

}  // namespace ridgeline::onednn
