"""The rules of a cluster that hold nodes or narrow where pods may run, each by the name people ask for it by.

A rule is something that a person wrote: a PodDisruptionBudget, an annotation, an affinity, a requirement, a
limit. What each of them costs is worked out in pricing_rules.py; nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum

from dovetail.api import labels, predicates
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.meta import Record
from dovetail.api.nodepool import Budget, NodePool
from dovetail.api.pod import Pod, PodAffinity, PodSpec
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput, shorten_text
from dovetail.scheduling.model.requirements import Requirements, describe_values
from dovetail.scheduling.model.snapshot import Snapshot

__all__ = ["HELD_RULES", "Rule", "RuleKind", "find_rules", "find_workload", "list_rules"]

POLICY = "WhenEmptyOrUnderutilized"
AT_ONCE = ("0s", "0")
# The minute, counted since 1970, that ends the name of a CronJob's Job.
CRON_DIGITS = 8


class RuleKind(StrEnum):
    """What a rule is."""

    PDB = "pdb"
    DO_NOT_DISRUPT = "do-not-disrupt"
    NODE_DO_NOT_DISRUPT = "node-do-not-disrupt"
    BUDGET = "budget"
    CONSOLIDATE_AFTER = "consolidateAfter"
    CONSOLIDATION_POLICY = "consolidationPolicy"
    SPREAD = "spread"
    ANTI_AFFINITY = "anti-affinity"
    AFFINITY = "affinity"
    SELECTOR = "selector"
    REQUIREMENTS = "requirements"
    TAINTS = "taints"
    LIMIT = "limit"
    SPEND_LIMIT = "spendlimit"
    ZONE = "zone"


# These say when a node may be disrupted, and nothing of where a pod may run.
HELD_RULES = frozenset(
    (
        RuleKind.PDB,
        RuleKind.DO_NOT_DISRUPT,
        RuleKind.NODE_DO_NOT_DISRUPT,
        RuleKind.BUDGET,
        RuleKind.CONSOLIDATE_AFTER,
        RuleKind.CONSOLIDATION_POLICY,
    )
)


class Rule(Record, frozen=True):
    """A rule by its name. `subject` is what it stands on, `detail` which one of several it is there.

    `words` are for people. A rule with `parts` is all of them together.
    """

    name: str
    kind: RuleKind
    subject: str
    words: str
    detail: str = ""
    parts: tuple[Rule, ...] = ()


def list_rules(situation: Situation) -> tuple[Rule, ...]:
    """Every rule of a cluster that could hold a node or narrow a choice, by name."""
    snapshot = situation.snapshot
    found = [
        *map(_build_pdb, snapshot.budgets),
        *_list_workload_rules(snapshot),
        *_list_node_rules(snapshot),
        *(rule for pool in snapshot.pools for rule in _list_pool_rules(pool.nodepool, snapshot)),
        *(
            Rule(
                name=f"spendlimit/{cap.limit}",
                kind=RuleKind.SPEND_LIMIT,
                subject=cap.limit,
                words=f"spendlimit {cap.limit}",
            )
            for cap in situation.spend_caps
            if not cap.warn
        ),
        *_list_zone_rules(situation),
    ]
    return tuple(sorted(found, key=lambda rule: rule.name))


def find_rules(rules: Iterable[Rule], names: Iterable[str]) -> tuple[Rule, ...]:
    """The rules of these names; BadInput tells of a name that is none the nearest one."""
    known: dict[str, Rule] = {}
    for rule in rules:
        known |= {part.name: part for part in rule.parts}
        known[rule.name] = rule
    return tuple(_find_rule(known, name) for name in dict.fromkeys(names))


def _find_rule(known: Mapping[str, Rule], name: str) -> Rule:
    found = known.get(name)
    if found is not None:
        return found
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {shorten_text(near[0])}?" if near else "without a name, all of them are priced"
    raise BadInput(f"there is no rule {shorten_text(name)} here; {hint}")


# Pods


def find_workload(pod: Pod) -> tuple[str, str]:
    """The kind and the name of who made a pod: a Deployment by its ReplicaSet, the pod where nobody did."""
    owner = pod.metadata.controller
    if owner is None:
        return "pod", pod.full_name
    kind, name = owner.kind.lower(), owner.name
    made_by, _, ending = name.rpartition("-")
    if made_by and kind == "replicaset":
        kind, name = "deployment", made_by
    elif made_by and kind == "job" and ending.isdigit() and len(ending) >= CRON_DIGITS:
        kind, name = "cronjob", made_by
    return kind, f"{pod.namespace}/{name}"


def list_movable_pods(snapshot: Snapshot) -> Iterator[Pod]:
    """The pods that need a place: those that wait, and those on nodes but for DaemonSets' and static ones."""
    yield from snapshot.pods
    for state in snapshot.nodes:
        yield from filter(predicates.is_reschedulable, state.pods)


