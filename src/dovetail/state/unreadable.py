"""What the controller would set aside of an object that is still a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.api import codec, core
from dovetail.api.bad_items import reason_of
from dovetail.api.meta import Object
from dovetail.api.salvage import Loss, find_losses
from dovetail.api.zoneshift import ZoneShift
from dovetail.errors import BadInput
from dovetail.scheduling.model.daemonsets import build_daemon_pods
from dovetail.scheduling.model.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from dovetail.state.offline import KINDS

__all__ = ["KINDS_READ", "find_doubts"]

KINDS_READ: Mapping[tuple[str, str], type[Object]] = {
    **KINDS,
    **{
        (kind.KIND.api_version, kind.KIND.kind): kind
        for kind in (core.VolumeAttachment, DeviceClass, ResourceClaim, ResourceSlice, ZoneShift)
    },
}
"""Every kind that the controller reads, by its API version and name."""


def find_doubts(api_version: str, kind: str, document: Mapping[str, Any]) -> Iterator[Loss]:
    """The path and the reason of everything that makes the controller set an object aside."""
    record = KINDS_READ.get((api_version, kind))
    if record is None:
        return
    try:
        made = codec.convert(record, document)
    except BadInput as error:
        yield from find_losses(record, document) or (Loss("", str(error)),)
        return
    if why := reason_of(made):
        yield Loss("", why)
    if isinstance(made, core.DaemonSet):
        for bad in build_daemon_pods([(made, None)])[1]:
            yield Loss("spec.template.spec", bad.why)
