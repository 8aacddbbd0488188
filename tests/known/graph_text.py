"""The nodes of a graph from a line of text that Python can parse: "Y = Relu(Conv(X, w, group=2) + c); Z = Neg(Y)".

Calls are nodes, keywords are attributes, operators are Add, Sub, Mul, Div, MatMul, Pow and Neg, None is an input that
is not given, _ an output that nobody wants. A number is a constant of rank 0, a list one of rank 1: float where it has
a point, int64 otherwise. A keyword whose value is a name takes that array or Branch. The node of Y is called make_Y.
"""

import ast

import numpy as np

from onnx_file import Branch, Node

OPERATORS = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.MatMult: "MatMul", ast.Pow: "Pow"}


def literal(expression):
    """The number or list of numbers that stands here, or None."""
    try:
        value = ast.literal_eval(expression)
    except ValueError:
        return None
    return None if isinstance(value, (str, bool)) else value


class Reader:

    def __init__(self, named):
        self.named, self.nodes, self.constants, self.count, self.attached = named, [], [], 0, set()

    def fresh(self):
        self.count += 1
        return f"v{self.count}_"

    def operand(self, expression):
        """The name of the value of an expression."""
        if isinstance(expression, ast.Name):
            return expression.id
        if isinstance(expression, ast.Constant) and expression.value is None:
            return ""
        value = literal(expression)
        if value is None:
            return self.node(expression, [self.fresh()])
        name = self.fresh()
        flat = value if isinstance(value, list) else [value]
        kind = np.float32 if any(isinstance(v, float) for v in flat) else np.int64
        self.constants.append((name, np.asarray(value, kind)))
        return name

    def keyword(self, expression):
        if isinstance(expression, ast.Name):
            value = self.named[expression.id]
            self.attached.add(expression.id)
            if isinstance(value, Branch):
                inner = Reader(self.named)
                inner.read(value.body)
                value.nodes = inner.nodes
            return value
        return ast.literal_eval(expression)

    def node(self, expression, outputs):
        domain, attributes = "", {}
        if isinstance(expression, ast.BinOp):
            op, inputs = OPERATORS[type(expression.op)], [expression.left, expression.right]
        elif isinstance(expression, ast.UnaryOp):
            op, inputs = "Neg", [expression.operand]
        else:
            *parts, op = ast.unparse(expression.func).split(".")
            domain, inputs = ".".join(parts), expression.args
            attributes = {k.arg: self.keyword(k.value) for k in expression.keywords}
        inputs = [self.operand(i) for i in inputs]
        self.nodes.append(Node(op, inputs, outputs, attributes, domain, "make_" + outputs[0]))
        return outputs[0]

    def read(self, body):
        for line in ast.parse(body).body:
            target = line.targets[0]
            names = [n.id for n in target.elts] if isinstance(target, ast.Tuple) else [target.id]
            self.node(line.value, ["" if n == "_" else n for n in names])


def read(body, named):
    """(nodes, constants, names that the nodes define, names whose values went into attributes)"""
    reader = Reader(named)
    reader.read(body.strip())
    return reader.nodes, reader.constants, {o for n in reader.nodes for o in n.outputs}, reader.attached
