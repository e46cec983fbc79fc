"""EC2NodeClasses: what they select is found and written into their status, or they say what is missing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.controllers.base import DONE
from support.classes import ClassScene, node_class
from support.stage import virtual


@pytest.mark.spec("aws-46", "aws-56")
@virtual
async def test_a_new_class_is_held_resolved_and_ready() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class())
        result = await scene.resolve()
        made = scene.now()
        assert made.metadata.finalizers == ("karpenter.k8s.aws/termination",)
        assert {c.type: c.status for c in made.status.conditions} == dict.fromkeys(
            (
                "AMIsReady",
                "CapacityReservationsReady",
                "InstanceProfileReady",
                "PlacementGroupReady",
                "Ready",
                "SecurityGroupsReady",
                "SubnetsReady",
                "ValidationSucceeded",
            ),
            "True",
        ), [(c.type, c.status, c.reason, c.message) for c in made.status.conditions]
        assert result.after == timedelta(minutes=1)
