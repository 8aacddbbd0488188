// Dim: an extent that may be an expression over symbols until it is bound. Always in normal form: a polynomial with
// integer coefficients over atoms (symbols, and floor divisions, maxima or minima that do not simplify), so that
// equality of text is equality of meaning for everything shape arithmetic does in practice.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/tensor.h"

namespace ridgeline {

using Bindings = std::map<std::string, int64_t>;  // symbol -> extent

struct DimAtom;

class Dim {
 public:
  Dim(int64_t value = 0) : constant_(value) {}
  static Dim symbol(const std::string& name);

  bool known() const { return terms_.empty(); }
  int64_t value() const { return constant_; }  // meaningful if known()
  bool is(int64_t value) const { return known() && constant_ == value; }
  std::string text() const;
  /// Throws Error{kUsage} that names the first unbound symbol.
  int64_t evaluate(const Bindings& bindings) const;
  /// Replaces the bound symbols, keeps the others.
  Dim bind(const Bindings& bindings) const;
  void collect_symbols(std::vector<std::string>& names) const;

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b);

  /// floor(a / b); exact cancellation where b divides every term. b known and 0 gives 0.
  friend Dim floor_div(const Dim& a, const Dim& b);
  friend Dim max(const Dim& a, const Dim& b);
  friend Dim min(const Dim& a, const Dim& b);
  friend Dim broadcast_atom(const Dim& a, const Dim& b);

 private:
  struct Term {
    int64_t coefficient;
    std::vector<std::shared_ptr<const DimAtom>> atoms;  // sorted by key
  };
  static Dim of_atom(std::shared_ptr<const DimAtom> atom);
  static std::string key(const Term& term);
  void add(const Term& term);
  int64_t constant_ = 0;
  std::vector<Term> terms_;  // sorted by key, coefficients not 0
};

inline Dim ceil_div(const Dim& a, const Dim& b) { return floor_div(a + b - Dim(1), b); }

using Shape = std::vector<Dim>;

bool known(const Shape& shape);
Extents extents(const Shape& shape);  // of a known shape
Extents evaluate(const Shape& shape, const Bindings& bindings);
Shape to_shape(std::span<const int64_t> extents);
std::string text(const Shape& shape);
Dim product(const Shape& shape);

/// Numpy broadcasting of two extents: sets `out` and returns true unless both are known, different and neither is 1.
/// An unknown one beside a known one other than 1 is taken to be equal to it; two different unknown ones give an
/// expression that is checked when they are bound.
bool broadcast(const Dim& a, const Dim& b, Dim& out);

}  // namespace ridgeline
