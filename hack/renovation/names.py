"""Rename definitions by what they mean: top-level names by imports and scopes, members by mypy's types."""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mypy import build, nodes, patterns, types
from mypy.main import process_options
from mypy.subtypes import is_protocol_implementation

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CODE = ("src", "tests", "hack", "examples")
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Member = tuple[str, str]
SETTERS = {"setattr", "delattr", "getattr", "hasattr", "object", "attrgetter"}
REPLACES = {"msgspec.structs.replace", "dataclasses.replace", "copy.replace"}


@dataclass
class Edits:
    """Words to be replaced, by file and place; one place takes one word."""

    by_file: dict[Path, dict[tuple[int, int], tuple[str, str]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def add(self, file: Path, line: int, column: int, old: str, new: str) -> None:
        """Lines count from 1, columns are bytes from 0."""
        self.by_file[file][line, column] = (old, new)

    def apply(self) -> int:
        count = 0
        for file, places in self.by_file.items():
            lines = [line.encode() for line in file.read_text().splitlines(keepends=True)]
            for (line, column), (old, new) in sorted(places.items(), reverse=True):
                text = lines[line - 1]
                end = column + len(old.encode())
                if text[column:end] != old.encode():
                    print(f"{file}:{line}:{column}: {text[column:end].decode()!r} where {old!r} was expected")
                    continue
                lines[line - 1] = text[:column] + new.encode() + text[end:]
                count += 1
            file.write_bytes(b"".join(lines))
        return count


def code_files() -> Iterator[Path]:
    for folder in CODE:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if HERE not in file.parents:
                yield file


def module_of(file: Path) -> str:
    base = ROOT / file.relative_to(ROOT).parts[0]
    parts = list(file.relative_to(base).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# Top-level names


class Sources:
    """Every file, its tree, and what each name at its top means."""

    def __init__(self) -> None:
        self.files = {module_of(file): file for file in code_files()}
        self.texts = {module: file.read_text() for module, file in self.files.items()}
        self.trees = {module: ast.parse(text) for module, text in self.texts.items()}
        self.passed_on = {
            module: {
                each.name
                for node in tree.body
                if isinstance(node, ast.ImportFrom) and node.module != module
                for each in node.names
            }
            for module, tree in self.trees.items()
            if self.files[module].name == "__init__.py"
        }
        self.bound = {module: dict(self._bindings(module, tree)) for module, tree in self.trees.items()}

    def _bindings(self, module: str, tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                source = self._absolute(module, node)
                for each in node.names:
                    # A package may pass on a function that is called as its module is.
                    passed_on = each.name in self.passed_on.get(source, ())
                    if f"{source}.{each.name}" in self.files and not passed_on:
                        yield each.asname or each.name, (f"{source}.{each.name}", "")
                    else:
                        yield each.asname or each.name, (source, each.name)
        for statement in top_level(tree):
            for name in defined_names(statement):
                yield name, (module, name)

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = module.split(".")
        if self.files[module].name != "__init__.py":
            package = package[:-1]
        package = package[: len(package) - node.level + 1]
        return ".".join([*package, *([node.module] if node.module else [])])

    def canonical(self, module: str, name: str) -> tuple[str, str]:
        """Where a name is defined, through every module that only passes it on."""
        for _ in range(10):
            target = self.bound.get(module, {}).get(name)
            if target is None or target == (module, name) or not target[1]:
                return module, name
            module, name = target
        return module, name


def top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop(0)
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            todo.extend(each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt))


def defined_names(node: ast.stmt) -> set[str]:
    if isinstance(node, Definition):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return set()


def rename_top_level(sources: Sources, renames: Mapping[tuple[str, str], str], edits: Edits) -> None:
    for module, tree in sources.trees.items():
        TopLevel(sources, module, renames, edits).walk(tree)


class TopLevel:
    """The uses of top-level names in one file."""

    def __init__(
        self, sources: Sources, module: str, renames: Mapping[tuple[str, str], str], edits: Edits
    ) -> None:
        self.sources, self.module, self.renames, self.edits = sources, module, renames, edits
        self.file = sources.files[module]
        self.lines = sources.texts[module].splitlines()

    def walk(self, tree: ast.Module) -> None:
        for node in top_level(tree):
            if isinstance(node, ast.Assign) and any(
                isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
            ):
                self._listed(node.value)
        self._visit(tree, frozenset())

    def _new(self, name: str) -> str | None:
        found = self.sources.bound[self.module].get(name)
        if found is None or not found[1]:
            return None
        return self.renames.get(self.sources.canonical(*found))

    def _listed(self, value: ast.expr) -> None:
        for each in ast.walk(value):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                new = self._new(each.value)
                if new:
                    self.edits.add(self.file, each.lineno, each.col_offset + 1, each.value, new)

    def _visit(self, node: ast.AST, hidden: frozenset[str]) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self._function(node, hidden)
            return
        if isinstance(node, ast.ClassDef):
            self._definition(node, hidden)
            for each in (*node.bases, *node.keywords, *node.decorator_list):
                self._visit(each, hidden)
            own = {name for each in node.body for name in defined_names(each)}
            for statement in node.body:
                inner = hidden if isinstance(statement, Definition) else hidden | (own & _assigned(statement))
                self._visit(statement, inner)
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            names = {
                each.id
                for one in node.generators
                for each in ast.walk(one.target)
                if isinstance(each, ast.Name)
            }
            hidden = hidden | names
        if isinstance(node, ast.ImportFrom):
            self._import(node)
        elif isinstance(node, ast.Name) and node.id not in hidden:
            new = self._new(node.id)
            if new and not self._aliased(node.id):
                self.edits.add(self.file, node.lineno, node.col_offset, node.id, new)
        elif isinstance(node, ast.Attribute):
            self._of_module(node, hidden)
        elif isinstance(node, ast.Call):
            self._patched(node, hidden)
        for child in ast.iter_child_nodes(node):
            self._visit(child, hidden)

    def _aliased(self, name: str) -> bool:
        """Whether the file calls it by another name than its own."""
        found = self.sources.bound[self.module][name]
        return found[1] != name

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, hidden: frozenset[str]
    ) -> None:
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
        outside = [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]
        outside += [each.annotation for each in every if each.annotation is not None]
        if not isinstance(node, ast.Lambda):
            self._definition(node, hidden)
            outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
        for each in outside:
            self._visit(each, hidden)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        inner = hidden | {each.arg for each in every} | _locals(body)
        for each in body:
            self._visit(each, inner)

    def _definition(self, node: Definition, hidden: frozenset[str]) -> None:
        del hidden
        found = self.sources.bound[self.module].get(node.name)
        if found == (self.module, node.name) and node in self.sources.trees[self.module].body:
            new = self.renames.get(found)
            if new:
                line, column = name_position(node, self.lines)
                self.edits.add(self.file, line, column, node.name, new)

    def _import(self, node: ast.ImportFrom) -> None:
        source = self.sources._absolute(self.module, node)
        for each in node.names:
            new = self.renames.get(self.sources.canonical(source, each.name))
            if new:
                self.edits.add(self.file, each.lineno, each.col_offset, each.name, new)

    def _of_module(self, node: ast.Attribute, hidden: frozenset[str]) -> None:
        if isinstance(node.value, ast.Name) and node.value.id not in hidden:
            found = self.sources.bound[self.module].get(node.value.id)
            if found is not None and not found[1]:
                new = self.renames.get(self.sources.canonical(found[0], node.attr))
                if new:
                    column = (node.end_col_offset or 0) - len(node.attr.encode())
                    self.edits.add(self.file, node.end_lineno or node.lineno, column, node.attr, new)

    def _patched(self, node: ast.Call, hidden: frozenset[str]) -> None:
        """`monkeypatch.setattr(module, "name", …)`."""
        if len(node.args) < 2 or not isinstance(node.func, ast.Attribute) or node.func.attr not in SETTERS:
            return
        target, name = node.args[0], node.args[1]
        if not (isinstance(target, ast.Name) and target.id not in hidden):
            return
        found = self.sources.bound[self.module].get(target.id)
        if found and not found[1] and isinstance(name, ast.Constant) and isinstance(name.value, str):
            new = self.renames.get(self.sources.canonical(found[0], name.value))
            if new:
                self.edits.add(self.file, name.lineno, name.col_offset + 1, name.value, new)


def _assigned(statement: ast.stmt) -> set[str]:
    return defined_names(statement)


def _locals(body: Iterable[ast.AST]) -> set[str]:
    """Names that a function binds itself, nested functions left out."""
    found: set[str] = set()
    shared: set[str] = set()
    todo = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, Definition):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Global | ast.Nonlocal):
            shared |= set(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, ast.MatchAs | ast.MatchStar) and node.name
        ):
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            todo.extend(each.iter for each in node.generators)
            continue
        todo.extend(ast.iter_child_nodes(node))
    return found - shared


