#!/usr/bin/env python3
"""Measure how the code reads: names, modules, constructors, caches, cycles.

figures.py [-v] [CHECKOUT]    a table; with -v, what is behind each figure
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

IRREGULAR = frozenset(
    [
        "told",
        "kept",
        "made",
        "held",
        "seen",
        "found",
        "given",
        "taken",
        "gone",
        "sent",
        "left",
        "born",
        "drawn",
        "known",
        "shown",
        "written",
        "heard",
        "bought",
        "brought",
        "built",
        "chosen",
        "done",
        "driven",
        "fallen",
        "felt",
        "forgotten",
        "hidden",
        "laid",
        "led",
        "lent",
        "lost",
        "meant",
        "met",
        "paid",
        "said",
        "sold",
        "spent",
        "spoken",
        "stood",
        "stuck",
        "swept",
        "taught",
        "thrown",
        "torn",
        "understood",
        "won",
        "worn",
    ]
)
PURE = ("scheduling", "disruption")
CACHES = {"cache", "lru_cache", "WeakKeyDictionary", "WeakValueDictionary", "OrderedDict", "defaultdict"}


@dataclass
class Code:
    """One module: its name, its lines, its tree."""

    name: str
    lines: int
    tree: ast.Module
    package: str


def read_code(root: Path) -> list[Code]:
    found = []
    for file in sorted((root / "src" / "dovetail").rglob("*.py")):
        parts = file.relative_to(root / "src").with_suffix("").parts
        package = ".".join(parts[:-1])
        name = package if parts[-1] == "__init__" else ".".join(parts)
        text = file.read_text()
        found.append(Code(name, text.count("\n"), ast.parse(text), package))
    return found


def functions(code: Iterable[Code]) -> Iterator[str]:
    for each in code:
        for node in ast.walk(each.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                decorators = {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}
                if not node.name.startswith("__") and not decorators & {
                    "property",
                    "cached_property",
                    "setter",
                }:
                    yield node.name.strip("_")


def participle(name: str) -> bool:
    return "_" not in name and (name in IRREGULAR or bool(re.fullmatch(r"\w{3,}ed", name)))


def classes_used_twice(code: Iterable[Code]) -> tuple[list[str], int]:
    names = Counter(
        node.name
        for each in code
        for node in each.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1), len(names)


def imports(code: Code, known: set[str], *, at_top: bool) -> set[str]:
    nodes = top_statements(code.tree) if at_top else ast.walk(code.tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                found.add(whole if whole in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return (found & known) - {code.name}


def top_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in tree.body:
        if not isinstance(node, ast.If):
            yield node


def lonely_modules(code: list[Code]) -> list[str]:
    """Modules of under 90 lines that one module of their own package imports, and no other."""
    known = {each.name for each in code}
    importers: dict[str, set[str]] = defaultdict(set)
    for each in code:
        for module in imports(each, known, at_top=False):
            importers[module].add(each.name)
    packages = {each.name: each.package for each in code}
    return sorted(
        each.name
        for each in code
        if each.lines < 90 and each.name != each.package
        if len(importers[each.name]) == 1 and packages[next(iter(importers[each.name]))] == each.package
    )


def cycles(code: list[Code]) -> list[list[str]]:
    """Modules of one package that import each other in a circle, typing included."""
    by_package: dict[str, list[Code]] = defaultdict(list)
    for each in code:
        by_package[each.package].append(each)
    found = []
    for members in by_package.values():
        known = {each.name for each in members if each.name != each.package}
        edges = {each.name: imports(each, known, at_top=False) for each in members}
        found += [sorted(group) for group in components(edges) if len(group) > 1]
    return sorted(found, key=len, reverse=True)


def components(edges: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected components, by reachability."""
    reach: dict[str, set[str]] = {}
    for start in edges:
        seen, todo = set(), [start]
        while todo:
            for each in edges.get(todo.pop(), ()):
                if each not in seen:
                    seen.add(each)
                    todo.append(each)
        reach[start] = seen
    groups, done = [], set()
    for start in edges:
        if start not in done:
            group = {each for each in reach[start] if start in reach.get(each, ())} | {start}
            done |= group
            groups.append(group)
    return groups


