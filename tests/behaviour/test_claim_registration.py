"""A Node joins: it is matched with its claim, given what was promised, and taken in once hooks agree."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodeClassReference
from dovetail.api.taints import UNREGISTERED, is_same_taint
from dovetail.controllers.base import SOON, requeue_after
from dovetail.errors import Retry
from dovetail.sim.faults import FaultRule
from support.builders import taint
from support.world import Scene, sample, virtual

Answer = timedelta | Exception | None
FIVE, TEN = timedelta(seconds=5), timedelta(seconds=10)


@dataclass
class Hook:
    """Gives its answers in turn, and then agrees."""

    name: str
    answers: deque[Answer] = field(default_factory=deque)
    label: str = ""
    asked: int = 0

    async def settle_claim(self, claim: NodeClaim) -> tuple[NodeClaim, timedelta | None]:
        self.asked += 1
        answer = self.answers.popleft() if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if self.label:
            about = replace(claim.metadata, labels={**claim.labels, self.label: "hooked"})
            claim = replace(claim, metadata=about)
        return claim, answer


def hook(name: str, *answers: Answer, label: str = "") -> Hook:
    return Hook(name, deque(answers), label)


def tainted(scene: Scene, node: str = "node-claim") -> bool:
    return any(is_same_taint(each, UNREGISTERED) for each in scene.node_now(node).spec.taints)


@pytest.mark.spec("lifecycle-18", "lifecycle-21", "lifecycle-36")
@virtual
async def test_a_node_with_the_claims_machine_is_taken_in() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        zone = claim.labels[labels.ZONE]
        created = sample("karpenter_nodes_created_total", nodepool="default", zone=zone)
        scene.join(claim)
        assert tainted(scene)
        await scene.live()
        assert scene.says("Registered") == ("True", "Registered")
        assert scene.claim_now().status.node_name == "node-claim"
        assert not tainted(scene)
        node = scene.node_now("node-claim")
        assert node.labels[labels.REGISTERED] == "true"
        assert labels.TERMINATION in node.metadata.finalizers
        assert sample("karpenter_nodes_created_total", nodepool="default", zone=zone) == created + 1
        assert scene.events("UnregisteredTaintMissing") == []


@pytest.mark.spec("lifecycle-19")
@virtual
async def test_a_claim_of_others_is_not_matched() -> None:
    async with Scene().still() as scene:
        foreign = NodeClassReference(group="example.com", kind="OtherClass", name="default")
        scene.claim(node_class=foreign)
        ours = await scene.launched("ours")
        machine = scene.cloud.instances[ours.status.provider_id]
        scene.set_status("nodeclaims.karpenter.sh", "claim", {"providerID": machine.provider_id})
        scene.join(ours, machine)
        await scene.live("claim")
        assert scene.claim_now().status.conditions == ()
        assert scene.claim_now().status.node_name == ""


@pytest.mark.spec("lifecycle-20")
@virtual
async def test_the_node_belongs_to_its_claim_once() -> None:
    async with Scene(hooks=(hook("slow", FIVE),)).still() as scene:
        claim = await scene.launched()
        scene.join(claim)
        await scene.live()
        await scene.live()
        owners = scene.node_now("node-claim").metadata.owner_references
        assert [(o.kind, o.name, o.uid, o.block_owner_deletion) for o in owners] == [
            ("NodeClaim", "claim", claim.uid, True)
        ]


@pytest.mark.spec("lifecycle-22")
@virtual
async def test_a_node_without_the_protecting_taint_is_taken_in_with_a_warning() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        scene.join(claim, taints=())
        await scene.live()
        assert scene.says("Registered") == ("True", "Registered")
        [(kind, about, note)] = scene.events("UnregisteredTaintMissing")
        assert (kind, about) == ("Warning", "NodeClaim/claim")
        assert note.startswith("Missing karpenter.sh/unregistered taint")


@pytest.mark.spec("lifecycle-23")
@virtual
async def test_the_claims_labels_and_annotations_override_the_nodes() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched(labels={"team": "claim"}, annotations={"note": "claim"})
        scene.join(claim, marks={"team": "node", "own": "node"}, annotations={"note": "node"})
        await scene.live()
        node = scene.node_now("node-claim")
        assert (node.labels["team"], node.labels["own"]) == ("claim", "node")
        assert node.annotations["note"] == "claim"


@pytest.mark.spec("lifecycle-24", "lifecycle-26")
@pytest.mark.parametrize("marks", [{}, {labels.DO_NOT_SYNC_TAINTS: "foo"}])
def test_the_claims_taints_are_put_on_the_node(marks: dict[str, str]) -> None:
    @virtual
    async def told() -> None:
        async with Scene().still() as scene:
            claim = await scene.launched(taints=[taint("dedicated")], startup_taints=[taint("warming")])
            scene.join(claim, marks=marks)
            await scene.live()
            keys = {each.key for each in scene.node_now("node-claim").spec.taints}
            assert {"dedicated", "warming"} <= keys

    told()


@pytest.mark.spec("lifecycle-25")
@virtual
async def test_a_provider_that_owns_the_taints_keeps_them() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched(taints=[taint("dedicated")], startup_taints=[taint("warming")])
        scene.join(claim, marks={labels.DO_NOT_SYNC_TAINTS: "true"})
        await scene.live()
        keys = {each.key for each in scene.node_now("node-claim").spec.taints}
        assert not {"dedicated", "warming", UNREGISTERED.key} & keys
        assert scene.says("Registered") == ("True", "Registered")


@pytest.mark.spec("lifecycle-27")
@virtual
async def test_a_startup_taint_that_was_removed_does_not_come_back() -> None:
    async with Scene().still() as scene:
        await scene.registered(startup_taints=[taint("warming")])
        scene.retaint("node-claim")
        await scene.live()
        await scene.live()
        assert scene.node_now("node-claim").spec.taints == ()


@pytest.mark.spec("lifecycle-28")
@virtual
async def test_without_a_node_the_claim_waits() -> None:
    async with Scene().still() as scene:
        await scene.launched()
        state = scene.claim_now().status.find_condition("Registered")
        assert state is not None
        assert (state.status, state.reason) == ("Unknown", "NodeNotFound")
        assert state.message == "Node not registered with cluster"


@pytest.mark.spec("lifecycle-29")
@virtual
async def test_two_nodes_that_claim_one_machine_are_a_contradiction_that_stays() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        scene.join(claim, name="one")
        scene.join(claim, name="two")
        await scene.live()
        assert scene.says("Registered") == ("False", "MultipleNodesFound")
        scene.api.delete("nodes", "two")
        await scene.live()
        assert scene.says("Registered") == ("False", "MultipleNodesFound")
        assert scene.claim_now().status.node_name == ""


@pytest.mark.spec("lifecycle-30")
@virtual
async def test_one_hook_that_agrees_lets_the_node_in() -> None:
    only = hook("network")
    async with Scene(hooks=(only,)).still() as scene:
        await scene.registered()
        assert scene.says("Registered") == ("True", "Registered")
        assert only.asked == 1


@pytest.mark.spec("lifecycle-5", "lifecycle-31", "lifecycle-35")
@virtual
async def test_a_hook_that_is_not_done_holds_the_node_back_for_a_while() -> None:
    async with Scene(hooks=(hook("network", FIVE),)).still() as scene:
        claim = await scene.launched()
        before = scene.claim_now().status.find_condition("Registered")
        await scene.sleep(3)
        scene.join(claim)
        assert await scene.live() == requeue_after(5)
        state = scene.claim_now().status.find_condition("Registered")
        assert state is not None
        assert before is not None
        assert (state.status, state.reason, state.message) == (
            "Unknown",
            "RegistrationHookPending",
            "network",
        )
        assert state.last_transition_time == before.last_transition_time
        assert scene.claim_now().status.node_name == ""
        assert tainted(scene)
        assert labels.REGISTERED not in scene.node_now("node-claim").labels
        assert labels.TERMINATION in scene.node_now("node-claim").metadata.finalizers

        await scene.sleep(5)
        await scene.live()
        assert scene.says("Registered") == ("True", "Registered")


@pytest.mark.spec("lifecycle-32")
@virtual
async def test_a_hook_that_fails_is_an_error_and_the_node_waits() -> None:
    async with Scene(hooks=(hook("network", Retry("the network is down")),)).still() as scene:
        claim = await scene.launched()
        scene.join(claim)
        with pytest.raises(ExceptionGroup):
            await scene.live()
        assert scene.says("Registered") == ("Unknown", "RegistrationHookPending")
        assert scene.claim_now().status.node_name == ""


@pytest.mark.spec("lifecycle-33")
@virtual
async def test_all_hooks_are_asked_and_the_soonest_decides_when_to_look_again() -> None:
    hooks = hook("network", TEN), hook("storage", FIVE)
    async with Scene(hooks=hooks).still() as scene:
        claim = await scene.launched()
        scene.join(claim)
        assert await scene.live() == requeue_after(5)
        state = scene.claim_now().status.find_condition("Registered")
        assert state is not None
        assert state.message == "network, storage"
        assert [each.asked for each in hooks] == [1, 1]


@pytest.mark.spec("lifecycle-34")
@virtual
async def test_only_the_hooks_that_are_not_done_are_named() -> None:
    async with Scene(hooks=(hook("network"), hook("storage", FIVE))).still() as scene:
        claim = await scene.launched()
        scene.join(claim)
        await scene.live()
        state = scene.claim_now().status.find_condition("Registered")
        assert state is not None
        assert state.message == "storage"


@pytest.mark.spec("lifecycle-37")
@virtual
async def test_a_label_from_a_hook_ends_up_on_claim_and_node() -> None:
    async with Scene(hooks=(hook("placement", label="example.com/rack"),)).still() as scene:
        await scene.registered()
        assert scene.claim_now().labels["example.com/rack"] == "hooked"
        assert scene.node_now("node-claim").labels["example.com/rack"] == "hooked"


@pytest.mark.spec("lifecycle-38")
@virtual
async def test_a_conflict_on_the_node_is_looked_at_again() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        scene.join(claim)
        scene.trouble(FaultRule(trouble="conflict", verbs=("patch",), resources=("nodes",)))
        assert await scene.live() == SOON
        assert scene.says("Registered") == ("Unknown", "NodeNotFound")
        scene.trouble()
        await scene.live()
        assert scene.says("Registered") == ("True", "Registered")


POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"


def forbid_node_changes(scene: Scene) -> None:
    """Nobody may change a Node's labels, as a policy of the cluster's owners."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.labels == oldObject.metadata.labels"}],
    }
    scene.api.create(POLICIES, {"metadata": {"name": "frozen"}, "spec": spec})
    bound = {"policyName": "frozen", "validationActions": ["Deny"]}
    scene.api.create(BINDINGS, {"metadata": {"name": "frozen"}, "spec": bound})


@virtual
async def test_a_policy_in_the_way_of_registration_is_outlived_by_seconds() -> None:
    async with Scene().running() as scene:
        forbid_node_changes(scene)
        scene.claim()
        await scene.settle(300)
        assert scene.says("Registered") != ("True", "Registered")
        scene.api.delete(BINDINGS, "frozen")
        await scene.until(lambda: scene.says("Initialized") == ("True", "Initialized"), within=8)
