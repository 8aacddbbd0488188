#include "kernels/reference/reference.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "ir/graph.h"
#include "ir/reference.h"

namespace ridgeline {

namespace {

ScalarValue load(const TensorView& view, int64_t offset) {
  ScalarValue value;
  if (is_float(view.dtype))
    value.f = load_f64(view.dtype, view.data, offset);
  else
    value.i = load_i64(view.dtype, view.data, offset);
  return value;
}

// Offset of the element at `at` of a view that is broadcast to the rank of `at`.
int64_t offset_of(const Layout& layout, const Extents& at) {
  int64_t offset = 0;
  const size_t skip = at.size() - layout.shape.size();
  for (size_t a = 0; a < layout.shape.size(); ++a)
    offset += layout.shape[a] == 1 ? 0 : at[a + skip] * layout.strides[a];
  return offset;
}

Extents index_of(const Extents& shape, int64_t flat) {
  Extents at(shape.size());
  for (size_t a = shape.size(); a-- > 0; flat /= shape[a]) at[a] = flat % shape[a];
  return at;
}

RefArray zeros(DType dtype, const Extents& shape) {
  RefArray array;
  array.dtype = dtype;
  array.shape = shape;
  (array.is_float() ? array.f.resize(size_t(array.elements())) : void(array.i.resize(size_t(array.elements()))));
  return array;
}

// Input 0 of the program is `first` (an epilogue's accumulator) if it is given; `views` are the others.
void run_program(const Program& program, const RefArray* first, const std::vector<TensorView>& views,
                 std::vector<RefArray>& results, int threads) {
  const Extents& shape = results[0].shape;
  ThreadPool(threads).run(results[0].elements(), 256, [&](int64_t begin, int64_t end, int) {
    std::vector<ScalarValue> x(program.inputs.size()), y(program.outputs.size());
    for (int64_t k = begin; k < end; ++k) {
      const Extents at = index_of(shape, k);
      size_t next = 0;
      if (first) {
        if (is_float(program.inputs[0].dtype))
          x[0].f = first->number(k);
        else
          x[0].i = first->integer(k);
        ++next;
      }
      for (const TensorView& view : views) {
        if (next < x.size()) x[next++] = load(view, offset_of(view.layout, at));
      }
      evaluate(program, x, y);
      for (size_t o = 0; o < results.size() && o < y.size(); ++o) {
        if (results[o].is_float())
          results[o].f[size_t(k)] = y[o].f;
        else
          results[o].i[size_t(k)] = y[o].i;
      }
    }
  });
}

void store(const RefArray& from, const TensorView& to) {
  for (Index at(from.shape); at.more(); ++at) {
    const int64_t offset = offset_of(to.layout, at.at());
    if (from.is_float())
      store_f64(to.dtype, to.data, offset, from.f[size_t(at.flat())]);
    else
      store_i64(to.dtype, to.data, offset, from.i[size_t(at.flat())]);
  }
}

Tensor dense(const TensorView& view) {
  if (view.dtype == DType::kNone) return {};
  if (view.layout.is_row_major())
    return Tensor::wrap(view.dtype, view.shape(), std::shared_ptr<void>(view.data, [](void*) {}));
  Tensor copy(view.dtype, view.shape());
  copy_elements(view, copy.view());
  return copy;
}

std::vector<RefArray> run_elementwise(const Problem& problem, const std::vector<TensorView>& inputs, int threads) {
  std::vector<DType> dtypes;
  std::vector<TensorView> present;
  for (const TensorView& view : inputs) {
    dtypes.push_back(view.dtype);
    if (view.dtype != DType::kNone) present.push_back(view);
  }
  const Program program = problem.program ? *problem.program : program_of(*problem.op, problem.attributes, dtypes);
  std::vector<RefArray> results;
  for (const Operand& output : problem.outputs) {
    if (output.present()) results.push_back(zeros(output.dtype, output.shape()));
  }
  run_program(program, nullptr, present, results, threads);
  return results;
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& problem = call.problem;
  auto views = [](const std::vector<Operand>& operands, void* const* data) {
    std::vector<TensorView> list;
    for (size_t i = 0; i < operands.size(); ++i)
      list.push_back(operands[i].present() ? TensorView{data[i], operands[i].dtype, operands[i].layout} : TensorView{});
    return list;
  };
  run_reference_on_views(problem, views(problem.inputs, buffers.inputs), views(problem.outputs, buffers.outputs),
                         nullptr, pool.threads());
}

// Measured on naive loops: some 40 ns a multiply-add through RefArray, 200 ns an element of a Program. Too high rather
// than too low.
double estimate(const Problem& problem, const Tile&, const Ceilings&) {
  const Cost cost = cost_of(problem);
  return 1e4 + 40.0 * double(cost.flops) + 200.0 * double(cost.bytes());
}

}  // namespace

void run_reference_on_views(const Problem& problem, const std::vector<TensorView>& inputs,
                            const std::vector<TensorView>& outputs, std::vector<RefArray>* exact, int threads) {
  std::vector<RefArray> results;
  RefArray accumulators;
  if (problem.op->is_elementwise()) {
    results = run_elementwise(problem, inputs, threads);
  } else {
    std::vector<Tensor> own;
    for (int i = 0; i < problem.op_inputs; ++i) own.push_back(dense(inputs[size_t(i)]));
    while (!own.empty() && !own.back()) own.pop_back();
    results = run_reference_exact(*problem.op, problem.attributes, own, int(problem.outputs.size()), threads);
    if (problem.program) {
      std::vector<RefArray> after = {zeros(problem.output().dtype, results[0].shape)};
      run_program(*problem.program, &results[0], {inputs.begin() + problem.op_inputs, inputs.end()}, after, threads);
      std::swap(results[0], after[0]);
      accumulators = std::move(after[0]);
    }
  }
  for (size_t o = 0; o < results.size() && o < outputs.size(); ++o) {
    if (outputs[o].dtype != DType::kNone) store(results[o], outputs[o]);
  }
  if (!exact) return;
  *exact = std::move(results);
  if (problem.has_epilogue()) exact->push_back(std::move(accumulators));
}

const Kernel& reference_kernel(const OpSchema& op) {
  static std::mutex mutex;
  static std::deque<Kernel> kernels;
  static std::map<const OpSchema*, const Kernel*> of_schema;
  const std::lock_guard lock(mutex);
  const Kernel*& kernel = of_schema[&op];
  if (!kernel) {
    kernels.push_back({.name = kReferenceKernel,
                       .op = op.name,
                       .supports = [](const Problem&) { return yes(); },
                       .estimate = estimate,
                       .run = run});
    kernel = &kernels.back();
  }
  return *kernel;
}

}  // namespace ridgeline
