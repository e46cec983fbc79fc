"""`dovetail history`: through the API server with the caller's rights, at an address, and its sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from dovetail.history.chain import DecisionChain
from dovetail.history.record import (
    DecisionRecord,
    RecordDraft,
    RecordIds,
    RecordKind,
    decode_record,
    stamp_record,
)
from dovetail.history.ring import HistoryQuery, HistoryRing
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.history_server import HistoryServer
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.http.replies import ServerReply, build_text_reply
from dovetail.sim.kube.status import ApiError
from support.apiserver_thread import served_elsewhere
from support.commands import Ended, dovetail

NODE, CLAIM, INSTANCE = "ip-10-0-4-12", "default-x7k2p", "i-0123456789abcdef0"


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


class Ring(HistoryRing):
    """A ring that is filled as a leader fills it."""

    def __init__(self) -> None:
        super().__init__()
        self._made = RecordIds("6f1c2ab0-1111-4222-8333-444455556666")

    def note(
        self, kind: RecordKind, subject: str, seconds: float, parent: str = "", **more: Any
    ) -> DecisionRecord:
        draft, time = RecordDraft(kind=kind, subject=subject, **more), ago(seconds)
        record = stamp_record(draft, self._made.make_id(time), time, "dovetail-7d9f4_1c2d", parent=parent)
        self.note_record(record)
        return record


@pytest.fixture
def ring() -> Ring:
    """The life of one node, and a record of another."""
    made = Ring()
    names = (CLAIM, f"aws:///eu-west-1a/{INSTANCE}")
    made.note(RecordKind.POD_UNSCHEDULABLE, "pod/shop/web-7", 3100)
    ordered = made.note(
        RecordKind.NODE_ORDERED, f"claim/{CLAIM}", 3000, pool="default", pods=("shop/web-7",)
    ).id
    made.note(
        RecordKind.NODE_READY,
        f"node/{NODE}",
        2900,
        ordered,
        pool="default",
        names=names,
        message="after 41 s",
    )
    made.note(RecordKind.NODE_BLOCKED, "node/other", 2000, pool="gpu", reason="pdb", message="held by a PDB")
    made.note(
        RecordKind.COMMAND_STARTED,
        "command/41c2aaaa",
        1000,
        pool="default",
        reason="Underutilized",
        names=(NODE, *names),
        message="Underutilized, delete: [ip-10-0-4-12]; saves $0.1920 an hour",
    )
    made.note(RecordKind.POD_EVICTED, "pod/shop/web-7", 990, pool="default", names=(NODE, *names))
    made.note(RecordKind.NODE_GONE, f"node/{NODE}", 900, pool="default", names=names, message="lived 35m")
    return made


@dataclass
class Cluster:
    """An API server with a Service, whoever stands behind it, and a kubeconfig."""

    server: ApiServer
    kubeconfig: Path

    def history(self, *arguments: str) -> Ended:
        return dovetail("history", *arguments, "--kubeconfig", str(self.kubeconfig))


def put_behind(
    server: ApiServer, ring: HistoryRing, followers: int = 0, name: str = "karpenter"
) -> list[str]:
    """Have a leader behind a Service, with so many followers that answer first; who was asked what."""
    asked: list[str] = []

    class Following:
        leading, leader = False, "dovetail-7d9f4_1c2d"

    leader, follower = HistoryServer(ring, SystemClock()), HistoryServer(ring, SystemClock(), Following())

    def answer(path: str, query: Iterable[tuple[str, str]], known: str) -> ServerReply:
        asked.append(path)
        if path != "history":
            return build_text_reply("404: Not Found", 404)
        reply = (follower if len(asked) <= followers else leader).answer(query, known)
        headers = tuple((key, value) for key, value in reply.headers.items() if key != "Content-Type")
        return ServerReply(reply.status, reply.body, reply.headers["Content-Type"], headers)

    document = {
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {"app.kubernetes.io/name": "karpenter"},
        },
        "spec": {"ports": [{"name": "http-metrics", "port": 8080}]},
    }
    server.build_local_client("helm").create("services", document)
    server.backends["kube-system", name, "http-metrics"] = answer
    return asked


@contextmanager
def served(server: ApiServer, folder: Path) -> Iterator[Cluster]:
    with served_elsewhere(server) as url:
        path = folder / "kubeconfig"
        document = {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(document))
        yield Cluster(server, path)


@pytest.fixture
def cluster(ring: Ring, tmp_path: Path) -> Iterator[Cluster]:
    server = ApiServer(SystemClock(), Random(1))
    put_behind(server, ring)
    with served(server, tmp_path) as running:
        yield running


@pytest.mark.spec("HI-7")
@pytest.mark.parametrize(
    "name",
    [
        *(NODE, f"node/{NODE}", CLAIM, f"nodeclaim/{CLAIM}", INSTANCE, f"aws:///eu-west-1a/{INSTANCE}"),
        *("shop/web-7", "pod/shop/web-7", "web-7"),
    ],
)
def test_a_node_is_found_by_name_claim_instance_and_a_pod_that_ran_on_it(cluster: Cluster, name: str) -> None:
    ended = cluster.history(name)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["TIME", "WHAT", "WHY"]
    assert any("ordered" in line for line in lines)
    assert any("evicted" in line for line in lines)
    assert not any("PDB" in line for line in lines)


def test_the_story_of_a_node_reads_from_top_to_bottom(cluster: Cluster) -> None:
    printed = cluster.history(NODE).out.splitlines()
    # Soon after midnight the times have their day.
    lines = [line[printed[0].index("WHAT") :] for line in printed]
    assert [line.split("  ")[0] for line in lines] == [
        "WHAT",
        f"nodeclaim {CLAIM} ordered",
        "ready",
        "command 41c2 started",
        "pod shop/web-7 evicted",
        "gone",
    ]
    assert lines[-1].split() == ["gone", "lived", "35m"]


def test_without_a_name_every_line_says_what_it_is_about(cluster: Cluster) -> None:
    ended = cluster.history()
    lines = ended.out.splitlines()
    assert lines[0].split() == ["TIME", "ABOUT", "WHAT", "WHY"]
    assert len(lines) == 8
    words = [" ".join(line.split()) for line in lines]
    assert any(" command 41c2 started " in line for line in words)
    assert any(" node other blocked " in line for line in words)


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        (("pool/gpu",), ["NodeBlocked"]),
        (("nodepool/gpu",), ["NodeBlocked"]),
        (("--pool", "gpu"), ["NodeBlocked"]),
        (("--kind", "NodeGone", "--kind", "NodeReady"), ["NodeReady", "NodeGone"]),
        (("--reason", "Underutilized"), ["CommandStarted"]),
        (("--acts", "--pool", "gpu"), []),
        (("--since", "16m"), ["NodeGone"]),
        (("--until", "40m", NODE), ["NodeOrdered", "NodeReady"]),
    ],
)
def test_what_is_asked_for_is_what_is_shown(
    cluster: Cluster, arguments: tuple[str, ...], kinds: list[str]
) -> None:
    ended = cluster.history(*arguments, "-o", "jsonl")
    assert ended.code == 0
    assert [decode_record(line.encode()).kind for line in ended.out.splitlines()] == kinds


def test_programs_get_the_records_themselves(cluster: Cluster, ring: Ring) -> None:
    told = json.loads(cluster.history(NODE, "-o", "json").out)
    assert [each["kind"] for each in told["records"]][-1] == "NodeGone"
    assert told["remembersSince"].endswith("Z")
    assert yaml.safe_load(cluster.history(NODE, "-o", "yaml").out)["records"][0]["kind"] == "NodeOrdered"


def test_a_name_nothing_is_known_of_gets_the_nearest(cluster: Cluster) -> None:
    ended = cluster.history("node/ip-10-0-4-13")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("nothing is remembered of node/ip-10-0-4-13 since 20")
    assert "; what is remembered begins at 20" in ended.err
    assert ended.err.endswith("; did you mean ip-10-0-4-12?\n")
    assert ended.err.count("\n") == 1


def test_an_empty_answer_says_what_was_asked(cluster: Cluster) -> None:
    ended = cluster.history("--kind", "Expired", "--pool", "gpu", "--acts", "--reason", "x")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith(
        "nothing that was done is remembered in pool gpu of kind Expired for the reason x since 20"
    )
    empty = cluster.history("--kind", "Expired", "-o", "json")
    assert json.loads(empty.out)["records"] == []


def test_more_lines_than_anybody_reads_are_cut_and_all_are_shown_when_asked_for(tmp_path: Path) -> None:
    ring, server = Ring(), ApiServer(SystemClock(), Random(1))
    for number in range(12_000):
        ring.note(RecordKind.NODE_GONE, f"node/n{number}", (12_000 - number) / 10)
    put_behind(server, ring)
    with served(server, tmp_path) as cluster:
        few = cluster.history("-o", "jsonl")
        every = cluster.history("-o", "jsonl", "--all")
    assert few.out.count("\n") == 100
    assert few.err == "note: these are the newest 100 lines of that time; --all shows the others\n"
    subjects = [decode_record(line.encode()).subject for line in every.out.splitlines()]
    assert subjects == [f"node/n{number}" for number in range(12_000)]
    assert every.err == ""


def test_a_follower_is_asked_again_until_the_leader_answers(ring: Ring, tmp_path: Path) -> None:
    server = ApiServer(SystemClock(), Random(1))
    asked = put_behind(server, ring, followers=5)
    with served(server, tmp_path) as cluster:
        assert cluster.history(NODE).code == 0
    assert len(asked) == 6
    with served(server, tmp_path) as cluster:
        server.backends["kube-system", "karpenter", "http-metrics"] = lambda path, query, known: ServerReply(
            503,
            b"this process does not lead; a_b does, and the history is the leader's\n",
            "text/plain",
            (("Dovetail-Leader", "a_b"),),
        )
        ended = cluster.history(NODE)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "dovetail: asking Service kube-system/karpenter for its history: this process does not lead; "
        "a_b does, and the history is the leader's\n"
    )


class Without:
    """A caller who lacks a right."""

    def __init__(self, resource: str) -> None:
        self._resource = resource

    def find_fault(self, call: ApiCall) -> Fault | None:
        asked = f"{call.resource}/{call.subresource}" if call.subresource else call.resource
        if asked != self._resource:
            return None
        told = f'services "{call.name}" is forbidden: User "jane" cannot {call.verb} resource "{asked}"'
        return Fault(error=ApiError(403, "Forbidden", told))


@pytest.mark.spec("HI-10")
def test_without_the_right_the_error_is_one_sentence_that_names_the_verb(cluster: Cluster) -> None:
    cluster.server.faults = Without("services/proxy")
    ended = cluster.history(NODE)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert ended.err.startswith("dovetail: asking the cluster at http://127.0.0.1:")
    assert ended.err.endswith(
        " for its history: it takes the verb get on services/proxy in namespace kube-system "
        "(of karpenter:http-metrics), which you do not have\n"
    )


@pytest.mark.spec("HI-10")
def test_who_may_not_list_services_is_answered_where_the_chart_puts_it(cluster: Cluster) -> None:
    cluster.server.faults = Without("services")
    assert cluster.history(NODE).code == 0


def test_a_cluster_without_a_controller_says_what_to_do(tmp_path: Path) -> None:
    with served(ApiServer(SystemClock(), Random(1)), tmp_path) as cluster:
        ended = cluster.history(NODE)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "there is no Service of a controller" in ended.err
    assert "give --from the address of the controller's metrics port, or a decision log" in ended.err


def test_a_controller_that_is_not_ours_is_passed_over(ring: Ring, tmp_path: Path) -> None:
    server = ApiServer(SystemClock(), Random(1))
    put_behind(server, ring, name="zz-dovetail")
    put_behind(server, ring, name="karpenter")
    theirs = "kube-system", "karpenter", "http-metrics"
    server.backends[theirs] = lambda path, query, known: build_text_reply("404 page not found", 404)
    with served(server, tmp_path) as cluster:
        assert cluster.history(NODE).code == 0
        del server.backends["kube-system", "zz-dovetail", "http-metrics"]
        ended = cluster.history(NODE)
        assert ended.err == (
            "dovetail: asking Service kube-system/zz-dovetail for its history: no endpoints available for "
            'service "zz-dovetail:http-metrics"\n'
        )
        server.build_local_client("helm").delete("services", "zz-dovetail", "kube-system")
        ended = cluster.history(NODE)
    assert ended.err.endswith(
        ": Service kube-system/karpenter has none; what answers there is no Dovetail of this version\n"
    )


def test_a_ring_that_is_switched_off_says_so(tmp_path: Path) -> None:
    server = ApiServer(SystemClock(), Random(1))
    put_behind(server, HistoryRing(timedelta()))
    with served(server, tmp_path) as cluster:
        ended = cluster.history()
    assert (ended.code, ended.out) == (2, "")
    assert "has none; no history is kept here: HISTORY_KEEP is 0s" in ended.err


def test_an_address_is_asked_in_place_of_the_cluster(cluster: Cluster) -> None:
    server = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    path = "/api/v1/namespaces/kube-system/services/karpenter:http-metrics/proxy/history"
    assert "gone" in dovetail("history", NODE, "--from", server + path).out
    wrong = dovetail("history", "--from", server)
    assert (wrong.code, wrong.err) == (2, f"dovetail: asking {server} for its history: 404 page not found\n")
    page = dovetail("history", "--from", f"{server}/version")
    assert (page.code, page.out) == (2, "")
    assert page.err == f"dovetail: asking {server} for its history: what answers there is no history\n"


def test_a_folder_is_read_in_place_of_the_cluster(ring: Ring, tmp_path: Path) -> None:
    chain = DecisionChain()
    begun = ring.note(RecordKind.TERM_BEGAN, "log/dovetail-7d9f4_1c2d", 3600)
    lines = [chain.begin_term(begun)]
    lines += [chain.link_record(each) for each in reversed(ring.find_records(HistoryQuery(acts_only=True)))]
    name = f"decisions-{ago(0):%Y%m%d-%H}.jsonl"
    (tmp_path / name).write_bytes(b"".join(line + b"\n" for line in lines))
    ended = dovetail("history", NODE, "--from", str(tmp_path))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1].split()[1:] == ["gone", "lived", "35m"]
    assert "ready" not in dovetail("history", NODE, "--from", str(tmp_path), "--since", "20m").out
    nobody = dovetail("history", "ip-10-0-4-13", "--from", str(tmp_path))
    assert nobody.err.endswith("; did you mean ip-10-0-4-12?\n")


def test_a_folder_without_a_log_says_how_one_is_written(tmp_path: Path) -> None:
    ended = dovetail("history", "--from", str(tmp_path))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"dovetail: reading history in {tmp_path}: there is no decision log in it; "
        "it is written with DECISION_LOG=file:…\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--since", "yesterday"),
            "--since yesterday: write a duration such as 24h, or a time such as 2026-11-02T03:00:00Z",
        ),
        (
            ("--until", "\x1b[31mnow"),
            "--until \\u001b[31mnow: write a duration such as 24h, or a time such as 2026-11-02T03:00:00Z",
        ),
        (("--since", "1h", "--until", "2h"), "--until 2h is before --since 1h; exchange them"),
        (
            ("--from", "http://:1/x", "a"),
            "--from: write the address as http://host:port, and what is asked as options",
        ),
        (
            ("--from", "http://a:99999999", "a"),
            "--from: write the address as http://host:port, and what is asked as options",
        ),
        (("--from", "http://a", "--context", "b"), "--from and --context exclude each other; leave one out"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    ended = dovetail("history", *arguments)
    assert (ended.code, ended.out, ended.err) == (1, "", f"dovetail: {said}\n")


def test_an_unknown_kind_lists_the_kinds_and_the_nearest() -> None:
    ended = dovetail("history", "--kind", "NodeTerminated")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "--kind NodeTerminated: there is no such kind; did you mean NodeGone? There are " in ended.err
    assert all(kind in ended.err for kind in RecordKind)


def test_nobody_at_the_address_is_one_sentence() -> None:
    ended = dovetail("history", "--from", "http://user:secret@127.0.0.1:1")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith("dovetail: asking http://127.0.0.1:1 for its history: ")
    assert "secret" not in ended.err


def test_hostile_names_are_spelled_out(tmp_path: Path) -> None:
    ring, server = Ring(), ApiServer(SystemClock(), Random(1))
    ring.note(RecordKind.NODE_GONE, "node/\x1b[31mred", 5, message="\x07bell\nand <b>", pool="default")
    put_behind(server, ring)
    with served(server, tmp_path) as cluster:
        for arguments in ((), ("pool/default",), ("\x1b[31mred",), ("-o", "yaml")):
            ended = cluster.history(*arguments)
            assert ended.code == 0
            assert not {"\x1b", "\x07"} & {*ended.out, *ended.err}
        nobody = cluster.history("\x1b[31mrde")
    assert "\x1b" not in nobody.err
    assert nobody.err.endswith("; did you mean \\u001b[31mred?\n")
