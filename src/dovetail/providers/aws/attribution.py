"""Which claim an instance was launched for, as far as its tags tell.

Requests alike share a fleet, so a fleet cannot say which of its instances is whose. It can say whom they are
for: one claim by the tag that Karpenter adds later, several by a list of their names. Should we be killed
between a launch and its writing down, the next process gives each claim one of its fleet's instances and does
not launch again; any will do, since the requests were the same. Where the list is too long for a tag, claims
launch again and the first instances are collected as nobody's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.api import labels

if TYPE_CHECKING:
    from dovetail.providers.aws.instances import Ec2Instance

__all__ = ["NODECLAIMS_TAG", "claims_of", "for_claims"]

NODECLAIMS_TAG: Final = "dovetail.sh/nodeclaims"
LONGEST: Final = 256
INSTANCE: Final = "instance"


def for_claims(request: Mapping[str, Any], claims: Sequence[str]) -> dict[str, Any]:
    """A fleet's request whose instances say whom they are for."""
    tag = _tag(sorted(filter(None, claims)))
    if tag is None:
        return dict(request)
    specifications = [
        {**each, "Tags": [*each["Tags"], tag]} if each["ResourceType"] == INSTANCE else each
        for each in request.get("TagSpecifications", ())
    ]
    return {**request, "TagSpecifications": specifications}


def _tag(claims: Sequence[str]) -> dict[str, str] | None:
    if len(claims) == 1:
        return {"Key": labels.NODECLAIM_TAG, "Value": claims[0]}
    listed = " ".join(claims)
    return {"Key": NODECLAIMS_TAG, "Value": listed} if 0 < len(listed) <= LONGEST else None


def claims_of(
    instances: Iterable[Ec2Instance], waiting: Collection[str], taken: Collection[str]
) -> dict[str, str]:
    """The claim of each instance, by instance id.

    `waiting` are the names of claims that have no instance yet, `taken` the provider IDs that some claim has.
    Of a fleet's instances those left over go to the claims left over, in the order of their names.
    """
    found: dict[str, str] = {}
    shared: dict[str, list[str]] = {}
    for each in instances:
        if labels.NODECLAIM_TAG in each.tags:
            found[each.id] = each.tags[labels.NODECLAIM_TAG]
        elif NODECLAIMS_TAG in each.tags and each.provider_id not in taken and not each.ending:
            shared.setdefault(each.tags[NODECLAIMS_TAG], []).append(each.id)
    for listed, ids in shared.items():
        names = sorted(name for name in listed.split(" ") if name in waiting)
        found |= dict(zip(sorted(ids), names, strict=False))
    return found
