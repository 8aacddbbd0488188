#include "ir/dim.h"

#include <algorithm>
#include <set>

namespace ridgeline {

// A symbol, or floor(a / b), max(a, b), min(a, b), broadcast(a, b) that does not simplify.
struct DimAtom {
  enum class Kind { kSymbol, kFloorDiv, kMax, kMin, kBroadcast };
  Kind kind;
  std::string key;  // canonical text
  Dim a, b;
};

namespace {

// Expressions of real models have a few terms; a file can nest them so that text or terms double with each node.
constexpr size_t kMostTerms = 64, kMostFactors = 16, kMostText = 2048;
[[noreturn]] void too_long() {
  fail(ErrorCode::kUnsupported,
       "unsupported: an expression of symbolic dimensions grows too long; give the model fixed ones");
}
std::string bounded(std::string key) {
  if (key.size() > kMostText) too_long();
  return key;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) fail(ErrorCode::kBadModel, "an extent overflows 64 bits: {} * {}", a, b);
  return r;
}
int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) fail(ErrorCode::kBadModel, "an extent overflows 64 bits: {} + {}", a, b);
  return r;
}
int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return checked_mul(a, -1);  // the lowest number has no opposite
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

}  // namespace

Dim Dim::symbol(const std::string& name) {
  return of_atom(std::make_shared<DimAtom>(DimAtom{DimAtom::Kind::kSymbol, name, 0, 0}));
}

Dim Dim::of_atom(std::shared_ptr<const DimAtom> atom) {
  Dim d;
  d.terms_.push_back({1, {std::move(atom)}});
  return d;
}

std::string Dim::key(const Term& term) {
  std::string text;
  for (const auto& atom : term.atoms) text += (text.empty() ? "" : "*") + atom->key;
  return text;
}

void Dim::add(const Term& term) {
  if (term.coefficient == 0) return;
  const std::string k = key(term);
  auto at =
      std::lower_bound(terms_.begin(), terms_.end(), k, [](const Term& t, const std::string& s) { return key(t) < s; });
  if (at == terms_.end() || key(*at) != k) {
    if (terms_.size() >= kMostTerms || term.atoms.size() > kMostFactors) too_long();
    terms_.insert(at, term);
    return;
  }
  at->coefficient = checked_add(at->coefficient, term.coefficient);
  if (at->coefficient == 0) terms_.erase(at);
}

std::string Dim::text() const {
  std::string out;
  for (const Term& term : terms_) {
    if (!out.empty())
      out += term.coefficient < 0 ? "-" : "+";
    else if (term.coefficient < 0)
      out += "-";
    const uint64_t magnitude = term.coefficient < 0 ? -uint64_t(term.coefficient) : uint64_t(term.coefficient);
    if (magnitude != 1) out += fmt::format("{}*", magnitude);
    out += key(term);
  }
  if (out.empty()) return fmt::format("{}", constant_);
  if (constant_ != 0) out += fmt::format("{:+}", constant_);
  return out;
}

Dim Dim::bind(const Bindings& bindings) const {
  if (known()) return *this;
  Dim sum(constant_);
  for (const Term& term : terms_) {
    Dim product(term.coefficient);
    for (const auto& atom : term.atoms) {
      switch (atom->kind) {
        case DimAtom::Kind::kSymbol: {
          const auto it = bindings.find(atom->key);
          product = product * (it == bindings.end() ? of_atom(atom) : Dim(it->second));
          break;
        }
        case DimAtom::Kind::kFloorDiv:
          product = product * floor_div(atom->a.bind(bindings), atom->b.bind(bindings));
          break;
        case DimAtom::Kind::kMax:
          product = product * max(atom->a.bind(bindings), atom->b.bind(bindings));
          break;
        case DimAtom::Kind::kMin:
          product = product * min(atom->a.bind(bindings), atom->b.bind(bindings));
          break;
        case DimAtom::Kind::kBroadcast: {
          Dim joined;
          const Dim a = atom->a.bind(bindings), b = atom->b.bind(bindings);
          if (!broadcast(a, b, joined))
            fail(ErrorCode::kBadInput,
                 "with these dimensions {} ({}) and {} ({}) would have to broadcast: they must be equal or one of them "
                 "1",
                 atom->a.text(), a.text(), atom->b.text(), b.text());
          product = product * joined;
          break;
        }
      }
    }
    sum = sum + product;
  }
  return sum;
}

int64_t Dim::evaluate(const Bindings& bindings) const {
  if (known()) return constant_;
  const Dim bound = bind(bindings);
  if (!bound.known()) {
    std::vector<std::string> open;
    bound.collect_symbols(open);
    fail(ErrorCode::kUsage, "the dimension '{}' is not bound: give it with --dim {}=N", open.front(), open.front());
  }
  return bound.constant_;
}

void Dim::collect_symbols(std::vector<std::string>& names) const {
  for (const Term& term : terms_) {
    for (const auto& atom : term.atoms) {
      if (atom->kind != DimAtom::Kind::kSymbol) {
        atom->a.collect_symbols(names);
        atom->b.collect_symbols(names);
      } else if (std::find(names.begin(), names.end(), atom->key) == names.end()) {
        names.push_back(atom->key);
      }
    }
  }
}

Dim operator+(const Dim& a, const Dim& b) {
  Dim sum = a;
  sum.constant_ = checked_add(a.constant_, b.constant_);
  for (const Dim::Term& term : b.terms_) sum.add(term);
  return sum;
}

Dim operator-(const Dim& a, const Dim& b) { return a + b * Dim(-1); }

