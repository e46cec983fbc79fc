"""Launches as far as they decide what a template holds: a class, a claim, real instance types, a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.core import Taint
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.providers.aws import userdata
from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.cluster_discovery import ClusterFacts
from dovetail.providers.aws.instance_type_info import bundled_facts, bundled_tables
from dovetail.providers.aws.template_data import LaunchOrder, build_launch_data
from dovetail.providers.aws.template_groups import build_boot, build_groups, node_labels, node_taints
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements, Values
from support.builders import amounts

REGION = "us-west-2"
CLUSTER = "test-cluster"
AUTHORITY = "Y2EtYnVuZGxl"
CLUSTER_FACTS = ClusterFacts(
    name=CLUSTER,
    endpoint="https://test-cluster",
    ca_bundle=AUTHORITY,
    dns_ip="10.0.100.10",
    version="1.33",
    service_cidr="10.100.0.0/16",
)
SIX = ClusterFacts(
    name=CLUSTER,
    endpoint="https://test-cluster",
    ca_bundle=AUTHORITY,
    dns_ip="fd01:99f0:d47b::a",
    version="1.33",
    service_cidr="fd01::/108",
    ip_family="ipv6",
)
AMD, ARM = "ami-amd64", "ami-arm64"


def image(image_id: str, arch: str, name: str = "") -> dict[str, Any]:
    wanted = [{"key": labels.ARCH, "operator": "In", "values": [arch]}]
    return {"id": image_id, "name": name or image_id, "requirements": wanted}


def ec2_class(
    family: str = "AL2023",
    *,
    name: str = "web",
    images: Sequence[Mapping[str, Any]] = (image(AMD, "amd64"), image(ARM, "arm64")),
    profile: str = "web-profile",
    **spec: Any,
) -> EC2NodeClass:
    """A class as its controller leaves it. `spec` is in the words of the API."""
    alias = [{"alias": f"{family.lower()}@latest"}] if family != "Custom" else [{"id": AMD}]
    written = {"amiFamily": family, "amiSelectorTerms": alias, "role": "node-role", **spec}
    status = {
        "amis": list(images),
        "securityGroups": [{"id": "sg-1", "name": "one"}, {"id": "sg-2", "name": "two"}],
        "instanceProfile": profile,
    }
    document = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": written, "status": status}
    return codec.convert(EC2NodeClass, document)


def claim_for(
    *,
    labelled: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    startup_taints: Iterable[Taint] = (),
    requests: Mapping[str, str | int] | None = None,
) -> NodeClaim:
    claim = codec.convert(
        NodeClaim,
        {
            "metadata": {"name": "web-abcde", "labels": {labels.NODEPOOL: "web", **(labelled or {})}},
            "spec": {"requirements": []},
        },
    )
    resources = replace(claim.spec.resources, requests=amounts(dict(requests or {})))
    spec = replace(
        claim.spec, resources=resources, taints=tuple(taints), startup_taints=tuple(startup_taints)
    )
    return replace(claim, spec=spec)


def instance_types(node_class: EC2NodeClass, *names: str) -> tuple[InstanceType, ...]:
    """Real instance types under the terms of a class."""
    known, terms, tables = (
        {each.name: each for each in bundled_facts()},
        NodeClassTerms.from_node_class(node_class, REGION),
        bundled_tables(),
    )
    return tuple(build_instance_type(known[name], terms, ("us-west-2a",), tables) for name in names)


def reserved(
    made: InstanceType, *reservations: tuple[str, str], kind: str = "default", interruptible: bool = False
) -> InstanceType:
    """The type with one reserved offering for each (reservation, zone)."""
    return replace(
        made,
        offerings=tuple(
            Offering(
                requirements=Requirements(
                    {
                        labels.CAPACITY_TYPE: _only(labels.RESERVED),
                        labels.ZONE: _only(zone),
                        labels.CAPACITY_RESERVATION_ID: _only(reservation),
                        labels.CAPACITY_RESERVATION_TYPE: _only(kind),
                        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: _only(str(interruptible).lower()),
                    }
                ),
                reservation_id=reservation,
                reservation_capacity=1,
            )
            for reservation, zone in reservations
        ),
    )


def _only(value: str) -> Values:
    return Values(frozenset((value,)))


def user_data(
    node_class: EC2NodeClass,
    claim: NodeClaim | None = None,
    facts: ClusterFacts = CLUSTER_FACTS,
    capacity_type: str = labels.SPOT,
    of: str = "m5.large",
) -> str:
    """What an instance of a type is told at its start."""
    claim = claim or claim_for()
    (group,) = build_groups(node_class, claim, instance_types(node_class, of), capacity_type)
    told = node_labels(node_class, claim, capacity_type)
    return userdata.render_user_data(build_boot(node_class, group, facts, told, node_taints(claim)))


def data(
    node_class: EC2NodeClass, claim: NodeClaim | None = None, of: str = "m5.large", **order: Any
) -> dict[str, Any]:
    """What a template for one type holds."""
    asked = claim or claim_for()
    given: dict[str, Any] = {
        "capacity_type": labels.ON_DEMAND,
        "tags": {"team": "shop"},
        "region": REGION,
        **order,
    }
    types = given.pop("types", None) or instance_types(node_class, of)
    (group,) = build_groups(node_class, asked, types, given["capacity_type"])
    return build_launch_data(LaunchOrder(node_class, asked, **given), group, "hello")
