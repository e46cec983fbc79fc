module "queue" {
  source = "../.."

  cluster_name = "shop"
}

output "interruption_queue" {
  description = "For settings.interruptionQueue"
  value       = module.queue.queue_name
}
