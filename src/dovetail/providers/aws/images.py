"""Images: which a class selects, which sorts of node each suits, and which an instance type starts with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final

from dovetail.api import labels
from dovetail.api.nodeclass import AMI, AMISelectorTerm, EC2NodeClass
from dovetail.api.pod import NodeSelectorRequirement
from dovetail.aws import Answer, Aws, AwsAbsent
from dovetail.errors import Gone
from dovetail.ports import Clock
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery
from dovetail.providers.aws.image_aliases import Alias, Requirements, find_alias, list_image_parameters
from dovetail.providers.aws.instance_type_info import ARCHITECTURES
from dovetail.providers.aws.queries import describe_all, filter_by, filter_by_tags, key_of, read_items
from dovetail.providers.aws.ttl_cache import TtlCache
from dovetail.scheduling.model import requirements as algebra
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.settings import Settings

__all__ = ["CachedParameter", "ImageProvider", "ParameterStore", "choose_image", "group_by_image"]

KEPT: Final = timedelta(hours=24)
CUSTOM_KEPT: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class CachedParameter:
    """A parameter's value; a mutable one names another image some day."""

    value: str
    mutable: bool


class ParameterStore:
    """Reads parameters one by one."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws = aws
        self._public: TtlCache[str, CachedParameter] = TtlCache(clock, KEPT)
        self._custom: TtlCache[str, CachedParameter] = TtlCache(clock, CUSTOM_KEPT)

    async def read_public(self, name: str, mutable: bool) -> str | None:
        """The value of one of AWS's own parameters; None where there is no such parameter."""
        return await self._read_parameter(self._public, name, mutable)

    async def read_custom(self, name: str) -> str | None:
        """The value of a parameter somebody keeps for us."""
        return await self._read_parameter(self._custom, name, mutable=True)

    async def _read_parameter(
        self, kept: TtlCache[str, CachedParameter], name: str, mutable: bool
    ) -> str | None:
        known = kept.get(name)
        if known is not None:
            return known.value
        try:
            answer = await self._aws.call("ssm", "GetParameter", {"Name": name})
        except AwsAbsent:
            return None
        value = str(answer["Parameter"]["Value"])
        kept.put(name, CachedParameter(value, mutable))
        return value

    def list_mutable(self) -> tuple[tuple[str, str], ...]:
        """Names and values of what may change."""
        held = (*self._public.items(), *self._custom.items())
        return tuple((name, entry.value) for name, entry in held if entry.mutable)

    def forget_parameter(self, name: str) -> None:
        self._public.drop(name)
        self._custom.drop(name)


PAGE: Final = 1000
OUR_OWNERS: Final = ("self", "amazon")
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
NO_SUITS: Final[tuple[Requirements, ...]] = ((),)


