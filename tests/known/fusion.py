"""FUS: rewrites that change a value, a shape, or what a graph gives."""

import math

import numpy as np

import meaning
from known import (HIGHEST, INF, LOWEST, NAN, boolean, by_hand, f16, f32, f64, i8, i32, i64, known, model, noise, ones,
                   ramp, refused, right, u8, zeros)
from onnx_file import Branch, FLOAT, Tensor


def spelled_norm(axes="[-1]", keepdims=1):
    """A layer normalization in small operators, as exporters write it before opset 18."""
    mean = f"ReduceMean({{}}, keepdims={keepdims}" + (f", axes={axes})" if axes else ")")
    return f"D = X - {mean.format('X')}; Y = D / Sqrt({mean.format('D ** 2.0')} + 1.0e-5)"


def norm(source):
    return f"BatchNormalization({source}, s, b, m, v, epsilon=0.0)"


def statistics(n=1, s=3.0, b=1.0, m=0.0, v=1.0):
    return {k: np.full(n, value) for k, value in (("s", s), ("b", b), ("m", m), ("v", v))}


@known("FUS-01",
       "A constant as large as the convolution's output is a residual and no bias, however many groups there are.")
def _():
    x, c = ramp(1, 4, 2, 2), f32([[[[100 * m + 10 * i + j for j in (0, 1)] for i in (0, 1)] for m in range(4)]])
    for group in (1, 2, 4):
        w = ones(4, 4 // group, 1, 1)
        y = meaning.conv(x, w, group=group) + c
        if group == 2:
            by_hand(y[0, :, 0, 0], [4, 104, 220, 320]), by_hand(y[0, :, 1, 1], [21, 121, 237, 337])
        yield right(f"group{group}", f"Y = Conv(X, w, group={group}) + c", X=x, w=w, c=c, Y=y)


@known("FUS-03", "A column has as many elements as the square product has columns, but they belong to the rows.")
def _():
    for name, body in (("add", "Y = A @ b + c"), ("add_left", "Y = c + A @ b"), ("gemm", "Y = Gemm(A, b, c)"),
                       ("gemm_add", "Y = Gemm(A, b) + c")):
        yield right(name, body, A=np.eye(3), b=np.eye(3), c=[[10], [20], [30]], Y=np.eye(3) + [[10], [20], [30]])


@known("FUS-04", "The addend makes the sum wider than the product, which no bias of a Gemm may do.")
def _():
    y = 3 + np.tile([1, 2, 3, 4], (3, 1))
    yield right("weight", "Y = A @ b + c", A=ones(3, 3), b=ones(3, 1), c=[[1, 2, 3, 4]], Y=y)
    yield right("input", "Y = A @ b + C", A=ones(3, 3), b=ones(3, 1), C=[[1, 2, 3, 4]], Y=y)


@known("FUS-06", "The factor of one element gives the scalar its rank; without it there is no product.")
def _():
    yield right("", "Y = (X * w) @ b", X=2, w=[1], b=ones(1, 64), Y=2 * ones(64))


@known("FUS-07", "A scale along the rows is no scale of a layer normalization.")
def _():
    x, scale = np.tile([1, 2], (3, 1)), np.reshape([1, 10, 100], (3, 1))
    y = by_hand(meaning.normalized(x) * scale, [[-.99998, .99998], [-9.9998, 9.9998], [-99.998, 99.998]], 1e-3)
    body = spelled_norm().replace("Y =", "N =") + "; Y = N * c"
    yield right("opset17", body, X=x, c=scale, Y=y)
    yield right("opset18",
                body.replace(", axes=[-1]",
                             "").replace("ReduceMean(X", "ReduceMean(X, [-1]").replace("2.0,", "2.0, [-1],"), opset=18,
                X=x, c=scale, Y=y)


@known("FUS-09",
       "A mean that loses its axis is subtracted along the columns: no normalization, although the shapes fit.")
def _():
    x = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 10.]])
    d = x - x.mean(1)
    y = by_hand(d / np.sqrt((d * d).mean(1) + 1e-5),
                [[-.279347, -1.690803, -1.523233], [.558694, 0, -.666415], [1.396734, 1.690803, .47601]], 2e-6)
    yield right("", spelled_norm(keepdims=0), X=x, Y=y)


