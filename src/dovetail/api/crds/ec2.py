"""EC2NodeClass as admitted: karpenter.k8s.aws/v1, rules EC-1 to EC-28.

Where a rule says "excludes" but is written as `!self.all(…)`, only a list in which every term breaks it is
refused. That is Karpenter's laxness, and objects that rely on it exist. The same form refuses an empty list.
"""

from __future__ import annotations

import re
from typing import Any

from dovetail.api import labels
from dovetail.api.crds.definition import AGE, READY, AdmissionRule, CrdDefinition, PrinterColumn, cel_list
from dovetail.api.crds.ec2_fields import EC2_FIELDS, KUBELET_RULES
from dovetail.api.nodeclass import EC2NodeClass

ALIAS_FAMILIES = {
    "al2": "AL2",
    "al2023": "AL2023",
    "bottlerocket": "Bottlerocket",
    "windows2019": "Windows2019",
    "windows2022": "Windows2022",
    "windows2025": "Windows2025",
}
_WINDOWS = ("windows2019", "windows2022", "windows2025")
_ALIAS = "spec.amiSelectorTerms[].alias"
_AMIS = "spec.amiSelectorTerms"
_SUBNETS = "spec.subnetSelectorTerms"
_GROUPS = "spec.securityGroupSelectorTerms"
_RESERVATIONS = "spec.capacityReservationSelectorTerms"
_INTERFACES = "spec.networkInterfaces"
_EBS = "spec.blockDeviceMappings[].ebs"


def alias_family(alias: str) -> str:
    """The text before the first `@`."""
    return alias.split("@", 1)[0]


def _one_identity(spec: Any, _: Any) -> bool:
    return ("role" in spec) != ("instanceProfile" in spec)


def _family_is_known(spec: Any, _: Any) -> bool:
    return "amiFamily" in spec or any("alias" in term for term in spec["amiSelectorTerms"])


def _family_follows_alias(alias: str, family: str) -> AdmissionRule:
    def holds(spec: Any, _: Any) -> bool:
        aliased = any(alias_family(term.get("alias", "")) == alias for term in spec["amiSelectorTerms"])
        return not aliased or spec.get("amiFamily", family) in (family, "Custom")

    return AdmissionRule(
        f"EC-2:{alias}",
        "spec",
        f"with an {alias} alias, amiFamily can only be {family} or Custom",
        "!has(self.amiFamily) || !self.amiSelectorTerms.exists(t, has(t.alias) && "
        f"t.alias.find('^[^@]*') == '{alias}') || self.amiFamily in ['{family}', 'Custom']",
        holds,
    )


def _write_cel_has(names: tuple[str, ...], joined: str = " || ") -> str:
    return joined.join(f"has(t.{name})" for name in names)


def _not_empty(id: str, at: str) -> AdmissionRule:
    return AdmissionRule(
        id, at, "at least one term is needed", "self.size() != 0", lambda terms, _: len(terms) != 0
    )


def _each_selects(id: str, at: str, *names: str) -> AdmissionRule:
    return AdmissionRule(
        id,
        at,
        f"every term needs one of {', '.join(names)}",
        f"self.all(t, {_write_cel_has(names)})",
        lambda terms, _: all(any(name in term for name in names) for term in terms),
    )


def _none_mixes(id: str, at: str, name: str, *others: str) -> AdmissionRule:
    """No term has this field together with the others."""
    return AdmissionRule(
        id,
        at,
        f"{name} excludes {', '.join(others)} in the same term",
        f"!self.exists(t, has(t.{name}) && ({_write_cel_has(others)}))",
        lambda terms, _: not any(_is_mixed(term, name, others) for term in terms),
    )


def _not_all_mix(id: str, at: str, name: str, *others: str) -> AdmissionRule:
    """Not every term has this field together with the others: the lax form."""
    return AdmissionRule(
        id,
        at,
        f"{name} excludes {', '.join(others)} in the same term",
        f"!self.all(t, has(t.{name}) && ({_write_cel_has(others)}))",
        lambda terms, _: not all(_is_mixed(term, name, others) for term in terms),
    )


def _is_mixed(term: Any, name: str, others: tuple[str, ...]) -> bool:
    return name in term and any(other in term for other in others)


