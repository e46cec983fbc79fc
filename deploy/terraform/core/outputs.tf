output "iam_role_name" {
  description = "Name of the controller's role"
  value       = try(aws_iam_role.controller[0].name, null)
}

output "iam_role_arn" {
  description = "ARN of the controller's role"
  value       = try(aws_iam_role.controller[0].arn, null)
}

output "iam_role_unique_id" {
  description = "Unique id of the controller's role"
  value       = try(aws_iam_role.controller[0].unique_id, null)
}

output "queue_arn" {
  description = "ARN of the queue"
  value       = try(aws_sqs_queue.this[0].arn, null)
}

output "queue_name" {
  description = "Name of the queue, for settings.interruptionQueue"
  value       = try(aws_sqs_queue.this[0].name, null)
}

output "queue_url" {
  description = "URL of the queue"
  value       = try(aws_sqs_queue.this[0].url, null)
}

output "node_iam_role_name" {
  description = "Name of the role of nodes, for spec.role of an EC2NodeClass"
  value       = try(aws_iam_role.node[0].name, null)
}

output "node_iam_role_unique_id" {
  description = "Unique id of the role of nodes"
  value       = try(aws_iam_role.node[0].unique_id, null)
}

output "node_access_entry_arn" {
  description = "ARN of the access entry"
  value       = try(aws_eks_access_entry.node[0].access_entry_arn, null)
}

output "instance_profile_arn" {
  description = "ARN of the instance profile"
  value       = try(aws_iam_instance_profile.this[0].arn, null)
}

output "instance_profile_id" {
  description = "Id of the instance profile"
  value       = try(aws_iam_instance_profile.this[0].id, null)
}

output "instance_profile_name" {
  description = "Name of the instance profile"
  value       = try(aws_iam_instance_profile.this[0].name, null)
}

output "instance_profile_unique" {
  description = "Unique id of the instance profile"
  value       = try(aws_iam_instance_profile.this[0].unique_id, null)
}

output "event_rules" {
  description = "The rules, by name"
  value       = aws_cloudwatch_event_rule.this
}

output "node_iam_role_arn" {
  description = "ARN of the role of nodes"
  value       = try(aws_iam_role.node[0].arn, var.node_iam_role_arn)
}

output "namespace" {
  description = "Namespace of the service account"
  value       = var.namespace
}

output "service_account" {
  description = "Name of the service account"
  value       = var.service_account
}

output "controller_policy" {
  description = "The controller's policy, as JSON"
  value       = module.policies.controller_policy
}
