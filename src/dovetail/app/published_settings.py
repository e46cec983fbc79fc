"""What a cluster says of its own autoscaler: its name, its region, and the settings the controller runs with.

An embedded cluster keeps them in a ConfigMap. In any other, the Deployment of the controller is read, be it
Dovetail or Karpenter, then the pod that holds its lease, then the nodes. What its decisions depend on, the
leader writes on its Lease: flags, environment and policy are all in it, as they are in force.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dovetail.api import labels
from dovetail.runtime.transport import ApiRequest, Transport
from dovetail.settings import Settings
from dovetail.settings.table import BY_FLAG, DECIDING, DECIDING_POLICY, SETTINGS

__all__ = [
    "CONFIG_MAP",
    "NAMESPACE",
    "DecidingSettings",
    "PublishedSettings",
    "build_config_map",
    "build_lease_annotations",
    "read_published",
]

NAMESPACE, CONFIG_MAP = "kube-system", "dovetail-up"
CLUSTER_NAME, REGION, ENDPOINT = "CLUSTER_NAME", "AWS_REGION", "AWS_ENDPOINT_URL"
CONTROLLERS = "app.kubernetes.io/name in (karpenter, dovetail)"
LEASE = "karpenter-leader-election"
FEW = "100"
DECIDING_VARIABLES = frozenset((*DECIDING, *(each.variable for each in DECIDING_POLICY)))
# How the names of zones begin, of local ones too: us-west-2a, us-west-2-lax-1a, us-gov-east-1b.
_REGION = re.compile(r"[a-z]+(?:-[a-z]+)+-\d+")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DecidingSettings:
    """The settings that the controller's decisions depend on, by variable; those left out have defaults.

    Without `values` they could not be had, and `source` says why.
    """

    source: str
    values: Mapping[str, str] | None = None

    def describe(self) -> str:
        """Which settings count, as a sentence."""
        if self.values is not None:
            return f"decided with the settings of the controller, from {self.source}"
        return f"decided with the settings of this environment: {self.source}"


@dataclass(frozen=True, slots=True)
class PublishedSettings:
    """What the cluster says of itself. `endpoint` is that of a simulated AWS on this machine."""

    environment: Mapping[str, str] = field(default_factory=dict)
    region: str = ""
    endpoint: str = ""
    source: str = ""
    decides_by: DecidingSettings | None = None

    @property
    def name(self) -> str:
        return self.environment.get(CLUSTER_NAME, "")

    @property
    def complete(self) -> bool:
        return bool(self.name and self.region)

    def fill_from(self, other: PublishedSettings) -> PublishedSettings:
        """The same, with what is missing taken from another source."""
        return replace(
            self,
            environment={**other.environment, **self.environment},
            region=self.region or other.region,
            source=self.source or other.source,
        )


def build_config_map(name: str, settings: Settings, region: str = "", endpoint: str = "") -> Json:
    """The ConfigMap by which an embedded cluster tells its name, its cloud and the settings given."""
    given = {
        each.variable: settings.show_value(each.variable)
        for each in SETTINGS
        if each.applies_to(settings.provider) and settings.find_origin(each.variable) != "default"
    }
    cloud = {REGION: region, ENDPOINT: endpoint}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": {**given, CLUSTER_NAME: name, **{key: value for key, value in cloud.items() if value}},
    }


async def read_published(transport: Transport) -> PublishedSettings:
    """Ask the cluster, the surest source first; what may not be read, or is not there, says nothing."""
    embedded = await _read_object(transport, f"/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG_MAP}")
    if embedded is not None:
        return _read_config_map(embedded)
    found = await _read_workloads_of(transport)
    lease = found.environment.get("LEADER_ELECTION_NAME", LEASE)
    return replace(found, decides_by=await _read_deciding(transport, lease))


async def _read_workloads_of(transport: Transport) -> PublishedSettings:
    listed = await _list_items(transport, "/apis/apps/v1/deployments", labelSelector=CONTROLLERS)
    found = _read_workloads("Deployment", listed)
    if not found.complete:
        found = found.fill_from(await _read_leader(transport))
    if not found.region:
        nodes = await _list_items(transport, "/api/v1/nodes", limit=FEW)
        found = replace(found, region=_find_region(nodes))
    return found


def _read_config_map(document: Json) -> PublishedSettings:
    data = {key: value for key, value in (document.get("data") or {}).items() if isinstance(value, str)}
    region, endpoint = data.pop(REGION, ""), data.pop(ENDPOINT, "")
    source = f"ConfigMap {NAMESPACE}/{CONFIG_MAP}"
    decides_by = DecidingSettings(source, {name: data[name] for name in DECIDING_VARIABLES & data.keys()})
    return PublishedSettings(data, region, endpoint if _is_loopback(endpoint) else "", source, decides_by)


def build_lease_annotations(settings: Settings) -> dict[str, str]:
    """What the leader writes on its Lease: the settings it decides by, where they are not the defaults."""
    return {labels.DECIDES_BY: msgspec.json.encode(settings.list_deciding(), order="sorted").decode()}


async def _read_deciding(transport: Transport, name: str) -> DecidingSettings | None:
    """What the leader says of itself; None where there is no Lease, and so no controller to differ from."""
    query = {"fieldSelector": f"metadata.name={name}"}
    reply = await transport.send(ApiRequest("GET", "/apis/coordination.k8s.io/v1/leases", query))
    if reply.status in (401, 403):
        return DecidingSettings(
            "the controller says its own on its Lease, and reading it takes `list` on leases"
        )
    listed = _decode_items(reply.body) if reply.status == 200 else []
    unsaid = None
    for lease in listed:
        meta = lease["metadata"]
        said = (meta.get("annotations") or {}).get(labels.DECIDES_BY)
        where = f"Lease {meta.get('namespace', '')}/{name}"
        if said is None:
            unsaid = DecidingSettings(f"{where} does not say those of its controller")
            continue
        try:
            values = msgspec.json.decode(said, type=dict[str, str])
        except (msgspec.MsgspecError, UnicodeError):
            return DecidingSettings(f"those that {where} says of its controller cannot be read")
        known = {each: value for each, value in values.items() if each in DECIDING_VARIABLES}
        return DecidingSettings(where, known)
    return unsaid


def _decode_items(body: bytes) -> list[Json]:
    listed = msgspec.json.decode(body, type=dict[str, Any])
    return [each for each in listed.get("items") or () if isinstance(each.get("metadata"), dict)]


def _is_loopback(url: str) -> bool:
    """Only a loopback address is believed: no cluster may send its readers to a server of its choice."""
    try:
        return ip_address(urlsplit(url).hostname or "").is_loopback
    except ValueError:
        return False


async def _read_leader(transport: Transport) -> PublishedSettings:
    """The pod that holds the controller's lease; on EKS a webhook has put the region into its environment."""
    selected = {"fieldSelector": f"metadata.name={LEASE}"}
    for lease in await _list_items(transport, "/apis/coordination.k8s.io/v1/leases", **selected):
        # The holder is `POD_UID` in both controllers.
        pod = str((lease.get("spec") or {}).get("holderIdentity") or "").partition("_")[0]
        namespace = lease["metadata"].get("namespace", "")
        if pod and namespace:
            found = await _read_object(transport, f"/api/v1/namespaces/{namespace}/pods/{pod}")
            if found is not None:
                return _read_workloads("Pod", [found])
    return PublishedSettings()


