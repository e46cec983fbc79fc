"""Which instance types may share a launch template, and what nodes of such a group boot with. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from dovetail.api import labels, taints
from dovetail.api.core import Taint
from dovetail.api.hashes import CUSTOM, ami_family
from dovetail.api.meta import Amounts
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import AMI, EC2NodeClass, KubeletConfiguration
from dovetail.errors import CreateFailed
from dovetail.providers.aws.catalog import RAID0
from dovetail.providers.aws.cluster_discovery import ClusterFacts
from dovetail.providers.aws.images import group_by_image
from dovetail.providers.aws.kubelet_validation import is_quantity
from dovetail.providers.aws.userdata import Boot, find_image_version
from dovetail.scheduling.model.instance_types import InstanceType

__all__ = [
    "ReservationTarget",
    "TemplateGroup",
    "build_boot",
    "build_groups",
    "kubelet_labels",
    "node_labels",
    "node_taints",
]

# The kubelet may not give itself labels of these domains: NodeRestriction would refuse the node.
RESTRICTED_DOMAINS: Final = ("kubernetes.io", "k8s.io", "node-restriction.kubernetes.io")


class ReservationTarget(NamedTuple):
    """The capacity reservation that instances of a group must use; without an id there is none."""

    id: str = ""
    type: str = ""
    interruptible: bool = False


NO_RESERVATION: Final = ReservationTarget()


@dataclass(frozen=True, slots=True)
class TemplateGroup:
    """Instance types that start alike: one image, one kubelet, as many EFA interfaces, one reservation."""

    image: AMI
    types: tuple[InstanceType, ...]
    kubelet: KubeletConfiguration
    efas: int = 0
    reservation: ReservationTarget = NO_RESERVATION


class _Likeness(NamedTuple):
    efas: int
    pods: int
    kube_reserved: tuple[tuple[str, str], ...]
    system_reserved: tuple[tuple[str, str], ...]
    reservation: ReservationTarget


def build_groups(
    node_class: EC2NodeClass, claim: NodeClaim, types: Sequence[InstanceType], capacity_type: str
) -> tuple[TemplateGroup, ...]:
    """The types by what they need of a template; CreateFailed when no image suits any of them."""
    images = node_class.status.amis
    found = group_by_image(images, types)
    if not found:
        known = ", ".join(image.id for image in images) or "none was found"
        raise CreateFailed("LaunchFailed", f"no instance type suits an image of the class ({known})")
    asked = node_class.spec.kubelet or KubeletConfiguration()
    efa = labels.EFA in claim.spec.resources.requests
    reserved = capacity_type == labels.RESERVED
    return tuple(
        group
        for image, each in found.items()
        for group in _group_types_of_image(image, each, asked, efa, reserved)
    )


def _group_types_of_image(
    image: AMI, types: Sequence[InstanceType], asked: KubeletConfiguration, efa: bool, reserved: bool
) -> Iterator[TemplateGroup]:
    alike: dict[_Likeness, list[InstanceType]] = {}
    for each in types:
        kubelet = _resolve_kubelet(asked, each)
        for reservation in _list_reservations(each) if reserved else (NO_RESERVATION,):
            likeness = _Likeness(
                efas=_count_resource(each.capacity, labels.EFA) if efa else 0,
                pods=_count_resource(each.capacity, labels.PODS),
                kube_reserved=tuple(sorted(kubelet.kube_reserved.items())),
                system_reserved=tuple(sorted(kubelet.system_reserved.items())),
                reservation=reservation,
            )
            alike.setdefault(likeness, []).append(each)
    for likeness, members in alike.items():
        kubelet = _resolve_kubelet(asked, members[0])
        yield TemplateGroup(image, tuple(members), kubelet, likeness.efas, likeness.reservation)


def _list_reservations(instance_type: InstanceType) -> Iterator[ReservationTarget]:
    seen = set()
    for offering in instance_type.offerings:
        if offering.reserved and offering.available and offering.reservation_id not in seen:
            seen.add(offering.reservation_id)
            known = offering.requirements
            yield ReservationTarget(
                offering.reservation_id,
                known[labels.CAPACITY_RESERVATION_TYPE].only or "",
                known[labels.CAPACITY_RESERVATION_INTERRUPTIBLE].only == labels.TRUE,
            )


def _count_resource(amounts: Amounts, resource: str) -> int:
    return amounts[resource].value if resource in amounts else 0


def _resolve_kubelet(asked: KubeletConfiguration, instance_type: InstanceType) -> KubeletConfiguration:
    """The kubelet of one type. Expressions have the value that the type's own overhead was made of."""
    pods = (
        asked.max_pods
        if isinstance(asked.max_pods, int)
        else _count_resource(instance_type.capacity, labels.PODS)
    )
    overhead = instance_type.overhead
    return replace(
        asked,
        max_pods=pods,
        kube_reserved=_resolve_amounts(asked.kube_reserved, overhead.kube_reserved),
        system_reserved=_resolve_amounts(asked.system_reserved, overhead.system_reserved),
    )


def _resolve_amounts(asked: Mapping[str, str], settled: Amounts) -> Mapping[str, str]:
    if all(is_quantity(text) for text in asked.values()):
        return asked
    return {
        name: text if is_quantity(text) else str(settled[name])
        for name, text in asked.items()
        if is_quantity(text) or name in settled
    }


def build_boot(
    node_class: EC2NodeClass,
    group: TemplateGroup,
    facts: ClusterFacts,
    told: Mapping[str, str],
    repelled: tuple[Taint, ...],
) -> Boot:
    """What nodes of a group are told, with these labels and taints."""
    spec, family = node_class.spec, ami_family(node_class.spec)
    kubelet = group.kubelet
    if not kubelet.cluster_dns and facts.dns_ip:
        kubelet = replace(kubelet, cluster_dns=(facts.dns_ip,))
    return Boot(
        family=family,
        cluster=facts.name,
        endpoint=facts.endpoint,
        ca_bundle=facts.ca_bundle or None,
        service_cidr=facts.service_cidr,
        kubelet=kubelet,
        labels=kubelet_labels(told),
        taints=repelled,
        custom=spec.user_data or "",
        raid0=spec.instance_store_policy == RAID0,
        image_version=find_image_version(spec.ami_selector_terms, node_class.status.amis),
    )


def node_labels(node_class: EC2NodeClass, claim: NodeClaim, capacity_type: str) -> dict[str, str]:
    """The labels a node should have from its first moment."""
    told = {**claim.labels, labels.CAPACITY_TYPE: capacity_type}
    if ami_family(node_class.spec) != CUSTOM:
        told[labels.DO_NOT_SYNC_TAINTS] = labels.TRUE
    return told


def kubelet_labels(told: Mapping[str, str]) -> dict[str, str]:
    """Those of the labels that a kubelet may give itself."""
    return {key: value for key, value in told.items() if not _is_restricted(labels.find_domain(key))}


def _is_restricted(domain: str) -> bool:
    return any(domain == kept or domain.endswith(f".{kept}") for kept in RESTRICTED_DOMAINS)


def node_taints(claim: NodeClaim) -> tuple[Taint, ...]:
    """The claim's taints, those of its start, and the one that keeps pods away until it is registered."""
    given = (*claim.spec.taints, *claim.spec.startup_taints)
    return given if taints.UNREGISTERED in given else (*given, taints.UNREGISTERED)
