output "queue_name" {
  description = "Name of the queue, for settings.interruptionQueue"
  value       = aws_sqs_queue.this.name
}

output "queue_arn" {
  description = "ARN of the queue"
  value       = aws_sqs_queue.this.arn
}

output "queue_url" {
  description = "URL of the queue"
  value       = aws_sqs_queue.this.url
}
