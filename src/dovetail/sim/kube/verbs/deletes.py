"""Delete: at once, after a grace period, or when the last finalizer has gone.

delete ──grace or finalizers?──▶ deletionTimestamp set ──last finalizer gone, grace over──▶ removed
   └────────────neither────────────────────────────────────────────────────────────────────▲
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube import status
from dovetail.sim.kube.core import PROPAGATION, DeleteOptions, WriteOptions, parse_delete_options
from dovetail.sim.kube.meta import format_time, is_condition_true, with_condition
from dovetail.sim.kube.selectors import build_label_matcher
from dovetail.sim.kube.types import Generation
from dovetail.sim.kube.verbs.admission_policies import check_policies
from dovetail.sim.kube.verbs.conversion import convert_record
from dovetail.sim.kube.verbs.writes import is_fully_deleted

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core, DeleteOptions, WriteOptions
    from dovetail.sim.kube.store import Key, StoredRecord
    from dovetail.sim.kube.types import TypeInfo


_DEFAULT_GRACE = 30
PROTECTED = ("default", "kube-public", "kube-system")
_MARKED_ONLY = ("namespaces", "customresourcedefinitions.apiextensions.k8s.io")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_POLICY_FINALIZER = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


class Deleter:
    """The verb that takes objects out of the store."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def delete(self, info: TypeInfo, key: Key, options: DeleteOptions) -> tuple[dict[str, Any], bool]:
        """Delete; give back the object, and whether it is gone already."""
        with self.core.turn():
            record = self.core.store.get(info.storage, key)
            if record is None:
                raise status.not_found(info, key[1])
            check_options(options)
            check_preconditions(info, record, options)
            if info.resource == "namespaces" and key[1] in PROTECTED:
                raise status.forbidden_request(info, key[1], "this namespace may not be deleted")
            check_policies(self.core, info, None, record.obj, "DELETE", WriteOptions(dry_run=options.dry_run))
            grace = compute_grace_period(record.obj, options.grace) if info.graceful_delete else 0
            obj = self._mark_deleted(info, record, grace, options)
            if is_fully_deleted(info, obj):
                return (
                    convert_record(record, info).obj
                    if options.dry_run
                    else self._remove_object(info, record, obj)
                ), True
            if obj is not record.obj and not options.dry_run:
                record = self.core.put(record.info, key, obj)
            return convert_record(record, info).obj, False

    def _remove_object(self, info: TypeInfo, record: StoredRecord, obj: dict[str, Any]) -> dict[str, Any]:
        # A pod's end is announced before it comes; everything else goes as it was last stored.
        if info.graceful_delete and obj is not record.obj:
            self.core.put(record.info, record.key, obj)
        gone = self.core.store.drop(record.info, record.key)
        return convert_record(gone, info).obj

    def _mark_deleted(
        self, info: TypeInfo, record: StoredRecord, grace: int, options: DeleteOptions
    ) -> dict[str, Any]:
        """The object as being deleted; the very same object if nothing about it changes."""
        metadata = dict(record.obj["metadata"])
        finalizers = self._list_finalizers(metadata, options)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        if metadata.get("deletionTimestamp"):
            self._shorten_grace(metadata, grace)
        else:
            metadata["deletionTimestamp"] = format_time(self.core.clock.now() + timedelta(seconds=grace))
            # Namespaces and definitions have a deletion of their own, which only marks them.
            if info.resource not in _MARKED_ONLY:
                metadata["deletionGracePeriodSeconds"] = grace
                if info.generation is not Generation.NONE:
                    metadata["generation"] = metadata.get("generation", 0) + 1
        if metadata == record.obj["metadata"]:
            return record.obj
        obj = {**record.obj, "metadata": metadata}
        if info.resource == "namespaces":
            obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        return obj

    def _list_finalizers(self, metadata: dict[str, Any], options: DeleteOptions) -> list[str]:
        finalizers = list(metadata.get("finalizers") or ())
        wanted = _POLICY_FINALIZER.get(options.propagation)
        if options.propagation:
            finalizers = [each for each in finalizers if each not in (FOREGROUND, ORPHAN)]
        return [*finalizers, wanted] if wanted else finalizers

    def _shorten_grace(self, metadata: dict[str, Any], grace: int) -> None:
        """A repeated delete may bring the end nearer, never push it away."""
        before = metadata.get("deletionGracePeriodSeconds") or 0
        if grace >= before:
            return
        end = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=before - grace)
        metadata["deletionTimestamp"] = format_time(end)
        metadata["deletionGracePeriodSeconds"] = grace


