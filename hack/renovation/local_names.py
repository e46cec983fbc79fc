#!/usr/bin/env python3
"""Rename parameters and local variables of whole folders, scope by scope, from `tables/locals.tsv`.

    uv run --with libcst hack/renovation/local_names.py

A name that the function uses already is left alone and told of. Calls that name a renamed parameter follow by
the name of the function; mypy finds those that must not have.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import libcst as cst
from libcst.metadata import Assignment, ComprehensionScope, FunctionScope, MetadataWrapper, ScopeProvider

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dovetail"
Rule = tuple[str, str, str, str]
CALLED: dict[str, dict[str, str]] = defaultdict(dict)


def main() -> None:
    with (Path(__file__).parent / "tables" / "locals.tsv").open(encoding="utf-8") as table:
        rules: list[Rule] = [
            tuple(row) for row in csv.reader(table, delimiter="\t") if not row[0].startswith("#")
        ]  # type: ignore[misc]
    for path in sorted(SOURCE.rglob("*.py")):
        folder = str(path.parent.relative_to(SOURCE))
        mine = [rule for rule in rules if (folder + "/").startswith(rule[0] + "/")]
        if mine:
            rename_in(path, mine)
    for base in ("src", "tests", "hack", "examples"):
        for path in sorted((ROOT / base).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            changed = cst.parse_module(text).visit(Keywords()).code
            if changed != text:
                path.write_text(changed, encoding="utf-8")


def rename_in(path: Path, rules: list[Rule]) -> None:
    wrapper = MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8")), unsafe_skip_copy=False)
    scopes = {scope for scope in wrapper.resolve(ScopeProvider).values() if scope is not None}
    renames: dict[cst.CSTNode, str] = {}
    for scope in scopes:
        if isinstance(scope, FunctionScope | ComprehensionScope):
            for _, old, new, annotated in rules:
                found = (
                    [each for each in scope.assignments[old] if isinstance(each, Assignment)]
                    if old in scope.assignments
                    else []
                )
                found = [each for each in found if each.scope is scope]
                if not found or not fits(found, annotated):
                    continue
                if (
                    new in scope.assignments and any(each.scope is scope for each in scope.assignments[new])
                ) or clashes(scope, new):
                    print(f"{path.relative_to(ROOT)}: {old} stays, {new} is in use")
                    continue
                for each in found:
                    renames |= dict.fromkeys(nodes_of(each, old), new)
                    if isinstance(each.node, cst.Param):
                        note_call(scope, wrapper, old, new)
    if renames:
        path.write_text(wrapper.module.visit(Names(renames)).code, encoding="utf-8")


def note_call(scope: object, wrapper: MetadataWrapper, old: str, new: str) -> None:
    name = getattr(scope, "name", None)
    parent = getattr(getattr(scope, "parent", None), "name", None)
    if name == "__init__" and parent:
        CALLED[parent][old] = new
    elif name:
        CALLED[name][old] = new


def fits(found: list[Assignment], annotated: str) -> bool:
    if not annotated:
        return True
    for each in found:
        if isinstance(each.node, cst.Param):
            shown = each.node.annotation
            return shown is not None and cst.Module([]).code_for_node(shown.annotation) == annotated
    return False


def clashes(scope: FunctionScope | ComprehensionScope, new: str) -> bool:
    return any(True for access in scope.accesses if getattr(access.node, "value", None) == new)


def nodes_of(each: Assignment, old: str) -> Iterator[cst.CSTNode]:
    node = each.node
    if isinstance(node, cst.Param):
        yield node.name
    elif isinstance(node, cst.Name):
        yield node
    for access in each.references:
        if isinstance(access.node, cst.Name) and access.node.value == old:
            yield access.node


class Names(cst.CSTTransformer):
    def __init__(self, renames: dict[cst.CSTNode, str]) -> None:
        self._renames = renames

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self._renames.get(original_node)
        return updated_node if new is None else updated_node.with_changes(value=new)


class Keywords(cst.CSTTransformer):
    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        function = updated_node.func
        name = (
            function.attr.value if isinstance(function, cst.Attribute) else getattr(function, "value", None)
        )
        known = CALLED.get(name) if isinstance(name, str) else None
        if not known:
            return updated_node
        args = [
            arg.with_changes(keyword=arg.keyword.with_changes(value=known[arg.keyword.value]))
            if arg.keyword is not None and arg.keyword.value in known
            else arg
            for arg in updated_node.args
        ]
        return updated_node.with_changes(args=args)


if __name__ == "__main__":
    main()
