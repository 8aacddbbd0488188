// One primitive of oneDNN with its operands.
#pragma once

#include "rivals/onednn_api.h"
#include "rivals/rival.h"

namespace ridgeline::onednn {

/// How the library sees one operand of the problem.
struct Argument {
  int arg;            // kArgSrc, ...
  int input;          // of the problem; -1: the output
  MemoryDesc plain;   // row-major
  MemoryDesc wanted;  // the same or, before the primitive is made, any
};

/// What the problem is in the library's words.
struct Primitive {
  OpDesc op;
  bool is_reorder = false;  // of arguments 0 and 1, instead of `op`
  std::vector<Argument> arguments;
};

const char* status_text(int status);

class Step : public RivalStep {
 public:
  /// `reason` is set if the library refuses.
  Step(const Api& api, const Primitive& primitive, std::string& reason);
  ~Step() override;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  const std::string& implementation() const { return implementation_; }
  int64_t input_bytes(int input) const override;
  int64_t output_bytes() const override;
  void load(int input, const Tensor& from, void* to) override;
  void unload(const void* from, Tensor& to) override;
  void bind(const std::vector<void*>& inputs, void* output) override;
  void run(size_t set) override;

 private:
  struct Bound {
    int arg, input;
    MemoryDesc plain;
    const MemoryDesc* wanted;  // inside of the primitive's description
  };
  const Bound* find(int input) const;
  void reorder(const MemoryDesc* from_desc, const void* from, const MemoryDesc* to_desc, void* to) const;

  const Api& api_;
  Handle description_ = nullptr, primitive_ = nullptr;
  std::string implementation_;
  std::vector<Bound> operands_;
  std::vector<std::vector<ExecArg>> sets_;
};

}  // namespace ridgeline::onednn
