# The inputs are those of the karpenter module of terraform-aws-eks, so that either can take the other's place.

variable "create" {
  description = "Whether anything is made at all"
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags on everything"
  type        = map(string)
  default     = {}
}

variable "cluster_name" {
  description = "Name of the EKS cluster"
  type        = string
  default     = ""
}

variable "region" {
  description = "Region of the resources; else the provider's"
  type        = string
  default     = null
}

variable "create_iam_role" {
  description = "Whether to make the controller's role"
  type        = bool
  default     = true
}

variable "enable_inline_policy" {
  description = "Put the policy inside the role, which avoids the limit of 6144 characters"
  type        = bool
  default     = false
}

variable "iam_role_name" {
  description = "Name of the controller's role"
  type        = string
  default     = "KarpenterController"
}

variable "iam_role_use_name_prefix" {
  description = "Whether that name is a prefix"
  type        = bool
  default     = true
}

variable "iam_role_path" {
  description = "Path of the controller's role"
  type        = string
  default     = "/"
}

variable "iam_role_description" {
  description = "Description of the controller's role"
  type        = string
  default     = "Karpenter controller IAM role"
}

variable "iam_role_max_session_duration" {
  description = "Longest session of the controller's role, in seconds"
  type        = number
  default     = null
}

variable "iam_role_permissions_boundary_arn" {
  description = "Permissions boundary of the controller's role"
  type        = string
  default     = null
}

variable "iam_role_tags" {
  description = "More tags on the controller's role"
  type        = map(string)
  default     = {}
}

variable "iam_policy_name" {
  description = "Name of the controller's policy"
  type        = string
  default     = "KarpenterController"
}

variable "iam_policy_use_name_prefix" {
  description = "Whether that name is a prefix"
  type        = bool
  default     = true
}

variable "iam_policy_path" {
  description = "Path of the controller's policy"
  type        = string
  default     = "/"
}

variable "iam_policy_description" {
  description = "Description of the controller's policy"
  type        = string
  default     = "Karpenter controller IAM policy"
}

variable "iam_role_override_assume_policy_documents" {
  description = "Documents that replace statements of the trust policy"
  type        = list(string)
  default     = []
}

variable "iam_role_source_assume_policy_documents" {
  description = "Documents the trust policy starts from"
  type        = list(string)
  default     = []
}

variable "iam_policy_statements" {
  description = "More statements of the controller's policy, as IAM spells them"
  type        = list(any)
  default     = null
}

variable "iam_role_policies" {
  description = "More policies to attach to the controller's role, by any key"
  type        = map(string)
  default     = {}
}

variable "ami_id_ssm_parameter_arns" {
  description = "Parameters that hold AMI ids; else those AWS publishes"
  type        = list(string)
  default     = []
}

variable "create_pod_identity_association" {
  description = "Whether to associate the role with the service account"
  type        = bool
  default     = true
}

variable "namespace" {
  description = "Namespace of the service account"
  type        = string
  default     = "kube-system"
}

variable "service_account" {
  description = "Name of the service account"
  type        = string
  default     = "karpenter"
}

variable "enable_spot_termination" {
  description = "Whether to make the queue and its rules"
  type        = bool
  default     = true
}

variable "queue_name" {
  description = "Name of the queue; else Karpenter-<cluster>"
  type        = string
  default     = null
}

variable "queue_managed_sse_enabled" {
  description = "Encrypt the queue with keys of SQS"
  type        = bool
  default     = true
}

variable "queue_kms_master_key_id" {
  description = "Encrypt the queue with this key instead"
  type        = string
  default     = null
}

variable "queue_kms_data_key_reuse_period_seconds" {
  description = "How long a data key is used again"
  type        = number
  default     = null
}

variable "queue_policy_statements" {
  description = "More statements of the queue's policy, as IAM spells them"
  type        = map(any)
  default     = null
}

variable "create_node_iam_role" {
  description = "Whether to make the role of nodes"
  type        = bool
  default     = true
}

variable "cluster_ip_family" {
  description = "ipv4 or ipv6, for the CNI policy of nodes"
  type        = string
  default     = "ipv4"

  validation {
    condition     = contains(["ipv4", "ipv6"], var.cluster_ip_family)
    error_message = "cluster_ip_family must be ipv4 or ipv6."
  }
}

variable "node_iam_role_arn" {
  description = "The role of nodes where none is made"
  type        = string
  default     = null
}

variable "node_iam_role_name" {
  description = "Name of the role of nodes; else Karpenter-<cluster>"
  type        = string
  default     = null
}

variable "node_iam_role_use_name_prefix" {
  description = "Whether that name is a prefix"
  type        = bool
  default     = true
}

variable "node_iam_role_path" {
  description = "Path of the role of nodes"
  type        = string
  default     = "/"
}

variable "node_iam_role_description" {
  description = "Description of the role of nodes"
  type        = string
  default     = null
}

variable "node_iam_role_max_session_duration" {
  description = "Longest session of the role of nodes, in seconds"
  type        = number
  default     = null
}

variable "node_iam_role_permissions_boundary" {
  description = "Permissions boundary of the role of nodes"
  type        = string
  default     = null
}

variable "node_iam_role_attach_cni_policy" {
  description = "Whether nodes may do what the CNI needs"
  type        = bool
  default     = true
}

variable "node_iam_role_additional_policies" {
  description = "More policies to attach to the role of nodes, by any key"
  type        = map(string)
  default     = {}
}

variable "node_iam_role_tags" {
  description = "More tags on the role of nodes"
  type        = map(string)
  default     = {}
}

variable "create_access_entry" {
  description = "Whether to let the role of nodes into the cluster"
  type        = bool
  default     = true
}

variable "access_entry_type" {
  description = "Kind of that access entry"
  type        = string
  default     = "EC2_LINUX"
}

variable "create_instance_profile" {
  description = "Whether to make an instance profile of the role of nodes"
  type        = bool
  default     = false
}

variable "rule_name_prefix" {
  description = "Prefix of the names of rules"
  type        = string
  default     = "Karpenter"
}

variable "decision_log_bucket" {
  description = "Bucket of the decision log, if DECISION_LOG names one; empty grants nothing in S3"
  type        = string
  default     = ""
}

variable "decision_log_prefix" {
  description = "Prefix of the decision log in its bucket, as DECISION_LOG has it"
  type        = string
  default     = ""
}

variable "recording_bucket" {
  description = "Bucket of the recording, if RECORDING names one; empty grants nothing in S3"
  type        = string
  default     = ""
}

variable "recording_prefix" {
  description = "Prefix of the recording in its bucket, as RECORDING has it"
  type        = string
  default     = ""
}

variable "commitments" {
  description = "Whether Savings Plans and reserved instances may be read, which COMMITMENTS needs"
  type        = bool
  default     = false
}

variable "notification_topic_arns" {
  description = "SNS topics that NOTIFY_FILE has sinks in; publishing to them is granted"
  type        = list(string)
  default     = []
}

variable "notification_bus_arns" {
  description = "EventBridge buses that NOTIFY_FILE has sinks in; putting events on them is granted"
  type        = list(string)
  default     = []
}
