"""Whatever is written, and however watchers come and go: what they replay is what is stored."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.status import ApiError
from dovetail.sim.kube.verbs.list_watch import ApiWatch, ListOptions
from support.apiserver import local_server, pod

NAMES = ("a", "b", "c", "d")
NAMESPACES = ("default", "kube-system")
SELECTORS: tuple[dict[str, str], ...] = (
    {},
    {"label_selector": "app=web"},
    {"label_selector": "app in (api),!gone"},
    {"field_selector": "spec.nodeName=n1"},
    {"field_selector": "spec.nodeName=n1", "label_selector": "app=web"},
    {"field_selector": "metadata.name=a"},
    {"field_selector": "status.phase!=Running"},
)
State = dict[tuple[str, str], dict[str, Any]]


class Follower:
    """A client that lists, watches, loses its connection and comes back."""

    def __init__(self, api: LocalApi, namespace: str, selector: dict[str, str], bookmarks: bool) -> None:
        self.api = api
        self.namespace = namespace
        self.selector = selector
        self.bookmarks = bookmarks
        self.state: State = {}
        self.version = ""
        self.last_seen = 0
        self.watch: ApiWatch = self._open()

    def _open(self) -> ApiWatch:
        options: dict[str, Any] = {**self.selector, "allow_bookmarks": self.bookmarks}
        return self.api.watch("pods", self.namespace, resource_version=self.version, **options)

    def read(self) -> None:
        for kind, obj in self.watch.drain():
            if kind == "ERROR":
                assert obj["code"] == 410
                self.watch.close()
                self.state.clear()
                self.version, self.last_seen = "", 0
                self.watch = self._open()
                return self.read()
            self._follow(kind, obj)
        return None

    def _follow(self, kind: str, obj: dict[str, Any]) -> None:
        metadata = obj["metadata"]
        revision = int(metadata["resourceVersion"])
        self.version = metadata["resourceVersion"]
        if kind == "BOOKMARK":
            assert revision >= self.last_seen
            return
        key = (metadata["namespace"], metadata["name"])
        fresh = self.last_seen == 0 or revision > self.last_seen
        assert fresh or kind == "ADDED", "events come in order, never twice"
        assert (key in self.state) is (kind != "ADDED"), (kind, key)
        self.last_seen = max(self.last_seen, revision)
        if kind == "DELETED":
            del self.state[key]
        else:
            self.state[key] = obj

    def reconnect(self) -> None:
        self.watch.close()
        # What the initial state says in name order may be behind in revisions: resume from the newest.
        if self.last_seen:
            self.version = str(max(self.last_seen, int(self.version)))
        self.watch = self._open()

    def expected(self) -> State:
        found = self.api.list("pods", self.namespace, **self.selector)
        return {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in found}


def write(api: LocalApi, act: str, namespace: str, name: str, value: str) -> None:
    try:
        match act:
            case "create":
                api.create("pods", pod(name, namespace, labels={"app": value}))
            case "label":
                api.patch("pods", name, {"metadata": {"labels": {"app": value}}}, namespace)
            case "bind":
                api.bind(name, namespace, "n1" if value == "web" else "n2")
            case "run":
                api.patch("pods", name, {"status": {"phase": "Running"}}, namespace, subresource="status")
            case "evict":
                api.evict(name, namespace)
            case _:
                api.delete("pods", name, namespace, grace_seconds=0)
    except ApiError as error:
        if error.code not in (404, 409):
            raise


WRITES = st.tuples(
    st.sampled_from(("create", "create", "label", "bind", "run", "evict", "delete")),
    st.sampled_from(NAMESPACES),
    st.sampled_from(NAMES),
    st.sampled_from(("web", "api")),
)
HAPPENINGS = st.one_of(
    WRITES,
    WRITES,
    WRITES,
    st.tuples(st.sampled_from(("read", "reconnect")), st.integers(0, 7)),
    st.just(("compact",)),
    st.just(("bookmark",)),
    st.tuples(
        st.just("join"), st.sampled_from(("", *NAMESPACES)), st.integers(0, len(SELECTORS) - 1), st.booleans()
    ),
)


def happen(server: ApiServer, followers: list[Follower], event: tuple[Any, ...]) -> None:
    api = server.build_local_client()
    others: dict[str, Callable[[], object]] = {
        "compact": lambda: server.store.compact(),
        "bookmark": server.send_bookmarks,
        "join": lambda: followers.append(Follower(api, event[1], SELECTORS[event[2]], event[3])),
        "read": lambda: followers[event[1] % len(followers)].read(),
        "reconnect": lambda: followers[event[1] % len(followers)].reconnect(),
    }
    if event[0] in others:
        others[event[0]]()
    else:
        write(api, *event)


@settings(max_examples=150, deadline=None)
@given(st.lists(HAPPENINGS, max_size=60), st.integers(3, 40))
def test_every_followers_replayed_state_is_the_stores(
    happenings: list[tuple[Any, ...]], history: int
) -> None:
    server = local_server(history=history)
    api = server.build_local_client()
    followers = [Follower(api, "", selector, True) for selector in SELECTORS]
    for event in happenings:
        happen(server, followers, event)
    for follower in followers:
        follower.read()
        assert follower.state == follower.expected()


@settings(max_examples=80, deadline=None)
@given(st.lists(WRITES, max_size=40), st.integers(1, 5))
def test_pages_of_any_size_make_up_the_list_they_were_cut_from(
    writes: list[tuple[str, str, str, str]], size: int
) -> None:
    server = local_server()
    api = server.build_local_client()
    half = len(writes) // 2
    for each in writes[:half]:
        write(api, *each)
    handler, info = server.handler, server.core.find_type("pods")
    whole = [record.obj for record in handler.list(info, page_options()).records]
    page = handler.list(info, page_options(size))
    found = [record.obj for record in page.records]
    rest = iter(writes[half:])
    while page.continue_token:
        for each in islice(rest, 2):
            write(api, *each)
        page = handler.list(info, page_options(size, page.continue_token))
        found += [record.obj for record in page.records]
    assert found == whole


def page_options(limit: int = 0, token: str = "") -> ListOptions:
    return ListOptions(limit=limit, continue_token=token)
