#!/usr/bin/env python3
"""Rename and move what tables list, over src, tests, hack, examples, docs, chart and image.

    codemod.py TABLE...            apply the tables together
    codemod.py --check TABLE...    only say what is wrong with them

A table has one order a line; `#` begins a comment.

    name    dovetail.pkg.module:Name           NewName      a class, function or constant, wherever it is used
    name    dovetail.pkg.module:Class.member   new_name     a method or field, by mypy's types
    move    dovetail.pkg.old                   dovetail.pkg.new     a module (or package) to another place
    merge   dovetail.pkg.part                  dovetail.pkg.whole   a module into another one

Names go first and are given as they were before; then moves, then merges, each in the order of the tables.
Overrides, and what fits a Protocol, follow by themselves. Fields of records that are written somewhere
(`rename=`, manifests, settings) are their wire format:
leave them. Run ruff and mypy afterwards: what they say is yours.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from names import (
    HERE,
    ROOT,
    Definition,
    Edits,
    Sources,
    Types,
    code_files,
    module_of,
    rename_members,
    rename_top_level,
)

# Where modules are named in words: by their dotted name, or by their path.
PROSE = ("docs", "deploy", "examples", "hack", "tests", "src", "build", ".ci")
PROSE_FILES = ("pyproject.toml", "Makefile", "mkdocs.yml", "README.md", "CONTRIBUTING.md", "SECURITY.md")
PROSE_KINDS = {".md", ".toml", ".yaml", ".yml", ".txt", ".json", ".tf", ".py", ".sh", ".tpl", ""}
MUTANTS = ROOT / "hack" / "mutants.toml"


@dataclass(frozen=True)
class Order:
    verb: str
    old: str
    new: str


def main(words: list[str]) -> int:
    tables = [Path(each) for each in words if each != "--check"]
    orders = [order for table in tables for order in read_table(table)]
    problems = list(complaints(orders))
    for each in problems:
        print(each)
    if problems or "--check" in words:
        return 1 if problems else 0
    for verb, apply in (("name", rename_names), ("move", move_modules), ("merge", merge_modules)):
        if wanted := [each for each in orders if each.verb == verb]:
            apply(wanted)
    return 0


def complaints(orders: list[Order]) -> Iterator[str]:
    """What can be seen without types: a name that is not there, or is taken; an order given twice."""
    sources, seen = Sources(), dict[str, str]()
    renamed = {order.old for order in orders if order.verb == "name"}
    for order in orders:
        if seen.setdefault(order.old, order.new) != order.new:
            yield f"{order.old}: {seen[order.old]} and {order.new}"
        if order.verb != "name":
            continue
        module, _, qualified = order.old.partition(":")
        if module not in sources.trees:
            yield f"{order.old}: no such module"
            continue
        body = sources.trees[module].body
        owner, _, member = qualified.rpartition(".")
        if owner:
            found = next(
                (each for each in body if isinstance(each, ast.ClassDef) and each.name == owner), None
            )
            if found is None:
                yield f"{order.old}: no class {owner}"
                continue
            here = members_of(found)
            if member not in here:
                yield f"{order.old}: {owner} has no {member}"
            if order.new in here and f"{module}:{owner}.{order.new}" not in renamed:
                yield f"{order.old}: {owner} has {order.new} already"
        else:
            if sources.bound[module].get(member) != (module, member):
                yield f"{order.old}: not defined there"
            if order.new in sources.bound[module] and f"{module}:{order.new}" not in renamed:
                yield f"{order.old}: {module} has {order.new} already"
        if not order.new.isidentifier() or order.new.startswith("_") != member.startswith("_"):
            yield f"{order.old}: {order.new} is no name for it"


def members_of(owner: ast.ClassDef) -> set[str]:
    found = {each.name for each in owner.body if isinstance(each, Definition)}
    for statement in owner.body:
        if not isinstance(statement, Definition):
            stored = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
            found |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
    for each in ast.walk(owner):
        if (
            isinstance(each, ast.Attribute)
            and isinstance(each.ctx, ast.Store)
            and ast.unparse(each.value) == "self"
        ):
            found.add(each.attr)
    return found


def read_table(file: Path) -> Iterator[Order]:
    for number, line in enumerate(file.read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or words[0] not in ("name", "move", "merge"):
            raise SystemExit(f"{file}:{number}: not an order: {line}")
        yield Order(*words)


def path_of(module: str) -> Path:
    """The file of a module; of a package, its __init__."""
    base = ROOT / ("src" if module.partition(".")[0] == "dovetail" else "tests") / module.replace(".", "/")
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


# Names


def rename_names(orders: list[Order]) -> None:
    top: dict[tuple[str, str], str] = {}
    members: dict[tuple[str, str], str] = {}
    for order in orders:
        module, _, qualified = order.old.partition(":")
        owner, _, member = qualified.rpartition(".")
        if owner:
            members[f"{module}.{owner}", member] = order.new
        else:
            top[module, member] = order.new
    edits = Edits()
    if top:
        rename_top_level(Sources(), top, edits)
    if members:
        for problem in rename_members(Types(), members, edits):
            print(problem)
    before = dict(mutant_places())
    print(f"{edits.apply()} places renamed in {len(edits.by_file)} files")
    follow_mutants(before)
    mention_names(top)


def mutant_places() -> Iterator[tuple[str, tuple[Path, int]]]:
    """Where the lines stand that `make mutants` breaks: file and line of each `code` of one line."""
    for entry in tomllib.loads(MUTANTS.read_text())["listed"]:
        file, code = ROOT / entry["file"], entry["code"]
        text = file.read_text()
        if text.count(code) == 1 and "\n" not in code:
            yield code, (file, text[: text.index(code)].count("\n"))


def follow_mutants(before: dict[str, tuple[Path, int]]) -> None:
    """The same lines as they read now, in the list and in what takes their place."""
    text = MUTANTS.read_text()
    for code, (file, line) in before.items():
        now = file.read_text().splitlines()[line]
        if code in now:
            continue
        old_words, new_words = re.findall(r"\w+", code), re.findall(r"\w+", now)
        first = next((at for at in range(len(new_words)) if _matches(old_words, new_words[at:])), None)
        if first is None:
            print(f"hack/mutants.toml: {code}: now {now.strip()}")
            continue
        swap = {old: new for old, new in zip(old_words, new_words[first:], strict=False) if old != new}
        for entry in re.findall(r"^(?:code|change) = .*$", text, re.MULTILINE):
            if swap.keys() & set(re.findall(r"\w+", entry)) and _near(text, entry, code):
                text = text.replace(
                    entry, re.sub(r"\w+", lambda word, swap=swap: swap.get(word[0], word[0]), entry)
                )
    MUTANTS.write_text(text)


def _matches(old: list[str], new: list[str]) -> bool:
    """Whether two lines are the same but for a few words."""
    if len(new) < len(old):
        return False
    same = sum(one == other for one, other in zip(old, new, strict=False))
    return same >= max(1, len(old) // 2) and old[0] in (new[0], *new[:1])


def _near(text: str, entry: str, code: str) -> bool:
    """Whether an entry of the list belongs to this line."""
    at = text.find(entry)
    block = text[text.rfind("[[listed]]", 0, at) : at + len(entry) + 400].partition("\n[[listed]]")[0]
    return repr(code)[1:-1] in block or code in block or code.replace('"', '\\"') in block


def mention_names(renamed: dict[tuple[str, str], str]) -> None:
    """Classes in words: `Name` in documentation, comments and docstrings, where one class bore it."""
    classes = {old: new for (_, old), new in renamed.items() if old[0].isupper() and not old.isupper()}
    if not classes:
        return
    still = {
        name
        for tree in Sources().trees.values()
        for name in (each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef))
    }
    pattern = re.compile(r"(?<=`)(" + "|".join(map(re.escape, classes.keys() - still)) + r")(?=[`.(])")
    if classes.keys() - still:
        for file in prose_files():
            text = file.read_text()
            told = pattern.sub(lambda found: classes[found[1]], text)
            if told != text:
                file.write_text(told)


# Modules


def move_modules(orders: list[Order]) -> None:
    """All moves at once: the files first, then every import and every mention."""
    places: dict[str, str] = {}
    for order in orders:
        move_file(order.old, order.new)
        for old, new in places.items():
            if new == order.old or new.startswith(order.old + "."):
                places[old] = order.new + new[len(order.old) :]
        if order.old not in places.values():
            places[order.old] = order.new
    for file in code_files():
        retarget_imports(file, places)
    mention_modules(places)


def move_file(old: str, new: str) -> None:
    source = path_of(old)
    if not source.exists():
        raise SystemExit(f"move {old}: no such module")
    target = ROOT / ("src" if new.startswith("dovetail") else "tests") / new.replace(".", "/")
    if source.name == "__init__.py":
        target.parent.mkdir(parents=True, exist_ok=True)
        git("mv", str(source.parent), str(target))
        return
    target = target.with_suffix(".py")
    if target.exists():
        raise SystemExit(f"move {old}: {new} is there already; merge it")
    target.parent.mkdir(parents=True, exist_ok=True)
    make_packages(target.parent)
    git("mv", str(source), str(target))


def make_packages(folder: Path) -> None:
    while folder.is_relative_to(ROOT / "src" / "dovetail") and not (folder / "__init__.py").exists():
        (folder / "__init__.py").write_text('"""…"""\n')
        git("add", str(folder / "__init__.py"))
        folder = folder.parent


def new_place(module: str, places: dict[str, str]) -> str:
    """Where a module is now: by its own order, or by that of a package it is in."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        head = ".".join(parts[:end])
        if head in places:
            return ".".join([places[head], *parts[end:]])
    return module


