// Errors that a user, a file or a device can cause. Bugs are assertions.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace ridgeline {

enum class ErrorCode {
  kUsage,        // a wrong argument: exit code 2
  kBadModel,     // a file that is broken or breaks the standard: exit code 2
  kUnsupported,  // an operator, type or version that we do not have: exit code 2, the message says `unsupported`
  kBadInput,     // a tensor of the wrong shape or type: exit code 2
  kResource,     // memory, disk or a device is missing: exit code 3
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }
  int exit_code() const { return code_ == ErrorCode::kResource ? 3 : 2; }

 private:
  ErrorCode code_;
};

/// Throws Error{code} with a formatted message. The message names the node, the operator, the reason and the remedy.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ridgeline
