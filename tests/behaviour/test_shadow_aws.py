"""A shadow of a cluster on EC2: neither Kubernetes nor AWS is ever asked to change anything."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from dovetail.play.shadow_twins import DIFFERENCES, ShadowTwins, report_recording
from dovetail.providers.aws.provider import AwsProvider
from dovetail.settings import read_settings
from support.aws import CLUSTER
from support.aws_world import AwsWorld
from support.read_only import READ_VERBS, ReadOnlyAws
from support.shadowed import ClusterShadow, list_sources
from support.stage import virtual

# `DOVETAIL_SHADOW_HOURS=24` watches a whole day.
HOURS = int(os.environ.get("DOVETAIL_SHADOW_HOURS", "1"))


@pytest.mark.spec("SH-1")
def test_not_one_write_is_sent_to_kubernetes_or_to_aws(tmp_path: Path) -> None:
    shadow = ClusterShadow(tmp_path / "recording")

    @virtual
    async def main() -> None:
        async with AwsWorld().running() as world:
            aws = ReadOnlyAws(world.aws)
            shadow.settings = read_settings((f"--cluster-name={CLUSTER}",), {}, provider="aws")
            shadow.make = partial(AwsProvider, aws=aws)
            world.default()
            world.pods(3, cpu="1", memory="1Gi")
            shadow.start(world.world)
            for hour in range(HOURS):
                for pods in (2, 9, 4):
                    world.scale(pods + hour % 3)
                    await world.clock.sleep(1200)
            await shadow.stop()
            assert aws.attempts == []
            assert {"DescribeInstanceTypes", "GetProducts", "DescribeSpotPriceHistory"} <= aws.used

    main()
    assert shadow.transport.attempts == []
    assert shadow.rights.used <= READ_VERBS
    assert shadow.remarks == []
    report = report_recording(list_sources(shadow.folder), ShadowTwins(roles=(DIFFERENCES,)))
    assert report.paid.watched_seconds > HOURS * 3500
    assert report.paid.dollars > 0.02
    assert report.compared >= 2


def test_without_the_right_to_read_prices_those_stand_in_that_are_known_and_it_is_told(
    tmp_path: Path,
) -> None:
    shadow = ClusterShadow(tmp_path / "recording")

    @virtual
    async def main() -> None:
        async with AwsWorld().running() as world:
            world.default()
            world.pods(3, cpu="1", memory="1Gi")
            await world.until(lambda: world.placed() == 3, within=300)
            for denied in ("GetProducts", "DescribeSpotPriceHistory"):
                world.aws.faults.refuse("UnauthorizedOperation", denied, times=None)
            shadow.settings = read_settings((f"--cluster-name={CLUSTER}",), {}, provider="aws")
            shadow.make = partial(AwsProvider, aws=ReadOnlyAws(world.aws))
            shadow.start(world.world)
            await world.clock.sleep(900)
            await shadow.stop()

    main()
    assert shadow.remarks == [
        "AWS does not tell on-demand prices here, so on-demand prices that Dovetail brings along stand in; "
        "allow pricing:GetProducts",
        "AWS does not tell spot prices here, so on-demand prices that Dovetail brings along stand in; "
        "allow ec2:DescribeSpotPriceHistory",
    ]
    assert shadow.fold.build_report().paid.dollars > 0
