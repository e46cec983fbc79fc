"""Log lines: the keys operators' tools parse, sampled, and with libraries on board."""

from __future__ import annotations

import json
import logging
import re
import sys
from errno import ENOSPC
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from dovetail import logs as messages
from dovetail.errors import Misconfigured, Retry
from dovetail.runtime import logs
from support.log_lines import log_lines, open_json_lines
from support.logs import kept_logs

Capture = pytest.CaptureFixture[str]


HEARD = messages.info("a node was given a name", "In this test.", ("Node",), ours=True)
AUDITED = messages.audit("a field was written", "In this test.", ("field",))
messages.MESSAGES.pop(HEARD.text), messages.MESSAGES.pop(AUDITED.text)


def lines(capsys: Capture) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_has_zaps_keys_in_zaps_order(capsys: Capture) -> None:
    logs.configure_logging("info", commit="abc1234")
    with logs.bind_context(controller="provisioner", name="default", reconcileID="r-1"):
        messages.get_logger().info("found provisionable pods", Pods="a, b", NodePool={"name": "default"})
    (line,) = lines(capsys)
    assert list(line)[:5] == ["level", "time", "logger", "message", "commit"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "INFO",
        "logger": "controller",
        "message": "found provisionable pods",
        "commit": "abc1234",
        "controller": "provisioner",
        "name": "default",
        "reconcileID": "r-1",
        "Pods": "a, b",
        "NodePool": {"name": "default"},
    }


def test_the_context_ends_with_its_block(capsys: Capture) -> None:
    logs.configure_logging("info")
    with logs.bind_context(controller="a"), logs.bind_context(controller="b"):
        messages.get_logger().info("inside")
    messages.get_logger().info("outside")
    assert [line.get("controller") for line in lines(capsys)] == ["b", None]


def test_levels_are_those_of_zap_and_lower_ones_are_dropped(capsys: Capture) -> None:
    logs.configure_logging("info")
    log = messages.get_logger("controller.sub")
    log.debug("no")
    log.info("one")
    log.warning("two")
    log.error("three")
    found = lines(capsys)
    assert [line["level"] for line in found] == ["INFO", "WARN", "ERROR"]
    assert found[0]["logger"] == "controller.sub"
    assert "caller" not in found[0]


def test_only_at_debug_level_is_the_caller_named(capsys: Capture) -> None:
    logs.configure_logging("debug")
    messages.get_logger().debug("here")
    assert re.fullmatch(r"runtime/test_logs.py:\d+", lines(capsys)[0]["caller"])


def test_an_error_is_text_and_has_no_stack(capsys: Capture) -> None:
    logs.configure_logging("info")
    try:
        raise Retry("creating instance: no capacity")
    except Retry as error:
        messages.get_logger().error("reconciler error", error=error)
    text = capsys.readouterr().out
    line = msgspec.json.decode(text)
    assert line["error"] == "creating instance: no capacity"
    assert "Traceback" not in text


def test_a_flood_of_one_message_is_sampled_and_others_are_not() -> None:
    sampler = logs.Sampler()
    kept = 0
    for _ in range(1000):
        try:
            sampler(None, "info", {"event": "again"})
            kept += 1
        except structlog.DropEvent:
            continue
    # A new second may begin on the way, and then the count starts over.
    assert 109 <= kept <= 218
    assert sampler(None, "info", {"event": "another"}) == {"event": "another"}


def test_libraries_speak_in_the_same_lines(capsys: Capture) -> None:
    logs.configure_logging("info")
    logging.getLogger("asyncio").error("Task exception was never retrieved", exc_info=ValueError("oops"))
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").warning("look")
    first, second = lines(capsys)
    assert (first["level"], first["logger"], first["error"]) == ("ERROR", "controller.asyncio", "oops")
    assert (second["level"], second["message"]) == ("WARN", "look")


def test_lines_go_to_every_place_asked_for(capsys: Capture, tmp_path: Path) -> None:
    logs.configure_logging("info", ("stdout", str(tmp_path / "log")))
    messages.get_logger().info("hello")
    assert capsys.readouterr().out == (tmp_path / "log").read_text()
    with pytest.raises(Misconfigured, match="writing the log to /nowhere/log"):
        logs.configure_logging("info", ("/nowhere/log",))
    logs.configure_logging("info")


def test_a_full_disk_costs_lines_and_never_what_is_done(capsys: Capture) -> None:
    logs.configure_logging(paths=("/dev/full", "stdout"))
    messages.get_logger().info("launched nodeclaim")
    messages.get_logger().info("deleted node")
    assert [each["message"] for each in lines(capsys)] == ["launched nodeclaim", "deleted node"]


