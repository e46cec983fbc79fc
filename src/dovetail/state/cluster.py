"""Watch events folded into nodes, claims and pods.

A machine is known by its provider ID. Before it has one it is known by its claim's name, and a Node
that nobody ordered and that has no provider ID by its own. Pods are filed under the name of the node
they are bound to, whether or not that node is known yet, so that the order of events does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from dovetail import metrics
from dovetail.api import conditions, labels, predicates
from dovetail.api.bad_items import reason_of
from dovetail.api.core import CSINode, Node
from dovetail.api.meta import Amounts
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod
from dovetail.api.quantity import Quantity
from dovetail.ports import Clock
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.resources import Nano, convert_to_quantities
from dovetail.state.nodepool_state import NodePoolState
from dovetail.state.tracked_node import TrackedNode

__all__ = ["Cluster"]

PodKey = tuple[str, str]
SYNCED = metrics.gauge("karpenter_cluster_state_synced", "Whether everything known is here and launched.")
NODE_COUNT = metrics.gauge("karpenter_cluster_state_node_count", "Machines in memory.")
UNSYNCED_SECONDS = metrics.gauge(
    "karpenter_cluster_state_unsynced_time_seconds", "For how long something has been missing."
)
# A claim's labels are written right after its status; longer than this they are not waited for.
LABELLED_WITHIN = 30.0


class Cluster:
    """What we believe about nodes and pods. `manages` says which claims and nodes are ours."""

    def __init__(
        self,
        clock: Clock,
        *,
        manages: Callable[[NodeClaim], bool] = lambda claim: True,
        nomination: timedelta = timedelta(seconds=20),
        sources_synced: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._manages = manages
        self._nomination = nomination
        self._sources_synced = sources_synced
        self._places: dict[str, TrackedNode] = {}
        self._by_node: dict[str, TrackedNode] = {}
        self._by_claim: dict[str, TrackedNode] = {}
        self._pods_on: dict[str, dict[PodKey, Pod]] = {}
        self._pending: dict[PodKey, Pod] = {}
        self._daemon_pods: dict[str, dict[PodKey, Pod]] = {}
        self._limits_on: dict[str, dict[str, int]] = {}
        self._unplaced: set[str] = set()
        self._usage: dict[str, Nano] = {}
        self._unlaunched: set[str] = set()
        # Claims whose machine is known and whose labels are not yet, by when that was heard first.
        self._unlabelled: dict[str, float] = {}
        self.ever_synced = False
        self._unsynced_since: float | None = None
        self._ordered: list[Callable[[NodeClaim], None]] = []
        # Which claim was ordered for a pod that has not landed yet.
        self._ordered_for: dict[str, str] = {}
        self.nodepool_state = NodePoolState()
        # When a node or pod last changed in a way that could make a consolidation possible.

    # Nodes

    def update_node(self, before: Node | None, after: Node | None) -> None:
        """A Node appeared, changed or (after is None) is gone."""
        if after is None:
            if before is not None:
                self._drop_node(before.name)
            return
        if _is_incomplete(after):
            if not reason_of(after):
                # One that cannot be read may never be whole: everybody else would wait for ever.
                self._unplaced.add(after.name)
            return
        self._unplaced.discard(after.name)
        key = after.spec.provider_id or f"node/{after.name}"
        held = self._by_node.get(after.name)
        if held is not None and held.key != key:
            self._move_node(held, after, key)
            return
        tracked = held or self._find_or_add(key)
        if tracked.node is not None and tracked.node.name != after.name:
            self._by_node.pop(tracked.node.name, None)
        tracked.node = after
        self._by_node[after.name] = tracked
        tracked.pods = self._pods_on.setdefault(after.name, {})
        tracked.volume_limits = self._limits_on.get(after.name, {})
        self._settle_node(tracked)

    def _move_node(self, held: TrackedNode, node: Node, key: str) -> None:
        """A provider ID came late, or changed: the Node goes to its right place."""
        self._drop_node(node.name)
        self._find_or_add(key).inherit_from(held)
        self.update_node(None, node)

    def _drop_node(self, name: str) -> None:
        self._unplaced.discard(name)
        tracked = self._by_node.pop(name, None)
        if tracked is None:
            return
        tracked.node = None
        tracked.pods = {}
        if not self._pods_on.get(name):
            self._pods_on.pop(name, None)
        self._settle_node(tracked)

    def update_csi_node(self, before: CSINode | None, after: CSINode | None) -> None:
        """A node's volume limits became known or changed."""
        known = after or before
        if known is None:
            return
        name = known.name
        found = {
            driver.name: driver.allocatable.count
            for driver in (after.spec.drivers if after else ())
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        self._limits_on[name] = found
        if not found:
            self._limits_on.pop(name, None)
        tracked = self._by_node.get(name)
        if tracked is not None:
            tracked.volume_limits = found
            tracked.clear_cache()

    # Claims

    def update_node_claim(self, before: NodeClaim | None, after: NodeClaim | None) -> None:
        """A NodeClaim appeared, changed or is gone."""
        if after is None:
            if before is not None:
                self._stop_waiting_at(self._by_claim.get(before.name))
                self._drop_claim(before.name)
            return
        if not self._manages(after):
            return
        key = after.status.provider_id or f"claim/{after.name}"
        held = self._by_claim.get(after.name)
        tracked = held if held is not None and held.key == key else self._find_or_add(key)
        if held is not None and held is not tracked:
            tracked.inherit_from(held)
            self._drop_claim(after.name)
        tracked.claim = after
        self._by_claim[after.name] = tracked
        if after.status.provider_id or reason_of(after):
            # Nobody launches a claim that cannot be read: everybody else would wait for ever.
            self._unlaunched.discard(after.name)
        else:
            self._unlaunched.add(after.name)
        if _lacks_labels(after):
            self._unlabelled.setdefault(after.name, self._clock.monotonic())
        else:
            self._unlabelled.pop(after.name, None)
        self._settle_node(tracked)

    def _drop_claim(self, name: str) -> None:
        self._unlaunched.discard(name)
        self._unlabelled.pop(name, None)
        tracked = self._by_claim.pop(name, None)
        if tracked is None or tracked.claim is None:
            return
        self.nodepool_state.remove_claim(tracked.claim.labels.get(labels.NODEPOOL, ""), name)
        tracked.claim = None
        tracked.marked = False
        self._settle_node(tracked)

    def expect_claim(
        self, claim: NodeClaim, capacity: Amounts | None = None, pods: Iterable[str] = ()
    ) -> None:
        """We ordered this claim: believe in it before the watch tells of it, at the size that was ordered.

        `pods` are the names of those it was ordered for: it is theirs until they land on it.
        """
        if claim.name not in self._by_claim:
            # The watch may have been quicker, and what it told is newer than the answer we got.
            self.update_node_claim(None, claim)
        for tell in self._ordered:
            tell(claim)
        tracked = self._by_claim.get(claim.name)
        if tracked is not None:
            tracked.ordered_capacity = capacity or tracked.ordered_capacity
            tracked.awaited.update(pods)
            self._ordered_for |= dict.fromkeys(tracked.awaited, claim.name)
            self._settle_node(tracked)

    def add_order_listener(self, tell: Callable[[NodeClaim], None]) -> None:
        """Have this told of every claim we order."""
        self._ordered.append(tell)

    def forget_unlaunched(self, name: str) -> None:
        """A claim that was never launched no longer exists: stop waiting for it."""
        if name in self._unlaunched:
            self._stop_waiting_at(self._by_claim.get(name))
            self._drop_claim(name)

    # Pods

    def update_pod(self, before: Pod | None, after: Pod | None) -> None:
        """A pod appeared, changed or is gone. What was filed before is found by its key alone."""
        pod = after or before
        if pod is None:
            return
        key = (pod.namespace, pod.name)
        if _has_stopped_waiting(before, after):
            self._record_landed(pod.full_name)
        if predicates.owned_by_daemonset(pod):
            self._update_daemon_pod(key, pod, gone=after is None)
        if before is not None and before.node_name and (after is None or after.node_name != before.node_name):
            self._unfile_pod(before.node_name, key)
        if after is None:
            self._pending.pop(key, None)
            if pod.node_name:
                self._unfile_pod(pod.node_name, key)
            return
        if after.node_name:
            if predicates.is_terminal(after):
                self._unfile_pod(after.node_name, key)
            else:
                self._file_pod(after.node_name, key, after)
        if predicates.is_provisionable(after):
            self._pending[key] = after
        else:
            self._pending.pop(key, None)

    def _update_daemon_pod(self, key: PodKey, pod: Pod, *, gone: bool) -> None:
        for owner in pod.metadata.owner_references:
            if owner.kind != "DaemonSet":
                continue
            file = self._daemon_pods.setdefault(owner.uid, {})
            if gone:
                file.pop(key, None)
            else:
                file[key] = pod
            if not file:
                del self._daemon_pods[owner.uid]

    def _file_pod(self, node: str, key: PodKey, pod: Pod) -> None:
        self._pods_on.setdefault(node, {})[key] = pod
        self._mark_pods_changed(node)

    def _unfile_pod(self, node: str, key: PodKey) -> None:
        file = self._pods_on.get(node)
        if file is None or file.pop(key, None) is None:
            return
        if not file and node not in self._by_node:
            del self._pods_on[node]
        self._mark_pods_changed(node)

    def _mark_pods_changed(self, node: str) -> None:
        tracked = self._by_node.get(node)
        if tracked is not None:
            tracked.clear_cache()

    # Marks

    def mark_for_deletion(self, keys: Iterable[str]) -> None:
        """These places will go: their pods need others, and nothing new is put there."""
        self._set_marks(keys, True)

    def unmark_for_deletion(self, keys: Iterable[str]) -> None:
        self._set_marks(keys, False)

    def _set_marks(self, keys: Iterable[str], marked: bool) -> None:
        for key in keys:
            tracked = self._places.get(key)
            if tracked is not None:
                tracked.marked = marked
                if not marked and tracked.claim is not None and not tracked.deleting:
                    self.nodepool_state.mark_active(
                        tracked.claim.labels.get(labels.NODEPOOL, ""), tracked.claim.name
                    )
                self._settle_node(tracked)

    def nominate_node(self, key: str) -> None:
        """A pending pod is expected here soon: leave the place alone for a while."""
        tracked = self._places.get(key)
        if tracked is not None:
            tracked.nominated_until = self._clock.now() + self._nomination

    def _record_landed(self, pod: str) -> None:
        """The pod has a node, here or elsewhere, or needs none any more."""
        tracked = self._by_claim.get(self._ordered_for.pop(pod, ""))
        if tracked is not None:
            tracked.awaited.discard(pod)

    def _stop_waiting_at(self, tracked: TrackedNode | None) -> None:
        if tracked is None:
            return
        for pod in tracked.awaited:
            self._ordered_for.pop(pod, None)
        tracked.awaited.clear()

    def _wait_at(self, tracked: TrackedNode) -> None:
        """Pods have a while to land on the node they were promised, from when it can take them."""
        now = self._clock.now()
        if tracked.awaited_until is None:
            if views.is_initialized(tracked.state):
                tracked.awaited_until = now + self._nomination
        elif now >= tracked.awaited_until:
            self._stop_waiting_at(tracked)

    # Questions

    def __iter__(self) -> Iterator[TrackedNode]:
        return iter(self._places.values())

    def __len__(self) -> int:
        return len(self._places)

    def find_node(self, key: str) -> TrackedNode | None:
        """The place of a provider ID."""
        return self._places.get(key)

    def find_by_claim(self, name: str) -> TrackedNode | None:
        return self._by_claim.get(name)

    def find_by_node(self, name: str) -> TrackedNode | None:
        return self._by_node.get(name)

    def list_pods_on(self, node: str) -> tuple[Pod, ...]:
        """The pods bound to a node that have not run to their end."""
        return tuple(self._pods_on.get(node, {}).values())

    def find_newest_daemon_pod(self, uid: str) -> Pod | None:
        """The youngest pod of a DaemonSet: it shows what admission makes of the template today."""
        pods = self._daemon_pods.get(uid, {}).values()
        return max(pods, key=lambda pod: (_read_created(pod), pod.name), default=None)

    @property
    def pending(self) -> tuple[Pod, ...]:
        """The pods that wait for a node, oldest name first so that the order of events does not matter."""
        return tuple(self._pending[key] for key in sorted(self._pending))

    def compute_usage(self, pool: str) -> dict[str, Quantity]:
        """What a pool's places add up to, those on their way out left aside; `nodes` counts them."""
        return convert_to_quantities({name: n for name, n in self._usage.get(pool, {}).items() if n})

    @property
    def synced(self) -> bool:
        """Everything the API server has is here, and every claim has its machine.

        The first clause is asked until it holds once; afterwards only an order still open unsettles us.
        """
        whole = self.ever_synced or (self._sources_synced() and not self._unplaced)
        synced = whole and not self._unlaunched and not self._awaits_labels()
        self.ever_synced = self.ever_synced or synced
        self._show_synced(synced)
        return synced

    def _awaits_labels(self) -> bool:
        """A machine whose zone and type are a moment away is no place for pods that ask for either: for
        them another would be ordered."""
        recent = self._clock.monotonic() - LABELLED_WITHIN
        return any(since > recent for since in self._unlabelled.values())

    @property
    def unsynced_for(self) -> timedelta:
        """How long it has been since all was well; nothing while it is."""
        since = self._unsynced_since
        return timedelta(seconds=self._clock.monotonic() - since) if since is not None else timedelta()

    def _show_synced(self, synced: bool) -> None:
        if synced:
            self._unsynced_since = None
        elif self._unsynced_since is None:
            self._unsynced_since = self._clock.monotonic()
        SYNCED.set(synced)
        NODE_COUNT.set(len(self._places))
        UNSYNCED_SECONDS.set(self.unsynced_for.total_seconds())

    # Keeping house

    def _find_or_add(self, key: str) -> TrackedNode:
        tracked = self._places.get(key)
        if tracked is None:
            tracked = self._places[key] = TrackedNode(key)
        return tracked

    def _settle_node(self, tracked: TrackedNode) -> None:
        """After a change: forget the old face, charge the pool anew, drop the place if nothing is left."""
        tracked.clear_cache()
        if tracked.awaited:
            self._wait_at(tracked)
        self._discharge_pool(tracked)
        if tracked.empty:
            self._places.pop(tracked.key, None)
        else:
            self._charge_pool(tracked)
            self._update_nodepool_state(tracked)

    def _update_nodepool_state(self, tracked: TrackedNode) -> None:
        if tracked.claim is None:
            return
        pool = tracked.claim.labels.get(labels.NODEPOOL, "")
        if pool:
            (self.nodepool_state.mark_deleting if tracked.deleting else self.nodepool_state.update_claim)(
                pool, tracked.claim.name
            )

    def _charge_pool(self, tracked: TrackedNode) -> None:
        pool = views.read_pool_name(tracked.state)
        if not pool or tracked.deleting:
            return
        used = tracked.capacity
        total = self._usage.setdefault(pool, {})
        for name, amount in used.items():
            total[name] = total.get(name, 0) + amount
        tracked.charged = (pool, used)

    def _discharge_pool(self, tracked: TrackedNode) -> None:
        if tracked.charged is None:
            return
        pool, used = tracked.charged
        total = self._usage[pool]
        for name, amount in used.items():
            total[name] -= amount
        if not total.get(labels.NODES):
            del self._usage[pool]
        tracked.charged = None


def _read_created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0


def _has_stopped_waiting(before: Pod | None, after: Pod | None) -> bool:
    """Whether a pod that waited for a node has got one, or is gone."""
    return not (before and before.node_name) and (after is None or bool(after.node_name))


def _is_incomplete(node: Node) -> bool:
    """A Node of ours that has not said yet which machine it is."""
    if labels.NODEPOOL not in node.labels:
        return False
    if not node.spec.provider_id:
        return True
    return labels.INSTANCE_TYPE not in node.labels and node.labels.get(labels.INITIALIZED) != labels.TRUE


def _lacks_labels(claim: NodeClaim) -> bool:
    """Launched, and not yet told of what: status and labels are written one after the other."""
    return (
        bool(claim.status.provider_id)
        and labels.INSTANCE_TYPE not in claim.labels
        and not claim.deleting
        and not conditions.is_true(claim, conditions.REGISTERED)
    )
