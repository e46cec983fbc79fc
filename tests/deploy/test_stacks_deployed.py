"""Templates of CloudFormation deployed into the simulated AWS: what they make, what they grant and leave."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.aws import CLUSTER
from support.deployed_stack import Stack, deployed_stack
from support.policy_documents import by_sid

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "hack"))
import write_iam  # type: ignore[import-not-found]  # noqa: E402  # hack is not a package

Json = dict[str, Any]
SOURCE: Json = write_iam.more()
AT = "us-west-2:111122223333"
ZONAL = f"dovetail-zonal-{CLUSTER}"
CODE = {"CodeBucket": "code", "CodeKey": "bus.zip"}
HUB = {f"dovetail-bus-{lane}" for lane in ("urgent", "bulk", "park", "dlq")}
ALWAYS = {"SpotInterruption", "CapacityReservation", "StateChange", "Rebalance", "ScheduledChange"}
OPTIONAL = {"AutoscalingTerminate", "ZonalShift", "Canary"}
# Some kinds moto does not make, and says so: a queue's policy, pod identities, experiments, autoshift.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse")


def made(name: str, **parameters: str) -> Stack:
    found = asyncio.run(deployed_stack(name, **parameters))
    letters = {"dovetail-bus-park", "dovetail-bus-dlq"}

    assert found.status == "CREATE_COMPLETE"
    # What nobody has looked at yet stays.
    assert found.left == found.queues & letters
    return found


def granted(stack: Stack, role: str) -> Json:
    return by_sid(each for document in stack.documents[role] for each in document["Statement"])


def wanted(source: Json, *names: str, **places: str) -> Json:
    told = {
        "Partition": "aws",
        "Region": "us-west-2",
        "Account": "111122223333",
        "Name": "dovetail-bus",
        "Cluster": CLUSTER,
        "ClusterArn": f"arn:aws:eks:{AT}:cluster/{CLUSTER}",
        "QueueArn": f"arn:aws:sqs:{AT}:{ZONAL}",
        "TopicArn": f"arn:aws:sns:{AT}:{ZONAL}",
        **places,
    }
    text = json.dumps([each for name in names for each in source[name]])
    for place, value in told.items():
        text = text.replace(f"${{{place}}}", value)
    return by_sid(json.loads(text))


def test_the_hub_is_made_as_it_is() -> None:
    stack = made("interruption-bus", **CODE)

    assert stack.queues == HUB
    assert stack.rules == {f"dovetail-bus-{each}" for each in ALWAYS}
    assert granted(stack, "RouterRole") == wanted(SOURCE["bus"], "routerPolicy", "discoveryPolicy")


def test_the_hub_is_made_with_everything() -> None:
    switches = dict.fromkeys(("WithAutoscaling", "WithZonalShift", "WithCanary", "WithRegistry"), "true")
    stack = made("interruption-bus", **CODE, **switches)
    table = f"arn:aws:dynamodb:{AT}:table/{stack.outputs['RegistryTable']}"
    names = ("routerPolicy", "discoveryPolicy", "tablePolicy", "canaryPolicy")

    assert stack.rules == {f"dovetail-bus-{each}" for each in ALWAYS | OPTIONAL}
    assert granted(stack, "RouterRole") == wanted(SOURCE["bus"], *names, TableArn=table)


def test_the_experiments_role_may_interrupt_one_clusters_machines() -> None:
    stack = made("interruption-experiment", ClusterName=CLUSTER)

    assert granted(stack, "Role") == wanted(SOURCE["experiment"], "policy")


def test_zonal_shifts_come_by_a_queue() -> None:
    stack = made("zonal-shift", ClusterName=CLUSTER)

    assert stack.queues == {ZONAL, f"{ZONAL}-dlq"}
    assert stack.rules == {ZONAL}
    assert granted(stack, "Role") == wanted(SOURCE["zonalShift"], "policy", "sqsPolicy")


def test_zonal_shifts_come_by_a_topic_and_are_kept_in_a_table() -> None:
    more = {"Transport": "sns", "EnableDynamoDB": "true", "EnableObserver": "true"}
    stack = made("zonal-shift", ClusterName=CLUSTER, **more)
    names = ("policy", "snsPolicy", "tablePolicy", "observerPolicy")

    assert stack.queues == {f"{ZONAL}-dlq"}
    assert stack.outputs["TopicArn"] == f"arn:aws:sns:{AT}:{ZONAL}"
    table = f"arn:aws:dynamodb:{AT}:table/{ZONAL}"
    assert granted(stack, "Role") == wanted(SOURCE["zonalShift"], *names, TableArn=table)