@known("FUS-11", "LayerNormalization runs from an axis to the last one; other axes are something else.")
def _():
    x = [[[1, 2, 4], [3, 8, 0]]]
    by_hand(meaning.normalized(x, 1), [[[-1, -1, 1], [1, 1, -1]]], 1e-5)
    for name, axes, those in (("middle", "[1]", 1), ("all", "", None), ("first_and_last", "[0, 2]", (0, 2))):
        yield right(name, spelled_norm(axes), X=x, Y=meaning.normalized(x, those))


@known("FUS-13", "GELU by erf and GELU by tanh differ by up to 4e-4: each spelling keeps its own.")
def _():
    x = [-3, -1, -.5, .5, 1, 3]
    erf = by_hand(meaning.gelu(x), [-.00404969, -.15865525, -.15426877, .34573123, .84134475, 2.99595031], 1e-8)
    tanh = by_hand(meaning.gelu_tanh(x), [-.00363739, -.15880801, -.15428599, .34571401, .84119199, 2.99636261], 1e-8)
    yield right("erf", f"Y = X * (Erf(X / {math.sqrt(2)}) + 1.0) * 0.5", X=x, Y=erf)
    yield right("tanh", f"Y = X * 0.5 * (Tanh((X + X ** 3.0 * 0.044715) * {math.sqrt(2 / math.pi)}) + 1.0)", X=x,
                Y=tanh)
    yield right("node_erf", "Y = Gelu(X)", opset=20, X=x, Y=erf)
    yield right("node_tanh", "Y = Gelu(X, approximate='tanh')", opset=20, X=x, Y=tanh)


@known("FUS-15",
       "Bounds of Clip have the type of the data: a fusion that reads them as float must not stop the others.")
def _():
    for make in (f16, f32, f64, i8, i32, i64):
        x, y = ([-2, .5, 3], [0, .5, 1]) if make in (f16, f32, f64) else ([-2, 0, 3], [0, 0, 1])
        yield right(str(make(0).dtype), "Y = Clip(Relu(X), low, high)", opset=14, X=make(x), low=make(-1), high=make(1),
                    Y=make(y))


@known("FUS-17", "An input without a name is not given; it is no tensor to look for.")
def _():
    x = [-5, 3, 9]
    for opset in (11, 13):
        yield right(f"max{opset}", "Y = Clip(X, None, 6.0)", opset=opset, X=x, Y=[-5, 3, 6])
        yield right(f"min{opset}", "Y = Clip(X, -1.0, None)", opset=opset, X=x, Y=[-1, 3, 9])
        yield right(f"no_bound{opset}", "Y = Clip(X)", opset=opset, X=x, Y=x)
    yield right("max_i8", "Y = Clip(X, None, high)", X=i8([-128, 3, 127]), high=i8(6), Y=i8([-128, 3, 6]))


@known("FUS-18",
       "Zeros of a Pad take part in the maximum, the pads of MaxPool do not: only a Pad with the lowest value may go.")
def _():
    x, y = -ones(1, 1, 2, 2), zeros(1, 1, 2, 2)
    body = "Y = MaxPool(Pad(X, [0, 0, 1, 1, 0, 0, 1, 1], c), kernel_shape=[2, 2], strides=[2, 2])"
    for opset in (13, 18):
        yield right(f"zero{opset}", body, opset=opset, X=x, c=f32(0), Y=y)
    yield right("no_value", body.replace(", c)", ")"), X=x, Y=y)
    yield right("lowest", body, X=x, c=f32(-INF), Y=x)
    yield right("zero_i8", body, X=i8(x), c=i8(0), Y=i8(y))
    yield right("lowest_i8", body, X=i8(x), c=i8(-128), Y=i8(x))


