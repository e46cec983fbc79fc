"""`dovetail install`: the chart's objects without helm, shown first and applied on request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.installing import Installation, objects
from dovetail.cli.main import COMMANDS
from support.commands import Ended, dovetail
from support.helm import rendered
from support.up import Up, up

Json = dict[str, Any]


async def elsewhere(*arguments: str) -> Ended:
    """In a thread: the command has a loop of its own."""
    return await asyncio.to_thread(dovetail, *arguments)


def _comparable(listed: list[Json]) -> dict[tuple[str, str], Json]:
    """By kind and name, without what may differ: who manages it, and the order of variables."""
    found = {}
    for each in listed:
        each["metadata"]["labels"].pop("app.kubernetes.io/managed-by")
        if each["kind"] == "Deployment":
            (main,) = each["spec"]["template"]["spec"]["containers"]
            main["env"] = {v["name"]: {k: w for k, w in v.items() if k != "name"} for v in main["env"]}
        found[each["kind"], each["metadata"]["name"]] = each
    return found


@pytest.mark.parametrize("provider", ["aws", "kwok"])
@pytest.mark.parametrize("release", ["karpenter", "mine"])
def test_the_objects_are_the_charts(provider: str, release: str) -> None:
    values = {"provider": provider, "settings": {"clusterName": "c"}}
    annotations = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/r"}
    chart = _comparable(rendered({**values, "serviceAccount": {"annotations": annotations}}, release=release))
    own = _comparable(
        objects(
            Installation(
                provider=provider,
                release=release,
                settings={"CLUSTER_NAME": "c"},
                account_annotations=annotations,
            )
        )
    )

    # The chart says every default; here only what was asked for is said.
    for found in (chart, own):
        (deployment,) = (each for (kind, _), each in found.items() if kind == "Deployment")
        env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        assert env["CLUSTER_NAME"] == {"value": "c"}
        for name in set(env) - {"CLUSTER_NAME", "CPU_REQUESTS", "MEMORY_LIMIT", "KARPENTER_SERVICE"}:
            del env[name]
    assert own == chart


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Up]:
    async with up(tmp_path, "--no-controller") as running:
        yield running


async def test_a_dry_run_changes_nothing_and_a_second_installation_finds_nothing_to_do(cluster: Up) -> None:
    asked = ("install", "--cluster-name", "c", "--kubeconfig", str(cluster.kubeconfig))

    shown = await elsewhere(*asked)
    assert "create  Deployment kube-system/karpenter" in shown.out
    assert "run it again with --yes" in shown.err
    status, _ = await cluster.ask("/apis/apps/v1/namespaces/kube-system/deployments/karpenter")
    assert status == 404

    done = await elsewhere(*asked, "--yes")
    assert "objects written" in done.err
    assert done.code == 0
    status, found = await cluster.ask("/apis/apps/v1/namespaces/kube-system/deployments/karpenter")
    assert (status, found["spec"]["replicas"]) == (200, 2)

    again = await elsewhere(*asked)
    assert "nothing to change" in again.err

    more = await elsewhere(*asked, "--replicas", "3", "-o", "json")
    changed = [each for each in json.loads(more.out)["changes"] if each["action"] == "change"]
    assert [each["kind"] for each in changed] == ["Deployment"]
    assert "-  replicas: 2\n+  replicas: 3" in changed[0]["diff"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "CLUSTER_NAME"),
        (("--cluster-name", "c", "--setting", "NOPE=1"), "NOPE=1: say it as NAME=VALUE"),
        (("--cluster-name", "c", "--setting", "BATCH_MAX_DURATION=soon"), "BATCH_MAX_DURATION"),
        (("--cluster-name", "c", "--kubeconfig", "/nonexistent"), "/nonexistent"),
    ],
)
def test_what_cannot_be_installed_is_one_sentence(arguments: tuple[str, ...], told: str) -> None:
    ended = dovetail("install", *arguments)

    assert ended.code == 2
    assert told in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_the_command_is_listed() -> None:
    assert "install" in COMMANDS
