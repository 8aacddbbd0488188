"""ATT: masks, caches, heads, windows and overflow."""

import numpy as np

import meaning
from known import INF, boolean, f16, f32, i8, i64, known, noise, ones, right, zeros
from onnx_file import I4, Tensor


def line(values, d=1):
    """[1, 1, length, d], where every element of a row is the value."""
    return np.repeat(f32(values).reshape(1, 1, -1, 1), d, 3)


def random_heads(seed, queries, keys, length, cached, d, dv=None):
    return {
        "Q": noise(seed, 1, queries, length, d), "K": noise(seed + 1, 1, keys, cached, d),
        "V": noise(seed + 2, 1, keys, cached, dv or d)
    }


def attended(given, **how):
    return meaning.attention(given["Q"], given["K"], given["V"], **how)


@known("ATT-01", "Query i sees the cache and the keys up to its own.")
def _():
    for opset in (24, 25):
        yield right(f"opset{opset}", "Y, A, B = Attention(Q, K, V, None, P, R, is_causal=1)", opset=opset,
                    Q=line([0, 0]), K=line([0, 0]), V=line([4, 5]), P=line([0, 0, 0]), R=line([1, 2, 3]),
                    Y=line([2.5, 3]), A=line([0] * 5), B=line([1, 2, 3, 4, 5]))


@known(
    "ATT-02",
    "Without a cache the first query stands at the first key; with a count of valid keys, at that minus the queries.")
def _():
    given = {"Q": line([0, 0]), "K": line([0] * 5), "V": line([1, 2, 3, 4, 5])}
    for opset in (24, 25):
        yield right(f"no_cache_opset{opset}", "Y = Attention(Q, K, V, is_causal=1)", opset=opset, **given,
                    Y=line([1, 1.5]))
        for count, y in ((5, [2.5, 3]), (4, [2, 2.5])):
            yield right(f"count{count}_opset{opset}", "Y = Attention(Q, K, V, None, None, None, N, is_causal=1)",
                        opset=opset, **given, N=i64([count]), Y=line(y))


@known("ATT-04", "A row that sees nothing is 0, and the others stay what they are.")
def _():
    given, mask = random_heads(4, 2, 2, 4, 4, 8), ones(4, 4) > 0
    mask[1] = False
    y = attended(given, mask=mask)
    assert not y[:, :, 1].any() and y[:, :, 0].all()
    yield right("f32", "Y = Attention(Q, K, V, M)", opset=24, **given, M=mask, Y=y)
    yield right("numbers", "Y = Attention(Q, K, V, M)", opset=24, **given, M=f32(np.where(mask, 0, -INF)), Y=y)
    given = {n: f16(v) for n, v in given.items()}
    yield right("f16", "Y = Attention(Q, K, V, M)", opset=24, **given, M=mask, Y=f16(attended(given, mask=mask)))


@known("ATT-07", "Query head h reads key head h / (queries / keys).")
def _():
    yield right("rank4", "Y = Attention(Q, K, V)", opset=23, Q=zeros(1, 4, 1, 1), K=zeros(1, 2, 1, 1),
                V=f32([1, 2]).reshape(1, 2, 1, 1), Y=f32([1, 1, 2, 2]).reshape(1, 4, 1, 1))
    yield right("rank3", "Y = Attention(Q, K, V, q_num_heads=4, kv_num_heads=2)", opset=23, Q=zeros(1, 1, 4),
                K=zeros(1, 1, 2), V=[[[1, 2]]], Y=[[[1, 1, 2, 2]]])
    for seed, queries, keys, length in ((7, 6, 2, 5), (8, 4, 1, 3)):
        given = random_heads(seed, queries, keys, length, 9, 8)
        yield right(f"{queries}_{keys}", "Y = Attention(Q, K, V)", opset=23, **given, Y=attended(given))


@known("ATT-09", "Values may be wider than keys.")
def _():
    for length in (1, 4, 7):
        given = random_heads(9, 4, 2, length, 10, 8, 12)
        yield right(f"{length}", "Y = Attention(Q, K, V)", opset=23, **given, Y=attended(given))
        given = {**given, "Q": 0 * given["Q"]}  # equal shares: the mean
        mean = given["V"].astype(np.float64).mean(2, keepdims=True).repeat(2, 1).repeat(length, 2)
        yield right(f"mean{length}", "Y = Attention(Q, K, V)", opset=23, **given, Y=mean)


@known("ATT-10", "left_window_size does not count the query's own key; other formats' windows do.")
def _():
    given = {"Q": line([0]), "K": line([0] * 5), "V": line([1, 2, 3, 4, 5])}
    for left, y in ((0, 5), (1, 4.5), (2, 4), (9, 3)):
        yield right(
            f"left{left}", "Y = Attention(Q, K, V, None, None, None, N, is_causal=1, right_window_size=0,"
            f" left_window_size={left})", opset=25, **given, N=i64([5]), Y=line([y]))
    yield right("as_mask", "Y = Attention(Q, K, V, M)", opset=23, **given, M=boolean([[0, 0, 0, 1, 1]]), Y=line([4.5]))
    given = random_heads(10, 2, 2, 6, 6, 4)
    yield right("both", "Y = Attention(Q, K, V, left_window_size=2, right_window_size=1)", opset=25, **given,
                Y=attended(given, left=2, right=1))


