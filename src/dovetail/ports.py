"""The shapes controllers need from the outside: clock, Kubernetes, compute, recorder, history.

Ports point inward: this file says what is needed, and the runtime, the providers and the simulator
fit themselves to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from dovetail.api.labels import Flavour
from dovetail.api.meta import Amounts, Kind, Object, Record
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.situation import Situation
from dovetail.history.chain import LogEnd
from dovetail.history.record import DecisionRecord, RecordDraft, RecordKind
from dovetail.history.verdicts import Verdict, VerdictKey
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan

__all__ = [
    "Clock",
    "Cloud",
    "Compute",
    "DecisionSink",
    "Instance",
    "Kube",
    "LogPace",
    "LogSink",
    "LogTerm",
    "Recorder",
    "RecordingPlace",
    "RegistrationHook",
    "RepairPolicy",
    "RunBlocking",
    "SituationSink",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Object)
Shared = TypeVar("Shared")
Item = TypeVar("Item")


class Clock(Protocol):
    """Time as the world tells it: the wall's in production, the scenario's in simulation."""

    def now(self) -> datetime:
        """The time of day, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never run backwards; only differences mean anything."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds of this clock."""


class Compute(Protocol):
    """Where heavy pure work is done: inline in tests, in worker processes in production."""

    def __call__(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Run the work somewhere and give back its result."""

    async def map_items(
        self, work: Callable[[Shared, Sequence[Item]], Sequence[R]], shared: Shared, items: Sequence[Item]
    ) -> list[R]:
        """Do the work for all the items, in as many places as there are; the results are in their order."""


class Kube(Protocol):
    """What controllers ask of a Kubernetes. Failures come as errors.py names them, never as HTTP codes."""

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """Read one object; Gone when there is none."""

    async def list(
        self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        """Read all objects of a kind, page by page."""

    async def create(self, obj: T) -> T:
        """Store a new object; AlreadyExists when the name is taken."""

    async def patch(self, before: T, after: T, *, status: bool = False, guarded: bool = False) -> T:
        """Write what differs between the two and nothing else.

        `status` writes the status part. `guarded` fails with Conflict if anyone wrote meanwhile.
        """

    async def apply(self, obj: T, *, manager: str, force: bool = False) -> T:
        """Store these fields as the manager's own (server-side apply); Conflict when one is another's.

        `force` takes such fields over. The object is created if there is none.
        """

    async def delete(self, obj: Object, *, grace: int | None = None, guarded: bool = False) -> None:
        """Ask for an object's deletion; `guarded` spares a namesake that took its place."""

    async def evict(self, obj: Object, *, grace: int | None = None) -> None:
        """Ask for a pod's eviction; Throttled when a disruption budget says not now."""

    async def read_version(self) -> str:
        """The server's version, `major.minor`."""


class Recorder(Protocol):
    """Tells people what happened to an object, once."""

    def publish_event(
        self,
        obj: Object,
        reason: str,
        note: str,
        *,
        warning: bool = False,
        dedupe: tuple[str, ...] = (),
        window: float = 120.0,
    ) -> None:
        """Publish an event unless the same one went out within the window, in seconds."""


class DecisionSink(Protocol):
    """Remembers what was decided and done. Noting never waits and never fails."""

    @property
    def recording(self) -> bool:
        """Whether a note comes to anything; where it does not, no words need be made."""

    @property
    def verdicts(self) -> Mapping[str, VerdictKey]:
        """The last verdict on each pod and node: what new ones are compared with."""

    def note_decision(self, draft: RecordDraft, *, parent: str = "", situation: str = "") -> str:
        """Record a decision and give its id; empty when nothing is recorded.

        `parent` is the id of the record that caused it, `situation` the digest of what the decision saw.
        """

    def note_verdicts(self, verdicts: Iterable[Verdict], situation: str = "") -> None:
        """Take verdicts that differ from those known, and record those that have lasted by now."""

    def digest_situation(self, situation: Situation) -> str:
        """What records call a situation that something was decided from; empty when nothing is recorded."""

    def forget_verdicts(self, subject: str) -> None:
        """A pod or node is gone: nothing more will be found about it."""

    @property
    def since(self) -> datetime | None:
        """Since when anything is remembered; None while nothing is."""

    def find_cause(self, name: str, kinds: frozenset[RecordKind]) -> str:
        """The id of the newest record of these kinds that has this name; empty when there is none."""

    def find_record(self, name: str, kinds: frozenset[RecordKind]) -> DecisionRecord | None:
        """The newest record of these kinds that has this name."""

    def list_records(self, kinds: frozenset[RecordKind]) -> Iterable[DecisionRecord]:
        """Every record of these kinds that is remembered, in the order in which they were made."""


class Instance(Record, frozen=True):
    """A machine as the cloud knows it."""

    provider_id: str
    image_id: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    capacity: Amounts = {}
    allocatable: Amounts = {}
    # The NodeClaim it was launched for, as far as the cloud remembers.
    claim: str = ""
    created: datetime | None = None
    deleting: bool = False


class RepairPolicy(Record, frozen=True):
    """A node condition that, held for longer than the toleration, means the node is beyond hope."""

    condition: str
    status: str
    toleration: timedelta


class RegistrationHook(Protocol):
    """Something a provider wants settled before a node counts as registered."""

    @property
    def name(self) -> str:
        """How the condition's message calls it."""

    async def settle_claim(self, claim: NodeClaim) -> tuple[NodeClaim, timedelta | None]:
        """The claim with the labels and annotations it should have, and when to ask again.

        None instead of a time once the hook is satisfied. Hooks are asked side by side.
        """


class Cloud(Protocol):
    """What controllers ask of a cloud. Failures come as errors.py names them."""

    @property
    def name(self) -> str:
        """The provider's name in metrics: aws, kwok."""

    @property
    def flavour(self) -> Flavour:
        """Its well-known and restricted labels."""

    @property
    def node_classes(self) -> tuple[Kind, ...]:
        """The node class kinds it understands; the first is its default."""

    @property
    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        """Conditions that end a node's life; may be none."""

    @property
    def hooks(self) -> Sequence[RegistrationHook]:
        """What must be settled before a node is registered."""

    async def create(self, claim: NodeClaim) -> Instance:
        """Launch for a claim: InsufficientCapacity, ClassNotReady or CreateFailed when it cannot."""

    async def delete(self, claim: NodeClaim) -> None:
        """Start, or continue, the end of a claim's instance; Gone once it is over."""

    async def get(self, provider_id: str) -> Instance:
        """One instance; Gone when there is none."""

    async def list(self) -> tuple[Instance, ...]:
        """Every instance that is ours, those on their way out included."""

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        """Everything the pool could buy, available or not."""

    async def find_drift_reason(self, claim: NodeClaim) -> str:
        """Why the instance no longer is what its class asks for; empty when it is."""


class RunBlocking(Protocol):
    """Where work that waits for disks is done: in a thread, or at once in simulated time."""

    def __call__(self, work: Callable[[], R], /) -> Awaitable[R]: ...


class LogPace(NamedTuple):
    """How long records are collected before they are written, in seconds, and how many bytes at most."""

    every: float
    most_bytes: int


class LogTerm(NamedTuple):
    """The time one leader writes: the record it begins with, and whether it still lasts."""

    record: DecisionRecord
    lasts: Callable[[], bool]


class LogSink(Protocol):
    """A place records are written to and read back from. Failures come as errors.py names them."""

    @property
    def to(self) -> str:
        """How metrics and messages call it: file, s3."""

    @property
    def pace(self) -> LogPace:
        """How it likes to be written to."""

    async def open_term(self, term: LogTerm) -> LogEnd | None:
        """Find where the log ends, and get ready to go on from there."""

    async def write_lines(self, lines: Sequence[bytes]) -> int:
        """Keep these lines, all of them or none; how many bytes were written. It may be called again."""

    async def keep_up(self) -> float | None:
        """Do what is due beside writing; the seconds until something is due again."""

    async def read_back(self, since: datetime, most: int) -> list[DecisionRecord]:
        """The newest records since then, oldest first."""

    async def close(self) -> None:
        """Let go of what is open."""


class RecordingPlace(Protocol):
    """Where the segments of a recording are written. Failures come as errors.py names them, or as OSError."""

    async def begin_segment(self, name: str) -> None:
        """Begin a segment of this name; one that was not ended stays as it is."""

    async def append_bytes(self, data: bytes) -> None:
        """Add to the segment."""

    async def end_segment(self) -> None:
        """The segment is whole."""

    async def forget_before(self, time: datetime) -> None:
        """Delete segments that ended before a time, where that is not somebody else's to do."""


class SituationSink(Protocol):
    """Keeps what decisions saw. Noting takes references, never waits and never fails."""

    def note_plan(self, situation: Situation, plan: Plan) -> None:
        """A plan that was made of this Situation."""

    def note_choice(
        self, situation: Situation, question: str, choice: DisruptionChoice, timed_out: bool
    ) -> None:
        """What a disruption method, named by the question, chose in this Situation."""
