"""What a controller manager puts into every namespace."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.local import LocalApi
from support.apiserver import local_server


@pytest.fixture
def server() -> ApiServer:
    made = local_server()
    made.start_namespace_defaults("a certificate")
    return made


@pytest.fixture
def api(server: ApiServer) -> LocalApi:
    return server.build_local_client()


def _namespaces(api: LocalApi, resource: str, name: str) -> list[str]:
    return [each["metadata"]["namespace"] for each in api.list(resource) if each["metadata"]["name"] == name]


def _certificate(api: LocalApi, namespace: str = "default") -> dict[str, Any]:
    data: dict[str, Any] = api.get("configmaps", "kube-root-ca.crt", namespace)["data"]
    return data


def test_namespaces_old_and_new_have_an_account_and_the_certificate(api: LocalApi) -> None:
    api.create("namespaces", {"metadata": {"name": "team"}})
    everywhere = ["default", "kube-node-lease", "kube-public", "kube-system", "team"]
    assert _namespaces(api, "serviceaccounts", "default") == everywhere
    assert _namespaces(api, "configmaps", "kube-root-ca.crt") == everywhere
    assert _certificate(api, "team") == {"ca.crt": "a certificate"}


def test_what_is_taken_away_or_changed_comes_back(api: LocalApi) -> None:
    api.delete("serviceaccounts", "default", "default")
    api.delete("configmaps", "kube-root-ca.crt", "default")
    assert api.get("serviceaccounts", "default", "default")
    assert _certificate(api) == {"ca.crt": "a certificate"}
    api.patch("configmaps", "kube-root-ca.crt", {"data": {"ca.crt": "another", "more": "x"}}, "default")
    assert _certificate(api) == {"ca.crt": "a certificate"}


def test_a_namespace_on_its_way_out_is_not_held_up(api: LocalApi) -> None:
    api.create("namespaces", {"metadata": {"name": "team"}})
    api.delete("namespaces", "team")
    assert "team" not in [each["metadata"]["name"] for each in api.list("namespaces")]
    assert "team" not in _namespaces(api, "serviceaccounts", "default")


def test_another_start_publishes_its_own_certificate(server: ApiServer) -> None:
    again = local_server(2)
    again.load(server.dump())
    again.start_namespace_defaults("the next certificate")
    assert _certificate(again.build_local_client()) == {"ca.crt": "the next certificate"}


def test_a_server_alone_puts_nothing_there() -> None:
    assert local_server().build_local_client().list("serviceaccounts") == []
