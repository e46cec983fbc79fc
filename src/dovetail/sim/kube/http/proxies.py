"""The proxy below a Service: requests are handed on to whoever stands behind it in this process.

Pods of an embedded cluster run nothing, so a Service has somebody behind it only where a part of the process
has been put there, as `dovetail up` does with its controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from dovetail.sim.kube import status

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.http.replies import ServerReply
    from dovetail.sim.kube.http.routes import ApiRoute, ServerRequest

__all__ = ["ServiceBackend", "answer_proxied"]


class ServiceBackend(Protocol):
    """Answers what is asked of one port of a Service."""

    def __call__(self, path: str, query: Iterable[tuple[str, str]], known: str, /) -> ServerReply:
        """The answer to a GET of a path; `known` is the ETag of what the caller has already."""


def answer_proxied(api: ApiServer, request: ServerRequest, route: ApiRoute) -> ServerReply:
    """What stands behind a Service says, under its name as `name`, `name:port` or `scheme:name:port`."""
    name, port = _split_name(route.name)
    service = api.handler.get(route.info, (route.namespace, name)).obj
    backend = api.backends.get((route.namespace, name, _find_port(service, port)))
    if backend is None:
        raise status.service_unavailable(f'no endpoints available for service "{route.name}"')
    if request.method != "GET":
        raise status.method_not_allowed(request.method)
    return backend("/".join(route.beyond), request.query.items(), request.if_none_match)


def _split_name(text: str) -> tuple[str, str]:
    parts = text.split(":")
    if len(parts) > 3 or (len(parts) == 3 and parts[0] not in ("", "http", "https")):
        raise status.bad_request(f'invalid service request "{text}"')
    return (parts[1], parts[2]) if len(parts) == 3 else (parts[0], parts[1] if len(parts) == 2 else "")


def _find_port(service: dict[str, Any], asked: str) -> str:
    """The name of a port that is given by name or number; without either, the only one."""
    ports = service.get("spec", {}).get("ports") or []
    for each in ports:
        if asked in (each.get("name", ""), str(each.get("port", ""))) or (not asked and len(ports) == 1):
            return str(each.get("name", ""))
    name = service["metadata"]["name"]
    raise status.service_unavailable(f'no service port "{asked}" found for service "{name}"')
