module "experiment" {
  source = "../.."

  cluster_name = "shop"
  instances    = 2
  notice       = "PT5M"
}

output "experiment_template_id" {
  description = "For aws fis start-experiment --experiment-template-id"
  value       = module.experiment.experiment_template_id
}
