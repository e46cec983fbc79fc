"""Volumes: where a pod's claims let it run, and how many a node can still attach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Final

from msgspec.structs import replace

from dovetail.api.core import PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.api.labels import BIND_COMPLETED, DEFAULT_STORAGE_CLASS, HOSTNAME, ZONE
from dovetail.api.pod import NodeSelectorRequirement, Pod, Volume
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import SchedulingOptions, Storage

__all__ = [
    "Attachments",
    "describe_invalid_claim",
    "describe_lost_claim",
    "find_exceeded_driver",
    "list_attachments",
    "list_volume_topologies",
]

Attachments = Mapping[str, frozenset[str]]
"""CSI driver to the claims (`namespace/name`) it attaches."""

EBS: Final = "ebs.csi.aws.com"
# Drivers' own names for labels every node has (Karpenter on AWS reads this one so).
DRIVER_LABELS: Final = {"topology.ebs.csi.aws.com/zone": ZONE}
# In-tree plugins that Kubernetes hands to a CSI driver (k8s.io/csi-translation-lib).
MIGRATED: Final = {
    "kubernetes.io/aws-ebs": EBS,
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}


def find_claim_name(pod: Pod, volume: Volume) -> str | None:
    """The claim behind a volume; None for volumes that are none."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.name}-{volume.name}" if volume.ephemeral is not None else None


def list_claims(pod: Pod, storage: Storage) -> Iterator[tuple[str, PersistentVolumeClaim | None]]:
    """The pod's claims by full name, with the claim where it exists."""
    for volume in pod.spec.volumes:
        name = find_claim_name(pod, volume)
        if name is not None:
            full = f"{pod.namespace}/{name}"
            yield full, storage.claims.get(full)


def describe_lost_claim(pod: Pod, storage: Storage) -> str | None:
    """The claim a pod cannot do without and that is not there."""
    return next(
        (f"failed to get pvc {name}" for name, claim in list_claims(pod, storage) if claim is None), None
    )


def describe_invalid_claim(pod: Pod, storage: Storage, options: SchedulingOptions) -> str | None:
    """What is wrong with the first bad claim of a pod; nothing can be decided until it is mended."""
    for name, claim in list_claims(pod, storage):
        if claim is None:
            return f"failed to get pvc {name}"
        problem = _describe_problem(claim, storage, options)
        if problem is not None:
            return problem
        driver = _find_driver(claim, storage)
        if driver in options.unsupported_provisioners:
            return f"volume uses an unsupported CSI driver (driver={driver}, pvc={name})"
    return None


def _describe_problem(
    claim: PersistentVolumeClaim, storage: Storage, options: SchedulingOptions
) -> str | None:
    name = claim.full_name
    if claim.deleting:
        return f"persistentvolumeclaim is being deleted (pvc={name})"
    if claim.status.phase == "Lost":
        return f"persistentvolumeclaim bound to non-existent persistentvolume (pvc={name})"
    if claim.spec.volume_name:
        return _describe_bound_problem(claim, storage.volumes.get(claim.spec.volume_name))
    return _describe_class_problem(claim, storage, options)


