"""Playing as a library: what the guide shows works, and a scenario may have any provider's catalogue."""

from __future__ import annotations

import io
import re
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.errors import BadInput
from dovetail.play import Scenario, ScenarioRun, play_scenario
from dovetail.sim.clock import VirtualClock
from dovetail.sim.report import build_document
from dovetail.sim.run_recorder import RunRecorder
from dovetail.sim.scenario import (
    PriceChange,
    ReplicaCurve,
    ScenarioEvent,
    ScenarioPool,
    ScenarioWorkload,
    ZoneLoss,
)
from dovetail.sim.scenario_file import parse_scenario
from dovetail.sim.world import World

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guides" / "play.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
Json = dict[str, Any]


def test_the_first_example_of_the_guide_has_ten_lines_at_most() -> None:
    assert len(EXAMPLES) == 3
    assert len([line for line in EXAMPLES[0][0].splitlines() if line]) <= 10


@pytest.mark.parametrize(("program", "printed"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_the_guide_prints_what_it_says(program: str, printed: str) -> None:
    said = io.StringIO()
    with redirect_stdout(said), chdir(ROOT):
        exec(compile(program, str(GUIDE), "exec"), {"__name__": "guide"})
    assert said.getvalue() == printed


def story(**more: Any) -> Scenario:
    requirements = [
        {"key": labels.INSTANCE_CATEGORY, "operator": "In", "values": ["c", "m"]},
        {"key": labels.INSTANCE_CPU, "operator": "Lt", "values": ["9"]},
        {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]},
    ]
    web = ScenarioWorkload("web", cpu="1", memory="2Gi", replicas=ReplicaCurve(value=10))
    plain = Scenario(
        "dovetail.sh/v1alpha1",
        "Scenario",
        provider="aws",
        duration="10m",
        step="15s",
        pools=[ScenarioPool(requirements=requirements)],
        workloads=[web],
    )
    return replace(plain, **more)


def play(told: Scenario) -> tuple[Json, list[Json], list[Json]]:
    """The report as JSON, and the nodes and NodeClaims at the end of the story."""
    runs: list[ScenarioRun] = []
    ends: list[tuple[list[Json], list[Json]]] = []

    def passed(share: float, moment: str) -> bool:
        if share >= 1:
            api = runs[0].world.api
            ends.append((api.list("nodes"), api.list("nodeclaims.karpenter.sh")))
        return False

    report = build_document(play_scenario(told, passed, runs.append))
    return report, *ends[0]


def test_a_scenario_is_played_with_the_types_and_labels_of_ec2() -> None:
    report, nodes, claims = play(story())
    assert (report["pods_started"], report["pods_waiting"]) == (10, 0)
    assert {each["spec"]["nodeClassRef"]["kind"] for each in claims} == {"EC2NodeClass"}
    for node in nodes:
        known = node["metadata"]["labels"]
        assert known[labels.INSTANCE_CATEGORY] in ("c", "m")
        assert int(known[labels.INSTANCE_CPU]) < 9
        assert known[labels.INSTANCE_TYPE].partition(".")[0] == known[labels.INSTANCE_FAMILY]
        assert known[labels.ZONE].startswith("us-east-1")
        assert labels.KWOK_INSTANCE_CPU not in known
    assert nodes
    assert play(story())[0] == report, "the same story and seed, the same report"


def test_a_floor_has_no_digits_that_depend_on_the_processor() -> None:
    recorder = RunRecorder(World(VirtualClock()))
    here, elsewhere = (recorder.take_sample(floor=each) for each in (0.5389407287232315, 0.5389407287232316))
    assert here.floor == elsewhere.floor == 0.538940729


def test_prices_and_zones_of_any_catalogue_change_and_pools_begin_with_nodes() -> None:
    events = [
        ScenarioEvent("1m", price=PriceChange(factor=100.0)),
        ScenarioEvent("2m", zone_loss=ZoneLoss(zone="us-east-1a")),
    ]
    grown = [replace(each, replicas=ReplicaCurve(curve="bursty", every="8m", lasts="4m", base=30, burst=4))
             for each in story().workloads]  # fmt: skip
    pools = [replace(each, nodes=2) for each in story().pools]
    report, nodes, _ = play(story(events=events, workloads=grown, pools=pools))
    assert report["pods_waiting"] == 0
    late = [each for each in nodes if not each["metadata"]["name"].startswith("default-")]
    known = [each["metadata"]["labels"] for each in late if "default-0000" not in each["metadata"]["name"]]
    bought_late = [each for each in known if each[labels.CAPACITY_TYPE] == "on-demand"]
    assert bought_late, "spot has become dear"
    assert "us-east-1a" not in {each[labels.ZONE] for each in bought_late}


def test_a_provider_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    document = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "Scenario", "provider": "asw"}
    with pytest.raises(BadInput, match=r'provider: there is no provider "asw"; .* did you mean aws\?'):
        parse_scenario(document, tmp_path / "s.yaml")
