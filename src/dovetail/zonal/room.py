"""How much room is kept for pods of a zone that is shifted away: never more than may still have to move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["kept"]

W = TypeVar("W")


def kept(needed: Mapping[W, int] | None, have: Mapping[W, int], left: Mapping[W, int]) -> dict[W, int]:
    """Room for each workload: what was `needed` at first, what we `have`, and who is `left` in the zone.

    Once room was bought it only shrinks: whoever moved into it must not have it bought anew, and what it was
    worked out from is no longer true.
    """
    if have:
        return {workload: min(size, left.get(workload, 0)) for workload, size in have.items()}
    wanted = ((workload, min(size, left.get(workload, 0))) for workload, size in (needed or {}).items())
    return {workload: size for workload, size in wanted if size > 0}
