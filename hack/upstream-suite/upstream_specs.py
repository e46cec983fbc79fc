"""Upstream's specs: how they are named here, which there are, and which a word stands for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from pathlib import Path

LETTERS = {
    "Integration": "I",
    "NodeClaim": "N",
    "Drift": "D",
    "Expiration": "E",
    "Chaos": "C",
    "Termination": "T",
    "StaticCapacity": "S",
    "CapacityBuffer": "B",
    "Performance": "P",
}
ALL = 99
# They mostly wait, for up to a quarter of an hour each: started last they would be waited for alone.
LONG = ("N6", "D12", "S3", "D13", "C1", "C2", "N9", "I5", "T7", "I28", "P2", "P4", "P3")
# They listen on port 8080 of the machine.
ONE_AT_A_TIME = frozenset({"C1", "C2"})
GROUPS = {  # cheap to dear
    "smoke": "I6-I22 N1-N5 N7 S2 S4 T3 T6 P1",
    "core": "I1-I3 I5 N8 E1-E2 D6-D11 S1 S6 S10 S12 T1-T2 T4-T5 P3",
    "full": "I4 I23-I28 B1-B21 D1-D5 D14 S5 S7-S9 S11 P2 P4 T7",
    "long": "N6 N9 D12 D13 C1 C2 S3",
}


class UnknownSpec(ValueError):
    """A word that names no spec and no group."""


def binaries() -> Path:
    """The folder `build` filled."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("UPSTREAM_BIN") or cache / "dovetail" / "upstream-suite" / "bin")


def listed_specs() -> dict[str, str]:
    """The name of every spec by its id, as the test program itself lists them."""
    program = binaries() / "regression.test"
    if not program.exists():
        raise SystemExit(f"{program} is missing; run: {Path(__file__).parent / 'build'}")
    cache = program.with_suffix(".specs.json")
    if not cache.exists() or cache.stat().st_mtime < program.stat().st_mtime:
        made = cache.with_suffix(f".{os.getpid()}")
        command = [program, "--ginkgo.dry-run", f"--ginkgo.json-report={made}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        made.rename(cache)
    return named_specs(json.loads(cache.read_text())[0]["SpecReports"])


def named_specs(reports: list[dict[str, object]]) -> dict[str, str]:
    """Number the specs of each suite in the order they come."""
    found: dict[str, str] = {}
    counts: dict[str, int] = {}
    for spec in reports:
        if spec["LeafNodeType"] != "It":
            continue
        containers = [str(each) for each in spec["ContainerHierarchyTexts"]]  # type: ignore[attr-defined]
        suite = containers[0]
        counts[suite] = counts.get(suite, 0) + 1
        found[f"{LETTERS[suite]}{counts[suite]}"] = " ".join([*containers, str(spec["LeafNodeText"])])
    return found


def chosen_specs(words: list[str], known: dict[str, str]) -> list[str]:
    """The ids that these words stand for: ids, ranges, groups and /regexes/, each id once."""
    chosen: list[str] = []
    for word in words:
        if word in GROUPS:
            chosen += chosen_specs(GROUPS[word].split(), known)
        elif word in known:
            chosen.append(word)
        elif match := re.fullmatch(r"([A-Z])(\d+)-\1(\d+)", word):
            letter, first, last = match[1], int(match[2]), int(match[3])
            chosen += chosen_specs([f"{letter}{number}" for number in range(first, last + 1)], known)
        elif len(word) > 2 and word.startswith("/") and word.endswith("/"):
            chosen += [key for key, name in known.items() if re.search(word[1:-1], name)]
        else:
            raise UnknownSpec(f"no spec, range, group or /regex/ is called {word}; --list shows them")
    return list(dict.fromkeys(chosen))


def queue_of_specs(chosen: list[str]) -> list[str]:
    """The order to start them in: the long ones first, the others as they were named."""
    first = [key for key in LONG if key in chosen]
    return [*first, *(key for key in chosen if key not in LONG)]


class SpecQueue:
    """The runs still to be begun. Specs that need the same port of the machine never run at once."""

    def __init__(self, specs: list[str]) -> None:
        self._waiting, self._change = specs, threading.Condition()
        self._alone = False

    def take(self) -> str | None:
        """The next spec; None when nothing is left to begin."""
        with self._change:
            while self._waiting:
                for key in self._waiting:
                    if key not in ONE_AT_A_TIME or not self._alone:
                        self._waiting.remove(key)
                        self._alone = self._alone or key in ONE_AT_A_TIME
                        return key
                self._change.wait()
            return None

    def close(self) -> None:
        """Begin nothing any more."""
        with self._change:
            self._waiting.clear()
            self._change.notify_all()

    def done(self, key: str) -> None:
        with self._change:
            if key in ONE_AT_A_TIME:
                self._alone = False
            self._change.notify_all()
