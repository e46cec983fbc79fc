"""A cluster seen once: everything Dovetail watches is listed, folded as it would fold it, and frozen.

Nothing is written, no lease is taken, and nobody who could act is even loaded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from dovetail.api import crds, labels
from dovetail.api.hashes import hash_nodeclass
from dovetail.api.meta import Kind, Object
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.api.spend_limit import SpendLimit
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.cluster_context import DISPENSABLE, ClusterContext, ContextOptions
from dovetail.app.cluster_source import AUTO, ClusterSource, SeenCluster
from dovetail.app.published_settings import DECIDING_VARIABLES, PublishedSettings, read_published
from dovetail.controllers.provider_port import MakeProvider
from dovetail.disruption.situation import Situation
from dovetail.errors import DovetailError, Expired, Gone, Misconfigured, NotAuthorized, Retry
from dovetail.ports import Clock
from dovetail.providers.factory import AwsReach, choose_provider
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.informer import Informer
from dovetail.runtime.kubeconfig import Connection, connect
from dovetail.runtime.transport import USER_AGENT, ApiRequest, Transport
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.node_overlays import apply_overlays
from dovetail.settings import Settings, examine_settings
from dovetail.settings.table import BY_VARIABLE
from dovetail.state.cluster import Cluster
from dovetail.state.situation import build_situation
from dovetail.zonal.controller.non_aws import ZoneExcludingCloud
from dovetail.zonal.model.gates import read_zone_gates

__all__ = [
    "OURS",
    "LiveCluster",
    "build_sight",
    "open_cluster",
    "read_cluster",
    "refresh_provider",
    "see_cluster",
    "take_situation",
]

AT_ONCE = 4  # lists under way: each of them costs a connection, and that a handshake
TRIES = 3  # a list that changes faster than it can be read is begun again this often
OURS = (labels.KARPENTER, labels.KARPENTER_AWS, labels.KARPENTER_KWOK)
# What is a fact about the cluster is taken from the cluster; of other settings, this environment's win.
FACTS = ("CLUSTER_NAME", "CLUSTER_ENDPOINT", "CLUSTER_CA_BUNDLE")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster that is looked at: how it is reached, what it is called, and the eyes."""

    connection: Connection
    name: str
    sight: ClusterContext
    # Whose settings are decided with, as a sentence.
    decides_by: str = ""


def read_cluster(where: ClusterSource, remark: Callable[[str], None]) -> SeenCluster:
    """See the cluster once, with the settings of its own controller."""
    return asyncio.run(_read_cluster(where, remark))


@asynccontextmanager
async def open_cluster(where: ClusterSource) -> AsyncIterator[LiveCluster]:
    """The one way in for every command that looks at a live cluster; nothing is left open after the block."""
    connection = connect(SystemClock(), where.kubeconfig, where.context)
    transport = connection.open_transport(USER_AGENT)
    try:
        cluster = await _build_view(connection, transport, where)
        try:
            yield cluster
        finally:
            cluster.sight.close()
    finally:
        await transport.close()


async def _build_view(connection: Connection, transport: Transport, where: ClusterSource) -> LiveCluster:
    try:
        provider = await _detect_provider(transport) if where.provider == AUTO else where.provider
        published = await read_published(transport)
    except DovetailError as error:
        raise _describe_failure(connection.server, error) from error
    name = where.cluster_name or published.name or os.environ.get("CLUSTER_NAME", "")
    region = where.region or published.region or next(filter(None, map(os.environ.get, REGIONS)), "")
    if provider == "aws" and not name:
        raise _describe_missing(connection, name, region)
    settings = _read_settings(connection, provider, published, name)
    reach = AwsReach(region, published.endpoint if region == published.region else "")
    try:
        make = choose_provider(provider, reach)
        sight = build_sight(transport, settings, make, authority=connection.authority)
    except Misconfigured as error:
        if region:
            raise
        raise _describe_missing(connection, name, region) from error
    said = published.decides_by
    # An embedded cluster has told all it has, and nobody expects another answer from it.
    told = said.describe() if said is not None and said.source != published.source else ""
    return LiveCluster(connection, name, sight, told)


def _describe_missing(connection: Connection, name: str, region: str) -> Misconfigured:
    """Neither the cluster nor this environment says how the cluster is found in AWS."""
    missing = (("name", "--cluster-name", name), ("AWS region", "--region", region))
    what = " or its ".join(words for words, _, value in missing if not value)
    flags = " and ".join(flag for _, flag, value in missing if not value)
    return Misconfigured(
        f"the cluster at {connection.server} does not say its {what}: no Deployment or lease of Dovetail or "
        f"Karpenter that tells can be read; give {flags}"
    )


