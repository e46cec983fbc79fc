"""What Commitments say of themselves: status, conditions, events and metrics, with any provider."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.api.commitment import Commitment
from dovetail.errors import Retry
from dovetail.metrics import REGISTRY
from dovetail.sim.clock import run_virtual
from support.commitments import COMMITMENTS
from support.spend import CLAIMS, KIND, TYPE, ZONE, SpendCluster
from support.stage import sample

Json = dict[str, Any]
NOW = datetime(2026, 11, 2, tzinfo=UTC)


class CommittedCluster(SpendCluster):
    """A kwok cluster whose controller counts commitments."""

    def __init__(self, mode: str = "Show", detail: str = "full") -> None:
        super().__init__(start=NOW, SPEND_LIMITS="false", COMMITMENTS=mode, METRICS_DETAIL=detail)

    def commit(self, name: str = "plan", **spec: Any) -> None:
        whole = {"kind": "ComputePlan", "hourly": "1.00", "discount": "20%", **spec}
        given = {key: value for key, value in whole.items() if value is not None}
        self.api.create(COMMITMENTS, {"metadata": {"name": name}, "spec": given})

    def read(self, name: str = "plan") -> Json:
        found: Json = self.api.get(COMMITMENTS, name)
        return found

    def find_condition(self, kind: str, name: str = "plan") -> tuple[str, str, str]:
        listed = self.read(name).get("status", {}).get("conditions", ())
        found = next((each for each in listed if each["type"] == kind), None)
        return ("", "", "") if found is None else (found["status"], found["reason"], found["message"])

    def list_events(self, reason: str) -> list[Json]:
        events = self.api.list("events.events.k8s.io", "default")
        return [each for each in events if each["reason"] == reason]

    def sum_listed(self) -> float:
        """List prices of all NodeClaims, by the labels that kwok gave them."""
        total = 0.0
        for claim in self.api.list(CLAIMS):
            labels = claim["metadata"]["labels"]
            if KIND in labels:
                total += self._find_price({key: {labels[key]} for key in (TYPE, ZONE, KIND)})
        return total


def tell(cluster: CommittedCluster, story: Any) -> None:
    async def main() -> None:
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.start()
            await story()
            await cluster.stop()

    run_virtual(main())


def test_a_persons_commitment_says_what_is_used_and_lost_with_any_provider() -> None:
    cluster = CommittedCluster()

    async def story() -> None:
        cluster.commit(hourly="10.00", share="50%")
        cluster.create_workload("web", 12)
        await cluster.clock.sleep(200)
        listed = cluster.sum_listed()
        assert listed > 0
        status = cluster.read()["status"]
        assert status["hourly"] == "5.0000"
        assert float(status["used"]) == pytest.approx(0.8 * listed, abs=1e-3)
        assert float(status["unused"]) == pytest.approx(5 - 0.8 * listed, abs=1e-3)
        assert "byOthers" not in status
        assert status["observedGeneration"] == 1
        assert cluster.find_condition("Current")[:2] == ("True", "Current")
        assert cluster.find_condition("Full")[:2] == ("False", "Open")
        assert cluster.find_condition("Used")[:2] == ("False", "Unused")
        cluster.ours._report_gauges()
        assert sample("dovetail_commitment_dollars", commitment="plan", of="hourly") == 5.0
        assert sample("dovetail_commitment_dollars", commitment="plan", of="used") == float(status["used"])
        assert sample("dovetail_bill_dollars", of="listed") == pytest.approx(listed, abs=1e-6)
        assert sample("dovetail_bill_dollars", of="effective") == pytest.approx(0.0, abs=1e-6)
        assert sample("dovetail_bill_dollars", of="committed") == 5.0
        assert sample("dovetail_bill_dollars", of="unused") == pytest.approx(
            float(status["unused"]), abs=1e-3
        )

    tell(cluster, story)


def test_a_commitment_that_is_used_up_says_so_once() -> None:
    cluster = CommittedCluster()

    async def story() -> None:
        cluster.commit(hourly="0.60")
        await cluster.clock.sleep(70)
        assert cluster.find_condition("Full")[0] == "False"
        cluster.create_workload("web", 40)
        await cluster.clock.sleep(400)
        status = cluster.read()["status"]
        assert float(status["used"]) > 0.5
        assert cluster.find_condition("Full")[:2] == ("True", "Full")
        assert cluster.find_condition("Used")[0] == "True"
        (told,) = cluster.list_events("CommitmentFull")
        assert "one more node pays the listed price" in told["note"]
        assert told["regarding"]["kind"] == "Commitment"
        assert not cluster.list_events("CommitmentUnused")

    tell(cluster, story)


def test_what_is_lost_for_a_day_and_what_ends_is_told_whoever_led_before() -> None:
    cluster = CommittedCluster()
    ends, since = NOW + timedelta(hours=48, minutes=10), NOW - timedelta(hours=23, minutes=55)

    async def story() -> None:
        cluster.commit(hourly="2.00", ends=f"{ends:%Y-%m-%dT%H:%M:%SZ}")
        cluster.commit("fresh", hourly="1.00", ends="2027-11-02T00:00:00Z")
        # An earlier leader has seen for a day but five minutes that it is lost; the object says since when.
        known = {
            "type": "Used",
            "status": "False",
            "reason": "Unused",
            "message": "more than a tenth of it is lost",
            "lastTransitionTime": f"{since:%Y-%m-%dT%H:%M:%SZ}",
        }
        cluster.api.patch(COMMITMENTS, "plan", {"status": {"conditions": [known]}}, subresource="status")
        await cluster.clock.sleep(120)
        (soon,) = cluster.list_events("CommitmentEnding")
        assert soon["note"] == "Commitment plan ends on 2026-11-04 00:10 UTC"
        assert not cluster.list_events("CommitmentUnused")
        await cluster.kill()
        await cluster.clock.sleep(240)
        (lost,) = cluster.list_events("CommitmentUnused")
        assert lost["note"].startswith("$2.0000 of $2.0000 an hour of Commitment plan has gone unused")
        await cluster.clock.sleep(600)
        notes = [each["note"] for each in cluster.list_events("CommitmentEnding")]
        assert any(note.endswith("00:10 UTC; from now on no node is bought because of it") for note in notes)
        assert len(cluster.list_events("CommitmentUnused")) == 1  # no more than one a day

    tell(cluster, story)


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"currency": "EUR"}, "Currency", "it is paid in EUR; only dollars are counted"),
        ({"starts": "2027-01-01T00:00:00Z"}, "NotStarted", "it begins on 2027-01-01 00:00 UTC"),
        ({"ends": "2026-11-01T00:00:00Z"}, "Ended", "it ended on 2026-11-01 00:00 UTC"),
        ({"share": "400%"}, "Unreadable", 'spec.share is "400%"; write a percentage'),
    ],
)
def test_what_is_not_in_force_counts_for_nothing_and_says_why(spec: Json, reason: str, message: str) -> None:
    cluster = CommittedCluster()

    async def story() -> None:
        cluster.commit(**spec)
        cluster.create_workload("web", 4)
        await cluster.clock.sleep(130)
        status, found, told = cluster.find_condition("Current")
        assert (status, found) == ("False", reason)
        assert message in told
        assert cluster.read()["status"]["hourly"] == "0.0000"
        assert cluster.find_condition("Full") == ("", "", "")
        cluster.ours._report_gauges()
        assert sample("dovetail_bill_dollars", of="committed") == 0.0

    tell(cluster, story)


def test_a_plan_without_rates_is_told_to_have_some() -> None:
    cluster = CommittedCluster()

    async def story() -> None:
        cluster.commit(discount=None)
        await cluster.clock.sleep(70)
        status, reason, message = cluster.find_condition("Current")
        assert (status, reason) == ("True", "NoRates")
        assert message.endswith("give spec.discount")

    tell(cluster, story)


def test_in_brief_the_largest_commitments_have_series_and_the_rest_is_one_sum() -> None:
    cluster = CommittedCluster(detail="brief")

    async def story() -> None:
        for number in range(30):
            cluster.commit(f"plan-{number:02d}", hourly=f"{number + 1}.00")
        await cluster.clock.sleep(130)
        cluster.ours._report_gauges()
        assert sample("dovetail_commitment_dollars", commitment="plan-29", of="hourly") == 30.0
        assert sample("dovetail_commitment_dollars", commitment="others", of="hourly") == sum(range(1, 27))
        ours = ("dovetail_commitment_dollars", "dovetail_bill_dollars")
        series = [each for family in REGISTRY.restricted_registry(ours).collect() for each in family.samples]
        assert len(series) == 5 * 4 + 4  # of the forty that all features together may add

    tell(cluster, story)


# Deaths at each of the first writes, before it and after it; more by hand.
DEATHS = int(os.environ.get("DOVETAIL_COMMITMENT_DEATHS", "3"))


def die_at(cluster: CommittedCluster, number: int, happens: bool) -> None:
    """From this write of a Commitment's status on, nothing that the controller sends arrives."""
    patch, writes = cluster.ours.kube.patch, 0

    async def mortal(before: Any, after: Any, **more: Any) -> Any:
        nonlocal writes
        if isinstance(before, Commitment):
            writes += 1
            if writes > number or (writes == number and not happens):
                raise Retry("the process is dead")
        return await patch(before, after, **more)

    cluster.ours.kube.patch = mortal  # type: ignore[method-assign]


