"""PodDisruptionBudgets: how many pods may go right now, kept true within the turn that changes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import controller_of, deleting, ended, key_of, labels_of, parse_time, ready
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.kube.conditions import with_condition
from dovetail.sim.kube.selectors import from_selector
from dovetail.sim.kube.status import ApiError

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


class Budgets(Neighbour):
    """Keeps the status of every PodDisruptionBudget."""

    name = "disruption-controller"

    def __init__(self, desk: Desk, owned: Owned) -> None:
        super().__init__(desk)
        self.owned = owned
        self._known: dict[str, dict[Key, Json]] = {}

    def hears(self) -> Mapping[str, Heard]:
        return {RESOURCE: self._heard, "pods": self._pod_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        budget = after or before
        assert budget is not None
        file = self._known.setdefault(budget["metadata"]["namespace"], {})
        if after is None:
            file.pop(key_of(budget), None)
            return
        file[key_of(after)] = after
        self.enqueue(key_of(after))

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        budgets = self._known.get(pod["metadata"]["namespace"])
        if not budgets or not _matters(before, after):
            return
        for key, budget in budgets.items():
            matches = from_selector(budget["spec"].get("selector"))
            if any(each is not None and matches(labels_of(each)) for each in (before, after)):
                self.enqueue(key)

    def work(self, key: Key) -> None:
        try:
            budget = self.api.get(RESOURCE, key[1], key[0])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        matches = from_selector(budget["spec"].get("selector"))
        pods = [p for p in self.api.list("pods", key[0]) if matches(labels_of(p)) and not ended(p)]
        expected, desired = self._wanted(budget, pods)
        under_way = self._under_way(budget, pods)
        healthy = sum(ready(p) and not deleting(p) and p["metadata"]["name"] not in under_way for p in pods)
        allowed = max(healthy - desired, 0) if expected else 0
        before = budget.get("status") or {}
        status: Json = {
            "observedGeneration": budget["metadata"].get("generation", 1),
            "disruptedPods": under_way,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": before.get("conditions") or [],
        }
        if not under_way:
            del status["disruptedPods"]
        status = self._judged(status, allowed)
        if status != before:
            self.api.update(RESOURCE, {**budget, "status": status}, "status")

    def _judged(self, status: Json, allowed: int) -> Json:
        reason = "SufficientPods" if allowed else "InsufficientPods"
        state = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": reason,
            "message": "",
            "observedGeneration": status["observedGeneration"],
        }
        return with_condition(status, state, self.now())

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
        if (least := spec.get("minAvailable")) is not None:
            if isinstance(least, int):
                return len(pods), least
            expected = self._scale(pods)
            return expected, _percent(least, expected)
        expected = self._scale(pods)
        most = spec.get("maxUnavailable", 0)
        missing = most if isinstance(most, int) else _percent(most, expected)
        return expected, max(expected - missing, 0)

    def _scale(self, pods: list[Json]) -> int:
        """The size the pods' controllers aim for, each counted once; a pod without one counts as itself."""
        sizes: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            if owner is None:
                sizes[pod["metadata"]["uid"]] = 1
                continue
            if owner["uid"] not in sizes:
                sizes[owner["uid"]] = self._size(owner, pod["metadata"]["namespace"])
        return sum(sizes.values())

    def _size(self, owner: Json, namespace: str) -> int:
        resource = SCALES.get(owner["kind"])
        if resource is None:
            return 1
        try:
            found = self.api.get(resource, owner["name"], namespace)
        except ApiError:
            return 0
        upper = controller_of(found)
        if upper is not None and upper["kind"] in SCALES:
            return self._size(upper, namespace)
        return int(found["spec"].get("replicas", 1))


def _percent(text: str, whole: int) -> int:
    return math.ceil(whole * int(text.rstrip("%")) / 100)


def _matters(before: Json | None, after: Json | None) -> bool:
    """A pod's coming, going, readiness, labels or deletion can change a budget; the rest cannot."""
    if before is None or after is None:
        return True
    return (
        ready(before) != ready(after)
        or deleting(before) != deleting(after)
        or ended(before) != ended(after)
        or labels_of(before) != labels_of(after)
    )
