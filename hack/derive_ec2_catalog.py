"""Write the EC2 facts in src/dovetail/providers/aws/data from the PyPI package moto.

    uv pip install moto            # for deriving only; nothing at run time needs it
    python hack/derive_ec2_catalog.py

moto carries what DescribeInstanceTypes and DescribeInstanceTypeOfferings answer. Of that, two files are
kept: `instance-types.json`, a row of facts per type, and `zones.json`, which region sells which type in which
zones. Prices, bandwidths and interface limits are not in moto: they stay as they are, beside these, and every
type that one of those tables does not know is named at the end.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "src" / "dovetail" / "providers" / "aws" / "data"
TABLES = ("on-demand-us-east-1", "network-bandwidth-mbps", "interface-limits")
# One character for each type: which zones of a region sell it, as a number in base 64.
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/"
COLUMNS = (
    "name",
    "architectures",
    "vcpus",
    "memory MiB",
    "cpu manufacturer",
    "sustained clock MHz",
    "hypervisor",
    "usage classes",
    "EBS Mb/s, where EBS optimised by default",
    "encryption in transit",
    "IPv4 addresses per interface",
    "interfaces of each network card",
    "default network card",
    "most EFA interfaces",
    "ENA",
    "instance store GB",
    "instance store NVMe",
    "GPUs: name, manufacturer, count, MiB each",
    "Neuron devices: name, count, cores each",
    "inference accelerators: name, manufacturer, count",
    "processor features",
    "placement strategies",
)

# Types with AMD's GPUs, which moto has not: vCPUs, GiB, EBS Mb/s, addresses, interfaces, store in GB, GPUs.
G4AD = {
    "g4ad.xlarge": (4, 16, 3170, 4, 2, 150, 1),
    "g4ad.2xlarge": (8, 32, 3170, 4, 2, 300, 1),
    "g4ad.4xlarge": (16, 64, 3170, 10, 3, 600, 1),
    "g4ad.8xlarge": (32, 128, 3170, 15, 4, 1200, 2),
    "g4ad.16xlarge": (64, 256, 6300, 30, 8, 2400, 4),
}
# They are sold in these regions; in which zones is not public, so those that sell the like of NVIDIA's.
G4AD_REGIONS = (
    *("us-east-1", "us-east-2", "us-west-2", "ca-central-1"),
    *("eu-central-1", "eu-west-1", "eu-west-2", "ap-northeast-1"),
)
G4AD_ZONES_OF = "g4dn.xlarge"


def g4ad(name: str) -> list[object]:
    """One of AMD's, in the order of COLUMNS."""
    vcpus, gib, ebs, addresses, interfaces, store, gpus = G4AD[name]
    processor: list[object] = [
        name,
        ["x86_64"],
        vcpus,
        gib * 1024,
        "AMD",
        3000,
        "nitro",
        ["on-demand", "spot"],
    ]
    network: list[object] = [ebs, True, addresses, [interfaces], 0, 0, True]
    gpu = [["Radeon Pro V520", "AMD", gpus, 8192]]
    return [*processor, *network, store, "required", gpu, [], [], [], ["cluster", "partition", "spread"]]


def resources() -> Path:
    """Where moto keeps its facts about EC2."""
    found = importlib.util.find_spec("moto")
    if found is None or found.origin is None:
        sys.exit("the package moto is not installed here; run `uv pip install moto` and try again")
    folder = Path(found.origin).parent / "ec2" / "resources"
    for needed in ("instance_types.json.gz", "instance_type_offerings/availability-zone"):
        if not (folder / needed).exists():
            version = importlib.metadata.version("moto")
            sys.exit(f"moto {version} has no ec2/resources/{needed}; try another version")
    return folder


