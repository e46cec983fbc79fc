"""``dovetail plan``: which nodes the pods in some files would get, what they cost, and why."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dovetail.api.core import Node
from dovetail.api.crds import find_provider_api
from dovetail.api.manifests import DEFAULT, Document, ManifestComplaint, Manifests, Severity, parse_manifests
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass, KWOKNodeClass
from dovetail.api.nodepool import NodePool, Requirement
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.cluster_source import ClusterSource, SeenCluster, read_own_settings
from dovetail.app.snapshot_file import find_cluster
from dovetail.app.solved_plan import SolvedPlan, solve_situation
from dovetail.cli.validate import is_checked, list_complaints
from dovetail.cli.views import plans
from dovetail.cli.views.disruptions import plan_disruption
from dovetail.cli.views.files import STDIN, MoreFiles, OptionalFiles, read_manifests
from dovetail.cli.views.options import (
    ClusterNameOption,
    ContextOption,
    KubeconfigOption,
    ProviderOption,
    RegionOption,
    SnapshotOption,
)
from dovetail.cli.views.output import LEFT_OUT, Output, OutputOption, format_count, print_note, print_remark
from dovetail.cli.views.plan_changes import PlanChange, show_change
from dovetail.cli.views.plans import show_explanation, show_plan
from dovetail.cli.views.progress import ProgressBar
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput, Misconfigured
from dovetail.providers.catalogs import Catalogue, choose_catalogue, load_catalogue
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot
from dovetail.state.default_nodepool import build_nodepool_for
from dovetail.state.nodepool_change import forecast_drift
from dovetail.state.offline import OfflineCluster
from dovetail.state.situation import build_situation
from dovetail.zonal.model.manifest_shifts import (
    ShiftedZones,
    exclude_offerings,
    find_shifted_zones,
    index_zones,
)
from dovetail.zonal.options import from_settings

SUBSET = "catalog-subset"


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
ChangeOption = Annotated[
    str,
    typer.Option(
        metavar="FILE", help="Show what these NodePools would alter: nodes, dollars, pods that move."
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
    catalog: CatalogOption = "",
    catalog_subset: SubsetOption = "",
    explain: ExplainOption = "",
    change: ChangeOption = "",
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
    if disruption:
        seen = _read_world(files, live, snapshot, (catalog, catalog_subset, change), where)
        if plan_disruption(seen, explain, turns, output):
            raise typer.Exit(LEFT_OUT)
        return
    if live or snapshot:
        others = {"catalog": catalog, SUBSET: catalog_subset, "explain": explain, "change": change}
        _only_one_world(files, live, snapshot, others)
        if _plan_cluster(find_cluster(snapshot, where, print_remark).situation, quick, output):
            raise typer.Exit(LEFT_OUT)
        return
    if not files:
        raise Misconfigured("nothing to plan: give files with --filename, a --snapshot, or --live")
    reader = _Reader()
    reader.read_files(files)
    _need_pool(reader, catalog, default_pool)
    asked = _PlanRequest(reader, catalog, catalog_subset, quick)
    left_out = asked.run_change(change, output) if change else asked.run_plan(explain, output)
    if left_out:
        raise typer.Exit(LEFT_OUT)


def _read_world(
    files: Sequence[str], live: bool, snapshot: str, others: tuple[str, ...], where: ClusterSource
) -> SeenCluster:
    """The world whose nodes are asked about: the files', the snapshot's, or else the live cluster's."""
    catalog, subset, change = others
    if change:
        raise BadInput("--disruption and --change exclude each other; leave one out")
    if files and not live and not snapshot:
        reader = _Reader()
        reader.read_files(files)
        asked = _PlanRequest(reader, catalog, subset, quick=True)
        return SeenCluster(asked.build_situation())
    _only_one_world(files, live or not snapshot, snapshot, {"catalog": catalog, SUBSET: subset})
    return find_cluster(snapshot, where, print_remark)


class _PlanRequest:
    """A world that was read, and how to plan for it."""

    def __init__(self, reader: _Reader, catalog: str, subset: str, quick: bool) -> None:
        self.world, self.quick = reader.world, quick
        self.shop = _choose_catalogue(reader, catalog, subset)
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

    def run_change(self, path: str, output: Output) -> bool:
        """Plan before and after a change and show the difference; true when it leaves pods out."""
        changed = self.world.with_pools(_read_pools(path))
        with ProgressBar(4) as progress:
            situation = self.build_situation()
            old = situation.snapshot
            before = solve_situation(situation, self.quick, progress.start_step)
            turned = forecast_drift(
                old.nodes, _index_pools(self.world), _index_pools(changed), self.options.now
            )
            leaving = frozenset(fate.node for fate in turned if not fate.held_by)
            new = changed.build_snapshot(self._list_types, self.options, leaving)
            after = solve_situation(situation.with_snapshot(new), self.quick, progress.start_step)
        _refuse_set_aside(before)
        _refuse_set_aside(after)
        show_change(PlanChange(before, after, turned), output)
        return bool(after.left_out)


