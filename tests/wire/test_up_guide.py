"""The guide to `dovetail up`, followed to the letter: every console line, and what it should print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from support.up_process import up

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "up.md"


def steps() -> list[tuple[list[str], str]]:
    """Each command of the guide with the output that follows it."""
    blocks = re.findall(r"```console\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    found = []
    for part in "".join(blocks).split("$ ")[1:]:
        command, _, output = part.partition("\n")
        found.append((shlex.split(command), output))
    return found


def resembles(output: str, expected: str) -> bool:
    """Whether it is what the guide shows; `…` stands for anything, and spaces for more of them."""
    words = [re.escape(word) for word in expected.split()]
    pattern = r"\s+".join(words).replace(re.escape("…"), r".*")
    return re.fullmatch(pattern + r"\s*", output, re.DOTALL) is not None


async def test_the_guide_does_what_it_says(tmp_path: Path) -> None:
    first, *rest = steps()
    assert first[0] == ["dovetail", "up"]
    async with up(tmp_path, "--boot", "2", cwd=ROOT) as cluster:
        assert resembles(cluster.said, first[1]), cluster.said
        for command, expected in rest:
            assert command[0] == "kubectl"
            output = await cluster.kubectl(*command[1:])
            assert resembles(output, expected), f"{command}\n{output}"
        assert (await cluster.stop())[0] == 0
    assert len(rest) == 6
