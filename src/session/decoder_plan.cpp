// Planning a decoder whose layers share their numbers: each matrix is packed once, the other layers get copies of it.
#include <cstring>
#include <set>
#include <unordered_map>

#include "session/replay.h"

namespace ridgeline {
namespace {

constexpr int64_t kLeastShared = 65536;  // bytes: below, nothing is gained

struct Wanted {
  const Step* step;
  int input;
  ValueId value;
  Packing packing;
};

// The constants of a plan's steps, as their kernels store them.
std::vector<Wanted> wanted_by(const Plan& plan, const Graph& graph) {
  std::unordered_map<std::string, NodeId> nodes;
  for (NodeId id : graph.order()) nodes.emplace(graph.node(id).name, id);
  std::vector<Wanted> all;
  for (const Step& step : plan.steps) {
    const auto node = nodes.find(step.name);
    if (step.kind != Step::Kind::kKernel || node == nodes.end()) continue;
    for (int i = 0; i < int(step.inputs.size()); ++i) {
      const ValueId v = graph.node(node->second).input(i);
      if (step.inputs[size_t(i)].kind != Place::Kind::kConstant || !graph.constant(v)) continue;
      const Kernel& kernel = *step.call.kernel;
      all.push_back({&step, i, v, kernel.packing ? kernel.packing(step.call.problem, step.call.tile, i) : Packing{}});
    }
  }
  return all;
}

}  // namespace

std::shared_ptr<const Plan> plan_decoder(Graph& graph, PlanOptions options, ConstantStore& store) {
  options.dry = true;
  ConstantStore unpacked;
  const Plan dry = make_plan(graph, options, unpacked);
  const std::vector<Wanted> all = wanted_by(dry, graph);
  std::map<std::pair<const void*, std::string>, std::vector<const Wanted*>> groups;
  std::set<std::pair<uint64_t, std::string>> seen;
  for (const Wanted& w : all) {
    if (graph.constant(w.value)->bytes() >= kLeastShared &&
        seen.insert({graph.value(w.value).constant_id, w.packing.key}).second)
      groups[{graph.constant(w.value)->data(), w.packing.key}].push_back(&w);
  }
  std::vector<const std::vector<const Wanted*>*> list;
  for (const auto& [key, group] : groups) list.push_back(&group);
  const ThreadPool pool(options.threads);
  std::vector<Tensor> packed(list.size());
  pool.run(int64_t(list.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      const Wanted& w = *list[size_t(g)]->front();
      const Tensor& source = *graph.constant(w.value);
      if (w.packing.key.empty()) {
        packed[size_t(g)] = source;
        continue;
      }
      Tensor to(DType::kU8, {w.packing.bytes});
      w.step->call.kernel->pack(w.step->call.problem, w.step->call.tile, w.input, source, to.data());
      packed[size_t(g)] = to;
    }
  });
  std::vector<std::pair<const Wanted*, const Tensor*>> copies;
  for (size_t g = 0; g < list.size(); ++g) {
    for (size_t i = 0; i < list[g]->size(); ++i) {
      const Wanted& w = *(*list[g])[i];
      if (i == 0)
        store.put({graph.value(w.value).constant_id, w.packing.key}, packed[g]);
      else
        copies.push_back({&w, &packed[g]});
    }
  }
  pool.run(int64_t(copies.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      const auto& [w, from] = copies[size_t(c)];
      Tensor to(from->dtype(), from->shape());
      std::memcpy(to.data(), from->data(), size_t(from->bytes()));
      store.put({graph.value(w->value).constant_id, w->packing.key}, to);
    }
  });
  options.dry = false;
  return std::make_shared<const Plan>(make_plan(graph, options, store));
}

}  // namespace ridgeline
