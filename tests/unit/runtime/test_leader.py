"""Standing for election: the Lease as others read it, and a thread that nothing starves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random

import msgspec
import pytest

from dovetail.api.core import Lease
from dovetail.errors import Misconfigured
from dovetail.runtime import metrics
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.credentials import Anonymous
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.leader import ElectionTerms, Elector, ElectorThread, new_identity
from dovetail.runtime.transport import HttpTransport
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support.apiserver_thread import served_elsewhere

TERMS = ElectionTerms()
LEASES = "leases.coordination.k8s.io"


class Desk:
    """A server and as many electors as a story needs."""

    def __init__(self, *rules: FaultRule) -> None:
        self.clock = VirtualClock()
        self.storm = FaultStorm(self.clock, rules)
        self.server = ApiServer(self.clock, Random(1), faults=self.storm)
        self.api = self.server.build_local_client("someone")
        self.kube = KubeClient(LocalTransport(self.server), self.clock)
        self.told: list[tuple[float, bool]] = []

    def elector(self, name: str = "me") -> tuple[Elector, asyncio.Task[None]]:
        def tell(leading: bool) -> None:
            self.told.append((round(self.clock.monotonic(), 1), leading))

        elector = Elector(self.kube, TERMS, name, clock=self.clock, rng=Random(1), on_change=tell)
        return elector, asyncio.create_task(elector.run())

    async def lease(self) -> Lease:
        return await self.kube.get(Lease, TERMS.name, TERMS.namespace)

    def edit(self, **spec: object) -> None:
        self.api.patch(LEASES, TERMS.name, {"spec": spec}, TERMS.namespace)


def told(story: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(Desk())

    run_virtual(main())


def test_the_lease_reads_as_karpenters_does() -> None:
    async def story(desk: Desk) -> None:
        elector, task = desk.elector()
        await desk.clock.sleep(30)
        spec = (await desk.lease()).spec
        assert elector.leading
        assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("me", 15, 0)
        assert spec.acquire_time is not None
        assert spec.renew_time is not None
        assert spec.renew_time - spec.acquire_time > timedelta(seconds=25)
        stored = desk.api.get(LEASES, "karpenter-leader-election", "kube-system")
        assert len(stored["spec"]["renewTime"]) == len("2026-01-01T00:00:00.000000Z")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not (await desk.lease()).spec.holder_identity
        assert desk.told == [(0, True), (30, False)]

    told(story)


def test_a_leader_says_what_it_decides_by_and_its_successor_says_its_own() -> None:
    async def story(desk: Desk) -> None:
        def stand(name: str, said: str) -> asyncio.Task[None]:
            terms = ElectionTerms(annotations={"example.com/said": said})
            return asyncio.create_task(Elector(desk.kube, terms, name, clock=desk.clock, rng=Random(1)).run())

        first = stand("first", "a")
        await desk.clock.sleep(5)
        assert (await desk.lease()).annotations["example.com/said"] == "a"
        desk.api.patch(
            LEASES, TERMS.name, {"metadata": {"annotations": {"example.com/said": None}}}, TERMS.namespace
        )
        await desk.clock.sleep(5)
        assert (await desk.lease()).annotations["example.com/said"] == "a"
        second = stand("second", "b")
        await desk.clock.sleep(5)
        assert (await desk.lease()).annotations["example.com/said"] == "a"
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await desk.clock.sleep(20)
        lease = await desk.lease()
        assert (lease.spec.holder_identity, lease.annotations["example.com/said"]) == ("second", "b")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    told(story)


def test_a_leader_whose_lease_was_given_to_another_steps_down_at_its_next_renewal() -> None:
    async def story(desk: Desk) -> None:
        elector, _ = desk.elector()
        await desk.clock.sleep(30)
        slow = _counted("leader_election_slowpath_total")
        desk.edit(holderIdentity="someone", renewTime="2026-01-01T00:00:30.000000Z")
        await desk.clock.sleep(3)
        assert not elector.leading
        assert _counted("leader_election_master_status") == 0
        assert _counted("leader_election_slowpath_total") == slow + 1
        await desk.clock.sleep(18)
        assert elector.leading, "and stands up again when that one is silent"
        assert (await desk.lease()).spec.lease_transitions == 1

    told(story)


def _counted(name: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, {"name": TERMS.name}) or 0.0


def test_a_lease_that_was_deleted_is_made_anew() -> None:
    async def story(desk: Desk) -> None:
        elector, _ = desk.elector()
        await desk.clock.sleep(30)
        desk.api.delete(LEASES, TERMS.name, TERMS.namespace)
        await desk.clock.sleep(3)
        assert elector.leading
        assert (await desk.lease()).spec.holder_identity == "me"

    told(story)


def test_a_holder_that_wrote_a_longer_lease_is_given_that_long() -> None:
    async def story(desk: Desk) -> None:
        elector, task = desk.elector()
        await desk.clock.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        desk.edit(holderIdentity="patient", leaseDurationSeconds=60)
        began = desk.clock.monotonic()
        elector, _ = desk.elector("me again")
        while not elector.leading:
            await desk.clock.sleep(0.5)
        assert 60 <= desk.clock.monotonic() - began <= 63

    told(story)


def test_a_clock_that_was_set_back_still_shows_others_a_change() -> None:
    async def story(desk: Desk) -> None:
        elector, _ = desk.elector()
        await desk.clock.sleep(5)
        for _ in range(20):
            before = await desk.lease()
            renewed = before.spec.renew_time
            assert renewed is not None
            desk.clock.skew += renewed - desk.clock.now()
            await elector._try_once()
            assert (await desk.lease()).metadata.resource_version != before.metadata.resource_version
        assert elector.leading

    told(story)


def test_a_stop_in_the_middle_of_a_renewal_still_gives_the_lease_back() -> None:
    async def story(desk: Desk) -> None:
        _, task = desk.elector()
        await desk.clock.sleep(20)
        desk.storm.rules = (FaultRule(trouble="late-reply", verbs=("patch",), amount=3, count=1),)
        while not desk.storm.record:
            await desk.clock.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not (await desk.lease()).spec.holder_identity

    told(story)


def test_terms_that_could_make_two_leaders_are_refused() -> None:
    with pytest.raises(Misconfigured, match=r"renew deadline \(15 s\)"):
        ElectionTerms(lease=15, deadline=15)
    with pytest.raises(Misconfigured, match="retry period"):
        msgspec.structs.replace(ElectionTerms(), retry=12)


def test_no_two_processes_have_one_name() -> None:
    assert new_identity() != new_identity()


QUICK = ElectionTerms(lease=2.0, deadline=1.2, retry=0.2)


def standing(url: str, name: str, reigns: list[tuple[str, bool]]) -> ElectorThread:
    def make(tell: Callable[[bool], None]) -> Elector:
        def noted(leading: bool) -> None:
            reigns.append((name, leading))
            tell(leading)

        kube = KubeClient(HttpTransport(url, Anonymous()), SystemClock())
        return Elector(kube, QUICK, name, clock=SystemClock(), rng=Random(name), on_change=noted)

    return ElectorThread(make)


async def test_a_main_loop_that_is_busy_for_longer_than_the_lease_does_not_lose_it() -> None:
    with served_elsewhere() as url:
        reigns: list[tuple[str, bool]] = []
        first, second = standing(url, "first", reigns), standing(url, "second", reigns)
        first.start()
        await asyncio.wait_for(first.wait_leading(), 10)
        second.start()
        time.sleep(QUICK.lease * 2)  # noqa: ASYNC251 (the loop is held up on purpose)
        assert first.leading
        assert not second.leading
        assert reigns == [("first", True)]
        await first.stop()
        assert not first.leading
        await asyncio.wait_for(first.wait_lost(), 5)
        await asyncio.wait_for(second.wait_leading(), 10)
        await second.stop()
        assert reigns == [("first", True), ("first", False), ("second", True), ("second", False)]


async def test_a_thread_that_fails_is_heard_by_whoever_waits() -> None:
    def make(tell: Callable[[bool], None]) -> Elector:
        raise Misconfigured("no such cluster")

    elector = ElectorThread(make)
    await elector.stop()
    elector.start()
    with pytest.raises(Misconfigured, match="no such cluster"):
        await asyncio.wait_for(elector.wait_leading(), 5)
    await asyncio.wait_for(elector.wait_lost(), 5)
    assert not elector.leading
    await elector.stop()


@pytest.mark.parametrize("delay", [1.0, 3.0])
def test_a_renewal_counts_from_before_it_was_sent_not_from_its_answer(delay: float) -> None:
    async def story(desk: Desk) -> None:
        elector, task = desk.elector()
        await desk.clock.sleep(20)
        task.cancel()
        sent = desk.clock.monotonic()
        desk.storm.rules = (FaultRule(trouble="late-reply", verbs=("patch",), amount=delay),)
        elector._renewed_at = sent
        await elector._try_once()
        answered = desk.clock.monotonic()
        assert answered - sent >= delay / 2, "the answer was late"
        await desk.clock.sleep(sent + TERMS.deadline - answered - 0.01)
        assert elector.leading
        # The next holder may stand up a lease after the renewal arrived: by then this one has long fallen.
        await desk.clock.sleep(0.02)
        assert not elector.leading
        await asyncio.gather(task, return_exceptions=True)

    told(story)
