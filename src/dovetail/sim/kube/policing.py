"""Asking the admission policies that are stored about each write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import policy, status
from dovetail.sim.kube.selectors import from_selector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.types import TypeInfo

_POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
_BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"


def ask(
    core: Core,
    info: TypeInfo,
    obj: dict[str, Any] | None,
    old: dict[str, Any] | None,
    operation: str,
    options: WriteOptions,
    subresource: str = "",
) -> None:
    """Refuse or warn as the bound policies say. Policies are not asked about themselves."""
    bindings = core.store.bucket(_BINDINGS).records
    if not bindings or info.group == "admissionregistration.k8s.io":
        return
    request = _request(core, info, obj, old, operation, options, subresource)
    policies = [record.obj for record in core.store.bucket(_POLICIES).in_namespace("")]
    bound = [record.obj for record in core.store.bucket(_BINDINGS).in_namespace("")]
    for finding in policy.review(policies, bound, request):
        if finding.action is policy.Action.DENY:
            raise _refusal(info, request.name, finding)
        if finding.action is policy.Action.WARN:
            text = f"Validation failed for {finding}"
            options.warnings.append(text)


def _refusal(info: TypeInfo, name: str, finding: policy.Finding) -> status.ApiError:
    resource = f"{info.plural}.{info.group}" if info.group else info.plural
    message = f'{resource} "{name}" is forbidden: {finding}'
    details = {"name": name, "kind": info.plural, "causes": [{"message": str(finding)}]}
    if info.group:
        details["group"] = info.group
    return status.ApiError(finding.code, finding.reason, message, details)


def _request(
    core: Core,
    info: TypeInfo,
    obj: dict[str, Any] | None,
    old: dict[str, Any] | None,
    operation: str,
    options: WriteOptions,
    subresource: str,
) -> policy.Request:
    metadata = (obj or old or {})["metadata"]
    namespace = metadata.get("namespace", "")
    return policy.Request(
        operation=operation,
        group=info.group,
        version=info.version,
        resource=info.plural,
        kind=info.kind,
        name=metadata.get("name", ""),
        namespace=namespace,
        subresource=subresource,
        object=obj,
        old=old,
        namespace_object=core.find("namespaces", "", namespace) if namespace else None,
        user={"username": options.user, "groups": ["system:masters"]},
        dry_run=options.dry_run,
        params=lambda kind, ref: _parameters(core, kind, ref, namespace),
    )


def _parameters(
    core: Core, kind: Mapping[str, Any], ref: Mapping[str, Any], namespace: str
) -> Sequence[dict[str, Any]]:
    """The objects a binding's paramRef names."""
    info = core.registry.by_kind(kind.get("apiVersion", ""), kind.get("kind", ""))
    if info is None:
        return ()
    home = (ref.get("namespace") or namespace) if info.namespaced else ""
    records = core.store.bucket(info.storage).in_namespace(home)
    if ref.get("name"):
        return [each.obj for each in records if each.key[1] == ref["name"]]
    matches = from_selector(ref.get("selector") or {})
    return [each.obj for each in records if matches(each.obj["metadata"].get("labels") or {})]
