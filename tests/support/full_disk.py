"""A story played and recorded where no file may grow beyond a size, as on a disk that is full.

python -m support.full_disk SCENARIO FOLDER BYTES
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from msgspec.structs import replace

from dovetail import metrics
from dovetail.play import play_scenario
from dovetail.runtime import logs
from dovetail.sim.report import build_document
from dovetail.sim.scenario_file import read_scenario

RESULTS = ("written", "failed", "dropped")


def play(scenario: Path, folder: str, most: int) -> dict[str, object]:
    """The report of the story, and what was counted of its recording."""
    story = replace(read_scenario(scenario), duration="20m")
    if folder:
        story = replace(story, settings={**story.settings, "RECORDING": f"file:{folder}"})
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    report = build_document(play_scenario(story))
    name = "dovetail_recording_looks_total"
    counted = {each: metrics.REGISTRY.get_sample_value(name, {"result": each}) or 0.0 for each in RESULTS}
    return {"report": report, "looks": counted}


if __name__ == "__main__":
    logs.configure_logging("info", ("stderr",))
    print(json.dumps(play(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])), sort_keys=True, default=str))
