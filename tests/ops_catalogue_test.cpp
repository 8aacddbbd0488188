// What every schema must have: a doc line, samples that infer and run, and text that repeats them.
#include <gtest/gtest.h>

#include <set>

#include "ir/problem.h"
#include "ir/reference.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

// Small positive integers and numbers in (0.5, 1.5): legal almost everywhere.
Tensor filled(const Operand& operand, int salt) {
  if (operand.constant) return operand.constant;
  Tensor t(operand.dtype, operand.shape());
  for (int64_t k = 0; k < t.elements(); ++k) {
    if (is_float(t.dtype()))
      store_f64(t.dtype(), t.data(), k, 0.5 + double((k * 7 + salt * 3) % 16) / 16);
    else
      store_i64(t.dtype(), t.data(), k, 1);
  }
  return t;
}

TEST(Catalogue, NamesAreUnique) {
  std::set<std::string> seen;
  for (const OpSchema* op : catalogue()) {
    EXPECT_TRUE(seen.insert(std::string(op->domain) + ":" + std::string(op->name)).second) << op->name;
    EXPECT_EQ(find_op(op->name, op->domain), op);
  }
}

TEST(Catalogue, EverySchemaIsWhole) {
  for (const OpSchema* op : catalogue()) {
    SCOPED_TRACE(op->name);
    EXPECT_FALSE(op->doc.empty());
    EXPECT_FALSE(op->family.empty());
    EXPECT_GE(op->outputs.size(), 1);
    EXPECT_GE(op->samples.size(), 2);
    EXPECT_TRUE(op->is_elementwise() || op->reference || !op->decompose.empty());
    EXPECT_TRUE(op->gradient || !op->decompose.empty() || op->is_elementwise() || !op->no_gradient.empty())
        << "neither a gradient nor a reason";
  }
}

TEST(Catalogue, SamplesInferRunAndRepeat) {
  for (const OpSchema* op : catalogue()) {
    for (std::string_view sample : op->samples) {
      SCOPED_TRACE(std::string(op->name) + " " + std::string(sample));
      try {
        const Problem problem = parse_problem(*op, sample);
        const std::string text = problem.text();
        EXPECT_EQ(parse_problem(*op, text.substr(text.find(' ') + 1)).text(), text);
        if (problem.program && op->name == "Elementwise")
          continue;  // has no meaning without its program: tested with programs
        std::vector<Tensor> inputs;
        for (const Operand& operand : problem.inputs)
          inputs.push_back(operand.present() ? filled(operand, int(inputs.size())) : Tensor());
        const std::vector<Tensor> outputs = run_reference(*op, problem.attributes, inputs, int(problem.outputs.size()));
        ASSERT_EQ(outputs.size(), problem.outputs.size());
        for (size_t o = 0; o < outputs.size(); ++o) {
          EXPECT_EQ(outputs[o].dtype(), problem.output(int(o)).dtype);
          EXPECT_EQ(outputs[o].shape(), problem.output(int(o)).shape());
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline
