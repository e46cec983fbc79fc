"""Settings that older versions read: reported where they are found, and never obeyed.

Obeying half of an old configuration is worse than none, so each name leads to a sentence with its
replacement, and the value carried over where it can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.settings.value_kinds import BOOLEANS

_PROFILE = "name a role or an instance profile in each EC2NodeClass"
_DENSITY = "set kubelet.maxPods in each EC2NodeClass where the default does not suit"
_CHAINING = "let the AWS SDK assume the role, through its own configuration"
_NO_WEBHOOKS = "there are no webhooks any more"
_POD_ENI = "pod interfaces are always modelled"
_NODE_NAMES = "nodes are always named as the cloud names them"


@dataclass(frozen=True, slots=True)
class RemovedSetting:
    """A name from the past: when it was read, and what takes its place.

    ``replacement`` is a setting of today, or empty where there is none; ``instead`` says what to
    do in that case.
    """

    name: str
    era: str
    replacement: str = ""
    instead: str = ""
    inverted: bool = False

    def describe_removal(self, value: str) -> str:
        """What to tell a person who still sets this."""
        return f"{self.name} is no longer read: {self.describe_replacement(value)}"

    def describe_replacement(self, value: str) -> str:
        """What to do instead, with the value carried over."""
        if not self.replacement:
            return self.instead
        if self.inverted:
            turned = "false" if BOOLEANS.get(value, True) else "true"
            return f"set {self.replacement}={turned}, whose meaning is the reverse"
        return f"set {self.replacement}={value}" if value else f"set {self.replacement}"


REMOVED = (
    RemovedSetting("LEADER_ELECT", "up to 0.37", "DISABLE_LEADER_ELECTION", inverted=True),
    RemovedSetting("DISABLE_WEBHOOK", "0.32 to 1.0", instead=_NO_WEBHOOKS),
    RemovedSetting("WEBHOOK_PORT", "0.32 to 1.0", instead=_NO_WEBHOOKS),
    RemovedSetting("WEBHOOK_METRICS_PORT", "0.32 to 1.0", instead=_NO_WEBHOOKS),
    RemovedSetting(
        "LOGGING_CONFIG", "up to 0.37", instead="set LOG_LEVEL, LOG_OUTPUT_PATHS and LOG_ERROR_OUTPUT_PATHS"
    ),
    RemovedSetting("ASSUME_ROLE_ARN", "up to 0.37", instead=_CHAINING),
    RemovedSetting("ASSUME_ROLE_DURATION", "up to 0.37", instead=_CHAINING),
    RemovedSetting("AWS_DEFAULT_INSTANCE_PROFILE", "up to 0.18", instead=_PROFILE),
    RemovedSetting("AWS_ENABLE_POD_ENI", "up to 0.18", instead=_POD_ENI),
    RemovedSetting("AWS_ENI_LIMITED_POD_DENSITY", "up to 0.18", instead=_DENSITY),
    RemovedSetting("AWS_ISOLATED_VPC", "up to 0.18", "ISOLATED_VPC"),
    RemovedSetting("AWS_NODE_NAME_CONVENTION", "up to 0.18", instead=_NODE_NAMES),
    RemovedSetting("VM_MEMORY_OVERHEAD", "up to 0.18", "VM_MEMORY_OVERHEAD_PERCENT"),
    # Keys of the ConfigMap karpenter-global-settings; envFrom turns them into variables as they are.
    RemovedSetting("batchMaxDuration", "0.19 to 0.32", "BATCH_MAX_DURATION"),
    RemovedSetting("batchIdleDuration", "0.19 to 0.32", "BATCH_IDLE_DURATION"),
    RemovedSetting(
        "featureGates.driftEnabled",
        "0.19 to 0.32",
        instead="drift is always on; limit it with disruption budgets for the reason Drifted",
    ),
    RemovedSetting("aws.clusterName", "0.19 to 0.32", "CLUSTER_NAME"),
    RemovedSetting("aws.clusterEndpoint", "0.19 to 0.32", "CLUSTER_ENDPOINT"),
    RemovedSetting("aws.clusterCABundle", "0.19 to 0.32", "CLUSTER_CA_BUNDLE"),
    RemovedSetting("aws.isolatedVPC", "0.19 to 0.32", "ISOLATED_VPC"),
    RemovedSetting("aws.vmMemoryOverheadPercent", "0.19 to 0.32", "VM_MEMORY_OVERHEAD_PERCENT"),
    RemovedSetting("aws.reservedENIs", "0.19 to 0.32", "RESERVED_ENIS"),
    RemovedSetting("aws.interruptionQueueName", "0.19 to 0.32", "INTERRUPTION_QUEUE"),
    RemovedSetting("aws.defaultInstanceProfile", "0.19 to 0.32", instead=_PROFILE),
    RemovedSetting("aws.enablePodENI", "0.19 to 0.32", instead=_POD_ENI),
    RemovedSetting("aws.enableENILimitedPodDensity", "0.19 to 0.32", instead=_DENSITY),
    RemovedSetting("aws.nodeNameConvention", "0.19 to 0.32", instead=_NODE_NAMES),
    RemovedSetting("aws.tags", "0.19 to 0.32", instead="write the tags in each EC2NodeClass"),
    RemovedSetting("aws.assumeRoleARN", "0.19 to 0.37", instead=_CHAINING),
    RemovedSetting("aws.assumeRoleDuration", "0.19 to 0.37", instead=_CHAINING),
)
BY_FLAG = {removed.name.lower().replace("_", "-"): removed for removed in REMOVED if removed.name.isupper()}


def find_removed(environment: Mapping[str, str]) -> tuple[RemovedSetting, ...]:
    """The names of the past that somebody still sets, in the order of the table."""
    return tuple(removed for removed in REMOVED if removed.name in environment)
