"""What Ingresses, NetworkPolicies and webhook configurations must be."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube.builtin.rules_pods import invalid_cause, required_cause, unsupported_cause

Json = dict[str, Any]
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_PROTOCOLS = ("SCTP", "TCP", "UDP")


def default_ingress(obj: Json) -> None:
    """Defaults of an Ingress: none, but a status."""
    obj.setdefault("status", {}).setdefault("loadBalancer", {})


def ingress_causes(obj: Json, old: Json | None) -> Iterator[Cause]:
    """What is wrong with an Ingress."""
    spec = obj.get("spec") or {}
    if not spec.get("rules") and not spec.get("defaultBackend"):
        yield invalid_cause("spec", "", "either `defaultBackend` or `rules` must be specified")
    for number, rule in enumerate(spec.get("rules") or ()):
        paths = (rule.get("http") or {}).get("paths")
        where = f"spec.rules[{number}].http.paths"
        if rule.get("http") is not None and not paths:
            yield required_cause(where)
        for index, path in enumerate(paths or ()):
            yield from _path_causes(path, f"{where}[{index}]")


def _path_causes(path: Json, where: str) -> Iterator[Cause]:
    kind = path.get("pathType")
    if kind is None:
        yield required_cause(f"{where}.pathType", "pathType must be specified")
    elif kind not in _PATH_TYPES:
        yield unsupported_cause(f"{where}.pathType", kind, _PATH_TYPES)
    elif kind != "ImplementationSpecific" and not path.get("path", "").startswith("/"):
        yield invalid_cause(f"{where}.path", path.get("path", ""), "must be an absolute path")
    backend = path.get("backend") or {}
    service, resource = backend.get("service"), backend.get("resource")
    if service and resource:
        yield invalid_cause(f"{where}.backend", "", "cannot set both resource and service backends")
    elif service is not None and not service.get("name"):
        yield required_cause(f"{where}.backend.service.name")
    elif service is not None and not {"name", "number"} & (service.get("port") or {}).keys():
        yield required_cause(f"{where}.backend", "port name or number is required")
    elif not service and not resource:
        yield required_cause(f"{where}.backend", "resource or service backend is required")


def default_network_policy(obj: Json) -> None:
    """Defaults of a NetworkPolicy."""
    spec = obj.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    for rule in _list_rules(spec):
        for port in rule.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _list_rules(spec: Json) -> Iterator[Json]:
    for part in ("ingress", "egress"):
        yield from (rule for rule in spec.get(part) or () if rule)


def network_policy_causes(obj: Json, old: Json | None) -> Iterator[Cause]:
    """What is wrong with a NetworkPolicy."""
    spec = obj.get("spec") or {}
    for part, peers in (("ingress", "from"), ("egress", "to")):
        for number, rule in enumerate(spec.get(part) or ()):
            where = f"spec.{part}[{number}]"
            for index, peer in enumerate(rule.get(peers) or ()):
                yield from _peer_causes(peer, f"{where}.{peers}[{index}]")
            for index, port in enumerate(rule.get("ports") or ()):
                if port.get("protocol") not in _PROTOCOLS:
                    yield unsupported_cause(
                        f"{where}.ports[{index}].protocol", port.get("protocol"), _PROTOCOLS
                    )


def _peer_causes(peer: Json, where: str) -> Iterator[Cause]:
    block = peer.get("ipBlock")
    if block is None:
        if not {"podSelector", "namespaceSelector"} & peer.keys():
            yield required_cause(where, "must specify a peer")
        return
    if {"podSelector", "namespaceSelector"} & peer.keys():
        yield invalid_cause(where, "", "may not specify both ipBlock and another peer")
    for path, cidr in (
        (f"{where}.ipBlock.cidr", block.get("cidr", "")),
        *((f"{where}.ipBlock.except[{i}]", each) for i, each in enumerate(block.get("except") or ())),
    ):
        if not _is_network(cidr):
            yield invalid_cause(path, cidr, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def default_webhooks(obj: Json) -> None:
    """Defaults of the webhooks of a configuration."""
    for hook in obj.get("webhooks") or ():
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        hook.setdefault("timeoutSeconds", 10)
        if obj["kind"].startswith("Mutating"):
            hook.setdefault("reinvocationPolicy", "Never")
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")
        service = (hook.get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)


def webhook_causes(obj: Json, old: Json | None) -> Iterator[Cause]:
    """What is wrong with the webhooks of a configuration."""
    names: set[str] = set()
    for index, hook in enumerate(obj.get("webhooks") or ()):
        where = f"webhooks[{index}]"
        name = hook.get("name", "")
        if name.count(".") < 2:
            yield invalid_cause(
                f"{where}.name", name, "should be a domain with at least three segments separated by dots"
            )
        if name in names:
            yield Cause(f"{where}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
        names.add(name)
        versions = hook.get("admissionReviewVersions")
        if not versions:
            yield required_cause(f"{where}.admissionReviewVersions", "must specify one of v1, v1beta1")
        if hook.get("sideEffects") is None:
            yield required_cause(f"{where}.sideEffects", "must specify one of None, NoneOnDryRun")
        elif hook["sideEffects"] not in ("None", "NoneOnDryRun"):
            yield unsupported_cause(f"{where}.sideEffects", hook["sideEffects"], ("None", "NoneOnDryRun"))
        if not 1 <= hook.get("timeoutSeconds", 10) <= 30:
            yield invalid_cause(
                f"{where}.timeoutSeconds",
                hook["timeoutSeconds"],
                "the timeout value must be between 1 and 30 seconds",
            )
        config = hook.get("clientConfig") or {}
        if bool(config.get("url")) == bool(config.get("service")):
            yield required_cause(f"{where}.clientConfig", "exactly one of url or service is required")
