// If, Loop and Scan: captures at import, meaning, plans of bodies against the interpreter, export, limits.
#include <cmath>

#include "formats/onnx/export.h"
#include "ir/control.h"
#include "onnx_model.h"
#include "plan/control.h"
#include "session/session.h"
#include "verify/reference_run.h"

namespace ridgeline {
namespace {

class Control : public OnnxTest {
 protected:
  static onnx::GraphProto& body(onnx::NodeProto& node, const std::string& attribute) {
    auto& a = *node.add_attribute();
    a.set_name(attribute);
    a.set_type(onnx::AttributeProto::GRAPH);
    a.mutable_g()->set_name(attribute);
    return *a.mutable_g();
  }
  static onnx::NodeProto& add(onnx::GraphProto& graph, const std::string& op, const std::vector<std::string>& inputs,
                              const std::vector<std::string>& outputs) {
    return add_node(graph.mutable_node(), op, inputs, outputs, "");
  }
  static void gives(onnx::GraphProto& graph, const std::string& name) { graph.add_output()->set_name(name); }
  static void takes(onnx::GraphProto& graph, const std::string& name, const std::vector<std::string>& dims,
                    int type = 1) {
    auto& info = *graph.add_input();
    info.set_name(name);
    set_type(info, dims, type);
  }

  /// w = x + x; y = c ? (d ? w * k : w) : -x, k an initializer, d and w captured two deep.
  void nested_if() {
    input("c", {}, 9);
    input("d", {}, 9);
    input("x", {"3"});
    raw_weight("k", {2, 3, 4});
    node("Add", {"x", "x"}, {"w"});
    onnx::NodeProto& outer = node("If", {"c"}, {"y"}, "outer");
    onnx::GraphProto& then = body(outer, "then_branch");
    onnx::NodeProto& inner = add(then, "If", {"d"}, {"t"});
    inner.set_name("inner");
    onnx::GraphProto& product = body(inner, "then_branch");
    add(product, "Mul", {"w", "k"}, {"p"});
    gives(product, "p");
    onnx::GraphProto& same = body(inner, "else_branch");
    add(same, "Identity", {"w"}, {"q"});
    gives(same, "q");
    gives(then, "t");
    onnx::GraphProto& otherwise = body(outer, "else_branch");
    add(otherwise, "Neg", {"x"}, {"e"});
    gives(otherwise, "e");
    output("y");
  }

  /// A loop of `trips` iterations: s = tanh(s W + b), collects s^2; W of 4x4 is captured. -1: `trips` is an input.
  void matrix_loop(int64_t trips) {
    input("x", {"2", "4"});
    std::vector<float> w(16), b(4, 0.25F);
    for (size_t i = 0; i < w.size(); ++i) w[i] = float(int(i * 7 % 11) - 5) / 16;
    onnx::TensorProto& weight_of = weight("w", {4, 4});
    weight_of.set_raw_data(w.data(), w.size() * sizeof(float));
    raw_weight("b", b);
    if (trips < 0)
      input("m", {}, 7);
    else
      weight("m", {}, 7).add_int64_data(trips);
    onnx::NodeProto& loop = node("Loop", {"m", "", "x"}, {"y", "all"}, "loop");
    onnx::GraphProto& each = body(loop, "body");
    takes(each, "i", {}, 7);
    takes(each, "c", {}, 9);
    takes(each, "s", {"2", "4"});
    add(each, "Identity", {"c"}, {"c_out"});
    add(each, "MatMul", {"s", "w"}, {"h"});
    add(each, "Add", {"h", "b"}, {"hb"});
    add(each, "Tanh", {"hb"}, {"s_out"});
    add(each, "Mul", {"s_out", "s_out"}, {"square"});
    gives(each, "c_out");
    gives(each, "s_out");
    gives(each, "square");
    output("y");
    output("all");
  }

