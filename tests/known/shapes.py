"""SHP: nothing at all, negative axes, padding, ties, and meanings that changed with the operator set."""

import numpy as np

import meaning
from known import (HIGHEST, INF, LOWEST, Open, boolean, by_hand, f32, i8, i32, i64, known, model, noise, ones, ramp,
                   refused, right, zeros)


@known("SHP-01", "A sum of nothing is 0, and somebody has to write it.")
def _():
    a, b = zeros(16, 0), zeros(0, 16)
    yield right("matmul", "Y = A @ B", A=a, B=b, Y=zeros(16, 16))
    yield right("gemm", "Y = Gemm(A, B, c, beta=2.0)", A=a, B=b, c=ones(16), Y=2 * ones(16, 16))
    yield right("no_bias", "Y = Gemm(A, B)", A=a, B=b, Y=zeros(16, 16))


@known("SHP-02", "No matrices times no matrices.")
def _():
    for make in (f32, i64):
        yield right(str(make(0).dtype), "Y = A @ B", A=make(zeros(0, 4, 8)), B=make(zeros(0, 8, 4)),
                    Y=make(zeros(0, 4, 4)))


@known("SHP-04", "A matrix without rows, or without columns, times a vector.")
def _():
    yield right("rows", "Y = A @ B", A=zeros(0, 2), B=[1, 2], Y=zeros(0))
    yield right("columns", "Y = A @ B", A=[1, 2], B=zeros(2, 0), Y=zeros(0))


@known("SHP-05", "Parts of a Concat may be empty.")
def _():
    yield right("one", "Y = Concat(A, B, axis=0)", A=zeros(0), B=[1, 2], Y=[1, 2])
    yield right("all", "Y = Concat(A, B, axis=0)", A=zeros(0), B=zeros(0), Y=zeros(0))
    yield right("inside", "Y = Concat(A, B, axis=1)", A=zeros(2, 0), B=ramp(2, 2), Y=ramp(2, 2))


@known("SHP-06", "Elementwise on nothing: no extent is to be divided by.")
def _():
    yield right("mul", "Y = A * B", A=zeros(2, 0), B=[[3]], Y=zeros(2, 0))
    yield right("add", "Y = A + B", A=zeros(0), B=[3], Y=zeros(0))
    yield right("sub", "Y = A - B", A=zeros(3, 0), B=ramp(3, 1), Y=zeros(3, 0))
    yield right("where", "Y = Where(C, A, B)", C=boolean(zeros(2, 0)), A=[[1]], B=zeros(2, 0), Y=zeros(2, 0))
    yield right("pad", "Y = Pad(A, [1, 0, 0, 0], 7.0)", A=zeros(0, 2), Y=[[7, 7]])
    yield right("one_hot", "Y = OneHot(A, 5, v)", A=i64([]), v=[0, 1], Y=zeros(0, 5))


@known("SHP-07", "A reduction of nothing gives its neutral element.")
def _():
    x = zeros(0, 4)
    for op, neutral in (("Sum", 0.), ("Prod", 1.), ("Max", -INF), ("Min", INF)):
        for keep in (0, 1):
            yield right(f"{op.lower()}_keep{keep}", f"Y = Reduce{op}(X, [0], keepdims={keep})", opset=20, X=x,
                        Y=np.full([1, 4] if keep else [4], neutral))
        yield right(f"{op.lower()}_other", f"Y = Reduce{op}(X, [1], keepdims=0)", opset=20, X=x, Y=zeros(0))
    # The mean of nothing has no meaning: any value or an error.
    yield refused("mean", model("Y = ReduceMean(X, [0], keepdims=0)", opset=20, X=x, Y=zeros(4)), may_load=True,
                  run={"X": x})


@known("SHP-09", "Nothing, backwards.")
def _():
    yield right("", f"Y = Slice(X, [-1], [{LOWEST}], [0], [-1])", X=zeros(0, 3), Y=zeros(0, 3))


