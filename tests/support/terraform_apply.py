"""Terraform modules applied to the simulated AWS by a real terraform, all at once: providers mostly wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.aws.boto import BotoAws
from dovetail.runtime.clock import SystemClock
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.cloudwatch import CloudWatch
from dovetail.sim.aws.eks import Eks
from dovetail.sim.aws.eksaccess import EksAccess
from dovetail.sim.aws.fis import FisExperiments
from dovetail.sim.aws.iam.roles import Iam
from dovetail.sim.aws.messaging.eventbridge import EventBuses
from dovetail.sim.aws.messaging.queues import SimQueues
from dovetail.sim.aws.wire.server import AwsServer, serve_aws
from support.aws import CLUSTER
from support.deployed_stack import role_documents
from support.terraform import REGION, Root, TerraformError
from support.up_process import up

__all__ = ["WORKERS", "Applied", "Case", "all_applied"]

Json = dict[str, Any]
WORKERS = "workers"
ACCOUNTS = 111122220000


@dataclass(frozen=True)
class Case:
    """A module and what it is told; {account} stands for the number of the account it is applied to."""

    module: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    account: str = ""


@dataclass
class Applied:
    """What became of a case: refused with a text, or made, unchanged by a second plan, and gone again."""

    account: str
    refused: str = ""
    planned: Json = field(default_factory=dict)
    changed: Json = field(default_factory=dict)
    outputs: Json = field(default_factory=dict)
    documents: dict[str, list[Json]] = field(default_factory=dict)
    made: Json = field(default_factory=dict)
    left: Json = field(default_factory=dict)


def all_applied(binary: str, providers: Path, at: Path, cases: Mapping[str, Case]) -> dict[str, Applied]:
    """Each case in an account of its own: plan, apply, plan again, look, destroy, look."""
    return asyncio.run(_all(binary, providers, at, cases))


async def _all(binary: str, providers: Path, at: Path, cases: Mapping[str, Case]) -> dict[str, Applied]:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(cases) + 4))
    aws = SimulatedAws(SystemClock())
    async with up(at, "--no-controller", "--nodes", "4") as cluster, serve_aws(aws) as server:
        roots = {
            name: _root(binary, providers, at / name, server, case.account or str(ACCOUNTS + number))
            for number, (name, case) in enumerate(cases.items())
        }
        for each in roots.values():
            each.known["KUBE_CONFIG_PATH"] = str(cluster.kubeconfig)
        found = await asyncio.gather(*(_one(aws, server, roots[name], cases[name]) for name in cases))
    return dict(zip(cases, found, strict=True))


def _root(binary: str, providers: Path, at: Path, server: AwsServer, account: str) -> Root:
    at.mkdir()
    return Root(binary, providers, at, server.url, account)


async def _one(aws: SimulatedAws, server: AwsServer, root: Root, case: Case) -> Applied:
    found = Applied(root.account)
    aws.world.get_state(Eks, root.account, REGION).add(CLUSTER)
    aws.world.get_state(Iam, root.account, "").add_role(WORKERS)
    root.of_module(case.module, json.loads(json.dumps(case.variables).replace("{account}", root.account)))
    try:
        await asyncio.to_thread(root.init)
        found.planned = await root.changes()
        await root.apply()
        found.changed = await root.changes()
        found.outputs = (await root.outputs())["m"]
        found.documents = await _roles(server, root.account)
        found.made = _there(aws, root.account)
        await root.destroy()
        found.left = _there(aws, root.account)
    except TerraformError as error:
        found.refused = str(error)[-4000:]
    return found


def _there(aws: SimulatedAws, account: str) -> Json:
    """What an account holds of the things modules make, by kind."""
    ground = aws.world
    watch, access = (
        ground.get_state(CloudWatch, account, REGION),
        ground.get_state(EksAccess, account, REGION),
    )
    there = {
        "queues": ground.get_state(SimQueues, account, REGION).by_name,
        "roles": {*ground.get_state(Iam, account, "").roles} - {WORKERS},
        "profiles": ground.get_state(Iam, account, "").profiles,
        "rules": ground.get_state(EventBuses, account, REGION).by_name["default"].rules,
        "alarms": watch.alarms,
        "dashboards": watch.dashboards,
        "entries": access.entries,
        "associations": access.associations,
        "experiments": ground.get_state(FisExperiments, account, REGION).templates,
    }
    return {kind: sorted(map(str, held)) for kind, held in there.items() if held}


async def _roles(server: AwsServer, account: str) -> dict[str, list[Json]]:
    """The documents of every role, attached and inline, as AWS tells them."""
    boto = BotoAws(_session(account), endpoint=server.url, threads=2)
    try:
        listed = (await boto.call("iam", "ListRoles", {}))["Roles"]
        return {each["RoleName"]: await role_documents(boto, each["RoleName"]) for each in listed}
    finally:
        boto.close()


def _session(account: str) -> Any:
    import boto3

    return boto3.Session(f"AKIA{account}0000", "secret", region_name=REGION)
