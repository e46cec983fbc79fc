"""Write docs/guides/log.md: the log of the demo's cluster, line by line beside Karpenter's.

    python hack/demo_log.py                      play the demo, keep its lines, write the page
    python hack/demo_log.py --karpenter LOG      keep the lines of a Karpenter that was told the same story,
                                                 which `hack/log_story LOG` does

Both logs are kept as docs/guides/log/*.jsonl, the first line of each message, so that the page can be made
again from either.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dovetail.controllers.node.termination
import dovetail.controllers.orchestration
import dovetail.providers.aws.interruption  # noqa: F401 (these declare what is said)
from dovetail.logs import MESSAGES

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "guides" / "log"
PAGE = ROOT / "docs" / "guides" / "log.md"
MADE = "<!-- Made by hack/demo_log.py; edit that instead. -->"
OPENING = """\
`dovetail demo --log-file FILE` plays the story of `make demo` and keeps what the controller says. Below is
that log: of each message the first line and how often it was said, beside the line that Karpenter {version}
wrote. Messages, levels, keys and the order of keys are the same, so runbooks, saved searches and tools that
parse Karpenter's log keep working; every message is in the [reference](../reference/logs.md).

The story: six pods that spread over zones get nodes; one node is taken back by spot and replaced; the
Deployment is scaled to none, and the empty nodes go. Karpenter's lines are its own controller's with its
kwok provider on the same embedded cluster (`hack/log_story`), which knows no spot warnings: of that line, the
keys are shown that its provider for AWS writes. It was built without a revision, so `commit` is missing."""
# As Karpenter's provider for AWS writes them; its kwok provider cannot.
OF_AWS = {
    "initiating delete from interruption message": (
        *("level", "time", "logger", "message", "commit", "controller", "namespace", "name", "reconcileID"),
        *("queue", "messageKind", "NodeClaim", "action", "Node"),
    )
}
Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--karpenter", type=Path, metavar="LOG")
    parser.add_argument("--version", default="1.14.1")
    parser.add_argument("--page-only", action="store_true")
    given = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    if given.karpenter:
        _keep("karpenter", given.karpenter.read_text(encoding="utf-8").splitlines())
    elif not given.page_only:
        _keep("dovetail", _played())
    PAGE.write_text(page(given.version), encoding="utf-8")


def _played() -> list[str]:
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [sys.executable, "-m", "dovetail", "demo", "--log-file", str(log)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return log.read_text(encoding="utf-8").splitlines()


def _keep(whose: str, lines: Iterable[str]) -> None:
    first: dict[str, Line] = {}
    for text in lines:
        line = json.loads(text)
        if line["message"] in MESSAGES:
            first.setdefault(line["message"], {**line, "said": 0})["said"] += 1
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in first.values())
    (KEPT / f"{whose}.jsonl").write_text(text, encoding="utf-8")


def _kept(whose: str) -> dict[str, Line]:
    path = KEPT / f"{whose}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {line["message"]: line for line in map(json.loads, lines)}


def page(version: str) -> str:
    """The page, from what is kept of both logs."""
    ours, theirs = _kept("dovetail"), _kept("karpenter")
    parts = ["# The log, beside Karpenter's", MADE, OPENING.format(version=version)]
    for message, line in ours.items():
        parts.append("\n\n".join(_section(message, line, theirs.get(message))))
    return "\n\n".join(parts) + "\n"


def _section(message: str, line: Line, theirs: Line | None) -> Iterator[str]:
    said = line.pop("said")
    yield f"## {message}"
    yield f"{MESSAGES[message].about} Said {'once' if said == 1 else f'{said} times'}."
    yield _block("Dovetail", json.dumps(line, separators=(",", ":")))
    if theirs is not None:
        theirs.pop("said", None)
        yield _block("Karpenter", json.dumps(theirs, separators=(",", ":")))
    elif message in OF_AWS:
        yield _block("Karpenter", "{" + ",".join(f'"{key}":…' for key in OF_AWS[message]) + "}")
    elif MESSAGES[message].ours:
        yield "Karpenter has no such line."


def _block(who: str, text: str) -> str:
    return f"{who}:\n\n```json\n{text}\n```"


if __name__ == "__main__":
    main()
