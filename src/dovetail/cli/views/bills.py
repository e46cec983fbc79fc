"""A bill as a table, as JSON, and as CSV with the columns of FOCUS, which FinOps tools read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from dovetail.api.pod import Pod
from dovetail.cli.views.output import Output, format_count, print_structured, print_table, print_text, some_of
from dovetail.errors import BadInput
from dovetail.scheduling.bill import HOURS_A_MONTH, Bill, BillLine
from dovetail.scheduling.cost_split import CostShare, split_bill
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import Snapshot

__all__ = ["BillGrouping", "parse_grouping", "show_bill", "write_bill", "write_focus"]

_MEMBERS = {"pool": "pool", "zone": "zone", "type": "instance_type", "capacity-type": "capacity_type"}
_LABEL = "label:"
_NAMES_SHOWN = 10
# Names and meanings of FOCUS 1.2; what only an invoice knows is left empty.
_FOCUS = (
    "BilledCost",
    "BillingCurrency",
    "ChargeCategory",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "CommitmentDiscountId",
    "ConsumedQuantity",
    "ConsumedUnit",
    "EffectiveCost",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "AvailabilityZone",
    "Tags",
)
_PARTS = ("CPU $/H", "MEMORY $/H", "DEVICES $/H")
_PRICING = {"spot": "Dynamic", "reserved": "Committed"}


@dataclass(frozen=True, slots=True)
class BillGrouping:
    """What dollars are added up by: something of a node, or something of its pods."""

    name: str
    member: str = ""
    name_of: Callable[[Pod], str] | None = None

    @property
    def heading(self) -> str:
        return self.name.removeprefix(_LABEL).upper()


def parse_grouping(text: str) -> BillGrouping:
    """What `--by` asks for; BadInput says what there is."""
    if text in _MEMBERS:
        return BillGrouping(text, member=_MEMBERS[text])
    if text == "namespace":
        return BillGrouping(text, name_of=lambda pod: pod.namespace)
    key = text.removeprefix(_LABEL)
    if text.startswith(_LABEL) and key:
        return BillGrouping(text, name_of=lambda pod: pod.labels.get(key, "(none)"))
    raise BadInput(
        f"--by {text} is none of pool, zone, type, capacity-type, namespace and label:KEY; write one of them"
    )


def _list_shares(bill: Bill, snapshot: Snapshot, grouping: BillGrouping) -> list[CostShare]:
    assert grouping.name_of is not None
    return list(split_bill(bill, snapshot.nodes, grouping.name_of))


def show_bill(bill: Bill, snapshot: Snapshot, grouping: BillGrouping) -> None:
    """The bill as a table, its sum, and which nodes have no price."""
    if grouping.member:
        columns: Sequence[str] = (grouping.heading, "NODES", "$/H", "$/MONTH", "SHARE")
        rows = list(_build_node_rows(bill, grouping))
    else:
        columns = (grouping.heading, "PODS", *_PARTS, "$/H", "$/MONTH", "SHARE")
        rows = list(_build_pod_rows(_list_shares(bill, snapshot, grouping), bill))
    if rows:
        print_table(columns, rows)
        print_text("\n")
    print_text(_describe_total(bill))


def _build_node_rows(bill: Bill, grouping: BillGrouping) -> Iterator[tuple[str, ...]]:
    counts: dict[str, int] = {}
    for line in bill.lines:
        name = str(getattr(line, grouping.member))
        counts[name] = counts.get(name, 0) + 1
    sums = bill.sum_by(grouping.member)
    for name, dollars in sorted(sums.items(), key=lambda each: (-each[1], each[0])):
        yield name or "(none)", str(counts[name]), *_format_dollars(dollars, bill)


def _build_pod_rows(shares: Sequence[CostShare], bill: Bill) -> Iterator[tuple[str, ...]]:
    for share in shares:
        parts = (f"{part:.4f}" for part in (share.cpu, share.memory, share.devices))
        yield share.name, str(share.pods), *parts, *_format_dollars(share.total, bill)


def _format_dollars(dollars: float, bill: Bill) -> tuple[str, str, str]:
    share = f"{100 * dollars / bill.total:.1f} %" if bill.total else "-"
    return f"{dollars:.4f}", f"{dollars * HOURS_A_MONTH:,.2f}", share


def _describe_total(bill: Bill) -> str:
    going = sum(line.terminating for line in bill.lines)
    told = f"{format_count(len(bill.lines), 'node')}: ${bill.total:,.4f} an hour, "
    told += f"${bill.total * HOURS_A_MONTH:,.2f} a month at list prices\n"
    if going:
        told += f"{going:,} of them terminating, and paid for until the instance is gone\n"
    if bill.unpriced:
        names = some_of(sorted(bill.unpriced), _NAMES_SHOWN)
        told += f"{format_count(len(bill.unpriced), 'node')} without a known price, not in the sum: {names}\n"
    return told


def write_bill(bill: Bill, snapshot: Snapshot, grouping: BillGrouping) -> None:
    """The bill for programs: its sum, its groups and every line."""
    groups: list[dict[str, object]]
    if grouping.member:
        groups = [{"name": name, "hourly": dollars} for name, dollars in bill.sum_by(grouping.member).items()]
    else:
        groups = [
            {
                "name": each.name,
                "pods": each.pods,
                "cpu": each.cpu,
                "memory": each.memory,
                "devices": each.devices,
                "hourly": each.total,
            }
            for each in _list_shares(bill, snapshot, grouping)
        ]
    document = {
        "time": f"{snapshot.options.now:%Y-%m-%dT%H:%M:%SZ}",
        "currency": "USD",
        "hourly": bill.total,
        "by": grouping.name,
        "groups": groups,
        "nodes": [_build_line(line) for line in bill.lines],
        "unpriced": sorted(bill.unpriced),
    }
    print_structured(document, Output.json)


def _build_line(line: BillLine) -> dict[str, object]:
    return {
        "node": line.node,
        "pool": line.pool,
        "instanceType": line.instance_type,
        "zone": line.zone,
        "capacityType": line.capacity_type,
        "listed": line.listed,
        "effective": line.effective,
        "coveredBy": line.covered_by or None,
        "terminating": line.terminating,
    }


def write_focus(bill: Bill, snapshot: Snapshot) -> None:
    """One row a node for the hour that the snapshot is in."""
    began = snapshot.options.now.replace(minute=0, second=0, microsecond=0)
    hour = {
        "ChargePeriodStart": f"{began:%Y-%m-%dT%H:%M:%SZ}",
        "ChargePeriodEnd": f"{began + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
    }
    ids = {views.read_name(state): views.read_provider_id(state) for state in snapshot.nodes}
    written = io.StringIO()
    rows = csv.DictWriter(written, _FOCUS, restval="", lineterminator="\n")
    rows.writeheader()
    for line in bill.lines:
        rows.writerow(hour | _build_focus(line, ids.get(line.node, "")))
    print_text(written.getvalue())


def _build_focus(line: BillLine, provider_id: str) -> dict[str, str]:
    tags = {
        "karpenter.sh/nodepool": line.pool,
        "karpenter.sh/capacity-type": line.capacity_type,
        "node.kubernetes.io/instance-type": line.instance_type,
    }
    return {
        "BilledCost": f"{line.effective:.10g}",
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ChargeDescription": f"one hour of {line.instance_type}, {line.capacity_type}, as node {line.node}",
        "ChargeFrequency": "Usage-Based",
        "CommitmentDiscountId": line.covered_by,
        "ConsumedQuantity": "1",
        "ConsumedUnit": "Hours",
        "EffectiveCost": f"{line.effective:.10g}",
        "ListCost": f"{line.listed:.10g}",
        "ListUnitPrice": f"{line.listed:.10g}",
        "PricingCategory": _PRICING.get(line.capacity_type, "Standard"),
        "PricingQuantity": "1",
        "PricingUnit": "Hours",
        "ResourceId": provider_id,
        "ResourceName": line.node,
        "ResourceType": "Node",
        "ServiceCategory": "Compute",
        "AvailabilityZone": line.zone,
        "Tags": json.dumps(tags, sort_keys=True),
    }
