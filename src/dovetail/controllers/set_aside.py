"""Bad items are named: once in an event on the object, once in the log, and in a metric while they last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dovetail import metrics
from dovetail.api import core
from dovetail.api.bad_items import SetAside, describe_failure, reason_of, set_aside
from dovetail.api.meta import Object, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.logs import Changes, build_reference, error
from dovetail.ports import Clock, Recorder

__all__ = ["SetAsideReporter"]

SET_ASIDE = metrics.gauge(
    "dovetail_set_aside_objects",
    "Objects that are left out of decisions because they cannot be read or decided with.",
    ("controller", "kind"),
)
LOGGED_SET_ASIDE = error(
    "object is set aside",
    "An object cannot be read, or nothing can be decided with it; everybody else is served.",
    ("kind", "object", "error"),
    ours=True,
)
WINDOW = 3600.0
_KINDS: dict[str, type[Object]] = {
    kind.KIND.kind: kind
    for kind in (
        Pod,
        NodeClaim,
        NodePool,
        core.DaemonSet,
        core.Node,
        core.PersistentVolume,
        core.PersistentVolumeClaim,
        core.PodDisruptionBudget,
        core.Service,
        core.StorageClass,
    )
}


class SetAsideReporter:
    """Those that one controller met."""

    def __init__(self, recorder: Recorder, clock: Clock, controller: str) -> None:
        self._recorder = recorder
        self._controller = controller
        self._changes = Changes(clock.monotonic)
        self._shown: set[str] = set()
        self._unread: dict[tuple[str, str], SetAside] = {}

    def report_all(self, bad: Iterable[SetAside]) -> None:
        """These were left out of the last decision, and no others."""
        found = tuple(bad)
        self._set_gauges(found)
        for each in found:
            self._report_one(each)

    def observe_object(self, before: Object | None, after: Object | None) -> None:
        """An object was read: well, not at all, or well again."""
        why = reason_of(after) if after is not None else ""
        obj = after or before
        if obj is None or (not why and not self._unread):
            return
        key = obj.KIND.kind, obj.full_name
        if why:
            self._unread[key] = each = set_aside(obj, why)
            self._report_one(each, type(obj))
        elif self._unread.pop(key, None) is None:
            return
        self._set_gauges(tuple(self._unread.values()))

    def report_failure(self, obj: Object, error: Exception) -> None:
        """Somebody who heard of an object could not cope with it."""
        self._report_one(set_aside(obj, describe_failure(error)), type(obj))

    def _set_gauges(self, found: tuple[SetAside, ...]) -> None:
        counted = Counter(each.kind for each in found)
        for kind in self._shown | counted.keys():
            SET_ASIDE.labels(self._controller, kind).set(counted[kind])
        self._shown |= counted.keys()

    def _report_one(self, bad: SetAside, kind: type[Object] | None = None) -> None:
        if self._changes.has_changed(f"{bad.kind}/{bad.namespace}/{bad.name}", bad.why):
            LOGGED_SET_ASIDE(
                {"kind": bad.kind, "object": build_reference(bad.name, bad.namespace), "error": bad.why}
            )
        kind = kind or _KINDS.get(bad.kind)
        if kind is None:
            return  # not an object of the cluster, such as an instance type
        about = kind(metadata=ObjectMeta(name=bad.name, namespace=bad.namespace, uid=bad.uid))
        note = f"Left out of decisions: {bad.why}"
        dedupe = (bad.uid or bad.name,)
        self._recorder.publish_event(about, "SetAside", note, warning=True, dedupe=dedupe, window=WINDOW)
