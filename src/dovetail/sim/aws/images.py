"""Machine images: those AWS publishes for EKS, Bottlerocket and Windows, and an account's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from zlib import crc32

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.selecting import Values, filtered, page, tag_list

__all__ = ["VERSIONS", "Image", "Images", "Release", "published"]

# The Kubernetes versions AWS publishes images for, and until which one there was an Amazon Linux 2.
VERSIONS = tuple(f"1.{minor}" for minor in range(29, 37))
LAST_AL2, FIRST_WINDOWS_2025 = "1.32", "1.35"
AMAZON = "602401143452"
KEPT_YEARS = timedelta(days=730)


@dataclass(frozen=True, slots=True)
class Release:
    """One day's images: `20251209` of the Amazon Linux and Windows ones is this of Bottlerocket."""

    day: str
    bottlerocket: str

    @property
    def published(self) -> datetime:
        return datetime.strptime(f"{self.day}+0000", "%Y%m%d%z")


RELEASES = (Release("20251104", "1.49.0"), Release("20251120", "1.50.0"), Release("20251209", "1.51.0"))


@dataclass(slots=True)
class Image:
    """A machine image."""

    id: str
    name: str
    architecture: str
    created: datetime
    owner: str = AMAZON
    alias: str = "amazon"
    deprecated: datetime | None = None
    public: bool = True
    windows: bool = False
    root: str = "/dev/xvda"
    state: str = "available"
    tags: dict[str, str] = field(default_factory=dict)


class Images(Subject):
    """Every image an account can see in a region, and the parameters that name the published ones."""

    def begin(self) -> None:
        self.known: dict[str, Image] = {}
        # SSM parameter name → value, of what AWS publishes.
        self.parameters: dict[str, str] = {}
        for release in RELEASES:
            self.release(release)

    def release(self, release: Release, versions: Iterable[str] = VERSIONS) -> None:
        """AWS publishes new images; `latest` and `recommended` mean these from now on."""
        for image, names, parts in published(self.region, release, tuple(versions)):
            self.known[image.id] = Image(
                image.id,
                image.name,
                image.architecture,
                image.created,
                deprecated=image.created + KEPT_YEARS,
                windows=image.windows,
                root=image.root,
            )
            for name in names:
                self.parameters[name] = image.id
            self.parameters |= parts

    def add(
        self,
        name: str,
        architecture: str = "x86_64",
        tags: dict[str, str] | None = None,
        *,
        owner: str = "",
        created: datetime | None = None,
        public: bool = False,
    ) -> Image:
        """An image of the account's own, or of a stranger."""
        made = Image(
            f"ami-0{self.ground.hexes(16)}",
            name,
            architecture,
            created or self.clock.now(),
            owner or self.account,
            "",
            public=public,
            tags=dict(tags or {}),
        )
        self.known[made.id] = made
        return made

    def deprecate(self, image_id: str, when: datetime | None = None) -> None:
        self.known[image_id].deprecated = when or self.clock.now()

    def withdraw(self, image_id: str) -> None:
        """The image is gone; parameters that name it go on doing so."""
        del self.known[image_id]


Published = tuple[Image, tuple[str, ...], dict[str, str]]


@cache
def published(region: str, release: Release, versions: tuple[str, ...]) -> tuple[Published, ...]:
    """The images of a release: each with the parameters that hold its id, and those that describe it."""
    made = []
    for version in versions:
        made += [*_al2023(region, release, version), *_bottlerocket(region, release, version)]
        made += _windows(region, release, version)
        if _minor(version) <= _minor(LAST_AL2):
            made += _al2(region, release, version)
    return tuple(made)


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


def _image(region: str, release: Release, name: str, arch: str, *, windows: bool = False) -> Image:
    digits = "".join(f"{crc32(f'{region}/{name}/{part}'.encode()):08x}" for part in range(2))
    root = "/dev/sda1" if windows else "/dev/xvda"
    return Image(f"ami-0{digits}", name, arch, release.published, windows=windows, root=root)


def _al2023(region: str, release: Release, version: str) -> Iterator[Published]:
    for arch, variant in (
        ("x86_64", "standard"),
        ("x86_64", "nvidia"),
        ("x86_64", "neuron"),
        ("arm64", "standard"),
        ("arm64", "nvidia"),
    ):
        name = f"amazon-eks-node-al2023-{arch}-{variant}-{version}-v{release.day}"
        base = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{arch}/{variant}"
        yield _eks(_image(region, release, name, arch), base, version, release)


def _al2(region: str, release: Release, version: str) -> Iterator[Published]:
    for tree, prefix, arch in (
        ("amazon-linux-2", "amazon-eks-node", "x86_64"),
        ("amazon-linux-2-arm64", "amazon-eks-arm64-node", "arm64"),
        ("amazon-linux-2-gpu", "amazon-eks-gpu-node", "x86_64"),
    ):
        name = f"{prefix}-{version}-v{release.day}"
        base = f"/aws/service/eks/optimized-ami/{version}/{tree}"
        yield _eks(_image(region, release, name, arch), base, version, release)


