#include "ir/reference.h"

#include <algorithm>
#include <cassert>

#include "core/thread_pool.h"
#include "ir/builder.h"
#include "ir/control.h"
#include "ir/graph.h"
#include "ir/interpret.h"

namespace ridgeline {
namespace {

RefArray to_array(const Tensor& tensor) {
  RefArray a;
  a.dtype = tensor.dtype();
  if (!tensor) return a;
  a.shape = tensor.shape();
  if (a.is_float())
    a.f = tensor.to_f64();
  else
    a.i = tensor.to_i64();
  return a;
}

Tensor to_tensor(const RefArray& a) {
  if (a.dtype == DType::kNone) return {};
  Tensor t = Tensor::zeros(a.dtype, a.shape);  // zeros: sub-byte types leave half bytes
  for (int64_t k = 0; k < t.elements(); ++k) {
    if (a.is_float())
      store_f64(a.dtype, t.data(), k, a.f[size_t(k)]);
    else
      store_i64(a.dtype, t.data(), k, a.i[size_t(k)]);
  }
  return t;
}

void run_elementwise(const OpSchema& op, const Attributes& attributes, const std::vector<Tensor>& inputs, RefArray& out,
                     int threads) {
  std::vector<DType> dtypes;
  std::vector<RefArray> present;
  for (const Tensor& t : inputs) {
    dtypes.push_back(t.dtype());
    if (t) present.push_back(to_array(t));
  }
  const Program program = program_of(op, attributes, dtypes);
  present.resize(std::min(present.size(), program.inputs.size()));
  ThreadPool(threads).run(out.elements(), 1024, [&](int64_t begin, int64_t end, int) {
    std::vector<ScalarValue> x(program.inputs.size());
    ScalarValue y;
    const std::vector<int64_t> strides = row_major_strides(out.shape);
    Extents at(out.shape.size());
    for (int64_t k = begin; k < end; ++k) {
      for (size_t a = 0; a < at.size(); ++a) at[a] = k / strides[a] % out.shape[a];
      for (size_t i = 0; i < present.size(); ++i) {
        const int64_t j = present[i].shape == out.shape ? k : broadcast_index(present[i].shape, at);
        if (present[i].is_float())
          x[i].f = present[i].f[size_t(j)];
        else
          x[i].i = present[i].i[size_t(j)];
      }
      evaluate(program, x, {&y, 1});
      if (out.is_float())
        out.f[size_t(k)] = y.f;
      else
        out.i[size_t(k)] = y.i;
    }
  });
}

// Runs a decomposition node by node.
std::vector<Tensor> run_decomposition(const OpSchema& op, const Attributes& attributes,
                                      const std::vector<Tensor>& inputs, const std::vector<ValueInfo>& infos,
                                      int outputs, int threads) {
  const Graph graph = decompose(op, attributes, infos, outputs);
  std::vector<Tensor> values(size_t(graph.value_count()));
  for (int v = 0; v < graph.value_count(); ++v)
    if (const Tensor* c = graph.constant(v)) values[size_t(v)] = *c;
  size_t next = 0;
  for (const Tensor& t : inputs)
    if (t) values[size_t(graph.inputs[next++])] = t;
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    std::vector<Tensor> in;
    for (ValueId v : node.inputs) in.push_back(v == kNoValue ? Tensor() : values[size_t(v)]);
    std::vector<Tensor> out = run_reference(*node.op, node.attributes, in, int(node.outputs.size()), threads);
    for (size_t o = 0; o < out.size(); ++o)
      if (node.outputs[o] != kNoValue) values[size_t(node.outputs[o])] = out[o];
  }
  std::vector<Tensor> results;
  for (ValueId v : graph.outputs) results.push_back(values[size_t(v)]);
  return results;
}

// If, Loop and Scan: the bodies node by node.
std::vector<Tensor> run_bodies_on_tensors(const OpSchema& op, const Attributes& attributes,
                                          const std::vector<Tensor>& inputs, int outputs, int threads) {
  InterpretOptions options;
  options.threads = threads;
  options.in_loop = true;
  std::vector<Tensor> results = run_control(
      op, attributes, inputs,
      [&](const Graph& body, int, const std::vector<Tensor>& given) { return interpret(body, given, options); });
  if (int(results.size()) < outputs)
    fail(ErrorCode::kBadModel, "has {} outputs, its subgraph gives {}", outputs, results.size());
  results.resize(size_t(outputs));
  return results;
}

std::vector<RefArray> run_bodies(const OpSchema& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                                 int outputs, int threads) {
  std::vector<RefArray> arrays;
  for (const Tensor& t : run_bodies_on_tensors(op, attributes, inputs, outputs, threads)) arrays.push_back(to_array(t));
  return arrays;
}

}  // namespace

