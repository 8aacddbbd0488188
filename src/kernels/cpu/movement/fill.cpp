// cpu.fill: one value everywhere. The reference would hold each element as a double: 17 GB for two of bytes.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/movement/copy_tile.h"
#include "kernels/cpu/movement/move_kernels.h"

namespace ridgeline::cpu {

namespace {

Support supports(const Problem& p) {
  if (info(p.output().dtype).bits < 8) return no("{} elements share bytes", name(p.output().dtype));
  if (!p.output().layout.is_row_major()) return no("the output is not row-major");
  if (p.has_epilogue()) return no("an epilogue on a value that is written");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  return c.stream_ns(0, p.output().bytes(), p.threads) + 100;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  uint64_t bits = 0;  // without the attribute: f32 0
  if (const AttributeValue* value = p.attributes.find("value"))
    std::memcpy(&bits, std::get<Tensor>(*value).data(), size_t(info(p.output().dtype).bits / 8));
  return std::make_shared<uint64_t>(bits);
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const int bytes = info(call.problem.output().dtype).bits / 8;
  char* y = static_cast<char*>(buffers.outputs[0]);
  parallel(pool, call.problem.output().elements(), (64 << 10) / bytes, [&](int64_t begin, int64_t end, int) {
    fill_elements(bytes, &call.state_as<uint64_t>(), y + begin * bytes, end - begin);
  });
}

}  // namespace

constinit const Kernel kFillKernel = {.name = "cpu.fill",
                                      .op = "ConstantOfShape",
                                      .supports = supports,
                                      .estimate = estimate,
                                      .prepare = prepare,
                                      .run = run};

}  // namespace ridgeline::cpu
