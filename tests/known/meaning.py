"""What operators mean, in float64 and one loop for each word of their text. Only right answers come from here."""

import math

import numpy as np


def wide(value):
    return np.asarray(value, np.float64)


def spread(value, n):
    return [value] * n if isinstance(value, int) else list(value)


def extents(n, strides, pads, dilations):
    return spread(strides, n), spread(pads, 2 * n), spread(dilations, n)


def conv(x, w, strides=1, pads=0, dilations=1, group=1):
    x, w = wide(x), wide(w)
    n, kernel = x.ndim - 2, w.shape[2:]
    strides, pads, dilations = extents(n, strides, pads, dilations)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:n], pads[n:])])
    size = [(x.shape[2 + i] - 1 - dilations[i] * (kernel[i] - 1)) // strides[i] + 1 for i in range(n)]
    y = np.zeros([len(x), len(w), *size])
    for tap in np.ndindex(*kernel):  # every tap of the kernel adds the input, moved
        begins = [t * d for t, d in zip(tap, dilations)]
        moved = x[(..., *[slice(b, b + s * (o - 1) + 1, s) for b, s, o in zip(begins, strides, size)])]
        for m in range(len(w)):
            for c in range(w.shape[1]):
                y[:, m] += moved[:, m * group // len(w) * w.shape[1] + c] * w[(m, c, *tap)]
    return y


def conv_transpose(x, w, strides=1, pads=0, dilations=1, output_padding=0):
    x, w = wide(x), wide(w)
    n, kernel = x.ndim - 2, w.shape[2:]
    strides, pads, dilations = extents(n, strides, pads, dilations)
    extra = spread(output_padding, n)
    full = [strides[i] * (x.shape[2 + i] - 1) + dilations[i] * (kernel[i] - 1) + 1 + extra[i] for i in range(n)]
    y = np.zeros([len(x), w.shape[1], *full])
    for tap in np.ndindex(*kernel):
        begins = [t * d for t, d in zip(tap, dilations)]
        place = [slice(b, b + s * (o - 1) + 1, s) for b, s, o in zip(begins, strides, x.shape[2:])]
        y[(..., *place)] += np.einsum("nc...,cm->nm...", x, w[(..., *tap)])
    return y[(..., *[slice(pads[i], full[i] - pads[n + i]) for i in range(n)])]


def pool(x, kernel, strides=1, pads=0, ceil=False, average=False, count_pads=False):
    """A window that begins in the end padding is left out; one that leaves it is cut there."""
    x = wide(x)
    n = x.ndim - 2
    kernel, (strides, pads, _) = spread(kernel, n), extents(n, strides, pads, 1)
    ranges = []  # of each axis: the windows' first and last position
    for i in range(n):
        length, begin, end = x.shape[2 + i], -pads[i], x.shape[2 + i] + pads[n + i]
        last = length - 1 if ceil else end - kernel[i]
        ranges.append([(a, min(a + kernel[i], end)) for a in range(begin, last + 1, strides[i])])
    y = np.zeros([*x.shape[:2], *map(len, ranges)])
    for at in np.ndindex(*map(len, ranges)):
        windows = [ranges[i][at[i]] for i in range(n)]
        cells = x[(..., *[slice(max(a, 0), min(b, x.shape[2 + i])) for i, (a, b) in enumerate(windows)])]
        flat = cells.reshape(*x.shape[:2], -1)
        divisor = math.prod(b - a for a, b in windows) if count_pads else flat.shape[-1]
        y[(..., *at)] = flat.sum(-1) / divisor if average else flat.max(-1)
    return y


def normalized(x, axes=-1, epsilon=1e-5):
    x = wide(x)
    x = x - x.mean(axes, keepdims=True)
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon)


def softmax(x, axis=-1):
    x = wide(x)
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def erf(x):
    return np.reshape([math.erf(v) for v in wide(x).ravel()], np.shape(x))


def gelu(x):
    return wide(x) * (1 + erf(wide(x) / math.sqrt(2))) / 2


def gelu_tanh(x):
    x = wide(x)
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def attention(q, k, v, mask=None, causal=False, left=None, right=None, softcap=0, keys=None):
    """Query i sees key j where the boolean mask, causality, the window and the number of valid keys allow it."""
    q, k, v = wide(q), wide(k), wide(v)
    repeat = q.shape[1] // k.shape[1]
    y = np.zeros([*q.shape[:3], v.shape[3]])
    for b, h, i in np.ndindex(*q.shape[:3]):
        mine = k[b, h // repeat]
        seen = np.arange(len(mine))
        seen = seen[(seen < (len(mine) if keys is None else keys)) & (seen <= i if causal else True)]
        seen = seen[(seen >= i - left if left is not None else True)
                    & (seen <= i + right if right is not None else True)]
        seen = seen[mask[i][seen]] if mask is not None else seen
        if len(seen):
            score = mine[seen] @ q[b, h, i] / math.sqrt(q.shape[3])
            y[b, h, i] = softmax(softcap * np.tanh(score / softcap) if softcap else score) @ v[b, h // repeat][seen]
    return y
