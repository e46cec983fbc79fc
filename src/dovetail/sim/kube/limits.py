"""LimitRanges: defaults and bounds for the containers of a namespace, applied when a pod is created."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dovetail.api.quantity import Quantity
from dovetail.sim.kube import status

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core

_NOTE = "kubernetes.io/limit-ranger"


def apply_limits(core: Core, pod: dict[str, Any]) -> None:
    """Fill in what the namespace's ranges default, then refuse what they do not allow."""
    ranges = core.store.bucket("limitranges").in_namespace(pod["metadata"]["namespace"])
    limits = [limit for each in ranges for limit in each.obj["spec"].get("limits") or ()]
    containers = [each for part in ("initContainers", "containers") for each in pod["spec"].get(part) or ()]
    filled: list[str] = []
    for limit in limits:
        if limit.get("type") == "Container":
            for container in containers:
                filled += _fill(container, limit)
    if filled:
        annotations = pod["metadata"].get("annotations") or {}
        note = f"LimitRanger plugin set: {'; '.join(filled)}"
        pod["metadata"]["annotations"] = {**annotations, _NOTE: note}
    problems = [text for limit in limits for text in _problems(limit, containers)]
    if problems:
        info = core.type_of("pods")
        listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise status.forbidden(info, pod["metadata"].get("name", ""), listed)


def _fill(container: dict[str, Any], limit: dict[str, Any]) -> Iterator[str]:
    """Fill in defaults, and say what was filled in."""
    resources = container["resources"]
    for part, default in (("requests", "defaultRequest"), ("limits", "default")):
        given = resources.get(part) or {}
        # A container that limits a resource has already been given a request for it.
        missing = {name: amount for name, amount in (limit.get(default) or {}).items() if name not in given}
        if missing:
            resources[part] = {**given, **missing}
            yield f"{', '.join(sorted(missing))} {part[:-1]} for container {container.get('name', '')}"


def _problems(limit: dict[str, Any], containers: list[dict[str, Any]]) -> Iterator[str]:
    if limit.get("type") != "Container":
        return
    for container in containers:
        requests, limits = (container["resources"].get(part) or {} for part in ("requests", "limits"))
        for name, least in (limit.get("min") or {}).items():
            if name not in requests:
                yield f"minimum {name} usage per Container is {least}. No request is specified"
            elif Quantity.parse(requests[name]) < Quantity.parse(least):
                yield f"minimum {name} usage per Container is {least}, but request is {requests[name]}"
        for name, most in (limit.get("max") or {}).items():
            if name not in limits:
                yield f"maximum {name} usage per Container is {most}. No limit is specified"
            elif Quantity.parse(limits[name]) > Quantity.parse(most):
                yield f"maximum {name} usage per Container is {most}, but limit is {limits[name]}"
