"""Indexed Jobs: which completion indexes are through, written as `1,3-5,7`."""

from __future__ import annotations

from typing import Any

__all__ = ["expand", "indexed", "squeeze"]


def indexed(job: dict[str, Any]) -> bool:
    """Whether each success of the Job is for an index of its own."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def expand(text: str) -> set[int]:
    """The indexes a text names."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def squeeze(indexes: set[int]) -> str:
    """Indexes as text; neighbours become a range."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 1 else [str(run[0])]
    return ",".join(parts)
