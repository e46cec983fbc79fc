module "dovetail" {
  source = "../.."

  cluster_name = "demo"
}

resource "helm_release" "dovetail" {
  name      = "karpenter"
  namespace = module.dovetail.namespace
  chart     = "${path.module}/../../../../helm/dovetail"

  values = [jsonencode({
    serviceAccount = { name = module.dovetail.service_account }
    settings       = { clusterName = "demo", interruptionQueue = module.dovetail.queue_name }
  })]
}

output "node_role" {
  description = "For spec.role of an EC2NodeClass"
  value       = module.dovetail.node_iam_role_name
}