@known("FUS-20", "A Pad that becomes the convolution's own is lost again while auto_pad says VALID.")
def _():
    row = [[4, 6, 6, 4], [6, 9, 9, 6]]
    for mode in ("VALID", "NOTSET"):
        yield right(mode.lower(), f"Y = Conv(Pad(X, [0, 0, 1, 1, 0, 0, 1, 1], 0.0), w, auto_pad='{mode}')",
                    X=ones(1, 1, 4, 4), w=ones(1, 1, 3, 3), Y=[[row + row[::-1]]])


@known("FUS-21", "A Pad that is read twice has to stay for its second reader.")
def _():
    x, w = ramp(1, 1, 3, 3), ramp(1, 1, 2, 2, start=1)
    yield right("", "P = Pad(X, [0, 0, 1, 1, 0, 0, 1, 1], 0.0); Y = Conv(P, w); Z = Identity(P)", X=x, w=w,
                Y=meaning.conv(x, w, pads=1), Z=np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]))


@known("FUS-22", "A weight that two convolutions read is not to be changed for one of them.")
def _():
    x, z, bn = f32([[[[1, -2]]]]), f32([[[[3, 4]]]]), statistics()
    yield right("two_readers", f"A = {norm('Conv(X, w)')}; B = Conv(Z, w)", X=x, Z=z, w=[[[[2]]]], **bn, A=6 * x + 1,
                B=2 * z)
    yield right("also_output", f"A = {norm('Conv(X, w)')}; B = Identity(w)", X=x, w=[[[[2]]]], **bn, A=6 * x + 1,
                B=[[[[2]]]])


@known("FUS-23", "A bias before a normalization is scaled too: 3 (x + 2 - 0.5) + 1.")
def _():
    x, image = f32([[[[-1, 0], [2, 5]]]]), ramp(1, 2, 2, 2)
    for name, node, given, w in (("conv", "Conv(X, w, c)", x, ones(1, 1, 1, 1)),
                                 ("depthwise", "Conv(X, w, c, group=2)", image, ones(2, 1, 1, 1)),
                                 ("transposed", "ConvTranspose(X, w, c)", x, ones(1, 1, 1, 1)),
                                 ("gemm", "Gemm(X, w, c)", f32([[1, 2], [3, -4]]), np.eye(2))):
        n = given.shape[1]
        yield right(name, f"Y = {norm(node)}", X=given, w=w, c=np.full(n, 2), **statistics(n, m=.5), Y=3 * given + 5.5)


@known("FUS-25", "A normalization in training mode uses the statistics of the batch: nothing to fold.")
def _():
    # The running statistics keep nine tenths; the variance is that of the population, 1.25.
    x = ramp(1, 1, 2, 2, start=1)
    y = by_hand(meaning.normalized(x, None), [[[[-1.341635, -.447212], [.447212, 1.341635]]]], 1e-5)
    yield right("", "Y, M, V = BatchNormalization(Conv(X, w), s, b, m, v, training_mode=1)", opset=15, may_refuse=True,
                X=x, w=ones(1, 1, 1, 1), **statistics(s=1, b=0), Y=y, M=[.25], V=[1.025])


@known("FUS-26", "What lies inside of a fusion may be an output as well.")
def _():
    x = f32([[[[-3, -1], [1, 3]]]])
    yield right("conv", f"A = Conv(X, w); B = {norm('A')}; C = Relu(B)", X=x, w=[[[[2]]]], **statistics(), A=2 * x,
                B=6 * x + 1, C=np.maximum(6 * x + 1, 0))
    yield right("gemm", "A = Gemm(X, w); B = Gelu(A)", opset=20, X=[[1, -1]], w=np.eye(2), A=[[1, -1]],
                B=meaning.gelu([[1, -1]]))


@known("FUS-29", "A residual may be smaller than what it is added to, or larger.")
def _():
    x, w = ones(1, 2, 2, 2), np.eye(2).reshape(2, 2, 1, 1)
    for name, r in (("channels", np.reshape([-3, 5], (1, 2, 1, 1))), ("width", np.reshape([-3, 5], (1, 1, 1, 2))),
                    ("more_batches", ramp(2, 2, 2, 2, start=-8))):
        for order, body in (("", "Y = Relu(Conv(X, w) + R)"), ("_left", "Y = Relu(R + Conv(X, w))")):
            yield right(name + order, body, X=x, w=w, R=r, Y=np.maximum(x + r, 0))


