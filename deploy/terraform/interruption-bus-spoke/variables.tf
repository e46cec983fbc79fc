variable "hub_queue_arns" {
  description = "ARNs of the hub's queues urgent and bulk: its output queue_arns"
  type        = map(string)
}

variable "router_role_arn" {
  description = "Role of the hub's router: its output router_role_arn"
  type        = string
}

variable "external_id" {
  description = "What the router has to say to take the reader role"
  type        = string
}

variable "name" {
  description = "Prefix of every name"
  type        = string
  default     = "dovetail-bus"
}

variable "reader_role_name" {
  description = "Name of the role the router reads instances with"
  type        = string
  default     = "DovetailBusReader"
}

variable "optional_kinds" {
  description = "Also take asg_terminate or zonal_shift"
  type        = list(string)
  default     = []
}

variable "region" {
  description = "Region of everything; else the provider's. It has to be the hub's"
  type        = string
  default     = null
}

variable "permissions_boundary" {
  description = "Permissions boundary of the roles"
  type        = string
  default     = null
}

variable "tags" {
  description = "Tags on everything"
  type        = map(string)
  default     = {}
}
