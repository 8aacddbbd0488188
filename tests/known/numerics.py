"""NUM: overflow, cancellation, rounding, NaN, and the corners of integer arithmetic.

Where the operators' texts are silent, the rule is ours: NaN propagates through Min and Max and wins ArgMax, means of
integers are summed wide and truncated, casts out of range follow one rule everywhere.
"""

import numpy as np

import meaning
from known import (INF, NAN, boolean, by_hand, f16, f32, i8, i16, i32, i64, known, model, ones, refused, right, u8, u16,
                   zeros)


@known("NUM-01", "Softmax takes the largest value off first: exp(1002) is too much.")
def _():
    y = [.0900306, .2447285, .665241]
    for make in (f32, f16):
        x = make([1000, 1001, 1002])
        yield right(f"up_{x.dtype}", "Y = Softmax(X)", X=x, Y=make(by_hand(meaning.softmax(x), y)))
        yield right(f"down_{x.dtype}", "Y = Softmax(X)", X=-x, Y=make(y[::-1]),
                    **({} if make is f16 else {"atol": 1e-6}))
    yield right("spelled", "E = Exp(X - ReduceMax(X, axes=[-1])); Y = E / ReduceSum(E, [-1])", X=[[1000, 1001, 1002]],
                Y=[meaning.softmax([1000, 1001, 1002])])


@known("NUM-02", "A row of minus infinity is NaN by the formula, on every path.")
def _():
    yield right("", "Y = Softmax(X)", X=[[-INF, -INF], [0, -INF]], Y=[[NAN, NAN], [1, 0]])


@known("NUM-03", "The mean of the squares minus the square of the mean is noise when the mean is large.")
def _():
    for start in (40000, 80000):
        x = np.arange(4)[None] + start
        y = by_hand(meaning.normalized(x), [[-1.341635, -.447212, .447212, 1.341635]])
        yield right(f"node_{start}", "Y = LayerNormalization(X, s, b)", X=x * 1., s=ones(4), b=zeros(4), Y=y)
        yield right(f"spelled_{start}",
                    "D = X - ReduceMean(X, axes=[-1]); Y = D / Sqrt(ReduceMean(D * D, axes=[-1]) + 1.0e-5)", X=x * 1.,
                    Y=y)


@known("NUM-06", "A spread of one around 1449.")
def _():
    # A mean that is rounded to f32 may be off by 6e-5, which moves the result by 1.2e-4.
    x = f32([[1449.5706, 1448.8741, 1450.6504, 1449.2633, 1449.7764, 1449.3171, 1449.3297, 1449.0779]])
    y = by_hand(meaning.normalized(x), [[.1724, -1.1899, 2.2847, -.4287, .575, -.3233, -.2988, -.7914]], 1e-4)
    yield right("", "Y = LayerNormalization(X, s, b)", rtol=1e-4, atol=5e-4, X=x, s=ones(8), b=zeros(8), Y=y)


@known("NUM-07", "300 squared is no half: the statistics of halves are f32 (stash_type).")
def _():
    yield right("", "Y = LayerNormalization(X, s, b)", X=f16([[300, -300]]), s=f16([1, 1]), b=f16([0, 0]),
                Y=f16([[1, -1]]))


@known("NUM-09", "exp(100) is no f32, the logarithm of a sum of such is.")
def _():
    x, y = [[100, 88, 50], [200, -10, 1]], [100.00000614, 200]
    yield right("opset13", "Y = ReduceLogSumExp(X, axes=[1], keepdims=0)", opset=13, X=x, Y=y)
    yield right("opset18", "Y = ReduceLogSumExp(X, [1], keepdims=0)", opset=18, X=x, Y=y)


@known("NUM-11", "log(1 + exp(x)) overflows where Softplus is x.")
def _():
    yield right("node", "Y = Softplus(X)", X=[100, 200, 1000, -200, -1000, 0], Y=[100, 200, 1000, 0, 0, np.log(2)])
    x = np.array([1, -1, 20.])
    yield right("spelled", "Y = Log(Exp(X) + 1.0)", X=x, Y=np.log1p(np.exp(x)))


