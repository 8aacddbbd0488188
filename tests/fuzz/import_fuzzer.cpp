// libFuzzer target: any bytes either become a sound graph or an Error. Corpus and limits: tools/fuzz.sh.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "formats/onnx/import.h"

namespace {

// A graph that the importer accepts has to hold what every pass relies on.
void check(ridgeline::Graph& graph) {
  for (const std::string& problem : graph.verify()) {
    std::fprintf(stderr, "unsound: %s\n", problem.c_str());
    std::abort();
  }
  graph.infer();
  graph.text();
}

void import(std::span<const std::byte> bytes, bool collect) {
  ridgeline::ImportReport report;
  try {
    ridgeline::Graph graph =
        ridgeline::import_onnx(bytes, "", "fuzzed", {.collect_unsupported = collect, .report = &report});
    check(graph);
  } catch (const ridgeline::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  import(bytes, false);
  import(bytes, true);
  return 0;
}
