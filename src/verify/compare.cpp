#include "verify/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ridgeline {
namespace {

/// One unit in the last place of a number of this type near `value`.
double unit_in_last_place(DType dtype, double value) {
  const double magnitude = std::fabs(value);
  if (magnitude == 0 || !std::isfinite(magnitude)) return 0;
  return std::ldexp(info(dtype).epsilon, std::ilogb(magnitude));
}

bool is_close(const Tensor& y, const Tensor& right, int64_t k, const Closeness& c) {
  if (!is_float(right.dtype())) return y.i64(k) == right.i64(k);
  const double a = y.f64(k), b = right.f64(k);
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (c.signed_zero && b == 0 && std::signbit(a) != std::signbit(b)) return false;
  if (a == b) return true;
  if (std::isinf(a) || std::isinf(b)) return false;
  const double bound = c.atol + c.rtol * std::fabs(b);
  return std::fabs(a - b) <= std::max(bound, c.last_place ? unit_in_last_place(right.dtype(), b) : 0.0);
}

std::string place(const Extents& shape, int64_t flat) {
  Extents at(shape.size());
  for (size_t a = shape.size(); a-- > 0; flat /= shape[a]) at[a] = flat % shape[a];
  return text(std::span<const int64_t>(at));
}

std::string number(const Tensor& t, int64_t k) {
  return is_float(t.dtype()) ? fmt::format("{:.9g}", t.f64(k)) : fmt::format("{}", t.i64(k));
}

}  // namespace

double max_error(const Tensor& y, const Tensor& reference) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (y.dtype() != reference.dtype() || y.shape() != reference.shape()) return kInfinity;
  double worst = 0, largest = 0;
  for (int64_t k = 0; k < y.elements(); ++k) {
    const double a = y.f64(k), b = reference.f64(k);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (std::isnan(a) || std::isnan(b)) return kInfinity;
    if (std::isfinite(b)) largest = std::max(largest, std::fabs(b));
    if (a == b) continue;
    if (std::isinf(a) || std::isinf(b)) return kInfinity;
    worst = std::max(worst, std::fabs(a - b));
  }
  return worst / (largest == 0 ? 1 : largest);
}

std::string difference(const Tensor& y, const Tensor& right, const Closeness& closeness) {
  if (y.dtype() != right.dtype()) return fmt::format("type {}, right is {}", name(y.dtype()), name(right.dtype()));
  if (y.shape() != right.shape())
    return fmt::format("shape {}, right is {}", text(std::span<const int64_t>(y.shape())),
                       text(std::span<const int64_t>(right.shape())));
  int64_t wrong = 0, first = -1;
  for (int64_t k = 0; k < y.elements(); ++k) {
    if (is_close(y, right, k, closeness)) continue;
    if (first < 0) first = k;
    ++wrong;
  }
  if (wrong == 0) return {};
  return fmt::format("{} of {} differ, first at {}: {}, right is {}", wrong, y.elements(), place(y.shape(), first),
                     number(y, first), number(right, first));
}

}  // namespace ridgeline
