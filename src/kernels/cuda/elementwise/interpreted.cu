// A Program as data: one thread an element, every instruction a turn of a loop. Any program, types and strides by one
// compilation; slow (values lie in local memory, floats are computed in double): for small or rare work, and the control
// of the compiled kernel. The same rules as the reference (src/ir/program_evaluate.cpp).
//
// Numbers of types and operations are those of DType and ScalarOp (given as T_F32, OP_Add ...).

struct Operand {
  u64 address;
  i64 stride[RANK];  // in elements
  u64 type;
};
struct Step {
  unsigned char op, type;
  short a, b, c;
};
struct Arguments {
  Operand operand[OPERANDS];  // inputs, then outputs
  u64 extent[RANK];           // outermost first
  u64 count;
  i64 constant[CONSTANTS];  // bits of a double, or a whole number
  Step step[STEPS];
  short result[OPERANDS];          // value numbers of the outputs
  unsigned char type[VALUES];      // of every value
  short inputs, outputs, constants, steps;
};

__device__ __forceinline__ bool is_float(int t) { return t == T_F64 || t == T_F32 || t == T_F16 || t == T_BF16; }
__device__ __forceinline__ bool is_signed(int t) { return t == T_I8 || t == T_I16 || t == T_I32 || t == T_I64; }

__device__ i64 wrap(int t, i64 v) {
  switch (t) {
    case T_I8: return (signed char)v;
    case T_I16: return (short)v;
    case T_I32: return (int)v;
    case T_U8: return (unsigned char)v;
    case T_U16: return (unsigned short)v;
    case T_U32: return (unsigned)v;
    case T_BOOL: return v != 0;
    default: return v;
  }
}
__device__ double round_to(int t, double v) {
  if (t == T_F64) return v;
  const float f = float(v);
  if (t == T_F16) return load_value(store_value<f16>(f));
  if (t == T_BF16) return load_value(store_value<bf16>(f));
  return f;
}

union Value {
  double f;
  i64 i;
};

__device__ Value load_typed(int t, u64 address, i64 at) {
  Value v;
  switch (t) {
    case T_F64: v.f = ((const double*)address)[at]; break;
    case T_F32: v.f = ((const float*)address)[at]; break;
    case T_F16: v.f = load_value(((const f16*)address)[at]); break;
    case T_BF16: v.f = load_value(((const bf16*)address)[at]); break;
    case T_I8: v.i = ((const signed char*)address)[at]; break;
    case T_I16: v.i = ((const short*)address)[at]; break;
    case T_I32: v.i = ((const int*)address)[at]; break;
    case T_I64: case T_U64: v.i = ((const i64*)address)[at]; break;
    case T_U16: v.i = ((const unsigned short*)address)[at]; break;
    case T_U32: v.i = ((const unsigned*)address)[at]; break;
    default: v.i = ((const unsigned char*)address)[at]; break;
  }
  return v;
}
__device__ void store_typed(int t, u64 address, i64 at, Value v) {
  switch (t) {
    case T_F64: ((double*)address)[at] = v.f; break;
    case T_F32: ((float*)address)[at] = float(v.f); break;
    case T_F16: ((f16*)address)[at] = store_value<f16>(float(v.f)); break;
    case T_BF16: ((bf16*)address)[at] = store_value<bf16>(float(v.f)); break;
    case T_I8: case T_U8: case T_BOOL: ((unsigned char*)address)[at] = (unsigned char)v.i; break;
    case T_I16: case T_U16: ((unsigned short*)address)[at] = (unsigned short)v.i; break;
    case T_I32: case T_U32: ((unsigned*)address)[at] = (unsigned)v.i; break;
    default: ((i64*)address)[at] = v.i; break;
  }
}

__device__ i64 to_whole(int t, double v) {
  switch (t) {
    case T_I8: return cast<signed char>(v);
    case T_I16: return cast<short>(v);
    case T_I32: return cast<int>(v);
    case T_I64: return cast<i64>(v);
    case T_U8: return cast<unsigned char>(v);
    case T_U16: return cast<unsigned short>(v);
    case T_U32: return cast<unsigned>(v);
    default: return (i64)cast<u64>(v);
  }
}

__device__ double float_step(int op, double a, double b, double c) {
  switch (op) {
    case OP_Add: return a + b;
    case OP_Sub: return a - b;
    case OP_Mul: return a * b;
    case OP_Div: return a / b;
    case OP_Mod: return op_mod(a, b);
    case OP_Fmod: return op_fmod(a, b);
    case OP_Pow: return op_pow(a, b);
    case OP_Min: return op_min(a, b);
    case OP_Max: return op_max(a, b);
    case OP_Neg: return -a;
    case OP_Abs: return op_abs(a);
    case OP_Sign: return op_sign(a);
    case OP_Reciprocal: return 1 / a;
    case OP_Sqrt: return op_sqrt(a);
    case OP_Rsqrt: return 1 / sqrt(a);
    case OP_Square: return a * a;
    case OP_Exp: return op_exp(a);
    case OP_Log: return op_log(a);
    case OP_Erf: return op_erf(a);
    case OP_Erfc: return erfc(a);
    case OP_Sin: return op_sin(a);
    case OP_Cos: return op_cos(a);
    case OP_Tan: return op_tan(a);
    case OP_Asin: return op_asin(a);
    case OP_Acos: return op_acos(a);
    case OP_Atan: return op_atan(a);
    case OP_Sinh: return op_sinh(a);
    case OP_Cosh: return op_cosh(a);
    case OP_Tanh: return op_tanh(a);
    case OP_Asinh: return op_asinh(a);
    case OP_Acosh: return op_acosh(a);
    case OP_Atanh: return op_atanh(a);
    case OP_Sigmoid: return op_sigmoid(a);
    case OP_Softplus: return op_softplus(a);
    case OP_Relu: return op_relu(a);
    case OP_Floor: return op_floor(a);
    case OP_Ceil: return op_ceil(a);
    case OP_Round: return op_round(a);
    case OP_Clamp: return op_clamp(a, b, c);
    default: return a * b + c;  // OP_Fma
  }
}

