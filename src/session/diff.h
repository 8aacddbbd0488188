// What changed between two results of `optimize` or `profile`, node by node: the parts add up to the whole.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ridgeline {

/// Reads a result's file. Throws Error{kUsage} that names it and what is wrong.
nlohmann::ordered_json read_result(const std::string& path);

/// Steps that share a model's node belong together, so that a fusion on one side is compared with what it replaced.
/// `nodes[]` by |delta|, its last entry the time between steps. Throws Error{kUsage} that names the file.
nlohmann::ordered_json diff_results(const nlohmann::ordered_json& before, const nlohmann::ordered_json& after,
                                    const std::string& before_path, const std::string& after_path);
std::string diff_text(const nlohmann::ordered_json& diff);

}  // namespace ridgeline
