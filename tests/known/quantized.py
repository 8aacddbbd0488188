"""QNT: saturation, rounding, zero points, blocks, and two codes to a byte."""

import numpy as np

from broken_gguf import Q4_0, Q4_K, Q8_0, GGUF, decoder
from known import f32, i8, i32, i64, known, ones, refused, right, u8, zeros
from onnx_file import I4, U4, Tensor


def four_bits(kind, values):
    """Two codes to a byte, the first in the low half; rows do not begin on bytes."""
    codes = np.append(np.ravel(values).astype(int) & 15, 0)
    pairs = codes[:len(codes) // 2 * 2].reshape(-1, 2)
    return Tensor(kind, np.shape(values), bytes((pairs[:, 0] | pairs[:, 1] << 4).tolist()))


def pair(x, z="z", s="s"):
    """Quantized and back."""
    return f"DequantizeLinear(QuantizeLinear({x}, {s}, {z}), {s}, {z})"


@known("QNT-01", "Two products of bytes do not fit 16 bits: a sum that saturates gives -3050 for -3132.")
def _():
    a, b = [210, 198, 234], [-81, -80, 127]
    for copies, n in ((1, 1), (1, 17), (16, 16), (43, 5)):
        left, weight = u8([a * copies] * 2), i8(np.repeat(np.reshape(b * copies, (-1, 1)), n, 1))
        exact, name = np.full([2, n], -3132 * copies), f"{3 * copies}_{n}"
        yield right(f"integer_{name}", "Y = MatMulInteger(A, b)", A=left, b=weight, Y=i32(exact))
        yield right(f"real_{name}", "Y = DequantizeLinear(A, 0.01, y) @ DequantizeLinear(b, 0.01, z)", rtol=1e-5,
                    atol=1e-4 * copies, A=left, b=weight, y=u8(0), z=i8(0), Y=exact * 1e-4)


@known("QNT-02", "-128 has no positive twin in a byte.")
def _():
    for a, b, y in ((-1, -128, 4096), (-128, -128, 524288), (127, -128, -520192)):
        given = {"A": i8(np.full([1, 32], a)), "b": i8(np.full([32, 16], b))}
        yield right(f"integer_{a}", "Y = MatMulInteger(A, b)", **given, Y=i32(np.full([1, 16], y)))
        yield right(f"real_{a}", "Y = DequantizeLinear(A, 1.0, z) @ DequantizeLinear(b, 1.0, z)", **given, z=i8(0),
                    Y=np.full([1, 16], y))


@known("QNT-03", "Padding is the number 0, which is the code of the zero point.")
def _():
    x, y = u8(np.full([1, 1, 3, 3], 128)), u8(np.full([1, 1, 3, 3], 100))
    given = {"X": x, "w": i8(ones(1, 1, 3, 3)), "x": u8(128), "z": i8(0), "y": u8(100)}
    yield right("fused", "Y = QLinearConv(X, 1.0, x, w, 1.0, z, 1.0, y, pads=[1, 1, 1, 1])", **given, Y=y)
    yield right(
        "spelled",
        "Y = QuantizeLinear(Conv(DequantizeLinear(X, 1.0, x), DequantizeLinear(w, 1.0, z), pads=[1, 1, 1, 1]),"
        " 1.0, y)", **given, Y=y)
    yield right("integer", "Y = ConvInteger(X, w, x, pads=[1, 1, 1, 1])", X=x, w=given["w"], x=given["x"],
                Y=i32(zeros(1, 1, 3, 3)))


@known("QNT-05", "A scale for each row or for each column.")
def _():
    x = i8([[2, 2, 2], [6, 6, 6]])
    for axis, s, z, y in ((1, [.5, 2, 10], [0, 1, -1], [[1, 2, 30], [3, 10, 70]]),
                          (0, [.5, 2], [0, 1], [[1, 1, 1], [10, 10, 10]])):
        for a in (axis, axis - 2):
            yield right(f"{a}", f"Y = DequantizeLinear(X, s, z, axis={a})", opset=13, X=x, s=s, z=i8(z), Y=y)
    yield right("quantize", "Y = QuantizeLinear(X, s, z, axis=0)", opset=13, X=[[1, 1], [10, 10]], s=[.5, 2],
                z=i8([0, 1]), Y=i8([[2, 2], [6, 6]]))


@known("QNT-06", "The elements of a block lie side by side along the axis.")
def _():
    x, s, z, y = i8(np.full([2, 4],
                            9)), f32([[1, 2], [3, 4]]), i8([[1, 2], [3, 4]]), f32([[8, 8, 14, 14], [18, 18, 20, 20]])
    for axis in (1, -1):
        yield right(f"{axis}", f"Y = DequantizeLinear(X, s, z, axis={axis}, block_size=2)", opset=21, X=x, s=s, z=z,
                    Y=y)
    yield right("first", "Y = DequantizeLinear(X, s, z, axis=0, block_size=2)", opset=21, X=x.T.copy(), s=s.T.copy(),
                z=z.T.copy(), Y=y.T.copy())
    yield right("last_of_3", "Y = DequantizeLinear(X, s, z, axis=2, block_size=2)", opset=21, X=x[None], s=s[None],
                z=z[None], Y=y[None])
    yield right("middle_of_3", "Y = DequantizeLinear(X, s, z, axis=1, block_size=2)", opset=21, X=x.reshape(1, 4, 2),
                s=s[None], z=z[None], Y=[[[8, 14], [8, 14], [18, 20], [18, 20]]])


@known("QNT-08", "An odd number of half bytes: the first code is the low half, the last half byte says nothing.")
def _():
    for kind, name, y in ((I4, "i4", [.5, 1, 1.5, 2, -.5]), (U4, "u4", [.5, 1, 1.5, 2, 7.5])):

        def codes(*dims, last=0x0F, kind=kind):
            return Tensor(kind, dims, bytes([0x21, 0x43, last]))

        for dims in ((5, ), (1, 5), (5, 1)):
            yield right(f"{name}_{'x'.join(map(str, dims))}", "Y = DequantizeLinear(q, 0.5)", opset=21, q=codes(*dims),
                        Y=np.reshape(y, dims))
        yield right(f"{name}_rest", "Y = DequantizeLinear(q, 0.5)", opset=21, q=codes(5, last=0xAF), Y=y)
        yield right(f"{name}_part", "Y = Slice(DequantizeLinear(q, 0.5), [1], [4])", opset=21, q=codes(5), Y=y[1:4])
    rows = np.array([[1, 2, 3], [4, 5, 6], [7, -8, -1]])
    yield right("rows", "Y = X @ DequantizeLinear(q, 0.5)", opset=21, X=np.eye(3), q=four_bits(I4, rows), Y=rows / 2)


@known("QNT-09", "Blocks of 512, which kernels may not know: refusing is right, zeros are not.")
def _():
    k, n = 2048, 4
    x, y = ones(1, k), np.full([1, n], -1024)
    yield right("spelled", "Y = X @ DequantizeLinear(q, s, z, axis=0, block_size=512)", opset=21, forms=["run", "sym"],
                X=x, q=four_bits(U4, 2 * ones(k, n)), s=ones(4, n) / 2, z=four_bits(U4, 3 * ones(4, n)), Y=y)
    yield right("node", f"Y = com.microsoft.MatMulNBits(X, q, s, z, K={k}, N={n}, bits=4, block_size=512)",
                forms=["run"], may_refuse=True, opsets={"com.microsoft": 1}, X=x, q=u8(np.full([n, 4, 256], 0x22)),
                s=ones(n * 4) / 2, z=u8(np.full(n * 2, 0x33)), Y=y)


@known("QNT-11", "A scale for each block of rows of a weight.")
def _():
    x, q, s = ones(1, 64), ones(64, 3), [[1, 2, 3], [10, 20, 30]]
    for name, opset, codes in (("i8_opset21", 21, i8(q)), ("i8_opset23", 23, i8(q)), ("i4", 21, four_bits(I4, q))):
        yield right(name, "Y = X @ DequantizeLinear(q, s, axis=0, block_size=32)", opset=opset, X=x, q=codes, s=s,
                    Y=[[352, 704, 1056]])
    yield right("square", "Y = X @ DequantizeLinear(q, s, axis=0, block_size=2)", opset=21, X=ones(1, 4),
                q=i8(ones(4, 2)), s=[[1, 2], [3, 4]], Y=[[8, 12]])


@known("QNT-12", "Divide, round to even, add the zero point, saturate; in this order.")
def _():
    x, y = [.5, 1.5, 2.5, -.5, -1.5, 127.5, 128.5, -128.5, 1e9], [0, 2, 2, 0, -2, 127, 127, -128, 127]
    for n in (9, 37):
        yield right(f"i8_{n}", "Y = QuantizeLinear(X, 1.0, z)", X=np.resize(x, n), z=i8(0), Y=i8(np.resize(y, n)))
    for zero, x, y in ((128, [.5, 1.5, -128.6], [128, 130, 0]), (1, [.5, 1.5, 2.5], [1, 3, 3])):
        yield right(f"u8_{zero}", "Y = QuantizeLinear(X, 1.0, z)", X=x, z=u8(zero), Y=u8(y))
    yield right("tenth", "Y = QuantizeLinear(X, 0.1, z)", X=[.25], z=i8(0), Y=i8([2]))


@known("QNT-14", "1.5 and 2.5 become 2, also where real arithmetic is replaced by integers.")
def _():
    z, real = i8(0), "DequantizeLinear({}, {}, z)"
    image = real.format("X", "1.0")
    yield right("pool", f"Y = QuantizeLinear(AveragePool({image}, kernel_shape=[1, 2], strides=[1, 2]), 1.0, z)",
                X=i8([[[[1, 2, 2, 3]]]]), z=z, Y=i8([[[[2, 2]]]]))
    yield right("global_pool", f"Y = QuantizeLinear(GlobalAveragePool({image}), 1.0, z)", X=i8([[[[1, 2]], [[2, 3]]]]),
                z=z, Y=i8([[[[2]], [[2]]]]))
    for name, sign, scale, b in (("add", "+", .5, [2, 4]), ("mul", "*", 1., [3, 5])):
        yield right(name, f"Y = QuantizeLinear({real.format('A', 0.5)} {sign} {real.format('B', scale)}, 1.0, z)",
                    A=i8([1, 1]), B=i8(b), z=z, Y=i8([2, 2]))


@known("QNT-16", "Codes around zero point 0 hold negative numbers: the Relu before them stays.")
def _():
    for x, zero, y in ((-5, i8(0), 0), (3, i8(0), 3), (-5, u8(0), 0), (-5, u8(10), 10)):
        yield right(f"{zero.dtype}_{zero}_{x}", "Y = QuantizeLinear(Relu(Conv(X, w)), 1.0, z)", X=[[[[x]]]],
                    w=ones(1, 1, 1, 1), z=zero, Y=np.full([1, 1, 1, 1], y, zero.dtype))
    yield right("all_codes",
                "Y = QuantizeLinear(Relu(Conv(DequantizeLinear(X, 1.0, z), DequantizeLinear(w, 1.0, z))), 1.0, z)",
                X=i8([[[[-5]]]]), w=i8([[[[1]]]]), z=i8(0), Y=i8([[[[0]]]]))


@known("QNT-18", "200 - 100 fits a byte, 200 does not: saturation comes where the model has it.")
def _():
    given = {"X": i8([[[[100]]]]), "D": i8([[[[-100]]]]), "w": i8([[[[2]]]]), "s": f32(1), "z": i8(0)}
    conv, rest = "Conv(DequantizeLinear(X, s, z), DequantizeLinear(w, s, z))", "DequantizeLinear(D, s, z)"
    yield right("at_the_end", f"Y = QuantizeLinear({conv} + {rest}, s, z)", **given, Y=i8([[[[100]]]]))
    yield right("between", f"Y = QuantizeLinear({pair(conv)} + {rest}, s, z)", **given, Y=i8([[[[27]]]]))


@known("QNT-20", "A row is a whole number of blocks.")
def _():
    for name, kind, row, block in (("q4_k", Q4_K, 320, "256"), ("q8_0", Q8_0, 40, "32")):
        yield refused(name,
                      decoder().tensor("odd.weight", [row, 2], kind, bytes(4096)).encode(), "odd.weight", block, **GGUF)
    yield refused("sound", decoder(kind=Q4_0).encode(), sound=True, **GGUF)


@known("QNT-21", "The rest of a row and the branch of an activation are two masks.")
def _():
    for n in range(1, 34):
        a, b = i8(np.tile(np.arange(-15, 15).reshape(30, 1), (3, 1, 1))), i8(np.tile(np.arange(n) - 10, (3, 1, 1)))
        y = a.astype(float) * b
        yield right(f"{n}", "Y = LeakyRelu(Cast(MatMulInteger(A, B), to=1), alpha=0.5)", forms=["run"], A=a, B=b,
                    Y=np.where(y < 0, y / 2, y))


@known("QNT-22", "10.3 to 10 to 8: without the first pair it would be 12.")
def _():
    weights = {"one": f32(1), "four": f32(4), "z": i8(0)}
    yield right("two_scales", f"Y = {pair(pair('X', s='one'), s='four')}", X=[10.3], **weights, Y=[8])
    yield right("one_scale", f"Y = {pair(pair('X', s='one'), s='one')}", X=[10.3], one=f32(1), z=i8(0), Y=[10])


@known("QNT-23", "Zero points on both sides: their product counts, and bytes beyond the row do not.")
def _():
    for k in (2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33):
        yield right(f"{k}", "Y = MatMulInteger(A, b, y, z)", A=u8([[5, 7] + [3] * (k - 2)]),
                    b=i8([[2, 0], [-4, 6]] + [[1, 2]] * (k - 2)), y=u8(3), z=i8([1, 2]), Y=i32([[-18, 12]]))
    yield right("real", "Y = DequantizeLinear(A, 1.0, y) @ DequantizeLinear(b, [1.0, 1.0], z, axis=1)", A=u8([[5, 7]]),
                b=i8([[2, 0], [-4, 6]]), y=u8(3), z=i8([1, 2]), Y=[[-18, 12]])
