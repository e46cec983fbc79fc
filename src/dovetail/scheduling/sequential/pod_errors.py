"""Why pods of a finished run have no place, in Karpenter's words for the whole and ours for each place.

Nothing was placed after these pods were last tried, so asking again gives the same answers, and the
run itself need not keep words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dovetail.api import quantity
from dovetail.api.labels import HOSTNAME
from dovetail.api.meta import Amounts
from dovetail.scheduling.model import host_ports, taints
from dovetail.scheduling.model.nodeclaim_template import NodeClaimTemplate
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.reasons import NodeReason, Reason
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import (
    Nano,
    add_resources,
    compute_requests_with_pod,
    convert_to_quantities,
)
from dovetail.scheduling.sequential.nodes import ExistingNode, NewNode, NoFit
from dovetail.scheduling.sequential.scheduler import SequentialScheduler
from dovetail.scheduling.topology.group import TopologyGroup

__all__ = ["PodError", "collect_pod_errors"]

NO_POOLS = "no dynamic nodepools found"
NO_TEMPLATES = "nodepool requirements filtered out all available instance types"
NO_DEVICES = "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"
NONE_SUITABLE = "no node and no instance type has the devices its resource claims ask for"
RESERVED = "compatible reserved offerings exist, but all of them are held by other nodes of this run"
MILLION_CPU = 1_000_000 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class PodError:
    """Why a pod has no place. Deferred pods wait for a reservation and are not told off for it."""

    error: str
    rejections: tuple[NodeReason, ...] = ()
    deferred: bool = False


def collect_pod_errors(run: SequentialScheduler) -> dict[str, PodError]:
    """A verdict for every pod that was tried and found no place."""
    if not run.pools:
        return {pod.full_name: PodError(NO_POOLS) for pod in run.batch}
    if not run.failures:
        return {}
    by_shape: dict[int, PodError] = {}
    found: dict[str, PodError] = {}
    shortfalls = _Shortfalls()
    for pod in run.batch:
        refusal = run.failures.get(pod.full_name)
        if refusal is None:
            continue
        shape = run.shapes.find_shape(pod)
        known = by_shape.get(id(shape))
        if known is None:
            known = by_shape[id(shape)] = _explain_pod(run, shape, refusal, shortfalls)
        found[pod.full_name] = known
    return found


def _explain_pod(
    run: SequentialScheduler, shape: SchedulingShape, refusal: NoFit, shortfalls: _Shortfalls
) -> PodError:
    if refusal.reason is Reason.DEVICES:
        return PodError(_explain_devices(run, shape))
    if refusal.reason is Reason.RESERVED:
        return PodError(RESERVED, deferred=True)
    last = shape.most_relaxed
    on_nodes = tuple(_explain_node(run, last, node, shortfalls) for node in run.refusing)
    if not run.templates:
        pools = tuple(NodeReason(name, Reason.NO_TYPES, text) for name, text in run.problems.items())
        return PodError(NO_TEMPLATES, (*on_nodes, *pools))
    told = [(template, *_explain_template(run, last, template)) for template in run.templates]
    pools = tuple(NodeReason(template.pool, reason, text) for template, reason, text in told)
    return PodError("; ".join(text for _, _, text in told), (*on_nodes, *pools))


def _explain_devices(run: SequentialScheduler, shape: SchedulingShape) -> str:
    if run.devices is None:
        return NO_DEVICES
    wanted = run.devices.list_claims(shape.pod)
    return wanted if isinstance(wanted, str) else NONE_SUITABLE


def _explain_node(
    run: SequentialScheduler, shape: SchedulingShape, node: ExistingNode, shortfalls: _Shortfalls
) -> NodeReason:
    found = node.check_fit(shape, run.topology)
    reason = found.reason if isinstance(found, NoFit) else Reason.TOO_YOUNG
    match reason:
        case Reason.TAINT:
            detail = "; ".join(taints.describe_untolerated(node.taints, shape.tolerations))
        case Reason.RESOURCES:
            detail = shortfalls.describe_shortfall(shape.requests, node.left)
        case Reason.LABELS:
            detail = "; ".join(node.requirements.describe_incompatibility(shape.requirements))
        case Reason.HOST_PORT:
            clash = host_ports.find_conflict(shape.ports, node.ports)
            detail = host_ports.describe_conflict(clash) if clash else ""
        case _:
            detail = ""
    return NodeReason(node.name, reason, detail)


class _Shortfalls(dict[tuple[str, int, int], str]):
    """The words for too little of a resource: many nodes have just as much left of it."""

    def describe_shortfall(self, wanted: Nano, left: Nano) -> str:
        """What there is too little of: `cpu: needs 2, has 1500m`."""
        short = sorted((name, amount, left.get(name, 0)) for name, amount in wanted.items())
        return "; ".join(self[each] for each in short if each[1] > each[2])

    def __missing__(self, short: tuple[str, int, int]) -> str:
        name, *amounts = short
        wanted, left = (convert_to_quantities({name: amount})[name] for amount in amounts)
        told = self[short] = f"{name}: needs {wanted}, has {left}"
        return told


def _explain_template(
    run: SequentialScheduler, shape: SchedulingShape, template: NodeClaimTemplate
) -> tuple[Reason, str]:
    """Why a pool opens no node for the pod."""
    pool = template.pool
    if run.limits.is_exhausted(pool):
        return Reason.LIMIT, f"node limits have been exhausted for nodepool (NodePool={pool})"
    claim = run.build_new_node(template)
    if isinstance(claim, NoFit):
        return (
            Reason.LIMIT,
            f"all available instance types exceed limits for nodepool (NodePool={pool})",
        )
    untolerated = taints.describe_untolerated(template.taints, shape.tolerations)
    if untolerated:
        return Reason.TAINT, "; ".join(untolerated)
    undefined = template.table.undefined
    complaints = claim.requirements.describe_incompatibility(shape.requirements, undefined)
    if complaints:
        return Reason.LABELS, f"incompatible requirements, {'; '.join(complaints)}"
    return _explain_volumes(run, shape, claim, claim.requirements & shape.requirements)


def _explain_volumes(
    run: SequentialScheduler, shape: SchedulingShape, claim: NewNode, narrowed: Requirements
) -> tuple[Reason, str]:
    """The last word over all ways to reach the pod's volumes."""
    undefined = claim.template.table.undefined
    found = Reason.TYPES, ""
    for volume_topology in shape.volume_topologies:
        complaints = narrowed.describe_incompatibility(volume_topology, undefined)
        if complaints:
            found = Reason.VOLUME_ZONE, f"incompatible volume requirements, {'; '.join(complaints)}"
            continue
        reachable = narrowed & volume_topology
        rules = run.topology.narrow_domains(shape, reachable)
        if isinstance(rules, TopologyGroup):
            reason = {"topology spread": Reason.SPREAD, "pod affinity": Reason.AFFINITY}.get(
                rules.rule, Reason.ANTI_AFFINITY
            )
            hosts = _list_hosts(run) if rules.key == HOSTNAME else ()
            found = reason, rules.describe_unsatisfiable(shape.strict[rules.key], reachable[rules.key], hosts)
            continue
        more = rules.list_options()[-1]
        complaints = reachable.describe_incompatibility(more, undefined)
        if complaints:
            found = Reason.SPREAD, "; ".join(complaints)
            continue
        found = _explain_types(run, shape, claim, reachable & more)
    return found