@known("FUS-30", "Two constants of one shape are not one constant; not even +0 and -0 are.")
def _():
    yield right("weights", "Y = A / c + B * d", A=10, B=3, c=2, d=4, Y=17)
    yield right("nodes", "Y = A / Constant(value_float=2.0) + B * Constant(value_float=4.0)", A=[10], B=[3], Y=[17])
    yield right("zeros", "Y = Concat(X / c, X / d, axis=0)", X=[1], c=0., d=-0., Y=[INF, -INF])


@known("FUS-32", "When both ends of an edge are removed, the edge has to lead on.")
def _():
    for name, node in (("identity", "Identity(X)"), ("dropout", "Dropout(X)"), ("cast", "Cast(X, to=1)"),
                       ("twice", "Identity(Identity(X))")):
        yield right(name, f"M = {node}; Y = M * (c / c) + 0.0", X=[1.5, -2, 1e30], c=1, Y=[1.5, -2, 1e30])


@known("FUS-33", "A Transpose becomes a flag of Gemm only where it swaps the axes.")
def _():
    x, w, b, square = ramp(3, 4), ramp(4, 5, start=-7), ramp(5), ramp(4, 4)
    y = x @ w + b
    yield right("identity", "Y = Gemm(X, Transpose(w, perm=[0, 1]), b)", X=x, w=w, b=b, Y=y)
    yield right("swap", "Y = Gemm(X, Transpose(w, perm=[1, 0]), b)", X=x, w=w.T.copy(), b=b, Y=y)
    yield right("swap_twice", "Y = Gemm(X, Transpose(w, perm=[1, 0]), b, transB=1)", X=x, w=w, b=b, Y=y)
    yield right("input", "Y = Gemm(X, Transpose(W, perm=[0, 1]))", X=x, W=square, Y=x @ square)


@known("FUS-34", "A bias that crosses a Transpose needs another shape.")
def _():
    x, y = ramp(1, 2, 3, 4), ramp(1, 2, 3, 4).transpose(0, 2, 3, 1) + f32([100, 200])
    by_hand([y[0, 0, 0], y[0, 2, 3]], [[100, 212], [111, 223]])
    yield right("", "Y = Transpose(X, perm=[0, 2, 3, 1]) + c", X=x, c=[100, 200], Y=y)
    x, c = ramp(1, 3, 3, 3), f32([100, 200, 300])
    yield right("equal_extents", "Y = Transpose(X, perm=[0, 2, 3, 1]) + c", X=x, c=c, Y=x.transpose(0, 2, 3, 1) + c)
    yield right("and_back", "Y = Transpose(Transpose(X, perm=[0, 2, 3, 1]) + c, perm=[0, 3, 1, 2])", X=x, c=c,
                Y=x + c.reshape(3, 1, 1))


@known("FUS-36", "The axes of a second Squeeze count in the shape that the first one left.")
def _():
    x = ramp(1, 2, 1, 3)
    for axis in (1, -2):
        yield right(f"inputs_{axis}", f"Y = Squeeze(Squeeze(X, [0]), [{axis}])", X=x, Y=x[0, :, 0])
        yield right(f"attributes_{axis}", f"Y = Squeeze(Squeeze(X, axes=[0]), axes=[{axis}])", opset=11, X=x,
                    Y=x[0, :, 0])


@known("FUS-37", "An Expand is nothing only where its target adds nothing; a target given at run time is unknown.")
def _():
    x = f32([[1, 2, 3]])
    for target in ([1, 3], [2, 1], [1, 1], [3], [1, 1, 1]):
        y = np.broadcast_to(x, np.broadcast_shapes(x.shape, target))
        yield right("to_" + "x".join(map(str, target)), f"Y = Expand(X, {target})", X=x, Y=y)
    yield right("run_time", "Y = Expand(X, T)", X=x, T=i64([2, 1]), Y=np.tile(x, (2, 1)))


