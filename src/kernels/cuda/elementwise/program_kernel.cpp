// cuda.program: every elementwise operator and fused program, printed as CUDA C++ and compiled.
#include <algorithm>

#include "core/loops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elementwise/elementwise_kernels.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostTensors = 24;

Loops loops_of(const Problem& p) {
  std::vector<const Layout*> layouts;
  for (const Operand& in : p.inputs) layouts.push_back(&in.layout);
  for (const Operand& out : p.outputs) layouts.push_back(&out.layout);
  return make_loops(p.output().shape(), layouts, int(p.inputs.size()));
}

const Operand& operand(const Problem& p, size_t k) {
  return k < p.inputs.size() ? p.inputs[k] : p.outputs[k - p.inputs.size()];
}

Support supports(const Problem& p) {
  if (!p.program) return no("the problem has no program");
  const size_t tensors = p.inputs.size() + p.outputs.size();
  if (tensors > size_t(kMostTensors)) return no("{} tensors, at most {}", tensors, kMostTensors);
  if (p.program->inputs.size() != p.inputs.size() || p.program->outputs.size() != p.outputs.size())
    return no("the program has {} inputs and {} outputs, the problem {} and {}", p.program->inputs.size(),
              p.program->outputs.size(), p.inputs.size(), p.outputs.size());
  if (!printable(*p.program)) return no("values of a type that kernels of CUDA do not know");
  for (const Operand& out : p.outputs) {
    if (out.shape() != p.output().shape()) return no("outputs of different shapes");
    for (int a = 0; a < out.layout.rank(); ++a)
      if (out.layout.strides[size_t(a)] == 0 && out.shape()[size_t(a)] > 1) return no("an output is broadcast");
  }
  return yes();
}

// What a specialisation depends on, beside the program.
struct Shape {
  Loops loops;
  int per = 1, steps = 4;
  bool wide = false;  // positions need 64 bits
};

Shape shape_of(const Problem& p) {
  Shape s;
  s.loops = loops_of(p);
  int most_bytes = 1, bytes = 0;
  bool vectors = true;
  for (size_t k = 0; k < s.loops.strides.size(); ++k) {
    const int size = info(operand(p, k).dtype).bits / 8;
    most_bytes = std::max(most_bytes, size);
    const int64_t inner = s.loops.strides[k].back();
    if (inner == 1) bytes += size;
    vectors = vectors && (inner == 0 || inner == 1);
  }
  if (vectors) {
    // Whole words of 16 bytes of the widest operand, and at least 8 elements of narrow ones beside it.
    s.per = std::max(1, 16 / most_bytes);
    while (s.per > 1 && s.loops.extents.back() % s.per) s.per /= 2;
  }
  // Some 128 bytes in flight a thread.
  s.steps = std::clamp(128 / std::max(1, bytes * s.per), 1, 4);
  const int64_t units = s.loops.elements() / s.per;
  // A small problem is spread over all multiprocessors first.
  while (s.steps > 1 && units < int64_t(kThreads) * s.steps * 2 * target().multiprocessors) s.steps /= 2;
  s.wide = units + int64_t(kThreads) * s.steps >= int64_t(1) << 31;
  return s;
}

std::string operations(const Problem& p, const Shape& s) {
  std::string fields, loads, values, results, decode, encode, stores;
  const size_t ins = p.inputs.size();
  for (size_t k = 0; k < s.loops.strides.size(); ++k) {
    const Operand& o = operand(p, k);
    const std::string type = storage_type(o.dtype);
    const int64_t inner = s.loops.strides[k].back();
    const char* const lies = inner == 1 ? "kNext" : inner == 0 && k < ins ? "kSame" : "kApart";
    fields += fmt::format("  Pack<{}, PER> x{};\n", type, k);
    if (k < ins) {
      loads += fmt::format("  load_unit<{0}>(a, {1}, at, v.x{1});\n", lies, k);
      decode += fmt::format("load_value(v.x{}.at[i]), ", k);
    } else {
      stores += fmt::format("  store_unit<{0}>(a, {1}, at, v.x{1});\n", lies, k);
      results += fmt::format("    {} r{};\n", register_type(p.program->output_dtype(int(k - ins))), k - ins);
      encode += fmt::format("    v.x{}.at[i] = store_value<{}>(r{});\n", k, type, k - ins);
    }
  }
  std::string outputs;
  for (size_t o = 0; o < p.outputs.size(); ++o) outputs += fmt::format("{}r{}", o ? ", " : "", o);
  return fmt::format(
      "struct Values {{\n{0}}};\n"
      "__device__ __forceinline__ void load_all(const Arguments& a, const Positions& at, Values& v) {{\n{1}}}\n"
      "__device__ __forceinline__ void compute(Values& v) {{\n"
      "#pragma unroll\n  for (int i = 0; i < PER; ++i) {{\n{2}    one_element({3}{4});\n{5}  }}\n}}\n"
      "__device__ __forceinline__ void store_all(const Arguments& a, const Positions& at, const Values& v) {{\n{6}}}\n",
      fields, loads, results, decode, outputs, encode, stores);
}

