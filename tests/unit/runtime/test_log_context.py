"""Whose line it is: the controller, the kind it is about, and the object, on every line of a reconcile."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import SINGLETON, Backoff, Result, Trigger, wake_on
from dovetail.errors import Retry
from dovetail.runtime.manager import Manager
from dovetail.sim.clock import VirtualClock, run_virtual
from support.log_lines import log_lines


class Failing:
    """Fails once at whatever it is given."""

    name = "nodeclaim.lifecycle"
    singleton = False
    concurrency = 1
    backoff = Backoff(first=1000.0)
    triggers: tuple[Trigger, ...] = (wake_on(NodeClaim),)

    async def reconcile(self, key: str) -> Result:
        raise Retry("busy")


@pytest.mark.parametrize(
    ("key", "about"),
    [
        (
            "claim",
            {
                "controllerGroup": "karpenter.sh",
                "controllerKind": "NodeClaim",
                "NodeClaim": {"name": "claim"},
                "namespace": "",
                "name": "claim",
            },
        ),
        (SINGLETON, {"namespace": "", "name": ""}),
    ],
)
def test_a_line_says_whose_it_is(key: str, about: dict[str, object]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        manager = Manager(clock, Random(0))
        manager.add(Failing()).add(key)
        manager.add_service(lambda: clock.sleep(1))
        manager.add_service(lambda: _stop(manager, clock))
        await manager.run()

    with log_lines() as lines:
        run_virtual(main())
        (line,) = lines()
    assert (line["message"], line["error"]) == ("Reconciler error", "busy")
    keys = list(line)
    assert keys[:6] == ["level", "time", "logger", "message", "commit", "controller"]
    assert keys[-2:] == ["reconcileID", "error"], "in the order controller-runtime has them"
    assert {key: line[key] for key in keys[6:-2]} == about


async def _stop(manager: Manager, clock: VirtualClock) -> None:
    await clock.sleep(2)
    manager.stop()
