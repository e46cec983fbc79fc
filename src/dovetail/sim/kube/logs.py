"""Pod logs: nothing runs here, so a container's log is the story of its states."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status

if TYPE_CHECKING:
    from dovetail.sim.kube.parameters import Parameters

_LISTS = ("initContainers", "containers", "ephemeralContainers")


def log_text(pod: dict[str, Any], query: Parameters, now: datetime) -> str:
    """The log of a pod's container, cut as the query asks."""
    container = _container(pod, query.text("container"))
    lines = [] if query.flag("previous") else list(_story(pod, container["name"], container.get("image", "")))
    since = _since(query, now)
    if since is not None:
        lines = [(moment, line) for moment, line in lines if datetime.fromisoformat(moment) >= since]
    tail = query.number("tailLines")
    if tail is not None:
        if tail < 0:
            raise status.bad_request("tailLines must be greater than or equal to 0")
        lines = lines[len(lines) - tail :] if tail < len(lines) else lines
    stamped = bool(query.flag("timestamps"))
    whole = "".join(f"{moment} {line}\n" if stamped else f"{line}\n" for moment, line in lines)
    limit = query.number("limitBytes")
    return whole if limit is None else whole.encode()[: max(limit, 0)].decode(errors="ignore")


def _container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    pod_name = pod["metadata"]["name"]
    everyone = [each for part in _LISTS for each in pod["spec"].get(part) or ()]
    if name:
        found: dict[str, Any] | None = next((each for each in everyone if each["name"] == name), None)
        if found is None:
            raise status.bad_request(f"container {name} is not valid for pod {pod_name}")
        return found
    mains: list[dict[str, Any]] = pod["spec"].get("containers") or []
    if len(mains) != 1:
        names = " ".join(each["name"] for each in mains)
        text = f"a container name must be specified for pod {pod_name}, choose one of: [{names}]"
        raise status.bad_request(text)
    return mains[0]


def _since(query: Parameters, now: datetime) -> datetime | None:
    seconds, moment = query.number("sinceSeconds"), query.text("sinceTime")
    if seconds is not None:
        return now - timedelta(seconds=min(abs(seconds), 1 << 31))
    try:
        return datetime.fromisoformat(moment) if moment else None
    except ValueError as error:
        raise status.bad_request(f'sinceTime "{moment}" is not a time') from error


def _story(pod: dict[str, Any], name: str, image: str) -> Iterator[tuple[str, str]]:
    states = pod.get("status", {})
    found = [*(states.get("initContainerStatuses") or ()), *(states.get("containerStatuses") or ())]
    for state in (each.get("state", {}) for each in found if each.get("name") == name):
        begun = state.get("running") or state.get("terminated") or {}
        if begun.get("startedAt"):
            yield begun["startedAt"], f"{name}: started {image} on {pod['spec'].get('nodeName', 'no node')}"
        if ended := state.get("terminated", {}).get("finishedAt"):
            yield ended, f"{name}: ended with code {state['terminated'].get('exitCode', 0)}"
