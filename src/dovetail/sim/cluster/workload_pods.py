"""Making and keeping the pods of a workload: templates into pods, adoption, and who goes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from dovetail.sim.cluster.base import Json, Key, SimController
from dovetail.sim.cluster.objects import (
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    parse_time,
)
from dovetail.sim.cluster.owner_index import OwnedPods
from dovetail.sim.kube.internal_writes import InternalApi
from dovetail.sim.kube.meta import find_condition
from dovetail.sim.kube.selectors import build_label_matcher
from dovetail.sim.kube.status import ApiError

__all__ = [
    "DELETION_COST",
    "HASH",
    "RevisionHistory",
    "SelectorCache",
    "adopt_pod",
    "build_pod",
    "count_available",
    "delete_quietly",
    "find_ready_since",
    "hash_template",
    "order_for_removal",
    "release_pods",
]

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
Matches = Callable[[dict[str, str]], bool]


class SelectorCache:
    """Selectors ready for use, kept by the object they belong to for as long as they stay the same."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[Json | None, Matches]] = {}

    def get_matcher(self, owner: Json) -> Matches:
        """The owner's selector as a question about labels."""
        key, selector = key_of(owner), owner["spec"].get("selector")
        known = self._known.get(key)
        if known is None or (known[0] is not selector and known[0] != selector):
            known = self._known[key] = (selector, build_label_matcher(selector))
        return known[1]

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)


def build_pod(template: Json, owner: Json, name: str = "") -> Json:
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


def release_pods(api: InternalApi, owner: Json, family: OwnedPods, matches: Matches) -> None:
    """Let go of pods whose labels left the owner's selector."""
    news, family.news = family.news, {}
    for facts in news.values():
        if not is_deleting(facts.pod) and not matches(labels_of(facts.pod)):
            meta, uid = facts.pod["metadata"], owner["metadata"]["uid"]
            owners = [each for each in meta["ownerReferences"] if each["uid"] != uid]
            _set_owners(api, meta, owners)


def adopt_pod(api: InternalApi, pod: Json, owner: Json) -> None:
    """Take in a pod that nobody manages."""
    if controller_of(pod) is None:
        meta = pod["metadata"]
        _set_owners(api, meta, [*(meta.get("ownerReferences") or ()), owner_reference(owner)])


def _set_owners(api: InternalApi, meta: Json, owners: list[Json]) -> None:
    patch = {"metadata": {"ownerReferences": owners or None, "uid": meta["uid"]}}
    api.patch("pods", meta["name"], patch, meta["namespace"])


def order_for_removal(pods: list[Json], related: Iterable[Json]) -> list[Json]:
    """Who goes first when there are too many: unbound, pending, not ready, cheap, doubled up, newest.

    Doubled up counts all related pods on the node: those of the same Deployment's other sets too.
    """
    beside: dict[str, int] = {}
    for pod in related:
        node = pod["spec"].get("nodeName", "")
        beside[node] = beside.get(node, 0) + 1
    newest_first = sorted(pods, key=_rank_by_youth, reverse=True)

    def rank(pod: Json) -> tuple[int, int, int, int, int]:
        node = pod["spec"].get("nodeName", "")
        phase = {"Pending": 0, "Unknown": 1}.get((pod.get("status") or {}).get("phase", "Pending"), 2)
        up = 1 if find_ready_since(pod) is not None else 0
        return (1 if node else 0, phase, up, _read_deletion_cost(pod), -beside.get(node, 0))

    return sorted(newest_first, key=rank)


def _rank_by_youth(pod: Json) -> tuple[str, int, str, str]:
    """Ready last goes first, then who restarted more, then who was made last; names settle the rest."""
    meta = pod["metadata"]
    return find_ready_since(pod) or "", _count_restarts(pod), meta["creationTimestamp"], meta["name"]


def _count_restarts(pod: Json) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((each.get("restartCount", 0) for each in statuses), default=0)


def _read_deletion_cost(pod: Json) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def find_ready_since(pod: Json) -> str | None:
    """When the pod last became ready; None if it is not."""
    condition = find_condition(pod, "Ready")
    if condition is None or condition["status"] != "True":
        return None
    return str(condition.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])


