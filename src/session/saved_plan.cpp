#include "session/saved_plan.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <fmt/ranges.h>

#include "core/sha256.h"
#include "formats/ridge/graph_record.h"
#include "formats/ridge/saved_file.h"
#include "machine/probe.h"
#include "session/load.h"
#include "tune/bench.h"

namespace ridgeline {
namespace {

using Json = nlohmann::json;
using Strings = std::set<std::string, std::less<>>;

// The linker's build identity of the object that this code is in: packings may change with every build.
std::string build_identity() {
  struct Search {
    ElfW(Addr) here;
    std::string found;
  } search{reinterpret_cast<ElfW(Addr)>(&build_identity), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* data) {
        auto& search = *static_cast<Search*>(data);
        bool inside = false;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& p = object->dlpi_phdr[i];
          const ElfW(Addr) begin = object->dlpi_addr + p.p_vaddr;
          inside = inside || (p.p_type == PT_LOAD && search.here >= begin && search.here < begin + p.p_memsz);
        }
        if (!inside) return 0;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& p = object->dlpi_phdr[i];
          if (p.p_type != PT_NOTE) continue;
          const auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
          for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= p.p_memsz;) {
            const char* const note = reinterpret_cast<const char*>(object->dlpi_addr + p.p_vaddr + at);
            const auto& head = *reinterpret_cast<const ElfW(Nhdr)*>(note);
            const auto* id = reinterpret_cast<const unsigned char*>(note + sizeof head + padded(head.n_namesz));
            if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4)
              for (unsigned b = 0; b < head.n_descsz; ++b) search.found += fmt::format("{:02x}", id[b]);
            at += sizeof head + padded(head.n_namesz) + padded(head.n_descsz);
          }
        }
        return 1;
      },
      &search);
  return search.found;
}

