"""One bad item never decides for everybody: what a decision cannot cope with is found and left out.

A decision is made as if nothing could go wrong, which costs nothing. If it raises, the world is put together
again part by part, and each part in halves, until the objects that make it raise are known. They are named in
the result, remembered for as long as they are the very same objects, and everybody else is served.

What "left out" means depends on what the object protects:

    pending pod        absent; it is told why it waits
    pod on a node      its node takes no more pods and is not disrupted
    Node               its NodeClaim speaks for it; without one it takes no pods. It is not disrupted
    NodeClaim          its machine still counts against its pool's limits, takes no pods and is not disrupted
    NodePool           neither buys nor is disrupted
    DaemonSet          not counted on new nodes
    volume, claim      absent; pods that need it are told so
    disruption budget  evicts none of its pods or, if these are not known, none of its namespace
    instance type      not bought
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from dovetail.api.bad_items import SetAside, describe_failure, mark_set_aside, set_aside
from dovetail.api.core import (
    Node,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from dovetail.api.meta import Condition, LabelSelector, Object, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim, NodeClaimStatus
from dovetail.api.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from dovetail.api.quantity import Quantity
from dovetail.scheduling.model.decision_cache import DecisionCache, IdentityCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode

__all__ = ["decide_without_bad_objects"]

R = TypeVar("R")
Item = tuple[Any, ...]
"""Objects that are alike to a decision: they are good or bad together, and the first stands for all."""
Works = Callable[[Snapshot], Exception | None]
_FEW = 1  # bad items that are believed at once; for more, the search is made in the other order as well


def decide_without_bad_objects(
    snapshot: Snapshot, decide: Callable[[Snapshot], R], cache: DecisionCache
) -> tuple[R, tuple[SetAside, ...]]:
    """The decision for all objects that it can be made with, and those it cannot be made with."""
    known = cache.get_part(_KnownBadObjects)
    spared, found = _remove_known_bad_objects(snapshot, known)
    try:
        return decide(spared), found
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not be everybody's problem
        last = error
    for sampled in (True, False):
        bad = _find_bad_objects(snapshot, decide, sampled)
        for each in bad:
            known.put(each, each.thing)
        spared, more = _swap_bad_objects(snapshot, bad)
        if not more:
            continue
        try:
            return decide(spared), more
        except Exception as error:  # noqa: BLE001 - pods that are alike were not, after all: look at each
            last = error
    raise last


# The parts of a world


class _Part:
    """One kind of thing in a snapshot: where it is found, and what takes the place of a bad one."""

    def __init__(self, *path: str, alike: Callable[[Any], object] | None = None) -> None:
        self.path = path
        self._alike = alike

    def list_things(self, snapshot: Snapshot) -> list[Any]:
        """All of them; where they have a key, with it."""
        held = self._read_field(snapshot)
        return list(held.items() if isinstance(held, dict) else held)

    def group_items(self, snapshot: Snapshot) -> list[Item]:
        if self._alike is None:
            return [(each,) for each in self.list_things(snapshot)]
        groups: dict[object, list[Any]] = {}
        for each in self.list_things(snapshot):
            groups.setdefault(self._alike(each), []).append(each)
        return [tuple(group) for group in groups.values()]

    def replace_things(self, snapshot: Snapshot, things: Sequence[Any]) -> Snapshot:
        """The snapshot with exactly these."""
        value = dict(things) if isinstance(self._read_field(snapshot), dict) else tuple(things)
        if len(self.path) == 1:
            return _replace_field(snapshot, self.path[0], value)
        outer, inner = self.path
        return _replace_field(snapshot, outer, replace(getattr(snapshot, outer), **{inner: value}))

    def _read_field(self, snapshot: Snapshot) -> Any:
        held: Any = snapshot
        for name in self.path:
            held = getattr(held, name)
        return held

    def describe_set_aside(self, thing: Any, why: str) -> SetAside:
        thing = thing[1] if isinstance(thing, tuple) else thing
        if isinstance(thing, SnapshotPool):
            thing = thing.nodepool
        if isinstance(thing, Object):
            return set_aside(thing, why)
        return SetAside(kind=type(thing).__name__, name=str(getattr(thing, "name", "")), why=why)

    def list_substitutes(
        self, thing: Any, why: str, works: Callable[[Any], bool]
    ) -> Iterator[tuple[Any, list[SetAside]]]:
        """What may stand in a bad thing's place, the most telling first, with who is to be named for it."""
        return iter(())