def name_position(node: Definition, lines: list[str]) -> tuple[int, int]:
    found = re.compile(rf"(?:class|def)\s+({re.escape(node.name)})\b").search(lines[node.lineno - 1])
    assert found is not None
    return node.lineno, len(lines[node.lineno - 1][: found.start(1)].encode())


# Members


class Types:
    """What mypy knows of the whole repository."""

    def __init__(self, *paths: str) -> None:
        os.chdir(ROOT)
        os.environ["MYPYPATH"] = str(ROOT / "hack")
        sources, options = process_options(list(paths or ("src", "tests", "hack")), require_targets=False)
        options.incremental, options.preserve_asts, options.export_types = False, True, True
        options.cache_dir = os.devnull
        self.result = build.build([each for each in sources if "renovation" not in str(each.path)], options)
        self.trees: dict[Path, nodes.MypyFile] = {}
        for state in self.result.graph.values():
            if state.tree is not None and state.path:
                path = Path(state.path).resolve()
                ours = path.is_relative_to(ROOT) and ".venv" not in path.parts
                if ours and path.suffix == ".py":
                    self.trees[path] = state.tree
        self.classes = {info.fullname: info for tree in self.trees.values() for info in _classes(tree)}

    def definer(self, kind: types.Type | None, member: str) -> Iterator[Member]:
        """The classes of the repository that a use of a member may mean."""
        proper = types.get_proper_type(kind)
        if isinstance(proper, types.UnionType):
            for each in proper.items:
                yield from self.definer(each, member)
        elif isinstance(proper, types.TypeVarType):
            yield from self.definer(proper.upper_bound, member)
        elif isinstance(proper, types.TypeType):
            yield from self.definer(proper.item, member)
        elif isinstance(proper, types.TupleType):
            yield from self.definer(proper.partial_fallback, member)
        elif isinstance(proper, types.LiteralType):
            yield from self.definer(proper.fallback, member)
        elif isinstance(proper, types.FunctionLike) and proper.is_type_obj():
            yield from self.in_class(proper.type_object(), member)
        elif isinstance(proper, types.Instance):
            yield from self.in_class(proper.type, member)

    def in_class(self, info: nodes.TypeInfo, member: str) -> Iterator[Member]:
        for each in info.mro:
            if member in each.names:
                yield each.fullname, member
                return


