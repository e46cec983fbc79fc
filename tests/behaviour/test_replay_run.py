"""ReplayRun: a recorded cluster played again in virtual time, as looks come in."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from dovetail.history.paid import integrate_paid
from dovetail.history.recording.reader import RecordedLook
from dovetail.play import play_scenario, read_scenario
from dovetail.play.replay_meter import ReplayBill
from dovetail.play.replaying import ReplayRun, Variation, learn_facts
from dovetail.runtime.recording_folder import read_recording

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedLook]:
    """A Deployment that grows and shrinks, recorded."""
    folder = tmp_path_factory.mktemp("recorded") / "recording"
    story = read_scenario(SCENARIOS / "inflate.yaml")
    play_scenario(replace(story, settings={**story.settings, "RECORDING": f"file:{folder}"}))
    return list(read_recording(str(folder)).looks())


def replay(
    looks: list[RecordedLook],
    seed: int = 1,
    variation: Variation = Variation(),  # noqa: B008
) -> ReplayBill:
    run = ReplayRun(looks[0], variation, seed, facts=learn_facts(looks))
    for look in looks[1:]:
        run.feed(look)
    run.advance_to(looks[-1].at)
    bill = run.bill()
    run.close()
    return bill


@pytest.mark.spec("RP-1")
def test_the_model_replays_itself(looks: list[RecordedLook]) -> None:
    paid, bill = integrate_paid(looks), replay(looks)
    assert paid.dollars > 0
    assert bill.dollars == pytest.approx(paid.dollars, rel=0.01)
    assert bill.node_hours == pytest.approx(paid.node_hours, rel=0.02)
    assert bill.unplaced == ()


@pytest.mark.spec("RP-5")
def test_the_same_seed_gives_the_same_bytes(looks: list[RecordedLook]) -> None:
    first, second = replay(looks, 7), replay(looks, 7)
    assert msgspec.json.encode(first) == msgspec.json.encode(second)


def test_looks_may_be_fed_as_they_are_made(looks: list[RecordedLook]) -> None:
    run = ReplayRun(looks[0], Variation(), 1, facts=learn_facts(looks))
    for look in looks[1:]:
        run.feed(look)
        run.advance_to(look.at)
    bill = run.bill()
    run.close()
    assert bill.dollars == pytest.approx(replay(looks).dollars, rel=1e-6)


def test_a_spend_limit_that_is_tried_is_kept(looks: list[RecordedLook]) -> None:
    free = replay(looks)
    limit = {
        "apiVersion": "dovetail.sh/v1alpha1",
        "kind": "SpendLimit",
        "metadata": {"name": "tried"},
        "spec": {"hourly": "0.05"},
    }
    held = replay(looks, variation=Variation("tried", manifests=(limit,)))
    hours = (looks[-1].at - looks[0].at).total_seconds() / 3600
    assert 0 < held.dollars <= 0.05 * hours < free.dollars / 2
    assert len(held.unplaced) > len(free.unplaced) == 0
    off = Variation("off", settings={"SPEND_LIMITS": "false"}, manifests=(limit,))
    assert replay(looks, variation=off).dollars == pytest.approx(free.dollars, rel=1e-6)


def test_a_commitment_that_is_tried_is_paid_and_pays(looks: list[RecordedLook]) -> None:
    """A plan that is never used costs its dollars; of nodes that it pays for nothing is left to pay."""

    def commit(hourly: str, discount: str = "50%", **spec: str) -> tuple[dict[str, object], ...]:
        meta = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "Commitment", "metadata": {"name": "tried"}}
        whole = {"kind": "ComputePlan", "hourly": hourly, "discount": discount, **spec}
        return ({**meta, "spec": whole},)

    free = replay(looks)
    hours = (looks[-1].at - looks[0].at).total_seconds() / 3600
    elsewhere = commit("0.10", kind="FamilyPlan", family="nobody-sells-it")
    lost = replay(looks, variation=Variation("lost", manifests=elsewhere))
    assert lost.dollars == pytest.approx(free.dollars + 0.10 * hours, rel=1e-3)
    ended = replay(looks, variation=Variation("ended", manifests=commit("9.00", ends="2020-01-01T00:00:00Z")))
    assert ended.dollars == pytest.approx(free.dollars, rel=1e-6)
    shown = Variation("shown", settings={"COMMITMENTS": "Show"}, manifests=commit("0.50"))
    # Spot is never covered: shown, the plan is paid beside it; followed, nodes are bought that it pays for.
    assert replay(looks, variation=shown).dollars == pytest.approx(free.dollars + 0.50 * hours, rel=1e-3)
    followed = replay(looks, variation=Variation("followed", manifests=commit("0.50")))
    assert followed.dollars == pytest.approx(0.50 * hours, rel=0.02)
    assert followed.node_hours > 0
    off = Variation("off", settings={"COMMITMENTS": "Off"}, manifests=commit("9.00"))
    assert replay(looks, variation=off).dollars == pytest.approx(free.dollars, rel=1e-6)
