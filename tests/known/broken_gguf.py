"""MAL, other formats: GGUF files written byte by byte, right and wrong, and safetensors."""

import json
import math
import struct

from known import known, refused

GGUF = {"name": "model.gguf"}
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9  # types of a key's value
FLOATS, Q4_0, Q8_0, Q4_K = 0, 2, 8, 12  # types of tensors
BLOCKS = {FLOATS: (1, 4), Q4_0: (32, 18), Q8_0: (32, 34), Q4_K: (256, 144)}  # elements and bytes
PACKED = {U32: "<I", I32: "<i", F32: "<f"}


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def value(kind, content):
    if kind == STRING:
        return text(content)
    if kind == ARRAY:
        item, items = content
        return struct.pack("<IQ", item, len(items)) + b"".join(value(item, i) for i in items)
    return content if isinstance(content, bytes) else struct.pack(PACKED[kind], content)


class File:
    """Writes what it is told; the counts in the header may be told as well."""

    def __init__(self):
        self.keys, self.tensors, self.data, self.counts = [], [], b"", None

    def key(self, name, kind, content):
        self.keys.append(text(name) + struct.pack("<I", kind) + value(kind, content))
        return self

    def tensor(self, name, dims, kind=FLOATS, data=None, rank=None, at=None):
        elements, size = BLOCKS.get(kind, (1, 4))
        self.data += bytes(-len(self.data) % 32)
        place = len(self.data) if at is None else at
        self.data += bytes(math.prod(dims) // elements * size) if data is None else data
        self.tensors.append(text(name) + struct.pack(f"<I{len(dims)}Q", len(dims) if rank is None else rank,
                                                     *dims) + struct.pack("<IQ", kind, place))
        return self

    def encode(self):
        counts = self.counts or (len(self.tensors), len(self.keys))
        front = struct.pack("<4sI2Q", b"GGUF", 3, *counts) + b"".join(self.keys + self.tensors)
        return front + bytes(-len(front) % 32) + self.data


def decoder(kind=FLOATS, **changed):
    """One layer of width 32 with 4 heads of queries, 2 of keys, and a vocabulary of 16."""
    numbers = {
        "block_count": 1, "context_length": 64, "embedding_length": 32, "feed_forward_length": 64,
        "attention.head_count": 4, "attention.head_count_kv": 2, "rope.dimension_count": 8, "vocab_size": 16
    }
    numbers.update({name.replace("__", "."): number for name, number in changed.items()})
    file = File().key("general.architecture", STRING, "llama").key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5)
    for name, number in numbers.items():
        file.key("llama." + name, U32, number)
    words = ["<unk>", "<s>", "</s>"] + list("abcdefghijklm")
    file.key("tokenizer.ggml.model", STRING, "llama").key("tokenizer.ggml.tokens", ARRAY, (STRING, words))
    file.key("tokenizer.ggml.scores", ARRAY,
             (F32, [0.0] * 16)).key("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3] + [1] * 13))
    file.key("tokenizer.ggml.bos_token_id", U32, 1).key("tokenizer.ggml.eos_token_id", U32, 2)
    for name, dims in (("token_embd", [32, 16]), ("output", [32, 16]), ("output_norm", [32]), ("blk.0.attn_norm", [32]),
                       ("blk.0.ffn_norm", [32]), ("blk.0.attn_q", [32, 32]), ("blk.0.attn_k", [32, 16]),
                       ("blk.0.attn_v", [32, 16]), ("blk.0.attn_output", [32, 32]), ("blk.0.ffn_gate", [32, 64]),
                       ("blk.0.ffn_up", [32, 64]), ("blk.0.ffn_down", [64, 32])):
        file.tensor(name + ".weight", dims, kind if len(dims) == 2 else FLOATS)
    return file


def odd(*dims, **how):
    return File().tensor("odd.weight", dims, **{"data": b"", **how}).encode()


@known("MAL-01", "A dimension of 0.")
def _():
    for dims in ((4, 0), (0, 4), (4, 1, 0, 1)):
        yield refused("x".join(map(str, dims)), odd(*dims), "odd.weight", **GGUF)


@known("MAL-02", "An alignment is a power of two, a u32, and leaves the data inside of the file.")
def _():
    for name, kind, content in (("0", U32, 0), ("3", U32, 3), ("2_31", U32, 2**31), ("i32", I32, 32),
                                ("text", STRING, "32")):
        yield refused(name, decoder().key("general.alignment", kind, content).encode(), "alignment|tensor", **GGUF)


@known("MAL-03", "A size beyond 64 bits.")
def _():
    for name, dims in (("product", (1152, 2**42 + 1)), ("wraps", (2**62, 4)), ("sign", (2**63, ))):
        yield refused(name, odd(*dims), "odd.weight", **GGUF)
    file = File()
    for i in range(5):
        file.tensor(f"odd{i}.weight", [2**60], data=b"", at=0)
    yield refused("sum", file.encode(), "odd", **GGUF)


@known("MAL-05", "A count of 2^61 in a file of 24 bytes.")
def _():
    for name, counts, mentions in (("tensors", (2**61, 0), "tensor"), ("keys", (0, 2**61), "metadata|key|kv|entr")):
        file = File()
        file.counts = counts
        yield refused(name, file.encode()[:24], mentions, **GGUF)
    yield refused("safetensors", struct.pack("<Q", 2**61) + b"{}", name="model.safetensors")


@known("MAL-07", "Five dimensions, and types that nobody defined.")
def _():
    for rank in (5, 2**32 - 1):
        yield refused(f"rank_{rank}", odd(1, 1, 1, 1, 1, data=bytes(4), rank=rank), "odd.weight|dim", **GGUF)
    for kind in (255, 2**32 - 1):
        yield refused(f"tensor_{kind}", odd(4, kind=kind, data=bytes(16)), "odd.weight|type", **GGUF)
    yield refused("key", decoder().key("odd.key", 99, bytes(8)).encode(), "odd.key|type", **GGUF)


@known("MAL-09", "Names that are empty or come twice.")
def _():
    yield refused("empty", decoder().key("", U32, 1).encode(), "key|name", **GGUF)
    yield refused("key_twice", decoder().key("odd.key", U32, 1).key("odd.key", U32, 2).encode(), "odd.key", **GGUF)
    yield refused("tensor_twice",
                  decoder().tensor("odd.weight", [4]).tensor("odd.weight", [4]).encode(), "odd.weight", **GGUF)
    yield refused("sound", decoder().encode(), sound=True, **GGUF)


@known("MAL-11", "No heads, no layers, or heads that do not divide.")
def _():
    for name in ("attention__head_count", "attention__head_count_kv", "block_count", "embedding_length"):
        yield refused(f"no_{name}", decoder(**{name: 0}).encode(), name.replace("__", "."), **GGUF)
    for heads in (8, 3):
        yield refused(f"4_over_{heads}", decoder(attention__head_count_kv=heads).encode(), "head_count", **GGUF)


def safetensors(elements, size):
    front = json.dumps({"odd.weight": {"dtype": "F32", "shape": [elements], "data_offsets": [0, 8]}}).encode()
    return struct.pack("<Q", len(front)) + front + bytes(size)
