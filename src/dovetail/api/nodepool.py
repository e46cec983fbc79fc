"""NodePool and NodeClaim's shared parts, and NodePool itself (karpenter.sh/v1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from dovetail.api.core import Taint
from dovetail.api.meta import ABSENT_LIST, ABSENT_MAP, Amounts, Condition, Kind, Object, Record

__all__ = [
    "Budget",
    "Disruption",
    "NodeClassReference",
    "NodePool",
    "NodePoolSpec",
    "NodePoolStatus",
    "Requirement",
    "TemplateMeta",
    "TemplateSpec",
]


class NodeClassReference(Record, frozen=True):
    """Which node class says how instances are made."""

    group: str = ""
    kind: str = ""
    name: str = ""


class Requirement(Record, frozen=True):
    """One label requirement, as written; the algebra is scheduling.requirements."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()
    min_values: int | None = None


class TemplateMeta(Record, frozen=True):
    """Labels and annotations that every node of the pool gets."""

    labels: Mapping[str, str] = ABSENT_MAP
    annotations: Mapping[str, str] = ABSENT_MAP


class TemplateSpec(Record, frozen=True):
    """What every NodeClaim of the pool asks for. Durations keep their text: `720h`, `Never`."""

    node_class_ref: NodeClassReference = NodeClassReference()
    # None and an empty list differ in the static hash, so absence is kept apart.
    requirements: tuple[Requirement, ...] | None = None
    taints: tuple[Taint, ...] = ABSENT_LIST
    startup_taints: tuple[Taint, ...] = ABSENT_LIST
    expire_after: str | None = None
    termination_grace_period: str | None = None


class NodePoolTemplate(Record, frozen=True):
    """The blueprint of the pool's NodeClaims."""

    metadata: TemplateMeta = TemplateMeta()
    spec: TemplateSpec = TemplateSpec()


class Budget(Record, frozen=True):
    """How many nodes may be disrupted at once, when, and for which reasons (None: all; empty: none)."""

    nodes: str = "10%"
    schedule: str | None = None
    duration: str | None = None
    reasons: tuple[str, ...] | None = None


class Disruption(Record, frozen=True):
    """When the pool's nodes may be taken away by choice."""

    consolidate_after: str | None = None
    consolidation_policy: str | None = None
    budgets: tuple[Budget, ...] | None = None


class NodePoolSpec(Record, frozen=True):
    """What a person wants of a pool."""

    template: NodePoolTemplate = NodePoolTemplate()
    disruption: Disruption = Disruption()
    limits: Amounts = {}
    weight: int | None = None
    replicas: int | None = None


class NodePoolStatus(Record, frozen=True):
    """What the pool has."""

    nodes: int | None = None
    resources: Amounts = {}
    node_class_observed_generation: int | None = None
    conditions: tuple[Condition, ...] = ()


class NodePool(Object, frozen=True):
    """A kind of node the cluster may have more of."""

    KIND: ClassVar[Kind] = Kind("karpenter.sh", "v1", "NodePool", "nodepools", namespaced=False)

    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()

    @property
    def static(self) -> bool:
        """A static pool keeps a number of nodes, whatever the pods want."""
        return self.spec.replicas is not None
