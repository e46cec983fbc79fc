"""Terraform modules: well formed, complete, with the names people know, and valid to their providers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dovetail.bus.config import KEYS
from support.terraform import MODULES, Root, outputs, terraform


def words(listed: str) -> set[str]:
    return set(listed.split())


ALL = sorted(each.name for each in MODULES.iterdir() if each.is_dir())
EXAMPLES = sorted(MODULES.glob("*/examples/*"))
# operations.md §13.1: inputs and outputs of the module people use.
CORE_INPUTS = words(
    """
    create tags cluster_name region create_iam_role iam_role_name iam_role_use_name_prefix
    iam_role_path iam_role_description iam_role_max_session_duration
    iam_role_permissions_boundary_arn iam_role_tags enable_inline_policy iam_policy_name
    iam_policy_use_name_prefix iam_policy_path iam_policy_description
    iam_role_override_assume_policy_documents iam_role_source_assume_policy_documents
    iam_policy_statements iam_role_policies ami_id_ssm_parameter_arns
    create_pod_identity_association namespace service_account enable_spot_termination queue_name
    queue_managed_sse_enabled queue_kms_master_key_id queue_kms_data_key_reuse_period_seconds
    queue_policy_statements create_node_iam_role cluster_ip_family node_iam_role_arn
    node_iam_role_name node_iam_role_use_name_prefix node_iam_role_path node_iam_role_description
    node_iam_role_max_session_duration node_iam_role_permissions_boundary
    node_iam_role_attach_cni_policy node_iam_role_additional_policies node_iam_role_tags
    create_access_entry access_entry_type create_instance_profile rule_name_prefix
    """
)
CORE_OUTPUTS = words(
    """
    iam_role_name iam_role_arn iam_role_unique_id queue_arn queue_name queue_url event_rules
    node_iam_role_name node_iam_role_arn node_iam_role_unique_id node_access_entry_arn
    instance_profile_arn instance_profile_id instance_profile_name instance_profile_unique namespace
    service_account
    """
)
# §13.2: the module of 2021, misspelt as it was.
OLD_INPUTS = words(
    """
    cluster_endpoint cluster_name helm_create_namespace helm_name helm_namespace iam_path
    permissions_boundary provider_url worker_iam_role_name
    """
)
OLD_RESOURCES = words(
    """
    aws_iam_instance_profile.karpenter aws_iam_policy.karpenter_contoller
    aws_iam_policy.ssm_managed_instance
    aws_iam_role_policy_attachment.karpenter_contoller_policy_attachment
    aws_iam_role_policy_attachment.karpenter_ssm_policy helm_release.karpenter
    """
)
# What a module cannot do without, where that is not the name of a cluster.
GIVEN: dict[str, dict[str, object]] = {
    "interruption-bus": {},
    "interruption-bus-spoke": {
        "hub_queue_arns": {"urgent": "arn:aws:sqs:us-west-2:1:u", "bulk": "arn:aws:sqs:us-west-2:1:b"},
        "router_role_arn": "arn:aws:iam::111122223333:role/router",
        "external_id": "x",
    },
}


def text(module: str) -> str:
    return "\n".join(each.read_text() for each in sorted((MODULES / module).glob("*.tf")))


def named(kind: str, module: str) -> set[str]:
    return set(re.findall(rf'^{kind} "([^"]+)"', text(module), re.M))


def resources(module: str, kind: str = "resource") -> set[str]:
    found = re.findall(rf'^ *{kind} "([^"]+)" "([^"]+)"', text(module), re.M)
    return {".".join(each) for each in found}


def test_everything_is_formatted(terraform_binary: str) -> None:
    assert terraform(terraform_binary, "fmt", "-check", "-recursive", ".", at=MODULES) == ""


@pytest.fixture(scope="module")
def terraform_binary(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("terraform"))


@pytest.mark.parametrize("module", ALL)
def test_every_name_is_declared_and_used(module: str) -> None:
    written = text(module)
    used = set(re.findall(r"\bvar\.([a-z_0-9]+)", written))
    kept = set(re.findall(r"\blocal\.([a-z_0-9]+)", written))
    blocks = "\n".join(re.findall(r"^locals \{\n(.*?)^\}", written, re.S | re.M))
    known = set(re.findall(r"^  ([a-z_0-9]+)\s*=", blocks, re.M))
    pointed = set(re.findall(r"(?<![.\w])((?:aws|helm)_[a-z_]+\.[a-z_]+)", re.sub(r"data\.\S+", "", written)))
    looked = set(re.findall(r"\bdata\.([a-z_]+\.[a-z_]+)", written))

    assert used == named("variable", module)
    assert kept == known
    assert pointed <= resources(module)
    assert looked == resources(module, "data")


@pytest.mark.parametrize("module", ALL)
def test_the_readme_lists_inputs_and_outputs(module: str) -> None:
    told = (MODULES / module / "README.md").read_text()
    listed = set(re.findall(r"^\| `([a-z_0-9]+)` \|", told, re.M))

    assert listed == named("variable", module) | named("output", module)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.name)
def test_an_example_uses_only_inputs_and_outputs_there_are(example: Path) -> None:
    written = (example / "main.tf").read_text()
    for name, body in re.findall(r'^module "([^"]+)" \{\n(.*?)^\}', written, re.S | re.M):
        (source,) = re.findall(r'source = "([^"]+)"', body)
        module = (example / source).resolve().name
        given = set(re.findall(r"^  ([a-z_0-9]+)\s*=", body, re.M)) - {"source"}
        assert given <= named("variable", module)
        assert set(re.findall(rf"module\.{name}\.([a-z_]+)", written)) <= named("output", module)


def test_the_core_has_the_inputs_and_outputs_people_know() -> None:
    assert named("variable", "core") >= CORE_INPUTS
    assert named("output", "core") >= CORE_OUTPUTS


@pytest.mark.spec("operations-18.8")
def test_the_module_of_2021_keeps_its_names() -> None:
    assert named("variable", "karpenter-2021") >= OLD_INPUTS
    assert {"hr_manifest", "karpenter_iam"} <= named("output", "karpenter-2021")
    assert resources("karpenter-2021") >= OLD_RESOURCES
    assert "aws_eks_cluster.cluster" in resources("karpenter-2021", "data")
    # What is new is off, so that a plan stays as it was.
    for kind in ("aws_sqs_queue", "aws_sqs_queue_policy"):
        block = text("karpenter-2021").split(f'resource "{kind}" "this"')[1][:60]
        assert "count = var.create_queue ? 1 : 0" in block


def test_every_variable_of_the_routers_functions_is_one_it_reads() -> None:
    given = set(re.findall(r"\bDOVETAIL_BUS_[A-Z_]+\b", text("interruption-bus"))) - {"DOVETAIL_BUS_QUEUES_"}

    assert given <= {key.variable for key in KEYS}


def test_policies_come_without_interruptions_where_there_is_no_queue(
    terraform_binary: str, tmp_path: Path
) -> None:
    variables = {
        "partition": "aws",
        "region": "us-west-2",
        "account": "111122223333",
        "cluster_name": "demo",
        "node_role_arn": "arn:aws:iam::111122223333:role/nodes",
        "ami_id_ssm_parameter_arns": ["arn:aws:ssm:us-west-2:111122223333:parameter/mine"],
    }
    found = json.loads(outputs(terraform_binary, "policies", variables, tmp_path)["controller_policy"])
    by_sid = {each["Sid"]: each for each in found["Statement"]}

    assert "AllowInterruptionQueueActions" not in by_sid
    assert by_sid["AllowSSMReadActions"]["Resource"] == variables["ami_id_ssm_parameter_arns"]


@pytest.mark.parametrize("module", [each for each in ALL if each not in ("policies", "documents")])
def test_terraform_finds_a_module_valid(
    module: str, terraform_binary: str, providers: Path, tmp_path: Path
) -> None:
    root = Root(terraform_binary, providers, tmp_path)
    root.of_module(module, GIVEN.get(module, {"cluster_name": "demo"}))

    assert root.valid() == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.name)
def test_terraform_finds_an_example_valid(
    example: Path, terraform_binary: str, providers: Path, tmp_path: Path
) -> None:
    root = Root(terraform_binary, providers, tmp_path)
    root.of_example(example)

    assert root.valid() == []
