"""The instances of an account in a region: found by id and tag without a search, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.capacity import Capacity
from dovetail.sim.aws.machine import CODES, Machine, machine_values, shown
from dovetail.sim.aws.network import Network
from dovetail.sim.aws.selecting import filtered, page

__all__ = ["ENDS", "STARTS", "Changed", "Instances"]

# Seconds, from and to: what EC2 needs for a machine to run, and to be gone after TerminateInstances.
STARTS, ENDS = (4.0, 12.0), (15.0, 40.0)
REMEMBERED = 3600.0
CANCELLED = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")


@dataclass(frozen=True, slots=True)
class Changed:
    """A machine is in another state now."""

    machine: Machine
    state: str


class Instances(Subject):
    """Every instance by id; those not yet forgotten by tag."""

    def begin(self) -> None:
        self.by_id: dict[str, Machine] = {}
        # How long a launched instance cannot be described: EC2 is eventually consistent.
        self.hidden_for = 0.0
        # Seconds, from and to; a test may make machines start and end at once.
        self.starts, self.ends = STARTS, ENDS
        self._by_tag: dict[tuple[str, str], dict[str, Machine]] = {}
        self._by_key: dict[str, dict[str, Machine]] = {}

    def add(self, machine: Machine) -> None:
        """A machine starts; it runs a few seconds later."""
        self.by_id[machine.id] = machine
        self._index(machine, machine.tags)
        self._say(machine)
        self.ground.later(self.rng.uniform(*self.starts), lambda: self._runs(machine))

    def take_over(self, machine: Machine) -> None:
        """A machine that has been running for a while; nothing is said of it."""
        self.by_id[machine.id] = machine
        self._index(machine, machine.tags)

    def tag(self, machine: Machine, tags: dict[str, str]) -> None:
        self.untag(machine, tags)
        machine.tags |= tags
        self._index(machine, tags)

    def untag(self, machine: Machine, keys: Iterable[str]) -> None:
        for key in keys:
            if key in machine.tags:
                self._by_tag[key, machine.tags.pop(key)].pop(machine.id, None)
                self._by_key[key].pop(machine.id, None)

    def seen(self) -> Iterable[Machine]:
        now = self.clock.now()
        return (each for each in self.by_id.values() if each.visible <= now)

    def get(self, instance_id: str) -> Machine | None:
        """A machine that can be described by now."""
        found = self.by_id.get(instance_id)
        return found if found is not None and found.visible <= self.clock.now() else None

    def candidates(self, ask: Ask) -> Iterable[Machine]:
        """Machines that may match the filters: the smallest set an index gives."""
        sets = [chosen for each in ask.get("Filters", ()) if (chosen := self._indexed(each)) is not None]
        if not sets:
            return self.seen()
        now = self.clock.now()
        return (each for each in min(sets, key=len).values() if each.visible <= now)

    def end(self, machine: Machine, reason: tuple[str, str] = CANCELLED) -> None:
        """Shut it down; it is gone a little later."""
        if not machine.alive:
            return
        machine.state, machine.reason = "shutting-down", reason
        self._say(machine)
        self.ground.later(self.rng.uniform(*self.ends), lambda: self._gone(machine))

    def stop(self, machine: Machine) -> None:
        machine.state = "stopping"
        self._say(machine)
        self.ground.later(self.rng.uniform(*self.ends), lambda: self._stopped(machine))

    def _runs(self, machine: Machine) -> None:
        if machine.state == "pending":
            machine.state = "running"
            self._say(machine)

    def _stopped(self, machine: Machine) -> None:
        if machine.state == "stopping":
            machine.state = "stopped"
            self._say(machine)

    def _gone(self, machine: Machine) -> None:
        machine.state = "terminated"
        network = self.ground.subject(Network, self.account, self.region)
        if subnet := network.subnets.get(machine.subnet):
            for interface in machine.interfaces:
                for address in interface.held:
                    subnet.give_back(address)
        capacity = self.ground.subject(Capacity, self.account, self.region)
        capacity.give_back(machine.type, machine.zone, machine.way, machine.vcpus)
        self._say(machine)
        self.ground.later(REMEMBERED, lambda: self._forget(machine))

    def _forget(self, machine: Machine) -> None:
        self.untag(machine, list(machine.tags))
        self.by_id.pop(machine.id, None)

    def _say(self, machine: Machine) -> None:
        self.ground.tell("instance", Changed(machine, machine.state))

    def _index(self, machine: Machine, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            self._by_tag.setdefault((key, value), {})[machine.id] = machine
            self._by_key.setdefault(key, {})[machine.id] = machine

    def _indexed(self, one: Json) -> dict[str, Machine] | None:
        name, values = one["Name"], one.get("Values") or ()
        if any("*" in value or "?" in value for value in values):
            return None
        if name.startswith("tag:"):
            return _merged(self._by_tag.get((name[4:], value), {}) for value in values)
        if name == "tag-key":
            return _merged(self._by_key.get(value, {}) for value in values)
        if name == "instance-id":
            return {value: self.by_id[value] for value in values if value in self.by_id}
        return None


def _merged(sets: Iterable[dict[str, Machine]]) -> dict[str, Machine]:
    found = [each for each in sets if each]
    if len(found) == 1:
        return found[0]
    return {name: machine for each in found for name, machine in each.items()}


def _named(ask: Ask, ids: Iterable[str]) -> list[Machine]:
    """Machines by id; one that is not there makes EC2 refuse the whole request."""
    instances = ask.here(Instances)
    for each in ids:
        if not each.startswith("i-") or not all(digit in "0123456789abcdef" for digit in each[2:]):
            raise ask.refuse("InvalidInstanceID.Malformed", f'Invalid id: "{each}"')
    found = {each: instances.get(each) for each in ids}
    if missing := [each for each, machine in found.items() if machine is None]:
        one = "' does not exist" if len(missing) == 1 else "' do not exist"
        many = "" if len(missing) == 1 else "s"
        raise ask.refuse("InvalidInstanceID.NotFound", f"The instance ID{many} '{', '.join(missing)}{one}")
    return [machine for machine in found.values() if machine is not None]


@operation("ec2", "DescribeInstances")
def describe_instances(ask: Ask) -> Json:
    instances = ask.here(Instances)
    ids = ask.get("InstanceIds")
    found = filtered(
        ask, _named(ask, ids) if ids else instances.candidates(ask), machine_values, lambda each: each.tags
    )
    chosen, more = page(ask, found, named="InstanceIds")
    reservations: dict[str, Json] = {}
    for machine in chosen:
        entry = reservations.setdefault(
            machine.reservation,
            {"ReservationId": machine.reservation, "OwnerId": ask.account, "Groups": [], "Instances": []},
        )
        entry["Instances"].append(shown(machine))
    return {"Reservations": list(reservations.values()), **more}


# How EC2 shows each attribute of an instance that can be asked for by itself.
ATTRIBUTES: Mapping[str, Callable[[Machine], Json]] = {
    "instanceType": lambda each: {"InstanceType": {"Value": each.type}},
    "userData": lambda each: {"UserData": {"Value": each.user_data} if each.user_data else {}},
    "disableApiTermination": lambda each: {"DisableApiTermination": {"Value": False}},
    "disableApiStop": lambda each: {"DisableApiStop": {"Value": False}},
    "instanceInitiatedShutdownBehavior": lambda each: {
        "InstanceInitiatedShutdownBehavior": {"Value": "terminate" if each.lifecycle == "spot" else "stop"}
    },
    "rootDeviceName": lambda each: {"RootDeviceName": {"Value": each.root_device}},
    "blockDeviceMapping": lambda each: {"BlockDeviceMappings": shown(each)["BlockDeviceMappings"]},
    "groupSet": lambda each: {"Groups": shown(each)["SecurityGroups"]},
    "ebsOptimized": lambda each: {"EbsOptimized": {"Value": shown(each)["EbsOptimized"]}},
    "sourceDestCheck": lambda each: {"SourceDestCheck": {"Value": True}},
    "enaSupport": lambda each: {"EnaSupport": {"Value": True}},
    "enclaveOptions": lambda each: {"EnclaveOptions": {"Enabled": each.enclave}},
    "productCodes": lambda each: {"ProductCodes": []},
    "kernel": lambda each: {"KernelId": {}},
    "ramdisk": lambda each: {"RamdiskId": {}},
    "sriovNetSupport": lambda each: {"SriovNetSupport": {}},
}


@operation("ec2", "DescribeInstanceAttribute")
def describe_attribute(ask: Ask) -> Json:
    """One attribute of one instance, such as its user data."""
    name = ask.need("Attribute")
    if name not in ATTRIBUTES:
        raise ask.refuse("InvalidParameterValue", f"Value ({name}) for parameter attribute is invalid.")
    (found,) = _named(ask, [ask.need("InstanceId")])
    return {"InstanceId": found.id, **ATTRIBUTES[name](found)}


@operation("ec2", "TerminateInstances")
def terminate_instances(ask: Ask) -> Json:
    return {"TerminatingInstances": _change(ask, "end")}


@operation("ec2", "StopInstances")
def stop_instances(ask: Ask) -> Json:
    return {"StoppingInstances": _change(ask, "stop")}


def _change(ask: Ask, how: str) -> list[Json]:
    instances, told = ask.here(Instances), []
    for machine in _named(ask, ask.need("InstanceIds")):
        before = machine.state
        if how == "end":
            instances.end(machine)
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
def describe_status(ask: Ask) -> Json:
    instances = ask.here(Instances)
    ids = ask.get("InstanceIds")
    wanted = _named(ask, ids) if ids else instances.seen()
    if not ask.get("IncludeAllInstances"):
        wanted = [each for each in wanted if each.state == "running"]
    found = filtered(ask, wanted, _status_values, lambda each: each.tags)
    chosen, more = page(ask, found, named="InstanceIds")
    return {"InstanceStatuses": [_status(each) for each in chosen], **more}


def _status_values(each: Machine) -> dict[str, tuple[str, ...]]:
    return {
        "instance-state-name": (each.state,),
        "availability-zone": (each.zone,),
        "instance-status.status": (_check(each, "instance")["Status"],),
        "system-status.status": (_check(each, "system")["Status"],),
        "attached-ebs-status.status": (_check(each, "ebs")["Status"],),
        "event.code": tuple(event["Code"] for event in each.scheduled),
    }


def _status(each: Machine) -> Json:
    return {
        "InstanceId": each.id,
        "AvailabilityZone": each.zone,
        "InstanceState": {"Code": CODES[each.state], "Name": each.state},
        "InstanceStatus": _check(each, "instance"),
        "SystemStatus": _check(each, "system"),
        "AttachedEbsStatus": _check(each, "ebs"),
        "Events": [dict(event) for event in each.scheduled],
    }


def _check(each: Machine, which: str) -> Json:
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


def schedule(machine: Machine, code: str, description: str, starts: timedelta, instances: Instances) -> Json:
    """An event is scheduled for a machine: a retirement, a reboot, maintenance."""
    now = instances.clock.now()
    event = {
        "InstanceEventId": f"instance-event-0{instances.ground.hexes(16)}",
        "Code": code,
        "Description": description,
        "NotBefore": now + starts,
        "NotAfter": now + starts + timedelta(hours=2),
    }
    machine.scheduled.append(event)
    return event
