"""A namespace on its way out takes everything in it along, and goes when nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.options import DeleteOptions

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.deletes import Deleter
    from dovetail.sim.kube.store import Event, Record
    from dovetail.sim.kube.writes import Writer

SEEDED = ("default", "kube-system", "kube-public", "kube-node-lease")
KUBERNETES = "kubernetes"


class Terminator:
    """Empties terminating namespaces. Like the collector, it works right after the write that asks for it."""

    def __init__(self, core: Core, deleter: Deleter, writer: Writer) -> None:
        self.core = core
        self.deleter = deleter
        self.writer = writer
        self.enabled = True
        self._going: dict[str, None] = {}
        core.store.on_commit(self.heard, "namespaces", removals=True)

    def heard(self, event: Event) -> None:
        """Notice namespaces that start to go, and objects that leave them."""
        namespace, name = event.new.key
        if event.new.info.resource == "namespaces":
            self._heard_namespace(event, name)
        elif event.type == "DELETED" and namespace in self._going:
            self.core.afterwards(lambda: self.finish(namespace))

    def _heard_namespace(self, event: Event, name: str) -> None:
        if event.type == "DELETED":
            self._going.pop(name, None)
        elif event.new.obj["metadata"].get("deletionTimestamp") and name not in self._going:
            self._going[name] = None
            self.core.afterwards(lambda: self.empty(name))

    def empty(self, namespace: str) -> None:
        """Delete all content once; what has finalizers or a grace period leaves later."""
        if not self.enabled:
            return
        for record in self._content(namespace):
            if not record.obj["metadata"].get("deletionTimestamp"):
                self.deleter.delete(record.info, record.key, DeleteOptions(propagation="Background"))
        self.finish(namespace)

    def _content(self, namespace: str) -> list[Record]:
        # Workloads first, pods last, would only make more events: order by storage key and name.
        buckets = self.core.store.buckets()
        return [record for name in sorted(buckets) for record in buckets[name].in_namespace(namespace)]

    def finish(self, namespace: str) -> None:
        """Let an empty namespace go."""
        record = self.core.store.get("namespaces", ("", namespace))
        if not self.enabled or record is None or namespace not in self._going or self._content(namespace):
            return
        spec: dict[str, Any] = dict(record.obj.get("spec", {}))
        left = [each for each in spec.pop("finalizers", ()) if each != KUBERNETES]
        if left:
            spec["finalizers"] = left
        self.writer.settle(record.info, record.key, {**record.obj, "spec": spec})
