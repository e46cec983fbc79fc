"""Small changes to Python source, each of which a test ought to notice: found with `ast`, made as text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

COMPARED = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
RECKONED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*"}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One piece of source text, where it stands, and what it becomes."""

    start: int
    end: int
    new: str

    def applied(self, source: str) -> str:
        """The source with this one change."""
        return source[: self.start] + self.new + source[self.end :]


class Offsets:
    """Places of syntax nodes in the text; `ast` counts columns in bytes."""

    def __init__(self, source: str) -> None:
        self.source = source
        lines = source.splitlines(keepends=True)
        self._lines = lines
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """The index of a line (from 1) and column (in bytes)."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node begins and ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.source[start:end]


def mutations(source: str) -> list[Mutation]:
    """Every change we know for this source, in the order of the text."""
    offsets = Offsets(source)
    tree = ast.parse(source)
    found = chain.from_iterable(_of(node, offsets) for node in _executed(tree))
    return sorted(set(found), key=lambda each: (each.start, each.end, each.new))


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes inside functions; not annotations, docstrings, defaults of records or names of modules."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in child.body:
                yield from _below(statement)
        else:
            yield from _executed(child)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom):
        return  # an assertion for the type checker, and words
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return  # of zip: an assertion as well
    yield node
    skipped = {id(node.annotation)} if isinstance(node, ast.AnnAssign) else set()
    for child in ast.iter_child_nodes(node):
        if id(child) not in skipped:
            yield from _below(child)


def _of(node: ast.AST, offsets: Offsets) -> Iterator[Mutation]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield _joined(left, COMPARED[type(op)], right, offsets)
        case ast.BoolOp(op=op, values=[first, *_, last]):
            yield _replaced(node, f"({offsets.text(first)})", offsets)
            yield _replaced(node, f"({offsets.text(last)})", offsets)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _replaced(node, f"({offsets.text(operand)})", offsets)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in RECKONED and not _words(left, right):
            yield _joined(left, RECKONED[type(op)], right, offsets)
        case ast.Constant(value=bool(value)):
            yield _replaced(node, str(not value), offsets)
        case ast.Constant(value=int(value)):
            yield _replaced(node, f"({value + 1})", offsets)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):
                yield _replaced(test, f"(not ({offsets.text(test)}))", offsets)
        case ast.Call(func=ast.Name(id=name) as called) if name in SWAPPED:
            yield _replaced(called, SWAPPED[name], offsets)
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield _replaced(node, "pass", offsets)
        case ast.Continue():
            yield _replaced(node, "break", offsets)
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield _replaced(value, "None", offsets)


def _words(*operands: ast.expr) -> bool:
    """Text is put together with `+` as well, and takes no other sign."""
    return any(isinstance(each, ast.JoinedStr | ast.List | ast.Tuple) or _text(each) for each in operands)


def _text(operand: ast.expr) -> bool:
    return isinstance(operand, ast.Constant) and isinstance(operand.value, str)


def _replaced(node: ast.expr | ast.stmt, new: str, offsets: Offsets) -> Mutation:
    return Mutation(*offsets.span(node), new)


def _joined(left: ast.expr, sign: str, right: ast.expr, offsets: Offsets) -> Mutation:
    """The sign between two operands, replaced; brackets around the operands stay where they are."""
    start, end = offsets.span(left)[1], offsets.span(right)[0]
    between = offsets.source[start:end]
    before = between[: len(between) - len(between.lstrip(" )\n"))]
    after = between[len(between.rstrip(" (\n")) :]
    return Mutation(start, end, f"{before or ' '}{sign}{after or ' '}")
