// OpSchema: what an operator means, declared once. Everything else reads it: importer, verifier, conformance, bench,
// docs.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "ridgeline/dtype.h"
#include "ridgeline/error.h"

namespace ridgeline {

class Infer;      // ir/infer.h
class Builder;    // ir/builder.h
class Reference;  // ir/reference.h
class Gradient;   // ir/gradient.h
struct Problem;   // ir/problem.h
struct Cost;

/// A list with a fixed capacity, so that schemas are constant aggregates (100 schemas as std::vector cost 5.4 s a
/// file).
template <typename T, int kCapacity>
struct StaticList {
  std::array<T, kCapacity> items{};
  int count = 0;
  constexpr StaticList() = default;
  constexpr StaticList(std::initializer_list<T> list) {
    for (const T& item : list) items[size_t(count++)] = item;
  }
  constexpr int size() const { return count; }
  constexpr bool empty() const { return count == 0; }
  constexpr const T& operator[](int i) const { return items[size_t(i)]; }
  constexpr const T* begin() const { return items.data(); }
  constexpr const T* end() const { return items.data() + count; }
};

/// A set of dtypes as bits.
using TypeSet = uint32_t;
constexpr TypeSet type_bit(DType dtype) { return TypeSet(1) << int(dtype); }
inline constexpr TypeSet kFloats =
    type_bit(DType::kF64) | type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);
inline constexpr TypeSet kSigned =
    type_bit(DType::kI8) | type_bit(DType::kI16) | type_bit(DType::kI32) | type_bit(DType::kI64);
inline constexpr TypeSet kUnsigned =
    type_bit(DType::kU8) | type_bit(DType::kU16) | type_bit(DType::kU32) | type_bit(DType::kU64);
inline constexpr TypeSet kIntegers = kSigned | kUnsigned;
inline constexpr TypeSet kNumbers = kFloats | kIntegers;
inline constexpr TypeSet kBools = type_bit(DType::kBool);
inline constexpr TypeSet kAll = kNumbers | kBools;
/// What is only stored, cast and quantized: no arithmetic is done in them.
inline constexpr TypeSet kFloat8 =
    type_bit(DType::kF8E4M3) | type_bit(DType::kF8E5M2) | type_bit(DType::kF8E4M3Fnuz) | type_bit(DType::kF8E5M2Fnuz);
inline constexpr TypeSet kSmall = kFloat8 | type_bit(DType::kF8E8M0) | type_bit(DType::kF4E2M1) |
                                  type_bit(DType::kF6E2M3) | type_bit(DType::kF6E3M2) | type_bit(DType::kI4) |
                                  type_bit(DType::kU4) | type_bit(DType::kI2) | type_bit(DType::kU2);
inline constexpr TypeSet kAny = kAll | kSmall;
inline constexpr TypeSet kIndices = type_bit(DType::kI32) | type_bit(DType::kI64);
inline constexpr TypeSet kInt64 = type_bit(DType::kI64);
constexpr bool contains(TypeSet set, DType dtype) { return (set & type_bit(dtype)) != 0; }
std::string text(TypeSet set);  // "f64, f32, f16, bf16"

enum class OpKind : uint8_t { kElementwise, kReduction, kContraction, kMovement, kOpaque };
std::string_view name(OpKind kind);

struct InputSpec {
  std::string_view name;
  TypeSet types = kAll;
  std::string_view same_as = "";  // the input whose dtype this one must have
  bool optional = false;
  bool variadic = false;  // the last input only: any number more of the same kind
};
struct OutputSpec {
  std::string_view name;
  bool optional = false;
  bool variadic = false;
};

/// Default of an attribute. `kRequired`: the importer refuses a node without it. `kNone`: absent means absent.
struct AttributeSpec {
  enum class Type : uint8_t { kInt, kFloat, kString, kInts, kFloats, kStrings, kTensor, kGraph };
  enum class Presence : uint8_t { kDefault, kRequired, kNone };
  std::string_view name;
  Type type = Type::kInt;
  Presence presence = Presence::kNone;
  int64_t integer = 0;
  double number = 0;
  std::string_view string = "";

