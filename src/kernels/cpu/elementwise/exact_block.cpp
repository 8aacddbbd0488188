#include "kernels/cpu/elementwise/exact_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace ridgeline::cpu {

namespace {

constexpr int kBlock = 128;

/// 8 bytes an element: double for floats, int64 for integers and bool (0 or 1; u64 keeps its bits).
union Lanes {
  double f[kBlock];
  int64_t i[kBlock];
};

template <typename T>
T read(const void* from, int64_t index) {
  return static_cast<const T*>(from)[index];
}

template <typename T, typename Lane>
void load_as(const void* from, int64_t stride, Lane* to, int n) {
  for (int k = 0; k < n; ++k) to[k] = Lane(read<T>(from, k * stride));
}

void load(DType dtype, const void* from, int64_t stride, Lanes& to, int n) {
  switch (dtype) {
    case DType::kF64:
      return load_as<double>(from, stride, to.f, n);
    case DType::kF32:
      return load_as<float>(from, stride, to.f, n);
    case DType::kI8:
      return load_as<int8_t>(from, stride, to.i, n);
    case DType::kI16:
      return load_as<int16_t>(from, stride, to.i, n);
    case DType::kI32:
      return load_as<int32_t>(from, stride, to.i, n);
    case DType::kI64:
    case DType::kU64:
      return load_as<int64_t>(from, stride, to.i, n);
    case DType::kU8:
      return load_as<uint8_t>(from, stride, to.i, n);
    case DType::kU16:
      return load_as<uint16_t>(from, stride, to.i, n);
    case DType::kU32:
      return load_as<uint32_t>(from, stride, to.i, n);
    case DType::kBool:
      for (int k = 0; k < n; ++k) to.i[k] = read<uint8_t>(from, k * stride) != 0;
      return;
    default:
      for (int k = 0; k < n; ++k) to.f[k] = load_f64(dtype, from, k * stride);
  }
}

template <typename T, typename Lane>
void store_as(const Lane* from, void* to, int64_t stride, int n) {
  T* p = static_cast<T*>(to);
  for (int k = 0; k < n; ++k) p[k * stride] = T(from[k]);
}

void store(DType dtype, const Lanes& from, void* to, int64_t stride, int n) {
  switch (dtype) {
    case DType::kF64:
      return store_as<double>(from.f, to, stride, n);
    case DType::kF32:
      return store_as<float>(from.f, to, stride, n);
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return store_as<uint8_t>(from.i, to, stride, n);
    case DType::kI16:
    case DType::kU16:
      return store_as<uint16_t>(from.i, to, stride, n);
    case DType::kI32:
    case DType::kU32:
      return store_as<uint32_t>(from.i, to, stride, n);
    case DType::kI64:
    case DType::kU64:
      return store_as<int64_t>(from.i, to, stride, n);
    default:
      for (int k = 0; k < n; ++k) store_f64(dtype, to, k * stride, from.f[k]);
  }
}

void round_floats(DType dtype, double* v, int n) {
  if (dtype == DType::kF64) return;
  if (dtype == DType::kF32) {
    for (int k = 0; k < n; ++k) v[k] = double(float(v[k]));
    return;
  }
  for (int k = 0; k < n; ++k) {
    uint64_t bits = 0;
    store_f64(dtype, &bits, 0, v[k]);
    v[k] = load_f64(dtype, &bits, 0);
  }
}

template <typename T>
void wrap_as(int64_t* v, int n) {
  for (int k = 0; k < n; ++k) v[k] = int64_t(T(v[k]));
}
void wrap_integers(DType dtype, int64_t* v, int n) {
  switch (dtype) {
    case DType::kI8:
      return wrap_as<int8_t>(v, n);
    case DType::kI16:
      return wrap_as<int16_t>(v, n);
    case DType::kI32:
      return wrap_as<int32_t>(v, n);
    case DType::kU8:
      return wrap_as<uint8_t>(v, n);
    case DType::kU16:
      return wrap_as<uint16_t>(v, n);
    case DType::kU32:
      return wrap_as<uint32_t>(v, n);
    case DType::kI64:
    case DType::kU64:
      return;
    default:  // below a byte
      for (int k = 0; k < n; ++k) {
        uint8_t bits = 0;
        store_i64(dtype, &bits, 0, v[k]);
        v[k] = load_i64(dtype, &bits, 0);
      }
  }
}

struct Operands {
  const Lanes *a, *b, *c;
};

template <class F>
void floats1(const Operands& in, Lanes& to, int n, F f) {
  for (int k = 0; k < n; ++k) to.f[k] = f(in.a->f[k]);
}
template <class F>
void floats2(const Operands& in, Lanes& to, int n, F f) {
  for (int k = 0; k < n; ++k) to.f[k] = f(in.a->f[k], in.b->f[k]);
}
template <class F>
void integers2(const Operands& in, Lanes& to, int n, F f) {
  for (int k = 0; k < n; ++k) to.i[k] = int64_t(f(uint64_t(in.a->i[k]), uint64_t(in.b->i[k])));
}

/// Instructions that are worth a loop of their own; false: none of them. The rest goes through evaluate().
bool run_float(ScalarOp op, const Operands& in, Lanes& to, int n) {
  switch (op) {
    case ScalarOp::kAdd:
      floats2(in, to, n, [](double a, double b) { return a + b; });
      return true;
    case ScalarOp::kSub:
      floats2(in, to, n, [](double a, double b) { return a - b; });
      return true;
    case ScalarOp::kMul:
      floats2(in, to, n, [](double a, double b) { return a * b; });
      return true;
    case ScalarOp::kDiv:
      floats2(in, to, n, [](double a, double b) { return a / b; });
      return true;
    case ScalarOp::kNeg:
      floats1(in, to, n, [](double a) { return -a; });
      return true;
    case ScalarOp::kAbs:
      floats1(in, to, n, [](double a) { return std::fabs(a); });
      return true;
    case ScalarOp::kSqrt:
      floats1(in, to, n, [](double a) { return std::sqrt(a); });
      return true;
    case ScalarOp::kSquare:
      floats1(in, to, n, [](double a) { return a * a; });
      return true;
    case ScalarOp::kExp:
      floats1(in, to, n, [](double a) { return std::exp(a); });
      return true;
    case ScalarOp::kTanh:
      floats1(in, to, n, [](double a) { return std::tanh(a); });
      return true;
    case ScalarOp::kErf:
      floats1(in, to, n, [](double a) { return std::erf(a); });
      return true;
    case ScalarOp::kRelu:
      floats1(in, to, n, [](double a) { return a < 0 ? 0.0 : a; });
      return true;
    case ScalarOp::kFma:
      for (int k = 0; k < n; ++k) to.f[k] = in.a->f[k] * in.b->f[k] + in.c->f[k];
      return true;
    default:
      return false;
  }
}
bool run_integer(ScalarOp op, const Operands& in, Lanes& to, int n) {
  switch (op) {
    case ScalarOp::kAdd:
      integers2(in, to, n, [](uint64_t a, uint64_t b) { return a + b; });
      return true;
    case ScalarOp::kSub:
      integers2(in, to, n, [](uint64_t a, uint64_t b) { return a - b; });
      return true;
    case ScalarOp::kMul:
      integers2(in, to, n, [](uint64_t a, uint64_t b) { return a * b; });
      return true;
    case ScalarOp::kAnd:
    case ScalarOp::kBitAnd:
      integers2(in, to, n, [](uint64_t a, uint64_t b) { return a & b; });
      return true;
    case ScalarOp::kOr:
    case ScalarOp::kBitOr:
      integers2(in, to, n, [](uint64_t a, uint64_t b) { return a | b; });
      return true;
    case ScalarOp::kXor:
    case ScalarOp::kBitXor:
      integers2(in, to, n, [](uint64_t a, uint64_t b) { return a ^ b; });
      return true;
    default:
      return false;
  }
}

template <class Value, class F>
void compare(const Value* a, const Value* b, int64_t* to, int n, F f) {
  for (int k = 0; k < n; ++k) to[k] = f(a[k], b[k]);
}
template <class Value>
void run_compare(ScalarOp op, const Value* a, const Value* b, int64_t* to, int n) {
  switch (op) {
    case ScalarOp::kEqual:
      return compare(a, b, to, n, [](Value x, Value y) { return x == y; });
    case ScalarOp::kLess:
      return compare(a, b, to, n, [](Value x, Value y) { return x < y; });
    case ScalarOp::kLessOrEqual:
      return compare(a, b, to, n, [](Value x, Value y) { return x <= y; });
    case ScalarOp::kGreater:
      return compare(a, b, to, n, [](Value x, Value y) { return x > y; });
    default:
      return compare(a, b, to, n, [](Value x, Value y) { return x >= y; });
  }
}

void run_cast(DType from, DType dtype, const Lanes& a, Lanes& to, int n) {
  for (int k = 0; k < n; ++k) {
    if (dtype == DType::kBool) {
      to.i[k] = is_float(from) ? a.f[k] != 0 : a.i[k] != 0;
    } else if (is_float(dtype)) {
      to.f[k] = is_float(from) ? a.f[k] : from == DType::kU64 ? double(uint64_t(a.i[k])) : double(a.i[k]);
    } else if (is_float(from)) {                                      // truncates and saturates
      const DType wide = info(dtype).bits < 8 ? DType::kI64 : dtype;  // those below a byte wrap
      uint64_t bits = 0;
      store_f64(wide, &bits, 0, a.f[k]);
      to.i[k] = load_i64(wide, &bits, 0);
    } else {
      to.i[k] = a.i[k];
    }
  }
}

/// One instruction by the reference itself, an element at a time: rare operators keep one definition.
void run_single(const Program& p, const Operands& in, Lanes& to, int n) {
  const Lanes* operands[3] = {in.a, in.b, in.c};
  std::array<ScalarValue, 3> x;
  ScalarValue y;
  const size_t count = p.inputs.size();
  for (int k = 0; k < n; ++k) {
    for (size_t o = 0; o < count; ++o) {
      if (is_float(p.inputs[o].dtype))
        x[o] = {operands[o]->f[k], 0};
      else
        x[o] = {0, operands[o]->i[k]};
    }
    evaluate(p, {x.data(), count}, {&y, 1}, true);
    if (is_float(p.code[0].dtype))
      to.f[k] = y.f;
    else
      to.i[k] = y.i;
  }
}

Program single(const Program& p, Instruction in) {
  Program one;
  for (int16_t* operand : {&in.a, &in.b, &in.c}) {
    if (*operand < 0) continue;
    one.inputs.push_back({"x", p.dtype_of(*operand)});
    *operand = int16_t(one.inputs.size() - 1);
  }
  one.code.push_back(in);
  one.outputs.push_back(int(one.inputs.size()));
  return one;
}

void run_instruction(const Program& p, const Instruction& in, const Program& one, const Operands& operands, Lanes& to,
                     int n) {
  const DType from = p.dtype_of(in.a);
  const bool wide = is_float(in.dtype);
  if (in.op == ScalarOp::kCast) {
    run_cast(from, in.dtype, *operands.a, to, n);
  } else if (in.op == ScalarOp::kSelect) {
    for (int k = 0; k < n; ++k)
      to.i[k] = operands.a->i[k] ? operands.b->i[k] : operands.c->i[k];  // bits of either kind
  } else if (in.op >= ScalarOp::kEqual && in.op <= ScalarOp::kGreaterOrEqual &&
             (is_float(from) || from != DType::kU64)) {
    if (is_float(from))
      run_compare(in.op, operands.a->f, operands.b->f, to.i, n);
    else
      run_compare(in.op, operands.a->i, operands.b->i, to.i, n);
  } else if (!(wide ? run_float(in.op, operands, to, n) : run_integer(in.op, operands, to, n))) {
    return run_single(one, operands, to, n);  // rounds and wraps itself
  }
  if (wide)
    round_floats(in.dtype, to.f, n);
  else if (in.dtype != DType::kBool)
    wrap_integers(in.dtype, to.i, n);
}

}  // namespace

