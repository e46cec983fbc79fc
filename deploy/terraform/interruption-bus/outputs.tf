output "queue_arns" {
  description = "ARNs of the queues, by lane"
  value       = { for lane, queue in merge(aws_sqs_queue.lane, aws_sqs_queue.letters) : lane => queue.arn }
}

output "queue_urls" {
  description = "URLs of the queues, by lane"
  value       = { for lane, queue in merge(aws_sqs_queue.lane, aws_sqs_queue.letters) : lane => queue.url }
}

output "event_rules" {
  description = "The rules, by name"
  value       = aws_cloudwatch_event_rule.this
}

output "router_role_arn" {
  description = "ARN of the router's role"
  value       = aws_iam_role.router.arn
}

output "replay_policy_arn" {
  description = "ARN of the policy of those who replay events"
  value       = aws_iam_policy.replay.arn
}

output "function_arns" {
  description = "ARNs of the functions, by lane"
  value       = { for lane, function in aws_lambda_function.router : lane => function.arn }
}

output "registry_table" {
  description = "Name of the table with destinations, where there is one"
  value       = try(aws_dynamodb_table.registry[0].name, null)
}

output "environment" {
  description = "Variables of the router, for a daemon"
  value       = local.environment
}
