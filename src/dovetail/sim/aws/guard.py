"""Who may speak to the simulated AWS: programs of this machine, and no web page, whatever its name leads to.

A browser sends a page's POST to any address without asking. It says from where, which no client of AWS does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_address

from aiohttp import web
from aiohttp.typedefs import Middleware

__all__ = ["guard"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ALIKE = frozenset(("same-origin", "none"))


def guard(host: str) -> Middleware:
    """Let only those in who ask under a name of ours and come from no other page."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _is_ours(request, host):
            told = f"{request.host} is not a name of the simulated AWS; ask for 127.0.0.1 or localhost"
            return web.json_response({"__type": "MisdirectedRequest", "message": told}, status=421)
        if _from_elsewhere(request):
            told = "the simulated AWS takes no requests from web pages; use the AWS CLI, an SDK or curl"
            return web.json_response({"__type": "AccessDenied", "message": told}, status=403)
        return await handler(request)

    return guarded


def _is_ours(request: web.Request, host: str) -> bool:
    """Loopback by number or by name, or the very address we listen at. Buckets have names below localhost."""
    try:
        name = (request.url.host or "").rstrip(".").lower()
    except ValueError:
        return False
    if name in ("localhost", host) or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _from_elsewhere(request: web.Request) -> bool:
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        return True
    return request.headers.get("Sec-Fetch-Site", "none") not in ALIKE
