"""Small faults that tests should notice: every place of a source file where one can be put, and what it looks like.

    for mutant in find_mutants("objectives/pcar.py", source):
        broken = mutant.apply(source)

A mutant changes one thing: a comparison, an operator, a number, a condition; or it drops a keyword argument, a call
made for its effect, or a raise. Docstrings, annotations, messages, assertions, decorators and imports are left
alone.
"""

# ruff: noqa: N815 (ast says what a visitor's methods are called)

from __future__ import annotations

import ast
import copy
from hashlib import sha256

from msgspec import Struct

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS = {"any": "all", "all": "any", "min": "max", "max": "min", "floor": "ceil", "ceil": "floor"}
_FUNCTIONS = {**_CALLS, "sum": "max", "sorted": "list"}
_METHODS = {**_CALLS, "sum": "mean", "mean": "sum"}
# What such a call does to its one operand may matter to nobody.
_TRANSPARENT = {"abs", "strip", "lstrip", "rstrip", "lower", "casefold", "detach", "set"}


class Mutant(Struct, frozen=True):
    """One fault: `new` in the place of bytes `start` to `end` of a file; `function` is the one it stands in, if any.

    Mutant(file="objectives/pcar.py", line=31, function="pcar_factors", kind="comparison", start=812, end=817,
           old="a < b", new="(a <= b)")
    """

    file: str
    line: int
    function: str
    kind: str
    start: int
    end: int
    old: str
    new: str

    def key(self, source: bytes) -> str:
        """A name for it that holds as long as its file is as it is now."""
        place = f"{self.file}\0{self.start}\0{self.end}\0{self.new}\0".encode()
        return sha256(place + source).hexdigest()[:16]

    def apply(self, source: bytes) -> bytes:
        """The file with the fault in it."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}:{self.line} {self.kind}: {old}  ->  {new}"


def find_mutants(file: str, source: bytes) -> list[Mutant]:
    """Every mutant of a file, in the order of their places."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found), key=lambda mutant: (mutant.start, mutant.end, mutant.new))


class _Finder(ast.NodeVisitor):
    """Walks over a file and notes what could be changed."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        self.source = source
        self.found: list[Mutant] = []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self._function = ""

    # ------------------------------------------------------------------------------------------------------ where it is

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._function
        self._scope.append(node.name)
        self._function = ".".join(self._scope)
        for default in [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]:
            self.visit(default)
        self._scope.append("<locals>")
        self._visit_body(node.body)
        del self._scope[-2:]
        self._function = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        self._visit_body(node.body)
        del self._scope[-1:]

    def visit_Module(self, node: ast.Module) -> None:
        self._visit_body(node.body)

    def _visit_body(self, body: list[ast.stmt]) -> None:
        for number, statement in enumerate(body):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not (is_text and number == 0):
                self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """What cannot be otherwise is no behaviour."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Before Python 3.12 nothing inside says where it stands, and most are messages."""

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not (isinstance(node.value, ast.Name) and node.value.id in ("Literal", "Annotated")):
            self.generic_visit(node)

    # ------------------------------------------------------------------------------------------------------- statements

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self._note("raise dropped", node, "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            self._note("call dropped", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._note("statement dropped", node, "pass")
        if type(node.op) in _OPERATORS:
            changed = copy.deepcopy(node)
            changed.op = _OPERATORS[type(node.op)]()
            self._note("operator", node, ast.unparse(changed))
        self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._note("continue", node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._note("break", node, "continue")

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        # A comparison is turned round by a mutant of its own, and what only a type checker sees is no behaviour.
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if not isinstance(node.test, ast.Compare | ast.UnaryOp | ast.Constant) and not is_for_types:
            self._replace("condition", node.test, ast.UnaryOp(ast.Not(), node.test))
        self.generic_visit(node)

    visit_While = visit_If
    visit_IfExp = visit_If

    # ------------------------------------------------------------------------------------------------------ expressions

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._note("filter dropped", test, "True")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                changed = copy.deepcopy(node)
                changed.ops[place] = other()
                self._replace("comparison", node, changed)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace("and/or", node, changed)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._replace("sign" if isinstance(node.op, ast.USub) else "not", node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_type = isinstance(node.op, ast.BitOr) and not self._function  # a union of types, or of tables
        if type(node.op) in _OPERATORS and not is_type:
            changed = copy.deepcopy(node)
            changed.op = _OPERATORS[type(node.op)]()
            self._replace("operator", node, changed)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._note("constant", node, str(not value))
        elif isinstance(value, int):
            self._note("constant", node, str(value + 1))
        elif isinstance(value, float):
            self._note("constant", node, repr(value * 2 if value else 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        changed = copy.deepcopy(node)
        match changed.func:
            case ast.Name(id=name) if name in _FUNCTIONS:
                changed.func.id = _FUNCTIONS[name]
                changed.keywords = [] if name == "sorted" else changed.keywords
                self._replace("call", node, changed)
            case ast.Attribute(attr=name) if name in _METHODS:
                changed.func.attr = _METHODS[name]
                self._replace("call", node, changed)
        match node:
            case ast.Call(func=ast.Name(id=name), args=[operand], keywords=[]) if name in _TRANSPARENT:
                self._replace("call dropped", node, operand)
            case ast.Call(func=ast.Attribute(value=operand, attr=name), args=[], keywords=[]) if name in _TRANSPARENT:
                self._replace("call dropped", node, operand)
        for place, keyword in enumerate(node.keywords):
            if keyword.arg not in (None, "strict"):
                changed = copy.deepcopy(node)
                del changed.keywords[place]
                self._replace(f"{keyword.arg}= dropped", node, changed)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        # `strict=True` is an assertion: what is of one length by construction stays so.
        if node.arg != "strict":
            self.generic_visit(node)

    # ---------------------------------------------------------------------------------------------------------- details

    def _replace(self, kind: str, node: ast.expr, by: ast.expr) -> None:
        # In parentheses: what stands around it may bind more tightly than it does.
        self._note(kind, node, f"({ast.unparse(by)})")

    def _note(self, kind: str, node: ast.stmt | ast.expr, new: str) -> None:
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        old = self.source[start:end].decode()
        self.found.append(Mutant(self.file, node.lineno, self._function, kind, start, end, old, new))