def _classes(tree: nodes.MypyFile) -> Iterator[nodes.TypeInfo]:
    todo: list[Any] = [*tree.defs]
    while todo:
        node = todo.pop()
        if isinstance(node, nodes.ClassDef):
            yield node.info
            todo.extend(node.defs.body)
        elif isinstance(node, nodes.Decorator):
            todo.append(node.func)
        elif isinstance(node, nodes.FuncDef):
            todo.extend(node.body.body)
        elif isinstance(node, nodes.IfStmt):
            todo.extend(each for block in node.body for each in block.body)
        elif isinstance(node, nodes.Block):
            todo.extend(node.body)
        elif isinstance(node, nodes.WithStmt):
            todo.extend(node.body.body)


class Families:
    """Members that must bear one name: a method and its overrides, a Protocol's and those of what fits it."""

    def __init__(self, known: Types) -> None:
        self._known = known
        self._parent: dict[Member, Member] = {}
        self.foreign: set[Member] = set()
        protocols = [each for each in known.classes.values() if each.is_protocol]
        for info in known.classes.values():
            for name in info.names:
                for base in info.mro[1:]:
                    if name in base.names:
                        self._join((info.fullname, name), (base.fullname, name))
                        if base.fullname not in known.classes:
                            self.foreign.add((base.fullname, name))
            for protocol in protocols:
                self._fit(info, protocol)

    def _fit(self, info: nodes.TypeInfo, protocol: nodes.TypeInfo) -> None:
        members = [each for each in protocol.protocol_members if not each.startswith("__")]
        if info is protocol or not members or any(info.get(each) is None for each in members):
            return
        left, right = (
            types.Instance(info, [types.AnyType(types.TypeOfAny.special_form)] * len(info.type_vars)),
            (
                types.Instance(
                    protocol, [types.AnyType(types.TypeOfAny.special_form)] * len(protocol.type_vars)
                )
            ),
        )
        if is_protocol_implementation(left, right, skip=["__call__"]):
            for each in members:
                mine = next(self._known.in_class(info, each))
                theirs = next(self._known.in_class(protocol, each))
                self._join(mine, theirs)

    def root(self, member: Member) -> Member:
        while (up := self._parent.get(member, member)) != member:
            member = up
        return member

    def _join(self, one: Member, other: Member) -> None:
        first, second = self.root(one), self.root(other)
        self._parent[first] = self._parent.get(first, first)
        self._parent[second] = self._parent.get(second, second)
        if first != second:
            self._parent[first] = second

    def members(self) -> dict[Member, set[Member]]:
        found: dict[Member, set[Member]] = defaultdict(set)
        for each in self._parent:
            found[self.root(each)].add(each)
        return found