def _refuse_set_aside(found: SolvedPlan) -> None:
    """A file can be mended: an object that nothing can be decided with ends the plan, and is not left out."""
    for bad in found.plan.set_aside:
        raise BadInput(f"{bad}; nothing was planned")


def _need_pool(reader: _Reader, catalog: str, wanted: bool) -> None:
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


def _only_one_world(files: Sequence[str], live: bool, snapshot: str, others: Mapping[str, str]) -> None:
    """A cluster brings its own pods, pools and prices; what else was asked for would be ignored."""
    ours = "--live" if live else "--snapshot"
    if files or (live and snapshot):
        raise BadInput(
            f"{ours} and {'--filename' if files else '--snapshot'} exclude each other; leave one out"
        )
    other = next((name for name, value in others.items() if value), "")
    if other:
        instead = "; use `dovetail explain`" if other == "explain" else ""
        raise BadInput(f"--{other} is for files, and {ours} is none{instead}")


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


def _index_pools(world: OfflineCluster) -> dict[str, NodePool]:
    return {pool.name: pool for pool in world.list_objects(NodePool)}


def _choose_catalogue(reader: _Reader, catalog: str, subset: str) -> Catalogue:
    world = reader.world
    classes = {each.name: each for each in world.list_objects(EC2NodeClass)}
    return load_catalogue(
        catalog or choose_catalogue(world.list_objects(NodePool)), classes, subset, reader.subset
    )


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _Annotated(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class _List(msgspec.Struct):
    kind: str
    items: list[msgspec.Raw]
    metadata: _Annotated = _Annotated()


class _Reader:
    """The files a person named, read into a world."""

    def __init__(self) -> None:
        self.world = OfflineCluster()
        self.subset = ""
        self._errors: list[ManifestComplaint] = []

    def read_files(self, paths: Sequence[str]) -> None:
        """Read every file; any that cannot be read ends it, after all have been looked at."""
        found = [self._read_path(path) for path in dict.fromkeys(paths)]
        everything = Manifests.join_manifests([each for each in found if each is not None])
        complaints = [*everything.complaints, *self._errors]
        complaints += [error for document in everything.documents for error in _errors_in(document)]
        for complaint in complaints:
            print_note(str(complaint))
        if any(complaint.severity is Severity.ERROR for complaint in complaints):
            raise BadInput(f"{format_count(len(complaints), 'complaint')}; nothing was planned")
        for document in everything.documents:
            where = f"{document.source}:{document.line}"
            self._add_object(document.api_version, document.kind, document.value, where)

    def _read_path(self, path: str) -> Manifests | None:
        """What is still to be taken in; None when the file was a List, which is taken in at once."""
        if path == STDIN:
            piped = sys.stdin.buffer.read(DEFAULT.size + 1)
            return None if self._read_list(piped, "stdin") else parse_manifests(piped, "stdin")
        if path.endswith(".json"):
            with suppress(OSError):  # whatever is wrong with the file is said below
                if self._read_list(Path(path).read_bytes(), path):
                    return None
        return read_manifests([path])

    def _read_list(self, text: bytes, source: str) -> bool:
        """A List in JSON goes straight from bytes to records: tens of thousands of pods in a moment."""
        try:
            listed = msgspec.json.decode(text, type=_List)
            heads = [msgspec.json.decode(item, type=_Head) for item in listed.items]
        except (msgspec.MsgspecError, RecursionError):
            return False  # whatever is wrong is said by the reader that takes its time
        self.subset = self.subset or listed.metadata.annotations.get(SUBSET, "")
        for number, (head, item) in enumerate(zip(heads, listed.items, strict=True), 1):
            where = f"{source}, item {number}"
            if is_checked(head.api_version, head.kind):
                value = msgspec.json.decode(item, type=dict[str, Any])
                wrong = _errors_in(Document(where, number - 1, head.api_version, head.kind, value))
                self._errors += wrong
                if wrong:
                    continue
            self._add_object(head.api_version, head.kind, bytes(item), where)
        return True

    def _add_object(self, api_version: str, kind: str, document: Any, where: str) -> None:
        try:
            self.world.add(api_version, kind, document)
        except (BadInput, ValueError) as error:
            raise BadInput(f"{where}: {error}") from error


def _errors_in(document: Document) -> list[ManifestComplaint]:
    """What the API server or the controller would refuse of one of our objects; claims were accepted once."""
    if document.kind == NodeClaim.KIND.kind or not is_checked(document.api_version, document.kind):
        return []
    return [each for each in list_complaints(document) if each.severity is Severity.ERROR]


def _read_pools(path: str) -> list[NodePool]:
    reader = _Reader()
    reader.read_files([path])
    pools = reader.world.list_objects(NodePool)
    if not pools:
        raise BadInput(f"{path}: there is no NodePool in it, so there is no change to show")
    return pools
