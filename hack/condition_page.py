"""The reference of conditions: what each says, which make an object Ready, and the reasons they give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import getsource

from dovetail.api import conditions, reasons
from dovetail.api.conditions import ReadinessRules

OPENING = """\
What stands under `status.conditions`. Types and reasons are those of Karpenter. `Ready` is computed: it is
True when every condition marked *counts* is, False when one of them is False, and Unknown until then. The
others come and go by themselves."""
COLUMNS = ("condition", "counts", "when True")

NODE_CLASS = {
    "AMIsReady": "images were found for the selector terms",
    "CapacityReservationsReady": "reservations were looked up; there may be none",
    "InstanceProfileReady": "the instance profile exists and has the role",
    "PlacementGroupReady": "the placement group was found, or none is asked for",
    "SecurityGroupsReady": "security groups were found for the selector terms",
    "SubnetsReady": "subnets were found for the selector terms",
    "ValidationSucceeded": "a dry run of a launch was allowed with this class's own settings",
}
KINDS: dict[str, tuple[ReadinessRules, dict[str, str]]] = {
    "NodePool": (
        conditions.NODEPOOL,
        {
            "ValidationSucceeded": "the spec makes sense beyond what the API server can check",
            "NodeClassReady": "the node class exists and is ready",
            "NodeRegistrationHealthy": "the last nodes of the pool joined the cluster; False: they did not",
            "DriftPaused": "replacements did not become ready, so drift waits",
            "ReplacementsLost": "replacements did not come up; each loss doubles the wait for the next",
        },
    ),
    "NodeClaim": (
        conditions.NODECLAIM,
        {
            "Launched": "the cloud has made the machine",
            "Registered": "its node has joined and bears the claim's labels and taints",
            "Initialized": "the node is ready, startup taints are gone, every resource is there",
            "Consolidatable": "nothing came or went for the pool's `consolidateAfter`",
            "Drifted": "the node is not what its pool or class would make today; the reason says where",
            "DisruptionReason": "the node has been chosen to go",
            "Drained": "every pod that has to leave has left",
            "VolumesDetached": "no volume is attached any more",
            "InstanceTerminating": "the cloud was asked to end the machine",
            "ConsistentStateFound": "the node has at least nine tenths of what its instance type promises",
        },
    ),
    "EC2NodeClass": (conditions.EC2_NODECLASS, NODE_CLASS),
    "KWOKNodeClass": (conditions.KWOK_NODECLASS, {}),
    "NodeOverlay": (
        conditions.NODEOVERLAY,
        {"ValidationSucceeded": "the overlay makes sense and no other of the same weight contradicts it"},
    ),
    "ZoneShift": (
        conditions.ROOTLESS,
        {
            "Degraded": "something could not be written; the message says what, and why",
            "Contested": "another tool keeps putting a pool back; it is left to people",
        },
    ),
    "SpendLimit": (
        conditions.ROOTLESS,
        {
            "Ready": "the limit can be read, and every node that it counts has a price",
            "WithinLimit": (
                "what runs and what is ordered stays within it; lowering a limit takes nothing away"
            ),
            "Achievable": "no proof says that the pods of its pools need a dearer fleet",
        },
    ),
    "Commitment": (
        conditions.ROOTLESS,
        {
            "Current": "it is in force, can be read and is paid in dollars",
            "Full": "this cluster's part of it is used up, so that one more node pays the listed price",
            "Used": "at most a tenth of it is lost; while it is False, its time says since when",
        },
    ),
    "CapacityBuffer": (
        conditions.ROOTLESS,
        {
            "ReadyForProvisioning": "what the buffer asks for is understood",
            "Provisioning": "room for it is there, or is being made",
            "LimitedByQuotas": "a quota keeps it smaller than asked for; set by others",
        },
    ),
}
# Set by kubelets and schedulers, and only read here.
READ_ONLY = {"PodScheduled"}


def sections() -> Iterator[tuple[str, list[tuple[str, str, str]], list[str]]]:
    """Each kind with its conditions and the reasons found on them."""
    _complete()
    given = _reasons()
    for kind, (rules, meanings) in KINDS.items():
        rows = [(f"`{rules.root}`", "", "everything that counts holds")] if rules.root else []
        rows += [(f"`{each}`", _mark(rules, each), says) for each, says in meanings.items()]
        yield kind, rows, given.get(kind, [])


def shared_reasons() -> list[str]:
    """Reasons that any object may show."""
    return _reasons()["Any object"]


def _mark(rules: ReadinessRules, kind: str) -> str:
    return "counts" if kind in rules.dependents else ""


def _complete() -> None:
    known = {
        value
        for name, value in vars(conditions).items()
        if name.isupper() and isinstance(value, str) and value not in (conditions.AWAITING, "True", "False")
    }
    told = {each for _, meanings in KINDS.values() for each in meanings} | {"Ready", "Unknown"} | READ_ONLY
    if known - told:
        raise SystemExit(f"write a sentence in hack/condition_page.py for: {', '.join(sorted(known - told))}")


def _reasons() -> dict[str, list[str]]:
    """Under the headings of api/reasons.py: the kind is what stands before a colon."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in getsource(reasons).splitlines():
        if line.startswith("# "):
            heading = line[2:].split(":")[0]
        elif given := re.fullmatch(r'[A-Z0-9_]+: Final = "(\w+)"', line):
            found.setdefault(heading, []).append(given[1])
    return found
