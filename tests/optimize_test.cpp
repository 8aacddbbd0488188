// What may be fused, what may not and why, and that passes in any order keep the function.
#include "graph_maker.h"
#include "optimize/match.h"

namespace ridgeline {
namespace {

TEST(Fusion, ConvolutionTakesNormalizationActivationAndResidual) {
  G g;
  const ValueId x = g.input("x", {1, 8, 9, 9});
  const ValueId a = g.op("Relu", {g.batch_norm(g.conv(x, 8, 8), 8)});
  const ValueId b = g.batch_norm(g.conv(a, 8, 8), 8);
  g.output(g.op("Relu", {g.op("Add", {x, b})}));
  expect_fused(g, 2);
}

TEST(Fusion, SiluIsOneEpilogueThoughItReadsTheConvolutionTwice) {
  G g;
  const ValueId y = g.conv(g.input("x", {1, 4, 8, 8}), 4, 8);
  g.output(g.op("Mul", {y, g.op("Sigmoid", {y})}));
  expect_fused(g, 1);
}

TEST(Fusion, GemmBiasAndErfGelu) {
  G g;
  Attributes a = with("transB", int64_t(1));
  const ValueId y = g.op("Gemm", {g.input("x", {5, 16}), g.weight({24, 16}), g.weight({24})}, a);
  const ValueId e = g.op("Add", {g.op("Erf", {g.op("Div", {y, g.scalar(1.41421356f)})}), g.scalar(1)});
  g.output(g.op("Mul", {g.op("Mul", {y, e}), g.scalar(0.5f)}));
  expect_fused(g, 1);
}

TEST(Fusion, ScaleAndShiftAfterConvTransposeFold) {
  G g;
  const ValueId x = g.input("x", {1, 4, 5, 5});
  const ValueId y = g.op("ConvTranspose", {x, g.weight({4, 3, 2, 2})}, with("strides", std::vector<int64_t>{2, 2}));
  g.output(g.op("Add", {g.op("Mul", {y, g.weight({3, 1, 1})}), g.scalar(0.25f)}));
  expect_fused(g, 1);
}

// LayerNormalization as exporters before opset 17 wrote it.
ValueId spelled_norm(G& g, ValueId x, int64_t n, bool power, bool two_subs, ValueId scale = kNoValue) {
  const ValueId mean = g.op("ReduceMean", {x, g.axes({-1})}, with("keepdims", int64_t(1)));
  const ValueId d = g.op("Sub", {x, mean});
  const ValueId d2 = two_subs ? g.op("Sub", {x, mean}) : d;
  const ValueId squared = power ? g.op("Pow", {d2, g.scalar(2)}) : g.op("Mul", {d2, d2});
  const ValueId var = g.op("ReduceMean", {squared, g.axes({-1})}, with("keepdims", int64_t(1)));
  const ValueId y = g.op("Div", {d, g.op("Sqrt", {g.op("Add", {var, g.scalar(1e-5f)})})});
  return g.op("Add", {g.op("Mul", {y, scale == kNoValue ? g.weight({n}, 0.5, 2) : scale}), g.weight({n})});
}

TEST(Matching, LayerNormalizationInItsSpellings) {
  for (const bool power : {false, true}) {
    G g;
    g.output(spelled_norm(g, g.input("x", {2, 5, 12}), 12, power, false));
    const Graph before = g.graph;
    optimized(g.graph);
    EXPECT_EQ(count(g.graph, "LayerNormalization"), 1) << g.graph.text();
    EXPECT_EQ(g.graph.live_nodes(), 1) << g.graph.text();
    expect_same(before, g.graph);
  }
}

TEST(Matching, NormalizationsByAPowerOfAMinusHalf) {
  for (const bool centred : {false, true}) {
    for (const float power : {-0.5f, -0.25f}) {  // the second means something else
      G g;
      const ValueId x = g.input("x", {2, 5, 12});
      const ValueId mean = g.op("ReduceMean", {x, g.axes({-1})}, with("keepdims", int64_t(1)));
      const ValueId d = centred ? g.op("Sub", {x, mean}) : x;
      const ValueId var = g.op("ReduceMean", {g.op("Mul", {d, d}), g.axes({-1})}, with("keepdims", int64_t(1)));
      const ValueId inverse = g.op("Pow", {g.op("Add", {var, g.scalar(1e-5f)}), g.scalar(power)});
      g.output(g.op("Mul", {g.op("Mul", {d, inverse}), g.weight({12}, 0.5, 2)}));
      const Graph before = g.graph;
      optimized(g.graph);
      EXPECT_EQ(count(g.graph, centred ? "LayerNormalization" : "RMSNormalization"), power == -0.5f) << g.graph.text();
      expect_same(before, g.graph);
    }
  }
}

TEST(Matching, StaticAndSymbolicDimensionsEndInOneGraph) {
  auto build = [](Shape shape) {
    G g;
    g.output(spelled_norm(g, g.input("x", std::move(shape)), 12, true, false));
    optimized(g.graph);
    return count(g.graph, "LayerNormalization");
  };
  EXPECT_EQ(build({2, 5, 12}), 1);
  EXPECT_EQ(build({Dim::symbol("N"), Dim::symbol("S"), 12}), 1);
}

ValueId attention(G& g, ValueId q, ValueId k, ValueId v, float scale, bool by_division, ValueId mask = kNoValue) {
  ValueId s = g.op("MatMul", {q, g.op("Transpose", {k}, with("perm", std::vector<int64_t>{0, 1, 3, 2}))});
  s = g.op(by_division ? "Div" : "Mul", {s, g.scalar(by_division ? 1 / scale : scale)});
  if (mask != kNoValue) s = g.op("Add", {s, mask});
  return g.op("MatMul", {g.op("Softmax", {s}, with("axis", int64_t(-1))), v});
}

TEST(Matching, AttentionWithAndWithoutMask) {
  for (const bool by_division : {false, true}) {
    for (const bool masked : {false, true}) {
      G g;
      const ValueId q = g.input("q", {1, 2, 6, 8}), k = g.input("k", {1, 2, 7, 8}), v = g.input("v", {1, 2, 7, 8});
      const ValueId mask = masked ? g.input("bias", {1, 1, 1, 7}) : kNoValue;
      g.output(attention(g, q, k, v, 0.35f, by_division, mask));
      const Graph before = g.graph;
      optimized(g.graph);
      int found = 0;
      for (NodeId id : g.graph.order()) found += g.graph.node(id).is("ScaledDotProductAttention");
      EXPECT_EQ(found, 1) << g.graph.text();
      expect_same(before, g.graph);
    }
  }
}

TEST(Merging, ProjectionsOfOneInputBecomeOne) {
  G g;
  const ValueId x = g.input("x", {2, 3, 16});
  std::vector<ValueId> out;
  for (int i = 0; i < 3; ++i) out.push_back(g.op("Add", {g.op("MatMul", {x, g.weight({16, 8})}), g.weight({8})}));
  for (ValueId v : out) g.output(g.op("Softmax", {v}));
  const Graph before = g.graph;
  optimized(g.graph);
  EXPECT_EQ(count(g.graph, "MatMul"), 1) << g.graph.text();
  expect_same(before, g.graph);
}

// ---- what must stay as it is, with the reason

constexpr int64_t kOnnxF32 = 1, kOnnxF16 = 10, kOnnxBF16 = 16;  // TensorProto.DataType

struct Illegal {
  const char* name;
  const char* pass;
  const char* code;
  void (*build)(G&);
};

const Illegal kIllegal[] = {
    {"training mode", "fold_batch_normalization", "training_mode",
     [](G& g) {
       g.output(g.batch_norm(g.conv(g.input("x", {1, 4, 6, 6}), 4, 4), 4, with("training_mode", int64_t(1)), 3));
     }},
    {"statistics are an input", "fold_batch_normalization", "statistics_not_constant",
     [](G& g) {
       const ValueId c = g.conv(g.input("x", {1, 4, 6, 6}), 4, 4);
       g.output(g.op("BatchNormalization", {c, g.weight({4}), g.weight({4}), g.input("m", {4}), g.weight({4}, 1, 2)}));
     }},
    {"scale is an input", "fold_batch_normalization", "statistics_not_constant",
     [](G& g) {
       const ValueId c = g.conv(g.input("x", {1, 4, 6, 6}), 4, 4);
       g.output(g.op("BatchNormalization", {c, g.input("s", {4}), g.weight({4}), g.weight({4}), g.weight({4}, 1, 2)}));
     }},
    {"normalized convolution is an output too", "fold_batch_normalization", "graph_output",
     [](G& g) {
       const ValueId c = g.conv(g.input("x", {1, 4, 6, 6}), 4, 4);
       g.output(c);
       g.output(g.batch_norm(c, 4));
     }},
    {"normalized convolution has another user", "fold_batch_normalization", "other_user",
     [](G& g) {
       const ValueId c = g.conv(g.input("x", {1, 4, 6, 6}), 4, 4);
       g.output(g.op("Add", {g.batch_norm(c, 4), g.op("Sigmoid", {c})}));
     }},
    {"no convolution before it", "fold_batch_normalization", "no_contraction",
     [](G& g) {
       g.output(g.batch_norm(g.op("Sigmoid", {g.input("x", {1, 4, 6, 6})}), 4));
     }},
    {"a pool between", "fold_batch_normalization", "no_contraction",
     [](G& g) {
       g.output(g.batch_norm(g.op("MaxPool", {g.conv(g.input("x", {1, 4, 6, 6}), 4, 4)},
                                  with("kernel_shape", std::vector<int64_t>{2, 2})),
                             4));
     }},
    {"weights are an input", "fold_batch_normalization", "no_contraction",
     [](G& g) {
       g.output(g.batch_norm(g.op("Conv", {g.input("x", {1, 4, 6, 6}), g.input("w", {4, 4, 3, 3})}), 4));
     }},
    {"scale along the width", "fold_affine", "not_per_channel",
     [](G& g) {
       g.output(g.op("Mul", {g.conv(g.input("x", {1, 4, 6, 6}), 4, 4), g.weight({1, 1, 1, 6})}));
     }},
    {"scale along the height", "fold_affine", "not_per_channel",
     [](G& g) {
       g.output(g.op("Mul", {g.conv(g.input("x", {1, 4, 6, 6}), 4, 4), g.weight({1, 1, 6, 1})}));
     }},
    {"scale of the batch", "fold_affine", "not_per_channel",
     [](G& g) {
       g.output(g.op("Mul", {g.conv(g.input("x", {4, 4, 4, 4}), 4, 4), g.weight({4, 1, 1, 1})}));
     }},
    {"a full-size constant", "fold_affine", "not_per_channel",
     [](G& g) {
       g.output(g.op("Add", {g.conv(g.input("x", {1, 4, 6, 6}), 4, 4), g.weight({1, 4, 6, 6})}));
     }},
    {"rows of a product", "fold_affine", "not_per_channel",
     [](G& g) {
       g.output(g.op("Mul", {g.op("MatMul", {g.input("x", {3, 3}), g.weight({3, 3})}), g.weight({3, 1})}));
     }},
    {"a bias that broadcasts the output up", "fold_affine", "broadcasts_up",
     [](G& g) {
       g.output(g.op("Add", {g.conv(g.input("x", {1, 4, 6, 6}), 4, 4), g.weight({2, 4, 1, 1})}));
     }},
    {"a scale that broadcasts the product up", "fold_affine", "broadcasts_up",
     [](G& g) {
       g.output(g.op("Mul", {g.op("MatMul", {g.input("x", {1, 3}), g.weight({3, 4})}), g.weight({5, 4})}));
     }},
    {"an epilogue that broadcasts up", "fuse_epilogues", "broadcasts_up",
     [](G& g) {
       g.output(g.op("Add", {g.op("MatMul", {g.input("x", {3, 3}), g.weight({3, 1})}), g.weight({1, 4})}));
     }},
    {"a factor that the weights cannot hold", "fold_affine", "not_finite",
     [](G& g) {
       g.output(g.op("Mul", {g.conv(g.input("x", {1, 4, 6, 6}), 4, 4), g.scalar(1e20f)}));
     }},
    {"scaled convolution is an output too", "fold_affine", "graph_output",
     [](G& g) {
       const ValueId c = g.conv(g.input("x", {1, 4, 6, 6}), 4, 4);
       g.output(c);
       g.output(g.op("Mul", {c, g.scalar(2)}));
     }},
    {"scaled convolution has another user", "fold_affine", "other_user",
     [](G& g) {
       const ValueId c = g.conv(g.input("x", {1, 4, 6, 6}), 4, 4);
       g.output(g.op("Add", {g.op("Mul", {c, g.scalar(2)}), g.op("Sigmoid", {c})}));
     }},
    {"activation of an output", "fuse_epilogues", "graph_output",
     [](G& g) {
       const ValueId c = g.conv(g.input("x", {1, 4, 6, 6}), 4, 4);
       g.output(c);
       g.output(g.op("Relu", {c}));
     }},
    {"activation beside another user", "fuse_epilogues", "other_user",
     [](G& g) {
       const ValueId c = g.conv(g.input("x", {1, 4, 6, 6}), 4, 4);
       g.output(g.op("Relu", {c}));
       g.output(g.op("GlobalAveragePool", {c}));
     }},
    {"product with an activation in an early stage", "fuse_epilogues", "other_operand",
     [](G& g) {
       g.output(g.op("Mul", {g.conv(g.input("x", {1, 4, 6, 6}), 4, 4), g.input("y", {1, 4, 6, 6})}));
     }},
    {"squeeze-and-excitation's product depends on all of the convolution", "fuse_residuals", "depends_on_itself",
     [](G& g) {
       const ValueId c = g.conv(g.input("x", {1, 4, 6, 6}), 4, 4);
       g.output(g.op("Mul", {c, g.conv(g.op("GlobalAveragePool", {c}), 4, 4, 1)}));
     }},
    {"a residual that is an output too", "fuse_residuals", "graph_output",
     [](G& g) {
       const ValueId x = g.input("x", {1, 4, 6, 6}), c = g.conv(x, 4, 4);
       g.output(c);
       g.output(g.op("Add", {c, x}));
     }},
    {"a residual with another user", "fuse_residuals", "other_user",
     [](G& g) {
       const ValueId x = g.input("x", {1, 4, 6, 6}), c = g.conv(x, 4, 4);
       g.output(g.op("Add", {c, x}));
       g.output(g.op("GlobalAveragePool", {c}));
     }},
    {"norm of something else than a sum", "fuse_add_normalization", "no_add",
     [](G& g) {
       g.output(g.op("LayerNormalization",
                     {g.op("Mul", {g.input("x", {2, 8}), g.input("y", {2, 8})}), g.weight({8}), g.weight({8})}));
     }},
    {"norm of a broadcast sum", "fuse_add_normalization", "broadcasts_up",
     [](G& g) {
       g.output(g.op("LayerNormalization",
                     {g.op("Add", {g.input("x", {2, 8}), g.input("y", {8})}), g.weight({8}), g.weight({8})}));
     }},
    {"norm scaled by rows", "match_composites", "illegal_operands",
     [](G& g) {
       g.output(spelled_norm(g, g.input("x", {3, 12}), 12, true, false, g.weight({3, 1}, 1, 5)));
     }},
    {"norm scaled along another axis", "match_composites", "illegal_operands",
     [](G& g) {
       g.output(spelled_norm(g, g.input("x", {2, 5, 12}), 12, true, false, g.weight({5, 1}, 1, 5)));
     }},
    {"activation of a product in half precision", "fuse_epilogues", "rounded_result",
     [](G& g) {
       Tensor w(DType::kF16, {4, 4});
       for (int64_t i = 0; i < 16; ++i) store_f64(DType::kF16, w.data(), i, 0.1 * double(i % 5));
       const ValueId half = g.graph.add_constant("half", w);
       g.output(g.op("Sigmoid", {g.op("MatMul", {g.input("x", {3, 4}, DType::kF16), half})}));
     }},
    {"an interior of a norm is an output", "match_composites", "graph_output",
     [](G& g) {
       g.output(spelled_norm(g, g.input("x", {2, 5, 12}), 12, false, false));
       for (NodeId id : g.graph.order())
         if (g.graph.node(id).is("Sqrt")) g.output(g.graph.node(id).output());
     }},
    {"an interior of a norm has another user", "match_composites", "other_user",
     [](G& g) {
       const ValueId y = spelled_norm(g, g.input("x", {2, 5, 12}), 12, false, false);
       ValueId sub = kNoValue;
       for (NodeId id : g.graph.order())
         if (g.graph.node(id).is("Sub")) sub = g.graph.node(id).output();
       g.output(g.op("Add", {y, sub}));
     }},
    {"a scale that broadcasts a norm up", "match_composites", "illegal_operands",
     [](G& g) {
       g.output(spelled_norm(g, g.input("x", {3, 1}), 12, true, false));
     }},
    // The sum of a product in f16 is f32: what follows reads it rounded.
    {"a product in f16 and its activation", "fuse_epilogues", "rounded_result",
     [](G& g) {
       const ValueId x = g.input("x", {3, 16}, DType::kF16), w = g.input("w", {16, 8}, DType::kF16);
       g.output(g.op("Relu", {g.op("MatMul", {x, w})}));
     }},
    {"a convolution in bf16 and a residual", "fuse_residuals", "rounded_result",
     [](G& g) {
       const ValueId x = g.input("x", {1, 4, 6, 6}, DType::kBF16), w = g.input("w", {4, 4, 1, 1}, DType::kBF16);
       g.output(g.op("Add", {g.op("Conv", {x, w}), x}));
     }},
    {"a sum in f16 and its square root", "fuse_elementwise", "rounded_result",
     [](G& g) {
       g.output(g.op("Sqrt", {g.op("ReduceL2", {g.input("x", {3, 16}, DType::kF16), g.axes({1})})}));
     }},
    {"a product in f32 whose activation is in f16", "fuse_epilogues", "dtype_differs",
     [](G& g) {
       const ValueId y = g.op("MatMul", {g.input("x", {3, 16}), g.weight({16, 8})});
       g.output(g.op("Relu", {g.op("Cast", {y}, with("to", kOnnxF16))}));
     }},
    {"a convolution in f32 stored in bf16", "fuse_epilogues", "dtype_differs",
     [](G& g) {
       g.output(g.op("Cast", {g.conv(g.input("x", {1, 4, 6, 6}), 4, 4)}, with("to", kOnnxBF16)));
     }},
    {"projections with other epilogues", "merge_projections", "other_epilogue",
     [](G& g) {
       const ValueId x = g.input("x", {2, 16});
       g.output(g.op("Softmax", {g.op("Relu", {g.op("MatMul", {x, g.weight({16, 8})})})}));
       g.output(g.op("Softmax", {g.op("Sigmoid", {g.op("MatMul", {x, g.weight({16, 8})})})}));
     }},
    {"a projection that is an output", "merge_projections", "graph_output",
     [](G& g) {
       const ValueId x = g.input("x", {2, 16});
       g.output(g.op("MatMul", {x, g.weight({16, 8})}));
       g.output(g.op("MatMul", {x, g.weight({16, 8})}));
     }},
};

class IllegalFusion : public testing::TestWithParam<Illegal> {};

TEST_P(IllegalFusion, IsLeftWithItsReason) {
  G g;
  GetParam().build(g);
  ASSERT_FALSE(g.graph.outputs.empty());
  const Graph before = g.graph;
  const Decisions d = optimized(g.graph);
  std::string all;
  for (const Decision& x : d.all) all += fmt::format("{} {} {} {}\n", x.pass, name(x.action), x.reason_code, x.reason);
  EXPECT_TRUE(refused(d, GetParam().pass, GetParam().code)) << all << g.graph.text();
  if (std::string_view(GetParam().code) != "training_mode") expect_same(before, g.graph);
}

INSTANTIATE_TEST_SUITE_P(All, IllegalFusion, testing::ValuesIn(kIllegal));

TEST(IllegalFusion, ThereAreThirty) { EXPECT_GE(std::size(kIllegal), 30u); }

TEST(Fusion, LookAlikesAreNoLayerNormalization) {
  {  // a scale of [rows, 1]
    G g;
    g.output(spelled_norm(g, g.input("x", {3, 12}), 12, true, false, g.weight({3, 1}, 1, 5)));
    const Graph before = g.graph;
    optimized(g.graph);
    expect_same(before, g.graph);
  }
  {  // the mean along another axis
    G g;
    const ValueId x = g.input("x", {1, 4, 4});
    const ValueId mean = g.op("ReduceMean", {x, g.axes({1})}, with("keepdims", int64_t(1)));
    const ValueId d = g.op("Sub", {x, mean});
    const ValueId var = g.op("ReduceMean", {g.op("Mul", {d, d}), g.axes({1})}, with("keepdims", int64_t(1)));
    g.output(g.op("Div", {d, g.op("Sqrt", {g.op("Add", {var, g.scalar(1e-5f)})})}));
    const Graph before = g.graph;
    optimized(g.graph);
    EXPECT_EQ(count(g.graph, "LayerNormalization"), 0);
    expect_same(before, g.graph);
  }
}

// A cast in the middle rounds: whatever it was fused into, each result is a number of the narrow type.
void expect_rounded_to_f16(G& g) {
  const Graph before = g.graph;
  optimized(g.graph);
  expect_same(before, g.graph);
  Model model = bind_model(g.graph, {});
  ConstantStore store;
  const auto plan = std::make_shared<const Plan>(make_plan(model.graph, {.threads = 1}, store));
  Runner runner(plan, model.feeds);
  runner.run();
  const Tensor& y = runner.outputs()[0];
  for (int64_t k = 0; k < y.elements(); ++k) {
    uint64_t bits = 0;
    store_f64(DType::kF16, &bits, 0, y.f64(k));
    EXPECT_EQ(y.f64(k), load_f64(DType::kF16, &bits, 0)) << g.graph.text();
  }
}

TEST(Fusion, CastsAreReproducedOrStay) {
  {  // from the sum of a product
    G g;
    const ValueId y = g.op("MatMul", {g.input("x", {3, 16}), g.weight({16, 8})});
    const ValueId narrow = g.op("Relu", {g.op("Cast", {y}, with("to", kOnnxF16))});
    g.output(g.op("Cast", {narrow}, with("to", kOnnxF32)));
    expect_rounded_to_f16(g);
  }
  {  // between elementwise operators: they become one Program, casts and all
    G g;
    const ValueId y = g.op("Sigmoid", {g.input("x", {3, 16})});
    const ValueId narrow = g.op("Relu", {g.op("Cast", {y}, with("to", kOnnxF16))});
    g.output(g.op("Cast", {narrow}, with("to", kOnnxF32)));
    expect_rounded_to_f16(g);
    EXPECT_EQ(g.graph.live_nodes(), 1) << g.graph.text();
  }
  {  // and where nothing is cast the product does take its activation
    G g;
    g.output(g.op("Relu", {g.op("MatMul", {g.input("x", {3, 16}), g.weight({16, 8})})}));
    expect_fused(g, 1);
  }
}

// The matcher by itself: dtype is part of a pattern's meaning, and so are its numbers.
int matches(const Graph& graph, std::string_view op) {
  Graph canonical = graph;
  Decisions ignored;
  canonicalize(canonical, ignored);
  int found = 0;
  Mismatch mismatch;
  for (const Pattern& pattern : composite_patterns()) {
    if (pattern.op->name != op) continue;
    for (ValueId v : canonical.outputs) found += match(pattern, canonical, v, mismatch).has_value();
  }
  return found;
}

TEST(Matching, AnotherTypeIsAnotherPattern) {
  auto norm = [](DType dtype) {
    G g;
    auto constant = [&](const std::string& name, Extents shape, double value) {
      Tensor t(dtype, std::move(shape));
      for (int64_t k = 0; k < t.elements(); ++k) store_f64(dtype, t.data(), k, value);
      return g.graph.add_constant(name, t);
    };
    const ValueId x = g.input("x", {2, 5, 12}, dtype);
    const ValueId d = g.op("Sub", {x, g.op("ReduceMean", {x, g.axes({-1})}, with("keepdims", int64_t(1)))});
    const ValueId var = g.op("ReduceMean", {g.op("Mul", {d, d}), g.axes({-1})}, with("keepdims", int64_t(1)));
    const ValueId y = g.op("Div", {d, g.op("Sqrt", {g.op("Add", {var, constant("eps", {}, 1e-5)})})});
    g.output(g.op("Add", {g.op("Mul", {y, constant("scale", {12}, 2)}), constant("bias", {12}, 1)}));
    return g.graph;
  };
  EXPECT_GT(matches(norm(DType::kF32), "LayerNormalization"), 0);
  EXPECT_EQ(matches(norm(DType::kF64), "LayerNormalization"), 0);
  EXPECT_EQ(matches(norm(DType::kF16), "LayerNormalization"), 0);
}

TEST(Matching, OtherNumbersAreAnotherFunction) {
  // x - mean over its norm: MeanVarianceNormalization, whose declaration adds 1e-9.
  auto mvn = [](float epsilon) {
    G g;
    const ValueId x = g.input("x", {2, 3, 4, 4});
    auto mean = [&](ValueId v) { return g.op("ReduceMean", {v, g.axes({0, 2, 3})}, with("keepdims", int64_t(1))); };
    const ValueId d = g.op("Sub", {x, mean(x)});
    g.output(g.op("Div", {d, g.op("Add", {g.op("Sqrt", {mean(g.op("Mul", {d, d}))}), g.scalar(epsilon)})}));
    return g.graph;
  };
  EXPECT_EQ(matches(mvn(1e-9f), "MeanVarianceNormalization"), 1);
  for (const float other : {1.2e-9f, 0.9e-9f, 1e-8f, 1e-6f})
    EXPECT_EQ(matches(mvn(other), "MeanVarianceNormalization"), 0) << other;
}

TEST(Fusion, SharedWeightsAreNotEditedInPlace) {
  G g;
  const ValueId x = g.input("x", {1, 4, 6, 6}), w = g.weight({4, 4, 1, 1});
  const ValueId a = g.op("Conv", {x, w}), b = g.op("Conv", {x, w});
  g.output(g.op("Add", {g.batch_norm(a, 4), b}));
  const Graph before = g.graph;
  optimized(g.graph);
  expect_same(before, g.graph);
}

TEST(Fusion, ScaleBeforeAPaddedConvolutionStays) {
  G g;
  const ValueId x = g.input("x", {1, 4, 6, 6});
  const ValueId shifted = g.op("Add", {g.op("Mul", {x, g.weight({4, 1, 1})}), g.weight({4, 1, 1})});
  g.output(g.conv(shifted, 4, 4));
  const Graph before = g.graph;
  optimized(g.graph);
  EXPECT_EQ(g.graph.live_nodes(), 2);
  expect_same(before, g.graph);
}

}  // namespace
}  // namespace ridgeline
