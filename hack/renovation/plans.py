#!/usr/bin/env python3
"""Compare the plans of two checkouts over random clusters: renaming and moving code must change none of them.

    plans.py write FOLDER [--count 500] [--seed 18]    random clusters, as files of manifests
    plans.py answer FOLDER ANSWERS                      what this checkout plans for each of them
    plans.py compare BEFORE AFTER                       equal to the byte, or the first difference

Run `answer` with the Python of each checkout. The clusters are written without a line of the project's code,
and the plans are asked for through the `dovetail` command, so that both trees can be asked alike.
Times, memory and sentences are left out; every node, pod, price, type, reason and decision is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import random
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

VOLATILE = {
    "now",
    "solveSeconds",
    "firstPlanSeconds",
    "peakRssBytes",
    "why",
    "message",
    "explanation",
    "seconds",
    "advice",
}
ZONES = ("test-zone-a", "test-zone-b", "test-zone-c")
SIZES = (1, 2, 4, 8, 16, 32)
FAMILIES = {"c": 2, "s": 4, "m": 8}
CREATED = "2026-06-01T08:00:00Z"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    write = verbs.add_parser("write")
    write.add_argument("folder", type=Path)
    write.add_argument("--count", type=int, default=500)
    write.add_argument("--seed", type=int, default=18)
    answer = verbs.add_parser("answer")
    answer.add_argument("folder", type=Path)
    answer.add_argument("answers", type=Path)
    compare = verbs.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.verb == "write":
        return write_clusters(options.folder, options.count, options.seed)
    if options.verb == "answer":
        return write_answers(options.folder, options.answers)
    return compare_answers(options.before, options.after)


# Clusters


def write_clusters(folder: Path, count: int, seed: int) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        items = RandomCluster(random.Random(f"{seed}/{number}")).items()
        document = {"apiVersion": "v1", "kind": "List", "items": items}
        (folder / f"{number:04}.json").write_text(json.dumps(document, indent=1, sort_keys=True))
    print(f"{count} clusters in {folder}")
    return 0


class RandomCluster:
    """NodePools, nodes with running pods, budgets and pending pods, drawn from one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.pools = [self._nodepool(number) for number in range(chance.randint(1, 3))]
        self.apps = [f"app-{number}" for number in range(chance.randint(1, 6))]

    def items(self) -> list[dict[str, Any]]:
        kwok_class = {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
        }
        nodes = [self._node(number) for number in range(self.chance.choice((0, 1, 3, 6, 12)))]
        pending = [
            pod
            for number in range(self.chance.choice((1, 2, 4, 8)))
            for pod in self._pending(f"new-{number}")
        ]
        budgets = [self._budget(app) for app in self.apps if self.chance.random() < 0.3]
        return [*self.pools, kwok_class, *budgets, *(item for items in nodes for item in items), *pending]

    def _some(self, values: tuple[str, ...]) -> list[str]:
        return sorted(self.chance.sample(values, self.chance.randint(1, len(values))))

    def _nodepool(self, number: int) -> dict[str, Any]:
        chance = self.chance
        requirements: list[dict[str, Any]] = [
            {
                "key": "karpenter.sh/capacity-type",
                "operator": "In",
                "values": self._some(("on-demand", "spot")),
            },
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        ]
        if chance.random() < 0.7:
            requirements.append({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]})
        if chance.random() < 0.5:
            requirements.append(
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": self._some(ZONES)}
            )
        if chance.random() < 0.3:
            bound = str(chance.choice((9, 17, 33)))
            requirements.append(
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": [bound]}
            )
        template: dict[str, Any] = {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "expireAfter": "Never",
            "requirements": requirements,
        }
        if chance.random() < 0.25:
            template["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
        spec: dict[str, Any] = {
            "template": {"metadata": {"labels": {"team": chance.choice("ab")}}, "spec": template},
            "disruption": {
                "consolidationPolicy": chance.choice(("WhenEmpty", "WhenEmptyOrUnderutilized")),
                "consolidateAfter": chance.choice(("0s", "1m", "Never")),
                "budgets": [{"nodes": chance.choice(("1", "3", "50%", "100%"))}],
            },
        }
        if chance.random() < 0.3:
            spec["limits"] = {"cpu": str(chance.choice((8, 40, 200)))}
        if chance.random() < 0.4:
            spec["weight"] = chance.randint(1, 50)
        meta = {"name": f"pool-{number}", "creationTimestamp": CREATED, "uid": f"pool-{number}"}
        return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta, "spec": spec}

    def _node(self, number: int) -> list[dict[str, Any]]:
        chance, name = self.chance, f"node-{number}"
        pool, cpu, family = chance.choice(self.pools), chance.choice(SIZES), chance.choice(sorted(FAMILIES))
        zone, memory = chance.choice(ZONES), cpu * FAMILIES[family]
        labels = {
            "karpenter.sh/nodepool": pool["metadata"]["name"],
            "karpenter.sh/capacity-type": chance.choice(("on-demand", "spot")),
            "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true",
            "node.kubernetes.io/instance-type": f"{family}-{cpu}x-amd64-linux",
            "topology.kubernetes.io/zone": zone,
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            **pool["spec"]["template"]["metadata"]["labels"],
        }
        resources = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110"}
        taints = pool["spec"]["template"]["spec"].get("taints", [])
        conditions = ["Launched", "Registered", "Initialized"]
        conditions += [each for each in ("Consolidatable", "Drifted") if chance.random() < 0.5]
        meta = {"name": name, "uid": name, "labels": labels, "creationTimestamp": CREATED}
        if chance.random() < 0.1:
            meta["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": meta,
            "spec": {"providerID": f"kwok://{name}", "taints": taints},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        claim = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": meta,
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [],
                "taints": taints,
            },
            "status": {
                "providerID": f"kwok://{name}",
                "nodeName": name,
                "capacity": resources,
                "allocatable": resources,
                "conditions": [
                    {
                        "type": each,
                        "status": "True",
                        "reason": each,
                        "message": "",
                        "lastTransitionTime": "2026-06-01T08:05:00Z",
                    }
                    for each in conditions
                ],
            },
        }
        return [node, claim, *self._running(name, cpu, memory)]

    def _running(self, node: str, cpu: int, memory: int) -> list[dict[str, Any]]:
        pods, free_cpu, free_memory = [], cpu * 1000, memory * 1024
        for number in range(self.chance.randint(0, 6)):
            milli, mebi = self.chance.choice((100, 250, 900, 2000)), self.chance.choice((64, 512, 3000))
            if milli > free_cpu or mebi > free_memory:
                break
            free_cpu, free_memory = free_cpu - milli, free_memory - mebi
            pod = self._pod(f"{node}-pod-{number}", self.chance.choice(self.apps), milli, mebi)
            pod["spec"] |= {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
            pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            if self.chance.random() < 0.06:
                pod["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
            pods.append(pod)
        return pods

    def _pending(self, name: str) -> list[dict[str, Any]]:
        chance, app = self.chance, self.chance.choice(self.apps)
        milli, mebi = chance.choice((100, 700, 1500, 5000, 40000)), chance.choice((128, 1024, 9000))
        more = self._constraints(app)
        pods = []
        for number in range(chance.choice((1, 1, 3, 10))):
            pod = self._pod(f"{name}-{number}", app, milli, mebi)
            pod["spec"] |= more
            pod["status"] = {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            }
            pods.append(pod)
        return pods

    def _constraints(self, app: str) -> dict[str, Any]:
        chance, more = self.chance, {}
        selector = {"matchLabels": {"app": app}}
        if chance.random() < 0.3:
            more["nodeSelector"] = {"topology.kubernetes.io/zone": chance.choice(ZONES)}
        if chance.random() < 0.4:
            more["tolerations"] = [{"key": "team", "operator": "Exists"}]
        if chance.random() < 0.35:
            more["topologySpreadConstraints"] = [
                {
                    "maxSkew": chance.randint(1, 2),
                    "topologyKey": chance.choice(("topology.kubernetes.io/zone", "kubernetes.io/hostname")),
                    "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": selector,
                }
            ]
        affinity: dict[str, Any] = {}
        if chance.random() < 0.25:
            key = chance.choice(("topology.kubernetes.io/zone", "kubernetes.io/hostname"))
            term = {"labelSelector": selector, "topologyKey": key}
            kind = chance.choice(("podAffinity", "podAntiAffinity"))
            affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        if chance.random() < 0.25:
            wanted = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
            affinity["nodeAffinity"] = {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 10, "preference": {"matchExpressions": [wanted]}}
                ]
            }
        if affinity:
            more["affinity"] = affinity
        return more

    def _pod(self, name: str, app: str, milli: int, mebi: int) -> dict[str, Any]:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
        requests = {"cpu": f"{milli}m", "memory": f"{mebi}Mi"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": {"app": app},
                "creationTimestamp": CREATED,
                "ownerReferences": [owner],
            },
            "spec": {
                "containers": [{"name": "main", "image": "main", "resources": {"requests": requests}}],
            },
        }

    def _budget(self, app: str) -> dict[str, Any]:
        allowed = self.chance.randint(0, 2)
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"maxUnavailable": allowed, "selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
        }


