"""Operators of com.microsoft, which are spelled in others: each has the meaning that ONNX Runtime publishes for it."""

import itertools

import numpy as np

import meaning
from known import i8, i32, i64, known, noise, right, u8

OPSETS = {"com.microsoft": 1}


def meant(variant, body, **values):
    body = body.replace("ms.", "com.microsoft.")
    return right(variant, body, opsets=OPSETS, **{"opset": 21, **values})


def heads(x, count):
    """[batch, length, heads * depth] as [batch, heads, length, depth]."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def packed(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attended(q, k, v, addend, causal):
    scores = q.astype(np.float64) @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]) + addend
    if causal:
        scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
    return meaning.softmax(scores) @ v


def sigmoid(x):
    return 1 / (1 + np.exp(-np.float64(x)))


def saturated(x, like, zero):
    """As QuantizeLinear: rounded before the zero point is added."""
    bounds = np.iinfo(like)
    return np.clip(np.rint(x) + zero, bounds.min, bounds.max).astype(like)


@known("CON-01", "An activation is part of the operator: what is added is added before it, not after.")
def _():
    x, w, c, z = noise(1, 1, 4, 6, 6), noise(2, 6, 2, 3, 3), noise(3, 6), noise(4, 1, 6, 3, 3)
    y = meaning.conv(x, w, strides=2, pads=1, group=2) + c[:, None, None] + z
    head = "Y = ms.FusedConv(X, w, c, z, group=2, strides=[2, 2], pads=[1, 1, 1, 1]"
    given = {"forms": ["run", "const"], "atol": 2e-5, "X": x, "w": w, "c": c, "z": z}
    yield from meant("relu", head + ", activation='Relu')", **given, Y=np.maximum(y, 0))
    yield from meant("leaky", head + ", activation='LeakyRelu', activation_params=[0.25])", **given,
                     Y=np.where(y < 0, y / 4, y))
    yield from meant("clip", head + ", activation='Clip', activation_params=[-0.5, 1.0])", **given,
                     Y=np.clip(y, -.5, 1))
    yield from meant("none", head + ")", **given, Y=y)


@known("CON-02", "Gemm's factors scale before the activation.")
def _():
    a, b, c = noise(5, 7, 5), noise(6, 6, 7), noise(7, 5, 1)
    y = .5 * (a.T.astype(np.float64) @ b.T) + 2 * c
    body = "Y = ms.FusedGemm(A, B, C, transA=1, transB=1, alpha=0.5, beta=2.0, activation='{}'{})"
    given = {"atol": 1e-5, "A": a, "B": b, "C": c}
    yield from meant("sigmoid", body.format("Sigmoid", ""), **given, Y=sigmoid(y))
    yield from meant("leaky", body.format("LeakyRelu", ", activation_alpha=0.125"), **given,
                     Y=np.where(y < 0, y / 8, y))
    yield from meant("selu", body.format("Selu", ", activation_alpha=1.5, activation_gamma=2.0"), **given,
                     Y=2 * np.where(y > 0, y, 1.5 * (np.exp(y) - 1)))


@known("CON-03", "transBatch says that the rows come first: [m, batches, k].")
def _():
    a, b = noise(8, 2, 3, 5, 7), noise(9, 2, 3, 7, 4)
    for left, right_first in itertools.product((0, 1), (0, 1)):
        yield from meant(f"{left}{right_first}",
                         f"Y = ms.FusedMatMul(A, B, alpha=0.5, transBatchA={left}, transBatchB={right_first})",
                         atol=1e-5, A=a.transpose(2, 0, 1, 3) if left else a,
                         B=b.transpose(2, 0, 1, 3) if right_first else b, Y=.5 * (a.astype(np.float64) @ b))


@known("CON-04", "Gelu is by the error function, FastGelu by tanh, its bias inside.")
def _():
    x, c = 3 * noise(10, 3, 17), noise(11, 17)
    yield from meant("gelu", "Y = ms.Gelu(X)", X=x, Y=meaning.gelu(x))
    yield from meant("bias", "Y = ms.BiasGelu(X, c)", X=x, c=c, Y=meaning.gelu(x + c))
    yield from meant("fast", "Y = ms.FastGelu(X, c)", atol=3e-6, X=x, c=c, Y=meaning.gelu_tanh(x + c))
    yield from meant("quick", "Y = ms.QuickGelu(X, alpha=1.5)", X=x, Y=x * sigmoid(1.5 * x))


@known("CON-05", "What is normalized is the sum with the bias, and that sum is an output too.")
def _():
    x, s, c = noise(12, 2, 3, 16), noise(13, 3, 16), noise(14, 16)
    gain, shift = noise(15, 16), noise(16, 16)
    total = x + s + c
    y = meaning.normalized(total)
    given = {"atol": 1e-5, "X": x, "S": s, "gain": gain, "shift": shift, "c": c}
    yield from meant("layer", "Y, _, _, T = ms.SkipLayerNormalization(X, S, gain, shift, c, epsilon=1e-5)", **given,
                     Y=y * gain + shift, T=total)
    inverse = 1 / np.sqrt(np.mean(np.float64(total)**2, -1, keepdims=True) + 1e-5)
    full = dict(given, S=np.broadcast_to(s, x.shape).copy())
    yield from meant("rms", "Y, _, I, T = ms.SkipSimplifiedLayerNormalization(X, S, gain, c, epsilon=1e-5)",
                     **{k: v for k, v in full.items() if k != "shift"}, Y=total * inverse * gain, I=inverse, T=total)
    for domain in ("", "ms."):
        yield from meant("simplified" + domain[:2], f"Y = {domain}SimplifiedLayerNormalization(X, gain)", atol=1e-5, X=x,
                         gain=gain, Y=gain * x / np.sqrt(np.mean(np.float64(x)**2, -1, keepdims=True) + 1e-5))


@known("CON-06", "Embeddings: without positions they are counted, and the mask says how long a row is.")
def _():
    words, places, kinds = noise(17, 9, 8), noise(18, 6, 8), noise(19, 2, 8)
    ids, kind, mask = i32([[1, 8, 0, 3], [2, 2, 7, 5]]), i32([[0, 0, 1, 1], [1, 0, 1, 0]]), i32([[1, 1, 0, 0], [1] * 4])
    gain, shift = noise(20, 8), noise(21, 8)
    total = words[ids] + places[:4] + kinds[kind]
    given = {"atol": 2e-5, "w": words, "p": places, "g": gain, "b": shift, "X": ids}
    yield from meant("all", "Y, N, T = ms.EmbedLayerNormalization(X, K, w, p, k, g, b, M, epsilon=1e-5)", **given, k=kinds,
                     K=kind, M=mask, Y=meaning.normalized(total) * gain + shift, N=i32([2, 4]), T=total)
    at = i32([[3, 1, 0, 5]])
    total = words[ids] + places[at]
    yield from meant("places", "Y = ms.EmbedLayerNormalization(X, None, w, p, None, g, b, None, A, epsilon=1e-5)", **given,
                     A=at, Y=meaning.normalized(total) * gain + shift)


def levels(seed, bits, *shape):
    return np.random.RandomState(seed).randint(0, 1 << bits, shape)


def bytes_of(values, bits):
    """Packed along the last axis, the lowest bits first."""
    each = 8 // bits
    missing = -values.shape[-1] % each
    wide = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])
    wide = wide.reshape(*wide.shape[:-1], -1, each)
    return u8(sum(wide[..., i] << (bits * i) for i in range(each)))


@known("CON-07", "Weights of 2, 4 and 8 bits: the middle level is zero unless zero points, packed or real, say otherwise.")
def _():
    n, block = 24, 16
    for bits, k, kind in itertools.product((2, 4, 8), (32, 40), ("none", "packed", "real")):
        blocks = -(-k // block)
        q, scale, x = levels(bits, bits, n, blocks * block), np.abs(noise(k, n, blocks)) + .1, noise(23, 3, k)
        zero = {"none": np.full([n, blocks], 1 << bits - 1), "packed": levels(24, bits, n, blocks),
                "real": np.abs(noise(25, n, blocks)) * 2}[kind]
        w = ((q.reshape(n, blocks, block) - zero[..., None]) * scale[..., None]).reshape(n, -1)[:, :k]
        given = {} if kind == "none" else {"z": bytes_of(zero, bits) if kind == "packed" else zero}
        body = f"Y = ms.MatMulNBits(X, q, s{', z' if given else ''}, K={k}, N={n}, bits={bits}, block_size={block})"
        packed_levels = bytes_of(q, bits).reshape(n, blocks, -1)
        yield from meant(f"{bits}_{k}_{kind}", body, rtol=1e-4, atol=1e-5 * np.abs(w).sum(1).max(), X=x,
                         q=packed_levels, s=scale, **given, Y=x.astype(np.float64) @ w.T)


@known("CON-08", "A table of few bits: rows by index, each block by its scale; an index outside gives zeros.")
def _():
    for bits, zeros in itertools.product((2, 4, 8), (False, True)):
        q, scale = levels(26, bits, 9, 48), noise(27, 9, 3)
        zero = levels(28, bits, 9, 3) if zeros else np.full([9, 3], 1 << bits - 1)
        table = (q - zero.repeat(16, 1)) * scale.repeat(16, 1)
        at = np.array([[0, 8, -1], [9, 3, -10]])
        y = np.where(((at >= -9) & (at < 9))[..., None], table[np.clip(at, -9, 8)], 0)
        given = {"z": bytes_of(zero, bits)} if zeros else {}
        yield from meant(f"{bits}_{zeros}", f"Y = ms.GatherBlockQuantized(q, X, s{', z' if zeros else ''}, bits={bits}, "
                         "block_size=16, gather_axis=0, quantize_axis=1)", q=bytes_of(q, bits), s=scale, **given,
                         X=i64(at), Y=y)


@known("CON-09", "Over quantized tensors: each by its own scale and zero point, rounded to the nearest even level once.")
def _():
    for like, make in ((np.uint8, u8), (np.int8, i8)):
        low = np.iinfo(like).min
        a, b = (make(np.random.RandomState(s).randint(low, low + 256, [3, 5, 17])) for s in (30, 31))
        x, y = (a.astype(np.float64) - 7) * .5, (b.astype(np.float64) - 3) * .25
        given = {"A": a, "B": b, "p": np.float32(.5), "q": np.float32(.25), "y": make(7), "z": make(3), "w": make(9)}
        # Scales that are powers of two: nothing but the last rounding rounds.
        yield from meant(f"add_{like.__name__}", "Y = ms.QLinearAdd(A, p, y, B, q, z, r, w)", **given,
                         r=np.float32(.5), Y=saturated((x + y) / .5, like, 9))
        yield from meant(f"mul_{like.__name__}", "Y = ms.QLinearMul(A, p, y, B, q, z, r, w)", **given,
                         r=np.float32(16), Y=saturated(x * y / 16, like, 9))
        yield from meant(f"concat_{like.__name__}", "Y = ms.QLinearConcat(r, w, A, p, y, B, q, z, axis=1)", **given,
                         r=np.float32(.5), Y=saturated(np.concatenate([x, y], 1) / .5, like, 9))
        table = saturated(sigmoid((a.astype(np.float64) - 7) / 16) * 256, like, low)
        yield from meant(f"sigmoid_{like.__name__}", "Y = ms.QLinearSigmoid(A, p, y, r, w)", A=a, p=np.float32(1 / 16),
                         y=make(7), r=np.float32(1 / 256), w=make(low), Y=table)


@known("CON-10", "A product that quantizes its left side by that side's range, 0 in it.")
def _():
    x, b = noise(33, 2, 3, 32), i8(np.random.RandomState(34).randint(-127, 128, [32, 9]))
    scale, zero, bias = np.abs(noise(35, 9)) * .01 + .01, i8(levels(36, 4, 9)), noise(37, 9)
    span = np.float32(np.float32(max(x.max(), 0)) - np.float32(min(x.min(), 0)))
    step = span / np.float32(255)
    point = np.rint(np.clip(-np.float32(min(x.min(), 0)) / step, 0, 255))
    q = np.clip(np.rint(x / step) + point, 0, 255)
    y = (q - point) @ (b.astype(np.float64) - zero) * (np.float64(step) * scale)
    given = {"rtol": 1e-5, "atol": 1e-4, "X": x, "b": b, "s": scale, "z": zero, "c": bias}
    yield from meant("bias", "Y = ms.DynamicQuantizeMatMul(X, b, s, z, c)", **given, Y=y + bias)


@known("CON-11", "Masks: lengths, ends and starts, keys, or queries and keys; a hidden key has the addend -10000.")
def _():
    x, w, c = noise(40, 2, 5, 16), .3 * noise(41, 16, 48), noise(42, 48)
    q, k, v = (heads(p, 4) for p in np.split(x @ w + c, 3, -1))
    place = np.arange(5)
    keys, both = i32([[1, 0, 1, 0, 0], [1] * 4 + [0]]), i32(levels(43, 1, 2, 5, 5))
    both[..., 0] = 1
    square = np.tril(np.ones([2, 1, 8, 8]))
    forms = {
        "none": (None, np.zeros([1, 1, 1, 5])),
        "lengths": (i32([3, 5]), np.where(place < np.array([[3], [5]]), 0, -1e4)[:, None, None]),
        "ends": (i32([5, 4, 1, 0]), np.where((place < [[5], [4]]) & (place >= [[1], [0]]), 0, -1e4)[:, None, None]),
        "keys": (keys, np.where(keys, 0, -1e4)[:, None, None]),
        "both": (both, np.where(both, 0, -1e4)[:, None]),
        "square": (i32(square), np.where(square[..., :5, :5], 0, -1e4)),
    }
    for (name, (mask, addend)), causal in itertools.product(forms.items(), (False, True)):
        given = {} if mask is None else {"M": mask}
        body = f"Y = ms.Attention(X, w, c{', M' if given else ''}, num_heads=4, unidirectional={int(causal)})"
        yield from meant(f"{name}{'_causal' if causal else ''}", body, forms=["run", "const"], atol=2e-5, X=x, w=w, c=c,
                         **given, Y=packed(attended(q, k, v, addend, causal)))


@known("CON-12", "Queries, keys and values apart, packed, with heads in an axis, with a cache before them.")
def _():
    q, k, v, c = noise(50, 2, 5, 16), noise(51, 2, 5, 16), noise(52, 2, 5, 24), noise(53, 56)
    plain = meaning.attention(heads(q, 4), heads(k, 4), heads(v, 4))
    yield from meant("apart", "Y = ms.MultiHeadAttention(Q, K, V, num_heads=4)", atol=1e-5, Q=q, K=k, V=v,
                     Y=packed(plain))
    biased = [heads(x + b, 4) for x, b in zip((q, k, v), np.split(c, [16, 32]))]
    yield from meant("bias", "Y = ms.MultiHeadAttention(Q, K, V, c, num_heads=4)", forms=["run", "const"], atol=1e-5, Q=q, K=k,
                     V=v, c=c, Y=packed(meaning.attention(*biased)))
    every = noise(54, 2, 5, 4, 3, 4)
    a, b, d = (every[..., i, :].transpose(0, 2, 1, 3) for i in range(3))
    yield from meant("packed", "Y = ms.MultiHeadAttention(Q, num_heads=4, unidirectional=1)", atol=1e-5, Q=every,
                     Y=packed(meaning.attention(a, b, d, causal=True)))
    pair = np.stack([b, d], 3).transpose(0, 2, 1, 3, 4)
    yield from meant("pair", "Y = ms.MultiHeadAttention(Q, K, num_heads=4)", atol=1e-5, Q=q, K=pair,
                     Y=packed(meaning.attention(heads(q, 4), b, d)))
    yield from meant("unpacked", "Y = ms.MultiHeadAttention(Q, K, V, num_heads=4)", atol=1e-5, Q=q, K=b, V=d,
                     Y=packed(meaning.attention(heads(q, 4), b, d)))
    before, other = noise(55, 2, 4, 3, 4), noise(56, 2, 4, 3, 6)
    keys, values = np.concatenate([before, heads(k, 4)], 2), np.concatenate([other, heads(v, 4)], 2)
    yield from meant("cache", "Y, P, R = ms.MultiHeadAttention(Q, K, V, None, None, None, A, B, num_heads=4)", atol=1e-5,
                     Q=q, K=k, V=v, A=before, B=other, Y=packed(meaning.attention(heads(q, 4), keys, values)), P=keys,
                     R=values)


def turned(x, cos, sin, places, interleaved=False):
    """x [batch, heads, length, depth], places [batch, length]."""
    c, s = cos[places][:, None], sin[places][:, None]
    half = cos.shape[1]
    a, b = (x[..., 0:2 * half:2], x[..., 1:2 * half:2]) if interleaved else (x[..., :half], x[..., half:2 * half])
    y = x.copy()
    first, second = a * c - b * s, a * s + b * c
    if interleaved:
        y[..., 0:2 * half:2], y[..., 1:2 * half:2] = first, second
    else:
        y[..., :half], y[..., half:2 * half] = first, second
    return y


@known("CON-13", "Rotary positions: one to start from or one for each token; part of a head; pairs apart or side by side.")
def _():
    angle = noise(60, 9, 4)
    cos, sin = np.cos(angle), np.sin(angle)
    for side in (0, 1):
        x = noise(61, 2, 5, 24)
        places = np.broadcast_to(3 + np.arange(5), [2, 5])
        yield from meant(f"start_{side}", f"Y = ms.RotaryEmbedding(X, P, c, s, interleaved={side})", atol=1e-5, X=x, c=cos, s=sin,
                         P=i64([3]), Y=packed(turned(heads(x, 3), cos, sin, places, side)))
        at, wide = levels(62, 3, 2, 5), noise(63, 2, 5, 36)
        yield from meant(f"part_{side}", f"Y = ms.RotaryEmbedding(X, P, c, s, interleaved={side}, num_heads=3, "
                         "rotary_embedding_dim=8)", atol=1e-5, X=wide, c=cos, s=sin, P=i64(at),
                         Y=packed(turned(heads(wide, 3), cos, sin, at, side)))


@known("CON-14", "Heads that share keys, each batch item at its own length in a cache that grows or has room.")
def _():
    angle = noise(70, 16, 4)
    cos, sin = np.cos(angle), np.sin(angle)
    body = "Y, P, R = ms.GroupQueryAttention(Q, K, V, A, B, N, t, c, s, num_heads=4, kv_num_heads=2, do_rotary=1"
    options = {"plain": ("", {}), "window": (", local_window_size=3", {"left": 2}), "cap": (", softcap=2.0", {"softcap": 2.0})}
    q, k, v = noise(71, 2, 1, 32), noise(72, 2, 1, 16), noise(73, 2, 1, 16)
    for (name, (more, how)), room, lengths in itertools.product(options.items(), (6, 12), ([7, 7], [7, 4])):
        before, other = noise(74, 2, 2, room, 8), noise(75, 2, 2, room, 8)
        if room == 6 and lengths != [7, 7]:
            continue  # what stands behind the keys of a shorter item is not said
        rows = max(room, 7)
        keys, values = np.zeros([2, 2, rows, 8], np.float32), np.zeros([2, 2, rows, 8], np.float32)
        keys[:, :, :room], values[:, :, :room] = before, other
        y = np.zeros([2, 4, 1, 8])
        for i, n in enumerate(lengths):
            at = np.full([1, 1], n - 1)
            keys[i, :, n - 1] = turned(heads(k[i:i + 1], 2), cos, sin, at)[0, :, 0]
            values[i, :, n - 1] = heads(v[i:i + 1], 2)[0, :, 0]
            first = max(0, n - 1 - how["left"]) if "left" in how else 0
            y[i] = meaning.attention(turned(heads(q[i:i + 1], 4), cos, sin, at), keys[i:i + 1, :, first:n],
                                     values[i:i + 1, :, first:n], softcap=how.get("softcap", 0))[0]
        yield from meant(f"{name}_{room}_{lengths[1]}", body + more + ")", atol=2e-5, Q=q, K=k, V=v, A=before, B=other,
                         N=i32([n - 1 for n in lengths]), t=i32(7), c=cos, s=sin, Y=packed(y), P=keys, R=values)
    q, k, v = noise(76, 2, 5, 32), noise(77, 2, 5, 16), noise(78, 2, 5, 16)
    prompt = meaning.attention(heads(q, 4), heads(k, 2), heads(v, 2), causal=True)
    yield from meant("prompt", "Y = ms.GroupQueryAttention(X, None, None, None, None, N, t, num_heads=4, kv_num_heads=2)",
                     forms=["run", "const"], atol=1e-5, X=np.concatenate([q, k, v], 2), N=i32([4, 4]), t=i32(5), Y=packed(prompt))
