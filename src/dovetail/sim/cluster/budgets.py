"""PodDisruptionBudgets: how many pods may go right now, kept true within the turn that changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class Company:
    """The pods a budget guards, counted as they come, change and go: budgets guard thousands."""

    def __init__(self, pods: Iterable[Json] = ()) -> None:
        self.pods: dict[Key, Json] = {}
        # Those that are ready and stay; and all by their controller's uid, in the order they came.
        self.well: set[Key] = set()
        self.by_owner: dict[str, dict[Key, Json]] = {}
        for pod in pods:
            self.put(pod)

    def put(self, pod: Json) -> None:
        """A pod came or changed."""
        key, uid = key_of(pod), _owner_of(pod)
        before = self.pods.get(key)
        if before is not None and _owner_of(before) != uid:
            self.drop(key)
        self.pods[key] = pod
        if uid:
            self.by_owner.setdefault(uid, {})[key] = pod
        if ready(pod) and not deleting(pod):
            self.well.add(key)
        else:
            self.well.discard(key)

    def drop(self, key: Key) -> bool:
        """A pod left; False when it was not here."""
        pod = self.pods.pop(key, None)
        if pod is None:
            return False
        self.well.discard(key)
        uid = _owner_of(pod)
        if uid:
            self.by_owner[uid].pop(key)
            if not self.by_owner[uid]:
                del self.by_owner[uid]
        return True


def _owner_of(pod: Json) -> str:
    owner = controller_of(pod)
    return str(owner["uid"]) if owner is not None else ""


class Budgets(Neighbour):
    """Keeps the status of every PodDisruptionBudget."""

    name = "disruption-controller"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._matchers = Matchers()
        self._guarded: dict[str, dict[Key, Company]] = {}

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
            file[key] = Company(p for p in self.every("pods", key[0]) if matches(labels_of(p)))
        self.enqueue(key)

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        budgets = self._guarded.get(pod["metadata"]["namespace"])
        if not budgets:
            return
        matters, name = _matters(before, after), key_of(pod)
        for key, company in budgets.items():
            budget = self.find(RESOURCE, key)
            if after is not None and budget is not None and self._matchers.of(budget)(labels_of(after)):
                company.put(after)
            elif not company.drop(name):
                continue
            if matters:
                self.enqueue(key)

    def work(self, key: Key) -> None:
        budget = self.find(RESOURCE, key)
        if budget is None:
            return
        company = self._guarded[key[0]][key]
        before = budget.get("status") or {}
        generation = budget["metadata"].get("generation", 1)
        try:
            expected, desired = self._wanted(budget, company)
        except Unmanageable as error:
            # Fail safe: nothing may go while it is unclear how many there should be.
            status = {**before, "disruptionsAllowed": 0}
            status = self._judged(status, "False", "SyncFailed", str(error))
        else:
            under_way = self._under_way(budget, company)
            healthy = len(company.well) - sum((key[0], name) in company.well for name in under_way)
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

    def _under_way(self, budget: Json, company: Company) -> dict[str, str]:
        kept, soonest, namespace = {}, None, budget["metadata"]["namespace"]
        for name, since in ((budget.get("status") or {}).get("disruptedPods") or {}).items():
            left = UNDER_WAY - (self.clock.now() - parse_time(since))
            pod = company.pods.get((namespace, name))
            if pod is not None and not deleting(pod) and left > timedelta():
                kept[name] = since
                soonest = min(soonest or left, left)
        if soonest is not None:
            self.enqueue(key_of(budget), soonest.total_seconds())
        return kept

    def _wanted(self, budget: Json, company: Company) -> tuple[int, int]:
        """How many pods there should be, and how many of them must be healthy."""
        spec = budget["spec"]
        most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
        if most is not None:
            expected = self._scale(company)
            missing = most if isinstance(most, int) else _percent(most, expected)
            return expected, max(expected - missing, 0)
        if isinstance(least, int):
            return len(company.pods), least
        if least is None:
            return 0, 0
        expected = self._scale(company)
        return expected, _percent(least, expected)

    def _scale(self, company: Company) -> int:
        """The sizes the pods' controllers aim for, each counted once; pods without one do not count."""
        sizes: dict[str, int] = {}
        for pods in company.by_owner.values():
            first = next(iter(pods.values()))
            owner = controller_of(first)
            assert owner is not None, "only pods with an owner are filed by it"
            uid, size = self._size(owner, first)
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
