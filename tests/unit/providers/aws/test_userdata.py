"""What instances are told at their start, by family: what is merged, what is overruled, what is refused."""

from __future__ import annotations

import tomllib
from email import message_from_string
from email.message import Message

import pytest

from dovetail.api import labels
from dovetail.api.core import Taint
from dovetail.errors import ClassNotReady, CreateFailed
from dovetail.providers.aws.cluster_discovery import ClusterFacts
from dovetail.providers.aws.userdata import toml
from support.builders import taint
from support.launches import SIX, claim_for, ec2_class, image, user_data

FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Windows2022")
SHELL, CONFIG = "text/x-shellscript", "application/node.eks.aws"
MULTIPART = """Content-Type: multipart/mixed; boundary="B"
MIME-Version: 1.0

--B
Content-Type: text/cloud-config
X-Note: kept

packages: [jq]
--B
Content-Type: text/x-shellscript

#!/bin/bash
echo two
--B--
"""


def parts(text: str) -> list[tuple[str, str]]:
    """The documents of an archive, read by somebody else's reader: type and text."""
    return [(part.get_content_type(), str(part.get_payload())) for part in walked(text)]


def walked(text: str) -> list[Message]:
    return [part for part in message_from_string(text).walk() if not part.is_multipart()]


@pytest.mark.spec("aws-102")
def test_al2_is_told_its_pods_its_resolver_and_that_it_is_not_registered_yet() -> None:
    text = user_data(ec2_class("AL2"))
    assert "--use-max-pods false" in text
    assert "--max-pods=29" in text
    assert "--dns-cluster-ip '10.0.100.10'" in text
    assert "karpenter.sh/unregistered:NoExecute" in text


@pytest.mark.spec("aws-103")
def test_a_resolver_with_an_ipv6_address_makes_an_ipv6_node() -> None:
    text = user_data(ec2_class("AL2"), facts=SIX)
    assert "--ip-family ipv6 \\\n--dns-cluster-ip 'fd01:99f0:d47b::a'" in text


@pytest.mark.spec("aws-104")
def test_a_script_of_the_class_runs_before_the_bootstrap() -> None:
    found = parts(user_data(ec2_class("AL2", userData="#!/bin/bash\necho mine\n")))
    assert [kind for kind, _ in found] == [SHELL, SHELL]
    assert "echo mine" in found[0][1]
    assert "/etc/eks/bootstrap.sh" in found[1][1]


@pytest.mark.spec("aws-104")
def test_an_archive_of_the_class_keeps_its_parts_and_their_headers() -> None:
    found = walked(user_data(ec2_class("AL2", userData=MULTIPART)))
    assert [part.get_content_type() for part in found] == ["text/cloud-config", SHELL, SHELL]
    assert found[0]["X-Note"] == "kept"


@pytest.mark.spec("aws-104")
@pytest.mark.parametrize("custom", ["", None])
def test_without_a_script_of_the_class_there_is_one_part(custom: str | None) -> None:
    assert len(parts(user_data(ec2_class("AL2", userData=custom)))) == 1


@pytest.mark.parametrize("family", ["AL2", "AL2023"])
@pytest.mark.parametrize(
    ("custom", "told"),
    [
        ("MIME-Version: 1.0\n\nhello", "no Content-Type"),
        ("Content-Type: text/plain\n\nhello", "text/plain"),
        ('Content-Type: multipart/mixed; boundary="x"\n\n--x\n\nopen', "closing line '--x--'"),
        ("  \nMIME-Version: 1.0\n\n", "where a header should be"),
        ("MIME-Version: 1.0\nnonsense\n\n--x\n", "'nonsense'"),
    ],
)
def test_a_broken_archive_ends_the_launch_with_a_sentence(family: str, custom: str, told: str) -> None:
    with pytest.raises(CreateFailed, match="the node class's user data cannot be used") as failed:
        user_data(ec2_class(family, userData=custom))
    assert told in failed.value.message
    assert failed.value.reason == "LaunchFailed"


def test_an_encoded_part_is_decoded_on_its_way() -> None:
    quoted = MULTIPART.replace("X-Note: kept", "Content-Transfer-Encoding: quoted-printable")
    first = walked(user_data(ec2_class("AL2", userData=quoted.replace("[jq]", "=5Bjq=5D"))))[0]
    assert first.get_payload() == "packages: [jq]"
    assert "Content-Transfer-Encoding" not in first


@pytest.mark.spec("aws-105")
def test_pods_are_as_the_class_says() -> None:
    text = user_data(ec2_class("AL2", kubelet={"maxPods": 10, "podsPerCore": 2}))
    assert "--max-pods=10 --pods-per-core=2" in text


@pytest.mark.spec("aws-106")
def test_what_a_node_keeps_for_itself_is_on_its_command_line() -> None:
    kubelet = {
        "kubeReserved": {"memory": "512Mi", "cpu": "100m"},
        "evictionHard": {"memory.available": "5%"},
        "evictionSoft": {"memory.available": "10%"},
        "evictionSoftGracePeriod": {"memory.available": "90s"},
    }
    text = user_data(ec2_class("AL2", kubelet=kubelet))
    assert '--kube-reserved="cpu=100m,memory=512Mi"' in text
    assert '--eviction-hard="memory.available<5%"' in text
    assert '--eviction-soft-grace-period="memory.available=1m30s"' in text