  struct Ran {
    Compiled compiled;
    std::vector<Tensor> outputs;
  };
  static Ran run(Graph graph, const Feeds& feeds, const std::string& passes = "all") {
    LoadOptions load;
    load.inputs = feeds;
    Model model = bind_model(std::move(graph), load);
    CompileOptions options;
    options.pipeline = parse_pipeline(passes, {});
    options.plan.threads = 1;
    ConstantStore store;
    Ran ran{compile(model, options, store), {}};
    EXPECT_EQ(check_plan(*ran.compiled.plan), std::vector<std::string>());
    Runner runner(ran.compiled.plan, model.feeds);
    runner.executor().poison();
    runner.run();
    runner.run();  // what a run leaves must not change the next
    ran.outputs = runner.outputs();
    return ran;
  }
  static void same(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double tolerance) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t o = 0; o < got.size(); ++o) {
      ASSERT_EQ(got[o].shape(), want[o].shape());
      for (int64_t k = 0; k < got[o].elements(); ++k) EXPECT_NEAR(got[o].f64(k), want[o].f64(k), tolerance) << o;
    }
  }
  static int steps_of(const Plan& plan, Step::Kind kind) {
    int count = 0;
    for (const Step& step : plan.steps) count += step.kind == kind;
    return count;
  }
};

Tensor truth(bool value) {
  Tensor t(DType::kBool, {});
  store_i64(DType::kBool, t.data(), 0, value);
  return t;
}

TEST_F(Control, CapturesBecomeInputsAndWeightsStayOne) {
  nested_if();
  const Graph graph = import();
  const Node& outer = only(graph, "If");
  ASSERT_EQ(outer.inputs.size(), 4U);  // c, then what both branches read: d, w, x
  const Graph& then = body_of(outer.attributes, "then_branch");
  const Graph& otherwise = body_of(outer.attributes, "else_branch");
  EXPECT_EQ(then.inputs.size(), 3U);
  EXPECT_EQ(otherwise.inputs.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(then.value(then.inputs[i]).name, otherwise.value(otherwise.inputs[i]).name);
  const Node& inner = only(then, "If");
  EXPECT_EQ(inner.name, "outer/then/inner");
  const Graph& product = body_of(inner.attributes, "then_branch");
  const ValueId k = product.find_value("k");
  ASSERT_NE(k, kNoValue);
  EXPECT_TRUE(product.value(k).is_constant());
  EXPECT_EQ(product.value(k).constant_id, graph.value(graph.find_value("k")).constant_id);
}

TEST_F(Control, BranchesAreChosenAtRunTime) {
  nested_if();
  const Tensor x = Tensor::of<float>({3}, {1, -2, 5});
  const float expected[4][3] = {{-1, 2, -5}, {-1, 2, -5}, {2, -4, 10}, {4, -12, 40}};
  for (int at = 0; at < 4; ++at) {
    const Feeds feeds = {{"c", truth(at >= 2)}, {"d", truth(at % 2 == 1)}, {"x", x}};
    for (const std::string passes : {"none", "all"}) {
      const Ran ran = run(import(), feeds, passes);
      EXPECT_EQ(steps_of(*ran.compiled.plan, Step::Kind::kBranch), 1);
      for (int k = 0; k < 3; ++k) EXPECT_EQ(ran.outputs[0].f64(k), expected[at][k]) << at << passes;
    }
  }
}

TEST_F(Control, KnownConditionsAreInlined) {
  nested_if();
  Graph graph = import();
  graph.make_constant(graph.find_value("c"), truth(true));
  graph.make_constant(graph.find_value("d"), truth(true));
  const Ran ran = run(std::move(graph), {{"x", Tensor::of<float>({3}, {1, -2, 5})}});
  EXPECT_EQ(steps_of(*ran.compiled.plan, Step::Kind::kBranch), 0);
  EXPECT_EQ(ran.outputs[0].f64(2), 40);
  bool traced = false;
  for (const Step& step : ran.compiled.plan->steps)
    for (const std::string& origin : step.origin) traced = traced || origin.starts_with("outer/then/inner/then/Mul");
  EXPECT_TRUE(traced);
}

TEST_F(Control, LoopsOfFixedShapesArePlans) {
  const Feeds feeds = {{"x", Tensor::of<float>({2, 4}, {.1F, -.2F, .3F, .4F, -1, .5F, 0, 2})}};
  for (const int64_t trips : {0, 1, 3, 9, 40}) {
    model_ = {};
    opset(17);
    matrix_loop(trips);
    const Graph graph = import();
    const std::vector<Tensor> want = run_reference(graph, {feeds.at("x")});
    ASSERT_EQ(want[1].shape(), (Extents{trips, 2, 4}));
    for (const std::string passes : {"none", "all"}) {
      const Ran ran = run(graph, feeds, passes);
      same(ran.outputs, want, 1e-5);
      const int loops = steps_of(*ran.compiled.plan, Step::Kind::kLoop);
      EXPECT_EQ(loops, passes == "all" && trips <= 8 ? 0 : 1) << trips;
      for (const Step& step : ran.compiled.plan->steps) {
        for (const PlannedBody& each : planned_bodies(step))
          for (const Step& inner : each.plan->steps)
            EXPECT_EQ(std::string(inner.call.kernel->name).find("reference"), std::string::npos);
      }
    }
  }
}

TEST_F(Control, ExportedModelsMeanTheSame) {
  nested_if();
  const std::string file = path("out.onnx");
  export_onnx(import(), file);
  const Graph again = import_onnx(file);
  const Tensor x = Tensor::of<float>({3}, {1, -2, 5});
  for (const bool c : {true, false}) {
    const std::vector<Tensor> inputs = {truth(c), truth(true), x};
    same(run_reference(again, inputs), run_reference(import(), inputs), 0);
  }
  model_ = {};
  opset(17);
  matrix_loop(12);
  LoadOptions load;
  load.inputs = {{"x", Tensor::of<float>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})}};
  Model model = bind_model(import(), load);
  Decisions decisions;
  Graph optimized = model.graph;
  run_passes(optimized, {}, decisions);
  export_onnx(optimized, file);
  same(run_reference(import_onnx(file), {load.inputs.at("x")}), run_reference(model.graph, {load.inputs.at("x")}),
       1e-5);
}

