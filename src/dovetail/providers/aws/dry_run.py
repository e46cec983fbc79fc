"""Would a launch with this class be allowed? EC2 is asked with dry runs, before any pod waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dovetail.api import labels, reasons
from dovetail.api.hashes import ami_family
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.aws import Aws, AwsDenied, AwsError, AwsInvalid, AwsTrouble, DryRunPassed
from dovetail.errors import CreateFailed, Retry
from dovetail.providers.aws.fleet import ON_DEMAND, fleet_request
from dovetail.providers.aws.image_aliases import STANDARD
from dovetail.providers.aws.images import group_by_image
from dovetail.providers.aws.launch_templates import LaunchTemplate, LaunchTemplateProvider
from dovetail.providers.aws.placement_groups import PlacementGroup
from dovetail.providers.aws.tags import build_launch_tags, list_tags
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements
from dovetail.settings import Settings

__all__ = ["PASSED", "UNDECIDED", "DryRunResult", "DryRuns", "choose_type", "tenancy_of"]

USER_DATA_MALFORMED: Final = "InvalidUserData.Malformed"
UNAUTHORIZED: Final = "UnauthorizedOperation"
PROFILE_UNKNOWN: Final = "Invalid IAM Instance Profile name"
SIZE_LIMIT: Final = "limited to"
# Types that everybody sells and every image of their architecture starts.
PLAIN_TYPES: Final = ("m5.large", "m6g.large")
DEDICATED: Final = "dedicated"
RUN_TAGGED: Final = ("instance", "volume", "network-interface")
PLAIN_NODES: Final = Requirements.from_expressions(STANDARD)
# Who denies, by EC2's words, and what a person can do about it.
DENIALS: Final = (
    (
        "explicit deny in a permissions boundary",
        "a permissions boundary of the controller's role denies {action}; let the boundary allow it",
    ),
    (
        "explicit deny in a service control policy",
        "a service control policy of the organisation denies {action}; ask those who keep it to allow it",
    ),
)
NOBODY_ALLOWS: Final = (
    "no identity policy of the controller's role allows {action}; attach the controller policies to the role"
)
SECRET_PART: Final = "Encoded authorization failure message"


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """What EC2 thinks of a class. An undecided one says nothing, and one that is not kept is asked again."""

    reason: str = ""
    message: str = ""
    decided: bool = True
    kept: bool = True


PASSED: Final = DryRunResult()
UNDECIDED: Final = DryRunResult(decided=False, kept=False)


class InstanceTypeLister(Protocol):
    """What a class could buy."""

    async def list_types(self, node_class: EC2NodeClass, /) -> tuple[InstanceType, ...]: ...


class DryRuns:
    """Makes one launch template for real, and tries a fleet and an instance for show."""

    def __init__(
        self, aws: Aws, settings: Settings, templates: LaunchTemplateProvider, types: InstanceTypeLister
    ) -> None:
        self._aws = aws
        self._cluster = settings.cluster_name
        self._templates = templates
        self._types = types

    async def check_class(
        self, node_class: EC2NodeClass, pools: Sequence[NodePool], group: PlacementGroup | None = None
    ) -> DryRunResult:
        """Whether a launch would be allowed, and if not, who must do what."""
        tried = choose_type(node_class, await self._types.list_types(node_class), pools)
        if tried is None:
            raise Retry(
                f"checking EC2NodeClass {node_class.name}: no instance type suits its images; "
                "check amiSelectorTerms and the NodePools' requirements"
            )
        tags = build_launch_tags(node_class, self._cluster, "")
        tenancy = tenancy_of(pools)
        verdict, template = await self._create_template(node_class, tried, tags, tenancy, group)
        if template is None:
            return verdict
        verdict = await self._try_fleet(node_class, template, tried, tags)
        return verdict if verdict != PASSED else await self._try_instance(node_class, template, tried, tags)

    async def _create_template(
        self,
        node_class: EC2NodeClass,
        tried: InstanceType,
        tags: Mapping[str, str],
        tenancy: str,
        group: PlacementGroup | None,
    ) -> tuple[DryRunResult, LaunchTemplate | None]:
        try:
            made = await self._templates.ensure_templates(
                node_class, NodeClaim(), [tried], labels.ON_DEMAND, tags, tenancy=tenancy, placement=group
            )
        except AwsInvalid as error:
            if error.code == USER_DATA_MALFORMED and SIZE_LIMIT in error.message:
                return DryRunResult(reasons.USER_DATA_SIZE_LIMIT_EXCEEDED, _too_long(error)), None
            raise
        except AwsError as error:
            return explain_denial(error, "CreateLaunchTemplate"), None
        except CreateFailed as error:
            return DryRunResult(_find_reason(error.reason), error.message), None
        return PASSED, made[0]

    async def _try_fleet(
        self, node_class: EC2NodeClass, template: LaunchTemplate, tried: InstanceType, tags: Mapping[str, str]
    ) -> DryRunResult:
        overrides = [
            {"InstanceType": tried.name, "SubnetId": subnet.id, "ImageId": template.image_id}
            for subnet in node_class.status.subnets
        ]
        configured = {"LaunchTemplateSpecification": _latest_version(template), "Overrides": overrides}
        asked = fleet_request(node_class, NodeClaim(), [configured], ON_DEMAND, tags)
        return await self._try_call("CreateFleet", asked)

    async def _try_instance(
        self, node_class: EC2NodeClass, template: LaunchTemplate, tried: InstanceType, tags: Mapping[str, str]
    ) -> DryRunResult:
        """Subnet by subnet: one that works is enough, and if none does the first one's answer counts."""
        first: DryRunResult | AwsError | None = None
        for subnet in node_class.status.subnets:
            asked = _run_request(node_class, template, tried, subnet.id, tags)
            outcome: DryRunResult | AwsError
            try:
                outcome = await self._try_call("RunInstances", asked)
            except AwsError as error:
                outcome = _find_profile_result(node_class, error) or error
            if outcome == PASSED:
                return PASSED
            first = first if first is not None else outcome
        if isinstance(first, AwsError):
            raise first
        return first if first is not None else PASSED

    async def _try_call(self, operation: str, asked: Mapping[str, Any]) -> DryRunResult:
        try:
            await self._aws.call("ec2", operation, {**asked, "DryRun": True}, retried=False)
        except DryRunPassed:
            return PASSED
        except AwsError as error:
            return explain_denial(error, operation)
        return PASSED


