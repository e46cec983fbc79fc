"""The dashboard of a recording: every page as of any look, and a slider to choose it by."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from msgspec.structs import replace

from dovetail import __version__
from dovetail.app.dashboard_recording import RecordedCluster
from dovetail.runtime.recording_folder import read_recording
from dovetail.scheduling.model import state_node as views
from dovetail.web import Dashboard, ShownCluster
from dovetail.web.views import MENU
from support.commands import dovetail
from support.recordings import random_looks, read_back, write_segments

FOLDER = Path(__file__).parents[1] / "conformance" / "recordings" / __version__
EVIL = "\"><script>alert('at')</script>"


@asynccontextmanager
async def serve(cluster: RecordedCluster) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    board = Dashboard(ShownCluster("tape", live=False), ("127.0.0.1",), cluster)
    async with TestClient(TestServer(board.build_app())) as client:
        yield client


@pytest.mark.spec("TA-9")
async def test_every_page_is_of_the_time_that_is_asked_for() -> None:
    reader = read_recording(str(FOLDER))
    looks = list(reader.looks())
    async with serve(RecordedCluster(reader, "tape")) as client:
        for look in (looks[0], looks[40], looks[90], looks[-1]):
            at = look.at.isoformat().replace("+00:00", "Z")
            answer = await client.get(f"/nodes.json?at={at}")
            told = json.loads(await answer.text())
            last = max((each for each in looks if each.at == look.at), key=lambda each: each.number)
            names = {views.read_name(state) for state in last.situation.snapshot.nodes}
            assert {row["name"] for row in told["nodes"]} == names
            history = json.loads(await (await client.get(f"/history.json?at={at}")).text())
            times = [row["time"] for row in history["records"]]
            assert all(each <= look.at.isoformat() for each in times)
        at = looks[90].at.isoformat().replace("+00:00", "Z")
        for path in MENU:
            answer = await client.get(f"/{path}?at={at}")
            assert answer.status == 200
            page = unescape(await answer.text())
            assert f"{looks[90].at:%Y-%m-%d %H:%M:%S} UTC</output>" in page
            assert "a recording" in page
            # Whoever goes on to another page stays at the time.
            menu = page.partition('aria-label="Pages"')[2].partition("</nav>")[0]
            links = re.findall(r'href="([^"#]+)"', menu)
            assert len(links) == len(MENU)
            assert all("?at=2026-" in link for link in links)
        node = next(iter(looks[90].situation.snapshot.nodes))
        answer = await client.get(f"/nodes/{views.read_name(node)}?at={at}")
        assert answer.status == 200
        assert (await client.get("/overview")).status == 200
        assert (await client.get("/readyz")).status == 200


async def test_what_is_no_time_is_refused_in_a_sentence_and_nothing_is_written_as_it_came() -> None:
    looks = random_looks(3, 4)
    hostile = [(at, replace(seen, queued=frozenset((EVIL, "\x1b[31m")))) for at, seen in looks]
    async with serve(RecordedCluster(read_back(write_segments(hostile, 3)), EVIL)) as client:
        for twin in ("", ".json"):
            answer = await client.get(f"/nodes{twin}", params={"at": EVIL})
            assert answer.status == 400
            text = await answer.text()
            assert "write a duration such as 24h" in text
            assert answer.content_type != "text/html"
        for path in MENU:
            answer = await client.get(f"/{path}", params={"at": "2000-01-01", "x": EVIL})
            assert answer.status == 200
            assert EVIL not in await answer.text()


def test_a_recording_and_a_cluster_exclude_each_other() -> None:
    for other in (("--snapshot", "x.json"), ("--kubeconfig", "x")):
        told = dovetail("dashboard", "--recording", str(FOLDER), *other)
        assert told.code == 1
        assert "exclude each other" in told.err
    none = dovetail("dashboard", "--recording", str(FOLDER / "none"))
    assert (none.code, "Traceback" in none.err) == (1, False)
