"""A changed function put in the place of the one that is loaded, so that a mutant needs no new process."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType

from mutations import Offsets

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[
    tuple[str, int], ...
]  # names from the module inwards, each with how many namesakes came before it


def enclosing(source: str, start: int, end: int) -> tuple[Place, ...]:
    """The functions whose bodies hold this piece of the text, outermost first; empty outside of functions."""
    offsets = Offsets(source)
    found: list[Place] = []

    def look(node: ast.AST, place: Place) -> None:
        met: dict[str, int] = {}
        for child in _scopes(node):
            number = met.get(child.name, 0)
            met[child.name] = number + 1
            inner = (*place, (child.name, number))
            body = offsets.span(child.body[0])[0], offsets.span(child.body[-1])[1]
            if body[0] <= start and end <= body[1]:
                if isinstance(child, FUNCTION):
                    found.append(inner)
                look(child, inner)

    look(ast.parse(source), ())
    return tuple(found)


def _scopes(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes right inside of a node, in the order of the text; not those inside of these."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTION | ast.ClassDef):
            yield child
        elif not isinstance(child, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            yield from _scopes(child)


def code_at(module: CodeType, place: Place) -> CodeType:
    """The compiled function at a place."""
    code = module
    for name, number in place:
        inner = sorted(
            (each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name),
            key=lambda each: each.co_firstlineno,
        )
        code = inner[number]
    return code


def live_functions(paths: Iterable[str]) -> dict[str, list[FunctionType]]:
    """The functions that are loaded, by the file that they came from."""
    found: dict[str, list[FunctionType]] = {path: [] for path in paths}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in found:
            found[each.__code__.co_filename].append(each)
    return found


def swap(
    functions: Sequence[FunctionType], path: str, before: str, after: str, places: tuple[Place, ...]
) -> bool:
    """Give live functions their changed code; false when that cannot be done without a new process."""
    old, new = (compile(text, path, "exec", dont_inherit=True) for text in (before, after))
    pairs = {}
    for place in places:
        was = code_at(old, place)
        pairs[was.co_qualname, was.co_firstlineno] = code_at(new, place)
    swapped = False
    for each in functions:
        code = pairs.get((each.__code__.co_qualname, each.__code__.co_firstlineno))
        if code is None:
            continue
        if code.co_freevars != each.__code__.co_freevars:
            return False
        each.__code__ = code
        swapped = True
    return swapped
