variable "cluster_name" {
  description = "Name of the EKS cluster"
  type        = string
}

variable "transport" {
  description = "How events come: sqs or sns"
  type        = string
  default     = "sqs"

  validation {
    condition     = contains(["sqs", "sns"], var.transport)
    error_message = "transport must be sqs or sns."
  }
}

variable "enable_dynamodb" {
  description = "Whether the ledger is kept in a table"
  type        = bool
  default     = false
}

variable "enable_observer" {
  description = "Whether autoshifts of others are seen, too"
  type        = bool
  default     = false
}

variable "enable_autoshift" {
  description = "Whether AWS may shift the cluster away by itself"
  type        = bool
  default     = false
}

variable "practice_run" {
  description = "The alarm that ends bad practice runs, and when none may start"
  type = object({
    outcome_alarm_arn = optional(string)
    blocked_windows   = optional(list(string), [])
    blocked_dates     = optional(list(string), [])
  })
  default = {}
}

variable "create_iam_role" {
  description = "Whether to make a role; else iam_role_name is given the policy"
  type        = bool
  default     = true
}

variable "iam_role_name" {
  description = "Name of the controller's role, such as the core module's iam_role_name"
  type        = string
  default     = null
}

variable "oidc_provider_arn" {
  description = "The cluster's OIDC provider, for IRSA; without one Pod Identity is used"
  type        = string
  default     = null
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

variable "permissions_boundary" {
  description = "Permissions boundary of the role"
  type        = string
  default     = null
}

variable "region" {
  description = "Region of everything; else the provider's"
  type        = string
  default     = null
}

variable "tags" {
  description = "Tags on everything"
  type        = map(string)
  default     = {}
}
