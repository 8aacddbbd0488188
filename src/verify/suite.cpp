#include "verify/suite.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/onnx/import.h"
#include "formats/onnx/tensor_proto.h"
#include "verify/compare.h"
#include "verify/reference_run.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

/// What expect.json says.
struct Expectation {
  Closeness closeness;
  bool may_refuse = false;
};

Expectation read_expectation(const fs::path& folder) {
  Expectation e;
  std::ifstream file(folder / "expect.json");
  if (!file) return e;
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded()) fail(ErrorCode::kBadInput, "{}: this is no JSON", (folder / "expect.json").string());
  e.may_refuse = json.value("expect", "value") != "value";
  e.closeness.signed_zero = json.value("signed_zero", false);
  if (const auto tolerance = json.find("tolerance"); tolerance != json.end() && tolerance->is_object()) {
    e.closeness.rtol = tolerance->value("rtol", e.closeness.rtol);
    e.closeness.atol = tolerance->value("atol", e.closeness.atol);
    e.closeness.last_place = false;
  }
  return e;
}

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

std::vector<NamedTensor> read_tensors(const fs::path& folder, const std::string& stem) {
  std::vector<NamedTensor> tensors;
  for (int i = 0;; ++i) {
    const fs::path file = folder / (stem + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(file)) return tensors;
    NamedTensor t;
    t.tensor = read_tensor_proto(file.string(), &t.name);
    tensors.push_back(std::move(t));
  }
}

/// What may lie between a result of this type and the right one. bf16: two units in the last place, as the standard's
/// own runner has it (onnx.backend.test.runner 1.23: a relative 2^-6), since its right results round after each step.
/// Floats of a byte and less are right or wrong: a unit is as much as a wrong rounding is off.
Closeness closeness_of(DType dtype, const Expectation& expectation) {
  Closeness c = expectation.closeness;
  if (!c.last_place) return c;  // the case says it
  if (dtype == DType::kBF16) c.rtol = std::max(c.rtol, 0x1p-6);
  c.last_place = info(dtype).bits > 8;
  return c;
}

/// ONNX's own data files hold bf16 as the 16 bits of a u16 tensor.
Tensor as_stored(const Tensor& tensor, DType wanted) {
  if (tensor.dtype() != DType::kU16 || wanted != DType::kBF16) return tensor;
  return Tensor::wrap(wanted, tensor.shape(), tensor.memory());
}

/// In the graph's order: by name where the file has one, else by position.
std::vector<Tensor> in_order(const Graph& graph, const std::vector<ValueId>& values,
                             const std::vector<NamedTensor>& given) {
  std::vector<Tensor> ordered;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = graph.value(values[i]).name;
    auto found = std::find_if(given.begin(), given.end(), [&](const NamedTensor& t) { return t.name == name; });
    if (found == given.end() && i < given.size() && (given[i].name.empty() || values.size() == given.size()))
      found = given.begin() + int64_t(i);
    if (found == given.end()) fail(ErrorCode::kBadInput, "the data set has no tensor '{}'", name);
    ordered.push_back(as_stored(found->tensor, graph.value(values[i]).info.dtype));
  }
  return ordered;
}

/// Is some operator of the model random? Its outputs are then compared by type and shape.
bool is_random(const ImportReport& report, const Graph& graph) {
  for (std::string_view op :
       {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"})
    if (report.operators.count(std::string(op))) return true;
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!node.is("Dropout") || node.input(2) == kNoValue) continue;
    const Tensor* training = graph.constant(node.input(2));
    if (!training || training->i64(0) != 0) return true;
  }
  return false;
}

struct Outcome {
  enum class Kind { kPassed, kWrong, kRefused, kRandom } kind = Kind::kPassed;
  std::string reason;
};

Outcome run_case(const fs::path& folder, const SuiteOptions& options) {
  using Kind = Outcome::Kind;
  std::optional<Expectation> expectation;
  bool random = false;
  int sets = 0;
  try {
    expectation = read_expectation(folder);
    ImportReport report;
    ImportOptions import_options;
    import_options.report = &report;
    const Graph graph = import_onnx((folder / "model.onnx").string(), import_options);
    random = is_random(report, graph);
    for (int set = 0; fs::is_directory(folder / ("test_data_set_" + std::to_string(set))); ++set) {
      const fs::path data = folder / ("test_data_set_" + std::to_string(set));
      const std::vector<Tensor> inputs = in_order(graph, graph.inputs, read_tensors(data, "input"));
      const std::vector<Tensor> right = in_order(graph, graph.outputs, read_tensors(data, "output"));
      try {
        bindings_of(graph, inputs);
      } catch (const Error& error) {  // two cases of ONNX 1.12 hold such data
        return {Kind::kRefused,
                std::string("unsupported: the data set contradicts the model's declarations: ") + error.what()};
      }
      const std::vector<Tensor> y = options.run(graph, inputs);
      for (size_t o = 0; o < right.size(); ++o) {
        const std::string where =
            (set ? fmt::format("data set {}: ", set) : "") + "output '" + graph.value(graph.outputs[o]).name + "': ";
        if (o >= y.size()) return {Kind::kWrong, where + "missing"};
        if (random && y[o].dtype() == right[o].dtype() && y[o].shape() == right[o].shape()) continue;
        const std::string wrong = difference(y[o], right[o], closeness_of(right[o].dtype(), *expectation));
        if (!wrong.empty()) return {Kind::kWrong, where + wrong};
      }
      ++sets;
    }
    if (sets == 0) return {Kind::kWrong, "it has no data: test_data_set_0 is missing"};
  } catch (const Error& error) {
    const std::string what = error.what();
    if (error.code() == ErrorCode::kUnsupported || what.find("unsupported") != std::string::npos)
      return {Kind::kRefused, what};
    if (expectation && expectation->may_refuse) return {Kind::kPassed, ""};
    return {Kind::kWrong, what};
  } catch (const std::exception& error) {
    return {Kind::kWrong, error.what()};
  }
  return {random ? Kind::kRandom : Kind::kPassed, ""};
}

}  // namespace

SuiteResult run_suite(const std::string& folder, const SuiteOptions& options) {
  std::vector<fs::path> folders;
  std::error_code ignored;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, ignored), end;
       !ignored && at != end; at.increment(ignored))
    if (at->path().filename() == "model.onnx") folders.push_back(at->path().parent_path());
  if (folders.empty()) fail(ErrorCode::kUsage, "{}: no folder below it holds a model.onnx", folder);
  std::sort(folders.begin(), folders.end());
  SuiteResult result;
  for (const fs::path& path : folders) {
    const std::string name = path.filename().string();
    if (fnmatch(options.filter.c_str(), name.c_str(), 0) != 0) continue;
    ++result.cases;
    const Outcome outcome = run_case(path, options);
    switch (outcome.kind) {
      case Outcome::Kind::kPassed:
        result.passed.push_back(name);
        break;
      case Outcome::Kind::kWrong:
        result.wrong.push_back({name, outcome.reason});
        break;
      case Outcome::Kind::kRefused:
        result.refused.push_back({name, outcome.reason});
        break;
      case Outcome::Kind::kRandom:
        result.random.push_back(name);
        break;
    }
  }
  if (result.cases == 0)
    fail(ErrorCode::kUsage, "none of the {} cases below {} fits the filter '{}'", folders.size(), folder,
         options.filter);
  return result;
}

}  // namespace ridgeline
