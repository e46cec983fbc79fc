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
from dovetail.api.conditions import Readiness
from dovetail.api.hashes import ami_family
from dovetail.api.meta import Condition, Kind, Object, Record
from dovetail.api.nodeclass import EC2NodeClass, KubeletConfiguration
from dovetail.api.nodepool import NodePool
from dovetail.aws import AwsTrouble
from dovetail.controllers.base import DONE, SOON, Cache, after
from dovetail.errors import DovetailError
from dovetail.ports import Clock, Kube
from dovetail.providers.aws.cached import Cached
from dovetail.providers.aws.capacity import pods
from dovetail.providers.aws.catalog import Terms
from dovetail.providers.aws.controllers.resolving import Outcome
from dovetail.providers.aws.discovery import Discovery
from dovetail.providers.aws.dryrun import PASSED, DryRuns, Verdict
from dovetail.providers.aws.expressions import (
    Expression,
    ExpressionError,
    Machine,
    check,
    expressions,
    max_pods,
    reserved,
)
from dovetail.providers.aws.facts import Facts
from dovetail.providers.aws.kubelet import complaints, unsupported
from dovetail.providers.aws.placement import PlacementGroups
from dovetail.providers.aws.tags import restricted
from dovetail.settings import Settings

__all__ = ["Validation"]

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
    def all_facts(self) -> Mapping[str, Facts]: ...


