"""Which cluster a command looks at, as its options say it, and what was seen of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.api.pod import Pod
from dovetail.api.spend_limit import SpendLimit
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.settings import Settings
from dovetail.settings import read_settings as read_settings

__all__ = [
    "AUTO",
    "ClusterSource",
    "SeenCluster",
    "read_own_settings",
]

AUTO = "auto"  # ask the cluster whose node classes it serves


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """Which cluster a command looks at, as its options say it."""

    kubeconfig: str = ""
    context: str = ""
    provider: str = AUTO
    cluster_name: str = ""
    region: str = ""

    def exclude_snapshot(self, given_as: str = "--snapshot") -> None:
        """A file has everything in it; what is said of a cluster beside it would be ignored."""
        given = {
            "--kubeconfig": self.kubeconfig,
            "--context": self.context,
            "--cluster-name": self.cluster_name,
            "--region": self.region,
        }
        other = next((flag for flag, value in given.items() if value), "")
        if other:
            raise BadInput(f"{given_as} and {other} exclude each other; leave one out")


def read_own_settings() -> Settings:
    """The settings in this process's environment, for worlds that have no controller to ask."""
    return read_settings((), dict(os.environ), provider="kwok")


@dataclass(frozen=True, slots=True, repr=False)
class SeenCluster:
    """A cluster as it was: its Situation; of a live one, its pods by name and its controller's settings.

    `class_hashes` are those of its EC2NodeClasses by name, where they are known.
    """

    situation: Situation
    pods: Mapping[str, Pod] = field(default_factory=dict)
    settings: Settings = field(default_factory=read_own_settings)
    class_hashes: Mapping[str, str] = field(default_factory=dict)
    # The SpendLimits of a live cluster, with what their status says.
    spend_limits: tuple[SpendLimit, ...] = ()

    @property
    def snapshot(self) -> Snapshot:
        return self.situation.snapshot

    def __repr__(self) -> str:
        # asyncio.run looks at the repr of what it returns; ten thousand pods in words take a second.
        return f"Seen({len(self.snapshot.nodes)} nodes)"
