"""Who hears of an event, and in which words. Pure.

An event about one instance goes out as it came, to the byte. A Health event about many is divided: each
cluster's copy holds that cluster's instances and is otherwise the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.aws.eventbridge import MessageKind
from dovetail.bus.destinations import BusCluster, Destination, DestinationRegistry
from dovetail.bus.events import ZONAL_SHIFT, BusEvent
from dovetail.bus.owners import FOREIGN, OWNED, KnownInstance

__all__ = [
    "RoutedEvent",
    "build_broadcast",
    "find_sole_destination",
    "route_event",
    "route_zonal_shift",
    "split_event",
]

HEALTH = MessageKind.SCHEDULED_CHANGE.value
NO_DESTINATION = "no_destination"


@dataclass(slots=True)
class RoutedEvent:
    """What comes of an event: copies to send, parts to park (reason, body, cluster), drops by reason.

    `parts` are the instances each cluster hears of, where an event is divided.
    """

    copies: list[tuple[Destination, str]] = field(default_factory=list)
    parked: list[tuple[str, str, str]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    parts: dict[BusCluster, frozenset[str]] = field(default_factory=dict)


def route_event(
    event: BusEvent,
    body: str,
    known: Mapping[str, KnownInstance],
    registry: DestinationRegistry,
    now: float,
    *,
    annotate: bool = False,
) -> RoutedEvent:
    """Route an event whose instances are all known, as owned, foreign or absent."""
    routed = RoutedEvent()
    clusters = _group_by_owner(event, known, routed)
    whole = event.kind != HEALTH
    for cluster, instances in clusters.items():
        destination = registry.find_by_cluster(cluster)
        told = body if whole else ""
        if destination is None:
            told = told or split_event(event, instances, len(clusters), False)
            routed.parked.append((NO_DESTINATION, told, cluster.name))
            continue
        refusal = _find_refusal(event, destination, now)
        if refusal:
            routed.dropped.append(refusal)
            continue
        if not whole:
            marked = annotate or destination.format == "annotated"
            told = _build_part(event, body, instances, len(clusters), marked)
            routed.parts[cluster] = frozenset(instances)
        routed.copies.append((destination, told))
    return routed


def find_sole_destination(
    event: BusEvent, known: KnownInstance, registry: DestinationRegistry, now: float
) -> Destination | None:
    """The common case of `route`: one instance, one owner, and a queue that wants to hear of it; or None."""
    if known.state is not OWNED or len(known.owners) != 1 or event.kind == HEALTH:
        return None
    destination = registry.find_by_cluster(known.owners[0])
    return destination if destination is not None and not _find_refusal(event, destination, now) else None


def build_broadcast(
    event: BusEvent, body: str, registry: DestinationRegistry
) -> list[tuple[Destination, str]]:
    """Copies for every cluster of the event's place: consumers ignore what is not theirs."""
    return [(each, body) for each in registry.list_at_place(event.place) if each.wants_kind(event.kind)]


def route_zonal_shift(event: BusEvent, body: str, registry: DestinationRegistry) -> RoutedEvent:
    """Route a zonal shift: by the cluster ARNs it names, or to every cluster of the place."""
    routed = RoutedEvent()
    named, here = _list_cluster_names(event), registry.list_at_place(event.place)
    for each in here:
        if (not named or each.cluster.name in named) and each.wants_kind(event.kind):
            routed.copies.append((each, body))
    for missing in sorted(named - {each.cluster.name for each in here}):
        routed.parked.append((NO_DESTINATION, body, missing))
    if not routed.copies and not routed.parked:
        routed.parked.append((NO_DESTINATION, body, ""))
    return routed


def _list_cluster_names(event: BusEvent) -> set[str]:
    """Names of the clusters whose ARNs the event bears: arn:aws:eks:<region>:<account>:cluster/<name>."""
    assert event.kind == ZONAL_SHIFT
    resources = event.message.document.get("resources")
    found = set()
    for each in resources if isinstance(resources, list) else ():
        parts = each.split(":", 5) if isinstance(each, str) else []
        if len(parts) == 6 and parts[2] == "eks" and parts[5].startswith("cluster/"):
            found.add(parts[5].removeprefix("cluster/"))
    return found


def _group_by_owner(
    event: BusEvent, known: Mapping[str, KnownInstance], routed: RoutedEvent
) -> dict[BusCluster, list[str]]:
    clusters: dict[BusCluster, list[str]] = {}
    for instance in event.instances:
        what = known[instance]
        if what.state is OWNED:
            for cluster in what.owners:
                clusters.setdefault(cluster, []).append(instance)
        else:
            routed.dropped.append("foreign" if what.state is FOREIGN else "unresolvable")
    return clusters


def _find_refusal(event: BusEvent, destination: Destination, now: float) -> str:
    """Why the cluster does not want to hear it; empty when it does."""
    if not destination.wants_kind(event.kind):
        return "unsubscribed"
    if event.kind == HEALTH and not destination.include_closed and _is_closed(event):
        return "closed"
    if destination.max_age is not None and not event.urgent and event.time is not None:
        return "too_old" if now - event.time > destination.max_age else ""
    return ""


def _is_closed(event: BusEvent) -> bool:
    return event.message.detail.get("statuscode") == "closed"


def _build_part(event: BusEvent, body: str, instances: list[str], of: int, annotate: bool) -> str:
    if len(instances) == len(event.instances) and not annotate:
        return body  # all of it is one cluster's: nothing to divide
    return split_event(event, instances, of, annotate)


def split_event(event: BusEvent, instances: Iterable[str], of: int, annotate: bool) -> str:
    """The event with these instances alone; every other member as it was."""
    wanted = set(instances)
    document = dict(event.message.document)
    for name, value in document.items():
        folded = name.casefold()
        if folded == "resources" and isinstance(value, list):
            document[name] = [each for each in value if _read_id(each) in wanted]
        elif folded == "detail" and isinstance(value, dict):
            document[name] = _filter_entities(value, wanted) | (
                {"dovetail": {"split": True, "of": of}} if annotate else {}
            )
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    # Half a surrogate pair can be escaped in JSON but not written in UTF-8.
    return text if _is_utf8(text) else json.dumps(document, separators=(",", ":"))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _filter_entities(detail: Mapping[str, Any], wanted: set[str]) -> dict[str, Any]:
    return {
        name: [each for each in value if _read_entity_id(each) in wanted]
        if name.casefold() == "affectedentities" and isinstance(value, list)
        else value
        for name, value in detail.items()
    }


def _read_entity_id(entity: Any) -> str:
    """The id an entity names. Of names that differ only in case the last one counts, as in parsing."""
    found = ""
    for name, value in entity.items() if isinstance(entity, dict) else ():
        if name.casefold() == "entityvalue":
            found = _read_id(value)
    return found


def _read_id(value: Any) -> str:
    return value.rpartition("/")[2] if isinstance(value, str) else ""
