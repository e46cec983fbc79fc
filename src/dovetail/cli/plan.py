"""``dovetail plan``: which nodes the pods in some files would get, what they cost, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from dovetail.api.core import LimitRange, Node
from dovetail.api.crds import find_provider_api
from dovetail.api.nodeclass import EC2NodeClass, KWOKNodeClass
from dovetail.api.nodepool import NodePool, Requirement
from dovetail.api.overlay import NodeOverlay
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.changed_plan import change_cluster, plan_change
from dovetail.app.cluster_source import ClusterSource, SeenCluster, read_own_settings
from dovetail.app.solved_plan import SolvedPlan, solve_situation
from dovetail.cli.views import plans
from dovetail.cli.views.disruptions import plan_disruption
from dovetail.cli.views.files import MoreFiles, OptionalFiles
from dovetail.cli.views.options import (
    ClusterNameOption,
    ContextOption,
    KubeconfigOption,
    ProviderOption,
    RegionOption,
    SnapshotOption,
)
from dovetail.cli.views.output import LEFT_OUT, Output, OutputOption, print_note
from dovetail.cli.views.plan_changes import show_planned_change
from dovetail.cli.views.plans import show_explanation, show_plan
from dovetail.cli.views.progress import ProgressBar
from dovetail.cli.views.world_files import SUBSET, WorldReader, parse_object_name, read_change_files
from dovetail.cli.views.world_source import AtOption, ChangeOption, DeleteOption, RecordingOption, WorldSource
from dovetail.disruption.policy import read_default_annotations
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput, Misconfigured
from dovetail.providers.catalogs import Catalogue, choose_catalogue, load_catalogue
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot
from dovetail.state.changed_pods import DeletedObject
from dovetail.state.changes import KnownWorld, apply_change
from dovetail.state.default_nodepool import build_nodepool_for
from dovetail.state.offline import OfflineCluster
from dovetail.state.situation import build_situation
from dovetail.zonal.model.manifest_shifts import (
    ShiftedZones,
    exclude_offerings,
    find_shifted_zones,
    index_zones,
)
from dovetail.zonal.options import from_settings

CHANGE_STEPS = 8

LiveOption = Annotated[bool, typer.Option("--live", help="Plan for a live cluster, as it is now.")]
CatalogOption = Annotated[
    str,
    typer.Option(
        metavar="aws|kwok|FILE",
        help="What can be bought: EC2 in us-east-1 (aws:REGION for another), simulated nodes, or "
        "what a file lists. By default, what the pools' node classes suggest.",
    ),
]
SubsetOption = Annotated[
    str, typer.Option(metavar="NAME", help="Use only this subset of the catalogue, if it has subsets.")
]
ExplainOption = Annotated[
    str,
    typer.Option(
        metavar="POD",
        help="Show everything that was considered for one pod (namespace/name); "
        "with --disruption, for one node.",
    ),
]
DisruptionOption = Annotated[
    bool,
    typer.Option(
        "--disruption",
        help="Show which nodes are removable now, what that saves, and why each other node is blocked.",
    ),
]
TurnsOption = Annotated[
    int, typer.Option(min=1, help="With --disruption: how many turns of the loop to look ahead.")
]
DefaultPoolOption = Annotated[
    bool,
    typer.Option("--default-pool", help="Where the files have no NodePool, plan with one that would do."),
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Take the first complete plan; do not look for a cheaper one.")
]


def plan(
    filename: OptionalFiles = None,
    more: MoreFiles = None,
    live: LiveOption = False,
    snapshot: SnapshotOption = "",
    recording: RecordingOption = "",
    at: AtOption = "",
    catalog: CatalogOption = "",
    catalog_subset: SubsetOption = "",
    explain: ExplainOption = "",
    change: ChangeOption = None,
    delete: DeleteOption = None,
    disruption: DisruptionOption = False,
    turns: TurnsOption = 10,
    quick: QuickOption = False,
    default_pool: DefaultPoolOption = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    provider: ProviderOption = "auto",
    cluster_name: ClusterNameOption = "",
    region: RegionOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Plan nodes for pods in files, in a snapshot or in a live cluster.

    Pods, workloads (a Deployment counts as its pods), NodePools, node classes, nodes and the pods that run
    on them are read from manifests, or from a cluster as it is or was. Nothing is created. Exit codes: 0
    every pod is schedulable, 3 some are unschedulable, 1 the files have errors. With --disruption, 3 means
    that a drifted node is blocked until a person does something about it.
    """
    files = [*(filename or ()), *(more or ())]
    where = ClusterSource(kubeconfig, context, provider, cluster_name, region)
    world = WorldSource(live, snapshot, recording, at, where)
    altered = bool(change or delete)
    if disruption:
        seen = _read_world(files, world, (catalog, catalog_subset), altered)
        if plan_disruption(seen, explain, turns, output):
            raise typer.Exit(LEFT_OUT)
        return
    if altered and explain:
        raise BadInput("--explain and --change exclude each other; leave one out")
    if world.given:
        world.exclude_files(files, {"catalog": catalog, SUBSET: catalog_subset, "explain": explain})
        seen = world.read()
        if altered:
            left_out = _change_cluster(seen, change or [], delete or [], quick, output)
        else:
            left_out = _plan_cluster(seen.situation, quick, output)
        if left_out:
            raise typer.Exit(LEFT_OUT)
        return
    if not files:
        raise Misconfigured("nothing to plan: give files with --filename, a --snapshot, or --live")
    reader = WorldReader()
    reader.read_files(files)
    _need_pool(reader, catalog, default_pool)
    asked = _PlanRequest(reader, catalog, catalog_subset, quick)
    left_out = (
        asked.run_change(change or [], delete or [], output) if altered else asked.run_plan(explain, output)
    )
    if left_out:
        raise typer.Exit(LEFT_OUT)


