"""A cache that was handed in changes no plan: with what other clusters left in it, and without any."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import PersistentVolumeClaim, PersistentVolumeClaimSpec, StorageClass
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import PersistentVolumeClaimSource, Pod, Volume
from dovetail.scheduling.explain import find_near_misses
from dovetail.scheduling.model.daemonsets import build_daemon_pod
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot, StateNode, Storage
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.solve import QUICK, compute_price_floor, solve
from dovetail.scheduling.verify import verify_plan
from support.builders import daemonset, pod
from support.sweeps import TYPES, changed, random_pod, random_world

STEPS = 5
FAMILY = "karpenter.k8s.aws/instance-family"
# Snapshots share all of these but the one that a step exchanges, as two looks at a cluster do.
CATALOGS = (TYPES, TYPES[1:], TYPES[:2])
DAEMONS = ((), *((build_daemon_pod(daemonset(cpu=cpu, memory="1Mi"), None),) for cpu in ("1", "1500m")))
FLAVOURS = (labels.CORE, labels.AWS)


def storage(provisioner: str) -> Storage:
    """Two claims: `held` is of a driver of this name, `asked` of the driver that nodes have a limit for."""
    classes = {"held": provisioner, "asked": "csi"}
    return Storage(
        claims={
            f"default/{name}": PersistentVolumeClaim(
                metadata=ObjectMeta(name=name, namespace="default"),
                spec=PersistentVolumeClaimSpec(storage_class_name=name),
            )
            for name in classes
        },
        classes={
            name: StorageClass(metadata=ObjectMeta(name=name), provisioner=driver)
            for name, driver in classes.items()
        },
    )


STORAGES = (storage("csi"), storage("another"))


def using(of: Pod, claim: str) -> Pod:
    source = PersistentVolumeClaimSource(claim_name=claim)
    volume = Volume(name=claim, persistent_volume_claim=source)
    return replace(of, spec=replace(of.spec, volumes=(volume,)))


def with_volumes(state: StateNode) -> StateNode:
    pods = tuple(using(each, "held") for each in state.pods[:1]) + state.pods[1:]
    return replace(state, pods=pods, volume_limits={"csi": 1})


def pending(chance: Random) -> tuple[Pod, ...]:
    some = [random_pod(chance, f"p{i}") for i in range(3)]
    choosy = pod("choosy", cpu="100m", node_selector={FAMILY: "m"})
    return *some, using(pod("attached", cpu="100m", memory="1Mi"), "asked"), choosy


def next_look(snapshot: Snapshot, chance: Random) -> Snapshot:
    """The same cluster, but for one of the parts that what is kept depends on."""
    fields: dict[str, Any] = {
        "catalogs": (chance.choice(CATALOGS),),
        "daemons": chance.choice(DAEMONS),
        "storage": chance.choice(STORAGES),
        "options": replace(snapshot.options, flavour=chance.choice(FLAVOURS)),
        "pods": pending(chance),
    }
    name = chance.choice(list(fields))
    return replace(snapshot, **{name: fields[name]})


def answers(snapshot: Snapshot, cache: DecisionCache | None) -> tuple[object, ...]:
    """All that scheduling is asked about a snapshot."""
    plain = schedule_pods(snapshot, cache=cache)
    plan = solve(snapshot, QUICK, cache=cache)
    misses = find_near_misses(snapshot, plan, cache)
    broken = [str(each) for each in verify_plan(snapshot, replace(plan, existing=plain.existing), cache)]
    return plain, plan, misses, broken, compute_price_floor(snapshot, cache)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_a_warm_cache_changes_no_plan(seed: int) -> None:
    chance, cache = Random(seed), DecisionCache()
    world = random_world(seed)
    snapshot = replace(
        world.snapshot,
        nodes=tuple(map(with_volumes, world.snapshot.nodes)),
        pods=pending(chance),
        storage=STORAGES[0],
    )
    for _ in range(STEPS):
        assert answers(snapshot, cache) == answers(snapshot, None)
        if chance.random() < 0.7:
            snapshot = next_look(snapshot, chance)
        else:
            snapshot = changed(world.with_snapshot(snapshot), chance).snapshot


def test_the_steps_change_plans() -> None:
    """What is exchanged matters: else a cache that takes one for the other would not be found out."""
    told: dict[str, set[str]] = {}
    for seed in range(8):
        world = random_world(seed)
        nodes = tuple(map(with_volumes, world.snapshot.nodes))
        base = replace(world.snapshot, nodes=nodes, pods=pending(Random(seed)), storage=STORAGES[0])
        core, other = (replace(base.options, flavour=each) for each in FLAVOURS)
        pairs: dict[str, tuple[object, object]] = {
            "catalogs": ((CATALOGS[0],), (CATALOGS[2],)),
            "daemons": (DAEMONS[0], DAEMONS[2]),
            "storage": STORAGES,
            "options": (core, other),
        }
        for name, values in pairs.items():
            plans = {_brief(schedule_pods(replace(base, **{name: each}))) for each in values}
            told.setdefault(name, set()).add("other" if len(plans) > 1 else "same")
    assert all("other" in each for each in told.values()), told


def _brief(plan: Plan) -> str:
    return repr((plan.existing, [(each.pods, each.instance_types) for each in plan.new_nodes]))
