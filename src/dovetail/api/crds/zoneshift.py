"""ZoneShift as admitted: dovetail.sh/v1alpha1."""

from __future__ import annotations

from dovetail.api.crds.definition import AGE, Column, Definition, Field, constrained, mounted
from dovetail.api.crds.parts import CONDITION, PLAIN_CONDITIONS
from dovetail.api.zoneshift import ZoneShift

_KINDS = [
    *("ZONAL_SHIFT", "ZONAL_AUTOSHIFT", "PRACTICE_RUN", "FIS_EXPERIMENT", "OBSERVED", "LOCAL"),
    # A message that was received, kept for whoever leads to look at.
    "SIGNAL",
]
_PHASES = ["", "Pending", "Applying", "Active", "Restoring", "Restored", "Refused", "Failed"]
_COUNT = {
    "desired": constrained("How many there are to do."),
    "done": constrained("How many are done."),
}

FIELDS: dict[str, Field] = {
    "spec": constrained("Which zone, by whose wish, and what to do about it.", required=True),
    "spec.zoneId": constrained("The zone's id, such as use1-az1.", required=True, minLength=1, maxLength=32),
    "spec.kind": constrained("Who asked for it.", enum=_KINDS, default="LOCAL"),
    "spec.shiftId": constrained("ARC's name for the shift."),
    "spec.clusterArn": constrained("The cluster it is about."),
    "spec.policy": constrained(
        "What to do about it.", enum=["Enforce", "Protect", "Observe", "Ignore"], default="Enforce"
    ),
    "spec.dryRun": constrained("Only say what would be done."),
    "spec.expires": constrained("When a LOCAL shift ends by itself.", format="date-time"),
    "spec.comment": constrained("Why, for people.", maxLength=128),
    "status": constrained("How far it has come."),
    "status.phase": constrained("Where the shift stands.", enum=_PHASES),
    "status.zoneName": constrained("The zone's name in this account."),
    "status.startedAt": constrained("When it began.", format="date-time"),
    "status.expiryTime": constrained("When it ends, if it says so.", format="date-time"),
    "status.lastConfirmedAt": constrained("When ARC last showed it.", format="date-time"),
    "status.goneAt": constrained("When ARC first no longer showed it.", format="date-time"),
    "status.endedAt": constrained("When everything was as before.", format="date-time"),
    "status.endReason": constrained("Why it ended."),
    "status.step": constrained("The step of the way back."),
    "status.steppedAt": constrained("When that step began.", format="date-time"),
    "status.steps": constrained("How far each step has come."),
    "status.steps.gate": constrained("Whether nothing is bought in the zone."),
    "status.steps.disruption": constrained("Whether nothing is taken away by choice in the zone."),
    "status.steps.nodes": constrained("Nodes marked."),
    **mounted("status.steps.nodes", _COUNT),
    "status.steps.nodePools": constrained("Pools edited."),
    **mounted("status.steps.nodePools", _COUNT),
    "status.ledger": constrained("What was changed, in sum; each object says for itself what and how."),
    "status.ledger.nodePools": constrained("Pools that were edited."),
    "status.ledger.nodes": constrained("Nodes that were marked."),
    "status.ledger.nodes.count": constrained("How many."),
    "status.ledger.clones": constrained("Pools that stand in for those of EKS Auto Mode."),
    "status.impact": constrained("What losing the zone would mean."),
    "status.plan": constrained("What a dry run would write.", maxItems=1000),
    "status.conditions": PLAIN_CONDITIONS,
    **mounted("status.conditions[]", CONDITION),
}

ZONESHIFT = Definition(
    ZoneShift,
    "A zone that is stepped out of.",
    FIELDS,
    (),
    (
        Column("Zone", ".spec.zoneId", "string"),
        Column("Kind", ".spec.kind", "string"),
        Column("Phase", ".status.phase", "string"),
        AGE,
    ),
    short_names=("zs",),
)
