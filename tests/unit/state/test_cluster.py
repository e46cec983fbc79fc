"""What is believed of the cluster follows what is heard, in whatever order it is heard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim, NodeClaimStatus
from dovetail.api.pod import PodStatus
from dovetail.scheduling.model import state_node as views
from dovetail.state.cluster import Cluster
from dovetail.state.tracked_node import TrackedNode
from support.builders import NOW, amounts, daemonset, node, nodeclaim, owner, pod
from support.stage import sample
from support.worlds import apart


class StillClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, seconds: float) -> None:
        self.passed += seconds


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def cluster(clock: StillClock) -> Cluster:
    return Cluster(clock)


def ordered(name: str = "claim", **about: str) -> NodeClaim:
    """A claim that has no machine yet."""
    return replace(nodeclaim(name, true=(), **about), status=NodeClaimStatus())  # type: ignore[arg-type]


def free(cluster: Cluster, name: str = "node") -> int:
    """Millicores the pods leave on a node."""
    place = cluster.find_by_node(name)
    assert place is not None
    return views.compute_available(place.state)["cpu"] // 1_000_000


def used(cluster: Cluster, pool: str = "default") -> dict[str, str]:
    return {name: str(amount) for name, amount in cluster.compute_usage(pool).items()}


# In step


@pytest.mark.spec("T-029", "T-030")
def test_a_claim_without_a_machine_unsettles_us_until_it_has_one_or_is_gone(cluster: Cluster) -> None:
    assert cluster.synced
    cluster.update_node_claim(None, ordered())
    assert not cluster.synced
    cluster.update_node_claim(ordered(), None)
    assert cluster.synced
    cluster.update_node_claim(None, ordered())
    cluster.update_node_claim(ordered(), nodeclaim("claim", node="node"))
    assert cluster.synced


@pytest.mark.spec("T-031")
def test_a_thousand_nodes_are_all_known_with_or_without_a_machines_name(cluster: Cluster) -> None:
    for number in range(1000):
        made = node(f"node-{number}", nodepool="" if number % 2 else "default")
        if number % 2:
            made = replace(made, spec=replace(made.spec, provider_id=""))
        cluster.update_node(None, made)
    assert cluster.synced
    assert len(cluster) == 1000
    assert cluster.find_by_node("node-1") is not None


@pytest.mark.spec("T-032")
def test_what_is_not_yet_known_matters_until_everything_was_known_once(clock: StillClock) -> None:
    heard: list[bool] = []
    cluster = Cluster(clock, sources_synced=lambda: bool(heard))
    assert not cluster.synced, "the lists have not come yet"
    heard.append(True)
    nameless = replace(node(), spec=replace(node().spec, provider_id=""))
    cluster.update_node(None, nameless)
    assert not cluster.synced, "a node of ours that has not said which machine it is"
    cluster.update_node(nameless, node())
    assert cluster.synced
    other = replace(node("other"), spec=replace(node().spec, provider_id=""))
    cluster.update_node(None, other)
    heard.clear()
    assert cluster.synced


@pytest.mark.spec("T-033")
def test_how_long_we_are_out_of_step_can_be_seen(cluster: Cluster, clock: StillClock) -> None:
    cluster.update_node_claim(None, ordered())
    assert not cluster.synced
    clock.passed += 120
    assert not cluster.synced
    assert sample("karpenter_cluster_state_unsynced_time_seconds") >= 120
    assert sample("karpenter_cluster_state_synced") == 0
    cluster.update_node_claim(ordered(), None)
    assert cluster.synced
    assert sample("karpenter_cluster_state_unsynced_time_seconds") == 0
    assert sample("karpenter_cluster_state_synced") == 1


# Pods


@pytest.mark.spec("T-251")
def test_pods_take_room_where_they_are_bound_until_they_end(cluster: Cluster) -> None:
    cluster.update_node(None, node())
    waiting = pod("web")
    cluster.update_pod(None, waiting)
    assert free(cluster) == 4000
    bound = pod("web", node="node")
    cluster.update_pod(waiting, bound)
    assert free(cluster) == 3000
    over = replace(bound, status=PodStatus(phase="Succeeded"))
    cluster.update_pod(bound, over)
    assert free(cluster) == 4000
    cluster.update_pod(None, pod("other", node="node"))
    assert free(cluster) == 3000
    cluster.update_pod(pod("other", node="node"), None)
    assert free(cluster) == 4000


@pytest.mark.spec("T-251")
def test_a_name_that_is_used_again_elsewhere_moves(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.update_node(None, node(name))
    cluster.update_pod(None, pod("web", node="one"))
    cluster.update_pod(pod("web", node="one"), pod("web", node="two"))
    assert (free(cluster, "one"), free(cluster, "two")) == (4000, 3000)


@pytest.mark.spec("T-251", "T-256")
def test_a_pod_heard_of_before_its_node_is_there_when_the_node_comes(cluster: Cluster) -> None:
    cluster.update_pod(None, pod("web", node="node"))
    cluster.update_node(None, node())
    assert free(cluster) == 3000
    cluster.update_node(node(), None)
    cluster.update_node(None, node())
    assert free(cluster) == 3000


@pytest.mark.spec("T-252")
def test_daemons_are_known_apart_and_counted_with_the_rest(cluster: Cluster) -> None:
    cluster.update_node(None, node())
    cluster.update_pod(None, pod("web", node="node"))
    cluster.update_pod(None, pod("daemon", cpu="500m", node="node", owned_by=owner("DaemonSet")))
    assert free(cluster) == 2500
    place = cluster.find_by_node("node")
    assert place is not None
    assert place.daemon_requests["cpu"] == 500_000_000


@pytest.mark.spec("T-256")
def test_a_pod_that_wants_to_be_alone_is_known_until_it_is_deleted(cluster: Cluster) -> None:
    alone = pod("alone", node="node", affinity=apart(labels.HOSTNAME, app="web"))
    cluster.update_node(None, node())
    cluster.update_pod(None, alone)
    place = cluster.find_by_node("node")
    assert place is not None
    assert list(place.state.pods) == [alone]
    cluster.update_pod(alone, None)
    assert list(place.state.pods) == []


@pytest.mark.spec("T-258")
def test_the_youngest_pod_of_a_daemonset_is_its_model(cluster: Cluster) -> None:
    of = owner("DaemonSet", daemonset().name)
    old = pod("old", node="node", owned_by=of)
    new = pod("new", cpu="2", node="node", owned_by=of, created=NOW + timedelta(minutes=1))
    assert cluster.find_newest_daemon_pod(of.uid) is None
    cluster.update_pod(None, new)
    cluster.update_pod(None, old)
    assert cluster.find_newest_daemon_pod(of.uid) == new
    cluster.update_pod(new, None)
    assert cluster.find_newest_daemon_pod(of.uid) == old
    cluster.update_pod(old, None)
    assert cluster.find_newest_daemon_pod(of.uid) is None


# Nodes and claims as one


@pytest.mark.spec("T-253")
def test_what_is_deleted_is_on_its_way_out_and_leaves_nothing(cluster: Cluster) -> None:
    cluster.update_node(None, node(nodepool=""))
    cluster.update_node(node(nodepool=""), node(nodepool="", deleted=NOW))
    place = cluster.find_by_node("node")
    assert place is not None
    assert place.deleting
    cluster.update_node(node(nodepool="", deleted=NOW), None)
    assert len(cluster) == 0

    cluster.update_node_claim(None, nodeclaim("same", node="same"))
    cluster.update_node(None, node("same"))
    assert len(cluster) == 1
    cluster.update_node_claim(nodeclaim("same", node="same"), nodeclaim("same", node="same", deleted=NOW))
    place = cluster.find_by_claim("same")
    assert place is not None
    assert place.deleting
    cluster.update_node_claim(nodeclaim("same", node="same", deleted=NOW), None)
    cluster.update_node(node("same"), None)
    assert len(cluster) == 0
    assert used(cluster) == {}


@pytest.mark.spec("T-253")
def test_the_deletion_of_a_managed_node_alone_is_not_enough(cluster: Cluster) -> None:
    cluster.update_node_claim(None, nodeclaim("claim", node="node"))
    cluster.update_node(None, node(deleted=NOW))
    place = cluster.find_by_node("node")
    assert place is not None
    assert not place.deleting


@pytest.mark.spec("T-254")
def test_a_nomination_lasts_for_a_while_and_can_be_renewed(cluster: Cluster, clock: StillClock) -> None:
    cluster.update_node(None, node())
    place = cluster.find_by_node("node")
    assert place is not None
    assert not place.is_nominated(clock.now())
    cluster.nominate_node(place.key)
    clock.passed = 10
    assert place.is_nominated(clock.now())
    clock.passed = 21
    assert not place.is_nominated(clock.now())
    cluster.nominate_node(place.key)
    clock.passed = 40
    assert place.is_nominated(clock.now())


@pytest.mark.spec("T-255")
def test_a_machines_name_that_comes_late_keeps_one_entry(cluster: Cluster) -> None:
    cluster.update_node_claim(None, ordered())
    cluster.update_node_claim(ordered(), nodeclaim("claim", node="node"))
    cluster.update_node(None, node())
    assert len(cluster) == 1
    plain = replace(node("plain", nodepool=""), spec=replace(node().spec, provider_id=""))
    cluster.update_node(None, plain)
    cluster.update_pod(None, pod("web", node="plain"))
    cluster.update_node(plain, replace(plain, spec=replace(plain.spec, provider_id="x://plain")))
    assert len(cluster) == 2
    assert free(cluster, "plain") == 3000


def test_a_mark_stays_when_the_machine_gets_its_name(cluster: Cluster) -> None:
    cluster.update_node_claim(None, ordered())
    cluster.mark_for_deletion(["claim/claim"])
    cluster.update_node_claim(ordered(), nodeclaim("claim", node="node"))
    place = cluster.find_by_claim("claim")
    assert place is not None
    assert place.marked


@pytest.mark.spec("T-257")
def test_a_pools_usage_follows_its_nodes(cluster: Cluster) -> None:
    cluster.update_node(None, node("one"))
    cluster.update_node(None, node("two", nodepool="other"))
    assert used(cluster)["cpu"] == "4"
    assert used(cluster)["nodes"] == "1"
    cluster.update_node(node("two", nodepool="other"), node("two"))
    assert (used(cluster)["cpu"], used(cluster)["nodes"], used(cluster, "other")) == ("8", "2", {})

    key = "kwok://one"
    cluster.mark_for_deletion([key])
    cluster.mark_for_deletion([key])
    assert (used(cluster)["cpu"], used(cluster)["nodes"]) == ("4", "1")
    cluster.unmark_for_deletion([key])
    assert (used(cluster)["cpu"], used(cluster)["nodes"]) == ("8", "2")
    cluster.mark_for_deletion([key])
    cluster.update_node(node("one"), None)
    assert (used(cluster)["cpu"], used(cluster)["nodes"]) == ("4", "1")


@pytest.mark.spec("T-260")
def test_every_place_counts_as_one_node_at_every_stage(cluster: Cluster) -> None:
    stages: list[Callable[[], None]] = [
        lambda: cluster.update_node_claim(None, ordered()),
        lambda: cluster.update_node_claim(ordered(), nodeclaim("claim", node="node", true=("Launched",))),
        lambda: cluster.update_node(None, node(registered=False, initialized=False)),
        lambda: cluster.update_node(node(), node(initialized=False)),
        lambda: cluster.update_node(node(), node()),
    ]
    for stage in stages:
        stage()
        assert used(cluster)["nodes"] == "1"


# Orders


def test_an_order_counts_at_its_size_from_its_first_moment(cluster: Cluster) -> None:
    cluster.expect_claim(ordered(), capacity=amounts(cpu="16"))
    assert used(cluster)["cpu"] == "16"
    cluster.update_node_claim(None, ordered())
    assert used(cluster)["cpu"] == "16"
    cluster.update_node_claim(ordered(), nodeclaim("claim", node="node", capacity={"cpu": "8"}))
    assert used(cluster)["cpu"] == "8"


def test_what_the_watch_told_first_is_not_undone_by_our_own_answer(cluster: Cluster) -> None:
    cluster.update_node_claim(None, nodeclaim("claim", node="node"))
    cluster.expect_claim(ordered(), capacity=amounts(cpu="16"))
    assert cluster.synced
    assert len(cluster) == 1
    assert used(cluster)["cpu"] == "4"


def awaited(cluster: Cluster) -> TrackedNode:
    """A claim that was ordered for two pods, whose machine is up and initialized."""
    for name in ("one", "two"):
        cluster.update_pod(None, pod(name))
    cluster.expect_claim(ordered(), pods=["default/one", "default/two"])
    cluster.update_node_claim(ordered(), nodeclaim("claim", node="node"))
    cluster.update_node(None, node())
    place = cluster.find_by_claim("claim")
    assert place is not None
    return place


def test_a_node_is_nominated_from_its_order_however_long_it_takes_to_come_up(
    cluster: Cluster, clock: StillClock
) -> None:
    cluster.expect_claim(ordered(), pods=["default/one"])
    clock.passed = 500
    cluster.update_node_claim(ordered(), nodeclaim("claim", node="node"))
    cluster.update_node(None, node(registered=False, initialized=False))
    place = cluster.find_by_claim("claim")
    assert place is not None
    assert place.is_nominated(clock.now())
    cluster.update_node(None, node())
    clock.passed = 519
    assert place.is_nominated(clock.now())
    assert place.nomination_ends is not None
    clock.passed = 521
    assert not place.is_nominated(clock.now())


def test_a_node_is_nominated_until_the_last_of_its_pods_has_landed(
    cluster: Cluster, clock: StillClock
) -> None:
    place = awaited(cluster)
    cluster.update_pod(pod("one"), pod("one", node="node"))
    assert place.is_nominated(clock.now())
    cluster.update_pod(pod("two"), pod("two", node="elsewhere"))
    assert not place.is_nominated(clock.now())


def test_pods_that_are_gone_before_they_landed_are_not_waited_for(
    cluster: Cluster, clock: StillClock
) -> None:
    place = awaited(cluster)
    cluster.update_pod(pod("one"), None)
    cluster.update_pod(pod("two"), None)
    assert not place.is_nominated(clock.now())


def test_a_replacement_waits_for_pods_that_leave_another_node(cluster: Cluster, clock: StillClock) -> None:
    cluster.update_pod(None, pod("web", node="old"))
    cluster.expect_claim(ordered(), pods=["default/web"])
    cluster.update_node_claim(ordered(), nodeclaim("claim", node="node"))
    cluster.update_node(None, node())
    place = cluster.find_by_claim("claim")
    assert place is not None
    cluster.update_pod(pod("web", node="old"), None)
    assert place.is_nominated(clock.now()), "its successor, of another name, is still to land"
    clock.passed = 21
    assert not place.is_nominated(clock.now())


def test_a_nomination_stays_when_the_machine_gets_its_name(cluster: Cluster, clock: StillClock) -> None:
    cluster.update_node_claim(None, ordered())
    cluster.nominate_node("claim/claim")
    cluster.update_node_claim(ordered(), nodeclaim("claim", node="node"))
    place = cluster.find_by_claim("claim")
    assert place is not None
    assert place.is_nominated(clock.now())


def test_nothing_is_kept_of_a_claim_that_is_gone(cluster: Cluster) -> None:
    awaited(cluster)
    cluster.update_node_claim(nodeclaim("claim", node="node"), None)
    cluster.update_node(node(), None)
    assert cluster._ordered_for == {}


def test_a_node_that_is_gone_leaves_no_pods_to_its_claim(cluster: Cluster) -> None:
    cluster.update_node_claim(None, nodeclaim("claim", node="node"))
    cluster.update_node(None, node())
    cluster.update_pod(None, pod("web", node="node"))
    place = cluster.find_by_claim("claim")
    assert place is not None
    assert [each.name for each in place.state.pods] == ["web"]
    cluster.update_node(node(), None)
    assert place.state.pods == ()
    assert place.daemon_requests == {}
