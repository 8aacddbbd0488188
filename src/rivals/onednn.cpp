// oneDNN: what a problem is in its words. Constants, and all operands of a convolution, in the layout that it asks for.
#include <algorithm>
#include <map>

#include "ops/windows.h"
#include "rivals/libraries.h"
#include "rivals/onednn_step.h"

namespace ridgeline {
namespace {

using namespace onednn;

// Either a description or why there is none.
struct Described {
  Handle primitive = nullptr;
  std::vector<Argument> arguments;
  std::string reason;
};

int type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kF32;
    case DType::kF16:
      return kF16;
    case DType::kBF16:
      return kBF16;
    case DType::kI32:
      return kS32;
    case DType::kI8:
      return kS8;
    case DType::kU8:
      return kU8;
    default:
      return 0;
  }
}

class Describer {
 public:
  Describer(Api& api, const Problem& problem) : api_(api), p_(problem) {}
  Described describe(bool winograd);

 private:
  // `shape`: the operand's elements in other extents; `strides`: in another order; `any`: as the library likes it.
  Desc add(int arg, int input, const Extents& shape, bool any, const Extents& strides) {
    const Operand& operand = input < 0 ? p_.output() : p_.input(input);
    const int axes = int(shape.size()), type = type_of(operand.dtype);
    if (axes < 1 || axes > kMostAxes || type == 0)
      refuse("its tensors have 1 to 12 axes of f32, f16, bf16, i32, i8, u8");
    if (!out_.reason.empty()) return nullptr;
    Argument a{arg, input, nullptr, nullptr};
    check(api_.strided(&a.plain, axes, shape.data(), type, strides.data()));
    a.wanted = a.plain;
    if (any) check(api_.any(&a.wanted, axes, shape.data(), type));
    out_.arguments.push_back(a);
    return a.wanted;
  }
  Desc add(int arg, int input, const Extents& shape, bool any = false) {
    return add(arg, input, shape, any, Layout(shape).strides);
  }
  Desc add(int arg, int input) { return add(arg, input, input < 0 ? p_.output().shape() : p_.input(input).shape()); }
  void check(int status) {
    if (status != 0) refuse(fmt::format("the library refuses the problem: {}", status_text(status)));
  }
  void refuse(const std::string& reason) {
    if (out_.reason.empty()) out_.reason = reason;
  }

  bool matmul();
  bool convolution(int algorithm);
  bool rows();
  bool elementwise();
  bool reduction();
  bool transpose();

  Api& api_;
  const Problem& p_;
  Described out_;
};

bool Describer::matmul() {
  const Product product = product_of(p_);
  if (p_.op->family != "matmul") return false;
  if (!product.reason.empty() || product.alpha != 1) {
    refuse(product.reason.empty() ? "alpha other than 1 is not timed" : product.reason);
    return true;
  }
  const auto matrix = [&](int64_t rows, int64_t columns, bool transposed, Extents& shape) {
    shape = {rows, columns};
    Extents strides = transposed ? Extents{1, rows} : Extents{columns, 1};
    if (product.batch == 1) return strides;
    shape.insert(shape.begin(), product.batch);
    strides.insert(strides.begin(), rows * columns);
    return strides;
  };
  Extents a, b, c;
  const Extents a_strides = matrix(product.m, product.k, product.trans_a, a),
                b_strides = matrix(product.k, product.n, product.trans_b, b);
  matrix(product.m, product.n, false, c);
  const Desc a_desc = add(kArgSrc, 0, a, false, a_strides);
  const Desc b_desc = add(kArgWeights, 1, b, p_.input(1).is_constant, b_strides);
  const Desc c_desc = add(kArgDst, -1, c);
  if (out_.reason.empty()) check(api_.matmul(&out_.primitive, a_desc, b_desc, c_desc));
  return true;
}

bool Describer::convolution(int algorithm) {
  if (p_.op->name != "Conv") return false;
  const Extents& x = p_.input(0).shape();
  Extents w = p_.input(1).shape();
  const Window window = conv_window(p_, x, w);
  const int64_t group = p_.integer("group");
  if (group > 1) {
    w.insert(w.begin(), group);
    w[1] /= group;
  }
  Extents gaps = window.dilation;
  for (int64_t& gap : gaps) --gap;
  const Desc x_desc = add(kArgSrc, 0, x, true);
  const Desc w_desc = add(kArgWeights, 1, w, true);
  const Desc b_desc = p_.has(2) ? add(kArgBias, 2) : nullptr;
  const Desc y_desc = add(kArgDst, -1, p_.output().shape(), true);
  if (out_.reason.empty())
    check(api_.convolution(&out_.primitive, algorithm, x_desc, w_desc, b_desc, y_desc,
                           {window.stride.data(), gaps.data(), window.begin.data(), window.end.data()}));
  return true;
}

