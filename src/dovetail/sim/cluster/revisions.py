"""ControllerRevisions: the templates a DaemonSet or StatefulSet has had, numbered, the newest last."""

from __future__ import annotations

import msgspec

from dovetail.sim.cluster.base import Json, Key, Neighbour
from dovetail.sim.cluster.objects import controller_of, deleting, key_of, labels_of, owner_reference
from dovetail.sim.cluster.pods_of import template_hash

__all__ = ["HASH", "Revisions"]

RESOURCE = "controllerrevisions.apps"
HASH = "controller-revision-hash"


class Revisions:
    """The revisions of one controller's owners."""

    def __init__(self, neighbour: Neighbour) -> None:
        self._neighbour = neighbour
        self._marks: dict[Key, tuple[Json, str]] = {}

    def mark(self, owner: Json) -> str:
        """The hash that marks pods of the present template; its revision is made when first needed."""
        template, key = owner["spec"]["template"], key_of(owner)
        known = self._marks.get(key)
        if known is not None and known[0] is template:
            return known[1]
        data = {"spec": {"template": {**template, "$patch": "replace"}}}
        mark = template_hash(msgspec.json.encode(data, order="deterministic"))
        if not deleting(owner):
            self._ensure(owner, mark, data)
        self._marks[key] = (template, mark)
        return mark

    def forget(self, key: Key) -> None:
        self._marks.pop(key, None)

    def of(self, owner: Json) -> list[Json]:
        """All revisions of an owner, oldest first."""
        meta = owner["metadata"]
        found = [
            revision
            for revision in self._neighbour.every(RESOURCE, meta["namespace"])
            if (by := controller_of(revision)) is not None and by["uid"] == meta["uid"]
        ]
        return sorted(found, key=lambda r: (r["revision"], r["metadata"]["name"]))

    def template(self, owner: Json, name: str) -> Json | None:
        """The template of a revision, by its name."""
        for revision in self.of(owner):
            if revision["metadata"]["name"] == name:
                template = dict(revision["data"]["spec"]["template"])
                template.pop("$patch", None)
                return template
        return None

    def _ensure(self, owner: Json, mark: str, data: Json) -> None:
        known, meta = self.of(owner), owner["metadata"]
        newest = known[-1]["revision"] if known else 0
        name = f"{meta['name']}-{mark}"
        mine = next((r for r in known if r["metadata"]["name"] == name), None)
        if mine is not None:
            if mine["revision"] != newest:  # an old template came back
                self._neighbour.api.patch(RESOURCE, name, {"revision": newest + 1}, meta["namespace"])
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
        self._neighbour.api.create(RESOURCE, body)

    def trim(self, owner: Json) -> None:
        """Forget the oldest beyond the history limit; the present one stays."""
        limit, present = owner["spec"].get("revisionHistoryLimit", 10), self.mark(owner)
        idle = [r for r in self.of(owner) if labels_of(r).get(HASH) != present]
        for revision in idle[: max(len(idle) - limit, 0)]:
            meta = revision["metadata"]
            self._neighbour.api.delete(RESOURCE, meta["name"], meta["namespace"])