struct FileFacts {
  int64_t bytes = -1, modified_ns = 0;
};
FileFacts facts_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  return {int64_t(status.st_size), int64_t(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

std::string kernel_and_tile(const Step& step) {
  return fmt::format("{} {}", step.call.kernel->name, tile_words(step.call.tile));
}

Json decision_record(const Decision& d) {
  return {d.pass,
          d.nodes,
          d.root,
          int(d.action),
          d.reason_code,
          d.reason,
          d.bytes_saved,
          d.launches_saved,
          d.stage,
          d.intensity_before,
          d.intensity_after,
          d.predicted_gain_us,
          d.measured_gain_us};
}

Decision decision_of(const Json& r) {
  Decision d;
  d.pass = r.at(0);
  d.nodes = r.at(1).get<std::vector<std::string>>();
  d.root = r.at(2);
  d.action = Action(std::clamp(r.at(3).get<int>(), 0, int(Action::kUndone)));
  d.reason_code = r.at(4);
  d.reason = r.at(5);
  d.bytes_saved = r.at(6);
  d.launches_saved = r.at(7);
  d.stage = r.at(8);
  d.intensity_before = r.at(9);
  d.intensity_after = r.at(10);
  d.predicted_gain_us = r.at(11);
  d.measured_gain_us = r.at(12);
  return d;
}

// Why a saved plan does not fit here and now; empty: it does.
std::string why_stale(const Json& record) {
  const auto machine = record.at("machine").get<std::string>();
  if (machine != this_cpu().fingerprint())
    return fmt::format("it was made for another machine ({}; this is {})", machine, this_cpu().fingerprint());
  if (record.at("build").get<std::string>() != build_identity()) return "another build of ridgeline wrote it";
  const Json& source = record.at("source");
  const auto path = source.at("path").get<std::string>();
  const FileFacts now = facts_of(path);
  if (now.bytes < 0) return "";  // gone, or on another machine: the plan is whole without it
  if (now.bytes == source.at("bytes") && now.modified_ns == source.at("modified_ns")) return "";
  if (now.bytes == source.at("bytes") && sha256_file(path) == source.at("sha256")) return "";
  return fmt::format("the model file {} has changed since", path);
}

PipelineOptions pipeline_of(const Json& record) {
  PipelineOptions pipeline;
  pipeline.disabled = record.at("disabled").get<Strings>();
  pipeline.lossy = record.at("lossy").get<Strings>();
  pipeline.undone_nodes = record.at("undone_nodes").get<Strings>();
  for (const auto& [pass, nodes] : record.at("only_nodes").items()) pipeline.only_nodes[pass] = nodes.get<Strings>();
  return pipeline;
}

// Inputs whose content is a part of the saved graph may be given again, with that content.
void take_value_inputs(const Json& record, const std::vector<Tensor>& tensors, LoadOptions& options) {
  for (const auto& [input, number] : record.items()) {
    const auto given = options.inputs.find(input);
    if (given == options.inputs.end()) continue;
    const Tensor& saved = tensors.at(number.get<size_t>());
    const Tensor& now = given->second;
    if (now.dtype() != saved.dtype() || now.shape() != saved.shape() ||
        (now.bytes() > 0 && std::memcmp(now.data(), saved.data(), size_t(now.bytes())) != 0))
      fail(ErrorCode::kBadInput,
           "the plan was saved for one content of the input '{}', on which shapes depend, and another was given: use "
           "the model itself",
           input);
    options.inputs.erase(given);
  }
}

Model model_from_record(const std::string& path, SavedFile& file, LoadOptions options,
                        std::vector<std::string>& notes) {
  const Json& record = file.record;
  auto saved = std::make_shared<SavedPlan>();
  saved->path = path;
  saved->source = record.at("source").at("path");
  saved->stale = why_stale(record);
  saved->pipeline = pipeline_of(record.at("pipeline"));
  const Bindings given_dims = options.dims;
  for (const auto& [symbol, extent] : record.at("dims").items()) options.dims.emplace(symbol, extent.get<int64_t>());
  Model model;
  if (!saved->stale.empty() && facts_of(saved->source).bytes >= 0) {
    saved->optimized = false;
    try {
      model = load_model(saved->source, options, notes);
    } catch (const Error& error) {  // its symbols may be others by now
      if (error.code() != ErrorCode::kUsage) throw;
      options.dims = given_dims;
      model = load_model(saved->source, options, notes);
    }
  } else {
    std::map<uint64_t, uint64_t> ids;
    Graph graph = graph_of_record(record.at("graph"), file.tensors, ids);
    take_value_inputs(record.at("value_inputs"), file.tensors, options);
    const std::vector<std::string> symbols = graph.symbols();
    std::erase_if(options.dims, [&](const auto& dim) {
      return record.at("dims").contains(dim.first) &&
             std::find(symbols.begin(), symbols.end(), dim.first) == symbols.end();
    });
    model = bind_model(std::move(graph), options);
    for (const Json& packed : record.at("packed")) {
      const auto id = ids.find(packed.at(0).get<uint64_t>());
      if (id == ids.end() || !saved->stale.empty() || packed.at(1).get<std::string>().empty()) continue;
      saved->packed.push_back(
          {{id->second, packed.at(1).get<std::string>()}, file.tensors.at(packed.at(2).get<size_t>())});
    }
    for (const Json& d : record.at("decisions")) saved->decisions.push_back(decision_of(d));
    saved->kernels = record.at("kernels").get<std::map<std::string, std::string>>();
  }
  model.saved = saved;
  return model;
}

// A file that cannot be written is told, and no more: the plan stands.
void write_again(const SavedPlan& saved, const Model& model, Compiled& compiled, const CompileOptions& options) {
  try {
    save_plan(saved.path, saved.source, model, compiled.graph, compiled.decisions.all, options);
    compiled.notes.push_back(fmt::format("the saved plan {} was written anew", saved.path));
  } catch (const Error& error) {
    compiled.notes.push_back(fmt::format("the saved plan stays stale, each start builds it anew: {}", error.what()));
  }
}

void note_other_choices(const SavedPlan& saved, Compiled& compiled) {
  int others = 0;
  for (const Step& step : compiled.plan->steps) {
    const auto it = saved.kernels.find(step.name);
    others += step.kind == Step::Kind::kKernel && it != saved.kernels.end() && it->second != kernel_and_tile(step);
  }
  if (others > 0)
    compiled.notes.push_back(
        fmt::format("{} of {} steps run by another kernel or tile than when the plan was saved: "
                    "other extents, threads or ceilings",
                    others, compiled.plan->steps.size()));
}

}  // namespace

void save_plan(const std::string& path, const std::string& model_file, const Model& model, const Graph& optimized,
               const std::vector<Decision>& decisions, const CompileOptions& options) {
  Graph graph = optimized;
  ConstantStore store;
  PlanOptions plan_options = plan_options_for(options.pipeline, options.plan);
  plan_options.bindings = model.bindings;
  const Plan plan = make_plan(graph, plan_options, store);
  SavedFile file;
  Json packed = Json::array(), kernels = Json::object(), reasons = Json::array(), values = Json::object();
  Json graph_json = graph_record(graph, file.tensors);
  store.each([&](const ConstantStore::Key& key, const Tensor& tensor) {
    if (key.packing.empty()) return;  // read as the graph has it
    packed.push_back({key.constant_id, key.packing, file.tensors.size()});
    file.tensors.push_back(tensor);
  });
  for (const Step& step : plan.steps)
    if (step.kind == Step::Kind::kKernel) kernels[step.name] = kernel_and_tile(step);
  for (const Decision& d : decisions) reasons.push_back(decision_record(d));
  for (const std::string& input : model.value_inputs) {
    values[input] = file.tensors.size();
    file.tensors.push_back(model.feeds.at(input));
  }
  const std::string source = std::filesystem::absolute(model_file).string();
  const FileFacts facts = facts_of(source);
  file.record = {
      {"machine", this_cpu().fingerprint()},
      {"build", build_identity()},
      {"source",
       {{"path", source}, {"bytes", facts.bytes}, {"modified_ns", facts.modified_ns}, {"sha256", sha256_file(source)}}},
      {"pipeline",
       {{"disabled", options.pipeline.disabled},
        {"lossy", options.pipeline.lossy},
        {"undone_nodes", options.pipeline.undone_nodes},
        {"only_nodes", Json(options.pipeline.only_nodes)}}},
      {"dims", model.bindings},
      {"value_inputs", values},
      {"graph", graph_json},
      {"packed", packed},
      {"kernels", kernels},
      {"decisions", reasons}};
  write_saved_file(path, file);
}

Model load_saved_plan(const std::string& path, const LoadOptions& options, std::vector<std::string>& notes) {
  const auto begin = std::chrono::steady_clock::now();
  SavedFile file = read_saved_file(path);
  Model model;
  try {
    model = model_from_record(path, file, options, notes);
  } catch (const Json::exception& error) {
    fail(ErrorCode::kBadModel, "{}: the record of the saved plan is broken: {}", path, error.what());
  } catch (const std::out_of_range&) {
    fail(ErrorCode::kBadModel, "{}: the record of the saved plan names a tensor that it does not have", path);
  }
  model.path = path;
  model.load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (!model.saved->stale.empty())
    notes.push_back(fmt::format("the saved plan {} is built anew from {}: {}", path,
                                model.saved->optimized ? "the graph in it" : model.saved->source, model.saved->stale));
  return model;
}

Compiled compile_saved(Model& model, const CompileOptions& options, ConstantStore& store) {
  const std::shared_ptr<const SavedPlan> saved = model.saved;
  const PipelineOptions& asked = options.pipeline;
  if (asked.none || !asked.only.empty() || !asked.disabled.empty() || !asked.lossy.empty() ||
      asked.stage != Stage::kWholeGraph || options.plan.device != DeviceKind::kCpu)
    fail(ErrorCode::kUsage,
         "{} is a saved plan, optimized already for a CPU: passes, precisions, stages and devices are asked of its "
         "model, {}",
         saved->path, saved->source);
  CompileOptions mine = options;
  const bool stale = !saved->stale.empty();
  mine.consume = options.consume && !stale;  // its weights are written once more
  if (!saved->optimized) {
    mine.pipeline = saved->pipeline;
    model.saved = nullptr;  // an ordinary model from here on
    Compiled compiled = compile(model, mine, store);
    write_again(*saved, model, compiled, mine);
    return compiled;
  }
  for (const SavedPlan::Packed& packed : saved->packed) store.put(packed.key, packed.tensor);
  const auto begin = std::chrono::steady_clock::now();
  Compiled out;
  out.graph = mine.consume ? std::move(model.graph) : model.graph;
  out.decisions.all = saved->decisions;
  PlanOptions plan = plan_options_for(mine.pipeline, mine.plan);
  plan.bindings = model.bindings;
  plan.keep_packings = !stale;
  if (!plan.ceilings) plan.ceilings = cached_ceilings();
  if (mine.memory_budget != 0) plan.ns_per_byte = price_within(out.graph, plan, mine);
  out.plan = std::make_shared<const Plan>(make_plan(out.graph, plan, store, mine.consume));
  out.plan_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (stale) {
    mine.pipeline = saved->pipeline;
    write_again(*saved, model, out, mine);
  } else {
    note_other_choices(*saved, out);
  }
  return out;
}

}  // namespace ridgeline