def _eks(image: Image, base: str, version: str, release: Release) -> Published:
    told = f"{version}-{release.day}"
    described = {
        f"{base}/recommended/image_name": image.name,
        f"{base}/recommended/release_version": told,
        f"{base}/recommended": f'{{"image_id":"{image.id}","image_name":"{image.name}",'
        f'"release_version":"{told}","schema_version":"2"}}',
    }
    return image, (f"{base}/recommended/image_id", f"{base}/{image.name}/image_id"), described


def _bottlerocket(region: str, release: Release, version: str) -> Iterator[Published]:
    for flavour in ("", "-nvidia"):
        for arch in ("x86_64", "arm64"):
            tree = f"aws-k8s-{version}{flavour}"
            name = f"bottlerocket-{tree}-{arch}-v{release.bottlerocket}-{release.day}"
            base = f"/aws/service/bottlerocket/{tree}/{arch}"
            latest = {f"{base}/latest/image_version": release.bottlerocket}
            names = (f"{base}/latest/image_id", f"{base}/{release.bottlerocket}/image_id")
            yield _image(region, release, name, arch), names, latest


def _windows(region: str, release: Release, version: str) -> Iterator[Published]:
    years = ("2019", "2022", "2025") if _minor(version) >= _minor(FIRST_WINDOWS_2025) else ("2019", "2022")
    for year in years:
        tree = f"Windows_Server-{year}-English-Core-EKS_Optimized-{version}"
        day = f"{release.day[:4]}.{release.day[4:6]}.{release.day[6:]}"
        base = f"/aws/service/ami-windows-latest/{tree}"
        image = _image(region, release, f"{tree}-{day}", "x86_64", windows=True)
        yield image, (f"{base}/image_id",), {f"{base}/release_version": f"{version}-{day}"}


@operation("ec2", "DescribeImages")
def describe_images(ask: Ask) -> Json:
    images = ask.here(Images)
    wanted = list(images.known.values())
    if ids := ask.get("ImageIds"):
        missing = [each for each in ids if each not in images.known]
        if missing:
            raise ask.refuse("InvalidAMIID.NotFound", f"The image id '[{', '.join(missing)}]' does not exist")
        wanted = [images.known[each] for each in ids]
    if owners := ask.get("Owners"):
        named = {ask.account if owner == "self" else owner for owner in owners}
        wanted = [each for each in wanted if each.owner in named or each.alias in named]
    now = ask.ground.clock.now()
    if not ask.get("IncludeDeprecated"):
        wanted = [
            each
            for each in wanted
            if each.owner == ask.account or each.deprecated is None or each.deprecated > now
        ]
    visible = [each for each in wanted if each.public or each.owner == ask.account]
    found = filtered(ask, visible, _values, lambda each: each.tags)
    shown, more = page(ask, found, named="ImageIds")
    return {"Images": [_shown(each, ask.region) for each in shown], **more}


def _values(each: Image) -> Values:
    return {
        "image-id": (each.id,),
        "name": (each.name,),
        "architecture": (each.architecture,),
        "state": (each.state,),
        "owner-id": (each.owner,),
        "owner-alias": (each.alias,) if each.alias else (),
        "is-public": (str(each.public).lower(),),
        "platform": ("windows",) if each.windows else (),
        "virtualization-type": ("hvm",),
        "root-device-type": ("ebs",),
        "creation-date": (_stamp(each.created),),
    }


def _stamp(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def _shown(each: Image, region: str) -> Json:
    shown: Json = {
        "ImageId": each.id,
        "Name": each.name,
        "Architecture": each.architecture,
        "CreationDate": _stamp(each.created),
        "State": each.state,
        "OwnerId": each.owner,
        "ImageLocation": f"{each.owner}/{each.name}",
        "ImageType": "machine",
        "Public": each.public,
        "PlatformDetails": "Windows" if each.windows else "Linux/UNIX",
        "VirtualizationType": "hvm",
        "Hypervisor": "xen",
        "EnaSupport": True,
        "RootDeviceType": "ebs",
        "RootDeviceName": each.root,
        "BlockDeviceMappings": [{"DeviceName": each.root, "Ebs": _volume(each, region)}],
        "Tags": tag_list(each.tags),
    }
    if each.alias:
        shown["ImageOwnerAlias"] = each.alias
    if each.windows:
        shown["Platform"] = "windows"
    if each.deprecated is not None:
        shown["DeprecationTime"] = _stamp(each.deprecated)
    return shown


def _volume(each: Image, region: str) -> Json:
    return {
        "SnapshotId": f"snap-0{crc32(f'{region}/{each.id}'.encode()):08x}{crc32(each.name.encode()):08x}",
        "VolumeSize": 50 if each.windows else 20,
        "VolumeType": "gp3",
        "DeleteOnTermination": True,
        "Encrypted": False,
    }
