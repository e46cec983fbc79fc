"""Whatever a class says of images and kubelets: the cheapest type that fits is asked for, and comes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api import labels
from dovetail.api.crds.ec2_fields import AMI_FAMILIES
from dovetail.api.nodeclass import AMISelectorTerm, KubeletConfiguration
from dovetail.errors import InsufficientCapacity
from dovetail.providers.aws.type_filters import MOST_TYPES
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.sim.clock import run_virtual
from support.builders import amounts
from support.ec2 import Ec2, provided

C5 = tuple(f"c5.{size}" for size in ("large", "xlarge", "2xlarge", "4xlarge", "9xlarge"))
SOLD = (*C5, "m5.large", "m5.xlarge", "m5.4xlarge", "r5.large", "t3.medium")
GATES = ("--feature-gates=NodeClassCEL=true",)
reserved = st.sampled_from(({}, {"cpu": "200m"}, {"memory": "1Gi"}, {"cpu": "vcpus * 20"}))


@dataclass(frozen=True)
class Case:
    """A class, and what a claim of it asks for."""

    family: str
    kubelet: KubeletConfiguration
    cpu: str
    pods: str


cases = st.builds(
    Case,
    st.sampled_from(AMI_FAMILIES),
    st.builds(
        KubeletConfiguration,
        max_pods=st.sampled_from((None, 8, 110, "vcpus * 10")),
        pods_per_core=st.sampled_from((None, 2, 8)),
        kube_reserved=reserved,
        system_reserved=reserved,
    ),
    st.sampled_from(("100m", "1", "3", "9")),
    st.sampled_from(("1", "8", "30")),
)


def price_of(each: InstanceType) -> float:
    ways = [o.price for o in each.offerings if o.available and o.capacity_type == labels.ON_DEMAND]
    return min(ways, default=float("inf"))


async def sold_to(ec2: Ec2, case: Case) -> list[InstanceType]:
    """The types that take the claim, the cheapest first: no filter of ours has a say in it."""
    asked = amounts(cpu=case.cpu, pods=case.pods)
    fit = [
        each
        for each in await ec2.cloud.list_instance_types(ec2.pool)
        if all(each.allocatable()[name].nano >= amount.nano for name, amount in asked.items())
    ]
    return sorted(fit, key=price_of)


async def check(case: Case) -> None:
    ec2 = await provided(GATES, types=SOLD)
    image = ec2.aws.images.add("golden")
    terms = (AMISelectorTerm(id=image.id),)
    await ec2.apply(ami_family=case.family, ami_selector_terms=terms, kubelet=case.kubelet)
    planned = await sold_to(ec2, case)
    way = (labels.CAPACITY_TYPE, "In", labels.ON_DEMAND)
    if not planned:
        with pytest.raises(InsufficientCapacity):
            await ec2.launched(way, cpu=case.cpu, pods=case.pods)
        return
    _, instance = await ec2.launched(way, cpu=case.cpu, pods=case.pods)
    (bought,) = (each for each in planned if each.name == instance.labels[labels.INSTANCE_TYPE])
    assert price_of(bought) == price_of(planned[0])
    assert {each["InstanceType"] for each in ec2.overrides()} == {each.name for each in planned[:MOST_TYPES]}


@settings(max_examples=60)
@given(cases)
def test_what_comes_is_never_dearer_than_the_cheapest_type_that_fits(case: Case) -> None:
    run_virtual(check(case))


@pytest.mark.parametrize("family", AMI_FAMILIES)
def test_no_image_family_loses_a_type_on_its_way_to_the_fleet(family: str) -> None:
    run_virtual(check(Case(family, KubeletConfiguration(max_pods=110, pods_per_core=8), "1", "1")))