void control_reference(Reference& r) {
  fail(ErrorCode::kUnsupported, "unsupported: the reference of {} runs on tensors", r.op->name);
}

int64_t Reference::integer(std::string_view name) const { return schema_integer(*op, *attributes, name); }
double Reference::number(std::string_view name) const { return schema_number(*op, *attributes, name); }
std::string Reference::string(std::string_view name) const { return schema_string(*op, *attributes, name); }
std::vector<int64_t> Reference::integers(std::string_view name, std::vector<int64_t> fallback) const {
  return attributes->integers(name, std::move(fallback));
}

void Reference::parallel_for(int64_t count, const std::function<void(int64_t, int64_t)>& body) const {
  ThreadPool(threads).run(count, 1, [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

std::vector<int64_t> row_major_strides(const Extents& shape) { return Layout(shape).strides; }

int64_t broadcast_index(const Extents& shape, const Extents& at) {
  int64_t index = 0;
  for (size_t a = 0; a < shape.size(); ++a) {
    index = index * shape[a] + (shape[a] == 1 ? 0 : at[a + at.size() - shape.size()]);
  }
  return index;
}

namespace {

std::vector<RefArray> run_exact(const OpSchema& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                                int outputs, int threads, int64_t most_elements) {
  std::vector<ValueInfo> infos(inputs.size());
  std::vector<const ValueInfo*> pointers(inputs.size(), nullptr);
  std::vector<ValueInfo> present;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    infos[i].dtype = inputs[i].dtype();
    infos[i].shape = to_shape(inputs[i].shape());
    infos[i].constant = inputs[i];
    pointers[i] = &infos[i];
  }
  const std::vector<ValueInfo> results = infer_node(op, attributes, std::string(op.name), pointers, outputs);
  for (const ValueInfo& result : results) {
    if (!result.shape || !known(*result.shape) || element_count(extents(*result.shape)) <= most_elements) continue;
    fail(ErrorCode::kResource,
         "a value of shape {} in a loop is larger than the {} elements that values there may have", text(*result.shape),
         most_elements);
  }
  if (!op.is_elementwise() && !op.reference) {
    if (op.decompose.empty()) fail(ErrorCode::kUnsupported, "unsupported: {} has no reference", op.name);
    std::vector<RefArray> arrays;
    try {
      for (const Tensor& t : run_decomposition(op, attributes, inputs, infos, outputs, threads))
        arrays.push_back(to_array(t));
    } catch (const Error& error) {  // of a smaller operator, which the model does not name
      throw Error(error.code(), fmt::format("{}: {}", op.name, error.what()));
    }
    return arrays;
  }
  Reference c;
  c.op = &op;
  c.attributes = &attributes;
  c.threads = threads;
  for (const ValueInfo& result : results) {
    RefArray a;
    a.dtype = result.dtype;
    if (a.dtype != DType::kNone) {
      a.shape = extents(*result.shape);
      if (a.is_float())
        a.f.assign(size_t(a.elements()), 0);
      else
        a.i.assign(size_t(a.elements()), 0);
    }
    c.out.push_back(std::move(a));
  }
  if (op.reference) {
    for (const Tensor& t : inputs) c.in.push_back(to_array(t));
    op.reference(c);
  } else {
    run_elementwise(op, attributes, inputs, c.out[0], threads);
  }
  return std::move(c.out);
}

}  // namespace

std::vector<RefArray> run_reference_exact(const OpSchema& op, const Attributes& attributes,
                                          const std::vector<Tensor>& inputs, int outputs, int threads) {
  if (has_bodies(op)) return run_bodies(op, attributes, inputs, outputs, threads);
  return run_exact(op, attributes, inputs, outputs, threads, INT64_MAX);
}

std::vector<Tensor> run_reference_within(const OpSchema& op, const Attributes& attributes,
                                         const std::vector<Tensor>& inputs, int outputs, int threads,
                                         int64_t most_elements) {
  if (has_bodies(op)) return run_bodies_on_tensors(op, attributes, inputs, outputs, threads);
  std::vector<Tensor> tensors;
  for (const RefArray& a : run_exact(op, attributes, inputs, outputs, threads, most_elements))
    tensors.push_back(to_tensor(a));
  return tensors;
}

std::vector<Tensor> run_reference(const OpSchema& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                                  int outputs, int threads) {
  return run_reference_within(op, attributes, inputs, outputs, threads, INT64_MAX);
}

}  // namespace ridgeline
