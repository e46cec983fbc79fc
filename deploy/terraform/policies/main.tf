# Policies as texts, from policies.json, which `make iam` writes for every kit from one source. No provider is needed
# here, so what they come to can be looked at anywhere: terraform apply, and nothing is made.

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

variable "cluster_name" {
  description = "Name of the EKS cluster"
  type        = string
}

variable "node_role_arn" {
  description = "The role of nodes, which the controller may pass"
  type        = string
}

variable "queue_arn" {
  description = "The interruption queue; empty where there is none"
  type        = string
  default     = ""
}

variable "rule_name_prefix" {
  description = "What the names of the event rules start with; nothing else may write to the queue"
  type        = string
  default     = "Karpenter"
}

variable "ami_id_ssm_parameter_arns" {
  description = "Parameters that hold AMI ids; else those AWS publishes"
  type        = list(string)
  default     = []
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

variable "more_statements" {
  description = "More statements of the controller's policy, each as JSON"
  type        = list(string)
  default     = []
}

variable "more_queue_statements" {
  description = "More statements of the queue's policy, each as JSON"
  type        = list(string)
  default     = []
}

locals {
  cluster_arn = "arn:${var.partition}:eks:${var.region}:${var.account}:cluster/${var.cluster_name}"

  shared = jsondecode(templatefile("${path.module}/policies.json", {
    Partition   = var.partition
    Region      = var.region
    Account     = var.account
    Cluster     = var.cluster_name
    ClusterArn  = local.cluster_arn
    NodeRoleArn = var.node_role_arn
    QueueArn    = var.queue_arn
    RuleArn     = "arn:${var.partition}:events:${var.region}:${var.account}:rule/"

    LogBucketArn = "arn:${var.partition}:s3:::${var.decision_log_bucket}"
    LogFolder    = "${join("/", compact([trim(var.decision_log_prefix, "/"), var.cluster_name]))}/"
    TopicArn     = ""
    BusArn       = ""

    RecordingBucketArn = "arn:${var.partition}:s3:::${var.recording_bucket}"
    RecordingFolder    = join("", [for part in compact([trim(var.recording_prefix, "/")]) : "${part}/"])
  }))

  rules = {
    HealthEvent         = local.shared.rules.ScheduledChangeRule
    SpotInterrupt       = local.shared.rules.SpotInterruptionRule
    InstanceRebalance   = local.shared.rules.RebalanceRule
    InstanceStateChange = local.shared.rules.InstanceStateChangeRule
    CRInterruption      = local.shared.rules.CapacityReservationInterruptionRule
  }
  # By name and not by resource: what stands in a policy has to be known before anything is made.
  rule_arns = [for name in sort(keys(local.rules)) : "arn:${var.partition}:events:${var.region}:${var.account}:rule/${var.rule_name_prefix}${name}-*"]

  areas = concat(
    ["NodeLifecycle", "IAMIntegration", "EKSIntegration", "ZonalShift", "ResourceDiscovery"],
    var.queue_arn == "" ? [] : ["Interruption"],
  )
  # Statements differ in shape, which a list of Terraform cannot hold; as texts they are alike.
  statements = flatten([
    for area in local.areas : [
      for statement in local.shared.policies[area] : jsonencode(merge(
        statement,
        statement.Sid == "AllowSSMReadActions" && length(var.ami_id_ssm_parameter_arns) > 0 ? { Resource = var.ami_id_ssm_parameter_arns } : {},
      ))
    ]
  ])
  log_statements = var.decision_log_bucket == "" ? [] : [
    for statement in local.shared.decisionLogPolicy : jsonencode(statement)
  ]
  recording_statements = var.recording_bucket == "" ? [] : [
    for statement in local.shared.recordingPolicy : jsonencode(statement)
  ]
  commitment_statements = var.commitments ? [
    for statement in local.shared.commitmentPolicy : jsonencode(statement)
  ] : []
  # Each kind of sink is granted where there is one: topics first, as in the source.
  sink_arns = [var.notification_topic_arns, var.notification_bus_arns]
  sink_statements = [
    for number, statement in local.shared.notificationPolicy : jsonencode(merge(statement, { Resource = local.sink_arns[number] }))
    if length(local.sink_arns[number]) > 0
  ]
  queue_statements = [
    for statement in local.shared.queuePolicy : jsonencode(merge(
      { Sid = "SqsWrite" },
      statement,
      statement.Effect == "Allow" ? { Condition = { ArnLike = { "aws:SourceArn" = local.rule_arns } } } : {},
    ))
  ]
}

output "controller_policy" {
  description = "The controller's policy, as JSON"
  value       = "{\"Version\":\"2012-10-17\",\"Statement\":[${join(",", concat(local.statements, local.log_statements, local.recording_statements, local.commitment_statements, local.sink_statements, var.more_statements))}]}"
}

output "queue_policy" {
  description = "The queue's policy, as JSON"
  value       = "{\"Version\":\"2012-10-17\",\"Id\":\"EC2InterruptionPolicy\",\"Statement\":[${join(",", concat(local.queue_statements, var.more_queue_statements))}]}"
}

output "rules" {
  description = "Source and detail type of each event rule, by the name upstream's module gives it"
  value       = local.rules
}

output "queue_retention_seconds" {
  description = "How long a warning is kept"
  value       = local.shared.queueRetentionSeconds
}
