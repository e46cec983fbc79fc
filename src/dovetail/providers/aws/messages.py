"""What the AWS provider says in the log beside what every controller says."""

from __future__ import annotations

from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.logs import info, reference

__all__ = ["log_interruption"]

INTERRUPTED = info(
    "initiating delete from interruption message",
    "AWS takes an instance away, or it is not well: its NodeClaim is ended.",
    ("queue", "messageKind", "NodeClaim", "action", "Node"),
)
ACTION = "CordonAndDrain"


def log_interruption(queue: str, kind: str, claim: NodeClaim, nodes: tuple[Node, ...]) -> None:
    """Say that a claim is ended because of a message, or of a look at the status of instances."""
    INTERRUPTED(
        {
            **({"queue": queue} if queue else {}),
            "messageKind": kind,
            "NodeClaim": reference(claim.name),
            "action": ACTION,
            **({"Node": reference(nodes[0].name)} if nodes else {}),
        }
    )
