"""Every label, annotation, taint key, finalizer, tag and resource name, spelled once.

The names are a contract with Kubernetes, Karpenter and their users: they are never built from
parts elsewhere, so that searching for one finds every use of it. Below the names are the rules
about them: which labels are well known, which are reserved, and which old names mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Domains
KARPENTER: Final = "karpenter.sh"
KARPENTER_AWS: Final = "karpenter.k8s.aws"
KARPENTER_KWOK: Final = "karpenter.kwok.sh"
DOVETAIL: Final = "dovetail.sh"

# Labels of Kubernetes
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ARCH: Final = "kubernetes.io/arch"
OS: Final = "kubernetes.io/os"
WINDOWS_BUILD: Final = "node.kubernetes.io/windows-build"
HOSTNAME: Final = "kubernetes.io/hostname"
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
EXCLUDE_FROM_LOAD_BALANCERS: Final = "node.kubernetes.io/exclude-from-external-load-balancers"

# Labels of Karpenter
NODEPOOL: Final = "karpenter.sh/nodepool"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
REGISTERED: Final = "karpenter.sh/registered"
INITIALIZED: Final = "karpenter.sh/initialized"
DO_NOT_SYNC_TAINTS: Final = "karpenter.sh/do-not-sync-taints"

# Values
SPOT: Final = "spot"
ON_DEMAND: Final = "on-demand"
RESERVED: Final = "reserved"
CAPACITY_TYPES: Final = (RESERVED, SPOT, ON_DEMAND)
TRUE: Final = "true"

# Labels of Karpenter on AWS
ZONE_ID: Final = "topology.k8s.aws/zone-id"
EC2_NODECLASS: Final = "karpenter.k8s.aws/ec2nodeclass"
INSTANCE_CATEGORY: Final = "karpenter.k8s.aws/instance-category"
INSTANCE_FAMILY: Final = "karpenter.k8s.aws/instance-family"
INSTANCE_GENERATION: Final = "karpenter.k8s.aws/instance-generation"
INSTANCE_SIZE: Final = "karpenter.k8s.aws/instance-size"
INSTANCE_CPU: Final = "karpenter.k8s.aws/instance-cpu"
INSTANCE_CPU_MANUFACTURER: Final = "karpenter.k8s.aws/instance-cpu-manufacturer"
INSTANCE_CPU_CLOCK_SPEED: Final = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz"
INSTANCE_MEMORY: Final = "karpenter.k8s.aws/instance-memory"
INSTANCE_EBS_BANDWIDTH: Final = "karpenter.k8s.aws/instance-ebs-bandwidth"
INSTANCE_NETWORK_BANDWIDTH: Final = "karpenter.k8s.aws/instance-network-bandwidth"
INSTANCE_LOCAL_NVME: Final = "karpenter.k8s.aws/instance-local-nvme"
INSTANCE_HYPERVISOR: Final = "karpenter.k8s.aws/instance-hypervisor"
INSTANCE_ENCRYPTION_IN_TRANSIT: Final = "karpenter.k8s.aws/instance-encryption-in-transit-supported"
INSTANCE_CAPABILITY_FLEX: Final = "karpenter.k8s.aws/instance-capability-flex"
INSTANCE_TENANCY: Final = "karpenter.k8s.aws/instance-tenancy"
INSTANCE_GPU_NAME: Final = "karpenter.k8s.aws/instance-gpu-name"
INSTANCE_GPU_MANUFACTURER: Final = "karpenter.k8s.aws/instance-gpu-manufacturer"
INSTANCE_GPU_COUNT: Final = "karpenter.k8s.aws/instance-gpu-count"
INSTANCE_GPU_MEMORY: Final = "karpenter.k8s.aws/instance-gpu-memory"
INSTANCE_ACCELERATOR_NAME: Final = "karpenter.k8s.aws/instance-accelerator-name"
INSTANCE_ACCELERATOR_MANUFACTURER: Final = "karpenter.k8s.aws/instance-accelerator-manufacturer"
INSTANCE_ACCELERATOR_COUNT: Final = "karpenter.k8s.aws/instance-accelerator-count"
CAPACITY_RESERVATION_ID: Final = "karpenter.k8s.aws/capacity-reservation-id"
CAPACITY_RESERVATION_TYPE: Final = "karpenter.k8s.aws/capacity-reservation-type"
CAPACITY_RESERVATION_INTERRUPTIBLE: Final = "karpenter.k8s.aws/capacity-reservation-interruptible"
PLACEMENT_GROUP_ID: Final = "karpenter.k8s.aws/placement-group-id"
PLACEMENT_GROUP_PARTITION: Final = "karpenter.k8s.aws/placement-group-partition"
NITRO_SANDBOX: Final = "karpenter.k8s.aws/nitro-sandbox"

# Labels of Karpenter on KWOK
KWOK_NODECLASS: Final = "karpenter.kwok.sh/kwoknodeclass"
KWOK_INSTANCE_SIZE: Final = "karpenter.kwok.sh/instance-size"
KWOK_INSTANCE_FAMILY: Final = "karpenter.kwok.sh/instance-family"
KWOK_INSTANCE_CPU: Final = "karpenter.kwok.sh/instance-cpu"
KWOK_INSTANCE_MEMORY: Final = "karpenter.kwok.sh/instance-memory"
KWOK_NODE: Final = "kwok.x-k8s.io/node"
KWOK_PARTITION: Final = "kwok-partition"

# Annotations
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
NODEPOOL_HASH: Final = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION: Final = "karpenter.sh/nodepool-hash-version"
TERMINATION_TIMESTAMP: Final = "karpenter.sh/nodeclaim-termination-timestamp"
MIN_VALUES_RELAXED: Final = "karpenter.sh/nodeclaim-min-values-relaxed"
REQUESTED_DRA_DRIVERS: Final = "karpenter.sh/requested-dra-drivers"
PRICE_OVERLAY_APPLIED: Final = "karpenter.sh/price-overlay-applied"
CAPACITY_OVERLAY_APPLIED: Final = "karpenter.sh/capacity-overlay-applied"
BUFFER_FAKE_POD: Final = "karpenter.sh/capacity-buffer-fake-pod"
BUFFER_NAME: Final = "karpenter.sh/capacity-buffer-name"
BUFFER_NAMESPACE: Final = "karpenter.sh/capacity-buffer-namespace"
LEGACY_PROVIDER: Final = "compatibility.karpenter.sh/provider"
EC2_NODECLASS_HASH: Final = "karpenter.k8s.aws/ec2nodeclass-hash"
EC2_NODECLASS_HASH_VERSION: Final = "karpenter.k8s.aws/ec2nodeclass-hash-version"
TAGGED: Final = "karpenter.k8s.aws/tagged"
CLUSTER_NAME_TAGGED: Final = "compatibility.karpenter.k8s.aws/cluster-name-tagged"
INSTANCE_PROFILE_NAME: Final = "karpenter.k8s.aws/instance-profile-name"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
DEFAULT_STORAGE_CLASS: Final = "storageclass.kubernetes.io/is-default-class"

# How a NodePool grows, beyond what its spec can say
GROWTH: Final = "scheduling.dovetail.sh/growth"

# What a node of a NodePool costs beside what the cloud bills
NODE_EXTRA: Final = "cost.dovetail.sh/node-extra-hourly"
# What a simulated node costs, where that is more than its instance
NODE_PRICE: Final = "cost.dovetail.sh/node-hourly"

# How a NodePool is disrupted, beyond what its spec can say
CONSOLIDATION: Final = "disruption.dovetail.sh/consolidation"
MIN_SAVING: Final = "disruption.dovetail.sh/min-saving"
MIN_SAVING_PERCENT: Final = "disruption.dovetail.sh/min-saving-percent"
MAX_PAYBACK: Final = "disruption.dovetail.sh/max-payback"
REST: Final = "disruption.dovetail.sh/rest"
RATE: Final = "disruption.dovetail.sh/rate"
RECENT: Final = "disruption.dovetail.sh/recent"
# On Commitments that are mirrored from a cloud: which one.
COMMITMENT_SOURCE: Final = "dovetail.sh/source"
# On the leader's Lease: the settings that its decisions depend on.
DECIDES_BY: Final = "dovetail.sh/decides-by"
LOST_REPLACEMENTS: Final = "disruption.dovetail.sh/lost-replacements"
DRIFT: Final = "disruption.dovetail.sh/drift"
DRIFT_PAUSE_AFTER: Final = "disruption.dovetail.sh/drift-pause-after"

# Zonal shifts
ZONE_LEDGER: Final = "zonalshift.dovetail.sh/ledger"
ZONE_EXCLUDE: Final = "zonalshift.dovetail.sh/exclude"
ZONE_FALLBACK: Final = "zonalshift.dovetail.sh/fallback-zones"
ZONE_KEEP_REMOVED: Final = "zonalshift.dovetail.sh/keep-removed"

POD_ANNOTATIONS_READ: Final = frozenset(
    (DO_NOT_DISRUPT, POD_DELETION_COST, BUFFER_FAKE_POD, BUFFER_NAME, BUFFER_NAMESPACE)
)
"""All we look at on a pod; the others are dropped when pods are decoded, since there are many pods."""

# Taint keys; the taints themselves are in taints.py
DISRUPTED_TAINT: Final = "karpenter.sh/disrupted"
UNREGISTERED_TAINT: Final = "karpenter.sh/unregistered"
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
UNINITIALIZED_TAINT: Final = "node.cloudprovider.kubernetes.io/uninitialized"
READINESS_TAINT_PREFIX: Final = "readiness.k8s.io/"

# Finalizers
TERMINATION: Final = "karpenter.sh/termination"
EC2_NODECLASS_TERMINATION: Final = "karpenter.k8s.aws/termination"

# Resources
CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
NODES: Final = "nodes"  # counted in limits and status only; no pod can ask for it
NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
NEURON: Final = "aws.amazon.com/neuron"
NEURON_CORE: Final = "aws.amazon.com/neuroncore"
GAUDI: Final = "habana.ai/gaudi"
POD_ENI: Final = "vpc.amazonaws.com/pod-eni"
PRIVATE_IPV4: Final = "vpc.amazonaws.com/PrivateIPv4Address"
EFA: Final = "vpc.amazonaws.com/efa"
NITRO_SLOTS: Final = "eks.amazonaws.com/nip-slots"

# EC2 tags
CLUSTER_TAG_PREFIX: Final = "kubernetes.io/cluster/"
EKS_CLUSTER_TAG: Final = "eks:eks-cluster-name"
NODECLAIM_TAG: Final = "karpenter.sh/nodeclaim"
NAME_TAG: Final = "Name"

ALIASES: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    # Volumes of the EBS driver say where they are in its own words.
    "topology.ebs.csi.aws.com/zone": ZONE,
}
"""Old names of labels that are read as the new ones."""

WELL_KNOWN: Final = frozenset((NODEPOOL, CAPACITY_TYPE, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, WINDOWS_BUILD))
WELL_KNOWN_AWS: Final = WELL_KNOWN | {
    ZONE_ID,
    INSTANCE_CATEGORY,
    INSTANCE_FAMILY,
    INSTANCE_GENERATION,
    INSTANCE_SIZE,
    INSTANCE_CPU,
    INSTANCE_CPU_MANUFACTURER,
    INSTANCE_CPU_CLOCK_SPEED,
    INSTANCE_MEMORY,
    INSTANCE_EBS_BANDWIDTH,
    INSTANCE_NETWORK_BANDWIDTH,
    INSTANCE_LOCAL_NVME,
    INSTANCE_HYPERVISOR,
    INSTANCE_ENCRYPTION_IN_TRANSIT,
    INSTANCE_CAPABILITY_FLEX,
    INSTANCE_TENANCY,
    INSTANCE_GPU_NAME,
    INSTANCE_GPU_MANUFACTURER,
    INSTANCE_GPU_COUNT,
    INSTANCE_GPU_MEMORY,
    INSTANCE_ACCELERATOR_NAME,
    INSTANCE_ACCELERATOR_MANUFACTURER,
    INSTANCE_ACCELERATOR_COUNT,
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_TYPE,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
}
WELL_KNOWN_KWOK: Final = WELL_KNOWN | {
    KWOK_INSTANCE_SIZE,
    KWOK_INSTANCE_FAMILY,
    KWOK_INSTANCE_CPU,
    KWOK_INSTANCE_MEMORY,
}

ADMITTED_AWS: Final = frozenset(
    name for name in WELL_KNOWN_AWS | {EC2_NODECLASS, NITRO_SANDBOX} if name.startswith(f"{KARPENTER_AWS}/")
)
"""Labels of the AWS domain that admission lets through in pools and claims."""

ADMITTED_AWS_IN_OVERLAYS: Final = ADMITTED_AWS - {
    INSTANCE_TENANCY,
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_TYPE,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
}
"""The same for NodeOverlays."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """What a provider adds to the label rules: labels it resolves, and domains it keeps for itself."""

    well_known: frozenset[str]
    domains: tuple[str, ...]


CORE: Final = Flavour(WELL_KNOWN, (KARPENTER,))
AWS: Final = Flavour(WELL_KNOWN_AWS, (KARPENTER_AWS, KARPENTER))
KWOK: Final = Flavour(WELL_KNOWN_KWOK, (KARPENTER_KWOK, KARPENTER))


def normalize_label(key: str) -> str:
    """The current name of a label."""
    return ALIASES.get(key, key)


def find_domain(key: str) -> str:
    """What stands before the first slash; empty without one."""
    return key.partition("/")[0] if "/" in key else ""


def is_restricted(key: str, flavour: Flavour = CORE) -> bool:
    """Whether people may not set this label, because the autoscaler itself gives it its value."""
    if key in flavour.well_known:
        return False
    if key == HOSTNAME:
        return True
    place = find_domain(key)
    return any(place == kept or place.endswith(f".{kept}") for kept in flavour.domains)


def describe_restriction(key: str, flavour: Flavour = CORE) -> str | None:
    """Why people may not set this label, in Karpenter's words; None if they may."""
    if not is_restricted(key, flavour):
        return None
    return (
        f"using label {key} is not allowed as it might interfere with the internal provisioning logic; "
        f"specify a well known label: [{' '.join(sorted(flavour.well_known))}], or a custom label that "
        f"does not use a restricted domain: [{' '.join(sorted(flavour.domains))}]"
    )


def nodeclass_label(group: str, kind: str) -> str:
    """The label that names a node's class: `karpenter.k8s.aws/ec2nodeclass`."""
    return f"{group}/{kind.lower()}"
