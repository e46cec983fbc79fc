"""The Lambda package of zonal shift: unpacked, alone in an interpreter, against real servers."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import runpy
import site
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.crds import build_manifests
from dovetail.runtime.clock import SystemClock
from dovetail.sim.aws.wire.server import serve_aws
from dovetail.sim.certificates import ClusterCertificates
from dovetail.sim.kube.apiserver import ApiServer
from support.aws import CLUSTER, simulated
from support.zonal import CLASSES, LEDGER, POOLS, A, B, entry, pool

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
# As Lambda calls it, twice in one container.
PROGRAM = """
import json, os, sys
from dovetail.zonal.lambda_entry import lambda_handler
from dovetail.runtime.function import lambda_handler as older

class Context:
    aws_request_id = "request-1"
    def get_remaining_time_in_millis(self):
        return 30_000

answers = [older({}, Context()), lambda_handler({"source": "aws.events"}, Context())]
told = json.dumps([answers, sorted({name.split(".")[0] for name in sys.modules})])
print(told, file=sys.stderr, flush=True)
os._exit(0)  # a container is frozen, and never ends in order
"""
KEYS = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    "BillingMode": "PAY_PER_REQUEST",
}


@pytest.fixture(scope="module")
def builder() -> Json:
    return runpy.run_path(str(ROOT / "hack" / "build_lambda.py"))


@pytest.fixture(scope="module")
def unpacked(builder: Json, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("function")
    made = builder["build"](folder / "zonal.zip", builder["ZONAL"])
    assert made.stat().st_size < 50 * 2**20, "what can be uploaded without a bucket"
    task = folder / "task"
    with zipfile.ZipFile(made) as package:
        assert sum(each.file_size for each in package.infolist()) < 250 * 2**20
        package.extractall(task)
    (folder / "runtime").mkdir()
    for name in builder["THERE"]:
        for found in (Path(each) / name for each in site.getsitepackages()):
            if found.exists():
                (folder / "runtime" / name).symlink_to(found)
    single = Path(site.getsitepackages()[0]) / "six.py"
    (folder / "runtime" / "six.py").symlink_to(single)
    return folder


def furnish(api: ApiServer, aws: Any) -> None:
    someone = api.build_local_client("someone")
    for each in build_manifests("aws"):
        someone.create("customresourcedefinitions.apiextensions.k8s.io", each)
    discovered = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
    spec = {
        "role": "nodes",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": discovered,
        "securityGroupSelectorTerms": discovered,
    }
    someone.create(CLASSES, {"metadata": {"name": "default"}, "spec": spec})
    found = [
        {"id": f"subnet-{zone[-1]}", "zone": zone, "zoneID": aws.network.zone_ids[zone]} for zone in (A, B)
    ]
    someone.patch(CLASSES, "default", {"status": {"subnets": found}}, subresource="status")
    someone.create(POOLS, pool("default", entry("In", A, B)))
    labels = {"topology.kubernetes.io/zone": A, "karpenter.sh/nodepool": "default"}
    someone.create("nodes", {"metadata": {"name": "a0", "labels": labels}})


async def test_the_package_steps_out_of_a_zone_by_itself(unpacked: Path) -> None:
    clock, certificates = SystemClock(), ClusterCertificates()
    aws = simulated(clock)
    api = ApiServer(clock, random.Random(1))
    furnish(api, aws)
    async with api.serve(tls=certificates.context) as cluster, serve_aws(aws) as amazon:
        known = aws.eks.clusters[CLUSTER]
        known.endpoint = cluster.url
        known.certificate = base64.b64encode(certificates.authority).decode()
        zone = aws.network.zone_ids[A]
        asked = {"resourceIdentifier": known.arn, "awayFrom": zone, "expiresIn": "1h", "comment": ""}
        await aws.call("arc-zonal-shift", "StartZonalShift", asked)
        environment = {
            "PATH": os.environ["PATH"],
            "AWS_ACCESS_KEY_ID": "AKIA1111222233330000",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-west-2",
            "AWS_ENDPOINT_URL": amazon.url,
            "CLUSTER_NAME": CLUSTER,
            "ENABLE_DO_NOT_DISRUPT": "true",
            "ZONAL_SHIFT_TABLE": "shifts",
            "ZONAL_SHIFT_DEBOUNCE": "0s",
        }
        await _table(environment)
        answers, modules = await _run(unpacked, environment)

        first, second = answers
        assert (first["batchItemFailures"], first["passes"] > 1, second["passes"]) == ([], True, 1)
        node = api.build_local_client("someone").get("nodes", "a0")
        assert (node["spec"]["unschedulable"], LEDGER in node["metadata"]["annotations"]) == (True, True)
        entries = api.build_local_client("someone").get(POOLS, "default")["spec"]["template"]["spec"][
            "requirements"
        ]
        assert entry("NotIn", A) in entries
        assert not {"cryptography", "boto3", "moto", "rich", "pytest"} & set(modules)


async def _table(environment: Json) -> None:
    import boto3

    session = boto3.Session("AKIA1111222233330000", "secret", region_name="us-west-2")
    client = session.client("dynamodb", endpoint_url=environment["AWS_ENDPOINT_URL"])
    await asyncio.to_thread(client.create_table, TableName="shifts", **KEYS)


async def _run(folder: Path, environment: Json) -> tuple[list[Json], list[str]]:
    path = f"import sys; sys.path[:0] = [{str(folder / 'task')!r}, {str(folder / 'runtime')!r}]"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"{path}\n{PROGRAM}",
        env=environment,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, told = await process.communicate()
    assert process.returncode == 0, (told.decode()[-3000:], out.decode()[-3000:])
    answers, modules = json.loads(told.decode().splitlines()[-1])
    return answers, modules


def test_the_bus_is_built_as_before_and_the_list_for_other_runtimes_is_pinned(builder: Json) -> None:
    needed = builder["distributions"](builder["contents"](builder["ZONAL"])[1])
    assert {"aiohttp", "msgspec", "structlog"} <= set(needed)
    assert not {"botocore", "boto3", "rich"} & set(needed)
    assert builder["PACKAGES"]["interruption-bus"].handler == "dovetail.bus.handler.lambda_handler"
