"""Playing is a library: a scenario, from a file or made in Python, runs in virtual time and gives a report.

    report = play_scenario(read_scenario("examples/scenarios/inflate.yaml"))

`dovetail simulate` is this with a progress bar. Programs that want to look in while it runs are handed a
`ScenarioRun`: the simulated cluster, and the autoscaler that runs in it.
"""

from __future__ import annotations

from dovetail.play.scenario_run import OnProgress, OnStart, ScenarioRun, play_scenario
from dovetail.sim.report import RunReport, render_text
from dovetail.sim.scenario import Scenario
from dovetail.sim.scenario_file import read_scenario

__all__ = [
    "OnProgress",
    "OnStart",
    "RunReport",
    "Scenario",
    "ScenarioRun",
    "play_scenario",
    "read_scenario",
    "render_text",
]