@known("ATT-12", "A score of -60000 is low, and not masked.")
def _():
    given = {"Q": line([-300]), "K": line([200] * 5), "V": line([1, 2, 3, 4, 5])}
    yield right("node", "Y = Attention(Q, K, V, scale=1.0)", opset=23, **given, Y=line([3]))
    yield right("spelled", "Y = Softmax(Q @ Transpose(K, perm=[0, 1, 3, 2])) @ V", opset=13, **given, Y=line([3]))
    yield right("beside_masked", "Y = Attention(Q, K, V, M, scale=1.0)", opset=23, **given,
                M=boolean([[1, 1, 0, 0, 0]]), Y=line([1.5]))


@known("ATT-13", "Heads of sizes that no vector divides.")
def _():
    for d in (1, 6, 20, 80, 100):
        given = random_heads(130 + d, 2, 2, 17, 17, d)
        yield right(f"{d}_f32", "Y = Attention(Q, K, V)", opset=23, forms=["run", "sym"], atol=1e-5, **given,
                    Y=attended(given))
        given = {n: f16(v) for n, v in given.items()}
        yield right(f"{d}_f16", "Y = Attention(Q, K, V)", opset=23, forms=["run"], rtol=4e-3, atol=4e-3,
                    may_refuse=True, **given, Y=f16(attended(given)))


@known("ATT-14", "A product of 131072 is no half until it is scaled.")
def _():
    yield right("", "Y = Attention(Q, K, V)", opset=23, Q=f16(line([32], 128)), K=f16(line([32] * 4, 128)),
                V=f16(line([1, 2, 3, 4], 128)), Y=f16(line([2.5], 128)))


@known("ATT-16", "softcap comes before the mask: minus infinity is not capped.")
def _():
    given = {"Q": line([10]), "K": line([1, 1]), "V": line([1, 100])}
    for name, mask in (("flags", boolean([[1, 0]])), ("numbers", f32([[0, -INF]]))):
        yield right(name, "Y = Attention(Q, K, V, M, scale=1.0, softcap=5.0)", opset=23, **given, M=mask, Y=line([1]))
    given = random_heads(16, 2, 2, 4, 6, 8)
    yield right("values", "Y = Attention(Q, K, V, softcap=0.5)", opset=23, **given, Y=attended(given, softcap=.5))


@known("ATT-17", "Numbers of keys around the edges of tiles.")
def _():
    for keys in (1, 31, 32, 33, 63, 64, 65, 127, 129):
        for length in (1, 3, 17):
            given = random_heads(1700 + keys, 2, 1, length, keys, 16)
            yield right(f"{keys}_{length}", "Y = Attention(Q, K, V)", opset=23, forms=["run"], atol=1e-5, **given,
                        Y=attended(given))
    given = random_heads(1799, 2, 1, 17, 129, 16)
    yield right("65_of_129", "Y = Attention(Q, K, V, None, None, None, N)", opset=24, atol=1e-5, **given, N=i64([65]),
                Y=attended(given, keys=65))


@known("ATT-18", "A prompt in pieces, each with the cache of those before it, is the prompt in one.")
def _():
    given = random_heads(18, 2, 1, 100, 100, 8)
    y = attended(given, causal=True)
    yield right("whole", "Y = Attention(Q, K, V, is_causal=1)", opset=24, atol=1e-5, **given, Y=y)
    for pieces in ([50, 50], [99, 1], [32, 32, 32, 4], [7] * 14 + [2]):
        n = len(pieces)
        body = [", ".join(f"{x}{i}" for i in range(n)) + f" = Split({x}, {pieces}, axis=2)" for x in "QKV"]
        for i in range(n):
            cache = f"A{i - 1}, B{i - 1}" if i else "none, none"
            body.append(f"Y{i}, A{i}, B{i} = Attention(Q{i}, K{i}, V{i}, None, {cache}, is_causal=1)")
        body.append("Y = Concat(" + ", ".join(f"Y{i}" for i in range(n)) +
                    f", axis=2); A = Identity(A{n - 1}); B = Identity(B{n - 1})")
        yield right(f"{pieces[0]}_{pieces[-1]}", "\n".join(body), opset=24, forms=["run"], atol=1e-5, **given,
                    none=zeros(1, 1, 0, 8), Y=y, A=given["K"], B=given["V"])


@known("ATT-19", "Two queries of 16 heads over 4 key heads of 8 bits and values of 4: each gives what it gives alone.")
def _():
    random = np.random.RandomState(19)
    k, v = i8(random.randint(-127, 128, [1, 4, 8, 256])), random.randint(-7, 8, [1, 4, 8, 256])
    low = (v & 15).ravel()
    four = Tensor(I4, v.shape, bytes((low[::2] | low[1::2] << 4).tolist()))
    given = {"Q": noise(19, 1, 16, 2, 256), "k": k, "v": four}
    y = meaning.attention(given["Q"], k * .01, v * .1)
    head = "K = DequantizeLinear(k, 0.01); V = DequantizeLinear(v, 0.1); "
    yield right("two", head + "Y = Attention(Q, K, V)", opset=23, forms=["run", "sym"], atol=1e-5, **given, Y=y)
    yield right(
        "alone",
        head + "A, B = Split(Q, axis=2, num_outputs=2); Y = Concat(Attention(A, K, V), Attention(B, K, V), axis=2)",
        opset=23, forms=["run"], atol=1e-5, **given, Y=y)
    wide = "Reshape(Expand(Unsqueeze({}, [2]), [1, 4, 4, 8, 256]), [1, 16, 8, 256])"
    yield right("repeated", head + f"Y = Attention(Q, {wide.format('K')}, {wide.format('V')})", opset=23, forms=["run"],
                atol=1e-5, **given, Y=y)
