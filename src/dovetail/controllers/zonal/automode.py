"""What people should know of a shift where EKS Auto Mode's own pools are all there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.api.core import Node
from dovetail.controllers.zonal.documents import PoolDocument
from dovetail.controllers.zonal.options import ZonalOptions
from dovetail.controllers.zonal.zones import Ground
from dovetail.zonal import clone

__all__ = ["auto_mode"]


def auto_mode(
    zone: str, ground: Ground, pools: Sequence[PoolDocument], nodes: Iterable[Node], options: ZonalOptions
) -> str:
    """How the zone is withheld there, and how far that goes; empty where there are other pools."""
    if not options.edits_pools or not clone.applies([pool.name for pool in pools], ground.built_in):
        return ""
    if options.auto_mode == "Off":
        return "Off: nothing keeps EKS Auto Mode out of the zone"
    if options.auto_mode == "Native" or (options.auto_mode == "auto" and ground.native):
        there = [node for node in nodes if ground.id_of(node) == zone]
        cordoned = sum(node.spec.unschedulable for node in there)
        doubt = (
            "" if ground.native else "; zonalShiftConfig is not enabled on the cluster, so EKS may do nothing"
        )
        return f"Native: EKS steps out by itself; {cordoned} of {len(there)} nodes are cordoned{doubt}"
    return (
        "Clone: a stand-in is preferred; pods that can only run in the zone may still be served there by the "
        "built-in pool"
    )
