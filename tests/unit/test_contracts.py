"""Rules of the source that a reader may rely on, checked over the whole of it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import dovetail
from dovetail.api.bad_items import describe_failure
from dovetail.errors import BadInput
from support.containment import bugs_contained

ROOT = Path(__file__).parents[2]
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
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == [], f"imports go round in a circle: {' <- '.join(circle)}"


# Records of the API group resource.k8s.io: they have its names, which the glossary need not explain.
KUBERNETES_RECORDS = {"scheduling/model/device_objects.py"}
NOUN_PACKAGES = ("scheduling", "disruption", "history", "state")
# Words that the code once used for ideas that Kubernetes, Karpenter or plain English has a word for. The
# glossary says which: "we do not say".
RETIRED = frozenset(
    (
        *(
            "finer",
            "foresight",
            "furnishing",
            "ghosts",
            "ground",
            "hearing",
            "holding",
            "manyfold",
            "motoside",
        ),
        *("parcels", "referee", "roster", "scene", "seating", "shelf", "shelves", "surroundings", "ties"),
        *("unplanned", "withheld"),
    )
)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its path below src/dovetail."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths
    }


def public_classes() -> Iterator[tuple[str, str]]:
    """The name of each public class, and its module."""
    for path, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path


def chosen_names(tree: ast.Module) -> Iterator[str]:
    """Every name that a module gives to something of its own."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def test_a_public_class_name_is_used_once() -> None:
    found = defaultdict(list)
    for name, path in public_classes():
        found[name].append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_the_glossary_has_every_core_noun_with_its_module() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \| [^|]+ \| \[`([\w/.]+)`\]", page, re.MULTILINE))
    nouns = {
        (name, path)
        for name, path in public_classes()
        if path.startswith(NOUN_PACKAGES) and path not in KUBERNETES_RECORDS
    }
    assert nouns - listed == set(), "add a line with one sentence to docs/glossary.md"
    assert listed - nouns == set(), "these moved, or are no longer there"


def test_no_name_uses_a_retired_word() -> None:
    found = {
        f"{path}: {name}"
        for path, tree in modules().items()
        for name in (*chosen_names(tree), *path.removesuffix(".py").split("/"))
        if words(name) & RETIRED
    }
    assert found == set(), "docs/glossary.md has the word to use"


PURE_PACKAGES = ("scheduling/", "disruption/")
# A label value as a set of one, kept once for all nodes that have it: a memo over strings, as interning is.
STRING_MEMOS = {"scheduling/model/requirements.py: _build_single_value"}
CONTAINERS = ("dict", "list", "set", "Counter", "OrderedDict")
KEEPERS = ("ache", "Dictionary", "defaultdict", "deque")


