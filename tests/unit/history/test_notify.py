"""The Notify document: what is right is read, what is wrong is told with its line and the nearest name."""

from __future__ import annotations

import pytest

from dovetail.history.notify import MOST_SINKS, HeaderFile, Notify, describe_complaint, parse_notify

GOOD = """\
apiVersion: dovetail.sh/v1alpha1
kind: Notify
sinks:
  - name: oncall
    to: https://hooks.example.test/services/T0K3N
    format: slack
    headers: {Authorization: {file: /etc/dovetail/token}, X-Team: infra}
    when:
      - {kinds: [Interrupted, CommandTakenBack, DriftPaused, NodeGivenUp]}
      - {kinds: [NodeGone], reasons: [Underutilized], pools: [prod-*], minSaving: "0.10"}
      - {severity: warning}
    digest: 5m
    quiet: [{schedule: "0 20 * * *", duration: 10h, timeZone: Europe/Berlin, except: [Interrupted]}]
  - {name: topic, to: "sns:arn:aws:sns:eu-west-1:123456789012:decisions"}
  - {name: bus, to: "eventbridge:arn:aws:events:eu-west-1:123456789012:event-bus/default"}
  - {name: kept, to: "file:/var/lib/dovetail/told", format: text}
  - {name: out, to: stdout}
"""


def told(text: str) -> list[str]:
    found = parse_notify(text, "notify.yaml")
    assert (found.notify is None) == bool(found.complaints)
    return [describe_complaint(each) for each in found.complaints]


def read(text: str) -> Notify:
    found = parse_notify(text, "notify.yaml")
    assert found.notify is not None, found.complaints
    return found.notify


def test_a_document_is_read() -> None:
    first, *others = read(GOOD).sinks
    assert first.headers == {"Authorization": HeaderFile(file="/etc/dovetail/token"), "X-Team": "infra"}
    assert first.quiet[0].except_kinds == ("Interrupted",)
    assert first.digest_window.total_seconds() == 300
    assert [each.format for each in others] == ["cloudevents", "cloudevents", "text", "cloudevents"]


def test_an_unknown_kind_is_told_with_its_line_and_the_nearest() -> None:
    assert told(GOOD.replace("[NodeGone]", "[NodeTerminated]")) == [
        'notify.yaml, line 10: there is no kind "NodeTerminated"; did you mean NodeGone?'
    ]
    assert told(GOOD.replace("[NodeGone]", "[Interupted]"))[0].endswith("did you mean Interrupted?")
    assert told(GOOD.replace("except: [Interrupted]", "except: [Drift]"))[0].startswith(
        "notify.yaml, line 13: "
    )


def test_an_address_that_is_none_is_told_with_what_to_write() -> None:
    (complaint,) = told(GOOD.replace("to: stdout", "to: slack"))
    assert complaint == (
        'notify.yaml, line 17: sinks[4].to: "slack" is no address; '
        "write https://…, sns:…, eventbridge:…, file:… or stdout"
    )


WRONG = {
    "format: slack": ("format: slak", 'there is no format "slak"; did you mean slack?'),
    "digest: 5m": ("digest: soon", '"soon" is no duration, such as 5m or 10h'),
    "digest: 5m ": (
        "digest: 5m\n    diggest: 1m",
        "sinks[0].diggest: there is no such field; did you mean digest?",
    ),
    'minSaving: "0.10"': (
        "minSaving: 0.10",
        "sinks[0].when[1].minSaving: Expected str, got float; put it in quotes",
    ),
    '"0.10"': ('"ten"', "sinks[0].when[1].minSaving: dollars an hour are written as"),
    "severity: warning": ("severity: warn", 'there is no severity "warn"; did you mean warning?'),
    "0 20 * * *": ("0 25 * * *", "write five cron fields, such as 0 20 * * *"),
    '"0 20 * * *"': ('"@every 5m"', "sinks[0].quiet[0].schedule: write five cron fields"),
    "duration: 10h": ("duration: 0s", "0s must be more than 0s"),
    "10h": ("1000h", "1000h is longer than 168h"),
    "Europe/Berlin": ("Europe/Berlinn", "there is no such time zone; write a name such as Europe/Berlin"),
    "Europe/Berlin,": ("../etc/passwd,", "there is no such time zone"),
    "name: topic": ("name: oncall", "sinks: oncall is there 2 times; give each a name of its own"),
    "name: out": ("name: O t", "sinks[4].name: a name has small letters"),
    "sns:arn:aws:sns": ("sns:arn:aws:sqs", "write the ARN of the topic"),
    "event-bus/default": ("rule/default", "write the ARN of the bus"),
    "file:/var": ("file:var", "a file is named by its whole path"),
    "file: /etc": ("file: etc", "sinks[0].headers.Authorization: a file is named by its whole path"),
    "to: stdout": ("to: stdout, headers: {A: b}", "only a sink with a URL has headers"),
    "kind: Notify": ("kind: Notifi", "write apiVersion: dovetail.sh/v1alpha1 and kind: Notify"),
    "name: out, ": ("", "Object missing required field name"),
}


@pytest.mark.parametrize(("good", "bad"), WRONG.items())
def test_what_is_wrong_is_told_in_a_sentence_with_its_line(good: str, bad: tuple[str, str]) -> None:
    assert good.strip() in GOOD
    complaints = told(GOOD.replace(good.strip(), bad[0], 1))
    assert any(bad[1] in each for each in complaints), complaints
    assert all(each.startswith("notify.yaml, line ") for each in complaints)


@pytest.mark.spec("NO-8")
@pytest.mark.parametrize(
    "address",
    [
        *(
            "https://169.254.169.254/latest",
            "http://169.254.0.1",
            "https://[fe80::1]/x",
            "file:///etc/passwd",
        ),
        *("https://", "https://a b/", "https://host:port/", "ftp://host/"),
    ],
)
def test_an_address_that_must_not_be_written_to_is_refused_and_not_repeated(address: str) -> None:
    complaint, *_ = told(GOOD.replace("https://hooks.example.test/services/T0K3N", f'"{address}"'))
    assert "sinks[0].to: " in complaint
    assert address not in complaint


@pytest.mark.spec("NO-9")
@pytest.mark.parametrize(
    "change",
    [
        ("https://hooks.example.test", "hooks.example.test"),
        ("https://hooks.example.test", "htps://hooks.example.test"),
        ("https://hooks", "https://ho oks"),
        ("to: https", "too: https"),
        ("format: slack", "format: [slack"),
        ("{file: /etc/dovetail/token}", "{fil: T0K3N}"),
    ],
)
def test_no_complaint_repeats_a_secret(change: tuple[str, str]) -> None:
    complaints = told(GOOD.replace(*change))
    assert complaints
    assert "T0K3N" not in "".join(complaints)


def test_more_sinks_than_possible_are_refused() -> None:
    head = "apiVersion: dovetail.sh/v1alpha1\nkind: Notify\nsinks:\n"
    sinks = [f"  - {{name: s{number}, to: stdout}}\n" for number in range(MOST_SINKS + 1)]
    assert len(read(head + "".join(sinks[:-1])).sinks) == MOST_SINKS
    assert told(head + "".join(sinks)) == [
        "notify.yaml, line 3: sinks: there are 41, and 40 at most are possible"
    ]


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\x00", GOOD + "---\n" + GOOD, "sinks: 5"])
def test_what_is_no_document_is_told_and_never_raised(text: str) -> None:
    assert told(text)
