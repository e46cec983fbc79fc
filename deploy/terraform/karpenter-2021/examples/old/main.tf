module "karpenter" {
  source = "../.."

  cluster_name         = "shop"
  worker_iam_role_name = "shop-workers"
}