bool Describer::rows() {
  const std::string_view name = p_.op->name;
  const int rank = p_.input(0).layout.rank();
  if (name != "Softmax" && name != "LogSoftmax" && name != "LayerNormalization") return false;
  const int64_t axis = p_.integer("axis"), positive = axis < 0 ? axis + rank : axis;
  const Desc x = add(kArgSrc, 0);
  if (name != "LayerNormalization") {
    const Desc y = add(kArgDst, -1);
    const int algorithm = name == "Softmax" ? kSoftmaxAccurate : kSoftmaxLog;
    if (out_.reason.empty()) check(api_.softmax(&out_.primitive, algorithm, x, y, int(positive)));
    return true;
  }
  if (positive != rank - 1) refuse("it normalizes the last axis alone");
  add(kArgScale, 1);
  if (p_.has(2)) add(kArgShift, 2);
  const Desc y = add(kArgDst, -1);
  if (out_.reason.empty()) check(api_.layer_norm(&out_.primitive, x, y, float(p_.number("epsilon")), p_.has(2)));
  return true;
}

bool Describer::elementwise() {
  struct One {
    std::string_view name;
    Eltwise algorithm;
    float alpha = 0, beta = 0;
  };
  constexpr One kOne[] = {{"Relu", Eltwise::kRelu},
                          {"Tanh", Eltwise::kTanh},
                          {"Abs", Eltwise::kAbs},
                          {"Sqrt", Eltwise::kSqrt},
                          {"Exp", Eltwise::kExp},
                          {"Log", Eltwise::kLog},
                          {"SiLU", Eltwise::kSwish, 1},
                          {"Swish", Eltwise::kSwish},
                          {"Gelu", Eltwise::kGeluErf},
                          {"Sigmoid", Eltwise::kLogistic},
                          {"HardSwish", Eltwise::kHardSwish, 1.0f / 6, 0.5f}};
  struct Two {
    std::string_view name;
    int algorithm;
  };
  constexpr Two kTwo[] = {{"Add", kBinaryAdd}, {"Mul", kBinaryMul}, {"Sub", kBinarySub},
                          {"Div", kBinaryDiv}, {"Max", kBinaryMax}, {"Min", kBinaryMin}};
  for (const One& one : kOne) {
    if (one.name != p_.op->name) continue;
    const bool by_tanh = one.name == "Gelu" && p_.string("approximate") == "tanh";
    const float alpha = one.name == "Swish" ? float(p_.number("alpha")) : one.alpha;
    const Desc x = add(kArgSrc, 0);
    const Desc y = add(kArgDst, -1);
    if (out_.reason.empty())
      check(api_.eltwise(&out_.primitive, by_tanh ? Eltwise::kGeluTanh : one.algorithm, x, y, alpha, one.beta));
    return true;
  }
  for (const Two& two : kTwo) {
    if (two.name != p_.op->name) continue;
    if (p_.op_inputs != 2) {
      refuse("two operands alone are timed");
      return true;
    }
    const Extents& shape = p_.output().shape();
    Extents a = p_.input(0).shape(), b = p_.input(1).shape();
    a.insert(a.begin(), shape.size() - a.size(), 1);
    b.insert(b.begin(), shape.size() - b.size(), 1);
    const Desc a_desc = add(kArgSrc, 0, a);
    const Desc b_desc = add(kArgSrc1, 1, b);
    const Desc y_desc = add(kArgDst, -1);
    if (out_.reason.empty()) check(api_.binary(&out_.primitive, two.algorithm, a_desc, b_desc, y_desc));
    return true;
  }
  return false;
}

bool Describer::reduction() {
  struct Known {
    std::string_view name;
    int algorithm;
  };
  constexpr Known kKnown[] = {
      {"ReduceSum", kReduceSum}, {"ReduceMean", kReduceMean}, {"ReduceMax", kReduceMax}, {"ReduceMin", kReduceMin}};
  const auto* const known =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return k.name == p_.op->name; });
  if (known == std::end(kKnown)) return false;
  const Extents& x = p_.input(0).shape();
  Extents y(x.size(), 1);
  if (p_.has(1) && p_.input(1).elements() > 0) {
    y = x;
    for (int64_t axis : p_.values(1)) y[size_t(axis < 0 ? axis + int64_t(x.size()) : axis)] = 1;
  } else if (p_.flag("noop_with_empty_axes")) {
    refuse("nothing is reduced");
  }
  const Desc x_desc = add(kArgSrc, 0);
  const Desc y_desc = add(kArgDst, -1, y);
  if (out_.reason.empty()) check(api_.reduction(&out_.primitive, known->algorithm, x_desc, y_desc));
  return true;
}

