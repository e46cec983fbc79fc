"""Ten thousand messages for a cluster: some matter, most do not, some cannot be read, many come twice."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from support.ec2_instances import MachineScene, Owned, event, spot_warning, state_change

__all__ = ["claims", "messages"]

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
MALFORMED = ("{", "[]", '{"version": 1}', '{"version": "0", "time": "soon"}')


def claims(scene: MachineScene, count: int) -> list[Owned]:
    """Claims with nodes, whose machines only messages know of."""
    made = [
        Owned(f"i-{number:017x}", f"claim-{number}", f"node-{number}", ZONES[number % 3])
        for number in range(count)
    ]
    for each in made:
        scene.claim(each)
        scene.node(each)
    return made


def messages(
    scene: MachineScene, ours: list[Owned], count: int, *, malformed: int, seed: int = 0
) -> list[str]:
    """A warning or another end for each of ours, up to three times, among everything else; in any order."""
    chance, clock = Random(seed), scene.clock
    bodies: list[str] = [MALFORMED[number % len(MALFORMED)] for number in range(malformed)]
    for each in ours:
        ends: list[dict[str, Any]] = [spot_warning(each.id, clock), state_change(each.id, "stopping", clock)]
        bodies += [json.dumps(chance.choice(ends))] * chance.randint(1, 3)
    number = 0
    while len(bodies) < count:
        stranger = f"i-f{number:016x}"
        bodies.append(
            json.dumps(
                chance.choice(
                    (
                        spot_warning(stranger, clock),
                        state_change(stranger, chance.choice(("terminated", "running")), clock),
                        event("aws.s3", "Object Created", clock, {}),
                    )
                )
            )
        )
        number += 1
    chance.shuffle(bodies)
    return bodies
