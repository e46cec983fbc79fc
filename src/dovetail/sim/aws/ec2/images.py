"""Machine images: those AWS publishes for EKS, Bottlerocket and Windows, and an account's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from zlib import crc32

from dovetail.sim.aws.filters import Values, apply_filters, tag_list, take_page
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["VERSIONS", "ImageRelease", "SimImage", "SimImages", "SimParameters", "list_published"]

# The Kubernetes versions AWS publishes images for, and until which one there was an Amazon Linux 2.
VERSIONS = tuple(f"1.{minor}" for minor in range(29, 37))
LAST_AL2, FIRST_WINDOWS_2025 = "1.32", "1.35"
AMAZON = "602401143452"
KEPT_YEARS = timedelta(days=730)


@dataclass(frozen=True, slots=True)
class ImageRelease:
    """One day's images: `20251209` of the Amazon Linux and Windows ones is this of Bottlerocket."""

    day: str
    bottlerocket: str

    @property
    def published(self) -> datetime:
        return datetime.strptime(f"{self.day}+0000", "%Y%m%d%z")


RELEASES = (
    ImageRelease("20251104", "1.49.0"),
    ImageRelease("20251120", "1.50.0"),
    ImageRelease("20251209", "1.51.0"),
)


@dataclass(slots=True)
class SimImage:
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


