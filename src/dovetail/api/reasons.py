"""The reasons written on conditions, spelled once. Dashboards and alerts match them byte for byte."""

from __future__ import annotations

from typing import Final

# Any object
AWAITING_RECONCILIATION: Final = "AwaitingReconciliation"
UNHEALTHY_DEPENDENTS: Final = "UnhealthyDependents"
RECONCILING_DEPENDENTS: Final = "ReconcilingDependents"

# NodePool
NODEPOOL_VALIDATION_FAILED: Final = "NodePoolValidationFailed"
NODECLASS_NOT_FOUND: Final = "NodeClassNotFound"
NODECLASS_TERMINATING: Final = "NodeClassTerminating"
NODECLASS_READINESS_UNKNOWN: Final = "NodeClassReadinessUnknown"
REGISTRATION_FAILED: Final = "RegistrationFailed"

# NodeClaim: on its way
LAUNCH_FAILED: Final = "LaunchFailed"
NODE_NOT_FOUND: Final = "NodeNotFound"
REGISTRATION_HOOK_PENDING: Final = "RegistrationHookPending"
MULTIPLE_NODES_FOUND: Final = "MultipleNodesFound"
NODE_NOT_READY: Final = "NodeNotReady"
STARTUP_TAINTS_EXIST: Final = "StartupTaintsExist"
KNOWN_EPHEMERAL_TAINTS_EXIST: Final = "KnownEphemeralTaintsExist"
RESOURCE_NOT_REGISTERED: Final = "ResourceNotRegistered"
DRA_DRIVER_POOLS_NOT_PUBLISHED: Final = "DRADriverPoolsNotPublished"
CONSISTENCY_CHECK_FAILED: Final = "ConsistencyCheckFailed"

# NodeClaim: drifted, disrupted, on its way out
NODEPOOL_DRIFTED: Final = "NodePoolDrifted"
REQUIREMENTS_DRIFTED: Final = "RequirementsDrifted"
INSTANCE_TYPE_NOT_FOUND: Final = "InstanceTypeNotFound"
NODECLASS_DRIFT: Final = "NodeClassDrift"
AMI_DRIFT: Final = "AMIDrift"
SUBNET_DRIFT: Final = "SubnetDrift"
SECURITY_GROUP_DRIFT: Final = "SecurityGroupDrift"
CAPACITY_RESERVATION_DRIFT: Final = "CapacityReservationDrift"
PLACEMENT_GROUP_DRIFT: Final = "PlacementGroupDrift"
UNDERUTILIZED: Final = "Underutilized"
EMPTY: Final = "Empty"
DRIFTED: Final = "Drifted"
DRAINING: Final = "Draining"
AWAITING_VOLUME_DETACHMENT: Final = "AwaitingVolumeDetachment"
TERMINATION_GRACE_PERIOD_ELAPSED: Final = "TerminationGracePeriodElapsed"

# NodeOverlay
CONFLICT: Final = "Conflict"

# CapacityBuffer
RESOLVED: Final = "Resolved"
POD_TEMPLATE_NOT_FOUND: Final = "PodTemplateNotFound"
SCALABLE_REF_NOT_FOUND: Final = "ScalableRefNotFound"
RESOLUTION_FAILED: Final = "ResolutionFailed"
FITS_EXISTING_CAPACITY: Final = "FitsExistingCapacity"
REQUIRES_NEW_CAPACITY: Final = "RequiresNewCapacity"
BUFFER_EMPTY: Final = "BufferEmpty"
NOT_READY_FOR_PROVISIONING: Final = "NotReadyForProvisioning"

# EC2NodeClass
AMI_NOT_FOUND: Final = "AMINotFound"
UNSUPPORTED_ALIAS: Final = "UnsupportedAlias"
SUBNETS_NOT_FOUND: Final = "SubnetsNotFound"
SECURITY_GROUPS_NOT_FOUND: Final = "SecurityGroupsNotFound"
PLACEMENT_GROUP_NOT_FOUND: Final = "PlacementGroupNotFound"
PLACEMENT_GROUP_RESOLUTION_FAILED: Final = "PlacementGroupResolutionFailed"
CLUSTER_CIDR_RESOLUTION_FAILED: Final = "ClusterCIDRResolutionFailed"
DEPENDENCIES_NOT_READY: Final = "DependenciesNotReady"
TAG_VALIDATION_FAILED: Final = "TagValidationFailed"
CREATE_LAUNCH_TEMPLATE_AUTH_CHECK_FAILED: Final = "CreateLaunchTemplateAuthCheckFailed"
CREATE_FLEET_AUTH_CHECK_FAILED: Final = "CreateFleetAuthCheckFailed"
RUN_INSTANCES_AUTH_CHECK_FAILED: Final = "RunInstancesAuthCheckFailed"
USER_DATA_SIZE_LIMIT_EXCEEDED: Final = "UserDataSizeLimitExceeded"
USER_DATA_INVALID: Final = "UserDataInvalid"
INSTANCE_PROFILE_NOT_FOUND: Final = "InstanceProfileNotFound"
INVALID_KUBELET_CONFIGURATION: Final = "InvalidKubeletConfiguration"
UNSUPPORTED_KUBELET_CONFIGURATION: Final = "UnsupportedKubeletConfiguration"
KUBELET_EXPRESSIONS_DISABLED: Final = "KubeletExpressionsDisabled"
KUBELET_EXPRESSION_INVALID: Final = "KubeletExpressionInvalid"
KUBELET_EXPRESSION_EVALUATION_FAILED: Final = "KubeletExpressionEvaluationFailed"
