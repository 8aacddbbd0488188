// One kernel on one problem, written as a line, against the reference: random inputs in the layouts that the line asks
// for, poisoned outputs, buffers that end where the operands end (so that the sanitizer sees a read past them).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ir/reference.h"
#include "kernels/kernel.h"

namespace ridgeline::test {

/// Normal numbers; integers of -20 to 20 (0 to 20 if unsigned), bool 0 or 1. `spread` scales floats.
inline Tensor random_tensor(DType dtype, const Extents& shape, std::mt19937& random, double spread = 1) {
  Tensor t(dtype, shape);
  std::normal_distribution<double> normal(0, spread);
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (is_float(dtype))
      store_f64(dtype, t.data(), i, normal(random));
    else if (dtype == DType::kBool)
      store_i64(dtype, t.data(), i, int64_t(random() % 2));
    else
      store_i64(dtype, t.data(), i, int64_t(random() % 41) - (info(dtype).is_signed ? 20 : 0));
  }
  return t;
}

/// A buffer of exactly the operand's span, from malloc.
struct Placed {
  std::unique_ptr<char, void (*)(void*)> memory{nullptr, std::free};
  TensorView view;
  explicit Placed(const Operand& operand) {
    const int64_t bytes = bytes_of(operand.dtype, operand.layout.span());
    memory.reset(static_cast<char*>(std::malloc(size_t(bytes > 0 ? bytes : 1))));
    std::memset(memory.get(), 0xff, size_t(bytes > 0 ? bytes : 1));  // NaN, and -1
    view = {memory.get(), operand.dtype, operand.layout};
  }
};

struct Result {
  Problem problem;
  std::vector<Tensor> inputs, got, want;
};

inline std::vector<Tensor> reference_of(const Problem& p, const std::vector<Tensor>& inputs) {
  if (p.op->is_elementwise()) {
    std::vector<Tensor> results;
    for (const Operand& out : p.outputs) results.push_back(Tensor(out.dtype, out.shape()));
    std::vector<ScalarValue> x(inputs.size()), y(p.outputs.size());
    for (Index at(p.output().shape()); at.more(); ++at) {
      for (size_t k = 0; k < inputs.size(); ++k) {
        const int64_t i = broadcast_index(inputs[k].shape(), at.at());
        if (is_float(inputs[k].dtype()))
          x[k].f = inputs[k].f64(i);
        else
          x[k].i = inputs[k].i64(i);
      }
      evaluate(*p.program, x, y);
      for (size_t k = 0; k < y.size(); ++k) {
        if (is_float(results[k].dtype()))
          store_f64(results[k].dtype(), results[k].data(), at.flat(), y[k].f);
        else
          store_i64(results[k].dtype(), results[k].data(), at.flat(), y[k].i);
      }
    }
    return results;
  }
  std::vector<Tensor> own(inputs.begin(), inputs.begin() + p.op_inputs);
  std::vector<Tensor> results = run_reference(*p.op, p.attributes, own, int(p.outputs.size()));
  if (!p.has_epilogue()) return results;
  std::vector<ScalarValue> x(p.program->inputs.size()), y(1);
  for (Index at(p.output().shape()); at.more(); ++at) {
    x[0].f = results[0].f64(at.flat());
    for (size_t k = 1; k < x.size(); ++k) {
      const Tensor& operand = inputs[size_t(p.op_inputs) + k - 1];
      x[k].f = operand.f64(broadcast_index(operand.shape(), at.at()));
    }
    evaluate(*p.program, x, y);
    store_f64(results[0].dtype(), results[0].data(), at.flat(), y[0].f);
  }
  return results;
}

/// Runs `kernel`; fails the test if it does not support the problem.
inline Result run_kernel(const Kernel& kernel, const OpSchema& op, const std::string& keys, int threads = 1,
                         double spread = 1, int alias = -1) {
  Result r;
  r.problem = parse_problem(op, keys);
  r.problem.threads = threads;
  Problem& p = r.problem;
  const Support support = kernel.supports(p);
  EXPECT_TRUE(support.ok) << keys << ": " << support.reason;
  if (!support.ok) return r;
  std::mt19937 random(7);
  std::vector<Placed> placed;
  std::vector<void*> in, out;
  for (const Operand& operand : p.inputs) {
    if (!operand.present()) {
      r.inputs.push_back({});
      in.push_back(nullptr);
      continue;
    }
    r.inputs.push_back(operand.constant ? operand.constant
                                        : random_tensor(operand.dtype, operand.shape(), random, spread));
    placed.emplace_back(operand);
    copy_elements(r.inputs.back().view(), placed.back().view);
    in.push_back(placed.back().view.data);
  }
  const size_t first = placed.size();
  for (size_t k = 0; k < p.outputs.size(); ++k) {
    placed.emplace_back(p.outputs[k]);
    out.push_back(placed.back().view.data);
  }
  if (alias >= 0) {
    out[0] = in[size_t(alias)];
    placed[first].view.data = out[0];
  }
  KernelCall call;
  call.kernel = &kernel;
  call.problem = p;
  if (kernel.tiles) call.tile = kernel.tiles(p).at(0);
  if (kernel.prepare) call.state = kernel.prepare(p, call.tile);
  if (kernel.workspace) call.workspace_bytes = kernel.workspace(p, call.tile);
  std::vector<Tensor> packed;
  for (size_t k = 0; k < in.size(); ++k) {
    if (!p.inputs[k].is_constant || !kernel.packing || kernel.packing(p, call.tile, int(k)).key.empty()) continue;
    packed.push_back(packed_constant(call, int(k), r.inputs[k]));
    in[k] = packed.back().data();
  }
  const std::shared_ptr<void> workspace = allocate(call.workspace_bytes + 1);
  kernel.run(call, {in.data(), out.data(), workspace.get()}, ThreadPool(threads));
  r.want = reference_of(p, r.inputs);
  for (size_t k = 0; k < p.outputs.size(); ++k) {
    r.got.push_back(Tensor(p.outputs[k].dtype, p.outputs[k].shape()));
    copy_elements(placed[first + k].view, r.got[k].view());
  }
  return r;
}

/// Each element within `ulps` units in the last place of the output's type at the size of the larger of the element and
/// `scale`; integers and bool exactly; NaN where NaN is wanted.
inline void expect_close(const Result& r, const std::string& keys, double ulps, double scale = 1e-30) {
  ASSERT_EQ(r.got.size(), r.want.size()) << keys;
  for (size_t k = 0; k < r.got.size(); ++k) {
    const Tensor &got = r.got[k], &want = r.want[k];
    for (int64_t i = 0; i < want.elements(); ++i) {
      if (!is_float(got.dtype())) {
        ASSERT_EQ(got.i64(i), want.i64(i)) << keys << " output " << k << " element " << i;
        continue;
      }
      const double g = got.f64(i), w = want.f64(i);
      if (std::isnan(w) && std::isnan(g)) continue;
      if (g == w) continue;
      const double unit = info(got.dtype()).epsilon * std::max(std::fabs(w), scale);
      ASSERT_LE(std::fabs(g - w), ulps * unit)
          << keys << " output " << k << " element " << i << ": " << g << ", want " << w;
    }
  }
}

inline void check(const Kernel& kernel, const OpSchema& op, const std::string& keys, double ulps, double scale = 1e-30,
                  double spread = 1) {
  for (int threads : {1, 2}) expect_close(run_kernel(kernel, op, keys, threads, spread), keys, ulps, scale);
}

}  // namespace ridgeline::test
