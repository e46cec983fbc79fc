"""What is known of instances: whose they are, or that they are no one's. No I/O; time is handed in.

Ids are never used again and cluster tags do not change, so what is known stays known. Entries learnt in the
same minute about the same owners share one object, which keeps an entry near the size of its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dovetail.aws import Aws
from dovetail.bus.destinations import BusCluster
from dovetail.bus.events import BusPlace

__all__ = [
    "FALLBACK_TAGS",
    "FOREIGN",
    "OWNED",
    "TAGS",
    "UNKNOWN",
    "InstanceOwners",
    "KnownInstance",
    "PublishedInstances",
    "find_owners",
    "list_tag_keys",
]

OWNED, FOREIGN, UNKNOWN = "owned", "foreign", "unknown"
SECONDS_PER_MINUTE, HOUR = 60.0, 3600.0
IDLE = 24 * HOUR  # an owned entry that no one asked for
ENDED_KEPT = 2 * HOUR  # after the instance is gone
STALE = 6 * HOUR  # after which an owned entry is looked up again in the background
NO_TAG, YOUNG_NO_TAG, ABSENT = 600.0, 30.0, 30.0
YOUNG = 120.0


@dataclass(frozen=True, slots=True)
class KnownInstance:
    """What is known of an instance, until when, and since when."""

    state: str
    owners: tuple[BusCluster, ...]
    until: float
    since: float
    ended: bool = False


class InstanceOwners:
    """A bounded memory of instances; the one unused for longest goes first."""

    def __init__(self, size: int = 500_000) -> None:
        self._size = size
        self._known: dict[str, KnownInstance] = {}
        self._shared: dict[tuple[object, ...], KnownInstance] = {}
        self._minute = -1.0
        self.asked = 0
        self.answered = 0

    def get(self, instance: str, now: float) -> KnownInstance | None:
        """What is known now."""
        self.asked += 1
        known = self._known.get(instance)
        if known is None:
            return None
        if known.until <= now:
            del self._known[instance]
            return None
        self.answered += 1
        if known.state is OWNED and not known.ended and known.until - now < IDLE - SECONDS_PER_MINUTE:
            self._store_entry(
                instance, self._share_entry(OWNED, known.owners, now + IDLE, now, since=known.since)
            )
        return known

    def set_owned(self, instance: str, owners: tuple[BusCluster, ...], now: float) -> None:
        self._store_entry(instance, self._share_entry(OWNED, owners, now + IDLE, now, since=now))

    def set_foreign(self, instance: str, now: float, age: float | None = None) -> None:
        """It exists and bears no cluster's tag; a young one may still get it."""
        lasts = YOUNG_NO_TAG if age is not None and age < YOUNG else NO_TAG
        self._store_entry(instance, KnownInstance(FOREIGN, (), now + lasts, now))

    def set_unknown(self, instance: str, now: float) -> None:
        self._store_entry(instance, KnownInstance(UNKNOWN, (), now + ABSENT, now))

    def mark_ended(self, instance: str, now: float) -> None:
        """The instance is gone: latecomers still find their way for a while."""
        known = self._known.get(instance)
        if known is not None and known.state is OWNED and not known.ended:
            until = min(known.until, now + ENDED_KEPT)
            self._store_entry(
                instance, self._share_entry(OWNED, known.owners, until, now, since=known.since, ended=True)
            )

    def list_stale(self, now: float, most: int) -> list[tuple[str, BusPlace]]:
        """Instances that run on and were looked up long ago, with their places."""
        found = (
            (instance, known.owners[0].place)
            for instance, known in self._known.items()
            if known.state is OWNED and not known.ended and now - known.since > STALE
        )
        return list(islice(found, most))

    def __len__(self) -> int:
        return len(self._known)

    @property
    def hit_ratio(self) -> float:
        return self.answered / self.asked if self.asked else 1.0

    def _store_entry(self, instance: str, known: KnownInstance) -> None:
        entries = self._known
        entries.pop(instance, None)
        entries[instance] = known
        if len(entries) > self._size:
            del entries[next(iter(entries))]

    def _share_entry(
        self,
        state: str,
        owners: tuple[BusCluster, ...],
        until: float,
        now: float,
        *,
        since: float,
        ended: bool = False,
    ) -> KnownInstance:
        minute = now // SECONDS_PER_MINUTE
        if minute != self._minute:
            self._minute = minute
            self._shared.clear()
        key = (owners, until // SECONDS_PER_MINUTE, since // SECONDS_PER_MINUTE, ended)
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = KnownInstance(state, owners, until, since, ended)
        return found


TAGS = ("eks:eks-cluster-name", "aws:eks:cluster-name", "kubernetes.io/cluster/*")
# Asked only when none of the configured tags says anything.
FALLBACK_TAGS = ("karpenter.sh/managed-by", "alpha.eksctl.io/cluster-name")
TAG_OWNED, TAG_SHARED = "owned", "shared"


def find_owners(tags: Mapping[str, str], keys: Sequence[str] = TAGS) -> tuple[str, ...]:
    """The clusters an instance belongs to: usually one, none for a stranger.

    The most trusted tag decides. Several clusters that each call the instance their own all hear of it: they
    ignore what is not theirs, and a warning that reaches too many is better than one that reaches none.
    """
    owned = _list_prefixed(tags, keys, TAG_OWNED)
    first = _find_first_owner(tags, keys)
    if len(owned) > 1:
        return tuple(dict.fromkeys([*first, *owned]))
    return first


def _find_first_owner(tags: Mapping[str, str], keys: Sequence[str]) -> tuple[str, ...]:
    for key in (*keys, *FALLBACK_TAGS):
        if key.endswith("*"):
            found = _list_under_prefix(tags, key[:-1], TAG_OWNED) or _list_under_prefix(
                tags, key[:-1], TAG_SHARED
            )
        else:
            found = [tags[key]] if tags.get(key) else []
        if found:
            return (found[0],)
    return ()


def _list_prefixed(tags: Mapping[str, str], keys: Sequence[str], value: str) -> list[str]:
    return [name for key in keys if key.endswith("*") for name in _list_under_prefix(tags, key[:-1], value)]


def _list_under_prefix(tags: Mapping[str, str], prefix: str, value: str) -> list[str]:
    return sorted(
        key[len(prefix) :]
        for key, told in tags.items()
        if told == value and key.startswith(prefix) and len(key) > len(prefix)
    )


def list_tag_keys(keys: Sequence[str] = TAGS) -> list[str]:
    """The tag keys to ask EC2 for when everything of every cluster is wanted."""
    return [*keys, *FALLBACK_TAGS]


MOST_READ = 100


class PublishedInstances:
    """Reads what clusters publish."""

    def __init__(self, aws: Aws, table: str) -> None:
        self._aws, self._table = aws, table

    async def find_owners(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Those of the ids that some cluster calls its own."""
        found: dict[str, tuple[str, ...]] = {}
        for start in range(0, len(ids), MOST_READ):
            found |= await self._read_batch(ids[start : start + MOST_READ])
        return found

    async def _read_batch(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        asked: Mapping[str, Any] = {self._table: {"Keys": [{"id": {"S": id}} for id in ids]}}
        found: dict[str, tuple[str, ...]] = {}
        while asked:
            answer = await self._aws.call("dynamodb", "BatchGetItem", {"RequestItems": asked})
            for item in answer.get("Responses", {}).get(self._table, ()):
                names = item.get("clusters", {}).get("SS")
                if names:  # else the item says nothing, and EC2 is asked
                    found[item["id"]["S"]] = tuple(sorted(names))
            asked = answer.get("UnprocessedKeys") or {}
        return found