def _read_workloads(kind: str, workloads: Iterable[Json]) -> PublishedSettings:
    """Of several, the one whose container is told the cluster's name: a router or a dashboard need not be."""
    best = PublishedSettings()
    for workload in workloads:
        spec = workload.get("spec") or {}
        template = spec if kind == "Pod" else (spec.get("template") or {}).get("spec") or {}
        meta = workload["metadata"]
        for container in template.get("containers") or ():
            environment = {**_read_environment(container), **_read_flags(container)}
            region = environment.pop(REGION, "")
            source = f"{kind} {meta.get('namespace', '')}/{meta['name']}"
            if environment.get(CLUSTER_NAME):
                return PublishedSettings(environment, region, source=source)
            best = (
                best.fill_from(PublishedSettings(environment, region, source=source)) if environment else best
            )
    return best


def _read_environment(container: Json) -> dict[str, str]:
    """Variables with a plain value; one that refers to others cannot be read from here."""
    listed = ((each.get("name"), each.get("value")) for each in container.get("env") or ())
    return {name: value for name, value in listed if name and value and "$(" not in value}


def _read_flags(container: Json) -> dict[str, str]:
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return dict(_settings_in(words))


def _settings_in(words: list[str]) -> Iterator[tuple[str, str]]:
    """Settings given as flags, by the variable of the same name: `--name=value` or `--name value`."""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        setting = BY_FLAG.get(f"--{name.lstrip('-')}") if name.startswith("-") else None
        if setting is not None:
            alone = "true" if setting.kind.read_flag is not None else following
            yield setting.variable, value if equals else alone


def _find_region(nodes: Iterable[Json]) -> str:
    for node in nodes:
        provider = str((node.get("spec") or {}).get("providerID") or "")
        if provider.startswith("aws:///"):
            region = (node["metadata"].get("labels") or {}).get("topology.kubernetes.io/region", "")
            named = _REGION.match(provider.removeprefix("aws:///"))
            return str(region) or (named[0] if named else "")
    return ""


async def _list_items(transport: Transport, path: str, **query: str) -> list[Json]:
    reply = await transport.send(ApiRequest("GET", path, query))
    return _decode_items(reply.body) if reply.status == 200 else []


async def _read_object(transport: Transport, path: str, **query: str) -> Json | None:
    reply = await transport.send(ApiRequest("GET", path, query))
    if reply.status != 200:
        return None
    found: Json = msgspec.json.decode(reply.body)
    return found