Source source(const Problem& p, const Tile&) {
  const Shape s = shape_of(p);
  Source source;
  source.file = "elementwise/program.cu";
  source.entry = "program";
  std::string text = operations(p, s);
  source.program = fmt::format(
      "#define OPERANDS {}\n#define RANK {}\n#define PER {}\n#define STEPS {}\n#define THREADS {}\n#define INDEX "
      "{}\n{}",
      s.loops.strides.size(), s.loops.axes(), s.per, s.steps, kThreads, s.wide ? "u64" : "u32",
      program_function(*p.program, "one_element"));
  // The operations stand in the middle of the file, after what they call: a macro of one line.
  source.program += "#define OPERATIONS ";
  for (size_t at = 0; at < text.size(); ++at) {
    if (text.compare(at, 15, "#pragma unroll\n") == 0) {
      source.program += "_Pragma(\"unroll\") ";
      at += 14;
      continue;
    }
    source.program += text[at] == '\n' ? ' ' : text[at];
  }
  source.program += "\n";
  return source;
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  return c.stream_ns(p.read_bytes(), p.write_bytes(), 1) + c.launch_ns.at(1, 1);
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const Shape s = shape_of(p);
  const size_t operands = s.loops.strides.size();
  std::vector<uint64_t> words;
  uint64_t aligned = 0;
  for (size_t k = 0; k < operands; ++k) {
    void* const address = k < p.inputs.size() ? buffers.inputs[k] : buffers.outputs[k - p.inputs.size()];
    words.push_back(reinterpret_cast<uint64_t>(address));
    const int64_t unit = s.per * (info(operand(p, k).dtype).bits / 8), word = std::min<int64_t>(unit, 16);
    bool whole = reinterpret_cast<uint64_t>(address) % uint64_t(word) == 0;
    for (int a = 0; a + 1 < s.loops.axes(); ++a)
      whole = whole && s.loops.strides[k][size_t(a)] * (info(operand(p, k).dtype).bits / 8) % word == 0;
    if (whole) aligned |= uint64_t(1) << k;
  }
  for (const auto& strides : s.loops.strides) words.insert(words.end(), strides.begin(), strides.end());
  for (int a = 0; a < s.loops.axes(); ++a)
    words.push_back(uint64_t(s.loops.extents[size_t(a)] / (a + 1 == s.loops.axes() ? s.per : 1)));
  const int64_t units = s.loops.elements() / s.per;
  words.push_back(uint64_t(units));
  words.push_back(aligned);
  void* parameters[] = {words.data()};
  const int64_t block = int64_t(kThreads) * s.steps;
  launch(call.state_as<LoadedKernel>(), {(units + block - 1) / block}, kThreads, stream, parameters,
         {.dependent = true});
}

/// Every element is read before it is written, by the same thread, if the input lies as the output does.
bool in_place(const Problem& p, int input) {
  const Operand& in = p.input(input);
  return in.present() && info(in.dtype).bits == info(p.output().dtype).bits && in.layout == p.output().layout;
}

}  // namespace

constinit const Kernel kProgram = {
    .name = "cuda.program",
    .op = "Elementwise",
    .device = DeviceKind::kCuda,
    .supports = supports,
    .estimate = estimate,
    .source = source,
    .launch = run,
    .in_place = in_place,
};

}  // namespace ridgeline::cuda
