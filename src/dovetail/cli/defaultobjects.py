"""What an embedded cluster has from the start: a node class, a pool, a storage class, its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dovetail.cli.published import document_of
from dovetail.settings import Settings
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World
from dovetail.state.defaultpool import NODE_CLASSES, default_pool

__all__ = ["create_default_pool", "create_storage_class", "publish_settings"]

Json = dict[str, Any]
POOLS, STORAGE = "nodepools.karpenter.sh", "storageclasses.storage.k8s.io"
CLASSES = {"aws": "ec2nodeclasses.karpenter.k8s.aws", "kwok": "kwoknodeclasses.karpenter.kwok.sh"}
GP3 = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "gp3",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "ebs.csi.aws.com",
    "parameters": {"type": "gp3"},
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowVolumeExpansion": True,
}


def create_default_pool(
    world: World, cloud: Literal["aws", "kwok"], name: str, pool: Mapping[str, Any]
) -> None:
    """Create a node class and a NodePool, both called default, unless the cluster has some."""
    if world.api.list(POOLS) or world.api.list(CLASSES[cloud]):
        return
    _create(world, CLASSES[cloud], _node_class(cloud, name))
    _create(world, POOLS, default_pool(cloud, **pool))


def _node_class(cloud: Literal["aws", "kwok"], cluster: str) -> Json:
    api_version, kind = NODE_CLASSES[cloud]
    spec = {"spec": _ec2_class_spec(cluster)} if cloud == "aws" else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "default"}, **spec}


def _ec2_class_spec(cluster: str) -> Json:
    discovered = [{"tags": {"karpenter.sh/discovery": cluster}}]
    return {
        "role": f"KarpenterNodeRole-{cluster}",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": discovered,
        "securityGroupSelectorTerms": discovered,
    }


def create_storage_class(world: World) -> None:
    """Create the default StorageClass, as an EKS cluster with the EBS driver has it, unless there is one."""
    if not world.api.list(STORAGE):
        _create(world, STORAGE, GP3)


def publish_settings(
    world: World, name: str, settings: Settings, region: str = "", endpoint: str = ""
) -> None:
    """Write what commands need to look at this cluster; what an earlier run has written is replaced."""
    document = document_of(name, settings, region, endpoint)
    if not _create(world, "configmaps", document):
        world.api.update("configmaps", document)


def _create(world: World, resource: str, document: Json) -> bool:
    """Create an object; false where one of that name is there already."""
    try:
        world.api.create(resource, document)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        return False
    return True
