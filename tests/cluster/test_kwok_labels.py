"""Nodes and NodeClaims of the kwok provider, beside those that Karpenter's own makes of the same workload."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.controller_process import (
    CLAIMS,
    OURS,
    POOL_LABEL,
    Fleet,
    cluster_with_kinds,
    condition,
    controller,
    fleet,
)
from support.two_servers import Json

HOSTNAME, TYPE = "kubernetes.io/hostname", "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
NAMES = [
    "c-4x-amd64-linux",
    "m5.large",
    "m5.micro",
    "m5.small",
    "m5.medium",
    "m5.12xlarge",
    "t3a.nano",
    "mac1.metal",
    "aa.xlarge",
    "5.large",
    "M5.large",
    "m5_a.large",
    "u-6tb1.metal",
    "c5.metal-24xl",
    "weird.a.b",
    "m5.y",
    "m5.2large",
    "m5.24xl",
    "m5.Large",
    "p4d-large.24xlarge",
    "n1-standard-8",
    "Standard_D2_v3",
    "plain",
    "half",
]


def reference() -> str:
    """Upstream's own controller, as hack/upstream-suite/build made it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("UPSTREAM_BIN") or cache / "dovetail" / "upstream-suite" / "bin")
    found = folder / "karpenter-reference"
    assert found.exists(), f"{found} is missing; run: hack/upstream-suite/build"
    return str(found)


def odd_types(file: Path) -> Path:
    """One type for each name, in Karpenter's layout, with prices that have many digits."""
    listed = []
    for number, name in enumerate(NAMES, start=1):
        cpu = "500m" if name == "half" else str(number)
        memory = f"{number * 2000}Mi" if number % 2 else f"{number}Gi"
        price = 1e-7 if name == "half" else 0.1234567891234 * number
        labels = (("karpenter.sh/capacity-type", "on-demand"), (ZONE, "test-zone-a"))
        requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels]
        listed.append(
            {
                "name": name,
                "architecture": "amd64" if number % 3 else "arm64",
                "operatingSystems": ["linux"],
                "resources": {"cpu": cpu, "memory": memory, "ephemeral-storage": "20Gi", "pods": "110"},
                "offerings": [{"Price": price, "Available": True, "Requirements": requirements}],
            }
        )
    file.write_text(json.dumps(listed))
    return file


async def made_by(
    command: Sequence[str], world: Fleet, kubeconfig: Path, types: Path, log: Path
) -> dict[str, Json]:
    """What this controller makes of one pod for each type: labels and annotations, by type."""
    settings = {
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "DISABLE_LEADER_ELECTION": "true",
        "SYSTEM_NAMESPACE": "default",
    }
    with controller(kubeconfig, log, command, **settings):
        for number, name in enumerate(NAMES):
            chosen = {POOL_LABEL: world.pool, TYPE: name, "example.com/colour": "red"}
            await world.deploy(f"d{number}", 1, cpu="100m", nodeSelector=chosen)

        async def initialized() -> bool:
            claims = await world.claims()
            return len(claims) == len(NAMES) and all(condition(c, "Initialized") == "True" for c in claims)

        await world.until(initialized, 180, "all initialized")
        nodes = {node["metadata"]["name"]: node for node in await world.nodes()}
        found = {}
        for claim in await world.claims():
            node = nodes[claim["status"]["nodeName"]]
            found[claim["metadata"]["labels"][TYPE]] = {
                "node": told(node, claim),
                "claim": told(claim, claim),
            }
        for number in range(len(NAMES)):
            await world.scale(f"d{number}", 0)

        async def idle() -> bool:  # a pod that is still there when its node goes gets another one
            return not (await world.ask("GET", "/api/v1/namespaces/{ns}/pods"))["items"]

        await world.until(idle, 120, "rid of the pods")
        for claim in await world.claims():
            await world.ask("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
        await world.until_nodes(0, 120)
        for number in range(len(NAMES)):
            await world.ask("DELETE", f"/apis/apps/v1/namespaces/{{ns}}/deployments/d{number}")
    return found


def told(thing: Json, claim: Json) -> Json:
    """Labels, annotations and the shapes of names, with what chance decides left out."""
    meta, name = thing["metadata"], claim["metadata"]["name"]
    labels = {key: value.replace(name, "CLAIM") for key, value in meta["labels"].items()}
    provider = thing["spec"].get("providerID") or thing["status"]["providerID"]
    machine = re.fullmatch(rf"kwok://kwok-{name}-[a-z0-9-]+-[0-9]+", provider)
    shape = re.sub(rf"{name}(-[a-z0-9-]+-[0-9]+)?", "CLAIM", meta["name"])
    return {
        "labels": labels,
        "annotations": meta.get("annotations", {}),
        "finalizers": meta.get("finalizers", []),
        "named": shape,
        "machine": machine is not None and provider.endswith(claim["status"]["nodeName"]),
        "allocatable": thing["status"]["allocatable"],
    }


async def test_nodes_and_claims_bear_the_labels_names_and_annotations_of_karpenters(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    types = odd_types(folder / "types.json")
    with cluster_with_kinds(folder / "real") as kubeconfig:
        async with fleet(kubeconfig) as world:
            colours = {"key": "example.com/colour", "operator": "In", "values": ["red", "green"]}
            await world.start(requirements=[colours], disruption={"consolidateAfter": "Never"})
            theirs = await made_by([reference()], world, kubeconfig, types, folder / "theirs.log")
            ours = await made_by(OURS, world, kubeconfig, types, folder / "ours.log")
            with controller(kubeconfig, folder / "last.log", DISABLE_LEADER_ELECTION="true"):
                await world.clear()
    assert set(theirs) == set(NAMES)
    for name in NAMES:
        assert ours[name] == theirs[name], name
