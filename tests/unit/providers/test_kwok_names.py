"""What a simulated machine is called and labelled, held to what Karpenter's own kwok provider does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.providers.kwok.catalog import family_and_size, read_instance_types
from dovetail.scheduling.model.requirements import Requirements, parse_values
from support.world import Scene, virtual


@pytest.mark.parametrize(
    ("name", "family", "size"),
    [
        ("c-4x-amd64-linux", "c", "4"),
        ("m-192x-arm64-windows", "m", "4"),
        ("m5.large", "m5", "large"),
        ("m5.12xlarge", "m5", "12xlarge"),
        ("n1-standard-8", "n1", "4"),
        ("plain", "p", "4"),
        ("M5.metal", "M5", "metal"),
        ("m5_a.nano", "m5_a", "nano"),
        ("Standard_D2_v3", "S", "4"),
        ("u-6tb1.metal", "u", "4"),
        ("c5.metal-24xl", "c5", "4"),
        ("m5.2large", "m5", "4"),
        ("weird.a.b", "weird", "4"),
    ],
)
def test_the_size_is_the_cpu_count_unless_the_name_is_of_the_form_aws_uses(
    name: str, family: str, size: str
) -> None:
    assert family_and_size(name, "4") == (family, size)


def test_a_pool_that_wants_machines_below_thirty_two_cpus_finds_them_by_size() -> None:
    wanted = Requirements({labels.KWOK_INSTANCE_SIZE: parse_values("Lt", ("32",))})

    found = [each for each in read_instance_types() if each.requirements.is_compatible(wanted)]

    assert {each.capacity["cpu"].value for each in found} == {1, 2, 4, 8, 16}


@pytest.mark.parametrize(
    ("price", "label"),
    [(0.04702592, "0.047026"), (1e-7, "0.000000"), (4.86482889, "4.864829")],
)
@virtual
async def test_the_price_of_a_node_is_told_to_six_places(price: float, label: str, tmp_path: Path) -> None:
    node = await launched(tmp_path, price)

    assert node.labels["eks-node-viewer/instance-price"] == label


@virtual
async def test_a_node_bears_these_labels_and_no_others(tmp_path: Path) -> None:
    node = await launched(tmp_path, 1.0)

    assert set(node.labels) == {
        "eks-node-viewer/instance-price",
        "karpenter.kwok.sh/instance-cpu",
        "karpenter.kwok.sh/instance-family",
        "karpenter.kwok.sh/instance-memory",
        "karpenter.kwok.sh/instance-size",
        "karpenter.kwok.sh/kwoknodeclass",
        "karpenter.sh/capacity-type",
        "karpenter.sh/nodepool",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kwok-partition",
        "kwok.x-k8s.io/node",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
    }
    assert node.annotations == {"kwok.x-k8s.io/node": "fake"}
    assert re.fullmatch(r"kwok-claim-[a-z]+-[a-z]+-[0-9]+", node.name)


async def launched(folder: Path, price: float) -> Node:
    """The Node that the provider makes for a claim that says nothing."""
    zones, resources = ["test-zone-a"], {"cpu": "4", "memory": "8Gi", "pods": "110"}
    listed = {"name": "m5.large", "resources": resources, "zones": zones, "price": {"spot": price}}
    file = folder / "types.json"
    file.write_text(json.dumps([listed]))
    async with Scene(kwok=True, flags=[f"--instance-types-file-path={file}"]).still() as scene:
        scene.pool()
        scene.claim("claim")
        await scene.live("claim")
        (node,) = scene.nodes()
        return node