def _alias_alone_in_list(terms: Any, _: Any) -> bool:
    return len(terms) == 1 or not any("alias" in term for term in terms)


def _alias_version_is_free(alias: str, _: Any) -> bool:
    return alias_family(alias) not in _WINDOWS or alias.endswith("@latest")


def _has_primary(interfaces: Any, _: Any) -> bool:
    return not interfaces or any(
        (i["networkCardIndex"], i["deviceIndex"], i["interfaceType"]) == (0, 0, "interface")
        for i in interfaces
    )


def _places_are_unique(interfaces: Any, _: Any) -> bool:
    places = [(i["networkCardIndex"], i["deviceIndex"]) for i in interfaces]
    return len(set(places)) == len(places)


def _one_efa_per_card(interfaces: Any, _: Any) -> bool:
    cards = [i["networkCardIndex"] for i in interfaces if i["interfaceType"] == "efa-only"]
    return len(set(cards)) == len(cards)


def _one_root(devices: Any, _: Any) -> bool:
    return len([device for device in devices if device.get("rootVolume")]) <= 1


def _rate_has_snapshot(ebs: Any, _: Any) -> bool:
    return "volumeInitializationRate" not in ebs or ebs.get("snapshotID", "") != ""


def _not_blank(id: str, at: str) -> AdmissionRule:
    return AdmissionRule(
        id, at, f"{at.rpartition('.')[2]} may not be empty", "self != ''", lambda value, _: value != ""
    )


def _reserved_tag(id: str, key: str) -> AdmissionRule:
    return AdmissionRule(
        id,
        "spec.tags",
        f"the tag {key} is reserved",
        f"!('{key}' in self)",
        lambda tags, _: key not in tags,
    )


def _full_tags(at: str) -> AdmissionRule:
    return AdmissionRule(
        f"EC-28:{at.split('.')[1].removesuffix('[]')}",
        at,
        "tags may have no empty keys or values",
        "self.all(k, k != '' && self[k] != '')",
        lambda tags, _: all(key != "" and value != "" for key, value in tags.items()),
    )


