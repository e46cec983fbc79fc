"""Node classes while AWS has a bad day: in the end every class is ready, and nothing is left behind."""

from __future__ import annotations

import pytest

from support.nodeclasses import CLASSES, ROLE, ClassScene, node_class
from support.stage import virtual

TROUBLE = (
    "RequestLimitExceeded",
    "InternalError",
    "ServiceUnavailable",
    "Throttling",
    "UnauthorizedOperation",
)


@pytest.mark.parametrize("seed", range(2))
def test_classes_come_through_a_bad_day(seed: int) -> None:
    @virtual
    async def played() -> None:
        async with ClassScene(seed=seed).running() as scene:
            scene.aws.iam.add_role("other")
            scene.aws.faults.refuse_sometimes(0.3, TROUBLE)
            scene.aws.faults.lose_answers("CreateInstanceProfile", times=1)
            scene.aws.faults.lose_answers("CreateLaunchTemplate", times=1)
            for name in ("one", "two", "three", "gone"):
                scene.apply(node_class(name))
            for turn in range(10):
                await scene.pass_(60)
                scene.change("two", role="other" if turn % 2 else ROLE)
            scene.api.delete(CLASSES, "gone")
            await scene.pass_(120)
            scene.aws.faults.clear()
            # Verdicts hold for half an hour, failures wait ever longer, and profiles are spared for an hour.
            await scene.pass_(2.5 * 3600)
            for name in ("one", "two", "three"):
                assert scene.says("Ready", name) == ("True", "Ready"), name
            assert not scene.has(CLASSES, "gone")
            held = {scene.now(name).status.instance_profile for name in ("one", "two", "three")}
            assert set(scene.aws.iam.profiles) == held
            assert len(held) == 3
            owners = {
                each.tags["karpenter.k8s.aws/ec2nodeclass"] for each in scene.aws.templates.by_name.values()
            }
            assert "gone" not in owners

    played()
