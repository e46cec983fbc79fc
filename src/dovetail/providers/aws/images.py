"""Images: which a class selects, which sorts of node each suits, and which an instance type starts with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, Final

from dovetail.api import labels
from dovetail.api.nodeclass import AMI, AMISelectorTerm, EC2NodeClass
from dovetail.api.pod import NodeSelectorRequirement
from dovetail.aws import Answer, Aws
from dovetail.errors import Gone
from dovetail.ports import Clock
from dovetail.providers.aws.aliases import Alias, Requirements, alias_of, parameters
from dovetail.providers.aws.answers import read_items
from dovetail.providers.aws.cached import Cached
from dovetail.providers.aws.discovery import Discovery
from dovetail.providers.aws.facts import ARCHITECTURES
from dovetail.providers.aws.parameters import ParameterStore
from dovetail.providers.aws.selecting import every, key_of, only, tagged
from dovetail.scheduling import requirements as algebra
from dovetail.scheduling.catalog import InstanceType
from dovetail.settings import Settings

__all__ = ["Images", "by_image", "image_for"]

PAGE: Final = 1000
OUR_OWNERS: Final = ("self", "amazon")
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
NO_SUITS: Final[tuple[Requirements, ...]] = ((),)


@dataclass(frozen=True, slots=True)
class Query:
    """One request for images, and what an image of it suits beyond its architecture."""

    asked: Mapping[str, Any]
    suits: Mapping[str, tuple[Requirements, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Found:
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


class Images:
    """Finds the images of classes."""

    def __init__(self, aws: Aws, clock: Clock, settings: Settings, discovery: Discovery) -> None:
        self._aws = aws
        self._clock = clock
        self._discovery = discovery
        self.parameters = ParameterStore(aws, clock)
        self._found: Cached[tuple[str, int], tuple[AMI, ...]] = Cached(clock, settings.ami_refresh_interval)

    async def find(self, node_class: EC2NodeClass) -> tuple[AMI, ...]:
        """The images the class selects, one for each sort of node, the newest first.

        UnsupportedAlias where the alias has none for this version of Kubernetes.
        """
        # Queries come before the memory: a new Kubernetes version or parameter must not wait for it.
        queries = await self._queries(node_class)
        key = key_of(node_class)
        known = self._found.get(key)
        if known is not None:
            return known
        now = self._clock.now()
        found: list[Found] = []
        for query in queries:
            answers = await every(self._aws, "DescribeImages", query.asked, "Images")
            read = partial(images, suits=query.suits, now=now)
            found += chain.from_iterable(read_items("DescribeImages", answers, read))
        chosen = best(found)
        self._found.put(key, chosen)
        return chosen

    async def _queries(self, node_class: EC2NodeClass) -> list[Query]:
        alias = alias_of(node_class)
        if alias is not None:
            return [await self._of_alias(alias)]
        terms = node_class.spec.ami_selector_terms
        ids = [term.id for term in terms if term.id]
        for term in terms:
            if term.ssm_parameter and not term.id:
                value = await self.parameters.custom(term.ssm_parameter)
                ids += [value] if value is not None and value.startswith("ami-") else []
        others = [t for t in terms if not t.id and not t.ssm_parameter and (t.name or t.tags)]
        by_id = [Query(_asking([only("image-id", dict.fromkeys(ids))]))] if ids else []
        return by_id + [Query(of_term(term)) for term in others]

    async def _of_alias(self, alias: Alias) -> Query:
        version = self._discovery.facts.version
        suits: dict[str, tuple[Requirements, ...]] = {}
        for parameter in parameters(alias, version):
            image = await self.parameters.public(parameter.name, parameter.mutable)
            if image is not None:
                suits[image] = (*suits.get(image, ()), *parameter.suits)
        if not suits:
            raise Gone(
                f"finding the images of alias {alias}: SSM has none of its parameters for Kubernetes "
                f"{version}; check the version of the alias"
            )
        return Query(_asking([only("image-id", suits)]), suits)

    async def deprecated(self, image_id: str) -> bool:
        """Whether EC2 calls an image deprecated, asked anew; one that is gone counts as that."""
        asked = _asking([only("image-id", [image_id])])
        answers = await every(self._aws, "DescribeImages", asked, "Images")
        return not answers or all(_deprecated(each, self._clock.now()) for each in answers)


def of_term(term: AMISelectorTerm) -> Mapping[str, Any]:
    """The request for a term of names and tags. By name alone only our own and Amazon's images are meant:
    anybody can publish an image under any name."""
    filters = [only("name", [term.name])] if term.name else []
    owners = [term.owner] if term.owner else list(OUR_OWNERS) if term.name else []
    return _asking([*filters, *tagged(term.tags)], owners)


def _asking(filters: Sequence[Mapping[str, Any]], owners: Sequence[str] = ()) -> Mapping[str, Any]:
    asked: dict[str, Any] = {
        "Filters": [*filters, only("state", ["available"])],
        "IncludeDeprecated": True,
        "MaxResults": PAGE,
    }
    return asked | {"Owners": list(owners)} if owners else asked


def images(
    answer: Answer, suits: Mapping[str, tuple[Requirements, ...]] | None, now: datetime
) -> list[Found]:
    """What an image is good for; nothing when no node has its architecture."""
    architecture = ARCHITECTURES.get(answer.get("Architecture", ""))
    if architecture is None:
        return []
    arch = NodeSelectorRequirement(key=labels.ARCH, operator="In", values=(architecture,))
    sorts = NO_SUITS if suits is None else suits.get(answer["ImageId"], NO_SUITS)
    return [
        Found(
            id=answer["ImageId"],
            name=answer.get("Name", ""),
            created=_time(answer.get("CreationDate")) or LONG_AGO,
            deprecated=_deprecated(answer, now),
            requirements=tuple(sorted((*sort, arch), key=lambda each: (len(each.key), each.key))),
        )
        for sort in sorts
    ]


def best(found: Iterable[Found]) -> tuple[AMI, ...]:
    """The best image for each sort of node, the newest first."""
    chosen: dict[Requirements, Found] = {}
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


def image_for(amis: Sequence[AMI], instance_type: InstanceType) -> AMI | None:
    """The first image whose requirements the type meets."""
    return next((ami for ami in amis if suits(ami, instance_type)), None)


def suits(ami: AMI, instance_type: InstanceType) -> bool:
    """Whether nodes of a type start with an image."""
    wanted = algebra.Requirements.of(ami.requirements)
    return instance_type.requirements.compatible(wanted, labels.WELL_KNOWN_AWS)


def by_image(amis: Sequence[AMI], types: Iterable[InstanceType]) -> dict[AMI, list[InstanceType]]:
    """The types each image starts; types that no image suits are left out."""
    found: dict[AMI, list[InstanceType]] = {}
    for each in types:
        ami = image_for(amis, each)
        if ami is not None:
            found.setdefault(ami, []).append(each)
    return found


def _deprecated(answer: Answer, now: datetime) -> bool:
    at = _time(answer.get("DeprecationTime"))
    return at is not None and at <= now


def _time(text: Any) -> datetime | None:
    """EC2 writes the times of images as text."""
    if not text:
        return None
    if isinstance(text, datetime):
        return text
    return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
