"""PodDisruptionBudgets: how many pods may go right now, kept true within the turn that changes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import controller_of, deleting, key_of, labels_of, parse_time, ready
from dovetail.sim.cluster.pods_of import Matchers
from dovetail.sim.kube.conditions import with_condition

__all__ = ["Budgets"]

RESOURCE = "poddisruptionbudgets.policy"
# An eviction that was allowed but whose pod is still here counts as under way for this long.
UNDER_WAY = timedelta(minutes=2)
SCALES = {
    "ReplicaSet": "replicasets.apps",
    "Deployment": "deployments.apps",
    "StatefulSet": "statefulsets.apps",
    "ReplicationController": "replicationcontrollers",
}


class Unmanageable(Exception):
    """A pod's controller has no size to count by; the text says which."""


class Budgets(Neighbour):
    """Keeps the status of every PodDisruptionBudget."""

    name = "disruption-controller"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._matchers = Matchers()
        self._guarded: dict[str, dict[Key, dict[Key, Json]]] = {}

    def hears(self) -> Mapping[str, Heard]:
        return {RESOURCE: self._heard, "pods": self._pod_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        budget = after or before
        assert budget is not None
        key = key_of(budget)
        file = self._guarded.setdefault(key[0], {})
        if after is None:
            self._matchers.forget(key)
            file.pop(key, None)
            if not file:
                del self._guarded[key[0]]
            return
        if before is None or before["spec"].get("selector") != after["spec"].get("selector"):
            matches = self._matchers.of(after)
            file[key] = {key_of(p): p for p in self.every("pods", key[0]) if matches(labels_of(p))}
        self.enqueue(key)

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        budgets = self._guarded.get(pod["metadata"]["namespace"])
        if not budgets:
            return
        matters, name = _matters(before, after), key_of(pod)
        for key, pods in budgets.items():
            budget = self.find(RESOURCE, key)
            if after is not None and budget is not None and self._matchers.of(budget)(labels_of(after)):
                pods[name] = after
            elif pods.pop(name, None) is None:
                continue
            if matters:
                self.enqueue(key)

    def work(self, key: Key) -> None:
        budget = self.find(RESOURCE, key)
        if budget is None:
            return
        pods = list(self._guarded[key[0]][key].values())
        before = budget.get("status") or {}
        generation = budget["metadata"].get("generation", 1)
        try:
            expected, desired = self._wanted(budget, pods)
        except Unmanageable as error:
            # Fail safe: nothing may go while it is unclear how many there should be.
            status = {**before, "disruptionsAllowed": 0}
            status = self._judged(status, "False", "SyncFailed", str(error))
        else:
            under_way = self._under_way(budget, pods)
            healthy = sum(
                ready(p) and not deleting(p) and p["metadata"]["name"] not in under_way for p in pods
            )
            allowed = max(healthy - desired, 0) if expected else 0
            status = {
                "disruptionsAllowed": allowed,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected,
                "observedGeneration": generation,
                "conditions": before.get("conditions") or [],
            }
            if under_way:
                status["disruptedPods"] = under_way
            enough = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
            status = self._judged(status, *enough)
        if status != before:
            self.api.report(RESOURCE, budget, status)

    def _judged(self, status: Json, state: str, reason: str, message: str = "") -> Json:
        condition = {"type": "DisruptionAllowed", "status": state, "reason": reason, "message": message}
        if "observedGeneration" in status:
            condition["observedGeneration"] = status["observedGeneration"]
        return with_condition(status, condition, self.now())

    def _under_way(self, budget: Json, pods: list[Json]) -> dict[str, str]:
        here = {p["metadata"]["name"] for p in pods if not deleting(p)}
        kept, soonest = {}, None
        for name, since in ((budget.get("status") or {}).get("disruptedPods") or {}).items():
            left = UNDER_WAY - (self.clock.now() - parse_time(since))
            if name in here and left > timedelta():
                kept[name] = since
                soonest = min(soonest or left, left)
        if soonest is not None:
            self.enqueue(key_of(budget), soonest.total_seconds())
        return kept

    def _wanted(self, budget: Json, pods: list[Json]) -> tuple[int, int]:
        """How many pods there should be, and how many of them must be healthy."""
        spec = budget["spec"]
        most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
        if most is not None:
            expected = self._scale(pods)
            missing = most if isinstance(most, int) else _percent(most, expected)
            return expected, max(expected - missing, 0)
        if isinstance(least, int):
            return len(pods), least
        if least is None:
            return 0, 0
        expected = self._scale(pods)
        return expected, _percent(least, expected)

    def _scale(self, pods: list[Json]) -> int:
        """The sizes the pods' controllers aim for, each counted once; pods without one do not count."""
        sizes: dict[str, int] = {}
        seen: set[str] = set()
        for pod in pods:
            owner = controller_of(pod)
            if owner is not None and owner["uid"] not in seen:
                seen.add(owner["uid"])
                uid, size = self._size(owner, pod)
                sizes[uid] = size
        return sum(sizes.values())

    def _size(self, owner: Json, pod: Json) -> tuple[str, int]:
        """Whose size counts for a pod: a ReplicaSet's Deployment speaks for it."""
        namespace, resource = pod["metadata"]["namespace"], SCALES.get(owner["kind"])
        if resource is None:
            raise Unmanageable(f"{owner['kind']} {owner['name']} does not implement the scale subresource")
        found = self.find(resource, (namespace, owner["name"]))
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            raise Unmanageable(f'found no controllers for pod "{pod["metadata"]["name"]}"')
        upper = controller_of(found)
        if upper is not None and upper["kind"] == "Deployment":
            return self._size(upper, pod)
        return found["metadata"]["uid"], int(found["spec"].get("replicas", 1))


def _percent(text: str, whole: int) -> int:
    return -(-whole * int(text.rstrip("%")) // 100)


def _matters(before: Json | None, after: Json | None) -> bool:
    """A pod's coming, going, readiness, labels or deletion can change a budget; the rest cannot."""
    if before is None or after is None:
        return True
    return (
        ready(before) != ready(after)
        or deleting(before) != deleting(after)
        or labels_of(before) != labels_of(after)
    )
