"""EC2's words for a launch that failed, and the reasons people see."""

from __future__ import annotations

import pytest

from dovetail.providers.aws.launch_errors import FleetError, lacks_capacity, reason_and_message

TEXTS = (
    ("AuthFailure.ServiceLinkedRoleCreationNotPermitted: no", "SpotSLRCreationFailed", "service-linked role"),
    ("UnauthorizedOperation: explicit deny in a permissions boundary", "Unauthorized", "boundary"),
    ("AccessDenied: explicit deny in a service control policy", "Unauthorized", "service control policy"),
    ("AuthFailure: Not authorized for images: [ami-1]", "AMIAuthorizationFailure", "image"),
    ("UnauthorizedOperation: no", "Unauthorized", "no identity policy"),
    ("AuthFailure: no", "Unauthorized", "no identity policy"),
    ("InvalidParameter: groups belong to different networks", "SecurityGroupSubnetVPCMismatch", "VPC"),
    ("Value (x) for parameter iamInstanceProfile.name is invalid", "InstanceProfileNameInvalid", "profile"),
    ("InvalidLaunchTemplateId.NotFound: lt-1", "LaunchTemplateNotFound", "template"),
    ("InvalidParameterValue: User data is limited to 16384 bytes", "UserDataSizeLimitExceeded", "user data"),
    ("InvalidAMIID.Malformed: x", "InvalidAMIID", "malformed"),
    ("InvalidAMIID.NotFound: x", "AMINotFound", "image"),
    ("RequestLimitExceeded: slow down", "RequestLimitExceeded", "fewer requests"),
    ("InternalError: oops", "InternalError", "internal error"),
    ("x is not eligible for Free Tier", "FreeTierIneligible", "free tier"),
    ("MaxFleetCountExceeded: x", "FleetQuotaExceeded", "quota"),
    ("PendingVerification: x", "AccountPendingVerification", "verifying"),
    ("MaxSpotInstanceCountExceeded: x", "SpotQuotaExceeded", "spot"),
    ("VcpuLimitExceeded: x", "VCPULimitExceeded", "vCPU"),
    ("InsufficientFreeAddressesInSubnet: x", "InsufficientFreeAddressesInSubnet", "addresses"),
    ("SomethingElse: x", "LaunchFailed", "SomethingElse: x"),
    ("", "LaunchFailed", "did not say why"),
)


@pytest.mark.parametrize(("text", "reason", "word"), TEXTS)
def test_each_text_has_its_reason_and_a_sentence(text: str, reason: str, word: str) -> None:
    found, sentence = reason_and_message(text)
    assert found == reason
    assert word in sentence


def test_a_boundary_is_named_before_the_plain_denial() -> None:
    text = "AuthFailure: explicit deny in a service control policy, UnauthorizedOperation"
    assert "service control" in reason_and_message(text)[1]


def test_a_lack_of_capacity_is_one_only_when_every_refusal_is() -> None:
    dry = FleetError("InsufficientInstanceCapacity")
    assert lacks_capacity([dry, FleetError("AuthFailure.ServiceLinkedRoleCreationNotPermitted")])
    assert lacks_capacity([])
    assert not lacks_capacity([dry, FleetError("RequestLimitExceeded")])