def rename_members(known: Types, renames: Mapping[Member, str], edits: Edits) -> list[str]:
    """Renames members of classes, named by the class's full name; says what could not be."""
    families = Families(known)
    together = families.members()
    foreign = {families.root(each) for each in families.foreign}
    chosen: dict[Member, str] = {}
    problems = []
    for member, new in renames.items():
        root = families.root(member)
        family = together.get(root, {member})
        taken = [name for name, _ in family if name in known.classes and new in known.classes[name].names]
        if root in foreign:
            problems.append(f"{'.'.join(member)}: overrides a member of a class that is not ours")
        elif taken:
            problems.append(f"{'.'.join(member)}: {taken[0]} has {new} already")
        elif chosen.get(root, new) != new:
            problems.append(f"{'.'.join(member)}: would be {chosen[root]} and {new}")
        else:
            chosen[root] = new
    by_member = {each: new for root, new in chosen.items() for each in together.get(root, {root})}
    for path, tree in known.trees.items():
        MemberUses(known, path, by_member, edits).visit(tree)
    _rename_definitions(known, by_member, edits)
    return problems


# What a node points at, but does not consist of.
LINKS = frozenset(
    [
        "node",
        "info",
        "type",
        "names",
        "analyzed",
        "mro",
        "unanalyzed_type",
        "original_def",
        "var",
        "def_frame",
        "defn",
        "fullname",
        "path",
        "alias_deps",
        "type_vars",
        "plugin_deps",
        "imports",
    ]
)


Placed = tuple[Any, nodes.TypeInfo | None]


def walk_nodes(tree: nodes.MypyFile) -> Iterator[Placed]:
    """Every node of a file, with the class it stands in."""
    todo: list[Placed] = [(each, None) for each in reversed(tree.defs)]
    seen: set[int] = set()
    while todo:
        node, within = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node, within
        inner = node.info if isinstance(node, nodes.ClassDef) else within
        for name in _attributes(type(node)):
            _children(getattr(node, name, None), inner, todo)


