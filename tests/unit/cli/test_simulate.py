"""`dovetail simulate`: what it prints, writes and refuses."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow
import pytest
import yaml
from pyarrow import parquet

from dovetail.play import play_scenario
from dovetail.sim.report import render_text
from dovetail.sim.report_page import render_page
from dovetail.sim.scenario import ScenarioObjective
from dovetail.sim.scenario_file import read_scenario
from support.commands import dovetail

ROOT = Path(__file__).parents[3]
INFLATE = ROOT / "examples" / "scenarios" / "inflate.yaml"


def small(folder: Path, extra: str = "") -> Path:
    """Ten minutes of three pods."""
    path = folder / "small.yaml"
    path.write_text(
        "apiVersion: dovetail.sh/v1alpha1\nkind: Scenario\nname: small\nduration: 10m\n"
        f"workloads: [{{name: web, cpu: '1', replicas: {{value: 3}}}}]\n{extra}"
    )
    return path


def test_the_same_seed_gives_the_same_report_to_the_byte_in_any_process(tmp_path: Path) -> None:
    told = []
    for hash_seed in ("1", "2"):
        page = tmp_path / f"{hash_seed}.html"
        command = [
            sys.executable,
            "-m",
            "dovetail",
            "simulate",
            str(INFLATE),
            "-o",
            "json",
            "--html",
            str(page),
        ]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ended = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=True)
        told.append((ended.stdout, page.read_bytes()))

    assert told[0] == told[1]
    assert json.loads(told[0][0])["pods_started"] == 20


STORM = """
apiVersion: dovetail.sh/v1alpha1
kind: Scenario
name: storm
duration: 20m
seed: 7
pools: [{nodes: 8, budgets: [{nodes: "2"}]}]
workloads:
  - name: web
    cpu: "1"
    maxUnavailable: 2
    replicas: {curve: bursty, base: 6, burst: 12, every: 8m, lasts: 3m}