@known("NUM-13", "An exp that is clamped on one side only gives NaN far out.")
def _():
    x, y = [-1000, -200, -89, 0, 89, 1000], [0, 0, 2.2e-39, .5, 1, 1]
    yield right("sigmoid", "Y = Sigmoid(X)", X=x, Y=y)
    yield right("silu", "Y = X * Sigmoid(X)", X=x, Y=[0, 0, 0, 0, 89, 1000])
    for n in (1, 7, 8, 33):
        yield right(f"length{n}", "Y = Sigmoid(X)", forms=["run"], X=np.resize(x, n) * 1., Y=np.resize(y, n))


@known("NUM-14", "One f32 that counts to 20 million stops at 2^24.")
def _():
    for name, shape, axis in (("columns", [20000000, 2], 0), ("rows", [2, 20000000], 1)):
        yield right(name, f"Y = ReduceSum(ConstantOfShape(S, value=one), [{axis}], keepdims=0)", forms=["run"], rtol=0,
                    atol=0, large=True, S=i64(shape), one=f32([1]), Y=[2e7, 2e7])


@known("NUM-16", "Sums of halves are f32 inside and rounded once.")
def _():
    twos = f16(np.full(65536, 2))
    yield right("sum", "Y = ReduceSum(X, [0], keepdims=0)", rtol=0, atol=0, X=f16(ones(4096)), Y=f16(4096))
    yield right("mean", "Y = ReduceMean(X, axes=[0], keepdims=0)", rtol=0, atol=0, X=twos, Y=f16(2))
    yield right("too_large", "Y = ReduceSum(X, [0], keepdims=0)", X=twos, Y=f16(INF))


@known("NUM-17", "A mean of integers.")
def _():
    for name, x, y in (("positive", [3, 4], 3), ("negative", [-3, -4], -3),
                       ("wide", [2**31 - 1, 2**31 - 1], 2**31 - 1)):
        yield right(name, "Y = ReduceMean(X, axes=[1], keepdims=0)", X=i32([x]), Y=i32([y]))


@known("NUM-18", "A running sum of 64 bits.")
def _():
    x = [2**33, 2**34, 2**35, 5, 7]
    yield right("", "Y = CumSum(X, a)", X=i64(x), a=i32(0), Y=np.cumsum(i64(x)))


@known("NUM-20", "Sums and products of 64 bits go neither through 32 bits nor through a double.")
def _():
    yield right("add", "Y = A + B", A=i64([5 * 10**9, 7 * 10**9]), B=i64([3 * 10**9, 2 * 10**9]),
                Y=i64([8 * 10**9, 9 * 10**9]))
    yield right("mul", "Y = A * B", A=i64([2**40]), B=i64([3]), Y=i64([3 * 2**40]))
    yield right("odd", "Y = A + B", A=i64([2**53]), B=i64([1]), Y=i64([2**53 + 1]))


@known("NUM-22", "Floats beyond 32 bits become long integers.")
def _():
    yield right("", "Y = Cast(X, to=7)", X=[5e18, -5e18, 1e15, 7.7],
                Y=i64([4999999990253223936, -4999999990253223936, 999999986991104, 7]))


@known("NUM-23",
       "Floats become bytes by truncation; out of range by one rule: folded, at run time, alone and in a vector.")
def _():
    yield right("in_range", "Y = Cast(X, to=3)", X=[50, -50, 127.9, -128.9, -.9], Y=i8([50, -50, 127, -128, 0]))
    odd = np.resize([300, NAN, INF, -INF, 50, -50, 1e20, -300], 33)
    same = "Equal(Cast({}, to=6), Cast({}, to=6))"
    yield right("folded", "A = Cast(X, to=3); B = Cast(k, to=3); Y = " + same.format("A", "B"), forms=["run"], X=odd,
                k=odd, Y=boolean(ones(33)))
    alone = ", ".join(f"Cast(Slice(X, [{i}], [{i + 1}]), to=3)" for i in range(8))
    yield right("alone", f"A = Cast(X, to=3); B = Concat({alone}, axis=0); Y = " + same.format("A", "B"), forms=["run"],
                X=odd[:8], Y=boolean(ones(8)))


