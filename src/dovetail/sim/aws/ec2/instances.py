"""The instances of an account in a region: found by id and tag without a search, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from dovetail.sim.aws.ec2.capacity import Ec2Capacity
from dovetail.sim.aws.ec2.instance_record import CODES, SimInstance, instance_filter_values, render_instance
from dovetail.sim.aws.ec2.network import Network
from dovetail.sim.aws.filters import apply_filters, take_page
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["ENDS", "STARTS", "InstanceChange", "SimInstances"]

# Seconds, from and to: what EC2 needs for a machine to run, and to be gone after TerminateInstances.
STARTS, ENDS = (4.0, 12.0), (15.0, 40.0)
REMEMBERED = 3600.0
CANCELLED = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")


@dataclass(frozen=True, slots=True)
class InstanceChange:
    """A machine is in another state now."""

    machine: SimInstance
    state: str


class SimInstances(ServiceState):
    """Every instance by id; those not yet forgotten by tag."""

    def init_state(self) -> None:
        self.by_id: dict[str, SimInstance] = {}
        # How long a launched instance cannot be described: EC2 is eventually consistent.
        self.hidden_for = 0.0
        # Seconds, from and to; a test may make machines start and end at once.
        self.starts, self.ends = STARTS, ENDS
        self._by_tag: dict[tuple[str, str], dict[str, SimInstance]] = {}
        self._by_key: dict[str, dict[str, SimInstance]] = {}

    def add(self, machine: SimInstance) -> None:
        """A machine starts; it runs a few seconds later."""
        self.by_id[machine.id] = machine
        self._index_tags(machine, machine.tags)
        self._announce_change(machine)
        self.world.call_later(self.rng.uniform(*self.starts), lambda: self._mark_running(machine))

    def take_over(self, machine: SimInstance) -> None:
        """A machine that has been running for a while; nothing is said of it."""
        self.by_id[machine.id] = machine
        self._index_tags(machine, machine.tags)

    def tag_instance(self, machine: SimInstance, tags: dict[str, str]) -> None:
        self.untag_instance(machine, tags)
        machine.tags |= tags
        self._index_tags(machine, tags)

    def untag_instance(self, machine: SimInstance, keys: Iterable[str]) -> None:
        for key in keys:
            if key in machine.tags:
                self._by_tag[key, machine.tags.pop(key)].pop(machine.id, None)
                self._by_key[key].pop(machine.id, None)

    def list_visible(self) -> Iterable[SimInstance]:
        now = self.clock.now()
        return (each for each in self.by_id.values() if each.visible <= now)

    def get(self, instance_id: str) -> SimInstance | None:
        """A machine that can be described by now."""
        found = self.by_id.get(instance_id)
        return found if found is not None and found.visible <= self.clock.now() else None

    def list_possible(self, request: AwsRequest) -> Iterable[SimInstance]:
        """Machines that may match the filters: the smallest set an index gives."""
        sets = [
            chosen for each in request.get("Filters", ()) if (chosen := self._find_indexed(each)) is not None
        ]
        if not sets:
            return self.list_visible()
        now = self.clock.now()
        return (each for each in min(sets, key=len).values() if each.visible <= now)

    def terminate(self, machine: SimInstance, reason: tuple[str, str] = CANCELLED) -> None:
        """Shut it down; it is gone a little later."""
        if not machine.alive:
            return
        machine.state, machine.reason = "shutting-down", reason
        self._announce_change(machine)
        self.world.call_later(self.rng.uniform(*self.ends), lambda: self._mark_terminated(machine))

    def stop(self, machine: SimInstance) -> None:
        machine.state = "stopping"
        self._announce_change(machine)
        self.world.call_later(self.rng.uniform(*self.ends), lambda: self._mark_stopped(machine))

    def _mark_running(self, machine: SimInstance) -> None:
        if machine.state == "pending":
            machine.state = "running"
            self._announce_change(machine)

    def _mark_stopped(self, machine: SimInstance) -> None:
        if machine.state == "stopping":
            machine.state = "stopped"
            self._announce_change(machine)

    def _mark_terminated(self, machine: SimInstance) -> None:
        machine.state = "terminated"
        network = self.world.get_state(Network, self.account, self.region)
        if subnet := network.subnets.get(machine.subnet):
            for interface in machine.interfaces:
                for address in interface.held:
                    subnet.give_back(address)
        capacity = self.world.get_state(Ec2Capacity, self.account, self.region)
        capacity.give_back(machine.type, machine.zone, machine.capacity_type, machine.vcpus)
        self._announce_change(machine)
        self.world.call_later(REMEMBERED, lambda: self._forget_instance(machine))

    def _forget_instance(self, machine: SimInstance) -> None:
        self.untag_instance(machine, list(machine.tags))
        self.by_id.pop(machine.id, None)

    def _announce_change(self, machine: SimInstance) -> None:
        self.world.notify_listeners("instance", InstanceChange(machine, machine.state))

    def _index_tags(self, machine: SimInstance, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            self._by_tag.setdefault((key, value), {})[machine.id] = machine
            self._by_key.setdefault(key, {})[machine.id] = machine

    def _find_indexed(self, one: Json) -> dict[str, SimInstance] | None:
        name, values = one["Name"], one.get("Values") or ()
        if any("*" in value or "?" in value for value in values):
            return None
        if name.startswith("tag:"):
            return _merge_sets(self._by_tag.get((name[4:], value), {}) for value in values)
        if name == "tag-key":
            return _merge_sets(self._by_key.get(value, {}) for value in values)
        if name == "instance-id":
            return {value: self.by_id[value] for value in values if value in self.by_id}
        return None


def _merge_sets(sets: Iterable[dict[str, SimInstance]]) -> dict[str, SimInstance]:
    found = [each for each in sets if each]
    if len(found) == 1:
        return found[0]
    return {name: machine for each in found for name, machine in each.items()}


def _find_named(request: AwsRequest, ids: Iterable[str]) -> list[SimInstance]:
    """Machines by id; one that is not there makes EC2 refuse the whole request."""
    instances = request.regional_state(SimInstances)
    for each in ids:
        if not each.startswith("i-") or not all(digit in "0123456789abcdef" for digit in each[2:]):
            raise request.refuse("InvalidInstanceID.Malformed", f'Invalid id: "{each}"')
    found = {each: instances.get(each) for each in ids}
    if missing := [each for each, machine in found.items() if machine is None]:
        one = "' does not exist" if len(missing) == 1 else "' do not exist"
        many = "" if len(missing) == 1 else "s"
        raise request.refuse(
            "InvalidInstanceID.NotFound", f"The instance ID{many} '{', '.join(missing)}{one}"
        )
    return [machine for machine in found.values() if machine is not None]


@operation("ec2", "DescribeInstances")
def describe_instances(request: AwsRequest) -> Json:
    instances = request.regional_state(SimInstances)
    ids = request.get("InstanceIds")
    found = apply_filters(
        request,
        _find_named(request, ids) if ids else instances.list_possible(request),
        instance_filter_values,
        lambda each: each.tags,
    )
    chosen, more = take_page(request, found, named="InstanceIds")
    reservations: dict[str, Json] = {}
    for machine in chosen:
        entry = reservations.setdefault(
            machine.reservation,
            {"ReservationId": machine.reservation, "OwnerId": request.account, "Groups": [], "Instances": []},
        )
        entry["Instances"].append(render_instance(machine))
    return {"Reservations": list(reservations.values()), **more}


# How EC2 shows each attribute of an instance that can be asked for by itself.
ATTRIBUTES: Mapping[str, Callable[[SimInstance], Json]] = {
    "instanceType": lambda each: {"InstanceType": {"Value": each.type}},
    "userData": lambda each: {"UserData": {"Value": each.user_data} if each.user_data else {}},
    "disableApiTermination": lambda each: {"DisableApiTermination": {"Value": False}},
    "disableApiStop": lambda each: {"DisableApiStop": {"Value": False}},
    "instanceInitiatedShutdownBehavior": lambda each: {
        "InstanceInitiatedShutdownBehavior": {"Value": "terminate" if each.lifecycle == "spot" else "stop"}
    },
    "rootDeviceName": lambda each: {"RootDeviceName": {"Value": each.root_device}},
    "blockDeviceMapping": lambda each: {"BlockDeviceMappings": render_instance(each)["BlockDeviceMappings"]},
    "groupSet": lambda each: {"Groups": render_instance(each)["SecurityGroups"]},
    "ebsOptimized": lambda each: {"EbsOptimized": {"Value": render_instance(each)["EbsOptimized"]}},
    "sourceDestCheck": lambda each: {"SourceDestCheck": {"Value": True}},
    "enaSupport": lambda each: {"EnaSupport": {"Value": True}},
    "enclaveOptions": lambda each: {"EnclaveOptions": {"Enabled": each.enclave}},
    "productCodes": lambda each: {"ProductCodes": []},
    "kernel": lambda each: {"KernelId": {}},
    "ramdisk": lambda each: {"RamdiskId": {}},
    "sriovNetSupport": lambda each: {"SriovNetSupport": {}},
}


@operation("ec2", "DescribeInstanceAttribute")
def describe_attribute(request: AwsRequest) -> Json:
    """One attribute of one instance, such as its user data."""
    name = request.get_required("Attribute")
    if name not in ATTRIBUTES:
        raise request.refuse("InvalidParameterValue", f"Value ({name}) for parameter attribute is invalid.")
    (found,) = _find_named(request, [request.get_required("InstanceId")])
    return {"InstanceId": found.id, **ATTRIBUTES[name](found)}


@operation("ec2", "TerminateInstances")
def terminate_instances(request: AwsRequest) -> Json:
    return {"TerminatingInstances": _change_state(request, "end")}


@operation("ec2", "StopInstances")
def stop_instances(request: AwsRequest) -> Json:
    return {"StoppingInstances": _change_state(request, "stop")}


def _change_state(request: AwsRequest, how: str) -> list[Json]:
    instances, told = request.regional_state(SimInstances), []
    for machine in _find_named(request, request.get_required("InstanceIds")):
        before = machine.state
        if how == "end":
            instances.terminate(machine)
        elif machine.state in ("pending", "running"):
            instances.stop(machine)
        told.append(
            {
                "InstanceId": machine.id,
                "PreviousState": {"Code": CODES[before], "Name": before},
                "CurrentState": {"Code": CODES[machine.state], "Name": machine.state},
            }
        )
    return told


@operation("ec2", "DescribeInstanceStatus")
def describe_status(request: AwsRequest) -> Json:
    instances = request.regional_state(SimInstances)
    ids = request.get("InstanceIds")
    wanted = _find_named(request, ids) if ids else instances.list_visible()
    if not request.get("IncludeAllInstances"):
        wanted = [each for each in wanted if each.state == "running"]
    found = apply_filters(request, wanted, _status_values, lambda each: each.tags)
    chosen, more = take_page(request, found, named="InstanceIds")
    return {"InstanceStatuses": [_render_status(each) for each in chosen], **more}


def _status_values(each: SimInstance) -> dict[str, tuple[str, ...]]:
    return {
        "instance-state-name": (each.state,),
        "availability-zone": (each.zone,),
        "instance-status.status": (_render_check(each, "instance")["Status"],),
        "system-status.status": (_render_check(each, "system")["Status"],),
        "attached-ebs-status.status": (_render_check(each, "ebs")["Status"],),
        "event.code": tuple(event["Code"] for event in each.scheduled),
    }


def _render_status(each: SimInstance) -> Json:
    return {
        "InstanceId": each.id,
        "AvailabilityZone": each.zone,
        "InstanceState": {"Code": CODES[each.state], "Name": each.state},
        "InstanceStatus": _render_check(each, "instance"),
        "SystemStatus": _render_check(each, "system"),
        "AttachedEbsStatus": _render_check(each, "ebs"),
        "Events": [dict(event) for event in each.scheduled],
    }


def _render_check(each: SimInstance, which: str) -> Json:
    since = each.impaired.get(which)
    if since is not None:
        return {
            "Status": "impaired",
            "Details": [{"Name": "reachability", "Status": "failed", "ImpairedSince": since}],
        }
    known = each.state == "running"
    return {
        "Status": "ok" if known else "not-applicable",
        "Details": [{"Name": "reachability", "Status": "passed"}] if known else [],
    }


def schedule_event(
    machine: SimInstance, code: str, description: str, starts: timedelta, instances: SimInstances
) -> Json:
    """An event is scheduled for a machine: a retirement, a reboot, maintenance."""
    now = instances.clock.now()
    event = {
        "InstanceEventId": f"instance-event-0{instances.world.random_hex(16)}",
        "Code": code,
        "Description": description,
        "NotBefore": now + starts,
        "NotAfter": now + starts + timedelta(hours=2),
    }
    machine.scheduled.append(event)
    return event