class SimImages(ServiceState):
    """Every image an account can see in a region, and the parameters that name the published ones."""

    def init_state(self) -> None:
        self.known: dict[str, SimImage] = {}
        # SSM parameter name → value, of what AWS publishes.
        self.parameters: dict[str, str] = {}
        for release in RELEASES:
            self.publish_release(release)

    def publish_release(self, release: ImageRelease, versions: Iterable[str] = VERSIONS) -> None:
        """AWS publishes new images; `latest` and `recommended` mean these from now on."""
        for image, names, parts in list_published(self.region, release, tuple(versions)):
            self.known[image.id] = SimImage(
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
    ) -> SimImage:
        """An image of the account's own, or of a stranger."""
        made = SimImage(
            f"ami-0{self.world.random_hex(16)}",
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


Published = tuple[SimImage, tuple[str, ...], dict[str, str]]


@cache
def list_published(region: str, release: ImageRelease, versions: tuple[str, ...]) -> tuple[Published, ...]:
    """The images of a release: each with the parameters that hold its id, and those that describe it."""
    made = []
    for version in versions:
        made += [*_list_al2023(region, release, version), *_list_bottlerocket(region, release, version)]
        made += _list_windows(region, release, version)
        if _parse_minor(version) <= _parse_minor(LAST_AL2):
            made += _list_al2(region, release, version)
    return tuple(made)


def _parse_minor(version: str) -> int:
    return int(version.partition(".")[2])


def _build_image(
    region: str, release: ImageRelease, name: str, arch: str, *, windows: bool = False
) -> SimImage:
    digits = "".join(f"{crc32(f'{region}/{name}/{part}'.encode()):08x}" for part in range(2))
    root = "/dev/sda1" if windows else "/dev/xvda"
    return SimImage(f"ami-0{digits}", name, arch, release.published, windows=windows, root=root)


def _list_al2023(region: str, release: ImageRelease, version: str) -> Iterator[Published]:
    for arch, variant in (
        ("x86_64", "standard"),
        ("x86_64", "nvidia"),
        ("x86_64", "neuron"),
        ("arm64", "standard"),
        ("arm64", "nvidia"),
    ):
        name = f"amazon-eks-node-al2023-{arch}-{variant}-{version}-v{release.day}"
        base = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{arch}/{variant}"
        yield _build_published(_build_image(region, release, name, arch), base, version, release)


def _list_al2(region: str, release: ImageRelease, version: str) -> Iterator[Published]:
    for tree, prefix, arch in (
        ("amazon-linux-2", "amazon-eks-node", "x86_64"),
        ("amazon-linux-2-arm64", "amazon-eks-arm64-node", "arm64"),
        ("amazon-linux-2-gpu", "amazon-eks-gpu-node", "x86_64"),
    ):
        name = f"{prefix}-{version}-v{release.day}"
        base = f"/aws/service/eks/optimized-ami/{version}/{tree}"
        yield _build_published(_build_image(region, release, name, arch), base, version, release)


def _build_published(image: SimImage, base: str, version: str, release: ImageRelease) -> Published:
    told = f"{version}-{release.day}"
    described = {
        f"{base}/recommended/image_name": image.name,
        f"{base}/recommended/release_version": told,
        f"{base}/recommended": f'{{"image_id":"{image.id}","image_name":"{image.name}",'
        f'"release_version":"{told}","schema_version":"2"}}',
    }
    return image, (f"{base}/recommended/image_id", f"{base}/{image.name}/image_id"), described


def _list_bottlerocket(region: str, release: ImageRelease, version: str) -> Iterator[Published]:
    for flavour in ("", "-nvidia"):
        for arch in ("x86_64", "arm64"):
            tree = f"aws-k8s-{version}{flavour}"
            name = f"bottlerocket-{tree}-{arch}-v{release.bottlerocket}-{release.day}"
            base = f"/aws/service/bottlerocket/{tree}/{arch}"
            latest = {f"{base}/latest/image_version": release.bottlerocket}
            names = (f"{base}/latest/image_id", f"{base}/{release.bottlerocket}/image_id")
            yield _build_image(region, release, name, arch), names, latest


def _list_windows(region: str, release: ImageRelease, version: str) -> Iterator[Published]:
    years = (
        ("2019", "2022", "2025")
        if _parse_minor(version) >= _parse_minor(FIRST_WINDOWS_2025)
        else ("2019", "2022")
    )
    for year in years:
        tree = f"Windows_Server-{year}-English-Core-EKS_Optimized-{version}"
        day = f"{release.day[:4]}.{release.day[4:6]}.{release.day[6:]}"
        base = f"/aws/service/ami-windows-latest/{tree}"
        image = _build_image(region, release, f"{tree}-{day}", "x86_64", windows=True)
        yield image, (f"{base}/image_id",), {f"{base}/release_version": f"{version}-{day}"}


@operation("ec2", "DescribeImages")
def describe_images(request: AwsRequest) -> Json:
    images = request.regional_state(SimImages)
    wanted = list(images.known.values())
    if ids := request.get("ImageIds"):
        missing = [each for each in ids if each not in images.known]
        if missing:
            raise request.refuse(
                "InvalidAMIID.NotFound", f"The image id '[{', '.join(missing)}]' does not exist"
            )
        wanted = [images.known[each] for each in ids]
    if owners := request.get("Owners"):
        named = {request.account if owner == "self" else owner for owner in owners}
        wanted = [each for each in wanted if each.owner in named or each.alias in named]
    now = request.world.clock.now()
    if not request.get("IncludeDeprecated"):
        wanted = [
            each
            for each in wanted
            if each.owner == request.account or each.deprecated is None or each.deprecated > now
        ]
    visible = [each for each in wanted if each.public or each.owner == request.account]
    found = apply_filters(request, visible, _filter_values, lambda each: each.tags)
    shown, more = take_page(request, found, named="ImageIds")
    return {"Images": [_render_image(each, request.region) for each in shown], **more}


def _filter_values(each: SimImage) -> Values:
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
        "creation-date": (_format_time(each.created),),
    }