def explain_denial(error: AwsError, operation: str) -> DryRunResult:
    """What a refusal means for the class; errors that mean nothing for it are raised again."""
    if isinstance(error, AwsTrouble):
        return UNDECIDED
    if not isinstance(error, AwsDenied) or error.code != UNAUTHORIZED:
        raise error
    told = next((sentence for words, sentence in DENIALS if words in error.message), NOBODY_ALLOWS)
    said = error.message.partition(SECRET_PART)[0].strip()
    sentence = told.format(action=f"ec2:{operation}")
    return DryRunResult(_AUTH_REASONS[operation], f"{sentence} (EC2: {said})" if said else sentence)


_AUTH_REASONS: Final = {
    "CreateLaunchTemplate": reasons.CREATE_LAUNCH_TEMPLATE_AUTH_CHECK_FAILED,
    "CreateFleet": reasons.CREATE_FLEET_AUTH_CHECK_FAILED,
    "RunInstances": reasons.RUN_INSTANCES_AUTH_CHECK_FAILED,
}


def choose_type(
    node_class: EC2NodeClass, types: Sequence[InstanceType], pools: Iterable[NodePool]
) -> InstanceType | None:
    """The type to try: one that pools of the class want, without devices if there is one like that."""
    wanted = [_build_requirements(pool) for pool in pools]
    usable = [
        each
        for each in types
        if any(each_wants.is_compatible(each.requirements, labels.WELL_KNOWN_AWS) for each_wants in wanted)
    ]
    if not usable or ami_family(node_class.spec).startswith("Windows"):
        # EC2 sells types to Windows that Windows does not run on.
        usable = [each for each in types if each.name in PLAIN_TYPES] or list(types)
    mapped = group_by_image(node_class.status.amis, usable)
    ordered = [each for ami in node_class.status.amis for each in mapped.get(ami, ())]
    plain = (each for each in ordered if each.requirements.is_compatible(PLAIN_NODES, labels.WELL_KNOWN_AWS))
    return next(plain, ordered[0] if ordered else None)


def tenancy_of(pools: Iterable[NodePool]) -> str:
    """The tenancy that needs most permission, if any pool asks for it."""
    for wanted in map(_build_requirements, pools):
        if labels.INSTANCE_TENANCY in wanted and DEDICATED in wanted[labels.INSTANCE_TENANCY]:
            return DEDICATED
    return "default"


def _build_requirements(pool: NodePool) -> Requirements:
    template = pool.spec.template
    written = Requirements.from_expressions(template.spec.requirements or ())
    return written & Requirements.from_labels(template.metadata.labels)


def _run_request(
    node_class: EC2NodeClass,
    template: LaunchTemplate,
    tried: InstanceType,
    subnet: str,
    tags: Mapping[str, str],
) -> dict[str, Any]:
    groups = [group.id for group in node_class.status.security_groups]
    return {
        "LaunchTemplate": _latest_version(template),
        "InstanceType": tried.name,
        "ImageId": template.image_id,
        "MinCount": 1,
        "MaxCount": 1,
        # A template with interfaces takes no subnet beside them; an interface that names one takes its place.
        "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": subnet, "Groups": groups}],
        "TagSpecifications": [{"ResourceType": kind, "Tags": list_tags(tags)} for kind in RUN_TAGGED],
    }


def _latest_version(template: LaunchTemplate) -> dict[str, str]:
    return {"LaunchTemplateName": template.name, "Version": "$Latest"}


def _find_profile_result(node_class: EC2NodeClass, error: AwsError) -> DryRunResult | None:
    """EC2 hears of new instance profiles late; one that a person named may not be there at all."""
    if error.code != "InvalidParameterValue" or PROFILE_UNKNOWN not in error.message:
        return None
    named = node_class.spec.instance_profile
    if not named:
        return UNDECIDED
    why = (
        f"EC2 does not know the instance profile {named}; create it, or name another in spec.instanceProfile"
    )
    return DryRunResult(reasons.INSTANCE_PROFILE_NOT_FOUND, why, kept=False)


def _too_long(error: AwsError) -> str:
    return f"the user data is longer than EC2 takes; shorten spec.userData (EC2: {error.message})"


def _find_reason(reason: str) -> str:
    """A launch would fail for this reason; the general one says nothing on a class."""
    return reasons.USER_DATA_INVALID if reason == "LaunchFailed" else reason