TEST_F(Control, ScansAlongEveryAxisBothWays) {
  for (const int64_t axis : {0, 1, -1}) {
    for (const int64_t direction : {0, 1}) {
      for (const int64_t out_axis : {0, -1}) {
        model_ = {};
        opset(17);
        std::vector<std::string> dims = {"2", "3"};
        dims.insert(axis < 0 ? dims.end() : dims.begin() + axis, "11");
        input("s", {"2", "3"});
        input("x", dims);
        onnx::NodeProto& scan = node("Scan", {"s", "x"}, {"y", "all"});
        set(scan, "num_scan_inputs", int64_t(1));
        set(scan, "scan_input_axes", std::vector<int64_t>{axis});
        set(scan, "scan_input_directions", std::vector<int64_t>{direction});
        set(scan, "scan_output_axes", std::vector<int64_t>{out_axis});
        set(scan, "scan_output_directions", std::vector<int64_t>{1 - direction});
        onnx::GraphProto& each = body(scan, "body");
        takes(each, "s_in", {"2", "3"});
        takes(each, "x_in", {"2", "3"});
        add(each, "Add", {"s_in", "s_in"}, {"twice"});
        add(each, "Sub", {"twice", "x_in"}, {"s_out"});
        add(each, "Neg", {"s_out"}, {"part"});
        gives(each, "s_out");
        gives(each, "part");
        output("y");
        output("all");
        const Graph graph = import();
        Feeds feeds;
        std::vector<Tensor> inputs;
        for (const ValueId v : graph.inputs) {
          inputs.push_back(make_input(graph, v, extents(graph.value(v).shape()), 3));
          feeds[graph.value(v).name] = inputs.back();
        }
        // By hand: s -> 2 s - x, in the order of the direction.
        const Tensor &x = inputs[1], &s = inputs[0];
        const std::vector<Tensor> ran = run(graph, feeds).outputs;
        const size_t at = axis < 0 ? 2 : size_t(axis);
        for (int64_t r = 0; r < 2; ++r) {
          for (int64_t c = 0; c < 3; ++c) {
            auto value = float(s.f64(r * 3 + c));
            for (int64_t trip = 0; trip < 11; ++trip) {
              const int64_t t = direction ? 10 - trip : trip;
              Extents index = {r, c};
              index.insert(index.begin() + int64_t(at), t);
              value = value + value - float(x.f64((index[0] * x.shape()[1] + index[1]) * x.shape()[2] + index[2]));
              const int64_t to = direction ? trip : 10 - trip;
              const int64_t flat = out_axis == 0 ? (to * 2 + r) * 3 + c : (r * 3 + c) * 11 + to;
              EXPECT_NEAR(ran[1].f64(flat), -value, std::fabs(value) * 1e-5 + 1e-4);
            }
            EXPECT_NEAR(ran[0].f64(r * 3 + c), value, std::fabs(value) * 1e-5 + 1e-4);
          }
        }
      }
    }
  }
}

