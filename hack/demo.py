"""A short tour for newcomers, run by `make demo`: real commands on the manifests in examples/.

Each step says what it should end with, and the demo fails when a step ends otherwise.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

ROOT = Path(__file__).parents[1]
SHOWN = 40
MISTAKEN = "build/demo/mistakes.yaml"
MISTAKES = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: batch
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: Is, values: [spot]}
  disruption:
    consolidateAfter: 1d
    consolidatePolicy: WhenEmpty
---
kind: NodePool
  metadata: {name: indented-wrongly}
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the tour, and the exit code it must end with."""

    heading: str
    arguments: str
    code: int = 0
    live: bool = False


STEPS = (
    Step("Manifests that are right", "validate -f 'examples/*.yaml'"),
    Step("Manifests with mistakes: every one is named, with its line", f"validate -f {MISTAKEN}", 1),
    Step(
        "A manifest of 2021, as it would be written today",
        "convert -f examples/legacy/inline-provider.yaml --cluster-name my-cluster",
    ),
    Step("A cluster being autoscaled, in this one process", "demo", live=True),
)


def main() -> int:
    """Take the tour; the exit code says whether every step ended as it should."""
    console = Console(highlight=False)
    failed = 0
    (ROOT / MISTAKEN).parent.mkdir(parents=True, exist_ok=True)
    (ROOT / MISTAKEN).write_text(MISTAKES, encoding="utf-8")
    for step in STEPS:
        failed += not take(step, console)
    console.print(Rule(style="dim"))
    if failed:
        console.print(f"[red]{failed} of {len(STEPS)} steps did not end as they should.[/]")
        return 1
    console.print(
        "That was Dovetail. Next: [bold].venv/bin/dovetail up[/] for a cluster of your own; docs/index.md."
    )
    return 0


def take(step: Step, console: Console) -> bool:
    """Run one step and show the first lines it prints; True when it ended as it should."""
    arguments = shlex.split(step.arguments)
    console.print(Rule(f"[bold]{step.heading}[/]", align="left"))
    console.print(f"[green]$ dovetail {shlex.join(arguments)}[/]", soft_wrap=True)
    sys.stdout.flush()
    run = subprocess.run(
        [sys.executable, "-m", "dovetail", *arguments],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": str(console.width)},
        stdout=None if step.live else subprocess.PIPE,
        stderr=None if step.live else subprocess.STDOUT,
        text=True,
        check=False,
        timeout=180,
    )
    lines = (run.stdout or "").splitlines()
    if lines:
        console.print("\n".join(lines[:SHOWN]), markup=False, soft_wrap=True)
    if len(lines) > SHOWN:
        console.print(f"[dim]… and {len(lines) - SHOWN} more lines[/]")
    if run.returncode != step.code:
        console.print(f"[red]ended with {run.returncode}, but {step.code} was expected[/]")
    return run.returncode == step.code


if __name__ == "__main__":
    sys.exit(main())
