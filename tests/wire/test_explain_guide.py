"""The guide to asking why, followed to the letter: every console line, and what it should print."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

from support.commands import process
from support.up_process import Up, up

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "explain.md"


def steps() -> list[tuple[list[str], str]]:
    """Each command of the guide with the output that follows it."""
    blocks = re.findall(r"```console\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    parts = [part.partition("\n") for part in "".join(blocks).split("$ ")[1:]]
    return [(shlex.split(command), output) for command, _, output in parts]


def resembles(output: str, expected: str) -> bool:
    """Whether it is what the guide shows; `…` stands for anything."""
    pattern = re.escape(expected).replace(re.escape("…"), r".*")
    return re.fullmatch(pattern, output, re.DOTALL) is not None


async def said(cluster: Up, command: list[str]) -> str:
    program, *arguments = command
    if program == "kubectl":
        return await cluster.kubectl(*arguments)
    # A file the guide saves goes to the test's own folder, not into the repository.
    own = [str(cluster.home / each) if each == "cluster.json" else each for each in arguments]
    env = {"KUBECONFIG": str(cluster.kubeconfig)}
    return (await asyncio.to_thread(process, *own, env=env)).out


async def test_the_guide_to_explain_does_what_it_says(tmp_path: Path) -> None:
    async with up(tmp_path, "--cloud", "kwok", cwd=ROOT) as cluster:
        for command, expected in steps():
            output = await said(cluster, command)
            if "lately:" not in expected:
                # What is remembered by now depends on how long the guide has taken so far.
                output = output.partition("lately:\n")[0]
            assert resembles(output, expected), f"{command}\n{output}"
    assert len(steps()) == 11
