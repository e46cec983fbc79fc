"""Log lines: the keys operators' tools parse, sampled, and with libraries on board."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from dovetail.errors import Misconfigured, Retry
from dovetail.runtime import logs

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:], logging.root.level = handlers, level


def lines(capsys: Capture) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_has_zaps_keys_in_zaps_order(capsys: Capture) -> None:
    logs.configure("info", commit="abc1234")
    with logs.context(controller="provisioner", name="default", reconcileID="r-1"):
        logs.get().info("found provisionable pods", Pods="a, b", NodePool={"name": "default"})
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
    logs.configure("info")
    with logs.context(controller="a"), logs.context(controller="b"):
        logs.get().info("inside")
    logs.get().info("outside")
    assert [line.get("controller") for line in lines(capsys)] == ["b", None]


def test_levels_are_those_of_zap_and_lower_ones_are_dropped(capsys: Capture) -> None:
    logs.configure("info")
    log = logs.get("controller.sub")
    log.debug("no")
    log.info("one")
    log.warning("two")
    log.error("three")
    found = lines(capsys)
    assert [line["level"] for line in found] == ["INFO", "WARN", "ERROR"]
    assert found[0]["logger"] == "controller.sub"
    assert "caller" not in found[0]


def test_only_at_debug_level_is_the_caller_named(capsys: Capture) -> None:
    logs.configure("debug")
    logs.get().debug("here")
    assert re.fullmatch(r"runtime/test_logs.py:\d+", lines(capsys)[0]["caller"])


def test_an_error_is_text_with_its_facts_lifted_and_no_stack(capsys: Capture) -> None:
    class Launching(Retry):
        facts = {"instanceType": "m5.large", "launch_template_name": "lt"}

    logs.configure("info")
    try:
        raise Launching("creating instance: no capacity")
    except Launching as error:
        logs.get().error("reconciler error", error=error)
    text = capsys.readouterr().out
    line = msgspec.json.decode(text)
    assert line["error"] == "creating instance: no capacity"
    assert line["instance-type"] == "m5.large"
    assert line["launch-template-name"] == "lt"
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
    logs.configure("info")
    logging.getLogger("asyncio").error("Task exception was never retrieved", exc_info=ValueError("oops"))
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").warning("look")
    first, second = lines(capsys)
    assert (first["level"], first["logger"], first["error"]) == ("ERROR", "controller.asyncio", "oops")
    assert (second["level"], second["message"]) == ("WARN", "look")


def test_lines_go_to_every_place_asked_for(capsys: Capture, tmp_path: Path) -> None:
    logs.configure("info", ("stdout", str(tmp_path / "log")))
    logs.get().info("hello")
    assert capsys.readouterr().out == (tmp_path / "log").read_text()
    with pytest.raises(Misconfigured, match="writing the log to /nowhere/log"):
        logs.configure("info", ("/nowhere/log",))
    logs.configure("info")
