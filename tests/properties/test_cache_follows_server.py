"""Whatever the network does, the kept copy ends up equal to the server, and its tale fits together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.api import codec
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.pod import Pod
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.watch import Follower, WatchOptions
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.status import ApiError
from dovetail.sim.transport import LocalTransport
from support import apiserver, fault_storms

NAMES = ("a", "b", "c", "d", "e", "f")
SERVERS: dict[str, type[LocalTransport]] = {
    "streams lists": LocalTransport,
    "refuses to stream lists": fault_storms.WithoutStreamedLists,
    "ignores the wish for streamed lists": fault_storms.IgnoringStreamedLists,
}
Step = tuple[str, str, str]

steps = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(("create", "delete", "bind", "replace")), st.sampled_from(NAMES), st.just("")
        ),
        st.tuples(st.just("label"), st.sampled_from(NAMES), st.sampled_from(("web", "db"))),
        st.tuples(st.just("node"), st.sampled_from(NAMES), st.sampled_from(("x", "y"))),
        st.tuples(st.just("wait"), st.just(""), st.sampled_from(("0.1", "1", "7", "40"))),
        st.tuples(st.just("compact"), st.just(""), st.just("")),
        st.tuples(st.just("clock jumps"), st.just(""), st.sampled_from(("-7200", "90", "86400"))),
    ),
    max_size=60,
)


class Story:
    """A server in a storm, someone who changes things there, and informers that follow."""

    def __init__(self, rules: Sequence[FaultRule], server: str, seed: int) -> None:
        self.clock = VirtualClock()
        self.storm = FaultStorm(self.clock, rules, seed)
        self.server = ApiServer(self.clock, Random(seed), faults=self.storm, history=40)
        self.api = self.server.build_local_client("someone")
        self.kube = KubeClient(SERVERS[server](self.server), self.clock, page=2)
        self.chance = Random(seed)
        self.followers: list[asyncio.Task[None]] = []
        self.pods, self.pod_mirror = self.follow(Pod)
        self.web, self.web_mirror = self.follow(Pod, labels="app=web")
        self.bound, self.bound_mirror = self.follow(Pod, fields="spec.nodeName=n1")
        self.nodes, self.node_mirror = self.follow(Node)

    def follow(
        self, kind: type[fault_storms.T], labels: str = "", fields: str = ""
    ) -> tuple[Informer[fault_storms.T], fault_storms.Mirror[fault_storms.T]]:
        informer = Informer(kind, {"app": lambda obj: obj.labels.get("app", "none").split()})
        mirror: fault_storms.Mirror[fault_storms.T] = fault_storms.Mirror()
        informer.on_change(mirror)
        follower = Follower(
            self.kube,
            kind,
            informer,
            clock=self.clock,
            rng=self.chance,
            options=WatchOptions(labels=labels, fields=fields),
        )
        self.followers.append(asyncio.create_task(follower.run()))
        return informer, mirror

    async def take(self, step: Step) -> None:
        match step:
            case ("wait", _, seconds):
                await self.clock.sleep(float(seconds))
            case ("compact", _, _):
                self.server.store.compact()
            case ("clock jumps", _, seconds):
                self.clock.skew += timedelta(seconds=float(seconds))
            case (verb, name, value):
                # What is there already, or not there, stands in the way of some steps.
                with suppress(ApiError):
                    self.change(verb, name, value)

    def change(self, verb: str, name: str, value: str) -> None:
        match verb:
            case "create":
                self.api.create("pods", apiserver.pod(name))
            case "delete":
                self.api.delete("pods", name, "default", grace_seconds=0)
            case "replace":
                self.api.delete("pods", name, "default", grace_seconds=0)
                self.api.create("pods", apiserver.pod(name, labels={"app": "db"}))
            case "bind":
                self.api.bind(name, "default", "n1")
            case "label":
                self.api.patch("pods", name, {"metadata": {"labels": {"app": value}}}, "default")
            case "node" if value == "x":
                self.api.create("nodes", apiserver.node(name))
            case _:
                self.api.delete("nodes", name)

    async def end(self) -> None:
        self.storm.end_faults()
        await self.clock.sleep(400)
        for task in self.followers:
            assert not task.done(), "a follower gave up"
            task.cancel()
        await asyncio.gather(*self.followers, return_exceptions=True)

    def expect(
        self, informer: Informer[fault_storms.T], mirror: fault_storms.Mirror[fault_storms.T], **selector: str
    ) -> None:
        resource = informer.kind.KIND.resource
        there = [
            codec.convert(informer.kind, obj)
            for obj in self.server.build_local_client("judge").list(resource, **selector)
        ]
        assert informer.synced
        assert _by_name(informer) == _by_name(there)
        assert mirror.objects == _by_name(informer)
        for app in ("web", "db", "none"):
            filed = [obj for obj in there if obj.labels.get("app", "none") == app]
            assert _by_name(informer.by("app", app)) == _by_name(filed)


def _by_name(objects: object) -> dict[str, Object]:
    assert isinstance(objects, Informer | list | tuple)
    return {obj.full_name: obj for obj in objects}


def tell(rules: Sequence[FaultRule], story_steps: Sequence[Step], server: str, seed: int) -> Counter[str]:
    async def main() -> Counter[str]:
        story = Story(rules, server, seed)
        house = asyncio.create_task(story.server.run())
        for step in story_steps:
            await story.take(step)
        await story.end()
        house.cancel()
        story.expect(story.pods, story.pod_mirror)
        story.expect(story.web, story.web_mirror, label_selector="app=web")
        story.expect(story.bound, story.bound_mirror, field_selector="spec.nodeName=n1")
        story.expect(story.nodes, story.node_mirror)
        return Counter(strike.rule.trouble for strike in story.storm.record)

    return run_virtual(main())


@pytest.mark.parametrize("server", SERVERS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rules=st.lists(fault_storms.rules(), max_size=6), story_steps=steps, seed=st.integers(0, 2**16))
def test_the_cache_equals_the_server_after_any_storm(
    server: str, rules: list[FaultRule], story_steps: list[Step], seed: int
) -> None:
    tell(rules, story_steps, server, seed)


@pytest.mark.parametrize("server", SERVERS)
def test_the_cache_survives_a_long_storm_of_every_trouble_at_once(server: str) -> None:
    chance = Random(5)
    rules = [
        FaultRule(trouble=t, clients=("karpenter",), probability=0.12) for t in fault_storms.ALL_TROUBLES
    ]
    verbs = ("create", "delete", "bind", "replace", "label", "node")
    mixed: list[Step] = []
    for n in range(900):
        mixed.append((chance.choice(verbs), chance.choice(NAMES), chance.choice(("x", "y", "web"))))
        if n % 100 == 50:
            mixed.append(("clock jumps", "", chance.choice(("-7200", "86400"))))
        mixed.append(("compact", "", "") if n % 40 == 0 else ("wait", "", chance.choice(("0.1", "7", "40"))))
    struck = tell(rules, mixed, server, seed=5)
    reading = {"latency", "throttled", "server-error", "unavailable", "reset", "unreachable"}
    streaming = {"watch-reset", "watch-expired"}
    assert reading | streaming <= set(struck), "the storm was real"


def test_the_same_seed_tells_the_same_story() -> None:
    rules = [FaultRule(trouble=t, clients=("karpenter",), probability=0.3) for t in fault_storms.ALL_TROUBLES]
    script = [("create", n, "") for n in NAMES] + [
        ("wait", "", "40"),
        ("delete", "a", ""),
        ("wait", "", "40"),
    ]
    assert tell(rules, script, "streams lists", 3) == tell(rules, script, "streams lists", 3)
