"""Who hears of an event, and in which words. Pure.

An event about one instance goes out as it came, to the byte. A Health event about many is divided: each
cluster's copy holds that cluster's instances and is otherwise the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.aws.messages import Kind
from dovetail.bus.cache import FOREIGN, OWNED, Known
from dovetail.bus.destinations import Cluster, Destination, Registry
from dovetail.bus.events import ZONAL_SHIFT, Event

__all__ = ["Routed", "broadcast", "everywhere", "route", "sole", "split"]

HEALTH = Kind.SCHEDULED_CHANGE.value
NO_DESTINATION = "no_destination"


@dataclass(slots=True)
class Routed:
    """What comes of an event: copies to send, parts to park (reason, body, cluster), drops by reason.

    `parts` are the instances each cluster hears of, where an event is divided.
    """

    copies: list[tuple[Destination, str]] = field(default_factory=list)
    parked: list[tuple[str, str, str]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    parts: dict[Cluster, frozenset[str]] = field(default_factory=dict)


def route(
    event: Event,
    body: str,
    known: Mapping[str, Known],
    registry: Registry,
    now: float,
    *,
    annotate: bool = False,
) -> Routed:
    """Route an event whose instances are all known, as owned, foreign or absent."""
    routed = Routed()
    clusters = _owned(event, known, routed)
    whole = event.kind != HEALTH
    for cluster, instances in clusters.items():
        destination = registry.of(cluster)
        told = body if whole else ""
        if destination is None:
            told = told or split(event, instances, len(clusters), False)
            routed.parked.append((NO_DESTINATION, told, cluster.name))
            continue
        refusal = _refusal(event, destination, now)
        if refusal:
            routed.dropped.append(refusal)
            continue
        if not whole:
            marked = annotate or destination.format == "annotated"
            told = _part(event, body, instances, len(clusters), marked)
            routed.parts[cluster] = frozenset(instances)
        routed.copies.append((destination, told))
    return routed


def sole(event: Event, known: Known, registry: Registry, now: float) -> Destination | None:
    """The common case of `route`: one instance, one owner, and a queue that wants to hear of it; or None."""
    if known.state is not OWNED or len(known.owners) != 1 or event.kind == HEALTH:
        return None
    destination = registry.of(known.owners[0])
    return destination if destination is not None and not _refusal(event, destination, now) else None


def broadcast(event: Event, body: str, registry: Registry) -> list[tuple[Destination, str]]:
    """Copies for every cluster of the event's place: consumers ignore what is not theirs."""
    return [(each, body) for each in registry.at(event.place) if each.wants(event.kind)]


def everywhere(event: Event, body: str, registry: Registry) -> Routed:
    """Route a zonal shift: by the cluster ARNs it names, or to every cluster of the place."""
    routed = Routed()
    named, here = _arns(event), registry.at(event.place)
    for each in here:
        if (not named or each.cluster.name in named) and each.wants(event.kind):
            routed.copies.append((each, body))
    for missing in sorted(named - {each.cluster.name for each in here}):
        routed.parked.append((NO_DESTINATION, body, missing))
    if not routed.copies and not routed.parked:
        routed.parked.append((NO_DESTINATION, body, ""))
    return routed


def _arns(event: Event) -> set[str]:
    """Names of the clusters whose ARNs the event bears: arn:aws:eks:<region>:<account>:cluster/<name>."""
    assert event.kind == ZONAL_SHIFT
    resources = event.message.document.get("resources")
    found = set()
    for each in resources if isinstance(resources, list) else ():
        parts = each.split(":", 5) if isinstance(each, str) else []
        if len(parts) == 6 and parts[2] == "eks" and parts[5].startswith("cluster/"):
            found.add(parts[5].removeprefix("cluster/"))
    return found


def _owned(event: Event, known: Mapping[str, Known], routed: Routed) -> dict[Cluster, list[str]]:
    clusters: dict[Cluster, list[str]] = {}
    for instance in event.instances:
        what = known[instance]
        if what.state is OWNED:
            for cluster in what.owners:
                clusters.setdefault(cluster, []).append(instance)
        else:
            routed.dropped.append("foreign" if what.state is FOREIGN else "unresolvable")
    return clusters


def _refusal(event: Event, destination: Destination, now: float) -> str:
    """Why the cluster does not want to hear it; empty when it does."""
    if not destination.wants(event.kind):
        return "unsubscribed"
    if event.kind == HEALTH and not destination.include_closed and _closed(event):
        return "closed"
    if destination.max_age is not None and not event.urgent and event.time is not None:
        return "too_old" if now - event.time > destination.max_age else ""
    return ""


def _closed(event: Event) -> bool:
    return event.message.detail.get("statuscode") == "closed"


def _part(event: Event, body: str, instances: list[str], of: int, annotate: bool) -> str:
    if len(instances) == len(event.instances) and not annotate:
        return body  # all of it is one cluster's: nothing to divide
    return split(event, instances, of, annotate)


def split(event: Event, instances: Iterable[str], of: int, annotate: bool) -> str:
    """The event with these instances alone; every other member as it was."""
    wanted = set(instances)
    document = dict(event.message.document)
    for name, value in document.items():
        folded = name.casefold()
        if folded == "resources" and isinstance(value, list):
            document[name] = [each for each in value if _id(each) in wanted]
        elif folded == "detail" and isinstance(value, dict):
            document[name] = _divided(value, wanted) | (
                {"dovetail": {"split": True, "of": of}} if annotate else {}
            )
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    # Half a surrogate pair can be escaped in JSON but not written in UTF-8.
    return text if _utf8(text) else json.dumps(document, separators=(",", ":"))


def _utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _divided(detail: Mapping[str, Any], wanted: set[str]) -> dict[str, Any]:
    return {
        name: [each for each in value if _entity(each) in wanted]
        if name.casefold() == "affectedentities" and isinstance(value, list)
        else value
        for name, value in detail.items()
    }


def _entity(entity: Any) -> str:
    """The id an entity names. Of names that differ only in case the last one counts, as in parsing."""
    found = ""
    for name, value in entity.items() if isinstance(entity, dict) else ():
        if name.casefold() == "entityvalue":
            found = _id(value)
    return found


def _id(value: Any) -> str:
    return value.rpartition("/")[2] if isinstance(value, str) else ""
