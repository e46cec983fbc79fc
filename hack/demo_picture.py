"""Draw docs/images/demo.svg, the real output of `dovetail demo`, and show the same lines in README.md."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "demo.svg"
WIDTH = 112


def main() -> int:
    """Play the demo, and draw what it said if it ended well."""
    played = subprocess.run(
        [sys.executable, "-m", "dovetail", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if played.returncode:
        print(played.stdout + played.stderr, file=sys.stderr)
        return played.returncode
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(drawn(played.stdout), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    shown = re.sub(r"(?s)```text\n.*?```", lambda _: f"```text\n{played.stdout}```", text, count=1)
    README.write_text(shown, encoding="utf-8")
    print("drawn: docs/images/demo.svg; told: README.md")
    return 0


def drawn(told: str) -> str:
    """A terminal with these lines in it; the moments in front of them are dimmed."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    console.print(Text("$ dovetail demo", style="green"))
    for line in told.splitlines():
        text = Text(line)
        text.highlight_regex(r"^ +\d+\.\d s", "dim")
        text.highlight_regex(r"\$\d+\.\d+", "bold")
        console.print(text, soft_wrap=True)
    picture = console.export_svg(title="dovetail demo", unique_id="demo")
    # A picture should not ask a server for its letters; any font of even width will do.
    return re.sub(r"@font-face\s*\{.*?\}\s*", "", picture, flags=re.DOTALL)


if __name__ == "__main__":
    sys.exit(main())
