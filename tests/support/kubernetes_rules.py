"""Where Kubernetes lets a pod run: an oracle of its own, written from the documentation alone.

It reads plain manifests and shares no line with what it judges: nothing of Dovetail is imported here. The
pages: "Assigning Pods to Nodes", "Taints and Tolerations", "Pod Topology Spread Constraints", "Resource
Management for Pods and Containers", "Sidecar Containers", "Pod Overhead", "Node-specific Volume Limits" and
"Storage Classes".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

__all__ = ["Cluster", "amount", "daemons_of", "refused"]

Json = Mapping[str, Any]
Placement = tuple[Json, str]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{name: Decimal(1000) ** power for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGTPE", 1)},
}
Amounts = Counter[str]
ONE = 10**9  # amounts are whole numbers of billionths
QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")


def amount(quantity: object) -> int:
    """A quantity in billionths."""
    found = QUANTITY.fullmatch(str(quantity))
    assert found, f"{quantity!r} is no quantity"
    return int(Decimal(found[1]) * SUFFIXES[found[2]] * ONE)


class Cluster:
    """Nodes and the pods on them, to which pods are added one at a time, as the scheduler does."""

    def __init__(
        self, nodes: Iterable[Json], namespaces: Iterable[Json] = (), storage: Iterable[Json] = ()
    ) -> None:
        self.nodes = {each["metadata"]["name"]: each for each in nodes}
        self.spaces = {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in namespaces}
        self.storage = {(each["kind"], _full(each)): each for each in storage}
        self.pods: list[tuple[Json, str]] = []

    def bind(self, pod: Json, node: str) -> None:
        """Put a pod on a node; one that has ended takes and hinders nothing."""
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            self.pods.append((pod, node))

    def objections(self, pod: Json, name: str) -> list[str]:
        """Every reason why the pod may not run on this node now."""
        node = self.nodes[name]
        rules = {
            "a taint is not tolerated": tolerated(pod, node),
            "its node selector or affinity does not match": _wanted(pod, node),
            "not enough resources": self._room(pod, node),
            "a host port is taken": self._ports(pod, name),
            "a volume cannot be reached": self._reachable(pod, node),
            "too many volumes": self._attachable(pod, node),
            "a topology spread would be uneven": self._even(pod, node),
            "no pod it wants to be near": self._near(pod, node),
            "a pod it avoids": self._apart(pod, node),
            "a pod that avoids it": self._avoided(pod, node),
        }
        return [reason for reason, kept in rules.items() if not kept]

    def _on(self, name: str) -> Iterator[Json]:
        return (pod for pod, where in self.pods if where == name)

    # One node

    def _room(self, pod: Json, node: Json) -> bool:
        used = requested(pod)
        for other in self._on(node["metadata"]["name"]):
            used += requested(other)
        room = node["status"]["allocatable"]
        asked = requested(pod)
        return all(used[name] <= amount(room.get(name, 0)) for name, wanted in asked.items() if wanted > 0)

    def _ports(self, pod: Json, name: str) -> bool:
        taken = [port for other in self._on(name) for port in _host_ports(other)]
        return not any(_clash(one, other) for one in _host_ports(pod) for other in taken)

    # Volumes

    def _claims(self, pod: Json) -> Iterator[Json]:
        for volume in pod["spec"].get("volumes") or ():
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if "ephemeral" in volume:
                name = f"{pod['metadata']['name']}-{volume['name']}"
            if name:
                yield self.storage["PersistentVolumeClaim", f"{_space(pod)}/{name}"]

    def _volume(self, claim: Json) -> Json | None:
        name = claim["spec"].get("volumeName")
        return self.storage.get(("PersistentVolume", name)) if name else None

    def _class(self, claim: Json) -> Json | None:
        return self.storage.get(("StorageClass", claim["spec"].get("storageClassName") or ""))

    def _reachable(self, pod: Json, node: Json) -> bool:
        for claim in self._claims(pod):
            volume, kind = self._volume(claim), self._class(claim)
            if volume is not None:
                required = (volume["spec"].get("nodeAffinity") or {}).get("required")
                if required and not _selected(required, node):
                    return False
            elif kind is not None and kind.get("allowedTopologies"):
                terms = [
                    {
                        "matchExpressions": [
                            {**each, "operator": "In"} for each in term["matchLabelExpressions"]
                        ]
                    }
                    for term in kind["allowedTopologies"]
                ]
                if not _selected({"nodeSelectorTerms": terms}, node):
                    return False
        return True

    def _attachable(self, pod: Json, node: Json) -> bool:
        name = node["metadata"]["name"]
        drivers = self.storage.get(("CSINode", name), {}).get("spec", {}).get("drivers") or ()
        told = {each["name"]: (each.get("allocatable") or {}).get("count") for each in drivers}
        limits: dict[str, int] = {driver: count for driver, count in told.items() if count is not None}
        mine = self._attached(pod)
        used = {each for other in self._on(name) for each in self._attached(other)}
        totals = Counter(driver for driver, _ in mine | used)
        asked = {driver for driver, _ in mine - used}
        return all(totals[each] <= limits[each] for each in asked if each in limits)

    def _attached(self, pod: Json) -> set[tuple[str, str]]:
        found = set()
        for claim in self._claims(pod):
            volume, kind = self._volume(claim), self._class(claim)
            driver = (
                (volume["spec"].get("csi") or {}).get("driver") if volume else (kind or {}).get("provisioner")
            )
            if driver:
                found.add((str(driver), volume["metadata"]["name"] if volume else _full(claim)))
        return found

    # Spread

    def _even(self, pod: Json, node: Json) -> bool:
        hard = [
            rule
            for rule in pod["spec"].get("topologySpreadConstraints") or ()
            if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        ]
        keys = {rule["topologyKey"] for rule in hard}
        if not keys <= _labels(node).keys():
            return False
        return all(self._evenly(rule, pod, node, keys) for rule in hard)

    def _evenly(self, rule: Json, pod: Json, node: Json, keys: set[str]) -> bool:
        key = rule["topologyKey"]
        selector = _with_own_labels(rule.get("labelSelector"), rule, pod)
        taking_part = [each for each in self.nodes.values() if _takes_part(rule, pod, each, keys)]
        counts = Counter({_labels(each)[key]: 0 for each in taking_part})
        inside = {each["metadata"]["name"]: _labels(each)[key] for each in taking_part}
        for other, where in self.pods:
            going = other["metadata"].get("deletionTimestamp")
            if where in inside and not going and _space(other) == _space(pod) and _matches(selector, other):
                counts[inside[where]] += 1
        fewest = min(counts.values(), default=0)
        if len(counts) < (rule.get("minDomains") or 1):
            fewest = 0
        itself = int(_matches(selector, pod))
        return counts[_labels(node)[key]] + itself - fewest <= int(rule["maxSkew"])

    # Near and apart

    def _about(self, term: Json, owner: Json, other: Json) -> bool:
        """Whether a term of one pod speaks of another."""
        named, chosen = term.get("namespaces") or (), term.get("namespaceSelector")
        if chosen is None:
            spaces = set(named) or {_space(owner)}
        else:
            spaces = {each for each, labels in self.spaces.items() if _labelled(chosen, labels)} | set(named)
        selector = _with_own_labels(term.get("labelSelector"), term, owner)
        return _space(other) in spaces and _matches(selector, other)

    def _same_domain(self, term: Json, node: Json, other: str) -> bool:
        key = term["topologyKey"]
        mine = _labels(node).get(key)
        return mine is not None and mine == _labels(self.nodes[other]).get(key)

    def _near(self, pod: Json, node: Json) -> bool:
        terms = _terms(pod, "podAffinity")
        if not all(term["topologyKey"] in _labels(node) for term in terms):
            return False
        # A pod on a node without any of the labels is in no domain: to the scheduler it is not there.
        friends = [
            (other, where)
            for other, where in self.pods
            if any(term["topologyKey"] in _labels(self.nodes[where]) for term in terms)
            and all(self._about(term, pod, other) for term in terms)
        ]
        if not friends and all(self._about(term, pod, pod) for term in terms):
            return True  # the first of its kind
        return all(any(self._same_domain(term, node, where) for _, where in friends) for term in terms)

    def _apart(self, pod: Json, node: Json) -> bool:
        return not any(
            self._about(term, pod, other) and self._same_domain(term, node, where)
            for term in _terms(pod, "podAntiAffinity")
            for other, where in self.pods
        )

    def _avoided(self, pod: Json, node: Json) -> bool:
        return not any(
            self._about(term, other, pod) and self._same_domain(term, node, where)
            for other, where in self.pods
            for term in _terms(other, "podAntiAffinity")
        )


def refused(cluster: Cluster, placements: Sequence[Placement]) -> list[str]:
    """What no order of binding lets in, tried in turns: pods with rules about others first, fullest last.

    Everything that is let in stays on the cluster.
    """
    waiting = sorted(placements, key=lambda each: not _bound_to_others(each[0]))
    while waiting:
        let_in = None
        for number, (pod, node) in enumerate(waiting):
            if not cluster.objections(pod, node):
                let_in = number
                break
        if let_in is None:
            return [
                f"{_full(pod)} on {node}: {', '.join(cluster.objections(pod, node))}" for pod, node in waiting
            ]
        cluster.bind(*waiting.pop(let_in))
    return []


def daemons_of(daemonsets: Iterable[Json], node: Json) -> list[Json]:
    """The pods that DaemonSets run on a node: where their selector, affinity and tolerations let them."""
    found: list[Json] = []
    for each in daemonsets:
        template = each["spec"]["template"]
        labels = (template.get("metadata") or {}).get("labels") or {}
        name = f"{each['metadata']['name']}-{node['metadata']['name']}"
        where = {"name": name, "namespace": _space(each), "labels": labels}
        pod = {"metadata": where, "spec": template["spec"]}
        if tolerated(pod, node, cordon=False) and _wanted(pod, node):
            found.append(pod)
    return found


# Pods


def _full(thing: Json) -> str:
    name = thing["metadata"]["name"]
    spaced = thing.get("kind") not in ("PersistentVolume", "StorageClass", "CSINode")
    return f"{_space(thing)}/{name}" if spaced else str(name)


def _space(thing: Json) -> str:
    return str(thing["metadata"].get("namespace") or "default")


def _labels(thing: Json) -> Mapping[str, str]:
    return thing["metadata"].get("labels") or {}


def _bound_to_others(pod: Json) -> bool:
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    return bool(
        spec.get("topologySpreadConstraints")
        or affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
    )


def _terms(pod: Json, kind: str) -> Sequence[Json]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return affinity.get(REQUIRED) or ()


def requested(pod: Json) -> Amounts:
    """What a pod takes of a node: the larger of starting and running, and its overhead; and one pod."""
    spec = pod["spec"]
    sidecars, peak = Amounts(), Amounts()
    for each in spec.get("initContainers") or ():
        if each.get("restartPolicy") == "Always":
            sidecars = sidecars + _asked(each)
            peak |= sidecars
        else:
            peak |= sidecars + _asked(each)
    running = sidecars
    for each in spec.get("containers") or ():
        running = running + _asked(each)
    total = running | peak
    for name, value in _asked(spec).items():
        total[name] = value  # asked for the pod as a whole
    for name, value in (spec.get("overhead") or {}).items():
        total[name] += amount(value)
    total["pods"] = ONE
    return total


def _asked(part: Json) -> Amounts:
    resources = part.get("resources") or {}
    told = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return Counter({name: amount(value) for name, value in told.items()})


def _host_ports(pod: Json) -> Iterator[tuple[str, str, int]]:
    for each in (*(pod["spec"].get("containers") or ()), *_sidecars(pod)):
        for port in each.get("ports") or ():
            number = port.get("hostPort") or (port["containerPort"] if pod["spec"].get("hostNetwork") else 0)
            if number:
                yield port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", number


def _sidecars(pod: Json) -> Iterator[Json]:
    return (each for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always")


def _clash(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    return one[1:] == other[1:] and (one[0] == other[0] or "0.0.0.0" in (one[0], other[0]))


# Nodes


def tolerated(
    pod: Json, node: Json, effects: Sequence[str] = ("NoSchedule", "NoExecute"), cordon: bool = True
) -> bool:
    """Whether the pod tolerates every taint of the node that would keep it off."""
    taints = [*(node.get("spec", {}).get("taints") or ())]
    if node.get("spec", {}).get("unschedulable") and cordon:
        taints.append(UNSCHEDULABLE)
    own = pod["spec"].get("tolerations") or ()
    return all(any(_tolerates(each, taint) for each in own) for taint in taints if taint["effect"] in effects)


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (
        taint.get("value") or ""
    )


def _wanted(pod: Json, node: Json) -> bool:
    """Node selector and required node affinity."""
    chosen = pod["spec"].get("nodeSelector") or {}
    if any(_labels(node).get(key) != value for key, value in chosen.items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(REQUIRED)
    return required is None or _selected(required, node)


def _selected(selector: Json, node: Json) -> bool:
    """Any of the terms, and all of each; an empty term selects nothing."""
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_holds(each, _labels(node)) for each in term.get("matchExpressions") or ())
        and all(_holds(each, fields) for each in term.get("matchFields") or ())
        for term in selector["nodeSelectorTerms"]
    )


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    values: Sequence[str] = expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    numeric = value is not None and re.fullmatch(r"-?[0-9]+", value)
    if not numeric:
        return False
    more = int(str(value)) > int(values[0])
    return more if expression["operator"] == "Gt" else int(str(value)) < int(values[0])


def _takes_part(rule: Json, pod: Json, node: Json, keys: set[str]) -> bool:
    """Whether a node is among the domains of a spread."""
    if not keys <= _labels(node).keys():
        return False
    if rule.get("nodeAffinityPolicy", "Honor") == "Honor" and not _wanted(pod, node):
        return False
    # Taints alone: a cordon counts once the node controller has written it as a taint.
    return rule.get("nodeTaintsPolicy", "Ignore") != "Honor" or tolerated(pod, node, cordon=False)


# Selectors of pods


def _with_own_labels(selector: Json | None, rule: Json, pod: Json) -> Json | None:
    """The selector with the pod's own values for matchLabelKeys, and without those for mismatchLabelKeys."""
    if selector is None:
        return None
    more = [
        {"key": key, "operator": operator, "values": [_labels(pod)[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in rule.get(field) or ()
        if key in _labels(pod)
    ]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *more]}


def _matches(selector: Json | None, pod: Json) -> bool:
    return selector is not None and _labelled(selector, _labels(pod))


def _labelled(selector: Json, labels: Mapping[str, str]) -> bool:
    """An empty selector selects everything."""
    same = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return same and all(_holds(each, labels) for each in selector.get("matchExpressions") or ())
