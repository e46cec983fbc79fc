"""A provider that only its own lines know can be named to every command: nothing else is told of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from dovetail.api import crds, labels
from dovetail.api.crds.other_kinds import KWOK_FIELDS
from dovetail.api.meta import Kind
from dovetail.api.nodeclass import KWOKNodeClass
from dovetail.app.controller import Dovetail
from dovetail.controllers.provider_port import ProviderContext
from dovetail.providers import factory
from dovetail.providers.kwok.provider import KwokCloud, KwokProvider
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.apiserver import deployment
from support.commands import Ended, dovetail
from support.https_apiserver import DEFINITIONS, secured

Json = dict[str, Any]
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
POOLS, CLASSES = "nodepools.karpenter.sh", "toynodeclasses.toy.example"


class ToyNodeClass(KWOKNodeClass, frozen=True):
    """How toy nodes are made."""

    KIND: ClassVar[Kind] = Kind("toy.example", "v1", "ToyNodeClass", "toynodeclasses", namespaced=False)


class ToyCloud(KwokCloud):
    name = "toy"
    node_classes = (ToyNodeClass.KIND,)


class ToyProvider(KwokProvider):
    def __init__(self, given: ProviderContext) -> None:
        super().__init__(given, ToyCloud, ToyNodeClass)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    definition = crds.CrdDefinition(ToyNodeClass, "How toy nodes are made.", KWOK_FIELDS)
    rights = (("", ("nodes",), ("create",)),)
    monkeypatch.setitem(crds.PROVIDER_APIS, "toy", crds.ProviderApi(definition, labels.KWOK, rights=rights))
    monkeypatch.setitem(factory.MAKERS, "toy", factory.ProviderMaker(lambda reach: ToyProvider))


def pool() -> Json:
    reference = {"group": "toy.example", "kind": "ToyNodeClass", "name": "default"}
    linux = {"key": labels.OS, "operator": "In", "values": ["linux"]}
    template = {"spec": {"nodeClassRef": reference, "requirements": [linux]}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": template},
    }


@pytest.mark.spec("FN-6")
def test_its_controller_buys_nodes() -> None:
    async def main() -> tuple[int, set[str]]:
        clock = VirtualClock()
        world = World(clock, 1)
        for definition in crds.build_manifests("toy"):
            world.api.create(DEFINITIONS, definition)
        settings = read_settings((), {}, provider="toy")
        ours = Dovetail(settings, LocalTransport(world.server), clock=clock, chance=Random(1), provider="toy")
        async with world.running():
            running = asyncio.create_task(ours.run())
            world.api.create(CLASSES, {"metadata": {"name": "default"}, "spec": {}})
            world.api.create(POOLS, pool())
            world.api.create("deployments.apps", deployment("web", replicas=3), "default")
            await clock.sleep(120)
            bound = sum(1 for pod in world.api.list("pods", "default") if pod["spec"].get("nodeName"))
            kinds = {
                each["spec"]["nodeClassRef"]["kind"] for each in world.api.list("nodeclaims.karpenter.sh")
            }
            ours.stop()
            await running
        return bound, kinds

    assert run_virtual(main()) == (3, {"ToyNodeClass"})


@pytest.mark.spec("FN-6")
def test_commands_that_look_take_its_name_or_find_it(tmp_path: Path) -> None:
    with secured(tmp_path, "toy") as served:
        served.create(CLASSES, {"metadata": {"name": "default"}, "spec": {}})
        served.create(POOLS, pool())
        waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/0"}
        pod = {"containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "1"}}}]}
        served.create("pods", {"metadata": {"name": "web", "namespace": "default"}, "spec": pod})
        served.call(lambda: _write_status(served.server, "pods", "web", waiting, "default"))
        served.call(lambda: _write_status(served.server, POOLS, "default", READY))

        def ask(*arguments: str) -> Ended:
            return dovetail(*arguments, env={"KUBECONFIG": str(served.kubeconfig)})

        named = ask("plan", "--live", "--provider", "toy", "-o", "json")
        found = ask("plan", "--live", "-o", "json")
        kept = ask("snapshot", "--provider", "toy", "-o", str(tmp_path / "s.json"))
        again = ask("plan", "--snapshot", str(tmp_path / "s.json"), "-o", "json")
        installed = ask("install", "--provider", "toy", "--image", "x", "-o", "json")
    ends = (named, found, kept, again, installed)
    assert [each.code for each in ends] == [0] * 5, ends
    plans = [json.loads(each.out) for each in (named, found, again)]
    assert [each["nodes"][0]["nodepool"] for each in plans] == ["default"] * 3
    changes = json.loads(installed.out)["changes"]
    assert "toynodeclasses.toy.example" in {each["name"] for each in changes}
    (role,) = (each for each in changes if each["kind"] == "ClusterRole" and each["name"] == "karpenter")
    assert "toynodeclasses" in role["diff"]


def _write_status(server: ApiServer, resource: str, name: str, condition: Json, namespace: str = "") -> None:
    change = {"status": {"conditions": [condition]}}
    server.build_local_client("test").patch(resource, name, change, namespace, subresource="status")


@pytest.mark.spec("FN-6")
def test_its_definitions_rights_and_manifests_are_its_own() -> None:
    told = dovetail("crds", "--provider", "toy", "-o", "json")
    assert "toynodeclasses.toy.example" in told.out
    assert "kwoknodeclasses" not in told.out
    checked = dovetail("validate", "-f", "-", stdin=json.dumps(pool()).encode())
    assert checked.code == 0
    assert "0 errors, 0 warnings" in checked.err
    foreign = dovetail("validate", "-f", "-", "--provider", "aws", stdin=json.dumps(pool()).encode())
    assert "is not the EC2NodeClass of karpenter.k8s.aws" in foreign.out


@pytest.mark.spec("FN-6")
@pytest.mark.parametrize(
    "command",
    [("controller",), ("plan", "--live"), ("snapshot", "-o", "-"), ("crds",), ("install",), ("settings",)],
)
def test_an_unknown_name_is_refused_with_the_nearest(command: tuple[str, ...]) -> None:
    ended = dovetail(*command, "--provider", "asw")
    assert ended.code == 2
    assert 'there is no provider "asw"; there are aws, kwok and toy; did you mean aws?' in ended.err
    assert "Traceback" not in ended.err
