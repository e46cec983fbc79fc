"""An absurd value in any field of a SpendLimit stops nobody: the other limits allow what they allowed."""

from __future__ import annotations

from dovetail.api import codec
from dovetail.api.meta import ObjectMeta
from dovetail.api.spend_limit import (
    CoveredPools,
    MonthSpend,
    SpendLimit,
    SpendLimitSpec,
    SpendLimitStatus,
    SpendWindow,
)
from dovetail.scheduling.spend_caps import build_caps
from support.builders import NOW, amounts, nodepool
from support.hostile_values import bad_documents, read_all

VICTIM = SpendLimit(
    metadata=ObjectMeta(name="victim"),
    spec=SpendLimitSpec(
        node_pools=CoveredPools(match_labels={"team": "a"}),
        hourly="90",
        monthly="9000",
        nodes=5,
        resources=amounts(cpu="9"),
        time_zone="Europe/Berlin",
        overlap="10%",
        windows=(SpendWindow(schedule="0 19 * * 1-5", duration="12h", hourly="8"),),
    ),
    status=SpendLimitStatus(month=MonthSpend(of="2026-01", spent="3")),
)
OTHER = SpendLimit(
    metadata=ObjectMeta(name="zz-other"),
    spec=SpendLimitSpec(node_pools=CoveredPools(names=("b",)), hourly="1"),
)


def test_an_absurd_value_in_any_field_of_a_limit_changes_nothing_for_the_others() -> None:
    pools = [nodepool("a", labels={"team": "a"}), nodepool("b")]
    (alone,) = build_caps([OTHER], pools, NOW)
    tried = 0
    for path, value, document in bad_documents(SpendLimit, VICTIM):
        read = read_all({SpendLimit: [document, codec.to_dict(OTHER)]})[SpendLimit]
        caps = build_caps([each for each in read if isinstance(each, SpendLimit)], pools, NOW)
        assert [cap for cap in caps if cap.limit == "zz-other"] == [alone], (path, value)
        tried += 1
    assert tried > 20
