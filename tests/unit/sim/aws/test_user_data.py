"""User data as each family's boot program reads it."""

from __future__ import annotations

from base64 import b64encode

import pytest

from dovetail.sim.aws.ec2.user_data import BootSettings, read_user_data

UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
NODE_CONFIG = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo tuned > /etc/motd
--//
Content-Type: application/node.eks.aws

# Karpenter Generated NodeConfig
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
metadata: {}
spec:
  cluster:
    apiServerEndpoint: https://abc
    cidr: 172.20.0.0/16
    name: demo
  instance:
    localStorage:
      strategy: RAID0
  kubelet:
    config:
      maxPods: 58
      registerWithTaints:
      - effect: NoExecute
        key: karpenter.sh/unregistered
    flags:
    - --node-labels="karpenter.sh/capacity-type=spot,team=shop"

--//--
"""
SCRIPT = """\
#!/bin/bash -xe
/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://abc' --b64-cluster-ca 'Q0E=' \\
--dns-cluster-ip '172.20.0.10' \\
--use-max-pods false \\
--kubelet-extra-args '--node-labels="karpenter.sh/capacity-type=spot,team=shop" \
--register-with-taints="karpenter.sh/unregistered:NoExecute" --max-pods=58' \\
--local-disks raid0
"""
SETTINGS = """\
[settings]
[settings.kubernetes]
api-server = 'https://abc'
cluster-name = 'demo'
max-pods = 58

[settings.kubernetes.node-labels]
'karpenter.sh/capacity-type' = 'spot'
team = 'shop'

[settings.kubernetes.node-taints]
'karpenter.sh/unregistered' = [':NoExecute']

[settings.bootstrap-commands.000-mount-instance-storage]
commands = [['apiclient', 'ephemeral-storage', 'init']]
"""
POWERSHELL = """\
<powershell>
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint 'https://abc' -KubeletExtraArgs \
'--node-labels="karpenter.sh/capacity-type=spot,team=shop" \
--register-with-taints="karpenter.sh/unregistered:NoExecute" --max-pods=58' -DNSClusterIP '172.20.0.10'
</powershell>"""


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("text", "raid"), [(NODE_CONFIG, True), (SCRIPT, True), (SETTINGS, True), (POWERSHELL, False)]
)
def test_every_family_tells_the_same(text: str, raid: bool) -> None:
    labels = {"karpenter.sh/capacity-type": "spot", "team": "shop"}
    assert read_user_data(encoded(text)) == BootSettings("demo", labels, (UNREGISTERED,), 58, raid)


def test_a_taint_has_a_value_or_none() -> None:
    taints = '--register-with-taints="a=b:NoSchedule,c:NoExecute"'
    script = f"/etc/eks/bootstrap.sh demo --kubelet-extra-args '{taints}'"
    assert read_user_data(encoded(script)).taints == (
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "effect": "NoExecute"},
    )


@pytest.mark.parametrize(
    "text", ["", "#!/bin/bash\necho hello\n", "[settings", "kind: NodeConfig\n  a: [", "\0\0"]
)
def test_what_names_no_cluster_joins_none(text: str) -> None:
    assert not read_user_data(encoded(text)).cluster


def test_what_is_not_base64_joins_no_cluster() -> None:
    assert read_user_data("%%%") == BootSettings()