def constructors(code: Iterable[Code]) -> list[tuple[int, str]]:
    found = []
    for each in code:
        for node in ast.walk(each.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    arguments = inner.args
                    count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
                    found.append((count, f"{each.name}.{node.name}"))
    return sorted(found, reverse=True)


def module_caches(code: Iterable[Code]) -> list[str]:
    """What remembers between calls at the top of a pure module."""
    found = []
    for each in code:
        if each.name.split(".")[1:2] and each.name.split(".")[1] in PURE:
            for node in each.tree.body:
                found += [f"{each.name}:{name}" for name in _remembering(node)]
    return found


def _remembering(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        if {ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in node.decorator_list} & CACHES:
            yield node.name
        return
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return
    value = node.value
    empty = ast.unparse(value) in ("{}", "[]")
    makers = {*CACHES, "dict", "set", "list"}
    made = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in makers
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    fresh = empty or (made and not getattr(value, "args", ()))
    if fresh and isinstance(target, ast.Name) and target.id != "__all__":
        yield target.id


def positional_logs(code: Iterable[Code]) -> tuple[int, int]:
    placed = every = 0
    for each in code:
        for node in ast.walk(each.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value).lower()
                if node.func.attr in {"debug", "info", "warning", "error", "exception"} and "log" in owner:
                    every += 1
                    first = node.args[0] if node.args else None
                    if isinstance(first, ast.Constant) and re.search(r"%[sdr]", str(first.value)):
                        placed += 1
    return placed, every


def rows(root: Path) -> list[tuple[str, str]]:
    code = read_code(root)
    names = list(functions(code))
    one = sum("_" not in name for name in names)
    bare = sum(participle(name) for name in names)
    twice, public = classes_used_twice(code)
    lonely, circles, wide = lonely_modules(code), cycles(code), constructors(code)
    placed, logged = positional_logs(code)
    caches = module_caches(code)
    return [
        ("functions", f"{len(names)}"),
        ("function names of one word", f"{100 * one / len(names):.1f} %"),
        ("function names that are a bare participle", f"{100 * bare / len(names):.1f} %"),
        ("public class names used twice or more", f"{len(twice)} of {public}"),
        ("modules", f"{len(code)}"),
        ("of under 90 lines with one importer, in their own package", f"{len(lonely)}"),
        ("widest constructors", ", ".join(str(count) for count, _ in wide[:5])),
        ("constructors of more than seven arguments", f"{sum(count > 7 for count, _ in wide)}"),
        ("module-level caches in the pure core", f"{len(caches)}"),
        ("import cycles inside packages", ", ".join(_describe_cycle(each) for each in circles) or "none"),
        ("source lines", f"{sum(each.lines for each in code):,}"),
        ("logger calls with positional %s", f"{placed} of {logged}"),
    ]


def _describe_cycle(group: list[str]) -> str:
    return f"{group[0].removeprefix('dovetail.').rpartition('.')[0]} {len(group)}"


def main() -> int:
    here = Path(__file__).resolve().parents[2]
    words = [each for each in sys.argv[1:] if each != "-v"]
    root = Path(words[0]) if words else here
    table = rows(root)
    width = max(len(name) for name, _ in table)
    for name, value in table:
        print(f"{name:<{width}}  {value}")
    if "-v" in sys.argv:
        code = read_code(root)
        print("\nclasses used twice:", *classes_used_twice(code)[0])
        print("\nlonely modules:", *lonely_modules(code))
        print("\nconstructors:", *(f"{name} ({count})" for count, name in constructors(code) if count > 7))
        print("\ncaches:", *module_caches(code))
        for group in cycles(code):
            print("\ncycle:", *group)
    return 0


if __name__ == "__main__":
    sys.exit(main())
