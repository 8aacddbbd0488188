// ridgeline verify: an optimized model, compared with the reference at every boundary that survives fusion.
#include "cli/common.h"
#include "cli/precision_options.h"
#include "verify/boundaries.h"

namespace ridgeline::cli {

void add_verify(CLI::App& app, Common& common) {
  struct Arguments {
    ModelArguments model;
    std::string passes = "all", precision = "f32";
    bool bisect = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = add_command(
      app, common, "verify", "Compare an optimized model with the reference, step by step", [&common, arguments] {
        const Model model = arguments->model.load(common);
        VerifyOptions options;
        options.pipeline = parse_pipeline(arguments->passes, {});
        ask_precision(options.pipeline, arguments->precision);
        options.plan.bindings = model.bindings;
        options.plan.threads = common.threads;
        options.plan.device = device_kind(common);
        options.bisect = arguments->bisect;
        common.progress(
            "ridgeline: comparing every step with the naive reference, in double; a large model takes minutes");
        Verification v;
        naming_file(arguments->model.path, [&] { v = verify(model.graph, model.feeds, options); });
        std::string text;
        for (const Boundary& b : v.wrong)
          text += fmt::format("WRONG '{}'{}: error {:.3g}, tolerance {:.3g}\n", b.value,
                              b.node.empty() ? "" : " of step '" + b.node + "'", b.error, b.tolerance);
        if (!v.culprit.empty()) text += fmt::format("culprit: {}\n", v.culprit);
        text += fmt::format("{}: {} boundaries checked, largest error of an output {:.3g}, tolerance {:.3g}\n",
                            v.ok ? "ok" : "wrong", v.checked_boundaries, v.max_error, v.tolerance);
        if (v.restarts > 0)
          text += fmt::format(
              "the reference goes on from {} quantized values of the plan; each stretch is judged by "
              "itself, and the outputs with and without\n",
              v.restarts);
        Json wrong = Json::array();
        for (const Boundary& b : v.wrong)
          wrong.push_back({{"value", b.value}, {"node", b.node}, {"max_error", b.error}, {"tolerance", b.tolerance}});
        const Json culprit = v.culprit.empty() ? Json(nullptr) : Json(v.culprit);
        common.show({{"ok", v.ok},
                     {"max_error", v.max_error},
                     {"tolerance", v.tolerance},
                     {"checked_boundaries", v.checked_boundaries},
                     {"reference_restarts", v.restarts},
                     {"culprit", culprit},
                     {"wrong", wrong}},
                    text);
        common.exit_code = v.ok ? 0 : 1;
      });
  arguments->model.add_to(command);
  command->add_option("--passes", arguments->passes,
                      "all, none, or names separated by commas (see `ridgeline passes`)");
  add_precision(command, arguments->precision);
  command->add_flag("--bisect", arguments->bisect, "Name the rewrite that breaks the model");
}

}  // namespace ridgeline::cli
