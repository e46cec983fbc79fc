"""A launch: types are chosen, a fleet is asked, and what it refuses is remembered for next time."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import AwsError
from dovetail.errors import CreateFailed, InsufficientCapacity
from dovetail.metrics import counter
from dovetail.ports import Clock, Recorder
from dovetail.providers.aws.batch import Fleets
from dovetail.providers.aws.chosen import Chosen
from dovetail.providers.aws.filters import KNOWN
from dovetail.providers.aws.fleet import (
    Started,
    capacity_type_for,
    configurations,
    fleet_request,
    market_of,
    read_answer,
    tenancy_for,
    with_capacity_type,
)
from dovetail.providers.aws.instances import Ec2Instance
from dovetail.providers.aws.launcherrors import (
    CAPACITY_CODES,
    FREE_ADDRESSES,
    MAYBE_DONE,
    SERVICE_LINKED_ROLE,
    TEMPLATE_GONE,
    FleetError,
    lacks_capacity,
    reason_and_message,
)
from dovetail.providers.aws.network import Choice, Subnets
from dovetail.providers.aws.placement import PlacementGroup
from dovetail.providers.aws.reservations import Reservations
from dovetail.providers.aws.templates import LaunchTemplates, Template
from dovetail.providers.aws.tokens import TOKEN_USED, launch_group
from dovetail.providers.aws.turns import Turns
from dovetail.providers.aws.unavailable import Unavailable
from dovetail.scheduling.catalog import InstanceType, Offering, usable
from dovetail.scheduling.requirements import Requirements

__all__ = ["Launching"]

LAUNCH_FAILURES = counter(
    "karpenter_cloudprovider_instance_launch_failures_total",
    "Offerings that could not be launched, one for each refusal.",
    ("zone", "zone_id", "capacity_type", "reason"),
)
EFA_ONLY = "efa-only"
FEW_TYPES = 5
UNTIL_SHOWN = 5.0
UNTIL_SURELY_SHOWN = 15.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Order:
    """One launch, settled as far as the request."""

    node_class: EC2NodeClass
    claim: NodeClaim
    types: Sequence[InstanceType]
    way: str
    requirements: Requirements  # with the capacity type pinned
    tenancy: str
    tags: Mapping[str, str]
    group: PlacementGroup | None
    partition: str

    def offering(self, instance_type: str, zone: str) -> Offering | None:
        """What was bought there: the filters left one reservation at most of a type in a zone."""
        return next(
            (
                offering
                for each in self.types
                if each.name == instance_type
                for offering in usable(each, self.requirements, KNOWN)
                if offering.zone == zone
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class Launching:
    """Starts one instance for a claim, from whichever offering EC2 can give now."""

    clock: Clock
    recorder: Recorder
    fleets: Fleets
    subnets: Subnets
    templates: LaunchTemplates
    reservations: Reservations
    unavailable: Unavailable
    chosen: Chosen
    turn: Turns = field(default_factory=Turns)

    async def launch(
        self,
        node_class: EC2NodeClass,
        claim: NodeClaim,
        types: Sequence[InstanceType],
        tags: Mapping[str, str],
        group: PlacementGroup | None = None,
    ) -> Ec2Instance:
        """InsufficientCapacity when other offerings must be planned for, CreateFailed for other trouble."""
        await self.turn()
        order = self._order(node_class, claim, types, tags, group)
        try:
            return await self._attempt(order)
        except AwsError as error:
            # The template was swept or deleted under us. It is made anew, once; the name is in the code only.
            if error.code != TEMPLATE_GONE:
                raise self._failed(str(error)) from error
        try:
            return await self._attempt(order)
        except AwsError as error:
            raise self._failed(str(error)) from error

    def _order(
        self,
        node_class: EC2NodeClass,
        claim: NodeClaim,
        types: Sequence[InstanceType],
        tags: Mapping[str, str],
        group: PlacementGroup | None,
    ) -> _Order:
        wanted = Requirements.of(claim.spec.requirements)
        kept = self.chosen.of(types, claim)
        way = capacity_type_for(kept, wanted)
        if way == labels.ON_DEMAND and len(kept) < FEW_TYPES and labels.SPOT in wanted[labels.CAPACITY_TYPE]:
            log.info(
                "claim %s may use spot and has only %d instance types to choose from", claim.name, len(kept)
            )
        return _Order(
            node_class,
            claim,
            kept,
            way,
            with_capacity_type(wanted, way),
            tenancy_for(wanted),
            tags,
            group,
            _partition(wanted, group),
        )

    async def _attempt(self, order: _Order) -> Ec2Instance:
        await self.turn()
        templates = await self.templates.ensure(
            order.node_class,
            order.claim,
            order.types,
            order.way,
            order.tags,
            tenancy=order.tenancy,
            placement=order.group,
            partition=order.partition,
        )
        await self.turn()
        choice = self.subnets.choose(order.node_class, order.types, order.way)
        used: set[str] = set()
        try:
            started, refusals = await self._ask(order, templates, choice)
            used |= {started.subnet} if started is not None else set()
        finally:
            self.subnets.settle(choice, used)
        for refusal in refusals:
            # A fleet can succeed and still refuse some offerings; both are remembered.
            self._remember(order, refusal, choice)
        if started is None:
            raise self._refused(refusals)
        return self._instance(order, started, choice)

    async def _ask(
        self, order: _Order, templates: Sequence[Template], choice: Choice
    ) -> tuple[Started | None, tuple[FleetError, ...]]:
        configured = configurations(templates, order.requirements, choice)
        if not configured:
            raise self._failed(
                "no launch template has an instance type with a subnet in a zone that sells it"
            )
        offerings = [o for each in order.types for o in usable(each, order.requirements, KNOWN)]
        market = market_of(order.way, offerings)
        request = fleet_request(order.node_class, order.claim, configured, market, order.tags)
        try:
            group = launch_group(order.claim, order.tags.get(labels.EKS_CLUSTER_TAG, ""))
            return read_answer(await self.fleets(request, order.claim.name, group))
        except AwsError as error:
            if error.code == TEMPLATE_GONE:
                for template in templates:
                    self.templates.forget(template.name)
            if error.code in MAYBE_DONE:
                # It may have been done all the same. EC2 shows a new instance only after a moment, and the
                # next attempt begins by looking for it.
                await self.clock.sleep(UNTIL_SHOWN)
            if error.code == TOKEN_USED:
                # An earlier attempt, perhaps another process's, launched: its instance is looked for.
                await self.clock.sleep(UNTIL_SURELY_SHOWN)
            raise

    def _remember(self, order: _Order, refusal: FleetError, choice: Choice) -> None:
        subnet = choice.by_zone.get(refusal.zone)
        reason, _ = reason_and_message(str(refusal))
        zone_id = subnet.zone_id if subnet is not None else ""
        LAUNCH_FAILURES.labels(refusal.zone, zone_id, order.way, reason).inc()
        group = order.group.id if order.group is not None else ""
        if refusal.code == FREE_ADDRESSES and refusal.subnet:
            self.unavailable.mark_subnet(refusal.subnet)
            self.subnets.exhausted(refusal.subnet)
        if refusal.code == SERVICE_LINKED_ROLE:
            self._no_spot_role(order.claim)
        elif group and refusal.spread_limit:
            for each in order.types:
                self.unavailable.mark(order.way, each.name, refusal.zone, group)
        elif refusal.code in CAPACITY_CODES and order.way == labels.RESERVED:
            offering = order.offering(refusal.instance_type, refusal.zone)
            if offering is not None:
                self.reservations.unavailable(offering.reservation_id)
        elif refusal.code in CAPACITY_CODES:
            self.unavailable.mark(
                order.way, refusal.instance_type, refusal.zone, group, order.partition if group else ""
            )

    def _no_spot_role(self, claim: NodeClaim) -> None:
        self.unavailable.mark_capacity_type(labels.SPOT)
        _, sentence = reason_and_message(SERVICE_LINKED_ROLE)
        note = f"Attempt to launch a spot instance failed: {sentence}"
        # Karpenter leaves the reason of this event empty.
        self.recorder.event(
            claim, "SpotServiceLinkedRoleCreationFailed", note, warning=True, dedupe=(claim.uid,)
        )

    def _refused(self, refusals: Sequence[FleetError]) -> InsufficientCapacity | CreateFailed:
        texts = "; ".join(sorted({str(refusal) for refusal in refusals}))
        if lacks_capacity(refusals):
            return InsufficientCapacity(
                f"with fleet error(s), {texts}" if texts else "EC2 gave no instance, and no reason"
            )
        return self._failed(texts)

    def _failed(self, text: str) -> CreateFailed:
        return CreateFailed(*reason_and_message(text))

    def _instance(self, order: _Order, started: Started, choice: Choice) -> Ec2Instance:
        """What is known of it before EC2 has been asked again."""
        offering = order.offering(started.instance_type, started.zone)
        known = offering.requirements if offering is not None else Requirements()
        reservation = offering.reservation_id if offering is not None else ""
        if reservation:
            self.reservations.launched(reservation, self.clock.now())
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
            capacity_type=order.way,
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


def _partition(wanted: Requirements, group: PlacementGroup | None) -> str:
    """The lowest partition the claim names. Karpenter: compared as text, so that 10 comes before 2."""
    if group is None or not group.partition_names or labels.PLACEMENT_GROUP_PARTITION not in wanted:
        return ""
    allowed = wanted[labels.PLACEMENT_GROUP_PARTITION]
    return min((each for each in group.partition_names if each in allowed), default="")