def compute_grace_period(pod: dict[str, Any], asked: int | None) -> int:
    """How long a pod may take to stop."""
    spec, phase = pod.get("spec", {}), pod.get("status", {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    grace = asked if asked is not None else spec.get("terminationGracePeriodSeconds")
    if grace is None:
        return _DEFAULT_GRACE
    return 1 if grace < 0 else int(grace)


def check_options(options: DeleteOptions) -> None:
    """Refuse propagation policies that do not exist."""
    if options.propagation not in PROPAGATION:
        listed = ", ".join(f'"{each}"' for each in PROPAGATION if each)
        text = f'Unsupported value: "{options.propagation}": supported values: {listed}'
        cause = Cause("propagationPolicy", "FieldValueNotSupported", text)
        raise status.invalid_kind("DeleteOptions", "meta.k8s.io", "", [cause])


def check_preconditions(info: TypeInfo, record: StoredRecord, options: DeleteOptions) -> None:
    """Refuse to delete another object than the client meant."""
    metadata = record.obj["metadata"]
    for what, asked, actual in (
        ("UID", options.uid, metadata["uid"]),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
    ):
        if asked and asked != actual:
            why = f"the {what} in the precondition ({asked}) does not match the {what} in record ({actual})"
            raise status.conflict_error(info, record.key[1], why, kind=info.kind)


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
        asked = parse_delete_options(wanted)
        dry_run = options.dry_run or asked.dry_run
        return self.evict(
            key, DeleteOptions(asked.grace, asked.propagation, asked.uid, asked.resource_version, dry_run)
        )

    def evict(self, key: Key, options: DeleteOptions) -> dict[str, Any]:
        """Delete a pod if nothing speaks against it."""
        with self.core.turn():
            pods = self.core.find_type("pods")
            record = self.core.store.get("pods", key)
            if record is None:
                raise status.not_found(pods, key[1])
            check_preconditions(pods, record, options)
            if not _needs_no_budget(record.obj):
                self._ask_budget(record, options)
            if not options.dry_run:
                self._delete_pod(record, options)
            return status.success_status(201)

    def _delete_pod(self, record: StoredRecord, options: DeleteOptions) -> None:
        pod = record.obj
        if not pod["metadata"].get("deletionTimestamp"):
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }
            now = self.core.format_now()
            marked = {**pod, "metadata": dict(pod["metadata"])}
            marked["status"] = with_condition(pod.get("status", {}), condition, now)
            self.core.put(record.info, record.key, marked)
        # The precondition was checked above; marking the pod has moved its version since.
        unversioned = DeleteOptions(options.grace, options.propagation, options.uid)
        self.deleter.delete(record.info, record.key, unversioned)

    def _ask_budget(self, record: StoredRecord, options: DeleteOptions) -> None:
        pod = record.obj
        budgets = self._find_budgets(pod)
        if not budgets:
            return
        if len(budgets) > 1:
            text = "This pod has more than one PodDisruptionBudget, which eviction does not support."
            raise status.ApiError(500, "", text)
        budget = budgets[0]
        if not is_condition_true(pod, "Ready") and _allows_unready_eviction(budget.obj):
            return
        self._check_budget(budget.obj)
        if not options.dry_run:
            self._charge_budget(budget, pod["metadata"]["name"])

    def _find_budgets(self, pod: dict[str, Any]) -> list[StoredRecord]:
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        found = self.core.store.get_bucket(_BUDGETS).in_namespace(metadata["namespace"])
        return [each for each in found if build_label_matcher(each.obj["spec"].get("selector"))(labels)]

    def _check_budget(self, budget: dict[str, Any]) -> None:
        info, name = self.core.find_type(_BUDGETS), budget["metadata"]["name"]
        seen = budget.get("status") or {}
        if seen.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
            detail = f"The disruption budget {name} is still being processed by the server."
            raise status.budget_blocks(_BLOCKED, detail, retry_after=10)
        allowed = seen.get("disruptionsAllowed", 0)
        if allowed < 0:
            raise status.forbidden_request(info, name, "pdb disruptions allowed is negative")
        if len(seen.get("disruptedPods") or ()) > _DISRUPTED_LIMIT:
            raise status.forbidden_request(
                info, name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
            )
        if allowed == 0:
            needs, has = seen.get("desiredHealthy", 0), seen.get("currentHealthy", 0)
            detail = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
            raise status.budget_blocks(_BLOCKED, detail)

    def _charge_budget(self, budget: StoredRecord, pod: str) -> None:
        now = self.core.format_now()
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


def _needs_no_budget(pod: dict[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _allows_unready_eviction(budget: dict[str, Any]) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    seen = budget.get("status") or {}
    desired = seen.get("desiredHealthy", 0)
    return bool(desired > 0 and seen.get("currentHealthy", 0) >= desired)
