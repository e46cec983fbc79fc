"""Making and keeping the pods of a workload: templates into pods, adoption, and who goes first."""

from __future__ import annotations

from dovetail.sim.cluster.base import Json
from dovetail.sim.cluster.objects import deleting, labels_of, owner_reference, ready
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.selectors import from_selector
from dovetail.sim.kube.status import ApiError

__all__ = ["DELETION_COST", "claim", "delete_quietly", "pod_from", "removal_order", "template_hash"]

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def pod_from(template: Json, owner: Json, name: str = "") -> Json:
    """A pod of this template, belonging to this owner."""
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


def claim(api: LocalApi, owner: Json, owned: Owned, *, orphans: bool) -> None:
    """Let go of pods whose labels left the owner's selector; take in orphans that match it."""
    uid = owner["metadata"]["uid"]
    news = [facts for facts in owned.facts(uid) if not facts.claimed]
    if not news and not orphans:
        return
    matches = from_selector(owner["spec"].get("selector"))
    for facts in news:
        facts.claimed = True
        if not deleting(facts.pod) and not matches(labels_of(facts.pod)):
            _release(api, facts.pod, uid)
    if orphans and not deleting(owner):
        for facts in owned.facts(""):
            near = facts.pod["metadata"]["namespace"] == owner["metadata"]["namespace"]
            if near and facts.active and matches(labels_of(facts.pod)):
                _adopt(api, facts.pod, owner)


def _release(api: LocalApi, pod: Json, uid: str) -> None:
    owners = [o for o in pod["metadata"]["ownerReferences"] if o["uid"] != uid]
    patch = {"metadata": {"ownerReferences": owners, "uid": pod["metadata"]["uid"]}}
    api.patch("pods", pod["metadata"]["name"], patch, pod["metadata"]["namespace"])


def _adopt(api: LocalApi, pod: Json, owner: Json) -> None:
    owners = [*(pod["metadata"].get("ownerReferences") or ()), owner_reference(owner)]
    patch = {"metadata": {"ownerReferences": owners, "uid": pod["metadata"]["uid"]}}
    api.patch("pods", pod["metadata"]["name"], patch, pod["metadata"]["namespace"])


def removal_order(pods: list[Json]) -> list[Json]:
    """Who goes first when there are too many: unbound, pending, not ready, cheap, doubled up, newest."""
    beside: dict[str, int] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        beside[node] = beside.get(node, 0) + (1 if ready(pod) else 0)
    newest_first = sorted(
        pods, key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"]), reverse=True
    )

    def rank(pod: Json) -> tuple[int, int, int, int, int]:
        node = pod["spec"].get("nodeName", "")
        phase = {"Pending": 0, "Unknown": 1}.get((pod.get("status") or {}).get("phase", "Pending"), 2)
        return (1 if node else 0, phase, 1 if ready(pod) else 0, _cost(pod), -beside.get(node, 0))

    return sorted(newest_first, key=rank)


def _cost(pod: Json) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def template_hash(text: bytes) -> str:
    """A short, stable name for a template, of letters that spell no words."""
    number = 2166136261
    for byte in text:
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    digits = str(number)
    return "".join(ALPHABET[ord(d) % len(ALPHABET)] for d in digits)


def delete_quietly(api: LocalApi, pod: Json) -> None:
    """Ask for a pod's deletion; one that is gone already is fine."""
    try:
        api.delete("pods", pod["metadata"]["name"], pod["metadata"]["namespace"], uid=pod["metadata"]["uid"])
    except ApiError as error:
        if error.code not in (404, 409):
            raise