@known("NUM-25", "Only zero is false.")
def _():
    for x, y in ((f32([0, -0., .3, NAN, INF,
                       -5]), [0, 0, 1, 1, 1,
                              1]), (i32([256, 0, -1]), [1, 0, 1]), (f16([6e-8, 0]), [1, 0]), (i64([2**32, 0]), [1, 0])):
        yield right(str(x.dtype), "Y = Cast(X, to=9)", X=x, Y=boolean(y))


@known("NUM-26", "f32 to f16: ties to even, subnormals, infinity from 65520 on.")
def _():
    yield right("", "Y = Cast(X, to=10)", rtol=0, atol=0, X=[65504, 65519, 65520, 6e-8, 2e-8, 1.00048828125, NAN],
                Y=f16([65504, 65504, INF, 5.9604645e-8, 0, 1, NAN]))


@known("NUM-27", "Round sends halves to the even neighbour.")
def _():
    yield right("", "Y = Round(X)", rtol=0, atol=0, X=[.5, 1.5, 2.5, -.5, -1.5, -2.5, 8388609],
                Y=[0, 2, 2, 0, -2, -2, 8388609])


@known("NUM-28", "Mod has the sign of the divisor, fmod that of the dividend.")
def _():
    a, b, mod, fmod = [-7, 7, -7, 7], [3, 3, -3, -3], [2, 1, -1, -2], [-1, 1, -1, 1]
    for make in (i32, i8):
        yield right(f"mod_{make(0).dtype}", "Y = Mod(A, B)", A=make(a), B=make(b), Y=make(mod))
    for make in (i32, f32):
        yield right(f"fmod_{make(0).dtype}", "Y = Mod(A, B, fmod=1)", A=make(a), B=make(b), Y=make(fmod))


@known("NUM-29", "The lowest integer by -1 traps on x86. The remainder is 0; the quotient wraps, or is refused.")
def _():
    for make, low in ((i8, -2**7), (i32, -2**31), (i64, -2**63)):
        a, b, name = make([low, 7]), make([-1, -1]), make(0).dtype
        yield right(f"mod_{name}", "Y = Mod(A, B)", A=a, B=b, Y=make([0, 0]))
        yield right(f"div_{name}", "Y = A / B", may_refuse=True, A=a, B=b, Y=make([low, -7]))


@known("NUM-30", "An integer by zero: any value or a clean error, but no trap.")
def _():
    a, b = i32([4, 5, 6, 7]), i32([2, 0, 3, 0])
    for op in ("Div", "Mod"):
        for form in ("run", "const"):
            yield refused(f"{op.lower()}_{form}", model(f"Y = {op}(A, B)", form=form, A=a, B=b, Y=a), "make_Y|zero",
                          may_load=True, run={"A": a, "B": b} if form == "run" else {})


@known("NUM-31", "A quotient of integers is cut off toward zero, also where the divisor is known.")
def _():
    yield right("i32", "Y = A / B", A=i32([-7, 7, -7, 1]), B=i32([2, -2, -2, 3]), Y=i32([-3, -3, 3, 0]))
    yield right("by_two", "Y = A / b", A=i32([-7, 7, -1, 5]), b=i32(2), Y=i32([-3, 3, 0, 2]))
    yield right("by_three", "Y = A / b", A=i32([1 - 2**31, 2**31 - 1, -1, 5]), b=i32(3),
                Y=i32([-715827882, 715827882, 0, 1]))
    yield right("u8", "Y = A / B", A=u8([255, 7]), B=u8([2, 3]), Y=u8([127, 2]))


