"""`dovetail install`: the chart's objects without helm, shown first and applied on request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.app.install_objects import Installation, build_objects
from dovetail.cli.main import COMMANDS
from support.commands import Ended, dovetail
from support.helm import rendered
from support.up_process import Up, up

Json = dict[str, Any]


async def elsewhere(*arguments: str) -> Ended:
    """In a thread: the command has a loop of its own."""
    return await asyncio.to_thread(dovetail, *arguments)


def _comparable(listed: list[Json]) -> dict[tuple[str, str], Json]:
    """By kind and name, without what may differ: who manages it, and the order of variables."""
    found = {}
    for each in listed:
        each["metadata"].get("labels", {}).pop("app.kubernetes.io/managed-by", "")
        if each["kind"] == "Deployment":
            (main,) = each["spec"]["template"]["spec"]["containers"]
            told = main.get("env", [])
            main["env"] = {v["name"]: {k: w for k, w in v.items() if k != "name"} for v in told}
        found[each["kind"], each["metadata"]["name"]] = each
    return found


@pytest.mark.parametrize("provider", ["aws", "kwok"])
@pytest.mark.parametrize("release", ["karpenter", "mine"])
def test_the_objects_are_the_charts(provider: str, release: str) -> None:
    values = {"provider": provider, "settings": {"clusterName": "c"}}
    annotations = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/r"}
    chart = _comparable(rendered({**values, "serviceAccount": {"annotations": annotations}}, release=release))
    own = _comparable(
        build_objects(
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


TOPIC = "arn:aws:sns:us-west-2:111122223333:shifts"
BUS: Json = {"region": "us-east-2", "accounts": [{"id": "123456789012"}]}
# What is asked of the chart, and the same of the command.
COMPONENTS: dict[str, tuple[Json, Json]] = {
    "router": (
        {"router": {"enabled": True, "config": BUS}},
        {"parts": frozenset(["router"]), "bus": BUS},
    ),
    "dashboard": ({"dashboard": {"enabled": True}}, {"parts": frozenset(["dashboard"])}),
    "shifts inside": (
        {
            "zonalShift": {
                "enabled": True,
                "mode": "Both",
                "topicArn": [TOPIC],
                "tlsSecret": "t",
                "prescale": True,
                "httpsPort": 9443,
            }
        },
        {
            "settings": {
                "CLUSTER_NAME": "c",
                "ENABLE_ZONAL_SHIFT": "true",
                "ZONAL_SHIFT_MODE": "Both",
                "ZONAL_SHIFT_TOPIC_ARN": TOPIC,
                "ZONAL_SHIFT_PRESCALE": "true",
                "ZONAL_SHIFT_HTTPS_PORT": "9443",
            },
            "tls_secret": "t",
        },
    ),
    "shifts alone": (
        {
            "controller": {"enabled": False},
            "zonalShift": {"dryRun": "client", "standalone": {"enabled": True}},
        },
        {
            "controller": False,
            "parts": frozenset(["zonal-shift"]),
            "settings": {"CLUSTER_NAME": "c", "ZONAL_SHIFT_DRY_RUN": "client"},
        },
    ),
}
FIRM = {
    "CLUSTER_NAME", "CPU_REQUESTS", "MEMORY_LIMIT", "KARPENTER_SERVICE", "ENABLE_ZONAL_SHIFT",
    "ZONAL_SHIFT_CONFIG_MAP", "ZONAL_SHIFT_POLICY", "ZONAL_SHIFT_DRY_RUN", "ZONAL_SHIFT_TOPIC_ARN",
}  # fmt: skip


def _list_grants(role: Json) -> set[tuple[str, str, str]]:
    """Every verb on every resource, however rules group them."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("provider", ["aws", "kwok"])
def test_the_roles_that_settings_bring_are_the_charts(provider: str) -> None:
    settings = {"clusterName": "c", "commitments": "Show", "spendLimits": True}
    values = {"provider": provider, "settings": settings, "dashboard": {"enabled": True}}
    chart = _comparable(rendered(values))
    given = {"CLUSTER_NAME": "c", "COMMITMENTS": "Show", "SPEND_LIMITS": "true"}
    own = _comparable(
        build_objects(Installation(provider=provider, settings=given, parts=frozenset({"dashboard"})))
    )
    for name in ("karpenter-commitments", "karpenter-spend", "karpenter-dashboard"):
        assert own["ClusterRoleBinding", name] == chart["ClusterRoleBinding", name]
        assert _list_grants(own["ClusterRole", name]) == _list_grants(chart["ClusterRole", name])
    off = _comparable(build_objects(Installation(provider=provider, settings={"CLUSTER_NAME": "c"})))
    assert ("ClusterRole", "karpenter-commitments") not in off


