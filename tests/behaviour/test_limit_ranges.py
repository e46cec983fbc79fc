"""What admission will add to daemons is counted before the first of them exists."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.core import LimitRange
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.status import ApiError
from support.builders import nodepool, pod
from support.world import Scene, virtual

RANGES = "limitranges"


def limit_range(scene: Scene, namespace: str = "default", **item: Any) -> None:
    spec = {"limits": [{"type": "Container", **item}]}
    scene.api.create(RANGES, {"metadata": {"name": "defaults", "namespace": namespace}, "spec": spec})


def agent(scene: Scene) -> None:
    """A DaemonSet that asks for nothing itself."""
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "a", "image": "a:1"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    scene.api.create("daemonsets.apps", {"metadata": {"name": "agent", "namespace": "default"}, "spec": spec})


def bound(scene: Scene) -> int:
    return sum(bool(each.node_name) for each in scene.pods())


@pytest.mark.parametrize("item", [{"defaultRequest": {"cpu": "1"}}, {"default": {"cpu": "1"}}])
def test_a_daemon_whose_requests_come_from_a_limit_range_is_counted_at_once(item: dict[str, Any]) -> None:
    @virtual
    async def play() -> None:
        async with Scene().running() as scene:
            limit_range(scene, **item)
            scene.apply(nodepool(consolidate_after="Never"))
            agent(scene)
            for number in range(50):
                scene.create(pod(f"web-{number}", cpu="1"))
            await scene.settle(1.2)
            ordered = {claim.name for claim in scene.claims()}
            assert len(ordered) == 25, "two pods and the daemon on each node of 3.9 cores"
            await scene.settle(120)
            assert {claim.name for claim in scene.claims()} == ordered, "what was ordered first was enough"
            assert bound(scene) == 50 + len(ordered), "every pod has its place, and so has every daemon"

    play()


@virtual
async def test_ranges_of_other_namespaces_do_not_count() -> None:
    async with Scene().running() as scene:
        scene.api.create("namespaces", {"metadata": {"name": "other"}})
        limit_range(scene, "other", defaultRequest={"cpu": "1"})
        scene.apply(nodepool())
        agent(scene)
        await scene.settle(1)
        capture = scene.dovetail.capture.take_snapshot(
            (), scene.dovetail.build_options(scene.true_clock.now())
        )
        assert [dict(each.spec.containers[0].resources.requests) for each in capture.daemons] == [{}]


@virtual
async def test_daemons_are_reckoned_anew_whenever_a_limit_range_comes_changes_or_goes() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool())
        agent(scene)
        await scene.settle(1)

        def requested() -> list[dict[str, str]]:
            taken = scene.dovetail.capture.take_snapshot(
                (), scene.dovetail.build_options(scene.true_clock.now())
            )
            amounts = [each.spec.containers[0].resources.requests for each in taken.daemons]
            return [{name: str(amount) for name, amount in each.items()} for each in amounts]

        assert requested() == [{}]
        limit_range(scene, defaultRequest={"cpu": "1"})
        await scene.settle(1)
        assert requested() == [{"cpu": "1"}]
        limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]}
        scene.api.patch(RANGES, "defaults", {"spec": limits}, "default")
        await scene.settle(1)
        assert requested() == [{"cpu": "2"}]
        scene.api.delete(RANGES, "defaults", "default")
        await scene.settle(1)
        assert requested() == [{}]


@virtual
async def test_without_the_right_to_see_limit_ranges_all_else_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    usual = scene.storm.find_fault

    def consult(call: ApiCall) -> Fault | None:
        if call.resource == RANGES and call.client == "karpenter":
            return Fault(error=ApiError(403, "Forbidden", "limitranges is forbidden"))
        return usual(call)

    monkeypatch.setattr(scene.storm, "find_fault", consult)
    async with scene.running():
        scene.apply(nodepool(), pod("web"))
        await scene.settle(30)
        assert scene.node_of("web")
        assert list(scene.dovetail.get_informer(LimitRange)) == []
        monkeypatch.setattr(scene.storm, "find_fault", usual)
        limit_range(scene, defaultRequest={"cpu": "1"})
        await scene.settle(120)
        assert [each.name for each in scene.dovetail.get_informer(LimitRange)] == ["defaults"]
