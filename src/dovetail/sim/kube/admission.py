"""What the server itself adds to, and asks of, every object before it is stored.

Built-in kinds have a row each in `_KINDS`: defaults that hold for every write, mutations made once at
creation, something an update keeps from the old object, and rules. Custom kinds have their schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.sim.kube import (
    autoscalers,
    defaults_pods,
    defaults_rest,
    defaults_workloads,
    rules_network,
    rules_pods,
    rules_rest,
    status,
)
from dovetail.sim.kube.limits import apply_limits
from dovetail.sim.kube.normal import normalise
from dovetail.sim.kube.schema import Cause
from dovetail.sim.kube.shaping import schema_of
from dovetail.sim.kube.types import StatusSplit

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.types import TypeInfo

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
    defaults_pods.admit_new_pod(core, pod)


def _select_new_job(core: Core, job: dict[str, Any]) -> None:
    defaults_workloads.select_new_job(job)


def _first_template(core: Core, daemons: dict[str, Any]) -> None:
    defaults_workloads.count_templates(core, daemons, {})


def _reestablish(core: Core, obj: dict[str, Any], old: dict[str, Any]) -> None:
    defaults_rest.establish(core, obj)


_W, _R, _X, _N = defaults_workloads, defaults_rest, rules_rest, rules_network
_KINDS: dict[str, _Kind] = {
    "pods": _Kind(defaults_pods.default_pod, _admit_new_pod, defaults_pods.keep_tolerations),
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
    "daemonsets.apps": _Kind(_W.default_daemon_set, _first_template, _W.count_templates, _X.workload_causes),
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
        _R.default_definition, _R.establish, _reestablish, _X.definition_causes
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
        found = self.core.find("namespaces", "", namespace)
        if found is None:
            raise status.namespace_not_found(namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise status.terminating(info, metadata.get("name", ""), namespace)

    def admit(
        self, info: TypeInfo, obj: dict[str, Any], old: dict[str, Any] | None, options: WriteOptions
    ) -> dict[str, Any]:
        """The object with defaults filled and the server's own mutations made."""
        if info.schema is not None:
            return info.schema.default(obj)
        obj = normalise(schema_of(info).root, obj)
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
            return info.schema.default(obj)
        obj = normalise(schema_of(info).root, obj)
        defaults_workloads.default_status(info.resource, obj)
        if info.resource == "nodes":
            defaults_rest.default_node(obj)
        return obj

    def causes(
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
