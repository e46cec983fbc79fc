"""Conditions follow the ten rules of the condition engine, and roll up to Ready byte for byte."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import conditions, reasons
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass, KWOKNodeClass
from dovetail.api.nodepool import NodePool
from support.builders import NOW

AWAITING = ("Unknown", "AwaitingReconciliation", "object is awaiting reconciliation")


def at(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def claim(generation: int = 1, deleted: bool = False) -> NodeClaim:
    meta = ObjectMeta(
        name="a",
        generation=generation,
        creation_timestamp=NOW,
        deletion_timestamp=NOW if deleted else None,
    )
    return conditions.open_conditions(NodeClaim(metadata=meta), at(1))


def ready_claim() -> NodeClaim:
    one = claim()
    for seconds, kind in enumerate(("Launched", "Registered", "Initialized"), start=10):
        one = conditions.set_true(one, kind, at(seconds))
    return one


def condition(thing: conditions.Conditioned, kind: str) -> Condition:
    found = conditions.find_condition(thing, kind)
    assert found is not None
    return found


def summary(thing: conditions.Conditioned, kind: str) -> tuple[str, str, str]:
    found = condition(thing, kind)
    return found.status, found.reason, found.message


@pytest.mark.spec("lifecycle-2.1", "lifecycle-2.2", "api-10.6")
def test_opening_adds_what_is_missing_as_of_creation() -> None:
    fresh = claim()
    assert [c.type for c in fresh.status.conditions] == ["Launched", "Registered", "Initialized", "Ready"]
    assert {summary(fresh, kind) for kind in ("Launched", "Registered", "Initialized")} == {AWAITING}
    assert {c.last_transition_time for c in fresh.status.conditions} == {NOW}
    assert summary(fresh, "Ready") == (
        "Unknown",
        "ReconcilingDependents",
        "Launched=Unknown, Registered=Unknown, Initialized=Unknown",
    )


def test_opening_again_changes_nothing() -> None:
    fresh = claim()
    assert conditions.open_conditions(fresh, at(50)) is fresh


def test_a_kind_without_dependents_opens_with_an_awaiting_root() -> None:
    nodeclass = KWOKNodeClass(metadata=ObjectMeta(creation_timestamp=NOW))
    assert summary(conditions.open_conditions(nodeclass, at(1)), "Ready") == AWAITING


@pytest.mark.spec("lifecycle-2.2")
def test_an_independent_condition_begins_now() -> None:
    drained = conditions.set_unknown(claim(), "Drained", at(7), reasons.DRAINING, "")
    assert condition(drained, "Drained").last_transition_time == at(7)


@pytest.mark.spec("lifecycle-2.3")
def test_the_time_moves_only_with_the_status() -> None:
    one = conditions.set_unknown(claim(), "Registered", at(5), "NodeNotFound", "no node")
    two = conditions.set_unknown(one, "Registered", at(6), "RegistrationHookPending", "waiting")
    assert condition(two, "Registered").last_transition_time == NOW
    three = conditions.set_true(two, "Registered", at(7))
    assert condition(three, "Registered").last_transition_time == at(7)


@pytest.mark.spec("lifecycle-2.4")
def test_a_set_stamps_the_generation_on_its_own_condition() -> None:
    newer = replace(ready_claim(), metadata=replace(ready_claim().metadata, generation=2))
    changed = conditions.set_true(newer, "Launched", at(60))
    assert condition(changed, "Launched").observed_generation == 2
    assert condition(changed, "Registered").observed_generation == 1


@pytest.mark.spec("lifecycle-2.4")
def test_while_deleting_every_condition_is_stamped_and_ready_survives() -> None:
    ready = ready_claim()
    meta = replace(ready.metadata, generation=2, deletion_timestamp=at(50))
    gone = conditions.set_true(replace(ready, metadata=meta), "InstanceTerminating", at(60))
    assert {c.observed_generation for c in gone.status.conditions} == {2}
    assert conditions.is_true(gone, "Ready")
    assert condition(gone, "Ready").last_transition_time == at(12)


@pytest.mark.spec("lifecycle-2.5")
def test_a_set_that_changes_nothing_gives_back_the_same_object() -> None:
    launched = conditions.set_true(claim(), "Launched", at(5))
    assert conditions.set_true(launched, "Launched", at(6)) is launched


@pytest.mark.spec("lifecycle-2.6")
def test_true_without_a_reason_names_itself() -> None:
    assert summary(conditions.set_true(claim(), "Launched", at(5)), "Launched") == ("True", "Launched", "")


@pytest.mark.spec("lifecycle-2.7", "api-10.6")
def test_ready_is_true_when_all_dependents_are() -> None:
    assert summary(ready_claim(), "Ready") == ("True", "Ready", "")
    assert condition(ready_claim(), "Ready").last_transition_time == at(12)


@pytest.mark.spec("lifecycle-2.7", "api-10.6")
def test_ready_is_false_as_soon_as_one_dependent_is_and_names_the_newest_first() -> None:
    launched = conditions.set_true(claim(), "Launched", at(5))
    broken = conditions.set_false(launched, "Registered", at(6), "MultipleNodesFound", "two nodes")
    assert summary(broken, "Ready") == (
        "False",
        "UnhealthyDependents",
        "Registered=False, Initialized=Unknown",
    )


@pytest.mark.spec("lifecycle-2.7", "api-10.6")
def test_a_dependent_of_an_older_generation_does_not_count() -> None:
    ready = ready_claim()
    newer = replace(ready, metadata=replace(ready.metadata, generation=2))
    partly = conditions.set_true(newer, "Launched", at(60))
    assert summary(partly, "Ready") == (
        "Unknown",
        "ReconcilingDependents",
        "Initialized=True, Registered=True",
    )
    whole = conditions.set_true(conditions.set_true(partly, "Registered", at(61)), "Initialized", at(62))
    assert summary(whole, "Ready") == ("True", "Ready", "")
    assert {c.observed_generation for c in whole.status.conditions} == {2}


@pytest.mark.spec("lifecycle-2.7")
def test_a_false_dependent_of_an_older_generation_makes_ready_unknown() -> None:
    pool = NodePool(metadata=ObjectMeta(generation=1, creation_timestamp=NOW))
    failed = conditions.set_false(pool, "ValidationSucceeded", at(1), "NodePoolValidationFailed", "bad")
    assert conditions.is_false(failed, "Ready")
    newer = replace(failed, metadata=replace(failed.metadata, generation=2))
    assert summary(conditions.set_true(newer, "NodeClassReady", at(2)), "Ready") == (
        "Unknown",
        "ReconcilingDependents",
        "ValidationSucceeded=False",
    )


def test_setting_a_condition_opens_the_set_first() -> None:
    bare = NodeClaim(metadata=ObjectMeta(generation=1, creation_timestamp=NOW))
    launched = conditions.set_true(bare, "Launched", at(3))
    assert len(launched.status.conditions) == 4
    assert conditions.is_unknown(launched, "Ready")


@pytest.mark.spec("lifecycle-2.8")
def test_clearing_removes_an_independent_condition_and_refuses_the_others() -> None:
    drifted = conditions.set_true(ready_claim(), "Drifted", at(30), "AMIDrift")
    cleared = conditions.clear_condition(drifted, "Drifted")
    assert conditions.find_condition(cleared, "Drifted") is None
    assert conditions.clear_condition(cleared, "Drifted") is cleared
    for kind in ("Launched", "Ready"):
        with pytest.raises(ValueError, match=kind):
            conditions.clear_condition(cleared, kind)


@pytest.mark.spec("lifecycle-2.9")
def test_an_absent_condition_is_unknown_and_nothing_else() -> None:
    fresh = claim()
    assert conditions.is_unknown(fresh, "Drifted")
    assert not conditions.is_true(fresh, "Drifted")
    assert not conditions.is_false(fresh, "Drifted")


@pytest.mark.spec("lifecycle-2.10")
def test_conditions_are_kept_by_time_with_the_root_last_and_by_name_after_clearing() -> None:
    one = conditions.set_true(claim(), "Initialized", at(5))
    one = conditions.set_true(one, "Consolidatable", at(3))
    one = conditions.set_true(one, "Drifted", at(4))
    kinds = [c.type for c in one.status.conditions]
    assert kinds == ["Launched", "Registered", "Consolidatable", "Drifted", "Initialized", "Ready"]
    left = [c.type for c in conditions.clear_condition(one, "Consolidatable").status.conditions]
    assert left == ["Drifted", "Initialized", "Launched", "Ready", "Registered"]


def test_reservations_feed_ready_only_where_they_are_used() -> None:
    nodeclass = EC2NodeClass(metadata=ObjectMeta(generation=1, creation_timestamp=NOW))
    rules = conditions.EC2_NODECLASS_WITHOUT_RESERVATIONS
    for kind in rules.dependents:
        nodeclass = conditions.set_true(nodeclass, kind, at(1), rules=rules)
    assert conditions.is_true(nodeclass, "Ready")
    assert conditions.is_unknown(conditions.open_conditions(nodeclass, at(2)), "Ready")


def test_a_buffer_has_conditions_but_no_root() -> None:
    buffer = CapacityBuffer(metadata=ObjectMeta(generation=1, creation_timestamp=NOW))
    resolved = conditions.set_true(buffer, "ReadyForProvisioning", at(1), "Resolved")
    assert [c.type for c in resolved.status.conditions] == ["ReadyForProvisioning"]
