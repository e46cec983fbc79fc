"""What is believed of the cluster follows what is heard, in whatever order it is heard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim, NodeClaimStatus
from dovetail.api.pod import PodStatus
from dovetail.scheduling import nodes as views
from dovetail.state import Cluster
from dovetail.state.place import Place
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
    place = cluster.of_node(name)
    assert place is not None
    return views.available(place.state)["cpu"] // 1_000_000


def used(cluster: Cluster, pool: str = "default") -> dict[str, str]:
    return {name: str(amount) for name, amount in cluster.usage(pool).items()}


# In step


@pytest.mark.spec("T-029", "T-030")
def test_a_claim_without_a_machine_unsettles_us_until_it_has_one_or_is_gone(cluster: Cluster) -> None:
    assert cluster.synced
    cluster.claim_changed(None, ordered())
    assert not cluster.synced
    cluster.claim_changed(ordered(), None)
    assert cluster.synced
    cluster.claim_changed(None, ordered())
    cluster.claim_changed(ordered(), nodeclaim("claim", node="node"))
    assert cluster.synced


@pytest.mark.spec("T-031")
def test_a_thousand_nodes_are_all_known_with_or_without_a_machines_name(cluster: Cluster) -> None:
    for number in range(1000):
        made = node(f"node-{number}", nodepool="" if number % 2 else "default")
        if number % 2:
            made = replace(made, spec=replace(made.spec, provider_id=""))
        cluster.node_changed(None, made)
    assert cluster.synced
    assert len(cluster) == 1000
    assert cluster.of_node("node-1") is not None


@pytest.mark.spec("T-032")
def test_what_is_not_yet_known_matters_until_everything_was_known_once(clock: StillClock) -> None:
    heard: list[bool] = []
    cluster = Cluster(clock, sources_synced=lambda: bool(heard))
    assert not cluster.synced, "the lists have not come yet"
    heard.append(True)
    nameless = replace(node(), spec=replace(node().spec, provider_id=""))
    cluster.node_changed(None, nameless)
    assert not cluster.synced, "a node of ours that has not said which machine it is"
    cluster.node_changed(nameless, node())
    assert cluster.synced
    other = replace(node("other"), spec=replace(node().spec, provider_id=""))
    cluster.node_changed(None, other)
    heard.clear()
    assert cluster.synced


@pytest.mark.spec("T-033")
def test_how_long_we_are_out_of_step_can_be_seen(cluster: Cluster, clock: StillClock) -> None:
    cluster.claim_changed(None, ordered())
    assert not cluster.synced
    clock.passed += 120
    assert not cluster.synced
    assert sample("karpenter_cluster_state_unsynced_time_seconds") >= 120
    assert sample("karpenter_cluster_state_synced") == 0
    cluster.claim_changed(ordered(), None)
    assert cluster.synced
    assert sample("karpenter_cluster_state_unsynced_time_seconds") == 0
    assert sample("karpenter_cluster_state_synced") == 1


# Pods


@pytest.mark.spec("T-251")
def test_pods_take_room_where_they_are_bound_until_they_end(cluster: Cluster) -> None:
    cluster.node_changed(None, node())
    waiting = pod("web")
    cluster.pod_changed(None, waiting)
    assert free(cluster) == 4000
    bound = pod("web", node="node")
    cluster.pod_changed(waiting, bound)
    assert free(cluster) == 3000
    over = replace(bound, status=PodStatus(phase="Succeeded"))
    cluster.pod_changed(bound, over)
    assert free(cluster) == 4000
    cluster.pod_changed(None, pod("other", node="node"))
    assert free(cluster) == 3000
    cluster.pod_changed(pod("other", node="node"), None)
    assert free(cluster) == 4000


@pytest.mark.spec("T-251")
def test_a_name_that_is_used_again_elsewhere_moves(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.node_changed(None, node(name))
    cluster.pod_changed(None, pod("web", node="one"))
    cluster.pod_changed(pod("web", node="one"), pod("web", node="two"))
    assert (free(cluster, "one"), free(cluster, "two")) == (4000, 3000)


@pytest.mark.spec("T-251", "T-256")
def test_a_pod_heard_of_before_its_node_is_there_when_the_node_comes(cluster: Cluster) -> None:
    cluster.pod_changed(None, pod("web", node="node"))
    cluster.node_changed(None, node())
    assert free(cluster) == 3000
    cluster.node_changed(node(), None)
    cluster.node_changed(None, node())
    assert free(cluster) == 3000


@pytest.mark.spec("T-252")
def test_daemons_are_known_apart_and_counted_with_the_rest(cluster: Cluster) -> None:
    cluster.node_changed(None, node())
    cluster.pod_changed(None, pod("web", node="node"))
    cluster.pod_changed(None, pod("daemon", cpu="500m", node="node", owned_by=owner("DaemonSet")))
    assert free(cluster) == 2500
    place = cluster.of_node("node")
    assert place is not None
    assert place.daemon_requests["cpu"] == 500_000_000


@pytest.mark.spec("T-256")
def test_a_pod_that_wants_to_be_alone_is_known_until_it_is_deleted(cluster: Cluster) -> None:
    alone = pod("alone", node="node", affinity=apart(labels.HOSTNAME, app="web"))
    cluster.node_changed(None, node())
    cluster.pod_changed(None, alone)
    place = cluster.of_node("node")
    assert place is not None
    assert list(place.state.pods) == [alone]
    cluster.pod_changed(alone, None)
    assert list(place.state.pods) == []


@pytest.mark.spec("T-258")
def test_the_youngest_pod_of_a_daemonset_is_its_model(cluster: Cluster) -> None:
    of = owner("DaemonSet", daemonset().name)
    old = pod("old", node="node", owned_by=of)
    new = pod("new", cpu="2", node="node", owned_by=of, created=NOW + timedelta(minutes=1))
    assert cluster.newest_daemon_pod(of.uid) is None
    cluster.pod_changed(None, new)
    cluster.pod_changed(None, old)
    assert cluster.newest_daemon_pod(of.uid) == new
    cluster.pod_changed(new, None)
    assert cluster.newest_daemon_pod(of.uid) == old
    cluster.pod_changed(old, None)
    assert cluster.newest_daemon_pod(of.uid) is None


# Nodes and claims as one


@pytest.mark.spec("T-253")
def test_what_is_deleted_is_on_its_way_out_and_leaves_nothing(cluster: Cluster) -> None:
    cluster.node_changed(None, node(nodepool=""))
    cluster.node_changed(node(nodepool=""), node(nodepool="", deleted=NOW))
    place = cluster.of_node("node")
    assert place is not None
    assert place.deleting
    cluster.node_changed(node(nodepool="", deleted=NOW), None)
    assert len(cluster) == 0

    cluster.claim_changed(None, nodeclaim("same", node="same"))
    cluster.node_changed(None, node("same"))
    assert len(cluster) == 1
    cluster.claim_changed(nodeclaim("same", node="same"), nodeclaim("same", node="same", deleted=NOW))
    place = cluster.of_claim("same")
    assert place is not None
    assert place.deleting
    cluster.claim_changed(nodeclaim("same", node="same", deleted=NOW), None)
    cluster.node_changed(node("same"), None)
    assert len(cluster) == 0
    assert used(cluster) == {}


@pytest.mark.spec("T-253")
def test_the_deletion_of_a_managed_node_alone_is_not_enough(cluster: Cluster) -> None:
    cluster.claim_changed(None, nodeclaim("claim", node="node"))
    cluster.node_changed(None, node(deleted=NOW))
    place = cluster.of_node("node")
    assert place is not None
    assert not place.deleting


@pytest.mark.spec("T-254")
def test_a_nomination_lasts_for_a_while_and_can_be_renewed(cluster: Cluster, clock: StillClock) -> None:
    cluster.node_changed(None, node())
    place = cluster.of_node("node")
    assert place is not None
    assert not place.nominated(clock.now())
    cluster.nominate(place.key)
    clock.passed = 10
    assert place.nominated(clock.now())
    clock.passed = 21
    assert not place.nominated(clock.now())
    cluster.nominate(place.key)
    clock.passed = 40
    assert place.nominated(clock.now())


@pytest.mark.spec("T-255")
def test_a_machines_name_that_comes_late_keeps_one_entry(cluster: Cluster) -> None:
    cluster.claim_changed(None, ordered())
    cluster.claim_changed(ordered(), nodeclaim("claim", node="node"))
    cluster.node_changed(None, node())
    assert len(cluster) == 1
    plain = replace(node("plain", nodepool=""), spec=replace(node().spec, provider_id=""))
    cluster.node_changed(None, plain)
    cluster.pod_changed(None, pod("web", node="plain"))
    cluster.node_changed(plain, replace(plain, spec=replace(plain.spec, provider_id="x://plain")))
    assert len(cluster) == 2
    assert free(cluster, "plain") == 3000


def test_a_mark_stays_when_the_machine_gets_its_name(cluster: Cluster) -> None:
    cluster.claim_changed(None, ordered())
    cluster.mark(["claim/claim"])
    cluster.claim_changed(ordered(), nodeclaim("claim", node="node"))
    place = cluster.of_claim("claim")
    assert place is not None
    assert place.marked


@pytest.mark.spec("T-257")
def test_a_pools_usage_follows_its_nodes(cluster: Cluster) -> None:
    cluster.node_changed(None, node("one"))
    cluster.node_changed(None, node("two", nodepool="other"))
    assert used(cluster)["cpu"] == "4"
    assert used(cluster)["nodes"] == "1"
    cluster.node_changed(node("two", nodepool="other"), node("two"))
    assert (used(cluster)["cpu"], used(cluster)["nodes"], used(cluster, "other")) == ("8", "2", {})

    key = "kwok://one"
    cluster.mark([key])
    cluster.mark([key])
    assert (used(cluster)["cpu"], used(cluster)["nodes"]) == ("4", "1")
    cluster.unmark([key])
    assert (used(cluster)["cpu"], used(cluster)["nodes"]) == ("8", "2")
    cluster.mark([key])
    cluster.node_changed(node("one"), None)
    assert (used(cluster)["cpu"], used(cluster)["nodes"]) == ("4", "1")


@pytest.mark.spec("T-260")
def test_every_place_counts_as_one_node_at_every_stage(cluster: Cluster) -> None:
    stages: list[Callable[[], None]] = [
        lambda: cluster.claim_changed(None, ordered()),
        lambda: cluster.claim_changed(ordered(), nodeclaim("claim", node="node", true=("Launched",))),
        lambda: cluster.node_changed(None, node(registered=False, initialized=False)),
        lambda: cluster.node_changed(node(), node(initialized=False)),
        lambda: cluster.node_changed(node(), node()),
    ]
    for stage in stages:
        stage()
        assert used(cluster)["nodes"] == "1"


# Orders


def test_an_order_counts_at_its_size_from_its_first_moment(cluster: Cluster) -> None:
    cluster.expect(ordered(), capacity=amounts(cpu="16"))
    assert used(cluster)["cpu"] == "16"
    cluster.claim_changed(None, ordered())
    assert used(cluster)["cpu"] == "16"
    cluster.claim_changed(ordered(), nodeclaim("claim", node="node", capacity={"cpu": "8"}))
    assert used(cluster)["cpu"] == "8"


def test_what_the_watch_told_first_is_not_undone_by_our_own_answer(cluster: Cluster) -> None:
    cluster.claim_changed(None, nodeclaim("claim", node="node"))
    cluster.expect(ordered(), capacity=amounts(cpu="16"))
    assert cluster.synced
    assert len(cluster) == 1
    assert used(cluster)["cpu"] == "4"


def awaited(cluster: Cluster) -> Place:
    """A claim that was ordered for two pods, whose machine is up and initialized."""
    for name in ("one", "two"):
        cluster.pod_changed(None, pod(name))
    cluster.expect(ordered(), pods=["default/one", "default/two"])
    cluster.claim_changed(ordered(), nodeclaim("claim", node="node"))
    cluster.node_changed(None, node())
    place = cluster.of_claim("claim")
    assert place is not None
    return place


def test_a_node_is_nominated_from_its_order_however_long_it_takes_to_come_up(
    cluster: Cluster, clock: StillClock
) -> None:
    cluster.expect(ordered(), pods=["default/one"])
    clock.passed = 500
    cluster.claim_changed(ordered(), nodeclaim("claim", node="node"))
    cluster.node_changed(None, node(registered=False, initialized=False))
    place = cluster.of_claim("claim")
    assert place is not None
    assert place.nominated(clock.now())
    cluster.node_changed(None, node())
    clock.passed = 519
    assert place.nominated(clock.now())
    assert place.nomination_ends is not None
    clock.passed = 521
    assert not place.nominated(clock.now())


def test_a_node_is_nominated_until_the_last_of_its_pods_has_landed(
    cluster: Cluster, clock: StillClock
) -> None:
    place = awaited(cluster)
    cluster.pod_changed(pod("one"), pod("one", node="node"))
    assert place.nominated(clock.now())
    cluster.pod_changed(pod("two"), pod("two", node="elsewhere"))
    assert not place.nominated(clock.now())


def test_pods_that_are_gone_before_they_landed_are_not_waited_for(
    cluster: Cluster, clock: StillClock
) -> None:
    place = awaited(cluster)
    cluster.pod_changed(pod("one"), None)
    cluster.pod_changed(pod("two"), None)
    assert not place.nominated(clock.now())


def test_a_replacement_waits_for_pods_that_leave_another_node(cluster: Cluster, clock: StillClock) -> None:
    cluster.pod_changed(None, pod("web", node="old"))
    cluster.expect(ordered(), pods=["default/web"])
    cluster.claim_changed(ordered(), nodeclaim("claim", node="node"))
    cluster.node_changed(None, node())
    place = cluster.of_claim("claim")
    assert place is not None
    cluster.pod_changed(pod("web", node="old"), None)
    assert place.nominated(clock.now()), "its successor, of another name, is still to land"
    clock.passed = 21
    assert not place.nominated(clock.now())


def test_a_nomination_stays_when_the_machine_gets_its_name(cluster: Cluster, clock: StillClock) -> None:
    cluster.claim_changed(None, ordered())
    cluster.nominate("claim/claim")
    cluster.claim_changed(ordered(), nodeclaim("claim", node="node"))
    place = cluster.of_claim("claim")
    assert place is not None
    assert place.nominated(clock.now())


def test_nothing_is_kept_of_a_claim_that_is_gone(cluster: Cluster) -> None:
    awaited(cluster)
    cluster.claim_changed(nodeclaim("claim", node="node"), None)
    cluster.node_changed(node(), None)
    assert cluster._ordered_for == {}


def test_a_node_that_is_gone_leaves_no_pods_to_its_claim(cluster: Cluster) -> None:
    cluster.claim_changed(None, nodeclaim("claim", node="node"))
    cluster.node_changed(None, node())
    cluster.pod_changed(None, pod("web", node="node"))
    place = cluster.of_claim("claim")
    assert place is not None
    assert [each.name for each in place.state.pods] == ["web"]
    cluster.node_changed(node(), None)
    assert place.state.pods == ()
    assert place.daemon_requests == {}
