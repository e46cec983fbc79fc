"""dovetail validate: every mistake with its place, and no input that gets the better of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.api.manifests import parse_manifests
from dovetail.state.unreadable import KINDS_READ
from support.commands import Ended, dovetail, process
from support.hostile_world import kinds_read

GOOD = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: good}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
"""
WRONG = GOOD.replace("requirements: []", "requirements: [{key: a, operator: Is}]").replace("good", "wrong")
MISSPELT = GOOD.replace("template:", "wieght: 3\n  template:").replace("good", "misspelt")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
)

HOSTILE: dict[str, bytes] = {
    "broken yaml": b"kind: NodePool\n  metadata: x\n",
    "tabs": b"kind:\tNodePool\n\tmetadata: x\n",
    "deep lists": b"[" * 200_000,
    "deep mappings": b'{"a":' * 200_000,
    "an alias bomb": BOMB.encode(),
    "an alias of itself": b"a: &a [*a]\n",
    "a NUL": b"kind: Node\0Pool\n",
    "invalid UTF-8": b"kind: \xff\xfe\xfd\n",
    "UTF-16": "kind: NodePool".encode("utf-16"),
    "a lone word": b"hello\n",
    "a number": b"42\n",
    "a python object": b"!!python/object/apply:os.system [echo hello]\n",
    "a long line": b"a" * 1_000_000,
    "a long number": b"kind: " + b"9" * 100_000,
    "no kind": b"apiVersion: v1\nmetadata: {}\n",
    "a kind that is a list": b"apiVersion: v1\nkind: [NodePool]\n",
}


def validate(text: str | bytes, *arguments: str) -> Ended:
    return dovetail("validate", "-f", "-", *arguments, stdin=text.encode() if isinstance(text, str) else text)


def test_a_good_manifest_is_fine() -> None:
    ended = validate(GOOD)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "1 object checked: 0 errors, 0 warnings\n"


