"""Manifests as people write them, applied with a real kubectl to the embedded server."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.runtime.clock import SystemClock
from dovetail.sim.kube.apiserver import ApiServer
from support.corpus import FOLDERS, REFUSED, complaint, install, live
from support.kubectl import Kubectl

# What kubectl calls configured although nothing changes, on a real server too: the server fills in claim
# templates, stringData is never read back, and some kinds are written anew each time.
RESTLESS = (
    "clusterrole.rbac.authorization.k8s.io/corpus-aggregated",
    "gateway.gw.corpus.example.com/edge",
    "poddisruptionbudget.policy/",
    "route.gw.corpus.example.com/shop",
    "secret/",
    "statefulset.apps/",
    "validatingadmissionpolicy.admissionregistration.k8s.io/",
    "validatingwebhookconfiguration.admissionregistration.k8s.io/",
)


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    server = ApiServer(SystemClock(), random.Random(1))
    async with server.serve() as running:
        yield Kubectl(running.url, tmp_path)


@pytest.mark.parametrize("folder", FOLDERS)
async def test_a_folder_of_the_corpus_lives_a_whole_life(folder: str, kubectl: Kubectl) -> None:
    await install(kubectl, folder)
    said = await live(kubectl, folder, f"corpus-{folder}")
    assert said.created
    assert [line for line in said.created if not line.endswith(" created")] == []
    restless = [line for line in said.applied if not line.endswith(" unchanged")]
    assert [line for line in restless if not line.startswith(RESTLESS)] == []
    assert len(said.listed) == len(said.created)
    assert [line for line in said.listed if not line.endswith((" unchanged", " configured"))] == []
    assert said.differing == 0, said.difference
    assert said.deleted
    assert folder == "ingress-controller" or len(said.deleted) == len(said.created)


async def test_what_must_be_refused_is_refused_for_its_field(kubectl: Kubectl) -> None:
    wrong = []
    for manifest in REFUSED:
        outcome = await kubectl.run("apply", "-f", str(manifest))
        if outcome.code == 0 or complaint(manifest) not in outcome.err:
            wrong.append(f"{manifest.name}: {outcome.out}{outcome.err}")
    assert not wrong, "\n".join(wrong)
