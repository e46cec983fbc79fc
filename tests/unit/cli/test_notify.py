"""`dovetail notify`, and the sinks in `settings` and `validate`: what is shown, and that no secret is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.notify import build_examples
from dovetail.history.chain import DecisionChain
from dovetail.history.filters import wants_record
from dovetail.history.notify import NotifyRule, NotifySink
from dovetail.history.record import RecordDraft, RecordIds, RecordKind, stamp_record
from support.commands import Ended, dovetail

SECRET, TOKEN = "T0SECRET/B0SECRET", "xoxb-token-777"
HEAD = "apiVersion: dovetail.sh/v1alpha1\nkind: Notify\nsinks:\n"


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A web server in a thread, and what was posted to it: the content type and the body."""
    posts: list[tuple[str, bytes]] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.append((self.headers["Content-Type"], body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *about: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/services/{SECRET}", posts
        finally:
            server.shutdown()
            thread.join()


def write(tmp_path: Path, sinks: str) -> str:
    path = tmp_path / "notify.yaml"
    path.write_text(HEAD + sinks)
    return str(path)


def without_secrets(ended: Ended) -> Ended:
    for secret in (SECRET, "SECRET", TOKEN, "127.0.0.1"):
        assert secret not in ended.out
        assert secret not in ended.err
    return ended


@pytest.mark.spec("NO-9")
def test_a_test_sends_one_of_each_kind_that_a_sink_wants(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with receiver() as (url, posts):
        path = write(
            tmp_path,
            f"- {{name: hook, to: '{url}', format: slack, when: [{{kinds: [NodeGone, Interrupted]}}]}}\n"
            f"- {{name: five, to: '{url}', format: text, digest: 5m, when: [{{severity: warning}}]}}\n"
            f"- {{name: kept, to: 'file:{told}'}}\n"
            "- {name: here, to: stdout, format: text, when: [{kinds: [Expired]}]}\n",
        )
        ended = without_secrets(dovetail("notify", "test", "--file", path, "--cluster-name", "prod"))
    assert ended.code == 0
    slack = [json.loads(body)["text"] for kind, body in posts if kind == "application/json"]
    assert [text.partition(" ")[0] for text in slack] == ["prod:", "prod:"]
    assert "node example is gone" in slack[0]
    assert "node example is being interrupted" in slack[1]
    (digest,) = [body.decode() for kind, body in posts if kind.startswith("text/plain")]
    assert digest.startswith("prod: 11 decisions: ")
    kinds = [json.loads(line)["data"]["kind"] for line in told.read_text().splitlines()]
    assert kinds == list(RecordKind)
    assert "prod: " in ended.out
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["hook", "http", "slack", "2", "messages", "taken"] in rows
    assert ["five", "http", "text", "1", "message", "taken"] in rows


def test_a_test_of_one_sink_leaves_the_others_alone(tmp_path: Path) -> None:
    with receiver() as (url, posts):
        path = write(tmp_path, f"- {{name: hook, to: '{url}'}}\n- {{name: here, to: stdout, digest: 1m}}\n")
        ended = dovetail("notify", "test", "--sink", "here", env={"NOTIFY_FILE": path, "CLUSTER_NAME": "c"})
        assert ended.code == 0
        assert posts == []
        ended = dovetail("notify", "test", "--sink", "there", "--file", path)
        assert (ended.code, posts) == (1, [])
    assert "--sink there: there is no such sink" in ended.err
    assert "there are hook, here" in ended.err


@pytest.mark.spec("NO-9")
def test_a_sink_that_takes_nothing_is_named_and_the_command_ends_with_1(tmp_path: Path) -> None:
    with receiver(403) as (url, _):
        path = write(tmp_path, f"- {{name: hook, to: '{url}'}}\n- {{name: fine, to: stdout, digest: 1m}}\n")
        ended = without_secrets(dovetail("notify", "test", "--file", path, "-o", "json"))
    assert ended.code == 1
    document = json.loads(ended.out.partition("\n")[2] if ended.out.startswith('{"spec') else ended.out)
    assert document["sinks"] == [
        {"sink": "hook", "to": "http", "format": "cloudevents", "sent": 0, "error": "it answered 403"},
        {"sink": "fine", "to": "stdout", "format": "cloudevents", "sent": 1},
    ]


def test_examples_are_what_rules_ask_for() -> None:
    rules = (
        NotifyRule(kinds=("NodeGone",), reasons=("Underutilized",), pools=("prod-*",), min_saving="0.10"),
        NotifyRule(severity="warning", pools=("team-?",)),
    )
    sink = NotifySink(name="a", to="stdout", when=rules)
    examples = build_examples(sink, datetime.now(UTC))
    assert all(wants_record(sink, record) for record in examples)
    assert len({record.kind for record in examples}) == len(examples) == 12
    assert len({record.id for record in examples}) == 12


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A decision log of the last two hours."""
    folder = tmp_path / "decisions"
    folder.mkdir()
    start = datetime.now(UTC) - timedelta(hours=2)
    ids, chain = RecordIds("6f1c2ab0"), DecisionChain()

    def stamp(minutes: float, kind: RecordKind, subject: str, **about: Any) -> Any:
        time = start + timedelta(minutes=minutes)
        return stamp_record(RecordDraft(kind=kind, subject=subject, **about), ids.make_id(time), time, "one")

    lines = [chain.begin_term(stamp(0, RecordKind.TERM_BEGAN, "log/one"), None)]
    for number in range(12):
        about = {"pool": "prod-a" if number % 2 else "test", "reason": "Underutilized"}
        prices = {"price_before": 0.1 * number, "price_after": 0.0}
        gone = stamp(number, RecordKind.NODE_GONE, f"node/n-{number}", **about, **prices)
        lines.append(chain.link_record(gone))
    path = folder / f"decisions-{start:%Y%m%d-%H}.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(folder)


@pytest.mark.spec("NO-6")
def test_what_would_have_been_sent_is_shown_from_a_log(tmp_path: Path, log: str) -> None:
    path = write(
        tmp_path,
        f"- {{name: savings, to: 'https://hooks.example.test/{SECRET}', when: [{{kinds: [NodeGone], "
        'reasons: [Underutilized], pools: [prod-*], minSaving: "0.5"}]}\n'
        "- {name: five, to: stdout, digest: 5m, when: [{kinds: [NodeGone]}]}\n",
    )
    ended = without_secrets(dovetail("notify", "show", "--file", path, "--from", log, "--since", "3h"))
    assert ended.code == 0, ended.err
    rows = [line.split() for line in ended.out.splitlines()[1:] if line]
    savings = [row for row in rows if row[2:3] == ["savings"]]
    assert [row[5] for row in savings] == ["n-5", "n-7", "n-9", "n-11"]
    assert "13 records since" in ended.err
    ended = dovetail(
        "notify", "show", "--file", path, "--from", log, "--since", "3h", "--sink", "five", "-o", "json"
    )
    messages = json.loads(ended.out)["messages"]
    assert [(each["sink"], each["digest"], len(each["records"])) for each in messages] == [
        ("five", True, 5),
        ("five", True, 5),
        ("five", True, 2),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "--since", "yesterday"), "--since yesterday: write a duration such as 24h"),
        (("show", "--from", "x", "--kubeconfig", "y"), "--from and --kubeconfig exclude each other"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    ended = dovetail("notify", *arguments, "--file", write(tmp_path, "- {name: a, to: stdout}\n"))
    assert ended.code == 1
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_without_a_file_nothing_can_be_tried() -> None:
    ended = dovetail("notify", "test")
    assert ended.code == 2
    assert ended.err == "dovetail: no file of sinks is named; give --file, or set NOTIFY_FILE\n"


@pytest.mark.spec("NO-9")
def test_settings_shows_the_sinks_without_their_secrets(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        f"- name: oncall\n  to: https://user:{TOKEN}@hooks.example.test/{SECRET}\n  format: slack\n"
        f"  headers: {{Authorization: '{TOKEN}'}}\n"
        "  when: [{kinds: [NodeGone], pools: [prod-*], minSaving: '0.10'}, {severity: warning}]\n"
        "  quiet: [{schedule: '0 20 * * *', duration: 10h, timeZone: Europe/Berlin, except: [Interrupted]}]\n"
        "- {name: topic, to: 'sns:arn:aws:sns:eu-west-1:111122223333:SECRET'}\n",
    )
    for form in ("table", "json", "yaml"):
        ended = without_secrets(
            dovetail("settings", "-o", form, env={"CLUSTER_NAME": "prod", "NOTIFY_FILE": path})
        )
        assert ended.code == 0
        assert "oncall" in ended.out
        assert "NodeGone of prod-* that saves $0.10 an hour; any kind of severity warning" in ended.out
        assert "hooks.example.test" not in ended.out


def test_settings_says_what_is_wrong_with_the_file_and_ends_with_2(tmp_path: Path) -> None:
    path = write(tmp_path, "- {name: a, to: slack}\n")
    ended = dovetail("settings", env={"CLUSTER_NAME": "prod", "NOTIFY_FILE": path})
    assert ended.code == 2
    assert 'sinks[0].to: "slack" is no address; write https://…' in ended.err


@pytest.mark.spec("NO-8", "NO-9")
@pytest.mark.parametrize(
    "to",
    [
        f"file://hooks/{SECRET}",
        f"http://169.254.169.254/{SECRET}",
        f"https://[::ffff:169.254.169.254]/{SECRET}",
        f"ftp://hooks/{SECRET}",
        f"https://hooks:port/{SECRET}",
        f"https:///{SECRET}",
        TOKEN,
        f"sns:{SECRET}",
    ],
)
def test_validate_knows_the_file_and_repeats_no_address(tmp_path: Path, to: str) -> None:
    path = write(tmp_path, f"- name: oncall\n  to: '{to}'\n")
    ended = without_secrets(dovetail("validate", "-f", path))
    assert ended.code == 1
    assert f"{path}:5" in ended.out
    start = without_secrets(dovetail("controller", "--kubeconfig", "/none", env={"NOTIFY_FILE": path}))
    assert start.code == 2


@pytest.mark.spec("NO-9")
def test_a_file_that_is_no_yaml_is_complained_about_without_its_words(tmp_path: Path) -> None:
    for broken in (
        f"to: https://{SECRET}: x",
        f"- [{SECRET}",
        f"- 'https://{TOKEN}",
        f"\t- {TOKEN}",
        f"&{TOKEN}",
    ):
        path = write(tmp_path, f"- name: oncall\n  {broken}\n")
        ended = without_secrets(dovetail("validate", "-f", path))
        assert ended.code == 1
        ended = without_secrets(dovetail("notify", "test", "--file", path))
        assert ended.code == 2


def test_validate_takes_a_file_that_is_right(tmp_path: Path) -> None:
    ended = dovetail("validate", "-f", write(tmp_path, "- {name: a, to: stdout}\n"))
    assert ended.code == 0
    assert "1 object checked: 0 errors" in ended.err
    ended = dovetail(
        "validate", "-f", write(tmp_path, "- {name: a, to: stdout, when: [{kinds: [NodeGon]}]}\n")
    )
    assert ended.code == 1
    assert 'there is no kind "NodeGon"; did you mean NodeGone?' in ended.out
