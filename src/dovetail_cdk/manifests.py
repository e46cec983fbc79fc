"""The default pool and class of an add-on, in the words of the release they are for. Pure.

below 0.32    Provisioner and AWSNodeTemplate     default-provisioner, default-nodetemplate
below 1.0     NodePool and EC2NodeClass v1beta1   default-nodepool, default-ec2nodeclass
from 1.0      the same, v1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["AddOnRefused", "default_class", "defaults", "version_of"]

Json = dict[str, Any]
Version = tuple[int, int, int]
BETA, AL2023, V1 = (0, 32, 0), (0, 34, 0), (1, 0, 0)
# v1 admission knows this policy by a longer name.
RENAMED = {"WhenUnderutilized": "WhenEmptyOrUnderutilized"}
ALPHA_CLASS = ("subnetSelector", "securityGroupSelector", "amiSelector")


class AddOnRefused(ValueError):
    """The add-on cannot be deployed as it was asked for; the text says what to change."""


def version_of(text: str) -> Version:
    """1.3.0, v0.37.5 and 1.3.0-rc.1 alike."""
    parts = text.removeprefix("v").partition("-")[0].split(".")
    if not parts[0] or not all(part.isdigit() for part in parts):
        raise AddOnRefused(f"{text!r} is no version; write it as 1.3.0")
    major, minor, patch = (*map(int, parts), 0, 0)[:3]
    return major, minor, patch


def defaults(
    version: Version, pool: Mapping[str, Any], node_class: Mapping[str, Any] | None, surroundings: Json
) -> list[Json]:
    """The objects, the class first, without which a pool is nothing.

    `surroundings`: role, profile, cluster, ipv6.
    """
    node_class = default_class(version) if node_class is None else node_class
    requirements = [_requirement(each) for each in pool.get("requirements", ())]
    if version < BETA:
        found = _alpha(pool, requirements, node_class, surroundings)
    else:
        found = _pools(version, pool, requirements, node_class, surroundings)
    return [_without_nothing(each) for each in found]


def default_class(version: Version) -> Json:
    """The class of a pool that says nothing of one: Amazon Linux, the rest found by the cluster's tag."""
    if version >= V1:
        return {"amiSelectorTerms": [{"alias": "al2023@latest"}]}
    return {"amiFamily": "AL2023" if version >= AL2023 else "AL2"}


def _requirement(each: Mapping[str, Any]) -> Json:
    operator = {"operator": each.get("operator") or each.get("op") or "In"}
    return {"key": each["key"], **operator, "values": each.get("values", each.get("vals"))}


def _metadata_options(spec: Mapping[str, Any], ipv6: bool) -> Json:
    """Pods reach the metadata service too; blueprints always let them."""
    return {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "enabled" if ipv6 else "disabled",
        "httpPutResponseHopLimit": 2,
        "httpTokens": "required",
        **spec.get("metadataOptions", {}),
    }


def _alpha(
    pool: Mapping[str, Any],
    requirements: list[Json],
    node_class: Mapping[str, Any],
    around: Json,
) -> list[Json]:
    kept = ("labels", "annotations", "taints", "startupTaints", "consolidation", "limits", "weight")
    times = ("ttlSecondsAfterEmpty", "ttlSecondsUntilExpired")
    spec = {name: pool.get(name) for name in (*kept, *times)} | {"requirements": requirements}
    spec["providerRef"] = {"name": "default-nodetemplate"}
    discovered = {"karpenter.sh/discovery": around["cluster"]}
    inner = {
        "subnetSelector": discovered,
        "securityGroupSelector": discovered,
        "instanceProfile": around["profile"],
        **node_class,
        "metadataOptions": _metadata_options(node_class, around["ipv6"]),
    }
    return [
        _object("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate", "default-nodetemplate", inner),
        _object("karpenter.sh/v1alpha5", "Provisioner", "default-provisioner", spec),
    ]


def _pools(
    version: Version,
    pool: Mapping[str, Any],
    requirements: list[Json],
    node_class: Mapping[str, Any],
    around: Json,
) -> list[Json]:
    api = "v1" if version >= V1 else "v1beta1"
    inner = {name: pool.get(name) for name in ("taints", "startupTaints")} | {"requirements": requirements}
    disruption = dict(pool.get("disruption") or {})
    expire = pool.get("expireAfter") or disruption.pop("expireAfter", None)
    if version >= V1:
        policy = disruption.get("consolidationPolicy")
        disruption["consolidationPolicy"] = RENAMED.get(str(policy), policy)
        inner["expireAfter"] = expire
    else:
        disruption["expireAfter"] = expire
    kind = {"group": "karpenter.k8s.aws"} if api == "v1" else {"apiVersion": f"karpenter.k8s.aws/{api}"}
    inner["nodeClassRef"] = {**kind, "kind": "EC2NodeClass", "name": "default-ec2nodeclass"}
    template = {
        "metadata": {"labels": pool.get("labels"), "annotations": pool.get("annotations")},
        "spec": inner,
    }
    spec = {
        "template": template,
        "disruption": disruption,
        "limits": pool.get("limits"),
        "weight": pool.get("weight"),
    }
    return [
        _class(api, node_class, around),
        _object(f"karpenter.sh/{api}", "NodePool", "default-nodepool", spec),
    ]


def _class(api: str, given: Mapping[str, Any], around: Json) -> Json:
    if api == "v1" and not given.get("amiSelectorTerms"):
        raise AddOnRefused(
            "ec2_node_class_spec has no amiSelectorTerms, which v1 asks for; add for example "
            '[{"alias": "al2023@latest"}]'
        )
    discovered = [{"tags": {"karpenter.sh/discovery": around["cluster"]}}]
    spec: Json = {
        "subnetSelectorTerms": discovered,
        "securityGroupSelectorTerms": discovered,
        # Selectors of the first generation mean nothing here.
        **{name: value for name, value in given.items() if name not in ALPHA_CLASS},
        "metadataOptions": _metadata_options(given, around["ipv6"]),
    }
    if "instanceProfile" not in given:
        spec.setdefault("role", around["role"])
    return _object(f"karpenter.k8s.aws/{api}", "EC2NodeClass", "default-ec2nodeclass", spec)


def _object(api: str, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _without_nothing(value: Any) -> Any:
    """Without what was not given, at any depth."""
    if isinstance(value, Mapping):
        kept = {key: _without_nothing(each) for key, each in value.items() if each is not None}
        return {key: each for key, each in kept.items() if each != {}}
    return value
