// ridgeline kernels: every kernel, best first in its list. ridgeline op: the catalogue.
#include "kernels/kernel.h"

#include <algorithm>

#include "cli/common.h"
#include "ops/catalogue.h"
#include "session/op_report.h"

namespace ridgeline::cli {

void add_kernels(CLI::App& app, Common& common) {
  add_command(app, common, "kernels", "List the kernels of a device", [&common] {
    Json list = Json::array();
    std::string text = fmt::format("{:<28} {}\n", "kernel", "operator");
    for (const Kernel* k : all_kernels(common.cuda() ? DeviceKind::kCuda : DeviceKind::kCpu)) {
      list.push_back(
          {{"name", std::string(k->name)}, {"op", std::string(k->op)}, {"device", common.cuda() ? "cuda" : "cpu"}});
      text += fmt::format("{:<28} {}\n", k->name, k->op);
    }
    common.show({{"kernels", list}}, text);
  });
}

void add_op(CLI::App& app, Common& common) {
  CLI::App* op = app.add_subcommand("op", "The operator catalogue: op list, op show NAME");
  op->require_subcommand(1);
  auto markdown = std::make_shared<bool>(false);
  CLI::App* list = add_command(*op, common, "list", "List all operators", [&common, markdown] {
    Json operators = Json::array();
    for (const OpSchema* schema : catalogue()) operators.push_back(op_json(*schema));
    common.show({{"operators", operators}}, *markdown ? op_markdown() : op_table());
  });
  list->add_flag("--markdown", *markdown, "As docs/operators.md has it");
  auto name = std::make_shared<std::string>();
  CLI::App* show = add_command(
      *op, common, "show", "Show one operator: interface, shapes, tiling, scheduling, kernels", [&common, name] {
        const OpSchema* found = nullptr;
        for (const OpSchema* schema : catalogue())
          if (schema->name == *name) found = schema;
        if (!found) {
          std::string near;
          for (const OpSchema* schema : catalogue())
            if (!name->empty() && std::tolower(schema->name[0]) == std::tolower((*name)[0]))
              near += " " + std::string(schema->name);
          fail(ErrorCode::kUsage, "unsupported: there is no operator '{}'. Under its letter there are:{}", *name, near);
        }
        common.show({{"operators", Json::array({op_json(*found)})}}, op_page(*found));
      });
  show->add_option("name", *name, "As the standard spells it")->required();
}

}  // namespace ridgeline::cli