Dim operator*(const Dim& a, const Dim& b) {
  Dim product(checked_mul(a.constant_, b.constant_));
  for (const Dim::Term& term : a.terms_) product.add({checked_mul(term.coefficient, b.constant_), term.atoms});
  for (const Dim::Term& term : b.terms_) product.add({checked_mul(term.coefficient, a.constant_), term.atoms});
  for (const Dim::Term& x : a.terms_) {
    for (const Dim::Term& y : b.terms_) {
      Dim::Term term{checked_mul(x.coefficient, y.coefficient), x.atoms};
      term.atoms.insert(term.atoms.end(), y.atoms.begin(), y.atoms.end());
      std::sort(term.atoms.begin(), term.atoms.end(), [](const auto& p, const auto& q) { return p->key < q->key; });
      product.add(term);
    }
  }
  return product;
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.constant_ != b.constant_ || a.terms_.size() != b.terms_.size()) return false;
  for (size_t i = 0; i < a.terms_.size(); ++i) {
    if (a.terms_[i].coefficient != b.terms_[i].coefficient || Dim::key(a.terms_[i]) != Dim::key(b.terms_[i]))
      return false;
  }
  return true;
}

Dim floor_div(const Dim& a, const Dim& b) {
  if (b.is(1)) return a;
  if (a.known() && b.known()) return floor_divide(a.constant_, b.constant_);
  if (a == b) return 1;
  // Exact cancellation: b is one monomial (or a number) that divides every term of a.
  const bool monomial = b.known() ? b.constant_ != 0 : b.terms_.size() == 1 && b.constant_ == 0;
  if (monomial) {
    const int64_t divisor = b.known() ? b.constant_ : b.terms_[0].coefficient;
    if (divisor == -1) return floor_div(a * Dim(-1), b * Dim(-1));
    const std::vector<std::shared_ptr<const DimAtom>> none;
    const auto& divisor_atoms = b.known() ? none : b.terms_[0].atoms;
    bool exact = divisor_atoms.empty() ? a.constant_ % divisor == 0 : a.constant_ == 0;
    Dim quotient(divisor_atoms.empty() && exact ? a.constant_ / divisor : 0);
    for (const Dim::Term& term : a.terms_) {
      Dim::Term rest{term.coefficient, term.atoms};
      for (const auto& atom : divisor_atoms) {
        const auto it =
            std::find_if(rest.atoms.begin(), rest.atoms.end(), [&](const auto& x) { return x->key == atom->key; });
        if (it == rest.atoms.end()) {
          exact = false;
          break;
        }
        rest.atoms.erase(it);
      }
      if (!exact || rest.coefficient % divisor != 0) {
        exact = false;
        break;
      }
      rest.coefficient /= divisor;
      if (rest.atoms.empty())
        quotient = quotient + Dim(rest.coefficient);
      else
        quotient.add(rest);
    }
    if (exact) return quotient;
  }
  return Dim::of_atom(std::make_shared<DimAtom>(
      DimAtom{DimAtom::Kind::kFloorDiv, bounded(fmt::format("floor(({})/({}))", a.text(), b.text())), a, b}));
}

Dim max(const Dim& a, const Dim& b) {
  if (a == b) return a;
  if (a.known() && b.known()) return std::max(a.constant_, b.constant_);
  const bool swap = b.text() < a.text();
  const Dim &x = swap ? b : a, &y = swap ? a : b;
  return Dim::of_atom(std::make_shared<DimAtom>(
      DimAtom{DimAtom::Kind::kMax, bounded(fmt::format("max({},{})", x.text(), y.text())), x, y}));
}

Dim min(const Dim& a, const Dim& b) {
  if (a == b) return a;
  if (a.known() && b.known()) return std::min(a.constant_, b.constant_);
  const bool swap = b.text() < a.text();
  const Dim &x = swap ? b : a, &y = swap ? a : b;
  return Dim::of_atom(std::make_shared<DimAtom>(
      DimAtom{DimAtom::Kind::kMin, bounded(fmt::format("min({},{})", x.text(), y.text())), x, y}));
}

bool known(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d.known(); });
}

Extents extents(const Shape& shape) {
  Extents out;
  for (const Dim& d : shape) out.push_back(d.value());
  return out;
}

Extents evaluate(const Shape& shape, const Bindings& bindings) {
  Extents out;
  for (const Dim& d : shape) out.push_back(d.evaluate(bindings));
  return out;
}

Shape to_shape(std::span<const int64_t> extents) { return Shape(extents.begin(), extents.end()); }

std::string text(const Shape& shape) {
  std::string out = "[";
  for (const Dim& d : shape) out += (out.size() > 1 ? "," : "") + d.text();
  return out + "]";
}

Dim product(const Shape& shape) {
  Dim p = 1;
  for (const Dim& d : shape) p = p * d;
  return p;
}

Dim broadcast_atom(const Dim& a, const Dim& b) {
  return Dim::of_atom(std::make_shared<DimAtom>(
      DimAtom{DimAtom::Kind::kBroadcast, bounded(fmt::format("broadcast({},{})", a.text(), b.text())), a, b}));
}

bool broadcast(const Dim& a, const Dim& b, Dim& out) {
  if (a == b || b.is(1)) {
    out = a;
    return true;
  }
  if (a.is(1)) {
    out = b;
    return true;
  }
  if (a.known() && b.known()) return false;
  if (a.known()) {
    out = a;
    return true;
  }
  if (b.known()) {
    out = b;
    return true;
  }
  const bool swap = b.text() < a.text();
  const Dim &x = swap ? b : a, &y = swap ? a : b;
  out = broadcast_atom(x, y);
  return true;
}

}  // namespace ridgeline
