"""The registry, the order of versions, and what an Accept header gets."""

from __future__ import annotations

import pytest

from dovetail.sim.kube.builtin.kinds import build_registry
from dovetail.sim.kube.http.replies import ReplyForm, choose_form, wants_aggregated_discovery
from dovetail.sim.kube.status import ApiError
from dovetail.sim.kube.types import TypeInfo, TypeRegistry, UnknownResource, version_preference


def thing(version: str) -> TypeInfo:
    return TypeInfo(group="x.io", version=version, plural="things", kind="Thing", namespaced=True)


def test_versions_are_preferred_stable_first_then_newest() -> None:
    versions = ["foo", "v1alpha2", "v2", "v1beta10", "v10", "v1beta2", "v1", "v11alpha1", "bar10"]
    ordered = ["v10", "v2", "v1", "v1beta10", "v1beta2", "v11alpha1", "v1alpha2", "bar10", "foo"]
    assert sorted(versions, key=version_preference) == ordered


def test_a_registry_resolves_to_the_preferred_version_and_forgets_on_request() -> None:
    registry = TypeRegistry([thing("v1beta1"), thing("v1")])
    before = registry.revision
    assert registry.resolve_resource("things.x.io").version == "v1"
    registry.replace("things.x.io", [thing("v1beta1")])
    assert registry.resolve_resource("things.x.io").version == "v1beta1"
    registry.remove("things.x.io")
    with pytest.raises(UnknownResource):
        registry.resolve_resource("things.x.io")
    assert registry.revision > before


def test_built_in_kinds_are_found_by_path_and_kind() -> None:
    registry = build_registry()
    pods = registry.find_type("", "v1", "pods")
    assert pods is registry.find_by_kind("v1", "Pod") is registry.resolve_resource("pods")
    assert registry.find_type("apps", "v1", "pods") is None
    assert registry.find_by_kind("v1", "Binding") is None
    assert registry.list_versions("") == ("v1",)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", ReplyForm.PLAIN),
        ("application/json;q=0.1, application/yaml;q=0.9", ReplyForm.YAML),
        ("application/vnd.kubernetes.protobuf, */*;q=0.1", ReplyForm.PLAIN),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", ReplyForm.PLAIN),
        ("application/json;g=meta.k8s.io;v=v1;as=Table", ReplyForm.TABLE),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", ReplyForm.METADATA),
    ],
)
def test_the_first_acceptable_form_is_chosen(accept: str, form: ReplyForm) -> None:
    assert choose_form(accept) is form


def test_nothing_acceptable_is_a_406() -> None:
    with pytest.raises(ApiError) as error:
        choose_form("text/html")
    assert error.value.code == 406


def test_aggregated_discovery_is_for_those_who_ask_for_its_second_version() -> None:
    asked = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert wants_aggregated_discovery(f"{asked},application/json")
    assert not wants_aggregated_discovery("application/json," + asked)
    assert not wants_aggregated_discovery(asked.replace("v=v2", "v=v2beta1") + ",application/json")