def _read_world(
    files: Sequence[str], world: WorldSource, catalogue: tuple[str, str], altered: bool
) -> SeenCluster:
    """The world whose nodes are asked about: the files', the snapshot's, or else the live cluster's."""
    if altered:
        raise BadInput("--disruption and --change exclude each other; leave one out")
    if files and not world.given:
        reader = WorldReader()
        reader.read_files(files)
        asked = _PlanRequest(reader, *catalogue, quick=True)
        return SeenCluster(asked.build_situation())
    world = world if world.given else replace(world, live=True)
    world.exclude_files(files, dict(zip(("catalog", SUBSET), catalogue, strict=True)))
    return world.read()


class _PlanRequest:
    """A world that was read, and how to plan for it."""

    def __init__(self, reader: WorldReader, catalog: str, subset: str, quick: bool) -> None:
        self.world, self.quick = reader.world, quick
        self._choose = partial(_choose_catalogue, catalog=catalog, subset=subset, usual=reader.subset)
        self.shop = self._choose(self.world)
        self.options = SchedulingOptions(now=datetime.now(UTC), flavour=self.shop.flavour)
        self.shifted = self._find_shifted_zones()
        remarks = self.world.list_remarks(self.shop.types_for, self.options)
        for remark in (*self.shop.remarks, *remarks, *self.shifted.remarks):
            print_note(f"note: {remark}")

    def _find_shifted_zones(self) -> ShiftedZones:
        """The zones that ZoneShifts in the files shift away, unless the environment says to ignore them."""
        shifts = self.world.list_objects(ZoneShift)
        if not shifts:
            return ShiftedZones()
        settings = read_own_settings()
        if not settings.enable_zonal_shift and settings.find_origin("ENABLE_ZONAL_SHIFT") != "default":
            return ShiftedZones(remarks=("ZoneShifts do not matter to a plan: ENABLE_ZONAL_SHIFT is false",))
        types = [each for pool in self.world.list_objects(NodePool) for each in self.shop.types_for(pool)]
        zones = index_zones(types, self.world.list_objects(Node), self.world.list_objects(EC2NodeClass))
        options = from_settings(settings)
        return find_shifted_zones(
            shifts, zones, self.options.now, policies=options.policies, min_healthy=options.min_healthy
        )

    def _list_types(self, pool: NodePool) -> Sequence[InstanceType]:
        """What the pool may buy outside of zones that are shifted away."""
        types, away = self.shop.types_for(pool), self.shifted.names
        return tuple(exclude_offerings(each, away) for each in types) if away else types

    def build_snapshot(self) -> Snapshot:
        return self.world.build_snapshot(self._list_types, self.options)

    def build_situation(self) -> Situation:
        """The files' cluster as the controller would see it, with the settings of this environment."""
        away = self.shifted
        return build_situation(
            self.build_snapshot(),
            read_own_settings(),
            excluded_zones=away.names,
            closed_zones={each.spec.zone_id: away.by_shift[each.name] for each in self._list_away()},
        )

    def _list_away(self) -> list[ZoneShift]:
        return [each for each in self.world.list_objects(ZoneShift) if each.name in self.shifted.by_shift]

    def run_plan(self, explain: str, output: Output) -> bool:
        """Plan and show it; true when pods are left out."""
        with ProgressBar(3) as progress:
            situation = self.build_situation()
            if not situation.snapshot.pods and not situation.snapshot.virtual:
                print_note("note: no pod is pending in these files, so there is nothing to plan")
            found = _find_plan(situation, self.quick, progress)
        _refuse_set_aside(found)
        if explain:
            show_explanation(found, explain, output)
        else:
            _show_result(found, output)
        return bool(found.left_out)

    def run_change(self, paths: Sequence[str], deleted: Sequence[str], output: Output) -> bool:
        """Plan before and after a change and show the difference; true when it leaves pods out."""
        changed = read_change_files(paths, deleted)
        names = [parse_object_name(each) for each in deleted]
        seen = SeenCluster(self.build_situation(), {}, read_own_settings())
        known = KnownWorld(
            self._find_offers(changed, names),
            read_default_annotations(seen.settings),
            self.world.list_class_hashes(),
            tuple(self.world.list_objects(LimitRange)),
        )
        found = apply_change(seen.snapshot, changed.build_change(names), known)
        with ProgressBar(CHANGE_STEPS) as progress:
            planned = plan_change(seen, found, self.quick, progress.start_step)
        _refuse_set_aside(planned.before)
        _refuse_set_aside(planned.after)
        return show_planned_change(planned, changed, output)

    def _find_offers(
        self, changed: OfflineCluster, deleted: Sequence[DeletedObject]
    ) -> dict[str, Sequence[InstanceType]] | None:
        """What each NodePool may buy after the change; None where that is as before."""
        kinds = (NodePool, EC2NodeClass, KWOKNodeClass, NodeOverlay)
        if not any(changed.list_objects(each) for each in kinds) and all(
            each.kind not in kinds for each in deleted
        ):
            return None
        merged = self.world.merge_objects(changed, deleted)
        shop = self._choose(merged)
        for remark in merged.list_overlay_remarks(shop.types_for, self.options):
            print_note(f"note: {remark}")

        def list_types(pool: NodePool) -> Sequence[InstanceType]:
            types, away = shop.types_for(pool), self.shifted.names
            return tuple(exclude_offerings(each, away) for each in types) if away else types

        return {pool.name: types for pool, types in merged.list_offers(list_types, self.options)}


