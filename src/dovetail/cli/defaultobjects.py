"""What an embedded cluster has from the start: a node class, a pool, a storage class, its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dovetail.cli.published import document_of
from dovetail.settings import Settings
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World

__all__ = ["create_default_pool", "create_storage_class", "publish_settings"]

Json = dict[str, Any]
POOLS, STORAGE = "nodepools.karpenter.sh", "storageclasses.storage.k8s.io"
CLASSES = {"aws": "ec2nodeclasses.karpenter.k8s.aws", "kwok": "kwoknodeclasses.karpenter.kwok.sh"}
CAPACITY = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
REQUIREMENTS = {
    "aws": [
        CAPACITY,
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["4"]},
    ],
    "kwok": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}, CAPACITY],
}
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
    node_class = _ec2_class(name) if cloud == "aws" else _kwok_class()
    group, kind = node_class["apiVersion"].partition("/")[0], node_class["kind"]
    reference = {"group": group, "kind": kind, "name": "default"}
    template = {"spec": {"nodeClassRef": reference, "requirements": REQUIREMENTS[cloud]}}
    made = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": template, **pool},
    }
    _create(world, CLASSES[cloud], node_class)
    _create(world, POOLS, made)


def _ec2_class(cluster: str) -> Json:
    discovered = [{"tags": {"karpenter.sh/discovery": cluster}}]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "role": f"KarpenterNodeRole-{cluster}",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": discovered,
            "securityGroupSelectorTerms": discovered,
        },
    }


def _kwok_class() -> Json:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
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
