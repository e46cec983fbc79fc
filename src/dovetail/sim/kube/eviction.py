"""Eviction: a polite delete that asks the pod's disruption budget first.

The budget is charged in the same turn, before its controller has seen anything, so a second
eviction cannot spend what the first one took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status
from dovetail.sim.kube.conditions import is_true, with_condition
from dovetail.sim.kube.deletes import check_preconditions
from dovetail.sim.kube.options import DeleteOptions, delete_options
from dovetail.sim.kube.selectors import from_selector

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.deletes import Deleter
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.store import Key, Record

_BUDGETS = "poddisruptionbudgets.policy"
_DISRUPTED_LIMIT = 2000
_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


class Evictor:
    """Evicts pods."""

    def __init__(self, core: Core, deleter: Deleter) -> None:
        self.core = core
        self.deleter = deleter

    def evict_body(self, key: Key, body: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
        """Evict as an Eviction document asks."""
        metadata, wanted = body.get("metadata") or {}, body.get("deleteOptions") or {}
        if not isinstance(metadata, dict) or not isinstance(wanted, dict):
            raise status.bad_request("Eviction cannot be decoded: metadata and deleteOptions must be objects")
        if body.get("kind") not in (None, "", "Eviction"):
            raise status.bad_request(f"the kind in the data ({body['kind']}) does not match (Eviction)")
        if metadata.get("name") not in (None, "", key[1]):
            raise status.bad_request("name in URL does not match name in Eviction object")
        asked = delete_options(wanted)
        dry_run = options.dry_run or asked.dry_run
        return self.evict(
            key, DeleteOptions(asked.grace, asked.propagation, asked.uid, asked.resource_version, dry_run)
        )

    def evict(self, key: Key, options: DeleteOptions) -> dict[str, Any]:
        """Delete a pod if nothing speaks against it."""
        with self.core.turn():
            pods = self.core.type_of("pods")
            record = self.core.store.get("pods", key)
            if record is None:
                raise status.not_found(pods, key[1])
            check_preconditions(pods, record, options)
            if not _free_to_go(record.obj):
                self._ask_budget(record, options)
            if not options.dry_run:
                self._delete(record, options)
            return status.success(201)

    def _delete(self, record: Record, options: DeleteOptions) -> None:
        pod = record.obj
        if not pod["metadata"].get("deletionTimestamp"):
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }
            now = self.core.stamp()
            marked = {**pod, "metadata": dict(pod["metadata"])}
            marked["status"] = with_condition(pod.get("status", {}), condition, now)
            self.core.put(record.info, record.key, marked)
        # The precondition was checked above; marking the pod has moved its version since.
        unversioned = DeleteOptions(options.grace, options.propagation, options.uid)
        self.deleter.delete(record.info, record.key, unversioned)

    def _ask_budget(self, record: Record, options: DeleteOptions) -> None:
        pod = record.obj
        budgets = self._budgets(pod)
        if not budgets:
            return
        if len(budgets) > 1:
            text = "This pod has more than one PodDisruptionBudget, which eviction does not support."
            raise status.ApiError(500, "", text)
        budget = budgets[0]
        if not is_true(pod, "Ready") and _lets_unready_go(budget.obj):
            return
        self._check(budget.obj)
        if not options.dry_run:
            self._charge(budget, pod["metadata"]["name"])

    def _budgets(self, pod: dict[str, Any]) -> list[Record]:
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        found = self.core.store.bucket(_BUDGETS).in_namespace(metadata["namespace"])
        return [each for each in found if from_selector(each.obj["spec"].get("selector"))(labels)]

    def _check(self, budget: dict[str, Any]) -> None:
        info, name = self.core.type_of(_BUDGETS), budget["metadata"]["name"]
        seen = budget.get("status") or {}
        if seen.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
            detail = f"The disruption budget {name} is still being processed by the server."
            raise status.budget_blocks(_BLOCKED, detail, retry_after=10)
        allowed = seen.get("disruptionsAllowed", 0)
        if allowed < 0:
            raise status.forbidden(info, name, "pdb disruptions allowed is negative")
        if len(seen.get("disruptedPods") or ()) > _DISRUPTED_LIMIT:
            raise status.forbidden(
                info, name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
            )
        if allowed == 0:
            needs, has = seen.get("desiredHealthy", 0), seen.get("currentHealthy", 0)
            detail = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
            raise status.budget_blocks(_BLOCKED, detail)

    def _charge(self, budget: Record, pod: str) -> None:
        now = self.core.stamp()
        spent = dict(budget.obj["status"])
        spent["disruptionsAllowed"] -= 1
        spent["disruptedPods"] = {**(spent.get("disruptedPods") or {}), pod: now}
        if spent["disruptionsAllowed"] == 0:
            condition = {
                "type": "DisruptionAllowed",
                "status": "False",
                "reason": "InsufficientPods",
                "observedGeneration": spent.get("observedGeneration", 0),
                "message": "",
            }
            spent = with_condition(spent, condition, now)
        obj = {**budget.obj, "metadata": dict(budget.obj["metadata"]), "status": spent}
        self.core.put(budget.info, budget.key, obj)


def _free_to_go(pod: dict[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _lets_unready_go(budget: dict[str, Any]) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    seen = budget.get("status") or {}
    desired = seen.get("desiredHealthy", 0)
    return bool(desired > 0 and seen.get("currentHealthy", 0) >= desired)
