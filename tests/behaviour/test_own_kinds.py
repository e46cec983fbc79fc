"""Kinds of our own: a table, and none of them need be installed for anything else to work."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from dovetail.api import crds
from dovetail.api.crds import manifest
from dovetail.api.crds.definition import constrain_field
from dovetail.api.manifests import parse_manifests
from dovetail.api.meta import Kind, Object, Record
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.controller import Dovetail
from dovetail.app.dashboard_watch import ClusterWatcher
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.apiserver import deployment
from support.commands import dovetail
from support.log_lines import Lines, log_lines

Json = dict[str, Any]
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
SNOWBALLS, SHIFTS = "snowballs.dovetail.sh", "zoneshifts.dovetail.sh"
LIMITS, COMMITMENTS = "spendlimits.dovetail.sh", "commitments.dovetail.sh"
COMMITMENTS = "commitments.dovetail.sh"
FIVE_MINUTES = 300.0
ROOT = Path(__file__).parents[2]


class SnowballSpec(Record, frozen=True):
    size: int = 1


class Snowball(Object, frozen=True):
    """A kind of a few lines."""

    KIND: ClassVar[Kind] = Kind("dovetail.sh", "v1alpha1", "Snowball", "snowballs", namespaced=False)

    spec: SnowballSpec = SnowballSpec()


SNOWBALL = crds.CrdDefinition(
    Snowball,
    "A kind of a few lines.",
    {"spec": constrain_field("What it is."), "spec.size": constrain_field("How large.", minimum=1)},
)


@pytest.fixture
def one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that a new kind takes."""
    monkeypatch.setattr(manifest, "OWN", (*manifest.OWN, SNOWBALL))


def names(text: str) -> set[str]:
    return {document.name for document in parse_manifests(text, "crds").documents}


def test_zone_shifts_are_ours_and_nodepools_are_karpenters() -> None:
    assert names(dovetail("crds", "--own").out) == {SHIFTS, LIMITS, COMMITMENTS}
    assert names(dovetail("crds").out).isdisjoint({SHIFTS, LIMITS, COMMITMENTS})
    assert crds.is_own_kind(ZoneShift)
    assert not crds.is_own_kind(Snowball)
    assert {each.record.KIND.group for each in manifest.OWN} == {"dovetail.sh"}


@pytest.mark.usefixtures("one_more")
def test_a_new_kind_is_one_line_for_the_command_the_folder_and_the_chart(tmp_path: Path) -> None:
    assert names(dovetail("crds", "--own").out) == {SHIFTS, LIMITS, COMMITMENTS, SNOWBALLS}
    ended = dovetail("crds", "--own", "--output-dir", str(tmp_path / "own"))
    assert (ended.code, ended.out) == (0, "")
    assert {each.name for each in (tmp_path / "own").iterdir()} == {
        "dovetail.sh_commitments.yaml",
        "dovetail.sh_snowballs.yaml",
        "dovetail.sh_spendlimits.yaml",
        "dovetail.sh_zoneshifts.yaml",
    }
    sys.path.insert(0, str(ROOT / "hack"))
    try:
        written = importlib.import_module("write_chart").own_definitions()
    finally:
        sys.path.remove(str(ROOT / "hack"))
    assert sorted(written) == [
        "dovetail/files/own/dovetail.sh_commitments.yaml",
        "dovetail/files/own/dovetail.sh_snowballs.yaml",
        "dovetail/files/own/dovetail.sh_spendlimits.yaml",
        "dovetail/files/own/dovetail.sh_zoneshifts.yaml",
    ]
    assert "snowballs" in written["dovetail/files/own/dovetail.sh_snowballs.yaml"]


class Following(Dovetail):
    """A controller with a feature that has a kind of its own."""

    def _list_kinds(self, class_kind: type[Object]) -> tuple[type[Object], ...]:
        return (*super()._list_kinds(class_kind), Snowball)


