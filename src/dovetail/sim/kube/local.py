"""The server's client in the same process: the same semantics, without the wire.

Every call finishes in the turn it is made in. Objects read are shared and must not be changed;
objects written are copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.core import DeleteOptions, WriteOptions, copy_json
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.verbs.list_watch import ListOptions, list_matching

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.verbs.handler import VerbHandler
    from dovetail.sim.kube.verbs.list_watch import ApiWatch
    from dovetail.sim.kube.verbs.patch import PatchKind


class LocalApi:
    """CRUD, watch, bind and evict. `resource` is `plural` or `plural.group`."""

    def __init__(self, core: Core, handler: VerbHandler, client: str = "") -> None:
        self.core = core
        self.handler = handler
        self.client = client

    def _find_fault(
        self, verb: str, resource: str, namespace: str = "", name: str = "", subresource: str = ""
    ) -> Fault | None:
        fault = self.core.faults.find_fault(
            ApiCall(verb, resource, namespace, name, subresource, self.client)
        )
        if fault is None:
            return None
        if not fault.after_commit:
            _raise_fault(fault)
        return fault

    def get(self, resource: str, name: str, namespace: str = "") -> dict[str, Any]:
        """One object, shared and read-only."""
        fault = self._find_fault("get", resource, namespace, name)
        info = self.core.find_type(resource)
        key = (namespace if info.namespaced else "", name)
        return self.handler.get(info, key, fault.behind if fault else 0).obj

    def list(
        self, resource: str, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]:
        """Matching objects by namespace and name, shared and read-only."""
        fault = self._find_fault("list", resource, namespace)
        info = self.core.find_type(resource)
        selector = self.handler.parse_selector(info, label_selector, field_selector)
        if fault is not None and fault.behind:
            revision = self.handler.find_revision_behind(info, fault.behind)
            options = ListOptions(namespace, selector, resource_version=str(revision), match="Exact")
            return [record.obj for record in self.handler.list(info, options).records]
        bucket = self.core.store.get_bucket(info.storage)
        return [record.obj for record in list_matching(bucket, info, namespace, selector)]

    def create(
        self,
        resource: str,
        obj: dict[str, Any],
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = "",
    ) -> dict[str, Any]:
        """Create; the namespace may be given here or in the object."""
        info = self.core.find_type(resource)
        metadata = obj.get("metadata") or {}
        if info.namespaced:
            namespace = namespace or metadata.get("namespace") or "default"
        name = metadata.get("name") or ""
        options = WriteOptions(dry_run=dry_run, manager=field_manager)
        return self._finish_write(
            self._find_fault("create", resource, namespace, name),
            lambda: self.handler.create(info, namespace, copy_json(obj), options),
        )

    def update(self, resource: str, obj: dict[str, Any], subresource: str = "") -> dict[str, Any]:
        """Replace the object (or its status) with this one."""
        info = self.core.find_type(resource)
        metadata = obj["metadata"]
        key = (metadata.get("namespace") or "" if info.namespaced else "", metadata["name"])
        return self._finish_write(
            self._find_fault("update", resource, *key, subresource),
            lambda: self.handler.update(info, key, copy_json(obj), WriteOptions(), subresource)[0],
        )

    def patch(
        self,
        resource: str,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        force: bool = False,
        field_manager: str = "",
    ) -> dict[str, Any]:
        """Change part of an object."""
        info = self.core.find_type(resource)
        options = WriteOptions(manager=field_manager, force=force)
        key = (namespace if info.namespaced else "", name)
        return self._finish_write(
            self._find_fault("patch", resource, *key, subresource),
            lambda: self.handler.patch(info, key, copy_json(patch), kind, options, subresource)[0],
        )

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        *,
        grace_seconds: int | None = None,
        propagation: str = "",
        uid: str = "",
        resource_version: str = "",
    ) -> dict[str, Any]:
        """Delete; gives back the object while it waits, and what the wire would once it is gone."""
        info = self.core.find_type(resource)
        options = DeleteOptions(grace_seconds, propagation, uid, resource_version)
        key = (namespace if info.namespaced else "", name)
        return self._finish_write(
            self._find_fault("delete", resource, *key),
            lambda: self.handler.delete(info, key, options),
        )

    def bind(self, pod: str, namespace: str, node: str) -> None:
        """Assign a pod to a node, as a scheduler does."""
        body = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        self._finish_write(
            self._find_fault("create", "pods", namespace, pod, "binding"),
            lambda: self.handler.subresources.binder.bind((namespace, pod), body, WriteOptions()),
        )

    def evict(
        self,
        pod: str,
        namespace: str,
        *,
        grace_seconds: int | None = None,
        dry_run: bool = False,
        uid: str = "",
    ) -> None:
        """Ask for a pod to be deleted if its disruption budget allows."""
        options = DeleteOptions(grace=grace_seconds, uid=uid, dry_run=dry_run)
        self._finish_write(
            self._find_fault("create", "pods", namespace, pod, "eviction"),
            lambda: self.handler.subresources.evictor.evict((namespace, pod), options),
        )

    def watch(
        self,
        resource: str,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        send_initial_events: bool = False,
        allow_bookmarks: bool = False,
    ) -> ApiWatch:
        """A stream of (type, object): the present state first, unless a version is given."""
        fault = self._find_fault("watch", resource, namespace)
        info = self.core.find_type(resource)
        watch = self.handler.watch(
            info,
            namespace,
            self.handler.parse_selector(info, label_selector, field_selector),
            resource_version,
            True if send_initial_events else None,
            allow_bookmarks,
        )
        if fault is not None and fault.watch_events is not None:
            watch.end_after(fault.watch_events, fault.watch_end)
        return watch

    def _finish_write(self, fault: Fault | None, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        result = act()
        if fault is not None:
            _raise_fault(fault)
        return result


def _raise_fault(fault: Fault) -> None:
    if fault.reset:
        raise ConnectionResetError("the connection was dropped by a fault rule")
    if fault.error is not None:
        raise fault.error