@known("NUM-32", "NaN wins from either side and at every length.")
def _():
    for make in (f32, f16):
        name, column, ten = make(0).dtype, make([[NAN], [1], [20]]), make([10])
        for order in ("A, B", "B, A"):
            for op, y in (("Min", [[NAN], [1], [10]]), ("Max", [[NAN], [10], [20]])):
                yield right(f"{op.lower()}_{order[0]}_{name}", f"Y = {op}({order})", A=column, B=ten, Y=make(y))
        yield right(f"scalar_{name}", "Y = Min(A, B)", A=make(np.arange(1, 10)), B=make([NAN]), Y=make([NAN] * 9))


@known("NUM-33", "A comparison that is false for NaN must not make it 0.")
def _():
    x, y = np.array([NAN, 1, NAN, -2]), np.array([NAN, 1, NAN, 0])
    for n in (1, 4, 7, 8, 9, 16, 17):
        yield right(f"length{n}", "Y = Relu(X)", forms=["run", "const"] if n == 4 else ["run"], X=np.resize(x, n),
                    Y=np.resize(y, n))
    yield right("conv", "Y = Relu(Conv(X, w))", X=x.reshape(1, 1, 2, 2), w=ones(1, 1, 1, 1), Y=y.reshape(1, 1, 2, 2))
    yield right("gemm", "Y = Relu(Gemm(X, w, b))", X=x.reshape(4, 1), w=[[1]], b=[0], Y=y.reshape(4, 1))
    yield right("add", "Y = Relu(X + b)", X=x, b=zeros(4), Y=y)
    yield right("sign", "Y = Sign(X)", X=[NAN, 3, -3, 0], Y=[NAN, 1, -1, 0])


@known("NUM-35", "The first NaN is the largest, and the smallest.")
def _():
    for name, op, x, y in (("middle", "ArgMax", [2, NAN, 7, 4, 1], 1), ("first", "ArgMax", [NAN, 2, 7, 4, 1], 0),
                           ("last", "ArgMax", [2, 4, 7, 1, NAN], 4), ("smallest", "ArgMin", [8, NAN, 3, 1, 5], 1)):
        yield right(name, f"Y = {op}(X, axis=0, keepdims=0)", X=x, Y=i64(y))


@known("NUM-37", "Pow is not exp(y log x): negative bases, exact integers, infinities.")
def _():
    for name, x, y, z in (("f32", f32([-2, 0, -8, 5]), f32([3, 0, 1 / 3, 0]), f32([-8, 1, NAN, 1])),
                          ("f32_i64", f32([2]), i64([3]), f32([8])), ("i32", i32([3, -3]), i32([4, 3]), i32([81, -27])),
                          ("i64", i64([3]), i64([39]), i64([3**39])),
                          ("f16", f16([300, 3]), f16([2, 2]), f16([INF, 9]))):
        yield right(name, "Z = X ** Y", X=x, Y=y, Z=z)
    yield right("square", "Y = X ** 2.0", X=[-2, -0., -INF], Y=[4, 0, INF])
    yield right("root", "Y = X ** 0.5", X=[4, 2.25, 0, INF], Y=[2, 1.5, 0, INF])


@known("NUM-39", "A cast to a narrower integer drops the high bits.")
def _():
    for name, x, to, y in (("i8", i16([200]), 3, i8([-56])), ("u16", i32([70000]), 4, u16([4464])),
                           ("i32", i64([2**32 + 5]), 6, i32([5])), ("u8", i32([-1]), 2, u8([255]))):
        yield right(name, f"Y = Cast(X, to={to})", X=x, Y=y)


@known("NUM-41", "Products of halves are summed wide.")
def _():
    yield right("exact", "Y = A @ B", rtol=0, atol=0, A=f16(ones(1, 4096)), B=f16(ones(4096, 1)), Y=f16([[4096]]))
    yield right("too_large", "Y = A @ B", forms=["run"], A=f16(ones(1, 70000)), B=f16(ones(70000, 1)), Y=f16([[INF]]))
    yield right("cancel", "Y = A @ B", rtol=0, atol=0, A=f16([[60000, -60000]]), B=f16([[2], [2]]), Y=f16([[0]]))