class Validation:
    """Judges classes, the cheap questions first, and remembers what EC2 said about each."""

    condition = conditions.VALIDATION_SUCCEEDED

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        settings: Settings,
        rules: Readiness,
        discovery: Discovery,
        types: KnownTypes,
        groups: PlacementGroups,
        dry_runs: DryRuns,
        pools: Cache[NodePool],
        region: str,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._settings = settings
        self._rules = rules
        self._discovery = discovery
        self._types = types
        self._groups = groups
        self._dry_runs = dry_runs
        self._pools = pools
        self._region = region
        self._verdicts: Cached[tuple[str, str], Verdict] = Cached(clock, KEPT)

    def forget(self, name: str) -> None:
        """Drop what is remembered of a class."""
        for key in tuple(self._verdicts):
            if key[0] == name:
                self._verdicts.drop(key)

    async def take(self, node_class: EC2NodeClass) -> Outcome:
        if ami_family(node_class.spec) == NEEDS_CIDR:
            unresolved = await self._cidr(node_class)
            if unresolved is not None:
                return unresolved
        written = await self._written(node_class)
        fault = self._kubelet_fault(node_class, written)
        if fault is not None:
            return self._failed(node_class, fault)
        waiting = self._waiting(node_class)
        if waiting is not None:
            return waiting
        asked = tuple(expressions(written))
        if asked and not self._types.all_facts:
            return Outcome(node_class, SOON)
        fault = self._evaluation_fault(node_class, asked) or _tag_fault(node_class)
        if fault is not None:
            return self._failed(node_class, fault)
        return await self._permitted(node_class, written)

    async def _cidr(self, node_class: EC2NodeClass) -> Outcome | None:
        try:
            await self._discovery.service_cidr()
        except AwsTrouble:
            return Outcome(node_class, SOON)
        except DovetailError as error:
            why = (
                f"the cluster's service CIDR, which AL2023 nodes need, cannot be learned ({error}); "
                "allow eks:DescribeCluster on the cluster, and check CLUSTER_NAME"
            )
            failed = self._failed(node_class, Verdict(reasons.CLUSTER_CIDR_RESOLUTION_FAILED, why))
            return replace(failed, error=error)
        return None

    async def _written(self, node_class: EC2NodeClass) -> Written:
        """Read as it is now, where it has kubelet settings at all."""
        if node_class.spec.kubelet is None:
            return {}
        return (await self._kube.get(WrittenClass, node_class.name)).spec.kubelet

    def _kubelet_fault(self, node_class: EC2NodeClass, written: Written) -> Verdict | None:
        faults = complaints(written)
        if faults:
            return Verdict(reasons.INVALID_KUBELET_CONFIGURATION, "; ".join(faults))
        asked = tuple(expressions(written))
        if asked and not self._settings.aws_feature_gates.node_class_cel:
            where = ", ".join(each.where for each in asked)
            why = f"{where} is not an amount; expressions need AWS_FEATURE_GATES=NodeClassCEL=true"
            return Verdict(reasons.KUBELET_EXPRESSIONS_DISABLED, why)
        wrong = [f"{each.where}: {why}" for each in asked if (why := _invalid(each))]
        if wrong:
            return Verdict(reasons.KUBELET_EXPRESSION_INVALID, "; ".join(wrong))
        why = unsupported(written, ami_family(node_class.spec))
        return Verdict(reasons.UNSUPPORTED_KUBELET_CONFIGURATION, why) if why else None

    def _waiting(self, node_class: EC2NodeClass) -> Outcome | None:
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
                return Outcome(judged, after(AGAIN))
        return None

    def _evaluation_fault(self, node_class: EC2NodeClass, asked: Iterable[Expression]) -> Verdict | None:
        """The first type an expression has no usable value for."""
        wanted = tuple(asked)
        if not wanted:
            return None
        settings = self._settings
        terms = Terms.of(
            node_class, self._region, settings.reserved_enis, settings.vm_memory_overhead_percent
        )
        for facts in self._types.all_facts.values():
            why = _failure(wanted, facts, terms)
            if why:
                return Verdict(reasons.KUBELET_EXPRESSION_EVALUATION_FAILED, why)
        return None

    async def _permitted(self, node_class: EC2NodeClass, written: Written) -> Outcome:
        key = node_class.name, _digest(node_class, written)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = PASSED if self._settings.disable_dry_run else await self._asked(node_class)
            if verdict.kept:
                self._verdicts.put(key, verdict)
        if not verdict.decided:
            return Outcome(node_class, SOON)
        judged = self._judged(node_class, verdict)
        return Outcome(judged, after(AGAIN) if verdict.kept else SOON)

    async def _asked(self, node_class: EC2NodeClass) -> Verdict:
        reference = node_class.KIND
        pools = [
            pool
            for pool in self._pools
            if (ref := pool.spec.template.spec.node_class_ref).name == node_class.name
            and (ref.group, ref.kind) == (reference.group, reference.kind)
        ]
        return await self._dry_runs.check(node_class, pools, self._groups.resolved(node_class))

    def _failed(self, node_class: EC2NodeClass, verdict: Verdict) -> Outcome:
        """A fault only a change of the class can mend: nobody comes back to it by himself."""
        return Outcome(self._judged(node_class, verdict), DONE)

    def _judged(self, node_class: EC2NodeClass, verdict: Verdict) -> EC2NodeClass:
        now, rules = self._clock.now(), self._rules
        if not verdict.reason:
            return conditions.set_true(node_class, self.condition, now, rules=rules)
        return conditions.set_false(
            node_class, self.condition, now, verdict.reason, verdict.message, rules=rules
        )


def _tag_fault(node_class: EC2NodeClass) -> Verdict | None:
    keys = restricted(node_class.spec.tags)
    if not keys:
        return None
    why = f"spec.tags sets {', '.join(keys)}, which the controller sets itself; remove it"
    return Verdict(reasons.TAG_VALIDATION_FAILED, why)


def _invalid(expression: Expression) -> str:
    try:
        check(expression.text)
    except ExpressionError as error:
        return str(error)
    return ""


def _failure(wanted: Iterable[Expression], facts: Facts, terms: Terms) -> str:
    """Which expression has no usable value for a type; empty when all have one."""
    settled = terms.kubelet

    def counted(kubelet: KubeletConfiguration) -> int:
        return pods(facts, replace(terms, kubelet=kubelet))

    for each in wanted:
        try:
            if each.resource:
                reserved(each.resource, each.text, Machine(facts, partial(counted, settled)))
            else:
                default = changed(settled, max_pods=None)
                count = max_pods(each.text, Machine(facts, partial(counted, default)))
                settled = changed(settled, max_pods=count)
        except ExpressionError as error:
            return f"{each.where}: {error}"
    return ""


def _digest(node_class: EC2NodeClass, written: Written) -> str:
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
