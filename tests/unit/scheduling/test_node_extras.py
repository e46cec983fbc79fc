"""What people add to the price of nodes: how it is written, read and counted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodepool import NodePool
from dovetail.providers.pool_prices import PoolPrices
from dovetail.scheduling.model.instance_types import PriceParts
from dovetail.scheduling.model.node_extras import find_extra_problem, read_node_extra, set_node_extra
from dovetail.settings.node_extra import NO_EXTRA, NODE_EXTRA, NodeExtra, parse_node_extra
from support.builders import nodepool
from support.worlds import Z1, instance_type, offering


def _pool(text: str | None = None, name: str = "default") -> NodePool:
    written = {} if text is None else {labels.NODE_EXTRA: text}
    return replace(nodepool(name), metadata=ObjectMeta(name=name, annotations=written))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", NO_EXTRA),
        ("0.01", NodeExtra(0.01)),
        ("0.01/node", NodeExtra(0.01)),
        ("0.0005/vcpu", NodeExtra(0.0, 0.0005)),
        (" 0.01/node , 0.0005/vcpu ", NodeExtra(0.01, 0.0005)),
        ("12/vcpu,999999999.999999", NodeExtra(999999999.999999, 12.0)),
    ],
)
def test_amounts_are_dollars_an_hour_per_node_and_per_vcpu(text: str, expected: NodeExtra) -> None:
    assert parse_node_extra(text) == expected
    assert parse_node_extra(NODE_EXTRA.show(expected)) == expected, "what is shown can be written again"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-0.01", "'-0.01' is no amount"),
        ("a lot", "'a lot' is no amount"),
        ("1e3/node", "is no amount"),
        ("0.1234567", "is no amount"),
        ("nan", "is no amount"),
        ("0.01/cpu", "did you mean 0.01/vcpu?"),
        ("0.01/vCPU", "did you mean 0.01/vcpu?"),
        ("0.01/nodes", "did you mean 0.01/node?"),
        ("0.01/fortnight", "write node or vcpu"),
        ("0.01/node,0.02", "a second amount for the same unit"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_was_meant(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        parse_node_extra(text)
    assert said in str(raised.value)
    assert said in find_extra_problem(text)
    assert read_node_extra(_pool(text), NodeExtra(0.5)) == NodeExtra(0.5), "it counts as not written"


def test_a_pools_own_annotation_wins_also_with_nothing() -> None:
    assert read_node_extra(_pool(), NodeExtra(0.5)) == NodeExtra(0.5)
    assert read_node_extra(_pool(""), NodeExtra(0.5)) == NO_EXTRA
    assert read_node_extra(_pool("0.1"), NodeExtra(0.5)) == NodeExtra(0.1)


def test_extras_are_set_and_not_added_twice() -> None:
    sold = instance_type("sold", 4, offerings=[offering(Z1, "spot", 1.0), offering(Z1, "on-demand", 2.0)])
    once = set_node_extra((sold,), NodeExtra(0.5, 0.25))
    assert [each.price for each in once[0].offerings] == [2.5, 3.5]
    assert once[0].offerings[0].parts == PriceParts(instance=1.0, added=1.5)
    assert set_node_extra(once, NodeExtra(0.5, 0.25))[0] is once[0]
    assert set_node_extra(once, NO_EXTRA) == (sold,), "without extras an offering is what it was"


def test_without_extras_a_pool_gets_the_very_catalogue_it_was_given() -> None:
    types = (instance_type("sold"),)
    assert PoolPrices(NO_EXTRA).price_types(_pool(), types) is types
    assert PoolPrices(None).price_types(_pool("0.5"), types) is types, "switched off"
    prices = PoolPrices(NO_EXTRA)
    first = prices.price_types(_pool("0.5"), types)
    assert prices.price_types(_pool("0.5"), types) is first
    assert prices.price_types(_pool("0.6"), types) is not first
    assert prices.price_types(_pool("0.5", "other"), types) == first