  constexpr AttributeSpec() = default;
  constexpr AttributeSpec(std::string_view name_, int default_)
      : name(name_), type(Type::kInt), presence(Presence::kDefault), integer(default_) {}
  constexpr AttributeSpec(std::string_view name_, double default_)
      : name(name_), type(Type::kFloat), presence(Presence::kDefault), number(default_) {}
  constexpr AttributeSpec(std::string_view name_, const char* default_)
      : name(name_), type(Type::kString), presence(Presence::kDefault), string(default_) {}
  constexpr AttributeSpec(std::string_view name_, Type type_, Presence presence_ = Presence::kNone)
      : name(name_), type(type_), presence(presence_) {}
};

/// How far a kernel may be from the reference, derived from what the algorithm does to error (docs/numerics.md).
/// With u = unit roundoff of the output's type (epsilon / 2) and ua of the accumulator's:
///   kExact: 0. kElementwise: `ulps` units in the last place. kReduction, kContraction: n terms summed in blocks:
///   ulps * u + sqrt(n) * ua * 4, times the sum of absolute terms' scale (largest |output| at least).
struct Tolerance {
  enum class Kind : uint8_t { kExact, kElementwise, kReduction, kContraction };
  Kind kind = Kind::kExact;
  double ulps = 0;
  static constexpr Tolerance exact() { return {}; }
  static constexpr Tolerance elementwise(double ulps = 4) { return {Kind::kElementwise, ulps}; }
  static constexpr Tolerance reduction(double ulps = 8) { return {Kind::kReduction, ulps}; }
  static constexpr Tolerance contraction(double ulps = 4) { return {Kind::kContraction, ulps}; }
};

/// One spelling of an elementwise operator: the expression, used when the attribute has the value (empty: always).
struct Expression {
  std::string_view text;
  std::string_view attribute = "";
  std::string_view value = "";
};

struct OpSchema {
  std::string_view name;
  std::string_view domain = "";  // "" is ai.onnx; "com.microsoft"; "ridgeline" for fused operators no standard knows
  std::string_view family;       // elementwise, reduce, normalize, matmul, conv, pool, attention, movement, ...
  OpKind kind = OpKind::kOpaque;
  std::string_view doc = "";  // one line: what it computes, and the source (standard's section, paper)
  int since = 1;              // the first opset this declaration's form is valid for, after import upgrades older forms
  StaticList<int, 16> versions{};  // opset versions of the standard that importing accepts (each a version at which the
                                   // operator changed)
  StaticList<InputSpec, 16> inputs{};
  StaticList<OutputSpec, 6> outputs{};
  StaticList<AttributeSpec, 24> attributes{};

  /// Elementwise operators: inputs are named x, y, z (or as `inputs` says). Result dtype: that of the inputs, or
  /// `result`.
  StaticList<Expression, 3> expressions{};
  DType result = DType::kNone;

  /// Pure and total: sets dtype and shape of every output, or rejects with what was allowed.
  void (*infer)(Infer&) = nullptr;
  /// FLOPs of the direct algorithm (a multiply-add is two) and compulsory bytes; nullptr: one FLOP an output element,
  /// compulsory bytes.
  Cost (*cost)(const Problem&) = nullptr;
  /// Naive, in double or exact integers. An operator has a reference, an expression or a decomposition.
  void (*reference)(Reference&) = nullptr;
  /// The operator in smaller ones; also the pattern its matcher reads backwards, its gradient if `gradient` is null.
  StaticList<void (*)(Builder&), 8> decompose{};  // the first is the meaning, others are spellings that match only
  /// Writes d(inputs) from d(outputs). Null with a decomposition or expression: derived from it.
  void (*gradient)(Gradient&) = nullptr;
  std::string_view no_gradient = "";           // the reason why there is none
  StaticList<std::string_view, 24> samples{};  // "x=f32[2,3,64] scale=f32[64] axis=-1": one problem a line
  Tolerance tolerance = Tolerance::exact();

  bool is_elementwise() const { return kind == OpKind::kElementwise; }
};

struct Cost {
  int64_t flops = 0;            // direct algorithm; padding counted
  int64_t read_bytes = 0;       // each input and constant once
  int64_t write_bytes = 0;      // each output once
  int64_t special = 0;          // evaluations of exp, erf, division and the like among the FLOPs
  int64_t executed_flops = -1;  // of the cheapest algorithm among candidates; -1: same as flops
  int64_t bytes() const { return read_bytes + write_bytes; }
};

/// The catalogue: every schema, by explicit list (src/ops/catalogue.cpp). nullptr if there is none.
const OpSchema* find_op(std::string_view name, std::string_view domain = "");

}  // namespace ridgeline
