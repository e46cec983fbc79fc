"""Why pods of a finished run have no place, in Karpenter's words for the whole and ours for each place.

Nothing was placed after these pods were last tried, so asking again gives the same answers, and the
run itself need not keep words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from dovetail.api import quantity
from dovetail.api.labels import HOSTNAME
from dovetail.api.meta import Amounts
from dovetail.explain import Reason, Rejection
from dovetail.scheduling import hostports, taints
from dovetail.scheduling.groups import Group
from dovetail.scheduling.places import Claim, Refusal, RunningNode
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.resources import Nano, amounts, plus, requests_with_pod
from dovetail.scheduling.shapes import Shape
from dovetail.scheduling.templates import Template

if TYPE_CHECKING:
    from dovetail.scheduling.exact import Run

__all__ = ["Verdict", "verdicts"]

NO_POOLS = "no dynamic nodepools found"
NO_TEMPLATES = "nodepool requirements filtered out all available instance types"
NO_DEVICES = "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"
NONE_SUITABLE = "no node and no instance type has the devices its resource claims ask for"
RESERVED = "compatible reserved offerings exist, but all of them are held by other nodes of this run"
MILLION_CPU = 1_000_000 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a pod has no place. Deferred pods wait for a reservation and are not told off for it."""

    error: str
    rejections: tuple[Rejection, ...] = ()
    deferred: bool = False


def verdicts(run: Run) -> dict[str, Verdict]:
    """A verdict for every pod that was tried and found no place."""
    if not run.pools:
        return {pod.full_name: Verdict(NO_POOLS) for pod in run.batch}
    by_shape: dict[int, Verdict] = {}
    found: dict[str, Verdict] = {}
    for pod in run.batch:
        refusal = run.failures.get(pod.full_name)
        if refusal is None:
            continue
        shape = run.shapes.of(pod)
        known = by_shape.get(id(shape))
        if known is None:
            known = by_shape[id(shape)] = _verdict(run, shape, refusal)
        found[pod.full_name] = known
    return found


def _verdict(run: Run, shape: Shape, refusal: Refusal) -> Verdict:
    if refusal.reason is Reason.DEVICES:
        return Verdict(_about_devices(run, shape))
    if refusal.reason is Reason.RESERVED:
        return Verdict(RESERVED, deferred=True)
    last = shape.most_relaxed
    on_nodes = tuple(_by_node(run, last, node) for node in run.refusing)
    if not run.templates:
        pools = tuple(Rejection(name, Reason.NO_TYPES, text) for name, text in run.problems.items())
        return Verdict(NO_TEMPLATES, (*on_nodes, *pools))
    told = [(template, *_by_template(run, last, template)) for template in run.templates]
    pools = tuple(Rejection(template.pool, reason, text) for template, reason, text in told)
    return Verdict("; ".join(text for _, _, text in told), (*on_nodes, *pools))


def _about_devices(run: Run, shape: Shape) -> str:
    if run.devices is None:
        return NO_DEVICES
    wanted = run.devices.wanted(shape.pod)
    return wanted if isinstance(wanted, str) else NONE_SUITABLE


def _by_node(run: Run, shape: Shape, node: RunningNode) -> Rejection:
    found = node.offer(shape, run.topology)
    reason = found.reason if isinstance(found, Refusal) else Reason.TOO_YOUNG
    match reason:
        case Reason.TAINT:
            detail = "; ".join(taints.complaints(node.taints, shape.tolerations))
        case Reason.RESOURCES:
            detail = _shortfall(shape.requests, node.left)
        case Reason.LABELS:
            detail = "; ".join(node.requirements.complaints(shape.requirements))
        case Reason.HOST_PORT:
            clash = hostports.conflict(shape.ports, node.ports)
            detail = hostports.text(clash) if clash else ""
        case _:
            detail = ""
    return Rejection(node.name, reason, detail)


def _shortfall(wanted: Nano, left: Nano) -> str:
    """What there is too little of: `cpu: needs 2, has 1500m`."""
    short = sorted((name, amount, left.get(name, 0)) for name, amount in wanted.items())
    return "; ".join(_too_little(*each) for each in short if each[1] > each[2])


@lru_cache(maxsize=4096)
def _too_little(name: str, wanted: int, left: int) -> str:
    found = [amounts({name: amount})[name] for amount in (wanted, left)]
    return f"{name}: needs {found[0]}, has {found[1]}"