def _list_hosts(run: SequentialScheduler) -> Iterator[str]:
    """Every host of this run, there or planned."""
    yield from (node.hostname for node in run.nodes)
    yield from (claim.hostname for claim in run.new_nodes)


def _explain_types(
    run: SequentialScheduler, shape: SchedulingShape, claim: NewNode, requirements: Requirements
) -> tuple[Reason, str]:
    table, template = claim.template.table, claim.template
    suited = table.match_requirements(requirements)
    offered = table.find_offered(requirements)
    r = f = o = every = 0
    for group in template.daemons:
        among = claim.types & group.types
        if shape.ports and host_ports.find_conflict(shape.ports, group.ports):
            continue
        every |= among
        r |= among & suited
        o |= among & table.fold_variants(offered)
        needed = add_resources(shape.requests, group.overhead)
        f |= among & table.fold_variants(table.find_roomy(needed, table.unfold_types(among) & offered))
    short = claim.find_min_values_shortfall(r & f & o, requirements)
    reason, stem = (Reason.MIN_VALUES, str(short)) if not short.met else _choose_message(r, f, o)
    if not every and claim.types:
        reason = Reason.HOST_PORT
    hint = ""
    if r and not f and o and shape.requests.get("cpu", 0) >= MILLION_CPU:
        hint = " (CPU request >= 1 Million, m vs M typo?)"
    resources = _describe_resources(shape, template)
    return reason, f"{stem}, requirements={requirements}, resources={resources}{hint}"


def _choose_message(r: int, f: int, o: int) -> tuple[Reason, str]:
    """Karpenter's one message, by which of requirements, resources and offering no type met."""
    table = {
        (False, False, False): (
            Reason.TYPES,
            "no instance type met the scheduling requirements or had enough resources"
            " or had a required offering",
        ),
        (False, False, True): (
            Reason.RESOURCES,
            "no instance type met the scheduling requirements or had enough resources",
        ),
        (False, True, False): (
            Reason.LABELS,
            "no instance type met the scheduling requirements or had a required offering",
        ),
        (True, False, False): (
            Reason.OFFERING,
            "no instance type had enough resources or had a required offering",
        ),
        (False, True, True): (Reason.LABELS, "no instance type met all requirements"),
        (True, False, True): (Reason.RESOURCES, "no instance type has enough resources"),
        (True, True, False): (Reason.OFFERING, "no instance type has the required offering"),
    }
    found = table.get((bool(r), bool(f), bool(o)))
    if found is not None:
        return found
    if f & o & ~r:
        return (
            Reason.TYPES,
            "no instance type which had enough resources and the required offering"
            " met the scheduling requirements",
        )
    if r & o & ~f:
        return (
            Reason.TYPES,
            "no instance type which met the scheduling requirements and the required offering"
            " had the required resources",
        )
    return Reason.TYPES, "no instance type met the requirements/resources/offering tuple"


def _describe_resources(shape: SchedulingShape, template: NodeClaimTemplate) -> str:
    """What the pod and the daemons ask for, as JSON; the range when daemons differ by instance type."""
    own = compute_requests_with_pod(shape.pod)
    overheads = [convert_to_quantities(group.overhead) for group in template.daemons]
    least, most = quantity.min_amounts(*overheads), quantity.max_amounts(*overheads)
    if least == most:
        return _format_json(quantity.add_amounts(own, least))
    low, high = quantity.add_amounts(own, least), quantity.add_amounts(own, most)
    return f"min={_format_json(low)}, max={_format_json(high)}"


def _format_json(listed: Amounts) -> str:
    return "{" + ",".join(f'"{name}":"{amount}"' for name, amount in sorted(listed.items())) + "}"
