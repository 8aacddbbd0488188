"""MAL: ONNX files that are wrong. Each is refused with a message that names the item, quickly, and without a crash."""

import struct

import numpy as np

from broken_gguf import decoder, safetensors
from known import Branch, LOWEST, Open, boolean, f32, i32, i64, known, model, ramp, refused, right
from onnx_file import FLOAT, STRING, Tensor, field, head


def sum_with(weight=None):
    """Y = X + odd_weight"""
    return model("Y = X + odd_weight", X=[1, 2], odd_weight=[3, 4] if weight is None else weight, Y=Open(1))


def beside(location, offset="0", length="8", dims=(2, )):
    keys = {"location": location, "offset": offset, "length": length}
    return Tensor(FLOAT, dims, beside={k: v for k, v in keys.items() if v is not None})


@known("MAL-13", "External data stays in the model's folder. The file outside is sound, so only its path is wrong.")
def _():
    for name, location in (("parent", "../outside.bin"), ("up_again", "a/../../outside.bin"),
                           ("absolute", "/etc/passwd"), ("backslash", "..\\outside.bin"), ("drive", "C:\\outside.bin"),
                           ("empty", ""), ("zero", "w.bin\0/../x"), ("dot", ".")):
        yield refused(name, sum_with(beside(location)), "odd_weight", name="inside/model.onnx",
                      beside={"outside.bin": bytes(8), "inside/a": None})


@known("MAL-15", "Where external data begins and ends.")
def _():
    how = {"beside": {"w.bin": bytes(8)}, "run": {"X": [1, 2]}}
    for name, offset, length in (("begins_beyond", "4096", "8"), ("short", "0", "4"), ("long", "0", "16"),
                                 ("ends_beyond", "4", "8"), ("negative_offset", "-8", "8"),
                                 ("negative_length", "0", "-8"), ("wraps", str(2**64 - 4), "8"),
                                 ("more_than_64_bits", "9" * 23, "8"), ("word", "zero", "8"),
                                 ("half_a_number", "0x", "8")):
        yield refused(name, sum_with(beside("w.bin", offset, length)), "odd_weight", **how)
    yield refused("4_tib", sum_with(beside("w.bin", "0", None, (2**20, 2**20))), "odd_weight|make_Y", **how)


@known("MAL-16", "Data that is not what the dimensions say.")
def _():
    for name, weight in (("huge", Tensor(FLOAT, [10**6, 10**6], bytes(4))), ("11_bytes", Tensor(FLOAT, [3], bytes(11))),
                         ("3_for_2", Tensor(FLOAT, [2], floats=(1, 2, 3))),
                         ("twice", Tensor(FLOAT, [2], bytes(8), (1, 2))), ("none", Tensor(FLOAT, [2]))):
        yield refused(name, sum_with(weight), "odd_weight")
    yield refused("safetensors_3_for_2", safetensors(3, 8), name="model.safetensors")
    yield refused("safetensors_cut", safetensors(2, 4), name="model.safetensors")


@known("MAL-18", "200 bytes that describe terabytes: loading does not fold them, or names its limit.")
def _():
    for name, node, weights in (("constant_of_shape", "ConstantOfShape(n)", {"n": i64([2**44])}),
                                ("range", "Range(a, b, c)", {"a": f32(0), "b": f32(1e15), "c": f32(1)}),
                                ("tile", "Tile(x, n)", {"x": f32([1]), "n": i64([2**40])}),
                                ("expand", "Expand(x, n)", {"x": f32([1]), "n": i64([2**20, 2**20])})):
        made = model(f"Y = X + ReduceSum({node}, keepdims=0)", X=1, Y=1, **weights)
        yield refused(name, made, may_load=True)
        yield refused(f"{name}_run", made, may_load=True, run={"X": 1})


def nested_ifs(depth):
    """If in If in If. Put together from both ends: joining at each level would copy the inner ones every time."""

    def info(name, kind):
        return field(1, name) + field(2, field(1, field(1, kind) + field(2, b"")))

    gives = field(2, "g") + field(12, info("y", FLOAT))
    graph_type = field(20, 5)
    leaf = field(1, field(1, "X") + field(2, "y") + field(4, "Neg")) + gives
    names = field(1, "C") + field(2, "y") + field(4, "If")
    other = field(5, field(1, "else_branch") + field(6, leaf) + graph_type)
    begins, ends, size = [], [], len(leaf)
    for _ in range(depth):
        graph = field(1, "then_branch") + head(6, size)
        branch = head(5, len(graph) + size + len(graph_type)) + graph
        node = head(1, len(names) + len(branch) + size + len(graph_type) + len(other)) + names + branch
        begins.append(node)
        ends.append(graph_type + other + gives)
        size += len(begins[-1]) + len(ends[-1])
    graph = b"".join(begins[::-1]) + leaf + b"".join(ends) + field(11, info("C", 9)) + field(11, info("X", FLOAT))
    return field(1, 8) + field(8, field(2, 17)) + field(7, graph)


@known("MAL-19", "Branches in branches: a limit that is told, or it works.")
def _():
    for depth in (5, 33, 1000, 20000):
        yield refused(f"{depth}", nested_ifs(depth), sound=depth == 5, may_load=True)


