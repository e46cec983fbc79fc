"""Binding: a scheduler says which node a pod runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status
from dovetail.sim.kube.conditions import with_condition

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.store import Key


class Binder:
    """Assigns pods. The node need not exist; a scheduler may know better."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def bind(self, key: Key, body: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
        """Bind a pod to the node a Binding names."""
        with self.core.turn():
            node, annotations = _target(key[1], body)
            pods = self.core.type_of("pods")
            record = self.core.store.get("pods", key)
            if record is None:
                raise status.not_found(pods, key[1])
            pod = record.obj
            uid = (body.get("metadata") or {}).get("uid")
            if uid and uid != pod["metadata"]["uid"]:
                raise status.conflict(pods, key[1], f"the UID in the precondition ({uid}) is another pod's")
            self._check(pod, key[1])
            if not options.dry_run:
                self.core.put(record.info, key, self._bound(pod, node, annotations))
            return status.success(201)

    def _check(self, pod: dict[str, Any], name: str) -> None:
        pods = self.core.type_of("pods")
        if pod["metadata"].get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif pod["spec"].get("nodeName"):
            why = f"pod {name} is already assigned to node {pod['spec']['nodeName']}"
        elif pod["spec"].get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
        else:
            return
        raise status.conflict(pods, name, why, kind="pods/binding")

    def _bound(self, pod: dict[str, Any], node: str, annotations: dict[str, str]) -> dict[str, Any]:
        metadata = dict(pod["metadata"])
        if annotations:
            metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
        condition = {"type": "PodScheduled", "status": "True"}
        pod_status = with_condition(pod.get("status", {}), condition, self.core.stamp())
        return {
            **pod,
            "metadata": metadata,
            "spec": {**pod["spec"], "nodeName": node},
            "status": pod_status,
        }


def _target(name: str, body: dict[str, Any]) -> tuple[str, dict[str, str]]:
    metadata, target = body.get("metadata") or {}, body.get("target") or {}
    if not isinstance(metadata, dict) or not isinstance(target, dict):
        raise status.bad_request("Binding cannot be decoded: metadata and target must be objects")
    if body.get("kind") not in (None, "", "Binding"):
        raise status.bad_request(
            f"the kind in the data ({body['kind']}) does not match the expected kind (Binding)"
        )
    if metadata.get("name") not in (None, "", name):
        raise status.bad_request("the name of the binding does not match the name on the URL")
    node = target.get("name")
    if not node or not isinstance(node, str):
        raise status.bad_request("target.name: Required value")
    if target.get("kind") not in (None, "", "Node"):
        raise status.bad_request('target.kind: Unsupported value: supported values: "Node"')
    return node, metadata.get("annotations") or {}
