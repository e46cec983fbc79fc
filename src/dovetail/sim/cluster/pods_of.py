"""Making and keeping the pods of a workload: templates into pods, adoption, and who goes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from dovetail.sim.cluster.base import Json, Key
from dovetail.sim.cluster.objects import (
    controller_of,
    deleting,
    key_of,
    labels_of,
    owner_reference,
    parse_time,
)
from dovetail.sim.cluster.owned import Family
from dovetail.sim.kube.conditions import condition_of
from dovetail.sim.kube.selectors import from_selector
from dovetail.sim.kube.status import ApiError
from dovetail.sim.kube.trusted import TrustedApi

__all__ = [
    "DELETION_COST",
    "Matchers",
    "adopt",
    "available",
    "delete_quietly",
    "pod_from",
    "release",
    "removal_order",
    "since_ready",
    "template_hash",
]

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
Matches = Callable[[dict[str, str]], bool]


class Matchers:
    """Selectors ready for use, kept by the object they belong to for as long as they stay the same."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[Json | None, Matches]] = {}

    def of(self, owner: Json) -> Matches:
        """The owner's selector as a question about labels."""
        key, selector = key_of(owner), owner["spec"].get("selector")
        known = self._known.get(key)
        if known is None or (known[0] is not selector and known[0] != selector):
            known = self._known[key] = (selector, from_selector(selector))
        return known[1]

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)


def pod_from(template: Json, owner: Json, name: str = "") -> Json:
    """A pod of this template, belonging to this owner. Its spec is the template's own."""
    meta = template.get("metadata") or {}
    metadata: Json = {
        "namespace": owner["metadata"]["namespace"],
        "labels": dict(meta.get("labels") or {}),
        "annotations": dict(meta.get("annotations") or {}),
        "finalizers": list(meta.get("finalizers") or ()),
        "ownerReferences": [owner_reference(owner)],
    }
    metadata |= {"name": name} if name else {"generateName": owner["metadata"]["name"] + "-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def release(api: TrustedApi, owner: Json, family: Family, matches: Matches) -> None:
    """Let go of pods whose labels left the owner's selector."""
    news, family.news = family.news, {}
    for facts in news.values():
        if not deleting(facts.pod) and not matches(labels_of(facts.pod)):
            meta, uid = facts.pod["metadata"], owner["metadata"]["uid"]
            owners = [each for each in meta["ownerReferences"] if each["uid"] != uid]
            _own(api, meta, owners)


def adopt(api: TrustedApi, pod: Json, owner: Json) -> None:
    """Take in a pod that nobody manages."""
    if controller_of(pod) is None:
        meta = pod["metadata"]
        _own(api, meta, [*(meta.get("ownerReferences") or ()), owner_reference(owner)])


def _own(api: TrustedApi, meta: Json, owners: list[Json]) -> None:
    patch = {"metadata": {"ownerReferences": owners or None, "uid": meta["uid"]}}
    api.patch("pods", meta["name"], patch, meta["namespace"])


def removal_order(pods: list[Json], related: Iterable[Json]) -> list[Json]:
    """Who goes first when there are too many: unbound, pending, not ready, cheap, doubled up, newest.

    Doubled up counts all related pods on the node: those of the same Deployment's other sets too.
    """
    beside: dict[str, int] = {}
    for pod in related:
        node = pod["spec"].get("nodeName", "")
        beside[node] = beside.get(node, 0) + 1
    newest_first = sorted(pods, key=_youth, reverse=True)

    def rank(pod: Json) -> tuple[int, int, int, int, int]:
        node = pod["spec"].get("nodeName", "")
        phase = {"Pending": 0, "Unknown": 1}.get((pod.get("status") or {}).get("phase", "Pending"), 2)
        up = 1 if since_ready(pod) is not None else 0
        return (1 if node else 0, phase, up, _cost(pod), -beside.get(node, 0))

    return sorted(newest_first, key=rank)


def _youth(pod: Json) -> tuple[str, int, str, str]:
    """Ready last goes first, then who restarted more, then who was made last; names settle the rest."""
    meta = pod["metadata"]
    return since_ready(pod) or "", _restarts(pod), meta["creationTimestamp"], meta["name"]


def _restarts(pod: Json) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((each.get("restartCount", 0) for each in statuses), default=0)


def _cost(pod: Json) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def since_ready(pod: Json) -> str | None:
    """When the pod last became ready; None if it is not."""
    condition = condition_of(pod, "Ready")
    if condition is None or condition["status"] != "True":
        return None
    return str(condition.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])


def available(pods: Iterable[Json], least: int, now: datetime) -> tuple[int, float]:
    """How many pods have been ready for so many seconds, and in how long the next one will (0: none)."""
    count, soonest = 0, 0.0
    for pod in pods:
        since = since_ready(pod)
        if since is None:
            continue
        left = least - (now - parse_time(since)).total_seconds() if least else 0.0
        if left <= 0:
            count += 1
        else:
            soonest = min(soonest or left, left)
    return count, soonest


def template_hash(text: bytes) -> str:
    """A short, stable name for a template, of letters that spell no words."""
    number = 2166136261
    for byte in text:
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(number))


def delete_quietly(api: TrustedApi, pod: Json) -> None:
    """Ask for a pod's deletion; one that is gone already is fine."""
    try:
        api.delete("pods", pod["metadata"]["name"], pod["metadata"]["namespace"], uid=pod["metadata"]["uid"])
    except ApiError as error:
        if error.code not in (404, 409):
            raise
