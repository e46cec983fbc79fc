"""Record a simulated day, and make every decision of it again in another process. Ends with 1 if one differs.

Then `plan --disruption` is asked about the moment of each command, and must say what the history says.

`--scenario` plays another one than the shipped day of a web fleet, `--to` keeps the recording.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

from dovetail.history.recording.summary import summarise_recording
from dovetail.play import play_scenario
from dovetail.runtime import logs
from dovetail.runtime.recording_folder import read_recording
from dovetail.sim.scenario_file import read_scenario

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", type=Path, default=ROOT / "examples" / "scenarios" / "diurnal-web.yaml")
    parser.add_argument("--to", type=Path, help="where the recording is kept")
    options = parser.parse_args()
    logs.configure_logging("error", ("/dev/null",))
    with tempfile.TemporaryDirectory() as room:
        folder = options.to or Path(room) / "recording"
        story = read_scenario(options.scenario)
        settings = {**story.settings, "RECORDING": f"file:{folder.absolute()}"}
        began = time.process_time()
        play_scenario(replace(story, settings=settings))
        print(f"played in {time.process_time() - began:.0f} s of processor")
        found = summarise_recording(read_recording(str(folder)))
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(
            f"{found.looks} looks in {found.segments} segments, {found.decisions} decisions, {size:,} bytes"
        )
        print(f"{found.decisions} decisions: {found.questions}")
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
        # Another process, whose sets are ordered otherwise.
        env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "42"}
        ended = [
            subprocess.run([sys.executable, "-m", program, str(folder)], env=env, check=False).returncode
            for program in ("support.remaking", "support.moments")
        ]
        return max(ended)


if __name__ == "__main__":
    sys.exit(main())
