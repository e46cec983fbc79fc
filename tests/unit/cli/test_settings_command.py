"""dovetail settings: what the controller would run with, and what it would refuse."""

from __future__ import annotations

import json

from dovetail.settings import SETTINGS
from support.commands import dovetail

NAMED = {"CLUSTER_NAME": "prod"}


def test_every_setting_is_shown_with_value_and_origin() -> None:
    ended = dovetail("settings", "--metrics-port=9090", env=NAMED)
    rows = {line.split()[0]: line.split()[1:] for line in ended.out.splitlines()}
    assert ended.code == 0
    assert rows["METRICS_PORT"] == ["flag", "9090"]
    assert rows["CLUSTER_NAME"] == ["environment", "prod"]
    assert rows["LOG_LEVEL"] == ["default", "info"]
    assert set(rows) - {"SETTING"} == {each.variable for each in SETTINGS if each.provider != "kwok"}


def test_the_settings_of_kwok_are_shown_for_kwok() -> None:
    ended = dovetail("settings", "--provider", "kwok")
    assert ended.code == 0
    assert "INSTANCE_TYPES_FILE_PATH" in ended.out
    assert "CLUSTER_NAME" not in ended.out


def test_defaults_can_be_left_out() -> None:
    ended = dovetail("settings", "--changed", "--isolated-vpc", env=NAMED)
    assert [line.split()[0] for line in ended.out.splitlines()] == ["SETTING", "CLUSTER_NAME", "ISOLATED_VPC"]


def test_everything_comes_as_json_too() -> None:
    ended = dovetail("settings", "-o", "json", env=NAMED | {"LEADER_ELECT": "false"})
    document = json.loads(ended.out)
    [port] = [each for each in document["settings"] if each["variable"] == "METRICS_PORT"]
    assert (port["flag"], port["value"], port["from"]) == ("--metrics-port", "8080", "default")
    assert document["errors"] == []
    assert document["warnings"] == [
        "LEADER_ELECT is no longer read: set DISABLE_LEADER_ELECTION=true, whose meaning is the reverse"
    ]


def test_everything_comes_as_yaml_too() -> None:
    ended = dovetail("settings", "-o", "yaml", "--changed", env=NAMED)
    assert ended.out.startswith("provider: aws\nsettings:\n- variable: CLUSTER_NAME\n")


def test_every_problem_is_printed_and_the_command_ends_with_2() -> None:
    ended = dovetail("settings", "--bogus", env={"METRICS_PORT": "eighty"})
    assert ended.code == 2
    assert [line.split()[0] for line in ended.err.splitlines()] == ["error:"] * 3
    assert "METRICS_PORT" in ended.out


def test_removed_names_are_reported_and_are_no_failure() -> None:
    ended = dovetail("settings", env=NAMED | {"WEBHOOK_PORT": "8443"})
    assert ended.code == 0
    assert ended.err == "warning: WEBHOOK_PORT is no longer read: there are no webhooks any more\n"


def test_flags_after_two_dashes_are_the_controllers_own() -> None:
    ended = dovetail("settings", "-o", "json", "--", "--log-level=debug", env=NAMED)
    [level] = [each for each in json.loads(ended.out)["settings"] if each["variable"] == "LOG_LEVEL"]
    assert (level["value"], level["from"]) == ("debug", "flag")
