"""Asking the admission policies that are stored about each write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from dovetail.api.schema.cel import CelError, compile_rule
from dovetail.api.schema.cel_cost import CostBudget
from dovetail.sim.kube import status
from dovetail.sim.kube.selectors import build_label_matcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.sim.kube.core import Core, WriteOptions
    from dovetail.sim.kube.types import TypeInfo


Object = Mapping[str, Any]


class PolicyAction(Enum):
    """What a binding does with a failed validation."""

    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"


@dataclass(frozen=True)
class AdmissionRequest:
    """One write, as policies see it. `object` is None on delete, `old` on create."""

    operation: str
    group: str
    version: str
    resource: str
    kind: str
    name: str = ""
    namespace: str = ""
    subresource: str = ""
    object: Object | None = None
    old: Object | None = None
    namespace_object: Object | None = None
    user: Mapping[str, Any] = field(default_factory=dict)
    dry_run: bool = False
    # Finds the parameters a binding names: its paramKind and paramRef in, objects out.
    params: Callable[[Object, Object], Sequence[Object]] = lambda kind, ref: ()


@dataclass(frozen=True, slots=True)
class PolicyViolation:
    """One failed validation, and what its binding asks for."""

    action: PolicyAction
    policy: str
    binding: str
    message: str
    reason: str = "Invalid"

    @property
    def code(self) -> int:
        """The HTTP status of the reason."""
        return {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}.get(self.reason, 422)

    def __str__(self) -> str:
        return (
            f"ValidatingAdmissionPolicy '{self.policy}' with binding '{self.binding}' "
            f"denied request: {self.message}"
        )


def review_request(
    policies: Sequence[Object], bindings: Sequence[Object], request: AdmissionRequest
) -> list[PolicyViolation]:
    """Everything bound policies have against the request, in the order of their names."""
    by_name = {policy["metadata"]["name"]: policy for policy in policies}
    findings: list[PolicyViolation] = []
    for binding in sorted(bindings, key=lambda b: str(b["metadata"]["name"])):
        policy = by_name.get((binding.get("spec") or {}).get("policyName"))
        if policy is not None and _policy_applies(policy, binding, request):
            findings.extend(_find_violations(policy, binding, request))
    return findings


def _policy_applies(policy: Object, binding: Object, request: AdmissionRequest) -> bool:
    constraints = (policy.get("spec") or {}).get("matchConstraints") or {}
    narrower = (binding.get("spec") or {}).get("matchResources") or {}
    return _constraints_match(constraints, request, needs_rules=True) and _constraints_match(
        narrower, request, needs_rules=False
    )


def _constraints_match(constraints: Object, request: AdmissionRequest, *, needs_rules: bool) -> bool:
    rules = constraints.get("resourceRules") or ()
    if (rules or needs_rules) and not any(_rule_matches(rule, request) for rule in rules):
        return False
    if any(_rule_matches(rule, request) for rule in constraints.get("excludeResourceRules") or ()):
        return False
    return _selector_matches(constraints.get("namespaceSelector"), _find_namespace_labels(request)) and any(
        _selector_matches(constraints.get("objectSelector"), labels)
        for labels in _list_object_labels(request)
    )


def _rule_matches(rule: Object, request: AdmissionRequest) -> bool:
    target = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    patterns = {target, "*/*", f"{request.resource}/*"}
    patterns |= {f"*/{request.subresource}"} if request.subresource else {"*"}
    scope = rule.get("scope") or "*"
    namespaced = bool(request.namespace) and request.resource != "namespaces"
    return (
        _allows_value(rule.get("operations"), request.operation)
        and _allows_value(rule.get("apiGroups"), request.group)
        and _allows_value(rule.get("apiVersions"), request.version)
        and not patterns.isdisjoint(rule.get("resources") or ())
        and (not rule.get("resourceNames") or request.name in rule["resourceNames"])
        and scope in ("*", "Namespaced" if namespaced else "Cluster")
    )


def _allows_value(allowed: Sequence[str] | None, value: str) -> bool:
    return "*" in (allowed or ()) or value in (allowed or ())


def _selector_matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    if not selector or labels is None:
        return True
    return build_label_matcher(dict(selector))(dict(labels))


def _find_namespace_labels(request: AdmissionRequest) -> Mapping[str, str] | None:
    """The labels of the namespace; None for a cluster-scoped object, which every selector takes."""
    source = request.namespace_object
    if request.resource == "namespaces":
        source = request.object or request.old
    return None if source is None else (source.get("metadata") or {}).get("labels") or {}


def _list_object_labels(request: AdmissionRequest) -> list[Mapping[str, str]]:
    objects = [obj for obj in (request.object, request.old) if obj is not None]
    return [(obj.get("metadata") or {}).get("labels") or {} for obj in objects] or [{}]


def _find_violations(policy: Object, binding: Object, request: AdmissionRequest) -> Iterator[PolicyViolation]:
    spec, bound = policy.get("spec") or {}, binding.get("spec") or {}
    actions = [PolicyAction(action) for action in bound.get("validationActions") or ("Deny",)]
    for message, reason in _find_failures(spec, bound, request):
        for action in actions:
            yield PolicyViolation(
                action, policy["metadata"]["name"], binding["metadata"]["name"], message, reason
            )


def _find_failures(spec: Object, bound: Object, request: AdmissionRequest) -> Iterator[tuple[str, str]]:
    fails = spec.get("failurePolicy", "Fail") != "Ignore"
    params: Sequence[Object | None] = (None,)
    if spec.get("paramKind"):
        reference = bound.get("paramRef") or {}
        params = request.params(spec["paramKind"], reference)
        if not params and reference.get("parameterNotFoundAction", "Deny") == "Deny":
            yield "failed to configure binding: no params found for policy binding", "Invalid"
    for param in params:
        budget = CostBudget()
        try:
            scope = _build_scope(spec, request, param, budget)
            wanted = all(
                _evaluate_bool(condition["expression"], scope, budget)
                for condition in spec.get("matchConditions") or ()
            )
        except CelError as error:
            if fails:
                yield f"expression could not be evaluated: {error}", "Invalid"
            continue
        if wanted:
            yield from _run_validations(spec, scope, fails, budget)


def _run_validations(
    spec: Object, scope: dict[str, Any], fails: bool, budget: CostBudget
) -> Iterator[tuple[str, str]]:
    for validation in spec.get("validations") or ():
        text = validation.get("expression") or ""
        try:
            if not _evaluate_bool(text, scope, budget):
                yield _build_message(validation, scope, budget), validation.get("reason") or "Invalid"
        except CelError as error:
            if fails:
                yield f"expression '{text}' resulted in error: {error}", "Invalid"


def _evaluate_bool(text: str, scope: Mapping[str, Any], budget: CostBudget) -> bool:
    answer = compile_rule(text).compute_value(scope, budget)
    if not isinstance(answer, bool):
        raise CelError(f"the expression {text!r} does not give a bool")
    return answer


def _build_message(validation: Object, scope: Mapping[str, Any], budget: CostBudget) -> str:
    expression = validation.get("messageExpression")
    if expression:
        try:
            text = compile_rule(expression).compute_value(scope, budget)
        except CelError:
            text = None  # a message that cannot be made gives way to the fixed one
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text.strip()
    return validation.get("message") or f"failed expression: {validation.get('expression', '').strip()}"


def _build_scope(
    spec: Object, request: AdmissionRequest, param: Object | None, budget: CostBudget
) -> dict[str, Any]:
    """What expressions can name. A variable that fails is absent, so that only its users fail."""
    scope: dict[str, Any] = {
        "object": request.object,
        "oldObject": request.old,
        "request": _build_request_value(request),
        "namespaceObject": request.namespace_object,
        "params": param,
        "variables": {},
    }
    for variable in spec.get("variables") or ():
        try:
            value = compile_rule(variable.get("expression") or "").compute_value(scope, budget)
        except CelError:
            continue
        scope["variables"] = {**scope["variables"], variable["name"]: value}
    return scope


def _build_request_value(request: AdmissionRequest) -> dict[str, Any]:
    resource = {"group": request.group, "version": request.version, "resource": request.resource}
    return {
        "operation": request.operation,
        "kind": {"group": request.group, "version": request.version, "kind": request.kind},
        "resource": resource,
        "requestResource": resource,
        "subResource": request.subresource,
        "name": request.name,
        "namespace": request.namespace,
        "userInfo": dict(request.user),
        "dryRun": request.dry_run,
    }


_POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
_BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"


def check_policies(
    core: Core,
    info: TypeInfo,
    obj: dict[str, Any] | None,
    old: dict[str, Any] | None,
    operation: str,
    options: WriteOptions,
    subresource: str = "",
) -> None:
    """Refuse or warn as the bound policies say. Policies are not asked about themselves."""
    bindings = core.store.get_bucket(_BINDINGS).records
    if not bindings or info.group == "admissionregistration.k8s.io":
        return
    request = _build_request(core, info, obj, old, operation, options, subresource)
    policies = [record.obj for record in core.store.get_bucket(_POLICIES).in_namespace("")]
    bound = [record.obj for record in core.store.get_bucket(_BINDINGS).in_namespace("")]
    for finding in review_request(policies, bound, request):
        if finding.action is PolicyAction.DENY:
            raise _build_refusal(info, request.name, finding)
        if finding.action is PolicyAction.WARN:
            text = f"Validation failed for {finding}"
            options.warnings.append(text)


def _build_refusal(info: TypeInfo, name: str, finding: PolicyViolation) -> status.ApiError:
    resource = f"{info.plural}.{info.group}" if info.group else info.plural
    message = f'{resource} "{name}" is forbidden: {finding}'
    details = {"name": name, "kind": info.plural, "causes": [{"message": str(finding)}]}
    if info.group:
        details["group"] = info.group
    return status.ApiError(finding.code, finding.reason, message, details)


def _build_request(
    core: Core,
    info: TypeInfo,
    obj: dict[str, Any] | None,
    old: dict[str, Any] | None,
    operation: str,
    options: WriteOptions,
    subresource: str,
) -> AdmissionRequest:
    metadata = (obj or old or {})["metadata"]
    namespace = metadata.get("namespace", "")
    return AdmissionRequest(
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
        namespace_object=core.find_object("namespaces", "", namespace) if namespace else None,
        user={"username": options.user, "groups": ["system:masters"]},
        dry_run=options.dry_run,
        params=lambda kind, ref: _find_parameters(core, kind, ref, namespace),
    )


def _find_parameters(
    core: Core, kind: Mapping[str, Any], ref: Mapping[str, Any], namespace: str
) -> Sequence[dict[str, Any]]:
    """The objects a binding's paramRef names."""
    info = core.registry.find_by_kind(kind.get("apiVersion", ""), kind.get("kind", ""))
    if info is None:
        return ()
    home = (ref.get("namespace") or namespace) if info.namespaced else ""
    records = core.store.get_bucket(info.storage).in_namespace(home)
    if ref.get("name"):
        return [each.obj for each in records if each.key[1] == ref["name"]]
    matches = build_label_matcher(ref.get("selector") or {})
    return [each.obj for each in records if matches(each.obj["metadata"].get("labels") or {})]
