"""Plans for clusters that are written in files: their catalogue, their zones, and a change of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from dovetail.api.commitment import Commitment
from dovetail.api.core import LimitRange, Node
from dovetail.api.crds import find_provider_api
from dovetail.api.nodeclass import EC2NodeClass, KWOKNodeClass
from dovetail.api.nodepool import NodePool, Requirement
from dovetail.api.overlay import NodeOverlay
from dovetail.api.spend_limit import SpendLimit
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.changed_plan import plan_change
from dovetail.app.cluster_source import SeenCluster, read_own_settings
from dovetail.app.solved_plan import SolvedPlan, solve_situation
from dovetail.cli.views.output import Output, print_note
from dovetail.cli.views.plan_changes import show_planned_change
from dovetail.cli.views.plans import show_explanation, show_plan, write_plan
from dovetail.cli.views.progress import ProgressBar
from dovetail.cli.views.world_files import WorldReader, parse_object_name, read_change_files
from dovetail.disruption.policy import read_default_annotations
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput
from dovetail.providers.catalogs import Catalogue, CataloguePricing, choose_catalogue, load_catalogue
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot
from dovetail.state.changed_pods import DeletedObject
from dovetail.state.changed_pools import KnownWorld
from dovetail.state.changes import apply_change
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

__all__ = ["CHANGE_STEPS", "FilePlanner", "find_plan", "need_pool", "show_result"]

CHANGE_STEPS = 8


class FilePlanner:
    """A cluster that was read from files, and how to plan for it."""

    def __init__(
        self, reader: WorldReader, catalog: str, subset: str, quick: bool, assumed_region: str = ""
    ) -> None:
        self.world, self.quick = reader.world, quick
        pricing = CataloguePricing.from_settings(read_own_settings(), assumed_region)
        self._choose = partial(
            _choose_catalogue, catalog=catalog, subset=subset, usual=reader.subset, pricing=pricing
        )
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
            spend_limits=self.world.list_objects(SpendLimit),
            commitments=self.world.list_objects(Commitment),
        )

    def _list_away(self) -> list[ZoneShift]:
        return [each for each in self.world.list_objects(ZoneShift) if each.name in self.shifted.by_shift]

    def run_plan(self, explain: str, output: Output) -> bool:
        """Plan and show it; true when pods are left out."""
        with ProgressBar(3) as progress:
            situation = self.build_situation()
            if not situation.snapshot.pods and not situation.snapshot.virtual:
                print_note("note: no pod is pending in these files, so there is nothing to plan")
            found = find_plan(situation, self.quick, progress)
        _refuse_set_aside(found)
        if explain:
            show_explanation(found, explain, output)
        else:
            show_result(found, output)
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


def need_pool(reader: WorldReader, catalog: str, wanted: bool) -> None:
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
        print_note(f"note: there is no NodePool in these files, so {_describe_pool(pool)} is planned with")
    elif bare.pods or bare.virtual:
        needed = _describe_pool(pool)
        print_note(
            f"note: there is no NodePool in these files; the pods need {needed}: --default-pool plans with it"
        )


def _describe_pool(pool: Mapping[str, Any]) -> str:
    template = pool["spec"]["template"]
    known = template.get("metadata", {}).get("labels", {})
    named = f", labels {', '.join(f'{key}={value}' for key, value in sorted(known.items()))}" if known else ""
    asked = Requirements.from_expressions(
        msgspec.convert(template["spec"]["requirements"], list[Requirement])
    )
    return f"a pool {pool['metadata']['name']} ({asked}{named})"


def find_plan(situation: Situation, quick: bool, progress: ProgressBar) -> SolvedPlan:
    """The plan for a cluster, and how near the pods without a place came to one."""
    found = solve_situation(situation, quick, progress.start_step)
    progress.start_step("how near the others came")
    _ = found.near_misses
    return found


def show_result(found: SolvedPlan, output: Output) -> None:
    """Print a plan in the shape that was asked for."""
    if output is Output.table:
        show_plan(found)
    else:
        write_plan(found, output)


def _refuse_set_aside(found: SolvedPlan) -> None:
    """A file can be mended: an object that nothing can be decided with ends the plan, and is not left out."""
    for bad in found.plan.set_aside:
        raise BadInput(f"{bad}; nothing was planned")


def _choose_catalogue(
    world: OfflineCluster, catalog: str, subset: str, usual: str, pricing: CataloguePricing
) -> Catalogue:
    classes = {each.name: each for each in world.list_objects(EC2NodeClass)}
    name = catalog or choose_catalogue(world.list_objects(NodePool))
    return load_catalogue(name, classes, subset, usual, pricing)