def _read_settings(
    connection: Connection, provider: str, published: PublishedSettings, name: str
) -> Settings:
    """The controller's settings, changed by what this environment says; none of those it decides by is."""
    own = {key: value for key, value in os.environ.items() if key in BY_VARIABLE and key not in FACTS}
    theirs = {key: value for key, value in published.environment.items() if key in BY_VARIABLE}
    decides_by = published.decides_by
    if decides_by is not None and decides_by.values is not None:
        own = {key: value for key, value in own.items() if key not in DECIDING_VARIABLES}
        theirs = {key: value for key, value in theirs.items() if key not in DECIDING_VARIABLES}
        theirs |= decides_by.values
    # Who only looks hands nothing to nodes, so this address will do, and EKS need not be asked for it.
    facts = {"CLUSTER_ENDPOINT": connection.server} | {key: theirs[key] for key in FACTS if key in theirs}
    found = examine_settings((), {**theirs, **own, **facts, "CLUSTER_NAME": name}, provider)
    if found.problems:
        said = f" (as {published.source} has it)" if published.source else ""
        raise Misconfigured(f"{found.problems[0]}{said}")
    return found.settings


class _SilentRecorder:
    """Who only looks has nothing to tell."""

    def publish_event(
        self,
        obj: Object,
        reason: str,
        note: str,
        *,
        warning: bool = False,
        dedupe: tuple[str, ...] = (),
        window: float = 120.0,
    ) -> None:
        """Nothing is told."""


def build_sight(
    transport: Transport,
    settings: Settings,
    make: MakeProvider,
    *,
    clock: Clock | None = None,
    authority: str = "",
) -> ClusterContext:
    """The eyes alone: caches that nobody fills yet, and nothing that could act."""
    return ClusterContext(
        settings,
        transport,
        clock=clock or SystemClock(),
        rng=Random(0),
        record=lambda kube: _SilentRecorder(),
        options=ContextOptions(
            crds.find_provider_api(settings.provider).node_class,
            make,
            authority=authority,
            may_write=lambda: False,
        ),
    )


async def refresh_provider(context: ClusterContext) -> tuple[str, ...]:
    """Learn at once what the controller learns in time, such as EC2's types and prices.

    What the cloud does not tell, and is assumed instead, comes back as sentences.
    """
    await context.provider.look_around()
    return context.provider.list_assumptions()


async def take_situation(
    context: ClusterContext, shifts: Iterable[ZoneShift], remark: Callable[[str], None]
) -> Situation:
    """The cluster as it is now, with what can be bought: nothing in zones that are shifted away."""
    zones = read_zone_gates(shifts)
    context.gates.set_closed(frozenset(zones.closed), zones.excluded, {}, zones.closed)
    _mark_disrupted_nodes(context.cluster)
    virtual = context.buffers.resolve_all() if context.buffers is not None else ()
    snapshot = context.capture.take_snapshot(
        await _list_offers(context, remark), context.build_options(context.clock.now()), virtual
    )
    return build_situation(
        snapshot,
        context.settings,
        excluded_zones=zones.excluded,
        closed_zones=zones.closed,
        returned_zones=zones.returned,
        spend_limits=context.informers.get(SpendLimit, ()),
    )


def _mark_disrupted_nodes(cluster: Cluster) -> None:
    """Mark for deletion what the controller has: its commands left marks on Nodes and NodeClaims."""
    marked = {tracked.key for tracked in cluster if views.has_disruption_mark(tracked.state)}
    cluster.unmark_for_deletion([each.key for each in cluster if each.marked and each.key not in marked])
    cluster.mark_for_deletion(marked)


async def _read_cluster(where: ClusterSource, remark: Callable[[str], None]) -> SeenCluster:
    async with open_cluster(where) as cluster:
        seen = await see_cluster(cluster.sight, cluster.connection.server, remark)
        if cluster.decides_by:
            remark(cluster.decides_by)
        return seen


async def see_cluster(sight: ClusterContext, server: str, remark: Callable[[str], None]) -> SeenCluster:
    """List everything once, and freeze it; `server` is how the cluster is called in errors."""
    await _fill_all(sight, server)
    await sight.provider.prepare()
    await refresh_provider(sight)
    situation = await take_situation(sight, await _list_shifts(sight, server), remark)
    pods = {pod.full_name: pod for pod in sight.get_informer(Pod)}
    limits = tuple(sight.informers.get(SpendLimit, ()))
    return SeenCluster(situation, pods, sight.settings, _hash_classes(sight), limits)


