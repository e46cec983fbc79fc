"""Delete: at once, after a grace period, or when the last finalizer has gone.

delete ──grace or finalizers?──▶ deletionTimestamp set ──last finalizer gone, grace over──▶ removed
   └────────────neither────────────────────────────────────────────────────────────────────▲
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status
from dovetail.sim.kube.meta import stamp
from dovetail.sim.kube.options import PROPAGATION, WriteOptions
from dovetail.sim.kube.policing import ask
from dovetail.sim.kube.schema import Cause
from dovetail.sim.kube.types import Generation
from dovetail.sim.kube.views import through
from dovetail.sim.kube.writes import finished

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import DeleteOptions
    from dovetail.sim.kube.store import Key, Record
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
                raise status.forbidden(info, key[1], "this namespace may not be deleted")
            ask(self.core, info, None, record.obj, "DELETE", WriteOptions(dry_run=options.dry_run))
            grace = grace_period(record.obj, options.grace) if info.graceful_delete else 0
            obj = self._marked(info, record, grace, options)
            if finished(info, obj):
                return (
                    through(record, info).obj if options.dry_run else self._remove(info, record, obj)
                ), True
            if obj is not record.obj and not options.dry_run:
                record = self.core.put(record.info, key, obj)
            return through(record, info).obj, False

    def _remove(self, info: TypeInfo, record: Record, obj: dict[str, Any]) -> dict[str, Any]:
        # A pod's end is announced before it comes; everything else goes as it was last stored.
        if info.graceful_delete and obj is not record.obj:
            self.core.put(record.info, record.key, obj)
        gone = self.core.store.drop(record.info, record.key)
        return through(gone, info).obj

    def _marked(self, info: TypeInfo, record: Record, grace: int, options: DeleteOptions) -> dict[str, Any]:
        """The object as being deleted; the very same object if nothing about it changes."""
        metadata = dict(record.obj["metadata"])
        finalizers = self._finalizers(metadata, options)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        if metadata.get("deletionTimestamp"):
            self._shorten(metadata, grace)
        else:
            metadata["deletionTimestamp"] = stamp(self.core.clock.now() + timedelta(seconds=grace))
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

    def _finalizers(self, metadata: dict[str, Any], options: DeleteOptions) -> list[str]:
        finalizers = list(metadata.get("finalizers") or ())
        wanted = _POLICY_FINALIZER.get(options.propagation)
        if options.propagation:
            finalizers = [each for each in finalizers if each not in (FOREGROUND, ORPHAN)]
        return [*finalizers, wanted] if wanted else finalizers

    def _shorten(self, metadata: dict[str, Any], grace: int) -> None:
        """A repeated delete may bring the end nearer, never push it away."""
        before = metadata.get("deletionGracePeriodSeconds") or 0
        if grace >= before:
            return
        end = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=before - grace)
        metadata["deletionTimestamp"] = stamp(end)
        metadata["deletionGracePeriodSeconds"] = grace


def grace_period(pod: dict[str, Any], asked: int | None) -> int:
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


def check_preconditions(info: TypeInfo, record: Record, options: DeleteOptions) -> None:
    """Refuse to delete another object than the client meant."""
    metadata = record.obj["metadata"]
    for what, asked, actual in (
        ("UID", options.uid, metadata["uid"]),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
    ):
        if asked and asked != actual:
            why = f"the {what} in the precondition ({asked}) does not match the {what} in record ({actual})"
            raise status.conflict(info, record.key[1], why, kind=info.kind)