class _Types(_Part):
    """The instance types of all catalogues, each with the number of its catalogue."""

    def list_things(self, snapshot: Snapshot) -> list[Any]:
        return [(i, each) for i, types in enumerate(snapshot.catalogs) for each in types]

    def replace_things(self, snapshot: Snapshot, things: Sequence[Any]) -> Snapshot:
        catalogs: list[list[InstanceType]] = [[] for _ in snapshot.catalogs]
        for i, each in things:
            catalogs[i].append(each)
        return _replace_field(snapshot, "catalogs", tuple(map(tuple, catalogs)))


class _Budgets(_Part):
    """Disruption budgets. One that cannot be read allows nothing."""

    def list_substitutes(
        self, thing: PodDisruptionBudget, why: str, works: Callable[[Any], bool]
    ) -> Iterator[tuple[Any, list[SetAside]]]:
        for selector in (thing.spec.selector, LabelSelector()):
            spec = PodDisruptionBudgetSpec(selector=selector, max_unavailable=0)
            closed = replace(thing, spec=spec, status=PodDisruptionBudgetStatus())
            yield mark_set_aside(closed, why), [set_aside(thing, why)]


class _Nodes(_Part):
    """Machines: each a Node, its NodeClaim and its pods."""

    def list_substitutes(
        self, thing: StateNode, why: str, works: Callable[[Any], bool]
    ) -> Iterator[tuple[Any, list[SetAside]]]:
        if thing.pods and works(replace(thing, pods=())):
            yield _remove_bad_pods(thing, why, works)
        if thing.node is not None:
            named = [set_aside(thing.node, why)]
            if thing.claim is not None:
                yield replace(thing, node=None), named
            yield replace(thing, node=_close_node(thing.node, why)), named
        speaker = thing.node or thing.claim
        if thing.claim is not None and speaker is not None:
            yield StateNode(claim=_strip_claim(thing.claim, why)), [set_aside(thing.claim, why)]

    def describe_set_aside(self, thing: StateNode, why: str) -> SetAside:
        speaker = thing.node or thing.claim
        return SetAside(kind="Node", name="", why=why) if speaker is None else set_aside(speaker, why)


def _remove_bad_pods(
    state: StateNode, why: str, works: Callable[[Any], bool]
) -> tuple[StateNode, list[SetAside]]:
    """The machine with those of its pods that can be read. What the others take of it is not known."""
    kept = tuple(pod for pod in state.pods if works(replace(state, pods=(pod,))))
    bad = [set_aside(pod, why) for pod in state.pods if pod not in kept]
    told = f"a pod on it is set aside: {why}"
    node = None if state.node is None else _close_node(state.node, told)
    claim = None if state.claim is None else mark_set_aside(_clear_allocatable(state.claim), told)
    return replace(state, node=node, claim=claim, pods=kept), bad


def _close_node(node: Node, why: str) -> Node:
    """The Node with no room for anybody, and labels and taints as they are."""
    return mark_set_aside(replace(node, status=replace(node.status, capacity={}, allocatable={})), why)


def _clear_allocatable(claim: NodeClaim) -> NodeClaim:
    return replace(claim, status=replace(claim.status, allocatable={}))


def _strip_claim(claim: NodeClaim, why: str) -> NodeClaim:
    """What is left of a claim that cannot be read: whose it is, and what it counts against limits."""
    metadata = ObjectMeta(name=claim.name, uid=claim.uid, labels=claim.labels)
    status = NodeClaimStatus(provider_id=claim.status.provider_id, capacity=claim.status.capacity)
    return mark_set_aside(NodeClaim(metadata=metadata, status=status), why)


def _replace_field(snapshot: Snapshot, field: str, value: object) -> Snapshot:
    changed: Snapshot = replace(snapshot, **{field: value})
    return changed


def _build_pod_key(pod: Pod) -> object:
    """Pods of one shape share spec and labels; most are looked at once for all."""
    return id(pod.spec), id(pod.metadata.labels), pod.metadata.namespace


_PODS = tuple(_Part(name, alike=_build_pod_key) for name in ("pods", "moving", "virtual"))
_NODES = _Nodes("nodes")
_RULES: tuple[_Part, ...] = (
    _Part("pools"),
    _Types("catalogs"),
    _Part("daemons"),
    _Part("storage", "claims"),
    _Part("storage", "volumes"),
    _Part("storage", "classes"),
    _Budgets("budgets"),
    _Part("services"),
    _Part("devices", "slices"),
    _Part("devices", "classes"),
    _Part("devices", "claims"),
)
_PARTS = (*_RULES, _NODES, *_PODS)
# A pod and a node that only fail together: whom to blame is told by which way fewer are blamed.
_ORDERS = (_PARTS, (*_RULES, *_PODS, _NODES), (*_PODS, _NODES, *_RULES))

