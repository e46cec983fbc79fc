output "hr_manifest" {
  description = "The rendered manifest of the release, as JSON; null unless the helm provider has experiments = { manifest = true }"
  value       = helm_release.karpenter.manifest
}

output "karpenter_iam" {
  description = "The controller's policy"
  value       = aws_iam_policy.karpenter_contoller
}

output "node_class_spec" {
  description = "Where nodes get their role, for spec of an EC2NodeClass"
  value       = { instanceProfile = aws_iam_instance_profile.karpenter.name }
}