@pytest.mark.parametrize("family", FAMILIES)
def test_a_grace_period_that_is_no_duration_ends_the_launch_with_a_sentence(family: str) -> None:
    soft = {
        "evictionSoft": {"memory.available": "1Gi"},
        "evictionSoftGracePeriod": {"memory.available": "soon"},
    }
    with pytest.raises(CreateFailed, match=r"evictionSoftGracePeriod cannot be used: .*soon"):
        user_data(ec2_class(family, kubelet=soft))


@pytest.mark.spec("aws-107")
@pytest.mark.parametrize("family", FAMILIES)
def test_labels_that_a_kubelet_may_not_give_itself_are_left_to_the_controller(family: str) -> None:
    refused = ("foo.kubernetes.io/bar", "k8s.io/bar", "node-restriction.kubernetes.io/bar")
    text = user_data(ec2_class(family), claim_for(labelled={**dict.fromkeys(refused, "x"), "team": "shop"}))
    assert not [key for key in refused if key in text]
    assert "team" in text


@pytest.mark.spec("aws-108")
def test_local_disks_are_joined_in_the_words_of_each_family() -> None:
    made = {family: user_data(ec2_class(family, instanceStorePolicy="RAID0")) for family in FAMILIES}
    assert made["AL2"].endswith("--local-disks raid0\n--//--\n")
    assert "    localStorage:\n      strategy: RAID0\n" in made["AL2023"]
    command = tomllib.loads(made["Bottlerocket"])["settings"]["bootstrap-commands"][
        "000-mount-instance-storage"
    ]
    assert command["commands"][0] == ["apiclient", "ephemeral-storage", "init"]
    assert (command["mode"], command["essential"]) == ("always", True)
    assert made["Windows2022"] == user_data(ec2_class("Windows2022"))


@pytest.mark.spec("aws-109")
@pytest.mark.parametrize(
    ("term", "names", "explicit"),
    [
        ({"alias": "bottlerocket@v1.45.0"}, (), True),
        ({"alias": "bottlerocket@v1.46.0"}, (), False),
        ({"alias": "bottlerocket@1.46.1"}, (), False),
        ({"alias": "bottlerocket@v2.0.0"}, (), False),
        ({"alias": "bottlerocket@latest"}, (), False),
        ({"name": "bottlerocket-aws-k8s-1.33-x86_64-v1.47.0-abc"}, (), False),
        ({"name": "bottlerocket-*"}, ("bottlerocket-aws-k8s-1.33-x86_64-v1.47.0-abc",), False),
        ({"id": "ami-0"}, ("mine-v1.50.0-x",), False),
        ({"tags": {"a": "b"}}, ("Bottlerocket-v1.46.2-abc",), False),
        ({"tags": {"a": "b"}}, ("mine-v1.50.0-x",), True),
        ({"name": "bottlerocket-v1.47-abc"}, (), True),
        ({"alias": "bottlerocket@bad"}, (), True),
    ],
)
def test_older_bottlerocket_images_are_told_which_directories_move(
    term: dict[str, object], names: tuple[str, ...], explicit: bool
) -> None:
    images = [image(f"ami-{place}", "amd64", name) for place, name in enumerate(names or ("plain",))]
    made = ec2_class("Bottlerocket", images=images, instanceStorePolicy="RAID0", amiSelectorTerms=[term])
    command = tomllib.loads(user_data(made))["settings"]["bootstrap-commands"]["000-mount-instance-storage"]
    directories = ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]
    assert command["commands"][1] == ["apiclient", "ephemeral-storage", "bind"] + directories * explicit


@pytest.mark.spec("aws-110")
def test_settings_of_the_class_stay_where_ours_do_not_contradict(caplog: pytest.LogCaptureFixture) -> None:
    custom = """
[settings.ntp]
time-servers = ["169.254.169.123"]
[settings.kubernetes]
nonsense = 1
api-server = "https://elsewhere"
max-pods = 3
cloud-provider = "external"
[settings.kubernetes.node-taints]
theirs = ["x:NoSchedule"]
[settings.kubernetes.node-labels]
theirs = "kept"
"karpenter.sh/capacity-type" = "overruled"
"""
    settings = tomllib.loads(user_data(ec2_class("Bottlerocket", userData=custom)))["settings"]
    kubernetes = settings["kubernetes"]
    assert settings["ntp"] == {"time-servers": ["169.254.169.123"]}
    assert "nonsense" not in kubernetes
    assert "nonsense" in caplog.text
    assert kubernetes["api-server"] == "https://test-cluster"
    assert kubernetes["max-pods"] == 29
    assert kubernetes["cloud-provider"] == "external"
    assert kubernetes["node-taints"] == {"karpenter.sh/unregistered": [":NoExecute"]}
    assert kubernetes["node-labels"]["theirs"] == "kept"
    assert kubernetes["node-labels"]["karpenter.sh/capacity-type"] == "spot"


