// The ONNX importer: what it reads, upgrades, refuses, and in which words.
#include <gtest/gtest.h>

#include <functional>

#include "formats/onnx/tensor_proto.h"
#include "onnx_model.h"

namespace ridgeline {
namespace {

using ImportTest = OnnxTest;

TEST_F(ImportTest, NamesSymbolsAndOrigin) {
  input("x", {"batch", "", "4"});
  raw_weight("w", {1, 2, 3, 4});
  node("Add", {"x", "w"}, {"y"}, "add_node");
  node("Relu", {"y"}, {"z"});
  output("z");
  Graph g = import();
  EXPECT_TRUE(g.verify().empty());
  EXPECT_EQ(g.symbols(), (std::vector<std::string>{"batch", "x_1"}));
  EXPECT_EQ(only(g, "Add").name, "add_node");
  EXPECT_EQ(only(g, "Add").origin, std::vector<std::string>{"add_node"});
  EXPECT_EQ(only(g, "Relu").name, "Relu_1");
  EXPECT_EQ(g.value(g.outputs[0]).name, "z");
  EXPECT_EQ(text(g.value(g.outputs[0]).shape()), "[batch,x_1,4]");
}

TEST_F(ImportTest, NodesInAnyOrder) {
  input("x", {"2"});
  node("Relu", {"y"}, {"z"});
  node("Neg", {"x"}, {"y"});
  output("z");
  EXPECT_EQ(import().live_nodes(), 2);
}

TEST_F(ImportTest, InitializerThatIsAlsoAnInputIsAConstant) {
  input("x", {"2"});
  input("w", {"2"});
  raw_weight("w", {3, 4});
  node("Add", {"x", "w"}, {"y"});
  output("y");
  ImportReport report;
  Graph g = import({.report = &report});
  EXPECT_EQ(g.inputs.size(), 1u);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("'w'"), std::string::npos);
  EXPECT_EQ(report.parameters, 2);
}

TEST_F(ImportTest, TypedData) {
  struct Case {
    int type;
    std::function<void(onnx::TensorProto&)> fill;
    DType dtype;
    double want;
  };
  const std::vector<Case> cases = {
      {1, [](auto& t) { t.add_float_data(1.5); }, DType::kF32, 1.5},
      {10, [](auto& t) { t.add_int32_data(0x3e00); }, DType::kF16, 1.5},
      {16, [](auto& t) { t.add_int32_data(0x3fc0); }, DType::kBF16, 1.5},
      {11, [](auto& t) { t.add_double_data(1e300); }, DType::kF64, 1e300},
      {3, [](auto& t) { t.add_int32_data(-7); }, DType::kI8, -7},
      {2, [](auto& t) { t.add_int32_data(200); }, DType::kU8, 200},
      {5, [](auto& t) { t.add_int32_data(-300); }, DType::kI16, -300},
      {4, [](auto& t) { t.add_int32_data(60000); }, DType::kU16, 60000},
      {6, [](auto& t) { t.add_int32_data(-70000); }, DType::kI32, -70000},
      {7, [](auto& t) { t.add_int64_data(1ll << 40); }, DType::kI64, double(1ll << 40)},
      {12, [](auto& t) { t.add_uint64_data(4000000000); }, DType::kU32, 4000000000.0},
      {13, [](auto& t) { t.add_uint64_data(1ull << 50); }, DType::kU64, double(1ull << 50)},
      {9, [](auto& t) { t.add_int32_data(256); }, DType::kBool, 1},
      {22, [](auto& t) { t.add_int32_data(0x0e); }, DType::kI4, -2},
      {21, [](auto& t) { t.add_int32_data(0x0e); }, DType::kU4, 14},
      {17, [](auto& t) { t.add_int32_data(0x3c); }, DType::kF8E4M3, 1.5},
  };
  for (const Case& each : cases) {
    onnx::TensorProto proto;
    proto.set_data_type(each.type);
    proto.add_dims(1);
    each.fill(proto);
    ExternalData none("");
    const Tensor tensor = take_tensor(proto, "'t'", none);
    EXPECT_EQ(name(tensor.dtype()), name(each.dtype));
    EXPECT_EQ(tensor.f64(0), each.want) << name(each.dtype);
  }
}

TEST_F(ImportTest, ClipAttributesBecomeInputs) {
  opset(6 + 1);
  input("x", {"2"}, 1);
  auto& clip = node("Clip", {"x"}, {"y"}, "c");
  set(clip, "min", -1.5f);
  output("y");
  Graph g = import();
  const Node& n = only(g, "Clip");
  EXPECT_TRUE(n.attributes.empty());
  EXPECT_EQ(constant(g, n.input(1)), std::vector<double>{-1.5});
  EXPECT_EQ(n.input(2), kNoValue);
}

TEST_F(ImportTest, SliceAttributesBecomeInputs) {
  opset(9);
  input("x", {"4", "6"});
  auto& slice = node("Slice", {"x"}, {"y"});
  set(slice, "starts", std::vector<int64_t>{1});
  set(slice, "ends", std::vector<int64_t>{-1});
  set(slice, "axes", std::vector<int64_t>{1});
  output("y");
  Graph g = import();
  EXPECT_EQ(text(g.value(g.outputs[0]).shape()), "[4,4]");
}

TEST_F(ImportTest, SqueezeAndUnsqueezeAxesBecomeInputs) {
  opset(11);
  input("x", {"1", "5"});
  set(node("Squeeze", {"x"}, {"s"}), "axes", std::vector<int64_t>{0});
  set(node("Unsqueeze", {"s"}, {"y"}), "axes", std::vector<int64_t>{1, 2});
  output("y");
  Graph g = import();
  EXPECT_EQ(text(g.value(g.outputs[0]).shape()), "[5,1,1]");
}

TEST_F(ImportTest, UpsampleBecomesResize) {
  opset(7);
  input("x", {"1", "1", "2", "3"});
  auto& up = node("Upsample", {"x"}, {"y"});
  auto& scales = *up.add_attribute();
  scales.set_name("scales");
  scales.set_type(onnx::AttributeProto::FLOATS);
  for (const float s : {1.f, 1.f, 2.f, 2.f}) scales.add_floats(s);
  output("y");
  Graph g = import();
  const Node& n = only(g, "Resize");
  EXPECT_EQ(n.attributes.string("coordinate_transformation_mode", ""), "asymmetric");
  EXPECT_EQ(n.attributes.string("nearest_mode", ""), "floor");
  EXPECT_EQ(text(g.value(g.outputs[0]).shape()), "[1,1,4,6]");
}

TEST_F(ImportTest, OldSoftmaxIsOverAllAxesFromItsOwn) {
  opset(11);
  input("x", {"2", "3", "4"});
  set(node("Softmax", {"x"}, {"y"}, "s"), "axis", int64_t(1));
  output("y");
  Graph g = import();
  EXPECT_EQ(g.live_nodes(), 4) << g.text();  // Flatten, Softmax, Shape, Reshape
  const Node& softmax = only(g, "Softmax");
  EXPECT_EQ(softmax.origin, std::vector<std::string>{"s"});
  EXPECT_EQ(text(g.value(softmax.output()).shape()), "[2,12]");
  EXPECT_EQ(text(g.value(g.outputs[0]).shape()), "[2,3,4]");
}

TEST_F(ImportTest, OldSoftmaxOverTheLastAxisStaysOneNode) {
  opset(11);
  input("x", {"2", "3", "1", "1"});
  node("Softmax", {"x"}, {"y"});  // axis 1; the axes after it are 1
  output("y");
  Graph g = import();
  EXPECT_EQ(g.live_nodes(), 1);
  EXPECT_EQ(only(g, "Softmax").attributes.integer("axis", 0), -3);
}

TEST_F(ImportTest, LocalFunctionsAreInlined) {
  opset(1, "local");
  auto& function = *model_.add_functions();
  function.set_name("Scale");
  function.set_domain("local");
  function.add_input("a");
  function.add_output("b");
  function.add_attribute("to");
  auto& import_of = *function.add_opset_import();
  import_of.set_domain("");
  import_of.set_version(17);
  auto& cast = add_node(function.mutable_node(), "Cast", {"a"}, {"t"}, "inner");
  auto& to = *cast.add_attribute();
  to.set_name("to");
  to.set_ref_attr_name("to");
  to.set_type(onnx::AttributeProto::INT);
  add_node(function.mutable_node(), "Neg", {"t"}, {"b"}, "");
  input("x", {"2"});
  for (const char* out : {"y", "z"}) {
    auto& call = node("Scale", {"x"}, {out}, std::string("call_") + out);
    call.set_domain("local");
    set(call, "to", int64_t(11));
    output(out);
  }
  Graph g = import();
  EXPECT_TRUE(g.verify().empty());
  EXPECT_EQ(g.live_nodes(), 4);
  EXPECT_EQ(g.value(g.outputs[1]).dtype(), DType::kF64);
  EXPECT_EQ(only(g, "Cast").name, "call_z/inner");
}

TEST_F(ImportTest, FunctionThatCallsItselfIsRefused) {
  auto& function = *model_.add_functions();
  function.set_name("Loops");
  function.set_domain("local");
  function.add_input("a");
  function.add_output("b");
  add_node(function.mutable_node(), "Loops", {"a"}, {"b"}, "").set_domain("local");
  input("x", {"2"});
  node("Loops", {"x"}, {"y"}).set_domain("local");
  output("y");
  refused(ErrorCode::kBadModel, {"Loops", "nest too deep"});
}

TEST_F(ImportTest, ListsAllUnsupportedOperatorsAtOnce) {
  input("x", {"2"});
  node("FooA", {"x"}, {"a"}, "first");
  node("Reluu", {"a"}, {"b"}, "second");
  node("FooA", {"b"}, {"c"}, "third");
  node("FooB", {"x"}, {"d"}).set_domain("com.acme");
  node("Relu", {"x"}, {"y"});
  output("c");
  output("y");
  refused(ErrorCode::kUnsupported,
          {"unsupported", "FooA", "2 nodes, first 'first'", "Reluu", "nearest is Relu", "com.acme", "FooB"});
  ImportReport report;
  Graph g = import({.collect_unsupported = true, .report = &report});
  EXPECT_EQ(report.unsupported.size(), 3u);
  EXPECT_EQ(report.unsupported[0].count, 2);
  EXPECT_EQ(report.unsupported[0].version, 17);
  EXPECT_EQ(report.operators["FooA"], 2);
  EXPECT_EQ(g.live_nodes(), 1);
  EXPECT_EQ(g.outputs.size(), 1u);
  EXPECT_TRUE(g.verify().empty());
}

TEST_F(ImportTest, RefusesUnknownAttributes) {
  input("x", {"2"});
  set(node("Relu", {"x"}, {"y"}, "n"), "slope", int64_t(1));
  output("y");
  refused(ErrorCode::kUnsupported, {"n", "Relu", "slope", "unsupported"});
}

TEST_F(ImportTest, RefusesAttributesOfAnotherType) {
  input("x", {"2", "3"});
  set(node("Transpose", {"x"}, {"y"}, "n"), "perm", 1.0f);
  output("y");
  refused(ErrorCode::kBadModel, {"n", "Transpose", "perm"});
}

TEST_F(ImportTest, RefusesCyclesDanglingAndRepeatedNames) {
  input("x", {"2"});
  node("Add", {"x", "b"}, {"a"}, "add_node");
  node("Relu", {"a"}, {"b"}, "relu_node");
  output("b");
  refused(ErrorCode::kBadModel, {"cycle", "add_node", "relu_node"});
  graph().mutable_node(0)->set_input(1, "nowhere");
  refused(ErrorCode::kBadModel, {"nowhere", "add_node"});
  graph().mutable_node(0)->set_input(1, "x");
  graph().mutable_node(1)->set_output(0, "a");
  refused(ErrorCode::kBadModel, {"'a'", "twice"});
  graph().mutable_node(1)->set_output(0, "x");
  refused(ErrorCode::kBadModel, {"'x'"});
  graph().mutable_node(1)->set_output(0, "c");
  refused(ErrorCode::kBadModel, {"'b'", "written by no node"});
}

TEST_F(ImportTest, RefusesTensorsThatAreNotWhatTheirShapeSays) {
  input("x", {"2"});
  node("Add", {"x", "odd"}, {"y"});
  output("y");
  auto& odd = weight("odd", {2});
  refused(ErrorCode::kBadModel, {"odd"});
  odd.set_raw_data("seven b");
  refused(ErrorCode::kBadModel, {"odd", "8 bytes", "7"});
  odd.clear_raw_data();
  odd.add_int64_data(1);
  odd.add_int64_data(2);
  refused(ErrorCode::kBadModel, {"odd", "another type"});
  odd.clear_int64_data();
  odd.set_dims(0, -2);
  refused(ErrorCode::kBadModel, {"odd", "-2"});
  odd.set_dims(0, int64_t(1) << 40);
  odd.add_dims(int64_t(1) << 40);
  refused(ErrorCode::kBadModel, {"odd"});
  odd.set_data_type(8);
  refused(ErrorCode::kUnsupported, {"odd", "string", "unsupported"});
}

TEST_F(ImportTest, ExternalDataStaysInTheFolder) {
  input("x", {"2"});
  node("Add", {"x", "w"}, {"y"});
  output("y");
  auto& w = weight("w", {2});
  w.set_data_location(onnx::TensorProto::EXTERNAL);
  auto& location = *w.add_external_data();
  location.set_key("location");
  const float values[] = {5, 6, 7, 8};
  std::filesystem::create_directories(folder_ / "in");
  write("in/w.bin", std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  location.set_value("in/w.bin");
  auto& offset = *w.add_external_data();
  offset.set_key("offset");
  offset.set_value("8");
  Graph g = import();
  EXPECT_EQ(constant(g, g.find_value("w")), (std::vector<double>{7, 8}));
  offset.set_value("12");
  refused(ErrorCode::kBadModel, {"'w'", "in/w.bin", "16 bytes"});
  offset.set_value("-8");
  refused(ErrorCode::kBadModel, {"'w'", "offset"});
  offset.set_value("0");
  for (const char* bad : {"../w.bin", "in/../../w.bin", "/etc/passwd", "", ".", "C:\\w.bin", "in", "missing.bin"}) {
    location.set_value(bad);
    refused(ErrorCode::kBadModel, {"'w'"});
  }
  std::filesystem::create_symlink(folder_ / "in" / "w.bin", folder_ / "link.bin");
  location.set_value("link.bin");
  refused(ErrorCode::kBadModel, {"'w'", "symbolic link"});
  std::filesystem::create_directory_symlink(folder_ / "in", folder_ / "linked");
  location.set_value("linked/w.bin");
  refused(ErrorCode::kBadModel, {"'w'", "symbolic link"});
}

TEST_F(ImportTest, ARootThatLinksMayLeadInto) {
  input("x", {"2"});
  node("Add", {"x", "w"}, {"y"});
  output("y");
  auto& w = weight("w", {2});
  w.set_data_location(onnx::TensorProto::EXTERNAL);
  auto& location = *w.add_external_data();
  location.set_key("location");
  for (const char* each : {"model", "store", "other"}) std::filesystem::create_directories(folder_ / each);
  const float values[] = {7, 8};
  for (const char* each : {"store/w.bin", "other/w.bin"})
    write(each, std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  std::filesystem::create_symlink("../store/w.bin", folder_ / "model" / "good.bin");
  std::filesystem::create_symlink("../other/w.bin", folder_ / "model" / "bad.bin");
  std::filesystem::create_symlink("../store", folder_ / "model" / "folder");
  const auto import_with = [&](const char* where, const std::string& root) {
    location.set_value(where);
    const std::string bytes = model_.SerializeAsString();
    ImportOptions options;
    options.external_root = root;
    const Graph g = import_onnx(std::as_bytes(std::span(bytes)), path("model"), "model.onnx", options);
    return constant(g, g.find_value("w"));
  };
  for (const char* each : {"good.bin", "folder/w.bin"}) {
    EXPECT_EQ(import_with(each, path("store")), (std::vector<double>{7, 8})) << each;
    EXPECT_THROW(import_with(each, ""), Error) << each;
    EXPECT_THROW(import_with(each, path("other")), Error) << each;
  }
  for (const char* each : {"bad.bin", "../store/w.bin", "/etc/passwd"})
    EXPECT_THROW(import_with(each, path("store")), Error) << each;
  EXPECT_THROW(import_with("good.bin", path("nowhere")), Error);
}

TEST_F(ImportTest, LargeExternalDataIsMapped) {
  constexpr int64_t kCount = 1 << 19;
  std::vector<float> values(kCount + 16);
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
  write("w.bin", std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  ExternalData data(folder_.string());
  const Tensor tensor = data.read("'w'", "w.bin", 64, -1, DType::kF32, {kCount});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 64, 0u);
  EXPECT_EQ(tensor.f64(kCount - 1), double(kCount + 15));
}

TEST_F(ImportTest, DimensionsThatDoubleWithEachNodeAreRefused) {
  input("x0", {"n"});
  const int64_t first[] = {0}, last[] = {INT64_MAX}, step[] = {2};
  for (const auto& [name, values] : {std::pair("zero", first), std::pair("end", last), std::pair("two", step)}) {
    weight(name, {1}, 7).set_raw_data(values, sizeof(int64_t));
  }
  for (int i = 0; i < 60; ++i) {  // d becomes d + ceil(d / 2)
    const std::string x = "x" + std::to_string(i), half = "h" + std::to_string(i);
    node("Slice", {x, "zero", "end", "zero", "two"}, {half});
    set(node("Concat", {x, half}, {"x" + std::to_string(i + 1)}), "axis", int64_t(0));
  }
  output("x60");
  refused(ErrorCode::kUnsupported, {"unsupported", "symbolic dimensions"});
}

TEST_F(ImportTest, WhatIsNoModelIsRefused) {
  write("empty", "");
  write("text", "not a model\n");
  write("gguf", "GGUF\3\0\0\0");
  write("zeros", std::string(4096, '\0'));
  write("cut", model_.SerializeAsString() + "\x3a\x7f");
  for (const char* name : {"empty", "text", "gguf", "zeros", "cut", "missing", "."}) {
    try {
      import_onnx(path(name));
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2) << name;
      EXPECT_NE(std::string(error.what()).find(path(name)), std::string::npos) << error.what();
    }
  }
}

TEST_F(ImportTest, VersionsOfTheFutureAreRefused) {
  input("x", {"2"});
  node("Relu", {"x"}, {"y"});
  output("y");
  opset(999);
  refused(ErrorCode::kUnsupported, {"999", "unsupported"});
  opset(0);
  refused(ErrorCode::kUnsupported, {"operator set 0", "unsupported"});
  opset(17);
  model_.set_ir_version(99);
  refused(ErrorCode::kUnsupported, {"99", "unsupported"});
}

}  // namespace
}  // namespace ridgeline
