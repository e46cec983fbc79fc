"""`dovetail interruption-router`: configuration checked in a sentence, tools that answer over a real wire."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dovetail.bus.generate import GeneratedFleet, generate_fis_experiment
from support.commands import dovetail
from support.queues import URGENT
from support.router_kills import router_environment, serving, written

ROOT = Path(__file__).parents[3]
GOOD = """
bus:
  region: us-east-2
  accounts: [{id: "123456789012"}]
  destinations: [{cluster: a, queueUrl: "https://sqs.us-east-2.amazonaws.com/123456789012/a"}]
"""


def checked(tmp_path: Path, text: str) -> tuple[int, str, str]:
    path = tmp_path / "router.yaml"
    path.write_text(text)
    ended = dovetail("interruption-router", "--check", "--config", str(path))
    return ended.code, ended.out, ended.err


def test_a_good_configuration_is_summed_up(tmp_path: Path) -> None:
    code, out, _ = checked(tmp_path, GOOD)
    assert code == 0
    assert out.endswith("router.yaml is fine: 1 destination, 1 account, 1 region.\n")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (GOOD.replace("us-east-2\n", "moon-1\n", 1), 2, "which is no AWS region; write it as us-east-2"),
        (GOOD.replace("https://sqs", "http://sqs"), 2, "is not the URL of a queue"),
        (GOOD.replace("cluster: a,", "cluster: a, colour: red,"), 2, "unknown key colour"),
        ("bus: [", 1, "it is not YAML"),
        ("bus: {region: us-east-2}", 2, "no account is served"),
        ("", 2, "region is missing"),
    ],
)
def test_a_broken_configuration_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int, words: str
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    ended, _, said = checked(tmp_path, text)
    assert ended == code
    assert words in said
    assert said.count("\n") == 1


def test_an_old_name_is_reported_with_what_to_write_instead(tmp_path: Path) -> None:
    code, out, said = checked(tmp_path, GOOD.rstrip() + "\n  ec2: {callsPerSecond: 5}\n")
    assert code == 0
    assert "is fine" in out
    assert "ec2.callsPerSecond is an old name: write advanced.ec2.callsPerSecond" in said


def test_keys_lists_every_key_with_its_variable() -> None:
    ended = dovetail("interruption-router", "keys", "-o", "json")
    keys = {each["key"]: each["variable"] for each in json.loads(ended.out)["items"]}
    assert keys["queues.park"] == "DOVETAIL_BUS_QUEUES_PARK"
    assert keys["advanced"] == "DOVETAIL_BUS_ADVANCED"
    assert keys["advanced.ec2.callsPerSecond"] == ""
    assert sum(bool(each) for each in keys.values()) == 20


def test_trace_needs_one_name_and_finds_its_lines(tmp_path: Path) -> None:
    log = tmp_path / "router.log"
    line = {
        "time": "t",
        "message": "event dropped",
        "instances": ["i-1"],
        "kind": "spot_interrupted",
        "reason": "foreign",
    }
    log.write_text(json.dumps(line) + "\nnoise\n")

    found = dovetail("interruption-router", "trace", "i-1", "--file", str(log))
    none = dovetail("interruption-router", "trace", "--file", str(log))

    assert "event dropped" in found.out
    assert "reason=foreign" in found.out
    assert none.code == 2


async def _asked(
    config: Path, fleet: GeneratedFleet, url: str, *arguments: str, stdin: str = ""
) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dovetail", "interruption-router", *arguments, "--config", str(config)),
        env=router_environment(fleet, url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_tools_answer_over_the_wire(tmp_path: Path) -> None:
    fleet = GeneratedFleet.generate_fleet(2, 4)
    mine = fleet.clusters["cluster-001"][0]
    async with serving(fleet, (30, 180)) as (aws, url):
        config = written(str(tmp_path), fleet, url)
        events = "\n".join(
            each.body for each in generate_fis_experiment(fleet, [mine], start=datetime.now(UTC))
        )
        resolved, routed, looked, replayed = await asyncio.gather(
            _asked(config, fleet, url, "resolve", mine, "i-0nobody", "-o", "json"),
            _asked(config, fleet, url, "route", stdin=events + "\nnonsense\n"),
            _asked(config, fleet, url, "doctor"),
            _asked(config, fleet, url, "replay", "--from", "dlq"),
        )
        del aws.sim.queues.by_name[URGENT]
        code, _, err = await _asked(config, fleet, url, "run", "--metrics-port", "0", "--health-port", "0")

    assert resolved[0] == 1  # one of them is no one's
    states = {each["instance"]: (each["cluster"], each["state"]) for each in json.loads(resolved[1])["items"]}
    assert states == {mine: ("cluster-001", "owned"), "i-0nobody": ("", "unknown")}
    assert routed[1].count("cluster-001") == 4
    assert "malformed" in routed[1]
    assert (looked[0], "no rule for aws.health" in looked[1]) == (1, True)
    assert replayed[1] == "0 events moved back; 0 not wanted, 0 unreadable.\n"
    assert code == 2
    assert err.count("\n") == 1
    assert f"there is no queue {URGENT}" in err


async def test_a_router_with_two_workers_routes_and_ends_when_told(tmp_path: Path) -> None:
    fleet = GeneratedFleet.generate_fleet(2, 10)
    async with serving(fleet, (30, 180)) as (aws, url):
        config = written(str(tmp_path), fleet, url, receivers={"wait": "1s"})
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "dovetail",
                "interruption-router",
                "--config",
                str(config),
                "--workers",
                "2",
            ),
            *("--metrics-port", "0", "--health-port", "0", "--log-level", "error"),
            env=router_environment(fleet, url),
        )
        for happening in generate_fis_experiment(fleet, fleet.instances, start=datetime.now(UTC)):
            aws.put(happening)
        try:
            await aws.drained(100.0)
        finally:
            process.send_signal(signal.SIGTERM)
            code = await process.wait()

    assert code == 0
    assert sum(len(aws.bodies(name)) for name in fleet.clusters) == 40


def test_the_package_holds_the_router_and_nothing_else(tmp_path: Path) -> None:
    import runpy

    builder = runpy.run_path(str(ROOT / "hack" / "build_lambda.py"))
    first, second = builder["build"](tmp_path / "one.zip"), builder["build"](tmp_path / "two.zip")

    names = zipfile.ZipFile(first).namelist()
    modules = {name.removesuffix(".py") for name in names if name.endswith(".py")}
    assert {"dovetail/bus/handler", "dovetail/aws/slim", "dovetail/aws/eventbridge"} <= modules
    rooms = {name.split("/")[1] for name in modules if name.count("/") > 1}
    assert rooms == {"aws", "bus"}
    assert (
        not {"dovetail/aws/boto", "dovetail/metrics", "dovetail/bus/daemon", "dovetail/bus/prometheus"}
        & modules
    )
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 512 * 1024
    assert set(builder["contents"]()[1]) <= builder["THERE"]