def test_lines_that_were_lost_are_counted_when_there_is_room_again(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.configure_logging()

    class Full:
        def write(self, text: str) -> None:
            raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(sys, "stdout", Full())
        for name in ("one", "two", "three"):
            messages.get_logger().info(name)
    messages.get_logger().info("four")
    messages.get_logger().info("five")
    found = [json.loads(each) for each in capsys.readouterr().out.splitlines() if each]
    assert [(each["level"], each["message"]) for each in found] == [
        ("WARN", "log lines were lost"),
        ("INFO", "four"),
        ("INFO", "five"),
    ]
    assert found[0]["lines"] == 3


def test_a_declared_message_is_said_as_an_ordinary_line(capsys: Capture) -> None:
    logs.configure_logging("info")
    with logs.bind_context(controller="provisioner", reconcileID="r-1"):
        HEARD({"Node": {"name": "n1"}})
    (line,) = lines(capsys)
    assert (line["level"], line["logger"], line["message"]) == ("INFO", "controller", HEARD.text)
    assert list(line)[-3:] == ["controller", "reconcileID", "Node"]


def test_what_is_on_record_has_a_logger_of_its_own(capsys: Capture) -> None:
    logs.configure_logging("info")
    AUDITED({"field": "spec.weight"})
    (line,) = lines(capsys)
    assert (line["logger"], line["field"]) == ("controller.audit", "spec.weight")


@pytest.mark.spec("FN-7")
def test_what_is_on_record_is_written_at_every_level_and_never_sampled(capsys: Capture) -> None:
    logs.configure_logging("error")
    with logs.bind_context(controller="zonal"):
        for number in range(500):
            AUDITED({"field": f"spec.{number}"})
    found = lines(capsys)
    assert [each["field"] for each in found] == [f"spec.{number}" for number in range(500)]
    assert (found[0]["level"], found[0]["controller"]) == ("INFO", "zonal")


def test_our_modules_are_heard_at_the_level_that_was_asked_for(capsys: Capture) -> None:
    logs.configure_logging("info")
    messages.get_logger().info("goes on by another policy", policy="Enforce")
    messages.get_logger().debug("too close")
    (line,) = lines(capsys)
    assert (line["level"], line["logger"]) == ("INFO", "controller")
    assert (line["message"], line["policy"]) == ("goes on by another policy", "Enforce")
    logs.configure_logging("error")
    HEARD({"Node": {"name": "n1"}})
    assert lines(capsys) == []


def test_the_caller_of_a_declared_message_is_who_said_it(capsys: Capture) -> None:
    logs.configure_logging("debug")
    HEARD({})
    assert re.fullmatch(r"runtime/test_logs.py:\d+", lines(capsys)[0]["caller"])


def test_a_group_of_errors_is_told_as_its_sentences(capsys: Capture) -> None:
    logs.configure_logging("info")
    inner = ExceptionGroup("hooks", [Retry("launching a: no capacity"), Retry("patching b: conflict")])
    group = ExceptionGroup("some of the work failed", [inner, Retry("patching b: conflict"), ValueError()])
    messages.get_logger().error("Reconciler error", error=group)
    (line,) = lines(capsys)
    assert line["error"] == "launching a: no capacity; patching b: conflict; ValueError"


def test_half_a_character_does_not_silence_a_line(capsys: Capture) -> None:
    logs.configure_logging("info")
    messages.get_logger().error("a message makes no sense", error=Retry("awayFrom is \ud800"))
    (line,) = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert line["error"] == "awayFrom is \ud800"


def test_without_a_known_revision_the_line_says_so(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure_logging("info")
    messages.get_logger().info("one")
    monkeypatch.setenv("DOVETAIL_COMMIT", "abc1234")
    logs.configure_logging("info")
    messages.get_logger().info("two")
    assert [line["commit"] for line in lines(capsys)] == ["unknown", "abc1234"]


def test_the_same_is_said_again_only_when_it_changed_or_after_a_while() -> None:
    now = 0.0
    changes = messages.Changes(lambda: now, lasts=60.0)
    assert [changes.has_changed("pool", "no subnet") for _ in range(3)] == [True, False, False]
    assert changes.has_changed("other", "no subnet")
    assert changes.has_changed("pool", "no image")
    now = 61.0
    assert changes.has_changed("pool", "no image")


def test_of_many_names_the_first_are_told_and_the_rest_counted() -> None:
    assert messages.first_of("abc", 3) == "a, b, c"
    assert messages.first_of(iter("abcdefgh"), 8) == "a, b, c, d, e and 3 other(s)"


def test_a_test_that_configures_logs_silences_no_later_one(caplog: pytest.LogCaptureFixture) -> None:
    """What was below the level that one test asked for is heard again by the next in the same process."""
    log = messages.get_logger("controller.later")
    with kept_logs():
        logs.configure_logging("error", ("/dev/null",))
        log.warning("unheard")
    log.warning("heard")
    assert caplog.messages == ["heard"]


def test_reading_log_lines_silences_nobody_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    """A fixture of a module reads them outside of any test, where nobody else would put things right."""
    with log_lines("error"):
        pass
    assert not structlog.is_configured()
    messages.get_logger("controller.later").warning("heard")
    assert caplog.messages == ["heard"]


def test_a_function_without_structlog_writes_the_same_fields_by_the_standard_library_alone(
    capsys: Capture,
) -> None:
    told: list[str] = []
    with open_json_lines(told.append):
        bus = messages.get_logger("bus")
        bus.debug("unheard")
        bus.info("batch routed", lane="urgent", messages=3)
        bus.warning("receiving failed", error=Retry("no answer"))
        bus.error("a queue refuses messages", code="AccessDenied")
    assert told == [
        '{"level":"INFO","logger":"bus","message":"batch routed","lane":"urgent","messages":3}',
        '{"level":"WARN","logger":"bus","message":"receiving failed","error":"no answer"}',
        '{"level":"ERROR","logger":"bus","message":"a queue refuses messages","code":"AccessDenied"}',
    ]
    logs.configure_logging("info")
    messages.get_logger("bus").info("batch routed", lane="urgent")
    (line,) = lines(capsys)
    assert (line["logger"], line["message"], line["lane"]) == ("bus", "batch routed", "urgent")


def test_no_module_has_a_logger_of_its_own() -> None:
    source = Path(messages.__file__).parent
    homes = {source / "logs.py", source / "runtime" / "logs.py"}
    named = [
        path
        for path in source.rglob("*.py")
        if path not in homes and re.search(r"logging\.getLogger|structlog\.get_logger", path.read_text())
    ]
    assert named == []


def test_a_handler_that_knows_no_fields_sees_them_in_the_text(caplog: pytest.LogCaptureFixture) -> None:
    messages.get_logger().warning("cannot read a queue", queue="q", error="no answer")
    assert caplog.messages == ["cannot read a queue queue=q error=no answer"]