def _refuse_set_aside(found: SolvedPlan) -> None:
    """A file can be mended: an object that nothing can be decided with ends the plan, and is not left out."""
    for bad in found.plan.set_aside:
        raise BadInput(f"{bad}; nothing was planned")


def _need_pool(reader: WorldReader, catalog: str, wanted: bool) -> None:
    """Say which NodePool the files would need where they have none; with --default-pool, plan with it."""
    if reader.world.list_objects(NodePool):
        return
    # Without a pool there is no node class to go by, and who asks for prices means EC2's mostly.
    cloud = "kwok" if catalog == "kwok" or reader.world.list_objects(KWOKNodeClass) else "aws"
    flavour = find_provider_api(cloud).labels
    bare = reader.world.build_snapshot(
        lambda pool: (), SchedulingOptions(now=datetime.now(UTC), flavour=flavour)
    )
    pool = build_nodepool_for((*bare.pods, *bare.virtual), cloud, flavour.well_known)
    if wanted:
        reader.world.add(pool["apiVersion"], pool["kind"], pool)
        print_note(f"note: there is no NodePool in these files, so {_pool_words(pool)} is planned with")
    elif bare.pods or bare.virtual:
        needed = _pool_words(pool)
        print_note(
            f"note: there is no NodePool in these files; the pods need {needed}: --default-pool plans with it"
        )


def _pool_words(pool: Mapping[str, Any]) -> str:
    template = pool["spec"]["template"]
    known = template.get("metadata", {}).get("labels", {})
    named = f", labels {', '.join(f'{key}={value}' for key, value in sorted(known.items()))}" if known else ""
    asked = Requirements.from_expressions(
        msgspec.convert(template["spec"]["requirements"], list[Requirement])
    )
    return f"a pool {pool['metadata']['name']} ({asked}{named})"


def _change_cluster(
    seen: SeenCluster, paths: Sequence[str], deleted: Sequence[str], quick: bool, output: Output
) -> bool:
    """Plan for a cluster before and after a change and show it; true when it leaves pods out."""
    changed = read_change_files(paths, deleted)
    found = change_cluster(seen, changed.build_change(parse_object_name(each) for each in deleted))
    with ProgressBar(CHANGE_STEPS) as progress:
        planned = plan_change(seen, found, quick, progress.start_step)
    for bad in {*planned.before.plan.set_aside, *planned.after.plan.set_aside}:
        print_note(f"note: {bad}")
    return show_planned_change(planned, changed, output)


def _plan_cluster(situation: Situation, quick: bool, output: Output) -> bool:
    """Plan for a cluster and show it; true when pods are left out."""
    snapshot = situation.snapshot
    with ProgressBar(3) as progress:
        if not snapshot.pods and not snapshot.moving and not snapshot.virtual:
            print_note("note: no pod is pending in this cluster, so there is nothing to plan")
        found = _find_plan(situation, quick, progress)
    for bad in found.plan.set_aside:
        print_note(f"note: {bad}")
    _show_result(found, output)
    return bool(found.left_out)


def _find_plan(situation: Situation, quick: bool, progress: ProgressBar) -> SolvedPlan:
    found = solve_situation(situation, quick, progress.start_step)
    progress.start_step("how near the others came")
    _ = found.near_misses
    return found


def _show_result(found: SolvedPlan, output: Output) -> None:
    if output is Output.table:
        show_plan(found)
    else:
        plans.write_plan(found, output)


def _choose_catalogue(world: OfflineCluster, catalog: str, subset: str, usual: str) -> Catalogue:
    classes = {each.name: each for each in world.list_objects(EC2NodeClass)}
    return load_catalogue(catalog or choose_catalogue(world.list_objects(NodePool)), classes, subset, usual)
