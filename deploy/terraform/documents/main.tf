# The interruption bus, its experiment and zonal shift as documents, from documents.json, which `make iam` writes for every
# kit from one source. No provider is needed here, so what they come to can be looked at anywhere.

terraform {
  required_version = ">= 1.5.7"
}

variable "partition" {
  description = "The partition, such as aws"
  type        = string
}

variable "region" {
  description = "The region"
  type        = string
}

variable "account" {
  description = "The account's number"
  type        = string
}

variable "name" {
  description = "Prefix of every name, for the bus"
  type        = string
  default     = ""
}

variable "cluster_name" {
  description = "Name of the EKS cluster, for zonal shift and the experiment"
  type        = string
  default     = ""
}

variable "queue_arn" {
  description = "The queue a cluster reads"
  type        = string
  default     = ""
}

variable "topic_arn" {
  description = "The topic of zonal shifts"
  type        = string
  default     = ""
}

variable "table_arn" {
  description = "The table, where there is one"
  type        = string
  default     = ""
}

variable "rule_arn" {
  description = "The rule that writes to the queue or topic"
  type        = string
  default     = ""
}

variable "router_role_arn" {
  description = "Role of the bus's router; else the one the hub makes in this account and region"
  type        = string
  default     = ""
}

variable "replay_role_arn" {
  description = "Role of those who replay events of the bus; else <name>-replay"
  type        = string
  default     = ""
}

locals {
  cluster_arn = "arn:${var.partition}:eks:${var.region}:${var.account}:cluster/${var.cluster_name}"

  shared = jsondecode(templatefile("${path.module}/documents.json", {
    Partition  = var.partition
    Region     = var.region
    Account    = var.account
    Name       = var.name
    Cluster    = var.cluster_name
    ClusterArn = local.cluster_arn
    QueueArn   = var.queue_arn
    TopicArn   = var.topic_arn
    TableArn   = var.table_arn
    RuleArn    = var.rule_arn

    RouterArn     = var.router_role_arn != "" ? var.router_role_arn : "arn:${var.partition}:iam::${var.account}:role/${var.name}-${var.region}-router"
    ReplayRoleArn = var.replay_role_arn != "" ? var.replay_role_arn : "arn:${var.partition}:iam::${var.account}:role/${var.name}-replay"
  }))

  # Statements differ in shape, which a list of Terraform cannot hold; as texts they are alike.
  policies = {
    for subject, names in {
      bus        = ["queuePolicy", "clusterQueuePolicy", "clusterQueueRouterPolicy", "replayPolicy", "routerPolicy", "tablePolicy", "canaryPolicy", "discoveryPolicy", "readerPolicy"]
      experiment = ["policy", "trust"]
      zonalShift = ["policy", "observerPolicy", "sqsPolicy", "snsPolicy", "tablePolicy", "operatorPolicy", "queuePolicy", "topicPolicy"]
      } : subject => {
      for name in names :
      name => "{\"Version\":\"2012-10-17\",\"Statement\":[${join(",", [for each in local.shared[subject][name] : jsonencode(each)])}]}"
    }
  }
}

output "bus_policies" {
  description = "Policies of the bus as JSON, by name"
  value       = local.policies.bus
}

output "bus_rules" {
  description = "Lane, pattern as JSON, and the switch of each rule, empty where it is always made"
  value = {
    for name, rule in local.shared.bus.rules : name => {
      lane     = rule.lane
      optional = try(rule.optional, "")
      pattern  = jsonencode(rule.pattern)
    }
  }
}

output "bus_queues" {
  description = "Seconds of visibility, retention and wait, and receives before the dead letters, by lane"
  value = {
    for lane, queue in local.shared.bus.queues : lane => {
      visibility = try(queue.visibility, 30)
      retention  = queue.retention
      wait       = try(queue.wait, 0)
      receives   = try(queue.receives, 0)
    }
  }
}

output "bus_functions" {
  description = "Timeout, batch size and window, and concurrency, by lane"
  value       = local.shared.bus.functions
}

output "bus_runtime" {
  description = "Handler, runtime, architecture and memory of the functions"
  value       = local.shared.bus.runtime
}

output "bus_retry" {
  description = "How long and how often EventBridge tries to deliver"
  value       = local.shared.bus.retry
}

output "bus_alarms" {
  description = "Queue, metric and threshold of each alarm"
  value       = local.shared.bus.alarms
}

output "bus_dashboard" {
  description = "The dashboard, as JSON"
  value       = jsonencode(local.shared.bus.dashboard)
}

output "bus_cluster_queue" {
  description = "Seconds of visibility, retention and wait of a cluster's queue"
  value       = local.shared.bus.clusterQueue
}

output "experiment" {
  description = "Action and kind of target of the experiment, and the tag of a cluster's machines"
  value       = { action = local.shared.experiment.action, kind = local.shared.experiment.kind, mark = local.shared.experiment.mark }
}

output "experiment_policies" {
  description = "Policy and trust of the experiment's role as JSON, by name"
  value       = local.policies.experiment
}

output "zonal_policies" {
  description = "Policies of zonal shift as JSON, by name"
  value       = local.policies.zonalShift
}

output "zonal_pattern" {
  description = "The pattern of zonal shifts, as JSON"
  value       = jsonencode(local.shared.zonalShift.pattern)
}

output "zonal_queue" {
  description = "Seconds of visibility, retention and wait, and receives before the dead letters"
  value       = local.shared.zonalShift.queue
}

output "zonal_letters" {
  description = "How long dead letters are kept"
  value       = local.shared.zonalShift.letters
}

output "zonal_retry" {
  description = "How long and how often EventBridge tries to deliver"
  value       = local.shared.zonalShift.retry
}

output "zonal_topic" {
  description = "How often and how far apart the topic tries its subscribers"
  value       = local.shared.zonalShift.topic
}