def _describe_bound_problem(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> str | None:
    where = f"(pvc={claim.full_name}, volume={claim.spec.volume_name})"
    if volume is None:
        return f"persistentvolume does not exist {where}"
    if volume.deleting:
        return f"persistentvolume is being deleted {where}"
    if BIND_COMPLETED not in claim.annotations:
        return f"persistentvolumeclaim is not bound yet {where}"
    return None


def _describe_class_problem(
    claim: PersistentVolumeClaim, storage: Storage, options: SchedulingOptions
) -> str | None:
    name = claim.spec.storage_class_name
    if not name:
        return f"unbound pvc must define a storage class (pvc={claim.full_name})"
    storage_class = storage.classes.get(name)
    if storage_class is None:
        return f"storage class does not exist (storageclass={name}, pvc={claim.full_name})"
    if storage_class.volume_binding_mode == "Immediate":
        return f"persistentvolumeclaim with immediate binding is not bound yet (pvc={claim.full_name})"
    keys = {each.key for term in storage_class.allowed_topologies for each in term.match_label_expressions}
    unsupported = sorted(keys & options.unsupported_volume_keys)
    return f"storage class topology key {unsupported[0]} is not supported" if unsupported else None


def list_volume_topologies(pod: Pod, storage: Storage) -> tuple[Requirements, ...]:
    """The ways in which all volumes can be reached from one node; empty when they do not mind."""
    per_volume = [
        topologies
        for _, claim in list_claims(pod, storage)
        if claim is not None and (topologies := tuple(_list_claim_topologies(claim, storage)))
    ]
    if not per_volume:
        return ()
    combined = [_combine_compatible(topologies) for topologies in product(*per_volume)]
    possible = tuple(topology for topology in combined if topology is not None)
    # Contradictory volumes fail where they are tried, with a message about them.
    return possible or tuple(_merge_requirements(topologies) for topologies in product(*per_volume))


def _combine_compatible(topologies: Iterable[Requirements]) -> Requirements | None:
    total = Requirements()
    for topology in topologies:
        if not total.intersects(topology):
            return None
        total = total & topology
    return total


def _merge_requirements(topologies: Iterable[Requirements]) -> Requirements:
    total = Requirements()
    for topology in topologies:
        total = total & topology
    return total


def _list_claim_topologies(claim: PersistentVolumeClaim, storage: Storage) -> Iterator[Requirements]:
    if claim.spec.volume_name:
        volume = storage.volumes.get(claim.spec.volume_name)
        if volume is not None:
            yield from _list_topologies_of_volume(volume)
    elif claim.spec.storage_class_name:
        storage_class = storage.classes.get(claim.spec.storage_class_name)
        if storage_class is not None:
            yield from _list_topologies_of_class(storage_class)


def _list_topologies_of_volume(volume: PersistentVolume) -> Iterator[Requirements]:
    affinity = volume.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
    # The pod moves to another machine and its local data does not: the name of the old one is no guide.
    local = volume.spec.local is not None or volume.spec.host_path is not None
    for term in terms:
        if term.match_expressions:
            kept = (each for each in term.match_expressions if not (local and each.key == HOSTNAME))
            yield Requirements.from_expressions(replace(each, key=_translate_key(each.key)) for each in kept)


def _list_topologies_of_class(storage_class: StorageClass) -> Iterator[Requirements]:
    for term in storage_class.allowed_topologies:
        if term.match_label_expressions:
            yield Requirements.from_expressions(
                NodeSelectorRequirement(key=_translate_key(each.key), operator="In", values=each.values)
                for each in term.match_label_expressions
            )


def _translate_key(key: str) -> str:
    """The label nodes have for what a driver calls by a name of its own."""
    return DRIVER_LABELS.get(key, key)


def list_attachments(pod: Pod, storage: Storage) -> Attachments:
    """What the pod would attach, by driver; volumes no driver is known for are not counted."""
    found: dict[str, set[str]] = {}
    for name, claim in list_claims(pod, storage):
        driver = _find_driver(claim, storage) if claim is not None else ""
        if driver:
            found.setdefault(driver, set()).add(name)
    return {driver: frozenset(names) for driver, names in found.items()}


def _find_driver(claim: PersistentVolumeClaim, storage: Storage) -> str:
    if claim.spec.volume_name:
        volume = storage.volumes.get(claim.spec.volume_name)
        if volume is None:
            return ""
        if volume.spec.csi is not None:
            return volume.spec.csi.driver
        return EBS if volume.spec.aws_elastic_block_store is not None else ""
    name = claim.spec.storage_class_name
    storage_class = find_default_class(storage) if name is None else storage.classes.get(name)
    if storage_class is None:
        return ""
    return MIGRATED.get(storage_class.provisioner, storage_class.provisioner)


def find_default_class(storage: Storage) -> StorageClass | None:
    """The cluster's default storage class: the newest of those marked so."""
    marked = [
        each for each in storage.classes.values() if each.annotations.get(DEFAULT_STORAGE_CLASS) == "true"
    ]
    return max(marked, key=_read_age, default=None)


def _read_age(storage_class: StorageClass) -> tuple[float, str]:
    created = storage_class.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0, storage_class.name)


def find_exceeded_driver(
    limits: Mapping[str, int], used: Mapping[str, set[str]], more: Attachments
) -> tuple[str, int] | None:
    """The driver that could not attach them all, and how many it can; None when all is well."""
    for driver, names in more.items():
        limit = limits.get(driver)
        if limit is not None and len(used.get(driver, set()) | names) > limit:
            return driver, limit
    return None
