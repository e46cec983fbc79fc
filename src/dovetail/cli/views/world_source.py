"""Which world a command asks about: a live cluster, a snapshot's file, or a moment of a recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from dovetail.app.cluster_source import ClusterSource, SeenCluster
from dovetail.app.snapshot_file import find_cluster
from dovetail.cli.views.options import (
    CLUSTER_OPTIONS,
    SnapshotOption,
    build_cluster_source,
    replace_parameter,
)
from dovetail.cli.views.output import print_remark
from dovetail.errors import BadInput
from dovetail.history.asking import parse_moment

__all__ = [
    "AtOption",
    "ChangeOption",
    "DeleteOption",
    "LiveOption",
    "RecordingOption",
    "WorldSource",
    "add_world_options",
]

LiveOption = Annotated[bool, typer.Option("--live", help="Look at a live cluster, as it is now.")]
RecordingOption = Annotated[
    str,
    typer.Option(
        "--recording",
        metavar="PLACE",
        help="Look at a moment of this recording: a folder or s3://bucket/prefix.",
    ),
]
AtOption = Annotated[
    str,
    typer.Option("--at", metavar="T", help="With --recording: the moment, or 3h ago; else its last one."),
]
ChangeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--change",
        metavar="PATH",
        help="Show what these objects would alter: nodes, dollars, pods that move. They replace their "
        "namesakes or are added. May be given more than once.",
    ),
]
DeleteOption = Annotated[
    list[str] | None,
    typer.Option(
        "--delete",
        metavar="KIND/NAME",
        help="Show what deleting this object would alter; KIND/NAMESPACE/NAME where it is in a namespace.",
    ),
]


@dataclass(frozen=True, slots=True)
class WorldSource:
    """A cluster, as options name it; at most one of the three may be given, and none is the live one."""

    live: bool
    snapshot: str
    recording: str
    at: str
    where: ClusterSource

    @property
    def given(self) -> bool:
        return bool(self.live or self.snapshot or self.recording)

    @property
    def flag(self) -> str:
        return "--live" if self.live else "--snapshot" if self.snapshot else "--recording"

    def exclude_files(self, files: Sequence[str], others: Mapping[str, str]) -> None:
        """A cluster brings its own pods, pools and prices; what else was asked for would be ignored."""
        second = "--filename" if files else self._find_second()
        if second:
            raise BadInput(f"{self.flag} and {second} exclude each other; leave one out")
        other = next((name for name, value in others.items() if value), "")
        if other:
            instead = "; use `dovetail explain`" if other == "explain" else ""
            raise BadInput(f"--{other} is for files, and {self.flag} is none{instead}")

    def _find_second(self) -> str:
        named = {"--live": self.live, "--snapshot": self.snapshot, "--recording": self.recording}
        return next((flag for flag, value in named.items() if value and flag != self.flag), "")

    def read(self) -> SeenCluster:
        """The cluster; BadInput or Misconfigured says why it cannot be seen."""
        self.exclude_files((), {})
        if self.at and not self.recording:
            raise BadInput("--at is a moment of a recording; give one with --recording")
        if not self.recording:
            return find_cluster(self.snapshot, self.where, print_remark)
        from dovetail.app.recordings import read_look

        now = datetime.now(UTC)
        return read_look(self.recording, parse_moment(self.at, now, "--at") if self.at else now)


WORLD_OPTIONS: dict[str, tuple[Any, Any]] = {
    "live": (LiveOption, False),
    "snapshot": (SnapshotOption, ""),
    "recording": (RecordingOption, ""),
    "at": (AtOption, ""),
}


def add_world_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that name a world in place of its parameter `world: WorldSource`."""
    return replace_parameter(command, "world", WORLD_OPTIONS | CLUSTER_OPTIONS, _build_world_source)


def _build_world_source(given: dict[str, Any]) -> object:
    named = {name: given.pop(name) for name in WORLD_OPTIONS}
    return WorldSource(**named, where=build_cluster_source(given))  # type: ignore[arg-type]
