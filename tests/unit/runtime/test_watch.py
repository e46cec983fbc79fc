"""Following one kind: when it lists, where it resumes, how it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest

from dovetail.api.core import Node
from dovetail.errors import DovetailError, Retry
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.transport import ApiReply, ApiRequest, Lines
from dovetail.runtime.watch import Follower, WatchOptions
from dovetail.sim.clock import VirtualClock, run_virtual

END = {"metadata": {"resourceVersion": "10", "annotations": {"k8s.io/initial-events-end": "true"}}}


def node(name: str, version: int, **more: object) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}, **more}


def line(kind: str, obj: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj})


class Stream:
    """A scripted watch: lines, then a clean end, a break, or silence."""

    def __init__(self, *lines: bytes, status: int = 200, then: str = "end", after: float = 0.0) -> None:
        self.lines = list(lines)
        self.status = status
        self.headers: Mapping[str, str] = {}
        self.then = then
        self.after = after

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        if self.lines:
            yield self.lines
        await asyncio.sleep(self.after)
        if self.then == "break":
            raise Retry("the connection broke off")
        if self.then == "silence":
            await asyncio.Event().wait()

    async def read(self) -> bytes:
        return msgspec.json.encode({"message": "no", "reason": "Nope"})


class Script:
    """A transport that plays streams and pages in order and notes what it was asked, and when."""

    def __init__(self, clock: VirtualClock, streams: list[Stream], pages: list[object]) -> None:
        self.clock = clock
        self.streams = streams
        self.pages = pages
        self.asked: list[tuple[float, str]] = []

    async def send(self, request: ApiRequest) -> ApiReply:
        self._note(request)
        page = self.pages.pop(0)
        if isinstance(page, int):
            return ApiReply(page, b"{}")
        return ApiReply(200, msgspec.json.encode(page))

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        self._note(request)
        yield self.streams.pop(0) if self.streams else Stream(then="silence")

    def _note(self, request: ApiRequest) -> None:
        query = request.query
        if "sendInitialEvents" in query:
            what = "stream list"
        elif "watch" in query:
            what = f"watch from {query['resourceVersion']}"
        else:
            what = f"page {query.get('continue', '')}".rstrip()
        self.asked.append((round(self.clock.monotonic(), 1), what))

    async def close(self) -> None:
        """Nothing is held."""


class Outcome(msgspec.Struct):
    names: list[str]
    asked: list[str]
    times: list[float]
    troubles: list[str]
    synced: bool
    departures: list[str]


def follow(
    streams: list[Stream], pages: list[object] | None = None, seconds: float = 60, optional: bool = False
) -> Outcome:
    async def main() -> Outcome:
        clock, troubles = VirtualClock(), []
        script = Script(clock, streams, pages or [])
        informer = Informer(Node)
        departures: list[str] = []

        def changed(before: Node | None, after: Node | None) -> None:
            if before is not None and after is None:
                departures.append(before.name)

        informer.on_change(changed)

        def trouble(error: DovetailError) -> None:
            troubles.append(str(error))

        follower = Follower(
            KubeClient(script, clock),
            Node,
            informer,
            clock=clock,
            rng=Random(1),
            options=WatchOptions(on_trouble=trouble, optional=optional),
        )
        task = asyncio.create_task(follower.run())
        await clock.sleep(seconds)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        seen = [f"{n.name}@{n.metadata.resource_version}" for n in informer]
        whens, whats = zip(*script.asked, strict=True)
        return Outcome(seen, list(whats), list(whens), troubles, informer.synced, departures)

    return run_virtual(main())


LISTED = (line("ADDED", node("a", 3)), line("ADDED", node("b", 7)), line("BOOKMARK", END))


def test_a_streamed_list_is_whole_at_its_mark_and_then_live() -> None:
    changes = (line("MODIFIED", node("a", 12)), line("DELETED", node("b", 13)), line("ADDED", node("c", 14)))
    found = follow([Stream(*LISTED, *changes, then="silence")])
    assert found.synced
    assert found.names == ["a@12", "c@14"]
    assert found.asked == ["stream list"]


def test_a_stream_that_ends_is_resumed_at_once_from_its_last_event() -> None:
    found = follow([Stream(*LISTED, line("MODIFIED", node("a", 12)), after=30)])
    assert found.asked == ["stream list", "watch from 12"]
    assert found.times == [0, 30]
    assert found.troubles == []


def test_a_bookmark_moves_the_place_to_resume_from() -> None:
    mark = line("BOOKMARK", {"metadata": {"resourceVersion": "40", "creationTimestamp": None}})
    found = follow([Stream(*LISTED, mark, after=30)])
    assert found.asked == ["stream list", "watch from 40"]


def test_a_broken_stream_is_resumed_after_a_pause_and_nothing_is_listed_again() -> None:
    found = follow([Stream(*LISTED, then="break")], seconds=10)
    assert found.asked == ["stream list", "watch from 10"]
    assert 0.8 <= found.times[1] <= 1.6
    assert found.troubles == ["the connection broke off"]


def test_a_place_too_old_means_a_new_list() -> None:
    gone = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    again = (line("ADDED", node("a", 20)), line("BOOKMARK", END))
    found = follow([Stream(*LISTED, gone), Stream(*again, then="silence")])
    assert found.asked == ["stream list", "stream list"]
    assert found.names == ["a@20"], "what vanished meanwhile is gone"
    assert found.troubles == [], "this happens to everyone"


def test_a_410_before_the_stream_means_a_new_list_too() -> None:
    found = follow([Stream(*LISTED, after=2), Stream(status=410), Stream(*LISTED, then="silence")])
    assert found.asked == ["stream list", "watch from 10", "stream list"]


def test_a_server_that_is_behind_what_we_have_seen_is_listed_again() -> None:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    early = {
        "kind": "Status",
        "code": 504,
        "reason": "Timeout",
        "message": "early",
        "details": {"causes": causes},
    }
    found = follow([Stream(*LISTED, line("ERROR", early)), Stream(*LISTED, then="silence")])
    assert found.asked == ["stream list", "stream list"]


def page(*nodes: dict[str, object], token: str = "", version: str = "10") -> dict[str, object]:
    return {"metadata": {"resourceVersion": version, "continue": token}, "items": list(nodes)}


def test_without_streamed_lists_pages_are_read_and_the_watch_starts_there() -> None:
    pages: list[object] = [page(node("a", 3), token="more"), page(node("b", 7))]
    found = follow([Stream(status=422), Stream(line("ADDED", node("c", 12)), then="silence")], pages)
    assert found.asked == ["stream list", "page", "page more", "watch from 10"]
    assert found.names == ["a@3", "b@7", "c@12"]
    assert found.synced
    assert found.times[-1] == 0, "falling back is not a failure"


def test_a_list_that_is_streamed_without_end_is_given_up() -> None:
    mark = line("BOOKMARK", {"metadata": {"resourceVersion": "40"}})
    pages: list[object] = [page(node("a", 3))]
    found = follow([Stream(line("ADDED", node("a", 3)), mark, then="silence")], pages)
    assert found.asked == ["stream list", "page", "watch from 10"]
    assert found.synced
    silent = follow([Stream(line("ADDED", node("a", 3)), then="silence")], [page(node("a", 3))], seconds=200)
    assert silent.times == [0, 180, 180]


def test_a_list_that_breaks_off_starts_over_and_is_not_synced_before() -> None:
    found = follow([Stream(*LISTED[:2], then="break"), Stream(*LISTED, then="silence")])
    assert found.asked == ["stream list", "stream list"]
    assert found.synced
    half = follow([Stream(*LISTED[:2], then="break")])
    assert not half.synced


def test_a_page_that_expires_starts_the_list_over() -> None:
    pages: list[object] = [page(node("a", 3), token="more"), 410, page(node("b", 9))]
    found = follow([Stream(status=422)], pages)
    assert found.asked == ["stream list", "page", "page more", "page", "watch from 10"]
    assert found.names == ["b@9"]


def test_a_silent_stream_is_taken_for_dead() -> None:
    found = follow([Stream(*LISTED, then="silence")], seconds=190)
    assert found.asked == ["stream list", "watch from 10"]
    assert 180 < found.times[1] < 182
    assert "silent for 180 s" in found.troubles[0]


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_refusals_are_told_and_asked_again_ever_more_slowly(status: int) -> None:
    found = follow([Stream(status=status) for _ in range(40)], seconds=400)
    gaps = [later - sooner for sooner, later in zip(found.times, found.times[1:], strict=False)]
    assert 0.8 <= gaps[0] <= 1.6
    assert 30 <= gaps[-1] <= 60
    assert len(found.times) < 20
    assert found.troubles[0].startswith("watching Node: ")


def test_a_stream_that_ends_as_soon_as_it_began_is_not_begun_again_at_once() -> None:
    found = follow([Stream(*LISTED), *(Stream() for _ in range(100))], seconds=60)
    assert len(found.asked) < 10
    assert "ended as soon as it began" in found.troubles[0]


def test_an_object_that_makes_no_sense_is_reported_and_set_aside_and_the_others_are_kept() -> None:
    odd = node("odd", 5, spec={"taints": "none"})
    found = follow([Stream(line("ADDED", odd), *LISTED, line("MODIFIED", node("a", 12)), after=30)])
    assert found.names == ["odd@5", "a@12", "b@7"]
    assert "following Node odd: spec.taints cannot be read" in found.troubles[0]
    assert found.asked == ["stream list", "watch from 12"]
    paged = follow([Stream(status=422)], [page(node("a", 3), odd)])
    assert paged.names == ["a@3", "odd@5"]
    assert paged.synced
    turned = follow([Stream(*LISTED, line("MODIFIED", node("a", 12, spec={"taints": 7})), then="silence")])
    assert turned.names == ["a@12", "b@7"], "it is not gone"


def test_an_object_whose_name_cannot_be_read_is_reported_and_the_others_are_kept() -> None:
    odd = {"metadata": {"uid": "u", "resourceVersion": "5"}, "spec": {"taints": "none"}}
    found = follow([Stream(line("ADDED", odd), *LISTED, then="silence")])
    assert found.names == ["a@3", "b@7"]
    assert "has no name that can be read" in found.troubles[0]


def test_a_line_that_is_no_json_means_a_new_list() -> None:
    found = follow([Stream(*LISTED, b'{"type":"ADD'), Stream(*LISTED, then="silence")])
    assert found.asked == ["stream list", "stream list"]


def test_a_long_stream_resets_the_pauses() -> None:
    broken = [Stream(then="break") for _ in range(6)]
    found = follow([Stream(*LISTED, then="break"), *broken, Stream(then="break", after=150)], seconds=600)
    assert found.times[7] - found.times[6] > 20, "by then it was patient"
    assert 0.8 <= found.times[8] - found.times[7] - 150 <= 1.6


@pytest.mark.spec("FN-5")
def test_an_optional_kind_that_is_not_served_has_no_objects_and_is_asked_for_again() -> None:
    missing = [Stream(status=404), Stream(status=404)]
    found = follow([*missing, Stream(*LISTED, then="silence")], seconds=700, optional=True)
    assert found.asked == ["stream list"] * 3
    first, second, third = found.times
    assert first == 0
    assert 240 <= second - first <= 300
    assert 240 <= third - second <= 300
    assert found.names == ["a@3", "b@7"], "installing it needs no restart"
    assert (found.troubles, found.departures) == ([], [])


def test_an_optional_kind_that_is_missing_keeps_nobody_waiting() -> None:
    assert follow([Stream(status=404)], seconds=1, optional=True).synced
    assert not follow([Stream(status=404)], seconds=1).synced


@pytest.mark.spec("FN-5")
def test_removing_an_optional_kind_removes_its_objects_and_is_no_trouble() -> None:
    removed = [Stream(status=404), Stream(status=404)]
    found = follow([Stream(*LISTED, after=30), *removed], seconds=200, optional=True)
    assert (found.names, found.departures, found.troubles) == ([], ["a", "b"], [])
    assert found.asked == ["stream list", "watch from 10", "stream list"]
    assert found.times[2] - found.times[1] < 2, "it is asked twice before it is believed"


def test_one_answer_that_a_kind_is_not_served_does_not_drop_its_objects() -> None:
    """A replica of the API server that is behind the others must not undo what objects of ours hold back."""
    again = Stream(*LISTED, then="silence")
    found = follow([Stream(*LISTED, after=30), Stream(status=404), again], seconds=200, optional=True)
    assert (found.names, found.departures, found.troubles) == (["a@3", "b@7"], [], [])
    broken = [Stream(status=404), Stream(status=500), Stream(status=404), again]
    found = follow([Stream(*LISTED, after=30), *broken], seconds=200, optional=True)
    assert (found.names, found.departures) == (["a@3", "b@7"], []), "only two in a row count"
