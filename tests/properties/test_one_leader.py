"""Never two leaders at once, whatever is paused, killed, slow, lost, cut off or wrong about the time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.api.core import Lease
from dovetail.ports import Clock
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.leader import ElectionTerms, Elector
from dovetail.runtime.transport import ApiReply, ApiRequest, Lines
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.faults import ClockFault, FaultRule, FaultStorm, WrongClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport

TERMS = ElectionTerms()
LOOK = 0.05
NAMES = ("one", "two", "three")
TAKEOVER = TERMS.lease + TERMS.retry * 1.2 + 0.1


class Machine:
    """One process on one machine: its clock, its wire, and whether it is stopped in its tracks."""

    def __init__(
        self, name: str, server: ApiServer, true: VirtualClock, clock: Clock, chance: Random
    ) -> None:
        self.name = name
        self._true = true
        self._clock = clock
        self._wire = LocalTransport(server, f"{name}/1")
        self._paused_until = 0.0
        self._sending: set[asyncio.Task[ApiReply]] = set()
        self.elector = Elector(KubeClient(self, clock), TERMS, name, clock=self, rng=chance)
        self.task = asyncio.create_task(self.elector.run())
        self.running = True

    def pause(self, seconds: float) -> None:
        self._paused_until = self._true.monotonic() + seconds

    def kill(self) -> None:
        """No last words: nothing it does from here on reaches anyone."""
        self.running = False
        self.pause(1e9)
        self.task.cancel()

    async def stop(self) -> None:
        self.running = False
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def _awake(self) -> None:
        while (left := self._paused_until - self._true.monotonic()) > 0:
            await self._true.sleep(left)

    # Its clock: a sleep that ends in a pause ends after it.

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._awake()

    # Its wire: nothing leaves or arrives during a pause.

    async def send(self, request: ApiRequest) -> ApiReply:
        # A request that was about to leave when the pause came leaves when it ends, whoever gave up on it.
        task = asyncio.create_task(self._sent(request))
        self._sending.add(task)
        task.add_done_callback(self._arrived)
        return await asyncio.shield(task)

    def _arrived(self, task: asyncio.Task[ApiReply]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()

    async def _sent(self, request: ApiRequest) -> ApiReply:
        await self._awake()
        reply = await self._wire.send(request)
        await self._awake()
        return reply

    def stream(self, request: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        return self._wire.stream(request)

    async def close(self) -> None:
        await self._wire.close()


class Election:
    """Machines on one Lease, and a witness who looks all the time."""

    def __init__(
        self,
        machines: int,
        rules: Sequence[FaultRule] = (),
        seed: int = 0,
        drift: float = 0.0,
        jumps: bool = False,
    ) -> None:
        self.clock = VirtualClock()
        self.storm = FaultStorm(self.clock, rules, seed)
        self.server = ApiServer(self.clock, Random(seed), faults=self.storm)
        self.chance = Random(seed)
        self.drift, self.jumps = drift, jumps
        self.machines = {name: self.machine(name) for name in NAMES[:machines]}
        self.reigns: list[tuple[float, str]] = []
        self.watching = asyncio.create_task(self.witness())

    def machine(self, name: str) -> Machine:
        whens = [self.chance.uniform(0, 120) for _ in range(4)] if self.jumps else []
        jumps = [ClockFault(at=when, by=self.chance.uniform(-1e5, 1e5)) for when in whens]
        rate = 1 + self.chance.choice((-1, 1)) * self.drift
        clock = WrongClock(self.clock, jumps, rate)
        return Machine(name, self.server, self.clock, clock, self.chance)

    @property
    def leaders(self) -> list[str]:
        return [m.name for m in self.machines.values() if m.running and m.elector.leading]

    async def witness(self) -> None:
        while True:
            leaders = self.leaders
            assert len(leaders) <= 1, (
                f"at {self.clock.monotonic():.2f} s {' and '.join(leaders)} led together"
            )
            if leaders and (not self.reigns or self.reigns[-1][1] != leaders[0]):
                self.reigns.append((self.clock.monotonic(), leaders[0]))
            await asyncio.sleep(LOOK)

    async def until_led(self, within: float, other_than: str = "") -> float:
        """Seconds until someone leads."""
        began = self.clock.monotonic()
        while not [name for name in self.leaders if name != other_than]:
            assert self.clock.monotonic() - began <= within, f"nobody led within {within} s"
            await asyncio.sleep(LOOK)
        return self.clock.monotonic() - began

    async def end(self) -> None:
        if self.watching.done():
            self.watching.result()
        self.watching.cancel()
        for machine in self.machines.values():
            machine.task.cancel()
        await asyncio.gather(
            *(machine.task for machine in self.machines.values()), self.watching, return_exceptions=True
        )


troubles = st.sampled_from(
    (
        "latency",
        "late-reply",
        "lost-reply",
        "reset",
        "unreachable",
        "stale",
        "conflict",
        "server-error",
        "throttled",
    )
)
rules = st.builds(
    FaultRule,
    trouble=troubles,
    clients=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(tuple),
    probability=st.sampled_from((0.2, 0.6, 1.0)),
    start=st.integers(0, 10).map(lambda tens: tens * 10),
    end=st.integers(1, 16).map(lambda tens: tens * 10),
    amount=st.sampled_from((None, 1, 4, 9, 14, 25)),
)
acts = st.lists(
    st.tuples(
        st.sampled_from(("pause", "pause", "kill", "restart", "stop", "nothing")),
        st.sampled_from(NAMES),
        st.sampled_from((1.0, 6.0, 11.0, 16.0, 40.0)),
        st.sampled_from((0.5, 3.0, 9.5, 17.0)),
    ),
    max_size=14,
)


async def act(election: Election, what: str, name: str, seconds: float) -> None:
    machine = election.machines.get(name)
    if machine is None:
        return
    match what:
        case "pause":
            machine.pause(seconds)
        case "kill":
            machine.kill()
        case "stop":
            await machine.stop()
        case "restart" if not machine.running:
            # A new process has a new name, or it would take the old one's lease for its own.
            election.machines[name] = election.machine(f"{name}{election.clock.monotonic():.2f}")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    machines=st.integers(2, 3),
    rules=st.lists(rules, max_size=5),
    script=acts,
    seed=st.integers(0, 2**16),
    drift=st.sampled_from((0.0, 0.001, 0.1)),
    jumps=st.booleans(),
)
def test_there_are_never_two_leaders(
    machines: int,
    rules: list[FaultRule],
    script: list[tuple[str, str, float, float]],
    seed: int,
    drift: float,
    jumps: bool,
) -> None:
    async def main() -> None:
        election = Election(machines, rules, seed, drift, jumps)
        for what, name, seconds, wait in script:
            await act(election, what, name, seconds)
            await asyncio.sleep(wait)
        election.storm.end_faults()
        if any(machine.running for machine in election.machines.values()):
            # The longest pause, an answer that is still awaited, the lease, and a try.
            await election.until_led(within=40 + TERMS.deadline + TAKEOVER * 1.12 + 5)
        await election.end()

    run_virtual(main())


def test_a_crashed_leader_is_replaced_after_one_lease() -> None:
    async def main() -> float:
        election = Election(3)
        await election.until_led(within=TERMS.retry * 2)
        await asyncio.sleep(60)
        (leader,) = election.leaders
        election.machines[leader].kill()
        took = await election.until_led(within=TAKEOVER)
        await election.end()
        return took

    assert TERMS.deadline < run_virtual(main()) <= TAKEOVER


def test_a_leader_that_stops_gives_the_lease_back_at_once() -> None:
    async def main() -> float:
        election = Election(2)
        await election.until_led(within=TERMS.retry * 2)
        await asyncio.sleep(60)
        (leader,) = election.leaders
        await election.machines[leader].stop()
        took = await election.until_led(within=TERMS.retry * 1.2 + 0.1)
        await election.end()
        return took

    assert run_virtual(main()) <= TERMS.retry * 1.2 + 0.1


def test_a_calm_leader_stays() -> None:
    async def main() -> tuple[list[tuple[float, str]], int]:
        election = Election(3)
        await asyncio.sleep(900)
        lease = await KubeClient(LocalTransport(election.server), election.clock).get(
            Lease, TERMS.name, TERMS.namespace
        )
        await election.end()
        return election.reigns, lease.spec.lease_transitions or 0

    reigns, transitions = run_virtual(main())
    assert len(reigns) == 1
    assert transitions == 0


def test_one_lost_answer_does_not_cost_the_leadership() -> None:
    async def main() -> list[tuple[float, str]]:
        rules = [
            FaultRule(trouble="unreachable", start=30, count=1),
            FaultRule(trouble="lost-reply", start=60, count=1),
        ]
        election = Election(1, rules)
        await asyncio.sleep(120)
        await election.end()
        assert len(election.storm.record) == 2
        return election.reigns

    assert len(run_virtual(main())) == 1


def test_a_leader_cut_off_falls_before_another_stands_up() -> None:
    async def main() -> list[tuple[float, str]]:
        election = Election(2)
        await election.until_led(within=TERMS.retry * 2)
        (leader,) = election.leaders
        election.storm.rules = (FaultRule(trouble="unreachable", clients=(leader,)),)
        took = await election.until_led(within=TAKEOVER + TERMS.retry, other_than=leader)
        assert took > TERMS.deadline
        election.storm.end_faults()
        await asyncio.sleep(60)
        await election.end()
        return election.reigns

    assert len(run_virtual(main())) == 2, "the old leader stays a follower when it comes back"


@pytest.mark.parametrize("seed", range(40))
def test_a_slow_answer_does_not_lengthen_a_reign(seed: int) -> None:
    """The renewal was done long before its answer came, and then the wire was cut."""

    async def main() -> None:
        election = Election(2, seed=seed)
        await election.until_led(within=TERMS.retry * 2)
        (leader,) = election.leaders
        slow = FaultRule(trouble="late-reply", clients=(leader,), amount=4.5, count=1)
        election.storm.rules = (slow, FaultRule(trouble="unreachable", clients=(leader,)))
        await election.until_led(within=TAKEOVER + 5, other_than=leader)
        await asyncio.sleep(20)
        assert election.storm.record[0].rule is slow
        await election.end()

    run_virtual(main())


@pytest.mark.parametrize("seed", range(40))
def test_a_slow_clock_here_and_a_fast_one_there_are_within_the_margin(seed: int) -> None:
    async def main() -> None:
        election = Election(2, seed=seed, drift=0.15)
        await election.until_led(within=TERMS.retry * 3)
        (leader,) = election.leaders
        await asyncio.sleep(seed / 10)
        election.storm.rules = (FaultRule(trouble="unreachable", clients=(leader,)),)
        await election.until_led(within=TAKEOVER * 1.3, other_than=leader)
        await asyncio.sleep(20)
        await election.end()

    run_virtual(main())


@pytest.mark.parametrize("seed", range(10))
def test_a_renewal_that_arrives_long_after_takes_nothing_back(seed: int) -> None:
    async def main() -> list[str]:
        election = Election(2, seed=seed)
        await election.until_led(within=TERMS.retry * 2)
        (leader,) = election.leaders
        # Its next renewal is on its way for 20 to 60 seconds; until another leads, nothing else gets through.
        slow = FaultRule(trouble="latency", clients=(leader,), amount=40, count=1)
        election.storm.rules = (slow, FaultRule(trouble="unreachable", clients=(leader,)))
        await election.until_led(within=TAKEOVER + 5, other_than=leader)
        election.storm.end_faults()
        await asyncio.sleep(80)
        now = election.leaders
        await election.end()
        return [leader, *now]

    first, then = run_virtual(main())
    assert first != then
