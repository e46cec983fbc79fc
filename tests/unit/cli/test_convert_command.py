"""dovetail convert: today's manifests on stdout, remarks on stderr, and every option does something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.api.manifests import Document, parse_manifests
from support.commands import Ended, dovetail

OLD = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: default}
spec:
  ttlSecondsAfterEmpty: 30
  provider: {instanceProfile: Nodes, subnetSelector: {a: b}, securityGroupSelector: {a: b}}
"""
NAMELESS = OLD.replace("instanceProfile: Nodes, ", "")
BARE = OLD.replace(", subnetSelector: {a: b}, securityGroupSelector: {a: b}", "")
WORKLOAD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {karpenter.sh/do-not-evict: "true"}
spec: {containers: []}
"""


def convert(text: str, *arguments: str) -> Ended:
    return dovetail("convert", "-f", "-", *arguments, stdin=text.encode())


def made(text: str, *arguments: str) -> dict[str, Document]:
    found = parse_manifests(convert(text, *arguments).out, "out")
    assert not found.complaints
    return {document.kind: document for document in found.documents}


def test_todays_manifests_go_to_stdout_and_remarks_to_stderr() -> None:
    ended = convert(OLD)
    assert ended.code == 0
    assert [document.kind for document in parse_manifests(ended.out, "out").documents] == [
        "NodePool",
        "EC2NodeClass",
    ]
    assert ended.err.startswith("stdin:")
    assert "AL2 has no images for Kubernetes 1.33" in ended.err


def test_json_is_one_list_that_kubectl_takes() -> None:
    document = json.loads(convert(OLD, "-o", "json").out)
    assert document["kind"] == "List"
    assert [item["kind"] for item in document["items"]] == ["NodePool", "EC2NodeClass"]


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        (["--role", "NodeRole"], {"role": "NodeRole"}),
        (["--tag", "team=a", "--tag", "cost=1=2"], {"tags": {"team": "a", "cost": "1=2"}}),
        (["--no-eni-limit"], {"kubelet": {"maxPods": 110}}),
    ],
)
def test_an_option_reaches_the_class(arguments: list[str], spec: dict[str, object]) -> None:
    value = made(OLD, *arguments)["EC2NodeClass"].value["spec"]
    assert {key: value[key] for key in spec} == spec


def test_the_default_profile_is_used_by_a_template_that_names_none() -> None:
    assert convert(NAMELESS).code == 1
    value = made(NAMELESS, "--default-instance-profile", "Nodes")["EC2NodeClass"].value
    assert value["spec"]["instanceProfile"] == "Nodes"


def test_the_cluster_name_is_used_by_selectors_that_relied_on_it() -> None:
    assert convert(BARE).code == 1
    value = made(BARE, "--cluster-name", "prod")["EC2NodeClass"].value
    assert value["spec"]["subnetSelectorTerms"] == [{"tags": {"kubernetes.io/cluster/prod": "*"}}]


def test_the_kubernetes_version_decides_about_al2() -> None:
    assert "AL2 has no images" not in convert(OLD, "--kubernetes-version", "1.30").err


def test_implied_requirements_can_be_left_out() -> None:
    assert made(OLD)["NodePool"].value["spec"]["template"]["spec"]["requirements"] != []
    assert made(OLD, "--ignore-defaults")["NodePool"].value["spec"]["template"]["spec"]["requirements"] == []


def test_budgets_of_old_can_be_written() -> None:
    assert "budgets" not in made(OLD)["NodePool"].value["spec"]["disruption"]
    assert "budgets" in made(OLD, "--legacy-budgets")["NodePool"].value["spec"]["disruption"]


def test_workloads_are_rewritten_when_asked() -> None:
    assert "do-not-evict" in convert(WORKLOAD).out
    metadata = made(WORKLOAD, "--rewrite-workloads")["Pod"].value["metadata"]
    assert metadata["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


def test_a_tag_without_a_value_is_misuse() -> None:
    ended = convert(OLD, "--tag", "team")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == 'dovetail: --tag is "team", but must be a key, an = and a value\n'


def test_one_bad_document_hides_no_other() -> None:
    ended = convert(f"a: [\n---\n{OLD}---\n{OLD.replace('provider:', 'provider: [] #')}")
    kinds = [document.kind for document in parse_manifests(ended.out, "out").documents]
    assert ended.code == 1
    assert kinds == ["NodePool", "EC2NodeClass"]
    assert "stdin:2:1: error: this is not YAML" in ended.err


def test_a_missing_file_is_said_and_the_others_are_converted(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(OLD, encoding="utf-8")
    ended = dovetail("convert", "-f", str(tmp_path / "gone.yaml"), str(tmp_path / "old.yaml"))
    assert ended.code == 1
    assert f"{tmp_path}/gone.yaml: error: there is no such file" in ended.err
    assert "kind: NodePool" in ended.out


def test_each_object_can_have_a_file_of_its_own(tmp_path: Path) -> None:
    ended = convert(f"{OLD}---\n{OLD}", "--output-dir", str(tmp_path))
    assert (ended.code, ended.out) == (0, "")
    names = sorted(path.name for path in tmp_path.iterdir())
    kinds = ("ec2nodeclass", "nodepool")
    assert names == [f"{kind}-default{number}.yaml" for kind in kinds for number in ("-2", "")]
    assert (
        (tmp_path / "nodepool-default.yaml")
        .read_text(encoding="utf-8")
        .startswith("# info: Provisioner/default")
    )


def test_a_name_cannot_lead_a_file_out_of_its_directory(tmp_path: Path) -> None:
    out = tmp_path / "out"
    hostile = WORKLOAD.replace("name: web", "name: ../../etc/passwd")
    assert convert(hostile, "--output-dir", str(out)).code == 0
    assert [path.name for path in out.iterdir()] == ["pod-.._.._etc_passwd.yaml"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
