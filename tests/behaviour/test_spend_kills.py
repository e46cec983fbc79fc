"""A controller that is killed between any two of its writes to SpendLimits, NodeClaims and events.

Each life may make a few such writes; it dies right before the next, or right after it, before it hears the
answer. Whatever the lives left behind, the next one goes on from it: no limit is overshot, no dollar of the
month is lost, and what was to be told is told.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.controllers.spend_status import read_tally
from dovetail.scheduling.spend import PoolSpend
from dovetail.sim.clock import run_virtual
from support.killable_process import Fate
from support.spend import LIMITS, SpendCluster

# As many in every run; more with the variable. A seed gives the same story every time.
SEEDS = int(os.environ.get("DOVETAIL_SPEND_KILL_SEEDS", "1"))
FIRST_SEED = int(os.environ.get("DOVETAIL_SPEND_FIRST_SEED", "0"))
STEP, DUST = 1.0, 1e-6


class KilledStory:
    """One cluster, a controller that dies again and again, and the books that somebody else keeps."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.cluster = SpendCluster(seed, start=datetime(2026, 11, 18, 9, tzinfo=UTC))
        self.hourly = self.chance.choice((0.3, 0.8))
        self.paid = 0.0
        self.kills = 0
        self.most_writes = self.chance.choice((2, 6, 15))

    def draw_fate(self) -> Fate:
        writes = self.chance.randint(1, self.most_writes)
        return Fate(writes, before=self.chance.random() < 0.5)

    async def live(self, seconds: float, *, killed: bool) -> None:
        """So many seconds, in which nothing may cost more than is allowed."""
        cluster, ends = self.cluster, self.cluster.clock.monotonic() + seconds
        while cluster.clock.monotonic() < ends:
            rate, before = cluster.add_up_paid(), cluster.clock.monotonic()
            if killed and cluster.fate.dead.is_set():
                self.kills += 1
                await cluster.kill(self.draw_fate())
            await cluster.clock.sleep(STEP)
            assert cluster.add_up() <= self.hourly + DUST
            self.paid += rate * (cluster.clock.monotonic() - before) / 3600


async def play_killed_story(seed: int) -> int:
    story = KilledStory(seed)
    cluster = story.cluster
    async with cluster.world.running():
        cluster.create_class()
        cluster.create_pool("one")
        cluster.create_pool("two", weight=10)
        cluster.create_limit(hourly=f"{story.hourly}", monthly="90000", overlap="0%")
        cluster.create_limit("watching", hourly="0.01", mode="Warn", nodePools={"names": ["one", "two"]})
        cluster.create_workload("web", 12)
        cluster.fate.strike_at(story.chance.randint(1, 3), before=True)
        cluster.start()
        await story.live(60, killed=True)
        cluster.create_workload("more", 25, priority=100)
        await story.live(90, killed=True)
        await cluster.kill()
        await story.live(361, killed=False)
        judge_rest(story)
        await cluster.stop()
    return story.kills


def judge_rest(story: KilledStory) -> None:
    """What stands at the end is what is true, whoever wrote it."""
    cluster = story.cluster
    limit, warning = cluster.read_limit()["status"], cluster.read_limit("watching")["status"]
    pending = cluster.count_pods(bound=False)
    assert limit.get("heldPods", 0) == pending > 0, "the limit is reached"
    assert float(limit["hourly"]["spent"]) == pytest.approx(cluster.add_up(), abs=1e-4)
    assert float(limit["hourly"].get("inFlight", "0")) == 0.0
    for status in (limit, warning):
        assert status["month"]["of"] == "2026-11"
        until = datetime.fromisoformat(status["month"]["until"].replace("Z", "+00:00"))
        unwritten = cluster.add_up_paid() * (cluster.clock.now() - until).total_seconds() / 3600
        # A status has hundredths of a cent, and each life goes on from what the last one wrote.
        most = 0.005 * story.paid + 0.00005 * (story.kills + 1)
        assert float(status["month"]["spent"]) + unwritten == pytest.approx(story.paid, abs=most)
        assert status["month"]["unseenSeconds"] > 0
    told = {
        (each["regarding"]["kind"], each["reason"])
        for each in cluster.api.list("events.events.k8s.io", "default")
    }
    assert {("SpendLimit", "SpendLimitReached"), ("NodePool", "SpendLimitReached")} <= told


@pytest.mark.spec("SL-1", "SL-6")
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_kill_between_any_two_writes_overshoots_no_limit_and_loses_no_dollar(seed: int) -> None:
    assert run_virtual(play_killed_story(seed)) > 5


def test_who_begins_to_lead_tells_what_stands() -> None:
    """The one before may have died between its status and its event."""

    async def main() -> None:
        cluster = SpendCluster()
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.create_limit(hourly="0.05")
            cluster.create_workload("web", 9)
            cluster.start()
            await cluster.clock.sleep(90)
            assert cluster.read_limit()["status"]["heldPods"] > 0
            for each in cluster.api.list("events", "default"):
                cluster.api.delete("events", each["metadata"]["name"], "default")
            await cluster.kill()
            await cluster.clock.sleep(90)
            told = [
                (each["reason"], each["regarding"]["kind"])
                for each in cluster.api.list("events.events.k8s.io", "default")
                if each["reason"].startswith("SpendLimit")
            ]
            reached = "SpendLimitReached"
            assert sorted(told) == [(reached, "NodePool"), (reached, "SpendLimit")], "and nobody was let go"
            await cluster.stop()

    run_virtual(main())


def test_a_status_is_not_written_over_what_was_not_seen() -> None:
    """As while another leader takes over: what it wrote is seen first, and then written."""

    async def main() -> None:
        cluster = SpendCluster()
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.create_limit(hourly="5", monthly="90000")
            cluster.start()
            await cluster.clock.sleep(70)
            (spending,) = (each for each in cluster.ours.controllers if each.name == "spendlimit.status")
            known: Any = spending
            (stale,) = known._limits
            other = {"status": {"month": {**cluster.read_limit()["status"]["month"], "spent": "17.0000"}}}
            cluster.api.patch(LIMITS, "development", other, subresource="status")
            (cap,) = known._guard.list_caps()
            tally = read_tally(stale, cluster.clock.now())
            await known._settle_limit(stale, cap, PoolSpend(nodes=3), replace(tally, spent=99.0))
            assert cluster.read_limit()["status"]["month"]["spent"] == "17.0000"
            await cluster.stop()

    run_virtual(main())
