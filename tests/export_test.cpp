// What is written: ONNX models, .npy files; and tensors read back.
#include "formats/onnx/export.h"

#include <gtest/gtest.h>

#include "formats/npy.h"
#include "formats/onnx/tensor_proto.h"
#include "onnx_model.h"

namespace ridgeline {
namespace {

using ExportTest = OnnxTest;

TEST_F(ExportTest, NpyRoundTrip) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kI8, DType::kI16, DType::kI32, DType::kI64,
                            DType::kU8, DType::kU16, DType::kU32, DType::kU64, DType::kBool}) {
    for (const Extents& shape : {Extents{}, Extents{3}, Extents{2, 3}, Extents{0, 4}}) {
      Tensor tensor(dtype, shape);
      for (int64_t i = 0; i < tensor.elements(); ++i) store_f64(dtype, tensor.data(), i, double(i % 2 + 1));
      write_npy(tensor, path("t.npy"));
      const Tensor back = read_npy(path("t.npy"));
      EXPECT_EQ(name(back.dtype()), name(dtype));
      EXPECT_EQ(back.shape(), shape);
      EXPECT_EQ(back.to_f64(), tensor.to_f64());
    }
  }
}

TEST_F(ExportTest, BrokenNpyIsRefused) {
  const auto npy = [](const std::string& header, const std::string& data, int length = -1) {
    const int bytes = length < 0 ? int(header.size()) : length;
    return std::string("\x93NUMPY\x01\x00", 8) + char(bytes & 255) + char(bytes >> 8) + header + data;
  };
  const std::string eight(8, '\0');
  const std::vector<std::string> broken = {
      "",
      "NUMPY",
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", eight, 60000),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234"),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", eight),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", eight),
      npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", eight),
      npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", eight),
      npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", eight + eight),
      npy("{'descr': '<f4', 'shape': (2,), }", eight),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", eight),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }", eight),
  };
  for (size_t i = 0; i < broken.size(); ++i) {
    write("b.npy", broken[i]);
    EXPECT_THROW(read_npy(path("b.npy")), Error) << i;
  }
}

// ---- export

TEST_F(ExportTest, ExportWritesProgramsAsStandardOperators) {
  Graph g;
  g.name = "g";
  const ValueId x = g.add_input("x", DType::kF32, Shape{Dim::symbol("n"), Dim(4)});
  const ValueId w = g.add_constant("w", Tensor::of<float>({4}, {1, 2, 3, 4}));
  const std::string_view names[] = {"a", "b"};
  const NodeId id =
      g.add_program(Program::parse("clamp(a * b + 0.5, 0, 6) * sigmoid(a)", names, DType::kF32), {x, w}, "y");
  g.mark_output(g.node(id).output());
  for (const bool external : {false, true}) {
    export_onnx(g, path("out.onnx"), {.external_data = external});
    Graph back = import_onnx(path("out.onnx"));
    EXPECT_TRUE(back.verify().empty());
    EXPECT_EQ(back.value(back.outputs[0]).name, "y");
    EXPECT_EQ(text(back.value(back.outputs[0]).shape()), "[n,4]");
    EXPECT_EQ(constant(back, back.find_value("w")), (std::vector<double>{1, 2, 3, 4}));
    EXPECT_EQ(constant(back, only(back, "Clip").input(2)), std::vector<double>{6});
    for (const NodeId n : back.order()) EXPECT_TRUE(back.node(n).op->domain.empty());
  }
}

TEST_F(ExportTest, ExportKeepsLargeWeightsOutsideOnRequest) {
  Graph g;
  const ValueId x = g.add_input("x", DType::kF32, Shape{Dim(1000)});
  Tensor big(DType::kF32, {1000});
  for (int64_t i = 0; i < 1000; ++i) big.as<float>()[i] = float(i);
  const ValueId w = g.add_constant("w", big);
  const NodeId id = g.add_node(*find_op("Add"), {x, w}, {}, 1, {"y"}, "n");
  g.mark_output(g.node(id).output());
  export_onnx(g, path("big.onnx"), {.external_data = true});
  EXPECT_EQ(std::filesystem::file_size(path("big.onnx.data")), 4000u);
  EXPECT_LT(std::filesystem::file_size(path("big.onnx")), 1000u);
  Graph back = import_onnx(path("big.onnx"));
  EXPECT_EQ(constant(back, back.find_value("w"))[999], 999);
}

TEST_F(ExportTest, ReadsTensorProtoFiles) {
  onnx::TensorProto proto;
  put_tensor(Tensor::of<int64_t>({2}, {3, -4}), proto);
  proto.set_name("given");
  write("t.pb", proto.SerializeAsString());
  std::string name;
  EXPECT_EQ(read_tensor_proto(path("t.pb"), &name).to_i64(), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(name, "given");
}

}  // namespace
}  // namespace ridgeline