std::string ExactProgram::reject(const Program& p) {
  auto narrow = [](DType t) { return info(t).bits < 8; };
  for (const ProgramInput& input : p.inputs)
    if (narrow(input.dtype)) return "input " + input.name + " is " + std::string(name(input.dtype));
  for (int out : p.outputs)
    if (narrow(p.dtype_of(out))) return "an output in " + std::string(name(p.dtype_of(out)));
  if (p.operands() > kMostOperands) return "too many operands";
  return "";
}

ExactProgram::ExactProgram(const Program& program) : program_(program) {
  for (const Instruction& in : program.code) single_.push_back(single(program, in));
}

void ExactProgram::run(int64_t rows, int64_t cols, const TileInput* inputs, const TileOutput* outputs) const {
  const Program& p = program_;
  Lanes lanes[kMostOperands];
  for (size_t c = 0; c < p.constants.size(); ++c) {
    Lanes& to = lanes[size_t(p.first_constant()) + c];
    if (is_float(p.constants[c].dtype)) {
      std::fill(to.f, to.f + kBlock, p.constants[c].f);
      round_floats(p.constants[c].dtype, to.f, kBlock);
    } else {
      std::fill(to.i, to.i + kBlock, p.constants[c].i);
    }
  }
  auto at = [](const void* data, DType dtype, int64_t index) {
    return static_cast<const char*>(data) + index * (info(dtype).bits / 8);
  };
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; j += kBlock) {
      const int n = int(std::min<int64_t>(kBlock, cols - j));
      for (size_t k = 0; k < p.inputs.size(); ++k) {
        const TileInput& in = inputs[k];
        const DType dtype = p.inputs[k].dtype;
        load(dtype, at(in.data, dtype, i * in.row_stride + j * in.col_stride), in.col_stride, lanes[k], n);
      }
      for (size_t k = 0; k < p.code.size(); ++k) {
        const Instruction& in = p.code[k];
        const Operands operands = {&lanes[in.a], in.b >= 0 ? &lanes[in.b] : nullptr,
                                   in.c >= 0 ? &lanes[in.c] : nullptr};
        run_instruction(p, in, single_[k], operands, lanes[size_t(p.first_result()) + k], n);
      }
      for (size_t k = 0; k < p.outputs.size(); ++k) {
        const TileOutput& out = outputs[k];
        const DType dtype = p.output_dtype(int(k));
        store(dtype, lanes[p.outputs[k]],
              const_cast<char*>(at(out.data, dtype, i * out.row_stride + j * out.col_stride)), out.col_stride, n);
      }
    }
  }
}

}  // namespace ridgeline::cpu
