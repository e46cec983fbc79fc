"""A launch: types are chosen, a fleet is asked, and what it refuses is remembered for next time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import AwsError
from dovetail.errors import CreateFailed, InsufficientCapacity
from dovetail.logs import build_reference, get_logger
from dovetail.metrics import counter
from dovetail.ports import Clock, Recorder
from dovetail.providers.aws.batcher import FleetBatcher
from dovetail.providers.aws.capacity_reservations import CapacityReservationProvider
from dovetail.providers.aws.fleet import (
    LaunchedInstance,
    build_configurations,
    choose_capacity_type,
    choose_target,
    choose_tenancy,
    fleet_request,
    read_answer,
    with_capacity_type,
)
from dovetail.providers.aws.instances import Ec2Instance
from dovetail.providers.aws.launch_errors import (
    CAPACITY_CODES,
    FREE_ADDRESSES,
    MAYBE_DONE,
    SERVICE_LINKED_ROLE,
    TEMPLATE_GONE,
    FleetError,
    lacks_capacity,
    reason_and_message,
)
from dovetail.providers.aws.launch_templates import LaunchTemplate, LaunchTemplateProvider
from dovetail.providers.aws.launch_tokens import TOKEN_USED, launch_group
from dovetail.providers.aws.network import SubnetChoice, SubnetProvider
from dovetail.providers.aws.placement_groups import PlacementGroup
from dovetail.providers.aws.type_filters import KNOWN, TypeChoices
from dovetail.providers.aws.unavailable_offerings import UnavailableOfferings
from dovetail.scheduling.model.instance_types import InstanceType, Offering, list_usable_offerings
from dovetail.scheduling.model.requirements import Requirements

__all__ = ["InstanceLauncher", "Turns"]


class Turns:
    """Lets one begin in each round of the loop, in the order they asked, so that everyone else comes between.

    A thousand tasks that are ready together run in one round, and nothing else does until the last is over.
    """

    def __init__(self) -> None:
        self._door = asyncio.Lock()

    async def __call__(self) -> None:
        async with self._door:
            await asyncio.sleep(0)


LAUNCH_FAILURES = counter(
    "karpenter_cloudprovider_instance_launch_failures_total",
    "Offerings that could not be launched, one for each refusal.",
    ("zone", "zone_id", "capacity_type", "reason"),
)
EFA_ONLY = "efa-only"
FEW_TYPES = 5
UNTIL_SHOWN = 5.0
UNTIL_SURELY_SHOWN = 15.0
log = get_logger()


@dataclass(frozen=True, slots=True)
class _Order:
    """One launch, settled as far as the request."""

    node_class: EC2NodeClass
    claim: NodeClaim
    types: Sequence[InstanceType]
    capacity_type: str
    requirements: Requirements  # with the capacity type pinned
    tenancy: str
    tags: Mapping[str, str]
    group: PlacementGroup | None
    partition: str

    def find_offering(self, instance_type: str, zone: str) -> Offering | None:
        """What was bought there: the filters left one reservation at most of a type in a zone."""
        return next(
            (
                offering
                for each in self.types
                if each.name == instance_type
                for offering in list_usable_offerings(each, self.requirements, KNOWN)
                if offering.zone == zone
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class InstanceLauncher:
    """Starts one instance for a claim, from whichever offering EC2 can give now."""

    clock: Clock
    recorder: Recorder
    fleets: FleetBatcher
    subnets: SubnetProvider
    templates: LaunchTemplateProvider
    reservations: CapacityReservationProvider
    unavailable: UnavailableOfferings
    chosen: TypeChoices
    turn: Turns = field(default_factory=Turns)

    async def launch_instance(
        self,
        node_class: EC2NodeClass,
        claim: NodeClaim,
        types: Sequence[InstanceType],
        tags: Mapping[str, str],
        group: PlacementGroup | None = None,
    ) -> Ec2Instance:
        """InsufficientCapacity when other offerings must be planned for, CreateFailed for other trouble."""
        await self.turn()
        order = self._build_order(node_class, claim, types, tags, group)
        try:
            return await self._attempt_launch(order)
        except AwsError as error:
            # The template was swept or deleted under us. It is made anew, once; the name is in the code only.
            if error.code != TEMPLATE_GONE:
                raise self._build_failure(str(error)) from error
        try:
            return await self._attempt_launch(order)
        except AwsError as error:
            raise self._build_failure(str(error)) from error

    def _build_order(
        self,
        node_class: EC2NodeClass,
        claim: NodeClaim,
        types: Sequence[InstanceType],
        tags: Mapping[str, str],
        group: PlacementGroup | None,
    ) -> _Order:
        wanted = Requirements.from_expressions(claim.spec.requirements)
        kept = self.chosen.choose_types(types, claim)
        capacity_type = choose_capacity_type(kept, wanted)
        if (
            capacity_type == labels.ON_DEMAND
            and len(kept) < FEW_TYPES
            and labels.SPOT in wanted[labels.CAPACITY_TYPE]
        ):
            log.info(
                "a nodeclaim that may use spot has few instance types to choose from",
                NodeClaim=build_reference(claim.name),
                types=len(kept),
            )
        return _Order(
            node_class,
            claim,
            kept,
            capacity_type,
            with_capacity_type(wanted, capacity_type),
            choose_tenancy(wanted),
            tags,
            group,
            _choose_partition(wanted, group),
        )

    async def _attempt_launch(self, order: _Order) -> Ec2Instance:
        await self.turn()
        templates = await self.templates.ensure_templates(
            order.node_class,
            order.claim,
            order.types,
            order.capacity_type,
            order.tags,
            tenancy=order.tenancy,
            placement=order.group,
            partition=order.partition,
        )
        await self.turn()
        choice = self.subnets.choose_subnets(order.node_class, order.types, order.capacity_type)
        used: set[str] = set()
        try:
            started, refusals = await self._request_fleet(order, templates, choice)
            used |= {started.subnet} if started is not None else set()
        finally:
            self.subnets.settle_launch(choice, used)
        for refusal in refusals:
            # A fleet can succeed and still refuse some offerings; both are remembered.
            self._remember_refusal(order, refusal, choice)
        if started is None:
            raise self._build_refusal(refusals)
        return self._build_instance(order, started, choice)

    async def _request_fleet(
        self, order: _Order, templates: Sequence[LaunchTemplate], choice: SubnetChoice
    ) -> tuple[LaunchedInstance | None, tuple[FleetError, ...]]:
        configured = build_configurations(templates, order.requirements, choice)
        if not configured:
            raise self._build_failure(
                "no launch template has an instance type with a subnet in a zone that sells it"
            )
        offerings = [
            o for each in order.types for o in list_usable_offerings(each, order.requirements, KNOWN)
        ]
        target = choose_target(order.capacity_type, offerings)
        request = fleet_request(order.node_class, order.claim, configured, target, order.tags)
        try:
            group = launch_group(order.claim, order.tags.get(labels.EKS_CLUSTER_TAG, ""))
            return read_answer(await self.fleets(request, order.claim.name, group))
        except AwsError as error:
            if error.code == TEMPLATE_GONE:
                for template in templates:
                    self.templates.forget_template(template.name)
            if error.code in MAYBE_DONE:
                # It may have been done all the same. EC2 shows a new instance only after a moment, and the
                # next attempt begins by looking for it.
                await self.clock.sleep(UNTIL_SHOWN)
            if error.code == TOKEN_USED:
                # An earlier attempt, perhaps another process's, launched: its instance is looked for.
                await self.clock.sleep(UNTIL_SURELY_SHOWN)
            raise

    def _remember_refusal(self, order: _Order, refusal: FleetError, choice: SubnetChoice) -> None:
        subnet = choice.by_zone.get(refusal.zone)
        reason, _ = reason_and_message(str(refusal))
        zone_id = subnet.zone_id if subnet is not None else ""
        LAUNCH_FAILURES.labels(refusal.zone, zone_id, order.capacity_type, reason).inc()
        group = order.group.id if order.group is not None else ""
        if refusal.code == FREE_ADDRESSES and refusal.subnet:
            self.unavailable.mark_subnet(refusal.subnet)
            self.subnets.mark_exhausted(refusal.subnet)
        if refusal.code == SERVICE_LINKED_ROLE:
            self._report_missing_spot_role(order.claim)
        elif group and refusal.spread_limit:
            for each in order.types:
                self.unavailable.mark_offering(order.capacity_type, each.name, refusal.zone, group)
        elif refusal.code in CAPACITY_CODES and order.capacity_type == labels.RESERVED:
            offering = order.find_offering(refusal.instance_type, refusal.zone)
            if offering is not None:
                self.reservations.mark_unavailable(offering.reservation_id)
        elif refusal.code in CAPACITY_CODES:
            self.unavailable.mark_offering(
                order.capacity_type,
                refusal.instance_type,
                refusal.zone,
                group,
                order.partition if group else "",
            )

    def _report_missing_spot_role(self, claim: NodeClaim) -> None:
        self.unavailable.mark_capacity_type(labels.SPOT)
        _, sentence = reason_and_message(SERVICE_LINKED_ROLE)
        note = f"Attempt to launch a spot instance failed: {sentence}"
        # Karpenter leaves the reason of this event empty.
        self.recorder.publish_event(
            claim, "SpotServiceLinkedRoleCreationFailed", note, warning=True, dedupe=(claim.uid,)
        )

    def _build_refusal(self, refusals: Sequence[FleetError]) -> InsufficientCapacity | CreateFailed:
        texts = "; ".join(sorted({str(refusal) for refusal in refusals}))
        if lacks_capacity(refusals):
            return InsufficientCapacity(
                f"with fleet error(s), {texts}" if texts else "EC2 gave no instance, and no reason"
            )
        return self._build_failure(texts)

    def _build_failure(self, text: str) -> CreateFailed:
        return CreateFailed(*reason_and_message(text))

    def _build_instance(self, order: _Order, started: LaunchedInstance, choice: SubnetChoice) -> Ec2Instance:
        """What is known of it before EC2 has been asked again."""
        offering = order.find_offering(started.instance_type, started.zone)
        known = offering.requirements if offering is not None else Requirements()
        reservation = offering.reservation_id if offering is not None else ""
        if reservation:
            self.reservations.mark_launched(reservation, self.clock.now())
        subnet = choice.by_zone.get(started.zone)
        interfaces = order.node_class.spec.network_interfaces
        asked = order.claim.spec.resources.requests
        return Ec2Instance(
            id=started.id,
            type=started.instance_type,
            zone=started.zone,
            zone_id=subnet.zone_id if subnet is not None else "",
            image=started.image,
            subnet=started.subnet,
            capacity_type=order.capacity_type,
            tenancy=order.tenancy,
            launched=self.clock.now(),
            tags=order.tags,
            efa=(labels.EFA in asked and asked[labels.EFA].nano > 0)
            or any(each.interface_type == EFA_ONLY for each in interfaces),
            reservation=reservation,
            reservation_type=(known[labels.CAPACITY_RESERVATION_TYPE].only or "") if reservation else "",
            interruptible=bool(reservation)
            and known[labels.CAPACITY_RESERVATION_INTERRUPTIBLE].only == "true",
            group=order.group.id if order.group is not None else "",
            partition=order.partition if order.group is not None and order.group.partition_names else None,
        )


def _choose_partition(wanted: Requirements, group: PlacementGroup | None) -> str:
    """The lowest partition the claim names. Karpenter: compared as text, so that 10 comes before 2."""
    if group is None or not group.partition_names or labels.PLACEMENT_GROUP_PARTITION not in wanted:
        return ""
    allowed = wanted[labels.PLACEMENT_GROUP_PARTITION]
    return min((each for each in group.partition_names if each in allowed), default="")
