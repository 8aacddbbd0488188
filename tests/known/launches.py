"""GPU, THR, DEC: launch geometry, offsets of 32 bits, odd tiles, empty launches, special values.

Every device has to pass. Large tensors are made inside of the model from a shape that is given at run time, and a few
rows come out.
"""

import numpy as np

import meaning
from known import INF, NAN, f16, f32, i64, known, noise, ones, ramp, right, zeros


@known("THR-01", "Long sums are right. (That they are the same for every number of threads is another test's.)")
def _():
    x, w, b = noise(1, 1, 56), noise(2, 56, 444), noise(3, 444)
    yield right("gemm", "Y = Gemm(X, w, b)", atol=2e-5, X=x, w=w, b=b, Y=x.astype(np.float64) @ w + b)
    x = noise(4, 1000, 1000)
    yield right("sum", "Y = ReduceSum(X, keepdims=0)", forms=["run"], atol=2e-2, X=x, Y=x.sum(dtype=np.float64))
    x = noise(5, 37, 501)
    yield right("softmax", "Y = Softmax(X)", forms=["run"], X=x, Y=meaning.softmax(x))
    yield right("norm", "Y = LayerNormalization(X, s)", forms=["run"], atol=1e-5, X=x, s=ones(501),
                Y=meaning.normalized(x))


