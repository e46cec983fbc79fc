"""What Terraform and CloudFormation give feeds the chart as it is, without an edit by hand."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.deployed_stack import deployed
from support.helm import by_name, rendered
from support.terraform import MODULES
from support.terraform import terraform as run

Json = dict[str, Any]
EXPRESSION = re.compile(r"values = \[jsonencode\((\{.*?\n  \})\)\]", re.S)


def evaluated(binary: str, expression: str, known: dict[str, str], at: Path) -> Json:
    """An expression of Terraform, with what only a provider could know told instead."""
    for name, value in known.items():
        expression = expression.replace(name, json.dumps(value))
    left = re.findall(r"\b(?:var|local|module|aws_[a-z_]+)\.[a-z_.\[\]0-9]+", expression)
    assert not left, f"nobody tells {left}"
    (at / "main.tf").write_text(f'output "values" {{\n  value = jsonencode({expression})\n}}\n')
    run(binary, "init", "-input=false", "-no-color", at=at)
    run(binary, "apply", "-auto-approve", "-input=false", "-no-color", at=at)
    found: Json = json.loads(json.loads(run(binary, "output", "-json", at=at))["values"]["value"])
    return found


def variables(objects: list[Json], name: str = "karpenter") -> dict[str, str]:
    main = by_name(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]
    return {each["name"]: each["value"] for each in main["env"] if "value" in each}


@pytest.mark.spec("operations-18.8")
def test_outputs_of_the_core_module_are_values_of_the_chart(terraform: str, tmp_path: Path) -> None:
    example = (MODULES / "core" / "examples" / "cluster" / "main.tf").read_text()
    (expression,) = EXPRESSION.findall(example)
    known = {"module.dovetail.service_account": "karpenter", "module.dovetail.queue_name": "Karpenter-demo"}
    objects = rendered(evaluated(terraform, expression, known, tmp_path))

    told = variables(objects)
    assert (told["CLUSTER_NAME"], told["INTERRUPTION_QUEUE"]) == ("demo", "Karpenter-demo")
    assert by_name(objects, "ServiceAccount", "karpenter")
    defaults = dict(
        re.findall(r'variable "(namespace|service_account)".*?default\s*= "([^"]+)"', core(), re.S)
    )
    assert defaults == {"namespace": "kube-system", "service_account": "karpenter"}


def core() -> str:
    return (MODULES / "core" / "variables.tf").read_text()


@pytest.mark.spec("operations-18.8")
@pytest.mark.parametrize("queue", ["true", "false"])
def test_the_module_of_2021_feeds_the_chart(queue: str, terraform: str, tmp_path: Path) -> None:
    written = (MODULES / "karpenter-2021" / "main.tf").read_text()
    (expression,) = EXPRESSION.findall(written)
    role = "arn:aws:iam::111122223333:role/karpenter-controller-shop"
    known = {
        "local.role_arn": role,
        "aws_sqs_queue.this[0].name": "shop",
        "var.cluster_name": "shop",
        "local.endpoint": "https://shop.example",
    }
    expression = expression.replace("var.create_queue", queue)
    objects = rendered(evaluated(terraform, expression, known, tmp_path), namespace="karpenter")

    told = variables(objects)
    assert (told["CLUSTER_NAME"], told["CLUSTER_ENDPOINT"]) == ("shop", "https://shop.example")
    assert told.get("INTERRUPTION_QUEUE", "") == ("shop" if queue == "true" else "")
    account = by_name(objects, "ServiceAccount", "karpenter")
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": role}


@pytest.mark.filterwarnings("ignore:Tried to parse AWS..SQS..QueuePolicy")
def test_outputs_of_the_stack_are_values_of_the_chart() -> None:
    _, made = asyncio.run(deployed("shop"))
    outputs = made["outputs"]
    objects = rendered(
        {"settings": {"clusterName": "shop", "interruptionQueue": outputs["InterruptionQueueName"]}}
    )

    assert variables(objects)["INTERRUPTION_QUEUE"] == "shop"
    assert outputs["NodeRoleName"] == "KarpenterNodeRole-shop"
