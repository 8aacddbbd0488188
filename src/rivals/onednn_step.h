// One primitive of oneDNN with its operands.
#pragma once

#include "rivals/onednn_api.h"
#include "rivals/rival.h"

namespace ridgeline::onednn {

/// How the library sees one operand of the problem.
struct Argument {
  int arg = 0;            // kArgSrc, ...
  int input = 0;          // of the problem; -1: the output
  Desc plain = nullptr;   // row-major
  Desc wanted = nullptr;  // the library's choice
};

const char* status_text(int status);

class Step : public RivalStep {
 public:
  /// Takes the described primitive. `reason` is set if the library refuses.
  Step(const Api& api, Handle description, std::vector<Argument> operands, std::string& reason);
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
  const Argument* find(int input) const;
  void reorder(Desc from_desc, const void* from, Desc to_desc, void* to) const;

  const Api& api_;
  Handle description_ = nullptr, primitive_ = nullptr;
  std::string implementation_;
  std::vector<Argument> operands_;
  std::vector<std::vector<ExecArg>> sets_;
};

}  // namespace ridgeline::onednn
