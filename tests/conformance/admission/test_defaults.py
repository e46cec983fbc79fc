"""What is stored when only the required fields are written."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.crds import apply_defaults
from support.admission import flavour_of, full_object, server_schema

_REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
_BUDGETS = [{"nodes": "10%"}]
_METADATA_OPTIONS = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 1,
    "httpTokens": "required",
}


def _pool(**disruption: Any) -> dict[str, Any]:
    spec = {"template": {"spec": {"nodeClassRef": _REF, "requirements": []}}}
    return {"spec": {**spec, **({"disruption": disruption} if disruption else {})}}


def _stored_pool(**disruption: Any) -> dict[str, Any]:
    template = {"spec": {"nodeClassRef": _REF, "requirements": [], "expireAfter": "720h"}}
    return {"spec": {"template": template, "disruption": disruption}}


WRITTEN_AND_STORED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "NodePool",
        _pool(),
        _stored_pool(consolidateAfter="0s", consolidationPolicy="WhenEmptyOrUnderutilized", budgets=_BUDGETS),
    ),
    (
        "NodePool",
        _pool(consolidateAfter="5m", budgets=[{"reasons": ["Empty"]}, {"nodes": None}]),
        _stored_pool(
            consolidateAfter="5m",
            consolidationPolicy="WhenEmptyOrUnderutilized",
            budgets=[{"reasons": ["Empty"], "nodes": "10%"}, {"nodes": "10%"}],
        ),
    ),
    # no default of its own inside an explicit disruption: the object is then refused
    (
        "NodePool",
        _pool(consolidationPolicy="WhenEmpty"),
        _stored_pool(consolidationPolicy="WhenEmpty", budgets=_BUDGETS),
    ),
    ("NodePool", {"status": {}}, {"status": {"nodes": 0}}),
    ("NodeClaim", {"spec": {"taints": None}}, {"spec": {"expireAfter": "720h"}}),
    ("NodeOverlay", {"spec": {"requirements": []}}, {"spec": {"requirements": []}}),
    (
        "CapacityBuffer",
        {"spec": {}},
        {"spec": {"provisioningStrategy": "buffer.x-k8s.io/active-capacity"}},
    ),
    ("EC2NodeClass", {}, {}),
    ("EC2NodeClass", {"spec": {}}, {"spec": {"metadataOptions": _METADATA_OPTIONS}}),
    (
        "EC2NodeClass",
        {"spec": {"metadataOptions": {"httpTokens": "optional"}}},
        {"spec": {"metadataOptions": {**_METADATA_OPTIONS, "httpTokens": "optional"}}},
    ),
    (
        "EC2NodeClass",
        {"status": {"capacityReservations": [{"id": "cr-1"}]}},
        {
            "status": {
                "capacityReservations": [{"id": "cr-1", "reservationType": "default", "state": "active"}]
            }
        },
    ),
    (
        "KWOKNodeClass",
        {},
        {
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "Ready",
                        "message": "",
                        "lastTransitionTime": "2024-01-01T01:01:01Z",
                    }
                ]
            }
        },
    ),
    ("KWOKNodeClass", {"status": {}}, {"status": {}}),
]


@pytest.mark.spec("api-3")
@pytest.mark.parametrize(("kind", "written", "stored"), WRITTEN_AND_STORED)
def test_defaults_appear_in_stored_objects_as_listed(
    kind: str, written: dict[str, Any], stored: dict[str, Any]
) -> None:
    assert apply_defaults(kind, written) == stored
    assert server_schema(kind, flavour_of(kind)).apply_defaults(written) == stored


def test_filling_in_defaults_leaves_the_given_document_alone() -> None:
    written = _pool()
    apply_defaults("NodePool", written)
    assert written == _pool()


def test_an_object_of_the_next_line_survives_being_read_and_written() -> None:
    """An open kubelet block keeps members that the release we match does not know."""
    written = full_object("EC2NodeClass")
    written["spec"]["kubelet"]["topologyManagerPolicy"] = {"nested": ["as", "is"]}
    schema = server_schema("EC2NodeClass", "aws")

    kept, unknown = schema.prune(written)

    assert unknown == []
    assert kept["spec"]["kubelet"]["topologyManagerPolicy"] == {"nested": ["as", "is"]}
