"""A recording of a hundred nodes replayed: processor time and memory of a week of it, by an hour and a half.

Most pods stay, and a twentieth comes and goes: builds, beside services that follow the day. The recording is
made first and not counted. A replay takes time for each simulated hour, whatever came before it: a week is
168 of them. Putting the first look's nodes and pods there is counted once, as a week has it once.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from dovetail.history.recording.reader import RecordingReader
from dovetail.play import play_scenario
from dovetail.play.replay_sections import ReplayTask, play_section, survey_recording
from dovetail.play.replaying import Variation
from dovetail.runtime.recording_folder import read_recording
from dovetail.sim.scenario import ReplicaCurve, Scenario, ScenarioPool, ScenarioWorkload

from .registry import Figure, scenario

NODES, HOURS, WEEK = 100, 1.5, 168
# The nodes are launched in this time, which a week has once and an hour and a half should not have.
START = timedelta(minutes=30)
MINUTE, GIB = 60, 2.0**30
# Four pods of this size fill a node.
SMALL = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["8"]}


def _build_story(folder: Path) -> Scenario:
    steady = ReplicaCurve(value=4 * NODES - NODES // 5)
    builds = ReplicaCurve(curve="bursty", base=NODES // 10, burst=NODES // 5, every="20m", lasts="8m")
    return Scenario(
        api_version="dovetail.sh/v1alpha1",
        kind="Scenario",
        name="hundred",
        seed=1,
        duration=f"{HOURS * 60:g}m",
        settings={"RECORDING": f"file:{folder}"},
        pools=[ScenarioPool(requirements=[SMALL], consolidate_after="1m")],
        workloads=[
            ScenarioWorkload(name="web", cpu="1800m", memory="3Gi", replicas=steady),
            ScenarioWorkload(name="builds", cpu="1800m", memory="3Gi", replicas=builds),
        ],
    )


@contextmanager
def _open(folder: Path) -> Iterator[RecordingReader]:
    yield read_recording(str(folder))


@scenario("replay")
def replay() -> Iterator[Figure]:
    """A week of a hundred nodes, as Dovetail, on one worker."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "recording"
        play_scenario(_build_story(folder))
        begun = process_time()
        reader = read_recording(str(folder))
        survey = survey_recording(reader, reader.segments[0].head.began + START)
        surveyed = process_time() - begun
        (section,) = survey.sections
        variation = Variation(recorded_settings=survey.settings, settings=survey.settings)
        opened = partial(_open, folder)
        at_once = replace(section, until=section.since + timedelta(seconds=1))
        begun = process_time()
        play_section(opened, ReplayTask(at_once, variation, 1), survey.facts)
        start = process_time() - begun
        begun = process_time()
        bill = play_section(opened, ReplayTask(section, variation, 1), survey.facts)
        played = process_time() - begun - start
    assert bill is not None
    hours = section.length / timedelta(hours=1)
    yield Figure("start", start, "s")
    yield Figure("nodes", bill.node_hours / hours, "nodes")
    yield Figure("reading a week", surveyed * WEEK / hours / MINUTE, "min")
    yield Figure("a week", (start + (surveyed + played) * WEEK / hours) / MINUTE, "min", budget=8)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield Figure("memory", used / GIB, "GiB", budget=1.5)