def retarget_imports(file: Path, places: dict[str, str]) -> None:
    """`from a.old import x`, `from a import old`, and uses of the module's own name, in one file.

    `import a.old` is left to what replaces dotted names.
    """
    text = file.read_text()
    here = module_of(file)
    replacements: list[tuple[ast.stmt, str]] = []
    renamed: dict[str, str] = {}
    dropped: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
            continue
        lines = retargeted(node, places, here, renamed, dropped)
        if lines != [import_text(node.module, node.names)]:
            replacements.append((node, ("\n" + " " * node.col_offset).join(lines) or "pass"))
    if replacements:
        text = replace_statements(text, replacements)
        if renamed:
            text = rename_module_uses(text, renamed)
        for name in dropped:
            text = re.sub(rf"(?<![\w.]){name}\.(?=[A-Za-z_])", "", text)
        file.write_text(re.sub(r"^pass\n", "", text, flags=re.MULTILINE))


def retargeted(
    node: ast.ImportFrom, places: dict[str, str], here: str, renamed: dict[str, str], dropped: set[str]
) -> list[str]:
    """An import statement told anew: one line for each module it names now; none of the file itself."""
    wanted: dict[str, list[ast.alias]] = {}
    source = node.module or ""
    for each in node.names:
        whole = f"{source}.{each.name}"
        now = new_place(whole, places) if whole in places else ""
        if now:
            parent, _, name = now.rpartition(".")
            if now == here:
                dropped.add(each.asname or each.name)
                continue
            if each.asname is None and name != each.name:
                renamed[each.name] = name
            wanted.setdefault(parent, []).append(ast.alias(name, each.asname))
        elif new_place(source, places) != here or new_place(source, places) == source:
            wanted.setdefault(new_place(source, places), []).append(each)
    return [import_text(module, names) for module, names in wanted.items()]


