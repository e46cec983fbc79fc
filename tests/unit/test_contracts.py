"""Rules of the source that a reader may rely on, checked over the whole of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import dovetail

SOURCE = Path(dovetail.__file__).parent


def _list_modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name, parsed."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("dovetail", *path.relative_to(SOURCE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def _list_imports(tree: ast.Module, known: dict[str, ast.Module]) -> Iterator[str]:
    """The modules of ours it imports: at its top, inside functions, and for type checking alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            submodules = [f"{node.module}.{each.name}" for each in node.names]
            yield from (each for each in submodules if each in known)
            if not all(each in known for each in submodules):
                yield node.module


# Here two packages still import each other: the EC2 provider and its controllers, and the parts of the
# simulated API server. Within each package the rule holds.
BETWEEN_PACKAGES = ("dovetail.providers.aws.", "dovetail.sim.kube.")


def _is_exempt(name: str, imported: str) -> bool:
    among = any(name.startswith(each) and imported.startswith(each) for each in BETWEEN_PACKAGES)
    return among and name.rpartition(".")[0] != imported.rpartition(".")[0]


def test_no_module_imports_in_a_circle() -> None:
    """Modules can be read in one order, each before those that build on it; typing counts."""
    modules = _list_modules()
    graph = {
        name: {each for each in _list_imports(tree, modules) if each != name and not _is_exempt(name, each)}
        for name, tree in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"imports go round in a circle: {' <- '.join(error.args[1])}") from error
