"""Images of classes: which are asked for, which is best for each sort of node, which type starts which."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclass import AMI, AMISelectorTerm, EC2NodeClass, EC2NodeClassSpec
from dovetail.aws import AwsError
from dovetail.errors import Gone
from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery, ClusterFacts
from dovetail.providers.aws.controllers.maintenance import SsmInvalidation
from dovetail.providers.aws.images import ImageProvider, choose_image, group_by_image
from dovetail.providers.aws.instance_type_info import InstanceTypeTables, bundled_facts
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.ec2.images import ImageRelease, SimImage
from dovetail.sim.clock import VirtualClock
from support.aws import CLUSTER
from support.stage import virtual

SETTINGS = read_settings((f"--cluster-name={CLUSTER}",), {}, provider="aws")
STANDARD = {
    labels.INSTANCE_GPU_COUNT: ("DoesNotExist", ()),
    labels.INSTANCE_ACCELERATOR_COUNT: ("DoesNotExist", ()),
}
GPU = {labels.INSTANCE_GPU_COUNT: ("Exists", ())}
NEURON = {labels.INSTANCE_ACCELERATOR_COUNT: ("Exists", ())}


class Known(ClusterDiscovery):
    """A cluster whose version a test says."""

    def __init__(self, version: str) -> None:
        self._facts = ClusterFacts(name=CLUSTER, version=version)


class Shop:
    """Images over a simulated AWS; every look is fresh unless a test keeps the class."""

    def __init__(self, version: str = "1.32") -> None:
        self.clock = VirtualClock()
        self.aws = SimulatedAws(self.clock, 0)
        self.images = ImageProvider(self.aws, self.clock, SETTINGS, Known(version))
        self._classes = 0

    def written(self, *terms: AMISelectorTerm, family: str | None = None) -> EC2NodeClass:
        self._classes += 1
        spec = EC2NodeClassSpec(ami_selector_terms=terms, ami_family=family)
        return EC2NodeClass(metadata=ObjectMeta(name="c", uid=str(self._classes), generation=1), spec=spec)

    async def find(self, **term: Any) -> tuple[AMI, ...]:
        return await self.images.list_images(self.written(AMISelectorTerm(**term)))

    async def alias(self, alias: str) -> tuple[AMI, ...]:
        return await self.find(alias=alias)

    def own(self, name: str = "mine", days: int = 0, **about: Any) -> SimImage:
        """An image of the account's own, so many days old."""
        return self.aws.images.add(name, created=self.clock.now() - timedelta(days=days), **about)

    def asked(self) -> list[dict[str, Any]]:
        return [dict(call.parameters) for call in self.aws.calls if call.operation == "DescribeImages"]


def sorts(found: tuple[AMI, ...]) -> list[tuple[str, dict[str, tuple[str, tuple[str, ...]]]]]:
    """For each image its architecture and what else it wants of a node."""
    shown = []
    for ami in found:
        wanted = {each.key: (each.operator, each.values) for each in ami.requirements}
        (arch,) = wanted.pop(labels.ARCH)[1]
        shown.append((arch, wanted))
    return shown


@pytest.mark.spec("aws-91")
@virtual
async def test_an_al2_gpu_image_stands_there_for_gpus_and_for_accelerators() -> None:
    found = await Shop().alias("al2@latest")
    assert len(found) == 4
    assert sorted(sorts(found), key=str) == sorted(
        [("amd64", STANDARD), ("arm64", STANDARD), ("amd64", GPU), ("amd64", NEURON)], key=str
    )
    assert len({ami.id for ami in found}) == 3


@pytest.mark.spec("aws-92")
@virtual
async def test_other_families_have_an_image_for_each_sort_of_node() -> None:
    shop = Shop()
    for name in list(shop.aws.images.parameters):
        if "amazon-linux-2023" in name and "/standard/" not in name:
            del shop.aws.images.parameters[name]
    assert sorts(await shop.alias("al2023@latest")) in (
        [("amd64", STANDARD), ("arm64", STANDARD)],
        [("arm64", STANDARD), ("amd64", STANDARD)],
    )
    rocket = await shop.alias("bottlerocket@latest")
    assert sorted(sorts(rocket), key=str) == sorted(
        [("amd64", STANDARD), ("amd64", NEURON), ("arm64", STANDARD), ("amd64", GPU), ("arm64", GPU)], key=str
    )
    (windows,) = await shop.alias("windows2022@latest")
    assert sorts((windows,)) == [
        ("amd64", {labels.OS: ("In", ("windows",)), labels.WINDOWS_BUILD: ("In", ("10.0.20348",))})
    ]


