// ridgeline inspect: what a file holds, and what it costs at the least.
#include <map>

#include "cli/common.h"
#include "cli/external_root.h"
#include "core/saturate.h"
#include "core/words.h"
#include "formats/onnx/import.h"
#include "formats/tensor_file.h"
#include "session/inspect.h"

namespace ridgeline::cli {
namespace {

// GGUF, safetensors and npy: the same fields as of a model, as far as there are any, and a list of all.
void show_tensors(const Common& common, const TensorFile& file) {
  constexpr size_t kShown = 20;  // lines of each list; the JSON has all
  Json metadata = Json::object(), tensors = Json::array();
  std::map<std::string, std::pair<int64_t, int64_t>> types;  // count, bytes
  int64_t elements = 0, bytes = 0;
  std::string keys, list;
  for (size_t i = 0; i < file.metadata.size(); ++i) {
    const auto& [key, value] = file.metadata[i];
    metadata[key] = {{"type", value.type}, {"value", value.text}, {"count", value.count}};
    const bool cut = value.text.size() > 80;
    if (i < kShown)
      keys += fmt::format("  {} = {}{}\n", one_line(key), one_line(value.text.substr(0, 80)), cut ? "..." : "");
  }
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    const ListedTensor& t = file.tensors[i];
    tensors.push_back({{"name", t.name},
                       {"dtype", t.type},
                       {"shape", t.shape},
                       {"offset_bytes", t.offset_bytes},
                       {"bytes", t.bytes}});
    auto& [count, sum] = types[t.type];
    ++count;
    sum = saturated_sum(sum, t.bytes);
    elements = saturated_sum(elements, t.elements);
    bytes = saturated_sum(bytes, t.bytes);
    if (i < kShown) list += fmt::format("  {} {} [{}]\n", one_line(t.name), t.type, fmt::join(t.shape, ","));
  }
  const auto more = [&](size_t all) {
    return all > kShown ? fmt::format("  and {} more (--json has them)\n", all - kShown) : "";
  };
  std::string text = fmt::format("{} version {}: {} tensors, {:.3f} M parameters, {:.1f} MB\n", file.format,
                                 file.version, file.tensors.size(), double(elements) / 1e6, double(bytes) / 1e6);
  Json of_type = Json::object();
  for (const auto& [type, sums] : types) {
    of_type[type] = {{"count", sums.first}, {"bytes", sums.second}};
    text += fmt::format("  {:<10} {:>6} tensors {:>12.1f} MB\n", type, sums.first, double(sums.second) / 1e6);
  }
  text += fmt::format("metadata, {} entries\n{}{}", file.metadata.size(), keys, more(file.metadata.size()));
  text += fmt::format("tensors\n{}{}", list, more(file.tensors.size()));
  common.show({{"format", file.format},
               {"version", file.version},
               {"operators", Json::object()},
               {"nodes", 0},
               {"parameters", elements},
               {"flops", 0},
               {"bytes", bytes},
               {"intensity", 0},
               {"inputs", Json::array()},
               {"outputs", Json::array()},
               {"unsupported", Json::array()},
               {"data_offset_bytes", file.data_offset_bytes},
               {"metadata", metadata},
               {"dtypes", of_type},
               {"tensors", tensors}},
              text);
}

}  // namespace

void add_inspect(CLI::App& app, Common& common) {
  auto arguments = std::make_shared<ModelArguments>();
  CLI::App* command = add_command(
      app, common, "inspect", "Show a model's operators, parameters, FLOPs, bytes, inputs and what is unsupported",
      [&common, arguments] {
        if (!tensor_file_format(arguments->path).empty())
          return show_tensors(common, read_tensor_file(arguments->path));
        const Inspection i = inspect_model(arguments->path, arguments->load_options(common).dims, external_root());
        Json operators = Json::object(), unsupported = Json::array();
        std::string text =
            fmt::format("{}: {} nodes, {:.3f} M parameters\n", arguments->path, i.nodes, double(i.parameters) / 1e6);
        for (const auto& [op, count] : i.operators) {
          operators[op] = count;
          text += fmt::format("  {:<28} {:>6}\n", op, count);
        }
        auto tensors = [&](const std::vector<InspectedTensor>& list, const char* title) {
          Json out = Json::array();
          for (const InspectedTensor& t : list) {
            Json shape = Json::array();
            for (const Dim& d : t.shape) shape.push_back(d.known() ? Json(d.value()) : Json(d.text()));
            out.push_back({{"name", t.name}, {"dtype", std::string(name(t.dtype))}, {"shape", shape}});
            text += fmt::format("{} {} {}{}\n", title, one_line(t.name), name(t.dtype),
                                t.ranked ? ridgeline::text(t.shape) : "[?]");
          }
          return out;
        };
        for (const UnsupportedOperator& u : i.unsupported) {
          unsupported.push_back({{"operator", u.op},
                                 {"domain", u.domain},
                                 {"version", u.version},
                                 {"count", u.count},
                                 {"first_node", u.first_node},
                                 {"reason", u.reason}});
          text += fmt::format("unsupported: {} ({}, version {}) x{}, first '{}': {}\n", u.op, u.domain, u.version,
                              u.count, u.first_node, u.reason);
        }
        common.notes = i.notes;
        const double intensity = i.bytes > 0 ? double(i.flops) / double(i.bytes) : 0;
        if (i.complete)
          text += fmt::format(
              "{:.3f} GFLOP, {:.1f} MB read and written at the least by each operator alone, {:.1f} FLOP/byte\n",
              double(i.flops) / 1e9, double(i.bytes) / 1e6, intensity);
        else
          text += "FLOPs and bytes: not known, since shapes depend on " + i.incomplete_reason + "\n";
        Json inputs = tensors(i.inputs, "input "), outputs = tensors(i.outputs, "output");
        common.show({{"operators", operators},
                     {"nodes", i.nodes},
                     {"parameters", i.parameters},
                     {"flops", i.flops},
                     {"bytes", i.bytes},
                     {"intensity", intensity},
                     {"inputs", inputs},
                     {"outputs", outputs},
                     {"unsupported", unsupported}},
                    text);
      });
  arguments->add_to(command);
}

}  // namespace ridgeline::cli
