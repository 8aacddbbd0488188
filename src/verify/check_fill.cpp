// Inputs made so that a bug shows: distinct values, no zeros, magnitudes about 1; sometimes mixed signs, a wide range,
// small whole numbers whose sums are exact, or NaN, infinities and denormals sprinkled in.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/common.h"
#include "verify/check_parts.h"

namespace ridgeline {

namespace {

enum class Mode { kPositive, kMixed, kWide, kWhole, kSpecial };

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

double fraction(int64_t k, uint64_t salt) {
  const double x = double(k) * 0.61803398874989485 + double(salt % 1000003) * 0.7548776662466927;
  return x - std::floor(x);
}

double special(uint64_t bits, DType dtype) {
  const double values[] = {std::nan(""),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(),
                           0.0,
                           -0.0,
                           1e-40,
                           -3e-39,
                           info(dtype).largest,
                           -info(dtype).largest,
                           88.5,
                           -104.0,
                           700.0};
  return values[bits % std::size(values)];
}

Tensor fill_floats(const Operand& operand, Mode mode, Random random, bool positive) {
  Tensor t(operand.dtype, operand.shape());
  const uint64_t salt = random.next();
  for (int64_t k = 0; k < t.elements(); ++k) {
    const double f = fraction(k, salt);
    const uint64_t bits = random.next();
    double v = 0.5 + f;
    if (mode == Mode::kWide) v = std::exp2(10 * f - 5);
    if (mode == Mode::kWhole) v = double(1 + bits % 8);
    if (mode != Mode::kPositive && !positive && (bits >> 20) % 2) v = -v;
    if (mode == Mode::kSpecial && !positive && (bits >> 32) % 8 == 0) v = special(bits >> 40, operand.dtype);
    store_f64(t.dtype(), t.data(), k, v);
  }
  return t;
}

Tensor fill_integers(const Operand& operand, Mode mode, Random random, int64_t most) {
  Tensor t(operand.dtype, operand.shape());
  const bool is_signed = info(operand.dtype).is_signed;
  for (int64_t k = 0; k < t.elements(); ++k) {
    const uint64_t bits = random.next();
    int64_t v = 1 + int64_t(bits % uint64_t(most));
    if (mode == Mode::kWide && most > 8)
      v = int64_t(bits >> 8 | 1);  // wraps to the type; odd, so never 0
    else if (mode != Mode::kPositive && is_signed && (bits >> 40) % 2)
      v = -v;
    if (operand.dtype == DType::kBool) v = bits % 4 != 0;
    store_i64(t.dtype(), t.data(), k, v);
  }
  return t;
}

// Indices into `extent` along one axis: distinct along that axis as long as there are enough, some counted from the
// end.
Tensor fill_indices(const Operand& operand, int64_t extent, int axis, Random random, bool from_end = true) {
  Tensor t(operand.dtype, operand.shape());
  const std::vector<int64_t> strides = row_major_strides(operand.shape());
  const int64_t start = random.below(extent);
  for (int64_t k = 0; k < t.elements() && extent > 0; ++k) {
    const int64_t along = operand.shape().empty() ? 0 : k / strides[size_t(axis)] % operand.shape()[size_t(axis)];
    const int64_t index = (start + along) % extent;
    store_i64(t.dtype(), t.data(), k, from_end && random.chance(0.25) ? index - extent : index);
  }
  return t;
}

// Tuples for GatherND and ScatterND: distinct positions among those that the tuple addresses.
Tensor fill_tuples(const Operand& operand, const Extents& data, int64_t batch, Random random) {
  Tensor t(operand.dtype, operand.shape());
  const int64_t length = operand.shape().empty() ? 0 : operand.shape().back();
  int64_t total = 1;
  for (int64_t a = 0; a < length; ++a) total *= data[size_t(batch + a)];
  const int64_t start = random.below(total);
  for (int64_t n = 0; length > 0 && total > 0 && n < t.elements() / length; ++n) {
    int64_t position = (start + n) % total;
    for (int64_t a = length; a-- > 0;) {
      const int64_t extent = data[size_t(batch + a)];
      store_i64(t.dtype(), t.data(), n * length + a, position % extent - (random.chance(0.25) ? extent : 0));
      position /= extent;
    }
  }
  return t;
}

// Boxes about the size of an image of [N, C, H, W], some beyond its ends; five numbers name the image first.
Tensor fill_regions(const Operand& operand, const Extents& image, Random random) {
  Tensor t(operand.dtype, operand.shape());
  const int64_t columns = std::max<int64_t>(1, operand.shape().back());
  for (int64_t k = 0; k < t.elements(); ++k) {
    const int64_t at = k % columns - (columns - 4);  // x1, y1, x2, y2
    if (at < 0) {
      store_f64(t.dtype(), t.data(), k, double(random.below(std::max<int64_t>(1, image[0]))));
      continue;
    }
    const double extent = double(image[at % 2 == 0 ? 3 : 2]), part = double(random.below(64)) / 64;
    store_f64(t.dtype(), t.data(), k, at < 2 ? (part * 0.75 - 0.125) * extent : (part + 0.375) * extent);
  }
  return t;
}

// Places in what MaxUnpool makes, without its output_shape: distinct as long as there are enough.
Tensor fill_places(const Operand& operand, const Extents& made, Random random) {
  Tensor t(operand.dtype, operand.shape());
  const int64_t most = std::max<int64_t>(1, std::min(element_count(made), t.elements())), start = random.below(most);
  for (int64_t k = 0; k < t.elements(); ++k) store_i64(t.dtype(), t.data(), k, (start + k) % most);
  return t;
}

Tensor fill_one(const Problem& problem, int i, Mode mode, Random random) {
  const Operand& operand = problem.input(i);
  const OpSchema& op = *problem.op;
  const bool own = i < problem.op_inputs;
  const std::string_view name = own && op.inputs.size() ? op.inputs[std::min(i, op.inputs.size() - 1)].name : "e";
  if (name == "indices" && i == 1 && is_integer(operand.dtype)) {
    const Extents& data = problem.input(0).shape();
    if (contains(op.name, "ND")) return fill_tuples(operand, data, problem.integer("batch_dims"), random);
    const int axis = positive_axis(problem.integer("axis"), int(data.size()));
    return fill_indices(operand, data[size_t(axis)], std::min(axis, std::max(0, operand.layout.rank() - 1)), random);
  }
  if (name == "position_ids" && i == 3) return fill_indices(operand, problem.input(1).shape()[0], 0, random, false);
  if (op.domain == "com.microsoft" && name.ends_with("_ids")) {  // rows of the tables beside them
    const int table = op.name == "RotaryEmbedding" || name == "input_ids" ? 2 : name == "segment_ids" ? 4 : 3;
    return fill_indices(operand, problem.input(table).shape()[0], 0, random, false);
  }
  if (name == "write_indices" && (op.name == "TensorScatter" || op.name == "RotaryAppend")) {
    const bool scatter = op.name == "TensorScatter";
    const Extents &cache = problem.input(scatter ? 0 : 3).shape(), &rows = problem.input(scatter ? 1 : 0).shape();
    const size_t axis = scatter ? size_t(positive_axis(problem.integer("axis"), int(cache.size()))) : 2;
    return fill_indices(operand, cache[axis] - rows[scatter ? axis : 1] + 1, 0, random, false);
  }
  if (name == "batch_indices") return fill_indices(operand, problem.input(0).shape()[0], 0, random, false);
  if (name == "rois") return fill_regions(operand, problem.input(0).shape(), random);
  if (op.name == "MaxUnpool" && i == 1) return fill_places(operand, problem.output().shape(), random);
  if (op.family == "loss" && i == 1)
    return fill_indices(operand, problem.input(0).shape()[1], 0, random, false);  // classes
  if (op.family == "recurrent" && name == "sequence_lens") {
    const int64_t steps = problem.input(0).shape()[problem.integer("layout") == 1 ? 1 : 0];
    return fill_indices(operand, steps + 1, 0, random, false);
  }
  if (op.family == "recurrent" && (i == 1 || i == 2)) {
    // Rows whose absolute values add up to at most 0.75: a step then shrinks the differences between states. With rows
    // as large as others the states of 40 cells are chaotic, and the last bit of the first step is the sign of the
    // twentieth.
    Tensor t = fill_floats(operand, mode, random, false);
    const double by = 0.5 / double(std::max<int64_t>(1, operand.shape().back()));
    for (int64_t k = 0; k < t.elements(); ++k)
      store_f64(t.dtype(), t.data(), k, t.f64(k) * (mode == Mode::kWhole ? by / 8 : by));
    return t;
  }
  if (is_float(operand.dtype)) {
    if (name.ends_with("_scale")) {
      Tensor t = fill_floats(operand, Mode::kPositive, random, true);
      for (int64_t k = 0; k < t.elements(); ++k) store_f64(t.dtype(), t.data(), k, t.f64(k) / 16);
      return t;
    }
    return fill_floats(operand, mode, random, contains(name, "var"));
  }
  int64_t most = 13;
  if (name == "sequence_lens" || contains(name, "seqlens"))
    most = std::max<int64_t>(1, problem.input(0).layout.shape[size_t(problem.integer("time_axis"))]);
  if (op.name == "Pow" || contains(name, "zero_point")) most = 3;
  const bool counted = contains(name, "lens") || name == "indices" || op.name == "BitShift" || op.name == "Pow";
  return fill_integers(operand, counted ? Mode::kPositive : mode, random, most);
}

// At least so many elements of the output are sums of other terms: along a stride of 0 an operand repeats itself.
int64_t independent_results(const Problem& problem) {
  int64_t most_repeated = 1;
  for (const Operand& operand : problem.inputs) {
    int64_t repeated = 1;
    for (size_t axis = 0; axis < operand.layout.strides.size(); ++axis)
      if (operand.layout.strides[axis] == 0) repeated *= std::max<int64_t>(1, operand.layout.shape[axis]);
    most_repeated = std::max(most_repeated, repeated);
  }
  return problem.output().elements() / most_repeated;
}

}  // namespace

std::vector<Tensor> fill_inputs(const Problem& problem, uint64_t seed) {
  Random random(seed * 0x2545f4914f6cdd1du + 17);
  const int64_t draw = random.below(20);
  Mode mode = draw < 5    ? Mode::kPositive
              : draw < 11 ? Mode::kMixed
              : draw < 15 ? Mode::kWide
              : draw < 17 ? Mode::kWhole
                          : Mode::kSpecial;
  // Sums of infinities depend on the order; a result that cancels has no scale to measure by.
  const bool any = problem.op->is_elementwise() ||
                   (problem.op->tolerance.kind == Tolerance::Kind::kExact && !problem.has_epilogue());
  if (mode == Mode::kSpecial && !any) mode = Mode::kMixed;
  const bool sums = problem.op->tolerance.kind == Tolerance::Kind::kReduction ||
                    problem.op->tolerance.kind == Tolerance::Kind::kContraction;
  if (sums && mode == Mode::kWide) mode = Mode::kMixed;
  if (sums && independent_results(problem) < 16 && mode == Mode::kMixed) mode = Mode::kPositive;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const Operand& operand = problem.inputs[i];
    const Random own(random.next());
    if (!operand.present())
      inputs.push_back({});
    else
      inputs.push_back(operand.constant ? operand.constant : fill_one(problem, int(i), mode, own));
  }
  return inputs;
}

}  // namespace ridgeline
