"""The corpus of manifests on both servers: the same verdicts, and the same objects in the end."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dovetail.runtime.clock import SystemClock
from dovetail.sim.world import World
from support.corpus import FOLDERS, REFUSED, Verdicts, complaint, install, live
from support.kubectl import Kubectl

# What people write and servers fill in; the rest of an object is what has become of it since.
WRITTEN = ("spec", "data", "webhooks", "rules", "roleRef", "subjects", "value", "provisioner", "handler")
# What a server chooses for each object anew.
CHOSEN = frozenset(
    (
        *(
            "clusterIP",
            "clusterIPs",
            "nodePort",
            "healthCheckNodePort",
            "volumeName",
            "resourceVersion",
            "uid",
        ),
        *("batch.kubernetes.io/controller-uid", "controller-uid"),
        "claimRef",  # written by whoever binds the volume, when it comes to that
    )
)


@dataclass(frozen=True)
class RealKubectl(Kubectl):
    """kubectl with a kubeconfig in place of an address."""

    kubeconfig: str = ""

    def _address(self) -> str:
        return f"--kubeconfig={self.kubeconfig}"


@asynccontextmanager
async def embedded(home: Path) -> AsyncIterator[Kubectl]:
    world = World(SystemClock(), 1)
    async with world.running(), world.server.serve() as running:
        yield Kubectl(running.url, home)


def settled(lines: list[str]) -> list[str]:
    """Lines without the difference between configured and unchanged, which lies in what is written out."""
    return [line.replace(" configured", " applied").replace(" unchanged", " applied") for line in lines]


def compared(verdicts: Verdicts) -> Any:
    listed = settled(verdicts.listed)
    return verdicts.created, settled(verdicts.applied), verdicts.differing, listed


@pytest.mark.parametrize("folder", FOLDERS)
async def test_both_servers_say_the_same_of_a_folder(folder: str, kubeconfig: Path, tmp_path: Path) -> None:
    namespace = f"corpus-{folder}-{os.getpid()}"
    real = RealKubectl("", tmp_path / "real", kubeconfig=str(kubeconfig))
    async with embedded(tmp_path / "ours") as ours:
        await install(ours, folder)
        mine = await live(ours, folder, namespace)
    await install(real, folder)
    theirs = await live(real, folder, namespace)
    ours_written, real_written = written(mine.objects), written(theirs.objects)
    differing = {name: (each, real_written[name]) for name, each in ours_written.items()}
    differing = {name: (each, other) for name, (each, other) in differing.items() if each != other}
    assert not differing, json.dumps(differing)
    assert compared(mine) == compared(theirs), f"{mine.difference}\n{theirs.difference}"


@pytest.mark.parametrize("manifest", REFUSED, ids=lambda path: path.stem)
async def test_both_servers_refuse_it_for_the_same_field(
    manifest: Path, kubeconfig: Path, tmp_path: Path
) -> None:
    real = RealKubectl("", tmp_path / "real", kubeconfig=str(kubeconfig))
    async with embedded(tmp_path / "ours") as ours:
        mine = await ours.run("apply", "-f", str(manifest))
    theirs = await real.run("apply", "-f", str(manifest))
    assert (mine.code, theirs.code) == (1, 1)
    assert complaint(manifest) in mine.err
    assert complaint(manifest) in theirs.err


def written(answer: str) -> dict[str, Any]:
    """What is asked for in each object, by kind and name."""
    found = {}
    for obj in json.loads(answer)["items"]:
        name = f"{obj['kind']}/{obj['metadata']['name']}"
        found[name] = {key: _plain(obj[key]) for key in WRITTEN if obj.get(key) is not None}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _plain(item) for key, item in value.items() if key not in CHOSEN}
        return {key: item for key, item in kept.items() if item not in (None, {}, [], "", False)}
    return [_plain(item) for item in value] if isinstance(value, list) else value
