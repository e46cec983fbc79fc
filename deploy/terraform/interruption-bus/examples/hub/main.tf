module "bus" {
  source = "../.."

  package         = "${path.module}/../../../../../build/lambda/interruption-bus.zip"
  create_registry = true
}

module "shop" {
  source = "../../../interruption-bus-cluster"

  cluster_name   = "shop"
  registry_table = module.bus.registry_table
}