@known("MAL-21", "A circle.")
def _():
    yield refused("two", model("A = X + B; B = Relu(A); Y = Identity(B)", X=[1, 2], Y=[1, 2]), "make_A|make_B")
    yield refused("one", model("A = X + A; Y = Identity(A)", X=[1, 2], Y=[1, 2]), "make_A")


@known("MAL-23", "Inputs without a type, or with one that does not exist; a domain that is no text.")
def _():
    for name, kind in (("none", None), ("0", (0, [2])), ("999", (999, [2]))):
        made = model("Y = Relu(Typeless)", Typeless=[1, 2], Y=[1, 2])
        made.inputs["Typeless"] = kind
        yield refused(name, made, "Typeless")
    made = model("Y = Relu(X)", X=[1, 2], Y=[1, 2])
    made.nodes[0].domain = b"\xff\xfe"
    yield refused("domain", made)


@known("MAL-24", "A value has one definition.")
def _():
    x = f32([1, 2])
    yield refused("nodes", model("T = Relu(X); Twofold = Neg(X); Twofold = Neg(T); Y = Identity(Twofold)", X=x, Y=x),
                  "Twofold")
    made = model("Twofold = Relu(X); Y = Identity(Twofold)", X=x, Y=x)
    made.inputs["Twofold"] = made.inputs["X"]
    yield refused("input", made, "Twofold")
    made = model("Twofold = Relu(X); Y = Identity(Twofold)", X=x, Y=x)
    made.tensors.append(("Twofold", x))
    yield refused("initializer", made, "Twofold")
    inner = {
        "then": Branch("Twofold = Neg(X)", {"Twofold": (FLOAT, [2])}),
        "other": Branch("b = Abs(X)", {"b": (FLOAT, [2])})
    }
    yield refused("branch",
                  model("Twofold = Relu(X); Y = If(C, then_branch=then, else_branch=other)", C=boolean(True), X=x,
                        **inner, Y=x), "Twofold")


@known("MAL-25",
       "Names of nodes are for people: they may repeat or be missing. Two initializers of one name are an error.")
def _():

    def named(name):

        def edit(made):
            for node in made.nodes:
                node.name = name

        return edit

    def listed(made):
        made.inputs["w"] = (FLOAT, [2])

    yield right("equal", "Y = Relu(Neg(X))", edit=named("n"), X=[-1, 2], Y=[1, 0])
    yield right("none", "Y = Neg(Relu(Neg(X)))", edit=named(""), X=[-1, 2], Y=[-1, 0])
    yield right("listed", "Y = X + w", forms=["run", "sym"], edit=listed, X=[-1, 2], w=[10, 20], Y=[9, 22])
    made = model("Y = X + twofold", X=[-1, 2], twofold=[1, 2], Y=[0, 4])
    made.tensors.append(("twofold", f32([3, 4])))
    yield refused("initializers", made, "twofold")


@known("MAL-26", "Versions of the future, operators and domains that are unknown: all of them in one message.")
def _():

    def run(name, body, *mentions, **how):
        made = model(body, X=[1, 2], Y=[1, 2], **{k: v for k, v in how.items() if k != "ir"})
        made.ir = how.get("ir", 0)
        return refused(name, made, *mentions, run={"X": [1, 2]})

    yield run("opset", "Y = Relu(X)", "999", opset=999)
    yield run("ir", "Y = Relu(X)", "99", ir=99)
    yield run("operator", "Y = FooBar(X)", "FooBar")
    yield run("domain", "Y = com.acme.FooBar(X)", "FooBar", "com.acme", opsets={"com.acme": 1})
    yield run("not_imported", "Y = com.acme.FooBar(X)", "com.acme|FooBar")
    yield run("three", "Y = FooC(FooB(FooB(FooA(X))))", "FooA", "FooB", "FooC")


@known("MAL-28", "Anything but a model.")
def _():
    picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(50)
    for name, content in (("empty", b""), ("byte", b"\x08"), ("picture", picture), ("zeros", bytes(4096)),
                          ("text", b"not a model\n")):
        yield refused(name, content)
        yield refused(f"{name}_gguf", content, name="model.gguf")
    yield refused("folder", None)
    yield refused("gguf_named_onnx", decoder().encode(), may_load=True)
    whole = sum_with().encode()
    for size in range(1, len(whole), 7):
        yield refused(f"first_{size}", whole[:size])


@known("MAL-29", "As many strings as the dimensions say.")
def _():
    for name, weight in (("2_of_3", Tensor(STRING, [3], strings=("a", "b"))), ("0_of_1", Tensor(STRING, [])),
                         ("raw", Tensor(STRING, [3], raw=b"abc"))):
        yield refused(name, model("Y = Identity(odd_weight)", odd_weight=weight, Y=Open(len(weight.dims), STRING)),
                      "odd_weight")


