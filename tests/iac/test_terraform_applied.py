"""Every Terraform module by a real terraform with the real providers, on the simulated AWS.

Planned, applied, planned again to no effect, destroyed without a trace. All at once, each in an account of
its own: the aws provider waits minutes for queues by itself.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.aws import CLUSTER
from support.helm import by_name, rendered
from support.lifetime import SPARE_IAM, lived_with
from support.policy_documents import Where, by_sid, from_source
from support.stage import virtual
from support.terraform import ACCOUNT, MODULES, REGION, outputs
from support.terraform_apply import WORKERS, Applied, Case, all_applied

Json = dict[str, Any]
HERE: Json = {"cluster_name": CLUSTER}
HUB = "arn:aws:sqs:us-west-2:999988887777:dovetail-bus"
TAGS = {"team": "web"}
PRACTICE = {
    "outcome_alarm_arn": "arn:aws:cloudwatch:us-west-2:{account}:alarm:orders-fail",
    "blocked_windows": ["Mon:09:00-Mon:17:00"],
}
CASES = {
    "core": Case("core", HERE),
    "core, named": Case(
        "core",
        {
            **HERE,
            "tags": TAGS,
            "enable_inline_policy": True,
            "create_instance_profile": True,
            "iam_role_use_name_prefix": False,
            "iam_policy_use_name_prefix": False,
            "node_iam_role_use_name_prefix": False,
            "node_iam_role_additional_policies": {
                "ssm": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
            },
            "queue_name": "warnings",
            "iam_policy_statements": [
                {"Sid": "More", "Effect": "Allow", "Action": ["ssm:GetParameter"], "Resource": "*"}
            ],
        },
    ),
    # As the stack of CloudFormation names them, so that the same controller can live with either.
    "core, like the stack": Case(
        "core",
        {
            **HERE,
            "queue_name": CLUSTER,
            "node_iam_role_name": f"KarpenterNodeRole-{CLUSTER}",
            "node_iam_role_use_name_prefix": False,
        },
        ACCOUNT,
    ),
    "core, nothing": Case("core", {**HERE, "create": False}),
    "hub": Case(
        "interruption-bus",
        {
            "tags": TAGS,
            "create_registry": True,
            "optional_kinds": ["asg_terminate", "zonal_shift", "canary"],
            "organization_id": "o-1234567890",
            "alarm_topic_arn": "arn:aws:sns:us-west-2:{account}:on-call",
        },
    ),
    "hub, in a cluster": Case(
        "interruption-bus", {**HERE, "mode": "daemon", "create_dashboard": False, "name": "bus"}
    ),
    "queue of a cluster": Case(
        "interruption-bus-cluster",
        {**HERE, "router_role_arn": "arn:aws:iam::999988887777:role/router", "tags": TAGS},
    ),
    "spoke": Case(
        "interruption-bus-spoke",
        {
            "hub_queue_arns": {"urgent": f"{HUB}-urgent", "bulk": f"{HUB}-bulk"},
            "router_role_arn": "arn:aws:iam::999988887777:role/router",
            "external_id": "between us",
        },
    ),
    "experiment": Case("interruption-experiment", {**HERE, "instances": 2, "notice": "PT5M"}),
    "zonal shift by sqs": Case("zonal-shift", HERE),
    "zonal shift by sns": Case(
        "zonal-shift",
        {
            **HERE,
            "tags": TAGS,
            "transport": "sns",
            "enable_dynamodb": True,
            "enable_observer": True,
            "enable_autoshift": True,
            "practice_run": PRACTICE,
            "oidc_provider_arn": "arn:aws:iam::{account}:oidc-provider/oidc.eks.us-west-2.amazonaws.com/id/A",
        },
    ),
    "2021": Case("karpenter-2021", {**HERE, "worker_iam_role_name": WORKERS}),
    "2021, with a queue": Case(
        "karpenter-2021",
        {
            **HERE,
            "worker_iam_role_name": WORKERS,
            "create_queue": True,
            "helm_namespace": "other",
            "helm_name": "other",
            "iam_path": "/teams/",
        },
    ),
}
# What each makes is seen by its kinds: everything that is counted below, and not one thing more.
MADE = {
    "core": {"queues": 1, "roles": 2, "rules": 5, "entries": 1, "associations": 1},
    "core, named": {"queues": 1, "roles": 2, "rules": 5, "entries": 1, "associations": 1, "profiles": 1},
    "core, like the stack": {"queues": 1, "roles": 2, "rules": 5, "entries": 1, "associations": 1},
    "core, nothing": {},
    "hub": {"queues": 4, "roles": 1, "rules": 8, "alarms": 4, "dashboards": 1},
    "hub, in a cluster": {"queues": 4, "roles": 1, "rules": 5, "alarms": 4, "associations": 1},
    "queue of a cluster": {"queues": 1},
    "spoke": {"queues": 1, "roles": 2, "rules": 5},
    "experiment": {"roles": 1, "experiments": 1},
    "zonal shift by sqs": {"queues": 2, "roles": 1, "rules": 1, "associations": 1},
    "zonal shift by sns": {"queues": 1, "roles": 1, "rules": 1},
    "2021": {"roles": 1, "profiles": 1},
    "2021, with a queue": {"queues": 1, "roles": 1, "rules": 5, "profiles": 1},
}


@pytest.fixture(scope="module")
def applied(terraform: str, providers: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Applied]:
    folder = tmp_path_factory.mktemp("applied")
    package = folder / "bus.zip"
    with zipfile.ZipFile(package, "w") as written:
        written.writestr("dovetail/__init__.py", "")
    hub = CASES["hub"]
    cases = {**CASES, "hub": Case(hub.module, {**hub.variables, "package": str(package)})}
    return all_applied(terraform, providers, folder, cases)


def test_every_module_with_a_provider_is_applied() -> None:
    alone = {"policies", "documents"}

    assert {each.module for each in CASES.values()} == {
        p.name for p in MODULES.iterdir() if p.is_dir()
    } - alone


@pytest.mark.parametrize("name", CASES)
def test_a_module_is_applied_changes_nothing_the_second_time_and_goes_away(
    name: str, applied: dict[str, Applied]
) -> None:
    found = applied[name]

    assert found.refused == ""
    assert set(map(tuple, found.planned.values())) <= {("create",)}
    assert bool(found.planned) is (name != "core, nothing")
    assert found.changed == {}
    assert {kind: len(held) for kind, held in found.made.items()} == MADE[name]
    assert found.left == {}


@pytest.mark.spec("operations-12.2", "operations-18.3")
@pytest.mark.parametrize(
    ("name", "role"), [("core", "KarpenterController-"), ("core, named", "KarpenterController")]
)
def test_the_controllers_role_may_do_what_the_source_says(
    name: str, role: str, applied: dict[str, Applied]
) -> None:
    found = applied[name]
    ((_, documents),) = ((each, held) for each, held in found.documents.items() if each.startswith(role))
    granted = by_sid(statement for document in documents for statement in document["Statement"])
    added = granted.pop("More", None)

    where = Where("aws", REGION, found.account, CLUSTER)
    node, queue = found.outputs["node_iam_role_arn"], found.outputs["queue_arn"]
    assert granted == from_source(where, NodeRoleArn=node, QueueArn=queue)
    assert (added is not None) is (name == "core, named")


@pytest.mark.spec("operations-18.3")
@virtual
async def test_nothing_is_denied_to_a_controller_in_that_role_and_nothing_unused(
    applied: dict[str, Applied],
) -> None:
    (role,) = (name for name in applied["core, like the stack"].documents if "Controller" in name)
    denied, unused = await lived_with(applied["core, like the stack"].documents[role])

    assert denied == set()
    assert unused == SPARE_IAM


@pytest.mark.parametrize(
    ("name", "role", "wanted"),
    [
        ("hub", "-router", ("bus", "routerPolicy", "discoveryPolicy", "tablePolicy", "canaryPolicy")),
        ("hub, in a cluster", "-router", ("bus", "routerPolicy", "discoveryPolicy")),
        ("spoke", "DovetailBusReader", ("bus", "readerPolicy")),
        ("experiment", f"-{CLUSTER}", ("experiment", "policy")),
        ("zonal shift by sqs", f"-{CLUSTER}", ("zonal", "policy", "sqsPolicy")),
        (
            "zonal shift by sns",
            f"-{CLUSTER}",
            ("zonal", "policy", "snsPolicy", "tablePolicy", "observerPolicy"),
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_other_roles_may_do_what_the_source_says(
    name: str, role: str, wanted: tuple[str, ...], applied: dict[str, Applied], terraform: str, tmp_path: Path
) -> None:
    found = applied[name]
    ((_, documents),) = ((each, held) for each, held in found.documents.items() if each.endswith(role))
    granted = by_sid(statement for document in documents for statement in document["Statement"])

    at, zonal = f"{REGION}:{found.account}", f"dovetail-zonal-{CLUSTER}"
    bus = CASES[name].variables.get("name", "dovetail-bus")
    table = f"{bus}-registry" if wanted[0] == "bus" else zonal
    told = {
        "partition": "aws",
        "region": REGION,
        "account": found.account,
        "name": bus,
        "cluster_name": CLUSTER,
        "queue_arn": f"arn:aws:sqs:{at}:{zonal}",
        "topic_arn": f"arn:aws:sns:{at}:{zonal}",
        "table_arn": f"arn:aws:dynamodb:{at}:table/{table}",
    }
    source = outputs(terraform, "documents", told, tmp_path)[f"{wanted[0]}_policies"]
    assert granted == by_sid(each for one in wanted[1:] for each in json.loads(source[one])["Statement"])


@pytest.mark.spec("operations-18.8")
def test_the_release_of_2021_is_installed_with_what_the_module_made(applied: dict[str, Applied]) -> None:
    plain, queued = applied["2021"].outputs, applied["2021, with a queue"].outputs

    assert plain["node_class_spec"] == {"instanceProfile": f"KarpenterNodeInstanceProfile-{CLUSTER}"}
    assert plain["karpenter_iam"]["name"] == f"karpenter-policy-{CLUSTER}"
    assert queued["karpenter_iam"]["path"] == "/teams/"


@pytest.mark.spec("operations-18.8")
def test_zonal_shifts_values_turn_it_on_in_the_chart(applied: dict[str, Applied]) -> None:
    by_sqs = applied["zonal shift by sqs"].outputs["helm_values"]
    by_sns = applied["zonal shift by sns"].outputs["helm_values"]
    by_sns["zonalShift"]["tlsSecret"] = "tls"
    told = [_environment(rendered(values)) for values in (by_sqs, by_sns)]

    assert [each["ENABLE_ZONAL_SHIFT"] for each in told] == ["true", "true"]
    assert told[0]["ZONAL_SHIFT_QUEUE"] == f"dovetail-zonal-{CLUSTER}"
    assert told[1]["ZONAL_SHIFT_TABLE"] == f"dovetail-zonal-{CLUSTER}"
    assert told[1]["ZONAL_SHIFT_TOPIC_ARN"] == applied["zonal shift by sns"].outputs["topic_arn"]
    role = {"eks.amazonaws.com/role-arn": applied["zonal shift by sns"].outputs["iam_role_arn"]}
    assert by_name(rendered(by_sns), "ServiceAccount", "karpenter")["metadata"]["annotations"] == role


def _environment(objects: list[Json]) -> dict[str, str]:
    main = by_name(objects, "Deployment", "karpenter")["spec"]["template"]["spec"]["containers"][0]
    return {each["name"]: each["value"] for each in main["env"] if "value" in each}
