"""The dashboard over HTTP: twins, names, headers, and the stream that says there is something new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from dovetail.web import Dashboard, Picture, ShownCluster, build_document, find_page
from dovetail.web.app import HEADERS
from dovetail.web.views import MENU
from support.builders import pod
from support.dashboard_snapshots import busy, pictured

Client = TestClient[Any, Any]


@pytest.fixture(scope="module")
def picture() -> Picture:
    return pictured(busy(pod("small", cpu="1"), pod("huge", cpu="9000")), live=True)


@pytest.fixture
def board(picture: Picture) -> Dashboard:
    made = Dashboard(ShownCluster("a-cluster"), ["board.example"])
    made.show(picture)
    return made


@pytest.fixture
async def client(board: Dashboard) -> AsyncIterator[Client]:
    async with TestClient(TestServer(board.build_app(), host="127.0.0.1")) as found:
        yield found


@pytest.mark.parametrize("path", [*MENU, "nodes/roomy", "pods/default/huge"])
async def test_every_page_has_a_twin(client: Client, picture: Picture, path: str) -> None:
    page = await client.get(f"/{path}")
    twin = await client.get(f"/{path}.json")

    assert (page.status, page.content_type) == (200, "text/html")
    assert (twin.status, twin.content_type) == (200, "application/json")
    found = find_page(picture, path)
    assert found is not None
    assert await twin.json() == build_document(found)
    assert f"<h1>{found.title}</h1>" in await page.text()


@pytest.mark.parametrize(
    "path",
    ["/", "/nodes", "/nodes.json", "/nope", "/nope.json", "/static/style.css", "/static/x", "/healthz"],
)
async def test_every_answer_is_guarded(client: Client, path: str) -> None:
    answer = await client.get(path)

    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("BOARD.example", 200),
        ("board.example.:80", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("[", 421),
    ],
)
async def test_only_names_of_ours_are_answered_to(client: Client, host: str, status: int) -> None:
    for path in ("/nodes.json", "/stream") if status == 421 else ("/nodes.json",):
        answer = await client.get(path, headers={"Host": host})
        assert answer.status == status
    # Probes come by an address, and say nothing worth reading.
    assert (await client.get("/healthz", headers={"Host": host})).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_changed(client: Client, method: str) -> None:
    for path in ("/", "/nodes", "/nodes.json", "/stream"):
        assert (await client.request(method, path)).status == 405


async def test_what_is_not_there_is_one_sentence(client: Client) -> None:
    answer = await client.get("/nodes/gone")
    twin = await client.get("/nodes/gone.json")

    assert (answer.status, twin.status) == (404, 404)
    told = (await twin.json())["error"]
    assert (
        told
        == "There is no page nodes/gone; the node or pod may be deleted, or the pod is no longer pending."
    )
    assert told in await answer.text()


@pytest.mark.parametrize("path", ["/static/..%2fapp.py", "/static/../app.py", "/static/page.html"])
async def test_only_the_three_files_are_given_out(client: Client, path: str) -> None:
    assert (await client.get(path)).status == 404


async def test_a_page_inside_comes_without_its_frame(client: Client) -> None:
    answer = await client.get("/nodes", headers={"X-Dovetail-Part": "main"})

    text = await answer.text()
    assert "<html" not in text
    assert "<h1>Nodes</h1>" in text
    assert answer.headers["X-Dovetail-As-Of"].startswith("as of ")


async def test_before_the_first_picture_it_says_so_and_is_not_ready() -> None:
    board = Dashboard(ShownCluster("a-cluster"))
    async with TestClient(TestServer(board.build_app(), host="127.0.0.1")) as client:
        assert (await client.get("/readyz")).status == 503
        assert "for the first time" in await (await client.get("/")).text()
        board.report_trouble("The nodes cannot be read now: no.")
        assert "The nodes cannot be read now: no." in await (await client.get("/plan")).text()


async def test_trouble_is_told_on_the_last_picture(client: Client, board: Dashboard) -> None:
    board.report_trouble("The cluster cannot be looked at now.")

    twin = await (await client.get("/nodes.json")).json()
    assert twin["sentence"] == "The cluster cannot be looked at now."
    assert len(twin["nodes"]) == 6


SINCE = datetime(2026, 3, 1, 12, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("path", [*MENU, "nodes/roomy", "nope"])
async def test_every_page_of_a_cluster_that_died_says_since_when_it_is_stale(
    client: Client, board: Dashboard, path: str
) -> None:
    board.mark_stale(SINCE, "the API server <b> does not answer")

    page, twin = await client.get(f"/{path}"), await client.get(f"/{path}.json")

    told = "Stale since 12:04:05 UTC: the API server &lt;b&gt; does not answer."
    text = await page.text()
    assert f'<p class="stale" role="alert">{told}' in text
    assert '<span id="state" class="state live lost">stale</span>' in text
    assert (await twin.json())["stale"] == {
        "since": "2026-03-01T12:04:05+00:00",
        "why": "the API server <b> does not answer",
    }


async def test_a_stale_dashboard_is_not_ready_until_it_has_a_new_picture(
    client: Client, board: Dashboard, picture: Picture
) -> None:
    assert (await client.get("/readyz")).status == 200

    board.mark_stale(SINCE, "no answer")
    answer = await client.get("/readyz")
    assert (answer.status, (await answer.text()).startswith("Stale since 12:04:05 UTC")) == (503, True)
    part = await client.get("/nodes", headers={"X-Dovetail-Part": "main"})
    assert part.headers["X-Dovetail-State"] == "stale"

    board.show(picture)
    assert (await client.get("/readyz")).status == 200
    assert "Stale since" not in await (await client.get("/")).text()
    assert "stale" not in await (await client.get("/nodes.json")).json()


async def test_listeners_are_told_that_the_picture_is_stale(client: Client, board: Dashboard) -> None:
    listener = await client.get("/stream")
    first = await _event(listener)

    board.mark_stale(SINCE, "no answer")

    assert await _event(listener) != first


async def test_the_stream_is_guarded_like_every_page(client: Client) -> None:
    answer = await client.get("/stream")

    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


async def _event(answer: Any) -> tuple[str, str]:
    async with asyncio.timeout(10):
        lines = [(await answer.content.readline()).decode().strip() for _ in range(3)]
    return lines[0], lines[1]


async def test_listeners_are_told_of_each_picture(client: Client, board: Dashboard, picture: Picture) -> None:
    first, second = await client.get("/stream"), await client.get("/stream")
    assert first.headers["Content-Type"] == "text/event-stream"
    assert await _event(first) == await _event(second) == ("event: picture", "data: 1")
    assert board.stream.listeners == 2

    board.show(picture)

    assert await _event(first) == await _event(second) == ("event: picture", "data: 2")
    first.close()
    board.show(picture)
    assert await _event(second) == ("event: picture", "data: 3")


async def test_the_end_of_the_dashboard_is_the_end_of_the_stream(client: Client, board: Dashboard) -> None:
    answer = await client.get("/stream")
    await _event(answer)

    board.stream.close()

    async with asyncio.timeout(10):
        assert await answer.content.read() == b""
    assert board.stream.listeners == 0
