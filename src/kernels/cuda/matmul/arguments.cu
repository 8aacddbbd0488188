// What every kernel of products takes. Strides are in elements; `row` and `column` are those of the matrix itself.
// Given: AXES, OPERANDS; Epilogue (program_source.h).

struct Matrix {
  u64 address;
  i64 row, column;
  i64 batch[AXES];
};

struct Arguments {
  Matrix a, b, y;
  Matrix a_zero, b_zero;  // address 0: there are none
  i64 m, n, k;
  i64 extent[AXES];                                      // of the batch, outermost first
  i64 operand_batch[OPERANDS > 0 ? OPERANDS : 1][AXES];  // of the epilogue's operands, in bytes
  Epilogue epilogue;
};

struct BatchPlace {
  i64 a, b, y;                               // in elements
  i64 operand[OPERANDS > 0 ? OPERANDS : 1];  // in bytes
};

__device__ __forceinline__ BatchPlace place_of_batch(const Arguments& p, i64 batch) {
  BatchPlace at;
  at.a = at.b = at.y = 0;
#pragma unroll
  for (int k = 0; k < OPERANDS; ++k) at.operand[k] = 0;
  for (int axis = AXES - 1; axis >= 0 && batch > 0; --axis) {
    const i64 here = batch % p.extent[axis];
    batch /= p.extent[axis];
    at.a += here * p.a.batch[axis];
    at.b += here * p.b.batch[axis];
    at.y += here * p.y.batch[axis];
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) at.operand[k] += here * p.operand_batch[k][axis];
  }
  return at;
}

// The epilogue of one matrix of the batch.
__device__ __forceinline__ Epilogue epilogue_at(const Arguments& p, const BatchPlace& at) {
  Epilogue e = p.epilogue;
#if OPERANDS > 0
#pragma unroll
  for (int k = 0; k < OPERANDS; ++k) e.words[3 * k] += u64(at.operand[k]);
#endif
  return e;
}

// Tiles in groups of `group` rows, so that those that run together share rows and columns in the second cache.
__device__ __forceinline__ void place_of_tile(u32 tile, u32 rows, u32 columns, u32 group, u32& row, u32& column) {
  const u32 whole = group * columns, at = tile / whole, rest = tile - at * whole;
  const u32 here = rows - at * group < group ? rows - at * group : group;
  column = rest / here;
  row = at * group + (rest - column * here);
}