def _by_template(run: Run, shape: Shape, template: Template) -> tuple[Reason, str]:
    """Why a pool opens no node for the pod."""
    pool = template.pool
    if run.limits.exhausted(pool):
        return Reason.LIMIT, f"node limits have been exhausted for nodepool (NodePool={pool})"
    claim = run.candidate(template)
    if isinstance(claim, Refusal):
        return (
            Reason.LIMIT,
            f"all available instance types exceed limits for nodepool (NodePool={pool})",
        )
    untolerated = taints.complaints(template.taints, shape.tolerations)
    if untolerated:
        return Reason.TAINT, "; ".join(untolerated)
    undefined = template.table.undefined
    complaints = claim.requirements.complaints(shape.requirements, undefined)
    if complaints:
        return Reason.LABELS, f"incompatible requirements, {'; '.join(complaints)}"
    return _by_ways(run, shape, claim, claim.requirements & shape.requirements)


def _by_ways(run: Run, shape: Shape, claim: Claim, narrowed: Requirements) -> tuple[Reason, str]:
    """The last word over all ways to reach the pod's volumes."""
    undefined = claim.template.table.undefined
    found = Reason.TYPES, ""
    for way in shape.ways:
        complaints = narrowed.complaints(way, undefined)
        if complaints:
            found = Reason.VOLUME_ZONE, f"incompatible volume requirements, {'; '.join(complaints)}"
            continue
        reachable = narrowed & way
        rules = run.topology.narrow(shape, reachable)
        if isinstance(rules, Group):
            reason = {"topology spread": Reason.SPREAD, "pod affinity": Reason.AFFINITY}.get(
                rules.rule, Reason.ANTI_AFFINITY
            )
            hosts = _hosts(run) if rules.key == HOSTNAME else ()
            found = reason, rules.complaint(shape.strict[rules.key], reachable[rules.key], hosts)
            continue
        more = rules.options()[-1]
        complaints = reachable.complaints(more, undefined)
        if complaints:
            found = Reason.SPREAD, "; ".join(complaints)
            continue
        found = _by_types(run, shape, claim, reachable & more)
    return found


def _hosts(run: Run) -> Iterator[str]:
    """Every host of this run, there or planned."""
    yield from (node.hostname for node in run.nodes)
    yield from (claim.hostname for claim in run.claims)


def _by_types(run: Run, shape: Shape, claim: Claim, requirements: Requirements) -> tuple[Reason, str]:
    table, template = claim.template.table, claim.template
    suited = table.matching_all(requirements)
    offered = table.offered(requirements)
    r = f = o = every = 0
    for group in template.daemons:
        among = claim.types & group.types
        if shape.ports and hostports.conflict(shape.ports, group.ports):
            continue
        every |= among
        r |= among & suited
        o |= among & table.fold(offered)
        needed = plus(shape.requests, group.overhead)
        f |= among & table.fold(table.roomy(needed, table.unfold(among) & offered))
    short = claim.short_of(r & f & o, requirements)
    reason, stem = (Reason.MIN_VALUES, str(short)) if not short.met else _stem(r, f, o)
    if not every and claim.types:
        reason = Reason.HOST_PORT
    hint = ""
    if r and not f and o and shape.requests.get("cpu", 0) >= MILLION_CPU:
        hint = " (CPU request >= 1 Million, m vs M typo?)"
    resources = _resources(shape, template)
    return reason, f"{stem}, requirements={requirements}, resources={resources}{hint}"


def _stem(r: int, f: int, o: int) -> tuple[Reason, str]:
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


def _resources(shape: Shape, template: Template) -> str:
    """What the pod and the daemons ask for, as JSON; the range when daemons differ by instance type."""
    own = requests_with_pod(shape.pod)
    overheads = [amounts(group.overhead) for group in template.daemons]
    least, most = quantity.minimum(*overheads), quantity.maximum(*overheads)
    if least == most:
        return _json(quantity.merge(own, least))
    return f"min={_json(quantity.merge(own, least))}, max={_json(quantity.merge(own, most))}"


def _json(listed: Amounts) -> str:
    return "{" + ",".join(f'"{name}":"{amount}"' for name, amount in sorted(listed.items())) + "}"