def _list_workload_rules(snapshot: Snapshot) -> Iterator[Rule]:
    workloads: dict[tuple[str, str], list[Pod]] = {}
    for pod in list_movable_pods(snapshot):
        workloads.setdefault(find_workload(pod), []).append(pod)
    for (kind, name), pods in workloads.items():
        specs = {id(pod.spec): pod.spec for pod in pods}.values()
        for rule, has in _POD_RULES.items():
            if any(has(spec) for spec in specs):
                yield Rule(
                    name=f"{kind}/{name}:{rule}",
                    kind=rule,
                    subject=f"{kind}/{name}",
                    words=f"{kind} {name} {rule}",
                )
        marked = [pod for pod in pods if predicates.do_not_disrupt(pod, snapshot.options.now).active]
        yield from _build_marks(f"{kind}/{name}", marked)


def _build_marks(workload: str, pods: list[Pod]) -> Iterator[Rule]:
    """The do-not-disrupt marks of a workload: of several pods one rule, with a part for each."""
    parts = tuple(
        Rule(
            name=f"pod/{name}:{RuleKind.DO_NOT_DISRUPT}",
            kind=RuleKind.DO_NOT_DISRUPT,
            subject=name,
            words=f"pod {name} {RuleKind.DO_NOT_DISRUPT}",
        )
        for name in sorted(pod.full_name for pod in pods)
    )
    if len(parts) < 2:
        yield from parts
        return
    yield Rule(
        name=f"{workload}:{RuleKind.DO_NOT_DISRUPT}",
        kind=RuleKind.DO_NOT_DISRUPT,
        subject=workload,
        words=f"{workload.replace('/', ' ', 1)} {RuleKind.DO_NOT_DISRUPT}",
        parts=parts,
    )


def _has_terms(terms: PodAffinity | None) -> bool:
    return terms is not None and bool(terms.required or terms.preferred)


def _has_selector(spec: PodSpec) -> bool:
    node = spec.affinity.node_affinity if spec.affinity is not None else None
    return bool(spec.node_selector) or (node is not None and bool(node.required or node.preferred))


_POD_RULES = {
    RuleKind.SPREAD: lambda spec: bool(spec.topology_spread_constraints),
    RuleKind.ANTI_AFFINITY: lambda spec: (
        spec.affinity is not None and _has_terms(spec.affinity.pod_anti_affinity)
    ),
    RuleKind.AFFINITY: lambda spec: spec.affinity is not None and _has_terms(spec.affinity.pod_affinity),
    RuleKind.SELECTOR: _has_selector,
}


def _build_pdb(budget: PodDisruptionBudget) -> Rule:
    spec = budget.spec
    said = (
        f"minAvailable {spec.min_available}"
        if spec.min_available is not None
        else f"maxUnavailable {spec.max_unavailable}"
        if spec.max_unavailable is not None
        else "no number"
    )
    return Rule(
        name=f"pdb/{budget.full_name}",
        kind=RuleKind.PDB,
        subject=budget.full_name,
        words=f"pdb {budget.full_name} ({said})",
    )


# Nodes, NodePools and zones


def _list_node_rules(snapshot: Snapshot) -> Iterator[Rule]:
    for state in snapshot.nodes:
        node = state.node
        if (
            node is not None
            and state.claim is not None
            and node.annotations.get(labels.DO_NOT_DISRUPT) == "true"
        ):
            yield Rule(
                name=f"node/{node.name}:{RuleKind.DO_NOT_DISRUPT}",
                kind=RuleKind.NODE_DO_NOT_DISRUPT,
                subject=node.name,
                words=f"node {node.name} {RuleKind.DO_NOT_DISRUPT}",
            )