def _names_at_top(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """What a module binds when it is imported, with its value; of a function, how it is decorated."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name):
                yield from ((name, each) for each in node.decorator_list)
            case ast.Global(names=names):
                yield from ((name, None) for name in names)
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _keeps_something(value: ast.expr | None) -> bool:
    """Whether it can grow: an empty container, a memo, or what a function writes to."""
    match value:
        case None:
            return True
        case ast.Dict(keys=listed) | ast.List(elts=listed):
            return all(isinstance(each, ast.Tuple) and not each.elts for each in listed)
        case ast.Call(func=function, args=arguments):
            maker = ast.unparse(function).partition("[")[0].rpartition(".")[2]
            return maker.endswith(KEEPERS) or (maker in CONTAINERS and not arguments)
        case _:
            return ast.unparse(value).endswith(KEEPERS)


def test_deciding_keeps_nothing_in_its_modules() -> None:
    """What one decision leaves for the next is in a DecisionCache, which whoever decides hands in."""
    found = {
        f"{path}: {name}"
        for path, tree in modules().items()
        if path.startswith(PURE_PACKAGES)
        for name, value in _names_at_top(tree)
        if name != "__all__" and _keeps_something(value)
    }
    assert found == STRING_MEMOS, "make it a part of the DecisionCache"


def test_what_a_module_could_keep_is_seen() -> None:
    """The ways in which modules of ours once remembered, and some that they did not think of."""
    kept = """
_ALL: list[object] = []
_RECENT = []
_NEEDS: IdentityCache[int] = IdentityCache()
_WORLD = [()]
_BY_NAME = {}
_SEEN = set()
_WEAK = weakref.WeakKeyDictionary()

@lru_cache(maxsize=10)
def memo(text): ...

@functools.cache
def other(text): ...

def forgetful():
    global _LAST
"""
    constants = """
NAMES = ("a", "b")
TABLE = {"a": 1}
EMPTY = frozenset()
LISTED = [1, 2]

class Thing:
    @cached_property
    def part(self): ...

@wraps(kept)
def plain(): ...
"""
    seen = [name for name, value in _names_at_top(ast.parse(kept)) if _keeps_something(value)]
    assert sorted(seen) == sorted(
        ["_ALL", "_RECENT", "_NEEDS", "_WORLD", "_BY_NAME", "_SEEN", "_WEAK", "memo", "other", "_LAST"]
    )
    assert not [name for name, value in _names_at_top(ast.parse(constants)) if _keeps_something(value)]


MOST_ARGUMENTS = 7


def _list_wide_constructors(module: str, tree: ast.Module) -> Iterator[str]:
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for inner in owner.body:
            if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                given = inner.args
                # The object itself is no argument.
                count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                if count > MOST_ARGUMENTS:
                    yield f"{module}.{owner.name}"


def test_no_constructor_has_more_than_seven_arguments() -> None:
    """More than seven arguments mean that a record is missing, such as ControllerContext."""
    found = [each for name, tree in _list_modules().items() for each in _list_wide_constructors(name, tree)]
    assert found == []


WIRED_PACKAGES = ("app", "bus", "controllers", "providers", "runtime", "zonal")
# What no port of ours can declare: a constant that one operating system has, and names of foreign callables.
PROBED = frozenset(
    {
        ("runtime/clock.py", "CLOCK_BOOTTIME"),
        ("runtime/compute.py", "__name__"),
        ("runtime/manager.py", "__qualname__"),
    }
)


def _list_probes(tree: ast.Module) -> Iterator[str]:
    """The attributes a module looks for by name on an object that may not have them."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[_, ast.Constant(value=name), *_]):
                yield str(name)
            case ast.Name(id="hasattr" | "runtime_checkable" as name):
                yield name


def test_parts_are_wired_by_what_their_ports_declare() -> None:
    """A method that may be there or not is no port: it is declared, or handed in by whoever has it."""
    found = {
        (path, name)
        for path, tree in modules().items()
        if path.startswith(WIRED_PACKAGES)
        for name in _list_probes(tree)
    }
    assert found - PROBED == set(), "declare it on the protocol, as `Controller.singleton` is"
    assert PROBED - found == set(), "these are gone: take them off the list"


# Each of these notes a contained failure, directly or by way of another.
NOTING = {
    "_handle_failure",
    "_log_bug",
    "_report_failure",
    "_set_aside",
    "describe_failure",
    "note_bad_object",
    "note_bad_shift",
    "note_contained",
    "on_failure",
    "report_failure",
}
# Functions that hand the failure to whoever asked, or note it once they know whose it is.
HANDING_ON = {
    "dovetail.aws.boto._run_work",
    "dovetail.providers.aws.batcher._run_bucket",
    "dovetail.runtime.leader._run_elector",
    "dovetail.runtime.worker_transfer._answer_question",
    "dovetail.runtime.worker_transfer._pack_error",
    "dovetail.scheduling.bad_objects._find_bad_objects",
    "dovetail.scheduling.bad_objects.decide_without_bad_objects",
    "dovetail.scheduling.bad_objects.works",
    "dovetail.zonal.ingest.signals.read_batch",
}


def _list_broad_handlers(tree: ast.Module) -> Iterator[tuple[str, ast.ExceptHandler]]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and (
                    node.type is None
                    or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
                ):
                    yield function.name, node


def _is_noted(handler: ast.ExceptHandler) -> bool:
    called = (node.func for node in ast.walk(handler) if isinstance(node, ast.Call))
    names = {each.id if isinstance(each, ast.Name) else getattr(each, "attr", "") for each in called}
    return bool(names & NOTING) or any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def test_whatever_contains_any_failure_notes_it() -> None:
    """So that tests see the bugs among them: a failure that nobody hears of hides a bug of ours."""
    silent = {
        f"{name}.{function}"
        for name, tree in _list_modules().items()
        for function, handler in _list_broad_handlers(tree)
        if not _is_noted(handler)
    }
    assert silent == HANDING_ON


def test_a_bug_that_is_contained_fails_a_test_and_an_absurd_value_does_not() -> None:
    with bugs_contained() as bugs:
        describe_failure(IndexError("list index out of range"))
        describe_failure(OverflowError("int too large to convert to float"))
        describe_failure(BadInput("reading a Pod"))
    assert [type(each) for each in bugs] == [IndexError]
    with bugs_contained() as bugs:
        pass
    assert bugs == []