@pytest.mark.spec("aws-111")
@pytest.mark.parametrize(
    "custom", ["not toml", "settings = 1", "[settings]\nkubernetes = 1", "[settings]\nbootstrap-commands = 1"]
)
def test_settings_that_are_not_toml_end_the_launch_with_a_sentence(custom: str) -> None:
    with pytest.raises(CreateFailed, match=r"the node class's user data cannot be used: .*TOML"):
        user_data(ec2_class("Bottlerocket", userData=custom))


@pytest.mark.spec("aws-112")
def test_bottlerocket_takes_percentages_as_words() -> None:
    text = user_data(ec2_class("Bottlerocket", kubelet={"imageGCHighThresholdPercent": 50}))
    assert "image-gc-high-threshold-percent = '50'\n" in text


@pytest.mark.spec("aws-113")
@pytest.mark.parametrize(
    ("custom", "kinds"),
    [
        ("kind: NodeConfig\nspec: {}\n", [CONFIG, CONFIG]),
        ("---\nkind: NodeConfig\n---\nkind: Other\n", [CONFIG, CONFIG]),
        ('{"kind": "NodeConfig"}', [CONFIG, CONFIG]),
        ("echo hi\n", [SHELL, CONFIG]),
        ("#!/bin/bash\ncd /tmp && echo hi\n", [SHELL, CONFIG]),
        (MULTIPART, ["text/cloud-config", SHELL, CONFIG]),
        ("", [CONFIG]),
    ],
)
def test_nodeadm_hears_the_class_first_and_us_last(custom: str, kinds: list[str]) -> None:
    text = user_data(ec2_class("AL2023", userData=custom))
    found = parts(text)
    assert [kind for kind, _ in found] == kinds
    assert found[-1][1].startswith("# Karpenter Generated NodeConfig\n")
    assert "X-Note" not in text


@pytest.mark.spec("aws-114")
def test_without_the_range_of_service_addresses_there_is_no_al2023_node() -> None:
    unknown = ClusterFacts(name="c", endpoint="https://c", dns_ip="10.0.100.10")
    with pytest.raises(ClassNotReady, match="service CIDR"):
        user_data(ec2_class("AL2023"), facts=unknown)
    assert "--dns-cluster-ip" in user_data(ec2_class("AL2"), facts=unknown)


@pytest.mark.spec("aws-115")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_kubelet_setting_outside_the_twelve_reaches_no_node(family: str) -> None:
    # The released line has a closed list of kubelet settings; the next one passes others on to AL2023 alone.
    text = user_data(ec2_class(family, kubelet={"topologyManagerPolicy": "best-effort", "maxPods": 9}))
    assert "topology" not in text.lower()
    assert "9" in text


@pytest.mark.spec("aws-116")
def test_al2023_registers_with_every_taint_of_the_claim() -> None:
    text = user_data(
        ec2_class("AL2023"),
        claim_for(taints=[taint("dedicated", value="web")], startup_taints=[taint("starting", "NoExecute")]),
    )
    assert (
        "      registerWithTaints:\n"
        "      - effect: NoSchedule\n        key: dedicated\n        value: web\n"
        "      - effect: NoExecute\n        key: starting\n"
        "      - effect: NoExecute\n        key: karpenter.sh/unregistered\n"
    ) in text


def test_a_claim_that_brings_the_unregistered_taint_gets_it_once() -> None:
    given = [Taint(key=labels.UNREGISTERED_TAINT, effect="NoExecute")]
    text = user_data(ec2_class("AL2"), claim_for(startup_taints=given))
    assert text.count(labels.UNREGISTERED_TAINT) == 1


@pytest.mark.spec("aws-117")
def test_a_custom_image_hears_its_author_and_nobody_else() -> None:
    assert user_data(ec2_class("Custom", userData="any\r\nthing\n")) == "any\r\nthing\n"
    assert user_data(ec2_class("Custom")) == ""


@pytest.mark.spec("aws-117")
@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_keep_their_taints_to_themselves(family: str) -> None:
    text = user_data(ec2_class(family))
    assert "karpenter.sh/do-not-sync-taints" in text
    assert "karpenter.sh/capacity-type" in text


@pytest.mark.spec("aws-118")
def test_lines_of_the_class_come_first_on_windows() -> None:
    text = user_data(ec2_class("Windows2022", userData='Write-Host "prep"'))
    assert text.startswith('<powershell>\nWrite-Host "prep"\n[string]$EKSBootstrapScriptFile')
    assert text.endswith("-DNSClusterIP '10.0.100.10'\n</powershell>")


def test_a_document_of_settings_survives_being_written() -> None:
    document = {
        "plain": 1.5,
        "awkward key": "it's",
        "lines": "a\nb\x7f",
        "mixed": [1, {"inline": True}],
        "tables": [{"a": "1"}, {"b": {"c": "2"}}],
        "empty": {},
    }
    assert tomllib.loads(toml.write_toml(document)) == document