@virtual
async def test_a_pinned_version_is_that_release_and_no_other() -> None:
    shop = Shop("1.35")
    for alias, part in (
        ("al2023@v20251104", "v20251104"),
        ("bottlerocket@v1.49.0", "v1.49.0"),
        ("bottlerocket@1.49.0", "v1.49.0"),
    ):
        found = await shop.alias(alias)
        assert found, alias
        assert all(part in ami.name for ami in found), alias
    pinned = await Shop("1.32").alias("al2@v20251104")
    assert all("v20251104" in ami.name for ami in pinned)


@pytest.mark.spec("aws-93")
@virtual
async def test_parameters_that_are_missing_are_done_without_unless_all_are() -> None:
    shop = Shop()
    for name in list(shop.aws.images.parameters):
        if "amazon-linux-2023" in name and "/x86_64/standard/" not in name:
            del shop.aws.images.parameters[name]
    assert sorts(await shop.alias("al2023@latest")) == [("amd64", STANDARD)]
    shop.aws.images.parameters.clear()
    with pytest.raises(Gone, match="check the version of the alias"):
        await Shop("1.99").alias("al2023@latest")


@pytest.mark.spec("aws-94")
@virtual
async def test_images_that_cannot_be_started_are_left_out() -> None:
    shop = Shop()
    shop.own(days=1, tags={"pick": "me"}).state = "pending"
    shop.own("old", tags={"pick": "me"}, architecture="i386")
    assert await shop.find(tags={"pick": "me"}) == ()


@pytest.mark.spec("aws-95")
@virtual
async def test_of_equal_images_the_living_then_the_newest_then_the_last_name_is_best() -> None:
    shop = Shop()
    older, newer = shop.own(days=9, tags={"a": "1"}), shop.own(days=1, tags={"a": "1"})
    assert [ami.id for ami in await shop.find(tags={"a": "1"})] == [newer.id]
    shop.aws.images.deprecate(newer.id)
    (found,) = await shop.find(tags={"a": "1"})
    assert (found.id, found.deprecated) == (older.id, False)
    shop.aws.images.deprecate(older.id)
    (found,) = await shop.find(tags={"a": "1"})
    assert (found.id, found.deprecated) == (newer.id, True)
    shop.own("a", tags={"b": "1"})
    later = shop.own("b", tags={"b": "1"})
    assert [ami.id for ami in await shop.find(tags={"b": "1"})] == [later.id]


@pytest.mark.spec("aws-96")
@virtual
async def test_a_name_alone_means_our_own_images_and_amazons() -> None:
    shop = Shop()
    mine = shop.own("golden")
    shop.own("golden", owner="999988887777", public=True, days=-1)
    assert [ami.id for ami in await shop.find(name="golden")] == [mine.id]
    assert shop.asked()[-1]["Owners"] == ["self", "amazon"]
    await shop.find(tags={"a": "b"})
    assert "Owners" not in shop.asked()[-1]
    await shop.find(id=mine.id)
    assert "Owners" not in shop.asked()[-1]
    await shop.find(name="golden", owner="999988887777")
    assert shop.asked()[-1]["Owners"] == ["999988887777"]
    assert all(each["IncludeDeprecated"] for each in shop.asked())


@pytest.mark.spec("aws-97")
@virtual
async def test_a_parameter_that_names_no_image_is_no_matter_and_one_that_cannot_be_read_is() -> None:
    shop = Shop()
    mine = shop.own()
    assert await shop.find(ssm_parameter="/mine") == ()
    shop.aws.parameters.put("/mine", mine.id)
    assert [ami.id for ami in await shop.find(ssm_parameter="/mine")] == [mine.id]
    shop.aws.parameters.put("/other", "not an image")
    assert await shop.find(ssm_parameter="/other") == ()
    shop.aws.refuse("AccessDeniedException", "GetParameter")
    with pytest.raises(AwsError):
        await shop.find(ssm_parameter="/third")


