// Random problems: a sample of the schema with other extents, types, attributes, strides, constants and epilogues.
// Whatever infer refuses is thrown away and drawn again, so nothing here knows an operator.
#include <algorithm>
#include <map>

#include "ir/graph.h"
#include "ops/common.h"
#include "verify/check_parts.h"

namespace ridgeline {

namespace {

// Around the widths of vectors and blocks, and odd ones between.
constexpr int64_t kExtents[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11, 12, 13,  15,  16,  17,  19,  23,  24,
                                31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 96, 127, 128, 129, 200, 255, 257, 513};
constexpr std::string_view kFlags[] = {"keepdims",
                                       "exclusive",
                                       "reverse",
                                       "upper",
                                       "largest",
                                       "causal",
                                       "is_causal",
                                       "transA",
                                       "transB",
                                       "trans_a",
                                       "trans_b",
                                       "count_include_pad",
                                       "ceil_mode",
                                       "noop_with_empty_axes",
                                       "select_last_index",
                                       "fmod",
                                       "detect_negative",
                                       "detect_positive"};
constexpr DType kFloatTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
constexpr std::string_view kEpilogues[] = {"relu(v)",
                                           "v * sigmoid(v)",
                                           "v * 0.5 * erfc(-v * 0.70710678118654752)",
                                           "v * clamp(v / 6 + 0.5, 0, 1)",
                                           "clamp(v, 0, 6)",
                                           "sigmoid(cast_f32(cast_bf16(relu(v))))",
                                           "v + e1",
                                           "relu(v + e1)",
                                           "v * e1 + e2",
                                           "tanh(v) + e1 * 0.25",
                                           "select(v < 0, 0.1 * v, v)",
                                           "e1 - v"};
// After sums of integers; e1 is f32, e2 bytes.
constexpr std::string_view kIntegerEpilogues[] = {
    "cast_f32(v) * e1", "cast_u8(round(cast_f32(v) * e1 / 37.5) + 3)",
    "cast_i8(round(relu(fma(cast_f32(v), e1, 0.25)) / 21) + -5)",
    "cast_u8(clamp(round(cast_f32(v) * 0.0625) + 128, 7, 240))",
    "cast_i8(round(max(cast_f32(v) * e1 + (cast_f32(e2) - 7) * 0.7, 0) / 40))",
    "cast_u8(round((cast_f32(cast_u8(round(cast_f32(v) * e1 / 55) + 9)) - 9) * 1.5 / 3) + 100)",
    "cast_u8(cast_f32(v) * 0.01 + cast_f32(e2))", "cast_bf16(tanh(cast_f32(v) * 0.001) + e1)",
    "cast_u8(round(cast_f32(cast_bf16(relu(cast_f32(v) * 0.01))) / 0.3))",
    // HardSwish between two quantizations.
    "t0 = (cast_f32(cast_u8(round(cast_f32(v) * e1 / 90) + 128)) - 128) * 0.05; "
    "cast_u8(round(t0 * (cast_f32(cast_u8(round(clamp(t0 / 6 + 0.5, 0, 1) / 0.0039))) * 0.0039) / 0.027) + 14)",
    "select(cast_f32(v) < 0, 0.1 * cast_f32(v), cast_f32(v))"};
constexpr std::string_view kPrograms[] = {"relu(x0 * x1 + 0.5)",
                                          "x0 * sigmoid(x0)",
                                          "tanh(x0) - x1",
                                          "clamp(x0 * x1, -1, 1) + x2",
                                          "select(x0 < x1, x0, x1 * 0.5)",
                                          "x0 * 0.5 * erfc(-x0 * 0.70710678118654752) + x1",
                                          "exp(-abs(x0)) * x1",
                                          "sqrt(x0 * x0 + x1 * x1)",
                                          "(x0 - x1) / (1 + abs(x2))",
                                          "max(x0, x1) - min(x0, x1)",
                                          "softplus(x0) * x1 + x0 * x2",
                                          "x0 * x0 * x0 - 2 * x1",
                                          "log(1 + exp(-abs(x0)))"};

int64_t random_extent(Random& random) {
  const int64_t reach = random.chance(0.5) ? 10 : random.chance(0.7) ? 24 : int64_t(std::size(kExtents));
  return kExtents[random.below(reach)];
}

// Whole vectors and blocks: what kernels that refuse remainders want.
constexpr int64_t kWideExtents[] = {16, 32, 32, 48, 64};

// A limit that most problems keep far below, so that 20,000 take minutes; blocks larger than that need a few large
// ones.
struct Budget {
  int64_t elements, flops;
};
Budget random_budget(Random& random, bool wide) {
  if (wide) return {100'000, 8'000'000};
  if (random.chance(0.004)) return {1'000'000, 30'000'000};
  if (random.chance(0.06)) return {100'000, 2'000'000};
  return {10'000, 200'000};
}

bool is_content(const Operand& operand) { return bool(operand.constant); }

void change_types(Problem& p, Random& random, bool wide) {
  if (wide && random.chance(0.7)) return;
  const DType main = p.inputs[0].dtype;
  if (main != DType::kF32 && !is_integer(main)) return;
  const TypeSet allowed = p.op->inputs[0].types;
  DType to = random.pick(kFloatTypes);
  const bool fused = p.op == &elementwise_op();  // its functions have no meaning on integers
  if (!fused && (is_integer(main) || random.chance(0.12))) {
    constexpr DType kIntegerTypes[] = {DType::kI8,  DType::kI16, DType::kI32, DType::kI64, DType::kU8,
                                       DType::kU16, DType::kU32, DType::kU64, DType::kBool};
    to = random.pick(kIntegerTypes);
  }
  if (!contains(allowed, to)) return;
  for (Operand& operand : p.inputs) {
    if (operand.dtype == main && !is_content(operand)) operand.dtype = to;
  }
}

// Extents that were equal stay equal, or part in two groups of which infer judges.
void change_extents(Problem& p, Random& random, bool wide) {
  const bool split = random.chance(wide ? 0.8 : 0.4);
  std::map<std::pair<int64_t, int>, int64_t> to;
  const bool empty = random.chance(0.03);
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    Operand& operand = p.inputs[i];
    if (!operand.present() || is_content(operand)) continue;
    Extents shape = operand.shape();
    for (size_t a = 0; a < shape.size(); ++a) {
      if (shape[a] <= 1) continue;
      const int group = split ? int(shape.size() - a) : 0;
      const auto [at, fresh] = to.try_emplace({shape[a], group}, 0);
      if (fresh) {
        const bool stays = random.chance(!wide ? 0.25 : shape[a] <= 3 ? 0.6 : 0.2);
        at->second = stays ? shape[a] : wide && random.chance(0.6) ? random.pick(kWideExtents) : random_extent(random);
      }
      shape[a] = at->second;
    }
    operand.layout = Layout(shape);
  }
  if (!empty || to.empty()) return;
  const int64_t gone = std::next(to.begin(), random.below(int64_t(to.size())))->second;
  for (Operand& operand : p.inputs) {
    Extents shape = operand.shape();
    if (!is_content(operand)) std::replace(shape.begin(), shape.end(), gone, int64_t(0));
    if (!is_content(operand)) operand.layout = Layout(shape);
  }
}

// Elementwise: axes of one operand broadcast, or its leading axes left out.
void change_broadcast(Problem& p, Random& random) {
  if (!p.op->is_elementwise() || p.inputs.size() < 2 || !random.chance(0.5)) return;
  Operand& operand = p.inputs[size_t(random.below(int64_t(p.inputs.size())))];
  if (is_content(operand)) return;
  Extents shape = operand.shape();
  for (int64_t& extent : shape) {
    if (random.chance(0.4)) extent = 1;
  }
  while (!shape.empty() && random.chance(0.25)) shape.erase(shape.begin());
  operand.layout = Layout(shape);
}

void change_attributes(Problem& p, Random& random) {
  for (const AttributeSpec& spec : p.op->attributes) {
    if (!random.chance(0.3)) continue;
    if (spec.type == AttributeType::kInt && spec.name == "axis" && p.inputs[0].layout.rank() > 0) {
      const int64_t rank = p.inputs[0].layout.rank();
      p.attributes.set("axis", random.below(2 * rank) - rank);
    } else if (spec.type == AttributeType::kInt &&
               std::find(std::begin(kFlags), std::end(kFlags), spec.name) != std::end(kFlags)) {
      p.attributes.set(spec.name, random.below(2));
    } else if (spec.type == AttributeType::kFloat &&
               (spec.name == "alpha" || spec.name == "beta" || spec.name == "scale")) {
      constexpr double kNumbers[] = {0.5, 1.0, 0.125, 2.0, 0.75};
      p.attributes.set(spec.name, random.pick(kNumbers));
    } else if (spec.type == AttributeType::kInts && spec.name == "perm") {
      std::vector<int64_t> perm;
      for (int64_t a = 0; a < p.inputs[0].layout.rank(); ++a) perm.insert(perm.begin() + random.below(a + 1), a);
      p.attributes.set("perm", perm);
    }
  }
}

// A layout with the same shape: channels last, another order, room between rows, every other element, a broadcast axis.
Layout random_layout(const Extents& shape, Random& random, bool output) {
  const int rank = int(shape.size());
  if (rank == 0) return Layout(shape);
  const int64_t kind = random.below(output ? 4 : 5);
  if (kind == 0 && rank >= 3) return Layout::channels_last(shape);
  if (kind <= 1) {
    std::vector<int> order;
    for (int a = 0; a < rank; ++a) order.insert(order.begin() + random.below(a + 1), a);
    return Layout::ordered(shape, order);
  }
  Layout layout(shape);
  if (kind == 4) {
    layout.strides[size_t(random.below(rank))] = 0;
    return layout;
  }
  const int axis = int(random.below(rank));  // strides from this axis outwards grow
  const int64_t factor = kind == 2 ? 2 : 1, room = kind == 2 ? 0 : 1 + random.below(5);
  int64_t stride = 1;
  for (int a = rank - 1; a >= 0; --a) {
    if (a == axis) stride = stride * factor + room;
    layout.strides[size_t(a)] = stride;
    stride *= std::max<int64_t>(1, shape[size_t(a)]);
  }
  return layout;
}

// As a plan of images has it: all activations with the channels innermost. A contraction's second operand is weights.
// Two in five: kernels that take nothing else are compared about as often as the others.
bool make_channels_last(Problem& p, Random& random) {
  const int rank = p.inputs[0].layout.rank();
  if (rank < 3 || is_content(p.inputs[0]) || info(p.inputs[0].dtype).bits < 8 || !random.chance(0.4)) return false;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    Operand& operand = p.inputs[i];
    if (!operand.present() || is_content(operand)) continue;
    const bool activation = i == 0 || p.op->kind != OpKind::kContraction;
    if (activation && operand.layout.rank() == rank)
      operand.layout = Layout::channels_last(operand.shape());
    else
      operand.is_constant = i > 0 && !p.op->is_elementwise() && random.chance(0.7);
  }
  return true;
}

void change_layouts(Problem& p, Random& random, bool wide) {
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    Operand& operand = p.inputs[i];
    if (!operand.present() || is_content(operand) || operand.is_constant) continue;  // constants are row-major
    if (i > 0 && !p.op->is_elementwise() && random.chance(0.5))
      operand.is_constant = true;
    else if (!(wide && random.chance(0.8)) && info(operand.dtype).bits >= 8 &&
             random.chance(0.2))  // two to a byte: no strides
      operand.layout = random_layout(operand.shape(), random, false);
  }
}

std::string strides_text(const Layout& layout) {
  if (layout.is_row_major()) return "";
  return fmt::format(" out=~{}", fmt::join(layout.strides, "x"));
}

// As a plan has it: one number a channel, or a residual that lies as the output does.
std::string channel_operand(const Extents& shape, bool per_channel) {
  Extents one(shape.size(), 1);
  if (per_channel && shape.size() > 1) one[1] = shape[1];
  return ridgeline::text(per_channel ? one : shape) + (per_channel ? "!" : "~cl");
}

std::string random_epilogue(const Problem& p, Random& random, bool channels_last) {
  const bool integers = !is_float(p.output().dtype);
  std::string text = fmt::format(" epilogue='{}'", integers ? random.pick(kIntegerEpilogues) : random.pick(kEpilogues));
  const bool usual = channels_last && p.output().layout.rank() >= 3 && random.chance(0.6);
  for (const std::string_view name : {"e1", "e2"}) {
    // A program's operands are numbered without gaps: e2 alone has an e1 that nobody reads.
    if (text.find(name) == std::string::npos && !(integers && name == "e1" && text.find("e2") != std::string::npos))
      continue;
    const DType dtype = !integers            ? p.output().dtype
                        : name == "e1"       ? DType::kF32
                        : random.chance(0.5) ? DType::kU8
                                             : DType::kI8;
    Extents shape = p.output().shape();
    if (usual) {
      const bool per_channel = random.chance(integers ? (name == "e1" ? 0.9 : 0.1) : 0.5);
      text += fmt::format(" {}={}{}", name, ridgeline::name(dtype), channel_operand(shape, per_channel));
      continue;
    }
    for (int64_t& extent : shape) {
      if (random.chance(0.35)) extent = 1;
    }
    while (!shape.empty() && random.chance(0.3)) shape.erase(shape.begin());
    text += fmt::format(" {}={}{}", name, ridgeline::name(dtype), ridgeline::text(shape));
  }
  return text;
}

std::string keys(const std::string& text) {
  const size_t space = text.find(' ');
  return space == std::string::npos ? std::string() : text.substr(space + 1);
}

bool fits(const Problem& p, const Budget& budget) {
  int64_t elements = 0;
  for (const Operand& operand : p.inputs) elements += operand.elements();
  for (const Operand& operand : p.outputs) elements += operand.elements();
  const int64_t flops = p.op->is_elementwise() ? 0 : cost_of(p).flops;
  return elements <= budget.elements && flops <= budget.flops;
}

std::string sample_text(const OpSchema& op, Random& random) {
  const std::string sample(op.samples[int(random.below(op.samples.size()))]);
  if (&op != &elementwise_op() || random.chance(0.2)) return sample;
  const std::string program(random.pick(kPrograms));
  std::string text = fmt::format("x0=f32[2,3,65] program='{}'", program);
  for (const std::string_view extra : {"x1", "x2"}) {
    if (program.find(extra) != std::string::npos) text += fmt::format(" {}=f32[3,65]", extra);
  }
  return text;
}

// Throws whatever infer throws.
std::string draw(const OpSchema& op, const std::string& sample, const Budget& budget, Random& random, bool extents,
                 bool wide) {
  Problem p = parse_problem(op, sample);
  change_types(p, random, wide);
  if (extents) change_extents(p, random, wide);
  change_broadcast(p, random);
  if (!wide || random.chance(0.5)) change_attributes(p, random);
  const bool channels_last = make_channels_last(p, random);
  if (!channels_last) change_layouts(p, random, wide);
  if (!p.outputs.empty()) p.outputs[0].layout = Layout(p.output().shape());
  std::string text = keys(p.text());
  p = parse_problem(op, text);
  if (!fits(p, budget)) return {};
  const bool contracts = op.kind == OpKind::kContraction || op.kind == OpKind::kReduction;
  const bool integers = contracts && p.output().dtype == DType::kI32 && info(p.inputs[0].dtype).bits == 8;
  if (contracts && (integers || is_float(p.output().dtype)) && random.chance(integers ? 0.6 : 0.3))
    text += random_epilogue(p, random, channels_last);
  if (channels_last && p.output().layout.rank() >= 3 && info(p.output().dtype).bits >= 8)
    text += " out=~cl";
  else if (info(p.output().dtype).bits >= 8 && random.chance(0.15))
    text += strides_text(random_layout(p.output().shape(), random, true));
  parse_problem(op, text);
  return text;
}

}  // namespace

std::string random_problem(const OpSchema& op, Random& random, bool wide) {
  if (op.samples.empty()) return {};
  for (int attempt = 0; attempt < 12; ++attempt) {
    const std::string sample = sample_text(op, random);
    const Budget budget = random_budget(random, wide);
    try {
      const std::string text = draw(op, sample, budget, random, attempt < 9, wide);
      if (!text.empty()) return text;
    } catch (const Error&) {  // not a legal problem: draw again
    }
  }
  return {};
}

}  // namespace ridgeline
