"""Which fields an object sets, as paths, and how managedFields writes such a set.

A path is a tuple of elements as they appear in `fieldsV1`: `f:name` a field, `k:{…}` an element of a keyed
list, `v:…` a member of a set. A path in the set that has others below it is written with a `"."`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Set
from typing import Any, Final

from dovetail.api.schema.nodes import ANYTHING, MISSING, SchemaNode
from dovetail.api.schema.validation import encode_canonical, is_same_json, read_list_key

Path = tuple[str, ...]

# A member that stands for its own existence; its content is told by the paths below it.
CONTAINER: Final = object()


def list_leaves(node: SchemaNode, value: Any) -> dict[Path, Any]:
    """The paths an object says something about: its values, its list elements and its map entries."""
    found: dict[Path, Any] = {}
    _collect_leaves(node, value, (), found)
    return found


def _collect_leaves(node: SchemaNode, value: Any, path: Path, found: dict[Path, Any]) -> None:
    if isinstance(value, dict) and not node.map_atomic:
        for key, item in value.items():
            below = (*path, f"f:{key}")
            _collect_leaves(node.find_child(key) or ANYTHING, item, below, found)
            if item == {} or key not in node.properties:
                found.setdefault(below, CONTAINER)
    elif isinstance(value, list) and is_granular(node):
        for item in value:
            below = (*path, format_item_element(node, item))
            _collect_leaves(node.items or ANYTHING, item, below, found)
            found.setdefault(below, CONTAINER)
    else:
        found[path] = value


def list_paths(node: SchemaNode, value: Any) -> dict[Path, Any]:
    """Every path that exists in an object, the containers on the way included."""
    found: dict[Path, Any] = {}
    _collect_paths(node, value, (), found)
    return found


def _collect_paths(node: SchemaNode, value: Any, path: Path, found: dict[Path, Any]) -> None:
    if isinstance(value, dict) and not node.map_atomic:
        found[path] = CONTAINER
        for key, item in value.items():
            _collect_paths(node.find_child(key) or ANYTHING, item, (*path, f"f:{key}"), found)
    elif isinstance(value, list) and is_granular(node):
        found[path] = CONTAINER
        for item in value:
            _collect_paths(node.items or ANYTHING, item, (*path, format_item_element(node, item)), found)
    else:
        found[path] = value


def find_changes(node: SchemaNode, old: Any, new: Any) -> tuple[set[Path], set[Path]]:
    """The paths that are new or have another value, and those that are gone.

    Parts that two states share, as most do, are not looked into.
    """
    changed: set[Path] = set()
    removed: set[Path] = set()
    _compare_values(node, old, new, (), changed, removed)
    return changed, removed


def _compare_values(
    node: SchemaNode, old: Any, new: Any, path: Path, changed: set[Path], removed: set[Path]
) -> None:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and not node.map_atomic:
        # What is the very same in both is left out before anything is made of it.
        old, new = (
            {key: item for key, item in one.items() if key not in other or other[key] is not item}
            for one, other in ((old, new), (new, old))
        )
    before, after = _list_members(node, old), _list_members(node, new)
    if before is None or after is None:
        was, now = dict[Path, Any](), dict[Path, Any]()
        _collect_paths(node, old, path, was)
        _collect_paths(node, new, path, now)
        changed.update(
            each for each, value in now.items() if each not in was or not is_same_json(was[each], value)
        )
        removed.update(was.keys() - now.keys())
        return
    for element, (child, item) in after.items():
        known = before.get(element)
        if known is not None:
            _compare_values(child, known[1], item, (*path, element), changed, removed)
        else:
            changed.update(_list_paths_below(child, item, (*path, element)))
    for element, (child, item) in before.items():
        if element not in after:
            removed.update(_list_paths_below(child, item, (*path, element)))


def _list_members(node: SchemaNode, value: Any) -> dict[str, tuple[SchemaNode, Any]] | None:
    """What is one level below, by its element of a path; None where nothing is, or some of it twice."""
    if isinstance(value, dict) and not node.map_atomic:
        return {f"f:{key}": (node.find_child(key) or ANYTHING, item) for key, item in value.items()}
    if not isinstance(value, list) or not is_granular(node):
        return None
    items = node.items or ANYTHING
    found = {format_item_element(node, item): (items, item) for item in value}
    return found if len(found) == len(value) else None


def _list_paths_below(node: SchemaNode, value: Any, path: Path) -> Iterable[Path]:
    found: dict[Path, Any] = {}
    _collect_paths(node, value, path, found)
    return found


def is_granular(node: SchemaNode) -> bool:
    """Whether a list has owners element by element."""
    return node.list_type in ("map", "set")


def format_item_element(node: SchemaNode, item: Any) -> str:
    """What names one element of a granular list."""
    if node.list_type == "map":
        return f"k:{encode_canonical(read_list_key(node, item))}"
    return f"v:{encode_canonical(item)}"


def encode_paths(paths: Iterable[Path]) -> dict[str, Any]:
    """The set as `fieldsV1`."""
    root: dict[str, Any] = {}
    for path in sorted(paths):
        place = root
        for element in path[:-1]:
            place = place.setdefault(element, {})
        place.setdefault(path[-1], {})
    members = set(paths)
    _mark_members(root, (), members)
    return root


def _mark_members(tree: dict[str, Any], path: Path, members: set[Path]) -> None:
    for element in list(tree):
        below = (*path, element)
        _mark_members(tree[element], below, members)
        if tree[element] and below in members:
            tree[element] = {".": {}, **tree[element]}


def decode_paths(fields: Any) -> set[Path]:
    """The set a `fieldsV1` writes; raises ValueError for anything else."""
    if not isinstance(fields, dict):
        raise ValueError("fieldsV1 is not an object")
    return set(_walk_members(fields, ()))


def _walk_members(tree: dict[str, Any], path: Path) -> Iterator[Path]:
    for element, below in tree.items():
        if not isinstance(below, dict):
            raise ValueError(f"fieldsV1 has a value at {element!r}")
        if element == ".":
            yield path
        elif not below:
            yield (*path, element)
        else:
            yield from _walk_members(below, (*path, element))


def format_path(path: Path) -> str:
    """A path as messages write it: `.spec.containers[name="c"].image`."""
    return "".join(map(_format_element, path))


def _format_element(element: str) -> str:
    mark, text = element[:2], element[2:]
    if mark == "f:":
        return f".{text}"
    if mark == "v:":
        return f"[={text}]"
    keys = json.loads(text)
    return "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(keys.items())) + "]"


def merge_applied(node: SchemaNode, live: Any, applied: Any) -> Any:
    """The live value with everything the applied one says."""
    if isinstance(applied, dict) and isinstance(live, dict) and not node.map_atomic:
        result = dict(live)
        for key, item in applied.items():
            result[key] = merge_applied(node.find_child(key) or ANYTHING, live.get(key), item)
        return result
    if isinstance(applied, list) and isinstance(live, list) and is_granular(node):
        return _merge_lists(node, live, applied)
    return applied


def _merge_lists(node: SchemaNode, live: list[Any], applied: list[Any]) -> list[Any]:
    """Applied elements in their own order, with those only the live list has where they are met on the way.

    A live element that is applied too waits for its turn among the applied ones.
    """
    mine = {format_item_element(node, item): item for item in applied}
    theirs = {format_item_element(node, item): item for item in live}
    items = node.items or ANYTHING
    result: list[Any] = []
    left, right = deque(theirs), deque(mine)
    while left or right:
        head = left[0] if left else None
        if head is not None and head not in mine:
            result.append(theirs[left.popleft()])
        elif head is not None and head != next((key for key in right if key in theirs), None):
            left.popleft()
        else:
            key = right.popleft()
            result.append(merge_applied(items, theirs[key], mine[key]) if key in theirs else mine[key])
    return result


def remove_paths(node: SchemaNode, value: Any, gone: Set[Path], keep: Set[Path], path: Path = ()) -> Any:
    """The value without the paths that are gone; MISSING if nothing is left.

    A container that this emptied goes too, unless it is to be kept for its own sake.
    """
    if path in gone:
        return MISSING
    if isinstance(value, dict) and not node.map_atomic:
        below = {
            key: remove_paths(node.find_child(key) or ANYTHING, item, gone, keep, (*path, f"f:{key}"))
            for key, item in value.items()
        }
        left: Any = {key: item for key, item in below.items() if item is not MISSING}
    elif isinstance(value, list) and is_granular(node):
        items = node.items or ANYTHING
        each = (
            remove_paths(items, item, gone, keep, (*path, format_item_element(node, item))) for item in value
        )
        left = [item for item in each if item is not MISSING]
    else:
        return value
    return MISSING if path and value and not left and path not in keep else left
