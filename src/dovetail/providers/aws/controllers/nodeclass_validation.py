"""ValidationSucceeded: whether nodes could be launched with a class, from kubelet settings to permissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, Final, Protocol

import msgspec
from msgspec.structs import replace as changed

from dovetail.api import conditions, reasons
from dovetail.api.conditions import ReadinessRules
from dovetail.api.hashes import ami_family
from dovetail.api.meta import Condition, Kind, Object, Record
from dovetail.api.nodeclass import EC2NodeClass, KubeletConfiguration
from dovetail.aws import AwsTrouble
from dovetail.controllers.base import DONE, SOON, requeue_after
from dovetail.controllers.context import ControllerContext
from dovetail.errors import DovetailError
from dovetail.providers.aws.catalog import NodeClassTerms, count_pods
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery
from dovetail.providers.aws.controllers.nodeclass_status import StatusOutcome
from dovetail.providers.aws.dry_run import PASSED, DryRunResult, DryRuns
from dovetail.providers.aws.instance_type_info import InstanceTypeInfo
from dovetail.providers.aws.kubelet_expressions import (
    ExpressionContext,
    ExpressionError,
    KubeletExpression,
    check_expression,
    evaluate_max_pods,
    evaluate_reserved,
    list_expressions,
)
from dovetail.providers.aws.kubelet_validation import describe_unsupported, list_complaints
from dovetail.providers.aws.placement_groups import PlacementGroupProvider
from dovetail.providers.aws.tags import find_restricted
from dovetail.providers.aws.ttl_cache import TtlCache

__all__ = ["ValidationReconciler"]

KEPT: Final = timedelta(minutes=30)
AGAIN: Final = timedelta(minutes=10)
DEPENDENCIES: Final = (
    conditions.AMIS_READY,
    conditions.INSTANCE_PROFILE_READY,
    conditions.SECURITY_GROUPS_READY,
    conditions.SUBNETS_READY,
)
NEEDS_CIDR: Final = "AL2023"

Written = Mapping[str, Any]


class WrittenSpec(Record, frozen=True):
    """The kubelet settings of a class as they are written."""

    kubelet: dict[str, Any] = {}


class WrittenClass(Object, frozen=True):
    """A class, as far as its kubelet settings go: other records leave out fields we do not read."""

    KIND: ClassVar[Kind] = EC2NodeClass.KIND

    spec: WrittenSpec = WrittenSpec()


class KnownTypes(Protocol):
    """The instance types expressions are tried on."""

    @property
    def all_facts(self) -> Mapping[str, InstanceTypeInfo]: ...


class ValidationReconciler:
    """Judges classes, the cheap questions first, and remembers what EC2 said about each."""

    condition = conditions.VALIDATION_SUCCEEDED

    def __init__(
        self,
        context: ControllerContext,
        rules: ReadinessRules,
        discovery: ClusterDiscovery,
        types: KnownTypes,
        groups: PlacementGroupProvider,
        dry_runs: DryRuns,
        region: str,
    ) -> None:
        self._kube = context.kube
        self._clock = context.clock
        self._settings = context.settings
        self._rules = rules
        self._discovery = discovery
        self._types = types
        self._groups = groups
        self._dry_runs = dry_runs
        self._pools = context.pools
        self._region = region
        self._verdicts: TtlCache[tuple[str, str], DryRunResult] = TtlCache(context.clock, KEPT)

    def forget_class(self, name: str) -> None:
        """Drop what is remembered of a class."""
        for key in tuple(self._verdicts):
            if key[0] == name:
                self._verdicts.drop(key)

    async def reconcile_status(self, node_class: EC2NodeClass) -> StatusOutcome:
        if ami_family(node_class.spec) == NEEDS_CIDR:
            unresolved = await self._check_service_cidr(node_class)
            if unresolved is not None:
                return unresolved
        written = await self._read_kubelet(node_class)
        fault = self._find_kubelet_fault(node_class, written)
        if fault is not None:
            return self._fail_class(node_class, fault)
        waiting = self._await_dependencies(node_class)
        if waiting is not None:
            return waiting
        asked = tuple(list_expressions(written))
        if asked and not self._types.all_facts:
            return StatusOutcome(node_class, SOON)
        fault = self._find_evaluation_fault(node_class, asked) or _find_tag_fault(node_class)
        if fault is not None:
            return self._fail_class(node_class, fault)
        return await self._check_permissions(node_class, written)

    async def _check_service_cidr(self, node_class: EC2NodeClass) -> StatusOutcome | None:
        try:
            await self._discovery.service_cidr()
        except AwsTrouble:
            return StatusOutcome(node_class, SOON)
        except DovetailError as error:
            why = (
                f"the cluster's service CIDR, which AL2023 nodes need, cannot be learned ({error}); "
                "allow eks:DescribeCluster on the cluster, and check CLUSTER_NAME"
            )
            failed = self._fail_class(node_class, DryRunResult(reasons.CLUSTER_CIDR_RESOLUTION_FAILED, why))
            return replace(failed, error=error)
        return None

    async def _read_kubelet(self, node_class: EC2NodeClass) -> Written:
        """Read as it is now, where it has kubelet settings at all."""
        if node_class.spec.kubelet is None:
            return {}
        return (await self._kube.get(WrittenClass, node_class.name)).spec.kubelet

    def _find_kubelet_fault(self, node_class: EC2NodeClass, written: Written) -> DryRunResult | None:
        faults = list_complaints(written)
        if faults:
            return DryRunResult(reasons.INVALID_KUBELET_CONFIGURATION, "; ".join(faults))
        asked = tuple(list_expressions(written))
        if asked and not self._settings.aws_feature_gates.node_class_cel:
            where = ", ".join(each.where for each in asked)
            why = f"{where} is not an amount; expressions need AWS_FEATURE_GATES=NodeClassCEL=true"
            return DryRunResult(reasons.KUBELET_EXPRESSIONS_DISABLED, why)
        wrong = [f"{each.where}: {why}" for each in asked if (why := _describe_invalid(each))]
        if wrong:
            return DryRunResult(reasons.KUBELET_EXPRESSION_INVALID, "; ".join(wrong))
        why = describe_unsupported(written, ami_family(node_class.spec))
        return DryRunResult(reasons.UNSUPPORTED_KUBELET_CONFIGURATION, why) if why else None

    def _await_dependencies(self, node_class: EC2NodeClass) -> StatusOutcome | None:
        """While parts of the class are missing, EC2 need not be asked about the whole."""
        for status, holds in (
            (conditions.FALSE, conditions.is_false),
            (conditions.UNKNOWN, conditions.is_unknown),
        ):
            lacking = [kind for kind in DEPENDENCIES if holds(node_class, kind)]
            if lacking:
                why = f"Awaiting {', '.join(lacking)}"
                wanted = Condition(
                    type=self.condition, status=status, reason=reasons.DEPENDENCIES_NOT_READY, message=why
                )
                judged = conditions.set_condition(node_class, wanted, self._clock.now(), self._rules)
                return StatusOutcome(judged, requeue_after(AGAIN))
        return None

    def _find_evaluation_fault(
        self, node_class: EC2NodeClass, asked: Iterable[KubeletExpression]
    ) -> DryRunResult | None:
        """The first type an expression has no usable value for."""
        wanted = tuple(asked)
        if not wanted:
            return None
        settings = self._settings
        terms = NodeClassTerms.from_node_class(
            node_class, self._region, settings.reserved_enis, settings.vm_memory_overhead_percent
        )
        for facts in self._types.all_facts.values():
            why = _describe_failure(wanted, facts, terms)
            if why:
                return DryRunResult(reasons.KUBELET_EXPRESSION_EVALUATION_FAILED, why)
        return None

    async def _check_permissions(self, node_class: EC2NodeClass, written: Written) -> StatusOutcome:
        key = node_class.name, _hash_inputs(node_class, written)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = PASSED if self._settings.disable_dry_run else await self._run_dry_runs(node_class)
            if verdict.kept:
                self._verdicts.put(key, verdict)
        if not verdict.decided:
            return StatusOutcome(node_class, SOON)
        judged = self._set_condition(node_class, verdict)
        return StatusOutcome(judged, requeue_after(AGAIN) if verdict.kept else SOON)

    async def _run_dry_runs(self, node_class: EC2NodeClass) -> DryRunResult:
        reference = node_class.KIND
        pools = [
            pool
            for pool in self._pools
            if (ref := pool.spec.template.spec.node_class_ref).name == node_class.name
            and (ref.group, ref.kind) == (reference.group, reference.kind)
        ]
        return await self._dry_runs.check_class(node_class, pools, self._groups.find_known_group(node_class))

    def _fail_class(self, node_class: EC2NodeClass, verdict: DryRunResult) -> StatusOutcome:
        """A fault only a change of the class can mend: nobody comes back to it by himself."""
        return StatusOutcome(self._set_condition(node_class, verdict), DONE)

    def _set_condition(self, node_class: EC2NodeClass, verdict: DryRunResult) -> EC2NodeClass:
        now, rules = self._clock.now(), self._rules
        if not verdict.reason:
            return conditions.set_true(node_class, self.condition, now, rules=rules)
        return conditions.set_false(
            node_class, self.condition, now, verdict.reason, verdict.message, rules=rules
        )


def _find_tag_fault(node_class: EC2NodeClass) -> DryRunResult | None:
    keys = find_restricted(node_class.spec.tags)
    if not keys:
        return None
    why = f"spec.tags sets {', '.join(keys)}, which the controller sets itself; remove it"
    return DryRunResult(reasons.TAG_VALIDATION_FAILED, why)


def _describe_invalid(expression: KubeletExpression) -> str:
    try:
        check_expression(expression.text)
    except ExpressionError as error:
        return str(error)
    return ""


def _describe_failure(
    wanted: Iterable[KubeletExpression], facts: InstanceTypeInfo, terms: NodeClassTerms
) -> str:
    """Which expression has no usable value for a type; empty when all have one."""
    settled = terms.kubelet

    def counted(kubelet: KubeletConfiguration) -> int:
        return count_pods(facts, replace(terms, kubelet=kubelet))

    for each in wanted:
        try:
            if each.resource:
                evaluate_reserved(
                    each.resource, each.text, ExpressionContext(facts, partial(counted, settled))
                )
            else:
                default = changed(settled, max_pods=None)
                count = evaluate_max_pods(each.text, ExpressionContext(facts, partial(counted, default)))
                settled = changed(settled, max_pods=count)
        except ExpressionError as error:
            return f"{each.where}: {error}"
    return ""


def _hash_inputs(node_class: EC2NodeClass, written: Written) -> str:
    """Everything a verdict depends on. Lists count as sets: subnets change places with every launch."""
    status = node_class.status
    parts = (
        sorted(subnet.id for subnet in status.subnets),
        sorted(group.id for group in status.security_groups),
        sorted(ami.id for ami in status.amis),
        status.instance_profile,
        node_class.spec,
        node_class.annotations,
        written,
    )
    return sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()
