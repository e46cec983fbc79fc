"""`dovetail dashboard` as a process: on a snapshot, and on a live cluster that it follows."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path

import aiohttp
import pytest

from dovetail.web.views import MENU
from support.commands import dovetail, process
from support.dashboard_snapshots import disrupted
from support.dashboards import PATIENCE, POOL, dashboard, probed, twin, until
from support.seen_clusters import encode_world
from support.up_process import up


async def test_a_snapshot_is_shown_without_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    file.write_bytes(encode_world(disrupted()))

    async with dashboard(tmp_path, "--snapshot", str(file)) as address:
        nodes = (await twin(address, "nodes"))["nodes"]
        decisions = (await twin(address, "events"))["decisions"]

    assert {row["name"] for row in nodes} == {"idle", "stale", "roomy", "guarded", "busy", "pinned"}
    assert len(decisions) == 3


async def test_a_change_stands_beside_the_cluster_as_manifests_or_as_printed(
    tmp_path: Path,
) -> None:
    world, change, printed = (tmp_path / name for name in ("world.json", "change.yaml", "printed.json"))
    world.write_bytes(encode_world(disrupted()))
    change.write_text(POOL)
    asked = ("--snapshot", str(world), "--change", str(change))
    plan = dovetail("plan", *asked, "-o", "json")
    assert plan.code in (0, 3), plan.err
    printed.write_text(plan.out)

    async with dashboard(tmp_path, *asked) as address, aiohttp.ClientSession() as session:
        applied = await twin(address, "change")
        async with session.get(f"{address}nodes") as answer:
            assert '<a href="change">Change</a>' in await answer.text()
    async with dashboard(tmp_path, "--snapshot", str(world), "--change", str(printed)) as address:
        shown = await twin(address, "change")
    async with dashboard(tmp_path, "--snapshot", str(world)) as address, aiohttp.ClientSession() as session:
        async with session.get(f"{address}change.json") as answer:
            assert answer.status == 404
        async with session.get(f"{address}nodes") as answer:
            assert "Change</a>" not in await answer.text()

    told = json.loads(plan.out)
    assert applied == shown
    assert applied["facts"]["hourlyAfter"] == told["hourlyAfter"]
    assert [row["pod"] for row in applied["pods"] if row["becomes"] == "unschedulable"] == (
        told["newlyUnschedulable"]
    )
    assert {row["pod"]: row["nearest"] for row in applied["pods"] if row["nearest"]} == told["nearest"]


async def test_a_live_cluster_is_followed(tmp_path: Path) -> None:
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(POOL)
    async with (
        up(tmp_path, "--cloud", "kwok", "--no-controller") as cluster,
        dashboard(tmp_path, KUBECONFIG=str(cluster.kubeconfig)) as address,
        aiohttp.ClientSession() as session,
        session.get(f"{address}stream") as stream,
    ):
        await cluster.kubectl("apply", "-f", str(manifest))
        (row,) = await until(address, "pods", "pods", 1)
        assert row["explanation"].startswith("default/stuck is unschedulable: ")
        (decision,) = (await twin(address, "events"))["decisions"]
        assert (decision["about"], decision["told"]) == ("default/stuck", row["explanation"])

        await cluster.kubectl("delete", "pod", "stuck")
        assert await until(address, "pods", "pods", 0) == []
        numbers: list[int] = []
        async with asyncio.timeout(PATIENCE):
            while len(set(numbers)) < 2:
                line = (await stream.content.readline()).decode()
                numbers += [int(line.removeprefix("data: "))] if line.startswith("data: ") else []
        assert numbers == sorted(numbers)


async def test_a_cluster_that_dies_is_stale_on_every_page_and_the_dashboard_is_not_ready(
    tmp_path: Path,
) -> None:
    async with (
        up(tmp_path, "--cloud", "kwok", "--no-controller") as cluster,
        dashboard(tmp_path, KUBECONFIG=str(cluster.kubeconfig)) as address,
    ):
        await until(address, "nodes", "nodes", 0)
        # A server that still holds its connections and says nothing is as dead as one that is gone.
        cluster.process.send_signal(signal.SIGSTOP)
        assert "does not answer" in await probed(address, 503)
        for path in MENU:
            assert "does not answer" in (await twin(address, path))["stale"]["why"]

        cluster.process.send_signal(signal.SIGCONT)
        await probed(address, 200)
        assert "stale" not in await twin(address, "nodes")


async def test_an_embedded_cluster_brings_a_dashboard_and_takes_it_along(tmp_path: Path) -> None:
    async with up(tmp_path, "--cloud", "kwok", "--dashboard", "127.0.0.1:0") as cluster:
        found = re.search(r"See it on (http://127\.0\.0\.1:\d+/)\n", cluster.said)
        assert found is not None, cluster.said
        await until(found[1], "nodes", "nodes", 0)
        assert (await cluster.stop())[0] == 0

    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{found[1]}healthz")


def test_a_dashboard_that_cannot_be_is_said_before_the_cluster_is(tmp_path: Path) -> None:
    kubeconfig = str(tmp_path / "kubeconfig")
    ended = process("up", "--cloud", "kwok", "--dashboard", "nowhere", "--kubeconfig", kubeconfig)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "dovetail: --dashboard nowhere: say it as ADDRESS:PORT, such as 127.0.0.1:8090\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--bind", "8090"), "say it as ADDRESS:PORT"),
        (("--bind", "localhost:99999"), "say it as ADDRESS:PORT"),
        (("--kubeconfig", "/nonexistent"), "/nonexistent"),
        (("--snapshot", "/nonexistent"), "/nonexistent"),
        (("--snapshot", "x", "--context", "y"), "exclude each other"),
        (("--delete", "gizmo/x"), "a plan depends on no gizmo"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(arguments: tuple[str, ...], told: str) -> None:
    ended = dovetail("dashboard", *arguments)

    assert ended.code in (1, 2)
    assert told in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_part_of_what_a_plan_printed_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "part.json").write_text('{"hourlyBefore": 1.0, "nodes": [{"pool": 3}]}')
    ended = dovetail("dashboard", "--change", str(tmp_path / "part.json"))

    assert ended.code == 1
    assert "part.json: this is not all that `dovetail plan --change … -o json` prints: " in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_a_change_of_what_is_not_there_is_told_before_the_page(tmp_path: Path) -> None:
    world = tmp_path / "world.json"
    world.write_bytes(encode_world(disrupted()))
    ended = dovetail("dashboard", "--snapshot", str(world), "--delete", "nodepool/nowhere")

    assert ended.code == 1
    assert "The change cannot be applied to this cluster" in ended.err
    assert "Traceback" not in ended.err