def import_text(module: str, names: list[ast.alias]) -> str:
    listed = ", ".join(each.name + (f" as {each.asname}" if each.asname else "") for each in names)
    return f"from {module} import ({listed})" if len(listed) > 60 else f"from {module} import {listed}"


def replace_statements(text: str, replacements: list[tuple[ast.stmt, str]]) -> str:
    lines = text.splitlines(keepends=True)
    for node, new in sorted(replacements, key=lambda pair: -pair[0].lineno):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last].encode()[node.end_col_offset :].decode()
        lines[first : last + 1] = [before + new + after]
    return "".join(lines)


def rename_module_uses(text: str, renamed: dict[str, str]) -> str:
    """`old.x` becomes `new.x` where the name is the module, not a local that shadows it."""
    uses = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and node.id in renamed and isinstance(node.ctx, ast.Load)
    ]
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for node in sorted(uses, key=lambda each: (-each.lineno, -each.col_offset)):
        line = lines[node.lineno - 1]
        end = node.col_offset + len(node.id.encode())
        lines[node.lineno - 1] = line[: node.col_offset] + renamed[node.id].encode() + line[end:]
    return b"".join(lines).decode()


def mention_modules(places: dict[str, str]) -> None:
    """Dotted names and paths in words: documentation, contracts, strings, the chart."""
    olds = sorted(places, key=len, reverse=True)
    dotted = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, olds)) + r")(?![\w])")
    paths = {old.replace(".", "/"): new.replace(".", "/") for old, new in places.items()}
    # A path without its root is only taken where it has a folder of its own: `scheduling/exact.py`.
    paths |= {
        old.removeprefix("dovetail/"): new.removeprefix("dovetail/")
        for old, new in paths.items()
        if old.count("/") > 1
    }
    listed = sorted(paths, key=len, reverse=True)
    slashed = re.compile(r"(?<![\w])(?<![\w]/)(" + "|".join(map(re.escape, listed)) + r")(?=\.py|/|`)")
    rooted = re.compile(r"(?<=src/)(" + "|".join(map(re.escape, listed)) + r")(?=\.py|/|`)")
    for file in prose_files():
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        told = dotted.sub(lambda found: places[found[1]], text)
        told = rooted.sub(lambda found: paths[found[1]], told)
        told = slashed.sub(lambda found: paths[found[1]], told)
        if told != text:
            file.write_text(told)