def _hash_classes(sight: ClusterContext) -> dict[str, str]:
    """The hashes of the cluster's EC2NodeClasses, by which a change of one is known."""
    found = sight.informers.get(EC2NodeClass, ())
    return {each.name: hash_nodeclass(each, None) for each in found if isinstance(each, EC2NodeClass)}


async def _detect_provider(transport: Transport) -> str:
    """Whose node classes the cluster knows: the first of the table that it serves, so EC2's before others."""
    for name, api in crds.PROVIDER_APIS.items():
        reply = await transport.send(ApiRequest("GET", f"/apis/{api.kind.group}"))
        if reply.status == 200:
            return name
    return "kwok"


async def _fill_all(context: ClusterContext, server: str) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def fill(informer: Informer[Any]) -> None:
        async with gate:
            await _fill_informer(context, informer)

    filled = await asyncio.gather(*map(fill, context.informers.values()), return_exceptions=True)
    for error in filled:
        if isinstance(error, DovetailError):
            # All lists fail for one reason, mostly; the first will do.
            raise _describe_failure(server, error) from error
        if error is not None:
            raise error


async def _list_shifts(context: ClusterContext, server: str) -> tuple[ZoneShift, ...]:
    """The cluster's ZoneShifts; none where their kind is not installed, or nobody may read them."""
    try:
        found = await _list_objects(context, ZoneShift)
        return tuple(each for each in found if isinstance(each, ZoneShift))
    except (Gone, NotAuthorized):
        return ()
    except DovetailError as error:
        raise _describe_failure(server, error) from error


async def _fill_informer(context: ClusterContext, informer: Informer[Any]) -> None:
    """List one kind into its informer. A kind the server has never heard of has no objects."""
    kind = informer.kind
    informer.begin_list()
    try:
        informer.add_listed(await _list_objects(context, kind))
    except Gone as error:
        if kind.KIND.group in OURS:
            raise Misconfigured(_describe_not_installed(kind.KIND)) from error
    except NotAuthorized:
        if kind not in DISPENSABLE:
            raise
    informer.end_list()


async def _list_objects(context: ClusterContext, kind: type[Object]) -> tuple[Object, ...]:
    for _ in range(TRIES - 1):
        try:
            return await context.kube.list(kind)
        except Expired:
            continue
    return await context.kube.list(kind)


def _describe_not_installed(kind: Kind) -> str:
    return f"it does not know {kind.resource}; install it with `dovetail crds | kubectl apply -f -`"


def _describe_failure(server: str, error: DovetailError) -> Misconfigured:
    if isinstance(error, Misconfigured):
        return Misconfigured(f"reading the cluster at {server}: {error}")
    advice = "check --kubeconfig, and that the cluster is up"
    if isinstance(error, NotAuthorized):
        advice = "it takes the right to list what Dovetail watches"
    return Misconfigured(f"reading the cluster at {server}: {error}; {advice}")


async def _list_types(
    context: ClusterContext, pool: NodePool, remark: Callable[[str], None]
) -> tuple[InstanceType, ...]:
    """As the controller has it: a pool whose types cannot be listed now has nothing to offer."""
    cloud = context.cloud
    if context.provider.aws is None:
        cloud = ZoneExcludingCloud(cloud, context.gates)
    try:
        return await cloud.list_instance_types(pool)
    except Retry as error:
        remark(str(error))
        return ()


async def _list_offers(
    context: ClusterContext, remark: Callable[[str], None]
) -> list[tuple[NodePool, tuple[InstanceType, ...]]]:
    """Every pool of ours, the heaviest first; those that may not grow are passed over when planning."""
    ours = [pool for pool in context.get_informer(NodePool) if context.ownership.owns_pool(pool)]
    ours.sort(key=lambda pool: pool.name, reverse=True)
    ours.sort(key=lambda pool: pool.spec.weight or 0, reverse=True)
    offers = [(pool, await _list_types(context, pool, remark)) for pool in ours]
    overlays = context.informers.get(NodeOverlay)  # none unless the gate is open
    if not overlays:
        return offers
    types = apply_overlays(offers, overlays, context.cloud.flavour).types
    return [(pool, types[pool.name]) for pool in ours]
