"""Where pods go when nobody tells the scheduler of the plan: each, in turn, to where most is free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dovetail.api.pod import Pod
from dovetail.scheduling.counting import waited
from dovetail.scheduling.resources import Nano, fits, minus, needs

__all__ = ["Seats", "all_seated"]


@dataclass(slots=True)
class Seats:
    """A node that takes pods: how large it is, and what is left of it."""

    size: Nano
    left: Nano

    def taking(self, wanted: Nano) -> float:
        """How free it would be with one more pod, as the scheduler scores it."""
        left = minus(self.left, wanted)
        return sum(left[name] / self.size[name] for name in ("cpu", "memory") if self.size.get(name))


def all_seated(
    pods: Iterable[Pod], places: Sequence[Seats], open_to: Callable[[Pod, int], bool] = lambda pod, at: True
) -> bool:
    """Whether every pod finds room that way; `open_to` says which places a pod may have."""
    for pod in sorted(pods, key=waited):
        wanted = needs(pod)
        able = [at for at, place in enumerate(places) if open_to(pod, at) and fits(wanted, place.left)]
        if not able:
            return False
        best = max(able, key=lambda at: places[at].taking(wanted))
        places[best].left = minus(places[best].left, wanted)
    return True
