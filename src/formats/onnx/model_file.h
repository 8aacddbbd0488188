// The protobuf message of a model, read within limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "onnx.pb.h"

namespace ridgeline {

/// docs/security.md states these.
struct ModelLimits {
  static constexpr int kNesting = 100;                // messages in messages: 33 subgraphs in one another
  static constexpr int64_t kFileBytes = 0x7fffffff;   // protobuf's own; larger models keep their weights outside
  static constexpr int64_t kMessages = 1 << 20;       // nodes, attributes and the like, counted before they are parsed
  static constexpr int kNodeInputs = 1 << 14;         // and outputs, of one node
  static constexpr int64_t kNodes = 1 << 20;          // nodes, after local functions are inlined
  static constexpr int64_t kInlinedBytes = 64 << 20;  // messages copied by inlining
  static constexpr int kFunctionDepth = 64;           // functions that call functions
  static constexpr int kSubgraphDepth = 16;           // subgraphs in subgraphs
  static constexpr int kRank = 64;                    // dimensions of a tensor
  static constexpr int64_t kNewestOpset = 28;
  static constexpr int64_t kNewestIrVersion = 14;
};

/// Reads through a small buffer, so that the file's bytes are never in memory beside the message.
onnx::ModelProto read_model(const std::string& path);
onnx::ModelProto read_model(std::span<const std::byte> bytes, const std::string& name);

/// A name from a file for a message: in quotes, control characters and broken UTF-8 escaped, cut at 120 bytes.
std::string quote(std::string_view name);
std::string escaped(std::string_view name);  // the same without the quotes
bool is_utf8(std::string_view text);

}  // namespace ridgeline