RULES: tuple[AdmissionRule, ...] = (
    AdmissionRule(
        "EC-1",
        "spec",
        "exactly one of role and instanceProfile is needed",
        "has(self.role) != has(self.instanceProfile)",
        _one_identity,
    ),
    *(_family_follows_alias(alias, family) for alias, family in ALIAS_FAMILIES.items()),
    AdmissionRule(
        "EC-3",
        "spec",
        "without an alias, amiFamily is needed",
        "has(self.amiFamily) || self.amiSelectorTerms.exists(t, has(t.alias))",
        _family_is_known,
    ),
    # An owner alone selects nothing.
    _each_selects("EC-4", _AMIS, "tags", "id", "name", "alias", "ssmParameter"),
    AdmissionRule(
        "EC-5",
        _ALIAS,
        "an alias has the form family@version",
        "self.matches('^[a-zA-Z0-9]+@.+$')",
        lambda alias, _: re.fullmatch(r"[a-zA-Z0-9]+@.+", alias) is not None,
    ),
    AdmissionRule(
        "EC-6",
        _ALIAS,
        f"the alias family must be one of {', '.join(ALIAS_FAMILIES)}",
        f"self.find('^[^@]*') in {cel_list(tuple(ALIAS_FAMILIES))}",
        lambda alias, _: alias_family(alias) in ALIAS_FAMILIES,
    ),
    AdmissionRule(
        "EC-7",
        _ALIAS,
        "Windows images cannot be pinned: the version must be latest",
        f"!(self.find('^[^@]*') in {cel_list(_WINDOWS)}) || self.endsWith('@latest')",
        _alias_version_is_free,
    ),
    # Karpenter: ssmParameter takes no part in these two.
    _none_mixes("EC-8", _AMIS, "id", "alias", "tags", "name", "owner"),
    _none_mixes("EC-9", _AMIS, "alias", "id", "tags", "name", "owner"),
    AdmissionRule(
        "EC-10",
        _AMIS,
        "an alias must be the only term",
        "self.size() == 1 || !self.exists(t, has(t.alias))",
        _alias_alone_in_list,
    ),
    _not_empty("EC-11:empty", _SUBNETS),
    _each_selects("EC-11:selects", _SUBNETS, "tags", "id"),
    _not_all_mix("EC-11:id", _SUBNETS, "id", "tags"),
    _not_empty("EC-12:empty", _GROUPS),
    _each_selects("EC-12:selects", _GROUPS, "tags", "id", "name"),
    _not_all_mix("EC-12:id", _GROUPS, "id", "tags", "name"),
    _not_all_mix("EC-12:name", _GROUPS, "name", "tags", "id"),
    _each_selects("EC-13:selects", _RESERVATIONS, "tags", "id", "instanceMatchCriteria"),
    _not_all_mix("EC-13:id", _RESERVATIONS, "id", "tags", "ownerID", "instanceMatchCriteria"),
    AdmissionRule(
        "EC-14",
        _INTERFACES,
        "one interface must be the primary: card 0, device 0, type interface",
        "self.size() == 0 || self.exists(i, i.networkCardIndex == 0 && i.deviceIndex == 0 && "
        "i.interfaceType == 'interface')",
        _has_primary,
    ),
    AdmissionRule(
        "EC-15:place",
        _INTERFACES,
        "no two interfaces share a card and a device index",
        "self.all(i, self.exists_one(j, i.networkCardIndex == j.networkCardIndex && "
        "i.deviceIndex == j.deviceIndex))",
        _places_are_unique,
    ),
    AdmissionRule(
        "EC-15:efa",
        _INTERFACES,
        "a card has at most one efa-only interface",
        "self.all(i, i.interfaceType != 'efa-only' || self.exists_one(j, j.interfaceType == 'efa-only' && "
        "i.networkCardIndex == j.networkCardIndex))",
        _one_efa_per_card,
    ),
    AdmissionRule(
        "EC-16",
        "spec.connectionTracking",
        "at least one timeout is needed",
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
        lambda value, _: any(
            name in value for name in ("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")
        ),
    ),
    AdmissionRule(
        "EC-17",
        "spec.placementGroupSelector",
        "exactly one of name and id is needed",
        "has(self.name) != has(self.id)",
        lambda value, _: ("name" in value) != ("id" in value),
    ),
    AdmissionRule(
        "EC-18",
        "spec.blockDeviceMappings",
        "at most one volume can be the root",
        "self.filter(d, has(d.rootVolume) && d.rootVolume).size() <= 1",
        _one_root,
    ),
    AdmissionRule(
        "EC-19:size",
        _EBS,
        "snapshotID or volumeSize is needed",
        "has(self.snapshotID) || has(self.volumeSize)",
        lambda ebs, _: "snapshotID" in ebs or "volumeSize" in ebs,
    ),
    AdmissionRule(
        "EC-19:rate",
        _EBS,
        "volumeInitializationRate needs a snapshotID",
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        _rate_has_snapshot,
    ),
    _not_blank("EC-20", "spec.role"),
    _not_blank("EC-21", "spec.instanceProfile"),
    AdmissionRule(
        "EC-22",
        "spec.tags",
        "tags may have no empty keys",
        "!('' in self)",
        lambda tags, _: "" not in tags,
    ),
    _reserved_tag("EC-23", labels.EKS_CLUSTER_TAG),
    AdmissionRule(
        "EC-24",
        "spec.tags",
        "tags that start with kubernetes.io/cluster are reserved",
        "self.all(k, !k.startsWith('kubernetes.io/cluster'))",
        lambda tags, _: not any(key.startswith("kubernetes.io/cluster") for key in tags),
    ),
    _reserved_tag("EC-25", labels.NODEPOOL),
    _reserved_tag("EC-26", labels.NODECLAIM_TAG),
    _reserved_tag("EC-27", labels.EC2_NODECLASS),
    *(_full_tags(f"{at}[].tags") for at in (_SUBNETS, _GROUPS, _RESERVATIONS, _AMIS)),
    *(rule.move_under("spec.kubelet") for rule in KUBELET_RULES),
)

EC2NODECLASS = CrdDefinition(
    EC2NodeClass,
    "How EC2 instances are made.",
    EC2_FIELDS,
    RULES,
    (READY, AGE, PrinterColumn("Role", ".spec.role", priority=1)),
    short_names=("ec2nc", "ec2ncs"),
)
