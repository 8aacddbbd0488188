"""Writes ONNX files from their wire format (onnx.proto), wrong ones too: no package checks what the tests hand over."""

import struct
from dataclasses import dataclass, field as made_by

import numpy as np

NUMPY = {"f4": 1, "u1": 2, "i1": 3, "u2": 4, "i2": 5, "i4": 6, "i8": 7, "b1": 9, "f2": 10, "f8": 11, "u4": 12, "u8": 13}
FLOAT, STRING, BOOL, U4, I4 = 1, 8, 9, 21, 22


def varint(number):
    number &= 2**64 - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def head(number, size):
    """What stands before the `size` bytes of a field: for fields too deep to be put together from the inside."""
    return varint(number << 3 | 2) + varint(size)


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, (int, np.integer)):
        return varint(number << 3) + varint(int(value))
    value = value.encode() if isinstance(value, str) else value
    return head(number, len(value)) + value


def message(*fields):
    """Pairs of a number and a value; a list is a repeated field, None is left out."""
    out = []
    for number, value in fields:
        if value is not None:
            out += [field(number, v) for v in (value if isinstance(value, (list, tuple)) else [value])]
    return b"".join(out)


@dataclass
class Tensor:
    """A TensorProto with any content; `beside` holds the keys of external data."""
    type: int
    dims: list
    raw: bytes = None
    floats: tuple = ()
    strings: tuple = ()
    beside: dict = None

    def encode(self, name=None):
        floats = struct.pack(f"<{len(self.floats)}f", *self.floats) if self.floats else None
        keys = [message((1, k), (2, v)) for k, v in (self.beside or {}).items()]
        return message((1, list(self.dims)), (2, self.type), (4, floats), (6, list(self.strings)), (8, name),
                       (9, self.raw), (13, keys), (14, 1 if self.beside else None))


def type_of(array):
    return NUMPY[array.dtype.str[1:]]


def tensor(value):
    """A Tensor as it is, or that of an array."""
    return value if isinstance(value,
                               Tensor) else Tensor(type_of(value), value.shape, np.ascontiguousarray(value).tobytes())


@dataclass
class Branch:
    """The graph of an attribute: its body, and the type and dimensions of what it gives."""
    body: str
    gives: dict
    nodes: list = None

    def encode(self):
        return message((1, [n.encode() for n in self.nodes]), (2, "branch"),
                       (12, [value_info(*v) for v in self.gives.items()]))


@dataclass
class Node:
    op: str
    inputs: list
    outputs: list
    attributes: dict = made_by(default_factory=dict)
    domain: str = ""
    name: str = ""

    def encode(self):
        attributes = [attribute(k, v) for k, v in self.attributes.items()]
        return message((1, self.inputs), (2, self.outputs), (3, self.name or None), (4, self.op), (5, attributes),
                       (7, self.domain or None))


def attribute(name, value):
    """AttributeProto: the field of the value and its type number."""
    if isinstance(value, Branch):
        body = (6, value.encode()), (20, 5)
    elif isinstance(value, (np.ndarray, Tensor)):
        body = (5, tensor(value).encode()), (20, 4)
    elif isinstance(value, str):
        body = (4, value), (20, 3)
    elif isinstance(value, float):
        body = (2, value), (20, 1)
    elif isinstance(value, list):
        body = ((7, value), (20, 6)) if value and isinstance(value[0], float) else ((8, value), (20, 7))
    else:
        body = (3, int(value)), (20, 2)
    return message((1, name), *body)


def value_info(name, kind):
    """`kind` is None (no type), or the element type and the dimensions: a number, a name, or None where unknown."""
    if kind is None:
        return message((1, name))
    dims = [message((1, d) if isinstance(d, int) else (2, d)) for d in kind[1]]
    return message((1, name), (2, message((1, message((1, kind[0]), (2, message((1, dims))))))))


@dataclass
class Model:
    nodes: list
    inputs: dict
    outputs: dict
    tensors: list  # of (name, array or Tensor): a name may come twice
    opsets: dict
    ir: int = 0

    def encode(self):
        newest = self.opsets.get("", 0)
        ir = self.ir or (8 if newest < 21 else 10)  # 10 has the types of four bits
        graph = message((1, [n.encode() for n in self.nodes]), (2, "known"),
                        (5, [tensor(t).encode(n) for n, t in self.tensors]),
                        (11, [value_info(*v) for v in self.inputs.items()]),
                        (12, [value_info(*v) for v in self.outputs.items()]))
        return message((1, ir), (2, "ridgeline tests"), (7, graph),
                       (8, [message((1, domain), (2, version)) for domain, version in self.opsets.items()]))
