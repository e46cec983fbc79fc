# The inputs of 2021, with their types and defaults; the last two are new, and change nothing until they are set.

variable "cluster_endpoint" {
  description = "Endpoint of the cluster; else EKS is asked"
  type        = string
  default     = ""
}

variable "cluster_name" {
  description = "Name of the EKS cluster"
  type        = any
  default     = ""

  validation {
    condition     = var.cluster_name != ""
    error_message = "Give the name of the cluster: cluster_name."
  }
}

variable "helm_create_namespace" {
  description = "Whether the release makes its namespace"
  type        = bool
  default     = true
}

variable "helm_name" {
  description = "Name of the release"
  type        = string
  default     = "karpenter"
}

variable "helm_namespace" {
  description = "Namespace of the release"
  type        = string
  default     = "karpenter"
}

variable "iam_path" {
  description = "Path of roles, policies and the instance profile"
  type        = string
  default     = ""
}

variable "permissions_boundary" {
  description = "Permissions boundary of the controller's role"
  type        = string
  default     = ""
}

variable "provider_url" {
  description = "The cluster's OIDC issuer; else EKS is asked"
  type        = string
  default     = ""
}

variable "worker_iam_role_name" {
  description = "Name of the role of nodes"
  type        = string
  default     = ""
}

variable "helm_chart" {
  description = "Where the chart is; else beside this module"
  type        = string
  default     = null
}

variable "create_queue" {
  description = "Whether to make the queue of warnings and its rules"
  type        = bool
  default     = false
}
