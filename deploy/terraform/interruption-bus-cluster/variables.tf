variable "cluster_name" {
  description = "Name of the EKS cluster"
  type        = string
}

variable "queue_name" {
  description = "Name of the queue; else the cluster's"
  type        = string
  default     = null
}

variable "region" {
  description = "Region of the queue; else the provider's"
  type        = string
  default     = null
}

variable "router_role_arn" {
  description = "Role of the router, which alone may then write; one of another account has to be named"
  type        = string
  default     = null
}

variable "registry_table" {
  description = "Table of the hub to write the cluster into; the queue's tags are enough for a hub of the same account"
  type        = string
  default     = null
}

variable "tags" {
  description = "More tags on the queue"
  type        = map(string)
  default     = {}
}
