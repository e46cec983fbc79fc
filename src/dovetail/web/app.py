"""The dashboard's web server: pages, their JSON twins, and the stream. It only ever reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from dovetail import __version__
from dovetail.web.page import Page, document
from dovetail.web.picture import Picture
from dovetail.web.render import Frame, html, page_inside, problem
from dovetail.web.stream import Stream
from dovetail.web.views import page_at

__all__ = ["Dashboard", "Shown"]

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
NOTHING_YET = "The cluster is being looked at for the first time; this page comes by itself in a moment."


@dataclass(frozen=True, slots=True)
class Stale:
    """Since when the cluster cannot be read, and why."""

    since: datetime
    why: str

    @property
    def sentence(self) -> str:
        return (
            f"Stale since {self.since:%H:%M:%S} UTC: {self.why}. These pages show the cluster as it was then."
        )


@dataclass(frozen=True, slots=True)
class Shown:
    """What there is to show, and how it is called while there is nothing."""

    cluster: str
    live: bool = True


class Dashboard:
    """The latest picture, and everybody who looks at it."""

    def __init__(self, shown: Shown, hosts: Iterable[str] = ()) -> None:
        self._shown, self._hosts = shown, LOOPBACK | {host.lower() for host in hosts}
        self._picture: Picture | None = None
        self._trouble = ""
        self._stale: Stale | None = None
        self.stream = Stream(HEADERS)

    def show(self, picture: Picture) -> None:
        """From now on, this is the cluster."""
        self._picture, self._trouble, self._stale = picture, "", None
        self.stream.tell()

    def mark_stale(self, since: datetime, why: str) -> None:
        """The cluster cannot be read since then; every page says so until there is a new picture."""
        self._stale = Stale(since, why)
        self.stream.tell()

    def trouble(self, sentence: str) -> None:
        """The cluster cannot be looked at; the last picture stays, with a word about it."""
        self._trouble = sentence
        self.stream.tell()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded])
        app.add_routes(
            [
                web.get("/healthz", _alive),
                web.get("/readyz", self._ready),
                web.get("/stream", self.stream.serve),
                web.get("/static/{name}", _static),
                web.get("/{path:.*}", self._page),
            ]
        )
        app.on_shutdown.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        self.stream.close()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Only under a name of ours: a page elsewhere whose name leads here must not read this one."""
        probed = request.path in ("/healthz", "/readyz")
        if not probed and _name(request.host) not in self._hosts:
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

    async def _ready(self, _: web.Request) -> web.Response:
        if self._picture is None:
            return web.Response(text="no picture yet", status=503)
        if self._stale is not None:
            return web.Response(text=self._stale.sentence, status=503)
        return web.Response(text="ok")

    async def _page(self, request: web.Request) -> web.Response:
        path = request.match_info["path"].strip("/")
        twin = path.endswith(".json")
        path = path.removesuffix(".json") or "overview"
        page = self._found(path)
        if twin:
            return self._twin(page, path)
        frame = self._frame(path)
        if page is None:
            return web.Response(
                text=problem("Not here", _absent(path), frame), status=404, content_type="text/html"
            )
        if request.headers.get("X-Dovetail-Part") == "main":
            told = web.Response(text=page_inside(page, frame), content_type="text/html")
            told.headers["X-Dovetail-As-Of"] = frame.as_of
            told.headers["X-Dovetail-State"] = frame.state
            return told
        return web.Response(text=html(page, frame), content_type="text/html")

    def _twin(self, page: Page | None, path: str) -> web.Response:
        found: dict[str, object] = {"error": _absent(path)} if page is None else document(page)
        if self._stale is not None:
            found["stale"] = {"since": self._stale.since.isoformat(), "why": self._stale.why}
        return _json(found, 404 if page is None else 200)

    def _found(self, path: str) -> Page | None:
        if self._picture is None:
            return Page("Dovetail", self._trouble or NOTHING_YET)
        page = page_at(self._picture, path)
        if page is None or not self._trouble:
            return page
        return Page(page.title, self._trouble, page.facts, page.tables, page.tiles, page.remarks)

    def _frame(self, path: str) -> Frame:
        picture = self._picture
        as_of = f"as of {picture.now:%H:%M:%S} UTC" if picture else ""
        if picture is not None and not picture.live:
            as_of = f"of {picture.now:%Y-%m-%d %H:%M} UTC"
        stale = self._stale.sentence if self._stale else ""
        return Frame(path, self._shown.cluster, as_of, self._shown.live, __version__, stale)


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _absent(path: str) -> str:
    return f"There is no page {path}; the node or pod may be gone, or have found its place."


def _json(value: Mapping[str, object], status: int = 200) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json")


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in STATIC:
        raise web.HTTPNotFound
    body = (files("dovetail.web") / "static" / name).read_bytes()
    return web.Response(body=body, content_type=STATIC[name])
