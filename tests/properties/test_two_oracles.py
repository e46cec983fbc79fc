"""Two readings of the scheduler, made apart from each other, say the same of every pod and node."""

from __future__ import annotations

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.sim.cluster.scheduler.plan_check import find_refused_placements
from support.kubernetes_rules import Cluster
from support.random_pods import Json, node, probe

PODS = 12
SPACES: list[Json] = [
    {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
    for name in ("default", "other")
]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000))
@example(61440)  # the pod to be near is on a node without the label
@example(1348)  # a cordon that is not yet a taint
def test_the_embedded_scheduler_and_the_documentation_agree(seed: int) -> None:
    chance = Random(seed)
    nodes = [node(f"n{number}", chance) for number in range(chance.choice([2, 4]))]
    cluster = Cluster(nodes, SPACES)
    bound: list[Json] = []
    for number in range(PODS):
        pod = probe(f"p{number}", chance)
        pod["metadata"]["namespace"] = chance.choice(["default", "default", "other"])
        free = []
        for each in nodes:
            name = each["metadata"]["name"]
            theirs = find_refused_placements(nodes, bound, [(pod, name)], namespaces=SPACES)
            ours = cluster.objections(pod, name)
            assert bool(theirs) == bool(ours), f"{pod} on {each}: judge {theirs}, documentation {ours}"
            free += [name] if not ours else []
        if free:
            where = chance.choice(free)
            cluster.bind(pod, where)
            bound.append({**pod, "spec": {**pod["spec"], "nodeName": where}})
