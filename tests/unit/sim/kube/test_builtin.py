"""The field tables: every kind is in them, and lists merge by the keys people rely on."""

from __future__ import annotations

import pytest

from dovetail.api.schema.nodes import SchemaNode
from dovetail.sim.kube.builtin import kind_schemas
from dovetail.sim.kube.builtin.kind_schemas import find_message, find_message_name
from dovetail.sim.kube.builtin.kinds import list_builtin_types
from dovetail.sim.kube.types import TypeInfo

POD, SERVICE, NODE = ("", "v1", "Pod"), ("", "v1", "Service"), ("", "v1", "Node")
DEPLOYMENT = ("apps", "v1", "Deployment")


def at(kind: tuple[str, str, str], path: str) -> SchemaNode:
    """The node at a dotted path, lists entered on the way."""
    node = kind_schemas.find_merge_keys(*kind)
    for name in path.split("."):
        node = node.items or node
        child = node.find_child(name)
        assert child is not None, f"{kind} has no {name} in {path}"
        node = child
    return node


@pytest.mark.parametrize("info", list_builtin_types(), ids=lambda info: f"{info.resource}/{info.version}")
def test_every_kind_served_has_a_schema(info: TypeInfo) -> None:
    schema = kind_schemas.find_builtin_schema(info.group, info.version, info.kind)
    unknown = schema.prune({"apiVersion": info.api_version, "kind": info.kind, "metadata": {"name": "x"}})[1]
    assert unknown == []


@pytest.mark.parametrize(
    "kind", ["v1/Pod", "apps/v1/Deployment", "apiextensions.k8s.io/v1/CustomResourceDefinition"]
)
def test_every_message_a_kind_needs_is_there(kind: str) -> None:
    api_version, _, name = kind.rpartition("/")
    start = find_message_name(api_version, name)
    assert start is not None
    seen, waiting = set(), [start]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            kinds = [field.type.lstrip("[]{}") for field in find_message(current).fields]
            waiting += [text[1:] for text in kinds if text.startswith("@")]
    assert len(seen) > 5


@pytest.mark.parametrize(
    ("kind", "path", "key"),
    [
        (POD, "spec.containers", "name"),
        (POD, "spec.initContainers", "name"),
        (POD, "spec.ephemeralContainers", "name"),
        (POD, "spec.volumes", "name"),
        (POD, "spec.imagePullSecrets", "name"),
        (POD, "spec.resourceClaims", "name"),
        (POD, "spec.schedulingGates", "name"),
        (POD, "spec.containers.env", "name"),
        (POD, "spec.containers.ports", "containerPort"),
        (POD, "spec.containers.volumeMounts", "mountPath"),
        (POD, "spec.containers.volumeDevices", "devicePath"),
        (POD, "spec.hostAliases", "ip"),
        (POD, "status.podIPs", "ip"),
        (POD, "status.hostIPs", "ip"),
        (POD, "spec.topologySpreadConstraints", "topologyKey"),
        (POD, "status.conditions", "type"),
        (POD, "metadata.ownerReferences", "uid"),
        (NODE, "status.conditions", "type"),
        (NODE, "status.addresses", "type"),
        (DEPLOYMENT, "status.conditions", "type"),
        (DEPLOYMENT, "spec.template.spec.containers", "name"),
        (SERVICE, "spec.ports", "port"),
        (SERVICE, "status.conditions", "type"),
        (("apps", "v1", "ReplicaSet"), "status.conditions", "type"),
        (("apps", "v1", "DaemonSet"), "status.conditions", "type"),
        (("apps", "v1", "StatefulSet"), "status.conditions", "type"),
        (("batch", "v1", "Job"), "status.conditions", "type"),
        (("policy", "v1", "PodDisruptionBudget"), "status.conditions", "type"),
        (("", "v1", "PersistentVolumeClaim"), "status.conditions", "type"),
        (("", "v1", "Namespace"), "status.conditions", "type"),
        (("", "v1", "ServiceAccount"), "secrets", "name"),
        (("storage.k8s.io", "v1", "CSINode"), "spec.drivers", "name"),
    ],
)
def test_lists_that_a_strategic_patch_merges(kind: tuple[str, str, str], path: str, key: str) -> None:
    node = at(kind, path)
    assert node.merge
    assert node.merge_key == key


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (POD, "spec.tolerations"),
        (POD, "spec.containers.args"),
        (POD, "spec.containers.command"),
        (NODE, "spec.taints"),
        (DEPLOYMENT, "spec.selector.matchExpressions"),
        (("", "v1", "LimitRange"), "spec.limits"),
        (("", "v1", "PersistentVolumeClaim"), "spec.accessModes"),
    ],
)
def test_lists_that_a_strategic_patch_replaces(kind: tuple[str, str, str], path: str) -> None:
    assert not at(kind, path).merge


def test_sets_unions_and_wholes() -> None:
    for kind, path in ((POD, "metadata.finalizers"), (NODE, "spec.podCIDRs")):
        node = at(kind, path)
        assert node.merge
        assert node.merge_key == ""
    assert at(POD, "spec.volumes").retain_keys
    assert at(POD, "spec.resourceClaims").retain_keys
    assert at(DEPLOYMENT, "spec.strategy").retain_keys
    assert at(("policy", "v1", "PodDisruptionBudget"), "spec.selector").replace


@pytest.mark.parametrize(
    ("kind", "path", "keys"),
    [
        (POD, "spec.containers.ports", ("containerPort", "protocol")),
        (SERVICE, "spec.ports", ("port", "protocol")),
        (POD, "spec.topologySpreadConstraints", ("topologyKey", "whenUnsatisfiable")),
        (POD, "status.conditions", ("type",)),
        (POD, "spec.containers.env", ("name",)),
        (POD, "spec.volumes", ("name",)),
    ],
)
def test_appliers_share_lists_by_keys_of_their_own(
    kind: tuple[str, str, str], path: str, keys: tuple[str, ...]
) -> None:
    node = at(kind, path)
    assert (node.list_type, node.list_keys) == ("map", keys)


def test_what_appliers_own_whole() -> None:
    assert at(POD, "metadata.finalizers").list_type == "set"
    assert at(POD, "status.hostIPs").list_type == "atomic"
    assert at(POD, "spec.nodeSelector").map_atomic
    assert at(SERVICE, "spec.selector").map_atomic
    assert at(DEPLOYMENT, "spec.selector").map_atomic
    assert not at(POD, "metadata.labels").map_atomic


def test_amounts_can_be_told_from_other_values() -> None:
    requests = at(POD, "spec.containers.resources.requests")
    assert requests.additional is not None
    assert requests.additional.name == "quantity"
    assert at(POD, "spec.volumes.emptyDir.sizeLimit").name == "quantity"