def _list_pool_rules(pool: NodePool, snapshot: Snapshot) -> Iterator[Rule]:
    name, spec = pool.name, pool.spec
    if pool.static:
        return  # it keeps its number of nodes, whatever else is written
    yield from _list_requirement_rules(pool, snapshot)
    if spec.template.spec.taints:
        yield _build_pool_rule(name, RuleKind.TAINTS, "taints")
    disruption = spec.disruption
    after, policy = disruption.consolidate_after, disruption.consolidation_policy
    if after not in (None, *AT_ONCE):
        yield _build_pool_rule(name, RuleKind.CONSOLIDATE_AFTER, f"consolidateAfter {after}")
    if policy not in (None, POLICY):
        yield _build_pool_rule(name, RuleKind.CONSOLIDATION_POLICY, f"consolidationPolicy {policy}")
    yield from _join_parts(
        f"budget/{name}",
        f"budgets of pool {name}",
        [
            Rule(
                name=f"budget/{name}[{number}]",
                kind=RuleKind.BUDGET,
                subject=name,
                words=f"budget {number} of pool {name} ({_describe_budget(budget)})",
                detail=str(number),
            )
            for number, budget in enumerate(disruption.budgets or ())
        ],
    )
    yield from _join_parts(
        f"limit/{name}",
        f"limits of pool {name}",
        [
            Rule(
                name=f"limit/{name}:{resource}",
                kind=RuleKind.LIMIT,
                subject=name,
                words=f"limit of pool {name}: {resource} {amount}",
                detail=resource,
            )
            for resource, amount in sorted(spec.limits.items())
        ],
    )


def _build_pool_rule(pool: str, kind: RuleKind, words: str) -> Rule:
    return Rule(name=f"pool/{pool}:{kind}", kind=kind, subject=pool, words=f"pool {pool} {words}")


def _list_requirement_rules(pool: NodePool, snapshot: Snapshot) -> Iterator[Rule]:
    """The requirements that narrow what a pool may buy; one on a label of people's own makes that label."""
    listed = Requirements.from_expressions(pool.spec.template.spec.requirements or ())
    keys = sorted(key for key in listed if key in snapshot.options.flavour.well_known)
    short = [key.rpartition("/")[2] for key in keys]
    parts = []
    for key, word in zip(keys, short, strict=True):
        said = word if short.count(word) == 1 else key
        parts.append(
            Rule(
                name=f"pool/{pool.name}:requirements[{said}]",
                kind=RuleKind.REQUIREMENTS,
                subject=pool.name,
                words=f"pool {pool.name} requirements: {describe_values(said, listed[key])}",
                detail=key,
            )
        )
    yield from _join_parts(f"pool/{pool.name}:requirements", f"pool {pool.name} requirements, all", parts)


def _join_parts(name: str, words: str, parts: list[Rule]) -> Iterator[Rule]:
    """The parts, and where there are several the whole of them."""
    yield from parts
    if len(parts) > 1:
        yield Rule(name=name, kind=parts[0].kind, subject=parts[0].subject, words=words, parts=tuple(parts))


def _describe_budget(budget: Budget) -> str:
    reasons = f" for {'/'.join(budget.reasons)}" if budget.reasons else ""
    during = f" at {budget.schedule} for {budget.duration}" if budget.schedule else ""
    return f"nodes {budget.nodes}{reasons}{during}"


def _list_zone_rules(situation: Situation) -> Iterator[Rule]:
    """Zones that are shifted away, and zones that no NodePool's requirements allow though they are sold."""
    snapshot = situation.snapshot
    shifted = situation.excluded_zones | frozenset(situation.closed_zones.values())
    sold = {offering.zone for types in snapshot.catalogs for each in types for offering in each.offerings}
    narrowed = {zone for zone in sold if any(_excludes_zone(p.nodepool, zone) for p in snapshot.pools)}
    for zone in sorted((shifted | narrowed) - {""}):
        why = "shifted away" if zone in shifted else "not in every pool's requirements"
        yield Rule(name=f"zone/{zone}", kind=RuleKind.ZONE, subject=zone, words=f"zone {zone} ({why})")


def _excludes_zone(pool: NodePool, zone: str) -> bool:
    listed = Requirements.from_expressions(pool.spec.template.spec.requirements or ())
    return labels.ZONE in listed.by_key and zone not in listed[labels.ZONE]
