"""The end of an EC2NodeClass: it leaves nothing behind, and takes nothing away from under a node."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.controllers.base import DONE, SOON, Cache, Result, after, insisting
from dovetail.errors import Conflict, Gone
from dovetail.ports import Kube, Recorder
from dovetail.providers.aws.controllers.validation import Validation
from dovetail.providers.aws.profiles import Profiles
from dovetail.providers.aws.templates import LaunchTemplates

__all__ = ["Finalizing", "refers_to"]

PATIENCE: Final = timedelta(minutes=10)
NAMED_AT_MOST: Final = 5


def refers_to(claim: NodeClaim, name: str) -> bool:
    """Whether a claim was made from the class of this name."""
    reference, kind = claim.spec.node_class_ref, EC2NodeClass.KIND
    return (reference.group, reference.kind, reference.name) == (kind.group, kind.kind, name)


class Finalizing:
    """Waits for the claims of a class, then removes its instance profiles and launch templates."""

    def __init__(
        self,
        kube: Kube,
        recorder: Recorder,
        claims: Cache[NodeClaim],
        profiles: Profiles,
        templates: LaunchTemplates,
        validation: Validation,
        isolated: bool,
    ) -> None:
        self._kube = kube
        self._recorder = recorder
        self._claims = claims
        self._profiles = profiles
        self._templates = templates
        self._validation = validation
        self._isolated = isolated

    async def finish(self, node_class: EC2NodeClass) -> Result:
        """One step toward the end; the finalizer goes last."""
        if labels.EC2_NODECLASS_TERMINATION not in node_class.metadata.finalizers:
            return DONE
        using = sorted(claim.name for claim in self._claims if refers_to(claim, node_class.name))
        if using:
            self._recorder.event(node_class, "WaitingOnNodeClaimTermination", _waiting_for(using))
            return after(PATIENCE)
        with insisting():
            if not self._isolated:
                await self._profiles.delete_for(node_class)
            await self._templates.delete_for(node_class.name)
        kept = tuple(f for f in node_class.metadata.finalizers if f != labels.EC2_NODECLASS_TERMINATION)
        try:
            await self._kube.patch(
                node_class,
                replace(node_class, metadata=replace(node_class.metadata, finalizers=kept)),
                guarded=True,
            )
        except Conflict:
            return SOON
        except Gone:
            pass
        self._validation.forget(node_class.name)
        return DONE


def _waiting_for(claims: list[str]) -> str:
    named = ", ".join(claims[:NAMED_AT_MOST])
    more = f" and {len(claims) - NAMED_AT_MOST} more" if len(claims) > NAMED_AT_MOST else ""
    return f"Waiting on NodeClaim termination for {named}{more}"
