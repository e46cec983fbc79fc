"""Two small web servers: metrics (and, if asked, profiles) on one port, probes on the other."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import io
import pstats
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter

from aiohttp import web

from dovetail.api.meta import Kind
from dovetail.errors import DovetailError
from dovetail.runtime import metrics
from dovetail.runtime.history_server import HistoryServer, build_history_handler
from dovetail.runtime.http_listener import HttpListener, start_listener
from dovetail.runtime.kube import KubeClient

__all__ = [
    "Check",
    "build_metrics_app",
    "build_probes_app",
    "cache_page",
    "require_served",
    "require_synced",
    "serve_app",
]

# However long a page takes, it is not shown for longer than scrapes are apart by default.
LONGEST_KEPT = 15.0

Check = Callable[[], Awaitable[str | None]]
"""Says what is not ready, or nothing."""


def build_probes_app(ready: Sequence[Check]) -> web.Application:
    """`/healthz` answers while the process does; `/readyz` once nothing stands in the way."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    asked = shared_check(ready)

    async def readyz(_: web.Request) -> web.Response:
        missing = await asked()
        return web.Response(text="; ".join(missing) or "ok", status=500 if missing else 200)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app


def shared_check(ready: Sequence[Check]) -> Callable[[], Awaitable[list[str]]]:
    """What is not ready, asked once for all who want to know meanwhile: a probe may cost a request."""
    under_way: asyncio.Task[list[str]] | None = None

    async def ask() -> list[str]:
        return [why for why in [await check() for check in ready] if why]

    async def answer() -> list[str]:
        nonlocal under_way
        if under_way is None or under_way.done():
            under_way = asyncio.create_task(ask())
        return await asyncio.shield(under_way)

    return answer


def require_synced(caches: Mapping[str, Callable[[], bool]]) -> Check:
    """Ready once every cache, by name, has taken in a whole list."""

    async def check() -> str | None:
        behind = [name for name, is_synced in caches.items() if not is_synced()]
        return f"waiting for a first list of {', '.join(behind)}" if behind else None

    return check


def require_served(kube: KubeClient, kinds: Sequence[Kind]) -> Check:
    """Ready while the API server answers and knows these kinds."""

    async def check() -> str | None:
        try:
            missing = [kind.resource for kind in kinds if not await kube.serves_kind(kind)]
        except DovetailError as error:
            return str(error)
        return f"the API server does not serve {', '.join(missing)}; install the CRDs" if missing else None

    return check


def cache_page(made: Callable[[], bytes], now: Callable[[], float] = perf_counter) -> Callable[[], bytes]:
    """The same page again for ten times as long as it took to make.

    A page of many series holds the loop while it is made. Scrapers that ask more often than it can be made
    would leave no time for anything else; like this they get a tenth of it at most.
    """
    kept, until = b"", float("-inf")

    def page() -> bytes:
        nonlocal kept, until
        began = now()
        if began >= until:
            kept = made()
            until = now() + min(10 * (now() - began), LONGEST_KEPT)
        return kept

    return page


def build_metrics_app(
    *,
    profiling: bool = False,
    exposition: Callable[[], bytes] = metrics.render_exposition,
    history: HistoryServer | None = None,
) -> web.Application:
    """`/metrics`, `/history` of a controller, and with profiling what a developer asks of a process."""

    page = cache_page(exposition)

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=page(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/metrics", show)])
    if history is not None:
        app.add_routes([web.get("/history", build_history_handler(history))])
    if profiling:
        app.add_routes(web.get(f"/debug/pprof/{name}", show) for name, show in PROFILES.items())
    return app


async def serve_app(app: web.Application, port: int, host: str | None = None) -> tuple[HttpListener, int]:
    """Listen within limits; returns the listener to clean up and the port that was given."""
    listener = await start_listener(app, port, host)
    return listener, int(listener.addresses[0][1])


async def _show_index(_: web.Request) -> web.Response:
    return web.Response(text="".join(f"{name}\n" for name in PROFILES if name))


async def _show_cmdline(_: web.Request) -> web.Response:
    return web.Response(text="\0".join(sys.argv))


async def _show_profile(request: web.Request) -> web.Response:
    text = request.query.get("seconds", "30")
    if not text.isdigit() or not 1 <= int(text) <= 300:
        return web.Response(status=400, text="seconds must be a number from 1 to 300")
    profile = cProfile.Profile()
    profile.enable()
    try:
        await asyncio.sleep(int(text))
    finally:
        profile.disable()
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("cumulative").print_stats(80)
    return web.Response(text=out.getvalue())


async def _show_tasks(_: web.Request) -> web.Response:
    out = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=out)
    return web.Response(text=out.getvalue() + _format_stacks())


async def _show_threads(_: web.Request) -> web.Response:
    return web.Response(text=_format_stacks())


def _format_stacks() -> str:
    out = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        out.write(f"\nthread {names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame)))
    return out.getvalue()


async def _show_heap(_: web.Request) -> web.Response:
    kinds = Counter(type(one).__qualname__ for one in gc.get_objects())
    lines = [f"{count:10d}  {name}" for name, count in kinds.most_common(100)]
    return web.Response(text="objects the collector knows, by type\n" + "\n".join(lines) + "\n")


# Karpenter's names for what has a counterpart here; `symbol`, `trace` and `block` have none.
PROFILES: Mapping[str, Callable[[web.Request], Awaitable[web.Response]]] = {
    "": _show_index,
    "cmdline": _show_cmdline,
    "profile": _show_profile,
    "goroutine": _show_tasks,
    "threadcreate": _show_threads,
    "heap": _show_heap,
    "allocs": _show_heap,
}
