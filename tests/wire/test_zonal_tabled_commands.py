"""`dovetail zonal-shift` where shifts are kept in a table: seen beside those of the cluster."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from dovetail.api.crds import build_zonal_manifest
from dovetail.api.meta import ObjectMeta
from dovetail.api.zoneshift import ZoneShift, ZoneShiftSpec, ZoneShiftStatus
from dovetail.zonal.store.table_store import TableStore
from support.aws import CLUSTER
from support.aws_clients import opened
from support.commands import Ended, dovetail
from support.https_apiserver import DEFINITIONS, secured

KEYS = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    "BillingMode": "PAY_PER_REQUEST",
}


def kept(tail: str, phase: str) -> ZoneShift:
    return ZoneShift(
        metadata=ObjectMeta(name=f"usw2-az1-{tail}"),
        spec=ZoneShiftSpec(zone_id="usw2-az1", kind="ZONAL_AUTOSHIFT"),
        status=ZoneShiftStatus(phase=phase, zone_name="us-west-2a"),
    )


async def test_status_and_history_tell_of_both(tmp_path: Path) -> None:
    with secured(tmp_path) as server:
        async with opened("http", moto=True) as door:
            await door.aws.call("dynamodb", "CreateTable", {"TableName": "commands", **KEYS})
            arn = door.world.eks.clusters[CLUSTER].arn

            async def named() -> str:
                return arn

            table = TableStore(door.aws, "commands", named, door.clock)
            await table.create(kept("aa", "Active"))
            await table.create(kept("bb", "Restored"))
            environment = {
                "KUBECONFIG": str(server.kubeconfig),
                "AWS_ACCESS_KEY_ID": "AKIA1111222233330000",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-west-2",
                "AWS_ENDPOINT_URL": str(door.aws._endpoint),  # type: ignore[attr-defined]
                "ZONAL_SHIFT_STORE": "DynamoDB",
                "ZONAL_SHIFT_TABLE": "commands",
            }

            async def ask(*words: str) -> Ended:
                return await asyncio.to_thread(dovetail, "zonal-shift", *words, env=environment)

            named_flag = f"--cluster-name={CLUSTER}"
            alone = await ask("status", named_flag, "-o", "json")
            assert [each["name"] for each in json.loads(alone.out)["shifts"]] == ["usw2-az1-aa"]
            server.call(
                lambda: server.server.build_local_client("someone").create(
                    DEFINITIONS, build_zonal_manifest()
                )
            )
            started = await ask("start", "--local", "--zone", "usw2-az2", named_flag)
            assert started.code == 0, started.err
            both = await ask("status", named_flag, "-o", "json")
            assert {each["name"] for each in json.loads(both.out)["shifts"]} == {
                "usw2-az1-aa",
                "local-usw2-az2",
            }
            history = await ask("history", named_flag, "-o", "json")
            assert [each["name"] for each in json.loads(history.out)["shifts"]] == ["usw2-az1-bb"]
            nameless = await ask("status")
            assert (nameless.code, "give --cluster-name=NAME" in nameless.err) == (2, True)