@known("SHP-10", "How the ends of a slice are clamped depends on the sign of the step.")
def _():
    for n, (start, end, step,
            y) in enumerate(((-1, LOWEST, -1, [4, 3, 2, 1, 0]), (-1, LOWEST, -2, [4, 2, 0]), (3, -6, -1, [3, 2, 1, 0]),
                             (1, HIGHEST, 2, [1, 3]), (-100, 2, 1, [0, 1]), (4, 4, 1, []), (-1, -1, -1, []),
                             (100, -3, -1, [4, 3]))):
        yield right(f"fixed{n}", f"Y = Slice(X, [{start}], [{end}], [0], [{step}])", X=ramp(5), Y=y)
        yield right(f"given{n}", "Y = Slice(X, S, E, A, T)", forms=["sym"], X=ramp(5), S=i64([start]), E=i64([end]),
                    A=i64([0]), T=i64([step]), Y=y)


@known("SHP-11", "0 copies an extent, -1 is what is left after that.")
def _():
    x = ramp(2, 3, 4)
    for name, target, y in (("rest", [0, -1], [2, 12]), ("two_copied", [0, 0, -1], [2, 3, 4]),
                            ("rest_first", [-1, 0], [8, 3]), ("between", [-1, 0, 2], [4, 3, 2])):
        yield right(name, f"Y = Reshape(X, {target})", X=x, Y=x.reshape(y))
    yield right("scalar", "Y = Reshape(X, [])", X=[[5]], Y=5)
    yield refused("two_open", model("Y = Reshape(X, [-1, -1, 2])", X=x, Y=Open(3)), "Reshape|-1", run={"X": x})


@known("SHP-13", "A window that would begin in the end padding is none (said from opset 22 on).")
def _():
    x = [[[1, 2, 3, 4, 5]]]
    y = by_hand(meaning.pool(x, 3, 3, 1, ceil=True), [[[2, 5]]])
    yield right("", "Y = MaxPool(X, kernel_shape=[3], strides=[3], pads=[1, 1], ceil_mode=1)", opset=22, X=x, Y=y)


@known("SHP-15", "With rounding up and counted pads, the divisor is the part of the window inside of the padded image.")
def _():
    x = ramp(1, 1, 4, 4, start=1)
    y = by_hand(meaning.pool(x, 3, 2, 1, ceil=True, average=True, count_pads=True),
                [[[[14 / 9, 10 / 3, 2], [19 / 3, 11, 6], [4.5, 7.5, 4]]]])
    for opset in (19, 22):
        yield right(
            f"opset{opset}", "Y = AveragePool(X, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1,"
            " count_include_pad=1)", opset=opset, X=x, Y=y)


@known("SHP-16", "Rounding up without pads.")
def _():
    x = ramp(1, 1, 4, 4, start=1)
    for count in (0, 1):
        y = by_hand(meaning.pool(x, 3, 2, ceil=True, average=True, count_pads=bool(count)), [[[[6, 7.5], [12, 13.5]]]])
        yield right(f"count{count}",
                    f"Y = AveragePool(X, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad={count})",
                    opset=19, X=x, Y=y)


@known("SHP-18", "Of an odd padding, UPPER has more at the end and LOWER more at the beginning.")
def _():
    x = [[[1, 2, 3, 4]]]
    for mode, pads, y in (("UPPER", [0, 1], [21, 32, 43, 4]), ("LOWER", [1, 0], [10, 21, 32, 43])):
        yield right(f"conv_{mode.lower()}", f"Y = Conv(X, w, auto_pad='SAME_{mode}')", X=x, w=[[[1, 10]]], Y=[[y]])
        yield right(f"pool_{mode.lower()}", f"Y = MaxPool(X, kernel_shape=[2], auto_pad='SAME_{mode}')", X=x,
                    Y=meaning.pool(x, 2, 1, pads))


@known("SHP-20", "The same for a transposed convolution, where the padding is cut off.")
def _():
    for mode, y in (("UPPER", [1, 10, 102, 20, 203, 30, 304, 40]), ("LOWER", [10, 102, 20, 203, 30, 304, 40, 400])):
        yield right(mode.lower(), f"Y = ConvTranspose(X, w, auto_pad='SAME_{mode}', strides=[2])", X=[[[1, 2, 3, 4]]],
                    w=[[[1, 10, 100]]], Y=[[y]])


