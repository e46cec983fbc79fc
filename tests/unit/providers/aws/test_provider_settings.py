"""What the AWS provider is told: everything wrong is said together, and a flag wins."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.errors import Misconfigured
from dovetail.settings import read_settings
from dovetail.settings.loader import examine_settings

WRONG = {
    "CLUSTER_ENDPOINT": "cluster.local/path",
    "VM_MEMORY_OVERHEAD_PERCENT": "-0.1",
    "RESERVED_ENIS": "-1",
    "AMI_REFRESH_INTERVAL": "59s",
    "SUBNET_REFRESH_INTERVAL": "30s",
}
RIGHT = {"CLUSTER_NAME": "prod"}


@pytest.mark.spec("aws-238")
def test_everything_wrong_is_found_at_once_and_the_start_says_how_much_there_is() -> None:
    problems = examine_settings([], WRONG, provider="aws").problems
    for name in (*WRONG, "CLUSTER_NAME"):
        assert any(each.startswith(name) for each in problems), name
    with pytest.raises(Misconfigured, match=f"{len(problems) - 1} more: `dovetail settings` lists them"):
        read_settings([], WRONG, provider="aws")


@pytest.mark.spec("aws-238")
@pytest.mark.parametrize("name", [*WRONG, "CLUSTER_NAME"])
def test_each_wrong_value_is_enough_to_stop_the_start(name: str) -> None:
    given = {**RIGHT, name: WRONG.get(name, "")}
    with pytest.raises(Misconfigured, match=name) as caught:
        read_settings([], given, provider="aws")
    others = (WRONG.keys() | {"CLUSTER_NAME"}) - {name}
    assert not any(other in str(caught.value) for other in others)


@pytest.mark.spec("aws-238")
def test_values_on_the_edge_are_taken() -> None:
    settings = read_settings(
        [],
        RIGHT
        | {
            "CLUSTER_ENDPOINT": "https://cluster.local",
            "VM_MEMORY_OVERHEAD_PERCENT": "0",
            "RESERVED_ENIS": "0",
            "AMI_REFRESH_INTERVAL": "1m",
            "SUBNET_REFRESH_INTERVAL": "1m",
        },
        provider="aws",
    )
    assert settings.cluster_endpoint == "https://cluster.local"
    assert settings.vm_memory_overhead_percent == 0
    assert settings.ami_refresh_interval == settings.subnet_refresh_interval == timedelta(minutes=1)


@pytest.mark.spec("aws-239")
def test_a_flag_wins_over_the_environment() -> None:
    given = RIGHT | {"RESERVED_ENIS": "1", "INTERRUPTION_QUEUE": "theirs", "ISOLATED_VPC": "true"}
    flags = [
        "--reserved-enis=2",
        "--interruption-queue=ours",
        "--isolated-vpc=false",
        "--cluster-name=flagged",
    ]
    settings = read_settings(flags, given, provider="aws")
    assert (settings.reserved_enis, settings.interruption_queue, settings.isolated_vpc) == (2, "ours", False)
    assert settings.cluster_name == "flagged"
    assert read_settings([], given, provider="aws").interruption_queue == "theirs"


@pytest.mark.spec("aws-239")
def test_an_aws_gate_that_nobody_knows_is_ignored() -> None:
    settings = read_settings(
        [], RIGHT | {"AWS_FEATURE_GATES": "Tomorrow=true,NodeClassCEL=true"}, provider="aws"
    )
    assert settings.aws_feature_gates.node_class_cel
    assert any("Tomorrow" in each for each in settings.warnings)
    assert not read_settings([], RIGHT, provider="aws").aws_feature_gates.node_class_cel
