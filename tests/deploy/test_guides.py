"""Every shell block of the guides, typed in order into a cluster of its own.

A ``yaml title="name"`` block becomes a file; a ``console`` block is run line by line. What a guide shows
below a command must be part of what the command prints, line by line; … stands for anything.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest

from support.guides import looks_like, steps
from support.kubectl import binary
from support.up_process import up

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "guides"
GUIDES = (
    "install",
    "upgrade",
    "instance-families",
    "spot",
    "pod-density",
    "interruption",
    "drift",
    "budgets",
    "gpu",
    "dashboard",
    "see-what-it-would-save",
    "pull-request-gate",
    "bill",
    "price-of-a-rule",
    "troubleshooting",
    "uninstall",
)


@pytest.mark.parametrize("name", GUIDES)
async def test_a_guide_does_what_it_says(name: str, tmp_path: Path) -> None:
    guide = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    asked = steps(guide)
    assert any(kind == "run" for kind, *_ in asked), "a guide without a command is no guide"
    homes = (binary("kubectl").parent, binary("helm").parent, Path(sys.executable).parent)
    tools = ":".join(map(str, homes))
    env_file = tmp_path / "env"
    bare = ("--no-controller",) if "--no-controller" in guide else ()
    options = ("--env", str(env_file), "--boot", "1", *bare)
    async with up(tmp_path, *options) as cluster:
        known = dict(
            line.removeprefix("export ").split("=", 1)
            for line in env_file.read_text().splitlines()
            if line.startswith("export ")
        )
        environment = {
            **{key: shlex.split(value)[0] if value else "" for key, value in known.items()},
            "KUBECONFIG": str(cluster.kubeconfig),
            "HOME": str(tmp_path),
            "PATH": f"{tools}:{os.environ['PATH']}",
        }
        (tmp_path / "deploy").symlink_to(ROOT / "deploy")
        (tmp_path / "examples").symlink_to(ROOT / "examples")
        for kind, what, content in asked:
            if kind == "file":
                (tmp_path / what).write_text(content, encoding="utf-8")
                continue
            code, printed = await _typed(what, tmp_path, environment)
            assert code == 0, f"$ {what}\n{printed}"
            assert looks_like(content, printed), f"$ {what}\n{printed}\nshould look like\n{content}"


async def _typed(command: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-o", "pipefail", "-c", command),
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, printed.decode()


def test_all_guides_about_a_cluster_are_run() -> None:
    elsewhere = {
        "demo": "tests/unit/test_docs.py",
        "log": "tests/unit/test_docs.py",
        "infrastructure": "tests/iac",
        "up": "tests/unit/cli",
        "plan": "tests/unit/cli",
        "explain": "tests/unit/cli",
        "simulate": "tests/unit/sim/test_scenarios.py",
        "scenarios": "tests/unit/sim/test_scenarios.py",
        "disruption": "tests/unit/cli",
        "node-classes": "tests/unit/providers",
        "multi-cluster-bus": "tests/behaviour",
        "observability": "tests/deploy/test_dashboards.py",
        "zonal-shift": "tests/behaviour",
        "history": "tests/wire/test_history_guide.py",
        "decision-log": "tests/behaviour/test_decision_log.py",
        "notifications": "tests/unit/cli/test_notify.py",
        "recording": "tests/behaviour/test_recorded_decisions.py",
        "play": "tests/unit/sim/test_play.py",
        "replay": "tests/behaviour/test_replay_command.py",
        "spend-limits": "tests/unit/cli/test_spend.py",
        "commitments": "tests/unit/cli/test_commitments_guide.py",
    }

    assert {path.stem for path in FOLDER.glob("*.md")} - elsewhere.keys() == set(GUIDES)
