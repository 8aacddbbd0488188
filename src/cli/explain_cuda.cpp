#include "cli/explain_cuda.h"

#include "teach/cuda_ladder.h"
#include "tune/cuda_ceilings.h"

namespace ridgeline::cli {
namespace {

using teach::CudaRow;

std::string gain_words(const CudaRow& row) {
  std::string text = fmt::format("{:.2f} x", row.gain);
  if (!row.clear) return text + ", not clear: rounds differ";
  return row.gain < 1 ? text + ": no gain on this card" : text;
}

// Below sm_90 no peak of the tensor cores is measured.
std::string share(double of_roof) { return of_roof > 0 ? fmt::format("{:.1f}%", of_roof * 100) : "-"; }

std::string as_text(const teach::CudaTask& task, const std::vector<CudaRow>& rows) {
  std::string text = fmt::format(
      "{}: {} FLOPs, {} bytes at least. Device time of calls over rotated buffers in a graph, median\n"
      "MB: what the warps ask of memory before any cache, in pieces of 32 bytes, by the order of the loops\n"
      "roof: of the peak of what it multiplies with (multiply-adds in f32, or the tensor cores); card: of the tensor "
      "cores' peak; both measured between the runs\n"
      "{:<17} {:>10} {:>8} {:>10} {:>6} {:>6}  {:<12} {}\n",
      task.problem, task.product.flops(), task.product.least_bytes(), "step", "median us", "TFLOP/s", "MB", "roof",
      "card", "matrix", "against the one before");
  std::string ideas;
  bool rises = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    const CudaRow& row = rows[i];
    const bool step = !row.file.empty();
    rises = rises && (i == 0 || !step || row.gain >= 1 || !row.clear);
    text += fmt::format("{:<17} {:>10.1f} {:>8.2f} {:>10.1f} {:>6} {:>6}  {:<12} {}\n",
                        step ? fmt::format("{} {}", i + 1, row.name) : row.name, row.samples.median() / 1e3,
                        row.tflop_s, double(row.bytes) / 1e6, share(row.roof_share()), share(row.card_share()),
                        words(row.instructions), i == 0 ? "" : gain_words(row));
    if (step) ideas += fmt::format("{:>2} {:<13} {}: {}\n", i + 1, row.name, row.file, row.idea);
  }
  for (const std::string& what : task.left_out) text += "left out: " + what + "\n";
  if (!rises) text += "Not every step gains here; which does not is said in its line.\n";
  return text + "\n" + ideas +
         "The row without a number is the library's own kernel, B packed ahead as weights are; its MB are each operand "
         "once.\nAny steps in any order, each against the one before: steps=vectors,tensor-cores\n";
}

}  // namespace

void teach_on_cuda(const Common& common, const std::vector<std::string>& keys, double seconds) {
  const teach::CudaTask task = teach::cuda_matmul_task(keys);
  const Ceilings ceilings = device_ceilings(common);
  common.progress(
      fmt::format("ridgeline: {} in {} steps, {} s or three rounds", task.problem, task.steps.size(), seconds));
  const std::vector<CudaRow> rows = teach::climb_cuda(
      task, ceilings, seconds, common.seed, [&](const std::string& what) { common.progress("ridgeline: " + what); });
  Json steps = Json::array(), own = Json::array();
  for (const CudaRow& row : rows) {
    const bool step = !row.file.empty();
    Json entry = {{"name", row.name},
                  {"idea", row.idea},
                  {"median_us", row.samples.median() / 1e3},
                  {"p10_us", row.samples.p10() / 1e3},
                  {"p90_us", row.samples.p90() / 1e3},
                  {"gop_s", row.tflop_s * 1e3},
                  {"bytes", row.bytes},
                  {"roof_gop_s", row.roof_tflop_s * 1e3},
                  {"roof_share", row.roof_share()},
                  {"card_share", row.card_share()},
                  {"matrix_instructions", {{"mma", row.instructions.mma}, {"wgmma", row.instructions.wgmma}}},
                  {"gain", row.gain},
                  {"clear", row.clear}};
    if (step)
      entry.update({{"file", row.file},
                    {"registers", row.registers},
                    {"shared_bytes", row.shared_bytes},
                    {"blocks_per_sm", row.blocks_per_sm}});
    (step ? steps : own).push_back(entry);
  }
  common.show({{"problem", task.problem},
               {"flops", task.product.flops()},
               {"least_bytes", task.product.least_bytes()},
               {"steps", steps},
               {"left_out", task.left_out},
               {"own", own}},
              as_text(task, rows));
}

}  // namespace ridgeline::cli
