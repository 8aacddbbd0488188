// What declarations of operators share: the one-line forms of elementwise operators, and small pieces of shape
// arithmetic.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/infer.h"
#include "ir/op_schema.h"
#include "ir/problem.h"
#include "ir/reference.h"

namespace ridgeline {

using AttributeType = AttributeSpec::Type;
inline constexpr auto kRequired = AttributeSpec::Presence::kRequired;

inline constexpr std::string_view kNoGradientZero = "piecewise constant: the derivative is zero almost everywhere";
inline constexpr std::string_view kNoGradientDiscrete = "the result is of an integer or bool type";

/// An elementwise schema from which `unary` and the others start; chain the setters: `unary(...).with(...)`.
struct Elementwise {
  OpSchema schema;

  constexpr Elementwise& attributes(StaticList<AttributeSpec, 24> list) { return schema.attributes = list, *this; }
  constexpr Elementwise& domain(std::string_view domain) { return schema.domain = domain, *this; }
  constexpr Elementwise& versions(StaticList<int, 16> list) { return schema.versions = list, *this; }
  constexpr Elementwise& samples(StaticList<std::string_view, 24> list) { return schema.samples = list, *this; }
  constexpr Elementwise& no_gradient(std::string_view why) { return schema.no_gradient = why, *this; }
  constexpr Elementwise& result(DType dtype) { return schema.result = dtype, *this; }
  constexpr Elementwise& ulps(double ulps) {
    schema.tolerance = ulps == 0 ? Tolerance::exact() : Tolerance::elementwise(ulps);
    return *this;
  }
  constexpr operator OpSchema() const { return schema; }
};

constexpr Elementwise elementwise(std::string_view name, StaticList<Expression, 3> expressions, std::string_view doc,
                                  StaticList<InputSpec, 16> inputs) {
  Elementwise e;
  e.schema.name = name;
  e.schema.family = "elementwise";
  e.schema.kind = OpKind::kElementwise;
  e.schema.doc = doc;
  e.schema.expressions = expressions;
  e.schema.inputs = inputs;
  e.schema.outputs = {{"output"}};
  e.schema.infer = infer_elementwise;
  e.schema.tolerance = Tolerance::elementwise(4);
  return e;
}

/// The dtype that default samples use, as text before "[".
constexpr bool has_floats(TypeSet types) { return contains(types, DType::kF32); }

constexpr Elementwise unary(std::string_view name, StaticList<Expression, 3> expressions, TypeSet types,
                            std::string_view doc) {
  Elementwise e = elementwise(name, expressions, doc, {{"x", types}});
  if (has_floats(types)) {
    e.samples({"x=f32[2,3,65]", "x=f32[]", "x=f32[3,0,2]", "x=f16[7,5]"});
  } else if (contains(types, DType::kI32)) {
    e.samples({"x=i32[2,3,65]", "x=i64[]", "x=u8[0,4]"}).no_gradient(kNoGradientDiscrete);
  } else {
    e.samples({"x=bool[2,3,65]", "x=bool[]"}).no_gradient(kNoGradientDiscrete);
  }
  return e;
}
constexpr Elementwise unary(std::string_view name, std::string_view expression, TypeSet types, std::string_view doc) {
  return unary(name, StaticList<Expression, 3>{{expression}}, types, doc);
}

constexpr Elementwise binary(std::string_view name, StaticList<Expression, 3> expressions, TypeSet types,
                             std::string_view doc) {
  Elementwise e = elementwise(name, expressions, doc, {{"x", types}, {"y", types, "x"}});
  if (has_floats(types)) {
    e.samples({"x=f32[2,3,65] y=f32[65]", "x=f32[4,1,5] y=f32[3,1]", "x=f32[] y=f32[0,2]", "x=bf16[7] y=bf16[7]"});
  } else if (contains(types, DType::kI32)) {
    e.samples({"x=i32[2,3,65] y=i32[65]", "x=i64[4,1] y=i64[3]", "x=u8[] y=u8[0,2]"}).no_gradient(kNoGradientDiscrete);
  } else {
    e.samples({"x=bool[2,3,65] y=bool[65]", "x=bool[4,1] y=bool[3]"}).no_gradient(kNoGradientDiscrete);
  }
  return e;
}
constexpr Elementwise binary(std::string_view name, std::string_view expression, TypeSet types, std::string_view doc) {
  return binary(name, StaticList<Expression, 3>{{expression}}, types, doc);
}

/// x and y of one type, a bool result.
constexpr Elementwise comparison(std::string_view name, std::string_view expression, TypeSet types,
                                 std::string_view doc) {
  return binary(name, expression, types, doc).result(DType::kBool).no_gradient(kNoGradientDiscrete).ulps(0);
}

/// One or more operands of one type, broadcast together.
constexpr Elementwise variadic(std::string_view name, TypeSet types, std::string_view doc) {
  InputSpec rest{"data", types, "data"};
  rest.variadic = true;
  return elementwise(name, {}, doc, {rest});
}

// ---- shapes

/// The extents before, at and after an axis, multiplied.
struct AxisSpan {
  int64_t outer = 1, extent = 1, inner = 1;
};
AxisSpan span_of(const Extents& shape, int axis);

/// Axis in [-rank, rank) to [0, rank); for references, where infer has checked it.
inline int positive_axis(int64_t axis, int rank) { return int(axis < 0 ? axis + rank : axis); }
/// The same for several; an empty list stays empty.
std::vector<int> positive_axes(const std::vector<int64_t>& axes, int rank);

/// Integer content of a reference's input; `fallback` if it is absent.
std::vector<int64_t> integers_of(const RefArray& array);
std::vector<int64_t> integers_of(const Reference& r, int input, std::vector<int64_t> fallback = {});

/// "[n,3,4]" and "f32" for messages.
std::string describe(const Infer& i, int input);

/// Output 0 is like input 0. For `infer`.
inline void infer_same(Infer& i) { i.same_as(0, 0); }

/// Number of elements of a shape as a Dim.
inline Dim elements_of(const Shape& shape) { return product(shape); }

}  // namespace ridgeline
