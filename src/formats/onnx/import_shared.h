// What the importers of a model's graph and of its subgraphs share: names of dimensions, and the list of what is
// unsupported.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "formats/onnx/external_data.h"
#include "formats/onnx/functions.h"
#include "formats/onnx/import.h"
#include "ridgeline/error.h"

namespace ridgeline {

/// Models of older operator sets are read where each of their operators had the same form as in this one.
inline constexpr int64_t kOldestOpset = 7;

/// "ai.onnx" for the empty one.
std::string shown_domain(const std::string& domain);

/// Throws Error{kUnsupported} for versions that are too old or not known yet.
void check_versions(const onnx::ModelProto& model, const std::string& file);

struct ImportShared {
  ImportShared(std::string file_name, const std::string& folder, const ImportOptions& import_options)
      : file(std::move(file_name)),
        external(folder, import_options.external_root),
        options(import_options),
        report(import_options.report ? *import_options.report : own_report) {}

  // A symbol's name becomes part of expressions: "batch size" and "2*n" would be read as more than a name.
  std::string symbol_for(const std::string& param);
  /// The schema, or Error{kUnsupported} with the nearest form that there is.
  const OpSchema& known_op(const std::string& name, const std::string& domain, int64_t opset);
  void mark_unsupported(const SourceNode& node, std::string reason);
  /// Is it to be listed and left out, as an input or initializer of a type that is not known here?
  bool leaves_out(const Error& error, const char* what, const std::string& name);
  /// The declaration of an output decides nothing, but one that contradicts the graph is a fault of the exporter's.
  void compare_shapes(const onnx::ValueInfoProto& output, const Value& value);
  [[noreturn]] void refuse_unsupported() const;
  void note(std::string text);

  std::string file;
  ExternalData external;
  const ImportOptions& options;
  ImportReport own_report;
  ImportReport& report;
  std::unordered_set<const onnx::NodeProto*> single_batches;  // parts of Scans of opset 8: already of today's form

 private:
  void mark_unsupported(const char* what, const std::string& name, std::string reason);
  std::string fresh_symbol(const std::string& stem);
  /// "; the nearest is ..." or nothing.
  std::string nearest(const std::string& op);

  std::unordered_map<std::string, std::string> symbols_;  // dim_param -> symbol
  std::unordered_set<std::string> used_symbols_;
  std::unordered_map<std::string, std::string> nearest_;  // unknown operator -> what is said about it
  std::map<std::tuple<std::string, std::string, std::string>, size_t>
      unsupported_;  // operator, domain, reason -> its line
};

}  // namespace ridgeline