@known("SHP-21", "The row that output_padding adds gets what the kernel puts there.")
def _():
    x, w, b = noise(21, 1, 3, 28, 28), noise(22, 3, 2, 3, 3), f32([1, -1])
    for stride in (1, 2):
        y = meaning.conv_transpose(x, w, stride, 1, output_padding=stride - 1) + b.reshape(2, 1, 1)
        assert y.shape[2:] == (28 * stride, 28 * stride)
        yield right(
            f"stride{stride}", f"Y = ConvTranspose(X, w, b, strides=[{stride}, {stride}], pads=[1, 1, 1, 1],"
            f" output_padding=[{stride - 1}, {stride - 1}])", atol=1e-5, X=x, w=w, b=b, Y=y)
    yield right("line", "Y = ConvTranspose(X, w, strides=[3], output_padding=[2])", X=[[[1, 2]]], w=[[[1, 10]]],
                Y=[[[1, 10, 0, 2, 20, 0, 0]]])


@known("SHP-23", "At one half, round_prefer_floor takes the lower neighbour.")
def _():
    for opset in (13, 19):
        yield right(
            f"opset{opset}",
            "Y = Resize(X, None, [1.0, 1.0, 1.5, 1.5], mode='nearest', nearest_mode='round_prefer_floor',"
            " coordinate_transformation_mode='half_pixel')", opset=opset, X=ramp(1, 1, 3, 3),
            Y=ramp(1, 1, 3, 3)[:, :, [0, 0, 1, 2]][..., [0, 0, 1, 2]])


@known("SHP-25", "A negative index counts from the end.")
def _():
    x = ramp(3, 4)
    yield right("gather", "Y = Gather(X, I, axis=1)", X=x, I=i32([-1, -4]), Y=x[:, [3, 0]])
    yield right("gather_elements", "Y = GatherElements(X, I, axis=1)", X=x, I=i64(-ones(3, 4)), Y=x[:, [3] * 4])
    yield right("gather_nd", "Y = GatherND(X, I)", X=x, I=i64([[-1, -1], [0, -2]]), Y=[11, 2])
    yield right("scatter_nd", "Y = ScatterND(X, I, U)", X=zeros(3, 4), I=i64([[-1], [0]]), U=ramp(2, 4, start=1),
                Y=[[5, 6, 7, 8], [0] * 4, [1, 2, 3, 4]])
    yield right("scatter_elements", "Y = ScatterElements(X, I, U, axis=0)", X=zeros(3), I=i64([-1]), U=[5], Y=[0, 0, 5])
    yield right("one_hot", "Y = OneHot(I, 5, v)", I=i64([-1]), v=[0, 1], Y=[[0, 0, 0, 0, 1]])


@known("SHP-26", "Every update of one place counts, whichever thread does it.")
def _():
    for how, start, y in (("add", 0, 3), ("mul", 1, 2), ("max", 0, 2), ("min", 0, 0)):
        x = np.full(2, float(start))
        yield right(f"nd_{how}", f"Y = ScatterND(X, I, U, reduction='{how}')", opset=18, X=x, I=i64([[0], [0]]),
                    U=[1, 2], Y=[y, start])
        yield right(f"elements_{how}", f"Y = ScatterElements(X, I, U, axis=0, reduction='{how}')", opset=18, X=x,
                    I=i64([0, 0]), U=[1, 2], Y=[y, start])
    yield right("many", "Y = ScatterND(X, I, U, reduction='add')", opset=18, X=zeros(3),
                I=i64(np.arange(4096)[:, None] % 2), U=ones(4096), Y=[2048, 2048, 0])


@known("SHP-28", "Before opset 13 Softmax runs over all axes from its own on, which is 1 by default.")
def _():
    x = ramp(2, 3, 4) / 7
    first = meaning.softmax(x.reshape(2, 12)).reshape(x.shape)
    for opset in (1, 11):
        for name, attribute, given, y in (("axis1", ", axis=1", x, first), ("default", "", x, first),
                                          ("axis2", ", axis=2", x, meaning.softmax(x)),
                                          ("zeros", ", axis=1", zeros(2, 3, 4), np.full([2, 3, 4], 1 / 12))):
            yield right(f"opset{opset}_{name}", f"Y = Softmax(X{attribute})", opset=opset, X=given, Y=y)
    yield right("opset13_axis1", "Y = Softmax(X, axis=1)", opset=13, X=x, Y=meaning.softmax(x, 1))
    yield right("opset13_default", "Y = Softmax(X)", opset=13, X=x, Y=meaning.softmax(x))


