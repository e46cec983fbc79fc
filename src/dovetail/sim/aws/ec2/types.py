"""Instance types and where they are sold, as EC2 tells it, from the bundled facts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zlib import crc32

from dovetail.providers.aws.instance_type_info import (
    InstanceTypeInfo,
    bundled_facts,
    bundled_prices,
    bundled_regions,
)
from dovetail.sim.aws.ec2.network import zone_ids
from dovetail.sim.aws.filters import Values, apply_filters, take_page
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["SPOT", "SimPrices", "list_zones_by_type", "load_facts"]


@cache
def load_facts() -> dict[str, InstanceTypeInfo]:
    return {facts.name: facts for facts in bundled_facts()}


@cache
def list_zones_by_type(region: str) -> dict[str, tuple[str, ...]]:
    """The zones that sell each type of a region."""
    known = bundled_regions().get(region)
    return known.zones_by_type() if known else {}


@operation("ec2", "DescribeInstanceTypes")
def describe_types(request: AwsRequest) -> Json:
    here, known = list_zones_by_type(request.region), load_facts()
    names = request.get("InstanceTypes") or here
    if missing := [name for name in names if name not in here]:
        raise request.refuse(
            "InvalidInstanceType",
            f"The following supplied instance types do not exist: [{', '.join(missing)}]",
        )
    found = apply_filters(request, (known[name] for name in names), _filter_values, lambda each: {})
    shown, more = take_page(request, found, most=100, named="InstanceTypes", least=5)
    return {"InstanceTypes": [_render_type(each) for each in shown], **more}


@operation("ec2", "DescribeInstanceTypeOfferings")
def describe_offerings(request: AwsRequest) -> Json:
    kind, here = request.get("LocationType", "region"), list_zones_by_type(request.region)
    ids = zone_ids(request.account, request.region)
    offered = [
        (name, place) for name, zones in here.items() for place in _list_locations(kind, request, zones, ids)
    ]
    found = apply_filters(
        request, offered, lambda each: {"instance-type": (each[0],), "location": (each[1],)}, lambda each: {}
    )
    shown, more = take_page(request, found, least=5)
    return {
        "InstanceTypeOfferings": [
            {"InstanceType": name, "LocationType": kind, "Location": place} for name, place in shown
        ],
        **more,
    }


def _list_locations(
    kind: str, request: AwsRequest, zones: tuple[str, ...], ids: dict[str, str]
) -> tuple[str, ...]:
    if kind == "availability-zone":
        return zones
    return tuple(ids[zone] for zone in zones) if kind == "availability-zone-id" else (request.region,)


def _filter_values(facts: InstanceTypeInfo) -> Values:
    return {
        "instance-type": (facts.name,),
        "supported-virtualization-type": ("hvm",),
        "processor-info.supported-architecture": facts.architectures,
        "supported-usage-class": facts.usage_classes,
        "bare-metal": (str(not facts.hypervisor).lower(),),
        "hypervisor": (facts.hypervisor,) if facts.hypervisor else (),
        "current-generation": ("true",),
        "vcpu-info.default-vcpus": (str(facts.vcpus),),
        "memory-info.size-in-mib": (str(facts.memory_mib),),
        "instance-storage-supported": (str(facts.store_gb is not None).lower(),),
    }


@cache
def _render_type(facts: InstanceTypeInfo) -> Json:
    """Shared by every answer: nobody may change it."""
    shown: Json = {
        "InstanceType": facts.name,
        "CurrentGeneration": True,
        "FreeTierEligible": facts.name in ("t2.micro", "t3.micro"),
        "SupportedUsageClasses": list(facts.usage_classes),
        "SupportedRootDeviceTypes": ["ebs"],
        "SupportedVirtualizationTypes": ["hvm"],
        "BareMetal": not facts.hypervisor,
        "ProcessorInfo": _render_processor(facts),
        "VCpuInfo": {"DefaultVCpus": facts.vcpus},
        "MemoryInfo": {"SizeInMiB": facts.memory_mib},
        "InstanceStorageSupported": facts.store_gb is not None,
        "EbsInfo": _render_ebs(facts),
        "NetworkInfo": _render_network(facts),
        "PlacementGroupInfo": {"SupportedStrategies": list(facts.placement_strategies)},
        "HibernationSupported": False,
        "BurstablePerformanceSupported": facts.name.startswith("t"),
        "DedicatedHostsSupported": False,
        "AutoRecoverySupported": True,
    }
    if facts.hypervisor:
        shown["Hypervisor"] = facts.hypervisor
    if facts.store_gb is not None:
        shown["InstanceStorageInfo"] = {"TotalSizeInGB": facts.store_gb, "NvmeSupport": facts.store_nvme}
    return shown | _render_devices(facts)


def _render_processor(facts: InstanceTypeInfo) -> Json:
    shown: Json = {
        "SupportedArchitectures": list(facts.architectures),
        "Manufacturer": facts.cpu_manufacturer,
    }
    if facts.clock_mhz:
        shown["SustainedClockSpeedInGhz"] = facts.clock_mhz / 1000
    if facts.features:
        shown["SupportedFeatures"] = list(facts.features)
    return shown


def _render_ebs(facts: InstanceTypeInfo) -> Json:
    shown: Json = {"EncryptionSupport": "supported", "NvmeSupport": "required"}
    if facts.ebs_mbps is None:
        return shown | {"EbsOptimizedSupport": "unsupported"}
    info = {"BaselineBandwidthInMbps": facts.ebs_mbps, "MaximumBandwidthInMbps": facts.ebs_mbps}
    return shown | {"EbsOptimizedSupport": "default", "EbsOptimizedInfo": info}


def _render_network(facts: InstanceTypeInfo) -> Json:
    shown: Json = {
        "MaximumNetworkInterfaces": sum(facts.interfaces),
        "MaximumNetworkCards": len(facts.interfaces),
        "DefaultNetworkCardIndex": facts.default_card,
        "NetworkCards": [
            {"NetworkCardIndex": at, "MaximumNetworkInterfaces": most}
            for at, most in enumerate(facts.interfaces)
        ],
        "Ipv4AddressesPerInterface": facts.ipv4_per_interface,
        "Ipv6AddressesPerInterface": facts.ipv4_per_interface,
        "Ipv6Supported": True,
        "EnaSupport": "required" if facts.ena else "unsupported",
        "EfaSupported": facts.efa_interfaces > 0,
        "EncryptionInTransitSupported": facts.encryption_in_transit,
    }
    if facts.efa_interfaces:
        shown["EfaInfo"] = {"MaximumEfaInterfaces": facts.efa_interfaces}
    return shown


def _render_devices(facts: InstanceTypeInfo) -> Json:
    shown: Json = {}
    if facts.gpus:
        shown["GpuInfo"] = {
            "Gpus": [
                {
                    "Name": gpu.name,
                    "Manufacturer": gpu.manufacturer,
                    "Count": gpu.count,
                    "MemoryInfo": {"SizeInMiB": gpu.memory_mib},
                }
                for gpu in facts.gpus
            ],
            "TotalGpuMemoryInMiB": sum(gpu.count * gpu.memory_mib for gpu in facts.gpus),
        }
    if facts.neurons:
        shown["NeuronInfo"] = {
            "NeuronDevices": [
                {"Name": each.name, "Count": each.count, "CoreInfo": {"Count": each.cores, "Version": 2}}
                for each in facts.neurons
            ]
        }
    if facts.accelerators:
        shown["InferenceAcceleratorInfo"] = {
            "Accelerators": [
                {"Name": each.name, "Manufacturer": each.manufacturer, "Count": each.count}
                for each in facts.accelerators
            ]
        }
    return shown


SPOT = "spot"
# Spot prices follow slow shifts of supply and demand: a new one now and then, never by much.
STEP = timedelta(hours=6)
MOVES_BY = 0.06
# Other regions are dearer than Virginia, Ohio and Oregon.
CHEAP = ("us-east-1", "us-east-2", "us-west-2")
DEARER_BY = 0.25
PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SimPrices(ServiceState):
    """The prices of a region."""

    def init_state(self) -> None:
        # (type, zone or "", "spot" or "on-demand") → factor, as a test sets it.
        self.factors: dict[tuple[str, str, str], float] = {}

    def on_demand_price(self, name: str) -> float | None:
        base = bundled_prices().get(name)
        if base is None:
            return None
        return round(
            base * _find_region_factor(self.region) * self.factors.get((name, "", "on-demand"), 1.0), 6
        )

    def spot_price(self, name: str, zone: str, when: datetime | None = None) -> float | None:
        base = self.on_demand_price(name)
        if base is None:
            return None
        step = int(((when or self.clock.now()) - EPOCH) / STEP)
        moved = 1 + MOVES_BY * (2 * _draw_fraction(f"{name}/{zone}/{step}") - 1)
        factor = self.factors.get((name, zone, SPOT), self.factors.get((name, "", SPOT), 1.0))
        return max(0.0001, round(_draw_spot(name, zone, base) * moved * factor, 4))


# How spot relates to on-demand in this market: (share of types below, share of the on-demand price).
SPREAD = ((0.0, 0.09), (0.1, 0.14), (0.5, 0.33), (0.9, 0.49), (1.0, 0.62))
ZONES_DIFFER_BY = 0.1


def _draw_spot(name: str, zone: str, on_demand: float) -> float:
    """What the market starts from: as wide a spread as the real one has, the same in every run."""
    nearby = 1 + ZONES_DIFFER_BY * (2 * _draw_fraction(f"{name}/{zone}") - 1)
    return max(0.0001, round(on_demand * _find_share(_draw_fraction(name)) * nearby, 4))


def _find_share(rank: float) -> float:
    for (low, least), (high, most) in pairwise(SPREAD):
        if rank <= high:
            return least + (most - least) * (rank - low) / (high - low)
    return SPREAD[-1][1]


def _draw_fraction(text: str) -> float:
    return crc32(text.encode()) / (1 << 32)


@cache
def _find_region_factor(region: str) -> float:
    return 1.0 if region in CHEAP else 1 + DEARER_BY * _draw_fraction(region)


@operation("ec2", "DescribeSpotPriceHistory")
def describe_history(request: AwsRequest) -> Json:
    prices, here, known = request.regional_state(SimPrices), list_zones_by_type(request.region), load_facts()
    names = request.get("InstanceTypes") or here
    zones, products = request.get("AvailabilityZone"), request.get("ProductDescriptions") or PRODUCTS
    found = [
        (name, zone, product, when)
        for name in names
        if name in here and SPOT in known[name].usage_classes and prices.on_demand_price(name) is not None
        for zone in here[name]
        if zones in (None, zone)
        for when in _list_price_changes(request)
        for product in products
        if product in PRODUCTS
    ]
    chosen = apply_filters(
        request,
        found,
        lambda each: {
            "instance-type": (each[0],),
            "availability-zone": (each[1],),
            "product-description": (each[2],),
        },
        lambda each: {},
    )
    shown, more = take_page(request, chosen, most=1000)
    history = [
        {
            "InstanceType": name,
            "AvailabilityZone": zone,
            "ProductDescription": product,
            "SpotPrice": f"{prices.spot_price(name, zone, when):.6f}",
            "Timestamp": when,
        }
        for name, zone, product, when in shown
    ]
    return {"SpotPriceHistory": history, "NextToken": more.get("NextToken", "")}


def _list_price_changes(request: AwsRequest) -> Iterator[datetime]:
    """When prices changed, latest first: the price that held at the start is part of the answer."""
    end = request.get("EndTime") or request.world.clock.now()
    start = min(request.get("StartTime") or end - timedelta(days=90), end)
    step = int((end - EPOCH) / STEP)
    while True:
        yield EPOCH + step * STEP
        if EPOCH + step * STEP <= start:
            return
        step -= 1


@operation("pricing", "GetProducts")
def get_products(request: AwsRequest) -> Json:
    wanted = {each["Field"]: each["Value"] for each in request.get("Filters", ())}
    region = wanted.get("regionCode", request.region)
    prices = request.world.get_state(SimPrices, request.account, region)
    found = [
        facts
        for name in list_zones_by_type(region)
        if _matches_product(facts := load_facts()[name], wanted) and prices.on_demand_price(name) is not None
    ]
    shown, more = (
        take_page(request, found, most=100)
        if request.get("MaxResults")
        else take_page(_limit_page(request), found)
    )
    return {
        "FormatVersion": "aws_v1",
        "PriceList": [json.dumps(_render_product(each, region, prices)) for each in shown],
        **more,
    }


def _limit_page(request: AwsRequest) -> AwsRequest:
    return AwsRequest(
        request.world,
        request.account,
        request.region,
        request.service,
        request.operation,
        {**request.given, "MaxResults": 100},
    )


def _matches_product(facts: InstanceTypeInfo, wanted: dict[str, str]) -> bool:
    """Bare metal is sold under its own product family, and only as dedicated."""
    attributes = _build_attributes(facts, wanted.get("regionCode", ""))
    family = attributes.pop("productFamily")
    given = attributes | {"productFamily": family, "serviceCode": "AmazonEC2", "ServiceCode": "AmazonEC2"}
    return all(given.get(field) == value for field, value in wanted.items())


def _build_attributes(facts: InstanceTypeInfo, region: str) -> dict[str, str]:
    metal = not facts.hypervisor
    return {
        "productFamily": "Compute Instance (bare metal)" if metal else "Compute Instance",
        "instanceType": facts.name,
        "regionCode": region,
        "tenancy": "Dedicated" if metal else "Shared",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "vcpu": str(facts.vcpus),
        "memory": f"{facts.memory_mib / 1024:g} GiB",
        "servicecode": "AmazonEC2",
    }


def _render_product(facts: InstanceTypeInfo, region: str, prices: SimPrices) -> Json:
    sku = f"{crc32(f'{region}/{facts.name}'.encode()):08X}"
    attributes = _build_attributes(facts, region)
    family = attributes.pop("productFamily")
    currency = "CNY" if region.startswith("cn-") else "USD"
    rate = f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    dimension = {
        "unit": "Hrs",
        "rateCode": rate,
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"on demand Linux {facts.name} instance hour",
        "appliesTo": [],
        "pricePerUnit": {currency: f"{prices.on_demand_price(facts.name):.10f}"},
    }
    term = {
        "sku": sku,
        "offerTermCode": "JRTCKXETXF",
        "effectiveDate": "2026-07-01T00:00:00Z",
        "termAttributes": {},
        "priceDimensions": {rate: dimension},
    }
    return {
        "serviceCode": "AmazonEC2",
        "product": {"productFamily": family, "sku": sku, "attributes": attributes},
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
        "version": "20260720000000",
        "publicationDate": "2026-07-20T00:00:00Z",
    }