bool Describer::transpose() {
  if (p_.op->name != "Transpose") return false;
  const Extents& x = p_.input(0).shape();
  Extents backwards;
  for (size_t i = x.size(); i-- > 0;) backwards.push_back(int64_t(i));
  const std::vector<int64_t> perm = p_.integers("perm", backwards);
  const Extents x_strides = Layout(x).strides;
  Extents strides;
  for (int64_t axis : perm) strides.push_back(x_strides[size_t(axis)]);
  const Desc from = add(kArgSrc, 0, p_.output().shape(), false, strides);
  const Desc to = add(kArgDst, -1);
  if (out_.reason.empty()) check(api_.reorder(&out_.primitive, from, api_.engine, to, api_.engine, nullptr));
  return true;
}

Described Describer::describe(bool winograd) {
  if (p_.has_epilogue()) refuse("epilogues are not timed");
  if (p_.output().elements() == 0) refuse("nothing to do");
  for (const Operand& o : p_.inputs)
    if (o.present() && !o.layout.is_row_major()) refuse("layouts other than row-major are not timed");
  if (!p_.output().layout.is_row_major()) refuse("layouts other than row-major are not timed");
  if (!out_.reason.empty()) return out_;
  if (!matmul() && !convolution(winograd ? kWinograd : kDirect) && !rows() && !elementwise() && !reduction() &&
      !transpose())
    refuse(fmt::format("no primitive for {} is known here", p_.op->name));
  return out_;
}

struct OneDnn {
  Library library{{"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"}, "libdnnl2"};
  std::unique_ptr<Api> api;
  std::string name = "onednn", reason;

  OneDnn() {
    const Version* (*version)() = nullptr;
    if (!library.open() || !library.find("dnnl_version", version)) {
      reason = library.reason();
      return;
    }
    const Version& v = *version();
    name = fmt::format("onednn {}.{}.{}", v.major, v.minor, v.patch);
    if (v.major == 2 || v.major == 3) {
      api = v.major == 2 ? open_v2(library) : open_v3(library);
      if (!api || !library.find("dnnl_memory_desc_get_size", api->size) ||
          (v.cpu_runtime == kRuntimeOpenMp && !library.find("omp_set_num_threads", api->set_threads)))
        reason = library.reason();
      else if (v.cpu_runtime != kRuntimeOpenMp && v.cpu_runtime != kRuntimeSequential)
        reason = "built on another runtime than OpenMP: its threads cannot be bound here";
    } else {
      reason = fmt::format("version {}: 2 and 3 are known here", v.major);
    }
    if (!reason.empty()) return;
    int status = api->engine_create(&api->engine, kCpu, 0);
    if (status == 0) status = api->stream_create(&api->stream, api->engine, kInOrder);
    if (status != 0) reason = fmt::format("no CPU engine: {}", status_text(status));
  }
};

}  // namespace

std::vector<Rival> onednn_rivals(const Problem& problem) {
  static auto& opened = *new std::map<std::string, OneDnn>;  // never ends: primitives are released through it
  OneDnn& dnn = opened[rival_folders()];
  std::vector<Rival> out;
  for (const bool winograd : {false, true}) {
    if (winograd && problem.op->name != "Conv") break;
    Rival rival;
    rival.name = dnn.name + (winograd ? " winograd" : "");
    rival.reason = dnn.reason;
    if (rival.reason.empty() && !dnn.api->set_threads && problem.threads > 1) rival.reason = "built without threads";
    if (rival.reason.empty()) {
      if (dnn.api->set_threads) dnn.api->set_threads(problem.threads);
      const Described described = Describer(*dnn.api, problem).describe(winograd);
      rival.reason = described.reason;
      if (rival.reason.empty()) {
        auto step = std::make_unique<Step>(*dnn.api, described.primitive, described.arguments, rival.reason);
        if (!step->implementation().empty()) rival.name += " " + step->implementation();
        if (rival.reason.empty()) rival.step = std::move(step);
      }
    }
    out.push_back(std::move(rival));
  }
  return out;
}

}  // namespace ridgeline
