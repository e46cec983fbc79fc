"""What is left of an object that cannot be read decides nothing, and each such object is named."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import codec, core
from dovetail.api.bad_items import mark_set_aside, reason_of
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.app.controller import Dovetail
from dovetail.controllers.set_aside import SetAsideReporter
from dovetail.scheduling.model.device_objects import DeviceClass
from dovetail.sim.clock import VirtualClock, run_virtual
from support.hostile_values import Json
from support.hostile_world import feed, kinds_read, make_dovetail, victim_of, victims
from support.world import virtual

KINDS: list[type[Object]] = sorted(kinds_read(), key=lambda kind: kind.KIND.kind)


class _Noted:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def publish_event(self, obj: Object, reason: str, note: str, **more: Any) -> None:
        self.told.append((obj.KIND.kind, obj.full_name, reason))


@pytest.mark.parametrize("kind", KINDS, ids=[kind.KIND.kind for kind in KINDS])
def test_an_object_of_any_kind_that_cannot_be_read_gets_an_event(kind: type[Object]) -> None:
    recorder = _Noted()
    bad = mark_set_aside(victim_of(kind), "it cannot be read")
    SetAsideReporter(recorder, VirtualClock(), "informer").observe_object(None, bad)
    assert recorder.told == [(kind.KIND.kind, bad.full_name, "SetAside")]


def unreadable(kind: type[Object], **broken: Any) -> dict[type[Object], list[Json]]:
    """The document of an object of this kind with fields of its spec that cannot be read."""
    document = codec.to_dict(victims()[kind])
    return {kind: [{**document, "spec": {**document.get("spec", {}), **broken}}]}


@virtual
async def test_a_claim_that_cannot_be_read_is_not_waited_for() -> None:
    """Nothing is decided while a claim has no machine, and nobody will launch this one."""
    dovetail = make_dovetail()
    document = codec.to_dict(victims()[NodeClaim])
    document["status"] = {"providerID": ["not", "text"]}
    feed(dovetail, {NodeClaim: [document]})
    (claim,) = dovetail.get_informer(NodeClaim)
    assert reason_of(claim)
    assert not claim.status.provider_id
    assert dovetail.cluster.synced


@virtual
async def test_a_node_whose_machine_cannot_be_read_is_not_waited_for() -> None:
    """At its start Dovetail waits until every Node of ours has said which machine it is."""
    dovetail = make_dovetail()
    feed(dovetail, unreadable(core.Node, providerID=["not", "text"]))
    (node,) = dovetail.get_informer(core.Node)
    assert reason_of(node)
    assert dovetail.cluster.synced


@virtual
async def test_a_device_class_that_cannot_be_read_means_no_device_rather_than_any() -> None:
    dovetail = make_dovetail()
    feed(dovetail, unreadable(DeviceClass, selectors=7))
    assert [reason_of(each) != "" for each in dovetail.get_informer(DeviceClass)] == [True]
    assert _snapshot(dovetail).devices.classes == {}


@virtual
async def test_a_service_that_cannot_be_read_selects_no_pods() -> None:
    dovetail = make_dovetail()
    feed(dovetail, unreadable(core.Service, selector={"app": ["x"]}))
    assert [reason_of(each) != "" for each in dovetail.get_informer(core.Service)] == [True]
    assert _snapshot(dovetail).services == ()


@pytest.mark.parametrize("broken", ["buffer", "template"])
def test_a_buffer_keeps_no_room_by_what_is_left_of_it_or_of_its_template(broken: str) -> None:
    """Without its limits it would want any number of pods; without its selector, on any node."""

    async def resolved() -> tuple[int, str]:
        dovetail = make_dovetail()
        made: dict[type[Object], list[Json]] = {
            kind: [codec.to_dict(victims()[kind])] for kind in (CapacityBuffer, core.PodTemplateObject)
        }
        if broken == "buffer":
            made |= unreadable(CapacityBuffer, limits=[1])
        elif broken == "template":
            made[core.PodTemplateObject][0]["template"]["spec"]["nodeSelector"] = ["victim"]
        feed(dovetail, made)
        assert dovetail.buffers is not None
        (buffer,) = dovetail.get_informer(CapacityBuffer)
        told = dovetail.buffers._resolve_buffer(buffer).status.conditions
        return len(dovetail.buffers.list_virtual_pods()), told[0].message

    count, message = run_virtual(resolved())
    assert count == 0
    assert "is set aside: " in message


def _snapshot(dovetail: Dovetail) -> Any:
    return dovetail.capture.take_snapshot((), dovetail.build_options(dovetail.clock.now()))