@virtual
async def test_a_persons_parameter_is_read_again_after_minutes_and_awss_after_a_day() -> None:
    shop = Shop("1.35")
    first, second = shop.own("first"), shop.own("second")
    shop.aws.parameters.put("/mine", first.id)
    await shop.find(ssm_parameter="/mine")
    shop.aws.parameters.put("/mine", second.id)
    assert [ami.id for ami in await shop.find(ssm_parameter="/mine")] == [first.id]
    await shop.clock.sleep(301)
    assert [ami.id for ami in await shop.find(ssm_parameter="/mine")] == [second.id]
    before = await shop.alias("al2023@latest")
    shop.aws.images.publish_release(ImageRelease("20260101", "1.52.0"))
    await shop.clock.sleep(23 * 3600)
    assert await shop.alias("al2023@latest") == before
    await shop.clock.sleep(2 * 3600)
    assert all("v20260101" in ami.name for ami in await shop.alias("al2023@latest"))


@pytest.mark.spec("aws-98")
@virtual
async def test_tags_of_an_image_say_nothing_about_nodes() -> None:
    shop = Shop()
    shop.own(tags={"pick": "me", "karpenter.sh/capacity-type": "spot"})
    assert sorts(await shop.find(tags={"pick": "*"})) == [("amd64", {})]


@pytest.mark.spec("aws-99")
@virtual
async def test_images_are_listed_newest_first_and_then_by_id() -> None:
    shop = Shop()
    old = shop.own("x", days=5, tags={"pick": "me"})
    new = shop.own("arm", days=1, tags={"pick": "me"}, architecture="arm64")
    assert [ami.id for ami in await shop.find(tags={"pick": "me"})] == [new.id, old.id]
    same = await shop.alias("al2023@latest")
    assert [ami.id for ami in same] == sorted(ami.id for ami in same)
    keys = [[each.key for each in ami.requirements] for ami in same]
    assert keys == [sorted(each, key=lambda key: (len(key), key)) for each in keys]


@pytest.mark.spec("aws-100")
@virtual
async def test_a_parameter_that_names_a_deprecated_image_is_read_anew() -> None:
    shop = Shop("1.35")
    latest, pinned = await shop.alias("al2023@latest"), await shop.alias("al2023@v20251120")
    dead = next(ami for ami in latest if "x86_64-standard" in ami.name)
    for ami in (dead, *pinned):
        shop.aws.images.deprecate(ami.id)
    names = {name for name, _ in shop.images.parameters.list_mutable()}
    assert len(names) == 5
    result = await SsmInvalidation(shop.images).reconcile("")
    assert result.after == timedelta(minutes=30)
    gone = names - {name for name, _ in shop.images.parameters.list_mutable()}
    assert [name.split("/")[7:9] for name in gone] == [["x86_64", "standard"]]
    before = sum(call.operation == "GetParameter" for call in shop.aws.calls)
    await shop.alias("al2023@v20251120")
    assert sum(call.operation == "GetParameter" for call in shop.aws.calls) == before


@virtual
async def test_what_was_found_holds_for_a_minute_or_until_the_class_changes() -> None:
    shop = Shop()
    shop.own(days=2, tags={"a": "1"})
    written = shop.written(AMISelectorTerm(tags={"a": "1"}))
    (before,) = await shop.images.list_images(written)
    newer = shop.own(days=1, tags={"a": "1"})
    assert await shop.images.list_images(written) == (before,)
    edited = replace(written, metadata=replace(written.metadata, generation=2))
    assert [ami.id for ami in await shop.images.list_images(edited)] == [newer.id]
    await shop.clock.sleep(61)
    assert [ami.id for ami in await shop.images.list_images(written)] == [newer.id]


@virtual
async def test_each_type_starts_with_the_first_image_that_suits_it() -> None:
    amis = await Shop("1.35").alias("al2023@latest")
    terms = NodeClassTerms("us-west-2")
    types = {
        facts.name: build_instance_type(facts, terms, (), InstanceTypeTables())
        for facts in bundled_facts()
        if facts.name in ("m5.large", "m6g.large", "g4dn.xlarge", "inf1.xlarge")
    }
    chosen = {name: choose_image(amis, each) for name, each in types.items()}
    assert {name: ami.name.split("al2023-")[1].rsplit("-", 2)[0] for name, ami in chosen.items() if ami} == {
        "m5.large": "x86_64-standard",
        "m6g.large": "arm64-standard",
        "g4dn.xlarge": "x86_64-nvidia",
        "inf1.xlarge": "x86_64-neuron",
    }
    arm = tuple(ami for ami in amis if "arm64" in ami.name)
    assert [[each.name for each in found] for found in group_by_image(arm, types.values()).values()] == [
        ["m6g.large"]
    ]
