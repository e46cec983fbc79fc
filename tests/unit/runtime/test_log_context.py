"""Whose line it is: the controller, the kind it is about, and the object, on every line of a reconcile."""

from __future__ import annotations

import json
from random import Random

import pytest

from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import SINGLETON, Backoff, Result, Trigger, on
from dovetail.errors import Retry
from dovetail.runtime import logs
from dovetail.runtime.manager import Manager
from dovetail.sim.clock import VirtualClock, run_virtual


class Failing:
    """Fails once at whatever it is given."""

    name = "nodeclaim.lifecycle"
    concurrency = 1
    backoff = Backoff(first=1000.0)
    triggers: tuple[Trigger, ...] = (on(NodeClaim),)

    async def reconcile(self, key: str) -> Result:
        raise Retry("busy")


@pytest.mark.parametrize(
    ("key", "about"),
    [
        ("claim", {"controllerGroup": "karpenter.sh", "controllerKind": "NodeClaim", "name": "claim"}),
        (SINGLETON, {}),
    ],
)
def test_a_line_says_whose_it_is(capsys: pytest.CaptureFixture[str], key: str, about: dict[str, str]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        manager = Manager(clock, Random(0))
        manager.add(Failing()).add(key)
        manager.serve(lambda: clock.sleep(1))
        manager.serve(lambda: _stop(manager, clock))
        await manager.run()

    logs.configure("info", ("stdout",))
    run_virtual(main())
    (line,) = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    fields = ("controllerGroup", "controllerKind", "name")
    assert (line["controller"], line["error"]) == ("nodeclaim.lifecycle", "busy")
    assert {field: line[field] for field in fields if field in line} == about


async def _stop(manager: Manager, clock: VirtualClock) -> None:
    await clock.sleep(2)
    manager.stop()
