"""Why EC2 would not launch: its words, sorted into the reasons a NodeClaim's Launched condition shows.

Upstream reads these from error texts, since a fleet reports refusals as text; so the table is one of texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = [
    "CAPACITY_CODES",
    "FREE_ADDRESSES",
    "MAYBE_DONE",
    "SERVICE_LINKED_ROLE",
    "TEMPLATE_GONE",
    "FleetError",
    "lacks_capacity",
    "reason_and_message",
]

SERVICE_LINKED_ROLE: Final = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
FREE_ADDRESSES: Final = "InsufficientFreeAddressesInSubnet"
TEMPLATE_GONE: Final = "InvalidLaunchTemplateName.NotFoundException"
CAPACITY_CODES: Final = frozenset(
    {
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        FREE_ADDRESSES,
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
    }
)
# After these nobody knows whether a request was carried out.
MAYBE_DONE: Final = frozenset(
    {"NoAnswer", "InternalError", "InternalFailure", "InternalServerError", "RequestTimeout"}
)
SPREAD_GROUP: Final = "spread placement group"
DENIALS: Final = ("UnauthorizedOperation", "AccessDenied", "AuthFailure")


@dataclass(frozen=True, slots=True)
class FleetError:
    """One refusal of a fleet: the code, EC2's sentence, and the override it is about."""

    code: str
    message: str = ""
    instance_type: str = ""
    zone: str = ""
    subnet: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def spread_limit(self) -> bool:
        """The group has as many instances in the zone as a spread group may."""
        return SPREAD_GROUP in self.message.lower()


# All the texts of a row must occur; the first row that fits gives reason and sentence.
TABLE: Final[tuple[tuple[tuple[str, ...], str, str], ...]] = (
    (
        (SERVICE_LINKED_ROLE,),
        "SpotSLRCreationFailed",
        "the account has no service-linked role for spot and the controller may not create it; "
        "create it with `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`",
    ),
    *(
        row
        for denial in DENIALS
        for row in (
            (
                (denial, "explicit deny in a permissions boundary"),
                "Unauthorized",
                "a permissions boundary denies the launch; let it allow what the controller's policies allow",
            ),
            (
                (denial, "explicit deny in a service control policy"),
                "Unauthorized",
                "a service control policy of the organisation denies the launch; ask who keeps it",
            ),
            (
                (denial, "Not authorized for images"),
                "AMIAuthorizationFailure",
                "the account may not use the image; share it with the account or choose another",
            ),
        )
    ),
    *(
        (
            (denial,),
            "Unauthorized",
            "no identity policy allows the launch; give the controller's role the documented policies",
        )
        for denial in DENIALS
    ),
    (
        ("InvalidParameter", "belong to different networks"),
        "SecurityGroupSubnetVPCMismatch",
        "security groups and subnets of the node class are in different VPCs",
    ),
    (
        ("iamInstanceProfile.name is invalid",),
        "InstanceProfileNameInvalid",
        "the instance profile's name is not known to EC2; it may have been deleted, or be new",
    ),
    (
        ("InvalidLaunchTemplateId.NotFound",),
        "LaunchTemplateNotFound",
        "the launch template is gone; it will be made again",
    ),
    (
        ("User data is limited to",),
        "UserDataSizeLimitExceeded",
        "the user data is larger than the 16 KiB EC2 takes; shorten spec.userData",
    ),
    (("InvalidAMIID.Malformed",), "InvalidAMIID", "the image id is malformed"),
    (
        ("InvalidAMIID.NotFound",),
        "AMINotFound",
        "the image is gone, or is not shared with this account and region",
    ),
    (
        ("IdempotentParameterMismatch",),
        "LaunchUnderWay",
        "an earlier attempt has launched for this NodeClaim; looking for its instance before trying again",
    ),
    (("RequestLimitExceeded",), "RequestLimitExceeded", "EC2 asks for fewer requests; trying again"),
    (("InternalError",), "InternalError", "EC2 had an internal error; trying again"),
    (
        ("not eligible for Free Tier",),
        "FreeTierIneligible",
        "the account is limited to the free tier and this type is not part of it",
    ),
    (
        ("MaxFleetCountExceeded",),
        "FleetQuotaExceeded",
        "the account's quota of fleets is used up; ask AWS for more",
    ),
    (
        ("PendingVerification",),
        "AccountPendingVerification",
        "AWS is still verifying the account for this region",
    ),
    (
        ("MaxSpotInstanceCountExceeded",),
        "SpotQuotaExceeded",
        "the account's quota of spot instances is used up; ask AWS for more",
    ),
    (
        ("VcpuLimitExceeded",),
        "VCPULimitExceeded",
        "the account's quota of vCPUs for these types is used up; ask AWS for more",
    ),
    (
        (FREE_ADDRESSES,),
        FREE_ADDRESSES,
        "the subnets have no free addresses left; add a subnet or free some",
    ),
)
OTHER: Final = "LaunchFailed"


def reason_and_message(text: str) -> tuple[str, str]:
    """The reason for the condition, and a sentence for people."""
    for needed, reason, sentence in TABLE:
        if all(each in text for each in needed):
            return reason, sentence
    return OTHER, text or "launching failed, and EC2 did not say why"


def lacks_capacity(errors: Iterable[FleetError]) -> bool:
    """Whether every refusal is one that other offerings may not share. Nothing said counts as that, too."""
    return all(error.code in CAPACITY_CODES or error.code == SERVICE_LINKED_ROLE for error in errors)
