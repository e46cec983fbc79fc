"""What a pod must be, and what of it may change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dovetail.api.quantity import Quantity
from dovetail.api.schema.causes import Cause, format_value
from dovetail.sim.kube.meta import labels_causes
from dovetail.sim.kube.selectors import is_qualified_name

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_PLAIN_RESOURCES = ("cpu", "memory", "ephemeral-storage", "storage", "pods")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_TOLERATION_OPERATORS = ("", "Equal", "Exists", "Gt", "Lt")


def required_cause(path: str, detail: str = "") -> Cause:
    """A field that must be there and is not."""
    return Cause(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid_cause(path: str, value: Any, detail: str) -> Cause:
    """A field whose value cannot be."""
    shown = f'"{value}"' if isinstance(value, str) else format_value(value)
    return Cause(path, "FieldValueInvalid", f"Invalid value: {shown}: {detail}")


def unsupported_cause(path: str, value: Any, allowed: Iterable[str]) -> Cause:
    """A field whose value is none of those allowed."""
    listed = ", ".join(f'"{each}"' for each in allowed if each)
    return Cause(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}')


def forbidden_cause(path: str, detail: str) -> Cause:
    """A field that may not be given or changed."""
    return Cause(path, "FieldValueForbidden", f"Forbidden: {detail}")


def pod_causes(obj: dict[str, Any], old: dict[str, Any] | None, subresource: str = "") -> list[Cause]:
    """What is wrong with a pod."""
    if old is None:
        return list(pod_spec_causes(obj.get("spec") or {}, "spec"))
    return list(pod_change_causes(obj["spec"], old["spec"], subresource))


def pod_spec_causes(spec: dict[str, Any], path: str, claims: Iterable[str] = ()) -> Iterator[Cause]:
    """What is wrong with a pod spec; `claims` are volumes that come with the pod, from its StatefulSet."""
    if not spec.get("containers"):
        yield required_cause(f"{path}.containers")
    volumes = [*(volume.get("name", "") for volume in spec.get("volumes") or ()), *claims]
    names: set[str] = set()
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield from _container_causes(container, f"{path}.{part}[{index}]", names, volumes)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        choices = ("Always", "OnFailure", "Never")
        yield unsupported_cause(f"{path}.restartPolicy", spec.get("restartPolicy", ""), choices)
    yield from labels_causes(f"{path}.nodeSelector", spec.get("nodeSelector") or {})
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_causes(toleration, f"{path}.tolerations[{index}]")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread_causes(constraint, f"{path}.topologySpreadConstraints[{index}]")
    yield from _affinity_causes(spec.get("affinity") or {}, f"{path}.affinity")
    yield from _duplicate_causes(
        [gate.get("name") for gate in spec.get("schedulingGates") or ()], f"{path}.schedulingGates"
    )
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden_cause(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")


def _duplicate_causes(names: Iterable[Any], path: str) -> Iterator[Cause]:
    seen = set()
    for index, name in enumerate(names):
        if name in seen:
            yield Cause(f"{path}[{index}]", "FieldValueDuplicate", f'Duplicate value: "{name}"')
        seen.add(name)


def _container_causes(
    container: dict[str, Any], path: str, names: set[str], volumes: list[str]
) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield required_cause(f"{path}.name")
    elif len(name) > 63 or not _DNS_LABEL.match(name):
        yield invalid_cause(f"{path}.name", name, "must be a lowercase RFC 1123 label")
    elif name in names:
        yield Cause(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
    names.add(name)
    if not container.get("image"):
        yield required_cause(f"{path}.image")
    yield from resources_causes(container.get("resources") or {}, f"{path}.resources")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            place = f"{path}.volumeMounts[{index}].name"
            yield Cause(place, "FieldValueNotFound", f'Not found: "{mount.get("name", "")}"')
    for index, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort", 0)
        if not 0 < number < 65536:
            yield invalid_cause(
                f"{path}.ports[{index}].containerPort", number, "must be between 1 and 65535, inclusive"
            )


def resources_causes(resources: dict[str, Any], path: str) -> Iterator[Cause]:
    """What is wrong with requests and limits."""
    limits = resources.get("limits") or {}
    for part in ("limits", "requests"):
        for name, amount in (resources.get(part) or {}).items():
            place = f"{path}.{part}[{name}]"
            known = name in _PLAIN_RESOURCES or name.startswith("hugepages-")
            if not known and ("/" not in name or not is_qualified_name(name)):
                yield invalid_cause(place, name, "must be a standard resource for containers")
            if Quantity.parse(amount) < Quantity():
                yield invalid_cause(place, amount, "must be greater than or equal to 0")
            if (
                part == "requests"
                and name in limits
                and Quantity.parse(amount) > Quantity.parse(limits[name])
            ):
                yield invalid_cause(
                    f"{path}.requests",
                    amount,
                    f"must be less than or equal to {name} limit of {limits[name]}",
                )


def _toleration_causes(toleration: dict[str, Any], path: str) -> Iterator[Cause]:
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    if operator not in _TOLERATION_OPERATORS:
        yield unsupported_cause(f"{path}.operator", operator, _TOLERATION_OPERATORS)
    if not toleration.get("key") and operator != "Exists":
        yield invalid_cause(f"{path}.operator", operator, "operator must be Exists when `key` is empty")
    if toleration.get("value") and operator == "Exists":
        yield invalid_cause(
            f"{path}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'"
        )
    if effect and effect not in _EFFECTS:
        yield unsupported_cause(f"{path}.effect", effect, _EFFECTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield invalid_cause(
            f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
        )


def _spread_causes(constraint: dict[str, Any], path: str) -> Iterator[Cause]:
    if constraint.get("maxSkew", 0) <= 0:
        yield invalid_cause(f"{path}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield required_cause(f"{path}.topologyKey", "can not be empty")
    choices = ("DoNotSchedule", "ScheduleAnyway")
    if constraint.get("whenUnsatisfiable") not in choices:
        yield unsupported_cause(f"{path}.whenUnsatisfiable", constraint.get("whenUnsatisfiable", ""), choices)
    if constraint.get("minDomains") is not None and constraint.get("whenUnsatisfiable") == "ScheduleAnyway":
        detail = "can only use minDomains if whenUnsatisfiable=DoNotSchedule"
        yield invalid_cause(f"{path}.minDomains", constraint["minDomains"], detail)


def _affinity_causes(affinity: dict[str, Any], path: str) -> Iterator[Cause]:
    node = affinity.get("nodeAffinity") or {}
    needed = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if needed is not None:
        place = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not needed.get("nodeSelectorTerms"):
            yield required_cause(place, "must have at least one node selector term")
        for index, term in enumerate(needed.get("nodeSelectorTerms") or ()):
            yield from _expression_causes(term, f"{place}[{index}]", _NODE_OPERATORS)
    place = f"{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    for index, wish in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        if not 1 <= wish.get("weight", 0) <= 100:
            yield invalid_cause(
                f"{place}[{index}].weight", wish.get("weight", 0), "must be in the range 1-100"
            )
        yield from _expression_causes(
            wish.get("preference") or {}, f"{place}[{index}].preference", _NODE_OPERATORS
        )
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity_causes(affinity.get(kind) or {}, f"{path}.{kind}")


def _pod_affinity_causes(affinity: dict[str, Any], path: str) -> Iterator[Cause]:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [(f"{path}.{name}[{i}]", term) for i, term in enumerate(affinity.get(name) or ())]
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, wish in enumerate(affinity.get(name) or ()):
        place = f"{path}.{name}[{index}]"
        if not 1 <= wish.get("weight", 0) <= 100:
            yield invalid_cause(f"{place}.weight", wish.get("weight", 0), "must be in the range 1-100")
        terms.append((f"{place}.podAffinityTerm", wish.get("podAffinityTerm") or {}))
    for place, term in terms:
        if not term.get("topologyKey"):
            yield required_cause(f"{place}.topologyKey", "can not be empty")
        yield from _expression_causes(
            term.get("labelSelector") or {}, f"{place}.labelSelector", _SELECTOR_OPERATORS
        )


def _expression_causes(term: dict[str, Any], path: str, operators: tuple[str, ...]) -> Iterator[Cause]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        place = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator", ""), expression.get("values") or ()
        if operator not in operators:
            yield unsupported_cause(f"{place}.operator", operator, operators)
        elif operator in ("In", "NotIn") and not values:
            yield required_cause(f"{place}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            yield forbidden_cause(
                f"{place}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )
        elif operator in ("Gt", "Lt") and len(values) != 1:
            yield required_cause(
                f"{place}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
        if not is_qualified_name(expression.get("key", "")):
            yield invalid_cause(f"{place}.key", expression.get("key", ""), "name part must be non-empty")


def pod_change_causes(new: dict[str, Any], old: dict[str, Any], subresource: str) -> Iterator[Cause]:
    """What of a pod was changed and may not be."""
    gates = [gate.get("name") for gate in old.get("schedulingGates") or ()]
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in gates:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden_cause(f"spec.schedulingGates[{index}].name", text)
    tolerations = new.get("tolerations") or []
    if any(each not in tolerations for each in old.get("tolerations") or ()):
        yield forbidden_cause(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
    if _restore_changeable(new, old, subresource, bool(gates)) != old:
        yield forbidden_cause(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`, "
            "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` "
            "(only additions to existing tolerations), `spec.terminationGracePeriodSeconds` "
            "(allow it to be set to 1 if it was previously negative)",
        )


def _restore_changeable(
    new: dict[str, Any], old: dict[str, Any], subresource: str, gated: bool
) -> dict[str, Any]:
    """The new spec with everything that may change put back as it was."""
    spec = dict(new)
    free = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if old.get("terminationGracePeriodSeconds", 0) < 0 and new.get("terminationGracePeriodSeconds") == 1:
        free.append("terminationGracePeriodSeconds")
    if subresource == "ephemeralcontainers":
        free.append("ephemeralContainers")
    if gated:
        free += ["nodeSelector", "affinity"]
    for name in free:
        spec.pop(name, None)
        if name in old:
            spec[name] = old[name]
    changeable = ["image", "resources"] if subresource == "resize" else ["image"]
    for part in ("containers", "initContainers"):
        before = old.get(part) or []
        if len(spec.get(part) or ()) == len(before):
            pairs = zip(spec.get(part) or (), before, strict=True)
            spec[part] = [{**a, **{name: b.get(name) for name in changeable if name in b}} for a, b in pairs]
            if part not in old and not spec[part]:
                del spec[part]
    return spec
