"""What a known failure is made of: models with the right answer, and files that have to be refused.

A case is a function that yields them:

    @known("FUS-03", "A column has as many elements as the square product has columns, but they belong to the rows.")
    def _():
        yield right("add", "Y = A @ b + c", A=np.eye(3), b=np.eye(3), c=[[10], [20], [30]], Y=...)

Values by name: what the body defines is an output, another name that begins with a capital is an input, a small one a
weight. What NumPy makes by default (float64, int64) is f32, unless it comes from one of the functions below. A model
comes in three forms:

    run     inputs are given at run time, all dimensions are fixed
    const   the inputs are initializers: all of it can be computed while loading
    sym     every dimension of an input is a symbol, those of the outputs are unknown
"""

from dataclasses import dataclass, field as made_by

import numpy as np

import graph_text
from onnx_file import Branch, FLOAT, Model, Tensor, type_of

FORMS = ("run", "const", "sym")
NAN, INF = float("nan"), float("inf")
LOWEST, HIGHEST = -2**63, 2**63 - 1
cases = {}  # id -> (why, function)


def known(case_id, why):

    def add(function):
        assert case_id not in cases, case_id
        cases[case_id] = (why, function)
        return function

    return add


class Meant(np.ndarray):
    """An array of f64 or i64 that is meant to be that."""


def maker(dtype):

    def make(values):
        with np.errstate(over="ignore", invalid="ignore"):
            made = np.asarray(values, dtype)
        return made.view(Meant) if dtype in (np.float64, np.int64) else made

    return make


f16, f32, f64, boolean = maker(np.float16), maker(np.float32), maker(np.float64), maker(bool)
i8, i16, i32, i64 = maker(np.int8), maker(np.int16), maker(np.int32), maker(np.int64)
u8, u16 = maker(np.uint8), maker(np.uint16)


def array(value):
    if isinstance(value, (Meant, Tensor, Branch, Open)):
        return value
    value = np.asarray(value)
    return f32(value) if value.dtype in (np.float64, np.int64) else value


def ramp(*shape, start=0):
    """start, start + 1, ... as f32."""
    return np.arange(start, start + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def ones(*shape):
    return np.ones(shape, np.float32)


def zeros(*shape):
    return np.zeros(shape, np.float32)


def noise(seed, *shape):
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def by_hand(computed, expected, within=1e-6):
    """The computed value, which has to be the one that was worked out by hand too."""
    np.testing.assert_allclose(np.asarray(computed, np.float64), np.asarray(expected, np.float64), 1e-5, within)
    return computed


@dataclass
class Open:
    """An output whose dimensions the file does not tell."""
    rank: int
    type: int = FLOAT


def model(body, opset=17, form="run", opsets=None, **values):
    values = {n: array(v) for n, v in values.items()}
    nodes, constants, defined, attached = graph_text.read(body, values)
    inputs, outputs = {}, {}
    for name, value in values.items():
        if name in attached:
            continue
        if isinstance(value, Open):
            outputs[name] = (value.type, [None] * value.rank)
        elif name in defined:
            outputs[name] = (type_of(value), [None] * value.ndim if form == "sym" else list(value.shape))
        elif name[0].islower() or form == "const":
            constants.append((name, value))
        else:
            inputs[name] = (type_of(value),
                            [f"{name}_{i}" for i in range(value.ndim)] if form == "sym" else list(value.shape))
    return Model(nodes, inputs, outputs, constants, {"": opset, **(opsets or {})})


@dataclass
class Right:
    """A sound model: `sets` holds (inputs, outputs) for each run; a relative and an absolute tolerance."""
    variant: str
    model: Model
    sets: list
    tolerance: tuple
    may_refuse: bool
    signed_zero: bool
    large: bool


@dataclass
class Refused:
    """A file, its use, and what the message has to mention. A sound one loads, a `may_load` one does not crash."""
    variant: str
    content: bytes
    mentions: list
    inputs: dict = None  # to run it; None to inspect it
    may_load: bool = False
    sound: bool = False
    name: str = "model.onnx"
    beside: dict = made_by(default_factory=dict)  # other files
    feeds: dict = made_by(default_factory=dict)  # input -> one of them
    model: Model = None


def tolerance_of(outputs):
    kinds = {v.dtype.str[1:] for v in outputs.values()}
    return (2e-3, 1e-3) if "f2" in kinds else (1e-5, 1e-6) if kinds & {"f4", "f8"} else (0, 0)


def right(variant, body, opset=17, forms=FORMS, rtol=None, atol=None, may_refuse=False, signed_zero=False, large=False,
          edit=None, opsets=None, more=(), **values):
    """Each form of a sound model. `edit` changes it before it is written, `more` has further inputs and outputs."""
    values = {n: array(v) for n, v in values.items()}
    _, _, defined, attached = graph_text.read(body, values)
    outputs = {n: v for n, v in values.items() if n in defined}
    inputs = {n: v for n, v in values.items() if n not in defined and n[0].isupper() and n not in attached}
    if not inputs:
        forms = ("run", )
    elif not any(v.ndim for v in inputs.values()):
        forms = [f for f in forms if f != "sym"]
    tolerance = tolerance_of(outputs)
    tolerance = (tolerance[0] if rtol is None else rtol, tolerance[1] if atol is None else atol)
    for form in forms:
        made = model(body, opset, form, opsets, **values)
        if edit:
            edit(made)
        name = "-".join(filter(None, [variant, "" if form == "run" else form])) or "plain"
        sets = [({} if form == "const" else inputs, outputs), *more]
        yield Right(name, made, sets, tolerance, may_refuse, signed_zero, large)


def refused(variant, content, *mentions, run=None, **options):
    """`content` is a Model or bytes; `mentions` may hold alternatives, "axis|rank"; `run` has the inputs of a run."""
    made = content if isinstance(content, Model) else None
    run = {n: array(v) for n, v in run.items()} if run is not None else None
    yield Refused(variant or "plain", made.encode() if made else content, list(mentions), run, model=made, **options)