// On 64 bits; unsigned types are non-negative there but for u64.
template <typename T>
__device__ i64 whole_step(int op, T a, T b, T c) {
  switch (op) {
    case OP_Add: return i64(a + b);
    case OP_Sub: return i64(a - b);
    case OP_Mul: return i64(a * b);
    case OP_Div: return i64(divide_whole(a, b));
    case OP_Mod: return i64(op_mod(a, b));
    case OP_Fmod: return i64(op_fmod(a, b));
    case OP_Pow: return i64(op_pow(a, b));
    case OP_Min: return i64(op_min(a, b));
    case OP_Max: return i64(op_max(a, b));
    case OP_Neg: return i64(0 - u64(a));
    case OP_Abs: return i64(op_abs(a));
    case OP_Sign: return i64(op_sign(a));
    case OP_Reciprocal: return i64(op_reciprocal(a));
    case OP_Square: return i64(a * a);
    case OP_Relu: return i64(op_relu(a));
    case OP_Clamp: return i64(op_clamp(a, b, c));
    case OP_Fma: return i64(a * b + c);
    case OP_And: case OP_BitAnd: return i64(a & b);
    case OP_Or: case OP_BitOr: return i64(a | b);
    case OP_Xor: case OP_BitXor: return i64(a ^ b);
    case OP_Not: return !a;
    case OP_BitNot: return i64(~a);
    case OP_ShiftLeft: return i64(op_shl(a, b));
    case OP_ShiftRight: return i64(op_shr(a, b));
    default: return i64(a);  // floor, ceil, round
  }
}

template <typename T>
__device__ bool compare(int op, T a, T b) {
  switch (op) {
    case OP_Equal: return a == b;
    case OP_Less: return a < b;
    case OP_LessOrEqual: return a <= b;
    case OP_Greater: return a > b;
    default: return a >= b;
  }
}

extern "C" __global__ void __launch_bounds__(128) interpreted(const __grid_constant__ Arguments p) {
  const u64 element = u64(blockIdx.x) * 128 + threadIdx.x;
  wait_for_predecessor();
  if (element >= p.count) return;
  u64 index[RANK];
  u64 rest = element;
  for (int a = RANK - 1; a >= 0; --a) {
    index[a] = rest % p.extent[a];
    rest /= p.extent[a];
  }
  const auto place = [&](int k) {
    i64 at = 0;
    for (int a = 0; a < RANK; ++a) at += i64(index[a]) * p.operand[k].stride[a];
    return at;
  };
  Value v[VALUES];
  for (int k = 0; k < p.inputs; ++k) v[k] = load_typed(int(p.operand[k].type), p.operand[k].address, place(k));
  for (int k = 0; k < p.constants; ++k) v[p.inputs + k].i = p.constant[k];
  const int first = p.inputs + p.constants;
  for (int s = 0; s < p.steps; ++s) {
    const Step in = p.step[s];
    const int type = in.type, from = p.type[in.a];
    const Value a = v[in.a], b = v[in.b >= 0 ? in.b : in.a], c = v[in.c >= 0 ? in.c : in.a];
    Value r;
    r.i = 0;
    if (in.op == OP_Cast) {
      if (type == T_BOOL) r.i = is_float(from) ? a.f != 0 : a.i != 0;
      else if (is_float(type))
        r.f = round_to(type, is_float(from) ? a.f : from == T_U64 ? double(u64(a.i)) : double(a.i));
      else if (is_float(from)) r.i = to_whole(type, a.f);
      else r.i = wrap(type, a.i);
    } else if (in.op == OP_Select) {
      r = a.i ? b : c;
    } else if (in.op == OP_IsNan) {
      r.i = a.f != a.f;
    } else if (in.op == OP_IsInf) {
      r.i = op_isinf(a.f);
    } else if (in.op >= OP_Equal && in.op <= OP_GreaterOrEqual) {
      r.i = is_float(from)    ? compare(in.op, a.f, b.f)
            : from == T_U64 ? compare(in.op, u64(a.i), u64(b.i))
                            : compare(in.op, a.i, b.i);
    } else if (is_float(type)) {
      r.f = round_to(type, float_step(in.op, a.f, b.f, c.f));
    } else {
      r.i = wrap(type, is_signed(type) ? whole_step<i64>(in.op, a.i, b.i, c.i)
                                       : whole_step<u64>(in.op, u64(a.i), u64(b.i), u64(c.i)));
    }
    v[first + s] = r;
  }
  for (int o = 0; o < p.outputs; ++o) {
    const int k = p.inputs + o;
    store_typed(int(p.operand[k].type), p.operand[k].address, place(k), v[p.result[o]]);
  }
}
