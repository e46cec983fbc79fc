"""`dovetail zonal-shift` against a server it reaches over HTTPS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.crds import zonal_manifest
from support.commands import Ended, dovetail
from support.secured import DEFINITIONS, Secured, secured

SHIFTS = "zoneshifts.dovetail.sh"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("zonal")) as served:
        served.call(lambda: served.server.local("someone").create(DEFINITIONS, zonal_manifest()))
        yield served


def ask(server: Secured, *arguments: str) -> Ended:
    return dovetail("zonal-shift", *arguments, env={"KUBECONFIG": str(server.kubeconfig)})


def shifts(server: Secured) -> list[Any]:
    return list(server.call(lambda: server.server.local("someone").list(SHIFTS)))


def test_a_local_shift_is_started_extended_shown_and_cancelled(server: Secured) -> None:
    started = ask(server, "start", "--zone", "use1-az1", "--for", "2h", "--local", "--comment", "why not")
    assert (started.code, "local-use1-az1 created" in started.out) == (0, True)
    (made,) = shifts(server)
    assert made["spec"]["kind"] == "LOCAL"
    assert made["metadata"]["finalizers"] == ["dovetail.sh/zone-restore"]
    first = made["spec"]["expires"]

    shown = ask(server, "status", "-o", "json")
    assert json.loads(shown.out)["shifts"][0]["zone-id"] == "use1-az1"
    assert ask(server, "extend", "--zone", "use1-az1", "--for", "5h").code == 0
    assert shifts(server)[0]["spec"]["expires"] > first
    assert ask(server, "cancel", "--zone", "use1-az1").code == 0
    assert shifts(server)[0]["metadata"].get("deletionTimestamp")
    assert "use1-az1" not in ask(server, "history").out


def test_what_is_missing_is_said_in_a_sentence(server: Secured) -> None:
    nameless = ask(server, "start", "--local")
    assert (nameless.code, "give one with --zone" in nameless.err) == (2, True)
    nothing = ask(server, "cancel", "--zone", "mars1-az1")
    assert (nothing.code, "there is none that a person started" in nothing.err) == (1, True)


def test_a_rehearsal_from_a_snapshot_passes_or_fails_by_its_exit_code(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "disruption.yaml"
    assert example.exists()
    file = tmp_path / "none.json"
    missing = dovetail("zonal-shift", "rehearse", "--zone", "a", "--snapshot", str(file))
    assert (missing.code, "reading the snapshot" in missing.err) == (1, True)