@known("GPU-01", "More than 65535 rows are more than one axis of a grid takes.")
def _():
    for shape in ([65537, 1], [1, 1, 65536, 3], [3, 70000]):
        n = int(np.prod(shape))
        at = np.array([0, 1, n // 2, n - 2, n - 1])
        yield right(
            "x".join(map(str, shape)), "R = Range(0, N, 1); A = Reshape(Cast(R, to=1), S);"
            "B = Reshape(Cast(Mod(R, 2), to=1), S); Y = Gather(Reshape(A + (B * 2.0 - 1.0), [-1]), i)", forms=["run"],
            N=i64(n), S=i64(shape), i=i64(at), Y=at + at % 2 * 2 - 1)
    yield right("8192x16384", "Y = Gather(-Expand(r, S), [0, 8191])", forms=["run"], large=True, S=i64([8192, 16384]),
                r=ramp(16384), Y=np.tile(-ramp(16384), (2, 1)))


@known("GPU-02", "The same for the rows of softmax and norms.")
def _():
    for shape in ([65536, 8], [1, 1, 70000, 4], [2, 40000, 1, 4]):
        name, width = "x".join(map(str, shape)), shape[-1]
        row, last = noise(2, width), int(np.prod(shape[:-1])) - 1
        tail = f"Y = Gather(Reshape(N, [-1, {width}]), [0, {last}])"
        yield right(f"softmax_{name}", "N = Softmax(Expand(r, S)); " + tail, forms=["run"], S=i64(shape), r=row,
                    Y=[meaning.softmax(row)] * 2)
        square = row.astype(np.float64)
        yield right(f"rms_{name}", "N = RMSNormalization(Expand(r, S), w, axis=-1); " + tail, opset=23, forms=["run"],
                    S=i64(shape), r=row, w=ones(width), Y=[square / np.sqrt((square**2).mean() + 1e-5)] * 2)


@known("GPU-05", "Rows of a table beyond its element 2^31: 4.7 GB.")
def _():
    rows = i64([239673, 239674, 255999, 262143])
    yield right(
        "",
        "T = Expand(Unsqueeze(Cast(Mod(Cast(Range(0, N, 1), to=1), 1000.0, fmod=1), to=10), [1]), S); Y = Gather(T, I)",
        forms=["run"], large=True, N=i64(262144), S=i64([262144,
                                                         8960]), I=rows, Y=f16(np.repeat(rows[:, None] % 1000, 8960,
                                                                                         1)))


@known("GPU-07", "A norm at and beyond 2^31 elements: twice 4.3 GB.")
def _():
    for shape in ([131072, 16384], [175000, 12288], [4194305, 512]):
        yield right("x".join(map(str, shape)),
                    f"Y = Gather(RMSNormalization(Expand(one, S), Expand(two, [{shape[1]}]), axis=-1),"
                    " [0, -2, -1])", opset=23, forms=["run"], large=True, S=i64(shape), one=f16(1), two=f16(2),
                    Y=f16(np.full([3, shape[1]], 2)))


@known("GPU-09", "23491 rows of a vocabulary of 128256 are 3,012,861,696 logits: 6 GB.")
def _():
    rows, words = np.array([0, 23489, 23490]), np.array([0, 65536, 128255])
    yield right(
        "", "H = Cast(Mod(Cast(Range(0, N, 1), to=1), 100.0, fmod=1), to=10);"
        "Y = Gather(Gather((Unsqueeze(H, [1]) * e) @ Expand(b, S), i, axis=0), j, axis=1)", forms=["run"], large=True,
        N=i64(23491), S=i64([8, 128256]), e=f16(ones(1, 8) / 8), b=f16(np.arange(128256) % 3), i=i64(rows),
        j=i64(words), Y=f16(np.outer(rows % 100, words % 3)))


@known("GPU-10", "Products of halves in every odd size.")
def _():
    for m, k, n in [(2, 3, 4)] + [(m, k, n) for m in (1, 5, 9, 17, 33) for k in (1, 7, 16, 33) for n in (1, 9, 15, 32)]:
        a, b = f16(noise(m, m, k)), f16(noise(n, k, n))
        yield right(f"{m}x{k}x{n}", "Y = A @ B", forms=["run"], atol=4e-3, A=a, B=b, Y=f16(a.astype(np.float64) @ b))
    a, b = f16(noise(10, 3, 5)), f16(noise(11, 5, 7))
    for ta in (0, 1):
        for tb in (0, 1):
            yield right(f"transposed{ta}{tb}", f"Y = Gemm(A, B, transA={ta}, transB={tb})", atol=4e-3,
                        A=(a.T if ta else a).copy(), B=(b.T if tb else b).copy(), Y=f16(a.astype(np.float64) @ b))


@known("GPU-12", "An inner size beside a multiple of the tile.")
def _():
    rows, columns = np.array([0, 1, 998, 999]), np.array([0, 1, 997, 998])
    for k in (1001, 1023, 1025):  # small whole numbers: every sum is exact
        yield right(f"{k}", "Y = Gather(Gather(Expand(a, S) @ Expand(b, T), i, axis=0), j, axis=1)", forms=["run"],
                    rtol=0, atol=0, S=i64([1000, k]), T=i64([k, 999]), a=f32(np.arange(1000) % 7 - 3).reshape(-1, 1),
                    b=f32(np.arange(999) % 5 - 2), i=i64(rows), j=i64(columns),
                    Y=k * np.outer(rows % 7 - 3, columns % 5 - 2))


@known("GPU-14", "An operator on nothing does nothing, and the next one is none the worse.")
def _():
    nothing, x, image = zeros(0, 2), f32([1, -2]), zeros(0, 1, 4, 4)
    for op in ("Relu", "Exp", "Neg", "Sigmoid", "Softmax", "Transpose", "Cast", "Identity"):
        yield right(op.lower(), f"E = {op}(X{', to=1' if op == 'Cast' else ''}); Y = Neg(Z)", forms=["run"], X=nothing,
                    Z=x, E=nothing.T if op == "Transpose" else nothing, Y=-x)
    for name, node, given, e, weights in (("matmul", "X @ w", nothing, zeros(0, 3), {"w": ones(2, 3)}),
                                          ("gemm", "Gemm(X, w, b)", nothing, zeros(0, 3),
                                           {"w": ones(2, 3), "b": ones(3)}),
                                          ("norm", "LayerNormalization(X, s)", nothing, nothing, {"s": ones(2)}),
                                          ("gather", "Gather(X, [1], axis=1)", nothing, zeros(0, 1), {}),
                                          ("concat", "Concat(X, X, axis=1)", nothing, zeros(0, 4), {}),
                                          ("sum", "ReduceSum(X, [1], keepdims=0)", nothing, zeros(0), {}),
                                          ("conv", "Conv(X, w)", image, zeros(0, 1, 3, 3), {"w": ones(1, 1, 2, 2)}),
                                          ("pool", "MaxPool(X, kernel_shape=[2, 2])", image, zeros(0, 1, 3, 3), {})):
        yield right(name, f"E = {node}; Y = Neg(Z)", forms=["run"], X=given, Z=x, E=e, Y=-x, **weights)


@known("GPU-16", "A mask of more than 2^31 flags: the last query sees the last key only, the others all but that.")
def _():
    s = 46342
    yield right(
        "", "R = Range(0, N, 1); V = Reshape(Cast(R, to=1), [1, 1, -1, 1]); Q = V * 0.0; L = N - 1;"
        "M = Or(Less(Unsqueeze(R, [1]), L), Equal(R, L)); Y = Gather(Reshape(Attention(Q, Q, V, M), [-1, 1]), [0, -1])",
        opset=23, forms=["run"], large=True, rtol=1e-4, N=i64(s), Y=[[(s - 1) / 2], [s - 1]])


@known("GPU-19", "NaN, infinities, both zeros, a denormal and the largest numbers, in lengths that leave a rest.")
def _():
    large, tiny = float(np.finfo(np.float32).max), 1e-40
    x = f32([NAN, INF, -INF, 0., -0., tiny, -tiny, large, -large])
    ordinary = f32([NAN, INF, -INF, 0., -0., large, -large])  # where a denormal may count as 0 or not
    with np.errstate(all="ignore"):
        for op, of, given in (("Abs", np.abs, x), ("Neg", np.negative, x), ("Identity", np.array, x),
                              ("Exp", np.exp, x), ("Relu", lambda v: np.where(np.isnan(v), v, np.maximum(v, 0)), x),
                              ("Tanh", np.tanh, x), ("Erf", meaning.erf, x),
                              ("Sigmoid", lambda v: 1 / (1 + np.exp(-v)), x), ("Sqrt", np.sqrt, ordinary),
                              ("Log", np.log, ordinary), ("Floor", np.floor, ordinary), ("Ceil", np.ceil, ordinary),
                              ("Reciprocal", np.reciprocal, ordinary[:5])):
            y = f32(of(given.astype(np.float64)))
            for n in (1, 7, 8, 33):
                yield right(f"{op.lower()}{n}", f"Y = {op}(X)", forms=["run"], signed_zero=op
                            in ("Abs", "Neg", "Identity"), X=np.resize(given, n), Y=np.resize(y, n))
    for op, of in (("IsNaN", np.isnan), ("IsInf", np.isinf)):
        yield right(op.lower(), f"Y = {op}(X)", opset=20, X=x, Y=of(x))


@known("DEC-08", "The best word of a vocabulary of 250880 lies beyond 65535.")
def _():
    head = "E = Cast(Equal(Range(0, N, 1), 250000), to=1); "
    yield right("argmax", head + "Y = ArgMax(X @ Expand(E, S), axis=-1, keepdims=0)", forms=["run"], X=ones(2, 8),
                N=i64(250880), S=i64([8, 250880]), Y=i64([250000] * 2))
    yield right("topk", head + "V, Y = TopK(E, [1])", forms=["run"], N=i64(250880), Y=i64([250000]))