# Answers


def write_answers(folder: Path, answers: Path) -> int:
    (program,) = (each for each in entry_points(group="console_scripts") if each.name == "dovetail")
    run = program.load()
    lines = []
    clusters = sorted(folder.glob("*.json"))
    for number, file in enumerate(clusters, 1):
        for about in (("--quick",), ("--disruption", "--turns", "3")):
            said = ask(run, ["plan", "-f", str(file), *about, "-o", "json"])
            lines.append(json.dumps({"cluster": file.name, "asked": about, **said}, sort_keys=True))
        if number % 50 == 0:
            print(f"{number} of {len(clusters)}", flush=True)
    text = "".join(f"{line}\n" for line in lines)
    answers.write_text(text)
    print(f"{len(lines)} answers, sha256 {hashlib.sha256(text.encode()).hexdigest()}")
    return 0


def ask(run: Any, words: list[str]) -> dict[str, Any]:
    out, errors, code = io.StringIO(), io.StringIO(), 0
    before, sys.argv = sys.argv, ["dovetail", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    finally:
        sys.argv = before
    try:
        said = without_volatile(json.loads(out.getvalue()))
    except json.JSONDecodeError:
        said = {"printed": out.getvalue(), "complained": errors.getvalue()}
    return {"code": code, "plan": said}


def without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_volatile(each) for key, each in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [without_volatile(each) for each in value]
    return value


def compare_answers(before: Path, after: Path) -> int:
    old, new = before.read_text().splitlines(), after.read_text().splitlines()
    different = [pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]]
    if len(old) != len(new) or different:
        print(f"{len(different)} of {len(old)} answers differ ({len(new)} afterwards)")
        for was, now in different[:3]:
            print(f"before {was[:2000]}\nafter  {now[:2000]}")
        return 1
    print(f"{len(old)} answers are equal to the byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())