def prose_files() -> Iterator[Path]:
    yield from (ROOT / name for name in PROSE_FILES)
    listed = subprocess.run(["git", "ls-files", *PROSE], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if file.suffix in PROSE_KINDS and file.is_file() and HERE not in file.parents:
            yield file


def merge_modules(orders: list[Order]) -> None:
    """All merges: the bodies first, then every import and every mention."""
    if not orders:
        return
    places: dict[str, str] = {}
    for order in orders:
        if not merge_file(order.old, order.new):
            continue
        for old, new in places.items():
            if new == order.old:
                places[old] = order.new
        places[order.old] = order.new
    for file in code_files():
        retarget_imports(file, places)
    mention_modules(places)


def merge_file(old: str, new: str) -> bool:
    """The body of one module at the end of another, or at its head where the other is built on it."""
    source, target = path_of(old), path_of(new)
    if not source.exists() or not target.exists():
        print(f"merge {old} into {new}: one of them is not there")
        return False
    part, whole = Module(source.read_text()), Module(target.read_text())
    twice = (part.names & whole.names) - {"__all__"}
    if twice:
        print(f"merge {old} into {new}: both have {', '.join(sorted(twice))}; left alone")
        return False
    below = whole.imports_from(old)
    if below and part.imports_from(new):
        print(f"merge {old} into {new}: each is built on the other; look at the order")
    listed = sorted({*part.exported, *whole.exported})
    imports = whole.import_lines(without=old) + part.import_lines(without=new)
    everything = f"__all__ = [{', '.join(listed)}]\n\n" if listed else ""
    body = part.body + whole.body if below else whole.body + part.body
    target.write_text(whole.head + FUTURE + imports + "\n" + everything + body)
    git("rm", "-q", "-f", "--cached", str(source))
    source.unlink()
    return True


FUTURE = "from __future__ import annotations\n\n"


class Module:
    """The parts of a file that a merge puts together: docstring, imports, the rest."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        self._tree = ast.parse(text)
        body = self._tree.body
        self._imports = [node for node in body if _imports_something(node)]
        first = body[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        self.head = self._between(0, first.end_lineno or 0) + "\n" if documented else ""
        named = [
            node
            for node in body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        listed = named[0].value if named else None
        self.exported = [ast.unparse(each) for each in listed.elts] if isinstance(listed, ast.List) else []
        for node in named:
            for line in range(node.lineno - 1, node.end_lineno or node.lineno):
                self._lines[line] = "\n"
        rest = [
            node
            for node in body
            if node not in self._imports and node not in named and not (documented and node is first)
        ]
        begin = max((each.end_lineno or 0 for each in body if each.lineno < rest[0].lineno), default=0)
        self.body = self._between(begin, len(self._lines)).strip("\n") + "\n\n\n"
        self.names = {name for node in rest for name in _defined(node)}

    def _between(self, start: int, end: int) -> str:
        return "".join(self._lines[start:end])

    def imports_from(self, module: str) -> bool:
        parent, _, name = module.rpartition(".")
        return any(
            isinstance(each, ast.ImportFrom)
            and (
                each.module == module
                or (each.module == parent and any(one.name == name for one in each.names))
            )
            for each in self._imports
        )

    def import_lines(self, without: str) -> str:
        kept = [
            each
            for each in self._imports
            if not (isinstance(each, ast.ImportFrom) and each.module in (without, "__future__"))
        ]
        return "".join(self._between(each.lineno - 1, each.end_lineno or each.lineno) for each in kept)


def _imports_something(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Import | ast.ImportFrom)


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    return (
        {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        if not isinstance(node, ast.ClassDef)
        else set()
    )


def git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
