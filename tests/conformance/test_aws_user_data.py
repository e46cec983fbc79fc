"""User data of every family, to the byte as Karpenter's own provider writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.api import codec
from dovetail.api.core import Taint
from dovetail.api.nodeclass import AMISelectorTerm, KubeletConfiguration
from dovetail.errors import ClassNotReady, CreateFailed
from dovetail.providers.aws import userdata
from support.vectors import cases

NOT_READY = "NodeClassRef not ready"


def boot_of(case: Mapping[str, Any]) -> userdata.Boot:
    terms = [codec.convert(AMISelectorTerm, term) for term in case.get("amiSelectorTerms") or ()]
    return userdata.Boot(
        family=case["amiFamily"],
        cluster=case["clusterName"],
        endpoint=case["clusterEndpoint"],
        ca_bundle=case["caBundle"],
        service_cidr=case["clusterCIDR"] or "",
        kubelet=codec.convert(KubeletConfiguration, case["kubelet"] or {}),
        labels=case["labels"] or {},
        taints=tuple(codec.convert(Taint, taint) for taint in case["taints"] or ()),
        custom=case["customUserData"] or "",
        raid0=case["instanceStorePolicy"] == "RAID0",
        image_version=userdata.image_version(terms, ()),
    )


def difference(case: Mapping[str, Any]) -> str:
    """How our answer differs from the recorded one; empty when it does not."""
    try:
        ours = userdata.render(boot_of(case["in"]))
    except ClassNotReady as error:
        return "" if NOT_READY in case.get("error", "") else f"not ready: {error}"
    except CreateFailed as error:
        return "" if "error" in case and NOT_READY not in case["error"] else f"failed: {error}"
    if "error" in case:
        return f"{case['error']!r} was expected, and this came: {ours!r}"
    return "" if ours in case["texts"] else f"\n{ours}\nis none of\n{case['texts'][0]}"


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Windows2022", "Custom"])
def test_every_node_of_this_family_is_told_what_karpenter_tells_it(family: str) -> None:
    known = [c for c in cases("aws-user-data") if c["kind"] == "bootstrap" and c["in"]["amiFamily"] == family]
    found = [text for case in known if (text := difference(case))]
    assert len(known) == 124
    assert not found, f"{len(found)} differences: {found[0]}"
