"""The workflow and the job of deploy/ci: they can be read, and every command in them is one that exists."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.cli.main import DeferredCommand, build_cli

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "ci"
FILES = sorted(FOLDER.glob("*.yaml"))
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


def read(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def list_scripts(path: Path) -> list[str]:
    found = read(path)
    if "jobs" in found:
        return [step["run"] for job in found["jobs"].values() for step in job["steps"] if "run" in step]
    jobs = [job for job in found.values() if isinstance(job, dict) and "script" in job]
    return [line for job in jobs for line in (*job.get("before_script", ()), *job["script"])]


def test_there_is_a_workflow_for_each() -> None:
    assert [path.name for path in FILES] == ["github-workflow.yaml", "gitlab-job.yaml"]


def test_the_workflow_has_the_shape_that_github_reads() -> None:
    found = read(FOLDER / "github-workflow.yaml")
    assert set(found[True]) == {"schedule", "pull_request"}  # YAML 1.1 reads `on` as true
    for job in found["jobs"].values():
        assert {"runs-on", "steps", "permissions"} <= set(job)
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    # What others wrote never becomes a part of a script.
    assert not any(EXPRESSION.search(script) for script in list_scripts(FOLDER / "github-workflow.yaml"))


def test_the_job_has_the_shape_that_gitlab_reads() -> None:
    found = read(FOLDER / "gitlab-job.yaml")
    stages = found.pop("stages")
    for job in found.values():
        assert job["stage"] in stages
        assert all(isinstance(line, str) for line in job["script"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_script_is_read_by_a_shell_and_calls_commands_that_exist(path: Path) -> None:
    commands = build_cli().commands
    scripts = list_scripts(path)
    for script in scripts:
        ended = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr
    called = [
        line
        for script in scripts
        for line in script.replace("\\\n", " ").splitlines()
        if line.strip().startswith("dovetail ")
    ]
    assert called
    for line in called:
        words = shlex.split(re.split(r"[>|]", line)[0])
        command = commands[words[1]]
        assert isinstance(command, DeferredCommand)
        known = {name for each in command.load().params for name in each.opts}
        assert {word for word in words[2:] if word.startswith("-")} <= known
