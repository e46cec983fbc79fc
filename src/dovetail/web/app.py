"""The dashboard's web server: pages, their JSON twins, and the stream. It only ever reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.resources import files
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from dovetail import __version__
from dovetail.errors import BadInput
from dovetail.picture import Picture, PricedRules, SeenShadow
from dovetail.web.page import WebPage, build_document
from dovetail.web.render import PageFrame, RecordedTimes, render_inside, render_page, render_problem
from dovetail.web.views import find_page, has_money

__all__ = ["Dashboard", "PictureStream", "RecordedPictures", "ShownCluster"]

# Proxies close connections on which nothing is said; a comment is something.
QUIET = 20.0
MOST = 200


class PictureStream:
    """Who listens, and the number of the latest picture. `headers` go with every answer."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = {**headers, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        self._number = 0
        self._news = asyncio.Event()
        self._over = False
        self.listeners = 0

    def announce_picture(self) -> None:
        """There is a new picture."""
        self._number += 1
        self._wake_listeners()

    def close(self) -> None:
        """Nothing more will come; whoever listens may go."""
        self._over = True
        self._wake_listeners()

    def _wake_listeners(self) -> None:
        # Whoever waits holds the old one; the next to wait gets another.
        self._news.set()
        self._news = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One listener, until it goes or the dashboard does."""
        if self.listeners >= MOST:
            raise web.HTTPServiceUnavailable(text=f"{MOST} pages listen already; close some of them\n")
        response = web.StreamResponse(headers=self._headers)
        await response.prepare(request)
        self.listeners += 1
        try:
            with suppress(ConnectionResetError):
                async for number in self._list_numbers():
                    told = f"event: picture\ndata: {number}\n\n" if number is not None else ": still here\n\n"
                    await response.write(told.encode())
        finally:
            self.listeners -= 1
        return response

    async def _list_numbers(self) -> AsyncIterator[int | None]:
        """The number now, then each that follows; None after a while without."""
        seen = -1
        while not self._over:
            if seen != self._number:
                seen = self._number
                yield seen
            elif not await self._wait_for_news():
                yield None

    async def _wait_for_news(self) -> bool:
        try:
            async with asyncio.timeout(QUIET):
                return await self._news.wait()
        except TimeoutError:
            return False


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
STATIC = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
# No script but ours, no style but ours, nothing from elsewhere, and nobody's frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
# The pages that tell what rules cost.
RULED = ("rules", "disruption")
NOTHING_YET = "The cluster is being looked at for the first time; this page comes by itself in a moment."


@dataclass(frozen=True, slots=True)
class StaleNotice:
    """Since when the cluster cannot be read, and why."""

    since: datetime
    why: str

    @property
    def sentence(self) -> str:
        return (
            f"Stale since {self.since:%H:%M:%S} UTC: {self.why}. These pages show the cluster as it was then."
        )


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """What there is to show, and how it is called while there is nothing."""

    cluster: str
    live: bool = True


class RecordedPictures(Protocol):
    """A cluster as it was at many times."""

    def find_times(self, asked: str) -> RecordedTimes:
        """The look at or before a time, the last one for an empty text; BadInput when it is no time."""

    async def find_picture(self, at: datetime) -> Picture:
        """The cluster at the time of a look."""


class Dashboard:
    """The latest picture, or those of a recording, and everybody who looks at it."""

    def __init__(
        self,
        shown: ShownCluster,
        hosts: Iterable[str] = (),
        recorded: RecordedPictures | None = None,
        shadow: Callable[[], SeenShadow] | None = None,
        rules: Callable[[], PricedRules] | None = None,
    ) -> None:
        self._recorded = recorded
        self._rules = rules
        self._shadow = shadow
        self._shown, self._hosts = shown, LOOPBACK | {host.lower() for host in hosts}
        self._picture: Picture | None = None
        self._trouble = ""
        self._stale: StaleNotice | None = None
        self.stream = PictureStream(HEADERS)

    def show(self, picture: Picture) -> None:
        """From now on, this is the cluster."""
        self._picture, self._trouble, self._stale = picture, "", None
        self.stream.announce_picture()

    def mark_stale(self, since: datetime, why: str) -> None:
        """The cluster cannot be read since then; every page says so until there is a new picture."""
        self._stale = StaleNotice(since, why)
        self.stream.announce_picture()

    def report_trouble(self, sentence: str) -> None:
        """The cluster cannot be looked at; the last picture stays, with a word about it."""
        self._trouble = sentence
        self.stream.announce_picture()

    def build_app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard_request])
        app.add_routes(
            [
                web.get("/healthz", _answer_alive),
                web.get("/readyz", self._answer_ready),
                web.get("/stream", self.stream.serve),
                web.get("/static/{name}", _answer_static),
                web.get("/{path:.*}", self._answer_page),
            ]
        )
        app.on_shutdown.append(self._close_stream)
        return app

    async def _close_stream(self, _: web.Application) -> None:
        self.stream.close()

    @web.middleware
    async def _guard_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Only under a name of ours: a page elsewhere whose name leads here must not read this one."""
        probed = request.path in ("/healthz", "/readyz")
        if not probed and _strip_port(request.host) not in self._hosts:
            told = f"{request.host} is not a name of this dashboard; add it with --host\n"
            return web.Response(status=421, text=told, headers=HEADERS)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = error
        if not response.prepared:
            response.headers.update(HEADERS)
        if isinstance(response, web.HTTPException):
            raise response
        return response

    async def _answer_ready(self, _: web.Request) -> web.Response:
        if self._picture is None and self._recorded is None:
            return web.Response(text="no picture yet", status=503)
        if self._stale is not None:
            return web.Response(text=self._stale.sentence, status=503)
        return web.Response(text="ok")

    async def _answer_page(self, request: web.Request) -> web.Response:
        path = request.match_info["path"].strip("/")
        twin = path.endswith(".json")
        path = path.removesuffix(".json") or "overview"
        asked = {name: ",".join(request.query.getall(name)) for name in request.query}
        at, picture, times = asked.pop("at", ""), self._picture, None
        if self._recorded is not None:
            try:
                times = self._recorded.find_times(at)
                picture = await self._recorded.find_picture(times.at)
            except BadInput as error:
                return _encode_json({"error": str(error)}, 400) if twin else _refuse(str(error))
        if picture is not None and self._shadow is not None and path == "shadow":
            picture = replace(picture, shadow=self._shadow())
        if picture is not None and self._rules is not None and path in RULED:
            picture = replace(picture, rules=self._rules())
        page = self._find_page(picture, path, asked)
        if twin:
            return self._answer_json(page, path)
        frame = self._build_frame(picture, path, request.query_string, times)
        if page is None:
            return web.Response(
                text=render_problem("Not here", _describe_absent(path), frame),
                status=404,
                content_type="text/html",
            )
        if request.headers.get("X-Dovetail-Part") == "main":
            told = web.Response(text=render_inside(page, frame), content_type="text/html")
            told.headers["X-Dovetail-As-Of"] = frame.as_of
            told.headers["X-Dovetail-State"] = frame.state
            return told
        return web.Response(text=render_page(page, frame), content_type="text/html")

    def _answer_json(self, page: WebPage | None, path: str) -> web.Response:
        found: dict[str, object] = {"error": _describe_absent(path)} if page is None else build_document(page)
        if self._stale is not None:
            found["stale"] = {"since": self._stale.since.isoformat(), "why": self._stale.why}
        return _encode_json(found, 404 if page is None else 200)

    def _find_page(self, picture: Picture | None, path: str, asked: Mapping[str, str]) -> WebPage | None:
        if picture is None:
            return WebPage("Dovetail", self._trouble or NOTHING_YET)
        page = find_page(picture, path, asked)
        if page is None or not self._trouble:
            return page
        return replace(page, sentence=self._trouble)

    def _build_frame(
        self, picture: Picture | None, path: str, query: str, times: RecordedTimes | None
    ) -> PageFrame:
        as_of = f"as of {picture.now:%H:%M:%S} UTC" if picture else ""
        if picture is not None and not picture.live:
            as_of = f"of {picture.now:%Y-%m-%d %H:%M} UTC"
        stale = self._stale.sentence if self._stale else ""
        changed = picture is not None and picture.change is not None
        shown = self._shown
        return PageFrame(
            path,
            shown.cluster,
            as_of,
            shown.live,
            __version__,
            stale,
            query,
            times,
            changed,
            self._shadow is not None,
            picture is not None and has_money(picture),
        )


def _strip_port(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _refuse(sentence: str) -> web.Response:
    return web.Response(text=f"{sentence}\n", status=400)


def _describe_absent(path: str) -> str:
    return f"There is no page {path}; the node or pod may be deleted, or the pod is no longer pending."


def _encode_json(value: Mapping[str, object], status: int = 200) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json")


async def _answer_alive(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _answer_static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in STATIC:
        raise web.HTTPNotFound
    body = (files("dovetail.web") / "static" / name).read_bytes()
    return web.Response(body=body, content_type=STATIC[name])