@known("MAL-31", "Attributes that do not fit the rank.")
def _():
    x, image = ramp(2, 3, 4), ramp(1, 1, 4, 4)
    pool = "MaxPool(X, kernel_shape=[2, 2], "
    for name, node, given, rank in (("flatten_5", "Flatten(X, axis=5)", x, 2),
                                    ("flatten_-4", "Flatten(X, axis=-4)", x, 2),
                                    ("softmax", "Softmax(X, axis=3)", x, 3), ("concat", "Concat(X, X, axis=9)", x, 3),
                                    ("gather", "Gather(X, [0], axis=3)", x, 4),
                                    ("order_twice", "Transpose(X, perm=[0, 0, 1])", x, 3),
                                    ("order_short", "Transpose(X, perm=[0, 1])", x, 2),
                                    ("stride", pool + "strides=[0, 0])", image, 4),
                                    ("dilation", pool + "dilations=[-1, -1])", image, 4),
                                    ("pads", pool + "pads=[1, 1, 1])", image, 4)):
        yield refused(name, model("Y = " + node, X=given, Y=Open(rank)), "make_Y")


@known("MAL-32", "Indices beyond their axis, which show at run time only.")
def _():

    def run(name, node, rank=1, **values):
        made = model("Y = " + node, opset=18, form="sym", Y=Open(rank), **values)
        return refused(name, made, "Y|index", run={n: v for n, v in values.items() if n[0].isupper()})

    x, table = f32([1, 2, 3]), ramp(16, 4)
    yield run("gather", "Gather(X, I)", X=x, I=i64([5]))
    yield run("far", "Gather(X, I)", X=x, I=i64([2**62]))
    yield run("gather_elements", "GatherElements(X, I, axis=0)", X=x, I=i32([-2**31]))
    yield run("gather_nd", "GatherND(X, I)", X=ramp(2, 2), I=i64([[0, 2]]))
    yield run("scatter_nd", "ScatterND(X, I, U)", X=x, I=i64([[3]]), U=f32([1]))
    yield run("scatter_elements", "ScatterElements(X, I, U, axis=0)", X=x, I=i64([-4]), U=f32([1]))
    yield run("token", "Gather(t, I)", 3, t=table, I=i32([[0, 16]]))
    yield run("negative_token", "Gather(t, I)", 3, t=table, I=i32([[0, -17]]))
    yield run("depth", "OneHot(I, D, V)", 2, I=i64([0]), D=i64(-1), V=f32([0, 1]))


@known("MAL-33", "Shapes that nothing can have, known at run time only.")
def _():
    x = ramp(2, 3)
    for name, node, rank, values in (("step", "Slice(X, S, E, A, T)", 2,
                                      {"X": x, "S": [0], "E": [2], "A": [0], "T": [0]}),
                                     ("reshape_5", "Reshape(X, S)", 1, {"X": x, "S": [5]}),
                                     ("reshape_-2", "Reshape(X, S)", 2, {"X": x, "S": [-2, -3]}),
                                     ("tile", "Tile(X, S)", 2, {"X": x, "S": [-1, 1]}),
                                     ("expand_-2", "Expand(X, S)", 1, {"X": f32([1]), "S": [-2]}),
                                     ("expand", "Expand(X, S)", 2, {"X": x, "S": [4, 3]}),
                                     ("filled", "ConstantOfShape(S)", 1, {"S": [-1]}),
                                     ("filled_lowest", "ConstantOfShape(S)", 1, {"S": [LOWEST]}),
                                     ("range", "Range(A, B, C)", 1, {"A": f32(0), "B": f32(5), "C": f32(0)})):
        values = {n: v if isinstance(v, np.ndarray) else i64(v) for n, v in values.items()}
        yield refused(name, model("Y = " + node, form="sym", Y=Open(rank), **values), run=values)


def npy(text, data=b"", size=None):
    text = text.encode() + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text) if size is None else size) + text + data


@known("MAL-34", "What is missing, and inputs that do not fit.")
def _():
    yield refused("weight", model("Y = Conv(X, missing_weight)", X=ramp(1, 1, 4, 4), Y=Open(4)), "missing_weight")
    made = model("Y = X + X", X=[1, 2], Y=[2, 4])
    made.outputs = {"missing_output": made.outputs["Y"]}
    yield refused("output", made, "missing_output")

    sound = model("Y = Odd_input + Odd_input", Odd_input=[1, 2], Y=[2, 4])
    yield refused("extra", sound, "Extra", run={"Odd_input": f32([1, 2]), "Extra": f32([1])})
    for name, given in (("type", i64([1, 2])), ("rank", f32([[1, 2]])), ("size", f32([1, 2, 3]))):
        yield refused(name, sound, "Odd_input", run={"Odd_input": given})
    good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
    for name, content in (("empty", b""), ("no_npy", b"NUMPY" + bytes(60)), ("header", npy(good, bytes(8), 60000)),
                          ("cut", npy(good, bytes(4))),
                          ("overflow", npy(good.replace("(2,)", f"({2**62}, 8)"), bytes(8))),
                          ("negative", npy(good.replace("(2,)", "(-2,)"), bytes(8))),
                          ("objects", npy(good.replace("<f4", "|O"), bytes(8)))):
        yield refused(f"npy_{name}", sound, run={}, feeds={"Odd_input": "in.npy"}, beside={"in.npy": content})
