variable "name" {
  description = "Prefix of every name"
  type        = string
  default     = "dovetail-bus"
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

variable "mode" {
  description = "lambda, or daemon where the router runs in a cluster"
  type        = string
  default     = "lambda"

  validation {
    condition     = contains(["lambda", "daemon"], var.mode)
    error_message = "mode must be lambda or daemon."
  }
}

variable "package" {
  description = "The package `make lambda` builds"
  type        = string
  default     = "build/lambda/interruption-bus.zip"
}

variable "environment" {
  description = "More DOVETAIL_BUS_* variables of the functions"
  type        = map(string)
  default     = {}
}

variable "reserved_concurrency" {
  description = "Concurrency kept for each function; -1 keeps none"
  type        = number
  default     = -1
}

variable "log_retention_days" {
  description = "How long logs are kept"
  type        = number
  default     = 30
}

variable "optional_kinds" {
  description = "Also take asg_terminate, zonal_shift or canary"
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for kind in var.optional_kinds : contains(["asg_terminate", "zonal_shift", "canary"], kind)])
    error_message = "optional_kinds are asg_terminate, zonal_shift and canary."
  }
}

variable "destinations" {
  description = "Clusters and their queues; queues with the bus's tags are found anyway"
  type = list(object({
    account   = string
    cluster   = string
    queue_url = string
    rebalance = optional(string)
  }))
  default = []
}

variable "accounts" {
  description = "Accounts served, with the reader role of each that is not this one, and the id of its writer role"
  type = list(object({
    id              = string
    role_arn        = optional(string)
    external_id     = optional(string)
    writer_role_arn = optional(string)
    writer_role_id  = optional(string)
  }))
  default = []
}

variable "organization_id" {
  description = "The organization that writer roles of the accounts must belong to; roles of other names or accounts may never write"
  type        = string
  default     = null
}

variable "replay_role_arn" {
  description = "Role of those who replay events, which needs the policy replay_policy_arn; else <name>-replay"
  type        = string
  default     = null
}

variable "cluster_name" {
  description = "Cluster the router runs in, for mode daemon"
  type        = string
  default     = null
}

variable "namespace" {
  description = "Namespace of the router's service account, for mode daemon"
  type        = string
  default     = "kube-system"
}

variable "service_account" {
  description = "Name of the router's service account, for mode daemon"
  type        = string
  default     = "dovetail-bus"
}

variable "permissions_boundary" {
  description = "Permissions boundary of the router's role"
  type        = string
  default     = null
}

variable "create_registry" {
  description = "Whether to make a table that holds destinations"
  type        = bool
  default     = false
}

variable "create_dashboard" {
  description = "Whether to make a dashboard"
  type        = bool
  default     = true
}

variable "alarm_topic_arn" {
  description = "Topic that hears of alarms"
  type        = string
  default     = null
}
