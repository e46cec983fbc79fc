"""What a cluster says of its own controller: embedded ones in a ConfigMap, others in what runs there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.api.labels import DECIDES_BY
from dovetail.app.published_settings import (
    PublishedSettings,
    build_config_map,
    build_lease_annotations,
    read_published,
)
from dovetail.settings import read_settings
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.status import ApiError
from dovetail.sim.transport import LocalTransport
from support.apiserver import local_server

Json = dict[str, Any]
LABELS = {"app.kubernetes.io/name": "karpenter"}


def controller(name: str = "karpenter", namespace: str = "kube-system", **container: Any) -> Json:
    only = {"name": "controller", "image": "controller", **container}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [only]}}
    spec = {"selector": {"matchLabels": LABELS}, "template": template}
    return {"metadata": {"name": name, "namespace": namespace, "labels": LABELS}, "spec": spec}


def env(**values: str) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


def node(provider: str, **labels: str) -> Json:
    return {"metadata": {"name": "n", "labels": labels}, "spec": {"providerID": provider}}


async def published(server: ApiServer) -> PublishedSettings:
    return await read_published(LocalTransport(server))


async def test_an_embedded_cluster_tells_its_name_its_cloud_and_the_settings_it_was_given() -> None:
    server = local_server()
    settings = read_settings(("--cluster-name=shop", "--batch-idle-duration=3s"), {}, provider="aws")
    server.build_local_client("up").create(
        "configmaps", build_config_map("shop", settings, "eu-west-1", "http://127.0.0.1:4566")
    )

    found = await published(server)

    assert (found.name, found.region, found.endpoint) == ("shop", "eu-west-1", "http://127.0.0.1:4566")
    assert found.environment == {"CLUSTER_NAME": "shop", "BATCH_IDLE_DURATION": "3s"}


@pytest.mark.parametrize(
    "address", ["http://evil.example", "https://10.0.0.1", "http://127.0.0.1.evil.example", "file:///etc"]
)
async def test_a_cluster_sends_nobody_to_an_aws_that_is_not_on_this_machine(address: str) -> None:
    server = local_server()
    server.build_local_client("up").create(
        "configmaps", build_config_map("shop", read_settings((), {}, provider="kwok"), "eu-west-1", address)
    )

    assert (await published(server)).endpoint == ""


async def test_the_deployment_of_karpenter_tells_by_its_variables() -> None:
    server = local_server()
    told = env(CLUSTER_NAME="shop", AWS_REGION="eu-west-1", FEATURE_GATES="NodeRepair=true", OTHER="$(X)")
    other = controller("dashboard", env=env(LOG_LEVEL="debug"))
    for each in (other, controller(env=[*told, {"name": "MEMORY_LIMIT", "valueFrom": {}}])):
        server.build_local_client("helm").create("deployments.apps", each)

    found = await published(server)

    assert (found.name, found.region) == ("shop", "eu-west-1")
    assert found.environment == {"CLUSTER_NAME": "shop", "FEATURE_GATES": "NodeRepair=true"}
    assert found.source == "Deployment kube-system/karpenter"


async def test_flags_of_the_controller_tell_as_well_as_variables() -> None:
    server = local_server()
    words = ["controller", "--provider", "aws", "--cluster-name=shop", "--batch-idle-duration", "4s"]
    server.build_local_client("helm").create("deployments.apps", controller(args=words))

    assert (await published(server)).environment == {"CLUSTER_NAME": "shop", "BATCH_IDLE_DURATION": "4s"}


async def test_the_pod_that_holds_the_lease_tells_what_no_deployment_says() -> None:
    server = local_server()
    api = server.build_local_client("helm")
    api.create("namespaces", {"metadata": {"name": "autoscaling"}})
    only = {"name": "c", "image": "c", "env": env(CLUSTER_NAME="shop", AWS_REGION="us-gov-east-1")}
    api.create(
        "pods", {"metadata": {"name": "k-1", "namespace": "autoscaling"}, "spec": {"containers": [only]}}
    )
    lease = {"name": "karpenter-leader-election", "namespace": "autoscaling"}
    api.create("leases.coordination.k8s.io", {"metadata": lease, "spec": {"holderIdentity": "k-1_0a1b-2c"}})

    found = await published(server)

    assert (found.name, found.region, found.source) == ("shop", "us-gov-east-1", "Pod autoscaling/k-1")


@pytest.mark.parametrize(
    ("made", "region"),
    [
        (node("aws:///us-west-2b/i-1"), "us-west-2"),
        (node("aws:///us-west-2-lax-1a/i-1"), "us-west-2"),
        (node("aws:///x/i-1", **{"topology.kubernetes.io/region": "eu-south-2"}), "eu-south-2"),
        (node("kwok://n"), ""),
    ],
)
async def test_a_region_that_nobody_names_is_that_of_the_nodes(made: Json, region: str) -> None:
    server = local_server()
    server.build_local_client("helm").create("deployments.apps", controller(env=env(CLUSTER_NAME="shop")))
    server.build_local_client("kubelet").create("nodes", made)

    found = await published(server)

    assert (found.name, found.region) == ("shop", region)


class Refusing:
    """Nobody may read anything."""

    def find_fault(self, call: ApiCall) -> Fault | None:
        return Fault(error=ApiError(403, "Forbidden", "not for you"))


async def test_who_may_read_nothing_is_told_what_it_would_take() -> None:
    found = await published(local_server(faults=Refusing()))
    assert found == PublishedSettings(decides_by=found.decides_by)
    assert found.decides_by is not None
    assert found.decides_by.describe() == (
        "decided with the settings of this environment: the controller says its own on its Lease, and "
        "reading it takes `list` on leases"
    )


def lease(**annotations: str) -> Json:
    named = {"name": "karpenter-leader-election", "namespace": "kube-system", "annotations": annotations}
    return {"metadata": named, "spec": {"holderIdentity": "a_b"}}


async def test_the_lease_of_the_leader_tells_what_it_decides_by() -> None:
    server = local_server()
    given = {"CONSOLIDATE_MANY": "true", "LOG_LEVEL": "debug", "CLUSTER_NAME": "shop", "PLANNER": "packed"}
    settings = read_settings((), given, provider="aws")
    said = build_lease_annotations(settings)
    # Neither what has its default, nor what no decision depends on.
    assert json.loads(said[DECIDES_BY]) == {"CONSOLIDATE_MANY": "true"}
    server.build_local_client("leader").create("leases.coordination.k8s.io", lease(**said))

    found = (await published(server)).decides_by

    assert found is not None
    assert found.values == {"CONSOLIDATE_MANY": "true"}
    assert found.describe() == (
        "decided with the settings of the controller, from Lease kube-system/karpenter-leader-election"
    )


@pytest.mark.parametrize("said", ["", "[]", "{", '{"PLANNER": 3}', "\x00"])
async def test_a_lease_that_says_nonsense_counts_for_nothing(said: str) -> None:
    server = local_server()
    server.build_local_client("x").create("leases.coordination.k8s.io", lease(**{DECIDES_BY: said}))

    found = (await published(server)).decides_by

    assert found is not None
    assert found.values is None
    assert "cannot be read" in found.describe()


async def test_a_lease_cannot_set_what_no_decision_depends_on() -> None:
    server = local_server()
    said = json.dumps({"CLUSTER_ENDPOINT": "https://evil.example", "PLANNER": "one-by-one"})
    server.build_local_client("x").create("leases.coordination.k8s.io", lease(**{DECIDES_BY: said}))

    found = (await published(server)).decides_by

    assert found is not None
    assert found.values == {"PLANNER": "one-by-one"}


async def test_the_lease_of_another_autoscaler_does_not_say() -> None:
    server = local_server()
    server.build_local_client("karpenter").create("leases.coordination.k8s.io", lease())

    found = (await published(server)).decides_by

    assert found is not None
    assert "does not say those of its controller" in found.describe()
    assert (await published(local_server())).decides_by is None