@known("FUS-38", "A part of a shape can be known although the rest is not.")
def _():
    x = ramp(2, 3, 4)
    for name, part, y in (("middle", "start=1, end=-1", [3]), ("last_two", "start=-2", [3, 4]),
                          ("wide", "start=-9, end=9", [2, 3, 4]), ("none", "start=2, end=1", [])):
        yield right(name, f"Y = Shape(X, {part})", opset=15, X=x, Y=i64(y))

    def open_batch(made):
        made.inputs["X"][1][0] = "N"

    yield right("open_batch", "Y = Shape(X, start=1, end=-1) + [1]", opset=15, forms=["run"], edit=open_batch, X=x,
                Y=i64([4]))


@known("FUS-40", "x + 0 and x * 1 still broadcast, 0 + -0 is +0, and x * 0 is not 0 for NaN and infinity.")
def _():
    x, odd = f32([1, 2, 3]), [NAN, INF, -0.]
    yield right("add_zeros", "Y = X + z", X=x, z=zeros(2, 3), Y=np.tile(x, (2, 1)))
    yield right("times_one", "Y = X * w", X=7, w=[1], Y=[7])
    yield right("by_one", "Y = X / w", X=x, w=[[1]], Y=[x])
    yield right("minus_zero", "Y = X - 0.0", signed_zero=True, X=odd, Y=odd)
    yield right("plus_zero", "Y = X + 0.0", X=[NAN, -INF, 1], Y=[NAN, -INF, 1])
    yield right("plus_zero_sign", "Y = X + 0.0", signed_zero=True, X=[-0., 1], Y=[0., 1])
    yield right("times_zero", "Y = X * 0.0", X=[NAN, INF, 1], Y=[NAN, NAN, 0])


@known("FUS-42", "A Dropout may go, the mask that somebody reads may not.")
def _():
    for name, ratio, training in (("inference", .5, False), ("ratio_0", 0, True)):
        yield right(name, "Y, M = Dropout(X, r, t)", opset=13, X=[[1, -2, 3]], r=ratio, t=boolean(training),
                    Y=[[1, -2, 3]], M=boolean([[1, 1, 1]]))


@known("FUS-43", "Axes that only a branch reads are read.")
def _():
    both = {
        "then": Branch("a = Squeeze(X, axes)", {"a": (FLOAT, [2])}),
        "other": Branch("e = Identity(Z)", {"e": (FLOAT, [2])})
    }
    body = "Y = If({}, then_branch=then, else_branch=other)"
    for flag in (True, False):
        yield right(f"{flag}", body.format("C"), forms=["run", "const"], C=boolean(flag), X=[[1, 2]], Z=[3, 4],
                    axes=i64([0]), **both, Y=[1, 2] if flag else [3, 4])
    yield right("fixed", body.format("c"), forms=["run"], c=boolean(True), X=[[1, 2]], Z=[3, 4], axes=i64([0]), **both,
                Y=[1, 2])


@known("FUS-44", "A weight whose file is missing must not be folded from whatever lies in memory.")
def _():
    away = Tensor(FLOAT, [2], beside={"location": "weights.bin", "offset": "0", "length": "8"})
    yield refused("", model("Y = odd_weight + odd_weight", odd_weight=away, Y=[0, 0]), "weights.bin", run={})


@known("FUS-45", "Integers wrap, while loading as at run time.")
def _():
    for name, sign, a, b, y in (("add_i32", "+", i32([2**31 - 1]), i32([1]), i32([-2**31])),
                                ("mul_i32", "*", i32([2**16]), i32([2**16]), i32([0])),
                                ("add_i8", "+", i8([100]), i8([100]), i8([-56])),
                                ("sub_u8", "-", u8([3]), u8([5]), u8([254])),
                                ("mul_i64", "*", i64([2**62]), i64([4]), i64([0]))):
        yield right(name, f"Y = A {sign} B", A=a, B=b, Y=y)


