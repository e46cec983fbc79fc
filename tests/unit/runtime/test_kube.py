"""The client against the embedded server, in process: every verb, and what stands in the way of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.api.core import Deployment, Node, NodeSpec, Taint
from dovetail.api.meta import Object, ObjectMeta
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.quantity import Quantity
from dovetail.errors import AlreadyExists, Conflict, Expired, Gone, Invalid, Refused, Retry, Throttled
from dovetail.runtime import metrics
from dovetail.runtime.kube import KubeClient, build_path
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from dovetail.throttle import Throttle
from support import apiserver


class Desk:
    """A client, and the server behind it."""

    def __init__(self, *rules: FaultRule) -> None:
        self.clock = VirtualClock()
        self.storm = FaultStorm(self.clock, rules)
        self.server = ApiServer(self.clock, Random(1), faults=self.storm)
        self.api = self.server.build_local_client("someone")
        self.leading = True
        self.kube = KubeClient(
            LocalTransport(self.server), self.clock, may_write=lambda: self.leading, page=2
        )

    async def pod(self, name: str = "web", **more: Any) -> Pod:
        self.api.create("pods", apiserver.pod(name, **more))
        return await self.kube.get(Pod, name, "default")

    async def node(self, name: str = "n1") -> Node:
        self.api.create("nodes", apiserver.node(name))
        return await self.kube.get(Node, name)


def told(story: Callable[[Desk], Awaitable[None]], *rules: FaultRule) -> None:
    async def main() -> None:
        await story(Desk(*rules))

    run_virtual(main())


def with_label(obj: msgspec.Struct, **labels: str) -> msgspec.Struct:
    assert isinstance(obj, Object)
    metadata = msgspec.structs.replace(obj.metadata, labels={**obj.labels, **labels})
    return msgspec.structs.replace(obj, metadata=metadata)


def test_an_object_is_created_read_and_deleted() -> None:
    async def story(desk: Desk) -> None:
        made = await desk.kube.create(Node(metadata=ObjectMeta(name="n1", labels={"zone": "a"})))
        assert made.uid
        assert await desk.kube.get(Node, "n1") == made
        with pytest.raises(AlreadyExists, match='creating Node n1: nodes "n1" already exists'):
            await desk.kube.create(Node(metadata=ObjectMeta(name="n1")))
        await desk.kube.delete(made)
        with pytest.raises(Gone, match="reading Node n1"):
            await desk.kube.get(Node, "n1")
        with pytest.raises(Gone):
            await desk.kube.delete(made)

    told(story)


def test_lists_come_in_pages_and_are_whole() -> None:
    async def story(desk: Desk) -> None:
        for number in range(5):
            await desk.pod(f"web-{number}", labels={"app": "web" if number % 2 else "db"})
        names = [pod.name for pod in await desk.kube.list(Pod)]
        assert names == [f"web-{n}" for n in range(5)]
        assert [p.name for p in await desk.kube.list(Pod, labels="app=web")] == ["web-1", "web-3"]
        assert [p.name for p in await desk.kube.list(Pod, "default", fields="metadata.name=web-2")] == [
            "web-2"
        ]
        assert await desk.kube.list(Pod, "elsewhere") == ()
        sizes = [len(page.items) async for page in desk.kube.list_pages(Pod)]
        assert sizes == [2, 2, 1]

    told(story)


def test_a_list_that_expires_between_two_pages_says_so() -> None:
    async def story(desk: Desk) -> None:
        for number in range(5):
            await desk.pod(f"web-{number}")
        desk.storm.rules = (FaultRule(trouble="expired"),)
        with pytest.raises(Expired, match="listing Pod"):
            await desk.kube.list(Pod)

    told(story)


def test_a_patch_holds_what_differs_and_nothing_else() -> None:
    async def story(desk: Desk) -> None:
        node = await desk.node()
        desk.api.patch("nodes", "n1", {"metadata": {"annotations": {"mine": "yes"}}})
        changed = with_label(node, zone="a")
        assert isinstance(changed, Node)
        patched = await desk.kube.patch(node, changed)
        assert patched.labels["zone"] == "a"
        assert patched.annotations == {"mine": "yes"}, "what another wrote meanwhile stays"
        before = desk.server.store.revision
        assert await desk.kube.patch(patched, patched) is patched
        assert desk.server.store.revision == before, "nothing differs, so nothing is sent"

    told(story)


def test_a_guarded_patch_gives_way_to_whoever_wrote_first() -> None:
    async def story(desk: Desk) -> None:
        node = await desk.node()
        desk.api.patch("nodes", "n1", {"metadata": {"annotations": {"mine": "yes"}}})
        changed = with_label(node, zone="a")
        assert isinstance(changed, Node)
        with pytest.raises(Conflict, match="patching Node n1"):
            await desk.kube.patch(node, changed, guarded=True)
        fresh = await desk.kube.get(Node, "n1")
        changed = with_label(fresh, zone="a")
        assert isinstance(changed, Node)
        assert (await desk.kube.patch(fresh, changed, guarded=True)).labels["zone"] == "a"

    told(story)


def test_spec_and_status_are_written_apart() -> None:
    async def story(desk: Desk) -> None:
        node = await desk.node()
        less = {"cpu": Quantity.parse("3")}
        status = msgspec.structs.replace(node.status, allocatable=less)
        both = msgspec.structs.replace(node, spec=NodeSpec(unschedulable=True), status=status)
        patched = await desk.kube.patch(node, both)
        assert patched.spec.unschedulable
        assert patched.status == node.status, "the status was left alone"
        stored = await desk.kube.patch(node, both, status=True)
        assert stored.status.allocatable == less
        assert await desk.kube.patch(stored, stored, status=True) is stored

    told(story)


def test_each_kind_of_patch_reaches_the_server() -> None:
    async def story(desk: Desk) -> None:
        node = await desk.node()
        taint = {"key": "a", "effect": "NoSchedule"}
        await desk.kube.json_patch(node, [{"op": "add", "path": "/spec/taints", "value": [taint]}])
        patched = await desk.kube.merge_patch(node, {"metadata": {"labels": {"also": "merge"}}})
        assert patched.spec.taints[0] == Taint(key="a", effect="NoSchedule")
        assert patched.labels["also"] == "merge"
        with pytest.raises(Invalid):
            await desk.kube.json_patch(node, [{"op": "test", "path": "/metadata/name", "value": "n9"}])

    told(story)


def test_applied_fields_are_owned_and_conflicts_can_be_forced() -> None:
    async def story(desk: Desk) -> None:
        def labelled(value: str) -> Node:
            return Node(metadata=ObjectMeta(name="n1", labels={"team": value}))

        await desk.kube.apply(labelled("a"), manager="one")
        with pytest.raises(Conflict, match='"one"'):
            await desk.kube.apply(labelled("b"), manager="two")
        assert (await desk.kube.apply(labelled("b"), manager="two", force=True)).labels["team"] == "b"

    told(story)


def test_an_update_replaces_the_whole_object() -> None:
    async def story(desk: Desk) -> None:
        node = await desk.node()
        changed = with_label(node, zone="a")
        assert isinstance(changed, Node)
        assert (await desk.kube.update(changed)).labels["zone"] == "a"
        with pytest.raises(Conflict):
            await desk.kube.update(changed)

    told(story)


def test_a_guarded_delete_spares_the_namesake() -> None:
    async def story(desk: Desk) -> None:
        old = await desk.pod()
        desk.api.delete("pods", "web", "default", grace_seconds=0)
        new = await desk.pod()
        with pytest.raises(Conflict):
            await desk.kube.delete(old, guarded=True)
        assert await desk.kube.get(Pod, "web", "default") == new
        await desk.kube.delete(new, grace=0, guarded=True)
        assert await desk.kube.list(Pod) == ()

    told(story)


def test_an_eviction_is_refused_by_a_budget_once_and_not_repeated() -> None:
    async def story(desk: Desk) -> None:
        pod = await desk.pod()
        desk.api.bind("web", "default", "n1")
        ready = [{"type": "Ready", "status": "True"}]
        status = {"status": {"phase": "Running", "conditions": ready}}
        desk.api.patch("pods", "web", status, "default", subresource="status")
        desk.api.create("poddisruptionbudgets.policy", apiserver.budget("b", minAvailable=1))
        started = desk.clock.monotonic()
        with pytest.raises(Throttled, match="evicting Pod default/web/eviction"):
            await desk.kube.evict(pod, grace=5)
        assert desk.clock.monotonic() == started
        desk.api.delete("poddisruptionbudgets.policy", "b", "default")
        await desk.kube.evict(pod, grace=5)
        assert (await desk.kube.get(Pod, "web", "default")).deleting

    told(story)


def test_a_server_that_asks_for_patience_gets_it() -> None:
    async def story(desk: Desk) -> None:
        await desk.node()
        desk.storm.rules = (FaultRule(trouble="throttled", amount=7, count=2),)
        started = desk.clock.monotonic()
        assert (await desk.kube.get(Node, "n1")).name == "n1"
        assert desk.clock.monotonic() - started == pytest.approx(14)
        desk.storm.rules = (FaultRule(trouble="throttled", amount=7),)
        with pytest.raises(Throttled) as caught:
            await desk.kube.get(Node, "n1")
        assert caught.value.after == 7
        desk.storm.rules = (FaultRule(trouble="server-error"),)
        with pytest.raises(Retry):
            await desk.kube.get(Node, "n1")

    told(story)


def test_a_fallen_leader_reads_but_does_not_write() -> None:
    async def story(desk: Desk) -> None:
        node = await desk.node()
        changed = with_label(node, zone="a")
        assert isinstance(changed, Node)
        desk.leading = False
        assert (await desk.kube.get(Node, "n1")) == node
        for write in (
            desk.kube.create(Node(metadata=ObjectMeta(name="n2"))),
            desk.kube.patch(node, changed),
            desk.kube.delete(node),
            desk.kube.apply(node, manager="x"),
        ):
            with pytest.raises(Refused, match="no longer leads"):
                await write

    told(story)


def test_a_leader_that_falls_while_it_waits_to_repeat_a_write_does_not_repeat_it() -> None:
    async def story(desk: Desk) -> None:
        node = await desk.node()
        changed = with_label(node, zone="a")
        assert isinstance(changed, Node)
        desk.storm.rules = (FaultRule(trouble="throttled", amount=5, count=1),)
        falls = desk.clock.monotonic() + 3
        desk.kube._may_write = lambda: desk.clock.monotonic() < falls
        with pytest.raises(Refused, match="no longer leads"):
            await desk.kube.patch(node, changed)
        assert "zone" not in (await desk.kube.get(Node, "n1")).labels

    told(story)


def test_calls_are_spaced_by_the_throttle() -> None:
    async def story(desk: Desk) -> None:
        await desk.node()
        kube = KubeClient(LocalTransport(desk.server), desk.clock, throttle=Throttle(desk.clock, 10, 5))
        for _ in range(25):
            await kube.get(Node, "n1")
        assert desk.clock.monotonic() == pytest.approx(2.0), "5 at once, 20 at ten a second"

    told(story)


def test_the_client_knows_which_kinds_are_served() -> None:
    async def story(desk: Desk) -> None:
        assert await desk.kube.serves_kind(Pod.KIND)
        assert await desk.kube.serves_kind(Deployment.KIND)
        assert not await desk.kube.serves_kind(NodePool.KIND)

    told(story)


def test_requests_are_counted_by_code_and_method() -> None:
    def counted(code: str) -> float:
        return (
            metrics.REGISTRY.get_sample_value("client_go_request_total", {"code": code, "method": "GET"})
            or 0.0
        )

    async def story(desk: Desk) -> None:
        await desk.node()
        good, missing, failed = counted("200"), counted("404"), counted("<error>")
        await desk.kube.get(Node, "n1")
        with pytest.raises(Gone):
            await desk.kube.get(Node, "n2")
        desk.storm.rules = (FaultRule(trouble="reset"),)
        with pytest.raises(Retry):
            await desk.kube.get(Node, "n1")
        assert (counted("200"), counted("404"), counted("<error>")) == (good + 1, missing + 1, failed + 1)

    told(story)


def test_paths_follow_the_group_and_the_scope() -> None:
    assert build_path(Pod.KIND, "ns", "a", "eviction") == "/api/v1/namespaces/ns/pods/a/eviction"
    assert build_path(Pod.KIND) == "/api/v1/pods"
    assert build_path(Node.KIND, "ignored", "n") == "/api/v1/nodes/n"
    assert build_path(Deployment.KIND, "ns") == "/apis/apps/v1/namespaces/ns/deployments"
