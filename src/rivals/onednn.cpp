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
  Primitive primitive;
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
  Describer(const Api& api, const Problem& problem) : api_(api), p_(problem) {}
  Described describe(bool winograd);

 private:
  // `shape`: the operand's elements in other extents; `strides`: in another order.
  MemoryDesc plain(const Operand& operand, const Extents& shape, const Extents& strides) {
    MemoryDesc desc{};
    if (shape.empty() || shape.size() > size_t(kMostAxes) || type_of(operand.dtype) == 0)
      refuse("its tensors have 1 to 12 axes of f32, f16, bf16, i32, i8 or u8");
    else
      check(api_.strided(&desc, int(shape.size()), shape.data(), type_of(operand.dtype), strides.data()));
    return desc;
  }
  const MemoryDesc* add(int arg, int input, const Extents& shape, bool any, const Extents& strides) {
    const Operand& operand = input < 0 ? p_.output() : p_.input(input);
    const MemoryDesc desc = plain(operand, shape, strides);
    out_.primitive.arguments.push_back({arg, input, desc, desc});
    MemoryDesc& wanted = out_.primitive.arguments.back().wanted;
    if (any && out_.reason.empty())
      check(api_.tagged(&wanted, int(shape.size()), shape.data(), type_of(operand.dtype), kTagAny));
    return &wanted;
  }
  const MemoryDesc* add(int arg, int input, const Extents& shape, bool any = false) {
    return add(arg, input, shape, any, Layout(shape).strides);
  }
  const MemoryDesc* add(int arg, int input) {
    return add(arg, input, input < 0 ? p_.output().shape() : p_.input(input).shape());
  }
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

  const Api& api_;
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
  const MemoryDesc* const a_desc = add(kArgSrc, 0, a, false, a_strides);
  const MemoryDesc* const b_desc = add(kArgWeights, 1, b, p_.input(1).is_constant, b_strides);
  const MemoryDesc* const c_desc = add(kArgDst, -1, c);
  if (out_.reason.empty()) check(api_.matmul(&out_.primitive.op, a_desc, b_desc, nullptr, c_desc));
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
  Extents dilations = window.dilation;
  for (int64_t& d : dilations) --d;  // oneDNN counts the gaps
  const MemoryDesc* const x_desc = add(kArgSrc, 0, x, true);
  const MemoryDesc* const w_desc = add(kArgWeights, 1, w, true);
  const MemoryDesc* const b_desc = p_.has(2) ? add(kArgBias, 2) : nullptr;
  const MemoryDesc* const y_desc = add(kArgDst, -1, p_.output().shape(), true);
  if (out_.reason.empty())
    check(api_.convolution(&out_.primitive.op, kForwardInference, algorithm, x_desc, w_desc, b_desc, y_desc,
                           window.stride.data(), dilations.data(), window.begin.data(), window.end.data()));
  return true;
}

bool Describer::rows() {
  const std::string_view name = p_.op->name;
  const int rank = p_.input(0).layout.rank();
  if (name != "Softmax" && name != "LogSoftmax" && name != "LayerNormalization") return false;
  const int64_t axis = p_.integer("axis"), positive = axis < 0 ? axis + rank : axis;
  const MemoryDesc* const x = add(kArgSrc, 0);
  if (name != "LayerNormalization") {
    add(kArgDst, -1);
    if (out_.reason.empty())
      check((name == "Softmax" ? api_.softmax : api_.logsoftmax)(&out_.primitive.op, kForwardInference, x,
                                                                 int(positive)));
    return true;
  }
  if (positive != rank - 1) refuse("it normalizes the last axis alone");
  unsigned flags = kUseScale;
  add(kArgScale, 1);
  if (p_.has(2)) {
    add(kArgShift, 2);
    flags |= kUseShift;
  }
  add(kArgDst, -1);
  if (out_.reason.empty())
    check(api_.layer_norm(&out_.primitive.op, kForwardInference, x, nullptr, float(p_.number("epsilon")), flags));
  return true;
}