def _format_time(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def _render_image(each: SimImage, region: str) -> Json:
    shown: Json = {
        "ImageId": each.id,
        "Name": each.name,
        "Architecture": each.architecture,
        "CreationDate": _format_time(each.created),
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
        "BlockDeviceMappings": [{"DeviceName": each.root, "Ebs": _render_volume(each, region)}],
        "Tags": tag_list(each.tags),
    }
    if each.alias:
        shown["ImageOwnerAlias"] = each.alias
    if each.windows:
        shown["Platform"] = "windows"
    if each.deprecated is not None:
        shown["DeprecationTime"] = _format_time(each.deprecated)
    return shown


def _render_volume(each: SimImage, region: str) -> Json:
    return {
        "SnapshotId": f"snap-0{crc32(f'{region}/{each.id}'.encode()):08x}{crc32(each.name.encode()):08x}",
        "VolumeSize": 50 if each.windows else 20,
        "VolumeType": "gp3",
        "DeleteOnTermination": True,
        "Encrypted": False,
    }


PUBLISHED = "/aws/service/"


@dataclass(slots=True)
class SimParameter:
    """A parameter of the account."""

    value: str
    kind: str
    version: int
    changed: datetime


class SimParameters(ServiceState):
    """The parameters of an account in a region."""

    def init_state(self) -> None:
        self.own: dict[str, SimParameter] = {}

    def put(self, name: str, value: str, kind: str = "String") -> SimParameter:
        before = self.own.get(name)
        made = SimParameter(value, kind, before.version + 1 if before else 1, self.clock.now())
        self.own[name] = made
        return made


@operation("ssm", "GetParameter")
def get_parameter(request: AwsRequest) -> Json:
    found = _find_parameter(request, _strip_arn(request.get_required("Name")))
    if found is None:
        raise request.refuse("ParameterNotFound", f"Parameter {request.get_required('Name')} not found.")
    return {"Parameter": found}


@operation("ssm", "GetParameters")
def get_parameters(request: AwsRequest) -> Json:
    found = {name: _find_parameter(request, _strip_arn(name)) for name in request.get_required("Names")}
    return {
        "Parameters": [each for each in found.values() if each is not None],
        "InvalidParameters": [name for name, each in found.items() if each is None],
    }


@operation("ssm", "GetParametersByPath")
def get_by_path(request: AwsRequest) -> Json:
    path, deep = request.get_required("Path").rstrip("/") + "/", request.get("Recursive", False)
    names = sorted(
        [*request.regional_state(SimImages).parameters, *request.regional_state(SimParameters).own]
    )
    under = [name for name in names if name.startswith(path) and (deep or "/" not in name[len(path) :])]
    start, size = int(request.get("NextToken") or 0), request.get("MaxResults", 10)
    more = {"NextToken": str(start + size)} if start + size < len(under) else {}
    return {"Parameters": [_find_parameter(request, name) for name in under[start : start + size]], **more}


@operation("ssm", "PutParameter")
def put_parameter(request: AwsRequest) -> Json:
    name, kept = request.get_required("Name"), request.regional_state(SimParameters)
    if name.lower().startswith("/aws/service"):
        raise request.refuse("AccessDeniedException", f"No access to reserved parameter name: {name}.")
    if name in kept.own and not request.get("Overwrite"):
        raise request.refuse(
            "ParameterAlreadyExists", "The parameter already exists. Set Overwrite to change it."
        )
    made = kept.put(name, request.get_required("Value"), request.get("Type", "String"))
    return {"Version": made.version, "Tier": "Standard"}


@operation("ssm", "DeleteParameter")
def delete_parameter(request: AwsRequest) -> Json:
    if request.regional_state(SimParameters).own.pop(_strip_arn(request.get_required("Name")), None) is None:
        raise request.refuse("ParameterNotFound", f"Parameter {request.get_required('Name')} not found.")
    return {}


def _strip_arn(name: str) -> str:
    """A name may be given as an ARN."""
    if name.startswith("arn:"):
        return "/" + name.partition(":parameter/")[2]
    return name


def _find_parameter(request: AwsRequest, name: str) -> Json | None:
    owner = "" if name.startswith(PUBLISHED) else request.account
    arn = f"arn:aws:ssm:{request.region}:{owner}:parameter{name}"
    if name.startswith(PUBLISHED):
        value = request.regional_state(SimImages).parameters.get(name)
        if value is None:
            return None
        kind = "aws:ec2:image" if value.startswith("ami-") else "text"
        return {"Name": name, "Type": "String", "Value": value, "Version": 1, "ARN": arn, "DataType": kind}
    own = request.regional_state(SimParameters).own.get(name)
    if own is None:
        return None
    return {
        "Name": name,
        "Type": own.kind,
        "Value": own.value,
        "Version": own.version,
        "LastModifiedDate": own.changed,
        "ARN": arn,
        "DataType": "text",
    }
