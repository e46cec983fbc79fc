"""RBAC for the embedded API server: a client may do what the roles of its account grant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.sim.kube.faults import ApiCall, ApiFaults, Fault, NoFaults
from dovetail.sim.kube.status import ApiError

__all__ = ["Granted", "Rbac", "grants"]

Json = dict[str, Any]


@dataclass(frozen=True)
class Granted:
    """One verb on one resource, everywhere or in a namespace, perhaps for some names alone."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        which = f" named {', '.join(sorted(self.names))}" if self.names else ""
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}{where}{which}"

    def allows(self, call: ApiCall) -> bool:
        plural, _, group = call.resource.partition(".")
        wanted = f"{plural}/{call.subresource}" if call.subresource else plural
        return (
            self.verb == call.verb
            and self.group == group
            and self.resource == wanted
            and self.namespace in ("", call.namespace)
            and (not self.names or call.name in self.names)
        )


def grants(objects: Sequence[Json], account: str, namespace: str) -> list[Granted]:
    """What the bindings among these objects give a service account."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    roles = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    found: list[Granted] = []
    for each in objects:
        if each["kind"] not in ("ClusterRoleBinding", "RoleBinding") or subject not in each["subjects"]:
            continue
        where = each["metadata"]["namespace"] if each["kind"] == "RoleBinding" else ""
        role = roles[each["roleRef"]["kind"], each["roleRef"]["name"]]
        found += [grant for rule in role["rules"] for grant in _of_rule(rule, where)]
    return found


def _of_rule(rule: Mapping[str, Any], where: str) -> list[Granted]:
    names = frozenset(rule.get("resourceNames", ()))
    return [
        Granted(verb, group, resource, where, names)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@dataclass
class Rbac(ApiFaults):
    """Answers 403 to what a client was not granted, and remembers what was used and what was refused."""

    granted: Sequence[Granted]
    client: str = "karpenter"
    inner: ApiFaults = field(default_factory=NoFaults)
    used: set[Granted] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def find_fault(self, call: ApiCall) -> Fault | None:
        if call.client != self.client:
            return self.inner.find_fault(call)
        matching = [each for each in self.granted if each.allows(call)]
        if matching:
            self.used |= set(matching)
            return self.inner.find_fault(call)
        wanted = f"{call.verb} {call.resource}{'/' + call.subresource if call.subresource else ''}"
        self.refused.add(wanted)
        said = f'{call.resource} is forbidden: User "{self.client}" cannot {wanted} at the cluster scope'
        return Fault(error=ApiError(403, "Forbidden", said))

    @property
    def unused(self) -> set[str]:
        return {str(each) for each in self.granted if each not in self.used}
