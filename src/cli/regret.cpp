// ridgeline regret: what the dispatcher's choice costs against brute force.
#include "session/regret_audit.h"

#include "cli/common.h"
#include "tune/probes.h"

namespace ridgeline::cli {
namespace {

void regret(const Common& common, AuditOptions options) {
  options.threads = common.threads ? common.threads : 1;
  options.seed = common.seed;
  options.progress = [&common](const std::string& line) { common.progress(line); };
  if (!cached_ceilings()) common.progress("ridgeline: measuring the machine's ceilings, once (about 15 s)");
  const Audit audit = audit_choice(options);
  std::vector<RegretShape> all = audit.shapes;
  all.insert(all.end(), audit.table_rows.begin(), audit.table_rows.end());
  // The mean is of held-out shapes; flagged are those and the rows that were measured once and are slow today.
  Json document = regret_json(audit.shapes);
  document["flagged"] = regret_json(all)["flagged"];
  document["seed"] = options.seed;
  document["threads"] = options.threads;
  const Regret rows = regret_of(audit.table_rows);
  Json shapes = Json::array();
  for (const RegretShape& s : all)
    shapes.push_back({{"problem", s.words},
                      {"kernel", s.kernel},
                      {"tile", s.tile},
                      {"chosen_by", s.chosen_by},
                      {"candidates", s.candidates},
                      {"chosen_us", s.chosen_us},
                      {"regret", s.regret}});
  std::string text = regret_text(audit.shapes);
  if (!audit.table_rows.empty())
    text += fmt::format("\nrows that were measured before ({}):\n{}", audit.table, regret_text(audit.table_rows));
  for (const std::string& row : audit.stale) text += fmt::format("stale, not used: {}\n", row);
  common.show({{"regret", document},
               {"table",
                {{"source", audit.table},
                 {"rows", rows.shapes},
                 {"geomean", rows.geomean},
                 {"worst", rows.worst},
                 {"stale", audit.stale}}},
               {"problems", shapes}},
              text);
}

}  // namespace

void add_regret(CLI::App& app, Common& common) {
  auto options = std::make_shared<AuditOptions>();
  CLI::App* command = add_command(app, common, "regret",
                                  "Audit the choice of kernels and tiles: on shapes that are in no table, and on a "
                                  "table's rows, against brute force",
                                  [&common, options] { regret(common, *options); });
  command->add_option("--family", options->family, "matmul, conv or attention (default: all)");
  command->add_option("--cases", options->cases, "Held-out shapes a family (default 48)")
      ->check(whole_number(1, 100000));
  command->add_option("--rows", options->rows, "Rows of the table a family, drawn (default 24)")
      ->check(whole_number(0, 100000));
  command->add_option("--time", options->seconds, "Seconds of measurement a shape, at most (default 1)")
      ->check(seconds_to_measure());
  command->footer(
      "RIDGELINE_TILE_TABLE=FILE audits another table than the shipped one, RIDGELINE_TILE_TABLE=none the "
      "cost model alone.");
}

}  // namespace ridgeline::cli
