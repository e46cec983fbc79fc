"""What the server itself adds to, and asks of, every object before it is stored.

Built-in kinds have a row each in `_KINDS`: defaults that hold for every write, mutations made once at
creation, something an update keeps from the old object, and rules. Custom kinds have their schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.api.quantity import Quantity
from dovetail.api.schema.causes import Cause
from dovetail.sim.kube import status
from dovetail.sim.kube.builtin import (
    autoscalers,
    defaults_rest,
    defaults_workloads,
    rules_network,
    rules_pods,
    rules_rest,
)
from dovetail.sim.kube.schema.prune import find_schema, normalize_object
from dovetail.sim.kube.types import StatusSplit

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core, WriteOptions
    from dovetail.sim.kube.types import TypeInfo


_NOTE = "kubernetes.io/limit-ranger"


def apply_limits(core: Core, pod: dict[str, Any]) -> None:
    """Fill in what the namespace's ranges default, then refuse what they do not allow."""
    ranges = core.store.get_bucket("limitranges").in_namespace(pod["metadata"]["namespace"])
    limits = [limit for each in ranges for limit in each.obj["spec"].get("limits") or ()]
    containers = [each for part in ("initContainers", "containers") for each in pod["spec"].get(part) or ()]
    filled: list[str] = []
    for limit in limits:
        if limit.get("type") == "Container":
            for container in containers:
                filled += _fill_defaults(container, limit)
    if filled:
        annotations = pod["metadata"].get("annotations") or {}
        note = f"LimitRanger plugin set: {'; '.join(filled)}"
        pod["metadata"]["annotations"] = {**annotations, _NOTE: note}
    problems = [text for limit in limits for text in _find_problems(limit, containers)]
    if problems:
        info = core.find_type("pods")
        listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise status.forbidden_request(info, pod["metadata"].get("name", ""), listed)


def _fill_defaults(container: dict[str, Any], limit: dict[str, Any]) -> Iterator[str]:
    """Fill in defaults, and say what was filled in."""
    resources = container["resources"]
    for part, default in (("requests", "defaultRequest"), ("limits", "default")):
        given = resources.get(part) or {}
        # A container that limits a resource has already been given a request for it.
        missing = {name: amount for name, amount in (limit.get(default) or {}).items() if name not in given}
        if missing:
            resources[part] = {**given, **missing}
            yield f"{', '.join(sorted(missing))} {part[:-1]} for container {container.get('name', '')}"


def _find_problems(limit: dict[str, Any], containers: list[dict[str, Any]]) -> Iterator[str]:
    if limit.get("type") != "Container":
        return
    for container in containers:
        requests, limits = (container["resources"].get(part) or {} for part in ("requests", "limits"))
        for name, least in (limit.get("min") or {}).items():
            if name not in requests:
                yield f"minimum {name} usage per Container is {least}. No request is specified"
            elif Quantity.parse(requests[name]) < Quantity.parse(least):
                yield f"minimum {name} usage per Container is {least}, but request is {requests[name]}"
        for name, most in (limit.get("max") or {}).items():
            if name not in limits:
                yield f"maximum {name} usage per Container is {most}. No limit is specified"
            elif Quantity.parse(limits[name]) > Quantity.parse(most):
                yield f"maximum {name} usage per Container is {most}, but limit is {limits[name]}"


Default = Callable[[dict[str, Any]], None]
Mutation = Callable[["Core", dict[str, Any]], None]
Keep = Callable[["Core", dict[str, Any], dict[str, Any]], None]
Rules = Callable[[dict[str, Any], "dict[str, Any] | None"], Iterable[Cause]]


class _Kind(NamedTuple):
    default: Default | None = None
    create: Mutation | None = None
    keep: Keep | None = None
    rules: Rules | None = None


def _admit_new_pod(core: Core, pod: dict[str, Any]) -> None:
    apply_limits(core, pod)
    defaults_workloads.admit_new_pod(core, pod)


def _select_new_job(core: Core, job: dict[str, Any]) -> None:
    defaults_workloads.select_new_job(job)


def _count_first_template(core: Core, daemons: dict[str, Any]) -> None:
    defaults_workloads.count_templates(core, daemons, {})


def _reestablish_definition(core: Core, obj: dict[str, Any], old: dict[str, Any]) -> None:
    defaults_rest.establish(core, obj)


