"""ValidatingAdmissionPolicies: rules in CEL that any write must satisfy, bound to where they apply.

Pure: policies, bindings and a request in, findings out. The server denies, warns or notes by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dovetail.sim.kube.cel import CelError, compile_rule
from dovetail.sim.kube.cel_cost import CostBudget
from dovetail.sim.kube.selectors import from_selector

Object = Mapping[str, Any]


class Action(Enum):
    """What a binding does with a failed validation."""

    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"


@dataclass(frozen=True)
class Request:
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
class Finding:
    """One failed validation, and what its binding asks for."""

    action: Action
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


def review(policies: Sequence[Object], bindings: Sequence[Object], request: Request) -> list[Finding]:
    """Everything bound policies have against the request, in the order of their names."""
    by_name = {policy["metadata"]["name"]: policy for policy in policies}
    findings: list[Finding] = []
    for binding in sorted(bindings, key=lambda b: str(b["metadata"]["name"])):
        policy = by_name.get((binding.get("spec") or {}).get("policyName"))
        if policy is not None and _applies(policy, binding, request):
            findings.extend(_findings(policy, binding, request))
    return findings


def _applies(policy: Object, binding: Object, request: Request) -> bool:
    constraints = (policy.get("spec") or {}).get("matchConstraints") or {}
    narrower = (binding.get("spec") or {}).get("matchResources") or {}
    return _matches(constraints, request, needs_rules=True) and _matches(narrower, request, needs_rules=False)


def _matches(constraints: Object, request: Request, *, needs_rules: bool) -> bool:
    rules = constraints.get("resourceRules") or ()
    if (rules or needs_rules) and not any(_rule_matches(rule, request) for rule in rules):
        return False
    if any(_rule_matches(rule, request) for rule in constraints.get("excludeResourceRules") or ()):
        return False
    return _selected(constraints.get("namespaceSelector"), _namespace_labels(request)) and any(
        _selected(constraints.get("objectSelector"), labels) for labels in _object_labels(request)
    )


def _rule_matches(rule: Object, request: Request) -> bool:
    target = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    patterns = {target, "*/*", f"{request.resource}/*"}
    patterns |= {f"*/{request.subresource}"} if request.subresource else {"*"}
    scope = rule.get("scope") or "*"
    namespaced = bool(request.namespace) and request.resource != "namespaces"
    return (
        _any(rule.get("operations"), request.operation)
        and _any(rule.get("apiGroups"), request.group)
        and _any(rule.get("apiVersions"), request.version)
        and not patterns.isdisjoint(rule.get("resources") or ())
        and (not rule.get("resourceNames") or request.name in rule["resourceNames"])
        and scope in ("*", "Namespaced" if namespaced else "Cluster")
    )


def _any(allowed: Sequence[str] | None, value: str) -> bool:
    return "*" in (allowed or ()) or value in (allowed or ())


def _selected(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    if not selector or labels is None:
        return True
    return from_selector(dict(selector))(dict(labels))


def _namespace_labels(request: Request) -> Mapping[str, str] | None:
    """The labels of the namespace; None for a cluster-scoped object, which every selector takes."""
    source = request.namespace_object
    if request.resource == "namespaces":
        source = request.object or request.old
    return None if source is None else (source.get("metadata") or {}).get("labels") or {}


def _object_labels(request: Request) -> list[Mapping[str, str]]:
    objects = [obj for obj in (request.object, request.old) if obj is not None]
    return [(obj.get("metadata") or {}).get("labels") or {} for obj in objects] or [{}]


def _findings(policy: Object, binding: Object, request: Request) -> Iterator[Finding]:
    spec, bound = policy.get("spec") or {}, binding.get("spec") or {}
    actions = [Action(action) for action in bound.get("validationActions") or ("Deny",)]
    for message, reason in _failures(spec, bound, request):
        for action in actions:
            yield Finding(action, policy["metadata"]["name"], binding["metadata"]["name"], message, reason)


def _failures(spec: Object, bound: Object, request: Request) -> Iterator[tuple[str, str]]:
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
            scope = _scope(spec, request, param, budget)
            wanted = all(
                _truth(condition["expression"], scope, budget)
                for condition in spec.get("matchConditions") or ()
            )
        except CelError as error:
            if fails:
                yield f"expression could not be evaluated: {error}", "Invalid"
            continue
        if wanted:
            yield from _validations(spec, scope, fails, budget)


def _validations(
    spec: Object, scope: dict[str, Any], fails: bool, budget: CostBudget
) -> Iterator[tuple[str, str]]:
    for validation in spec.get("validations") or ():
        text = validation.get("expression") or ""
        try:
            if not _truth(text, scope, budget):
                yield _message(validation, scope, budget), validation.get("reason") or "Invalid"
        except CelError as error:
            if fails:
                yield f"expression '{text}' resulted in error: {error}", "Invalid"


def _truth(text: str, scope: Mapping[str, Any], budget: CostBudget) -> bool:
    answer = compile_rule(text).value(scope, budget)
    if not isinstance(answer, bool):
        raise CelError(f"the expression {text!r} does not give a bool")
    return answer


def _message(validation: Object, scope: Mapping[str, Any], budget: CostBudget) -> str:
    expression = validation.get("messageExpression")
    if expression:
        try:
            text = compile_rule(expression).value(scope, budget)
        except CelError:
            text = None  # a message that cannot be made gives way to the fixed one
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text.strip()
    return validation.get("message") or f"failed expression: {validation.get('expression', '').strip()}"


def _scope(spec: Object, request: Request, param: Object | None, budget: CostBudget) -> dict[str, Any]:
    """What expressions can name. A variable that fails is absent, so that only its users fail."""
    scope: dict[str, Any] = {
        "object": request.object,
        "oldObject": request.old,
        "request": _request_value(request),
        "namespaceObject": request.namespace_object,
        "params": param,
        "variables": {},
    }
    for variable in spec.get("variables") or ():
        try:
            value = compile_rule(variable.get("expression") or "").value(scope, budget)
        except CelError:
            continue
        scope["variables"] = {**scope["variables"], variable["name"]: value}
    return scope


def _request_value(request: Request) -> dict[str, Any]:
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
