"""PodDisruptionBudgets: how many pods may go right now, kept true within the turn that changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.objects import (
    controller_of,
    is_deleting,
    is_pod_ready,
    key_of,
    labels_of,
    parse_time,
)
from dovetail.sim.cluster.workload_pods import SelectorCache
from dovetail.sim.kube.meta import with_condition

__all__ = ["PdbController"]

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


class GuardedPods:
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
        key, uid = key_of(pod), _find_owner_uid(pod)
        before = self.pods.get(key)
        if before is not None and _find_owner_uid(before) != uid:
            self.drop(key)
        self.pods[key] = pod
        if uid:
            self.by_owner.setdefault(uid, {})[key] = pod
        if is_pod_ready(pod) and not is_deleting(pod):
            self.well.add(key)
        else:
            self.well.discard(key)

    def drop(self, key: Key) -> bool:
        """A pod left; False when it was not here."""
        pod = self.pods.pop(key, None)
        if pod is None:
            return False
        self.well.discard(key)
        uid = _find_owner_uid(pod)
        if uid:
            self.by_owner[uid].pop(key)
            if not self.by_owner[uid]:
                del self.by_owner[uid]
        return True


def _find_owner_uid(pod: Json) -> str:
    owner = controller_of(pod)
    return str(owner["uid"]) if owner is not None else ""


class PdbController(SimController):
    """Keeps the status of every PodDisruptionBudget."""

    name = "disruption-controller"

    def __init__(self, manager: SimControllerManager) -> None:
        super().__init__(manager)
        self._matchers = SelectorCache()
        self._guarded: dict[str, dict[Key, GuardedPods]] = {}

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {RESOURCE: self._handle_budget, "pods": self._handle_pod}

    def _handle_budget(self, before: Json | None, after: Json | None) -> None:
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
            matches = self._matchers.get_matcher(after)
            file[key] = GuardedPods(p for p in self.list_objects("pods", key[0]) if matches(labels_of(p)))
        self.enqueue(key)

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        budgets = self._guarded.get(pod["metadata"]["namespace"])
        if not budgets:
            return
        matters, name = _affects_budget(before, after), key_of(pod)
        for key, company in budgets.items():
            budget = self.find_object(RESOURCE, key)
            if (
                after is not None
                and budget is not None
                and self._matchers.get_matcher(budget)(labels_of(after))
            ):
                company.put(after)
            elif not company.drop(name):
                continue
            if matters:
                self.enqueue(key)

    def reconcile(self, key: Key) -> None:
        budget = self.find_object(RESOURCE, key)
        if budget is None:
            return
        company = self._guarded[key[0]][key]
        before = budget.get("status") or {}
        generation = budget["metadata"].get("generation", 1)
        try:
            expected, desired = self._count_desired(budget, company)
        except Unmanageable as error:
            # Fail safe: nothing may go while it is unclear how many there should be.
            status = {**before, "disruptionsAllowed": 0}
            status = self._set_condition(status, "False", "SyncFailed", str(error))
        else:
            under_way = self._list_pending_evictions(budget, company)
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
            status = self._set_condition(status, *enough)
        if status != before:
            self.api.report_status(RESOURCE, budget, status)

    def _set_condition(self, status: Json, state: str, reason: str, message: str = "") -> Json:
        condition = {"type": "DisruptionAllowed", "status": state, "reason": reason, "message": message}
        if "observedGeneration" in status:
            condition["observedGeneration"] = status["observedGeneration"]
        return with_condition(status, condition, self.format_now())

    def _list_pending_evictions(self, budget: Json, guarded_pods: GuardedPods) -> dict[str, str]:
        kept, soonest, namespace = {}, None, budget["metadata"]["namespace"]
        for name, since in ((budget.get("status") or {}).get("disruptedPods") or {}).items():
            left = UNDER_WAY - (self.clock.now() - parse_time(since))
            pod = guarded_pods.pods.get((namespace, name))
            if pod is not None and not is_deleting(pod) and left > timedelta():
                kept[name] = since
                soonest = min(soonest or left, left)
        if soonest is not None:
            self.enqueue(key_of(budget), soonest.total_seconds())
        return kept

    def _count_desired(self, budget: Json, guarded_pods: GuardedPods) -> tuple[int, int]:
        """How many pods there should be, and how many of them must be healthy."""
        spec = budget["spec"]
        most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
        if most is not None:
            expected = self._count_expected(guarded_pods)
            missing = most if isinstance(most, int) else _round_up_percent(most, expected)
            return expected, max(expected - missing, 0)
        if isinstance(least, int):
            return len(guarded_pods.pods), least
        if least is None:
            return 0, 0
        expected = self._count_expected(guarded_pods)
        return expected, _round_up_percent(least, expected)

    def _count_expected(self, guarded_pods: GuardedPods) -> int:
        """The sizes the pods' controllers aim for, each counted once; pods without one do not count."""
        sizes: dict[str, int] = {}
        for pods in guarded_pods.by_owner.values():
            first = next(iter(pods.values()))
            owner = controller_of(first)
            assert owner is not None, "only pods with an owner are filed by it"
            uid, size = self._read_scale(owner, first)
            sizes[uid] = size
        return sum(sizes.values())

    def _read_scale(self, owner: Json, pod: Json) -> tuple[str, int]:
        """Whose size counts for a pod: a ReplicaSet's Deployment speaks for it."""
        namespace, resource = pod["metadata"]["namespace"], SCALES.get(owner["kind"])
        if resource is None:
            raise Unmanageable(f"{owner['kind']} {owner['name']} does not implement the scale subresource")
        found = self.find_object(resource, (namespace, owner["name"]))
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            raise Unmanageable(f'found no controllers for pod "{pod["metadata"]["name"]}"')
        upper = controller_of(found)
        if upper is not None and upper["kind"] == "Deployment":
            return self._read_scale(upper, pod)
        return found["metadata"]["uid"], int(found["spec"].get("replicas", 1))


def _round_up_percent(text: str, whole: int) -> int:
    return -(-whole * int(text.rstrip("%")) // 100)


def _affects_budget(before: Json | None, after: Json | None) -> bool:
    """A pod's coming, going, readiness, labels or deletion can change a budget; the rest cannot."""
    if before is None or after is None:
        return True
    return (
        is_pod_ready(before) != is_pod_ready(after)
        or is_deleting(before) != is_deleting(after)
        or labels_of(before) != labels_of(after)
    )