def count_available(pods: Iterable[Json], least: int, now: datetime) -> tuple[int, float]:
    """How many pods have been ready for so many seconds, and in how long the next one will (0: none)."""
    count, soonest = 0, 0.0
    for pod in pods:
        since = find_ready_since(pod)
        if since is None:
            continue
        left = least - (now - parse_time(since)).total_seconds() if least else 0.0
        if left <= 0:
            count += 1
        else:
            soonest = min(soonest or left, left)
    return count, soonest


def hash_template(text: bytes) -> str:
    """A short, stable name for a template, of letters that spell no words."""
    number = 2166136261
    for byte in text:
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(number))


def delete_quietly(api: InternalApi, pod: Json) -> None:
    """Ask for a pod's deletion; one that is gone already is fine."""
    try:
        api.delete("pods", pod["metadata"]["name"], pod["metadata"]["namespace"], uid=pod["metadata"]["uid"])
    except ApiError as error:
        if error.code not in (404, 409):
            raise


RESOURCE = "controllerrevisions.apps"
HASH = "controller-revision-hash"


class RevisionHistory:
    """The revisions of one controller's owners."""

    def __init__(self, neighbour: SimController) -> None:
        self._controller = neighbour
        self._marks: dict[Key, tuple[Json, str]] = {}

    def get_template_hash(self, owner: Json) -> str:
        """The hash that marks pods of the present template; its revision is made when first needed."""
        template, key = owner["spec"]["template"], key_of(owner)
        known = self._marks.get(key)
        if known is not None and known[0] is template:
            return known[1]
        data = {"spec": {"template": {**template, "$patch": "replace"}}}
        mark = hash_template(msgspec.json.encode(data, order="deterministic"))
        if not is_deleting(owner):
            self._ensure_revision(owner, mark, data)
        self._marks[key] = (template, mark)
        return mark

    def forget(self, key: Key) -> None:
        self._marks.pop(key, None)

    def list_revisions(self, owner: Json) -> list[Json]:
        """All revisions of an owner, oldest first."""
        meta = owner["metadata"]
        found = [
            revision
            for revision in self._controller.list_objects(RESOURCE, meta["namespace"])
            if (by := controller_of(revision)) is not None and by["uid"] == meta["uid"]
        ]
        return sorted(found, key=lambda r: (r["revision"], r["metadata"]["name"]))

    def find_template(self, owner: Json, name: str) -> Json | None:
        """The template of a revision, by its name."""
        for revision in self.list_revisions(owner):
            if revision["metadata"]["name"] == name:
                template = dict(revision["data"]["spec"]["template"])
                template.pop("$patch", None)
                return template
        return None

    def _ensure_revision(self, owner: Json, mark: str, data: Json) -> None:
        known, meta = self.list_revisions(owner), owner["metadata"]
        newest = known[-1]["revision"] if known else 0
        name = f"{meta['name']}-{mark}"
        mine = next((r for r in known if r["metadata"]["name"] == name), None)
        if mine is not None:
            if mine["revision"] != newest:  # an old template came back
                self._controller.api.patch(RESOURCE, name, {"revision": newest + 1}, meta["namespace"])
            return
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "labels": {
                    **((owner["spec"]["template"].get("metadata") or {}).get("labels") or {}),
                    HASH: mark,
                },
                "ownerReferences": [owner_reference(owner)],
            },
            "data": data,
            "revision": newest + 1,
        }
        self._controller.api.create(RESOURCE, body)

    def trim_history(self, owner: Json) -> None:
        """Forget the oldest beyond the history limit; the present one stays."""
        limit, present = owner["spec"].get("revisionHistoryLimit", 10), self.get_template_hash(owner)
        idle = [r for r in self.list_revisions(owner) if labels_of(r).get(HASH) != present]
        for revision in idle[: max(len(idle) - limit, 0)]:
            meta = revision["metadata"]
            self._controller.api.delete(RESOURCE, meta["name"], meta["namespace"])
