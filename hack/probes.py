"""Which test reaches which piece of code: probes in modules as they are imported, and no file changed.

A probe stands at the beginning of every run of statements in a function, and after each statement with a body
of its own. What a probe says is kept in `Probes.seen` until somebody clears it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from mutations import Offsets

PROBE = "__dovetail_probe__"
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
BODIES = ("body", "orelse", "finalbody")


class Probes:
    """The probes of some files, numbered in the order of the files and of their text."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self.seen: set[int] = set()
        self._spans: dict[
            str, list[tuple[int, int, int]]
        ] = {}  # by file: where each run stands, and its number
        self._trees: dict[str, ast.Module] = {}  # by path, with probes
        self._changed: dict[str, str] = {}  # by path: the source to take for the one that is there
        self._number = 0
        for file in files:
            self._probe(file, root / file)

    @property
    def paths(self) -> list[str]:
        """The files with probes."""
        return list(self._trees)

    def install(self) -> None:
        """Have modules that are imported from now on say what is reached."""
        setattr(builtins, PROBE, self.seen.add)
        read = SourceFileLoader.get_code
        probes = self

        def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
            path = loader.get_filename(fullname)
            if path in probes._changed:
                return compile(probes._changed[path], path, "exec", dont_inherit=True)
            tree = probes._trees.get(path)
            return read(loader, fullname) if tree is None else compile(tree, path, "exec", dont_inherit=True)

        SourceFileLoader.get_code = get_code  # type: ignore[method-assign]

    def change(self, path: str, source: str) -> None:
        """Take this source for a module, should it be imported later."""
        self._changed[path] = source

    def at(self, file: str, place: int) -> int | None:
        """The number of the probe nearest around a place in the text, if there is one."""
        around = [(end - start, number) for start, end, number in self._spans[file] if start <= place < end]
        return min(around)[1] if around else None

    def _probe(self, file: str, path: Path) -> None:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        offsets, spans = Offsets(source), self._spans.setdefault(file, [])
        for function in [node for node in ast.walk(tree) if isinstance(node, FUNCTION)]:
            first = 1 if ast.get_docstring(function, clean=False) is not None else 0
            function.body[first:] = self._probed(function.body[first:], offsets, spans)
        self._trees[str(path)] = ast.fix_missing_locations(tree)

    def _probed(
        self, statements: list[ast.stmt], offsets: Offsets, spans: list[tuple[int, int, int]]
    ) -> list[ast.stmt]:
        """The statements with a probe before each run; functions among them are met by the walk."""
        result: list[ast.stmt] = []
        fresh = True
        for statement in statements:
            if fresh:
                number = self._number
                self._number += 1
                result.append(_told(number, statement))
            start, end = offsets.span(statement)
            spans.append((start, end, number))
            result.append(statement)
            fresh = False
            if isinstance(statement, FUNCTION | ast.ClassDef):
                continue
            for owner, name in _bodies(statement):
                fresh = True
                setattr(owner, name, self._probed(getattr(owner, name), offsets, spans))
        return result


def _bodies(statement: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
    """The lists of statements inside of one, each with what holds it."""
    parts = [statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
    for part in parts:
        for name in BODIES:
            inside = getattr(part, name, None)
            if isinstance(inside, list) and inside:
                yield part, name


def _told(number: int, before: ast.stmt) -> ast.stmt:
    call = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(number)], [])
    return ast.copy_location(ast.Expr(call), before)
