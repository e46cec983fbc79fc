"""Which claim an instance was launched for, as far as its tags tell.

Requests alike share a fleet, so a fleet cannot say which of its instances is whose. It can say whom they are
for: one claim by the tag that Karpenter adds later, several by a list of their names, and where that is too
long for a tag, by the group that all of them are of. Should we be killed between a launch and its writing
down, the next process gives each claim one of its fleet's instances and does not launch again; any will do,
since the requests were the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from dovetail.api import labels

if TYPE_CHECKING:
    from dovetail.providers.aws.instances import Ec2Instance

__all__ = ["NODECLAIMS_TAG", "claims_of", "for_claims"]

NODECLAIMS_TAG: Final = "dovetail.sh/nodeclaims"
LONGEST: Final = 256
OF_GROUP: Final = "group:"
DIGEST: Final = 16
INSTANCE: Final = "instance"


def for_claims(request: Mapping[str, Any], claims: Sequence[str], group: str = "") -> dict[str, Any]:
    """A fleet's request whose instances say whom they are for; no two sets of claims make the same one."""
    tag = _tag(sorted(filter(None, claims)), group)
    if tag is None:
        return dict(request)
    specifications = [
        {**each, "Tags": [*each["Tags"], tag]} if each["ResourceType"] == INSTANCE else each
        for each in request.get("TagSpecifications", ())
    ]
    return {**request, "TagSpecifications": specifications}


def _tag(claims: Sequence[str], group: str) -> dict[str, str] | None:
    if len(claims) <= 1:
        return {"Key": labels.NODECLAIM_TAG, "Value": claims[0]} if claims else None
    listed = " ".join(claims)
    if len(listed) > LONGEST:
        listed = f"{OF_GROUP}{group} {sha256(listed.encode()).hexdigest()[:DIGEST]}"
    return {"Key": NODECLAIMS_TAG, "Value": listed}


def claims_of(
    instances: Iterable[Ec2Instance], waiting: Mapping[str, str], taken: Collection[str]
) -> dict[str, str]:
    """The claim of each instance, by instance id.

    `waiting` are the names of claims that have no instance yet, each with its group; `taken` the provider IDs
    that some claim has. Of a fleet's instances those left over go to the claims left over, by their names.
    """
    found: dict[str, str] = {}
    shared: dict[str, list[str]] = {}
    for each in instances:
        if labels.NODECLAIM_TAG in each.tags:
            found[each.id] = each.tags[labels.NODECLAIM_TAG]
        elif NODECLAIMS_TAG in each.tags and each.provider_id not in taken and not each.ending:
            shared.setdefault(each.tags[NODECLAIMS_TAG], []).append(each.id)
    # Those that name their claims first; what is left may be any of its group's.
    for listed, ids in sorted(shared.items(), key=lambda each: each[0].startswith(OF_GROUP)):
        given = set(found.values())
        names = [name for name in _named(listed, waiting) if name not in given]
        found |= dict(zip(sorted(ids), names, strict=False))
    return found


def _named(listed: str, waiting: Mapping[str, str]) -> list[str]:
    """The waiting claims that a tag may mean."""
    if not listed.startswith(OF_GROUP):
        return sorted(name for name in listed.split(" ") if name in waiting)
    group = listed.removeprefix(OF_GROUP).partition(" ")[0]
    return sorted(name for name, known in waiting.items() if known == group)
