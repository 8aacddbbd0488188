// cpu.conv_transpose_nchw: transposed convolution of plain NCHW images. Each phase of the stride is a plain convolution
// into the workspace; then the phases are woven into rows, where what remains of the epilogue is done. Where the kernel
// is as large as the stride the phases read the same pixels: they are one convolution with more output channels (apart
// they read x four times: 24 channels of 320x320 to one took 3.3 ms).
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "core/integer.h"
#include "kernels/cpu/conv/depthwise_micro.h"
#include "kernels/cpu/conv/direct_micro.h"
#include "kernels/cpu/conv/epilogue.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"
#include "kernels/cpu/conv/phases.h"
#include "kernels/cpu/conv/planar.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kPlanar;

struct Part {
  const AxisPhase *h, *w;
  int64_t weights = 0, row_floats = 0;  // where its packed weights begin and how far apart its channels are, in floats
  int64_t result = 0;                   // where its output is in the workspace
};

/// A plain convolution: of one part, or of all together.
struct Call {
  PlanarPlan plan;
  int64_t weights = 0, result = 0;
};

struct State {
  ConvGeometry g;
  ImageStrides y;
  ConvEpilogue epilogue;
  std::vector<AxisPhase> rows, columns;
  std::vector<Part> parts;  // rows.size() by columns.size()
  std::vector<Call> calls;
  int64_t result_image = 0;  // planes from an image of a part's output to the next
  bool woven = true;         // false: one phase, written where it belongs
  int64_t together = 1;      // parts in a call, each with the bias
  int64_t weight_floats = 0, packed_bytes = 0, result_bytes = 0, bias_bytes = 0, workspace_bytes = 0;
};

/// Do all phases read the same pixels, one each?
bool phases_meet(const State& s) {
  const auto alike = [](const std::vector<AxisPhase>& phases) {
    return std::all_of(phases.begin(), phases.end(), [&](const AxisPhase& a) {
      return !a.empty && a.taps == 1 && a.pad == phases[0].pad && a.count == phases[0].count;
    });
  };
  return s.woven && s.g.groups == 1 && alike(s.rows) && alike(s.columns);
}

ConvShape shape_of(const Problem& problem, const State& s, const AxisPhase& h, const AxisPhase& w, int64_t channels) {
  const ConvGeometry& g = s.g;
  ConvShape p;
  p.groups = g.groups, p.images = g.images, p.height = g.in_h, p.width = g.in_w, p.channels = g.group_in();
  p.x = *image_strides(problem.input(0).layout, kOrder);
  p.kernel_h = h.taps, p.kernel_w = w.taps, p.dilation_h = h.dilation, p.dilation_w = w.dilation;
  p.pad_top = h.pad, p.pad_left = w.pad;
  p.out_h = h.count, p.out_w = w.count, p.out_channels = channels;
  const int64_t plane = h.count * w.count;
  p.y = s.woven ? ImageStrides{plane * channels * g.groups, plane, w.count, 1} : s.y;
  p.has_residual = s.epilogue.residual >= 0;
  p.residual = s.epilogue.residual_strides;
  return p;
}

std::shared_ptr<const State> make_state(const Problem& problem) {
  auto state = std::make_shared<State>();
  State& s = *state;
  s.g = conv_geometry(problem);
  const ConvGeometry& g = s.g;
  s.y = *image_strides(problem.output().layout, kOrder);
  s.woven = g.stride_h > 1 || g.stride_w > 1;
  s.epilogue = conv_epilogue(problem, kOrder, /*with_residual=*/!s.woven);
  s.rows = axis_phases(g.out_h, g.kernel_h, g.stride_h, g.dilation_h, g.pad_top);
  s.columns = axis_phases(g.out_w, g.kernel_w, g.stride_w, g.dilation_w, g.pad_left);
  const bool meet = phases_meet(s);
  const int64_t together = s.together = meet ? int64_t(s.rows.size() * s.columns.size()) : 1;
  s.result_image = together * g.out_channels;
  int64_t result = 0;
  for (const AxisPhase& h : s.rows)
    for (const AxisPhase& w : s.columns) {
      const int64_t plane = h.count * w.count;
      if (!meet || s.calls.empty()) {
        s.calls.push_back({planar_plan(shape_of(problem, s, h, w, g.group_out() * together), problem.threads),
                           s.weight_floats, result});
        s.workspace_bytes = std::max(s.workspace_bytes, s.calls.back().plan.workspace_bytes());
      }
      const int64_t row_floats = s.calls.back().plan.row_floats;
      s.parts.push_back({&h, &w, s.weight_floats, row_floats, result});
      s.weight_floats += meet ? g.out_channels * row_floats : round_up(g.out_channels * row_floats, 16);
      if (!s.woven) continue;
      result += meet ? g.out_channels * plane : round_up(g.images * g.out_channels * plane, 16);
    }
  if (meet && !s.parts.empty()) result *= g.images;
  s.result_bytes = round_up(result * 4, 64);
  if (together > 1 && s.epilogue.bias >= 0) s.bias_bytes = round_up(together * g.out_channels * 4, 64);
  s.packed_bytes = problem.input(1).is_constant ? 0 : s.weight_floats * 4;
  return state;
}

/// Source: [channel][out_channel of the group][ky][kx]; packed: [out_channel][channel][tap].
void pack_weights(const State& s, const float* source, float* packed) {
  const ConvGeometry& g = s.g;
  for (const Part& part : s.parts) {
    float* to = packed + part.weights;
    for (int64_t o = 0; o < g.out_channels; ++o) {
      float* row = to + o * part.row_floats;
      std::fill_n(row, part.row_floats, 0.0f);
      if (part.h->empty || part.w->empty) continue;
      for (int64_t c = 0; c < g.group_in(); ++c) {
        const float* kernel =
            source + ((o / g.group_out() * g.group_in() + c) * g.group_out() + o % g.group_out()) * g.taps();
        for (int64_t ky = 0; ky < part.h->taps; ++ky)
          for (int64_t kx = 0; kx < part.w->taps; ++kx)
            *row++ = kernel[(part.h->kernel_first + ky * part.h->kernel_step) * g.kernel_w + part.w->kernel_first +
                            kx * part.w->kernel_step];
      }
    }
  }
}