def _children(
    value: Any, within: nodes.TypeInfo | None, todo: list[tuple[Any, nodes.TypeInfo | None]]
) -> None:
    if isinstance(value, nodes.Node):
        todo.append((value, within))
    elif isinstance(value, list | tuple):
        for each in value:
            _children(each, within, todo)


@cache
def _attributes(kind: type) -> tuple[str, ...]:
    found = {
        name
        for each in kind.__mro__
        for name in (*each.__dict__.get("__mypyc_attrs__", ()), *each.__dict__.get("__slots__", ()))
    }
    return tuple(sorted(found - LINKS - {"__dict__"}))


class MemberUses:
    """Where members of classes are used in one file."""

    def __init__(self, known: Types, path: Path, renames: Mapping[Member, str], edits: Edits) -> None:
        self._known, self._path, self._renames, self._edits = known, path, renames, edits
        self._lines = path.read_text().splitlines()
        self._within: nodes.TypeInfo | None = None

    def visit(self, tree: nodes.MypyFile) -> None:
        for node, self._within in walk_nodes(tree):
            if isinstance(node, nodes.MemberExpr):
                self.visit_member_expr(node)
            elif isinstance(node, nodes.SuperExpr):
                self.visit_super_expr(node)
            elif isinstance(node, nodes.CallExpr):
                self.visit_call_expr(node)
            elif isinstance(node, patterns.ClassPattern):
                self.visit_class_pattern(node)

    def _type(self, expression: nodes.Expression) -> types.Type | None:
        found = self._known.result.types.get(expression)
        if found is None and isinstance(expression, nodes.NameExpr):
            node = expression.node
            if isinstance(node, nodes.TypeInfo):
                return types.Instance(node, [])
            if isinstance(node, nodes.Var):
                if node.type is None and node.is_self and self._within:
                    return types.Instance(self._within, [])
                return node.type
        return found

    def _new(self, kind: types.Type | None, member: str) -> str | None:
        found = {self._renames.get(each) for each in self._known.definer(kind, member)}
        found.discard(None)
        if len(found) > 1:
            print(f"{self._path}: {member} would have two names: {sorted(map(str, found))}")
        return next(iter(found), None)

    def visit_member_expr(self, o: nodes.MemberExpr) -> None:
        new = self._new(self._type(o.expr), o.name)
        if new is None and isinstance(o.expr, nodes.RefExpr) and isinstance(o.expr.node, nodes.TypeInfo):
            new = next(
                filter(None, (self._renames.get(each) for each in self._known.in_class(o.expr.node, o.name))),
                None,
            )
        if new is not None and o.end_line is not None and o.end_column is not None:
            self._edits.add(self._path, o.end_line, o.end_column - len(o.name.encode()), o.name, new)

    def visit_super_expr(self, o: nodes.SuperExpr) -> None:
        if o.info is not None and o.end_line is not None and o.end_column is not None:
            for base in o.info.mro[1:]:
                if o.name in base.names:
                    new = self._renames.get((base.fullname, o.name))
                    if new:
                        self._edits.add(
                            self._path, o.end_line, o.end_column - len(o.name.encode()), o.name, new
                        )
                    break

    def visit_call_expr(self, o: nodes.CallExpr) -> None:
        kind = self._constructed(o)
        for name, argument in zip(o.arg_names, o.args, strict=True):
            if name is not None and kind is not None:
                new = self._new(kind, name)
                if new is not None:
                    self._keyword(argument, name, new)
        self._by_string(o)

    def _constructed(self, o: nodes.CallExpr) -> types.Type | None:
        callee = o.callee
        if isinstance(callee, nodes.RefExpr) and callee.fullname in REPLACES and o.args:
            return self._type(o.args[0])
        if isinstance(callee, nodes.RefExpr) and isinstance(callee.node, nodes.TypeInfo):
            return types.Instance(callee.node, []) if "__init__" not in callee.node.names else None
        if isinstance(callee, nodes.IndexExpr) and isinstance(callee.base, nodes.RefExpr):
            node = callee.base.node
            return types.Instance(node, []) if isinstance(node, nodes.TypeInfo) else None
        proper = types.get_proper_type(self._type(callee))
        if isinstance(proper, types.TypeType):
            return proper.item
        if isinstance(proper, types.FunctionLike) and proper.is_type_obj():
            info = proper.type_object()
            return types.Instance(info, []) if "__init__" not in info.names else None
        return None

    def _keyword(self, argument: nodes.Expression, name: str, new: str) -> None:
        """`name=` stands before its value, on its line or the one before."""
        for line in (argument.line, argument.line - 1):
            text = self._lines[line - 1]
            end = argument.column if line == argument.line else len(text.encode())
            before = text.encode()[:end].decode()
            found = re.search(rf"(?<![\w.])({re.escape(name)})\s*=\s*\(?\s*$", before)
            if found:
                self._edits.add(self._path, line, len(before[: found.start(1)].encode()), name, new)
                return
        print(f"{self._path}:{argument.line}: keyword {name} was not found")

    def _by_string(self, o: nodes.CallExpr) -> None:
        name = getattr(o.callee, "name", "")
        if name in SETTERS and len(o.args) >= 2 and isinstance(o.args[1], nodes.StrExpr):
            target = o.args[0]
            node = target.node if isinstance(target, nodes.RefExpr) else None
            kind = types.Instance(node, []) if isinstance(node, nodes.TypeInfo) else self._type(target)
            new = self._new(kind, o.args[1].value)
            if new:
                self._edits.add(self._path, o.args[1].line, o.args[1].column + 1, o.args[1].value, new)

    def visit_class_pattern(self, o: Any) -> None:
        node = o.class_ref.node
        if isinstance(node, nodes.TypeInfo):
            for key, value in zip(o.keyword_keys, o.keyword_values, strict=True):
                new = self._new(types.Instance(node, []), key)
                if new:
                    self._keyword(value, key, new)


