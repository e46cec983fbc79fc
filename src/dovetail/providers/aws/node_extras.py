"""What EC2 bills for a node beside its instance: EBS volumes, and a public IPv4 address.

Volumes are paid for whatever way the instance is bought: on demand, as spot or from a reservation. Prices are
bundled by region with their date. Where the price or the size of a volume is not known, no volume of the
class is counted: a part of the truth would look like all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from math import ceil

import msgspec

from dovetail.api.nodeclass import BlockDevice, BlockDeviceMapping, EC2NodeClass, EC2NodeClassSpec
from dovetail.api.quantity import Quantity
from dovetail.providers.aws.template_data import GIB, block_devices
from dovetail.scheduling.bill import HOURS_A_MONTH
from dovetail.scheduling.model.instance_types import Offering, PriceParts

__all__ = ["NO_EXTRAS", "ClassExtras", "bundled_extras", "find_class_extras", "knows_volumes", "price_volume"]

# EC2 makes a volume of this type where nobody names one.
USUAL_TYPE = "gp2"
# gp3 has this many operations a second and MiB/s in the price of its size.
GP3_IOPS, GP3_MIBPS = 3000, 125
# io2 is cheaper from each of these on.
IO2_TIERS = (32_000, 64_000)


class VolumePrice(msgspec.Struct, frozen=True):
    """Dollars a month of one type of volume: a GiB, one of its operations a second by tier, and a MiB/s."""

    gib: float
    iops: tuple[float, ...] = ()
    mibps: float | None = None


class PublicIpv4Price(msgspec.Struct, frozen=True, rename="camel"):
    """Dollars an hour of a public IPv4 address, the same in every commercial region."""

    as_of: str
    hourly: float


class ExtraPrices(msgspec.Struct, frozen=True, rename="camel"):
    """What is bundled: prices of volumes by region and type, and of addresses, as of a month."""

    as_of: str
    public_ipv4: PublicIpv4Price
    regions: Mapping[str, Mapping[str, VolumePrice]]


@cache
def bundled_extras() -> ExtraPrices:
    text = resources.files(__package__).joinpath("data", "node-extras.json").read_bytes()
    return msgspec.json.decode(text, type=ExtraPrices)


@dataclass(frozen=True, slots=True)
class ClassExtras:
    """Dollars an hour that every node of an EC2NodeClass costs beside its instance."""

    volumes: float = 0.0
    address: float = 0.0
    # The zones whose nodes get an address.
    addressed: frozenset[str] = frozenset()

    def price_offering(self, offering: Offering) -> Offering:
        """The offering at the price of the whole node."""
        address = self.address if offering.zone in self.addressed else 0.0
        unknown = offering.price_unknown and not offering.reserved
        if unknown or (not self.volumes and not address):
            return offering
        parts = PriceParts(instance=offering.price, volumes=self.volumes, address=address)
        return msgspec.structs.replace(offering, price=parts.total, parts=parts)


NO_EXTRAS = ClassExtras()


def find_class_extras(
    node_class: EC2NodeClass | None,
    region: str,
    zones: Sequence[str],
    gives_address: Callable[[str], bool] = lambda subnet_id: False,
) -> ClassExtras:
    """What nodes of a class cost beside their instances; a class that nobody knows is EC2's usual one.

    `gives_address` tells of a subnet by its id whether it gives addresses to what is launched in it.
    """
    spec = node_class.spec if node_class is not None else _USUAL_SPEC
    prices = bundled_extras()
    volumes = price_volumes(tuple(block_devices(spec)), region)
    if region not in prices.regions:  # also those of China and GovCloud, which have prices of their own
        return NO_EXTRAS
    subnets = node_class.status.subnets if node_class is not None else ()
    public = {each.zone for each in subnets if gives_address(each.id)}
    addressed = frozenset(zone for zone in zones if _has_address(spec, zone in public))
    return ClassExtras(volumes or 0.0, prices.public_ipv4.hourly if addressed else 0.0, addressed)


_USUAL_SPEC = EC2NodeClassSpec(ami_family="AL2023")


def _has_address(spec: EC2NodeClassSpec, subnet_gives: bool) -> bool:
    """Whether an instance gets a public IPv4 address: the class decides, and else the subnet.

    A subnet gives none to an instance that is launched with several interfaces.
    """
    if spec.associate_public_ip_address is not None:
        return spec.associate_public_ip_address
    return subnet_gives and len(spec.network_interfaces) < 2


def knows_volumes(node_class: EC2NodeClass, region: str) -> bool:
    """Whether the price of a class's volumes is known; that of a custom image's own volumes never is."""
    mappings = tuple(block_devices(node_class.spec))
    return bool(mappings) and price_volumes(mappings, region) is not None


@lru_cache(maxsize=256)
def price_volumes(mappings: tuple[BlockDeviceMapping, ...], region: str) -> float | None:
    """Dollars an hour of all volumes together; None where the price of one is not known."""
    priced = [price_volume(mapping.ebs, region) for mapping in mappings if mapping.ebs is not None]
    known = [each for each in priced if each is not None]
    return sum(known) if len(known) == len(priced) else None


def price_volume(volume: BlockDevice, region: str) -> float | None:
    """Dollars an hour of one volume; None where its size or a price is not known."""
    kind = volume.volume_type or USUAL_TYPE
    price = bundled_extras().regions.get(region, {}).get(kind)
    if price is None or volume.volume_size is None:
        return None
    monthly = price.gib * ceil(Quantity.parse(volume.volume_size).value / GIB)
    iops, mibps = volume.iops or 0, volume.throughput or 0
    if kind == "gp3":
        if mibps > GP3_MIBPS and price.mibps is None:
            return None
        monthly += price.iops[0] * max(0, iops - GP3_IOPS)
        monthly += (price.mibps or 0.0) * max(0, mibps - GP3_MIBPS)
    elif price.iops:
        monthly += _price_tiers(iops, price.iops)
    return monthly / HOURS_A_MONTH


def _price_tiers(iops: int, rates: Sequence[float]) -> float:
    """Each rate holds from where the one before ends."""
    bounds = (0, *IO2_TIERS[: len(rates) - 1])
    ends = (*bounds[1:], iops)
    return sum(
        rate * max(0, min(iops, end) - start) for rate, start, end in zip(rates, bounds, ends, strict=True)
    )
