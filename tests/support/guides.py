"""Guides as tests follow them: their files and commands in order, and what a command is shown to print."""

from __future__ import annotations

import re

__all__ = ["looks_like", "steps"]

BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(text: str) -> list[tuple[str, str, str]]:
    """What to do, in order: a file to write, or a command to run with what it should print."""
    found = []
    for language, title, body in BLOCK.findall(text):
        if language == "yaml" and title:
            found.append(("file", title, body))
        elif language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, shown = part.replace("\\\n", " ").partition("\n")
                found.append(("run", command, shown))
    return found


def looks_like(shown: str, printed: str) -> bool:
    """Every line that is shown is among the printed ones, in that order."""
    left = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in shown.splitlines():
        wanted = " ".join(line.split())
        if wanted in ("", "…"):
            continue
        pattern = ".*".join(map(re.escape, wanted.split("…")))
        if not any(re.fullmatch(pattern, each) for each in left):
            return False
    return True
