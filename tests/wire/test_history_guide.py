"""The guide to histories, followed to the letter on `dovetail up`; and a node found by each of its names."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path

import pytest

from support.commands import process
from support.up_process import Up, up
from wire.test_explain_guide import resembles

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "history.md"


def steps() -> list[tuple[str, str]]:
    """Each command of the guide with the output that follows it."""
    blocks = re.findall(r"```console\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    parts = [part.partition("\n") for block in blocks for part in re.split(r"^\$ ", block, flags=re.M)[1:]]
    return [(command, output) for command, _, output in parts]


async def said(cluster: Up, command: str) -> str:
    program, *arguments = shlex.split(command)
    if program == "kubectl":
        return await cluster.kubectl(*arguments)
    ended = await asyncio.to_thread(process, *arguments, env={"KUBECONFIG": str(cluster.kubeconfig)})
    assert ended.code == 0, ended.err
    return ended.out


@pytest.mark.spec("HI-7")
async def test_the_guide_to_histories_does_what_it_says(tmp_path: Path) -> None:
    node = ""
    async with up(tmp_path, "--cloud", "kwok", cwd=ROOT) as cluster:
        for command, expected in steps():
            if command.startswith("NODE="):
                node = (await cluster.kubectl("get", "nodes", "-o", "name")).strip()
                continue
            output = await said(cluster, command.replace("$NODE", node))
            assert resembles(output, expected), f"{command}\n{output}"
        records = [
            json.loads(line)
            for line in (await said(cluster, f"dovetail history {node} -o jsonl")).splitlines()
        ]
        (pod, *_), (claim, instance) = records[0]["pods"], records[-1]["names"]
        for name in (node.removeprefix("node/"), claim, f"nodeclaim/{claim}", instance):
            found = await said(cluster, f"dovetail history {name} -o jsonl")
            assert [json.loads(line) for line in found.splitlines()] == records, name
        assert (
            json.loads((await said(cluster, f"dovetail history {pod} --acts -o jsonl")).splitlines()[0])
            == records[0]
        )
    assert len(steps()) == 10
