// ridgeline inspect: what a file holds, and what it costs at the least.
#include <map>

#include "cli/common.h"
#include "core/words.h"
#include "formats/onnx/import.h"
#include "session/inspect.h"

namespace ridgeline::cli {

void add_inspect(CLI::App& app, Common& common) {
  auto arguments = std::make_shared<ModelArguments>();
  CLI::App* command = add_command(
      app, common, "inspect", "Show a model's operators, parameters, FLOPs, bytes, inputs and what is unsupported",
      [&common, arguments] {
        const Inspection i = inspect_model(arguments->path, arguments->load_options(common).dims);
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