@pytest.mark.parametrize("case", COMPONENTS)
def test_the_parts_are_the_charts(case: str) -> None:
    values, asked = COMPONENTS[case]
    chart = _comparable(rendered({**values, "settings": {"clusterName": "c"}}))
    own = _comparable(build_objects(replace(Installation(settings={"CLUSTER_NAME": "c"}), **asked)))

    for (kind, _), each in [*chart.items(), *own.items()]:
        if kind == "Deployment":
            (main,) = each["spec"]["template"]["spec"]["containers"]
            unsaid = {"ENABLE_ZONAL_SHIFT"} if "shifts" not in case or "alone" in case else set()
            main["env"] = {key: value for key, value in main["env"].items() if key in FIRM - unsaid}
            # Either writes YAML in its own way.
            each["spec"]["template"]["metadata"].pop("annotations", None)
        if kind == "ConfigMap" and "bus.yaml" in each["data"]:
            each["data"]["bus.yaml"] = yaml.safe_load(each["data"]["bus.yaml"])
        if kind == "CustomResourceDefinition":
            each["metadata"].pop("annotations", None)
    assert own.keys() == chart.keys()
    for key, each in own.items():
        assert each == chart[key], key


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


async def test_parts_are_installed_by_themselves_and_found_again(cluster: Up, tmp_path: Path) -> None:
    bus = tmp_path / "bus.yaml"
    bus.write_text(json.dumps({"bus": BUS}))
    asked = (
        *("install", "--cluster-name", "c", "--kubeconfig", str(cluster.kubeconfig), "--without-controller"),
        *("--with", "router", "--with", "dashboard", "--with", "zonal-shift", "--router-config", str(bus)),
        *("--part-role", "router=arn:aws:iam::111122223333:role/r"),
    )

    done = await elsewhere(*asked, "--yes")
    assert done.code == 0, done.err
    again = await elsewhere(*asked)
    assert "nothing to change" in again.err, again.out
    status, found = await cluster.ask("/api/v1/namespaces/kube-system/serviceaccounts/karpenter-router")
    assert (status, found["metadata"]["annotations"]["eks.amazonaws.com/role-arn"][-2:]) == (200, "/r")
    status, _ = await cluster.ask("/apis/apps/v1/namespaces/kube-system/deployments/karpenter")
    assert status == 404


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "CLUSTER_NAME"),
        (("--cluster-name", "c", "--setting", "NOPE=1"), "NOPE=1: say it as NAME=VALUE"),
        (("--cluster-name", "c", "--setting", "BATCH_MAX_DURATION=soon"), "BATCH_MAX_DURATION"),
        (("--cluster-name", "c", "--kubeconfig", "/nonexistent"), "/nonexistent"),
        (("--cluster-name", "c", "--with", "zonal-shift"), "say --without-controller too"),
        (("--cluster-name", "c", "--with", "rooter"), "there is no such part"),
        (("--cluster-name", "c", "--with", "router"), "--router-config"),
        (("--cluster-name", "c", "--without-controller"), "leaves nothing to install"),
        (("--with", "router", "--router-config", "/nonexistent", "--without-controller"), "/nonexistent"),
        (("--cluster-name", "c", "--part-role", "dashbord=x"), "say it as PART=ARN"),
        (
            (
                "--cluster-name=c",
                "--setting=ENABLE_ZONAL_SHIFT=true",
                f"--setting=ZONAL_SHIFT_TOPIC_ARN={TOPIC}",
            ),
            "--tls-secret",
        ),
    ],
)
def test_what_cannot_be_installed_is_one_sentence(arguments: tuple[str, ...], told: str) -> None:
    ended = dovetail("install", *arguments)

    assert ended.code == 2
    assert told in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_the_command_is_listed() -> None:
    assert "install" in COMMANDS