def row(info: Mapping[str, Any]) -> list[object]:
    """One type, in the order of COLUMNS."""
    network, processor, ebs = info["NetworkInfo"], info["ProcessorInfo"], info["EbsInfo"]
    cards = sorted(network["NetworkCards"], key=lambda card: card["NetworkCardIndex"])
    store = info.get("InstanceStorageInfo", {})
    return [
        info["InstanceType"],
        processor["SupportedArchitectures"],
        info["VCpuInfo"]["DefaultVCpus"],
        info["MemoryInfo"]["SizeInMiB"],
        processor["Manufacturer"],
        round(processor.get("SustainedClockSpeedInGhz", 0) * 1000),
        info.get("Hypervisor", ""),
        info["SupportedUsageClasses"],
        ebs["EbsOptimizedInfo"]["MaximumBandwidthInMbps"]
        if ebs["EbsOptimizedSupport"] == "default"
        else None,
        network["EncryptionInTransitSupported"],
        network["Ipv4AddressesPerInterface"],
        [card["MaximumNetworkInterfaces"] for card in cards],
        network["DefaultNetworkCardIndex"],
        network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        network["EnaSupport"] != "unsupported",
        store.get("TotalSizeInGB"),
        store.get("NvmeSupport", ""),
        [
            [gpu["Name"], gpu["Manufacturer"], gpu["Count"], gpu["MemoryInfo"]["SizeInMiB"]]
            for gpu in info.get("GpuInfo", {}).get("Gpus", [])
        ],
        [
            [device["Name"], device["Count"], device["CoreInfo"]["Count"]]
            for device in info.get("NeuronInfo", {}).get("NeuronDevices", [])
        ],
        [
            [each["Name"], each["Manufacturer"], each["Count"]]
            for each in info.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])
        ],
        processor.get("SupportedFeatures", []),
        info.get("PlacementGroupInfo", {}).get("SupportedStrategies", []),
    ]


def zones(folder: Path, names: list[str]) -> dict[str, object]:
    """For each region its zones, and for each type in order which of them sell it."""
    found: dict[str, object] = {}
    for path in sorted((folder / "instance_type_offerings" / "availability-zone").glob("*.json.gz")):
        offered = json.loads(gzip.decompress(path.read_bytes()))
        listed = sorted({each["Location"] for each in offered})
        if len(listed) > 6:
            sys.exit(f"{path.name} has {len(listed)} zones, and one character can tell only 6 apart")
        sold = dict.fromkeys(names, 0)
        for each in offered:
            sold[each["InstanceType"]] |= 1 << listed.index(each["Location"])
        if path.name.removesuffix(".json.gz") in G4AD_REGIONS:
            sold |= dict.fromkeys(G4AD, sold[G4AD_ZONES_OF])
        found[path.name.removesuffix(".json.gz")] = {
            "zones": listed,
            "sold": "".join(DIGITS[sold[name]] for name in names),
        }
    return found


def one_a_line(rows: Iterable[object]) -> str:
    return ",\n".join(json.dumps(each, separators=(",", ":")) for each in rows)


def main() -> None:
    """Write both files, and name what the other tables do not know."""
    folder = resources()
    listed = json.loads(gzip.decompress((folder / "instance_types.json.gz").read_bytes()))
    names = sorted({*listed, *G4AD})
    rows = one_a_line(row(listed[name]) if name in listed else g4ad(name) for name in names)
    text = f'{{"columns":{json.dumps(COLUMNS)},\n"types":[\n{rows}\n]}}\n'
    (DATA / "instance-types.json").write_text(text, encoding="utf-8")
    regions = zones(folder, names)
    lines = ",\n".join(
        f'"{region}":{json.dumps(sold, separators=(",", ":"))}' for region, sold in regions.items()
    )
    (DATA / "zones.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    print(f"{len(names)} types, {len(regions)} regions, from moto {importlib.metadata.version('moto')}")
    for table in TABLES:
        known = json.loads((DATA / f"{table}.json").read_text(encoding="utf-8"))
        missing = [name for name in names if name not in known]
        print(f"not in {table}.json ({len(missing)}): {', '.join(missing)}")


if __name__ == "__main__":
    main()
