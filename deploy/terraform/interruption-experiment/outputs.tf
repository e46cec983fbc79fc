output "experiment_template_id" {
  description = "For aws fis start-experiment --experiment-template-id"
  value       = aws_fis_experiment_template.this.id
}

output "iam_role_arn" {
  description = "ARN of the experiment's role"
  value       = aws_iam_role.this.arn
}
