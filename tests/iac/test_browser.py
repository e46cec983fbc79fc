"""The dashboard in a real browser: live without loading a page again, searchable, and nothing refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from aiohttp.test_utils import TestServer

from dovetail.web import Dashboard, Moment, ShownCluster
from dovetail.web.views import MENU
from support.browser import browser
from support.dashboard_snapshots import disrupted, pictured
from support.dashboards import POOL, dashboard, until
from support.seen_clusters import encode_world
from support.up_process import up

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def test_a_live_cluster_is_followed_in_a_browser_without_loading_a_page_again(tmp_path: Path) -> None:
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(POOL)
    async with (
        up(tmp_path, "--cloud", "kwok", "--no-controller") as cluster,
        dashboard(tmp_path, KUBECONFIG=str(cluster.kubeconfig)) as address,
        browser(tmp_path / "browser") as tab,
    ):
        await cluster.kubectl("apply", "-f", str(manifest))
        (row,) = await until(address, "pods", "pods", 1)
        assert row["explanation"].startswith("default/stuck is unschedulable: ")

        await tab.open(f"{address}pods")
        await tab.run("window.kept = true")
        assert await tab.until("document.getElementById('state').textContent") == "live"
        assert "default/stuck" in await tab.run("document.querySelector('tbody').textContent")
        await cluster.kubectl("create", "deployment", "web", "--image=web", "--replicas=20")
        await tab.until("document.querySelectorAll('tbody tr').length === 21")
        assert await tab.run("window.kept"), "the page was loaded again"

        # Rows can be searched, and stay so when the page changes under the words.
        await tab.run(
            "(() => { const f = document.querySelector('.filter'); f.value = 'stuck'; f.focus();"
            " f.dispatchEvent(new Event('input')) })()"
        )
        seen = "[...document.querySelectorAll('tbody tr')].filter(r => !r.hidden).length"
        assert await tab.run(seen) == 1
        await cluster.kubectl("scale", "deployment", "web", "--replicas=15")
        await tab.until("document.querySelectorAll('tbody tr').length === 16")
        assert await tab.run(seen) == 1
        assert await tab.run("document.activeElement.className") == "filter"
        assert tab.complaints == []


async def test_every_page_is_shown_by_day_and_by_night_without_a_complaint(tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    file.write_bytes(encode_world(disrupted()))
    async with dashboard(tmp_path, "--snapshot", str(file)) as address, browser(tmp_path / "browser") as tab:
        for scheme in ("light", "dark"):
            await tab.media(scheme)
            for path in (*MENU, "nodes/roomy"):
                await tab.open(f"{address}{path}")
                # Its own stylesheet is in force, and no page is wider than the window.
                assert await tab.run("getComputedStyle(document.querySelector('.top')).position") == "sticky"
                assert await tab.run("document.documentElement.scrollWidth <= innerWidth"), path
        assert tab.complaints == []


async def test_the_events_fit_the_page_at_every_width(tmp_path: Path) -> None:
    about = "NodeClaim a-pool-with-quite-a-long-name-7xk2p"
    told = Moment(
        NOON, about, "FailedScheduling", "no instance type has all of it: " + "cpu, " * 40, True, 12
    )
    picture = replace(pictured(disrupted(), live=True), moments=(told,) * 20, decisions=(told,) * 20)
    board = Dashboard(ShownCluster("a-cluster"))
    board.show(picture)
    async with (
        TestServer(board.build_app(), host="127.0.0.1") as server,
        browser(tmp_path / "browser") as tab,
    ):
        for width in (1440, 1000, 390):
            await tab.open(str(server.make_url("/events")))
            await tab.picture(tmp_path / "events.png", width, 900)
            clipped = "[...document.querySelectorAll('.scroll')].map(e => e.scrollWidth - e.clientWidth)"
            assert await tab.run(clipped) == [0, 0], width