events: [{at: 2m, reclaim: {share: 0.5}}, {at: 5m, drift: {}}, {at: 9m, failure: {count: 1}}]
"""


def test_reclaims_drift_and_failures_are_the_same_for_the_same_seed_in_any_process(tmp_path: Path) -> None:
    path, told = tmp_path / "storm.yaml", []
    path.write_text(STORM)
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "dovetail", "simulate", str(path), "-o", "json"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ended = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=True)
        told.append(ended.stdout)

    assert told[0] == told[1]
    report = json.loads(told[0])
    assert report["nodes_removed"] >= 8
    assert report["evictions"] > 0


def test_a_page_that_cannot_be_written_is_one_sentence_before_anything_is_played(tmp_path: Path) -> None:
    page = tmp_path / "nowhere" / "page.html"
    ended = dovetail("simulate", str(small(tmp_path)), "--html", str(page))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"dovetail: writing {page}: there is no folder {page.parent}; make it or choose another file\n"
    )


def test_a_report_comes_as_yaml(tmp_path: Path) -> None:
    told = dovetail("simulate", str(small(tmp_path)), "-o", "yaml")

    document = yaml.safe_load(told.out)
    assert document["name"] == "small"
    assert document["pods_started"] == 3


def test_a_sweep_plays_every_value_and_sets_them_side_by_side(tmp_path: Path) -> None:
    told = dovetail("simulate", str(small(tmp_path)), "--sweep", "workloads.0.cpu=1,4", "--workers", "2")

    assert "small cpu=1" in told.out
    assert "small cpu=4" in told.out
    runs = json.loads(
        dovetail("simulate", str(small(tmp_path)), "--sweep", "workloads.0.cpu=1,4", "-o", "json").out
    )["runs"]
    assert runs[0]["dollars"] < runs[1]["dollars"]


def test_a_sweep_of_two_fields_fits_a_page(tmp_path: Path) -> None:
    pools = ["--sweep", "pools.0.policy=WhenEmpty,WhenEmptyOrUnderutilized"]
    told = dovetail("simulate", str(small(tmp_path)), *pools, "--sweep", "workloads.0.cpu=1,2")

    first, second, third = told.out.splitlines()[:3]
    assert first.split() == ["small"] * 4
    assert second.split() == [*["policy=WhenEmpty"] * 2, *["policy=WhenEmptyOrUnderutilized"] * 2]
    assert third.split() == ["cpu=1", "cpu=2"] * 2
    assert max(map(len, told.out.splitlines())) < 160


def test_a_sweep_over_a_field_that_is_not_there_is_told_by_its_own_words(tmp_path: Path) -> None:
    told = dovetail("simulate", str(small(tmp_path)), "--sweep", "pools.0.sise=1,2")

    assert told.code == 1
    assert told.err.startswith("dovetail: --sweep pools.0.sise=1,2: ")
    assert "sise" in told.err.removeprefix("dovetail: --sweep pools.0.sise=1,2: ")


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """A Dask scheduler with one worker, as processes of their own; gives its address."""
    file, dask = tmp_path / "scheduler.json", str(Path(sys.executable).parent / "dask")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    here = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
    parts = [subprocess.Popen([dask, "scheduler", "--port", "0", *here], **quiet)]  # type: ignore[call-overload]
    try:
        while not file.exists():
            assert parts[0].poll() is None, "the scheduler ended"
            time.sleep(0.1)
        worker = [dask, "worker", "--nthreads", "1", "--nworkers", "1", "--no-nanny", *here]
        parts.append(subprocess.Popen(worker, **quiet))  # type: ignore[call-overload]
        yield json.loads(file.read_text())["address"]
    finally:
        # The worker first: it says goodbye to a scheduler that is still there, and waits for one that is not.
        for part in reversed(parts):
            end_process(part)


def end_process(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def test_a_sweep_over_dask_gives_the_same_numbers(tmp_path: Path, scheduler: str) -> None:
    swept = ("simulate", str(small(tmp_path)), "--sweep", "workloads.0.cpu=1,2", "-o", "json")

    here, there = dovetail(*swept), dovetail(*swept, "--dask", scheduler)

    assert there.out == here.out
    assert there.code == 0


def test_a_dask_scheduler_that_is_away_is_one_sentence(tmp_path: Path) -> None:
    told = dovetail("simulate", str(small(tmp_path)), "--dask", "tcp://127.0.0.1:9")

    assert told.code == 2
    assert "no scheduler answers at tcp://127.0.0.1:9" in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize("shape", ["csv", "parquet"])
def test_a_trace_is_followed_row_by_row(tmp_path: Path, shape: str) -> None:
    rows = {"seconds": [0, 120, 300], "replicas": [2, 6, 1]}
    if shape == "csv":
        with (tmp_path / "curve.csv").open("w", newline="") as file:
            csv.writer(file).writerows([tuple(rows), *zip(*rows.values(), strict=True)])
    else:
        parquet.write_table(pyarrow.table(rows), tmp_path / "curve.parquet")
    path = tmp_path / "traced.yaml"
    path.write_text(
        "apiVersion: dovetail.sh/v1alpha1\nkind: Scenario\nduration: 8m\nstep: 1m\n"
        f"workloads: [{{name: web, replicas: {{curve: trace, file: curve.{shape}}}}}]\n"
    )

    samples = play_scenario(read_scenario(path)).samples

    assert max(sample.running for sample in samples) == 6
    assert (samples[2].running, samples[-1].running) == (2, 1)


def test_promises_are_part_of_the_report(tmp_path: Path) -> None:
    promised = "objectives: [{pendingWithin: 1s}, {available: 0.9, share: 0.5}]\n"

    told = dovetail("simulate", str(small(tmp_path, promised)))

    assert "promises broken       1" in told.out
    assert "BROKEN  1 of pods run within 1s: 0.0000 (3 beyond it)" in told.out
    assert "kept    0.9 of the wanted pods run" in told.out


def test_the_floor_is_below_what_was_paid() -> None:
    story = msgspec.structs.replace(
        read_scenario(INFLATE), floor_every="1m", objectives=[ScenarioObjective()]
    )

    report = play_scenario(story)

    assert report.dollars_floor is not None
    assert 0 < report.dollars_floor <= report.dollars
    assert report.above_floor is not None
    assert "cheapest thinkable" in render_text(report)
    assert "the cheapest thinkable fleet" in render_page([report])


def _worked(pid: int) -> float:
    """Seconds a process has had of the processor: on a busy machine, time alone says little."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ctrl_c_gives_the_report_so_far(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(
        "apiVersion: dovetail.sh/v1alpha1\nkind: Scenario\nname: long\nduration: 1000h\nstep: 10s\n"
        "workloads: [{name: web, replicas: {value: 3}}]\n"
    )
    # A shell in the background ignores Ctrl-C for its children; this one shall hear it.
    run = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "simulate", str(path), "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        while _worked(run.pid) < 6:
            assert run.poll() is None, "it ended by itself"
            time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()

    assert run.returncode == 0
    assert b"report so far" in err
    assert 0 < json.loads(out)["hours"] < 1000