def _rename_definitions(known: Types, renames: Mapping[Member, str], edits: Edits) -> None:
    wanted: dict[str, dict[str, str]] = defaultdict(dict)
    for (owner, member), new in renames.items():
        wanted[owner][member] = new
    for path, tree in known.trees.items():
        text = path.read_text()
        lines = text.splitlines()
        by_line = {info.defn.line: info.fullname for info in _classes(tree)}
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ClassDef):
                continue
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            owner = by_line.get(node.lineno) or by_line.get(first)
            if owner in wanted:
                _rename_in_body(path, node, wanted[owner], lines, edits)


def _rename_in_body(
    path: Path, owner: ast.ClassDef, renames: Mapping[str, str], lines: list[str], edits: Edits
) -> None:
    for statement in owner.body:
        if isinstance(statement, Definition):
            if statement.name in renames:
                line, column = name_position(statement, lines)
                edits.add(path, line, column, statement.name, renames[statement.name])
            outer: list[ast.AST] = list(statement.decorator_list)
        else:
            outer = [statement]
        for each in (inner for top in outer for inner in ast.walk(top)):
            if isinstance(each, ast.Name) and each.id in renames:
                if isinstance(statement, ast.AnnAssign) and _inside(each, statement.annotation):
                    continue
                edits.add(path, each.lineno, each.col_offset, each.id, renames[each.id])
            elif isinstance(each, ast.Constant) and each.value in renames and _slots(statement):
                edits.add(path, each.lineno, each.col_offset + 1, str(each.value), renames[str(each.value)])


def _inside(node: ast.AST, tree: ast.AST) -> bool:
    return any(each is node for each in ast.walk(tree))


def _slots(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(each, ast.Name) and each.id in ("__slots__", "__match_args__")
        for each in statement.targets
    )
