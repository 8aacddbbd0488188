#include "rivals/onednn_step.h"

#include <iterator>

namespace ridgeline::onednn {

const char* status_text(int status) {
  constexpr const char* kTexts[] = {"success",         "out of memory", "invalid arguments", "unimplemented",
                                    "no more of them", "runtime error", "not required"};
  return status >= 0 && status < int(std::size(kTexts)) ? kTexts[status] : "unknown status";
}

Step::Step(const Api& api, Handle description, std::vector<Argument> operands, std::string& reason)
    : api_(api), description_(description), operands_(std::move(operands)) {
  if (const int status = api.primitive_create(&primitive_, description_); status != 0) {
    reason = fmt::format("the library refuses the problem: {}", status_text(status));
    return;
  }
  const char* words = nullptr;
  if (api.query(description_, kQueryImplementation, 0, &words) == 0 && words) implementation_ = words;
  for (Argument& a : operands_) {
    const int status = api.query(description_, kQueryArgument, a.arg, &a.wanted);  // lives inside of the description
    if (status != 0 || !a.wanted) reason = "the library does not tell the layout that it wants";
  }
}

Step::~Step() {
  for (const std::vector<ExecArg>& set : sets_)
    for (const ExecArg& a : set) api_.memory_destroy(a.memory);
  if (primitive_) api_.primitive_destroy(primitive_);
  if (description_) api_.primitive_desc_destroy(description_);
}

const Argument* Step::find(int input) const {
  for (const Argument& operand : operands_)
    if (operand.input == input) return &operand;
  return nullptr;
}

int64_t Step::input_bytes(int input) const {
  const Argument* const operand = find(input);
  return operand ? int64_t(api_.size(operand->wanted)) : 0;
}

int64_t Step::output_bytes() const { return int64_t(api_.size(find(-1)->wanted)); }

void Step::reorder(Desc from_desc, const void* from, Desc to_desc, void* to) const {
  Handle description = nullptr, primitive = nullptr;
  ExecArg arguments[2] = {{kArgSrc, nullptr}, {kArgDst, nullptr}};
  int status = api_.reorder(&description, from_desc, api_.engine, to_desc, api_.engine, nullptr);
  if (status == 0) status = api_.primitive_create(&primitive, description);
  if (status == 0) status = api_.memory_create(&arguments[0].memory, from_desc, api_.engine, const_cast<void*>(from));
  if (status == 0) status = api_.memory_create(&arguments[1].memory, to_desc, api_.engine, to);
  if (status == 0) status = api_.execute(primitive, api_.stream, 2, arguments);
  if (status == 0) status = api_.stream_wait(api_.stream);
  for (const ExecArg& a : arguments)
    if (a.memory) api_.memory_destroy(a.memory);
  if (primitive) api_.primitive_destroy(primitive);
  if (description) api_.primitive_desc_destroy(description);
  if (status != 0) fail(ErrorCode::kResource, "onednn: a reorder failed: {}", status_text(status));
}

void Step::load(int input, const Tensor& from, void* to) {
  if (const Argument* const operand = find(input)) reorder(operand->plain, from.data(), operand->wanted, to);
}

void Step::unload(const void* from, Tensor& to) { reorder(find(-1)->wanted, from, find(-1)->plain, to.data()); }

void Step::bind(const std::vector<void*>& inputs, void* output) {
  std::vector<ExecArg> set;
  for (const Argument& operand : operands_) {
    ExecArg a{operand.arg, nullptr};
    void* const data = operand.input < 0 ? output : inputs[size_t(operand.input)];
    const int status = api_.memory_create(&a.memory, operand.wanted, api_.engine, data);
    if (status != 0) fail(ErrorCode::kResource, "onednn: no memory object: {}", status_text(status));
    set.push_back(a);
  }
  sets_.push_back(std::move(set));
}

void Step::run(size_t set) {
  const std::vector<ExecArg>& arguments = sets_[set];
  const int status = api_.execute(primitive_, api_.stream, int(arguments.size()), arguments.data());
  if (status != 0) fail(ErrorCode::kResource, "onednn: a run failed: {}", status_text(status));
}

}  // namespace ridgeline::onednn
