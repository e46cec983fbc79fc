"""Types and prices are asked for again and again, and an AWS that is silent changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.errors import Retry
from dovetail.providers.aws.controllers.maintenance import PriceRefresh, TypeRefresh
from support.ec2 import provided

HALF_A_DAY = timedelta(hours=12)


async def test_types_are_asked_for_every_twelve_hours_and_not_twice_at_the_start() -> None:
    ec2 = await provided()
    refresh = TypeRefresh(ec2.provider.types)
    asked = len(ec2.asked("DescribeInstanceTypes"))
    assert (await refresh.reconcile("")).after == HALF_A_DAY
    assert len(ec2.asked("DescribeInstanceTypes")) == asked
    assert (await refresh.reconcile("")).after == HALF_A_DAY
    assert len(ec2.asked("DescribeInstanceTypes")) == asked + 1


async def test_types_that_cannot_be_read_stay_as_they_were() -> None:
    ec2 = await provided()
    refresh = TypeRefresh(ec2.provider.types)
    await refresh.reconcile("")
    known = dict(ec2.provider.types.all_facts)
    ec2.aws.refuse("UnauthorizedOperation", "DescribeInstanceTypes")
    with pytest.raises(Retry):
        await refresh.reconcile("")
    assert dict(ec2.provider.types.all_facts) == known


async def test_prices_are_asked_for_at_once_and_what_fails_keeps_the_old_ones() -> None:
    ec2 = await provided()
    refresh = PriceRefresh(ec2.provider.prices)
    built_in = ec2.provider.prices.find_spot_price("m5.large", "us-west-2a")
    ec2.aws.refuse("AccessDeniedException", "GetProducts", None)
    with pytest.raises(Retry, match="GetProducts"):
        await refresh.reconcile("")
    # Spot had its turn all the same.
    assert ec2.provider.prices.find_spot_price("m5.large", "us-west-2a") != built_in
    ec2.aws.faults.clear()
    assert (await refresh.reconcile("")).after == HALF_A_DAY
