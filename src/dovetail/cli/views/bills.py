"""A bill as a table, as JSON, and as CSV with the columns of FOCUS, which FinOps tools read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import fsum

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
        apart = ("EXTRAS $/H",) if bill.extras else ()
        columns: Sequence[str] = (grouping.heading, "NODES", *apart, "$/H", "$/MONTH", "SHARE")
        rows = list(_build_node_rows(bill, grouping))
    else:
        columns = (grouping.heading, "PODS", *_PARTS, "$/H", "$/MONTH", "SHARE")
        rows = list(_build_pod_rows(_list_shares(bill, snapshot, grouping), bill))
    if rows:
        print_table(columns, rows)
        print_text("\n")
    print_text(_describe_total(bill))


def _build_node_rows(bill: Bill, grouping: BillGrouping) -> Iterator[tuple[str, ...]]:
    groups: dict[str, list[BillLine]] = {}
    for line in bill.lines:
        groups.setdefault(str(getattr(line, grouping.member)), []).append(line)
    sums = bill.sum_by(grouping.member)
    for name, dollars in sorted(sums.items(), key=lambda each: (-each[1], each[0])):
        lines = groups[name]
        extras = (f"{fsum(line.extras for line in lines):.4f}",) if bill.extras else ()
        yield name or "(none)", str(len(lines)), *extras, *_format_dollars(dollars, bill)


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
    told += f"${bill.total * HOURS_A_MONTH:,.2f} a month {'after' if bill.commitments else 'at list prices'}"
    told += f" commitments, {_describe_commitments(bill)}\n" if bill.commitments else "\n"
    if bill.extras:
        told += f"${bill.extras:,.4f} an hour of it are extras: {_describe_extras(bill)}\n"
    guessed = sum(line.estimated for line in bill.lines)
    if guessed:
        told += f"{format_count(guessed, 'node')} of them at estimated prices: the own ones are not known\n"
    if going:
        told += f"{going:,} of them terminating, and paid for until the instance is gone\n"
    if bill.unpriced:
        names = some_of(sorted(bill.unpriced), _NAMES_SHOWN)
        told += f"{format_count(len(bill.unpriced), 'node')} without a known price, not in the sum: {names}\n"
    return told


def _describe_commitments(bill: Bill) -> str:
    paid = fsum(line.listed - line.effective for line in bill.lines)
    return (
        f"which pay for ${paid:,.4f} an hour of list prices; "
        f"${bill.committed:,.4f} are committed, and ${bill.unused:,.4f} of that are unused"
    )


def _describe_extras(bill: Bill) -> str:
    parts = {
        "volumes": fsum(line.volumes for line in bill.lines),
        "public IPv4 addresses": fsum(line.address for line in bill.lines),
        "added by you": fsum(line.added for line in bill.lines),
    }
    return ", ".join(f"{name} ${dollars:,.4f}" for name, dollars in parts.items() if dollars)


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
        **(_build_commitments(bill) if bill.commitments else {}),
    }
    print_structured(document, Output.json)


def _build_commitments(bill: Bill) -> dict[str, object]:
    """What programs are told of commitments, where there are any."""
    return {
        "listed": bill.listed,
        "committed": bill.committed,
        "unused": bill.unused,
        "commitments": [
            {
                "name": each.name,
                "hourly": each.hourly,
                "used": each.used,
                "unused": each.unused,
                "byOthers": each.by_others,
            }
            for each in bill.commitments
        ],
    }


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
        **{name: value for name, value in _list_extras(line) if value},
    }


def _list_extras(line: BillLine) -> Iterator[tuple[str, object]]:
    """What a line says beside the instance, as JSON names it; only what there is of it is written."""
    yield "volumes", line.volumes
    yield "publicIpv4", line.address
    yield "added", line.added
    yield "estimated", line.estimated


def write_focus(bill: Bill, snapshot: Snapshot) -> None:
    """For the hour that the snapshot is in, a row for each node's instance and for each of its extras."""
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
        whole = hour | _build_focus(line, ids.get(line.node, ""))
        rows.writerow(whole)
        rows.writerows(whole | extra for extra in _list_focus_extras(line))
    print_text(written.getvalue())


def _list_focus_extras(line: BillLine) -> Iterator[dict[str, str]]:
    """What differs from the row of the instance; commitments pay for none of it."""
    extras = (
        ("the EBS volumes", "Volume", "Storage", line.volumes),
        ("a public IPv4 address", "Public IPv4 Address", "Networking", line.address),
        ("what is added to its price", "Node", "Other", line.added),
    )
    for what, kind, category, dollars in extras:
        if dollars:
            costs = ("BilledCost", "EffectiveCost", "ListCost", "ListUnitPrice")
            yield dict.fromkeys(costs, f"{dollars:.10g}") | {
                "ChargeDescription": f"one hour of {what} of node {line.node}",
                "CommitmentDiscountId": "",
                "PricingCategory": "Standard",
                "ResourceType": kind,
                "ServiceCategory": category,
            }


def _build_focus(line: BillLine, provider_id: str) -> dict[str, str]:
    tags = {
        "karpenter.sh/nodepool": line.pool,
        "karpenter.sh/capacity-type": line.capacity_type,
        "node.kubernetes.io/instance-type": line.instance_type,
    }
    return {
        "BilledCost": f"{line.effective - line.extras:.10g}",
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ChargeDescription": f"one hour of {line.instance_type}, {line.capacity_type}, as node {line.node}",
        "ChargeFrequency": "Usage-Based",
        "CommitmentDiscountId": line.covered_by,
        "ConsumedQuantity": "1",
        "ConsumedUnit": "Hours",
        "EffectiveCost": f"{line.effective - line.extras:.10g}",
        "ListCost": f"{line.listed - line.extras:.10g}",
        "ListUnitPrice": f"{line.listed - line.extras:.10g}",
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