_W, _R, _X, _N = defaults_workloads, defaults_rest, rules_rest, rules_network
_KINDS: dict[str, _Kind] = {
    "pods": _Kind(defaults_workloads.default_pod, _admit_new_pod, defaults_workloads.keep_tolerations),
    "podtemplates": _Kind(_W.default_template),
    "nodes": _Kind(_R.default_node, _R.admit_new_node, rules=_X.node_causes),
    "namespaces": _Kind(_R.default_namespace, _R.admit_new_namespace),
    "secrets": _Kind(_R.default_secret, rules=_X.data_causes),
    "configmaps": _Kind(rules=_X.data_causes),
    "services": _Kind(_R.default_service, _R.admit_new_service, _R.keep_service_address, _X.service_causes),
    "persistentvolumeclaims": _Kind(_R.default_claim, _R.admit_new_claim, rules=_X.claim_causes),
    "persistentvolumes": _Kind(_R.default_volume, _R.admit_new_volume),
    "limitranges": _Kind(_R.default_limit_range),
    "replicationcontrollers": _Kind(_W.default_replication_controller),
    "deployments.apps": _Kind(_W.default_deployment, rules=_X.workload_causes),
    "replicasets.apps": _Kind(_W.default_replica_set, rules=_X.workload_causes),
    "statefulsets.apps": _Kind(_W.default_stateful_set, rules=_X.stateful_set_causes),
    "daemonsets.apps": _Kind(
        _W.default_daemon_set, _count_first_template, _W.count_templates, _X.workload_causes
    ),
    "jobs.batch": _Kind(_W.default_job, _select_new_job, rules=_X.job_causes),
    "cronjobs.batch": _Kind(_W.default_cron_job, rules=_X.cron_job_causes),
    "poddisruptionbudgets.policy": _Kind(rules=_X.budget_causes),
    "csidrivers.storage.k8s.io": _Kind(_R.default_csi_driver),
    "validatingadmissionpolicies.admissionregistration.k8s.io": _Kind(_R.default_policy_matches),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _Kind(_R.default_policy_matches),
    "storageclasses.storage.k8s.io": _Kind(_R.default_storage_class, rules=_X.storage_class_causes),
    "volumeattachments.storage.k8s.io": _Kind(create=_R.admit_new_attachment),
    "priorityclasses.scheduling.k8s.io": _Kind(_R.default_priority_class, rules=_X.priority_class_causes),
    "leases.coordination.k8s.io": _Kind(_R.default_lease, rules=_X.lease_causes),
    "events": _Kind(_R.default_event, rules=_X.event_causes),
    "events.events.k8s.io": _Kind(_R.default_event, rules=_X.event_causes),
    "customresourcedefinitions.apiextensions.k8s.io": _Kind(
        _R.default_definition, _R.establish, _reestablish_definition, _X.definition_causes
    ),
    "horizontalpodautoscalers.autoscaling": _Kind(
        autoscalers.default_autoscaler, rules=autoscalers.autoscaler_causes
    ),
    "ingresses.networking.k8s.io": _Kind(_N.default_ingress, rules=_N.ingress_causes),
    "networkpolicies.networking.k8s.io": _Kind(_N.default_network_policy, rules=_N.network_policy_causes),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _Kind(
        _N.default_webhooks, rules=_N.webhook_causes
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _Kind(
        _N.default_webhooks, rules=_N.webhook_causes
    ),
    "rolebindings.rbac.authorization.k8s.io": _Kind(rules=_X.role_binding_causes),
    "clusterrolebindings.rbac.authorization.k8s.io": _Kind(rules=_X.role_binding_causes),
}
_NOTHING = _Kind()


class Admission:
    """Defaults, mutations and validations, per kind."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def check_namespace(self, info: TypeInfo, metadata: dict[str, Any]) -> None:
        """Refuse to create where nothing may be created."""
        namespace = metadata.get("namespace", "")
        if not info.namespaced:
            return
        found = self.core.find_object("namespaces", "", namespace)
        if found is None:
            raise status.namespace_not_found(namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise status.namespace_terminating(info, metadata.get("name", ""), namespace)

    def admit(
        self, info: TypeInfo, obj: dict[str, Any], old: dict[str, Any] | None, options: WriteOptions
    ) -> dict[str, Any]:
        """The object with defaults filled and the server's own mutations made."""
        if info.schema is not None:
            return info.schema.apply_defaults(obj)
        obj = normalize_object(find_schema(info).root, obj)
        kind = _KINDS.get(info.resource, _NOTHING)
        if kind.default is not None:
            kind.default(obj)
        if old is None:
            self._admit_new(info, obj, kind)
        elif old is not None and kind.keep is not None:
            kind.keep(self.core, obj, old)
        return obj

    def _admit_new(self, info: TypeInfo, obj: dict[str, Any], kind: _Kind) -> None:
        if kind.create is not None:
            kind.create(self.core, obj)
        if info.status is not StatusSplit.NONE:
            defaults_workloads.default_status(info.resource, obj)

    def admit_status(self, info: TypeInfo, obj: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
        """The same for a write of status, where the spec is the old one and stays it."""
        if info.schema is not None:
            return info.schema.apply_defaults(obj)
        obj = normalize_object(find_schema(info).root, obj)
        defaults_workloads.default_status(info.resource, obj)
        if info.resource == "nodes":
            defaults_rest.default_node(obj)
        return obj

    def find_causes(
        self, info: TypeInfo, obj: dict[str, Any], old: dict[str, Any] | None, subresource: str = ""
    ) -> list[Cause]:
        """What is wrong with the object."""
        if info.schema is not None:
            return info.schema.validate(obj, old)
        if subresource == "status":
            return []
        if info.resource == "pods":
            return rules_pods.pod_causes(obj, old, subresource)
        rules = _KINDS.get(info.resource, _NOTHING).rules
        return list(rules(obj, old)) if rules is not None else []