TEST_F(Control, BrokenSubgraphsAreNamed) {
  nested_if();
  const onnx::ModelProto sound = model_;
  auto outer = [&]() -> onnx::NodeProto& { return *graph().mutable_node(1); };
  auto then = [&]() -> onnx::GraphProto& { return *outer().mutable_attribute(0)->mutable_g(); };

  then().mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_input(0, "nowhere");
  refused(ErrorCode::kBadModel, {"outer", "nowhere"});
  model_ = sound;
  then().mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_input(0, "y");
  refused(ErrorCode::kBadModel, {"outer", "cycle"});
  model_ = sound;
  outer().mutable_attribute()->RemoveLast();
  refused(ErrorCode::kBadModel, {"outer", "else_branch", "missing"});
  model_ = sound;
  gives(then(), "t");
  refused(ErrorCode::kBadModel, {"outer", "2 and 1"});
  model_ = sound;
  takes(then(), "formal", {"3"});
  refused(ErrorCode::kBadModel, {"outer", "1 inputs"});

  model_ = {};
  opset(17);
  matrix_loop(3);
  takes(*graph().mutable_node(0)->mutable_attribute(0)->mutable_g(), "more", {"2"});
  refused(ErrorCode::kBadModel, {"loop", "4 inputs"});
}

TEST_F(Control, NestingHasALimit) {
  for (const int depth : {16, 17}) {
    model_ = {};
    opset(17);
    input("c", {}, 9);
    input("x", {"2"});
    onnx::GraphProto* at = &graph();
    for (int d = 0; d < depth; ++d) {
      const std::string name = "u" + std::to_string(d);
      onnx::NodeProto& branch = add(*at, "If", {"c"}, {name});
      gives(*at, name);
      onnx::GraphProto& otherwise = body(branch, "else_branch");
      add(otherwise, "Neg", {"x"}, {"v" + std::to_string(d)});
      gives(otherwise, "v" + std::to_string(d));
      at = &body(branch, "then_branch");
    }
    add(*at, "Abs", {"x"}, {"leaf"});
    gives(*at, "leaf");
    if (depth == 17) {
      refused(ErrorCode::kUnsupported, {"deeper than 16"});
    } else {
      const Tensor x = Tensor::of<float>({2}, {-1, 2});
      EXPECT_EQ(run_reference(import(), {truth(true), x})[0].f64(0), 1);
    }
  }
}

TEST_F(Control, LoopsWithoutAnEndAreErrors) {
  const auto loop = [&](bool counted, bool grows, bool forever) {
    model_ = {};
    opset(17);
    input("x", {"2"});
    weight("t", {}, 9).add_int32_data(1);
    weight("m", {}, 7).add_int64_data(int64_t(1) << 40);
    raw_weight("big", {1e9F, 1e9F});
    onnx::NodeProto& node_of = node("Loop", {counted ? "m" : "", "t", "x"}, {"y"}, "endless");
    onnx::GraphProto& each = body(node_of, "body");
    takes(each, "i", {}, 7);
    takes(each, "c", {}, 9);
    takes(each, "s", {"n"});
    if (forever) {
      add(each, "Identity", {"c"}, {"c_out"});
    } else {
      onnx::NodeProto& most = add(each, "ReduceMax", {"s"}, {"most"});
      set(most, "keepdims", int64_t(0));
      add(each, "Less", {"most", "limit"}, {"c_out"});
      auto& limit = *each.add_initializer();
      limit.set_name("limit");
      limit.set_data_type(1);
      limit.add_float_data(1e9F);
    }
    if (grows) {
      set(add(each, "Concat", {"s", "s"}, {"s_out"}), "axis", int64_t(0));
    } else {
      add(each, "Min", {"s", "big"}, {"s_out"});
    }
    gives(each, "c_out");
    gives(each, "s_out");
    output("y");
  };
  const Tensor x = Tensor::of<float>({2}, {1, 2});
  loop(false, false, true);  // provably without an end
  refused(ErrorCode::kBadModel, {"endless", "never end"});
  for (const bool grows : {false, true}) {
    loop(true, grows, grows);
    try {
      run(import(), {{"x", x}});
      ADD_FAILURE() << "it ended";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("endless"), std::string::npos) << error.what();
    }
    try {
      run_reference(import(), {x});
      ADD_FAILURE() << "it ended";
    } catch (const Error& error) {
      EXPECT_EQ(int(error.code()), int(ErrorCode::kResource)) << error.what();
    }
  }
}

}  // namespace
}  // namespace ridgeline
