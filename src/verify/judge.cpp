// What a kernel's result may differ by, from the schema's Tolerance and the program's error analysis.
#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/check_parts.h"

namespace ridgeline {

namespace {

double largest_finite(const RefArray& array) {
  double largest = 0;
  for (double v : array.f) {
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  }
  return largest;
}

// As the output's type would store it.
double rounded(DType dtype, double value) {
  uint64_t bits = 0;
  store_f64(dtype, &bits, 0, value);
  return load_f64(dtype, &bits, 0);
}

// Terms that make one result: from the FLOPs of contractions, from the extents of reductions.
double terms_of(const Problem& problem) {
  const int64_t outputs = std::max<int64_t>(1, problem.output().elements());
  if (problem.op->kind == OpKind::kContraction && problem.op->cost)
    return std::max<double>(1, double(problem.op->cost(problem).flops) / 2 / double(outputs));
  double terms = 1;
  for (int i = 0; i < problem.op_inputs && i < 1; ++i) {
    terms = std::max(terms, double(problem.input(i).elements()) / double(outputs));
    for (int64_t extent : problem.input(i).shape()) terms = std::max(terms, double(extent));
  }
  return terms;
}

// Largest 2-norm of a row (along the last axis).
double largest_row(const Tensor& t) {
  const int64_t length = t.shape().empty() ? 1 : t.shape().back();
  double largest = 0;
  for (int64_t first = 0; length > 0 && first < t.elements(); first += length) {
    double sum = 0;
    for (int64_t k = first; k < first + length; ++k) sum += t.f64(k) * t.f64(k);
    if (std::isfinite(sum)) largest = std::max(largest, std::sqrt(sum));
  }
  return largest;
}

// Attention puts its scores through exp, which turns their absolute error into a relative one, of the weights above the
// bar and of their sum below it alike. A score is a sum of `depth` terms, whose absolute values add up to at most
// |q| |k| scale (Cauchy and Schwarz); it is rounded when the mask is added and when the maximum is subtracted.
double exponent_error(const Problem& problem, const std::vector<Tensor>& inputs) {
  if (problem.op->family != "attention" || problem.op_inputs < 3 || !is_float(problem.input(0).dtype)) return 0;
  if (problem.op->domain == "com.microsoft") return 0;  // other operands; spelled in the standard's, which is judged
  const double accumulator = info(info(problem.input(0).dtype).accumulator).epsilon / 2;
  double masked = 0;
  if (problem.has(3) && is_float(problem.input(3).dtype)) {
    for (int64_t k = 0; k < inputs[3].elements(); ++k)
      if (std::isfinite(inputs[3].f64(k))) masked = std::max(masked, std::fabs(inputs[3].f64(k)));
  }
  double depth = double(std::max<int64_t>(1, problem.input(0).shape().back()));
  // The standard's: heads may be packed into the last axis (a row of all heads is no shorter than one of them), the
  // scale may be left out.
  const bool standard = problem.op->name == "Attention";
  if (standard && problem.input(0).shape().size() == 3) depth /= double(problem.integer("q_num_heads"));
  const double scale =
      standard && !problem.attributes.has("scale") ? 1 / std::sqrt(std::max(1.0, depth)) : problem.number("scale");
  double longest = largest_row(inputs[1]);
  if (standard && problem.has(4)) longest = std::max(longest, largest_row(inputs[4]));
  const double score = largest_row(inputs[0]) * longest * std::fabs(scale);
  return 2 * accumulator * (4 * std::sqrt(depth) * score + 3 * (score + masked));
}

// A normalization divides what is left of a value, its row's mean subtracted, by the row's deviation: where that is
// small beside the values, their roundings come out enlarged. With d what an x - mean is off by, y = s (x - mean) / v
// is off by at most |s| d / v (1 + |x - mean| / v), the second part by way of v. In d: a rounding of x + residual, one
// of the mean, sqrt(n) of the mean's sum. By row of the operators that have a fast kernel; empty for others.
std::vector<double> deviation_errors(const Problem& problem, const std::vector<Tensor>& inputs) {
  const std::string_view name = problem.op->name;
  const Extents& shape = problem.input(0).shape();
  // SkipLayerNormalization (input, skip, gamma, beta, bias) adds up to three terms over the last axis.
  const bool skips = name == "SkipLayerNormalization";
  const bool added = skips || name == "AddLayerNormalization";
  int64_t rows = 1;
  if (skips) {
    rows = element_count(std::span(shape).first(shape.size() - 1));
  } else if (added || name == "LayerNormalization") {
    const int64_t axis = problem.integer("axis");
    rows = element_count(std::span(shape).first(size_t(axis < 0 ? axis + int64_t(shape.size()) : axis)));
  } else if (name == "InstanceNormalization" || name == "GroupNormalization") {
    rows = shape[0] * (name == "GroupNormalization" ? problem.integer("num_groups") : shape[1]);
  } else {
    return {};
  }
  if (problem.input(0).elements() == 0 || (added && problem.input(1).shape() != shape)) return {};
  const Tensor third = skips && problem.has(4) ? inputs[4] : Tensor();
  double scale = 0;
  const Tensor& scales = inputs[added ? 2 : 1];
  for (int64_t k = 0; k < scales.elements(); ++k) scale = std::max(scale, std::fabs(scales.f64(k)));
  const int64_t n = problem.input(0).elements() / rows;
  const double accumulator = info(info(problem.input(0).dtype).accumulator).epsilon / 2;
  std::vector<double> errors, row(static_cast<size_t>(n));
  for (int64_t first = 0; first < rows * n; first += n) {
    double mean = 0, variance = 0, largest = 0, farthest = 0;
    for (int64_t k = 0; k < n; ++k) {
      const double x = inputs[0].f64(first + k), residual = added ? inputs[1].f64(first + k) : 0;
      const double bias = third ? third.f64(k) : 0;
      row[size_t(k)] = x + residual + bias;
      mean += row[size_t(k)] / double(n);
      largest = std::max(largest, std::fabs(x) + std::fabs(residual) + std::fabs(bias));
    }
    for (double value : row) {
      variance += (value - mean) * (value - mean) / double(n);
      farthest = std::max(farthest, std::fabs(value - mean));
    }
    const double inverse = 1 / std::sqrt(variance + problem.number("epsilon"));
    const double d = (2 + std::sqrt(double(n))) * accumulator * largest;
    errors.push_back(scale * d * inverse * (1 + farthest * inverse));
  }
  return errors;
}

}  // namespace

Judge::Judge(const Problem& problem, const std::vector<Tensor>& inputs, std::vector<RefArray> exact,
             const RefArray* accumulators)
    : problem_(problem), inputs_(inputs), exact_(std::move(exact)) {
  if (accumulators) accumulators_ = *accumulators;
  for (size_t o = 0; o < exact_.size(); ++o)
    scale_.push_back(largest_finite(o == 0 && accumulators ? accumulators_ : exact_[o]));
  if (!problem.op->is_elementwise()) terms_ = terms_of(problem);
  if (const double relative = exponent_error(problem, inputs); relative > 0) {
    double largest = 0;  // a result is a mean of values: where they cancel, its error is theirs
    for (int64_t k = 0; k < inputs[2].elements(); ++k)
      if (std::isfinite(inputs[2].f64(k))) largest = std::max(largest, std::fabs(inputs[2].f64(k)));
    exponent_error_ = relative * largest;
  }
  deviation_errors_ = deviation_errors(problem, inputs);
}

double Judge::own_tolerance(int o, int64_t k, double value, double amplification) const {
  const Tolerance& t = problem_.op->tolerance;
  const DType dtype = problem_.output(o).dtype;
  if (!is_float(dtype)) return t.kind == Tolerance::Kind::kElementwise ? t.ulps : 0;
  const double unit = info(dtype).epsilon / 2, accumulator = info(info(dtype).accumulator).epsilon / 2;
  switch (t.kind) {
    case Tolerance::Kind::kExact:
      return 0;
    case Tolerance::Kind::kElementwise:
      return t.ulps * 2 * unit * std::fabs(value);
    default:
      break;
  }
  const double stored = t.ulps * unit * scale_[size_t(o)];
  double summed = 4 * std::sqrt(terms_) * accumulator * amplification * scale_[size_t(o)];
  if (o == 0 && !deviation_errors_.empty()) {
    const int64_t n = problem_.output().elements() / int64_t(deviation_errors_.size());
    summed = std::max(summed, deviation_errors_[size_t(k / n)]);
  }
  return stored + summed + (o == 0 ? exponent_error_ : 0);
}

double Judge::program_tolerance(int o, int64_t k, double amplification) const {
  const Program& program = *problem_.program;
  std::vector<ScalarValue> x(program.inputs.size());
  std::vector<double> error(program.inputs.size(), 0);
  size_t next = 0;
  const Extents& shape = exact_[0].shape;
  Extents at(shape.size());
  int64_t rest = k;
  for (size_t a = shape.size(); a-- > 0; rest /= shape[a]) at[a] = rest % shape[a];
  if (problem_.has_epilogue() && !is_float(program.inputs[0].dtype)) {
    x[0].i = std::llround(accumulators_.number(k));  // integers are exact
    next = 1;
  } else if (problem_.has_epilogue()) {
    x[0].f = accumulators_.number(k);
    error[0] = own_tolerance(0, k, x[0].f, amplification);
    // Beyond the accumulator's range it is an infinity, and the program of one is another number or none.
    const DType accumulator = info(problem_.output().dtype).accumulator;
    if (is_float(accumulator) && std::fabs(x[0].f) + error[0] >= info(accumulator).largest)
      return std::numeric_limits<double>::infinity();
    next = 1;
  }
  for (size_t i = problem_.has_epilogue() ? size_t(problem_.op_inputs) : 0; i < inputs_.size() && next < x.size();
       ++i) {
    if (!inputs_[i]) continue;
    const int64_t j = broadcast_index(inputs_[i].shape(), at);
    if (is_float(inputs_[i].dtype()))
      x[next++].f = inputs_[i].f64(j);
    else
      x[next++].i = inputs_[i].i64(j);
  }
  const double ulps =
      std::max(4.0, problem_.op->tolerance.kind == Tolerance::Kind::kElementwise ? problem_.op->tolerance.ulps : 0);
  return program_error(program, x, error, ulps)[size_t(o)];
}

double Judge::tolerance(int o, int64_t k, double amplification) const {
  if (problem_.program && o < int(problem_.program->outputs.size())) return program_tolerance(o, k, amplification);
  return own_tolerance(o, k, exact_[size_t(o)].number(k), amplification);
}

std::string Judge::reject(int o, int64_t k, double got, double amplification) const {
  const DType dtype = problem_.output(o).dtype;
  const double exact = exact_[size_t(o)].f[size_t(k)], want = rounded(dtype, exact);
  if (got == want || (std::isnan(got) && std::isnan(want))) return {};
  const double allowed = tolerance(o, k, amplification);
  if (std::isinf(allowed) || std::fabs(got - exact) <= allowed) return {};
  // Just below overflow, just above: either may be rounded to infinity.
  if (std::isinf(got) && std::signbit(got) == std::signbit(exact) && std::fabs(exact) + allowed >= info(dtype).largest)
    return {};
  if (std::isinf(want) && std::signbit(got) == std::signbit(exact) && std::fabs(got) + allowed >= info(dtype).largest)
    return {};
  return fmt::format("output {} element {}: got {:.9g}, wanted {:.9g}, tolerance {:.3g}", o, k, got, exact, allowed);
}

std::string Judge::reject(int o, int64_t k, int64_t got) const {
  const DType dtype = problem_.output(o).dtype;
  uint64_t bits = 0;
  store_i64(dtype, &bits, 0, exact_[size_t(o)].i[size_t(k)]);  // wraps, as the output did
  const int64_t want = load_i64(dtype, &bits, 0);
  if (got == want) return {};
  const double allowed = tolerance(o, k, 1);
  if (std::fabs(double(got) - double(want)) <= allowed) return {};
  return fmt::format("output {} element {}: got {}, wanted {}, tolerance {:.3g}", o, k, got, want, allowed);
}

}  // namespace ridgeline
