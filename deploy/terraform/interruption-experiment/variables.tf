variable "cluster_name" {
  description = "Name of the EKS cluster whose machines are interrupted"
  type        = string
}

variable "instances" {
  description = "How many machines are interrupted"
  type        = number
  default     = 1

  validation {
    condition     = var.instances >= 1
    error_message = "instances must be at least 1."
  }
}

variable "notice" {
  description = "From the start to the interruption, PT2M to PT15M; the warning comes two minutes before"
  type        = string
  default     = "PT2M"

  validation {
    condition     = can(regex("^PT([2-9]|1[0-5])M$", var.notice))
    error_message = "notice must be PT2M to PT15M."
  }
}

variable "stop_alarm_arn" {
  description = "Alarm that stops the experiment"
  type        = string
  default     = null
}

variable "permissions_boundary" {
  description = "Permissions boundary of the role"
  type        = string
  default     = null
}

variable "region" {
  description = "Region of the experiment; else the provider's"
  type        = string
  default     = null
}

variable "tags" {
  description = "Tags on everything"
  type        = map(string)
  default     = {}
}
