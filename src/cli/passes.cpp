// ridgeline passes: every pass by name.
#include "cli/common.h"
#include "optimize/pipeline.h"

namespace ridgeline::cli {

void add_passes(CLI::App& app, Common& common) {
  add_command(app, common, "passes", "List the passes, in the order in which they run", [&common] {
    Json list = Json::array();
    std::string text = fmt::format("{:<26} {:<12} {:<9} {}\n", "pass", "stage", "class", "what it does");
    for (const Pass& pass : passes()) {
      list.push_back({{"name", std::string(pass.name)},
                      {"stage", std::string(name(pass.stage))},
                      {"class", std::string(name(pass.pass_class))},
                      {"what", std::string(pass.what)}});
      text += fmt::format("{:<26} {:<12} {:<9} {}\n", pass.name, name(pass.stage), name(pass.pass_class), pass.what);
    }
    common.show({{"passes", list}}, text);
  });
}

}  // namespace ridgeline::cli