@pytest.mark.parametrize("happens", [False, True])
@pytest.mark.parametrize("number", range(1, DEATHS + 1))
def test_a_leader_killed_at_any_write_of_a_status_leaves_what_the_next_one_makes_right(
    number: int, happens: bool
) -> None:
    cluster = CommittedCluster()

    async def story() -> None:
        die_at(cluster, number, happens)
        cluster.commit("wide", hourly="10.00")
        cluster.commit("bad", share="400%")
        cluster.commit("small", hourly="0.05")
        cluster.create_workload("web", 12)
        await cluster.clock.sleep(70)
        await cluster.kill()
        await cluster.clock.sleep(200)
        listed = cluster.sum_listed()
        assert listed > 0.1
        wide, small = (cluster.read(name)["status"] for name in ("wide", "small"))
        used = float(wide["used"]) + float(small["used"])
        assert used == pytest.approx(0.8 * listed, abs=1e-3)
        assert cluster.find_condition("Current", "bad")[1] == "Unreadable"
        for name in ("wide", "small"):
            found = [each["type"] for each in cluster.read(name)["status"]["conditions"]]
            assert sorted(found) == ["Current", "Full", "Used"]
        assert len(cluster.list_events("CommitmentFull")) <= 1

    tell(cluster, story)


def test_off_nothing_is_read_written_or_counted() -> None:
    cluster = CommittedCluster("Off")

    async def story() -> None:
        cluster.commit()
        await cluster.clock.sleep(130)
        assert "status" not in cluster.read()
        assert not any("ommitment" in each.name for each in cluster.ours.controllers)

    tell(cluster, story)