bool Describer::elementwise() {
  struct Known {
    std::string_view name;
    int algorithm;
    bool binary;
  };
  constexpr Known kKnown[] = {{"Relu", kRelu, false},
                              {"Tanh", kTanh, false},
                              {"Abs", kAbs, false},
                              {"Sqrt", kSqrt, false},
                              {"Exp", kExp, false},
                              {"Log", kLog, false},
                              {"SiLU", kSwish, false},
                              {"Swish", kSwish, false},
                              {"Gelu", kGeluErf, false},
                              {"Sigmoid", kLogistic, false},
                              {"HardSwish", kHardSwish, false},
                              {"Add", kBinaryAdd, true},
                              {"Mul", kBinaryMul, true},
                              {"Sub", kBinarySub, true},
                              {"Div", kBinaryDiv, true},
                              {"Max", kBinaryMax, true},
                              {"Min", kBinaryMin, true}};
  const auto* const known =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return k.name == p_.op->name; });
  if (known == std::end(kKnown)) return false;
  if (known->binary) {
    if (p_.op_inputs != 2) {
      refuse("two operands alone are timed");
      return true;
    }
    const Extents& y = p_.output().shape();
    Extents a = p_.input(0).shape(), b = p_.input(1).shape();
    a.insert(a.begin(), y.size() - a.size(), 1);
    b.insert(b.begin(), y.size() - b.size(), 1);
    const MemoryDesc* const a_desc = add(kArgSrc, 0, a);
    const MemoryDesc* const b_desc = add(kArgSrc1, 1, b);
    const MemoryDesc* const y_desc = add(kArgDst, -1);
    if (out_.reason.empty()) check(api_.binary(&out_.primitive.op, known->algorithm, a_desc, b_desc, y_desc));
    return true;
  }
  int algorithm = known->algorithm;
  if (p_.op->name == "Gelu" && p_.string("approximate") == "tanh") algorithm = kGeluTanh;
  const float alpha = p_.op->name == "Swish" ? float(p_.number("alpha")) : p_.op->name == "SiLU" ? 1.0f : 0.0f;
  const MemoryDesc* const x = add(kArgSrc, 0);
  add(kArgDst, -1);
  if (out_.reason.empty()) check(api_.eltwise(&out_.primitive.op, kForwardInference, algorithm, x, alpha, 0));
  return true;
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
  const MemoryDesc* const x_desc = add(kArgSrc, 0);
  const MemoryDesc* const y_desc = add(kArgDst, -1, y);
  if (out_.reason.empty()) check(api_.reduction(&out_.primitive.op, known->algorithm, x_desc, y_desc, 0, 0));
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
  add(kArgSrc, 0, p_.output().shape(), false, strides);
  add(kArgDst, -1);
  // `load` reads what is row-major in the output's extents: the operand is loaded as it lies, so both are the same.
  out_.primitive.is_reorder = true;
  return true;
}

Described Describer::describe(bool winograd) {
  out_.primitive.arguments.reserve(8);  // `add` gives addresses out
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
  Library library{{"libdnnl.so.2", "libdnnl.so"}, "libdnnl2"};
  Api api;
  std::string name = "onednn", reason;

  OneDnn() {
    reason = library.reason();
    if (!library.open()) return;
    bool all = library.find("dnnl_version", api.version);
#define RIDGELINE_FIND(member, name, parameters) all = all && library.find("dnnl_" #name, api.member);
    if (all && api.version()->major == 2) {
      RIDGELINE_ONEDNN_FUNCTIONS(RIDGELINE_FIND)
      all = all && library.find("dnnl_memory_desc_get_size", api.size);
    }
#undef RIDGELINE_FIND
    reason = library.reason();
    if (!all) return;
    const Version& v = *api.version();
    name = fmt::format("onednn {}.{}.{}", v.major, v.minor, v.patch);
    if (v.major != 2)
      reason = fmt::format("its interface is that of version {}; version 2 is known here (Debian's libdnnl2)", v.major);
    else if (v.cpu_runtime == kRuntimeOpenMp)
      reason = library.find("omp_set_num_threads", api.set_threads) ? "" : library.reason();
    else if (v.cpu_runtime != kRuntimeSequential)
      reason = "built on another runtime than OpenMP: its threads cannot be bound here";
    if (!reason.empty()) return;
    int status = api.engine_create(&api.engine, kCpu, 0);
    if (status == 0) status = api.stream_create(&api.stream, api.engine, kInOrder);
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
    if (rival.reason.empty() && !dnn.api.set_threads && problem.threads > 1) rival.reason = "built without threads";
    if (rival.reason.empty()) {
      if (dnn.api.set_threads) dnn.api.set_threads(problem.threads);
      const Described described = Describer(dnn.api, problem).describe(winograd);
      rival.reason = described.reason;
      if (rival.reason.empty()) {
        auto step = std::make_unique<Step>(dnn.api, described.primitive, rival.reason);
        if (!step->implementation().empty()) rival.name += " " + step->implementation();
        if (rival.reason.empty()) rival.step = std::move(step);
      }
    }
    out.push_back(std::move(rival));
  }
  return out;
}

}  // namespace ridgeline