@known("SHP-30", "Rank 0.")
def _():
    yield right("add", "Y = A + B", A=1, B=2, Y=3)
    yield right("reduce", "Y = ReduceSum(X, keepdims=0)", X=ramp(2, 2), Y=6)
    yield right("row", "Y = Gather(X, I, axis=0)", X=ramp(3, 4), I=i64(1), Y=[4, 5, 6, 7])
    yield right("element", "Y = Gather(X, I, axis=0)", X=ramp(3), I=i64(1), Y=1)
    yield right("squeeze", "Y = Squeeze(X)", X=[5], Y=5)
    yield right("reshape", "Y = Reshape(X, [])", X=[5], Y=5)
    yield right("size_and_shape", "Y = Size(X) + 1; S = Shape(X)", X=5, Y=i64(2), S=i64([]))


@known("SHP-31", "A negative axis counts from the end: of the result for Unsqueeze.")
def _():
    x = ramp(2, 3, 4)
    for name, body, given, y in (("concat", "Concat(X, X, axis=-1)", x, np.concatenate([x, x], -1)),
                                 ("unsqueeze", "Unsqueeze(X, [0, -1])", ramp(3), ramp(1, 3, 1)),
                                 ("mean", "ReduceMean(X, axes=[-1, 0], keepdims=0)", x, x.mean((0, 2))),
                                 ("gather", "Gather(X, [2, 0], axis=-1)", x, x[..., [2, 0]]),
                                 ("flatten", "Flatten(X, axis=-1)", x, x.reshape(6, 4)),
                                 ("largest", "ArgMax(X, axis=-2, keepdims=0)", x, i64(2 * ones(2, 4))),
                                 ("softmax", "Softmax(X, axis=-2)", x, meaning.softmax(x, -2)),
                                 ("squeeze", "Squeeze(X, [-2])", ramp(2, 1, 3), ramp(2, 3))):
        yield right(name, "Y = " + body, X=given, Y=y)
    yield right("unsqueeze_opset11", "Y = Unsqueeze(X, axes=[0, -1])", opset=11, X=ramp(3), Y=ramp(1, 3, 1))
    yield right("split", "A, B, C = Split(X, [1, 1, 1], axis=-2)", X=x, A=x[:, :1], B=x[:, 1:2], C=x[:, 2:])
    yield right("norm", "Y = LayerNormalization(X, s, axis=-2)", X=x, s=ones(3, 4), Y=meaning.normalized(x, (1, 2)))
    yield refused("one_axis_twice", model("Y = Unsqueeze(X, [0, -3])", X=ramp(3), Y=ramp(1, 3, 1)), "axes|axis",
                  run={"X": ramp(3)})


@known("SHP-32", "Lengths that come and go: nothing may be left over from the run before.")
def _():
    weights = {"q": noise(1, 4, 4), "k": noise(2, 4, 4), "v": noise(3, 4, 4), "a": noise(4, 4, 8), "b": noise(5, 8, 4)}
    wide = {n: w.astype(np.float64) for n, w in weights.items()}

    def block(x):
        share = meaning.softmax((x @ wide["q"]) @ (x @ wide["k"]).swapaxes(1, 2) / 2)
        h = meaning.normalized(x + share @ (x @ wide["v"]))
        return f32(meaning.normalized(h + np.maximum(h @ wide["a"], 0) @ wide["b"]))

    given = [noise(100 + i, 1, length, 4) for i, length in enumerate((1, 7, 128, 3, 128, 1))]
    yield right(
        "",
        "P = Softmax((X @ q) @ Transpose(X @ k, perm=[0, 2, 1]) * 0.5); H = LayerNormalization(X + P @ (X @ v), s, z);"
        "Y = LayerNormalization(H + Relu(H @ a) @ b, s, z)", forms=["sym"], rtol=1e-4, atol=1e-5, X=given[0], **weights,
        s=ones(4), z=zeros(4), Y=block(given[0].astype(np.float64)),
        more=[({"X": x}, {"Y": block(x.astype(np.float64))}) for x in given[1:]])