@dataclass(frozen=True, slots=True)
class ImageQuery:
    """One request for images, and what an image of it suits beyond its architecture."""

    asked: Mapping[str, Any]
    suits: Mapping[str, tuple[Requirements, ...]] | None = None


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image for one sort of node."""

    id: str
    name: str
    created: datetime
    deprecated: bool
    requirements: Requirements

    @property
    def rank(self) -> tuple[bool, datetime, str]:
        """Greater is better: not deprecated, then newer, then the later name."""
        return not self.deprecated, self.created, self.name


class ImageProvider:
    """Finds the images of classes."""

    def __init__(self, aws: Aws, clock: Clock, settings: Settings, discovery: ClusterDiscovery) -> None:
        self._aws = aws
        self._clock = clock
        self._discovery = discovery
        self.parameters = ParameterStore(aws, clock)
        self._found: TtlCache[tuple[str, int], tuple[AMI, ...]] = TtlCache(
            clock, settings.ami_refresh_interval
        )

    async def list_images(self, node_class: EC2NodeClass) -> tuple[AMI, ...]:
        """The images the class selects, one for each sort of node, the newest first.

        UnsupportedAlias where the alias has none for this version of Kubernetes.
        """
        # Queries come before the memory: a new Kubernetes version or parameter must not wait for it.
        queries = await self._build_queries(node_class)
        key = key_of(node_class)
        known = self._found.get(key)
        if known is not None:
            return known
        now = self._clock.now()
        found: list[FoundImage] = []
        for query in queries:
            answers = await describe_all(self._aws, "DescribeImages", query.asked, "Images")
            read = partial(read_images, suits=query.suits, now=now)
            found += chain.from_iterable(read_items("DescribeImages", answers, read))
        chosen = choose_best(found)
        self._found.put(key, chosen)
        return chosen

    async def _build_queries(self, node_class: EC2NodeClass) -> list[ImageQuery]:
        alias = find_alias(node_class)
        if alias is not None:
            return [await self._query_alias(alias)]
        terms = node_class.spec.ami_selector_terms
        ids = [term.id for term in terms if term.id]
        for term in terms:
            if term.ssm_parameter and not term.id:
                value = await self.parameters.read_custom(term.ssm_parameter)
                ids += [value] if value is not None and value.startswith("ami-") else []
        others = [t for t in terms if not t.id and not t.ssm_parameter and (t.name or t.tags)]
        by_id = [ImageQuery(_build_request([filter_by("image-id", dict.fromkeys(ids))]))] if ids else []
        return by_id + [ImageQuery(build_term_request(term)) for term in others]

    async def _query_alias(self, alias: Alias) -> ImageQuery:
        version = self._discovery.facts.version
        suits: dict[str, tuple[Requirements, ...]] = {}
        for parameter in list_image_parameters(alias, version):
            image = await self.parameters.read_public(parameter.name, parameter.mutable)
            if image is not None:
                suits[image] = (*suits.get(image, ()), *parameter.suits)
        if not suits:
            raise Gone(
                f"finding the images of alias {alias}: SSM has none of its parameters for Kubernetes "
                f"{version}; check the version of the alias"
            )
        return ImageQuery(_build_request([filter_by("image-id", suits)]), suits)

    async def is_deprecated(self, image_id: str) -> bool:
        """Whether EC2 calls an image deprecated, asked anew; one that is gone counts as that."""
        asked = _build_request([filter_by("image-id", [image_id])])
        answers = await describe_all(self._aws, "DescribeImages", asked, "Images")
        return not answers or all(_is_deprecated(each, self._clock.now()) for each in answers)


def build_term_request(term: AMISelectorTerm) -> Mapping[str, Any]:
    """The request for a term of names and tags. By name alone only our own and Amazon's images are meant:
    anybody can publish an image under any name."""
    filters = [filter_by("name", [term.name])] if term.name else []
    owners = [term.owner] if term.owner else list(OUR_OWNERS) if term.name else []
    return _build_request([*filters, *filter_by_tags(term.tags)], owners)


def _build_request(filters: Sequence[Mapping[str, Any]], owners: Sequence[str] = ()) -> Mapping[str, Any]:
    asked: dict[str, Any] = {
        "Filters": [*filters, filter_by("state", ["available"])],
        "IncludeDeprecated": True,
        "MaxResults": PAGE,
    }
    return asked | {"Owners": list(owners)} if owners else asked


def read_images(
    answer: Answer, suits: Mapping[str, tuple[Requirements, ...]] | None, now: datetime
) -> list[FoundImage]:
    """What an image is good for; nothing when no node has its architecture."""
    architecture = ARCHITECTURES.get(answer.get("Architecture", ""))
    if architecture is None:
        return []
    arch = NodeSelectorRequirement(key=labels.ARCH, operator="In", values=(architecture,))
    sorts = NO_SUITS if suits is None else suits.get(answer["ImageId"], NO_SUITS)
    return [
        FoundImage(
            id=answer["ImageId"],
            name=answer.get("Name", ""),
            created=_parse_time(answer.get("CreationDate")) or LONG_AGO,
            deprecated=_is_deprecated(answer, now),
            requirements=tuple(sorted((*sort, arch), key=lambda each: (len(each.key), each.key))),
        )
        for sort in sorts
    ]


def choose_best(found: Iterable[FoundImage]) -> tuple[AMI, ...]:
    """The best image for each sort of node, the newest first."""
    chosen: dict[Requirements, FoundImage] = {}
    for each in found:
        held = chosen.get(each.requirements)
        if held is None or each.rank > held.rank:
            chosen[each.requirements] = each
    by_age = sorted(chosen.values(), key=lambda each: each.id)
    by_age.sort(key=lambda each: each.created, reverse=True)
    return tuple(
        AMI(id=each.id, name=each.name, deprecated=each.deprecated, requirements=each.requirements)
        for each in by_age
    )


def choose_image(amis: Sequence[AMI], instance_type: InstanceType) -> AMI | None:
    """The first image whose requirements the type meets."""
    return next((ami for ami in amis if suits_type(ami, instance_type)), None)


def suits_type(ami: AMI, instance_type: InstanceType) -> bool:
    """Whether nodes of a type start with an image."""
    wanted = algebra.Requirements.from_expressions(ami.requirements)
    return instance_type.requirements.is_compatible(wanted, labels.WELL_KNOWN_AWS)


def group_by_image(amis: Sequence[AMI], types: Iterable[InstanceType]) -> dict[AMI, list[InstanceType]]:
    """The types each image starts; types that no image suits are left out."""
    found: dict[AMI, list[InstanceType]] = {}
    for each in types:
        ami = choose_image(amis, each)
        if ami is not None:
            found.setdefault(ami, []).append(each)
    return found


def _is_deprecated(answer: Answer, now: datetime) -> bool:
    at = _parse_time(answer.get("DeprecationTime"))
    return at is not None and at <= now


def _parse_time(text: Any) -> datetime | None:
    """EC2 writes the times of images as text."""
    if not text:
        return None
    if isinstance(text, datetime):
        return text
    return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