def test_a_mistake_is_named_with_file_line_and_path(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(f"{GOOD}---\n{WRONG}", encoding="utf-8")
    ended = dovetail("validate", "-f", str(file))
    assert ended.code == 1
    assert ended.out.startswith(f"{file}:17")
    assert "error: spec.template.spec.requirements[0].operator: " in ended.out


def test_a_misspelt_field_is_a_warning_and_with_strict_a_failure() -> None:
    ended = validate(MISSPELT)
    assert ended.code == 0
    assert "warning" in ended.out
    assert "weight" in ended.out
    assert validate(MISSPELT, "--strict").code == 1


@pytest.mark.parametrize(
    "named", ["karpenter.sh/v1 NodePol", "karpenter.sh/v1alpha5 Provisioner", "karpentr.sh/v1 NodePool"]
)
def test_a_kind_of_ours_that_is_misnamed_or_of_old_is_an_error(named: str) -> None:
    version, kind = named.split()
    ended = validate(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n")
    assert ended.code == 1
    assert f"stdin:2: error: kind: {named} is " in ended.out


def test_a_kind_of_others_is_skipped_and_said_to_be() -> None:
    ended = validate(f"apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\n---\n{GOOD}", "--strict")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines() == [
        "stdin:1: skipped: v1 Secret is not a kind that Dovetail reads",
        "1 object checked: 0 errors, 0 warnings",
    ]


BAD_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: absurd}
spec:
  containers:
  - name: app
    resources:
      requests: {cpu: many, memory: 1Gi}
  - 7
"""
BAD_NODE = f"""\
apiVersion: v1
kind: Node
metadata: {{name: endless}}
status: {{allocatable: {{memory: "{"9" * 400}"}}}}
"""
BAD_DAEMON = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: greedy}
spec:
  template:
    spec: {containers: [{name: app, resources: {requests: {cpu: 1e30}}}]}
"""


def test_what_the_controller_would_set_aside_is_named_with_file_line_and_field() -> None:
    ended = validate(f"{GOOD}---\n{BAD_POD}---\n{BAD_NODE}---\n{BAD_DAEMON}")
    assert ended.code == 1
    pod, container, node, daemon = ended.out.splitlines()
    assert pod.startswith(
        "stdin:17: error: spec.containers[0].resources.requests[cpu]: Pod absurd would be set"
    )
    assert container.startswith("stdin:18: error: spec.containers[1]: Pod absurd would be set aside: ")
    assert node.startswith(
        "stdin:20: error: Node endless would be set aside: status.allocatable[memory] is more"
    )
    assert daemon.startswith(
        "stdin:30: error: spec.template.spec: DaemonSet greedy would be set aside: its pods"
    )
    assert ended.err == "4 objects checked: 4 errors, 0 warnings\n"


def test_a_pod_that_can_be_read_is_checked_and_fine() -> None:
    ended = validate("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app}]}\n")
    assert (ended.code, ended.out, ended.err) == (0, "", "1 object checked: 0 errors, 0 warnings\n")


def test_every_kind_that_the_controller_follows_is_one_that_validate_reads() -> None:
    assert {kind.KIND for kind in kinds_read()} <= {kind.KIND for kind in KINDS_READ.values()}


def test_the_cloud_is_taken_from_each_manifest_unless_it_is_given() -> None:
    kwok = GOOD.replace("karpenter.k8s.aws", "karpenter.kwok.sh").replace("EC2NodeClass", "KWOKNodeClass")
    kwok += "---\napiVersion: karpenter.kwok.sh/v1alpha1\nkind: KWOKNodeClass\nmetadata: {name: default}\n"
    assert validate(kwok + "---\n" + GOOD).code == 0
    assert "belongs to the kwok provider" in validate(kwok, "--flavour", "aws").out


def test_nothing_at_all_is_a_complaint() -> None:
    ended = validate("# nothing here\n")
    assert ended.code == 1
    assert ended.out == "input: error: there is no object in it\n"


def test_everything_comes_as_json_and_yaml_too() -> None:
    document = json.loads(validate(WRONG, "-o", "json").out)
    assert document["checked"] == [
        {"source": "stdin", "line": 1, "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "wrong"}
    ]
    [complaint] = document["complaints"]
    assert (complaint["source"], complaint["severity"], complaint["line"]) == ("stdin", "error", 8)
    assert complaint["path"] == "spec.template.spec.requirements[0].operator"
    assert validate(WRONG, "-o", "json").code == 1
    assert "complaints:\n- source: stdin\n" in validate(WRONG, "-o", "yaml").out


def test_files_directories_patterns_and_stdin_go_together(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.yaml", "b.yml", "sub/c.yaml"):
        (tmp_path / name).write_text(GOOD, encoding="utf-8")
    paths = ["-f", "-", "-f", str(tmp_path / "*.yaml"), "-f", str(tmp_path / "sub"), str(tmp_path / "b.yml")]
    ended = dovetail("validate", *paths, stdin=GOOD.encode())
    assert (ended.code, ended.err) == (0, "4 objects checked: 0 errors, 0 warnings\n")


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_input_is_a_complaint_and_hides_no_other_document(name: str, tmp_path: Path) -> None:
    (tmp_path / "1-hostile.yaml").write_bytes(HOSTILE[name])
    (tmp_path / "2-wrong.yaml").write_text(WRONG, encoding="utf-8")
    ended = dovetail("validate", "-f", str(tmp_path))
    assert ended.code == 1
    assert "1-hostile.yaml" in ended.out
    assert "2-wrong.yaml:8" in ended.out
    assert all(len(line) < 1_000 for line in ended.out.splitlines())


@pytest.mark.parametrize(
    "name", ["broken yaml", "tabs", "an alias bomb", "a NUL", "invalid UTF-8", "a lone word"]
)
def test_a_bad_document_hides_no_other_in_the_same_file(name: str) -> None:
    ended = validate(GOOD.encode() + b"---\n" + HOSTILE[name] + b"---\n" + WRONG.encode())
    found = parse_manifests(GOOD.encode() + b"---\n" + HOSTILE[name] + b"---\n" + WRONG.encode(), "stdin")
    assert [document.name for document in found.documents] == ["good", "wrong"]
    assert ended.code == 1
    assert "requirements[0].operator" in ended.out


@pytest.mark.parametrize("name", ["deep mappings", "an alias bomb", "a python object"])
def test_a_process_survives_hostile_input_too(name: str) -> None:
    ended = process("validate", "-f", "-", stdin=HOSTILE[name])
    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert "hello" not in ended.out.splitlines()


def test_a_file_of_100_megabytes_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with open(tmp_path / "huge.yaml", "wb") as huge:
        huge.write(GOOD.encode())
        huge.truncate(100 * 1024 * 1024)
    ended = dovetail("validate", "-f", str(tmp_path / "huge.yaml"))
    assert ended.code == 1
    assert ended.out.count("\n") == 1
    assert "larger than" in ended.out


def test_files_that_cannot_be_read_are_complaints(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = dovetail("validate", "-f", str(tmp_path / "missing.yaml"), "-f", str(tmp_path / "empty"))
    assert ended.code == 1
    assert ended.out.splitlines() == [
        f"{tmp_path}/empty: error: the directory holds no file that ends in .yaml, .yml or .json",
        f"{tmp_path}/missing.yaml: error: there is no such file",
    ]


def test_complaints_come_in_the_order_of_files_and_lines(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(WRONG, encoding="utf-8")
    (tmp_path / "a.yaml").write_text(f"{WRONG}---\na: [\n---\n{WRONG}", encoding="utf-8")
    ended = dovetail("validate", "-f", str(tmp_path / "b.yaml"), "-f", str(tmp_path))
    places = [line.removeprefix(f"{tmp_path}/").split(": ")[0] for line in ended.out.splitlines()]
    assert places == ["a.yaml:8", "a.yaml:11:1", "a.yaml:19", "b.yaml:8"]
