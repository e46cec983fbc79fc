"""Notifications put together: the file that NOTIFY_FILE names, and the way to each of its sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dovetail.aws import Aws, FencedAws
from dovetail.errors import Misconfigured, Retry
from dovetail.history.filters import DueBatch
from dovetail.history.messages import NotifyMessage
from dovetail.history.notify import NotifySink, find_way
from dovetail.ports import Clock, RunBlocking
from dovetail.runtime.decision_log import run_inline
from dovetail.runtime.notifier import Notifier, NotifierContext
from dovetail.runtime.notify_file import NotifyFile
from dovetail.runtime.senders import (
    FileSender,
    GuardedSession,
    HttpSender,
    Sender,
    StdoutSender,
)
from dovetail.settings import Settings

__all__ = ["SinkSenders", "build_notifier"]

# What a cluster is called whose name no setting says.
UNNAMED = "cluster"


class UnavailableSender:
    """The way to a sink that cannot be had here; what is to be sent is kept and given up as elsewhere."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def send_message(self, message: NotifyMessage, batch: DueBatch) -> None:
        raise Retry(self._why)


@dataclass(slots=True)
class SinkSenders:
    """Makes the way to a sink, by its address. `aws` is the provider's door, where it has one."""

    clock: Clock
    cluster: str = ""
    aws: Aws | None = None
    may_send: Callable[[], bool] = lambda: True
    run_blocking: RunBlocking = run_inline
    session: GuardedSession = field(default_factory=GuardedSession)
    _opened: list[Callable[[], None]] = field(default_factory=list)

    def make_sender(self, sink: NotifySink) -> Sender:
        way = find_way(sink.to)
        if way == "file":
            return FileSender(sink, self.run_blocking)
        if way == "stdout":
            return StdoutSender()
        if way in ("sns", "eventbridge"):
            return self._make_aws_sender(sink, way)
        return HttpSender(sink, self.session, self.clock, self.run_blocking)

    def _make_aws_sender(self, sink: NotifySink, way: str) -> Sender:
        # Loaded where such a sink is named: clusters elsewhere have no use for AWS, nor for its metrics.
        from dovetail.providers.aws.notifications import EventBridgeSender, SnsSender

        try:
            fenced = FencedAws(self._find_aws(), self.may_send)
        except Misconfigured as error:
            return UnavailableSender(str(error))
        return SnsSender(sink, fenced, self.cluster) if way == "sns" else EventBridgeSender(sink, fenced)

    def _find_aws(self) -> Aws:
        if self.aws is None:
            try:
                from dovetail.aws.boto import BotoAws
            except ImportError as error:
                raise Misconfigured("it needs boto3; install dovetail[aws]") from error
            boto = BotoAws()
            self._opened.append(boto.close)
            self.aws = boto
        return self.aws

    async def close(self) -> None:
        """Let go of connections and threads that were opened here."""
        await self.session.close()
        while self._opened:
            self._opened.pop()()
            self.aws = None


def build_notifier(
    settings: Settings,
    clock: Clock,
    aws: Aws | None,
    may_send: Callable[[], bool],
    run_blocking: RunBlocking,
) -> Notifier | None:
    """Who tells the sinks that NOTIFY_FILE names; None where it names none, Misconfigured if it is wrong."""
    if not settings.notify_file:
        return None
    file = NotifyFile(settings.notify_file, run_blocking)
    cluster = settings.cluster_name or UNNAMED
    senders = SinkSenders(clock, cluster, aws, may_send, run_blocking)
    context = NotifierContext(clock, senders.make_sender, cluster, may_send, senders.close)
    return Notifier(file, file.load(), context)
