"""Writes of the cluster's own controllers in this process, without validation.

They write well-formed, canonical documents, so nothing is pruned, defaulted or validated again. All
else holds as for everyone: faults, admission policies, no-op suppression, generations, one revision
per commit. A whole pod is admitted once per template; the next ones take over what admission made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status as errors
from dovetail.sim.kube.core import WriteOptions
from dovetail.sim.kube.faults import Fault, NoFaults
from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.meta import generate_name, generate_uid
from dovetail.sim.kube.types import Generation
from dovetail.sim.kube.verbs.admission_policies import check_policies
from dovetail.sim.kube.verbs.writes import is_fully_deleted

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.store import Key, StoreEvent

__all__ = ["AdmittedTemplates", "InternalApi"]

Json = dict[str, Any]
# What admission of a pod looks at beside the pod; when any of it changes, templates are admitted anew.
ADMITTED_BY = frozenset(
    ("limitranges", "namespaces", "priorityclasses.scheduling.k8s.io", "runtimeclasses.node.k8s.io")
)
MOST_TEMPLATES = 4096


class AdmittedTemplates:
    """What admission made of pod specs, by the very spec that was handed in."""

    def __init__(self, server: ApiServer) -> None:
        self._admitted: dict[tuple[int, str], tuple[Json, Json, Json]] = {}
        server.store.on_commit(self._handle_commit, *ADMITTED_BY)

    def _handle_commit(self, event: StoreEvent) -> None:
        self._admitted.clear()

    def find_admitted(self, spec: Json, namespace: str) -> tuple[Json, Json] | None:
        """The admitted spec and first status for this spec, if one was admitted here before."""
        found = self._admitted.get((id(spec), namespace))
        return (found[1], found[2]) if found is not None and found[0] is spec else None

    def remember_pod(self, spec: Json, made: Json) -> None:
        """Remember a pod that went through admission."""
        if len(self._admitted) >= MOST_TEMPLATES:
            self._admitted.clear()
        # The spec itself is kept, so that no other object can take over its id.
        self._admitted[id(spec), made["metadata"]["namespace"]] = (spec, made["spec"], made["status"])


class InternalApi(LocalApi):
    """A LocalApi that also takes documents on trust."""

    def __init__(self, server: ApiServer, client: str, templates: AdmittedTemplates) -> None:
        super().__init__(server.core, server.handler, client)
        self._admission = server.admission
        self._options = WriteOptions()
        self._templates = templates

    def _find_fault(
        self, verb: str, resource: str, namespace: str = "", name: str = "", subresource: str = ""
    ) -> Fault | None:
        if type(self.core.faults) is NoFaults:
            return None
        return super()._find_fault(verb, resource, namespace, name, subresource)

    def amend(self, resource: str, key: Key, subresource: str = "", **parts: Json) -> Json:
        """Put new top-level parts (spec, status, metadata) in place of the old; gives back what is stored."""
        fault = self._find_fault("update", resource, *key, subresource)
        info = self.core.find_type(resource)
        if fault is None:
            return self._amend_stored(info.storage, key, subresource, parts)
        return self._finish_write(fault, lambda: self._amend_stored(info.storage, key, subresource, parts))

    def _amend_stored(self, storage: str, key: Key, subresource: str, parts: dict[str, Json]) -> Json:
        core = self.core
        record = core.store.get(storage, key)
        if record is None:
            raise errors.not_found(core.find_type(storage), key[1])
        old, info = record.obj, record.info
        for name, part in parts.items():
            if old.get(name) != part:
                break
        else:
            return old
        metadata = dict(parts.get("metadata") or old["metadata"])
        if info.generation is not Generation.NONE and "spec" in parts and parts["spec"] != old.get("spec"):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        obj = {**old, **parts, "metadata": metadata}
        with core.turn():
            check_policies(core, info, obj, old, "UPDATE", self._options, subresource)
            if is_fully_deleted(info, obj):
                core.store.drop(info, key)
            else:
                core.put(info, key, obj)
        return obj

    def report_status(self, resource: str, obj: Json, status: Json) -> Json:
        """Put a new status in place of an object's old one."""
        metadata = obj["metadata"]
        return self.amend(
            resource, (metadata.get("namespace", ""), metadata["name"]), "status", status=status
        )

    def insert(self, resource: str, obj: Json) -> Json:
        """Create an object that is complete and canonical already, but for what only the server gives."""
        info, metadata = self.core.find_type(resource), dict(obj["metadata"])
        key = (metadata.get("namespace", ""), metadata.get("name", ""))
        fault = self._find_fault("create", resource, *key)
        obj = {"kind": info.kind, "apiVersion": info.api_version, **obj, "metadata": metadata}
        return self._finish_write(fault, lambda: self._insert_object(resource, obj))

    def _insert_object(self, resource: str, obj: Json) -> Json:
        core, metadata = self.core, obj["metadata"]
        info = core.find_type(resource)
        self._admission.check_namespace(info, metadata)
        if not metadata.get("name"):
            self._generate_name(info.storage, metadata)
        metadata["uid"] = generate_uid(core.rng)
        metadata["creationTimestamp"] = core.format_now()
        if info.generation is not Generation.NONE:
            metadata["generation"] = 1
        key = (metadata.get("namespace", ""), metadata["name"])
        if core.store.get(info.storage, key) is not None:
            raise errors.already_exists(info, metadata["name"])
        with core.turn():
            check_policies(core, info, obj, None, "CREATE", self._options)
            core.put(info, key, obj)
        return obj

    def _generate_name(self, storage: str, metadata: Json) -> None:
        namespace = metadata.get("namespace", "")
        while True:
            metadata["name"] = generate_name(metadata["generateName"], self.core.rng)
            if self.core.store.get(storage, (namespace, metadata["name"])) is None:
                return

    def create_pod(self, pod: Json) -> Json:
        """Create a pod; the second of the very same spec is admitted as the first was."""
        spec, namespace = pod["spec"], pod["metadata"]["namespace"]
        known = self._templates.find_admitted(spec, namespace)
        if known is not None:
            ready = {"metadata": _drop_empty(pod["metadata"]), "spec": known[0], "status": known[1]}
            return self.insert("pods", ready)
        made = self.create("pods", pod, namespace)
        self._templates.remember_pod(spec, made)
        return made


def _drop_empty(metadata: Json) -> Json:
    return {name: value for name, value in metadata.items() if value not in (None, {}, [], "")}
