"""Nodes of older releases are recognised: they get the class label of their claim."""

from __future__ import annotations

import pytest

from dovetail.api import labels
from dovetail.api.nodepool import NodeClassReference
from support.stage import Stage, virtual

UNKNOWN = {"metadata": {"labels": {labels.KWOK_NODECLASS: None}}}
FOREIGN = NodeClassReference(group="example.com", kind="OtherClass", name="default")


@pytest.mark.spec("lifecycle-131")
@virtual
async def test_a_node_without_the_label_gets_it_from_its_claim() -> None:
    async with Stage().open() as stage, stage.running(stage.hydration):
        stage.node()
        stage.api.patch("nodes", "node", UNKNOWN)
        await stage.sleep(1)
        assert stage.node_now().labels[labels.KWOK_NODECLASS] == "default"


@virtual
async def test_a_claim_that_comes_after_its_node_wakes_the_controller() -> None:
    async with Stage().open() as stage, stage.running(stage.hydration):
        stage.node(claimed=False)
        stage.api.patch("nodes", "node", UNKNOWN)
        await stage.sleep(1)
        assert labels.KWOK_NODECLASS not in stage.node_now().labels
        stage.claim()
        await stage.sleep(1)
        assert stage.node_now().labels[labels.KWOK_NODECLASS] == "default"


@pytest.mark.spec("lifecycle-131")
@virtual
async def test_nodes_of_foreign_claims_and_of_two_claims_are_left_alone() -> None:
    async with Stage().open() as stage, stage.running(stage.hydration):
        stage.node("foreign", claimed=False)
        stage.claim("foreign", node_class=FOREIGN)
        stage.node("twice")
        stage.claim("twice", name="twin")
        for name in ("foreign", "twice"):
            stage.api.patch("nodes", name, UNKNOWN)
        await stage.sleep(1)
        for name in ("foreign", "twice"):
            assert labels.KWOK_NODECLASS not in stage.node_now(name).labels
            assert "example.com/otherclass" not in stage.node_now(name).labels
