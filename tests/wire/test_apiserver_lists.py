"""Lists and watches over the wire."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.http.streams import BACKLOG
from support.apiserver import TABLE, Http, config_map, definition, pod, serving, widget

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def fill(server: ApiServer, count: int) -> None:
    for index in range(count):
        server.build_local_client().create("configmaps", config_map(f"m{index:02}"))


def names(document: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in document["items"]]


async def test_a_list_is_ordered_by_namespace_then_name_and_carries_the_global_revision() -> None:
    async with serving() as http:
        for namespace, name in (("kube-system", "a"), ("default", "b"), ("default", "a")):
            http.server.build_local_client().create("configmaps", config_map(name, namespace))
        listed = await http.get("/api/v1/configmaps")
        places = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed["items"]]
        assert places == [("default", "a"), ("default", "b"), ("kube-system", "a")]
        assert listed["metadata"] == {"resourceVersion": str(http.server.store.revision)}


async def test_pages_come_from_one_snapshot_whatever_happens_between_them() -> None:
    async with serving() as http:
        fill(http.server, 5)
        first = await http.get(f"{MAPS}?limit=2")
        assert first["metadata"]["remainingItemCount"] == 3
        local = http.server.build_local_client()
        local.delete("configmaps", "m02", "default")
        local.create("configmaps", config_map("m025"))
        local.patch("configmaps", "m03", {"data": {"new": "1"}}, "default")
        second = await http.get(f"{MAPS}?limit=2&continue={first['metadata']['continue']}")
        third = await http.get(f"{MAPS}?limit=2&continue={second['metadata']['continue']}")
        assert names(first) + names(second) + names(third) == [f"m{i:02}" for i in range(5)]
        assert "data" not in second["items"][1]
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        assert "continue" not in third["metadata"]


async def test_a_selected_page_does_not_count_what_remains() -> None:
    async with serving() as http:
        fill(http.server, 3)
        page = await http.get(f"{MAPS}?limit=1&labelSelector=!x")
        assert page["metadata"]["continue"]
        assert "remainingItemCount" not in page["metadata"]


async def test_a_page_after_compaction_is_gone() -> None:
    async with serving() as http:
        fill(http.server, 3)
        first = await http.get(f"{MAPS}?limit=1")
        fill_more = http.server.build_local_client()
        fill_more.create("configmaps", config_map("z"))
        http.server.store.compact()
        answer = await http.get(f"{MAPS}?limit=1&continue={first['metadata']['continue']}", 410)
        assert answer["reason"] == "Expired"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("continue=nonsense!", 400),
        ("continue=e30", 400),
        ("limit=x", 400),
        ("resourceVersion=abc", 400),
        ("resourceVersion=-1", 400),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("resourceVersion=1&resourceVersionMatch=Sometimes", 422),
        ("labelSelector=a+in+(b", 400),
        ("labelSelector=a=b=c", 400),
        ("labelSelector=,", 400),
        ("fieldSelector=spec.nothing=1", 400),
        ("fieldSelector=spec", 400),
        ("watch=1&resourceVersion=abc", 400),
        ("watch=1&sendInitialEvents=true", 422),
        ("watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1", 422),
        ("watch=1&fieldSelector=spec.nothing=1", 400),
    ],
)
async def test_bad_list_options_are_refused(query: str, code: int) -> None:
    async with serving() as http:
        assert (await http.get(f"{MAPS}?{query}", code))["kind"] == "Status"


async def test_an_exact_revision_shows_the_past() -> None:
    async with serving() as http:
        local = http.server.build_local_client()
        made = local.create("configmaps", config_map("a", x="1"))
        local.patch("configmaps", "a", {"data": {"x": "2"}}, "default")
        local.create("configmaps", config_map("b"))
        version = made["metadata"]["resourceVersion"]
        then = await http.get(f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")
        assert [item["data"] for item in then["items"]] == [{"x": "1"}]
        assert then["metadata"]["resourceVersion"] == version
        for query in (
            f"resourceVersion={version}",
            f"resourceVersion={version}&resourceVersionMatch=NotOlderThan",
        ):
            assert names(await http.get(f"{MAPS}?{query}")) == ["a", "b"]
        assert names(await http.get(f"{MAPS}?resourceVersion=0")) == ["a", "b"]
        http.server.store.compact()
        query = f"resourceVersion={version}&resourceVersionMatch=Exact"
        assert (await http.get(f"{MAPS}?{query}", 410))["reason"] == "Expired"


async def test_a_revision_from_the_future_is_waited_for_and_then_refused() -> None:
    async with serving() as http:
        future = http.server.store.revision + 1
        waiting = asyncio.ensure_future(http.get(f"{MAPS}?resourceVersion={future}"))
        await asyncio.sleep(0.1)
        http.server.build_local_client().create("configmaps", config_map("a"))
        assert names(await waiting) == ["a"]
        answer = await http.get(f"{MAPS}?resourceVersion=99999", 504)
        assert answer["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert (answer["details"]["retryAfterSeconds"], http.headers["Retry-After"]) == (1, "1")


async def test_a_watch_without_a_version_starts_with_what_is_there() -> None:
    async with serving() as http:
        fill(http.server, 2)
        for query in ("watch=true", "watch=1&resourceVersion=0"):
            async with http.watch(f"{MAPS}?{query}") as lines:
                assert await lines.take(2) == [("ADDED", "m00"), ("ADDED", "m01")]


async def test_a_watch_from_a_list_sees_everything_after_it_in_order() -> None:
    async with serving() as http:
        local = http.server.build_local_client()
        version = (await http.get(MAPS))["metadata"]["resourceVersion"]
        local.create("configmaps", config_map("a"))
        async with http.watch(f"{MAPS}?watch=1&resourceVersion={version}") as lines:
            assert await lines.take(1) == [("ADDED", "a")]
            local.patch("configmaps", "a", {"data": {"x": "1"}}, "default")
            local.create("configmaps", config_map("elsewhere", namespace="kube-system"))
            local.delete("configmaps", "a", "default")
            assert await lines.take(2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_from_before_what_is_remembered_says_410_and_closes() -> None:
    async with serving() as http:
        fill(http.server, 3)
        http.server.store.compact()
        async with http.watch(f"{MAPS}?watch=1&resourceVersion=2") as lines:
            event = await lines.next()
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            assert event["object"]["reason"] == "Expired"
            assert await lines.next() == {}


async def test_a_watch_from_the_future_stays_quiet_until_it_comes() -> None:
    async with serving() as http:
        ahead = http.server.store.revision + 2
        async with http.watch(f"{MAPS}?watch=1&resourceVersion={ahead}") as lines:
            fill(http.server, 3)
            assert await lines.take(1) == [("ADDED", "m02")]


async def test_bound_pods_enter_and_leave_a_watch_by_node() -> None:
    async with serving() as http:
        local = http.server.build_local_client()
        local.create("pods", pod("a"))
        async with http.watch("/api/v1/pods?watch=1&fieldSelector=spec.nodeName=n1") as lines:
            local.bind("a", "default", "n1")
            event = await lines.next()
            assert (event["type"], event["object"]["spec"]["nodeName"]) == ("ADDED", "n1")
        async with http.watch(f"{PODS}?watch=1&labelSelector=app=web") as lines:
            assert await lines.take(1) == [("ADDED", "a")]
            after = local.patch("pods", "a", {"metadata": {"labels": {"app": "api"}}}, "default")
            event = await lines.next()
            assert event["type"] == "DELETED"
            assert event["object"]["metadata"]["labels"] == {"app": "web"}
            assert event["object"]["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_a_watch_list_ends_its_beginning_with_an_annotated_bookmark() -> None:
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with serving() as http:
        fill(http.server, 2)
        async with http.watch(f"{MAPS}?{query}") as lines:
            assert await lines.take(2) == [("ADDED", "m00"), ("ADDED", "m01")]
            end = await lines.next()
            assert end == {
                "type": "BOOKMARK",
                "object": {
                    "kind": "ConfigMap",
                    "apiVersion": "v1",
                    "metadata": {
                        "resourceVersion": str(http.server.store.revision),
                        "annotations": {"k8s.io/initial-events-end": "true"},
                    },
                },
            }
            http.server.build_local_client().create("configmaps", config_map("z"))
            assert await lines.take(1) == [("ADDED", "z")]


async def test_without_initial_events_a_watch_starts_now() -> None:
    query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with serving() as http:
        fill(http.server, 2)
        async with http.watch(f"{MAPS}?{query}") as lines:
            http.server.build_local_client().create("configmaps", config_map("z"))
            assert await lines.take(1) == [("ADDED", "z")]


async def test_bookmarks_come_to_those_who_ask() -> None:
    async with serving() as http:
        revision = http.server.store.revision
        path = f"{MAPS}?watch=1&resourceVersion={revision}"
        async with http.watch(f"{path}&allowWatchBookmarks=true") as asking, http.watch(path) as other:
            fill(http.server, 1)
            http.server.send_bookmarks()
            assert await asking.take(1) == [("ADDED", "m00")]
            mark = await asking.next()
            assert (mark["type"], mark["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
            assert mark["object"]["metadata"]["resourceVersion"] == str(http.server.store.revision)
            http.server.build_local_client().create("configmaps", config_map("z"))
            assert await other.take(2) == [("ADDED", "m00"), ("ADDED", "z")]


async def test_a_timeout_ends_the_stream_cleanly_with_a_last_bookmark() -> None:
    async with serving() as http:
        query = "watch=1&timeoutSeconds=1&allowWatchBookmarks=1&resourceVersion=1"
        async with http.session.get(f"/api/v1/nodes?{query}") as response:
            lines = [json.loads(line) async for line in response.content]
        assert [line["type"] for line in lines] == ["BOOKMARK"]
        assert await http.get("/healthz") == "ok"


async def test_a_table_watch_describes_its_columns_once() -> None:
    async with serving() as http:
        fill(http.server, 2)
        async with http.watch(f"{MAPS}?watch=1", headers={"Accept": TABLE}) as lines:
            first, second = await lines.next(), await lines.next()
        assert first["object"]["columnDefinitions"][0]["name"] == "Name"
        assert second["object"]["columnDefinitions"] is None
        assert [row["cells"][0] for row in second["object"]["rows"]] == ["m01"]


async def test_a_metadata_watch_carries_metadata_only() -> None:
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    async with serving() as http:
        fill(http.server, 1)
        async with http.watch(f"{MAPS}?watch=1", headers={"Accept": accept}) as lines:
            event = await lines.next()
        assert set(event["object"]) == {"kind", "apiVersion", "metadata"}


async def test_a_closed_client_frees_its_watch_promptly() -> None:
    async with serving() as http:
        listeners = http.server.store.get_bucket("configmaps").listeners
        async with http.watch(f"{MAPS}?watch=1"):
            assert len(listeners) == 1
        for _ in range(50):
            if not listeners:
                break
            await asyncio.sleep(0.02)
        assert not listeners


async def test_a_consumer_that_does_not_keep_up_is_cut_off() -> None:
    async with serving() as http:
        info = http.server.core.find_type("configmaps")
        watch = http.server.handler.watch(
            info, "", http.server.handler.parse_selector(info, "", ""), backlog=BACKLOG
        )
        local = http.server.build_local_client()
        for index in range(BACKLOG + 1):
            local.create("configmaps", config_map(f"c{index}"))
        assert watch.closed
        assert watch.take_notices() == []


async def test_deleting_a_definition_ends_its_watches() -> None:
    async with serving() as http:
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await http.post(crds, definition())
        await http.post("/apis/example.com/v1/namespaces/default/widgets", widget("w"))
        async with http.watch("/apis/example.com/v1/widgets?watch=1") as lines:
            assert await lines.take(1) == [("ADDED", "w")]
            await http.delete(f"{crds}/widgets.example.com")
            assert await lines.take(1) == [("DELETED", "w")]
            assert await lines.next() == {}
        await http.get("/apis/example.com/v1/widgets", 404)


async def test_deletecollection_deletes_what_matches_and_lists_it() -> None:
    async with serving() as http:
        fill(http.server, 3)
        http.server.build_local_client().patch(
            "configmaps", "m01", {"metadata": {"labels": {"keep": "1"}}}, "default"
        )
        deleted = await http.delete(f"{MAPS}?labelSelector=!keep")
        assert deleted["kind"] == "ConfigMapList"
        assert names(deleted) == ["m00", "m02"]
        assert names(await http.get(MAPS)) == ["m01"]


async def test_a_watcher_resumes_after_a_cut_without_loss_or_repetition() -> None:
    async with serving() as http:
        local = http.server.build_local_client()
        seen: list[str] = []
        version = "1"
        for part in range(5):
            async with http.watch(f"{MAPS}?watch=1&resourceVersion={version}") as lines:
                for index in range(3):
                    local.create("configmaps", config_map(f"p{part}{index}"))
                for _ in range(2):
                    event = await lines.next()
                    seen.append(event["object"]["metadata"]["name"])
                    version = event["object"]["metadata"]["resourceVersion"]
        async with http.watch(f"{MAPS}?watch=1&resourceVersion={version}") as lines:
            seen += [name for _, name in await lines.take(5)]
        assert seen == [f"p{part}{index}" for part in range(5) for index in range(3)]


async def test_faults_delay_refuse_reset_and_age_answers(http_with_faults: Http) -> None:
    http = http_with_faults
    http.server.build_local_client().create("configmaps", config_map("a", x="1"))
    http.server.build_local_client().patch("configmaps", "a", {"data": {"x": "2"}}, "default")
    assert (await http.get(f"{MAPS}/a", headers={"User-Agent": "stale/1"}))["data"] == {"x": "1"}
    old = await http.get(MAPS, headers={"User-Agent": "stale/1"})
    assert [item["data"] for item in old["items"]] == [{"x": "1"}]
    answer = await http.get(f"{MAPS}/a", 429, headers={"User-Agent": "busy/1"})
    assert (answer["reason"], http.headers["Retry-After"]) == ("TooManyRequests", "7")
    with pytest.raises(aiohttp.ClientError):
        await http.get(f"{MAPS}/a", headers={"User-Agent": "reset/1"})
    async with http.watch(f"{MAPS}?watch=1&resourceVersion=1", headers={"User-Agent": "expire/1"}) as lines:
        assert await lines.take(1) == [("ADDED", "a")]
        assert (await lines.next())["object"]["code"] == 410
    with pytest.raises(aiohttp.ClientError):
        await http.post(MAPS, config_map("b"), headers={"User-Agent": "late/1"})
    assert (await http.get(f"{MAPS}/b"))["metadata"]["name"] == "b"
