"""Write the recording of this version into tests/conformance/recordings, for the versions after it to read.

A small cluster is played in virtual time: pods come and go, machines are bought and given back. Recordings
of other versions are left alone: those versions wrote them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from msgspec.structs import replace

from dovetail import __version__
from dovetail.play import play_scenario
from dovetail.runtime import logs
from dovetail.sim.scenario_file import read_scenario

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "conformance" / "recordings"
STORY = FOLDER / "story.yaml"


def write_recording(folder: Path) -> None:
    """Play the story and record it into a folder of its own."""
    story = read_scenario(STORY)
    play_scenario(replace(story, settings={**story.settings, "RECORDING": f"file:{folder.absolute()}"}))


def main() -> int:
    logs.configure_logging("error", ("/dev/null",))
    folder = FOLDER / __version__
    shutil.rmtree(folder, ignore_errors=True)
    write_recording(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder.relative_to(ROOT)}: {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