_PROBE = Pod(
    metadata=ObjectMeta(name="probe", namespace="dovetail-probe", uid="dovetail-probe"),
    spec=PodSpec(
        containers=(Container(resources=ResourceRequirements(requests={"cpu": Quantity.parse("1m")})),)
    ),
    status=PodStatus(
        phase="Pending",
        conditions=(Condition(type="PodScheduled", status="False", reason="Unschedulable"),),
    ),
)
"""A pod that asks for next to nothing: pools, types and nodes are tried with it."""


# The search


class _Bad(NamedTuple):
    """A thing no decision can be made with, what stands in its place (None for nothing), who is named."""

    thing: Any
    instead: Any
    named: tuple[SetAside, ...]


class _Search:
    """Puts a world together from what works, in one order of its parts."""

    def __init__(self, works: Works, whole: Snapshot, sampled: bool) -> None:
        self._works = works
        self._whole = whole
        self._sampled = sampled
        self._kept: dict[_Part, list[Item]] = {part: [] for part in _PARTS}
        self.found: list[_Bad] = []

    @property
    def possible(self) -> bool:
        """Whether the decision can be made at all: if not with an empty world, no object is to blame."""
        return self._find_failure(_PARTS[0], ()) is None

    def run(self, order: Sequence[_Part]) -> None:
        for part in order:
            self._admit_items(part, part.group_items(self._whole))

    def _admit_items(self, part: _Part, items: Sequence[Item]) -> None:
        if not items:
            return
        error = self._find_failure(part, items)
        if error is None:
            self._kept[part] += items
        elif len(items) == 1:
            self._replace_item(part, items[0], describe_failure(error))
        else:
            half = len(items) // 2
            self._admit_items(part, items[:half])
            self._admit_items(part, items[half:])

    def _replace_item(self, part: _Part, item: Item, why: str) -> None:
        for substitute, named in part.list_substitutes(item[0], why, lambda one: self._works_with(part, one)):
            if self._works_with(part, substitute):
                self._kept[part].append((substitute,))
                self.found.append(_Bad(item[0], substitute, tuple(named)))
                return
        self.found += [
            _Bad(_unwrap_thing(thing), None, (part.describe_set_aside(thing, why),)) for thing in item
        ]

    def _works_with(self, part: _Part, thing: Any) -> bool:
        return self._find_failure(part, [(thing,)]) is None

    def _find_failure(self, part: _Part, items: Sequence[Item]) -> Exception | None:
        reduced = self._whole
        for each in _PARTS:
            kept = chain(self._kept[each], items if each is part else ())
            reduced = each.replace_things(
                reduced, [thing for item in kept for thing in self._sample_item(item)]
            )
        return self._works(replace(reduced, virtual=(*reduced.virtual, _PROBE)))

    def _sample_item(self, item: Item) -> Item:
        return item[:1] if self._sampled else item


def _find_bad_objects(snapshot: Snapshot, decide: Callable[[Snapshot], object], sampled: bool) -> list[_Bad]:
    """The bad items of a snapshot, found in the order that blames the fewest."""

    def works(reduced: Snapshot) -> Exception | None:
        try:
            decide(reduced)
        except Exception as error:  # noqa: BLE001 - that is the question
            return error
        return None

    best: list[_Bad] | None = None
    for order in _ORDERS:
        search = _Search(works, snapshot, sampled)
        if not search.possible:
            return []
        search.run(order)
        if best is None or len(search.found) < len(best):
            best = search.found
        if len(best) <= _FEW:
            break
    return best or []


def _unwrap_thing(thing: Any) -> Any:
    """The object itself, of a thing that is kept with its key or number."""
    return thing[1] if isinstance(thing, tuple) else thing


def _swap_bad_objects(snapshot: Snapshot, bad: Sequence[_Bad]) -> tuple[Snapshot, tuple[SetAside, ...]]:
    """The snapshot with substitutes for bad things, or without them, and who is to be named."""
    instead = {id(each.thing): each.instead for each in bad}
    for part in _PARTS:
        things = part.list_things(snapshot)
        if any(id(_unwrap_thing(thing)) in instead for thing in things):
            kept = (instead.get(id(_unwrap_thing(thing)), thing) for thing in things)
            snapshot = part.replace_things(snapshot, [thing for thing in kept if thing is not None])
    named = dict.fromkeys(one for each in bad for one in each.named)
    return snapshot, tuple(named)


class _KnownBadObjects(IdentityCache[_Bad]):
    """The bad items of earlier decisions."""


def _remove_known_bad_objects(
    snapshot: Snapshot, known: _KnownBadObjects
) -> tuple[Snapshot, tuple[SetAside, ...]]:
    """The snapshot without the bad items of earlier decisions, so that they are not searched for again."""
    if not known:
        return snapshot, ()
    found = (known.get(_unwrap_thing(thing)) for part in _PARTS for thing in part.list_things(snapshot))
    return _swap_bad_objects(snapshot, [bad for bad in found if bad is not None])
