output "queue_name" {
  description = "Name of the queue, where events come by SQS"
  value       = try(aws_sqs_queue.this[0].name, null)
}

output "topic_arn" {
  description = "ARN of the topic, where events come by SNS"
  value       = try(aws_sns_topic.this[0].arn, null)
}

output "table_name" {
  description = "Name of the table, where there is one"
  value       = try(aws_dynamodb_table.this[0].name, null)
}

output "iam_role_arn" {
  description = "ARN of the role"
  value       = try(aws_iam_role.this[0].arn, null)
}

output "operator_policy_arn" {
  description = "ARN of the policy for people who shift"
  value       = aws_iam_policy.operator.arn
}

output "helm_values" {
  description = "Values of the chart that turn it on; with a topic, add zonalShift.tlsSecret"
  value = { for key, value in {
    zonalShift = { for key, value in {
      enabled  = true
      observer = var.enable_observer
      queue    = try(aws_sqs_queue.this[0].name, null)
      topicArn = try([aws_sns_topic.this[0].arn], null)
    } : key => value if value != null }
    controller = try({ env = [
      { name = "ZONAL_SHIFT_STORE", value = "Mirror" },
      { name = "ZONAL_SHIFT_TABLE", value = aws_dynamodb_table.this[0].name },
    ] }, null)
    serviceAccount = local.irsa && var.create_iam_role ? { annotations = { "eks.amazonaws.com/role-arn" = aws_iam_role.this[0].arn } } : null
  } : key => value if value != null }
}

output "zonal_shift_config" {
  description = "For zonal_shift_config of the cluster, where it is made"
  value       = { enabled = true }
}