class Cluster:
    """A world with Karpenter's kinds alone, and a controller in it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.world = World(self.clock, 1)
        self.api = self.world.api
        for definition in crds.build_manifests("kwok"):
            self.api.create(DEFINITIONS, definition)
        settings = read_settings((), {}, provider="kwok")
        transport = LocalTransport(self.world.server)
        self.controller = Following(settings, transport, clock=self.clock, chance=Random(1))
        self.snowballs = self.controller.get_informer(Snowball)

    def install(self, size: int) -> None:
        """Somebody installs the kind, and makes one."""
        (definition,) = (each for each in crds.build_own_manifests() if each["metadata"]["name"] == SNOWBALLS)
        self.api.create(DEFINITIONS, definition)
        self.api.create(SNOWBALLS, {"metadata": {"name": "first"}, "spec": {"size": size}})

    @property
    def sizes(self) -> list[int]:
        return [each.spec.size for each in self.snowballs]


def own_lines(lines: Lines) -> list[Json]:
    return [each for each in lines() if "Snowball" in str(each) or "snowball" in str(each)]


@pytest.mark.spec("FN-5")
@pytest.mark.usefixtures("one_more")
def test_a_kind_that_is_installed_later_is_noticed_and_its_removal_is_no_error() -> None:
    async def main() -> None:
        cluster = Cluster()
        clock, api = cluster.clock, cluster.api
        with log_lines() as lines:
            async with cluster.world.running():
                running = asyncio.create_task(cluster.controller.run())
                api.create("kwoknodeclasses.karpenter.kwok.sh", {"metadata": {"name": "default"}, "spec": {}})
                api.create("nodepools.karpenter.sh", pool())
                api.create("deployments.apps", deployment("web", replicas=3), "default")
                await clock.sleep(120)
                bound = [each for each in api.list("pods", "default") if each["spec"].get("nodeName")]
                assert len(bound) == 3, "the kind that is missing holds up nothing"
                assert cluster.snowballs.synced

                cluster.install(size=2)
                await clock.sleep(FIVE_MINUTES)
                assert cluster.sizes == [2]
                api.patch(SNOWBALLS, "first", {"spec": {"size": 3}})
                await clock.sleep(1)
                assert cluster.sizes == [3], "and followed like any other"

                api.delete(DEFINITIONS, SNOWBALLS)
                await clock.sleep(60)
                assert cluster.sizes == []
                await clock.sleep(2 * FIVE_MINUTES)

                cluster.install(size=4)
                await clock.sleep(FIVE_MINUTES)
                assert cluster.sizes == [4]
                cluster.controller.stop()
                await running
            assert own_lines(lines) == []

    run_virtual(main())


@pytest.mark.spec("FN-5")
def test_the_dashboard_follows_zone_shifts_that_are_installed_later_and_removed() -> None:
    async def main() -> None:
        cluster = Cluster()
        clock, api = cluster.clock, cluster.api
        server: Any = SimpleNamespace(server="here")
        board: Any = SimpleNamespace(report_trouble=pytest.fail)
        live: Any = SimpleNamespace(connection=server, sight=cluster.controller)
        watcher = ClusterWatcher(live, board)
        shifts = watcher._shifts
        async with cluster.world.running():
            following = asyncio.create_task(watcher._build_follower(ZoneShift, shifts).run())
            await clock.sleep(30)
            assert shifts.synced, "the first picture does not wait for it"
            api.create(DEFINITIONS, crds.build_zonal_manifest())
            api.create(SHIFTS, {"metadata": {"name": "a"}, "spec": {"zoneId": "test-zone-a"}})
            await clock.sleep(FIVE_MINUTES)
            assert [each.name for each in shifts] == ["a"]
            api.delete(DEFINITIONS, SHIFTS)
            await clock.sleep(60)
            assert list(shifts) == [], "a page shows no shift that is gone"
            assert watcher._problems == {}
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    run_virtual(main())


def pool() -> Json:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": [linux]}}},
    }