@known("FUS-46", "A result may lie on its input only where each element is read before it is written.")
def _():
    x, m = ramp(20, start=1), ramp(4, 4, start=-5)
    back = f"Slice({{0}}, [-1], [{LOWEST}], [0], [-1])"
    yield right("input", f"Y = {back.format('X')} + X", X=x, Y=np.full(20, 21))
    yield right("value", f"N = -X; Y = {back.format('N')} + N", X=x, Y=np.full(20, -21))
    yield right("product", "N = -X; Y = N @ Transpose(N)", X=m, Y=m @ m.T)
    yield right("transpose", "N = -X; Y = N - Transpose(N)", X=m, Y=m.T - m)
    yield right("shifted", f"N = -X; Y = Slice(N, [1], [{HIGHEST}]) + Slice(N, [0], [-1])", X=x, Y=-(x[1:] + x[:-1]))


@known("FUS-48", "A pair of casts that narrows changes the value.")
def _():
    for name, there, back, x, y in (("by_f16", 10, 1, f32([2049]), f32([2048])),
                                    ("by_i32", 6, 1, f32([2.7, -2.7]), f32([2, -2])),
                                    ("by_i8", 3, 6, i32([300]), i32([44])),
                                    ("by_f32", 1, 10, f16([2.7, 65504]), f16([2.7, 65504])),
                                    ("long_by_f32", 1, 7, i64([2**24 + 1]), i64([2**24])),
                                    ("by_bool", 9, 1, f32([2.5, 0, -1]), f32([1, 0, 1]))):
        yield right(name, f"Y = Cast(Cast(X, to={there}), to={back})", rtol=0, atol=0, X=x, Y=y)


@known("FUS-49", "A reciprocal shows what a fused normalization loses near zero.")
def _():
    x = noise(49, 64, 128)
    yield right("", "Y = Reciprocal(Reciprocal(Abs(LayerNormalization(X, s, b)) + 1.0e-6))", atol=1e-5, X=x,
                s=ones(128), b=zeros(128), Y=np.abs(meaning.normalized(x)) + 1e-6)


@known("FUS-51", "Initializers that are listed as inputs, as old exporters do: five folds need five new names.")
def _():
    # With one output, version 9 means inference: the statistics that are given count.
    y, body, values = f32([[[[1, -2], [3, .5]]]]), "", {}
    given = y
    for i in range(5):
        conv = f"Conv({f'Y{i - 1}' if i else 'X'}, w{i})"
        body += f"Y{i} = BatchNormalization({conv}, s{i}, b{i}, m{i}, v{i}, epsilon=1.0e-5)\n"
        y = (y.astype(np.float64) * (i + 1) - .25) / np.sqrt(4 + 1e-5) * .5 + i
        values |= {f"w{i}": [[[[i + 1]]]], f"s{i}": [.5], f"b{i}": [i], f"m{i}": [.25], f"v{i}": [4], f"Y{i}": y}

    def list_all(made):
        made.inputs |= {name: (FLOAT, list(value.shape)) for name, value in made.tensors}

    yield right("", body, opset=10, forms=["run", "sym"], edit=list_all, X=given, **values)


@known("FUS-52", "A second addend of rank 3 has no place in Gemm.")
def _():
    x, w, b, c = ramp(2, 3), ramp(3, 4, start=-5), ramp(4), ramp(1, 2, 4, start=10)
    yield right("rank3", "Y = Gemm(X, w, b) + c", X=x, w=w, b=b, c=c, Y=x @ w + b + c)
    yield right("rank2", "Y = Gemm(X, w, b) + c", X=x, w=w, b=b, c=c[0], Y=x @ w + b + c[0])
    yield right("beta", "Y = Gemm(X, w, b, beta=2.0) + b", X=x, w=w, b=b, Y=x @ w + 3 * b)


@known("FUS-53", "Folding a normalization touches the weight and the bias and no padding.")
def _():
    for name, padding, y in (("begin", "pads=[1, 0]", [2, 6, 10]), ("end", "pads=[0, 1]", [6, 10, 6]),
                             ("lower", "auto_pad='SAME_LOWER'", [2, 6, 10]),
                             ("upper", "auto_pad='SAME_UPPER'", [6, 10, 6])):
        yield right(name, f"Y = {norm(f'Conv(X, w, {padding})')}", X=[[[1, 2, 3]]], w=ones(1, 1, 2),
                    **statistics(s=2, m=.5), Y=[[y]])