double estimate(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  const auto state = make_state(problem);
  const ConvGeometry& g = state->g;
  const double depth = double(g.taps() * g.group_in()) / double(g.stride_h * g.stride_w),
               rows = double(g.group_out() * state->together);
  const int64_t calls = int64_t(state->calls.size());  // each reads x
  const int64_t again = std::max<int64_t>(0, calls - 1) * problem.input(0).bytes() +
                        (g.stride_h * g.stride_w > 1 ? 2 * problem.output().bytes() : 0);
  return conv_estimate_ns(problem, ceilings, g.flops(), std::max(0.01, 0.8 * depth / (depth + 12) * rows / (rows + 5)),
                          again);
}

int64_t workspace(const Problem& problem, const Tile&) {
  const auto state = make_state(problem);
  return state->packed_bytes + state->result_bytes + state->bias_bytes + state->workspace_bytes;
}

Packing packing(const Problem& problem, const Tile&, int input) {
  if (input != 1) return {};
  const auto state = make_state(problem);
  const ConvGeometry& g = state->g;
  std::string key = fmt::format("row phases groups {} {}x{} of {}x{}:", g.groups, g.group_in(), g.group_out(),
                                g.kernel_h, g.kernel_w);
  for (const Part& p : state->parts)
    key += fmt::format(" {}+{}*{},{}+{}*{}{}", p.h->kernel_first, p.h->taps, p.h->kernel_step, p.w->kernel_first,
                       p.w->taps, p.w->kernel_step, p.h->empty || p.w->empty ? "!" : "");
  return {key, state->weight_floats * 4};
}

void pack(const Problem& problem, const Tile&, int input, const Tensor& source, void* packed) {
  if (input == 1) pack_weights(*make_state(problem), source.as<float>(), static_cast<float*>(packed));
}

std::shared_ptr<const void> prepare(const Problem& problem, const Tile&) { return make_state(problem); }

/// Rows of output from the phases' results.
void weave(const State& s, const Buffers& buffers, const float* results, const ThreadPool& pool) {
  const ConvGeometry& g = s.g;
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t oy = i % g.out_h, channel = i / g.out_h % g.out_channels, image = i / g.out_h / g.out_channels;
      float* y = static_cast<float*>(buffers.outputs[0]) + image * s.y.image + channel * s.y.channel + oy * s.y.row;
      const Part* parts = s.parts.data() + size_t(oy % g.stride_h) * s.columns.size();
      const auto row_of = [&](size_t column) {
        const AxisPhase& w = s.columns[column];
        const int64_t plane = parts[column].h->count * w.count;
        return results + parts[column].result + (image * s.result_image + channel) * plane + oy / g.stride_h * w.count;
      };
      if (g.stride_w == 1) {
        std::memcpy(y, row_of(0), size_t(g.out_w) * sizeof(float));
      } else if (g.stride_w == 2 && s.columns.size() == 2) {
        interleave2(row_of(0), row_of(1), s.columns[1].count, y);
        if (g.out_w % 2) y[g.out_w - 1] = row_of(0)[s.columns[0].count - 1];
      } else {
        for (size_t c = 0; c < s.columns.size(); ++c) {
          const float* from = row_of(c);
          for (int64_t k = 0; k < s.columns[c].count; ++k) y[s.columns[c].first + k * g.stride_w] = from[k];
        }
      }
      if (s.epilogue.program) apply_program(s.epilogue, buffers, y, 1, s.y.channel, image, channel, oy, 0, g.out_w, 1);
    }
  };
  pool.run(g.images * g.out_channels * g.out_h, 1, std::ref(body));
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const float* weights = static_cast<const float*>(buffers.inputs[1]);
  char* workspace = static_cast<char*>(buffers.workspace);
  if (s.packed_bytes > 0) {
    pack_weights(s, weights, reinterpret_cast<float*>(workspace));
    weights = reinterpret_cast<const float*>(workspace);
    workspace += s.packed_bytes;
  }
  float* results = reinterpret_cast<float*>(workspace);
  workspace += s.result_bytes;
  float* biases = reinterpret_cast<float*>(workspace);
  workspace += s.bias_bytes;
  const RestOfEpilogue rest{&s.epilogue, &buffers, 1, s.y.channel};
  for (const Call& part : s.calls) {
    ConvBuffers b = conv_buffers(rest);
    b.weights = weights + part.weights;
    b.weight_row = part.plan.row_floats;
    b.workspace = workspace;
    if (s.bias_bytes > 0) {
      for (int64_t k = 0; k < s.together; ++k) std::copy_n(b.bias, s.g.out_channels, biases + k * s.g.out_channels);
      b.bias = biases;
    }
    if (s.woven) b.y = results + part.result, b.finished = nullptr;  // weave() does the rest
    planar_conv(part.plan, b, pool);
  }
  if (s.woven) weave(s, buffers, results, pool);
}

}  // namespace

const Kernel kConvTransposeNchw = {
    .name = "cpu.conv_transpose_nchw",
    .op = "ConvTranspose",
    .supports = supports_images<kOrder>,
    .estimate = estimate,
    .workspace = workspace,
    .packing = packing,
    .pack = pack,
    .prepare = prepare,
    .run = run,
    .version = 2,
};

}  // namespace ridgeline::cpu