@known("SHP-34", "Of equal values the one with the lower index comes first.")
def _():
    yield right("largest", "V, I = TopK(X, [2])", X=[1, 3, 3, 2], V=[3, 3], I=i64([1, 2]))
    yield right("smallest", "V, I = TopK(X, [2], largest=0)", X=[2, 1, 1, 3], V=[1, 1], I=i64([1, 2]))
    yield right("none", "V, I = TopK(X, [0])", X=[1, 3, 3, 2], V=[], I=i64([]))
    for k in (1, 5, 64, 5000):
        yield right(f"equal{k}", f"V, I = TopK(X, [{k}])", forms=["run"], X=ones(10000), V=ones(k), I=i64(np.arange(k)))


@known("SHP-36", "The modes of Pad; a negative pad removes.")
def _():
    for name, mode, pads, y in (("negative", "constant", [-1, 2], [2, 3, 0, 0]),
                                ("reflect", "reflect", [2, 1], [3, 2, 1, 2, 3, 2]),
                                ("edge", "edge", [1, 1], [1, 1, 2, 3, 3]), ("wrap", "wrap", [1, 1], [3, 1, 2, 3, 1])):
        yield right(name, f"Y = Pad(X, {pads}, mode='{mode}')", opset=19, X=[1, 2, 3], Y=y)
    yield right("axes", "Y = Pad(X, [1, 0], 9.0, [-1])", opset=18, X=ramp(2, 2), Y=[[9, 0, 1], [9, 2, 3]])
    yield right("plane", "Y = Pad(X, [-1, -1, 0, 1])", X=ramp(3, 3), Y=[[4, 5, 0], [7, 8, 0]])


@known("SHP-38", "Pads are all beginnings, then all ends.")
def _():
    for name, pads, y in (("begin", [1, 0], [1, 3, 5]), ("end", [0, 1], [3, 5, 3])):
        yield right(name, f"Y = Conv(X, w, pads={pads})", X=[[[1, 2, 3]]], w=ones(1, 1, 2), Y=[[y]])
    x, w = ramp(1, 1, 3, 3, start=1), ramp(1, 1, 2, 2, start=1)
    y = meaning.conv(x, w, pads=[1, 0, 0, 2])
    assert y.shape == (1, 1, 3, 4)
    yield right("plane", "Y = Conv(X, w, pads=[1, 0, 0, 2])", X=x, w=w, Y=y)
    yield right("pool", "Y = AveragePool(X, kernel_shape=[2, 2], pads=[1, 0, 0, 1])", X=x,
                Y=meaning.pool(x, 2, 1, [1, 0, 0, 1], average=True))


@known("SHP-39", "More elements than 31 bits count: 2 to 4.3 GB.")
def _():
    n, side = 2**31 + 1, 46342
    yield right("gather", "Y = Gather(ConstantOfShape(S, value=three), I, axis=0)", forms=["run"], large=True,
                S=i64([n]), three=i8([3]), I=i64([n - 1, -1]), Y=i8([3, 3]))
    yield right("slice", f"Y = Slice(ConstantOfShape(S, value=three), [-2], [{HIGHEST}])", forms=["run"], large=True,
                S=i64([n]), three=i8([3]), Y=i8([3, 3]))
    yield right("transpose", "Y = Gather(Transpose(Expand(Cast(Mod(Range(0, N, 1), 101), to=3), S)), [0, -1], axis=0)",
                forms=["run"], large=True, N=i64(side), S=i64([side, side]),
                Y=i8(np.repeat([[0], [(side - 1) % 101]], side, 1)))


@known("SHP-40", "Where the parts of a Split can not be equal, the last one is smaller.")
def _():
    x = ramp(7)
    yield right("into3", "A, B, C = Split(X, num_outputs=3)", opset=18, X=x, A=x[:3], B=x[3:6], C=x[6:])
    yield right("into4", "A, B, C, D = Split(X, num_outputs=4)", opset=18, X=x, A=x[:2], B=x[2:4], C=x[4:6], D=x[6:])
    yield right("given", "A, B, C = Split(X, [2, 0, 5])", opset=18, X=x, A=x[:2], B=x[:0], C=x[2:])
    yield right("given_opset11", "A, B, C = Split(X, split=[2, 0, 5])", opset=11, X=x, A=x[:2], B=x[:0], C=x[2:])
